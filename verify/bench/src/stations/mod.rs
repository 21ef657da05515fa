//! The log writer and apply on their own. This file has the runs and their timing, `log_writer` and `backlog` have the
//! stages.

mod backlog;
mod log_writer;

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::During;
use crate::process::Scratch;
use crate::statistics::MinMedianMax;
use crate::workload::Layout;
use crate::{BenchError, Context, Result, interrupt, raw};

/// The stages that are measured alone.
pub struct Stations {
    pub log: Box<dyn LogStation>,
    pub apply: Box<dyn ApplyStation>,
}

impl Stations {
    pub fn real() -> Stations {
        Stations { log: Box::new(log_writer::RealLog), apply: Box::new(backlog::RealApply::default()) }
    }
}

/// Opens a redo log for the bench of the log writer.
pub trait LogStation {
    /// Starts a log buffer and log writer over new files in `directory`.
    fn open(&self, directory: &Path) -> Result<Box<dyn LogUnderTest>>;
}

/// A log buffer with its log writer. Errors are texts with cause and remedy.
pub trait LogUnderTest: Sync {
    /// Waits for room and appends redo as producer number `producer`; returns the bytes appended. Many threads call
    /// this in parallel.
    fn append(&self, producer: usize) -> std::result::Result<u64, String>;
    /// Bytes that are durable by now, counted from any fixed start.
    fn durable_bytes(&self) -> u64;
}

/// Makes backlogs for the bench of apply.
pub trait ApplyStation {
    /// Writes a backlog of `transactions` transactions of the workload, spread evenly over `databases` databases, as
    /// the received redo of a standby in `directory`.
    fn prepare(&self, directory: &Path, transactions: u64, databases: usize) -> Result<Box<dyn Backlog>>;
}

/// Received redo that is not applied yet.
pub trait Backlog {
    /// Applies all of it, syncs the standby databases, and returns the number of transactions applied.
    fn apply(self: Box<Self>) -> std::result::Result<u64, String>;
}

/// The bench of the log writer: many producers for a fixed time.
#[derive(Clone, Copy, Debug)]
pub struct LogBench {
    pub producers: usize,
    pub time: Duration,
    /// Number of runs; each has its own run of plain writes beside it.
    pub rounds: usize,
}

/// Throughput of the log writer, in bytes per second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogResult {
    pub producers: usize,
    pub rate: MinMedianMax,
    /// One thread that writes 1 MiB durably in a loop, in the same directory.
    pub baseline: MinMedianMax,
}

impl LogResult {
    /// Returns the median of the log writer relative to that of plain writes.
    pub fn ratio(&self) -> f64 {
        self.rate.median / self.baseline.median
    }
}

impl LogBench {
    /// Alternates runs of plain writes and of the log writer.
    pub fn run(&self, context: &Context, station: &dyn LogStation) -> Result<LogResult> {
        let (mut rates, mut baselines) = (Vec::new(), Vec::new());
        for round in 1..=self.rounds {
            eprintln!("log writer, run {round} of {}", self.rounds);
            interrupt::check()?;
            let scratch = Scratch::new(&context.base)?;
            baselines.push(raw::large_writes(scratch.path(), self.time)?);
            rates.push(self.once(&*station.open(&scratch.directory("log")?)?)?);
        }
        let of = |values| MinMedianMax::of(values).ok_or_else(|| BenchError::Workload("no runs".into()));
        Ok(LogResult { producers: self.producers, rate: of(rates)?, baseline: of(baselines)? })
    }

