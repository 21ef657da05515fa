//! Latency under load: round trips on a connection of their own while a test fills the link.

use crate::plan::{Directions, Mode, Plan};
use crate::run::{Event, Outcome, run};
use crate::stats::Latency;
use crate::stream::Target;
use crate::units::Extent;
use crate::{NetError, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause from the answer to one round trip to the next one: short enough for percentiles, and no load by itself.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest measurement of the idle link.
pub const IDLE: Duration = Duration::from_secs(2);

/// Round trips without payload, on the idle and on the loaded link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundTrips {
    /// Before the load; None when none was answered.
    pub idle: Option<Latency>,
    /// During the load; None when none was answered.
    pub loaded: Option<Latency>,
}

impl RoundTrips {
    /// Returns by which factor loaded round trips are longer than idle ones: median and 99th percentile.
    pub fn growth(&self) -> Option<(f64, f64)> {
        let (idle, loaded) = (self.idle?.total, self.loaded?.total);
        // Below the resolution of the clock the factor is unknown.
        (idle.p50 > 0.0 && idle.p99 > 0.0).then(|| (loaded.p50 / idle.p50, loaded.p99 / idle.p99))
    }
}

/// Returns the plan of successive round trips from the client, which run until they are stopped.
pub fn probe(load: &Plan) -> Plan {
    Plan {
        directions: Directions::ToServer,
        mode: Mode::Sync,
        length: 0,
        delay: PAUSE,
        omit: load.omit,
        timeout: load.timeout,
        ..Plan::default()
    }
}

/// Runs `work` while round trips are measured, and returns both results.
pub fn beside<T>(target: &Target, probe: &Plan, work: impl FnOnce() -> Result<T>) -> Result<(T, Outcome)> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let probing = scope.spawn(|| run(target, probe, &ended, &mut |_| {}));
        let done = work();
        ended.store(true, Ordering::Relaxed);
        let probed = probing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((done?, probed?))
    })
}

/// Runs a test like [`run`], with round trips before and during it.
pub fn run_loaded(
    target: &Target,
    plan: &Plan,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome> {
    let probe = probe(plan);
    let time = match plan.duration {
        Extent::Time(time) => time.min(IDLE),
        _ => IDLE,
    };
    let unloaded = Plan { duration: Extent::Time(time), omit: Duration::ZERO, ..probe.clone() };
    let idle = run(target, &unloaded, stop, &mut |_| {})?;
    if let Some(error) = idle.trouble {
        return Err(error);
    }
    let (mut outcome, probed) = beside(target, &probe, || run(target, plan, stop, watch))?;
    outcome.round_trips = Some(RoundTrips { idle: idle.total.latency, loaded: probed.total.latency });
    // This function interrupted the probe itself; any other error is the link's.
    let trouble = probed.trouble.filter(|error| !matches!(error, NetError::Interrupted { .. }));
    outcome.trouble = outcome.trouble.or(trouble);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Spread;

    #[test]
    fn latency_growth_is_reported_only_if_both_values_are_measured() {
        let latency = |p50, p99| {
            let total = Spread { p50, p99, ..Spread::default() };
            Some(Latency {
                count: 9,
                total,
                network: total,
                disk: Spread::default(),
                waking: Spread::default(),
            })
        };
        let trips = RoundTrips { idle: latency(0.001, 0.002), loaded: latency(0.010, 0.040) };
        assert_eq!(trips.growth(), Some((10.0, 20.0)));
        assert_eq!(RoundTrips { loaded: None, ..trips }.growth(), None);
        assert_eq!(RoundTrips { idle: latency(0.0, 0.0), ..trips }.growth(), None);
    }
}
