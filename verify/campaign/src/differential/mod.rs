//! The differential campaign: programs of random statements run on stock SQLite and through the shim, on a primary
//! whose commits wait for a standby. After each statement the result code, message, rows and counts must be equal,
//! apart from documented [`differences`]; after each program the contents must be equal, and the pages of primary and
//! standby.
//!
//! - [`generate`]: programs; [`shrink`]: removes the steps of a failing program that are not needed to fail.
//! - [`worker`]: the process that runs a program, with a SQLite chosen at run time ([`library`], [`connection`]).
//! - [`scene`]: the databases, the instances, and how one program is run and judged.
//! - [`campaign`]: many programs with many versions of SQLite.

mod campaign;
pub mod connection;
mod content;
pub mod differences;
pub mod generate;
pub mod library;
pub mod program;
mod report;
pub mod scene;
mod shrink;
mod versions;
pub mod worker;

pub use campaign::{DifferentialConfig, run};
pub use report::DifferentialReport;
pub use versions::{Version, find as find_versions};
