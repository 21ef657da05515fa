//! An open protected database file: its state in the shim, and whether it may be written now.

mod open_files;

use crate::bindings::{File, code};
use crate::connection::{Connection, Pending};
use crate::database::Database;
use crate::instance;
use crate::report::{Cause, report};
use crate::turn;
use standfast_session::{
    AttachError, CommitMode, DatabaseState, InnerLock, Marker, Owner, Segment, SegmentError, Session,
    marker_path, monotonic_ns,
};
use standfast_types::{FrameRun, hint};
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

/// How long a writer waits for its instance when neither the shared memory nor `STANDFAST_WRITE_WAIT_MS` gives a limit.
const WRITE_WAIT_MS_DEFAULT: u32 = 5_000;
/// Interval at which a writer that waits for its instance polls for it.
const LOOK_FOR_INSTANCE: Duration = Duration::from_millis(10);
/// How long a running instance counts as alive without another check: one system call a second on the commit path.
const ALIVE_FOR_NS: u64 = 1_000_000_000;

/// Interval at which readers look for missing shared memory.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A point in the WAL, from the wal-index header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LogPoint {
    /// Last committed frame of the generation (mxFrame).
    pub frame: u32,
    pub salts: [u32; 2],
}

/// How the connection holds the write lock of the WAL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteLock {
    Free,
    Held,
    /// Only to read the wal-index header again or to rebuild the wal-index; writing is not allowed.
    Recovery,
}

/// How one connection has taken the write lock, see [`MainFile::take_write_lock`].
#[derive(Default)]
pub(crate) struct WritersLock {
    /// Found at the first transaction that needs it.
    pub inner: RefCell<Option<InnerLock>>,
    /// The inner lock is held, and by it the write lock.
    pub by_inner: Cell<bool>,
    /// SQLite's write lock is held shared.
    pub shared: Cell<bool>,
}

/// State of an open protected database file. SQLite calls the methods of a file one at a time, hence cells: connections
/// with a shared cache, on any threads, hold a mutex around the calls. SQLite does not hold it when another connection
/// joins ([`MainFile::used_by`]) nor while an SQL function reads the settings: these fields are atomics.
pub(crate) struct MainFile {
    /// Unique within the process; never reused, unlike the address.
    pub id: u64,
    pub database: Arc<Database>,
    pub real: *mut File,
    /// SQLite opened the file through the VFS below, which then opens its WAL as well.
    pub below: bool,
    session: Cell<Option<(Session, u32)>>,
    segment: Cell<Option<Segment>>,
    /// No segment was found: the time before which readers do not look again.
    look_again_ns: Cell<u64>,
    alive_until_ns: Cell<u64>,
    /// The checkpoint gate stayed closed longer than an instance keeps it closed, and has not been seen open since.
    pub gate_ignored: Cell<bool>,
    /// First region of the wal-index; null while it is not mapped.
    pub wal_index: Cell<*mut u32>,
    /// Shared read locks held, bit by offset.
    pub read_locks: Cell<u32>,
    /// Start of the transaction, by [`monotonic_ns`].
    pub began_ns: Cell<u64>,
    /// When the commit was found durable, until the read lock is dropped or a page is read; 0 otherwise.
    pub durable_ns: Cell<u64>,
    /// The WAL point when the read lock was taken.
    pub snapshot: Cell<Option<LogPoint>>,
    /// The WAL point of the last transaction, whose pages SQLite may still have in its cache.
    pub cached: Cell<Option<LogPoint>>,
    /// The checkpoint lock is held shared: a snapshot is being opened.
    pub opens_snapshot: Cell<bool>,
    pub write_lock: Cell<WriteLock>,
    /// How the write lock is taken and held.
    pub writers: WritersLock,
    /// The session that held the write lock when this one wanted it, and when it was first seen.
    pub owner_seen: Cell<Option<(Owner, u64)>>,
    /// When the shim last checked whether that session's process has ended.
    pub owner_asked_ns: Cell<u64>,
    /// The WAL point when the write lock was taken.
    pub at_lock: Cell<Option<LogPoint>>,
    /// What the next COMMIT_PHASETWO waits for.
    pub pending: Cell<Option<Pending>>,
    /// The transaction must wait at its next page read until its snapshot is durable.
    pub unsettled_read: Cell<bool>,
    /// When the attempt to begin a read transaction began that SQLite is about to repeat, by `boot_ns`.
    pub(crate) fresh_begun: Cell<Option<u64>>,
    /// SQLite reads the file without locks and without its WAL.
    pub is_immutable: bool,
    settings: Settings,
    /// Where SQLite keeps the handle of the connection that currently uses the file; null before SQLite has passed it.
    user: AtomicPtr<usize>,
    /// Several connections use the file through a shared cache.
    shared: AtomicBool,
    /// The connection that holds the write lock, or held it last.
    writer: Cell<Option<Arc<Connection>>>,
    /// Frames of the transaction that are not yet written to the WAL.
    pub frames: RefCell<FrameRun>,
}

