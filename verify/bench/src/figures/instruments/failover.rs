//! The loss and the duration of a failover, as both ends estimate them before it, against a real failover: the link is
//! cut, the primary is killed, the standby becomes primary.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use standfast_live::{Estimate, Looks};

use super::super::net::lab::{FAR, Labs, NEAR, link_or_wire};
use super::super::transport::median;
use super::super::transport::pair::{Pair, open_as_it_is};
use super::lags;
use crate::redo_load::Config;
use crate::systems::{Instance, Mode, standfast};
use crate::{Result, interrupt};

const LOOK: Duration = Duration::from_millis(500);
/// Errors of at most this many seconds count as none: the start of the command itself, and one commit more or less.
const SAME_S: f64 = 0.1;

/// A pair, and its state when the primary is lost.
struct Scene {
    what: &'static str,
    megabits: f64,
    rtt_ms: f64,
    mode: Mode,
    /// Sessions, bytes per transaction and bytes per second; None for as fast as possible.
    load: (usize, usize, Option<f64>),
    /// Duration of the load before the primary is lost.
    before: Duration,
    /// Apply is stopped during the load, and has applied half of its backlog when the primary is lost.
    backlog: bool,
}

const SCENES: [Scene; 3] = [
    Scene {
        what: "SYNC AFFIRM, nothing left to apply",
        megabits: 1000.0,
        rtt_ms: 0.5,
        mode: Mode::SyncAffirm,
        load: (4, 1 << 10, Some(200e3)),
        before: Duration::from_secs(4),
        backlog: false,
    },
    Scene {
        what: "ASYNC over a link that carries half of the redo",
        megabits: 4.0,
        rtt_ms: 10.0,
        mode: Mode::Async,
        load: (4, 8 << 10, Some(1e6)),
        before: Duration::from_secs(12),
        backlog: false,
    },
    Scene {
        what: "ASYNC, in the middle of a backlog",
        megabits: 0.0,
        rtt_ms: 0.0,
        mode: Mode::Async,
        load: (4, 64 << 10, None),
        before: Duration::from_secs(20),
        backlog: true,
    },
];

#[derive(Debug, Serialize)]
pub struct Rehearsed {
    pub what: &'static str,
    /// Time covered by the acknowledged commits that were lost, seconds: the primary's estimate, and the real value.
    pub loss_s: (Option<f64>, f64),
    /// Duration, seconds: the primary's estimate, the standby's estimate, and the real value.
    pub took_s: (Option<f64>, Option<f64>, f64),
}

impl Rehearsed {
    /// Largest error of an estimate, in percent of the real value.
    pub(super) fn off(&self) -> f64 {
        let off = |printed: Option<f64>, was: f64| match printed.map(|printed| (printed - was).abs()) {
            None => f64::INFINITY,
            Some(apart) if apart <= SAME_S => 0.0,
            Some(apart) => apart / was * 100.0,
        };
        let (at_primary, at_standby, took) = self.took_s;
        off(self.loss_s.0, self.loss_s.1).max(off(at_primary, took)).max(off(at_standby, took))
    }
}

/// Fails over `rounds` times in each scene.
pub(super) fn rehearsed(labs: &Labs<'_>, rounds: usize) -> Result<Vec<Vec<Rehearsed>>> {
    SCENES.iter().map(|scene| (0..rounds).map(|_| scene.rehearse(labs)).collect()).collect()
}

pub(super) fn off(rehearsed: &[Rehearsed]) -> f64 {
    median(&rehearsed.iter().map(Rehearsed::off).collect::<Vec<_>>())
}

#[derive(Default)]
struct Watched {
    primary: Side,
    standby: Side,
}

#[derive(Default)]
struct Side {
    looks: Looks,
    /// Redo left to apply at this end, bytes.
    left: Option<u64>,
    estimate: Estimate,
}

impl Side {
    fn look(&mut self, instance: &Instance) -> Result<()> {
        let observation = instance.observe()?;
        self.looks.take(&observation);
        self.estimate = self.looks.estimate(&observation);
        self.left = observation.status.standby.as_ref().and_then(|standby| standby.backlog());
        Ok(())
    }
}

impl Watched {
    fn look(&mut self, pair: &Pair<'_>) -> Result<()> {
        interrupt::pause(LOOK)?;
        self.primary.look(pair.primary())?;
        self.standby.look(pair.standby()?)
    }
}

