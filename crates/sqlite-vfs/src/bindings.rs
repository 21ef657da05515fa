//! The part of SQLite's C interface that a VFS and the views need, written by hand.
//!
//! A bindings crate would tie the extension to one SQLite version; these structures have not changed since
//! SQLite 3.7.6 (VFS version 3, file methods version 3) and SQLite promises that they only grow at the end.

use std::ffi::{c_char, c_double, c_int, c_void};

/// A database connection of the host.
#[repr(C)]
pub struct Sqlite3 {
    _opaque: [u8; 0],
}

/// Call context of an SQL function.
#[repr(C)]
pub struct Context {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct Value {
    _opaque: [u8; 0],
}

/// A prepared statement of the host.
#[repr(C)]
pub struct Statement {
    _opaque: [u8; 0],
}

/// Argument of `xBestIndex`. Never read or written here: SQLite fills in a full scan before the call.
#[repr(C)]
pub struct IndexInfo {
    _opaque: [u8; 0],
}

/// A virtual table: the first field of every module's own table structure.
#[repr(C)]
pub struct VirtualTable {
    pub module: *const Module,
    /// Set by SQLite; no longer used.
    pub references: c_int,
    /// Message of the last error, allocated by the host, which takes and frees it.
    pub message: *mut c_char,
}

/// A cursor on a virtual table: the first field of every module's own cursor structure.
#[repr(C)]
pub struct Cursor {
    pub table: *mut VirtualTable,
}

/// A method that a module leaves out; its arguments do not matter.
pub type NoMethod = Option<unsafe extern "C" fn()>;
type Connect = unsafe extern "C" fn(
    *mut Sqlite3,
    *mut c_void,
    c_int,
    *const *const c_char,
    *mut *mut VirtualTable,
    *mut *mut c_char,
) -> c_int;

/// `sqlite3_module`, all methods of its first version. SQLite reads later ones only when `version` says that they
/// exist.
#[repr(C)]
#[allow(missing_docs, reason = "the names are SQLite's")]
pub struct Module {
    pub version: c_int,
    pub create: Option<Connect>,
    pub connect: Option<Connect>,
    pub best_index: Option<unsafe extern "C" fn(*mut VirtualTable, *mut IndexInfo) -> c_int>,
    pub disconnect: Option<unsafe extern "C" fn(*mut VirtualTable) -> c_int>,
    pub destroy: Option<unsafe extern "C" fn(*mut VirtualTable) -> c_int>,
    pub open: Option<unsafe extern "C" fn(*mut VirtualTable, *mut *mut Cursor) -> c_int>,
    pub close: Option<unsafe extern "C" fn(*mut Cursor) -> c_int>,
    pub filter:
        Option<unsafe extern "C" fn(*mut Cursor, c_int, *const c_char, c_int, *mut *mut Value) -> c_int>,
    pub next: Option<unsafe extern "C" fn(*mut Cursor) -> c_int>,
    pub eof: Option<unsafe extern "C" fn(*mut Cursor) -> c_int>,
    pub column: Option<unsafe extern "C" fn(*mut Cursor, *mut Context, c_int) -> c_int>,
    pub rowid: Option<unsafe extern "C" fn(*mut Cursor, *mut i64) -> c_int>,
    pub update: NoMethod,
    pub begin: NoMethod,
    pub sync: NoMethod,
    pub commit: NoMethod,
    pub rollback: NoMethod,
    pub find_function: NoMethod,
    pub rename: NoMethod,
}

/// An open file: the first field of every VFS's own file structure.
#[repr(C)]
pub struct File {
    /// `NULL` while the file is not open.
    pub methods: *const IoMethods,
}

/// Pointer to a system call as `xSetSystemCall` passes it.
pub type SystemCall = Option<unsafe extern "C" fn()>;

/// SQLite's `sqlite3_io_methods`, as of its version 3.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "the names are SQLite's")]
pub struct IoMethods {
    pub version: c_int,
    pub close: Option<unsafe extern "C" fn(*mut File) -> c_int>,
    pub read: Option<unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> c_int>,
    pub write: Option<unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int>,
    pub truncate: Option<unsafe extern "C" fn(*mut File, i64) -> c_int>,
    pub sync: Option<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    pub file_size: Option<unsafe extern "C" fn(*mut File, *mut i64) -> c_int>,
    pub lock: Option<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    pub unlock: Option<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    pub check_reserved_lock: Option<unsafe extern "C" fn(*mut File, *mut c_int) -> c_int>,
    pub file_control: Option<unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> c_int>,
    pub sector_size: Option<unsafe extern "C" fn(*mut File) -> c_int>,
    pub device_characteristics: Option<unsafe extern "C" fn(*mut File) -> c_int>,
    // Version 2.
    pub shm_map: Option<unsafe extern "C" fn(*mut File, c_int, c_int, c_int, *mut *mut c_void) -> c_int>,
    pub shm_lock: Option<unsafe extern "C" fn(*mut File, c_int, c_int, c_int) -> c_int>,
    pub shm_barrier: Option<unsafe extern "C" fn(*mut File)>,
    pub shm_unmap: Option<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    // Version 3.
    pub fetch: Option<unsafe extern "C" fn(*mut File, i64, c_int, *mut *mut c_void) -> c_int>,
    pub unfetch: Option<unsafe extern "C" fn(*mut File, i64, *mut c_void) -> c_int>,
}

/// SQLite's `sqlite3_vfs`, as of its version 3.
#[repr(C)]
#[allow(missing_docs, reason = "the names are SQLite's")]
pub struct Vfs {
    pub version: c_int,
    pub file_bytes: c_int,
    pub max_pathname: c_int,
    pub next: *mut Vfs,
    pub name: *const c_char,
    pub app_data: *mut c_void,
    pub open: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int>,
    pub delete: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int>,
    pub access: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int>,
    pub full_pathname: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> c_int>,
    pub dl_open: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void>,
    pub dl_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char)>,
    pub dl_sym: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void, *const c_char) -> SystemCall>,
    pub dl_close: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void)>,
    pub randomness: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    pub sleep: Option<unsafe extern "C" fn(*mut Vfs, c_int) -> c_int>,
    pub current_time: Option<unsafe extern "C" fn(*mut Vfs, *mut c_double) -> c_int>,
    pub get_last_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    // Version 2.
    pub current_time_int64: Option<unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int>,
    // Version 3.
    pub set_system_call: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, SystemCall) -> c_int>,
    pub get_system_call: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> SystemCall>,
    pub next_system_call: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *const c_char>,
}

