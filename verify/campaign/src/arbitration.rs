//! Many runs of fast-start failover in simulated time, see `standfast_voices`.

use crate::Result;
use serde::Serialize;
use standfast_voices::{Kind, run};
use std::fmt::{Display, Formatter};
use std::time::{Duration, Instant};

/// Maximum number of notes; the first ones are the most useful.
const NOTES_MAX: usize = 20;
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// What to run.
#[derive(Clone, Debug)]
pub struct ArbitrationConfig {
    /// Seeds with each kind of arbiter.
    pub seeds: u64,
    /// The first seed.
    pub seed: u64,
    pub kinds: Vec<Kind>,
    /// Write the events of the first seed to standard error.
    pub trace: bool,
    pub progress: bool,
}

/// Counts of all runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ArbitrationReport {
    /// Runs, one with each kind of arbiter for each seed.
    pub runs: u64,
    /// Automatic failovers, and those that an operator ordered.
    pub failovers: u64,
    pub acknowledged: u64,
    pub failures: u64,
    pub failed_seeds: Vec<u64>,
    pub notes: Vec<String>,
}

impl ArbitrationReport {
    /// Whether nothing was found, and the runs had something to find.
    pub fn is_clean(&self) -> bool {
        self.failures == 0 && self.failovers > 0
    }
}

impl Display for ArbitrationReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))?;
        write!(
            f,
            "{} runs: {} failovers, {} commits acknowledged, {} failures",
            self.runs, self.failovers, self.acknowledged, self.failures
        )
    }
}

/// Runs all seeds.
///
/// # Errors
/// None at the moment: a failure is part of the report.
pub fn arbitrate(config: &ArbitrationConfig) -> Result<ArbitrationReport> {
    let mut report = ArbitrationReport::default();
    let mut told = Instant::now();
    for seed in config.seed..config.seed.saturating_add(config.seeds) {
        for kind in &config.kinds {
            report.runs += 1;
            match run(seed, *kind, config.trace && seed == config.seed) {
                Ok(done) => {
                    report.failovers += done.promotions;
                    report.acknowledged += done.acknowledged as u64;
                }
                Err(finding) => {
                    report.failures += 1;
                    report.failed_seeds.push(seed);
                    if report.notes.len() < NOTES_MAX {
                        report
                            .notes
                            .push(format!("seed {seed}, {kind:?}, at {} ms: {}", finding.at, finding.what));
                    }
                }
            }
        }
        if config.progress && told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            eprintln!("seed {seed}: {report}");
        }
    }
    Ok(report)
}
