//! PRAGMAs on a protected database: ours, and those that would take it out of our hands.

use crate::bindings::code;
use crate::host::{host, sqlite_string};
use crate::main_file::MainFile;
use standfast_session::CommitMode;
use std::ffi::{CStr, c_char, c_int, c_void};

/// What becomes of a PRAGMA.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// SQLite goes on with it.
    Pass,
    /// One row with this text. Never without text: some drivers fail on a row that is NULL.
    Row(String),
    /// An error with this text.
    Refuse(String),
}

/// `SQLITE_FCNTL_PRAGMA`: NOTFOUND lets SQLite go on.
///
/// # Safety
/// `arguments` is SQLite's array: place for a result, name, value or null.
pub(crate) unsafe fn run(file: &MainFile, arguments: *mut *mut c_char) -> c_int {
    // SAFETY: as the caller promises; SQLite's strings are valid for the call.
    let (name, value) = unsafe { (text(*arguments.add(1)), text(*arguments.add(2))) };
    let Some(name) = name else { return code::NOTFOUND };
    let (result, message) = match answer(file, &name.to_ascii_lowercase(), value.as_deref()) {
        Answer::Pass => return code::NOTFOUND,
        Answer::Row(text) => (code::OK, text),
        Answer::Refuse(text) => (code::ERROR, text),
    };
    if let Some(host) = host() {
        // SAFETY: the first place is for a result that SQLite frees.
        unsafe { *arguments = sqlite_string(host, &message) };
    }
    result
}

/// # Safety
/// Null or a C string that outlives the call.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: as the caller promises.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

fn answer(file: &MainFile, name: &str, value: Option<&str>) -> Answer {
    let Some(value) = value else {
        return match name {
            "standfast_commit_write" => Answer::Row(commit_write(current_commit_write(file))),
            "standfast_visibility" => Answer::Row(visibility(current_visibility(file)).into()),
            _ => Answer::Pass,
        };
    };
    let word = value.trim().to_ascii_lowercase();
    match name {
        "journal_mode" if word != "wal" => Answer::Refuse(wal_only(file, "journal_mode", value)),
        "locking_mode" if word == "exclusive" => Answer::Refuse(wal_only(file, "locking_mode", value)),
        "page_size" if word.parse().ok() != page_size(file) => {
            Answer::Refuse(wal_only(file, "page_size", value))
        }
        "standfast_commit_write" => set_commit_write(file, &word),
        "standfast_visibility" => set_visibility(file, &word),
        _ => Answer::Pass,
    }
}

fn wal_only(file: &MainFile, name: &str, value: &str) -> String {
    let path = &file.database.path;
    format!(
        "PRAGMA {name}={value} refused: database {path} is protected by Standfast and must stay in WAL mode, \
         with its page size and in normal locking mode; run `standfast unprotect {path}` first"
    )
}

fn current_commit_write(file: &MainFile) -> CommitMode {
    let default = || file.database.segment().map_or(0, |(_, segment)| segment.config().commit_mode);
    file.commit_write.get().unwrap_or_else(|| CommitMode::from_bits(default()))
}

fn current_visibility(file: &MainFile) -> bool {
    let default = || file.database.segment().is_some_and(|(_, segment)| segment.config().durable_visibility);
    file.durable_visibility.get().unwrap_or_else(default)
}

/// `wait,immediate` and the like.
pub(crate) fn commit_write(mode: CommitMode) -> String {
    let wait = if mode.nowait { "nowait" } else { "wait" };
    let write = if mode.batch { "batch" } else { "immediate" };
    format!("{wait},{write}")
}

/// `early` or `durable`.
pub(crate) fn visibility(durable: bool) -> &'static str {
    if durable { "durable" } else { "early" }
}

/// The commit mode in force for status texts.
pub(crate) fn settings(file: &MainFile) -> (String, &'static str) {
    (commit_write(current_commit_write(file)), visibility(current_visibility(file)))
}

fn set_commit_write(file: &MainFile, value: &str) -> Answer {
    if value == "default" {
        file.commit_write.set(None);
        return Answer::Row(commit_write(current_commit_write(file)));
    }
    match parse_commit_write(value, current_commit_write(file)) {
        Some(mode) => {
            file.commit_write.set(Some(mode));
            Answer::Row(commit_write(mode))
        }
        None => Answer::Refuse(format!(
            "standfast_commit_write: `{value}` is not a commit mode; give `wait` or `nowait`, `immediate` or \
             `batch`, or both with a comma, as in 'nowait,batch', or `default`"
        )),
    }
}

/// Words that are not given stay as they are.
fn parse_commit_write(value: &str, mut mode: CommitMode) -> Option<CommitMode> {
    for word in value.split(',').map(str::trim) {
        match word {
            "wait" => mode.nowait = false,
            "nowait" => mode.nowait = true,
            "immediate" => mode.batch = false,
            "batch" => mode.batch = true,
            _ => return None,
        }
    }
    Some(mode)
}

fn set_visibility(file: &MainFile, value: &str) -> Answer {
    let wanted = match value {
        "early" => Some(false),
        "durable" => Some(true),
        "default" => None,
        _ => {
            return Answer::Refuse(format!(
                "standfast_visibility: `{value}` is not a visibility; give `early`, `durable` or `default`"
            ));
        }
    };
    file.durable_visibility.set(wanted);
    Answer::Row(visibility(current_visibility(file)).into())
}

/// Page size in the database's header; it cannot change while the database is protected.
fn page_size(file: &MainFile) -> Option<u32> {
    let mut bytes = [0u8; 2];
    // SAFETY: the real file is open as long as the state exists, and the buffer holds two bytes.
    let result = unsafe {
        let read = (*(*file.real).methods).read?;
        read(file.real, bytes.as_mut_ptr().cast::<c_void>(), 2, 16)
    };
    // 65,536 does not fit and is written as 1.
    (result == code::OK).then(|| match u16::from_be_bytes(bytes) {
        1 => 65_536,
        size => u32::from(size),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_mode_is_read_word_by_word_and_keeps_what_is_not_said() {
        let start = CommitMode { nowait: false, batch: true };
        let parse = |value| parse_commit_write(value, start).map(commit_write);
        assert_eq!(parse("nowait").as_deref(), Some("nowait,batch"));
        assert_eq!(parse("immediate, wait").as_deref(), Some("wait,immediate"));
        assert_eq!(parse("nowait,never"), None);
        assert_eq!(parse(""), None);
    }
}
