//! The VFS under the instance's own connections. It forwards everything to the VFS below, and
//! - keeps the locks that the instance holds for good: the connection's own lock and unlock calls for them
//!   do nothing, so that SQLite's code can "take" a lock that we have already; that of checkpoints is shared
//!   while none is decided upon ([`crate::checkpoint_lock`]);
//! - asks before the WAL is synced for a checkpoint, so that nothing reaches the database file that is not
//!   captured and durable in the redo log (redo before data);
//! - writes the frames of a transaction at once;
//! - lets a checkpoint go at the pace that was asked for;
//! - keeps the WAL file at its length: a log that is truncated has to be allocated again;
//! - syncs of a WAL file what is in use, and not what is left behind that of a longer log.

#![allow(clippy::missing_safety_doc)]

use crate::checkpoint_lock::CheckpointLock;
use crate::mapped::{self, MappedRegions};
use crate::pace::{AfterPortion, PAUSE_MAX, Portions};
use crate::wal_index::{WalIndexHeader, WalIndexView};
use rusqlite::ffi;
use standfast_io::fault::{self, Fault};
use standfast_io::part::PartlySynced;
use standfast_session::InnerLock;
use standfast_types::{FrameRun, PageNo};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Called before the WAL is synced for a checkpoint; false refuses the checkpoint.
pub type BeforeBackfill = Box<dyn Fn() -> bool + Send + Sync>;

/// Called with the last frame moved when a checkpoint has moved all of the log into the database file, synced, and before the
/// wal-index says so: from then on SQLite may reset the log. False keeps it from being said.
pub type AllMoved = Box<dyn Fn(u32) -> bool + Send + Sync>;

/// What the guard knows of one open main database file; lives as long as the file is open.
#[derive(Default)]
pub struct GuardState {
    pub write_held: AtomicBool,
    pub checkpoint_held: AtomicBool,
    pub(crate) checkpoint_lock: CheckpointLock,
    /// SQLite's write lock is held shared for good: only a connection with the inner lock as well writes.
    pub others_refused: AtomicBool,
    /// How the write lock is held: [`NOT`], [`EXCLUSIVELY`], [`BY_INNER`].
    write_form: AtomicU8,
    /// Found when it is needed first.
    inner: Mutex<Option<InnerLock>>,
    /// The database file.
    path: PathBuf,
    pub before_backfill: Mutex<Option<BeforeBackfill>>,
    pub all_moved: Mutex<Option<AllMoved>>,
    portions: Mutex<Portions>,
    /// The database was written to since its last sync.
    unsynced: AtomicBool,
    /// Regions of the wal-index that this file has mapped.
    mapped: Mutex<MappedRegions>,
    /// Frames of the open transaction that are not in the WAL yet.
    frames: Mutex<FrameRun>,
    /// Where those end that are.
    written: AtomicU64,
    /// Frames of the log when a checkpoint was about to move some: at least those that it knows of. 0: it moved none.
    pub seen: AtomicU32,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Main,
    Wal,
    Other,
}

/// Our part of an open file; the real file's structure follows it in the same allocation.
#[repr(C)]
pub struct GuardFile {
    base: ffi::sqlite3_file,
    kind: Kind,
    /// For Main its own; for Wal the main file's, null when unknown.
    state: *mut GuardState,
    /// For Wal: the main file, null when unknown.
    main: *mut GuardFile,
    /// For Wal, of SQLite's own VFS, to sync a part; null for others. Closing it drops no lock: those are on the database
    /// file and the wal-index.
    part: *mut PartlySynced,
    real: *mut ffi::sqlite3_file,
}

const WRITE_LOCK: c_int = 0;

/// See [`GuardState::write_form`].
const NOT: u8 = 0;
/// As SQLite takes it.
const EXCLUSIVELY: u8 = 1;
/// The inner lock, and the lock shared.
const BY_INNER: u8 = 2;
const CHECKPOINT_LOCK: c_int = 1;

