use standfast_io::Disk;
use standfast_types::{DatabaseId, IncarnationId, IncarnationNo, PageSize, Scn};
use std::path::PathBuf;
use std::sync::Arc;

pub struct ApplyConfig {
    pub directory: PathBuf,
    /// The apply journal; created when it does not exist.
    pub journal: PathBuf,
    pub disk: Arc<dyn Disk>,
    /// The VFS below the guard; `None` for SQLite's default.
    pub vfs_base: Option<String>,
    /// Threads besides the caller's that may apply to different databases at the same time.
    pub workers: usize,
    pub limits: Limits,
}

/// Bounds of memory, of the WAL and of what a restart has to replay.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of page images that one thread holds before it hands them to SQLite.
    pub image_bytes: usize,
    /// Bytes of redo of one open transaction held in memory before it goes to a file.
    pub pending_bytes: usize,
    /// SQLite's page caches of all databases together, in KiB. Each has at least 256 KiB, unless this is less.
    pub cache_kib: u32,
    /// Frames between two checkpoints of a database.
    pub checkpoint_frames: u32,
    /// Frames from which on a checkpoint waits for readers, up to 20 ms, to restart the WAL. Many databases with long
    /// WALs share the length that a few may have.
    pub reset_frames: u32,
    /// WALs may be rewritten with the newest version of each page; else they are only reset.
    pub rewrite_wals: bool,
    /// Size of a new journal in bytes.
    pub journal_bytes: u64,
    /// Bytes of redo that may be applied between two syncs of the journal's horizon, which bounds what a restart
    /// replays in one transaction.
    pub horizon_bytes: u64,
    /// Bytes that stay free on the volume of the databases when replaced content is kept there.
    pub kept_free_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            image_bytes: 32 << 20,
            pending_bytes: 16 << 20,
            cache_kib: 8 << 10,
            checkpoint_frames: 4_000,
            reset_frames: 16_000,
            rewrite_wals: true,
            journal_bytes: 1 << 20,
            horizon_bytes: 64 << 20,
            kept_free_bytes: 256 << 20,
        }
    }
}

/// An event in the redo that concerns more than the content of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyEvent {
    /// A database became protected; its file exists.
    Attached {
        database: DatabaseId,
        /// Its file name in the directory.
        name: String,
        page_size: PageSize,
        scn: Scn,
    },
    /// A database is no longer protected; its file is closed and kept.
    Detached { database: DatabaseId, scn: Scn },
    Incarnation {
        number: IncarnationNo,
        id: IncarnationId,
        /// SCN at which it left the previous incarnation.
        branch: Scn,
        /// When the incarnation began, microseconds since the Unix epoch.
        time_us: u64,
        scn: Scn,
    },
    /// The primary shut down cleanly; it accepted no commit after this.
    EndOfRedo {
        /// When the primary shut down, microseconds since the Unix epoch.
        time_us: u64,
        scn: Scn,
    },
}

/// Receives events in their order in the redo, after everything before them is applied and before anything after them.
/// Whatever it must remember must be durable when it returns, because the redo is not read again. After a restart it
/// may receive an event twice.
pub type Observer = Box<dyn FnMut(&ApplyEvent) -> std::io::Result<()> + Send>;

/// Where the life of a standby database began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartPoint {
    /// The file holds all commits up to here, and none after.
    pub scn: Scn,
    /// Start of the oldest transaction of the database that was open at `scn`; `scn` when there was none.
    pub redo_from: Scn,
    /// The file began empty, with an attach record; otherwise it is a copy.
    pub empty: bool,
}

impl StartPoint {
    /// A copy made while no transaction was open in the redo.
    pub fn copy_at(scn: Scn) -> StartPoint {
        StartPoint { scn, redo_from: scn, empty: false }
    }

    /// Started by the attach record at `scn`; see [`ApplyEvent::Attached`].
    pub fn attached_at(scn: Scn) -> StartPoint {
        StartPoint { scn, redo_from: scn, empty: true }
    }
}
