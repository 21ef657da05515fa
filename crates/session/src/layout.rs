//! Layout of the two files of the shared memory. Changing anything here changes [`VERSION`].
//!
//! Only the instance writes [`Published`], and sessions map it for reading: it holds everything on which a session
//! decides that a commit is durable or that a database is open. Sessions write [`Requests`] too, and each of them may
//! write garbage: nothing in it decides that, see docs/decisions/0057.
//!
//! Every field is an atomic: both sides may be killed at any instruction and neither trusts the other's
//! values beyond their range. Lines of 64 bytes keep words that different processors write apart.

use crate::durations::{Cell, SessionWait};
use std::sync::atomic::{AtomicU32, AtomicU64};

pub const MAGIC: u64 = u64::from_le_bytes(*b"SFSHM001");
pub const VERSION: u32 = 10;
/// Sessions (connections to protected databases) of one instance at a time.
pub const SESSIONS_MAX: usize = 1024;
/// Databases of one instance: `standfast_types::DATABASES_MAX`, as `environment` checks when it is compiled. This crate
/// runs inside applications and depends on nothing.
pub const DATABASES: usize = 1024;
pub const SESSION_WORDS: usize = SESSIONS_MAX / 64;
pub const DATABASE_WORDS: usize = DATABASES / 64;
/// Sessions that share a [`BucketLine`]: one for each bit of a futex's bitset.
pub const BUCKET_SESSIONS: usize = 32;
pub const BUCKETS: usize = SESSIONS_MAX / BUCKET_SESSIONS;
/// A waiter checks by itself after this many milliseconds.
pub const RELEASE_STALL_MS: u64 = 50;
/// Generations of a WAL whose salts stay published. When a session wakes up, it asks for those of the generation in
/// which it has committed; this many later ones may have begun while it was stopped.
pub const GENERATIONS_KEPT: usize = 32;
/// Words for the name of the primary: names of other instances have at most 80 bytes.
pub const PRIMARY_WORDS: usize = 10;

/// What a session may do with a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DatabaseState {
    /// Not served: never was, or no longer protected.
    Absent = 0,
    Open = 1,
    /// The instance is recovering it; writers wait.
    Recovering = 2,
    /// A copy at a standby: sessions may only read.
    Standby = 3,
    /// The instance met an error from which it cannot continue; writers fail.
    Failed = 4,
    /// The instance was shut down cleanly; writers wait for the configured time, then fail.
    Stopped = 5,
    /// This database alone cannot be served, the instance runs: writers fail.
    Offline = 6,
    /// Another instance is the primary now: writers fail.
    Fenced = 7,
}

impl DatabaseState {
    /// Whether commits that wait for it fail, because nothing will release them.
    pub(crate) fn is_refused(self) -> bool {
        matches!(self, DatabaseState::Failed | DatabaseState::Offline | DatabaseState::Fenced)
    }

    pub(crate) fn from_u32(value: u32) -> DatabaseState {
        use DatabaseState::*;
        [Absent, Open, Recovering, Standby, Failed, Stopped, Offline, Fenced]
            .into_iter()
            .find(|state| *state as u32 == value)
            .unwrap_or(Absent)
    }
}

/// What happens to processes without the VFS that write to a database; how sessions take the write lock follows from
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OtherWriters {
    /// They are counted: sessions take the lock as SQLite does.
    Counted = 0,
    /// They are refused: sessions take the [inner lock](crate::InnerLock), and hold the lock shared for good.
    Refused = 1,
    /// They are counted, and some connection may still hold the lock shared: sessions take the inner lock, and the lock
    /// shared for each transaction.
    CountedAgain = 2,
}

impl OtherWriters {
    pub(crate) fn from_u32(value: u32) -> OtherWriters {
        use OtherWriters::*;
        // Garbage is taken for the value that is correct in every mixture.
        [Counted, Refused].into_iter().find(|writers| *writers as u32 == value).unwrap_or(CountedAgain)
    }
}

/// Both files begin with it, in every release.
#[repr(C)]
pub struct Head {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    /// 1: replaced by a newer segment; sessions must map the new one. Trusted in [`Published`] only; in the other file
    /// it is for sessions of releases that had one file.
    pub retired: AtomicU32,
    pub instance: [AtomicU64; 2],
}

/// What the instance publishes. Sessions map it for reading.
#[repr(C)]
pub struct Published {
    pub head: Head,
    pub settings: Settings,
    pub buckets: [BucketLine; BUCKETS],
    pub databases: [PublishedDatabase; DATABASES],
}

