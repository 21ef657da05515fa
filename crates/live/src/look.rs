//! What only several observations show: rates, and where the time of the last commits went.

use crate::apply_rate::{ApplyRate, Moment};
use crate::estimate::Estimate;
use standfast_documents::Status;
use standfast_instruments::{Observation, Sample, Statistic};
use std::collections::{BTreeMap, VecDeque};

/// Time over which rates are computed, microseconds.
const WINDOW_US: u64 = 10_000_000;

/// The parts of an observation that rates need.
#[derive(Clone, Debug)]
struct Point {
    time_us: u64,
    status: Status,
    sample: Sample,
}

/// The last observations of an instance.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    points: VecDeque<Point>,
    /// By the name of the standby.
    apply_rates: BTreeMap<String, ApplyRate>,
}

impl Looks {
    /// Adds an observation. If it is of another process or incarnation, or not later, the earlier ones are discarded.
    pub fn take(&mut self, observation: &Observation) {
        let status = observation.status.clone();
        let sample = observation.sample.clone();
        let point = Point { time_us: sample.time_us, status, sample };
        let follows = |last: &Point| {
            last.sample.started_us == point.sample.started_us
                && last.time_us < point.time_us
                && last.status.incarnation == point.status.incarnation
        };
        if self.points.back().is_some_and(|last| !follows(last)) {
            self.points.clear();
        }
        self.points.push_back(point);
        // Keeps one point that is at least as old as the window, if there is one.
        while self.points.get(1).is_some_and(|second| second.time_us + WINDOW_US <= self.now_us()) {
            self.points.pop_front();
        }
        self.note_apply(&observation.name);
    }

    fn note_apply(&mut self, me: &str) {
        let Some(newest) = self.points.back() else { return };
        let names: Vec<String> =
            newest.status.destinations().iter().map(|at| at.label().to_owned()).collect();
        for name in names {
            let moment = |point: &Point| {
                let at = point.status.destinations().iter().find(|at| at.label() == name);
                Moment::of_destination(point.time_us, at?)
            };
            let run = newest_run(&self.points, moment);
            self.apply_rates.entry(name).or_default().take(&run);
        }
        if newest.status.standby.is_some() {
            let moment = |point: &Point| Moment::of_standby(&point.status, &point.sample);
            self.apply_rates.entry(me.to_owned()).or_default().take(&newest_run(&self.points, moment));
        }
    }

    fn now_us(&self) -> u64 {
        self.points.back().map_or(0, |point| point.time_us)
    }

    /// Time over which rates are computed, seconds; `None` before the second observation.
    pub fn window_s(&self) -> Option<f64> {
        let (first, last) = (self.points.front()?, self.points.back()?);
        Some((last.time_us - first.time_us) as f64 / 1e6).filter(|seconds| *seconds > 0.0)
    }

    /// Bytes written to the redo log per second, padding included; `None` when unknown.
    pub fn log_rate(&self) -> Option<f64> {
        let (first, last) = (self.points.front()?, self.points.back()?);
        let blocks = |point: &Point| point.sample.statistic(Statistic::RedoBlocksWritten.name());
        let block_bytes = last.status.log.as_ref()?.block_bytes?;
        let grown = blocks(last)?.checked_sub(blocks(first)?)?;
        Some((grown * block_bytes) as f64 / self.window_s()?)
    }

    /// Growth per second of a value of the status; `None` when it is unknown or the value fell.
    pub fn rate(&self, of: impl Fn(&Status) -> Option<u64>) -> Option<f64> {
        let (first, last) = (self.points.front()?, self.points.back()?);
        let grown = of(&last.status)?.checked_sub(of(&first.status)?)?;
        Some(grown as f64 / self.window_s()?)
    }

    /// Returns what was counted in the window.
    pub fn interval(&self) -> Option<Sample> {
        self.window_s()?;
        self.points.back()?.sample.since(&self.points.front()?.sample)
    }

    /// Estimates what a failover now would lose, and how long it would take.
    pub fn estimate(&self, observation: &Observation) -> Estimate {
        Estimate::of(observation, &self.apply_rates)
    }
}

