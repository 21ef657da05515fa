//! How long a standby takes to get a log that was archived while it was away, over one connection and over several.

use std::time::Instant;

use serde::Serialize;

use super::super::net::lab::{Lab, Labs};
use super::median;
use super::pair::{Pair, open};
use crate::systems::Mode;
use crate::{BenchError, Result};

/// Whether archived logs go over connections of their own in this build.
const IN_PARALLEL: bool = false;
/// Bytes of the log.
const LOG_BYTES: f64 = 1e9;
/// Distances, milliseconds.
const RTTS: [f64; 2] = [25.0, 100.0];
/// Connections that are compared.
const CONNECTIONS: [u32; 2] = [1, 5];
/// Sessions and bytes of a transaction that fill the log.
const BACKLOG: (usize, usize) = (8, 256 << 10);

/// One distance with one number of connections.
#[derive(Debug, Serialize)]
pub struct Shipped {
    /// Round trip, milliseconds.
    pub rtt_ms: f64,
    /// Connections.
    pub connections: u32,
    /// Seconds from the word that the standby is a destination until all is on its disk, one a round.
    pub seconds: Vec<f64>,
}

/// Measures all in turns.
pub(super) fn ship(labs: &Labs<'_>, rounds: usize) -> Result<Vec<Shipped>> {
    if !IN_PARALLEL {
        let why = "archived logs are not shipped over connections of their own in this build";
        return Err(BenchError::Unavailable(why.into()));
    }
    let mut all = Vec::new();
    for rtt_ms in RTTS {
        let lab = open(labs, rtt_ms)?;
        let mut of_lab = CONNECTIONS.map(|connections| Shipped { rtt_ms, connections, seconds: Vec::new() });
        for _ in 0..rounds {
            for shipped in &mut of_lab {
                let seconds = one(labs, &lab, shipped.connections)?;
                eprintln!("{rtt_ms} ms, {} connections: {seconds:.1} s", shipped.connections);
                shipped.seconds.push(seconds);
            }
        }
        all.extend(of_lab);
    }
    Ok(all)
}

fn one(labs: &Labs<'_>, lab: &Lab<'_>, connections: u32) -> Result<f64> {
    // A log that holds it all.
    let mut pair = Pair::start_with(labs, lab, &["--group-bytes", "1107296256", "--groups", "2"])?;
    pair.create_standby(None)?;
    let from = pair.of_primary("captured")?;
    let load = pair.load(BACKLOG.0, BACKLOG.1, None)?;
    pair.await_captured(from, LOG_BYTES)?;
    load.stop()?;
    pair.switch_log()?;
    let end = pair.of_primary("captured")?;
    let begun = Instant::now();
    pair.ship(Mode::Async, &["--max-connections", &connections.to_string()])?;
    pair.await_hardened(end)?;
    Ok(begun.elapsed().as_secs_f64())
}

/// How much less time the most connections take than one at the longest distance, in percent.
pub(super) fn less_time(all: &[Shipped]) -> super::Value {
    let of = |connections: u32| {
        let found = all.iter().rfind(|shipped| shipped.connections == connections);
        found.map_or(f64::NAN, |shipped| median(&shipped.seconds))
    };
    Ok((1.0 - of(CONNECTIONS[1]) / of(CONNECTIONS[0])) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_compared_at_the_longest_distance() {
        let one = |rtt_ms, connections, seconds: f64| Shipped { rtt_ms, connections, seconds: vec![seconds] };
        let all = [one(25.0, 1, 10.0), one(25.0, 5, 10.0), one(100.0, 1, 40.0), one(100.0, 5, 10.0)];
        assert_eq!(less_time(&all).unwrap(), 75.0);
        assert!(less_time(&[]).unwrap().is_nan());
    }
}
