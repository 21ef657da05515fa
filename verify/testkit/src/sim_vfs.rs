//! The C side of the simulated machine's VFS: all `unsafe` code that SQLite's calling convention needs, and no
//! decisions. The behaviour of the calls is in `sim_file.rs`.

use crate::file_tree::normal;
use crate::machine::SimMachine;
use crate::sim_file::{self, Code, OpenFile};
use crate::sim_vfs_shm::Shm;
use rusqlite::ffi;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Longest path, in bytes including its NUL.
const PATH_BYTES_MAX: c_int = 512;

/// The VFS of one machine, registered until dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    name: String,
    /// Points to memory that is never freed: SQLite does not report when the last wrapper or connection has released a
    /// VFS. That costs some 300 bytes for each machine that was used with SQLite.
    vfs: *mut ffi::sqlite3_vfs,
}

// SAFETY: the pointer is only passed to sqlite3_vfs_register and sqlite3_vfs_unregister, which lock.
unsafe impl Send for Registration {}
// SAFETY: the pointer is only passed to sqlite3_vfs_register and sqlite3_vfs_unregister, which lock; no method reads
// through it.
unsafe impl Sync for Registration {}

impl Registration {
    pub(crate) fn new(machine: &Arc<SimMachine>) -> Registration {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("standfast-sim-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let c_name: &CStr = Box::leak(CString::new(name.clone()).unwrap_or_default().into_boxed_c_str());
        let machine: &Weak<SimMachine> = Box::leak(Box::new(Arc::downgrade(machine)));
        let vfs = Box::leak(Box::new(ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<SimFile>() as c_int,
            mxPathname: PATH_BYTES_MAX,
            pNext: ptr::null_mut(),
            zName: c_name.as_ptr(),
            pAppData: ptr::from_ref(machine).cast_mut().cast(),
            xOpen: Some(x_open),
            xDelete: Some(x_delete),
            xAccess: Some(x_access),
            xFullPathname: Some(x_full_pathname),
            xDlOpen: Some(x_dl_open),
            xDlError: Some(x_dl_error),
            xDlSym: Some(x_dl_sym),
            xDlClose: Some(x_dl_close),
            xRandomness: Some(x_randomness),
            xSleep: Some(x_sleep),
            xCurrentTime: Some(x_current_time),
            xGetLastError: Some(x_get_last_error),
            xCurrentTimeInt64: Some(x_current_time_int64),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        }));
        // SAFETY: the structure is complete and lives for ever. The call only fails when SQLite cannot initialise, and
        // then no connection opens either.
        unsafe { ffi::sqlite3_vfs_register(vfs, 0) };
        Registration { name, vfs }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered in new(). A caller that still holds the pointer finds that the machine no longer exists.
        unsafe { ffi::sqlite3_vfs_unregister(self.vfs) };
    }
}

