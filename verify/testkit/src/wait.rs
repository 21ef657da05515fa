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
