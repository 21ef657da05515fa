//! The parts of a commit: whether they add up to what the application's stopwatch shows, and whether a delay that is
//! injected in one place appears in the part of that place.

use serde::Serialize;
use standfast_instruments::{CommitPart, Sample};

use super::super::net::lab::{FAR, Lab, Labs, NEAR, link_or_wire};
use super::super::transport::median;
use super::super::transport::pair::{Pair, open_as_it_is};
use crate::redo_load::Config;
use crate::systems::Mode;
use crate::{BenchError, Result, interrupt};

/// Numbers of clients; below, round trips in milliseconds.
const CLIENTS: [usize; 3] = [1, 8, 40];
const RTTS: [f64; 3] = [0.0, 1.0, 10.0];
const BYTES: usize = 256;
/// Length of an injected delay, milliseconds.
const DELAY_MS: f64 = 10.0;
const SLOW_DISK: &str = "log-write=sleep:10@1+";
/// Delays the log writer, as a busy processor would.
const SLOW_CAPTURE: &str = "capture=sleep:10@1+";
/// Megabits per second of the link: more than commits need.
const MEGABITS: f64 = 1000.0;

/// Mean times per commit in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Anatomy {
    pub stopwatch_us: f64,
    /// By part, in the order of [`CommitPart::ALL`].
    pub parts_us: Vec<f64>,
}

impl Anatomy {
    fn of(&self, part: CommitPart) -> f64 {
        self.parts_us.get(part.index()).copied().unwrap_or(f64::NAN)
    }

    fn sum(&self) -> f64 {
        self.parts_us.iter().sum()
    }
}

/// Commits of some clients over some round trip, one anatomy per round.
#[derive(Debug, Serialize)]
pub struct Commits {
    pub clients: usize,
    pub rtt_ms: f64,
    pub found: Vec<Anatomy>,
}

impl Commits {
    /// Distance of the sum of the parts from the stopwatch, in percent of the latter.
    pub(super) fn apart(&self) -> f64 {
        let apart = |one: &Anatomy| (one.sum() / one.stopwatch_us - 1.0).abs() * 100.0;
        median(&self.found.iter().map(apart).collect::<Vec<_>>())
    }
}

/// Commits without and with a delay in one place, in turns.
#[derive(Debug, Serialize)]
pub struct Delayed {
    pub place: &'static str,
    /// The part to which the delay belongs.
    pub part: CommitPart,
    pub without: Vec<Anatomy>,
    pub with: Vec<Anatomy>,
}

impl Delayed {
    /// Share of the added commit time that is not in the part to which it belongs, in percent.
    pub(super) fn stray(&self) -> f64 {
        let mean =
            |all: &[Anatomy], of: &dyn Fn(&Anatomy) -> f64| median(&all.iter().map(of).collect::<Vec<_>>());
        let longer = |of: &dyn Fn(&Anatomy) -> f64| mean(&self.with, of) - mean(&self.without, of);
        let (all, part) = (longer(&|one| one.stopwatch_us), longer(&|one| one.of(self.part)));
        ((part / all) - 1.0).abs() * 100.0
    }
}

/// Largest value of `of`; NaN when any value is NaN.
pub(super) fn worst<T>(all: &[T], of: fn(&T) -> f64) -> f64 {
    all.iter()
        .map(of)
        .fold(0.0, |worst, one| if worst.is_nan() || one.is_nan() { f64::NAN } else { worst.max(one) })
}

/// Measures all numbers of clients over all round trips.
pub(super) fn commits(labs: &Labs<'_>, rounds: usize) -> Result<Vec<Commits>> {
    let mut all = Vec::new();
    for rtt_ms in RTTS {
        let lab = lab(labs, rtt_ms)?;
        for clients in CLIENTS {
            let mut commits = Commits { clients, rtt_ms, found: Vec::new() };
            for _ in 0..rounds {
                commits.found.push(anatomy(labs, &lab, clients, Faults::default())?);
            }
            eprintln!("{clients} clients, {rtt_ms} ms: the parts are {:.2} % apart", commits.apart());
            all.push(commits);
        }
    }
    Ok(all)
}