    fn once(&self, log: &dyn LogUnderTest) -> Result<f64> {
        let stop = AtomicBool::new(false);
        // Each producer has written once when the measured time begins, however busy the machine is.
        let begun = Barrier::new(self.producers + 1);
        let (start, before) = (Instant::now(), log.durable_bytes());
        std::thread::scope(|scope| {
            let producers: Vec<_> = (0..self.producers)
                .map(|producer| {
                    let (stop, begun) = (&stop, &begun);
                    scope.spawn(move || {
                        let first = log.append(producer).map_err(BenchError::Workload);
                        begun.wait();
                        first?;
                        while !stop.load(Ordering::Relaxed) {
                            log.append(producer).map_err(BenchError::Workload)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            begun.wait();
            let paused = interrupt::pause(self.time);
            let (bytes, took) = (log.durable_bytes() - before, start.elapsed());
            stop.store(true, Ordering::Relaxed);
            for producer in producers {
                producer.join().map_err(|_| BenchError::Workload("a producer panicked".into()))??;
            }
            paused.map(|()| bytes as f64 / took.as_secs_f64())
        })
    }
}

/// The bench of apply: a backlog at full speed.
#[derive(Clone, Copy, Debug)]
pub struct ApplyBench {
    pub transactions: u64,
    /// Databases over which they are spread.
    pub databases: usize,
    pub rounds: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApplyResult {
    pub transactions: u64,
    /// Databases over which they were spread.
    pub databases: usize,
    /// Transactions per second, including the sync of the standby databases.
    pub rate: MinMedianMax,
}

impl ApplyBench {
    /// Prepares and applies a new backlog in each round.
    pub fn run(&self, context: &Context, station: &dyn ApplyStation) -> Result<ApplyResult> {
        let mut rates = Vec::new();
        for round in 1..=self.rounds {
            let layout = if self.databases == 1 { Layout::OneDatabase } else { Layout::DatabasePerClient };
            eprintln!("apply, {}, run {round} of {}", layout.label(), self.rounds);
            interrupt::check()?;
            let scratch = Scratch::new(&context.base)?;
            let backlog = station.prepare(scratch.path(), self.transactions, self.databases)?;
            sync_file_system(scratch.path())?;
            let start = Instant::now();
            let applied = backlog.apply().map_err(BenchError::Workload)?;
            if applied != self.transactions {
                let expected = self.transactions;
                return Err(BenchError::Workload(format!("applied {applied} of {expected} transactions")));
            }
            rates.push(applied as f64 / start.elapsed().as_secs_f64());
        }
        let rate = MinMedianMax::of(rates).ok_or_else(|| BenchError::Workload("no runs".into()))?;
        Ok(ApplyResult { transactions: self.transactions, databases: self.databases, rate })
    }
}

/// Syncs what the preparation wrote, so that no writeback falls into the timed part.
fn sync_file_system(directory: &Path) -> Result<()> {
    use std::os::fd::AsRawFd;
    let during = || format!("sync {}", directory.display());
    let open = std::fs::File::open(directory).during(during)?;
    // SAFETY: an open descriptor, no pointers.
    match unsafe { libc::syncfs(open.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).during(during),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::WorkerCommand;
    use std::sync::atomic::AtomicU64;

    fn context() -> Context {
        Context {
            base: "/var/tmp".into(),
            worker: WorkerCommand { program: "false".into(), arguments: Vec::new(), wrapped: false },
            measure: Duration::from_millis(10),
            warmup: Duration::ZERO,
            programs: crate::context::Programs::default(),
        }
    }

    struct Memory(AtomicU64);

    impl LogUnderTest for Memory {
        fn append(&self, producer: usize) -> std::result::Result<u64, String> {
            assert!(producer < 3);
            std::thread::yield_now();
            Ok(self.0.fetch_add(100, Ordering::Relaxed))
        }
        fn durable_bytes(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    struct Full;

    impl LogUnderTest for Full {
        fn append(&self, _: usize) -> std::result::Result<u64, String> {
            Err("log volume full".into())
        }
        fn durable_bytes(&self) -> u64 {
            0
        }
    }

    #[test]
    fn log_bench_measures_durable_bytes_or_reports_the_error() {
        let bench = LogBench { producers: 3, time: Duration::from_millis(20), rounds: 1 };
        assert!(bench.once(&Memory(AtomicU64::new(7))).unwrap() > 0.0);
        assert!(bench.once(&Full).unwrap_err().to_string().contains("log volume full"));
    }

    struct Applies(u64);

    impl ApplyStation for Applies {
        fn prepare(&self, _: &Path, _: u64, databases: usize) -> Result<Box<dyn Backlog>> {
            assert_eq!(databases, 40);
            Ok(Box::new(Applies(self.0)))
        }
    }

    impl Backlog for Applies {
        fn apply(self: Box<Self>) -> std::result::Result<u64, String> {
            Ok(self.0)
        }
    }

    #[test]
    fn apply_that_is_incomplete_has_no_rate() {
        let bench = ApplyBench { transactions: 1000, databases: 40, rounds: 2 };
        assert!(bench.run(&context(), &Applies(1000)).unwrap().rate.median > 0.0);
        assert!(bench.run(&context(), &Applies(999)).is_err());
    }
}
