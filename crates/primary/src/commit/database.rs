//! One protected database as the primary serves it.

mod at_rest;

pub use at_rest::Rest;

use crate::commit::foreign_processes::ForeignProcess;
use rusqlite::Connection;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::places::{self, Place};
use standfast_environment::ship::open_database::{
    CHECKPOINT_LOCK_TIMEOUT, OPEN_TIMEOUT, hold_checkpoint_lock, open_guarded, open_guarded_within,
};
use standfast_environment::state::control::DatabaseRecord;
use standfast_session::{FileId, Segment};
use standfast_sqlite_wal::capture::{Capture, check_index};
use standfast_sqlite_wal::first_pages::FirstPages;
use standfast_sqlite_wal::guard::{Guard, GuardError};
use standfast_sqlite_wal::is_any_index_lost;
use standfast_sqlite_wal::journal::check_no_journal;
use standfast_sqlite_wal::pace::Pace;
use standfast_sqlite_wal::{VfsFile, VfsFileKind, WalIndexHeader, WalIndexView};
use standfast_types::{DatabaseId, ReleasePosition, Scn, WalPosition, WalSalts};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// The instance's own connection to a protected database, which holds the checkpoint lock, and the progress of that
/// database.
pub struct Database {
    record: DatabaseRecord,
    file: Option<FileId>,
    /// The files as they were when opened.
    places: [Place; 3],
    vfs_base: Option<String>,
    connection: Mutex<Connection>,
    index: WalIndexView,
    /// Packed (epoch, frame) that is durable in the local redo log.
    local: AtomicU64,
    /// Packed (epoch, frame) that is captured.
    captured: AtomicU64,
    /// Frames captured of the current WAL generation.
    frames: AtomicU32,
    /// SCN of the last captured commit.
    last_commit: AtomicU64,
    in_redo: AtomicU64,
    changed: AtomicU64,
    synced: AtomicU64,
    /// Salts of the WAL if it is deferred-sync, see [`Database::is_deferred`].
    lazy: AtomicU64,
    first_pages: FirstPages,
    begins_generation: AtomicBool,
    /// The redo no longer describes the database: it needs a full resync.
    resync: AtomicBool,
    owes_image: AtomicBool,
    image_may_lack: AtomicBool,
    /// First frame that was committed without a checksum and is not known to have one yet; 0: none.
    unsummed: AtomicU32,
    /// Commits that no session announced, and when the last of them were found, microseconds since the Unix epoch.
    foreign_commits: AtomicU64,
    foreign_seen_us: AtomicU64,
    foreign_processes: Mutex<Vec<ForeignProcess>>,
    door: Mutex<Door>,
    /// The WAL, open for syncing. One descriptor for all syncs: the kernel reports an error once per descriptor.
    wal: Mutex<Option<VfsFile>>,
    /// Why nothing that its files are reported to hold is trusted any more.
    failure: OnceLock<String>,
}

/// Whether processes without the VFS are kept from writing to a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Door {
    /// Not determined since the database was opened.
    #[default]
    Unknown,
    Closed,
    /// They may write, and are counted.
    Open,
}

impl Database {
    /// Opens the database and takes its checkpoint lock. SQLite runs its own recovery here.
    ///
    /// # Errors
    /// When it is not a database in WAL mode, or another process checkpoints it for more than 5 s.
    pub fn open(record: DatabaseRecord, vfs_base: Option<&str>) -> Result<Database, InstanceError> {
        Database::open_within(record, vfs_base, OPEN_TIMEOUT)
    }