/// Measures with a delay in each place.
pub(super) fn delayed(labs: &Labs<'_>, rounds: usize) -> Result<Vec<Delayed>> {
    let (near, far) = (lab(labs, 0.0)?, lab(labs, DELAY_MS)?);
    let none = Faults::default();
    let primary = Faults { primary: Some(SLOW_DISK), ..none };
    let standby = Faults { standby: Some(SLOW_DISK), ..none };
    let processor = Faults { primary: Some(SLOW_CAPTURE), ..none };
    let lock = Faults { lock_held_ms: Some(DELAY_MS as u64), ..none };
    let places = [
        ("disk of the primary", CommitPart::LocalWrite, &near, primary),
        ("disk of the standby", CommitPart::RemoteWrite, &near, standby),
        ("network", CommitPart::Network, &far, none),
        ("write lock", CommitPart::WriteLockQueue, &near, lock),
        ("processor of the log writer", CommitPart::Gather, &near, processor),
    ];
    let mut all = Vec::new();
    for (place, part, lab, faults) in places {
        let mut delayed = Delayed { place, part, without: Vec::new(), with: Vec::new() };
        for _ in 0..rounds {
            delayed.without.push(anatomy(labs, &near, 1, none)?);
            delayed.with.push(anatomy(labs, lab, 1, faults)?);
        }
        eprintln!("{DELAY_MS} ms, {place}: {:.1} % of it are elsewhere", delayed.stray());
        all.push(delayed);
    }
    Ok(all)
}

fn lab<'l>(labs: &'l Labs<'l>, rtt_ms: f64) -> Result<Lab<'l>> {
    open_as_it_is(labs, &[NEAR, FAR], link_or_wire(rtt_ms, MEGABITS))
}

/// Fault points of both ends, and how long a further session holds the write lock.
#[derive(Clone, Copy, Default)]
struct Faults {
    primary: Option<&'static str>,
    standby: Option<&'static str>,
    lock_held_ms: Option<u64>,
}

fn anatomy(labs: &Labs<'_>, lab: &Lab<'_>, clients: usize, faults: Faults) -> Result<Anatomy> {
    let mut pair = Pair::start_faulty(labs, lab, faults.primary)?;
    pair.create_standby(faults.standby)?;
    pair.ship(Mode::SyncAffirm, &[])?;
    pair.await_follower(Mode::SyncAffirm)?;
    let config = pair.load_config(clients, BYTES)?;
    let mut load = pair.start_load(&Config { lock_held_ms: faults.lock_held_ms, ..config })?;
    interrupt::pause(labs.context.warmup)?;
    let before = pair.primary().observe()?.sample;
    load.measure()?;
    interrupt::pause(labs.context.measure)?;
    let after = pair.primary().observe()?.sample;
    let result = load.stop()?;
    means(&before, &after, result.latency.mean_us)
}

fn means(before: &Sample, after: &Sample, stopwatch_us: f64) -> Result<Anatomy> {
    let interval = after.since(before);
    let interval =
        interval.ok_or_else(|| BenchError::Workload("the instance was restarted meanwhile".into()))?;
    let of = |part| interval.part(part);
    let commits = of(CommitPart::Transaction).map_or(0, |counts| counts.count);
    let mean = |part| of(part).map_or(f64::NAN, |counts| counts.time_ns as f64 / 1e3 / commits as f64);
    Ok(Anatomy { stopwatch_us, parts_us: CommitPart::ALL.into_iter().map(mean).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anatomy(stopwatch_us: f64, local: f64, network: f64) -> Anatomy {
        let mut parts_us = vec![0.0; CommitPart::ALL.len()];
        parts_us[CommitPart::LocalWrite.index()] = local;
        parts_us[CommitPart::Network.index()] = network;
        Anatomy { stopwatch_us, parts_us }
    }

    #[test]
    fn sum_of_parts_below_the_stopwatch_time_counts_as_difference() {
        let found = vec![anatomy(100.0, 60.0, 38.0), anatomy(100.0, 60.0, 39.0), anatomy(100.0, 10.0, 0.0)];
        let commits = Commits { clients: 1, rtt_ms: 0.0, found };
        assert!((commits.apart() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn delay_shown_in_another_part_counts_as_stray() {
        let delayed = |with| Delayed {
            place: "network",
            part: CommitPart::Network,
            without: vec![anatomy(100.0, 80.0, 20.0)],
            with: vec![with],
        };
        assert!(delayed(anatomy(1100.0, 80.0, 1020.0)).stray() < 1e-9);
        assert!((delayed(anatomy(1100.0, 180.0, 920.0)).stray() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn worst_is_the_largest_value_or_nan_if_one_is_unknown() {
        assert_eq!(worst(&[1.0, 5.0, 2.0], |one| *one), 5.0);
        assert!(worst(&[1.0, f64::NAN, 2.0], |one| *one).is_nan());
    }
}
