//! Messages about shared memory that is not what this instance has written.

use standfast_session::Repaired;
use standfast_types::hint;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest interval between alerts: a process that may write to the shared memory can continue to do so.
const REPORTED_AGAIN_AFTER: Duration = Duration::from_secs(3600);

/// Time of the last alert about the shared memory.
#[derive(Default)]
pub struct MemoryReported(Mutex<Option<Instant>>);

impl MemoryReported {
    /// Whether a finding is to be reported now; counts as reported then.
    pub(crate) fn is_due(&self) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = reported.is_none_or(|reported| reported.elapsed() >= REPORTED_AGAIN_AFTER);
        if is_due {
            *reported = Some(Instant::now());
        }
        is_due
    }
}

/// Text for the alert log; `None` if nothing was wrong. Pure.
pub(crate) fn finding(found: &std::io::Result<Repaired>, path: &str) -> Option<String> {
    let remedy =
        "find out which process did it: every application that may use a database here can write into it";
    match found {
        Ok(Repaired { truncated: false, changed_words: 0 }) => None,
        Ok(Repaired { truncated: true, .. }) => Some(hint::in_one_line(
            format_args!(
                "the shared memory {path} was truncated by another process; it is whole again, and sessions are served on"
            ),
            Some(remedy),
        )),
        Ok(Repaired { changed_words, .. }) => Some(hint::in_one_line(
            format_args!(
                "{changed_words} words of what this instance publishes in {path}.published were written by another process, of \
                 root or of the user of this instance; they are right again. Commits may have been acknowledged meanwhile that \
                 were not durable"
            ),
            Some("find out which process did it; only this instance writes there"),
        )),
        Err(error) => Some(hint::in_one_line(
            format_args!(
                "the shared memory {path} was truncated by another process and cannot be made whole: {error}; commits are \
                 released late, and new connections cannot write"
            ),
            Some(&format!("{remedy}, and make room in its file system")),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_repair_is_reported_by_kind_and_rate_limited() {
        let say =
            |truncated, changed_words| finding(&Ok(Repaired { truncated, changed_words }), "/dev/shm/x");
        assert_eq!(say(false, 0), None);
        assert!(say(true, 0).unwrap().contains("truncated"));
        assert!(say(false, 7).unwrap().starts_with("7 words of what this instance publishes"));
        let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
        assert!(finding(&Err(full), "/dev/shm/x").unwrap().contains("make room"));
        let reported = MemoryReported::default();
        assert!(reported.is_due() && !reported.is_due());
    }
}
