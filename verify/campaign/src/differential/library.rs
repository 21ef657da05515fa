//! A SQLite shared library, chosen at run time.
//!
//! Its functions are looked up as the dynamic linker would: preloaded libraries come first, so that the shim is in
//! front of it as in front of any program's SQLite.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

/// `sqlite3`, `sqlite3_stmt` and so on: only the addresses are used.
pub type Handle = *mut c_void;
type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;

/// Declares the functions and how they are looked up.
macro_rules! functions {
    (
        needed { $($name:ident: fn($($argument:ty),* $(; $dots:tt)?) -> $result:ty,)* }
        optional { $($other:ident: fn($($other_argument:ty),*) -> $other_result:ty,)* }
    ) => {
        /// Functions of SQLite, by their names without `sqlite3_`.
        #[allow(missing_docs, reason = "the names are SQLite's")]
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),* $(, $dots)?) -> $result,)*
            $(pub $other: Option<unsafe extern "C" fn($($other_argument),*) -> $other_result>,)*
        }

        impl Library {
            fn found() -> Result<Library, String> {
                Ok(Library {
                    $($name: {
                        let found = address(concat!("sqlite3_", stringify!($name)));
                        if found.is_null() {
                            return Err(format!("sqlite3_{} not found", stringify!($name)));
                        }
                        // SAFETY: the function of this name has this type in every SQLite since 3.35.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),* $(, $dots)?) -> $result>(found)
                        }
                    },)*
                    $($other: {
                        let found = address(concat!("sqlite3_", stringify!($other)));
                        // SAFETY: the function of this name has this type in every SQLite since 3.35 that has it; null
                        // becomes None.
                        unsafe {
                            std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($other_argument),*) -> $other_result>>(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    needed {
        libversion: fn() -> *const c_char,
        open_v2: fn(*const c_char, *mut Handle, c_int, *const c_char) -> c_int,
        close: fn(Handle) -> c_int,
        close_v2: fn(Handle) -> c_int,
        busy_timeout: fn(Handle, c_int) -> c_int,
        extended_errcode: fn(Handle) -> c_int,
        errmsg: fn(Handle) -> *const c_char,
        changes: fn(Handle) -> c_int,
        total_changes: fn(Handle) -> c_int,
        last_insert_rowid: fn(Handle) -> i64,
        get_autocommit: fn(Handle) -> c_int,
        txn_state: fn(Handle, *const c_char) -> c_int,
        prepare_v2: fn(Handle, *const c_char, c_int, *mut Handle, *mut *const c_char) -> c_int,
        bind_parameter_count: fn(Handle) -> c_int,
        bind_blob: fn(Handle, c_int, *const c_void, c_int, Destructor) -> c_int,
        bind_int64: fn(Handle, c_int, i64) -> c_int,
        step: fn(Handle) -> c_int,
        reset: fn(Handle) -> c_int,
        finalize: fn(Handle) -> c_int,
        column_count: fn(Handle) -> c_int,
        column_type: fn(Handle, c_int) -> c_int,
        column_int64: fn(Handle, c_int) -> i64,
        column_double: fn(Handle, c_int) -> f64,
        column_blob: fn(Handle, c_int) -> *const c_void,
        column_bytes: fn(Handle, c_int) -> c_int,
        blob_open: fn(Handle, *const c_char, *const c_char, *const c_char, i64, c_int, *mut Handle) -> c_int,
        blob_reopen: fn(Handle, i64) -> c_int,
        blob_bytes: fn(Handle) -> c_int,
        blob_read: fn(Handle, *mut c_void, c_int, c_int) -> c_int,
        blob_write: fn(Handle, *const c_void, c_int, c_int) -> c_int,
        blob_close: fn(Handle) -> c_int,
        wal_checkpoint_v2: fn(Handle, *const c_char, c_int, *mut c_int, *mut c_int) -> c_int,
        backup_init: fn(Handle, *const c_char, Handle, *const c_char) -> Handle,
        backup_step: fn(Handle, c_int) -> c_int,
        backup_finish: fn(Handle) -> c_int,
        db_cacheflush: fn(Handle) -> c_int,
        db_config: fn(Handle, c_int; ...) -> c_int,
        enable_load_extension: fn(Handle, c_int) -> c_int,
        load_extension: fn(Handle, *const c_char, *const c_char, *mut *mut c_char) -> c_int,
    }
    optional {
        snapshot_get: fn(Handle, *const c_char, *mut Handle) -> c_int,
        snapshot_open: fn(Handle, *const c_char, Handle) -> c_int,
        snapshot_free: fn(Handle) -> (),
    }
}

/// Looks up the address of a function, in preloaded libraries first, then in those loaded globally.
fn address(name: &str) -> *mut c_void {
    let Ok(name) = CString::new(name) else { return null_mut() };
    // SAFETY: a C string; the lookup has no other precondition.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

impl Library {
    /// Loads the library at `path` for the lifetime of the process and looks up its functions.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn load(path: &Path) -> Result<Library, String> {
        let name =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| "a zero byte in its path".to_owned())?;
        // SAFETY: a C string; the library is a SQLite, which runs no code when it is loaded.
        let loaded = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if loaded.is_null() {
            // SAFETY: after a failure the message is null or a C string that lives until the next call.
            let why = unsafe { text(libc::dlerror()) };
            return Err(why.unwrap_or_else(|| "it cannot be loaded".into()));
        }
        Library::found()
    }

    /// Returns SQLite's version, such as `3.40.1`.
    pub fn version(&self) -> String {
        // SAFETY: no precondition; the result is a constant C string.
        unsafe { text((self.libversion)()) }.unwrap_or_default()
    }
}

/// Copies a C string; `None` for null.
///
/// # Safety
/// `pointer` is null, or a C string that outlives the call.
pub unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: as the caller promises.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}
