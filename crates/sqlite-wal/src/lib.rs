//! The WAL of live databases as the instance sees it: guarding it (no other process resets it), capturing it, and
//! copying a database as of a known position (snapshot).
//!
//! The instance is the only checkpointer of a protected database. While it serves the database it holds SQLite's
//! checkpoint lock ([`guard`]), shared except for moments. So no other connection can backfill frames, and therefore
//! none can reset the WAL before its frames are captured.

mod bare_log;
pub mod capture;
mod checkpoint_lock;
pub mod first_pages;
pub mod frame_sums;
pub mod guard;
mod guard_vfs;
pub mod journal;
pub mod lifecycle;
pub mod log_length;
mod mapped;
pub mod opening;
pub mod pace;
mod page_map;
pub mod positions;
mod recent_pages;
pub mod rewriting;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod scene;
pub mod snapshot;
mod stale_frames;
pub mod state;
mod unsummed;
mod vfs_file;
mod wal_index;
mod wal_index_regions;
mod wal_layout;
mod write_again;
pub mod write_back;

pub use bare_log::bare_salts;
pub use mapped::any_is_lost as is_any_index_lost;
pub use stale_frames::cut_stale_frames;
pub use vfs_file::{VfsFile, VfsFileKind};
pub use wal_index::{WalIndexHeader, WalIndexView};
pub use write_again::write_again;

/// A SQLite result code with its English name, for error texts.
pub(crate) fn sqlite_code(code: i32) -> String {
    format!("SQLite code {code} ({})", rusqlite::ffi::code_to_str(code))
}
