//! Campaigns: real processes are killed repeatedly and simulated machines lose power, and afterwards the promises are
//! checked.
//!
//! ```text
//!  application processes ──commits──> primary instance ══redo══> standby instance
//!         │ acknowledged                    │                          │
//!         v                                 v                          v
//!  [`acknowledgements`]  <───────── [`verify`]: every acknowledged row is there, on both,
//!  (survives kill -9)                intact, and the pages of both are the same
//! ```
//!
//! - [`process`] and [`instance`]: start, kill and query real processes.
//! - [`scene`]: a primary, a standby and their databases in a directory of their own.
//! - [`application`]: the worker process that writes; every thread records which of its commits were acknowledged.
//! - [`kill`]: the campaign that kills the processes of a scene.
//! - [`faults`]: the campaign of faults of standbys, disks and links, in every transport mode.
//! - [`differential`]: random programs on stock SQLite and through the VFS, compared step by step.
//! - [`isolation`]: the campaign of faults in one of many databases, which must not affect the others.
//! - [`power`]: the campaign that cuts the power of simulated machines; it needs no processes.

pub mod acknowledgements;
pub mod application;
pub mod arbitration;
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

pub type Result<T> = std::result::Result<T, CampaignError>;
