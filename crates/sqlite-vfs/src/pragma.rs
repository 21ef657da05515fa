//! PRAGMAs on a protected database: the shim's own, and those that would end its protection.

use crate::bindings::code;
use crate::host::{host, sqlite_string};
use crate::main_file::MainFile;
use standfast_session::CommitMode;
use std::ffi::{CStr, c_char, c_int};

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Pass,
    /// One row with this text. Never without text: some drivers fail on a NULL row.
    Row(String),
    Refuse(String),
}

/// Handles `SQLITE_FCNTL_PRAGMA`: NOTFOUND lets SQLite continue.
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
/// `pointer` is null or a C string that outlives the call.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: as the caller promises.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

fn answer(file: &MainFile, name: &str, value: Option<&str>) -> Answer {
    let Some(value) = value else {
        return match name {
            "standfast_commit_write" => Answer::Row(commit_write(current_commit_write(file))),
            "standfast_visibility" => Answer::Row(visibility(current_visibility(file)).into()),
            "standfast_max_data_delay" => Answer::Row(max_data_delay(file)),
            _ => Answer::Pass,
        };
    };
    let word = value.trim().to_ascii_lowercase();
    match name {
        "journal_mode" if word != "wal" => Answer::Refuse(wal_only(file, "journal_mode", value)),
        "locking_mode" if word == "exclusive" => Answer::Refuse(wal_only(file, "locking_mode", value)),
        "standfast_commit_write" => set_commit_write(file, &word),
        "standfast_visibility" => set_visibility(file, &word),
        "standfast_max_data_delay" => set_max_data_delay(file, &word),
        _ => Answer::Pass,
    }
}

fn wal_only(file: &MainFile, name: &str, value: &str) -> String {
    let path = &file.database.path;
    format!(
        "PRAGMA {name}={value} refused: database {path} is protected by Standfast and must stay in WAL mode and in \
         normal locking mode; run `standfast unprotect {path}` first"
    )
}

fn current_commit_write(file: &MainFile) -> CommitMode {
    let default = || file.database.segment().map_or(0, |(_, segment)| segment.config().commit_mode);
    file.commit_write().unwrap_or_else(|| CommitMode::from_bits(default()))
}

fn current_visibility(file: &MainFile) -> bool {
    let default = || file.database.segment().is_some_and(|(_, segment)| segment.config().durable_visibility);
    file.durable_visibility().unwrap_or_else(default)
}

pub(crate) fn commit_write(mode: CommitMode) -> String {
    let wait = if mode.nowait { "nowait" } else { "wait" };
    let write = if mode.batch { "batch" } else { "immediate" };
    format!("{wait},{write}")
}

pub(crate) fn visibility(durable: bool) -> &'static str {
    if durable { "durable" } else { "early" }
}

/// Commit mode and visibility in force, for status texts.
pub(crate) fn settings(file: &MainFile) -> (String, &'static str) {
    (commit_write(current_commit_write(file)), visibility(current_visibility(file)))
}

fn shared(name: &str) -> String {
    format!(
        "{name}: other connections use the same cache, for which less would be promised too: open this one without a \
         shared cache"
    )
}

fn set_commit_write(file: &MainFile, value: &str) -> Answer {
    if value == "default" {
        file.set_commit_write(None);
        return Answer::Row(commit_write(current_commit_write(file)));
    }
    match parse_commit_write(value, current_commit_write(file)) {
        Some(mode) if mode.nowait && file.is_shared() => Answer::Refuse(shared("standfast_commit_write")),
        Some(mode) => {
            file.set_commit_write(Some(mode));
            Answer::Row(commit_write(mode))
        }
        None => Answer::Refuse(format!(
            "standfast_commit_write: `{value}` is not a commit mode; give `wait` or `nowait`, `immediate` or \
             `batch`, or both with a comma, as in 'nowait,batch', or `default`"
        )),
    }
}

/// Parses a commit mode; a setting that no word names stays as it is.
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
        "early" if file.is_shared() => return Answer::Refuse(shared("standfast_visibility")),
        "early" => Some(false),
        "durable" => Some(true),
        "default" => None,
        _ => {
            return Answer::Refuse(format!(
                "standfast_visibility: `{value}` is not a visibility; give `early`, `durable` or `default`"
            ));
        }
    };
    file.set_durable_visibility(wanted);
    Answer::Row(visibility(current_visibility(file)).into())
}

/// The limit in seconds, or `none`.
fn max_data_delay(file: &MainFile) -> String {
    file.max_data_delay().map_or("none".into(), |limit| limit.as_secs_f64().to_string())
}

fn set_max_data_delay(file: &MainFile, value: &str) -> Answer {
    let Some(limit_ms) = parse_max_data_delay(value) else {
        return Answer::Refuse(format!(
            "standfast_max_data_delay: `{value}` is not a time; give seconds from 0 to {DELAY_MAX_S}, as in `2` or `0.5`, or \
             `none`"
        ));
    };
    if file.is_immutable && limit_ms.is_some() {
        return Answer::Refuse(
            "standfast_max_data_delay: the database was opened as immutable, and is read without its WAL: open it without \
             `immutable`"
                .into(),
        );
    }
    if file.is_shared() && limit_ms.is_some() {
        return Answer::Refuse(
            "standfast_max_data_delay: other connections use the same cache, whose reads would fail or be older too: open this \
             one without a shared cache"
                .into(),
        );
    }
    file.set_max_data_delay(limit_ms);
    Answer::Row(max_data_delay(file))
}

/// Upper limit of `standfast_max_data_delay`: 30 days.
const DELAY_MAX_S: u32 = 30 * 24 * 3600;

/// Parses seconds into milliseconds; the inner `None`: no limit. `None` when it is neither.
fn parse_max_data_delay(value: &str) -> Option<Option<u32>> {
    if value == "none" {
        return Some(None);
    }
    let seconds: f64 = value.parse().ok()?;
    (0.0..=f64::from(DELAY_MAX_S)).contains(&seconds).then_some(Some((seconds * 1000.0) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_delay_is_a_time_in_seconds_or_none() {
        let parse = parse_max_data_delay;
        assert_eq!(
            ["none", "0", "0.25", "2592000"].map(parse),
            [None, Some(0), Some(250), Some(2_592_000_000)].map(Some)
        );
        for wrong in ["", "-1", "nan", "inf", "2592001", "2 s", "0x10"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn commit_mode_words_change_only_what_they_name() {
        let start = CommitMode { nowait: false, batch: true };
        let parse = |value| parse_commit_write(value, start).map(commit_write);
        assert_eq!(parse("nowait").as_deref(), Some("nowait,batch"));
        assert_eq!(parse("immediate, wait").as_deref(), Some("wait,immediate"));
        assert_eq!(parse("nowait,never"), None);
        assert_eq!(parse(""), None);
    }
}
