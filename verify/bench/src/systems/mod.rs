//! The systems that are measured side by side.

mod contained;
mod flood;
mod litestream;
mod pgbench;
mod postgres;
mod site;
pub(crate) mod standfast;
mod stock;

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::driver::DriveConfig;
use crate::error::During;
use crate::run::RunResult;
use crate::workload::Layout;
use crate::{Context, Result};

pub(crate) use site::Site;
pub(crate) use standfast::StandbyOptions;
pub use standfast::{Found, Instance, Mode};

/// One number of clients on one layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    pub clients: usize,
    /// Whether they share one database or have one each.
    pub layout: Layout,
}

/// A system under the workload. It may keep files between runs, but no process: while one system is measured
/// the others rest.
pub trait System {
    fn name(&self) -> &str;
    /// Does once what all runs need. [`crate::BenchError::Unavailable`] makes the report skip the system.
    fn prepare(&mut self, context: &Context) -> Result<()>;
    /// Starts everything, runs the workload once, stops everything.
    fn run(&mut self, context: &Context, case: Case) -> Result<RunResult>;
    /// Removes what `prepare` made; dropping the system does the same.
    fn teardown(self: Box<Self>) {}
}

/// The systems by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemKind {
    /// SQLite, WAL, synchronous=FULL, no copy.
    StockFull,
    /// SQLite, WAL, synchronous=NORMAL: commits are not durable.
    StockNormal,
    /// Standfast, durable on this machine only.
    Local,
    /// Standfast, standby on this machine, acknowledged after its log write.
    SyncAffirm,
    /// The same over TLS; all others of Standfast speak plain TCP.
    SyncAffirmTls,
    /// The same while unauthenticated clients connect to the port of the primary, 5,000 times a second.
    SyncAffirmFlood,
    /// The same while they connect to its HTTP port.
    SyncAffirmHttpFlood,
    /// The same while they connect to a listener of another program.
    SyncAffirmBareFlood,
    /// Sync-affirm with every application process as in a container: another user, namespaces and mounts of its own.
    SyncAffirmContained,
    /// Sync-affirm with `checkpoint.rewrite_wals = false`.
    SyncAffirmReset,
    /// Standfast, acknowledged on receipt in memory.
    Fastsync,
    /// Standfast; commits do not wait for the standby.
    Async,
    /// Sync-affirm over a link with a round trip of 10 ms.
    SyncAffirm10ms,
    /// Litestream beside SQLite FULL (asynchronous).
    Litestream,
    /// PostgreSQL with a synchronous standby, one statement a transaction.
    Postgres,
}

/// Emulated round trip of [`SystemKind::SyncAffirm10ms`], in microseconds.
pub const DELAY_US: u64 = 10_000;

impl SystemKind {
    /// Makes the system; nothing is started yet.
    pub fn build(self) -> Box<dyn System> {
        match self {
            SystemKind::StockFull => Box::new(stock::Stock::new("SQLite FULL, no copy", "FULL")),
            SystemKind::StockNormal => Box::new(stock::Stock::new("SQLite NORMAL, not durable", "NORMAL")),
            SystemKind::Local => Box::new(standfast::Standfast::new("Standfast local", None, 0)),
            SystemKind::SyncAffirm => {
                Box::new(standfast::Standfast::new("Standfast SYNC AFFIRM", Some(Mode::SyncAffirm), 0))
            }
            SystemKind::SyncAffirmTls => Box::new(
                standfast::Standfast::new("Standfast SYNC AFFIRM, TLS", Some(Mode::SyncAffirm), 0)
                    .encrypted(),
            ),
            SystemKind::SyncAffirmContained => Box::new(
                standfast::Standfast::new("Standfast SYNC AFFIRM, containers", Some(Mode::SyncAffirm), 0)
                    .contained(),
            ),
            SystemKind::SyncAffirmReset => Box::new(
                standfast::Standfast::new("Standfast SYNC AFFIRM, no rewriting", Some(Mode::SyncAffirm), 0)
                    .with_settings(&[("rewrite_wals", "false")]),
            ),
            SystemKind::SyncAffirmFlood => Box::new(
                standfast::Standfast::new("Standfast SYNC AFFIRM, TLS, flood", Some(Mode::SyncAffirm), 0)
                    .encrypted()
                    .flooded(standfast::Listener::Replication),
            ),
            SystemKind::SyncAffirmBareFlood => Box::new(
                standfast::Standfast::new(
                    "Standfast SYNC AFFIRM, TLS, flood of another program",
                    Some(Mode::SyncAffirm),
                    0,
                )
                .encrypted()
                .flooded(standfast::Listener::OfNoInstance),
            ),
            SystemKind::SyncAffirmHttpFlood => Box::new(
                standfast::Standfast::new(
                    "Standfast SYNC AFFIRM, TLS, HTTP flood",
                    Some(Mode::SyncAffirm),
                    0,
                )
                .encrypted()
                .flooded(standfast::Listener::Http),
            ),
            SystemKind::Fastsync => {
                Box::new(standfast::Standfast::new("Standfast FASTSYNC", Some(Mode::Fastsync), 0))
            }
            SystemKind::Async => Box::new(standfast::Standfast::new("Standfast ASYNC", Some(Mode::Async), 0)),
            SystemKind::SyncAffirm10ms => Box::new(standfast::Standfast::new(
                "Standfast SYNC AFFIRM 10ms",
                Some(Mode::SyncAffirm),
                DELAY_US,
            )),
            SystemKind::Litestream => Box::new(litestream::Litestream),
            SystemKind::Postgres => Box::new(postgres::Postgres::default()),
        }
    }

    /// The name on the command line.
    pub fn key(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// The configuration that SQLite-based systems share.
fn drive_config(context: &Context, system: &dyn System, case: Case, databases: &[PathBuf]) -> DriveConfig {
    DriveConfig {
        system: system.name().to_owned(),
        layout: case.layout,
        databases: crate::driver::assign(databases, case.clients),
        extension: None,
        synchronous: None,
        warmup: context.warmup,
        measure: context.measure,
    }
}

/// A port on which no process listens at the moment.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).during(|| "find a free port".into())?;
    Ok(listener.local_addr().during(|| "find a free port".into())?.port())
}

/// Bytes of all files below `directory`.
fn bytes_below(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(info) if info.is_dir() => bytes_below(&entry.path()),
            Ok(info) => info.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_a_key_that_parses_back_to_it() {
        for kind in SystemKind::value_variants() {
            assert_eq!(SystemKind::from_str(&kind.key(), false).unwrap(), *kind);
            assert!(!kind.build().name().is_empty());
        }
    }

    #[test]
    fn bytes_are_counted_through_subdirectories() {
        let scratch = crate::process::Scratch::new(Path::new("/var/tmp")).unwrap();
        std::fs::write(scratch.path().join("a"), [0; 10]).unwrap();
        std::fs::write(scratch.directory("d/e").unwrap().join("b"), [0; 5]).unwrap();
        assert_eq!(bytes_below(scratch.path()), 15);
        assert_eq!(bytes_below(Path::new("/nonexistent")), 0);
    }
}