/// Registers a guard over `base` (null: the default VFS) under `name`.
pub fn register(base: Option<&CStr>, name: &CStr) -> Result<(), c_int> {
    // SAFETY: base is null or NUL-terminated; the result is null or a registered VFS, which SQLite never frees.
    let below = unsafe { ffi::sqlite3_vfs_find(base.map_or(std::ptr::null(), CStr::as_ptr)) };
    if below.is_null() {
        return Err(ffi::SQLITE_NOTFOUND);
    }
    // SAFETY: below is a registered VFS.
    let real = unsafe { &*below };
    let vfs = Box::new(ffi::sqlite3_vfs {
        iVersion: real.iVersion.min(2),
        szOsFile: (real_offset() + real.szOsFile as usize) as c_int,
        mxPathname: real.mxPathname,
        pNext: std::ptr::null_mut(),
        zName: CString::from(name).into_raw(),
        pAppData: below.cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(last_error),
        xCurrentTimeInt64: real.xCurrentTimeInt64.and(Some(current_time_64)),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    });
    // SAFETY: the VFS and its name are leaked, so they live for the rest of the process as SQLite requires.
    match unsafe { ffi::sqlite3_vfs_register(Box::into_raw(vfs), 0) } {
        ffi::SQLITE_OK => Ok(()),
        code => Err(code),
    }
}

/// The guard of an open main database file.
///
/// # Safety
/// `file` is the file pointer of a live connection.
pub unsafe fn guard_of(file: *mut ffi::sqlite3_file) -> Option<*mut GuardFile> {
    // SAFETY: the caller promises a live file; pMethods is set while it is open.
    let ours = !file.is_null() && unsafe { std::ptr::eq((*file).pMethods, &METHODS) };
    ours.then(|| file.cast())
}

impl GuardState {
    fn frames(&self) -> MutexGuard<'_, FrameRun> {
        self.frames.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn mapped(&self) -> MutexGuard<'_, MappedRegions> {
        self.mapped.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The checkpoint lock was taken for good.
    pub fn checkpoint_lock_taken(&self) {
        self.checkpoint_lock.taken(&self.path);
    }

