//! Work that must not delay commits: early writeback, and threads that yield the processor to others.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Niceness of a thread after [`run_behind`]: it gets a tenth of a processor that other threads want as well.
const NICE: libc::c_int = 10;

/// Starts writeback of `bytes` bytes of the page cache from `offset` on, without waiting: a later sync finds most of it
/// done, and competes less with durable writes. Makes nothing durable.
pub fn start_writing(file: &File, offset: u64, bytes: u64) {
    // SAFETY: an open descriptor and a byte range; the call only starts write-back.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            offset.cast_signed(),
            bytes.cast_signed(),
            libc::SYNC_FILE_RANGE_WRITE,
        );
    }
}

/// Lowers the priority of the calling thread, so that it mostly gets a processor that others leave idle. If the system
/// refuses, the thread runs like others.
pub fn run_behind() {
    // SAFETY: the call takes three numbers. On Linux the priority of process 0 is that of the calling thread
    // (setpriority(2), NOTES).
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_calling_thread_runs_at_low_priority() {
        // SAFETY: the call takes two numbers.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = nice();
        let behind = std::thread::spawn(move || {
            run_behind();
            nice()
        });
        assert_eq!(behind.join().ok(), Some(NICE.max(before)));
        assert_eq!(nice(), before);
    }
}