/// The newest moments without an unknown one among them, the oldest first.
fn newest_run(points: &VecDeque<Point>, moment: impl Fn(&Point) -> Option<Moment>) -> Vec<Moment> {
    let mut run: Vec<Moment> = points.iter().rev().map_while(moment).collect();
    run.reverse();
    run
}

/// Applied position of the standby `name`; `me` is the instance whose status this is.
pub fn applied(status: &Status, name: &str, me: &str) -> Option<u64> {
    match status.destinations().iter().find(|at| at.label() == name) {
        Some(at) => at.applied,
        None if name == me => status.standby.as_ref()?.applied,
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use standfast_documents::status::Log;

    fn observation(second: u64, commits: u64) -> Observation {
        let mut observation = Observation { name: "paris".into(), ..Observation::default() };
        observation.sample.time_us = second * 1_000_000;
        observation.status = Status::of(&json!({ "role": "primary", "incarnation": 1, "commits": commits,
            "destinations": [{ "name": "oslo", "role": "standby", "applied": commits * 10,
                "state": "streaming", "received": commits * 10 + 500 }] }));
        observation
    }

    #[test]
    fn rates_cover_the_last_ten_seconds() {
        let mut looks = Looks::default();
        looks.take(&observation(1, 0));
        assert_eq!(looks.rate(|status| status.commits), None);
        (2..=30)
            .for_each(|second| looks.take(&observation(second, if second <= 20 { 0 } else { second * 7 })));
        assert_eq!(looks.window_s(), Some(10.0));
        assert_eq!(looks.rate(|status| status.commits), Some(21.0));
    }

    #[test]
    fn log_rate_with_padding_determines_the_switch_interval() {
        let mut looks = Looks::default();
        for second in 1..=11 {
            let mut observation = observation(second, second);
            observation.status.captured = Some(second * 1000);
            observation.status.log = Some(Log::of(&json!({ "block_bytes": 4096, "groups": [
                { "state": "current", "bytes": 81_920_000, "first_scn": 0, "sequence": 1 }] })));
            let name = Statistic::RedoBlocksWritten.name().into();
            observation.sample.statistics =
                vec![standfast_instruments::StatisticValue { name, value: second * 20 }];
            looks.take(&observation);
        }
        assert_eq!(looks.log_rate(), Some(81_920.0));
        let status = looks.points.back().unwrap().status.clone();
        let pressure = crate::dashboard::Pressure::of(&status, &looks, &crate::dashboard::Machine::default());
        assert_eq!(pressure.switch_interval.value, Some(1000.0), "not 81,920 s");
    }

    #[test]
    fn no_counters_are_subtracted_across_a_restart() {
        let mut looks = Looks::default();
        looks.take(&observation(1, 100));
        let mut restarted = observation(2, 3);
        restarted.sample.started_us = 1;
        looks.take(&restarted);
        assert_eq!((looks.rate(|status| status.commits), looks.window_s()), (None, None));
    }

    #[test]
    fn progress_of_a_disconnected_standby_gives_no_rate() {
        let mut looks = Looks::default();
        looks.take(&observation(1, 0));
        let mut away = observation(2, 0);
        away.status.destinations.as_mut().unwrap()[0].state = Some("connecting".into());
        looks.take(&away);
        let back = observation(3, 1_000_000);
        looks.take(&back);
        assert_eq!(looks.estimate(&back).failover_s, None);
        let next = observation(4, 1_000_010);
        looks.take(&next);
        let role_change = looks.estimate(&next).failover_s.unwrap() - 5.0;
        assert!((0.0..0.1).contains(&role_change), "{role_change}");
    }

    #[test]
    fn backlog_estimate_uses_the_fastest_apply_rate_seen() {
        let mut looks = Looks::default();
        looks.take(&observation(1, 0));
        looks.take(&observation(2, 10));
        looks.take(&observation(40, 10));
        let idle = observation(60, 10);
        looks.take(&idle);
        let role_change = looks.estimate(&idle).failover_s.unwrap() - 5.0;
        assert!((0.0..0.1).contains(&role_change), "{role_change}");
    }
}
