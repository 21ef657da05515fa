//! Holds SQLite's own locks for good, and reads what it has published.

use crate::guard_vfs::{self, GuardFile, GuardState};
use crate::journal::JournalFound;
use crate::mapped;
use crate::pace::Pace;
use crate::wal_index::WalIndexView;
use crate::{sqlite_code, wal_index::WalIndexHeader};
use rusqlite::{Connection, ffi};
use standfast_types::{Hint, PageNo, WalPosition};
use std::borrow::Cow;
use std::ffi::{CString, c_int};
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Why a database cannot be guarded.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The VFS below does not exist, or SQLite refused the registration.
    #[error("cannot register the guard VFS: {0}")]
    Register(String),
    /// The connection was not opened through the guard VFS.
    #[error("the connection does not go through the guard VFS")]
    NotGuarded,
    #[error("the {lock} lock of the database is held by another connection")]
    Busy { lock: &'static str },
    /// A file of the database cannot be opened.
    #[error(
        "another process has a lease on {} (F_SETLEASE)",
        .0.display()
    )]
    Leased(std::path::PathBuf),
    /// SQLite or the file system failed.
    #[error("cannot take the {lock} lock: {code}")]
    Lock { lock: &'static str, code: String },
    /// The database has no wal-index: it is not in WAL mode or was not read yet.
    #[error("the database has no write-ahead log")]
    NoWal,
    /// A journal that SQLite would roll back, or wait for, lies beside the database.
    #[error("{}", .0)]
    Journal(JournalFound),
    /// A writer died while publishing; SQLite's recovery has to run first.
    #[error("the wal-index is being written or was left half written")]
    Torn,
}

impl Hint for GuardError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            GuardError::Busy { .. } => "a transaction or a checkpoint is in progress; let it finish".into(),
            GuardError::Leased(..) => {
                "wait until it gives it up, or the system breaks it after the seconds in \
                 /proc/sys/fs/lease-break-time; the line with LEASE in /proc/locks has the process's number"
                    .into()
            }
            GuardError::NoWal => "run `PRAGMA journal_mode=WAL` on it".into(),
            GuardError::Journal(journal) => return journal.hint(),
            _ => return None,
        })
    }
}

/// Registers the guard over the VFS `base` (`None`: the default one) and returns its name. Idempotent.
///
/// # Errors
/// When `base` does not exist.
pub fn register_guard_vfs(base: Option<&str>) -> Result<String, GuardError> {
    static REGISTERED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let name = base.map_or_else(|| "standfast-guard".to_owned(), |base| format!("standfast-guard-{base}"));
    let mut registered = REGISTERED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if registered.contains(&name) {
        return Ok(name);
    }
    let text = |text: &str| CString::new(text).map_err(|error| GuardError::Register(error.to_string()));
    let base = base.map(text).transpose()?;
    guard_vfs::register(base.as_deref(), &text(&name)?)
        .map_err(|code| GuardError::Register(sqlite_code(code)))?;
    registered.push(name.clone());
    Ok(name)
}

/// The guard of a connection's main database. Created whenever it is needed; it holds nothing itself.
pub struct Guard<'c> {
    file: *mut GuardFile,
    connection: PhantomData<&'c Connection>,
}

const WRITE: (c_int, &str) = (0, "write");
const CHECKPOINT: (c_int, &str) = (1, "checkpoint");

