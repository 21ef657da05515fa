//! Connections, statements and blobs of a [`Library`], with the minimum that makes their use safe.

use super::library::{Handle, Library, text};
use super::program::{Outcome, Value};
use standfast_testkit::Rng;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

/// Result codes and constants, with SQLite's names.
#[allow(missing_docs)]
pub mod code {
    use std::ffi::c_int;
    pub const OK: c_int = 0;
    pub const ERROR: c_int = 1;
    pub const BUSY: c_int = 5;
    pub const NOMEM: c_int = 7;
    pub const READONLY: c_int = 8;
    pub const ROW: c_int = 100;
    pub const DONE: c_int = 101;
    pub const ERROR_SNAPSHOT: c_int = ERROR | 3 << 8;
    pub const BUSY_SNAPSHOT: c_int = BUSY | 2 << 8;
    /// The step was not run: no object is open under its number.
    pub const NOT_RUN: c_int = -1;
}

const OPEN_READONLY: c_int = 0x1;
const OPEN_READWRITE: c_int = 0x2;
const OPEN_CREATE: c_int = 0x4;
const OPEN_URI: c_int = 0x40;
const OPEN_SHAREDCACHE: c_int = 0x2_0000;
const DBCONFIG_RESET_DATABASE: c_int = 1009;
const INTEGER: c_int = 1;
const FLOAT: c_int = 2;
const TEXT: c_int = 3;
const BLOB: c_int = 4;

/// Rows of a step that are kept in full; the others only enter the checksum.
const ROWS_KEPT: usize = 40;
/// Bytes of a value that are kept in full; of a longer value only its length and checksum are kept.
const BYTES_KEPT: usize = 40;

/// Calls a function of the library.
macro_rules! call {
    ($library:expr, $name:ident ( $($argument:expr),* )) => {
        // SAFETY: handles are open handles of this library: only the owning types of this module close them, once. This
        // process uses SQLite on one thread. Pointers are to values that outlive the call.
        unsafe { ($library.$name)($($argument),*) }
    };
}

/// A connection. Closed on drop, as a zombie when a statement or blob is still open on it.
pub struct Connection<'l> {
    library: &'l Library,
    handle: Handle,
}

/// SQLite's code and message of a failed open or close.
pub type Failed = (c_int, String);

impl<'l> Connection<'l> {
    /// Opens `file` with `access`.
    ///
    /// # Errors
    /// SQLite's code and message.
    pub fn open(library: &'l Library, file: &str, access: super::program::Access) -> Result<Self, Failed> {
        use super::program::Access;
        let flags = OPEN_URI
            | match access {
                Access::Write => OPEN_READWRITE | OPEN_CREATE,
                Access::Read => OPEN_READONLY,
                Access::SharedCache => OPEN_READWRITE | OPEN_CREATE | OPEN_SHAREDCACHE,
            };
        let mut handle = null_mut();
        let name = c_string(file);
        let result = call!(library, open_v2(name.as_ptr(), &raw mut handle, flags, null()));
        if handle.is_null() {
            return Err((code::NOMEM, "no handle".into()));
        }
        let connection = Connection { library, handle };
        if result == code::OK { Ok(connection) } else { Err(connection.error()) }
    }

    /// Returns the extended code of the last error, and its message.
    pub fn error(&self) -> Failed {
        let number = call!(self.library, extended_errcode(self.handle));
        let message = call!(self.library, errmsg(self.handle));
        // SAFETY: null or a C string, valid until the next call on the connection.
        (number, unsafe { text(message) }.unwrap_or_default())
    }

    /// Returns an outcome with the current state of the connection.
    pub fn outcome(&self, result: c_int, rows: Vec<String>) -> Outcome {
        let (number, message) = match result & 0xFF {
            code::OK | code::ROW | code::DONE => (code::OK, String::new()),
            _ => self.error(),
        };
        // Where the connection reports no error, the result of the function is the only one.
        let number = if number == code::OK { result } else { number };
        let number = if matches!(number, code::ROW | code::DONE) { code::OK } else { number };
        Outcome { code: number, message, rows, state: self.state() }
    }

    fn state(&self) -> String {
        let counts =
            [call!(self.library, changes(self.handle)), call!(self.library, total_changes(self.handle))];
        format!(
            "changes {counts:?} rowid {} autocommit {} transaction {}",
            call!(self.library, last_insert_rowid(self.handle)),
            call!(self.library, get_autocommit(self.handle)),
            call!(self.library, txn_state(self.handle, null()))
        )
    }