impl Scene {
    fn rehearse(&self, labs: &Labs<'_>) -> Result<Rehearsed> {
        let lab = open_as_it_is(labs, &[NEAR, FAR], link_or_wire(self.rtt_ms, self.megabits))?;
        let mut pair = Pair::start(labs, &lab)?;
        pair.create_standby(None)?;
        pair.ship(self.mode, &[])?;
        pair.await_follower(self.mode)?;
        let mut watched = Watched::default();
        if self.backlog {
            pair.stop_apply()?;
        }
        let (sessions, bytes, rate) = self.load;
        let config = Config { rate, ..pair.load_config(sessions, bytes)? };
        let load = pair.start_load(&config)?;
        let begun = Instant::now();
        while begun.elapsed() < self.before {
            watched.look(&pair)?;
        }
        if self.backlog {
            load.stop()?;
            self.apply_half(&pair, &mut watched)?;
        }
        lags::set(&lab, true)?;
        pair.kill_primary();
        let began = Instant::now();
        pair.standby()?.failover()?;
        let took = began.elapsed().as_secs_f64();
        self.judge(&pair, config, &watched, took)
    }

    /// Restarts apply and waits until half of its backlog is left.
    fn apply_half(&self, pair: &Pair<'_>, watched: &mut Watched) -> Result<()> {
        pair.await_hardened(pair.of_primary("captured")?)?;
        // Both ends are on one disk here: disk work that the primary still has to do would stop with its loss.
        pair.archive()?;
        pair.primary().checkpoint()?;
        watched.look(pair)?;
        let all = watched.standby.left.unwrap_or(0);
        pair.standby()?.start_apply()?;
        interrupt::await_other("half of the backlog applied", Duration::from_secs(120), || {
            watched.look(pair)?;
            Ok(watched.standby.left.is_some_and(|left| left < all / 2))
        })
    }

    /// Counts the lost commits in the two databases, and checks that the new primary takes commits.
    fn judge(&self, pair: &Pair<'_>, config: Config, watched: &Watched, took: f64) -> Result<Rehearsed> {
        let copy = pair.standby()?.copy_of(pair.database());
        let lost = rows(pair.database())?.saturating_sub(rows(&copy)?);
        let every_s = self.load.2.map_or(0.0, |rate| self.load.1 as f64 / rate);
        let before = rows(&copy)?;
        let config = Config { database: copy.clone(), sessions: 1, rate: None, ..config };
        let load = pair.start_load(&config)?;
        interrupt::await_other("commits of the new primary", LOOK * 20, || Ok(rows(&copy)? > before))?;
        load.stop()?;
        let rehearsed = Rehearsed {
            what: self.what,
            loss_s: (watched.primary.estimate.loss.seconds, lost as f64 * every_s),
            took_s: (watched.primary.estimate.failover_s, watched.standby.estimate.failover_s, took),
        };
        eprintln!("{rehearsed:?}: {:.0} % off", rehearsed.off());
        Ok(rehearsed)
    }
}

/// Number of rows that the applications of a load have written.
fn rows(database: &Path) -> Result<u64> {
    standfast::rows(database, "body")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(loss_s: (Option<f64>, f64), took_s: (Option<f64>, Option<f64>, f64)) -> f64 {
        Rehearsed { what: "one", loss_s, took_s }.off()
    }

    #[test]
    fn worst_estimate_counts_and_a_missing_estimate_is_infinite() {
        let well = (Some(2.0), Some(2.2), 2.0);
        assert!((off((Some(0.0), 0.0), well) - 10.0).abs() < 1e-9);
        assert!((off((Some(6.0), 5.0), well) - 20.0).abs() < 1e-9);
        assert_eq!(off((Some(0.0), 0.002), (Some(0.04), Some(0.02), 0.1)), 0.0);
        assert_eq!(off((None, 5.0), well), f64::INFINITY);
        assert_eq!(off((Some(0.0), 0.0), (Some(2.0), None, 2.0)), f64::INFINITY);
    }

    #[test]
    fn one_outlier_of_three_failovers_is_ignored_and_two_are_not() {
        let one = |printed| Rehearsed {
            what: "one",
            loss_s: (Some(0.0), 0.0),
            took_s: (Some(printed), Some(2.0), 2.0),
        };
        assert!((super::off(&[one(2.2), one(9.0), one(2.2)]) - 10.0).abs() < 1e-9);
        assert!(super::off(&[one(2.2), one(9.0), one(9.0)]) > 300.0);
    }
}