#[repr(C, align(64))]
pub struct Settings {
    /// Default of sessions, as bits of [`crate::CommitMode`].
    pub commit_mode: AtomicU32,
    /// 1: readers wait until what they see is durable.
    pub durable_visibility: AtomicU32,
    /// How long writers wait for an instance that does not run, milliseconds.
    pub write_wait_ms: AtomicU32,
    /// How long a commit waits without being released before it reports "outcome unknown", milliseconds.
    pub commit_wait_ms: AtomicU32,
    /// 1 while the instance runs; set to 0 by a clean shutdown.
    pub running: AtomicU32,
    /// Changes with every answer to the question how current the data are; sessions that have asked sleep on it.
    pub answers: AtomicU32,
    /// 1: it is not known whether another instance is the primary now.
    pub unconfirmed: AtomicU32,
    /// Identifies the clock by which `current_as_of_ns` is measured: that of one time namespace, since one start of the
    /// machine.
    pub clock: AtomicU64,
    /// Name of the primary that this standby follows, UTF-8 with zeros after it. For messages.
    pub primary: [AtomicU64; PRIMARY_WORDS],
}

/// Bit of [`PublishedDatabase::gate`]: new transactions wait at their start, so that the WAL can be reset.
pub const GATE_CLOSED: u32 = 1;
/// Bit of [`PublishedDatabase::gate`]: the instance has SQLite's write lock of the database, or is about to take it.
pub const INSTANCE_WRITES: u32 = 2;

#[repr(C, align(64))]
pub struct PublishedDatabase {
    /// Packed (epoch, frame); only moved forwards.
    pub durable: AtomicU64,
    /// SCN of the last commit, for `standfast_scn()`.
    pub scn: AtomicU64,
    /// At a standby: a moment at which the primary had acknowledged no commit that is not applied here, by CLOCK_BOOTTIME;
    /// 0: not known.
    pub current_as_of_ns: AtomicU64,
    pub state: AtomicU32,
    /// Number of WAL generations seen: the newest of `generations`, which is written before.
    pub epoch: AtomicU32,
    /// 1: the instance is rewriting the WAL; a process that finds this and no wal-index must not make one from the WAL.
    /// 2: an instance has started since, which may have made one.
    pub rewriting: AtomicU32,
    /// A value of [`OtherWriters`]; an unknown one counts as `CountedAgain`.
    pub other_writers: AtomicU32,
    /// Bits, see [`GATE_CLOSED`] and [`INSTANCE_WRITES`].
    pub gate: AtomicU32,
    /// The newest generations; that of an epoch is at `epoch % GENERATIONS_KEPT`.
    pub generations: [Generation; GENERATIONS_KEPT],
}

/// Which generation of a WAL an epoch stands for.
#[repr(C)]
pub struct Generation {
    /// Differs from the epoch while the salts are written.
    pub epoch: AtomicU32,
    pub spare: AtomicU32,
    /// As in the wal-index, the first word in the low half.
    pub salts: AtomicU64,
}

/// What sessions request, and counts of what they did. Anybody who may use a database of the instance can write it.
#[repr(C)]
pub struct Requests {
    pub head: Head,
    /// Slots from this one on were never taken, so they need not be read.
    pub slots_used: AtomicU32,
    pub daemon: DaemonLine,
    pub questions: QuestionLine,
    pub dirty: DirtyLines,
    pub counters: Counters,
    pub databases: [RequestedDatabase; DATABASES],
    pub slots: [Slot; SESSIONS_MAX],
}

/// A wait bucket: the commits of [`BUCKET_SESSIONS`] sessions sleep on one word, so that one system call wakes all of them
/// that may continue.
#[repr(C, align(64))]
pub struct BucketLine {
    /// Changes with every wake: a session that is about to sleep and has missed one does not sleep.
    pub wakes: AtomicU32,
}

/// What the instance sleeps on, and what it collects when it wakes.
#[repr(C, align(64))]
pub struct DaemonLine {
    /// 0 while the instance is awake, 1 while it sleeps.
    pub word: AtomicU32,
    /// 1: a session asked for IMMEDIATE since the notifications were last taken.
    pub urgent: AtomicU32,
    /// Bit w set: dirty word w may have bits.
    pub summary: AtomicU64,
    /// 1: a session asked for BATCH since the last [`Segment::take_batch`](crate::Segment::take_batch). Only the first
    /// of them wakes the instance, which then waits for the batch delay.
    pub batch: AtomicU32,
    /// 1: the instance was woken for something that is not a notification.
    pub rung: AtomicU32,
    /// History of the instance's polls for a notification before it sleeps; see the module `spin`.
    pub look: AtomicU32,
}