/// Settings that PRAGMAs have made on an open file; 0 is unset, else the value + 1.
#[derive(Default)]
struct Settings {
    commit_write: AtomicU32,
    /// The setting 1 is durable, 0 early.
    visibility: AtomicU32,
    /// Milliseconds.
    max_data_delay: AtomicU32,
}

impl Settings {
    fn get(setting: &AtomicU32) -> Option<u32> {
        setting.load(Relaxed).checked_sub(1)
    }

    fn set(setting: &AtomicU32, value: Option<u32>) {
        setting.store(value.map_or(0, |value| value + 1), Relaxed);
    }
}

/// Why the database cannot be written now, or not even read.
pub(crate) enum Refusal {
    Marker(String),
    Standby,
    Failed,
    Offline,
    Fenced,
    Full,
    /// This process has reached its limit of open files.
    NoDescriptor,
    Down(String),
    /// The WAL alone holds an earlier state; with the result code.
    LogLost(c_int),
}

impl MainFile {
    pub fn new(database: Arc<Database>, real: *mut File, below: bool, is_immutable: bool) -> MainFile {
        MainFile {
            id: NEXT_ID.fetch_add(1, Relaxed),
            database,
            real,
            below,
            session: Cell::new(None),
            segment: Cell::new(None),
            look_again_ns: Cell::new(0),
            alive_until_ns: Cell::new(0),
            gate_ignored: Cell::new(false),
            wal_index: Cell::new(std::ptr::null_mut()),
            read_locks: Cell::new(0),
            began_ns: Cell::new(0),
            durable_ns: Cell::new(0),
            snapshot: Cell::new(None),
            cached: Cell::new(None),
            opens_snapshot: Cell::new(false),
            write_lock: Cell::new(WriteLock::Free),
            writers: WritersLock::default(),
            owner_seen: Cell::new(None),
            owner_asked_ns: Cell::new(0),
            at_lock: Cell::new(None),
            pending: Cell::new(None),
            unsettled_read: Cell::new(false),
            fresh_begun: Cell::new(None),
            is_immutable,
            settings: Settings::default(),
            user: AtomicPtr::new(std::ptr::null_mut()),
            shared: AtomicBool::new(false),
            writer: Cell::new(None),
            frames: RefCell::default(),
        }
    }

    /// Returns the published wal-index header; `None` before the wal-index is mapped. Exact while the caller holds the
    /// write lock; otherwise it may change meanwhile, which SQLite detects and retries.
    pub fn log_point(&self) -> Option<LogPoint> {
        let [frame, _, _, _, salt, other] = self.index_words(4)?;
        Some(LogPoint { frame, salts: [salt, other] })
    }

    /// Returns the read marks of the locks from [`shm::READ_MARK_FIRST`] on: the last frame of a reader's snapshot, or
    /// of an older one. Unused marks are beyond all frames. The marks follow the two copies of the header (24 words),
    /// nBackfill, and the mark of the first read lock.
    pub fn read_marks(&self) -> Option<[u32; 4]> {
        self.index_words(26)
    }

