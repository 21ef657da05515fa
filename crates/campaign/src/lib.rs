//! Campaigns: real processes that are killed again and again, and what must be true afterwards.
//!
//! ```text
//!  application processes ──commits──> primary instance ══redo══> standby instance
//!         │ acknowledged                    │                          │
//!         v                                 v                          v
//!  [`acknowledgements`]  <───────── [`verify`]: every acknowledged row is there, on both,
//!  (survives kill -9)                whole, and the pages of both are the same
//! ```
//!
//! - [`process`] and [`instance`]: starting, killing and asking real processes.
//! - [`scene`]: a primary, a standby and their databases in a directory of their own.
//! - [`application`]: the worker process that writes; every thread notes what it was told is committed.
//! - [`kill`]: the campaign that kills them.
//! - [`faults`]: the campaign of faults of standbys, disks and links, in every mode of transport.
//! - [`differential`]: random programs on stock SQLite and through the VFS, compared step by step.
//! - [`isolation`]: the campaign of faults in one of many databases, which must cost the others nothing.
//! - [`power`]: the campaign that cuts the power of simulated machines; it needs no processes.

pub mod acknowledgements;
pub mod application;
pub mod differential;
pub mod ending;
mod error;
pub mod faults;
pub mod instance;
pub mod isolation;
pub mod kill;
pub mod power;
pub mod process;
pub mod programs;
pub mod scene;
pub mod schema;
pub mod site;
pub mod status;
pub mod verify;

pub use error::{CampaignError, During};

/// What most functions here return.
pub type Result<T> = std::result::Result<T, CampaignError>;
