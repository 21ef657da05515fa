//! Ctrl-C: the waiting thread sends each process that a measurement started its end signal, every wait of the
//! measurement returns [`BenchError::Interrupted`], and the scratch directories are removed as their owners are
//! dropped.

use std::io::Error;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::{BenchError, Result};

/// Processes that were started and not yet reaped, each with the signal that makes it clean up and end.
struct State {
    interrupted: bool,
    processes: Vec<(libc::pid_t, libc::c_int)>,
}

static STATE: Mutex<State> = Mutex::new(State { interrupted: false, processes: Vec::new() });
static CHANGED: Condvar = Condvar::new();

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes over SIGINT, SIGTERM and SIGHUP for this process. Call it before any other thread starts: threads
/// inherit the signal mask. Repeated calls do nothing.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let signals = blocked_signals();
        let waiter = std::thread::Builder::new().name("interrupt".into());
        if waiter.spawn(move || wait_for(&signals)).is_err() {
            eprintln!("note: no thread for signals; Ctrl-C will leave temporary files behind");
        }
    });
}

fn blocked_signals() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before anything reads it; the signal numbers are valid, and the pointer
    // for the old mask is null.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        set.assume_init()
    }
}

fn wait_for(signals: &libc::sigset_t) {
    loop {
        let mut signal = 0;
        // SAFETY: both pointers are to live values of the right types.
        if unsafe { libc::sigwait(signals, &mut signal) } != 0 {
            return;
        }
        let mut state = state();
        if state.interrupted {
            // A second Ctrl-C: the user does not want to wait for the clean-up.
            state.processes.iter().for_each(|(pid, _)| send(*pid, libc::SIGKILL));
            std::process::exit(130);
        }
        state.interrupted = true;
        state.processes.iter().for_each(|(pid, signal)| send(*pid, *signal));
        CHANGED.notify_all();
    }
}

/// Sends a signal to a process that this program started and has not reaped, so that its pid cannot have been reused.
pub(crate) fn send(pid: libc::pid_t, signal: libc::c_int) {
    // SAFETY: kill has no memory preconditions.
    if unsafe { libc::kill(pid, signal) } != 0 {
        let error = Error::last_os_error();
        if error.raw_os_error() != Some(libc::ESRCH) {
            eprintln!("note: cannot end process {pid}: {error}");
        }
    }
}

/// Records a started process; when the interrupt has already arrived, sends it its end signal immediately.
pub(crate) fn register(pid: libc::pid_t, signal: libc::c_int) {
    let mut state = state();
    state.processes.push((pid, signal));
    if state.interrupted {
        send(pid, signal);
    }
}

/// Removes a process that is about to be reaped.
pub(crate) fn forget(pid: libc::pid_t) {
    state().processes.retain(|(known, _)| *known != pid);
}

/// Returns an error once Ctrl-C was pressed.
pub fn check() -> Result<()> {
    if state().interrupted { Err(BenchError::Interrupted) } else { Ok(()) }
}

/// Lets measured processes run for `time`; returns early, with an error, on Ctrl-C.
pub fn pause(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    let mut state = state();
    while !state.interrupted {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        state = CHANGED.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    Err(BenchError::Interrupted)
}

/// Pause between two polls of another process.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Polls another process until `ready` returns true, at most for `limit`; `what` names the wait in the error.
pub(crate) fn await_other(
    what: &str,
    limit: Duration,
    mut ready: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + limit;
    while !ready()? {
        if Instant::now() >= end {
            return Err(waited_without_success(what, format!("not so after {} s", limit.as_secs())));
        }
        pause(ASK_EVERY)?;
    }
    Ok(())
}

/// Polls another process until its amount reaches `enough`. Waits as long as the amount grows, because the speed
/// depends on the machine; gives up after `limit` without growth. Polling takes at most a twentieth of a processor,
/// because something else is measured meanwhile.
pub(crate) fn await_amount(
    what: &str,
    enough: f64,
    limit: Duration,
    mut amount: impl FnMut() -> Result<f64>,
) -> Result<()> {
    let (mut most, mut grew) = (f64::NEG_INFINITY, Instant::now());
    loop {
        let asked = Instant::now();
        let now = amount()?;
        if now >= enough {
            return Ok(());
        }
        if now > most {
            (most, grew) = (now, Instant::now());
        } else if grew.elapsed() >= limit {
            let stands = format!("stands at {most} for {} s, {enough} were awaited", limit.as_secs());
            return Err(waited_without_success(what, stands));
        }
        pause(ASK_EVERY.max(asked.elapsed() * 19))?;
    }
}

fn waited_without_success(what: &str, problem: String) -> BenchError {
    BenchError::Program { program: what.to_owned(), problem, output: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_awaited_as_long_as_it_grows() {
        let limit = ASK_EVERY * 3;
        let mut amounts = (1..).map(f64::from);
        let slowly = await_amount("redo", 10.0, limit, || Ok(amounts.next().unwrap_or_default()));
        assert!(slowly.is_ok(), "ten questions take longer than the limit");
        let stands = await_amount("redo", 10.0, limit, || Ok(7.0)).unwrap_err().to_string();
        assert!(stands.contains("redo") && stands.contains("stands at 7"), "{stands}");
    }
}