/// What sessions ask the instance for.
#[repr(C, align(64))]
pub struct QuestionLine {
    /// Number of questions how current the data are; the instance of a standby sleeps on it.
    pub asked: AtomicU32,
}

#[repr(C, align(64))]
pub struct DirtyLines {
    pub words: [AtomicU64; DATABASE_WORDS],
}

/// Counts for instruments; relaxed, never used for decisions.
#[repr(C, align(64))]
pub struct Counters {
    pub commit_polls: AtomicU64,
    pub commit_sleeps: AtomicU64,
    pub daemon_wakes: AtomicU64,
    pub lock_waits: AtomicU64,
    pub lock_sleeps: AtomicU64,
    pub reservations: AtomicU64,
    pub stale_heals: AtomicU64,
}

#[repr(C, align(64))]
pub struct RequestedDatabase {
    pub lock: WriteLockLine,
    pub lock_waiters: [AtomicU64; SESSION_WORDS],
    pub commit_waiters: [AtomicU64; SESSION_WORDS],
}

#[repr(C, align(64))]
pub struct WriteLockLine {
    /// Slot + 1 of the session that holds or is about to take the write lock; 0: free. A hint.
    pub owner: AtomicU32,
    /// Slot + 1 of the session that the lock is reserved for; 0: none.
    pub reserved: AtomicU32,
    pub reserved_at_ns: AtomicU64,
    pub next_ticket: AtomicU64,
    /// Salts of the generation in which a session committed last, or which the instance has begun since, as in the
    /// wal-index; changed only under the WAL write lock.
    pub salts: [AtomicU32; 2],
    /// 1: a session took the write lock and found a generation that neither a session nor the instance had announced:
    /// another process has reset the WAL.
    pub foreign: AtomicU32,
    /// Sessions that died while they held the write lock: each may have published a commit that it did not announce.
    pub orphans: AtomicU32,
    /// Commits that sessions have announced; written under the WAL write lock only.
    pub announced: AtomicU64,
}

/// The `WORD_` constants are the values of [`Slot::commit_word`] and [`SlotLockLine::word`].
pub(crate) const WORD_IDLE: u32 = 0;
pub(crate) const WORD_WAITING: u32 = 1;
pub(crate) const WORD_ASLEEP: u32 = 2;
/// Value of [`Slot::posted_ns`] when no commit waits whose release the instance should report.
pub(crate) const NO_WAITERS: u64 = u64::MAX;

#[repr(C, align(64))]
pub struct Slot {
    /// Process that owns the slot, by its number in its own PID namespace; 0: free. A hint: the holder of the slot's
    /// lock owns the slot.
    pub pid: AtomicU32,
    pub database: AtomicU32,
    /// Start time of that process in clock ticks, for observers.
    pub started: AtomicU64,
    /// Commit wait: 0 idle, 1 waiting, 2 asleep.
    pub commit_word: AtomicU32,
    /// History of the session's polls before it sleeps; see the module `spin`.
    pub look: AtomicU32,
    pub target: AtomicU64,
    /// When the session notified of the commit that waits; by [`crate::monotonic_ns`].
    pub noticed_ns: AtomicU64,
    /// When that commit could continue, about to be woken or to find the answer; 0: a commit waits for that.
    pub posted_ns: AtomicU64,
    pub lock: SlotLockLine,
    pub wait: WaitLine,
    /// Durations of waits by [`SessionWait`]; the values only grow.
    pub counts: [Cell; SessionWait::ALL.len()],
}

/// What the session waits for, for observers.
#[repr(C, align(64))]
pub struct WaitLine {
    /// 0: nothing, else the number of the [`SessionWait`] + 1.
    pub what: AtomicU32,
    pub spare: AtomicU32,
    pub since_ns: AtomicU64,
}

#[repr(C, align(64))]
pub struct SlotLockLine {
    /// Write lock wait: 0 idle, 1 waiting, 2 asleep.
    pub word: AtomicU32,
    pub queued: AtomicU32,
    pub ticket: AtomicU64,
    /// How often others got the lock while this session was first in line.
    pub bypassed: AtomicU32,
    /// 1: the session holds the write lock, and has not yet announced what it commits under it.
    pub writing: AtomicU32,
}

const _: () =
    assert!(DATABASE_WORDS <= 64 && SESSIONS_MAX.is_multiple_of(64) && DATABASES.is_multiple_of(64));
