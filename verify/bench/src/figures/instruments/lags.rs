//! The lags that the primary shows, against the real lags: the link is cut under a steady load, healed, and cut again
//! while nothing is written.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::super::net::lab::{FAR, Lab, Labs, NEAR, emulated, link};
use super::super::transport::pair::{Pair, open_as_it_is};
use crate::systems::Mode;
use crate::{BenchError, Result, interrupt};

const RTT_MS: f64 = 10.0;
/// Load: bytes per second, bytes per transaction, and sessions.
const LOAD: (f64, usize, usize) = (200e3, 1 << 10, 4);
const MEGABITS: f64 = 100.0;
/// Duration of the cut; below, the pause between two polls.
const CUT: Duration = Duration::from_secs(12);
const LOOK: Duration = Duration::from_millis(500);
/// A lag may be off by this many seconds, or by this share of the real lag.
const OFF: (f64, f64) = (1.0, 0.1);

/// Lags shown by the primary and real lags, seconds.
#[derive(Debug, Default, Serialize)]
pub struct Lags {
    /// Under load while the link is cut: shown (None: unknown) and real.
    pub cut: Vec<(Option<f64>, f64)>,
    /// Shown at the end, after the link was healed and the standby has everything.
    pub healed: Option<f64>,
    /// Shown while the link is cut and nothing is written: whether the standby lacks redo must be unknown.
    pub idle: Vec<Option<f64>>,
}

impl Lags {
    /// Number of values that are off by more than allowed.
    pub(super) fn wrong(&self) -> f64 {
        let off = |(shown, truth): &(Option<f64>, f64)| {
            shown.is_none_or(|shown| (shown - truth).abs() > OFF.0.max(truth * OFF.1))
        };
        let healed = usize::from(self.healed.is_none_or(|shown| shown > OFF.0));
        // Known until the primary notices the cut, which takes its net timeout.
        let known = self.idle.last().is_none_or(Option::is_some);
        (self.cut.iter().filter(|look| off(look)).count() + healed + usize::from(known)) as f64
    }
}

pub(super) fn lags(labs: &Labs<'_>) -> Result<Lags> {
    let lab = open_as_it_is(labs, &[NEAR, FAR], link(RTT_MS, MEGABITS))?;
    let mut pair = Pair::start(labs, &lab)?;
    pair.create_standby(None)?;
    pair.ship(Mode::Async, &["--net-timeout-ms", "2000", "--reopen-ms", "500"])?;
    pair.await_follower(Mode::Async)?;
    let (rate, bytes, sessions) = LOAD;
    let load = pair.load(sessions, bytes, Some(rate))?;
    interrupt::pause(labs.context.warmup + Duration::from_secs(2))?;
    let mut found = Lags::default();

    let cut = Instant::now();
    set(&lab, true)?;
    while cut.elapsed() < CUT {
        interrupt::pause(LOOK)?;
        let asked = Instant::now();
        let shown = shown(&pair)?;
        found.cut.push((shown, (asked + asked.elapsed() / 2).duration_since(cut).as_secs_f64()));
    }
    set(&lab, false)?;
    load.stop()?;
    interrupt::await_other("the standby to have everything", Duration::from_secs(60), || {
        found.healed = shown(&pair)?;
        Ok(found.healed == Some(0.0))
    })?;
    set(&lab, true)?;
    for _ in 0..12 {
        interrupt::pause(LOOK)?;
        found.idle.push(shown(&pair)?);
    }
    set(&lab, false)?;
    eprintln!("lags: {} looks were wrong", found.wrong());
    Ok(found)
}

/// `transport_lag_s` of the standby in the primary's status.
fn shown(pair: &Pair<'_>) -> Result<Option<f64>> {
    let destination = pair.destination()?;
    match &destination["transport_lag_s"] {
        Value::Null => Ok(None),
        lag => lag.as_f64().map(Some).ok_or_else(|| BenchError::Unreadable {
            what: "the output of `standfast status --json`".into(),
            detail: format!("a lag of {lag}"),
        }),
    }
}

pub(super) fn set(lab: &Lab<'_>, cut: bool) -> Result<()> {
    let control = lab.wan().control();
    emulated(if cut { control.cut(&[]) } else { control.heal(&[]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right() -> Lags {
        Lags {
            cut: vec![(Some(0.4), 0.5), (Some(2.4), 1.5), (Some(41.0), 44.0)],
            healed: Some(0.0),
            idle: vec![Some(0.0), None],
        }
    }

    #[test]
    fn lag_may_be_off_by_one_second_or_ten_percent() {
        assert_eq!(right().wrong(), 0.0);
        let mut late = right();
        late.cut.extend([(Some(2.9), 1.5), (Some(50.0), 44.0), (None, 9.0)]);
        assert_eq!(late.wrong(), 3.0);
    }

    #[test]
    fn lingering_lag_and_lag_falsely_claimed_as_known_are_wrong() {
        assert_eq!(Lags { healed: Some(3.0), ..right() }.wrong(), 1.0);
        assert_eq!(Lags { healed: None, ..right() }.wrong(), 1.0);
        assert_eq!(Lags { idle: vec![None, Some(0.0)], ..right() }.wrong(), 1.0);
    }
}
