//! Ctrl-C ends a test cleanly.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    // The second signal ends the process immediately.
    if INTERRUPTED.swap(true, Ordering::SeqCst) {
        // SAFETY: _exit is async-signal-safe.
        unsafe { libc::_exit(130) }
    }
}

/// Returns the flag that the first SIGINT or SIGTERM sets. Must be called once, at the start of a command. From then on
/// a write to a closed connection or pipe returns an error instead of raising a signal.
pub fn flag() -> &'static AtomicBool {
    let handler: extern "C" fn(libc::c_int) = note;
    // SAFETY: the handler only touches an atomic and calls async-signal-safe functions; the structure is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut());
        libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    &INTERRUPTED
}
