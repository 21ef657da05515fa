//! `libstandfast_preload.so`, for applications that cannot load extensions: `LD_PRELOAD` it.
//!
//! It interposes the functions that open a connection. The first call installs the shim in the SQLite that would have
//! answered; then, and at every later call, it calls that SQLite's own function. If anything is missing, the
//! application runs as it would have without the library.
//!
//! It cannot reach a SQLite that is linked into the program itself, nor a second copy in the same process.

mod symbols;

use standfast_sqlite_vfs::{Host, Sqlite3, install};
use std::ffi::{c_char, c_int, c_void};
use std::io::Write;
use std::sync::{Once, OnceLock};

type Open = unsafe extern "C" fn(*const c_char, *mut *mut Sqlite3) -> c_int;
type OpenV2 = unsafe extern "C" fn(*const c_char, *mut *mut Sqlite3, c_int, *const c_char) -> c_int;
type Open16 = unsafe extern "C" fn(*const c_void, *mut *mut Sqlite3) -> c_int;

/// `SQLITE_CANTOPEN`: there is no SQLite behind this library.
const CANTOPEN: c_int = 14;

/// Installs the shim once. A failure is reported on standard error and has no other consequence: protected databases
/// are then open without the shim, and the instance captures their commits, but no commit waits.
fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let install = || {
            // SAFETY: the names are looked up in the library of SQLite that answers sqlite3_open_v2, which stays
            // loaded because the application uses it.
            let host = unsafe { Host::from_symbols(symbols::find) };
            host.map_err(|missing| format!("{missing} not found")).and_then(install)
        };
        // A panic must not unwind into the application.
        let result = std::panic::catch_unwind(install).unwrap_or_else(|_| Err("internal error".into()));
        if let Err(why) = result {
            let _ = writeln!(std::io::stderr(), "standfast: not active in this process: {why}");
        }
    });
}

macro_rules! real {
    ($name:literal as $type:ty) => {{
        static REAL: OnceLock<Option<$type>> = OnceLock::new();
        *REAL.get_or_init(|| {
            let found = symbols::find($name);
            // SAFETY: the function of this name has this type.
            (!found.is_null()).then(|| unsafe { std::mem::transmute::<*const c_void, $type>(found) })
        })
    }};
}

/// Interposes SQLite's function of this name.
///
/// # Safety
/// As SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_open(name: *const c_char, connection: *mut *mut Sqlite3) -> c_int {
    prepare();
    match real!(c"sqlite3_open" as Open) {
        // SAFETY: the caller's own arguments.
        Some(open) => unsafe { open(name, connection) },
        None => CANTOPEN,
    }
}

/// Interposes SQLite's function of this name.
///
/// # Safety
/// As SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_open_v2(
    name: *const c_char,
    connection: *mut *mut Sqlite3,
    flags: c_int,
    vfs: *const c_char,
) -> c_int {
    prepare();
    match real!(c"sqlite3_open_v2" as OpenV2) {
        // SAFETY: the caller's own arguments.
        Some(open) => unsafe { open(name, connection, flags, vfs) },
        None => CANTOPEN,
    }
}

/// Interposes SQLite's function of this name.
///
/// # Safety
/// As SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_open16(name: *const c_void, connection: *mut *mut Sqlite3) -> c_int {
    prepare();
    match real!(c"sqlite3_open16" as Open16) {
        // SAFETY: the caller's own arguments.
        Some(open) => unsafe { open(name, connection) },
        None => CANTOPEN,
    }
}
