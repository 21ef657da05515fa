//! Campaigns are shared out to processes: SQLite has one generator of random numbers per process, and maps of
//! shared memory and registered VFSs stay until it ends.

use super::history::{Sabotage, run_boundaries, run_seed};
use super::report::PowerReport;
use crate::{CampaignError, During, Result};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Seeds that one process runs.
const SEEDS_AT_ONCE: u64 = 50;
/// Processes among which the boundaries of one history are shared out.
const BOUNDARY_SHARES: u64 = 8;
/// Fixed histories whose boundaries are tried.
const FIXED_HISTORIES: u64 = 2;
const FIXED_EVENTS: u32 = 150;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct PowerConfig {
    /// Random histories.
    pub seeds: u64,
    /// The first seed; the others follow.
    pub seed: u64,
    /// Whether every boundary of the fixed histories is tried, too.
    pub boundaries: bool,
    /// Processes at the same time.
    pub jobs: usize,
    /// Say on standard error how far it is.
    pub verbose: bool,
    /// Say on standard error what happens in each history.
    pub trace: bool,
}

/// One process's part.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// Seeds from the first on.
    Seeds(u64, u64),
    /// One share of the boundaries of the fixed history with this seed.
    Boundaries(u64, u64),
}

impl Part {
    /// Runs it in this process.
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

    /// As the value of `--part`.
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
/// When a process cannot be started or does not report. What a history finds is in the report.
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
    let (began, mut said) = (Instant::now(), Instant::now());
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
                sum.add(collect(part, child)?);
            }
            // Children give no other notice that could be awaited for several of them at once.
            None => std::thread::sleep(Duration::from_millis(20)),
        }
        if config.verbose && said.elapsed() > Duration::from_secs(20) {
            said = Instant::now();
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
