//! The thread `mmnl`: samples the instance once a second, for lags and for the history.

use crate::observe::observation;
use crate::role::history::Look;
use crate::role::running::Running;
use standfast_environment::state::now::now_us;
use std::time::Duration;

pub const EVERY: Duration = Duration::from_secs(1);

pub fn look(running: &Running) {
    let time_us = now_us();
    running.note_end(time_us);
    let lags = running.own_lags(time_us);
    let lags = [("transport lag", lags.transport_us), ("apply lag", lags.apply_us)];
    let known = |(name, lag): (&'static str, Option<u64>)| Some((name, lag? as f64 / 1e6));
    running.history().note(Look {
        time_us,
        sample: observation::sample(running),
        activity: observation::activity(running, time_us),
        lags: lags.into_iter().filter_map(known).collect(),
    });
}
