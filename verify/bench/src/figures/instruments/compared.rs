//! Reproduces the documented comparisons about synchronous transport with `standfast report --compare`: no standby, a
//! standby with a log of two members of which one is slow, and the same standby with the fast member alone. The time
//! that commits lose must appear as remote write, and the network part must be the same in both.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::super::net::lab::{FAR, Labs, NEAR, link};
use super::super::transport::pair::{Pair, open_as_it_is};
use crate::systems::Mode;
use crate::{Result, interrupt};

const RTT_MS: f64 = 1.0;
const MEGABITS: f64 = 1000.0;
/// Sessions, bytes per transaction and bytes per second.
const LOAD: (usize, usize, f64) = (8, 1 << 10, 200e3);
const INTERVAL: Duration = Duration::from_secs(5);
const SETTLE: Duration = Duration::from_secs(1);
const SLOW_MEMBER: &str = "slow";
const SLOW: &str = "log-write:/slow/=sleep:10@1+";
/// Share of the added commit time that the remote write must explain.
const EXPLAINED: f64 = 0.8;
/// Largest change of the network part, as a share of what commits gain with the fast log: the network is the same.
const SAME: f64 = 0.05;

/// Mean times per commit in two intervals, milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Compared {
    /// The wait event `log file sync`.
    sync: (f64, f64),
    remote_write: (f64, f64),
    network: (f64, f64),
}

impl Compared {
    fn of(comparison: &Value) -> Option<Compared> {
        let figure = |list: &str, name: &str| {
            let mut all = comparison[list].as_array()?.iter();
            let figure = all.find(|figure| figure["name"] == name)?;
            // Without a standby the part is absent.
            let mean = |side: &str| figure[side].as_f64().unwrap_or(0.0);
            Some((mean("before"), mean("after")))
        };
        Some(Compared {
            sync: figure("key", "log file sync")?,
            remote_write: figure("parts", "remote write")?,
            network: figure("parts", "network")?,
        })
    }
}

/// The three comparisons; None when the report lacks a figure.
#[derive(Debug, Serialize)]
pub struct Tables {
    /// No standby, then the slow standby log.
    none_slow: Option<Compared>,
    /// The slow standby log, then the fast one.
    slow_fast: Option<Compared>,
    /// No standby, then the fast standby log.
    none_fast: Option<Compared>,
}

impl Tables {
    /// Number of comparisons without the documented shape.
    pub(super) fn wrong(&self) -> f64 {
        let change = |(before, after): (f64, f64)| after - before;
        let longer = |one: &Compared| {
            let loss = change(one.sync);
            loss > 0.0 && change(one.remote_write) + change(one.network) >= EXPLAINED * loss
        };
        let by_the_disk =
            |one: &Compared| longer(one) && change(one.remote_write) >= EXPLAINED * change(one.sync);
        let healed = |one: &Compared| {
            let (slow, fast) = one.network;
            let gain = -change(one.sync);
            gain > 0.0 && -change(one.remote_write) >= EXPLAINED * gain && (slow - fast).abs() <= SAME * gain
        };
        let shapes = [
            self.none_slow.as_ref().is_some_and(by_the_disk),
            self.slow_fast.as_ref().is_some_and(healed),
            self.none_fast.as_ref().is_some_and(longer),
        ];
        shapes.iter().filter(|right| !**right).count() as f64
    }
}

pub(super) fn tables(labs: &Labs<'_>) -> Result<Tables> {
    let lab = open_as_it_is(labs, &[NEAR, FAR], link(RTT_MS, MEGABITS))?;
    let mut pair = Pair::start(labs, &lab)?;
    let (sessions, bytes, rate) = LOAD;
    let load = pair.load(sessions, bytes, Some(rate))?;
    let none = interval(&pair)?;
    pair.create_standby(Some(SLOW))?;
    pair.add_log_member(SLOW_MEMBER)?;
    pair.ship(Mode::SyncAffirm, &[])?;
    pair.await_follower(Mode::SyncAffirm)?;
    let slow = interval(&pair)?;
    pair.drop_log_member(SLOW_MEMBER)?;
    let fast = interval(&pair)?;
    load.stop()?;
    let compare = |before: [i64; 2], after: [i64; 2]| {
        let comparison = pair.primary().compare(before, after)?;
        Ok(Compared::of(&comparison))
    };
    let tables = Tables {
        none_slow: compare(none, slow)?,
        slow_fast: compare(slow, fast)?,
        none_fast: compare(none, fast)?,
    };
    eprintln!("comparisons: {tables:?}");
    Ok(tables)
}

/// Takes snapshots at the begin and the end of an interval.
fn interval(pair: &Pair<'_>) -> Result<[i64; 2]> {
    interrupt::pause(SETTLE)?;
    let from = pair.primary().snapshot()?;
    interrupt::pause(INTERVAL)?;
    Ok([from, pair.primary().snapshot()?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn compared(sync: (f64, f64), remote_write: (f64, f64), network: (f64, f64)) -> Option<Compared> {
        Some(Compared { sync, remote_write, network })
    }

    fn right() -> Tables {
        Tables {
            none_slow: compared((0.2, 12.0), (0.0, 10.5), (0.0, 1.1)),
            slow_fast: compared((12.0, 1.6), (10.5, 0.3), (1.1, 1.2)),
            none_fast: compared((0.2, 1.6), (0.0, 0.3), (0.0, 1.1)),
        }
    }

    #[test]
    fn comparison_must_show_a_slow_log_and_an_unchanged_network() {
        assert_eq!(right().wrong(), 0.0);
        let by_the_network = Tables { slow_fast: compared((12.0, 1.6), (1.0, 0.3), (10.5, 1.2)), ..right() };
        assert_eq!(by_the_network.wrong(), 1.0);
        let moved = Tables { slow_fast: compared((12.0, 1.6), (10.5, 0.3), (1.8, 1.1)), ..right() };
        assert_eq!(moved.wrong(), 1.0);
        let not_known =
            Tables { none_slow: None, none_fast: compared((2.0, 1.0), (0.0, 0.3), (0.0, 1.1)), ..right() };
        assert_eq!(not_known.wrong(), 2.0);
    }

    #[test]
    fn figures_are_found_by_their_names() {
        let document = json!({
            "key": [{"name": "TPS", "before": 5.0}, {"name": "log file sync", "before": 0.2, "after": 1.5}],
            "parts": [{"name": "network", "before": null, "after": 1.1}, {"name": "remote write", "after": 0.3}],
        });
        let found = Compared::of(&document).unwrap();
        assert_eq!((found.sync, found.network, found.remote_write), ((0.2, 1.5), (0.0, 1.1), (0.0, 0.3)));
        assert!(Compared::of(&json!({"key": []})).is_none());
    }
}
