//! Workload, rivals and figures: `standfast bench`, `make bench` and `make figures`.
//!
//! - [`workload`] and [`worker`]: the application, in separate processes.
//! - [`redo_load`]: an application that makes redo at a given rate.
//! - [`driver`]: runs the application processes and counts; [`run`]: the result of one run.
//! - [`systems`]: stock SQLite, Standfast in its modes, Litestream, PostgreSQL; [`suite`] interleaves them.
//! - [`raw`]: the limits of the disk and the loopback; [`stations`]: the log writer and apply on their own.
//! - [`figures`]: the table of bars and aims, and its verdicts; [`conditions`]: machine and versions.
//! - [`command`]: the command line.

pub mod command;
pub mod conditions;
pub mod context;
pub mod driver;
mod error;
pub mod figures;
pub mod interrupt;
pub mod process;
pub mod processes;
pub mod raw;
pub mod redo_load;
pub mod report;
pub mod run;
pub mod stations;
pub mod statistics;
pub mod suite;
pub mod systems;
pub mod worker;
pub mod worker_protocol;
pub mod workload;

pub use context::Context;
pub use error::{BenchError, Result};
