//! Applies standby redo to database pages through SQLite itself, so that plain readers of a standby database have
//! SQLite's snapshots while redo is applied.
//!
//! Path of a record: [`Apply::apply`] dispatches records to their databases (`apply`); each database turns commits into
//! page images (`database`, `batch`, `dirty_pages`), keeps change records of transactions without a commit record aside
//! (`pending`), verifies every image against the checksum in the redo, and commits many transactions in one SQLite
//! transaction (`standby_file`, `standby_log`). The apply journal maps WAL positions to SCNs (`journal`, `history`), so
//! that a killed standby resumes exactly where it was (`recover`). `upkeep` does checkpoints and syncs, and tells which
//! redo is no longer needed.
//!
//! Order of calls: [`Apply::open`], [`Apply::attach_existing`] for every known database, [`Apply::recover`], then
//! [`Apply::apply`] with [`Apply::checkpoint_if_due`] and, now and then, [`Apply::sync`].

mod apply;
mod at_rest;
mod attach;
mod batch;
mod compare;
mod config;
mod database;
mod dirty_pages;
mod error;
mod history;
mod journal;
mod keep;
mod never_vacuum;
mod page_update;
mod pending;
mod recover;
mod replay;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod scene;
mod standby_file;
mod standby_log;
mod upkeep;
mod worker_pool;

pub use apply::{Apply, ApplyReport};
pub use at_rest::{AtRest, Stamp, WalAtRest};
pub use compare::{Compared, ComparedPage};
pub use config::{ApplyConfig, ApplyEvent, Limits, Observer, StartPoint};
pub use database::Condition;
pub use error::ApplyError;
pub use history::{Bound, Fact, History};
pub use journal::Journal;
pub use keep::{Kept, path_of_kept};
pub use page_update::PageUpdate;
pub use recover::{RedoInMemory, RedoSource};
pub use replay::{Replay, Replayed};
pub use standfast_sqlite_wal::pace::Pace;
pub use upkeep::DatabaseStatus;
