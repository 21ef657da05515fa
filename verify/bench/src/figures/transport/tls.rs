//! Cost of encryption: the goodput of a backlog, and the latency of successive synchronous commits, over TLS and plain
//! TCP, on adjacent hosts.

use std::time::Instant;

use serde::Serialize;
use standfast_wan::settings::Settings;

use super::super::net::lab::{FAR, Lab, Labs, NEAR};
use super::median;
use super::pair::{Pair, STANDSTILL, open_as_it_is};
use crate::systems::Mode;
use crate::{BenchError, Result, interrupt};

/// Bytes of redo that the standby has to catch up.
const BACKLOG_BYTES: f64 = 1e9;
/// Bytes per transaction of the latency test, which runs one transaction after the other.
const COMMIT_BYTES: usize = 256;
/// Pairs of instances of each kind whose latency is measured per round: latency varies between pairs by more than
/// encryption costs.
const PAIRS: usize = 3;

/// Results over one kind of connection: one rate and [`PAIRS`] latencies per round.
#[derive(Debug, Default, Serialize)]
pub struct Over {
    /// Bytes of redo per second that reach the standby's disk.
    pub rate: Vec<f64>,
    /// Median latency of COMMIT with SYNC AFFIRM, microseconds.
    pub latency_us: Vec<f64>,
}

/// Results over both kinds of connection.
#[derive(Debug, Default, Serialize)]
pub struct Tls {
    pub encrypted: Over,
    pub plain: Over,
}

impl Tls {
    /// Throughput over TLS relative to plain TCP.
    pub(super) fn throughput_ratio(&self) -> f64 {
        median(&self.encrypted.rate) / median(&self.plain.rate)
    }

    /// Microseconds that TLS adds to a commit.
    pub(super) fn added_us(&self) -> f64 {
        median(&self.encrypted.latency_us) - median(&self.plain.latency_us)
    }
}

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
    // Only the stream.
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

/// Bytes per second between the first and the last poll that saw redo arrive; before and after them none arrives.
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
    fn rate_covers_only_the_time_while_redo_arrives() {
        let begun = Instant::now();
        let seen: Vec<_> = [(0, 5.0), (1, 5.0), (2, 25.0), (3, 45.0), (4, 65.0), (9, 70.0)]
            .map(|(s, hardened)| (begun + Duration::from_secs(s), hardened))
            .into();
        assert_eq!(between(&seen, 5.0, 70.0).unwrap(), 20.0);
        assert!(between(&seen[..3], 5.0, 70.0).is_err(), "one look");
    }
}
