//! How long a standby takes to fetch a log that was archived while it was disconnected: over one connection and over
//! several, in large units and small ones. The hosts have the default socket buffers of the system, which is why
//! several connections are faster over a long link.

use std::time::Instant;

use serde::Serialize;
use standfast_wan::settings::Queue;

use super::super::net::lab::{FAR, Lab, Labs, NEAR, ample_buffer, link};
use super::pair::{Pair, open_as_it_is};
use super::{MEGABITS, median};
use crate::Result;
use crate::systems::Mode;

/// Bytes of redo that are shipped.
const LOG_BYTES: f64 = 1e9;
/// Size of a log file that holds all of it.
const GROUP_BYTES: u64 = 1_107_296_256;
const RTTS: [f64; 2] = [25.0, 100.0];
/// Connections and unit size in bytes; the figure compares the first two.
const WAYS: [(u32, u64); 3] = [(1, 10 << 20), (5, 10 << 20), (5, 1 << 20)];

/// Results of one round trip and one way.
#[derive(Debug, Serialize)]
pub struct Shipped {
    pub rtt_ms: f64,
    pub connections: u32,
    /// Bytes that the standby requests at a time.
    pub unit_bytes: u64,
    /// Seconds from the command that adds the destination until all redo is on the standby's disk, one value per round.
    pub seconds: Vec<f64>,
}

pub(super) fn ship(labs: &Labs<'_>, rounds: usize) -> Result<Vec<Shipped>> {
    let mut all = Vec::new();
    for rtt_ms in RTTS {
        let mut settings = link(rtt_ms, MEGABITS);
        // The most that five connections have in flight.
        settings.queue = Queue::Bytes(4 * ample_buffer(&settings));
        let lab = open_as_it_is(labs, &[NEAR, FAR], settings)?;
        let mut of_lab = WAYS.map(|(connections, unit_bytes)| Shipped {
            rtt_ms,
            connections,
            unit_bytes,
            seconds: Vec::new(),
        });
        for _ in 0..rounds {
            for shipped in &mut of_lab {
                let seconds = one(labs, &lab, shipped.connections, shipped.unit_bytes)?;
                let Shipped { connections, unit_bytes, .. } = shipped;
                eprintln!(
                    "1 GB over {rtt_ms} ms, {connections} connections, units of {unit_bytes} bytes: {seconds:.1} s"
                );
                shipped.seconds.push(seconds);
            }
        }
        all.extend(of_lab);
    }
    Ok(all)
}

fn one(labs: &Labs<'_>, lab: &Lab<'_>, connections: u32, unit_bytes: u64) -> Result<f64> {
    let settings = [
        ("group_bytes", GROUP_BYTES),
        ("archive_processes", u64::from(connections)),
        ("archive_unit_bytes", unit_bytes),
        ("archive_bytes_max", 4 * GROUP_BYTES),
    ];
    let mut pair = Pair::start_with(labs, lab, &settings, false)?;
    pair.create_standby(None)?;
    let (_, end) = pair.backlog(LOG_BYTES)?;
    pair.archive()?;
    let begun = Instant::now();
    pair.ship(Mode::Async, &["--max-connections", &connections.to_string()])?;
    pair.await_hardened(end)?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Time that the second way saves relative to the first at the longest round trip, in percent.
pub(super) fn less_time(all: &[Shipped]) -> super::Value {
    let of = |(connections, unit_bytes): (u32, u64)| {
        let found = all
            .iter()
            .rfind(|shipped| (shipped.connections, shipped.unit_bytes) == (connections, unit_bytes));
        found.map_or(f64::NAN, |shipped| median(&shipped.seconds))
    };
    Ok((1.0 - of(WAYS[1]) / of(WAYS[0])) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_compared_at_the_longest_distance() {
        let one = |rtt_ms, (connections, unit_bytes), seconds: f64| Shipped {
            rtt_ms,
            connections,
            unit_bytes,
            seconds: vec![seconds],
        };
        let [few, many, small] = WAYS;
        let all = [
            one(25.0, few, 10.0),
            one(25.0, many, 10.0),
            one(100.0, few, 40.0),
            one(100.0, many, 10.0),
            one(100.0, small, 30.0),
        ];
        assert_eq!(less_time(&all).unwrap(), 75.0);
        assert!(less_time(&[]).unwrap().is_nan());
    }
}
