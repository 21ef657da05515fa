//! Positions, identities and limits shared by every stage of the redo stream. No I/O, except that random identities
//! come from `/dev/urandom`.
//!
//! Each word has one meaning; see `docs/glossary.md`. Positions are named by what survives:
//! `captured >= written >= durable` on the primary, `received >= hardened >= applied` on a standby.

mod frame_run;
pub mod hint;
mod identity;
mod line_budget;
mod position;
mod printable;
mod slots;
mod utc;
mod wal_sum;

pub use frame_run::FrameRun;
pub use hint::Hint;
pub use identity::{DatabaseId, IncarnationId, IncarnationNo, InstanceId, PageNo, PageSize};
pub use line_budget::{About, Line, LineBudget, host_network};
pub use position::{FrameRange, ReleasePosition, Scn, WalPosition, WalSalts};
pub use printable::{FOREIGN_NAME_MAX, FOREIGN_TEXT_MAX, printable, printable_bytes, printable_line};
pub use slots::{SlotLimits, Slots};
pub use utc::utc_text;
pub use wal_sum::{WAL_FRAME_SUMMED, WAL_MAGIC, WalFile, WalHeader, WalSum, is_unsummed};

/// Largest number of protected databases in one instance.
pub const DATABASES_MAX: usize = 1024;
/// Largest number of redo destinations of one instance.
pub const DESTINATIONS_MAX: usize = 31;
/// Largest encoded redo record, header included. Larger transactions are split into several records.
pub const RECORD_BYTES_MAX: usize = 512 * 1024;
/// A record with page vectors of a transaction is ended, and another one begun, once it has grown to this size.
pub const FULL_RECORD_BYTES: usize = 256 * 1024;
/// Largest write of the log writer and largest payload of one transport frame.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Apply is behind when this much redo, in bytes, is left to apply. It then does not wait for more redo to come, its
/// checkpoints are not throttled, the standby reports its progress to the primary, and the rate seen meanwhile counts
/// as the fastest that apply can do.
pub const APPLY_BEHIND_BYTES: u64 = 1 << 20;
/// Bytes of SQLite's WAL file before its first frame.
pub const WAL_HEADER_BYTES: usize = 32;
/// Bytes of a frame of SQLite's WAL before its page.
pub const WAL_FRAME_HEADER_BYTES: usize = 24;

const _: () = assert!(FULL_RECORD_BYTES + 2 * 65_536 + 4096 <= RECORD_BYTES_MAX);
const _: () = assert!(RECORD_BYTES_MAX <= BATCH_BYTES_MAX);
