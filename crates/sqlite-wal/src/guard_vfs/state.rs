//! What the guard knows of one open main database file.

use crate::checkpoint_lock::CheckpointLock;
use crate::mapped::{self, MappedRegions};
use crate::pace::Portions;
use standfast_session::InnerLock;
use standfast_types::FrameRun;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Called before the WAL is synced for a checkpoint; false refuses the checkpoint.
pub type BeforeBackfill = Box<dyn Fn() -> bool + Send + Sync>;

/// Called with the last backfilled frame when a checkpoint has backfilled all of the WAL, has synced the database file,
/// and is about to say so in the wal-index: from then on SQLite may reset the WAL. False keeps the index from saying
/// so.
pub type AllBackfilled = Box<dyn Fn(u32) -> bool + Send + Sync>;

/// Called with true before this connection tries to take SQLite's write lock, and with false when it did not get the
/// lock or has released it.
pub type WriteLockHook = Box<dyn Fn(bool) + Send + Sync>;

/// The state of one open main database file of the guard; lives as long as the file is open.
#[derive(Default)]
pub struct GuardState {
    pub write_held: AtomicBool,
    pub checkpoint_held: AtomicBool,
    pub(crate) checkpoint_lock: CheckpointLock,
    /// SQLite's write lock is held shared for good: a connection writes only with the inner lock as well.
    pub others_refused: AtomicBool,
    /// How the write lock is held: [`NOT`], [`EXCLUSIVELY`], [`BY_INNER`].
    pub(super) write_form: AtomicU8,
    inner: Mutex<Option<InnerLock>>,
    /// The database file; empty when the VFS has no real files.
    path: PathBuf,
    /// This connection reads the database file without the WAL.
    pub(super) reads_file: AtomicBool,
    pub before_backfill: Mutex<Option<BeforeBackfill>>,
    pub all_backfilled: Mutex<Option<AllBackfilled>>,
    pub write_lock_hook: OnceLock<WriteLockHook>,
    portions: Mutex<Portions>,
    /// The database was written to since its last sync.
    pub unsynced: AtomicBool,
    /// Salts of the WAL and how many of its frames are durable in it; `None`: unknown.
    synced: Mutex<Option<([u32; 2], u32)>>,
    /// Regions of the wal-index that this file has mapped.
    mapped: Mutex<MappedRegions>,
    /// Frames of the open transaction that are not in the WAL yet.
    frames: Mutex<FrameRun>,
    /// File offset of the end of what the open transaction has written.
    pub(super) written: AtomicU64,
    /// Frames of the WAL when a checkpoint was about to backfill: at least those that it knows of. 0: it backfilled
    /// none.
    pub seen: AtomicU32,
}

/// A value of [`GuardState::write_form`]: not held.
pub(super) const NOT: u8 = 0;
pub(super) const EXCLUSIVELY: u8 = 1;
/// Held by the inner lock, with the write lock shared.
pub(super) const BY_INNER: u8 = 2;

impl GuardState {
    /// Creates the state of the database file at `path`, which is empty when the VFS has no real files.
    pub(super) fn new(path: PathBuf) -> GuardState {
        GuardState { path, ..GuardState::default() }
    }

    pub(super) fn frames(&self) -> MutexGuard<'_, FrameRun> {
        self.frames.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn mapped(&self) -> MutexGuard<'_, MappedRegions> {
        self.mapped.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Called when the checkpoint lock was taken for good.
    pub fn checkpoint_lock_taken(&self) {
        self.checkpoint_lock.taken(&self.path);
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Option<InnerLock>> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn try_inner_lock(&self) -> std::io::Result<bool> {
        let mut inner = self.inner();
        let found = match inner.take() {
            Some(found) => found,
            None => InnerLock::of(&self.path)?,
        };
        let locked = found.try_lock();
        // An inner lock that has lost its file is searched for again the next time.
        if locked.is_ok() {
            *inner = Some(found);
        }
        locked
    }

    pub(super) fn report_write_lock(&self, held: bool) {
        if let Some(reported) = self.write_lock_hook.get() {
            reported(held);
        }
    }

    pub(super) fn unlock_inner(&self) {
        if let Some(inner) = self.inner().as_ref() {
            inner.unlock();
        }
    }

    /// Notes that so many frames of the WAL with these salts are durable in it; `None`: some, but it is not known which.
    pub fn note_synced(&self, frames: Option<([u32; 2], u32)>) {
        let mut known = self.synced.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *known = match (*known, frames) {
            (Some((salts, before)), Some((same, frames))) if salts == same => {
                Some((salts, before.max(frames)))
            }
            _ => frames,
        };
    }

    pub fn synced_frames(&self) -> Option<([u32; 2], u32)> {
        *self.synced.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn is_index_lost(&self) -> bool {
        mapped::any_is_lost() && self.mapped().is_lost()
    }

    pub fn portions(&self) -> MutexGuard<'_, Portions> {
        self.portions.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
