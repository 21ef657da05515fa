//! What the instruments cost: commits a second of the program as it is, and of one from which they were left out at
//! compile time.

use serde::Serialize;
use standfast_wan::settings::Settings;

use super::super::net::lab::{FAR, Labs, NEAR};
use super::super::transport::median;
use super::super::transport::pair::{Pair, open_as_it_is};
use crate::context::{Programs, need};
use crate::systems::Mode;
use crate::{Context, Result, interrupt};

const REMEDY: &str =
    "there is no build without instruments: run `make figures GROUP=instruments`, which makes one";
/// Sessions, and bytes of a transaction.
const CLIENTS: usize = 8;
const BYTES: usize = 128;
/// Pairs of runs for each round: what is looked for is smaller than what a machine does from one to the next.
const PAIRS: usize = 5;

/// Commits a second of runs in turns.
#[derive(Debug, Default, Serialize)]
pub struct Cost {
    /// As it is.
    pub with: Vec<f64>,
    /// Without instruments.
    pub without: Vec<f64>,
}

impl Cost {
    /// How many commits a second are missing, in percent: the median of the pairs.
    pub(super) fn percent(&self) -> f64 {
        let pairs = self.with.iter().zip(&self.without);
        median(&pairs.map(|(with, without)| (1.0 - with / without) * 100.0).collect::<Vec<_>>())
    }
}

/// Measures both in turns; who begins changes.
pub(super) fn cost(labs: &Labs<'_>, rounds: usize) -> Result<Cost> {
    let directory = need(&labs.context.programs.uninstrumented, REMEDY)?;
    let (program, extension) = (directory.join("standfast"), directory.join("libstandfast.so"));
    let programs =
        Programs { standfast: Some(program), extension: Some(extension), ..labs.context.programs.clone() };
    let other = Context { programs, ..labs.context.clone() };
    let without = Labs { context: &other, ..*labs };
    let mut found = Cost::default();
    for pair in 0..rounds * PAIRS {
        for instrumented in [pair % 2 == 0, pair % 2 != 0] {
            match instrumented {
                true => found.with.push(rate(labs)?),
                false => found.without.push(rate(&without)?),
            }
        }
    }
    eprintln!("instruments cost {:.2} % of the commits", found.percent());
    Ok(found)
}

fn rate(labs: &Labs<'_>) -> Result<f64> {
    let lab = open_as_it_is(labs, &[NEAR, FAR], Settings::default())?;
    let mut pair = Pair::start(labs, &lab)?;
    pair.create_standby(None)?;
    pair.ship(Mode::SyncAffirm, &[])?;
    pair.await_follower(Mode::SyncAffirm)?;
    let mut load = pair.load(CLIENTS, BYTES, None)?;
    interrupt::pause(labs.context.warmup)?;
    load.measure()?;
    interrupt::pause(labs.context.measure)?;
    Ok(load.stop()?.commits_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_that_of_the_middle_pair() {
        let cost = Cost { with: vec![99.0, 90.0, 100.0], without: vec![100.0, 100.0, 100.0] };
        assert!((cost.percent() - 1.0).abs() < 1e-9);
    }
}
