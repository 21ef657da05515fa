//! COMPRESSION of the redo of an order entry: bytes on the wire, and processor time of the primary.

use serde::Serialize;

use super::super::net::lab::{Lab, Labs};
use super::median;
use super::pair::{Pair, open};
use crate::redo_load::Content;
use crate::systems::Mode;
use crate::{BenchError, Result, interrupt};

const RTT_MS: f64 = 10.0;
/// Bytes per order, bytes of orders per second, and sessions.
const ORDERS: (usize, f64, usize) = (400, 1e6, 8);

/// Results with one kind of compression, one value per round.
#[derive(Debug, Default, Serialize)]
pub struct Packed {
    /// Bytes on the wire per byte of redo.
    pub share: Vec<f64>,
    /// Processor time of the primary per commit, microseconds.
    pub cpu_us: Vec<f64>,
}

/// Results with each kind of compression.
#[derive(Debug, Default, Serialize)]
pub struct Packing {
    pub none: Packed,
    pub lz4: Packed,
    pub zstd: Packed,
}

impl Packing {
    /// Bytes on the wire with LZ4 relative to those without compression.
    pub(super) fn lz4_share(&self) -> f64 {
        median(&self.lz4.share) / median(&self.none.share)
    }

    /// Processor time of the primary that LZ4 adds per commit, microseconds.
    pub(super) fn lz4_cpu_us(&self) -> f64 {
        median(&self.lz4.cpu_us) - median(&self.none.cpu_us)
    }
}

pub(super) fn packing(labs: &Labs<'_>, rounds: usize) -> Result<Packing> {
    eprintln!("compression of the redo of an order entry");
    let lab = open(labs, RTT_MS)?;
    let mut found = Packing::default();
    for _ in 0..rounds {
        one(labs, &lab, "none", &mut found.none)?;
        one(labs, &lab, "lz4", &mut found.lz4)?;
        one(labs, &lab, "zstd", &mut found.zstd)?;
    }
    eprintln!("  {found:?}");
    Ok(found)
}

fn one(labs: &Labs<'_>, lab: &Lab<'_>, compression: &str, into: &mut Packed) -> Result<()> {
    let mut pair = Pair::start(labs, lab)?;
    pair.create_standby(None)?;
    pair.ship(Mode::SyncAffirm, &["--compression", compression])?;
    pair.await_follower(Mode::SyncAffirm)?;
    let (bytes, rate, sessions) = ORDERS;
    let mut load = pair.load_of(Content::Order, sessions, bytes, Some(rate))?;
    interrupt::pause(labs.context.warmup)?;
    let primary = pair.primary().group("primary");
    let (sent, used) = (Sent::read(&pair)?, primary.usage());
    load.measure()?;
    interrupt::pause(labs.context.measure)?;
    let (after, used_then) = (Sent::read(&pair)?, primary.usage());
    let done = load.stop()?;
    into.share.push((after.wire - sent.wire) / (after.redo - sent.redo));
    let commits = done.commits_per_second * labs.context.measure.as_secs_f64();
    into.cpu_us.push((used_then.cpu_us - used.cpu_us) / commits);
    Ok(())
}

struct Sent {
    redo: f64,
    wire: f64,
}

impl Sent {
    fn read(pair: &Pair<'_>) -> Result<Sent> {
        let destination = pair.destination()?;
        let number = |name: &str| {
            destination[name].as_f64().ok_or_else(|| BenchError::Unreadable {
                what: "a destination in `standfast status --json`".into(),
                detail: format!("no `{name}` in {destination}"),
            })
        };
        Ok(Sent { redo: number("redo_bytes")?, wire: number("wire_bytes")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lz4_is_compared_with_none() {
        let packed = |share, cpu_us| Packed { share: vec![share], cpu_us: vec![cpu_us] };
        let found = Packing { none: packed(1.25, 50.0), lz4: packed(0.5, 53.0), zstd: packed(0.3, 60.0) };
        assert_eq!((found.lz4_share(), found.lz4_cpu_us()), (0.4, 3.0));
    }
}