    /// Returns words of the first region of the wal-index, each read by itself; `None` before it is mapped.
    fn index_words<const N: usize>(&self, first: usize) -> Option<[u32; N]> {
        let words = self.wal_index.get();
        if words.is_null() {
            return None;
        }
        Some(std::array::from_fn(|nth| {
            // SAFETY: the region is mapped, shared, page-aligned and at least 32 KiB; other processes write
            // it, hence atomically. SQLite unmaps it only through xShmUnmap, which clears the pointer.
            unsafe { AtomicU32::from_ptr(words.add(first + nth)) }.load(SeqCst)
        }))
    }

    /// Returns the shared memory of the instance, for readers; looks for a missing one once a second.
    pub fn segment(&self) -> Option<Segment> {
        if let Some(segment) = self.segment.get().filter(|segment| !segment.retired()) {
            return Some(segment);
        }
        let now = monotonic_ns();
        if now < self.look_again_ns.get() {
            return None;
        }
        self.look_again_ns.set(now + LOOK_AGAIN_NS);
        let found = self.database.segment().map(|(_, segment)| segment);
        self.segment.set(found);
        found
    }

    /// Returns this process's session, if it has a valid one.
    pub fn session(&self) -> Option<Session> {
        let (session, forks) = self.session.get()?;
        (forks == instance::forks() && !session.segment().retired()).then_some(session)
    }

    /// Returns the session, attaching one if needed. `None` without shared memory or without a free slot.
    pub fn attach(&self) -> Option<Session> {
        if let Some(session) = self.session().filter(Session::has_slot) {
            return Some(session);
        }
        let (marker, segment) = self.database.segment()?;
        self.attach_to(marker, segment).ok()
    }

    /// Returns the session in `segment`, attaching one if needed.
    fn attach_to(&self, marker: &Marker, segment: Segment) -> Result<Session, Refusal> {
        if let Some(session) = self.session().filter(|at| at.has_slot() && at.segment().is(segment)) {
            return Ok(session);
        }
        self.detach();
        let (pid, started) = instance::this_process();
        let session =
            Session::attach(segment, marker.database, pid, started).map_err(|error| match error {
                AttachError::Full => Refusal::Full,
                AttachError::Io(error) => unreachable(marker, error.into()),
            })?;
        // From the attach on, the database number stays that of this file. If the instance has given the number to
        // another file before, it has removed the marker before that.
        if !self.database.is_still_protected() {
            session.detach();
            return Err(Refusal::Marker(
                "it is no longer protected, or under another number: close and reopen it".into(),
            ));
        }
        self.session.set(Some((session, instance::forks())));
        Ok(session)
    }

    /// Gives the session back. After a fork it belongs to the parent, which still uses it.
    fn detach(&self) {
        if let Some((session, forks)) = self.session.take()
            && forks == instance::forks()
        {
            session.detach();
        }
    }

    /// Returns whether the instance lives and the database file is not replaced; a positive result counts for a second.
    pub(crate) fn recently_alive(&self) -> bool {
        let now = monotonic_ns();
        if now < self.alive_until_ns.get() {
            return true;
        }
        let alive = self.database.marker().is_some_and(|marker| match self.session.get() {
            Some((session, _)) => self.database.attends(marker, session.segment()),
            None => instance::alive(marker),
        });
        let alive = alive && !self.database.is_replaced();
        self.alive_until_ns.set(if alive { now + ALIVE_FOR_NS } else { 0 });
        alive
    }

    /// Returns whether the instance lives, checked now.
    pub(crate) fn is_alive_now(&self) -> bool {
        self.alive_until_ns.set(0);
        self.recently_alive()
    }

    /// Records the result of the wait for a commit: after an error, the next transaction checks whether the instance
    /// lives.
    pub fn note_outcome(&self, outcome: c_int) {
        if outcome != code::OK {
            self.alive_until_ns.set(0);
        }
    }

