//! Cost of a standby for the primary: transactions that arrive at a given rate, with and without a standby. Also how
//! much of their redo the standby has not received at any moment.

use std::time::Instant;

use serde::Serialize;

use super::super::net::lab::{Lab, Labs};
use super::median;
use super::pair::{Pair, open};
use crate::redo_load::LoadResult;
use crate::systems::Mode;
use crate::{Result, interrupt};

/// Pause between two polls of both ends.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Offered {
    /// Bytes of content per second, all sessions together.
    pub rate: f64,
    /// Bytes of the row that each transaction inserts.
    pub bytes: usize,
    pub sessions: usize,
}

/// One value per round in each list.
#[derive(Debug, Serialize)]
pub struct Impact {
    pub rtt_ms: f64,
    pub offered: Offered,
    pub with: Vec<LoadResult>,
    /// Results of the primary without the standby.
    pub without: Vec<LoadResult>,
    /// 99th percentile of the redo that the standby had not received, in seconds of redo; one value per round.
    pub exposure: Vec<f64>,
}

impl Impact {
    /// Share of the commits per second that a standby costs, in percent.
    pub(super) fn percent(&self) -> f64 {
        let rates =
            |runs: &[LoadResult]| -> Vec<f64> { runs.iter().map(|run| run.commits_per_second).collect() };
        (1.0 - median(&rates(&self.with)) / median(&rates(&self.without))) * 100.0
    }

    /// Seconds of redo that a loss of the primary would have lost.
    pub(super) fn exposure(&self) -> f64 {
        median(&self.exposure)
    }
}

/// Measures both in turns, alternating which one is first.
pub(super) fn impact(
    labs: &Labs<'_>,
    rounds: usize,
    rtt_ms: f64,
    mode: Mode,
    offered: Offered,
) -> Result<Impact> {
    eprintln!("{mode:?} over {rtt_ms} ms at {} MB/s of redo", offered.rate / 1e6);
    let lab = open(labs, rtt_ms)?;
    let mut found = Impact { rtt_ms, offered, with: Vec::new(), without: Vec::new(), exposure: Vec::new() };
    for round in 0..rounds {
        for with in if round % 2 == 0 { [true, false] } else { [false, true] } {
            if with {
                let (result, exposure) = run(labs, &lab, Some(mode), offered)?;
                found.with.push(result);
                found.exposure.push(exposure);
            } else {
                found.without.push(run(labs, &lab, None, offered)?.0);
            }
        }
    }
    eprintln!("  impact {:.1} %, exposure {:.3} s", found.percent(), found.exposure());
    Ok(found)
}

fn run(labs: &Labs<'_>, lab: &Lab<'_>, mode: Option<Mode>, offered: Offered) -> Result<(LoadResult, f64)> {
    let mut pair = Pair::start(labs, lab)?;
    if let Some(mode) = mode {
        pair.create_standby(None)?;
        pair.ship(mode, &[])?;
        pair.await_follower(mode)?;
    }
    let mut load = pair.load(offered.sessions, offered.bytes, Some(offered.rate))?;
    interrupt::pause(labs.context.warmup)?;
    load.measure()?;
    let begun = Instant::now();
    let mut behind = Vec::new();
    while begun.elapsed() < labs.context.measure {
        if mode.is_some() {
            // Poll the standby first: redo that the primary captures in between counts as not received.
            let received = pair.of_standby("received")?.1;
            behind.push((pair.of_primary("captured")? - received).max(0.0) / offered.rate);
        }
        interrupt::pause(LOOK)?;
    }
    Ok((load.stop()?, almost_worst(&mut behind)))
}

/// 99th percentile of `values`; 0 when there are none.
fn almost_worst(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() * 99).div_ceil(100).saturating_sub(1);
    values.get(index).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Latencies;

    fn results(rates: &[f64]) -> Vec<LoadResult> {
        let latency = Latencies::default().summary();
        rates.iter().map(|rate| LoadResult { commits_per_second: *rate, latency }).collect()
    }

    #[test]
    fn impact_is_the_drop_from_the_rate_without_a_standby() {
        let impact = Impact {
            rtt_ms: 10.0,
            offered: Offered { rate: 1e6, bytes: 1000, sessions: 1 },
            with: results(&[950.0, 90.0, 980.0]),
            without: results(&[1000.0, 1000.0, 990.0]),
            exposure: vec![0.1, 0.3, 0.2],
        };
        assert!((impact.percent() - 5.0).abs() < 1e-9);
        assert_eq!(impact.exposure(), 0.2);
    }

    #[test]
    fn almost_worst_ignores_one_value_of_a_hundred() {
        let mut values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(almost_worst(&mut values), 99.0);
        assert_eq!(almost_worst(&mut [7.0]), 7.0);
        assert_eq!(almost_worst(&mut []), 0.0);
    }
}
