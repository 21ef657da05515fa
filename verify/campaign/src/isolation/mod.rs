//! The isolation campaign: many databases under load, and a fault that is put into one of them.
//!
//! A fault of one database, its WAL, its wal-index, its volume or its application must cost the others neither commits
//! nor their state, and must never affect the instance. Each fault is put into a database of its own, several times,
//! and the commits of all the others are counted in windows before, during and after it.
//!
//! - [`load`]: the processes that commit.
//! - [`fault`]: the faults.
//! - `strike`: how each fault begins and ends.
//! - `stage`: the instances, the databases and the processes of a campaign.
//! - `campaign`: rounds of windows.
//! - [`report`]: the results.

mod application;
mod campaign;
pub mod fault;
pub mod load;
pub mod report;
mod stage;
mod strike;
mod volume;
pub mod wal_index;

pub use campaign::{IsolationConfig, run};
pub use fault::Fault;
pub use report::IsolationReport;
