//! Messages. A result code cannot say what is wrong; these do: what happened, why, and what to do about it.
//!
//! They go to the application's SQLite log, to `standfast_status()`, and, once per cause, database and
//! minute, to standard error unless `STANDFAST_QUIET=1`.

use crate::bindings::code;
use crate::host::{c_string, host};
use standfast_session::monotonic_ns;
use std::collections::HashMap;
use std::ffi::c_int;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

const REPEAT_NS: u64 = 60_000_000_000;

/// What a message is about; messages of one cause are repeated once a minute at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// The marker beside the database cannot be used.
    Marker,
    /// Writing to a standby.
    Standby,
    /// The instance does not run or does not serve the database.
    Down,
    /// The instance met an error that it cannot go on from.
    Failed,
    /// All session slots are taken.
    Sessions,
    /// A commit whose durability is not known.
    CommitUnknown,
    /// A reader could not learn whether what it sees is durable.
    ReadUnknown,
    /// Something that only works outside of write-ahead log mode.
    WalOnly,
    /// A write to the log without the write lock.
    Exclusive,
}

#[derive(Default)]
struct Reports {
    last: HashMap<String, String>,
    printed: HashMap<(String, Cause), u64>,
}

static REPORTS: Mutex<Option<Reports>> = Mutex::new(None);

/// Reports `text` about the database at `path`.
pub(crate) fn report(path: &str, cause: Cause, result: c_int, text: &str) {
    let print = note(path, cause, text);
    if let Some(host) = host() {
        let message = c_string(&format!("standfast: {text}"));
        // SAFETY: a format that takes one string, and that string.
        unsafe { (host.log)(result, c"%s".as_ptr(), message.as_ptr()) };
    }
    if print && !std::env::var("STANDFAST_QUIET").is_ok_and(|quiet| quiet == "1") {
        // Not eprintln: that panics when the other end of a pipe has gone.
        let _ = writeln!(std::io::stderr(), "standfast: {text}");
    }
}

/// Remembers the message; true when it is to be printed.
fn note(path: &str, cause: Cause, text: &str) -> bool {
    let mut guard = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    let reports = guard.get_or_insert_default();
    reports.last.insert(path.to_owned(), text.to_owned());
    let now = monotonic_ns();
    let key = (path.to_owned(), cause);
    let print = reports.printed.get(&key).is_none_or(|last| now.saturating_sub(*last) >= REPEAT_NS);
    if print {
        reports.printed.insert(key, now);
    }
    print
}

/// The last message about a database.
pub(crate) fn last_error(path: &str) -> Option<String> {
    let guard = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    guard.as_ref().and_then(|reports| reports.last.get(path).cloned())
}

/// Runs the body of a function that SQLite calls; a panic must not unwind into C.
pub(crate) fn shield(body: impl FnOnce() -> c_int) -> c_int {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(code::INTERNAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_printed_once_a_minute_but_always_remembered() {
        assert!(note("/db/a", Cause::Down, "first"));
        assert!(!note("/db/a", Cause::Down, "second"));
        assert!(note("/db/a", Cause::Standby, "third"));
        assert!(note("/db/b", Cause::Down, "fourth"));
        assert_eq!(last_error("/db/a").as_deref(), Some("third"));
        assert_eq!(last_error("/db/none"), None);
    }

    #[test]
    fn a_panic_becomes_a_result_code() {
        assert_eq!(shield(|| code::BUSY), code::BUSY);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        assert_eq!(shield(|| panic!("on purpose")), code::INTERNAL);
        std::panic::set_hook(hook);
    }
}