    pub fn timeout(&self, ms: u32) {
        call!(self.library, busy_timeout(self.handle, ms as c_int));
    }

    /// `sqlite3_close`; returns the connection when it cannot be closed.
    pub fn close(self) -> Result<(), (Failed, Connection<'l>)> {
        match call!(self.library, close(self.handle)) {
            code::OK => {
                std::mem::forget(self);
                Ok(())
            }
            _ => Err((self.error(), self)),
        }
    }

    /// Loads an extension.
    ///
    /// # Errors
    /// SQLite's code and message.
    pub fn load_extension(&self, path: &str) -> Result<(), Failed> {
        call!(self.library, enable_load_extension(self.handle, 1));
        let path = c_string(path);
        match call!(self.library, load_extension(self.handle, path.as_ptr(), null(), null_mut())) {
            code::OK => Ok(()),
            _ => Err(self.error()),
        }
    }

    /// Empties the database, whatever its content.
    ///
    /// # Errors
    /// SQLite's code and message.
    pub fn empty(&self, auto_vacuum: u8) -> Result<(), Failed> {
        self.must(&format!("PRAGMA max_page_count=1073741823; PRAGMA auto_vacuum={auto_vacuum}"))?;
        let no_answer = null_mut::<c_int>();
        call!(self.library, db_config(self.handle, DBCONFIG_RESET_DATABASE, 1 as c_int, no_answer));
        let done = self.must("VACUUM");
        call!(self.library, db_config(self.handle, DBCONFIG_RESET_DATABASE, 0 as c_int, no_answer));
        done?;
        self.must("PRAGMA user_version=0; PRAGMA application_id=0")
    }

    fn must(&self, sql: &str) -> Result<(), Failed> {
        let outcome = self.run(sql, &[]);
        if outcome.code == code::OK { Ok(()) } else { Err((outcome.code, outcome.message)) }
    }

    /// Runs statements to completion, up to the first one that fails.
    pub fn run(&self, sql: &str, values: &[Value]) -> Outcome {
        let mut rows = Rows::default();
        let sql = c_string(sql);
        let mut rest = sql.as_ptr();
        loop {
            let (statement, next) = match self.prepare_at(rest) {
                Ok(prepared) => prepared,
                Err(result) => return self.outcome(result, rows.end()),
            };
            let Some(statement) = statement else { return self.outcome(code::OK, rows.end()) };
            // Bound values must live as long as the statement.
            let bytes: Vec<Vec<u8>> = values.iter().map(bytes_of).collect();
            statement.bind(values, &bytes);
            let mut result = statement.step();
            while result == code::ROW {
                rows.add(statement.row());
                result = statement.step();
            }
            let result = if result == code::DONE { code::OK } else { result };
            // Take the outcome before the statement is finalized, because finalizing reports the same error again.
            let outcome = self.outcome(result, Vec::new());
            drop(statement);
            if result != code::OK {
                return Outcome { rows: rows.end(), state: self.state(), ..outcome };
            }
            rest = next;
        }
    }