    /// Returns a session through which the database can be written now.
    pub fn writable_now(&self) -> Option<Session> {
        let session = self.session()?;
        let open = session.segment().running() && session.state() == DatabaseState::Open;
        (open && self.recently_alive() && !session.segment().retired() && session.has_slot())
            .then_some(session)
    }

    /// Returns a session through which the database can be written; looks for the instance and waits for it.
    ///
    /// # Errors
    /// The result code for SQLite; the reason is reported.
    pub fn writable(&self) -> Result<Session, c_int> {
        if let Some(session) = self.writable_now() {
            return Ok(session);
        }
        let start = monotonic_ns();
        loop {
            let refusal = match self.try_writable() {
                Ok(session) => return Ok(session),
                Err(refusal) => refusal,
            };
            let waited = Duration::from_nanos(monotonic_ns().saturating_sub(start));
            if !matches!(refusal, Refusal::Down(_)) || waited >= self.write_wait() {
                return Err(self.refuse(&refusal, waited));
            }
            self.database.has_moved();
            // A session must not keep an unused lock grant while it waits for the instance.
            turn::forget(self.id);
            // No process could wake this one: the awaited process does not exist.
            std::thread::sleep(LOOK_FOR_INSTANCE);
        }
    }

    fn try_writable(&self) -> Result<Session, Refusal> {
        let marker = self.database.find_marker().map_err(Refusal::Marker)?;
        if self.database.is_replaced() {
            self.alive_until_ns.set(0);
            return Err(Refusal::Marker(
                "another file has been put in its place since it was opened: close and reopen it".into(),
            ));
        }
        let segment =
            instance::segment(marker, &self.database.file).map_err(|error| unreachable(marker, error))?;
        let state = segment.state(marker.database);
        match state {
            // These states of the database hold whether or not the instance runs.
            DatabaseState::Standby => Err(Refusal::Standby),
            DatabaseState::Failed => Err(Refusal::Failed),
            DatabaseState::Offline => Err(Refusal::Offline),
            DatabaseState::Fenced => Err(Refusal::Fenced),
            _ if !segment.running() => Err(Refusal::Down("it does not run".into())),
            _ if !self.recently_alive() => Err(Refusal::Down("its process is gone".into())),
            DatabaseState::Open => self.attach_to(marker, segment),
            DatabaseState::Recovering => Err(Refusal::Down("it is still recovering the database".into())),
            DatabaseState::Stopped => Err(Refusal::Down("it is stopping".into())),
            DatabaseState::Absent => Err(Refusal::Down("it does not serve the database".into())),
        }
    }

    fn write_wait(&self) -> Duration {
        let configured = self.database.segment().map(|(_, segment)| segment.config().write_wait_ms);
        let from_environment = || std::env::var("STANDFAST_WRITE_WAIT_MS").ok()?.parse().ok();
        let ms = configured.or_else(from_environment).unwrap_or(WRITE_WAIT_MS_DEFAULT);
        Duration::from_millis(u64::from(ms))
    }

