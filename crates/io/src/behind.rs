//! Work that must not hold up commits: bytes that leave for the disk early, threads that run when others do not.

use std::fs::File;
use std::os::fd::AsRawFd;

/// How much nicer than others [`run_behind`] makes a thread: it gets a tenth of a processor that others want as well.
const NICE: libc::c_int = 10;

/// Starts writing so many bytes of the page cache from `offset` on, without waiting: a later sync finds most of it done,
/// and competes less with durable writes. It makes nothing durable.
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

/// From now on this thread gets a processor when others leave one, mostly. Where the system refuses it runs like others.
pub fn run_behind() {
    // SAFETY: three numbers. On Linux the priority of process 0 is that of the calling thread (setpriority(2), NOTES).
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_asks_runs_behind() {
        // SAFETY: two numbers.
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
