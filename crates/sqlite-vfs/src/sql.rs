//! SQL functions: `standfast_role()`, `standfast_scn()`, `standfast_status()`, `standfast_sync_with_primary()`, each with an
//! optional schema.

use crate::bindings::{Context, DIRECT_ONLY, Sqlite3, UTF8, Value, code};
use crate::file::main_of;
use crate::host::{Host, c_string, host};
use crate::main_file::MainFile;
use crate::pragma;
use crate::report::{Cause, last_error, report, shield, shield_with};
use standfast_session::{DatabaseState, FileId, Marker, Segment};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

type Body = unsafe extern "C" fn(*mut Context, c_int, *mut *mut Value);

/// Registers the functions on a connection.
///
/// # Safety
/// `connection` must be an open connection of `host`.
pub(crate) unsafe fn register(host: &Host, connection: *mut Sqlite3) -> c_int {
    let functions: [(&CStr, Body, c_int, c_int); 4] = [
        (c"standfast_role", role, 1, UTF8),
        (c"standfast_scn", scn, 1, UTF8),
        (c"standfast_status", status, 1, UTF8),
        // A view or trigger must not make others wait.
        (c"standfast_sync_with_primary", sync_with_primary, 2, UTF8 | DIRECT_ONLY),
    ];
    for (name, body, arguments_max, flags) in functions {
        for arguments in 0..=arguments_max {
            // SAFETY: as the caller promises; the functions live as long as the library.
            let result = unsafe {
                (host.create_function_v2)(
                    connection,
                    name.as_ptr(),
                    arguments,
                    flags,
                    std::ptr::null_mut(),
                    Some(body),
                    None,
                    None,
                    None,
                )
            };
            if result != code::OK {
                return result;
            }
        }
    }
    code::OK
}

enum Answer {
    Null,
    Number(i64),
    Text(String),
    /// The statement fails with this message.
    Error(String),
}

unsafe extern "C" fn role(context: *mut Context, count: c_int, values: *mut *mut Value) {
    // SAFETY: SQLite calls a function with its context and `count` values.
    shield_with((), || unsafe {
        respond(context, count, values, |found| match found {
            Found::Ours(file) => {
                Answer::Text(role_of(file.database.segment().map(|found| state(file, found.1))).into())
            }
            Found::Unprotected(_) => Answer::Text(UNPROTECTED.into()),
        });
    });
}

unsafe extern "C" fn scn(context: *mut Context, count: c_int, values: *mut *mut Value) {
    // SAFETY: SQLite calls a function with its context and `count` values.
    shield_with((), || unsafe {
        respond(context, count, values, |found| match found {
            Found::Ours(file) => match file.database.segment() {
                Some((marker, segment)) => Answer::Number(segment.scn(marker.database) as i64),
                None => Answer::Null,
            },
            Found::Unprotected(_) => Answer::Null,
        });
    });
}

/// How long `standfast_sync_with_primary()` waits without a second argument, and at most.
const SYNC_WAIT_S: f64 = 10.0;
const SYNC_WAIT_MAX_S: f64 = 3_600.0;

unsafe extern "C" fn sync_with_primary(context: *mut Context, count: c_int, values: *mut *mut Value) {
    // SAFETY: SQLite calls a function with its context and `count` values.
    shield_with((), || unsafe {
        let seconds = match (count, host()) {
            (2, Some(host)) => (host.value_double)(*values.add(1)),
            _ => SYNC_WAIT_S,
        };
        let failed = Answer::Error("standfast_sync_with_primary: it failed".into());
        respond_or(failed, context, count, values, |found| match found {
            _ if !(0.0..=SYNC_WAIT_MAX_S).contains(&seconds) => Answer::Error(format!(
                "standfast_sync_with_primary: {seconds} is no time to wait; give seconds from 0 to {SYNC_WAIT_MAX_S}"
            )),
            Some(Found::Ours(file)) => match file.sync_with_primary(Duration::from_secs_f64(seconds)) {
                Ok(()) => Answer::Number(1),
                Err(why) => Answer::Error(why),
            },
            Some(Found::Unprotected(path)) => Answer::Error(format!(
                "standfast_sync_with_primary: this connection to {path} is {UNPROTECTED}. {UNPROTECTED_REMEDY}"
            )),
            None => Answer::Null,
        });
    });
}