    fn inner(&self) -> MutexGuard<'_, Option<InnerLock>> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn try_inner_lock(&self) -> std::io::Result<bool> {
        let mut inner = self.inner();
        let found = match inner.take() {
            Some(found) => found,
            None => InnerLock::of(&self.path)?,
        };
        let locked = found.try_lock();
        // One that has lost its file is looked for again the next time.
        if locked.is_ok() {
            *inner = Some(found);
        }
        locked
    }

    fn unlock_inner(&self) {
        if let Some(inner) = self.inner().as_ref() {
            inner.unlock();
        }
    }

    /// See [`crate::guard::Guard::is_index_lost`].
    pub fn is_index_lost(&self) -> bool {
        mapped::any_is_lost() && self.mapped().is_lost()
    }

    pub fn portions(&self) -> MutexGuard<'_, Portions> {
        self.portions.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl GuardFile {
    pub fn state(&self) -> Option<&GuardState> {
        // SAFETY: state is null or a box owned by the open main file; a WAL is closed before its main file.
        unsafe { self.state.as_ref() }
    }

    /// The frames on their way into this file, if it is a WAL whose transactions are known.
    fn wal_frames(&self) -> Option<MutexGuard<'_, FrameRun>> {
        self.state().filter(|_| self.kind == Kind::Wal).map(GuardState::frames)
    }

    /// Syncs what is in use of this WAL: what its index says, and what the open transaction of this connection has
    /// written. `None` for other files, and where that is not known.
    fn sync_used(&self) -> Option<std::io::Result<()>> {
        // SAFETY: null or a box that is owned by this file.
        let part = unsafe { self.part.as_ref() }?;
        let header = self.index_header()?;
        let written = self.state()?.written.load(SeqCst);
        Some(part.sync_first(header.log_bytes()?.max(written)))
    }

    /// What the index of this WAL publishes; `None` where that is not known.
    fn index_header(&self) -> Option<WalIndexHeader> {
        // SAFETY: null or the open main file; a WAL is closed before its main file.
        unsafe { self.main.as_ref() }?.wal_index()?.settled_header()
    }

    /// The wal-index of this main database file, if it has one.
    fn wal_index(&self) -> Option<WalIndexView> {
        let region = self.shm_region(0);
        // SAFETY: region 0, mapped for as long as this file is open.
        (!region.is_null()).then(|| unsafe { WalIndexView::new(region) })
    }

    /// Asks the [`AllMoved`] hook when SQLite syncs this main database file by itself. It does so only at the end of a checkpoint
    /// that has moved everything that was in the log (`walCheckpoint`), and keeps the checkpoint lock.
    fn may_say_all_moved(&self) -> bool {
        let Some(state) = self.state() else { return true };
        let hook = state.all_moved.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some(hook) = hook.as_ref() else { return true };
        match self.wal_index().map(|index| (index.attempted(), index.settled_header())) {
            // A log that has grown meanwhile, or is about to, is not reset.
            Some((attempted, Some(header))) if header.frames() == attempted => hook(attempted),
            _ => true,
        }
    }

    /// The real xWrite.
    fn write_below(&self, offset: u64, data: &[u8]) -> Result<(), c_int> {
        // SAFETY: real is the open file below; data has its length.
        let code = unsafe {
            (*(*self.real).pMethods).xWrite.map_or(ffi::SQLITE_IOERR_WRITE, |write| {
                write(self.real, data.as_ptr().cast(), data.len() as c_int, offset as ffi::sqlite3_int64)
            })
        };
        if code == ffi::SQLITE_OK { Ok(()) } else { Err(code) }
    }

    /// The real xShmLock, whatever is held.
    pub fn shm_lock(&self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        // SAFETY: real is the open file below; methods of version 2 have xShmLock.
        unsafe {
            match (*(*self.real).pMethods).xShmLock {
                Some(lock) => lock(self.real, offset, count, flags),
                None => ffi::SQLITE_IOERR_SHMLOCK,
            }
        }
    }

    /// Takes the write lock, without waiting: exclusively, or, where others hold it shared, by the [inner lock](InnerLock).
    pub fn take_write_lock(&self) -> c_int {
        const SHARED: c_int = ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_SHARED;
        let exclusively = || self.shm_lock(WRITE_LOCK, 1, ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_EXCLUSIVE);
        let Some(state) = self.state() else { return exclusively() };
        let is_refusing = state.others_refused.load(SeqCst);
        if !is_refusing {
            match exclusively() {
                ffi::SQLITE_OK => {
                    state.write_form.store(EXCLUSIVELY, SeqCst);
                    return ffi::SQLITE_OK;
                }
                ffi::SQLITE_BUSY => {}
                code => return code,
            }
        }
        match state.try_inner_lock() {
            Ok(true) => {}
            // Without it (a simulated file system, say) the lock is simply busy.
            Ok(false) | Err(_) => return ffi::SQLITE_BUSY,
        }
        let code = if is_refusing { ffi::SQLITE_OK } else { self.shm_lock(WRITE_LOCK, 1, SHARED) };
        match code {
            ffi::SQLITE_OK => state.write_form.store(BY_INNER, SeqCst),
            _ => state.unlock_inner(),
        }
        code
    }

    /// Releases the write lock.
    pub fn drop_write_lock(&self) -> c_int {
        const EXCLUSIVE: c_int = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_EXCLUSIVE;
        const SHARED: c_int = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_SHARED;
        let Some(state) = self.state() else { return self.shm_lock(WRITE_LOCK, 1, EXCLUSIVE) };
        if state.write_form.swap(NOT, SeqCst) != BY_INNER {
            return self.shm_lock(WRITE_LOCK, 1, EXCLUSIVE);
        }
        state.unlock_inner();
        if state.others_refused.load(SeqCst) {
            return ffi::SQLITE_OK;
        }
        self.shm_lock(WRITE_LOCK, 1, SHARED)
    }

    /// A page of this main database file; false when the file ends before it.
    pub fn read_page(&self, out: &mut [u8], page_no: PageNo) -> Result<bool, c_int> {
        let offset = i64::from(page_no - 1) * out.len() as i64;
        // SAFETY: real is the open file below; out has the length that is passed.
        let code = unsafe {
            (*(*self.real).pMethods).xRead.map_or(ffi::SQLITE_IOERR_READ, |read| {
                read(self.real, out.as_mut_ptr().cast(), out.len() as c_int, offset)
            })
        };
        match code {
            ffi::SQLITE_OK => Ok(true),
            ffi::SQLITE_IOERR_SHORT_READ => Ok(false),
            code => Err(code),
        }
    }

    /// A region of the wal-index; null on error, and when there is none with this number.
    pub fn shm_region(&self, number: c_int) -> *mut c_void {
        let mut region: *mut c_void = std::ptr::null_mut();
        // SAFETY: as for shm_lock; region receives the address. The size is the one that SQLite uses.
        unsafe {
            if let Some(map) = (*(*self.real).pMethods).xShmMap {
                let code = map(self.real, number, 32 * 1024, 0, (&raw mut region).cast());
                if code != ffi::SQLITE_OK {
                    return std::ptr::null_mut();
                }
            }
        }
        region
    }
}