    /// Prepares a statement; `None` when the text has none.
    ///
    /// # Errors
    /// The result code.
    pub fn prepare(&self, sql: &str) -> Result<Option<Statement<'l>>, c_int> {
        self.prepare_at(c_string(sql).as_ptr()).map(|(statement, _)| statement)
    }

    fn prepare_at(&self, sql: *const c_char) -> Result<(Option<Statement<'l>>, *const c_char), c_int> {
        let (mut handle, mut rest) = (null_mut(), null());
        match call!(self.library, prepare_v2(self.handle, sql, -1, &raw mut handle, &raw mut rest)) {
            code::OK => {
                let statement = (!handle.is_null()).then_some(Statement { library: self.library, handle });
                Ok((statement, rest))
            }
            result => Err(result),
        }
    }

    /// Opens column `c` of a row for incremental I/O.
    ///
    /// # Errors
    /// The result code.
    pub fn blob(&self, schema: &str, table: &str, row: i64, write: bool) -> Result<Blob<'l>, c_int> {
        let (schema, table, column) = (c_string(schema), c_string(table), c_string("c"));
        let mut handle = null_mut();
        let names = (schema.as_ptr(), table.as_ptr(), column.as_ptr());
        let write = c_int::from(write);
        match call!(
            self.library,
            blob_open(self.handle, names.0, names.1, names.2, row, write, &raw mut handle)
        ) {
            code::OK => Ok(Blob { library: self.library, handle }),
            result => Err(result),
        }
    }

    pub fn checkpoint(&self, schema: Option<&str>, mode: u8) -> c_int {
        let schema = schema.map(c_string);
        let name = schema.as_ref().map_or(null(), |name| name.as_ptr());
        call!(self.library, wal_checkpoint_v2(self.handle, name, c_int::from(mode), null_mut(), null_mut()))
    }

    /// Returns the names of the files of the database `schema`, or of all, without their directories.
    pub fn files(&self, schema: Option<&str>) -> String {
        // Everything after the last slash.
        let file = "replace(file, rtrim(file, replace(file, '/', '')), '')";
        let all = self.run(&format!("SELECT name, {file} FROM pragma_database_list"), &[]).rows;
        let meant = all.iter().filter_map(|row| {
            let (name, file) = row.split_once('|')?;
            let is_meant = schema.is_none_or(|schema| name.trim_matches('\'') == schema);
            is_meant.then(|| file.trim_matches('\''))
        });
        meant.collect::<Vec<_>>().join(" ")
    }

    pub fn flush(&self) -> c_int {
        call!(self.library, db_cacheflush(self.handle))
    }

    /// Copies the main database of this connection into that of `to`, `pages` pages a step; returns the result of the
    /// last step.
    pub fn copy_to(&self, to: &Connection<'_>, pages: i32) -> c_int {
        let main = c"main".as_ptr();
        let backup = call!(self.library, backup_init(to.handle, main, self.handle, main));
        if backup.is_null() {
            return to.error().0;
        }
        let mut steps = 0;
        let last = loop {
            let result = call!(self.library, backup_step(backup, pages));
            steps += 1;
            // A backup step does not retry while another connection holds the lock.
            if result != code::OK || steps > 10_000 {
                break result;
            }
        };
        let finished = call!(self.library, backup_finish(backup));
        if finished == code::OK { last } else { finished }
    }

    /// `sqlite3_snapshot_get`; None in a SQLite without snapshots.
    pub fn snapshot(&self, schema: &str) -> Option<Result<Snapshot<'l>, c_int>> {
        let (get, free) = (self.library.snapshot_get?, self.library.snapshot_free?);
        let schema = c_string(schema);
        let mut handle = null_mut();
        // SAFETY: `self.handle` is an open connection of this library, used on one thread, and the pointers outlive the
        // call.
        let result = unsafe { get(self.handle, schema.as_ptr(), &raw mut handle) };
        let snapshot = Snapshot { _library: self.library, free, handle };
        Some(if result == code::OK { Ok(snapshot) } else { Err(result) })
    }

    pub fn open_snapshot(&self, schema: &str, snapshot: &Snapshot<'_>) -> c_int {
        let schema = c_string(schema);
        match self.library.snapshot_open {
            // SAFETY: both handles are open ones of this library, used on one thread, and the name outlives the call.
            Some(open) => match unsafe { open(self.handle, schema.as_ptr(), snapshot.handle) } {
                code::OK => code::OK,
                result => self.error().0.max(result),
            },
            None => code::NOT_RUN,
        }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        call!(self.library, close_v2(self.handle));
    }
}

pub struct Statement<'l> {
    library: &'l Library,
    handle: Handle,
}

