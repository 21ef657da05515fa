use std::time::{Duration, Instant};

/// Waits until `condition` holds, and polls it at least every 5 ms.
///
/// For conditions in other threads or processes that offer no way to wait; where there is a channel or a join handle,
/// wait on that instead.
///
/// # Panics
/// When `timeout` has passed; the message contains `what`.
#[track_caller]
pub fn wait_until(what: &str, timeout: Duration, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    let mut pause = Duration::from_micros(100);
    while !condition() {
        assert!(started.elapsed() < timeout, "waited {timeout:?} for: {what}");
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// Returns the kernel's number of the calling thread.
pub fn thread_id() -> libc::pid_t {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// Waits until a thread of this process sleeps; panics when it has ended.
#[track_caller]
pub fn until_asleep(thread: libc::pid_t) {
    wait_until("the thread sleeps", Duration::from_secs(10), || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"))
            .unwrap_or_else(|error| panic!("the thread has ended instead of waiting: {error}"));
        // The process name before it, in parentheses, may contain anything.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        assert!(!matches!(state, None | Some('Z' | 'X')), "the thread has ended instead of waiting: {stat}");
        state == Some('S')
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_the_condition_holds() {
        let mut looks = 0;
        wait_until("three looks", Duration::from_secs(10), || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "for: the impossible")]
    fn a_timeout_names_what_was_waited_for() {
        wait_until("the impossible", Duration::from_millis(3), || false);
    }
}