    /// Opens the database as [`Database::open`] does, and waits at most `limit` for locks of others.
    ///
    /// # Errors
    /// Those of [`Database::open`]; see [`InstanceError::is_held_by_others`].
    pub fn open_within(
        record: DatabaseRecord,
        vfs_base: Option<&str>,
        limit: Duration,
    ) -> Result<Database, InstanceError> {
        if vfs_base.is_none() {
            check_no_journal(&record.path).map_err(GuardError::Journal)?;
        }
        let connection = open_guarded_within(&record.path, vfs_base, limit)?;
        let index = {
            let guard = Guard::of(&connection)?;
            hold_checkpoint_lock(&guard, CHECKPOINT_LOCK_TIMEOUT.min(limit))?;
            guard.wal_index()?
        };
        Ok(Database {
            file: FileId::of(&record.path),
            places: places::database_as_found(&record.name, &record.path),
            record,
            vfs_base: vfs_base.map(str::to_owned),
            connection: Mutex::new(connection),
            index,
            local: AtomicU64::new(0),
            captured: AtomicU64::new(0),
            frames: AtomicU32::new(0),
            last_commit: AtomicU64::new(0),
            in_redo: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            lazy: AtomicU64::new(0),
            first_pages: FirstPages::default(),
            begins_generation: AtomicBool::new(false),
            resync: AtomicBool::new(false),
            owes_image: AtomicBool::new(false),
            image_may_lack: AtomicBool::new(false),
            unsummed: AtomicU32::new(0),
            foreign_commits: AtomicU64::new(0),
            foreign_seen_us: AtomicU64::new(0),
            foreign_processes: Mutex::default(),
            door: Mutex::default(),
            wal: Mutex::new(None),
            failure: OnceLock::new(),
        })
    }

    /// The entry of the database in the control file.
    pub fn record(&self) -> &DatabaseRecord {
        &self.record
    }

    /// Identity of the open file; `None` when its file system does not say.
    pub fn file(&self) -> Option<FileId> {
        self.file
    }

    /// The files as they were when opened: the paths have to name these files for as long as the database is served.
    pub fn places(&self) -> &[Place; 3] {
        &self.places
    }

    pub fn id(&self) -> DatabaseId {
        self.record.id
    }