    pub(crate) fn refuse(&self, refusal: &Refusal, waited: Duration) -> c_int {
        let path = &self.database.path;
        let (name, directory) = match self.database.marker() {
            Some(marker) => (marker.name.as_str(), marker.directory.as_path()),
            None => ("?", Path::new("")),
        };
        let directory = directory.display();
        let (cause, result, text) = match refusal {
            Refusal::Marker(why) => {
                (Cause::Marker, code::READONLY_CANTLOCK, format!("database {path} can only be read: {why}"))
            }
            Refusal::Standby => (
                Cause::Standby,
                code::READONLY,
                format!(
                    "database {path} is a physical standby at instance {name} ({directory}) and can only be \
                     read: write to the primary{}, or make this one the primary with `standfast failover -D \
                     {directory}`",
                    self.primary().map_or(String::new(), |primary| format!(", `{primary}`"))
                ),
            ),
            Refusal::Failed => (
                Cause::Failed,
                code::IOERR,
                format!(
                    "instance {name} ({directory}) has failed and accepts no commits for {path}: see its log, \
                     fix the cause, then restart it with `standfast start -D {directory}`"
                ),
            ),
            Refusal::Offline => (
                Cause::Failed,
                code::IOERR,
                format!(
                    "database {path} is offline at instance {name} ({directory}), which accepts no commits for it: its \
                     alert log and `standfast status -D {directory}` say why, and what can be done"
                ),
            ),
            Refusal::Fenced => (
                Cause::Failed,
                code::IOERR,
                format!(
                    "instance {name} ({directory}) is no longer the primary of {path}: another one has taken over, and a \
                     restart changes nothing. Write to the new primary, which `standfast status -D {directory}` names"
                ),
            ),
            Refusal::LogLost(result) => (
                Cause::Down,
                *result,
                format!(
                    "database {path} cannot be read: its instance {name} ({directory}) died while it rewrote the WAL, and so did \
                     all processes that had the database open; the WAL by itself holds an earlier \
                     state. Start the instance with `standfast start -D {directory}`, which applies the rest"
                ),
            ),
            Refusal::Full => (
                Cause::Sessions,
                code::READONLY_CANTLOCK,
                format!(
                    "instance {name} ({directory}) has no free session for {path}: at most {} connections can \
                     write at a time; close some",
                    standfast_session::SESSIONS_MAX
                ),
            ),
            Refusal::NoDescriptor => (
                Cause::Sessions,
                code::READONLY_CANTLOCK,
                format!(
                    "database {path} can only be read: this process has no descriptor left to open the shared memory of \
                     instance {name} ({directory}); raise its limit of open files (`ulimit -n`, LimitNOFILE), or close some"
                ),
            ),
            Refusal::Down(_) if !marker_path(&self.database.file).exists() => (
                Cause::Marker,
                code::READONLY_CANTLOCK,
                format!("database {path} is no longer protected: close and reopen it to write to it"),
            ),
            Refusal::Down(why) => (
                Cause::Down,
                code::READONLY_CANTLOCK,
                format!(
                    "database {path} can only be read, because its instance {name} ({directory}) does not \
                     serve it after waiting {} ms: {why}. Start it with `standfast start -D {directory}`",
                    waited.as_millis()
                ),
            ),
        };
        report(path, cause, result, &text);
        result
    }

    /// Name of the primary that the instance of this database follows, as far as it knows.
    pub fn primary(&self) -> Option<String> {
        self.database.segment().and_then(|(_, segment)| segment.primary())
    }

    /// Returns the commit mode in force; without a valid session, by the settings of the last one.
    pub fn commit_mode(&self) -> CommitMode {
        let default = || self.session.get().map_or(0, |(session, _)| session.segment().config().commit_mode);
        self.commit_write().unwrap_or_else(|| CommitMode::from_bits(default()))
    }

    /// Returns the setting of `PRAGMA standfast_commit_write`, if one is made. `nowait` does not count on a shared
    /// file: one connection must not give up the wait of the others.
    pub fn commit_write(&self) -> Option<CommitMode> {
        let mode = Settings::get(&self.settings.commit_write).map(CommitMode::from_bits);
        mode.filter(|mode| !(mode.nowait && self.is_shared()))
    }

    pub fn set_commit_write(&self, mode: Option<CommitMode>) {
        Settings::set(&self.settings.commit_write, mode.map(CommitMode::bits));
    }

    /// Returns the setting of `PRAGMA standfast_visibility`, if one is made: true is durable. False does not count on a
    /// shared file: one connection must not give up the visibility of the others.
    pub fn durable_visibility(&self) -> Option<bool> {
        let durable = Settings::get(&self.settings.visibility).map(|durable| durable == 1);
        durable.filter(|durable| *durable || !self.is_shared())
    }

    pub fn set_durable_visibility(&self, durable: Option<bool>) {
        Settings::set(&self.settings.visibility, durable.map(u32::from));
    }

