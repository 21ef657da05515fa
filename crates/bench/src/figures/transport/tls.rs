//! What encryption costs: the goodput of a backlog, and a synchronous commit at a time, over TLS and plain, on hosts that
//! are next to each other.

use std::time::Instant;

use serde::Serialize;
use standfast_wan::settings::Settings;

use super::super::net::lab::{FAR, Lab, Labs, NEAR};
use super::median;
use super::pair::{Pair, STANDSTILL, open_as_it_is};
use crate::systems::Mode;
use crate::{BenchError, Result, interrupt};

/// What the standby has to take, bytes.
const BACKLOG_BYTES: f64 = 1e9;
/// Bytes of a transaction whose latency is measured, one after the other.
const COMMIT_BYTES: usize = 256;
/// Pairs of instances of each kind whose latency is measured in a round: each pair has one of its own, which differs from
/// the next one's by more than encryption costs.
const PAIRS: usize = 3;

/// Over one kind of connection: one rate a round, and [`PAIRS`] latencies.
#[derive(Debug, Default, Serialize)]
pub struct Over {
    /// Bytes of redo a second that reach the standby's disk.
    pub rate: Vec<f64>,
    /// Median latency of COMMIT with SYNC AFFIRM, microseconds.
    pub latency_us: Vec<f64>,
}

/// Both.
#[derive(Debug, Default, Serialize)]
pub struct Tls {
    /// TLS 1.3.
    pub encrypted: Over,
    /// Plain TCP.
    pub plain: Over,
}

impl Tls {
    /// Throughput against plain TCP.
    pub(super) fn throughput_ratio(&self) -> f64 {
        median(&self.encrypted.rate) / median(&self.plain.rate)
    }

    /// Microseconds that a commit takes longer.
    pub(super) fn added_us(&self) -> f64 {
        median(&self.encrypted.latency_us) - median(&self.plain.latency_us)
    }
}

/// Measures both in turns.
pub(super) fn tls(labs: &Labs<'_>, rounds: usize) -> Result<Tls> {
    eprintln!("TLS and plain TCP");
    let lab = open_as_it_is(labs, &[NEAR, FAR], Settings::default())?;
    let mut found = Tls::default();
    for _ in 0..rounds {
        for encrypted in [false, true] {
            let over = if encrypted { &mut found.encrypted } else { &mut found.plain };
            over.rate.push(rate(labs, &lab, encrypted)?);
        }
        for turn in 0..2 * PAIRS {
            let encrypted = turn % 2 == 1;
            let over = if encrypted { &mut found.encrypted } else { &mut found.plain };
            over.latency_us.push(latency(labs, &lab, encrypted)?);
        }
    }
    eprintln!("  {found:?}");
    Ok(found)
}

fn rate(labs: &Labs<'_>, lab: &Lab<'_>, encrypted: bool) -> Result<f64> {
    // The stream alone.
    let mut pair = Pair::start_with(labs, lab, &[("archive_processes", 1)], encrypted)?;
    pair.create_standby(None)?;
    let (from, end) = pair.backlog(BACKLOG_BYTES)?;
    pair.ship(Mode::Async, &[])?;
    let mut seen = Vec::new();
    interrupt::await_amount("redo on the standby", end, STANDSTILL, || {
        let (at, hardened) = pair.of_standby("hardened")?;
        seen.push((at, hardened));
        Ok(hardened)
    })?;
    between(&seen, from, end)
}

/// Bytes a second between the first and the last look that saw redo come: before and after, nothing does.
fn between(seen: &[(Instant, f64)], from: f64, end: f64) -> Result<f64> {
    let moving: Vec<_> = seen.iter().filter(|(_, hardened)| from < *hardened && *hardened < end).collect();
    match moving[..] {
        [first, .., last] if first.1 < last.1 => Ok((last.1 - first.1) / (last.0 - first.0).as_secs_f64()),
        _ => Err(BenchError::Workload("the redo came faster than one could look".into())),
    }
}

fn latency(labs: &Labs<'_>, lab: &Lab<'_>, encrypted: bool) -> Result<f64> {
    let mut pair = Pair::start_with(labs, lab, &[], encrypted)?;
    pair.create_standby(None)?;
    pair.ship(Mode::SyncAffirm, &[])?;
    pair.await_follower(Mode::SyncAffirm)?;
    let mut load = pair.load(1, COMMIT_BYTES, None)?;
    interrupt::pause(labs.context.warmup)?;
    load.measure()?;
    interrupt::pause(labs.context.measure)?;
    Ok(load.stop()?.latency.p50_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn encryption_is_compared_with_none() {
        let over = |rate, latency_us| Over { rate: vec![rate], latency_us: vec![latency_us] };
        let found = Tls { encrypted: over(80.0, 112.0), plain: over(100.0, 100.0) };
        assert_eq!((found.throughput_ratio(), found.added_us()), (0.8, 12.0));
    }

    #[test]
    fn the_rate_is_that_while_redo_comes() {
        let begun = Instant::now();
        let seen: Vec<_> = [(0, 5.0), (1, 5.0), (2, 25.0), (3, 45.0), (4, 65.0), (9, 70.0)]
            .map(|(s, hardened)| (begun + Duration::from_secs(s), hardened))
            .into();
        assert_eq!(between(&seen, 5.0, 70.0).unwrap(), 20.0);
        assert!(between(&seen[..3], 5.0, 70.0).is_err(), "one look");
    }
}
