//! Effect on commits while a second standby that was disconnected fetches gigabytes of archived logs. Commits wait for
//! the first standby, which is on another host. The work on the second standby's host must not affect them.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::super::net::lab::{FAR, Labs, NEAR, link};
use super::pair::{Pair, open_as_it_is};
use super::{MEGABITS, median};
use crate::redo_load::LoadResult;
use crate::systems::{Mode, StandbyOptions};
use crate::{Result, interrupt};

const RTT_MS: f64 = 10.0;
/// Host of the standby that was disconnected.
const THIRD: &str = "c";
/// Bytes of redo that the standby lacks.
const GAP_BYTES: f64 = 2e9;
const GROUP_BYTES: u64 = 256 << 20;
/// Live redo: bytes per second, bytes per transaction, and sessions.
const LIVE: (f64, usize, usize) = (10e6, 8 << 10, 24);
/// How long commits are measured without the gap. In that time a log group fills and is archived, and the WAL is reset
/// several times, as while the gap is resolved: one commit in a hundred waits for those, which the 99th percentile
/// shows.
const BEFORE: Duration = Duration::from_secs(40);

/// Commits before and while the gap was resolved, one result of each per round.
#[derive(Debug, Default, Serialize)]
pub struct Gap {
    pub before: Vec<LoadResult>,
    pub meanwhile: Vec<LoadResult>,
    /// Seconds until the standby had all redo.
    pub seconds: Vec<f64>,
}

impl Gap {
    /// The 99th percentile of COMMIT while the gap is resolved, divided by that before.
    pub(super) fn growth(&self) -> f64 {
        let p99 = |all: &[LoadResult]| median(&all.iter().map(|one| one.latency.p99_us).collect::<Vec<_>>());
        p99(&self.meanwhile) / p99(&self.before)
    }
}

pub(super) fn gap(labs: &Labs<'_>, rounds: usize) -> Result<Gap> {
    eprintln!("live redo while a standby gets a gap of {GAP_BYTES} bytes");
    let lab = open_as_it_is(labs, &[NEAR, FAR, THIRD], link(RTT_MS, MEGABITS))?;
    let mut found = Gap::default();
    for _ in 0..rounds {
        let settings = [("group_bytes", GROUP_BYTES), ("archive_bytes_max", 4 * GAP_BYTES as u64)];
        let mut pair = Pair::start_with(labs, &lab, &settings, false)?;
        pair.create_standby(None)?;
        pair.ship(Mode::SyncAffirm, &[])?;
        pair.await_follower(Mode::SyncAffirm)?;
        let third = StandbyOptions { name: "third", behind: true, ..StandbyOptions::default() };
        pair.create_standby_at(THIRD, third)?;
        let (_, gap_end) = pair.backlog(GAP_BYTES)?;
        pair.archive()?;

        let (rate, bytes, sessions) = LIVE;
        let mut load = pair.load(sessions, bytes, Some(rate))?;
        interrupt::pause(labs.context.warmup)?;
        load.measure()?;
        interrupt::pause(BEFORE)?;
        found.before.push(load.stop()?);

        let mut load = pair.load(sessions, bytes, Some(rate))?;
        interrupt::pause(labs.context.warmup)?;
        load.measure()?;
        let begun = Instant::now();
        pair.ship(Mode::Async, &["--max-connections", "4"])?;
        pair.await_hardened(gap_end)?;
        found.seconds.push(begun.elapsed().as_secs_f64());
        found.meanwhile.push(load.stop()?);
    }
    eprintln!("  p99 grows {:.2}x, {:?} s", found.growth(), found.seconds);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::LatencySummary;

    #[test]
    fn p99_during_gap_resolution_is_compared_with_p99_before() {
        let of = |p99_us| LoadResult {
            commits_per_second: 1.0,
            latency: LatencySummary { p99_us, ..crate::statistics::Latencies::default().summary() },
        };
        let gap =
            Gap { before: vec![of(10.0), of(12.0), of(11.0)], meanwhile: vec![of(22.0)], seconds: vec![] };
        assert_eq!(gap.growth(), 2.0);
    }
}
