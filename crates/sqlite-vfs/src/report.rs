//! Messages. A result code cannot explain an error; a message says what happened, why, and what to do about it.
//!
//! Messages go to the application's SQLite error log, to `standfast_status()`, and, once per cause, database and
//! minute, to standard error unless `STANDFAST_QUIET=1`.

use crate::bindings::code;
use crate::host::{c_string, host};
use standfast_session::monotonic_ns;
use std::collections::HashMap;
use std::ffi::c_int;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

const REPEAT_NS: u64 = 60_000_000_000;

/// Cause of a message; messages of one cause are printed at most once a minute for each database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// The marker beside the database cannot be used.
    Marker,
    Standby,
    /// The instance does not run or does not serve the database.
    Down,
    /// The instance met an error that it cannot continue after, or the database is offline or fenced.
    Failed,
    Sessions,
    /// A commit whose durability is not known.
    CommitUnknown,
    /// The data of a standby are older than a reader allows.
    Stale,
    /// A reader could not find out whether its snapshot is durable.
    ReadUnknown,
    /// An operation that works only outside WAL mode.
    WalOnly,
    /// A write to the WAL without the write lock.
    Exclusive,
    /// A transaction whose COMMIT would ignore a failed wait.
    SuperJournal,
    /// The inner lock of writers cannot be taken.
    Lock,
    /// A connection to a protected database that does not use the VFS.
    Unprotected,
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
        // Not eprintln, which panics when the other end of a pipe has gone.
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

/// Returns the last message about a database.
pub(crate) fn last_error(path: &str) -> Option<String> {
    let guard = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    guard.as_ref().and_then(|reports| reports.last.get(path).cloned())
}

/// Runs the body of a function that SQLite calls. A panic must not unwind into C, where it would abort the application:
/// it becomes [`code::INTERNAL`]. Every function that C calls runs its whole body in a shield; a test reads the sources
/// to check that.
pub(crate) fn shield(body: impl FnOnce() -> c_int) -> c_int {
    shield_with(code::INTERNAL, body)
}

/// Runs `body` like [`shield`] and returns `after_panic` after a panic.
pub(crate) fn shield_with<T>(after_panic: T, body: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(after_panic)
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

    /// Returns the functions that C calls, by file and name, whose body is neither shielded nor a single call of the
    /// host's method.
    fn unshielded(directory: &std::path::Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(unshielded(&path));
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            for part in product.split("extern \"C\" fn ").skip(1) {
                // Function types have no name.
                let Some((name, rest)) = part.split_once('(').filter(|(name, _)| !name.is_empty()) else {
                    continue;
                };
                let body = rest.split_once("{\n").and_then(|(_, body)| body.split_once("\n}")).unwrap().0;
                let mut lines = body.trim_start().lines().filter(|line| !line.trim_start().starts_with("//"));
                let first = lines.next().unwrap_or_default().trim_start();
                let forwards = first.starts_with("real!(") && lines.next().is_none();
                if !(first.starts_with("shield") || forwards) {
                    found.push(format!("{}: {name}", path.display()));
                }
            }
        }
        found
    }

    #[test]
    fn every_function_called_by_c_catches_panics() {
        let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        assert_eq!(unshielded(&sources), Vec::<String>::new());
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
