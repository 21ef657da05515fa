//! Effect of the standby's disk on a commit: none with FASTSYNC, full with SYNC AFFIRM.

use serde::Serialize;

use super::super::net::lab::{Lab, Labs};
use super::median;
use super::pair::{Pair, open};
use crate::systems::Mode;
use crate::{Result, interrupt};

const RTT_MS: f64 = 5.0;
/// Time that the fault adds to every write of the standby's log, milliseconds.
const SLOWER_MS: f64 = 20.0;
const FAULT: &str = "log-write=sleep:20@1+";
/// Bytes per second: so few transactions that none waits for another one.
const RATE: f64 = 20_000.0;
const BYTES: usize = 1 << 10;
const SESSIONS: usize = 4;

/// Median latencies of COMMIT in milliseconds, one per round.
#[derive(Debug, Default, Serialize)]
pub struct SlowDisk {
    /// Time that the fault adds to every write.
    pub slower_ms: f64,
    pub fastsync: Vec<f64>,
    pub fastsync_slow: Vec<f64>,
    pub affirm: Vec<f64>,
    pub affirm_slow: Vec<f64>,
}

impl SlowDisk {
    /// FASTSYNC with a slow disk relative to FASTSYNC without: 1 when a commit takes only the network time.
    pub(super) fn fastsync_ratio(&self) -> f64 {
        median(&self.fastsync_slow) / median(&self.fastsync)
    }
}

pub(super) fn slow_disk(labs: &Labs<'_>, rounds: usize) -> Result<SlowDisk> {
    eprintln!(
        "FASTSYNC and SYNC AFFIRM with a standby disk that takes {SLOWER_MS} ms longer, over {RTT_MS} ms"
    );
    let lab = open(labs, RTT_MS)?;
    let mut found = SlowDisk { slower_ms: SLOWER_MS, ..SlowDisk::default() };
    for _ in 0..rounds {
        found.fastsync.push(latency(labs, &lab, Mode::Fastsync, None)?);
        found.fastsync_slow.push(latency(labs, &lab, Mode::Fastsync, Some(FAULT))?);
        found.affirm.push(latency(labs, &lab, Mode::SyncAffirm, None)?);
        found.affirm_slow.push(latency(labs, &lab, Mode::SyncAffirm, Some(FAULT))?);
    }
    eprintln!("  {found:?}");
    Ok(found)
}

fn latency(labs: &Labs<'_>, lab: &Lab<'_>, mode: Mode, faults: Option<&str>) -> Result<f64> {
    let mut pair = Pair::start(labs, lab)?;
    pair.create_standby(faults)?;
    pair.ship(mode, &[])?;
    pair.await_follower(mode)?;
    let mut load = pair.load(SESSIONS, BYTES, Some(RATE))?;
    interrupt::pause(labs.context.warmup)?;
    load.measure()?;
    interrupt::pause(labs.context.measure)?;
    Ok(load.stop()?.latency.p50_us / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fastsync_is_compared_with_itself() {
        let found = SlowDisk {
            fastsync: vec![5.0, 6.0, 5.0],
            fastsync_slow: vec![5.5, 5.5, 9.0],
            ..SlowDisk::default()
        };
        assert!((found.fastsync_ratio() - 1.1).abs() < 1e-9);
    }
}
