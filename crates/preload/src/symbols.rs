//! Finds SQLite's functions behind those of this library.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

/// Address of a function of SQLite; null when there is none.
pub fn find(name: &CStr) -> *const c_void {
    // SAFETY: a C string; RTLD_NEXT searches behind this library, so it cannot find our own functions.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return next;
    }
    match local_library() {
        // SAFETY: a handle that is never closed, and a C string.
        Some(handle) => unsafe { libc::dlsym(handle as *mut c_void, name.as_ptr()) },
        None => std::ptr::null(),
    }
}

/// Handle of a SQLite that was loaded privately, for example by a Python module: such libraries are not in the order
/// that RTLD_NEXT searches, but their calls reach this library first all the same.
fn local_library() -> Option<usize> {
    static HANDLE: OnceLock<Option<usize>> = OnceLock::new();
    *HANDLE.get_or_init(|| {
        let mut objects: Vec<(CString, usize)> = Vec::new();
        // SAFETY: the callback gets a pointer to `objects`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut objects).cast()) };
        objects.iter().find_map(|(name, base)| sqlite_in(name, *base))
    })
}

/// Records name and address of a loaded object. It is opened later, because the loader is locked here.
///
/// # Safety
/// Called by `dl_iterate_phdr` with a loaded object and a `Vec<(CString, usize)>`.
unsafe extern "C" fn collect(object: *mut libc::dl_phdr_info, _size: usize, objects: *mut c_void) -> c_int {
    // SAFETY: as promised; a loaded object's name is null or a C string.
    unsafe {
        let name = (*object).dlpi_name;
        if !name.is_null() && *name != 0 {
            let objects = &mut *objects.cast::<Vec<(CString, usize)>>();
            objects.push((CStr::from_ptr(name).to_owned(), (*object).dlpi_addr as usize));
        }
    }
    0
}

/// Handle of a loaded object if it holds SQLite itself; a handle also finds what its dependencies hold.
fn sqlite_in(name: &CStr, base: usize) -> Option<usize> {
    // SAFETY: a C string. NOLOAD: only what is there already.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: an open handle; dladdr fills the structure when it returns other than 0. A shared library is linked at 0,
    // so its relocation is the address that dladdr returns.
    let inside = unsafe {
        let function = libc::dlsym(handle, c"sqlite3_vfs_register".as_ptr());
        let mut place = std::mem::MaybeUninit::<libc::Dl_info>::zeroed().assume_init();
        !function.is_null() && libc::dladdr(function, &mut place) != 0 && place.dli_fbase as usize == base
    };
    if inside {
        // Kept open, so that it stays loaded.
        return Some(handle as usize);
    }
    // SAFETY: opened above and not used any more.
    unsafe { libc::dlclose(handle) };
    None
}
