//! Rewriting of WALs, behind one wall: what may stay unsynced because it will be rewritten, when a rewrite is worthwhile,
//! and the rewrite. [`crate::lifecycle`] asks this policy, and with the setting `checkpoint.rewrite_wals` off it never
//! does: then no WAL gets a deferred-sync suffix, and without one none is rewritten. Elsewhere only readers of a WAL know
//! of rewritten ones, by their salts ([`WalSalts::of_rewritten_log`](standfast_types::WalSalts::of_rewritten_log)): a WAL
//! that was rewritten before the setting was changed is recovered and captured as before.
//!
//! A page that many transactions change is in the WAL many times, and only its newest version is worth writing. So the
//! suffix of a WAL that is not backfilled is not synced as it grows; before it is synced, it shrinks to one frame a page,
//! written over the backfilled prefix.
//!
//! # Why a power loss at any time leaves the state after some commit
//!
//! 1. The database file alone is the state after a commit, durably, before a suffix is deferred: a passive checkpoint has
//!    backfilled the prefix, after a sync of its frames; `complete` adds the pages that this checkpoint skipped because
//!    of readers; then the file is synced. From then on the file is the state that a power loss may fall back to, and
//!    recovery begins no later than at what it holds.
//! 2. While the suffix grows, the WAL on disk is its prefix and a part of the suffix: SQLite's recovery ends at the first
//!    frame that is missing, after the state of the file or a later commit.
//! 3. The header of the new WAL is durable before a frame is overwritten. From then on no frame of the old WAL counts,
//!    because its salts differ, and none of the new one before all of them are there, because they are one transaction.
//!    Until then the database file is the state, by 1.
//! 4. Frames are overwritten only while no connection reads, and only frames that are in the database file. A killed
//!    instance leaves the index of the old WAL, which is complete: SQLite reads no frame that the index says is in the
//!    file. From then on only that index knows the WAL, until [`Guard::repair_inconsistent_wal`](crate::guard::Guard::repair_inconsistent_wal).
//! 5. A WAL that was synced as a whole is promised to recovery with its frames, so it is not rewritten any more, but
//!    backfilled as it is ([`WalLifecycle::synced_upto`](crate::lifecycle::WalLifecycle::synced_upto)).
//!
//! `tests/rewrite_power_loss.rs` tries this on a machine that loses power at any write and sync.

mod complete;
mod new_log;
mod rewrite;
mod suffix;

pub use rewrite::{Prepared, RewriteError, RewrittenLog};
pub(crate) use suffix::{Room, room_for};
pub use suffix::{Suffix, WalSnapshot};