#[allow(missing_docs)]
pub mod code {
    use std::ffi::c_int;
    pub const OK: c_int = 0;
    pub const ERROR: c_int = 1;
    pub const INTERNAL: c_int = 2;
    pub const BUSY: c_int = 5;
    pub const READONLY: c_int = 8;
    pub const IOERR: c_int = 10;
    pub const NOTFOUND: c_int = 12;
    pub const CANTOPEN: c_int = 14;
    pub const PROTOCOL: c_int = 15;
    pub const TOOBIG: c_int = 18;
    pub const WARNING: c_int = 28;
    pub const ROW: c_int = 100;
    pub const DONE: c_int = 101;
    pub const BUSY_RECOVERY: c_int = BUSY | 1 << 8;
    pub const BUSY_SNAPSHOT: c_int = BUSY | 2 << 8;
    pub const READONLY_CANTLOCK: c_int = READONLY | 2 << 8;
    pub const IOERR_READ: c_int = IOERR | 1 << 8;
    pub const IOERR_WRITE: c_int = IOERR | 3 << 8;
    pub const IOERR_FSYNC: c_int = IOERR | 4 << 8;
    pub const IOERR_DELETE: c_int = IOERR | 10 << 8;
    pub const IOERR_LOCK: c_int = IOERR | 15 << 8;
    /// The extension stays loaded when the connection closes.
    pub const OK_LOAD_PERMANENTLY: c_int = 1 << 8;
}

#[allow(missing_docs)]
pub mod open {
    use std::ffi::c_int;
    pub const URI: c_int = 0x40;
    pub const MAIN_DB: c_int = 0x100;
    pub const MAIN_JOURNAL: c_int = 0x800;
    pub const SUPER_JOURNAL: c_int = 0x4000;
    pub const WAL: c_int = 0x80000;
}

#[allow(missing_docs)]
pub mod control {
    use std::ffi::c_int;
    pub const VFSNAME: c_int = 12;
    pub const PRAGMA: c_int = 14;
    pub const COMMIT_PHASETWO: c_int = 22;
    pub const PDB: c_int = 30;
    pub const LOCK_TIMEOUT: c_int = 34;
    /// Private to the shim. SQLite's own operations are below 100, and a VFS forwards operations that it does not
    /// know.
    pub const FIND: c_int = 0x5366_0001;
}

#[allow(missing_docs)]
pub mod shm {
    use std::ffi::c_int;
    pub const UNLOCK: c_int = 1;
    pub const LOCK: c_int = 2;
    pub const SHARED: c_int = 4;
    pub const EXCLUSIVE: c_int = 8;
    /// Held by the writer of the WAL.
    pub const WRITE_LOCK: c_int = 0;
    /// Held by the process that backfills.
    pub const CHECKPOINT_LOCK: c_int = 1;
    pub const RECOVER_LOCK: c_int = 2;
    /// The first of the five locks of readers.
    pub const READ_LOCK_FIRST: c_int = 3;
    /// The first read lock with a read mark of its own: up to which frame the WAL may be backfilled while a reader
    /// holds it.
    pub const READ_MARK_FIRST: c_int = READ_LOCK_FIRST + 1;
}

pub const LOCK_EXCLUSIVE: c_int = 4;
pub const SYNC_NORMAL: c_int = 2;
/// `SQLITE_UTF8`: text encoding of an SQL function's arguments.
pub const UTF8: c_int = 1;
/// Flag of a function that views and triggers cannot call.
pub const DIRECT_ONLY: c_int = 0x80000;