fn real_offset() -> usize {
    size_of::<GuardFile>().next_multiple_of(16)
}

/// SAFETY (all functions below): SQLite calls them with the VFS that was registered here, or a file that
/// `open` filled in, and with valid arguments as its documentation of the methods says.
unsafe fn below(vfs: *mut ffi::sqlite3_vfs) -> *mut ffi::sqlite3_vfs {
    // SAFETY: pAppData was set at registration.
    unsafe { (*vfs).pAppData.cast() }
}

/// Whether it is one of SQLite's own for Unix, whose files are files.
// SAFETY: called with a registered VFS.
unsafe fn is_sqlites_own(vfs: *mut ffi::sqlite3_vfs) -> bool {
    // SAFETY: a registered VFS has a name.
    unsafe { CStr::from_ptr((*vfs).zName) }.to_bytes().starts_with(b"unix")
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: see `below`; file has szOsFile bytes, of which ours are the first.
    unsafe {
        let guard: *mut GuardFile = file.cast();
        let real = file.cast::<u8>().add(real_offset()).cast::<ffi::sqlite3_file>();
        (*real).pMethods = std::ptr::null();
        (*guard).base.pMethods = std::ptr::null();
        (*guard).state = std::ptr::null_mut();
        (*guard).main = std::ptr::null_mut();
        (*guard).part = std::ptr::null_mut();
        (*guard).real = real;
        let lower = below(vfs);
        let Some(real_open) = (*lower).xOpen else { return ffi::SQLITE_CANTOPEN };
        let code = real_open(lower, name, real, flags, out_flags);
        if (*real).pMethods.is_null() {
            return code;
        }
        (*guard).kind = Kind::Other;
        if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
            (*guard).kind = Kind::Main;
            let path = if name.is_null() {
                PathBuf::new()
            } else {
                PathBuf::from(OsStr::from_bytes(CStr::from_ptr(name).to_bytes()))
            };
            let path = if is_sqlites_own(lower) { path } else { PathBuf::new() };
            (*guard).state = Box::into_raw(Box::new(GuardState { path, ..GuardState::default() }));
        } else if flags & ffi::SQLITE_OPEN_WAL != 0 {
            (*guard).kind = Kind::Wal;
            if let Some(main) = guard_of(ffi::sqlite3_database_file_object(name)) {
                (*guard).state = (*main).state;
                (*guard).main = main;
            }
            if is_sqlites_own(lower) {
                let path = Path::new(OsStr::from_bytes(CStr::from_ptr(name).to_bytes()));
                // Without it more is synced than has to be.
                (*guard).part = PartlySynced::open(path)
                    .map_or(std::ptr::null_mut(), |part| Box::into_raw(Box::new(part)));
            }
        }
        (*guard).base.pMethods = &METHODS;
        code
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: see `below`.
    unsafe {
        let guard: *mut GuardFile = file.cast();
        let real = (*guard).real;
        let code = match (*(*real).pMethods).xClose {
            Some(close) => close(real),
            None => ffi::SQLITE_OK,
        };
        if (*guard).kind == Kind::Main && !(*guard).state.is_null() {
            drop(Box::from_raw((*guard).state));
            (*guard).state = std::ptr::null_mut();
        }
        if !(*guard).part.is_null() {
            drop(Box::from_raw((*guard).part));
            (*guard).part = std::ptr::null_mut();
        }
        (*guard).base.pMethods = std::ptr::null();
        code
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    // SAFETY: see `below`.
    unsafe {
        let guard: *mut GuardFile = file.cast();
        if (*guard).kind == Kind::Wal {
            return ffi::SQLITE_OK;
        }
        let real = (*guard).real;
        (*(*real).pMethods).xTruncate.map_or(ffi::SQLITE_IOERR_TRUNCATE, |truncate| truncate(real, size))
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: see `below`.
    let guard = unsafe { &*file.cast::<GuardFile>() };
    if let Some(mut frames) = guard.wal_frames()
        && let Err(code) = frames.write_out(|offset, run| guard.write_below(offset, run))
    {
        return code;
    }
    if guard.kind == Kind::Wal
        && let Some(state) = guard.state()
        && let Ok(hook) = state.before_backfill.lock()
        && let Some(hook) = hook.as_ref()
        && !hook()
    {
        return ffi::SQLITE_BUSY;
    }
    if guard.kind == Kind::Wal
        && let Some(state) = guard.state()
    {
        state.seen.store(guard.index_header().map_or(0, |header| header.frames()), SeqCst);
        // The index says how far the checkpoint goes: a snapshot that is opened now sees it.
        state.checkpoint_lock.share();
    }
    // SAFETY: as above.
    let code = unsafe { sync_kind(file, flags) };
    if code == ffi::SQLITE_OK && guard.kind == Kind::Main && !guard.may_say_all_moved() {
        return ffi::SQLITE_BUSY;
    }
    code
}

/// The real xSync, and where tests make it fail.
// SAFETY: called by the file methods below only, with a file that SQLite has opened through this VFS.
unsafe fn sync_kind(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: see `below`.
    let kind = unsafe { (*file.cast::<GuardFile>()).kind };
    // SAFETY: see `below`.
    let is_index_lost = unsafe { &*file.cast::<GuardFile>() }.state().is_some_and(GuardState::is_index_lost);
    let failed = is_index_lost
        || match kind {
            Kind::Main => fault::check(Fault::DatabaseSync).is_err(),
            Kind::Wal => fault::check(Fault::WalSync).is_err(),
            Kind::Other => false,
        };
    // SAFETY: as above.
    let guard = unsafe { &*file.cast::<GuardFile>() };
    let code = match (!failed).then(|| guard.sync_used()) {
        None | Some(Some(Err(_))) => ffi::SQLITE_IOERR_FSYNC,
        Some(Some(Ok(()))) => ffi::SQLITE_OK,
        // SAFETY: as above.
        Some(None) => unsafe { sync_below(file, flags) },
    };
    if code == ffi::SQLITE_OK
        && guard.kind == Kind::Main
        && let Some(state) = guard.state()
    {
        state.unsynced.store(false, SeqCst);
    }
    code
}

/// Syncs a main database file that was written to since its last sync.
///
/// # Safety
/// `guard` is that of a connection that is open and not in use.
pub unsafe fn sync_written(guard: *mut GuardFile) -> c_int {
    // SAFETY: the caller promises an open file.
    unsafe {
        match (*guard).state() {
            Some(state) if state.unsynced.load(SeqCst) => {
                sync_kind(guard.cast(), ffi::SQLITE_SYNC_NORMAL | ffi::SQLITE_SYNC_DATAONLY)
            }
            _ => ffi::SQLITE_OK,
        }
    }
}

/// Writes a page of a main database file, as a checkpoint does.
///
/// # Safety
/// `guard` is that of a connection that is open and not in use.
pub unsafe fn write_page(guard: *mut GuardFile, image: &[u8], page_no: PageNo) -> c_int {
    let offset = i64::from(page_no - 1) * image.len() as i64;
    // SAFETY: the caller promises an open file; the image has the length that is passed.
    unsafe { write(guard.cast(), image.as_ptr().cast(), image.len() as c_int, offset) }
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: see `below`.
    let guard = unsafe { &*file.cast::<GuardFile>() };
    let (mut offset, mut count) = (offset, count);
    if let Some(state) = guard.state() {
        if flags & ffi::SQLITE_SHM_LOCK != 0 && state.is_index_lost() {
            return ffi::SQLITE_IOERR_SHMLOCK;
        }
        if offset == WRITE_LOCK {
            state.frames().clear();
            state.written.store(0, SeqCst);
        }
        if offset == WRITE_LOCK && state.write_held.load(SeqCst) {
            (offset, count) = (offset + 1, count - 1);
        }
        if count > 0 && offset == CHECKPOINT_LOCK && state.checkpoint_held.load(SeqCst) {
            if flags & ffi::SQLITE_SHM_EXCLUSIVE != 0 {
                match flags & ffi::SQLITE_SHM_LOCK != 0 {
                    true if !state.checkpoint_lock.exclude() => return ffi::SQLITE_BUSY,
                    true => {}
                    false => state.checkpoint_lock.share(),
                }
            }
            (offset, count) = (offset + 1, count - 1);
        }
    }
    let is_write_lock = offset == WRITE_LOCK && count == 1 && flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
    match (count, is_write_lock) {
        (0, _) => ffi::SQLITE_OK,
        (_, true) if flags & ffi::SQLITE_SHM_LOCK != 0 => guard.take_write_lock(),
        (_, true) => guard.drop_write_lock(),
        (_, false) => guard.shm_lock(offset, count, flags),
    }
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    out: *mut c_void,
    bytes: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: see `below`.
    let guard = unsafe { &*file.cast::<GuardFile>() };
    if let Some(mut frames) = guard.wal_frames()
        && let Err(code) =
            frames.before_read(offset as u64, bytes as usize, |offset, run| guard.write_below(offset, run))
    {
        return code;
    }
    // SAFETY: as above.
    unsafe { read_below(file, out, bytes, offset) }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    bytes: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: see `below`.
    let guard = unsafe { &*file.cast::<GuardFile>() };
    // SAFETY: SQLite passes that many bytes.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes as usize) };
    if guard.kind == Kind::Main && guard.state().is_some_and(GuardState::is_index_lost) {
        return ffi::SQLITE_IOERR_WRITE;
    }
    if guard.kind == Kind::Main
        && let Err(error) = fault::check(Fault::DatabaseWrite)
    {
        // As SQLite's own VFS tells them apart.
        let full = error.raw_os_error() == Some(libc::ENOSPC);
        return if full { ffi::SQLITE_FULL } else { ffi::SQLITE_IOERR_WRITE };
    }
    if guard.kind == Kind::Wal
        && let Some(state) = guard.state()
    {
        state.written.fetch_max(offset as u64 + bytes as u64, SeqCst);
    }
    let written = match guard.wal_frames() {
        Some(mut frames) => frames.write(offset as u64, data, |offset, data| guard.write_below(offset, data)),
        None => guard.write_below(offset as u64, data),
    };
    if let Err(code) = written {
        return code;
    }
    let Some(state) = guard.state().filter(|_| guard.kind == Kind::Main) else { return ffi::SQLITE_OK };
    state.unsynced.store(true, SeqCst);
    let portion = state.portions().page_written();
    // SAFETY: as above.
    portion.map_or(ffi::SQLITE_OK, |after| unsafe { end_portion(file, after) })
}

/// Syncs what was written of the database and then, at leisure, leaves the disk to others.
// SAFETY: as for `sync_kind`.
unsafe fn end_portion(file: *mut ffi::sqlite3_file, after: AfterPortion) -> c_int {
    let begun = Instant::now();
    // SAFETY: see `below`.
    let synced = unsafe { sync_kind(file, ffi::SQLITE_SYNC_NORMAL | ffi::SQLITE_SYNC_DATAONLY) };
    if after == AfterPortion::Pause {
        // Nothing tells when the log writer has had its turn.
        std::thread::sleep(begun.elapsed().min(PAUSE_MAX));
    }
    synced
}

/// A file method that only goes on to the file below.
macro_rules! forward {
    ($name:ident, $method:ident, $missing:expr $(, $arg:ident: $ty:ty)*) => {
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $arg: $ty)*) -> c_int {
            // SAFETY: see `below`.
            unsafe {
                let real = (*file.cast::<GuardFile>()).real;
                (*(*real).pMethods).$method.map_or($missing, |method| method(real $(, $arg)*))
            }
        }
    };
}