impl Statement<'_> {
    fn bind(&self, values: &[Value], bytes: &[Vec<u8>]) {
        let count = call!(self.library, bind_parameter_count(self.handle));
        for (nth, (value, bytes)) in (1..=count).zip(values.iter().zip(bytes)) {
            match value {
                Value::Number(number) => call!(self.library, bind_int64(self.handle, nth, *number)),
                Value::Bytes { .. } => {
                    let place = bytes.as_ptr().cast();
                    // Without a destructor: the caller keeps the bytes alive.
                    call!(self.library, bind_blob(self.handle, nth, place, bytes.len() as c_int, None))
                }
            };
        }
    }

    pub fn step(&self) -> c_int {
        call!(self.library, step(self.handle))
    }

    /// Resets it, so that its next step starts from the beginning.
    pub fn reset(&self) -> c_int {
        call!(self.library, reset(self.handle))
    }

    /// Returns the current row as text.
    pub fn row(&self) -> String {
        let columns = call!(self.library, column_count(self.handle));
        (0..columns).map(|column| self.cell(column)).collect::<Vec<_>>().join("|")
    }

    fn cell(&self, column: c_int) -> String {
        match call!(self.library, column_type(self.handle, column)) {
            INTEGER => call!(self.library, column_int64(self.handle, column)).to_string(),
            FLOAT => format!("{:?}", call!(self.library, column_double(self.handle, column))),
            kind @ (TEXT | BLOB) => {
                let place = call!(self.library, column_blob(self.handle, column)).cast::<u8>();
                let length = call!(self.library, column_bytes(self.handle, column)) as usize;
                let bytes = match place.is_null() {
                    true => &[],
                    // SAFETY: SQLite's value has `length` bytes, valid until the next call on the statement.
                    false => unsafe { std::slice::from_raw_parts(place, length) },
                };
                brief(bytes, kind == TEXT)
            }
            _ => "NULL".into(),
        }
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        call!(self.library, finalize(self.handle));
    }
}

/// An open blob. Closed on drop.
pub struct Blob<'l> {
    library: &'l Library,
    handle: Handle,
}

impl Blob<'_> {
    pub fn reopen(&self, row: i64) -> c_int {
        call!(self.library, blob_reopen(self.handle, row))
    }

    /// Returns the offset at `thousandths` of its length.
    pub fn place(&self, thousandths: u32) -> c_int {
        let bytes = i64::from(call!(self.library, blob_bytes(self.handle)));
        (bytes * i64::from(thousandths) / 1000) as c_int
    }

    /// Reads; returns the result code and a short form of the bytes.
    pub fn read(&self, at: c_int, length: u32) -> (c_int, String) {
        let mut bytes = vec![0u8; length as usize];
        let place = bytes.as_mut_ptr().cast::<c_void>();
        let result = call!(self.library, blob_read(self.handle, place, length as c_int, at));
        (result, if result == code::OK { brief(&bytes, false) } else { String::new() })
    }

    pub fn write(&self, at: c_int, bytes: &[u8]) -> c_int {
        call!(self.library, blob_write(self.handle, bytes.as_ptr().cast(), bytes.len() as c_int, at))
    }
}

impl Drop for Blob<'_> {
    fn drop(&mut self) {
        call!(self.library, blob_close(self.handle));
    }
}

pub struct Snapshot<'l> {
    _library: &'l Library,
    free: unsafe extern "C" fn(Handle),
    handle: Handle,
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: SQLite has allocated it, and it is freed once.
            unsafe { (self.free)(self.handle) };
        }
    }
}

/// Rows of a step; the first ones are kept in full.
#[derive(Default)]
struct Rows {
    kept: Vec<String>,
    others: u64,
    sum: u64,
}

impl Rows {
    fn add(&mut self, row: String) {
        if self.kept.len() < ROWS_KEPT {
            return self.kept.push(row);
        }
        self.others += 1;
        self.sum = sum(row.as_bytes(), self.sum);
    }

    fn end(mut self) -> Vec<String> {
        if self.others > 0 {
            self.kept.push(format!("and {} more with the sum {:x}", self.others, self.sum));
        }
        self.kept
    }
}

/// Returns the bytes of a parameter; none for a number.
pub fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::Number(_) => Vec::new(),
        Value::Bytes { seed, length } => Rng::new(*seed).bytes(*length),
    }
}

fn brief(bytes: &[u8], is_text: bool) -> String {
    let short = bytes.len() <= BYTES_KEPT;
    match (is_text, short) {
        (true, true) => format!("'{}'", String::from_utf8_lossy(bytes)),
        (false, true) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        (_, false) => format!("{} bytes with the sum {:x}", bytes.len(), sum(bytes, 0)),
    }
}

/// Returns the FNV-1a hash, continued from `before`; 0 begins.
pub fn sum(bytes: &[u8], before: u64) -> u64 {
    let start = before ^ 0xcbf2_9ce4_8422_2325;
    bytes.iter().fold(start, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn c_string(text: &str) -> CString {
    // No statement and no name of this campaign has a zero byte.
    CString::new(text.replace('\0', "")).unwrap_or_default()
}
