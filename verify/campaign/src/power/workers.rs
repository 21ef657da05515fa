//! Partitions a campaign among processes: SQLite has one random number generator per process, and shared memory maps
//! and registered VFSs stay until the process ends.

use super::history::{Sabotage, run_boundaries, run_seed};
use super::report::PowerReport;
use crate::{CampaignError, During, Result};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SEEDS_AT_ONCE: u64 = 50;
/// Processes among which the boundaries of one history are partitioned.
const BOUNDARY_SHARES: u64 = 8;
/// Fixed histories whose boundaries are tried.
const FIXED_HISTORIES: u64 = 2;
const FIXED_EVENTS: u32 = 150;

#[derive(Clone, Copy, Debug)]
pub struct PowerConfig {
    /// Number of random histories, each with a seed of its own.
    pub seeds: u64,
    /// The first seed; the others follow.
    pub seed: u64,
    /// Also cut the power at every boundary of the fixed histories.
    pub boundaries: bool,
    /// Processes that run at the same time.
    pub jobs: usize,
    pub verbose: bool,
    /// Write the events of each history to standard error.
    pub trace: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// First seed and number of seeds.
    Seeds(u64, u64),
    /// Seed of the fixed history, and the number of the share of its boundaries.
    Boundaries(u64, u64),
}

impl Part {
    /// Runs the part in this process.
    pub fn run(self) -> PowerReport {
        match self {
            Part::Seeds(first, count) => {
                let mut sum = PowerReport { seed: first, ..PowerReport::default() };
                (first..first.saturating_add(count))
                    .for_each(|seed| sum.add(run_seed(seed, Sabotage::Nothing)));
                sum
            }
            Part::Boundaries(seed, share) => run_boundaries(seed, FIXED_EVENTS, (share, BOUNDARY_SHARES)),
        }
    }

    /// Formats the part as a value of `--part`.
    fn text(self) -> String {
        match self {
            Part::Seeds(first, count) => format!("seeds:{first}:{count}"),
            Part::Boundaries(seed, share) => format!("boundaries:{seed}:{share}"),
        }
    }
}

impl std::str::FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Part, String> {
        let mut words = text.split(':');
        let kind = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or("not a part of a campaign");
        match kind {
            "seeds" => Ok(Part::Seeds(number()?, number()?)),
            "boundaries" => Ok(Part::Boundaries(number()?, number()?)),
            _ => Err("not a part of a campaign".into()),
        }
    }
}

/// Runs the campaign in processes of this program.
///
/// # Errors
/// When a process cannot be started or does not report. Findings of the histories are in the report.
pub fn run(config: &PowerConfig) -> Result<PowerReport> {
    let mut parts = Vec::new();
    if config.boundaries {
        for history in 0..FIXED_HISTORIES {
            parts.extend((0..BOUNDARY_SHARES).map(|share| Part::Boundaries(history, share)));
        }
    }
    let mut first = 0;
    while first < config.seeds {
        let count = SEEDS_AT_ONCE.min(config.seeds - first);
        parts.push(Part::Seeds(config.seed.wrapping_add(first), count));
        first += count;
    }
    parts.reverse();
    let mut sum = PowerReport { seed: config.seed, ..PowerReport::default() };
    let mut running: Vec<(Part, Child)> = Vec::new();
    let (began, mut printed) = (Instant::now(), Instant::now());
    while !parts.is_empty() || !running.is_empty() {
        while running.len() < config.jobs.max(1)
            && let Some(part) = parts.pop()
        {
            running.push((part, start(part, config.trace)?));
        }
        let done = running.iter_mut().position(|(_, child)| !matches!(child.try_wait(), Ok(None)));
        match done {
            Some(index) => {
                let (part, child) = running.swap_remove(index);
                let report = collect(part, child)?;
                if config.verbose {
                    report.notes.iter().for_each(|note| eprintln!("{note}"));
                }
                sum.add(report);
            }
            // There is no way to wait for several children at once.
            None => std::thread::sleep(Duration::from_millis(20)),
        }
        if config.verbose && printed.elapsed() > Duration::from_secs(20) {
            printed = Instant::now();
            eprintln!(
                "{} s: {} seeds, {} boundaries, {} power losses, {} findings",
                began.elapsed().as_secs(),
                sum.seeds,
                sum.boundaries,
                sum.crashes,
                sum.notes.len()
            );
        }
    }
    sum.failed_seeds.sort_unstable();
    Ok(sum)
}

fn start(part: Part, trace: bool) -> Result<Child> {
    let program = std::env::current_exe().during(|| "find this program".into())?;
    Command::new(program)
        .args(["power", "--part", &part.text()])
        .args(trace.then_some("--trace"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .during(|| "start a process of the campaign".into())
}

fn collect(part: Part, mut child: Child) -> Result<PowerReport> {
    let mut text = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut text).during(|| "read a process of the campaign".into())?;
    }
    let status = child.wait().during(|| "wait for a process of the campaign".into())?;
    serde_json::from_str(&text).map_err(|error| CampaignError::Program {
        program: format!("power --part {}", part.text()),
        problem: format!("{status}; {error}"),
        output: String::new(),
    })
}