impl<'c> Guard<'c> {
    /// The guard of `connection`, which was opened with the VFS that [`register_guard_vfs`] named.
    ///
    /// # Errors
    /// `NotGuarded` when it was not.
    pub fn of(connection: &'c Connection) -> Result<Guard<'c>, GuardError> {
        let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
        // SAFETY: the connection is open; the control writes one pointer into `file`.
        let guard = unsafe {
            ffi::sqlite3_file_control(
                connection.handle(),
                c"main".as_ptr(),
                ffi::SQLITE_FCNTL_FILE_POINTER,
                (&raw mut file).cast(),
            );
            guard_vfs::guard_of(file)
        };
        guard.map(|file| Guard { file, connection: PhantomData }).ok_or(GuardError::NotGuarded)
    }

    pub(crate) fn file(&self) -> &GuardFile {
        // SAFETY: the borrowed connection keeps the file open.
        unsafe { &*self.file }
    }

    fn state(&self) -> Result<&GuardState, GuardError> {
        self.file().state().ok_or(GuardError::NotGuarded)
    }

    fn hold(&self, held: &AtomicBool, (offset, lock): (c_int, &'static str)) -> Result<(), GuardError> {
        if held.load(SeqCst) {
            return Ok(());
        }
        if self.file().shm_region(0).is_null() {
            return Err(GuardError::NoWal);
        }
        let code = match offset {
            offset if offset == WRITE.0 => self.file().take_write_lock(),
            offset => self.file().shm_lock(offset, 1, ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_EXCLUSIVE),
        };
        match code {
            ffi::SQLITE_OK => {
                held.store(true, SeqCst);
                Ok(())
            }
            ffi::SQLITE_BUSY => Err(GuardError::Busy { lock }),
            code => Err(GuardError::Lock { lock, code: sqlite_code(code) }),
        }
    }

    fn release(&self, held: &AtomicBool, (offset, _): (c_int, &'static str)) {
        if !held.swap(false, SeqCst) {
            return;
        }
        match offset {
            offset if offset == WRITE.0 => self.file().drop_write_lock(),
            offset => self.file().shm_lock(offset, 1, ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_EXCLUSIVE),
        };
    }

    /// Keeps from writing all that take SQLite's write lock alone, as plain SQLite does, until the connection closes:
    /// holds the lock shared. A connection with the [inner lock](standfast_session::InnerLock) can write. Does not
    /// wait.
    ///
    /// # Errors
    /// `Busy` while a connection without the inner lock writes.
    pub fn refuse_others(&self) -> Result<(), GuardError> {
        let state = self.state()?;
        if state.others_refused.load(SeqCst) {
            return Ok(());
        }
        if self.file().shm_region(0).is_null() {
            return Err(GuardError::NoWal);
        }
        match self.file().shm_lock(WRITE.0, 1, ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_SHARED) {
            ffi::SQLITE_OK => {
                state.others_refused.store(true, SeqCst);
                Ok(())
            }
            ffi::SQLITE_BUSY => Err(GuardError::Busy { lock: WRITE.1 }),
            code => Err(GuardError::Lock { lock: WRITE.1, code: sqlite_code(code) }),
        }
    }

    /// Whether other connections hold SQLite's write lock shared, as after [`Guard::refuse_others`]. `None`: that
    /// cannot be determined now, because a connection writes. Takes the lock for an instant.
    pub fn is_write_lock_shared(&self) -> Option<bool> {
        const ATTEMPTS: u32 = 5;
        let takes = |how: c_int| {
            let is_free = self.file().shm_lock(WRITE.0, 1, ffi::SQLITE_SHM_LOCK | how) == ffi::SQLITE_OK;
            if is_free {
                self.file().shm_lock(WRITE.0, 1, ffi::SQLITE_SHM_UNLOCK | how);
            }
            is_free
        };
        // If a writer ends its transaction between the two attempts, another iteration finds that.
        let look = || {
            for _ in 0..ATTEMPTS {
                if takes(ffi::SQLITE_SHM_EXCLUSIVE) {
                    return Some(false);
                }
                if !takes(ffi::SQLITE_SHM_SHARED) {
                    return None;
                }
            }
            Some(true)
        };
        self.file().report_write_lock(true);
        let found = look();
        self.file().report_write_lock(false);
        found
    }

    /// Takes the write lock and keeps it until [`Guard::release_write_lock`]. This connection can still write; no other
    /// one can. Does not wait.
    ///
    /// # Errors
    /// `Busy` while another connection writes.
    pub fn hold_write_lock(&self) -> Result<(), GuardError> {
        self.hold(&self.state()?.write_held, WRITE)
    }

    /// Takes the write lock like [`Guard::hold_write_lock`], retrying for up to `limit`.
    ///
    /// # Errors
    /// `Busy` when other connections wrote all the time.
    pub fn hold_write_lock_within(&self, limit: Duration) -> Result<(), GuardError> {
        let end = std::time::Instant::now() + limit;
        loop {
            match self.hold_write_lock() {
                Err(GuardError::Busy { .. }) if std::time::Instant::now() < end => {
                    // Waiting for fcntl locks of other processes risks a deadlock with them.
                    std::thread::sleep(Duration::from_micros(100));
                }
                other => return other,
            }
        }
    }

    /// Runs `work` under the write lock, if it is free or held for good.
    ///
    /// # Errors
    /// As [`Guard::hold_write_lock`].
    pub(crate) fn with_write_lock<T>(&self, work: impl FnOnce() -> T) -> Result<T, GuardError> {
        let held = self.state()?.write_held.load(SeqCst);
        self.hold_write_lock()?;
        let result = work();
        if !held {
            self.release_write_lock();
        }
        Ok(result)
    }

    pub fn release_write_lock(&self) {
        if let Ok(state) = self.state() {
            self.release(&state.write_held, WRITE);
        }
    }

    /// Takes the checkpoint lock and keeps it until the connection closes: from now on only this connection can
    /// backfill frames. Others may share the lock, to open snapshots. Does not wait.
    ///
    /// # Errors
    /// `Busy` while another connection checkpoints.
    pub fn hold_checkpoint_lock(&self) -> Result<(), GuardError> {
        let state = self.state()?;
        let is_new = !state.checkpoint_held.load(SeqCst);
        self.hold(&state.checkpoint_held, CHECKPOINT)?;
        if is_new {
            state.checkpoint_lock_taken();
        }
        Ok(())
    }

    pub fn release_checkpoint_lock(&self) {
        if let Ok(state) = self.state() {
            state.checkpoint_lock.given_back();
            self.release(&state.checkpoint_held, CHECKPOINT);
        }
    }

    /// Runs `checkpoint`, a checkpoint of this connection, at `pace`; every other checkpoint runs without portions.
    pub fn at_pace<T>(&self, pace: &Pace, checkpoint: impl FnOnce() -> T) -> T {
        let begin = |pace| {
            if let Ok(state) = self.state() {
                state.portions().begin(pace);
            }
        };
        begin(pace.clone());
        if let Ok(state) = self.state() {
            state.seen.store(0, SeqCst);
            state.note_synced(self.backfilled_of());
        }
        let result = checkpoint();
        begin(Pace::AtOnce);
        result
    }

    /// The number of frames that the last checkpoint at a pace has seen, or more; 0 when it backfilled nothing.
    pub(crate) fn seen_by_checkpoint(&self) -> u32 {
        self.state().map_or(0, |state| state.seen.load(SeqCst))
    }

    /// Salts of a WAL and how many of its frames are known to be durable in it; `None` when that is not known.
    pub(crate) fn synced_frames(&self) -> Option<([u32; 2], u32)> {
        self.state().ok()?.synced_frames()
    }

    /// Whether this connection has synced all that it wrote to the database file.
    pub(crate) fn is_file_synced(&self) -> bool {
        self.state().is_ok_and(|state| !state.unsynced.load(SeqCst))
    }

    /// Writes a page of the database file, as a checkpoint does; the error is a SQLite result code.
    pub(crate) fn write_page(&self, image: &[u8], page_no: PageNo) -> Result<(), c_int> {
        // SAFETY: the borrowed connection keeps the file open, and runs nothing meanwhile.
        match unsafe { guard_vfs::write_page(self.file, image, page_no) } {
            ffi::SQLITE_OK => Ok(()),
            code => Err(code),
        }
    }

    /// Syncs what checkpoints of this connection have backfilled since the last sync of the database. SQLite itself
    /// syncs only when a checkpoint has backfilled everything, which never happens while others write.
    ///
    /// # Errors
    /// SQLite's, as of a checkpoint.
    pub fn sync_backfilled(&self) -> Result<(), rusqlite::Error> {
        // SAFETY: the borrowed connection keeps the file open, and runs nothing meanwhile.
        match unsafe { guard_vfs::sync_written(self.file) } {
            ffi::SQLITE_OK => Ok(()),
            code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
        }
    }

    /// Whether a part of the wal-index was lost, because another process has truncated its file while it was mapped:
    /// what this process sees in its place is not what others see.
    pub fn is_index_lost(&self) -> bool {
        mapped::any_is_lost() && self.state().is_ok_and(GuardState::is_index_lost)
    }

    /// Installs the hook that is asked before a checkpoint of this connection backfills anything; see [`guard_vfs`].
    ///
    /// # Errors
    /// `NotGuarded` when the file is gone.
    pub fn before_backfill(&self, hook: guard_vfs::BeforeBackfill) -> Result<(), GuardError> {
        *self.state()?.before_backfill.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(hook);
        Ok(())
    }

    /// Installs the hook that is called when a checkpoint of this connection has backfilled all of the WAL; see
    /// [`guard_vfs`].
    ///
    /// # Errors
    /// `NotGuarded` when the file is gone.
    pub fn on_all_backfilled(&self, hook: guard_vfs::AllBackfilled) -> Result<(), GuardError> {
        *self.state()?.all_backfilled.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(hook);
        Ok(())
    }

    /// Installs the hook for events of the write lock, once; see [`guard_vfs::WriteLockHook`].
    ///
    /// # Errors
    /// `NotGuarded` when the file is gone.
    pub fn report_write_lock(&self, reported: guard_vfs::WriteLockHook) -> Result<(), GuardError> {
        // A second hook would get the same events.
        let _ = self.state()?.write_lock_hook.set(reported);
        Ok(())
    }

    /// A view of the wal-index. It may be used from any thread, but only while the connection is open.
    ///
    /// # Errors
    /// `NoWal` when the connection has not read a database in WAL mode yet.
    pub fn wal_index(&self) -> Result<WalIndexView, GuardError> {
        let region = self.file().shm_region(0);
        if region.is_null() {
            return Err(GuardError::NoWal);
        }
        // SAFETY: the region was just returned by xShmMap; the caller keeps the connection open.
        Ok(unsafe { WalIndexView::new(region) })
    }

    /// The committed state that the wal-index publishes.
    ///
    /// # Errors
    /// `Torn` while a writer is publishing.
    pub fn wal_header(&self) -> Result<WalIndexHeader, GuardError> {
        self.wal_index()?.header().ok_or(GuardError::Torn)
    }

    /// Reads the header like [`Guard::wal_header`], but waits for a writer that is publishing.
    ///
    /// # Errors
    /// `Torn` when a writer died while publishing.
    pub fn settled_wal_header(&self) -> Result<WalIndexHeader, GuardError> {
        self.wal_index()?.settled_header().ok_or(GuardError::Torn)
    }

    /// Salts and last committed frame.
    ///
    /// # Errors
    /// As [`Guard::wal_header`].
    pub fn wal_position(&self) -> Result<WalPosition, GuardError> {
        self.wal_header().map(|header| header.position())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::OpenFlags;
    use std::sync::Arc;

    /// A database file that is removed with its WAL in the end.
    struct File(std::path::PathBuf);

    impl File {
        fn remove(&self) {
            for suffix in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{suffix}", self.0.display()));
            }
        }
    }

    impl std::ops::Deref for File {
        type Target = std::path::Path;

        fn deref(&self) -> &std::path::Path {
            &self.0
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            self.remove();
        }
    }

    fn database(name: &str) -> (File, Connection) {
        let file = std::env::temp_dir().join(format!("standfast-guard-{name}-{}.db", std::process::id()));
        let file = File(file);
        file.remove();
        let vfs = register_guard_vfs(None).unwrap();
        let connection =
            Connection::open_with_flags_and_vfs(&*file, OpenFlags::default(), vfs.as_str()).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode=OFF; PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES(1)")
            .unwrap();
        (file, connection)
    }

    #[test]
    fn held_locks_exclude_other_writers_and_checkpoints() {
        let (path, connection) = database("locks");
        let guard = Guard::of(&connection).unwrap();
        guard.hold_write_lock().unwrap();
        guard.hold_checkpoint_lock().unwrap();
        let other = Connection::open(&*path).unwrap();
        other.busy_timeout(Duration::ZERO).unwrap();
        assert!(other.execute_batch("INSERT INTO t VALUES(2)").is_err());
        let busy: i64 = other.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(0)).unwrap();
        assert_eq!(busy, 1);
        connection.execute_batch("INSERT INTO t VALUES(3); PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        guard.release_write_lock();
        other.execute_batch("INSERT INTO t VALUES(4)").unwrap();
        let count: i64 = connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 3);
    }

    #[test]
    fn checkpoint_needs_the_hook_and_keeps_the_wal_file() {
        let (path, connection) = database("hook");
        let guard = Guard::of(&connection).unwrap();
        guard.before_backfill(Box::new(|| false)).unwrap();
        let wal = format!("{}-wal", path.display());
        let before = std::fs::metadata(&wal).unwrap().len();
        let frames: i64 = guard.wal_position().unwrap().frame.into();
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        assert_eq!(guard.wal_index().unwrap().backfilled(), 0, "backfilled although the hook refused");
        guard.before_backfill(Box::new(|| true)).unwrap();
        let (busy, log): (i64, i64) = connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert!(frames > 0 && busy == 0 && log == 0);
        assert_eq!(guard.wal_position().unwrap().frame, 0);
        assert_eq!(std::fs::metadata(&wal).unwrap().len(), before);
    }

    #[test]
    fn wal_is_reset_only_when_the_backfilled_hook_agrees() {
        let (path, connection) = database("all-backfilled");
        let guard = Guard::of(&connection).unwrap();
        let (reported, agrees) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (tells, answer) = (reported.clone(), agrees.clone());
        let hook = move |frame| {
            tells.lock().unwrap().push(frame);
            answer.load(SeqCst)
        };
        guard.on_all_backfilled(Box::new(hook)).unwrap();
        let passive =
            || connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(0));
        let backfilled = || guard.wal_index().unwrap().backfilled();
        let write = || {
            Connection::open(&*path).unwrap().execute_batch("INSERT INTO t VALUES(2)").unwrap();
            guard.wal_position().unwrap()
        };
        let first = guard.wal_position().unwrap();
        passive().unwrap();
        assert_eq!(backfilled(), 0, "nothing is reported as backfilled");
        let second = write();
        assert!(second.salts == first.salts && second.frame > first.frame, "it was not reset");
        // A reader keeps a part from being backfilled: the hook is not called for that.
        let reader = Connection::open(&*path).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        let third = write();
        agrees.store(true, SeqCst);
        passive().unwrap();
        assert_eq!(
            (backfilled(), reported.lock().unwrap().as_slice()),
            (second.frame, [first.frame].as_slice())
        );
        reader.execute_batch("COMMIT").unwrap();
        passive().unwrap();
        assert_eq!(
            (backfilled(), reported.lock().unwrap().last().copied()),
            (third.frame, Some(third.frame))
        );
        assert_ne!(write().salts, third.salts, "now it was");
    }

    /// More pages than a cache of four holds, so that some are spilled, but fewer than fill a run, which would be
    /// written early.
    const FILL: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<12)
         INSERT INTO t SELECT randomblob(3000) FROM n";

