//! What is shown live, computed from observations: metrics, the dashboard, checks for monitoring, crossings of
//! thresholds.
//!
//! Pure functions from an [`Observation`](standfast_instruments::Observation) and earlier ones to text and documents:
//! no clock, no threads, no I/O. An unknown value is `None`, null or `unknown`, never 0.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod active;
mod apply_rate;
pub mod certificate;
mod check;
mod dashboard;
mod estimate;
pub mod figure;
mod lags;
mod look;
pub mod metrics;
#[cfg(feature = "synthetic")]
pub mod synthetic;
pub mod views;
mod watch;

pub use active::{ActiveClass, active_sessions};
pub use check::{Finding, Limits, Severity, Thresholds, findings, line, severity};
pub use dashboard::{
    CommitTime, Dashboard, EventLine, Link, Machine, PartTime, Pressure, Sessions, StandbyState, ThreadWait,
    Verdict,
};
pub use estimate::{Estimate, apply_finish_s, startup_s};
pub use figure::{Figure, UNKNOWN};
pub use lags::Lag;
pub use look::Looks;
pub use standfast_documents::Status;
pub use watch::Watch;