/// The `sqlite3_file` of this VFS; SQLite allocates it. Invariant: `methods` is set if and only if `open` owns an
/// [`OpenFile`].
#[repr(C)]
struct SimFile {
    methods: *const ffi::sqlite3_io_methods,
    open: *mut OpenFile,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(x_close),
    xRead: Some(x_read),
    xWrite: Some(x_write),
    xTruncate: Some(x_truncate),
    xSync: Some(x_sync),
    xFileSize: Some(x_file_size),
    xLock: Some(x_lock),
    xUnlock: Some(x_unlock),
    xCheckReservedLock: Some(x_check_reserved_lock),
    xFileControl: Some(x_file_control),
    xSectorSize: Some(x_sector_size),
    xDeviceCharacteristics: Some(x_device_characteristics),
    xShmMap: Some(x_shm_map),
    xShmLock: Some(x_shm_lock),
    xShmBarrier: Some(x_shm_barrier),
    xShmUnmap: Some(x_shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

fn rc(result: Code<()>) -> c_int {
    result.err().unwrap_or(ffi::SQLITE_OK)
}

/// Stores the value of a successful result behind `out`; returns the result code.
///
/// # Safety
/// `out` must be valid for a write.
unsafe fn answer<T>(result: Code<T>, out: *mut T) -> c_int {
    match result {
        Ok(value) => {
            // SAFETY: the caller promises that `out` is valid for a write.
            unsafe { out.write(value) };
            ffi::SQLITE_OK
        }
        Err(code) => code,
    }
}

/// # Safety
/// `vfs` must be one that [`Registration`] made.
unsafe fn machine_of(vfs: *mut ffi::sqlite3_vfs) -> Option<Arc<SimMachine>> {
    // SAFETY: pAppData of a structure that Registration made points to a Weak that is never freed.
    unsafe { &*(*vfs).pAppData.cast::<Weak<SimMachine>>() }.upgrade()
}

/// # Safety
/// `name` must be NUL-terminated and outlive the result.
unsafe fn path_of<'a>(name: *const c_char) -> &'a Path {
    // SAFETY: the caller promises a NUL-terminated string that outlives the result.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()))
}

/// # Safety
/// `file` must have been opened by [`x_open`] and must not be closed while the result is used. SQLite only passes such
/// files to the methods, and closes a file after all other calls.
unsafe fn opened<'a>(file: *mut ffi::sqlite3_file) -> &'a OpenFile {
    // SAFETY: by the invariant of SimFile, `open` is valid; OpenFile needs no unique access.
    unsafe { &*(*file.cast::<SimFile>()).open }
}

unsafe extern "C" fn x_open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    let ours = file.cast::<SimFile>();
    // SAFETY: SQLite provides szOsFile bytes for the file. A file without methods is not closed.
    unsafe { ours.write(SimFile { methods: ptr::null(), open: ptr::null_mut() }) };
    // SAFETY: called through a structure that Registration made; a name, if any, is a valid string during the call.
    let (machine, path) = unsafe { (machine_of(vfs), (!name.is_null()).then(|| path_of(name))) };
    let Some(machine) = machine else { return ffi::SQLITE_CANTOPEN };
    match OpenFile::open(&machine, path, flags) {
        Err(code) => code,
        Ok(open) => {
            let open = Box::into_raw(Box::new(open));
            // SAFETY: SQLite provides szOsFile bytes for the file; flags_out is checked for null before the write.
            unsafe {
                ours.write(SimFile { methods: &METHODS, open });
                if !flags_out.is_null() {
                    flags_out.write(flags);
                }
            }
            ffi::SQLITE_OK
        }
    }
}

unsafe extern "C" fn x_close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the file was opened by x_open and is closed once; SQLite does not use it afterwards.
    let open = unsafe {
        let ours = &mut *file.cast::<SimFile>();
        ours.methods = ptr::null();
        Box::from_raw(std::mem::replace(&mut ours.open, ptr::null_mut()))
    };
    drop(open);
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_read(file: *mut ffi::sqlite3_file, out: *mut c_void, bytes: c_int, at: i64) -> c_int {
    // SAFETY: SQLite's buffer has `bytes` bytes; see `opened`. The buffer may be uninitialised: it is zeroed first.
    let (file, out) = unsafe {
        out.write_bytes(0, bytes as usize);
        (opened(file), std::slice::from_raw_parts_mut(out.cast::<u8>(), bytes as usize))
    };
    rc(file.read(out, at as u64))
}

unsafe extern "C" fn x_write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    bytes: c_int,
    at: i64,
) -> c_int {
    // SAFETY: SQLite's buffer has `bytes` initialised bytes; see `opened`.
    let (file, data) =
        unsafe { (opened(file), std::slice::from_raw_parts(data.cast::<u8>(), bytes as usize)) };
    rc(file.write(data, at as u64))
}

unsafe extern "C" fn x_truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: see `opened`.
    rc(unsafe { opened(file) }.truncate(size as u64))
}

unsafe extern "C" fn x_sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: see `opened`.
    rc(unsafe { opened(file) }.sync())
}

unsafe extern "C" fn x_file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: see `opened`; `size` is valid for a write.
    unsafe { answer(opened(file).size().map(|size| size as i64), size) }
}

unsafe extern "C" fn x_lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: see `opened`.
    rc(unsafe { opened(file) }.lock(level))
}

unsafe extern "C" fn x_unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: see `opened`.
    rc(unsafe { opened(file) }.unlock(level))
}

unsafe extern "C" fn x_check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: see `opened`; `out` is valid for a write.
    unsafe { answer(opened(file).is_reserved().map(c_int::from), out) }
}

unsafe extern "C" fn x_file_control(_file: *mut ffi::sqlite3_file, _op: c_int, _arg: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn x_sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: see `opened`.
    unsafe { opened(file) }.sector_size()
}

unsafe extern "C" fn x_device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: see `opened`.
    unsafe { opened(file) }.characteristics()
}

unsafe extern "C" fn x_shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: see `opened`; `out` is valid for a write, and the region stays valid until the file unmaps it.
    unsafe {
        out.write(ptr::null_mut());
        let region = opened(file).shm_map(region as usize, bytes as usize, extend != 0);
        answer(region.map(|region| region.unwrap_or(ptr::null_mut())), out)
    }
}