    fn total(connection: &Connection) -> i64 {
        connection.query_row("SELECT sum(length(x)) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn guarded_transaction_reads_its_own_frames_not_yet_in_the_wal() {
        let (path, connection) = database("spilled");
        connection.execute_batch("PRAGMA cache_size=4; BEGIN IMMEDIATE").unwrap();
        connection.execute_batch(FILL).unwrap();
        assert_eq!(total(&connection), 36_001);
        connection.execute_batch("COMMIT").unwrap();
        assert_eq!(total(&Connection::open(&*path).unwrap()), 36_001);
    }

    /// A read of this connection must not write, over what others have committed since, the frames that its own
    /// transaction had gathered when it was rolled back.
    #[test]
    fn rolled_back_guarded_frames_never_reach_the_wal() {
        let (path, connection) = database("rolled-back");
        connection.execute_batch("PRAGMA cache_size=4; BEGIN IMMEDIATE").unwrap();
        connection.execute_batch(FILL).unwrap();
        connection.execute_batch("ROLLBACK").unwrap();
        let other = Connection::open(&*path).unwrap();
        other.execute_batch(FILL).unwrap();
        assert_eq!((total(&connection), total(&other)), (36_001, 36_001));
        let fresh = Connection::open(&*path).unwrap();
        let verdict: String = fresh.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!((verdict.as_str(), total(&fresh)), ("ok", 36_001));
    }

    /// The kind of lock that this process holds on the checkpoint byte of a database: the kernel reports the lock in
    /// another owner's way.
    fn checkpoint_lock_of(path: &std::path::Path) -> Option<c_int> {
        use std::os::fd::IntoRawFd;
        // Left open: closing a descriptor of the file would release all locks that this process has on it.
        let shm = std::fs::File::open(format!("{}-shm", path.display())).unwrap().into_raw_fd();
        let mut asked = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 121,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: an open descriptor and a valid structure, which the kernel fills.
        assert_eq!(unsafe { libc::fcntl(shm, libc::F_OFD_GETLK, &raw mut asked) }, 0);
        let kind = c_int::from(asked.l_type);
        (kind != libc::F_UNLCK).then(|| {
            assert_eq!(asked.l_pid.cast_unsigned(), std::process::id());
            kind
        })
    }

    #[test]
    fn checkpoint_lock_is_shared_while_redo_is_awaited() {
        let (path, connection) = database("shared");
        assert_eq!(checkpoint_lock_of(&path), None);
        let guard = Guard::of(&connection).unwrap();
        guard.hold_checkpoint_lock().unwrap();
        assert_eq!(checkpoint_lock_of(&path), Some(libc::F_RDLCK));
        /// The database, and the lock while a checkpoint waited for a writer.
        static SEEN: Mutex<(Option<std::path::PathBuf>, Option<c_int>)> = Mutex::new((None, None));
        let note = |_| {
            let mut seen = SEEN.lock().unwrap();
            seen.1 = seen.0.as_deref().and_then(checkpoint_lock_of);
            false
        };
        SEEN.lock().unwrap().0 = Some(path.to_path_buf());
        let (redo_came, place) = (std::sync::Arc::new(Mutex::new(None)), path.to_path_buf());
        let noted = std::sync::Arc::clone(&redo_came);
        let hook = move || {
            *noted.lock().unwrap() = checkpoint_lock_of(&place);
            true
        };
        guard.before_backfill(Box::new(hook)).unwrap();
        for mode in ["PASSIVE", "TRUNCATE"] {
            connection.execute_batch("INSERT INTO t VALUES(2)").unwrap();
            connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())).unwrap();
            let while_redo_is_awaited = redo_came.lock().unwrap().take();
            assert_eq!(while_redo_is_awaited, Some(libc::F_RDLCK), "{mode}");
            assert_eq!(checkpoint_lock_of(&path), Some(libc::F_RDLCK), "{mode}");
        }
        let plain = Connection::open(&*path).unwrap();
        plain.execute_batch("BEGIN IMMEDIATE").unwrap();
        connection.busy_handler(Some(note)).unwrap();
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        assert_eq!(SEEN.lock().unwrap().1, Some(libc::F_WRLCK));
        drop(plain);
        guard.release_checkpoint_lock();
        assert_eq!(checkpoint_lock_of(&path), None);
    }

    #[test]
    fn inner_lock_lets_guarded_connections_write_and_refuses_others() {
        let (path, connection) = database("refuse");
        let guard = Guard::of(&connection).unwrap();
        assert_eq!(guard.is_write_lock_shared(), Some(false));
        let plain = Connection::open(&*path).unwrap();
        plain.busy_timeout(Duration::ZERO).unwrap();
        plain.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(matches!(guard.refuse_others(), Err(GuardError::Busy { .. })), "it writes");
        plain.execute_batch("COMMIT").unwrap();
        guard.refuse_others().unwrap();
        let insert = "INSERT INTO t VALUES(2)";
        let refused = plain.execute_batch(insert).unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy));
        // The connection itself, another guarded one, and one at a time.
        connection.execute_batch(insert).unwrap();
        let vfs = register_guard_vfs(None).unwrap();
        let other = Connection::open_with_flags_and_vfs(&*path, OpenFlags::default(), vfs.as_str()).unwrap();
        other.busy_timeout(Duration::ZERO).unwrap();
        other.execute_batch(insert).unwrap();
        assert_eq!(Guard::of(&other).unwrap().is_write_lock_shared(), Some(true));
        guard.hold_write_lock().unwrap();
        assert!(other.execute_batch(insert).is_err());
        guard.release_write_lock();
        other.execute_batch(insert).unwrap();
        assert!(plain.execute_batch(insert).is_err());
        let count: i64 = plain.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 4);
        drop(connection);
        plain.execute_batch(insert).unwrap();
    }

    /// The lock is exclusive in whichever form it is held.
    #[test]
    fn writers_of_both_lock_forms_exclude_each_other() {
        let (path, connection) = database("forms");
        let vfs = register_guard_vfs(None).unwrap();
        let open = || {
            let other =
                Connection::open_with_flags_and_vfs(&*path, OpenFlags::default(), vfs.as_str()).unwrap();
            other.busy_timeout(Duration::ZERO).unwrap();
            other
        };
        let (first, second) = (open(), open());
        // As SQLite takes it.
        first.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(second.execute_batch("BEGIN IMMEDIATE").is_err());
        assert!(Guard::of(&connection).unwrap().hold_write_lock().is_err());
        first.execute_batch("COMMIT").unwrap();
        Guard::of(&connection).unwrap().refuse_others().unwrap();
        // By the inner lock.
        first.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(second.execute_batch("BEGIN IMMEDIATE").is_err());
        drop(connection);
        // The transaction continues, and still keeps out connections that take the lock as SQLite does.
        assert!(
            Connection::open(&*path)
                .unwrap()
                .execute_batch("PRAGMA busy_timeout=0; BEGIN IMMEDIATE")
                .is_err()
        );
        first.execute_batch("COMMIT").unwrap();
        second.execute_batch("BEGIN IMMEDIATE; COMMIT").unwrap();
    }

    #[test]
    fn unguarded_connection_is_reported_as_such() {
        let plain = Connection::open_in_memory().unwrap();
        assert!(matches!(Guard::of(&plain), Err(GuardError::NotGuarded)));
    }
}