forward!(read_below, xRead, ffi::SQLITE_IOERR_READ, out: *mut c_void, bytes: c_int, offset: ffi::sqlite3_int64);
forward!(sync_below, xSync, ffi::SQLITE_IOERR_FSYNC, flags: c_int);
forward!(file_size, xFileSize, ffi::SQLITE_IOERR_FSTAT, out: *mut ffi::sqlite3_int64);
forward!(lock, xLock, ffi::SQLITE_IOERR_LOCK, level: c_int);
forward!(unlock, xUnlock, ffi::SQLITE_IOERR_UNLOCK, level: c_int);
forward!(check_reserved, xCheckReservedLock, ffi::SQLITE_IOERR_CHECKRESERVEDLOCK, out: *mut c_int);
forward!(file_control, xFileControl, ffi::SQLITE_NOTFOUND, op: c_int, arg: *mut c_void);
forward!(sector_size, xSectorSize, 4096);
forward!(characteristics, xDeviceCharacteristics, 0);
forward!(shm_map_below, xShmMap, ffi::SQLITE_IOERR_SHMMAP, page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void);

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: see `below`; `out` receives the address.
    unsafe {
        let code = shm_map_below(file, page, size, extend, out);
        if code == ffi::SQLITE_OK
            && !(*out).is_null()
            && let Some(state) = (*file.cast::<GuardFile>()).state()
        {
            state.mapped().add(*out);
        }
        code
    }
}

