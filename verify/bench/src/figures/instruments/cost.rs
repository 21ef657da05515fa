//! Cost of the instruments: commits per second of the normal build and of a build that omits them at compile time.
//!
//! Both pairs run in parallel and alternate in short slices, with the application of the other pair stopped: the cost
//! is smaller than the variation of a machine from one second to the next.

use std::time::{Duration, Instant};

use serde::Serialize;
use standfast_wan::settings::Settings;

use super::super::net::lab::{FAR, Labs, NEAR};
use super::super::transport::median;
use super::super::transport::pair::{Pair, open_as_it_is};
use crate::context::{Programs, need};
use crate::redo_load::Load;
use crate::systems::Mode;
use crate::{Context, Result, interrupt};

const REMEDY: &str =
    "there is no build without instruments: run `make figures GROUP=instruments`, which makes one";
/// Number of sessions; the next constant is the bytes of a transaction.
const CLIENTS: usize = 8;
const BYTES: usize = 128;
const SLICE: Duration = Duration::from_millis(200);
/// Slices of each pair per round.
const SLICES: usize = 120;

/// Redo per second in each slice; a commit has the same number of redo bytes in both builds.
#[derive(Debug, Default, Serialize)]
pub struct Cost {
    pub with: Vec<f64>,
    /// Measured with a build that has no instruments.
    pub without: Vec<f64>,
}

impl Cost {
    /// Commits per second that are missing, in percent: the median over neighbouring slices.
    pub(super) fn percent(&self) -> f64 {
        let pairs = self.with.iter().zip(&self.without);
        median(&pairs.map(|(with, without)| (1.0 - with / without) * 100.0).collect::<Vec<_>>())
    }
}

/// Measures both in turns, alternating which one is first.
pub(super) fn cost(labs: &Labs<'_>, rounds: usize) -> Result<Cost> {
    let directory = need(&labs.context.programs.uninstrumented, REMEDY)?;
    let (program, extension) = (directory.join("standfast"), directory.join("libstandfast.so"));
    let programs =
        Programs { standfast: Some(program), extension: Some(extension), ..labs.context.programs.clone() };
    let other = Context { programs, ..labs.context.clone() };
    let without = Labs { context: &other, ..*labs };
    let mut found = Cost::default();
    for _ in 0..rounds {
        let near = open_as_it_is(labs, &[NEAR, FAR], Settings::default())?;
        let far = open_as_it_is(&without, &[NEAR, FAR], Settings::default())?;
        let with = loaded(Pair::start(labs, &near)?, labs.context.warmup)?;
        let without = loaded(Pair::start(&without, &far)?, labs.context.warmup)?;
        for turn in 0..SLICES {
            for instrumented in [turn % 2 == 0, turn % 2 != 0] {
                match instrumented {
                    true => found.with.push(slice(&with)?),
                    false => found.without.push(slice(&without)?),
                }
            }
        }
    }
    eprintln!("instruments cost {:.2} % of the commits", found.percent());
    Ok(found)
}

/// A pair with its application, warmed up and stopped.
fn loaded(mut pair: Pair<'_>, warmup: Duration) -> Result<(Load, Pair<'_>)> {
    pair.create_standby(None)?;
    pair.ship(Mode::SyncAffirm, &[])?;
    pair.await_follower(Mode::SyncAffirm)?;
    let load = pair.load(CLIENTS, BYTES, None)?;
    interrupt::pause(warmup)?;
    load.stand_still(true);
    // In drop order: the application ends first.
    Ok((load, pair))
}

/// Bytes of redo per second while the application runs for one slice.
fn slice((load, pair): &(Load, Pair<'_>)) -> Result<f64> {
    let before = pair.of_primary("captured")?;
    load.stand_still(false);
    let began = Instant::now();
    interrupt::pause(SLICE)?;
    load.stand_still(true);
    let seconds = began.elapsed().as_secs_f64();
    Ok((pair.of_primary("captured")? - before) / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_taken_from_the_median_pair() {
        let cost = Cost { with: vec![99.0, 90.0, 100.0], without: vec![100.0, 100.0, 100.0] };
        assert!((cost.percent() - 1.0).abs() < 1e-9);
    }
}
