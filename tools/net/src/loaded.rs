//! Latency under load: round trips on a connection of their own while a test fills the link.

use crate::outcome::{Event, Outcome, RoundTrips};
use crate::plan::{Directions, Mode, Plan};
use crate::run::run;
use crate::stream::Target;
use crate::{NetError, Result};
use standfast_page::units::Extent;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause from the answer to one round trip to the next one: short enough for percentiles, and no load by itself.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest measurement of the idle link.
pub const IDLE: Duration = Duration::from_secs(2);

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
    if let Some(error) = idle.error {
        return Err(error);
    }
    let (mut outcome, probed) = beside(target, &probe, || run(target, plan, stop, watch))?;
    outcome.round_trips = Some(RoundTrips { idle: idle.total.latency, loaded: probed.total.latency });
    // This function interrupted the probe itself; any other error is the link's.
    let error = probed.error.filter(|error| !matches!(error, NetError::Interrupted { .. }));
    outcome.error = outcome.error.or(error);
    Ok(outcome)
}