/// Called when the connection closes: SQLite knows nothing of the locks that are held for good.
unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: see `below`.
    unsafe {
        let guard = &*file.cast::<GuardFile>();
        if let Some(state) = guard.state() {
            *state.mapped() = MappedRegions::default();
            if state.write_held.swap(false, SeqCst) {
                guard.drop_write_lock();
            }
            if state.others_refused.swap(false, SeqCst) {
                guard.shm_lock(WRITE_LOCK, 1, ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_SHARED);
            }
            *state.inner() = None;
            if state.checkpoint_held.swap(false, SeqCst) {
                state.checkpoint_lock.given_back();
                guard.shm_lock(CHECKPOINT_LOCK, 1, ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_EXCLUSIVE);
            }
        }
        (*(*guard.real).pMethods).xShmUnmap.map_or(ffi::SQLITE_OK, |unmap| unmap(guard.real, delete))
    }
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: see `below`.
    unsafe {
        let real = (*file.cast::<GuardFile>()).real;
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}

/// Version 2: without xFetch, so that every page goes through xRead.
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
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// A VFS method that only goes on to the VFS below.
macro_rules! forward_vfs {
    ($name:ident, $method:ident, $missing:expr $(, $arg:ident: $ty:ty)*) => {
        unsafe extern "C" fn $name(vfs: *mut ffi::sqlite3_vfs $(, $arg: $ty)*) -> c_int {
            // SAFETY: see `below`.
            unsafe {
                let lower = below(vfs);
                (*lower).$method.map_or($missing, |method| method(lower $(, $arg)*))
            }
        }
    };
}

forward_vfs!(delete, xDelete, ffi::SQLITE_IOERR_DELETE, name: *const c_char, sync_directory: c_int);
forward_vfs!(access, xAccess, ffi::SQLITE_IOERR_ACCESS, name: *const c_char, flags: c_int, out: *mut c_int);
forward_vfs!(full_pathname, xFullPathname, ffi::SQLITE_CANTOPEN, name: *const c_char, size: c_int, out: *mut c_char);
forward_vfs!(randomness, xRandomness, 0, bytes: c_int, out: *mut c_char);
forward_vfs!(sleep, xSleep, 0, microseconds: c_int);
forward_vfs!(current_time, xCurrentTime, ffi::SQLITE_ERROR, out: *mut f64);
forward_vfs!(last_error, xGetLastError, 0, size: c_int, out: *mut c_char);
forward_vfs!(current_time_64, xCurrentTimeInt64, ffi::SQLITE_ERROR, out: *mut ffi::sqlite3_int64);
