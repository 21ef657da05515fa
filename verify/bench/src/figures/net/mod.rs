//! Group `net`: results of `standfast net` and `standfast wan`, against other tools and against emulated links.

mod advise;
mod emulator;
mod grid;
pub(super) mod lab;
mod links;
mod loopback;
pub(super) mod peers;
pub mod readings;
mod slow_disk;
pub(super) mod start;
mod tool;

use serde::Serialize;

use super::measured::outcome;
use crate::process::Scratch;
use crate::statistics::MinMedianMax;
use crate::suite::Missing;
use crate::{Context, Result};

pub(super) use links::LEAST_LINKS;
use start::Start;

/// A measurement, or the reason why there is none.
type Outcome<T> = std::result::Result<T, Missing>;

type Value = std::result::Result<f64, Missing>;

#[derive(Debug, Serialize)]
pub struct NetResult {
    /// ASYNC over loopback against iperf3, bytes per second; one and two connections.
    pub throughput: [Outcome<Against>; 2],
    /// Median of SYNC without write against sockperf, seconds; 1 KB and 8 KB.
    pub latency: [Outcome<Against>; 2],
    /// Mean of SYNC without write against qperf, seconds; 1 KB and 8 KB.
    pub mean_latency: [Outcome<Against>; 2],
    /// The disk's part of SYNC with write against durable writes alone, seconds.
    pub disk: Outcome<Against>,
    /// Emulated links of all distances and rates.
    pub grid: Outcome<Vec<grid::Cell>>,
    /// Small socket buffers against large ones.
    pub buffers: Outcome<grid::Buffers>,
    pub advise: Outcome<Vec<advise::Judged>>,
    /// The emulator, measured without `standfast net`.
    pub emulator: Outcome<emulator::Exactness>,
}

/// Measurements of Standfast and of another tool, in turns.
#[derive(Debug, Default, Serialize)]
pub struct Against {
    /// Results of Standfast, one per round.
    pub ours: Vec<f64>,
    /// Results of the other tool, one per round.
    pub other: Vec<f64>,
}

impl Against {
    /// Measures both in turns, alternating which one is first.
    pub(super) fn alternate(
        rounds: usize,
        mut ours: impl FnMut() -> Result<f64>,
        mut other: impl FnMut() -> Result<f64>,
    ) -> Result<Against> {
        let mut against = Against::default();
        for round in 0..rounds {
            if round % 2 == 0 {
                against.ours.push(ours()?);
                against.other.push(other()?);
            } else {
                against.other.push(other()?);
                against.ours.push(ours()?);
            }
        }
        Ok(against)
    }

    /// Ratio of the medians; NaN without a round.
    pub fn ratio(&self) -> f64 {
        let median =
            |values: &[f64]| MinMedianMax::of(values.iter().copied()).map_or(f64::NAN, |of| of.median);
        median(&self.ours) / median(&self.other)
    }

    /// How much slower Standfast is, in percent of the other tool's time; negative when it is faster. For times that
    /// contain a program's own work: a faster program is right, and so is one that varies less, since the peers' own
    /// means vary by more than the bar from round to round.
    pub fn percent_slower(&self) -> f64 {
        (self.ratio() - 1.0) * 100.0
    }

    /// Distance of the medians, in percent of the other one. For times that both tools must find equal.
    pub fn percent_apart(&self) -> f64 {
        apart(self.ratio(), 1.0)
    }
}

/// Absolute difference in percent of `truth`.
fn apart(found: f64, truth: f64) -> f64 {
    (found / truth - 1.0).abs() * 100.0
}

/// Largest value; NaN, which does not pass, when there is none or any is NaN.
fn worst(values: impl IntoIterator<Item = f64>) -> f64 {
    values
        .into_iter()
        .reduce(|one, other| if one >= other || one.is_nan() { one } else { other })
        .unwrap_or(f64::NAN)
}