    /// Returns the setting of `PRAGMA standfast_max_data_delay`, if one is made.
    pub fn max_data_delay(&self) -> Option<Duration> {
        Settings::get(&self.settings.max_data_delay).map(|ms| Duration::from_millis(ms.into()))
    }

    /// Sets it, in milliseconds, less than `u32::MAX`.
    pub fn set_max_data_delay(&self, ms: Option<u32>) {
        Settings::set(&self.settings.max_data_delay, ms);
    }

    /// Handles `SQLITE_FCNTL_PDB`: a connection opens the file, or joins the connections that share its cache. `handle`
    /// is not the handle but where SQLite keeps it: with a shared cache SQLite stores there, whenever it takes the
    /// cache's mutex, the connection that it works for. The first call comes from SQLite itself, right after the file
    /// was opened; a pointer from an application, which may not outlive its call, is never kept.
    pub fn used_by(&self, handle: *mut usize) {
        let first = self.user.compare_exchange(std::ptr::null_mut(), handle, SeqCst, SeqCst);
        if first.is_err_and(|known| known == handle) {
            self.shared.store(true, SeqCst);
        }
    }

    /// Returns whether several connections use the file.
    pub fn is_shared(&self) -> bool {
        self.shared.load(SeqCst)
    }

    /// Returns the handle of the connection for which SQLite calls a method of the file.
    fn user(&self) -> Option<usize> {
        let user = self.user.load(SeqCst);
        // SAFETY: null, or a field of SQLite's cache, which closes the file before it is freed. The field changes under
        // the mutex that SQLite holds during every method that reads it here.
        (!user.is_null()).then(|| unsafe { *user })
    }

    /// Records that the write lock is taken: until the end of its commit, the transaction belongs to the connection
    /// found now.
    pub fn write_lock_taken(&self) {
        let writer = self.user().map(|user| match self.writer.take() {
            Some(known) if known.is(user) => known,
            _ => Connection::of(user),
        });
        if let Some(writer) = &writer {
            writer.write_locked();
        }
        self.writer.set(writer);
    }

    /// Records that the write lock is released.
    pub fn write_lock_released(&self) {
        let writer = self.writer.take();
        if let Some(writer) = &writer {
            writer.write_unlocked();
        }
        self.writer.set(writer);
    }

    /// Returns the connection whose transaction holds the write lock, or held it last.
    pub fn writer(&self) -> Option<Arc<Connection>> {
        let writer = self.writer.take();
        self.writer.set(writer.clone());
        writer
    }
}

/// Returns why the shared memory cannot be used.
fn unreachable(marker: &Marker, error: SegmentError) -> Refusal {
    let code = match &error {
        SegmentError::Io(cause) => cause.raw_os_error(),
        _ => None,
    };
    if matches!(code, Some(libc::EMFILE | libc::ENFILE)) {
        return Refusal::NoDescriptor;
    }
    Refusal::Down(match &error {
        SegmentError::Io(cause) if cause.kind() == ErrorKind::NotFound && instance::alive(marker) => format!(
            "it runs, but its shared memory {} is gone: another process has removed it (systemd does when the last session \
             of its user ends, unless RemoveIPC=no), or it is still starting; if it stays away, restart the instance",
            marker.segment.display()
        ),
        _ => hint::for_terminal(&error, error.hint().as_deref()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_limit_is_not_taken_for_a_stopped_instance() {
        let marker = Marker {
            instance: [1; 16],
            name: "south".into(),
            directory: "/nowhere".into(),
            segment: "/nowhere".into(),
            runtime: None,
            owner: None,
            database: 0,
            path: "/nowhere.db".into(),
            file: None,
        };
        let error = |code| SegmentError::Io(std::io::Error::from_raw_os_error(code));
        assert!(matches!(unreachable(&marker, error(libc::EMFILE)), Refusal::NoDescriptor));
        assert!(matches!(unreachable(&marker, error(libc::ENOENT)), Refusal::Down(_)));
    }
}
