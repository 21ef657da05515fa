//! The power campaign: both instances run on simulated machines that lose power at any sync boundary and forget,
//! tear and reorder whatever was not synced.
//!
//! ```text
//!  plain SQLite connections ─> simulated disk <─ stations of the primary ══ link ══> stations of the standby ─> simulated disk
//!         │ every committed state, how far acknowledged                                                   │
//!         └────────────> [`truth`] <── what is there after each recovery, failover and catch-up ──────────┘
//! ```
//!
//! One thread steps everything, so a seed always gives the same history. Nothing is emulated but the network and
//! the sessions' side of the shared memory: [`link`] does what sender and receiver do.
//!
//! Half of the histories have redo logs with two members. While the power is away one of them may be lost, damaged, or
//! come back as it once was, and its device may fail while the power is on (see [`members`]); nothing of what follows may
//! depend on it.
//!
//! What must hold after every power loss: each database of the primary is in a state that was committed, no older
//! than the newest acknowledged commit; a standby never shows a state that was not committed, and holds all redo
//! that it acknowledged; after catching up both are equal page by page; after a failover everything is there
//! that was acknowledged while commits waited for the standby.

#[cfg(test)]
mod aged_log;
mod application;
mod crash;
mod history;
mod link;
mod members;
#[cfg(test)]
mod pace;
mod primary;
mod report;
mod site;
mod standby;
mod trace;
mod truth;
mod workers;
mod world;

pub use history::{Sabotage, run_boundaries, run_seed};
pub use report::PowerReport;
pub use trace::turn_on as turn_trace_on;
pub use workers::{Part, PowerConfig, run};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Errors are only text: what matters is whether the power was there.
type Outcome<T> = std::result::Result<T, String>;

/// A station that may be away.
type Held<T> = Arc<Mutex<Option<T>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