pub(super) fn net(context: &Context, rounds: usize) -> Result<NetResult> {
    let scratch = Scratch::new(&context.base)?;
    let start = Start::find()?;
    let on_loopback = loopback::Loopback { context, start: &start, scratch: &scratch, rounds };
    let lab = lab::Labs { context, start: &start, scratch: &scratch };
    Ok(NetResult {
        throughput: [outcome(on_loopback.throughput(1))?, outcome(on_loopback.throughput(2))?],
        latency: [outcome(on_loopback.latency(1 << 10))?, outcome(on_loopback.latency(8 << 10))?],
        mean_latency: [
            outcome(on_loopback.mean_latency(1 << 10))?,
            outcome(on_loopback.mean_latency(8 << 10))?,
        ],
        disk: outcome(on_loopback.disk())?,
        grid: outcome(grid::grid(&lab))?,
        buffers: outcome(grid::buffers(&lab))?,
        advise: outcome(advise::advise(&lab))?,
        emulator: outcome(emulator::exactness(&lab))?,
    })
}

impl NetResult {
    pub(super) fn throughput_ratio(&self, connections: usize) -> Value {
        self.throughput[connections - 1].as_ref().map(Against::ratio).map_err(Clone::clone)
    }

    pub(super) fn latency_slower(&self, nth: usize) -> Value {
        self.latency[nth].as_ref().map(Against::percent_slower).map_err(Clone::clone)
    }

    pub(super) fn mean_latency_slower(&self, nth: usize) -> Value {
        self.mean_latency[nth].as_ref().map(Against::percent_slower).map_err(Clone::clone)
    }

    pub(super) fn disk_apart(&self) -> Value {
        self.disk.as_ref().map(Against::percent_apart).map_err(Clone::clone)
    }

    pub(super) fn worst_round_trip(&self) -> Value {
        let cells = self.grid.as_ref().map_err(Clone::clone)?;
        Ok(worst(cells.iter().map(|cell| cell.round_trip.percent_apart())))
    }

    pub(super) fn worst_rate(&self) -> Value {
        let cells = self.grid.as_ref().map_err(Clone::clone)?;
        Ok(worst(cells.iter().map(|cell| cell.rate.percent_apart())))
    }

    pub(super) fn buffer_effect(&self) -> Value {
        self.buffers.as_ref().map_err(Clone::clone)?.judge()
    }

    pub(super) fn links_judged_right(&self) -> Value {
        advise::right(self.advise.as_ref().map_err(Clone::clone)?)
    }

    pub(super) fn emulator_apart(&self) -> Value {
        self.emulator.as_ref().map(emulator::Exactness::percent_apart).map_err(Clone::clone)
    }

    pub(super) fn emulator_gigabits(&self) -> Value {
        self.emulator.as_ref().map(|found| found.unlimited * 8.0 / 1e9).map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_that_of_the_medians_in_percent_of_the_other() {
        let against = Against { ours: vec![9.0, 90.0, 11.0], other: vec![10.0, 1.0, 10.0] };
        assert!((against.ratio() - 1.1).abs() < 1e-12);
        assert!((against.percent_apart() - 10.0).abs() < 1e-9);
        assert!((against.percent_slower() - 10.0).abs() < 1e-9);
        let below = Against { ours: vec![8.0], other: vec![10.0] };
        assert!((below.percent_apart() - 20.0).abs() < 1e-9);
        assert!((below.percent_slower() + 20.0).abs() < 1e-9, "a leaner program is not apart, it is faster");
        let none = Against::default();
        assert!(none.percent_apart().is_nan() && none.percent_slower().is_nan());
    }

    #[test]
    fn order_of_the_programs_alternates_and_a_failure_ends_it() {
        let order = std::cell::RefCell::new(Vec::new());
        let note = |who: char, value: f64| {
            order.borrow_mut().push(who);
            Ok(value)
        };
        let against = Against::alternate(3, || note('o', 1.0), || note('p', 2.0)).unwrap();
        assert_eq!(order.borrow().iter().collect::<String>(), "oppoop");
        assert_eq!((against.ours.len(), against.other), (3, vec![2.0; 3]));
        let failed = || Err(crate::BenchError::Unavailable("gone".into()));
        assert!(Against::alternate(1, || Ok(1.0), failed).is_err());
    }

    #[test]
    fn worst_difference_is_the_largest_or_nan_if_one_is_unknown() {
        assert_eq!(worst([1.0, 3.0, 2.0]), 3.0);
        assert!(worst([1.0, f64::NAN, 2.0]).is_nan());
        assert!(worst([]).is_nan());
    }
}