unsafe extern "C" fn x_shm_lock(
    file: *mut ffi::sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: see `opened`.
    rc(unsafe { opened(file) }.shm_lock(first, count, flags))
}

unsafe extern "C" fn x_shm_barrier(_file: *mut ffi::sqlite3_file) {
    Shm::barrier();
}

unsafe extern "C" fn x_shm_unmap(file: *mut ffi::sqlite3_file, _delete: c_int) -> c_int {
    // SAFETY: see `opened`.
    unsafe { opened(file) }.shm_unmap();
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: called through a structure that Registration made, with a valid string.
    let (machine, path) = unsafe { (machine_of(vfs), path_of(name)) };
    machine.map_or(ffi::SQLITE_IOERR_DELETE, |machine| rc(sim_file::delete(&machine, path, sync_dir != 0)))
}

unsafe extern "C" fn x_access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: called through a structure that Registration made, with a valid string.
    let (machine, path) = unsafe { (machine_of(vfs), path_of(name)) };
    let Some(machine) = machine else { return ffi::SQLITE_IOERR_ACCESS };
    // SAFETY: `out` is valid for a write.
    unsafe { answer(sim_file::access(&machine, path, flags).map(c_int::from), out) }
}

unsafe extern "C" fn x_full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    bytes: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite passes a valid string.
    let full: PathBuf = normal(unsafe { path_of(name) });
    let full = full.as_os_str().as_bytes();
    if full.len() >= bytes as usize {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: `out` has room for `bytes` bytes, which is more than the name and its NUL need.
    unsafe {
        ptr::copy_nonoverlapping(full.as_ptr(), out.cast::<u8>(), full.len());
        out.add(full.len()).write(0);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_dl_open(_vfs: *mut ffi::sqlite3_vfs, _name: *const c_char) -> *mut c_void {
    ptr::null_mut()
}

unsafe extern "C" fn x_dl_error(_vfs: *mut ffi::sqlite3_vfs, bytes: c_int, out: *mut c_char) {
    if bytes > 0 {
        // SAFETY: `out` has room for `bytes` bytes.
        unsafe { out.write(0) };
    }
}

unsafe extern "C" fn x_dl_sym(
    _vfs: *mut ffi::sqlite3_vfs,
    _library: *mut c_void,
    _symbol: *const c_char,
) -> Option<unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *mut c_void, *const c_char)> {
    None
}

unsafe extern "C" fn x_dl_close(_vfs: *mut ffi::sqlite3_vfs, _library: *mut c_void) {}

unsafe extern "C" fn x_randomness(vfs: *mut ffi::sqlite3_vfs, bytes: c_int, out: *mut c_char) -> c_int {
    // SAFETY: `out` has room for `bytes` bytes and is zeroed before use; called through a structure that Registration
    // made.
    let (machine, out) = unsafe {
        out.write_bytes(0, bytes as usize);
        (machine_of(vfs), std::slice::from_raw_parts_mut(out.cast::<u8>(), bytes as usize))
    };
    machine.map_or(0, |machine| {
        machine.lock().rng.fill(out);
        bytes
    })
}

unsafe extern "C" fn x_sleep(vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    // SAFETY: called through a structure that Registration made.
    if let Some(machine) = unsafe { machine_of(vfs) } {
        machine.clock().advance(microseconds.max(0) as u64);
        // Simulated time is enough for one thread; other real threads need a chance to run.
        std::thread::yield_now();
    }
    microseconds
}

unsafe extern "C" fn x_current_time_int64(vfs: *mut ffi::sqlite3_vfs, out: *mut i64) -> c_int {
    // SAFETY: called through a structure that Registration made; `out` is valid for a write.
    unsafe { answer(machine_of(vfs).map(|m| m.clock().julian_ms() as i64).ok_or(ffi::SQLITE_ERROR), out) }
}

unsafe extern "C" fn x_current_time(vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    let days = |machine: Arc<SimMachine>| machine.clock().julian_ms() as f64 / 86_400_000.0;
    // SAFETY: called through a structure that Registration made; `out` is valid for a write.
    unsafe { answer(machine_of(vfs).map(days).ok_or(ffi::SQLITE_ERROR), out) }
}

unsafe extern "C" fn x_get_last_error(
    _vfs: *mut ffi::sqlite3_vfs,
    _bytes: c_int,
    _out: *mut c_char,
) -> c_int {
    0
}
