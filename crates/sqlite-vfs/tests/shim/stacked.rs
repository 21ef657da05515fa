//! Another VFS on top of the shim, like vfstrace or multiplex, with file structures and file names of its own.

use crate::support::{count, insert, protected, until};
use rusqlite::{Connection, OpenFlags, ffi};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};

static BELOW: AtomicPtr<ffi::sqlite3_vfs> = AtomicPtr::new(std::ptr::null_mut());
/// Number of WALs of the VFS on top that are open with the methods of the shim, which does not sync them.
static LOGS_OF_SHIM: AtomicU32 = AtomicU32::new(0);

#[repr(C)]
struct Outer {
    base: ffi::sqlite3_file,
    inner: *mut ffi::sqlite3_file,
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: called by SQLite with memory for `Outer`, and a name that is null or a C string. The copy of the name,
    // which has nothing before it and one zero behind it, is never freed, nor is the memory of the file below.
    unsafe {
        let below = BELOW.load(SeqCst);
        let name = match name.is_null() {
            true => std::ptr::null(),
            false => CString::from(CStr::from_ptr(name)).into_raw().cast_const(),
        };
        let inner: *mut ffi::sqlite3_file = ffi::sqlite3_malloc((*below).szOsFile).cast();
        (*file).pMethods = std::ptr::null();
        let result = (*below).xOpen.unwrap()(below, name, inner, flags, out);
        if result == ffi::SQLITE_OK {
            file.cast::<Outer>()
                .write(Outer { base: ffi::sqlite3_file { pMethods: &raw const METHODS }, inner });
            // Counted by its methods: the shim forwards no sync of a WAL that could be counted below.
            if flags & ffi::SQLITE_OPEN_WAL != 0
                && (*(*inner).pMethods).xShmMap.is_some()
                && is_of_shim(inner)
            {
                LOGS_OF_SHIM.fetch_add(1, SeqCst);
            }
        }
        result
    }
}

/// Returns whether the methods are those of the shim, which the main file of a protected database has.
///
/// # Safety
/// `file` is an open file.
unsafe fn is_of_shim(file: *mut ffi::sqlite3_file) -> bool {
    // SAFETY: as the caller promises; both are methods of an open file.
    unsafe { SHIM_WRITE.load(SeqCst) == (*(*file).pMethods).xWrite.unwrap() as *mut c_void }
}

static SHIM_WRITE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

macro_rules! forward {
    ($($name:ident = $method:ident($($argument:ident: $type:ty),*);)*) => {
        $(unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $argument: $type)*) -> c_int {
            // SAFETY: called by SQLite with a file of ours, and forwarded.
            unsafe {
                let inner = (*file.cast::<Outer>()).inner;
                (*(*inner).pMethods).$method.unwrap()(inner $(, $argument)*)
            }
        })*
    };
}

forward! {
    close = xClose();
    read = xRead(to: *mut c_void, count: c_int, at: i64);
    write = xWrite(from: *const c_void, count: c_int, at: i64);
    truncate = xTruncate(size: i64);
    sync = xSync(flags: c_int);
    file_size = xFileSize(size: *mut i64);
    lock = xLock(level: c_int);
    unlock = xUnlock(level: c_int);
    check = xCheckReservedLock(out: *mut c_int);
    control = xFileControl(operation: c_int, argument: *mut c_void);
    sector = xSectorSize();
    device = xDeviceCharacteristics();
    shm_map = xShmMap(region: c_int, bytes: c_int, extend: c_int, out: *mut *mut c_void);
    shm_lock = xShmLock(offset: c_int, count: c_int, flags: c_int);
    shm_unmap = xShmUnmap(delete: c_int);
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: as in `forward`.
    unsafe {
        let inner = (*file.cast::<Outer>()).inner;
        (*(*inner).pMethods).xShmBarrier.unwrap()(inner);
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check),
    xFileControl: Some(control),
    xSectorSize: Some(sector),
    xDeviceCharacteristics: Some(device),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions of SQLite; the new VFS lives as long as the process. Its other methods are those of the
        // shim, which finds what it needs in the same fields.
        unsafe {
            let below = ffi::sqlite3_vfs_find(c"standfast".as_ptr());
            BELOW.store(below, SeqCst);
            let mut vfs = MaybeUninit::<ffi::sqlite3_vfs>::uninit();
            std::ptr::copy_nonoverlapping(below, vfs.as_mut_ptr(), 1);
            let vfs = Box::leak(Box::new(vfs.assume_init()));
            vfs.zName = c"on-top".as_ptr();
            vfs.pNext = std::ptr::null_mut();
            vfs.szOsFile = size_of::<Outer>() as c_int;
            vfs.xOpen = Some(open);
            assert_eq!(ffi::sqlite3_vfs_register(vfs, 0), ffi::SQLITE_OK);
        }
    });
}

#[test]
fn database_below_a_stacked_vfs_is_protected() {
    let (scratch, instance, path) = protected("stacked");
    register();
    let mut shim: *mut ffi::sqlite3_file = std::ptr::null_mut();
    let direct = crate::support::open(&path);
    assert_eq!(count(&direct), 0);
    // SAFETY: an open connection, and the place for a pointer to its file, which is open.
    unsafe {
        let place = (&raw mut shim).cast();
        ffi::sqlite3_file_control(direct.handle(), c"main".as_ptr(), ffi::SQLITE_FCNTL_FILE_POINTER, place);
        SHIM_WRITE.store((*(*shim).pMethods).xWrite.unwrap() as *mut c_void, SeqCst);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let on_top =
        |path: &std::path::Path| Connection::open_with_flags_and_vfs(path, flags, c"on-top").unwrap();
    let connection = on_top(&path);
    insert(&connection).unwrap();
    let role: Option<String> = connection.query_row("SELECT standfast_role()", [], |row| row.get(0)).unwrap();
    assert_eq!(role.as_deref(), Some("primary"));
    assert_eq!(LOGS_OF_SHIM.load(SeqCst), 1, "its log is synced at each commit");
    instance.hold(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || insert(&connection).unwrap());
        until("the commit waits", || {
            assert!(!writer.is_finished(), "the commit returned without a wait");
            instance.segment.has_commit_waiters(3)
        });
        instance.hold(false);
    });
    // Rollback journals under names that SQLite has not made, beside an unprotected database.
    let plain = on_top(&scratch.path.join("plain.db"));
    plain.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES(1)").unwrap();
    assert_eq!((count(&plain), count(&direct)), (1, 2));
}