    /// Locks the guarded connection for one user at a time.
    pub fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The guarded connection, unless it is in use.
    pub fn try_connection(&self) -> Option<MutexGuard<'_, Connection>> {
        self.connection.try_lock().ok()
    }

    /// The published header of the wal-index.
    pub fn header(&self) -> Option<WalIndexHeader> {
        self.index.header()
    }

    /// Returns the published header and waits for a writer that is publishing; `None` when a writer has died meanwhile.
    pub fn settled_header(&self) -> Option<WalIndexHeader> {
        self.index.settled_header()
    }

    /// Frames that are in the database file (nBackfill).
    pub fn backfilled(&self) -> u32 {
        self.index.backfilled()
    }

    /// Starts capture at `position`, which the redo holds.
    ///
    /// # Errors
    /// When the WAL cannot be read up to there.
    pub fn capture_from(&self, position: WalPosition, database_pages: u32) -> Result<Capture, InstanceError> {
        let open = |kind| {
            VfsFile::open(self.vfs_base.as_deref(), &self.record.path, kind)
                .map_err(InstanceError::io("open, for capture, the database", &self.record.path))
        };
        let (wal, file) = (open(VfsFileKind::Wal)?, open(VfsFileKind::Database)?);
        let (id, size) = (self.record.id, self.record.page_size);
        let capture = Capture::new(id, size, wal, file, self.index, position, database_pages)?;
        Ok(capture.reported_by(self.first_pages.clone()))
    }

    /// Opens the WAL for syncing, independent of capture.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn wal_file(&self) -> Result<VfsFile, InstanceError> {
        VfsFile::open(self.vfs_base.as_deref(), &self.record.path, VfsFileKind::Wal)
            .map_err(InstanceError::io("open the write-ahead log of", &self.record.path))
    }

    /// Makes everything in the WAL survive a power loss, at `pace`.
    ///
    /// # Errors
    /// When the WAL cannot be opened. When a sync fails, now or earlier, the database has failed for good.
    pub fn sync_wal(&self, pace: &Pace) -> Result<(), InstanceError> {
        self.with_wal(|wal| {
            if self.failure().is_none()
                && let Err(error) = wal.sync_used(self.settled_header(), pace)
            {
                self.fail(format!("its write-ahead log: {error}"));
            }
            self.trusted()
        })
    }

    /// Passes the WAL that [`Database::sync_wal`] syncs to `work`.
    ///
    /// # Errors
    /// When it cannot be opened, and what `work` returns.
    pub fn with_wal<T>(
        &self,
        work: impl FnOnce(&mut VfsFile) -> Result<T, InstanceError>,
    ) -> Result<T, InstanceError> {
        let mut wal = self.wal.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut file = match wal.take() {
            Some(file) => file,
            None => self.wal_file()?,
        };
        let done = work(&mut file);
        *wal = Some(file);
        done
    }

    /// Notes that this frame was committed without a checksum, as capture found: recovery of the WAL ends before it.
    pub fn note_unsummed(&self, frame: u32) {
        let lower = |known: u32| (known == 0 || frame < known).then_some(frame);
        let _ = self.unsummed.fetch_update(SeqCst, SeqCst, lower);
    }

    /// Writes the missing checksums of frames, waiting up to `limit` for writers. Returns the first such frame; `None`
    /// when there is none. To be called before anything relies on the WAL without its index.
    ///
    /// # Errors
    /// When a writer keeps the lock all the time, or the WAL cannot be read or written.
    pub fn complete_frames(&self, limit: Duration) -> Result<Option<u32>, InstanceError> {
        let from = self.unsummed.load(SeqCst);
        if from == 0 {
            return Ok(None);
        }
        let mut wal = self.wal_file()?;
        let connection = self.connection();
        let guard = Guard::of(&connection)?;
        guard.hold_write_lock_within(limit)?;
        let completed = guard.complete_frames(&mut wal, from);
        guard.release_write_lock();
        let completed = completed
            .map_err(InstanceError::io("complete the frames of the write-ahead log of", &self.record.path))?;
        // A frame that capture has found meanwhile stays noted.
        let _ = self.unsummed.compare_exchange(from, 0, SeqCst, SeqCst);
        Ok(completed)
    }

    /// Keeps processes without the VFS from writing until the database is closed; false while one of them writes.
    /// `None` when the connection is in use.
    pub fn refuse_others(&self) -> Option<bool> {
        let connection = self.try_connection()?;
        Some(Guard::of(&connection).is_ok_and(|guard| guard.refuse_others().is_ok()))
    }

    /// Whether connections hold the write lock shared. `None` when that cannot be determined now: a connection writes,
    /// or this connection is in use.
    pub fn is_write_lock_shared(&self) -> Option<bool> {
        let connection = self.try_connection()?;
        Guard::of(&connection).ok()?.is_write_lock_shared()
    }

    /// Whether processes without the VFS are kept from writing.
    pub fn door(&self) -> Door {
        *self.door.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn set_door(&self, door: Door) {
        *self.door.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = door;
    }

    /// Whether its wal-index was lost: another process has truncated the `-shm` file. Costs one load while no wal-index
    /// is lost.
    pub fn is_index_lost(&self) -> bool {
        is_any_index_lost()
            && self
                .try_connection()
                .is_some_and(|connection| Guard::of(&connection).is_ok_and(|guard| guard.is_index_lost()))
    }

    /// The pages that a rewritten WAL begins with, for capture.
    pub fn first_pages(&self) -> &FirstPages {
        &self.first_pages
    }

    /// Whether the instance is about to begin a generation with commits in it, which it announces itself once complete.
    pub fn begins_generation(&self) -> bool {
        self.begins_generation.load(SeqCst)
    }

    pub fn set_begins_generation(&self, begins: bool) {
        self.begins_generation.store(begins, SeqCst);
    }

    /// Makes the epoch of sessions stand for the generation with these salts, in the byte order of the file: the
    /// instance has begun that generation, or found it published under the write lock. Returns the epoch.
    pub fn announce(&self, segment: &Segment, raw_salts: [u32; 2]) -> u32 {
        segment.announce_generation(self.id().0, raw_salts)
    }

    /// Marks the WAL with these salts as deferred-sync; `None`: no WAL is.
    pub fn set_deferred(&self, raw_salts: Option<[u32; 2]>) {
        let [first, second] = raw_salts.unwrap_or_default();
        self.lazy.store(u64::from(first) << 32 | u64::from(second), SeqCst);
    }

    /// Whether the WAL with these salts is deferred-sync: its [suffix](standfast_sqlite_wal::rewriting) stays in the page
    /// cache.
    pub fn is_deferred(&self, [first, second]: [u32; 2]) -> bool {
        let salts = u64::from(first) << 32 | u64::from(second);
        salts != 0 && self.lazy.load(SeqCst) == salts
    }

    /// Marks the database as failed: a write or a sync of one of its files failed. What is on disk is unknown until the
    /// files are written again, whatever a later sync reports. The first cause stays.
    pub fn fail(&self, why: String) {
        let _ = self.failure.set(why);
    }

    /// Why nothing that its files are reported to hold is trusted any more; `None` while the database has not failed.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Checks that none of its writes and syncs has failed.
    ///
    /// # Errors
    /// `DatabaseFailed`.
    pub fn trusted(&self) -> Result<(), InstanceError> {
        match self.failure() {
            None => Ok(()),
            Some(why) => {
                let (name, why) = (self.record.name.clone(), why.to_owned());
                Err(InstanceError::DatabaseFailed { name, why })
            }
        }
    }

    /// Opens another connection in a read transaction, and returns what `find` says of the committed state that it
    /// sees. Writers are held up until then, so that no other commit follows that state.
    ///
    /// # Errors
    /// When a writer keeps the write lock for more than 60 s; those of SQLite and of `find`.
    pub fn snapshot_and<T>(
        &self,
        find: impl FnOnce(&Connection, &WalIndexHeader) -> Result<T, InstanceError>,
    ) -> Result<(Connection, T), InstanceError> {
        self.snapshot_within(WRITER_TIMEOUT, find)
    }

    /// Takes a snapshot as [`Database::snapshot_and`] does, waiting up to `limit` for writers.
    ///
    /// # Errors
    /// When a writer keeps the write lock for longer; `BadIndex` for a wal-index with impossible numbers; those of
    /// SQLite and of `find`.
    pub fn snapshot_within<T>(
        &self,
        limit: Duration,
        find: impl FnOnce(&Connection, &WalIndexHeader) -> Result<T, InstanceError>,
    ) -> Result<(Connection, T), InstanceError> {
        self.begin_snapshot(limit, find).map_err(|error| match error {
            // SQLite's error does not name a bad index.
            InstanceError::Sqlite(_) => self.check_index_if_free().err().unwrap_or(error),
            other => other,
        })
    }

    /// Checks that the numbers of the wal-index fit the WAL, unless a transaction has the write lock.
    fn check_index_if_free(&self) -> Result<(), InstanceError> {
        let connection = self.connection();
        let Ok(guard) = Guard::of(&connection) else { return Ok(()) };
        if guard.hold_write_lock().is_err() {
            return Ok(());
        }
        let checked = match (guard.wal_header(), self.wal_file()) {
            (Ok(header), Ok(mut wal)) => check_index(&header, &mut wal, self.record.page_size),
            _ => Ok(()),
        };
        guard.release_write_lock();
        Ok(checked?)
    }

    /// Returns the connection with the write lock held, once no other one has it.
    ///
    /// # Errors
    /// `Busy` when others had it all the time until `limit`.
    fn without_writers(&self, limit: Duration) -> Result<MutexGuard<'_, Connection>, GuardError> {
        let end = Instant::now() + limit;
        loop {
            // Released while waiting: the checkpointer needs it, and serves all databases.
            let connection = self.connection();
            match Guard::of(&connection)?.hold_write_lock() {
                Ok(()) => return Ok(connection),
                Err(GuardError::Busy { .. }) if Instant::now() < end => {}
                Err(error) => return Err(error),
            }
            drop(connection);
            // Waiting for fcntl locks of other processes would risk a deadlock with them, so poll.
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn begin_snapshot<T>(
        &self,
        limit: Duration,
        find: impl FnOnce(&Connection, &WalIndexHeader) -> Result<T, InstanceError>,
    ) -> Result<(Connection, T), InstanceError> {
        let reader = open_guarded(&self.record.path, self.vfs_base.as_deref())?;
        let mut wal = self.wal_file()?;
        let connection = self.without_writers(limit)?;
        let guard = Guard::of(&connection)?;
        let begun = reader
            .execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema")
            .map_err(InstanceError::from)
            .and_then(|()| {
                let header = guard.wal_header()?;
                check_index(&header, &mut wal, self.record.page_size)?;
                find(&reader, &header)
            });
        guard.release_write_lock();
        Ok((reader, begun?))
    }

    pub fn set_captured(&self, position: ReleasePosition, scn: Scn) {
        self.captured.store(position.0, SeqCst);
        self.frames.store(position.frame(), SeqCst);
        self.last_commit.store(scn.0, SeqCst);
    }

    /// Records the end of what is captured, chunks of an open transaction included.
    pub fn set_in_redo(&self, scn: Scn) {
        self.in_redo.store(scn.0, SeqCst);
    }

    /// End of what is captured: after the last commit while a transaction is captured in chunks. All of it is
    /// committed, in the WAL.
    pub fn in_redo(&self) -> Scn {
        Scn(self.in_redo.load(SeqCst).max(self.last_commit.load(SeqCst)))
    }

    /// Records the end of redo that the database file may not hold: redo of earlier runs, captured changes, or a full
    /// resync image of what was in the WAL.
    pub fn set_changed(&self, scn: Scn) {
        self.changed.store(scn.0, SeqCst);
    }

    /// End of the last redo that changes the database. Later redo of it, if any, only introduces it or says where its
    /// WAL stands.
    pub fn last_change(&self) -> Scn {
        Scn(self.changed.load(SeqCst))
    }

    /// Frames captured of the current generation.
    pub fn captured_frames(&self) -> u32 {
        self.frames.load(SeqCst)
    }

    /// Packed (epoch, frame) that is captured.
    pub fn captured(&self) -> ReleasePosition {
        ReleasePosition(self.captured.load(SeqCst))
    }

    /// SCN of the last captured commit.
    pub fn last_commit(&self) -> Scn {
        Scn(self.last_commit.load(SeqCst))
    }

    /// Records the position that is durable in the local redo log.
    pub fn set_local(&self, position: ReleasePosition) {
        self.local.fetch_max(position.0, SeqCst);
    }

    /// Packed (epoch, frame) that is durable in the local redo log.
    pub fn local(&self) -> ReleasePosition {
        ReleasePosition(self.local.load(SeqCst))
    }

    /// Raises [`Database::synced`]; a lower SCN changes nothing.
    pub fn set_synced(&self, scn: Scn) {
        self.synced.fetch_max(scn.0, SeqCst);
    }

    /// File SCN: everything of this database before it survives a power loss in the database file, whatever becomes of
    /// the WAL.
    pub fn synced(&self) -> Scn {
        Scn(self.synced.load(SeqCst))
    }

    /// Counts captured commits that no session announced.
    pub fn add_foreign_commits(&self, commits: u64, now_us: u64) {
        self.foreign_seen_us.store(now_us, SeqCst);
        self.foreign_commits.fetch_add(commits, SeqCst);
    }

    /// Commits captured since the instance opened the database that no session announced: they waited for no standby.
    pub fn foreign_commits(&self) -> u64 {
        self.foreign_commits.load(SeqCst)
    }

    /// When the last of [`Database::foreign_commits`] were found, microseconds since the Unix epoch; `None`: there was
    /// none.
    pub fn foreign_seen_us(&self) -> Option<u64> {
        Some(self.foreign_seen_us.load(SeqCst)).filter(|us| *us != 0)
    }

    /// The processes that had the file open without the VFS at the last search; empty when there was no reason to
    /// search.
    pub fn foreign_processes(&self) -> Vec<ForeignProcess> {
        self.foreign_processes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub fn set_foreign_processes(&self, processes: Vec<ForeignProcess>) {
        *self.foreign_processes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = processes;
    }

    /// Truncates the WAL to nothing if it was reset and nothing was written since. Returns whether it did: the database
    /// file then holds everything. Does not wait for a writer.
    pub fn cut_empty_wal(&self) -> bool {
        let connection = self.connection();
        let Ok(guard) = Guard::of(&connection) else { return false };
        if guard.hold_write_lock().is_err() {
            return false;
        }
        // No reader uses frames of a reset WAL: SQLite resets it only when all readers read the database file.
        let is_empty = guard.wal_header().is_ok_and(|header| header.frames() == 0);
        let is_cut = is_empty
            && self
                .with_wal(|wal| {
                    wal.truncate(0)
                        .map_err(InstanceError::io("cut the write-ahead log of", &self.record.path))
                })
                .is_ok();
        guard.release_write_lock();
        is_cut
    }

    /// Whether the database file alone durably holds everything before `scn`, up to which redo was captured. What is
    /// not captured is in the WAL only: frames are backfilled only once the redo has them.
    pub fn is_whole_without_wal(&self, segment: &Segment, scn: Scn) -> bool {
        if self.failure().is_some() || self.owes_image() {
            return false;
        }
        let is_synced = self.synced() > Scn::ZERO && self.synced() >= scn.min(self.in_redo());
        is_synced
            || self.settled_header().is_some_and(|header| {
                let (epoch, raw_salts) = segment.epoch(self.id().0);
                let is_announced = raw_salts == header.raw_salts();
                header.frames() == 0 || is_announced && is_reset_since(self.captured(), epoch, header.salts())
            })
    }

    /// Makes the content of the database file survive a power loss.
    ///
    /// # Errors
    /// The system's.
    pub fn sync_file(&self) -> Result<(), InstanceError> {
        VfsFile::open(self.vfs_base.as_deref(), &self.record.path, VfsFileKind::Database)
            .and_then(|mut file| file.sync())
            .map_err(InstanceError::io("sync the database", &self.record.path))
    }

    /// Requests a full resync image into the redo.
    pub fn request_resync(&self) {
        self.set_owes_image(true);
        self.resync.store(true, SeqCst);
    }

    /// Whether a full resync image is due that is not complete in the redo.
    pub fn owes_image(&self) -> bool {
        self.owes_image.load(SeqCst)
    }

    pub fn set_owes_image(&self, owes: bool) {
        self.owes_image.store(owes, SeqCst);
    }

    /// Whether the next full resync image may lack redo: the operator has decided in favour of the file.
    pub fn image_may_lack(&self) -> bool {
        self.image_may_lack.load(SeqCst)
    }

    pub fn set_image_may_lack(&self, may_lack: bool) {
        self.image_may_lack.store(may_lack, SeqCst);
    }

    /// Takes the request for a full resync image; true when there was one.
    pub fn take_resync(&self) -> bool {
        self.resync.swap(false, SeqCst)
    }
}

/// How long to wait for a writer that has the write lock.
pub const WRITER_TIMEOUT: Duration = Duration::from_secs(60);
/// Returns the size of the database, in pages, in the state that `header` shows. An empty WAL does not show it: then it
/// is the size of the file, which `connection` reads while no connection can commit.
///
/// # Errors
/// SQLite's.
pub fn committed_pages(connection: &Connection, header: &WalIndexHeader) -> Result<u32, InstanceError> {
    if header.frames() > 0 {
        return Ok(header.database_pages());
    }
    Ok(connection.query_row("PRAGMA page_count", [], |row| row.get(0))?)
}

/// Whether SQLite has reset the WAL since the last commit that was `captured`: all captured commits are then in the
/// database file, synced. `epoch` is that of the generation with these salts, which is the current one. A rewritten WAL
/// is not a reset: it holds what the file lacks.
fn is_reset_since(captured: ReleasePosition, epoch: u32, salts: WalSalts) -> bool {
    captured.0 != 0 && captured.epoch() != epoch && !salts.is_of_rewritten_log()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewritten_wal_does_not_prove_that_the_file_is_complete() {
        let captured = ReleasePosition::new(4, 78);
        let next = WalSalts(8, 5);
        assert!(is_reset_since(captured, 5, next), "SQLite has reset it");
        assert!(!is_reset_since(captured, 4, next), "it is the one that is captured");
        assert!(!is_reset_since(ReleasePosition(0), 5, next), "nothing was captured");
        assert!(!is_reset_since(captured, 5, WalSalts(7, 5).of_rewritten_log(3)));
    }
}