unsafe extern "C" fn status(context: *mut Context, count: c_int, values: *mut *mut Value) {
    // SAFETY: SQLite calls a function with its context and `count` values.
    shield_with((), || unsafe {
        respond(context, count, values, |found| match found {
            Found::Ours(file) => Answer::Text(status_of(file)),
            Found::Unprotected(path) => Answer::Text(status_of_unprotected(path)),
        });
    });
}

/// The database that a call is about.
enum Found<'f> {
    /// A protected database opened with the VFS.
    Ours(&'f MainFile),
    /// Path of a protected database opened without the VFS.
    Unprotected(&'f str),
}

/// Role of a connection that does not use the VFS, although its database is protected.
const UNPROTECTED: &str = "unprotected: opened before the extension was loaded";
const UNPROTECTED_REMEDY: &str = "what it commits waits for no standby. Load the extension first, on a connection to `:memory:`, and open the database then";

/// Returns the path of the database of a schema, if the database is protected and the connection opened it without the
/// VFS.
///
/// # Safety
/// `connection` is an open connection of `host`, `schema` null or a string.
unsafe fn unprotected(host: &Host, connection: *mut Sqlite3, schema: *const c_char) -> Option<String> {
    if schema.is_null() {
        return None;
    }
    // SAFETY: as the caller promises; the name is null or a string that lives as long as the schema is attached.
    let name = unsafe {
        let name = (host.db_filename)(connection, schema);
        if name.is_null() {
            return None;
        }
        CStr::from_ptr(name)
    };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    if path.as_os_str().is_empty() {
        return None;
    }
    // The marker is another file than the database: reading it drops no lock of SQLite's.
    let marker = Marker::read(path).ok()??;
    marker.check(path, FileId::of(path)?).ok()?;
    Some(path.to_string_lossy().into_owned())
}

/// Reports that the connection that loads the extension stays unprotected, if its main database is protected.
///
/// # Safety
/// As [`register`].
pub(crate) unsafe fn warn_if_unprotected(host: &Host, connection: *mut Sqlite3) {
    shield(|| {
        // SAFETY: as the caller promises.
        let path = unsafe {
            match main_of(host, connection, c"main".as_ptr()) {
                Some(_) => None,
                None => unprotected(host, connection, c"main".as_ptr()),
            }
        };
        if let Some(path) = path {
            let text = format!("this connection to {path} is {UNPROTECTED}: {UNPROTECTED_REMEDY}");
            report(&path, Cause::Unprotected, code::WARNING, &text);
        }
        code::OK
    });
}

/// Finds the file that the call is about and returns the result of `body`; NULL when the file is not protected.
///
/// # Safety
/// The arguments are those with which SQLite calls a function.
unsafe fn respond(
    context: *mut Context,
    count: c_int,
    values: *mut *mut Value,
    body: impl FnOnce(Found<'_>) -> Answer,
) {
    // SAFETY: as the caller promises.
    unsafe { respond_or(Answer::Null, context, count, values, |found| found.map_or(Answer::Null, body)) }
}

/// Like [`respond`], with the answer that counts when `body` panics; `body` is called for other files too.
///
/// # Safety
/// As [`respond`].
unsafe fn respond_or(
    otherwise: Answer,
    context: *mut Context,
    count: c_int,
    values: *mut *mut Value,
    body: impl FnOnce(Option<Found<'_>>) -> Answer,
) {
    let Some(host) = host() else { return };
    let mut answer = otherwise;
    shield(|| {
        // SAFETY: the schema name is null or a string of SQLite that lives for the call, and the connection is the one
        // that makes the call.
        let (file, unprotected) = unsafe {
            let schema: *const c_char = match count {
                0 => c"main".as_ptr(),
                _ => (host.value_text)(*values),
            };
            let connection = (host.context_db_handle)(context);
            let file = match schema.is_null() {
                true => None,
                false => main_of(host, connection, schema),
            };
            (file, if file.is_some() { None } else { unprotected(host, connection, schema) })
        };
        answer = match (file, unprotected) {
            (Some(file), _) => body(Some(Found::Ours(file))),
            (None, Some(path)) => body(Some(Found::Unprotected(&path))),
            (None, None) => body(None),
        };
        code::OK
    });
    const COPY: isize = -1;
    // SAFETY: the context of this call; SQLite copies the text.
    unsafe {
        match answer {
            Answer::Null => (host.result_null)(context),
            Answer::Error(text) => (host.result_error)(context, c_string(&text).as_ptr(), -1),
            Answer::Number(number) => (host.result_int64)(context, number),
            Answer::Text(text) => {
                (host.result_text)(context, c_string(&text).as_ptr(), -1, COPY);
            }
        }
    }
}

fn state(file: &MainFile, segment: Segment) -> DatabaseState {
    file.database.marker().map_or(DatabaseState::Absent, |marker| segment.state(marker.database))
}

fn role_of(state: Option<DatabaseState>) -> &'static str {
    match state {
        Some(DatabaseState::Standby) => "standby",
        Some(DatabaseState::Absent) | None => "unknown",
        Some(_) => "primary",
    }
}

fn state_name(state: DatabaseState) -> &'static str {
    match state {
        DatabaseState::Absent => "absent",
        DatabaseState::Open => "open",
        DatabaseState::Recovering => "recovering",
        DatabaseState::Standby => "standby",
        DatabaseState::Failed => "failed",
        DatabaseState::Stopped => "stopped",
        DatabaseState::Offline => "offline",
        DatabaseState::Fenced => "fenced",
    }
}

/// Returns one JSON object. Without a segment its fields are null.
fn status_of(file: &MainFile) -> String {
    let found = file.database.segment();
    let state = found.map(|found| state(file, found.1));
    let (commit_write, visibility) = pragma::settings(file);
    let mut json = Json::default();
    json.text("database", Some(&file.database.path));
    match file.database.marker() {
        Some(marker) => {
            let hex = marker.instance.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            json.text("instance", Some(&hex));
            json.text("name", Some(&marker.name));
            json.text("directory", Some(&marker.directory.to_string_lossy()));
        }
        None => ["instance", "name", "directory"].into_iter().for_each(|key| json.text(key, None)),
    }
    json.text("role", Some(role_of(state)));
    json.text("state", state.map(state_name));
    let alive =
        |segment: Segment| segment.running() && file.database.marker().is_some_and(crate::instance::alive);
    json.raw("running", if found.is_some_and(|found| alive(found.1)) { "true" } else { "false" });
    json.text("commit_write", Some(&commit_write));
    json.text("visibility", Some(visibility));
    json.text("primary", file.primary().as_deref());
    match file.data_delay() {
        Some(delay) => json.raw("data_delay_ms", &delay.as_millis().to_string()),
        None => json.text("data_delay_ms", None),
    }
    match found {
        Some((marker, segment)) => {
            let durable = segment.durable(marker.database);
            json.raw("durable", &format!("{{\"epoch\":{},\"frame\":{}}}", durable >> 32, durable as u32));
            json.raw("scn", &segment.scn(marker.database).to_string());
        }
        None => ["durable", "scn"].into_iter().for_each(|key| json.text(key, None)),
    }
    json.text("last_error", last_error(&file.database.path).as_deref());
    json.finish()
}

/// Status of a connection that does not use the VFS.
fn status_of_unprotected(path: &str) -> String {
    let mut json = Json::default();
    json.text("database", Some(path));
    json.text("role", Some(UNPROTECTED));
    json.text("remedy", Some(UNPROTECTED_REMEDY));
    json.finish()
}

#[derive(Default)]
struct Json {
    text: String,
}

impl Json {
    fn raw(&mut self, key: &str, value: &str) {
        self.text.push(if self.text.is_empty() { '{' } else { ',' });
        self.string(key);
        self.text.push(':');
        self.text.push_str(value);
    }

    fn text(&mut self, key: &str, value: Option<&str>) {
        match value {
            Some(value) => {
                self.raw(key, "");
                self.string(value);
            }
            None => self.raw(key, "null"),
        }
    }

    fn string(&mut self, value: &str) {
        self.text.push('"');
        for character in value.chars() {
            match character {
                '"' | '\\' => self.text.extend(['\\', character]),
                control if control < ' ' => {
                    let _ = write!(self.text, "\\u{:04x}", control as u32);
                }
                other => self.text.push(other),
            }
        }
        self.text.push('"');
    }

    fn finish(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_text_is_valid_json_for_any_path() {
        let mut json = Json::default();
        json.text("path", Some("/a \"b\"\\c\n"));
        json.text("none", None);
        json.raw("scn", "7");
        assert_eq!(json.finish(), r#"{"path":"/a \"b\"\\c\u000a","none":null,"scn":7}"#);
    }
}
