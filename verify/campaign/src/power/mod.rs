//! The power campaign: a primary and one to three standbys run on simulated machines that lose power at any sync boundary;
//! then they drop, tear and reorder whatever was not synced.
//!
//! ```text
//!  plain SQLite connections ─> simulated disk <─ primary stages ══ link ══> standby stages ─> simulated disk
//!         │ every committed state, how far acknowledged                                      │
//!         └────────────> [`truth`] <── state after each recovery, failover and catch-up ─────┘
//! ```
//!
//! One thread steps everything, so a seed always gives the same history. Only the network and the sessions' side of the
//! shared memory are emulated. Both ends of each link are the machines of the transport, also those that fetch archived
//! logs; between them are pipes in memory that delay and split the bytes and lose what was in flight. Each standby has a
//! mode (SYNC AFFIRM, FASTSYNC, ASYNC), a machine, a link and a clock of its own; commits are released by the rules of the
//! destination set. Standbys that remain after a failover follow the new primary, if their redo fits.
//!
//! Half of the histories have redo logs with two members. While the power is off, a member may be lost, be damaged or
//! come back with its former content, and while the power is on, its device may fail (see [`members`]); no result may
//! depend on that. In the meantime groups of the log are added, dropped and resized, and lost members are brought back.
//!
//! What must hold after every power loss: each database of the primary is in a committed state, no older than the
//! newest acknowledged commit; a standby never shows a state that was not committed, and holds all redo that it
//! acknowledged as written; after catching up all are equal page by page; after a failover everything is there that the
//! mode of the standby promises ([`truth`]). In maximum protection no commit returns without a SYNC AFFIRM standby.

mod application;
mod crash;
mod described;
mod history;
mod log_changes;
mod members;
mod report;
mod sites;
mod truth;
mod workers;
mod world;

pub use history::{Sabotage, run_boundaries, run_seed};
pub use report::PowerReport;
pub use standfast_simulation::trace::turn_on as turn_trace_on;
pub use workers::{Part, PowerConfig, run};
