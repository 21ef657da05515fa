//! The functions of the host's SQLite that the shim calls, and the two ways to find them.
//!
//! The shim never links against SQLite: it runs in the copy that the application uses, be that compiled in, a shared
//! library, or private to a language binding.

use crate::bindings::{Context, Module, Sqlite3, Statement, Value, Vfs};
use std::ffi::{CStr, CString, c_char, c_double, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

/// Oldest supported host version, as `sqlite3_libversion_number()` returns it.
pub const OLDEST_HOST: c_int = 3_035_000;

type SqlFunction = unsafe extern "C" fn(*mut Context, c_int, *mut *mut Value);
type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;

/// An extension's initialiser, as `sqlite3_auto_extension` calls it.
pub type ExtensionInit = unsafe extern "C" fn(*mut Sqlite3, *mut *mut c_char, *const c_void) -> c_int;

macro_rules! host {
    ($($(#[$doc:meta])* $name:ident = $index:literal : $type:ty,)*) => {
        /// Functions of the host's SQLite. Field `x` is `sqlite3_x`.
        #[derive(Clone, Copy)]
        pub struct Host {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Host {
            /// Takes the functions from the table that SQLite passes to an extension.
            ///
            /// The table is an array of pointers that only grows at its end: every index below exists in
            /// all versions since 3.32. A test compares each with the function of the same name.
            ///
            /// # Errors
            /// The name of the first missing function.
            ///
            /// # Safety
            /// `api` must be null or the `sqlite3_api_routines` of a host of at least version 3.32.
            pub unsafe fn from_api(api: *const c_void) -> Result<Host, &'static str> {
                if api.is_null() {
                    return Err("sqlite3_api_routines");
                }
                let table = api.cast::<*const c_void>();
                Ok(Host {
                    $($name: {
                        // SAFETY: the caller promises the table; the index lies within it.
                        let function = unsafe { *table.add($index) };
                        if function.is_null() {
                            return Err(concat!("sqlite3_", stringify!($name)));
                        }
                        // SAFETY: the entry at this index has this signature, and is not null.
                        unsafe { std::mem::transmute::<*const c_void, $type>(function) }
                    },)*
                })
            }

            /// Takes the functions by name.
            ///
            /// # Errors
            /// The name of the first function that `lookup` does not find.
            ///
            /// # Safety
            /// `lookup` must return null or the function of SQLite with that name, which must stay loaded.
            pub unsafe fn from_symbols(
                mut lookup: impl FnMut(&CStr) -> *const c_void,
            ) -> Result<Host, &'static str> {
                Ok(Host {
                    $($name: {
                        let bytes = concat!("sqlite3_", stringify!($name), "\0").as_bytes();
                        let Ok(name) = CStr::from_bytes_with_nul(bytes) else {
                            return Err(stringify!($name));
                        };
                        let function = lookup(name);
                        if function.is_null() {
                            return Err(concat!("sqlite3_", stringify!($name)));
                        }
                        // SAFETY: the caller promises that it is this function, and it is not null.
                        unsafe { std::mem::transmute::<*const c_void, $type>(function) }
                    },)*
                })
            }
        }
    };
}

host! {
    libversion_number = 67: unsafe extern "C" fn() -> c_int,
    /// Finds a VFS by name; null finds the default.
    vfs_find = 141: unsafe extern "C" fn(*const c_char) -> *mut Vfs,
    vfs_register = 142: unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
    /// Allocates memory that SQLite will free.
    malloc = 68: unsafe extern "C" fn(c_int) -> *mut c_void,
    free = 58: unsafe extern "C" fn(*mut c_void),
    /// Writes to the application's error log.
    log = 167: unsafe extern "C" fn(c_int, *const c_char, ...),
    /// Runs an initialiser for every new connection.
    auto_extension = 192: unsafe extern "C" fn(ExtensionInit) -> c_int,
    create_function_v2 = 162: unsafe extern "C" fn(
        *mut Sqlite3, *const c_char, c_int, c_int, *mut c_void,
        Option<SqlFunction>, Option<SqlFunction>, Option<unsafe extern "C" fn(*mut Context)>, Destructor,
    ) -> c_int,
    context_db_handle = 149: unsafe extern "C" fn(*mut Context) -> *mut Sqlite3,
    /// Returns text from a function; a destructor of -1 lets SQLite copy it.
    result_text = 85: unsafe extern "C" fn(*mut Context, *const c_char, c_int, isize),
    result_int64 = 83: unsafe extern "C" fn(*mut Context, i64),
    result_error = 80: unsafe extern "C" fn(*mut Context, *const c_char, c_int),
    result_null = 84: unsafe extern "C" fn(*mut Context),
    result_double = 79: unsafe extern "C" fn(*mut Context, c_double),
    create_module_v2 = 119: unsafe extern "C" fn(
        *mut Sqlite3, *const c_char, *const Module, *mut c_void, Destructor,
    ) -> c_int,
    /// Declares the columns of a virtual table.
    declare_vtab = 50: unsafe extern "C" fn(*mut Sqlite3, *const c_char) -> c_int,
    prepare_v2 = 116: unsafe extern "C" fn(
        *mut Sqlite3, *const c_char, c_int, *mut *mut Statement, *mut *const c_char,
    ) -> c_int,
    step = 94: unsafe extern "C" fn(*mut Statement) -> c_int,
    /// Text of a column of a statement's row.
    column_text = 36: unsafe extern "C" fn(*mut Statement, c_int) -> *const c_char,
    finalize = 57: unsafe extern "C" fn(*mut Statement) -> c_int,
    value_text = 109: unsafe extern "C" fn(*mut Value) -> *const c_char,
    value_double = 105: unsafe extern "C" fn(*mut Value) -> c_double,
    /// Calls `xFileControl` of the file of a schema.
    file_control = 127: unsafe extern "C" fn(*mut Sqlite3, *const c_char, c_int, *mut c_void) -> c_int,
    /// Absolute name of the file of a schema; empty or null when it has none.
    db_filename = 180: unsafe extern "C" fn(*mut Sqlite3, *const c_char) -> *const c_char,
}

static HOST: OnceLock<Host> = OnceLock::new();

/// Address of the served host's `sqlite3_vfs_register`; 0 while none is served. [`standfast_session::SERVES_SYMBOL`] is
/// the name of the symbol.
#[unsafe(export_name = "standfast_serves")]
pub static SERVES: AtomicUsize = AtomicUsize::new(0);

/// Returns the host that this process's shim serves, once there is one.
pub fn host() -> Option<&'static Host> {
    HOST.get()
}

/// Settles which copy of SQLite is served. A process may hold several copies; the first one that loads the shim is
/// served, because files and functions of different copies must not be mixed.
///
/// # Errors
/// A message when the host is too old or another copy is served already.
pub(crate) fn settle(found: Host) -> Result<&'static Host, String> {
    // SAFETY: a function of the host without arguments.
    let version = unsafe { (found.libversion_number)() };
    if version < OLDEST_HOST {
        return Err(format!(
            "Standfast needs SQLite 3.35.0 or newer, this application has {}.{}.{}: update its SQLite library",
            version / 1_000_000,
            version / 1000 % 1000,
            version % 1000
        ));
    }
    let host = HOST.get_or_init(|| found);
    if host.vfs_register as usize == found.vfs_register as usize {
        Ok(host)
    } else {
        Err("Standfast already serves another copy of SQLite in this process: load it into one of them only"
            .into())
    }
}

/// Copies text into memory that SQLite will free; null when the allocation fails.
pub(crate) fn sqlite_string(host: &Host, text: &str) -> *mut c_char {
    let length = text.len();
    let Ok(bytes) = c_int::try_from(length + 1) else { return std::ptr::null_mut() };
    // SAFETY: the allocator of the host; the result is checked.
    let copy = unsafe { (host.malloc)(bytes) }.cast::<u8>();
    if !copy.is_null() {
        // SAFETY: the allocation holds length + 1 bytes and is new.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), copy, length);
            copy.add(length).write(0);
        }
    }
    copy.cast()
}

/// Returns a C string, with inner zero bytes replaced.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}
