//! Group `transport`: redo transport to a standby at the end of an emulated link, against the same load without a
//! standby, and against the throughput of iperf3 over the link.

mod disk;
mod gap;
mod goodput;
mod impact;
mod packing;
pub(super) mod pair;
mod plots;
mod ship;
mod tls;

use serde::Serialize;

use super::measured::outcome;
use super::net::Against;
use super::net::lab::Labs;
use super::net::start::Start;
use crate::process::Scratch;
use crate::statistics::MinMedianMax;
use crate::suite::Missing;
use crate::systems::Mode;
use crate::{Context, Result};

pub(super) use plots::write_plots;

/// A measurement, or the reason why there is none.
type Outcome<T> = std::result::Result<T, Missing>;

type Value = std::result::Result<f64, Missing>;

/// Results of the whole group. Of two values, the first is for the shorter distance.
#[derive(Debug, Serialize)]
pub struct TransportResult {
    /// ASYNC goodput of redo against iperf3, bytes per second; 25 and 100 ms, 1 Gbit/s.
    pub goodput: [Outcome<Against>; 2],
    /// ASYNC, 2 MB/s over 50 ms, and 20 MB/s over 100 ms.
    pub asynchronous: [Outcome<impact::Impact>; 2],
    /// SYNC AFFIRM, 4 MB/s over 10 ms.
    pub synchronous: Outcome<impact::Impact>,
    /// FASTSYNC and SYNC AFFIRM with a slow disk of the standby.
    pub slow_disk: Outcome<disk::SlowDisk>,
    /// A gap that is filled from archived logs: seconds by distance, connections and unit size.
    pub ship: Outcome<Vec<ship::Shipped>>,
    /// Commits while a standby fetches a gap of 2 GB.
    pub gap: Outcome<gap::Gap>,
    pub tls: Outcome<tls::Tls>,
    /// Compression of the redo of an order entry.
    pub packing: Outcome<packing::Packing>,
}

/// Rate of the link in all measurements.
const MEGABITS: f64 = 1000.0;

pub(super) fn transport(context: &Context, rounds: usize) -> Result<TransportResult> {
    let scratch = Scratch::new(&context.base)?;
    let start = Start::find()?;
    let labs = Labs { context, start: &start, scratch: &scratch };
    let one = |rtt_ms, mode, load| outcome(impact::impact(&labs, rounds, rtt_ms, mode, load));
    Ok(TransportResult {
        goodput: [
            outcome(goodput::goodput(&labs, rounds, 25.0))?,
            outcome(goodput::goodput(&labs, rounds, 100.0))?,
        ],
        asynchronous: [
            one(50.0, Mode::Async, impact::Offered { rate: 2e6, bytes: 2 << 10, sessions: 8 })?,
            one(100.0, Mode::Async, impact::Offered { rate: 20e6, bytes: 8 << 10, sessions: 16 })?,
        ],
        synchronous: one(
            10.0,
            Mode::SyncAffirm,
            impact::Offered { rate: 4e6, bytes: 4 << 10, sessions: 40 },
        )?,
        slow_disk: outcome(disk::slow_disk(&labs, rounds))?,
        ship: outcome(ship::ship(&labs, rounds))?,
        gap: outcome(gap::gap(&labs, rounds))?,
        tls: outcome(tls::tls(&labs, rounds))?,
        packing: outcome(packing::packing(&labs, rounds))?,
    })
}

pub(super) fn median(values: &[f64]) -> f64 {
    MinMedianMax::of(values.iter().copied()).map_or(f64::NAN, |of| of.median)
}

impl TransportResult {
    pub(super) fn goodput_ratio(&self, nth: usize) -> Value {
        self.goodput[nth].as_ref().map(Against::ratio).map_err(Clone::clone)
    }

    pub(super) fn async_impact(&self) -> Value {
        self.asynchronous[1].as_ref().map(impact::Impact::percent).map_err(Clone::clone)
    }

    pub(super) fn sync_impact(&self) -> Value {
        self.synchronous.as_ref().map(impact::Impact::percent).map_err(Clone::clone)
    }

    pub(super) fn exposure(&self, nth: usize) -> Value {
        self.asynchronous[nth].as_ref().map(impact::Impact::exposure).map_err(Clone::clone)
    }

    pub(super) fn fastsync_on_slow_disk(&self) -> Value {
        self.slow_disk.as_ref().map(disk::SlowDisk::fastsync_ratio).map_err(Clone::clone)
    }

    pub(super) fn gap_growth(&self) -> Value {
        self.gap.as_ref().map(gap::Gap::growth).map_err(Clone::clone)
    }

    pub(super) fn tls(&self, number: fn(&tls::Tls) -> f64) -> Value {
        self.tls.as_ref().map(number).map_err(Clone::clone)
    }

    pub(super) fn tls_throughput(&self) -> Value {
        self.tls(tls::Tls::throughput_ratio)
    }

    pub(super) fn tls_added(&self) -> Value {
        self.tls(tls::Tls::added_us)
    }

    pub(super) fn lz4_share(&self) -> Value {
        self.packing.as_ref().map(packing::Packing::lz4_share).map_err(Clone::clone)
    }

    pub(super) fn lz4_cpu(&self) -> Value {
        self.packing.as_ref().map(packing::Packing::lz4_cpu_us).map_err(Clone::clone)
    }

    pub(super) fn less_time_with_connections(&self) -> Value {
        ship::less_time(self.ship.as_ref().map_err(Clone::clone)?)
    }
}
