//! Process-level concerns of an instance: signals, and the service manager that started it.

use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

/// Signals whose default action would end or stop the process: a reader that closed its pipe, a terminal that accepts
/// no output of background jobs, a file size limit (the write then fails), and the user-defined signals.
const IGNORED: [libc::c_int; 6] =
    [libc::SIGPIPE, libc::SIGTTOU, libc::SIGTTIN, libc::SIGXFSZ, libc::SIGUSR1, libc::SIGUSR2];

/// Blocks signals like [`block_stop_signals`], and ignores [`IGNORED`].
pub fn block_signals() -> libc::sigset_t {
    for signal in IGNORED {
        // SAFETY: changes an action to a valid one; no handler is involved.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    block_stop_signals()
}

/// Blocks SIGTERM, SIGINT and SIGHUP for [`wait_for_signal`], in this thread and in all threads that it starts later; and in
/// programs that these start, but for [`with_signals`].
pub fn block_stop_signals() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before it is used; the mask changes for the calling thread, and so for
    // all threads started later.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGHUP);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        set.assume_init()
    }
}

/// Begins a clean stop of this process.
pub fn stop_this_process() {
    // SAFETY: a signal to this process; the main thread waits for it.
    unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
}

/// Waits for the next signal in `set`.
pub fn wait_for_signal(set: &libc::sigset_t) -> libc::c_int {
    let mut signal = 0;
    // SAFETY: an initialised set and room for the number.
    unsafe { libc::sigwait(set, &mut signal) };
    signal
}

/// Waits at most for `limit` for a signal in `set`; `None`: none came.
pub fn wait_for_signal_within(set: &libc::sigset_t, limit: Duration) -> Option<libc::c_int> {
    let limit =
        libc::timespec { tv_sec: limit.as_secs() as libc::time_t, tv_nsec: limit.subsec_nanos().into() };
    // SAFETY: an initialised set and a valid time; no information about the signal is asked for.
    let signal = unsafe { libc::sigtimedwait(set, std::ptr::null_mut(), &limit) };
    (signal > 0).then_some(signal)
}

/// Starts `command` with no signal blocked.
///
/// # Errors
/// When it cannot be started.
pub fn with_signals(command: &mut Command) -> std::io::Result<Child> {
    let unblock = || {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set before it is used; the mask changes for the calling thread.
        match unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut())
        } {
            0 => Ok(()),
            error => Err(std::io::Error::from_raw_os_error(error)),
        }
    };
    // SAFETY: between fork and exec the closure calls only functions that are safe in a signal handler, and allocates
    // nothing.
    unsafe { command.pre_exec(unblock) }.spawn()
}

/// Waits until a child of this process has ended, and leaves it to [`Child::wait`]: until that is called,
/// its number is not used again.
pub fn await_end(child: u32) {
    loop {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: room for the result; WNOWAIT leaves the child as it is.
        let done =
            unsafe { libc::waitid(libc::P_PID, child, info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT) };
        if done == 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Sends `signal` to a child of this process that has not been waited for.
pub fn signal_child(child: &Child, signal: libc::c_int) {
    let Ok(pid) = libc::pid_t::try_from(child.id()) else { return };
    // SAFETY: has no memory preconditions. The number is the child's: its owner has not waited for it.
    unsafe { libc::kill(pid, signal) };
}

/// For commands that print: a reader that closes the pipe ends them quietly.
pub fn end_on_broken_pipe() {
    // SAFETY: restores the default action of a signal; called before any thread is started.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// sd_notify: reports the state of the service to systemd, if present.
pub fn notify_service_manager(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    let text = path.to_string_lossy().into_owned();
    let sent = match text.strip_prefix('@') {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            std::os::unix::net::SocketAddr::from_abstract_name(name.as_bytes())
                .and_then(|address| socket.send_to_addr(state.as_bytes(), &address))
        }
        None => socket.send_to(state.as_bytes(), &path),
    };
    // The instance continues without its service manager.
    let _ = sent;
}
