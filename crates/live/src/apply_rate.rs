//! How fast a standby applies redo at full load. That rate decides how long a failover with a backlog takes.

use crate::lags::is_heard;
use standfast_documents::Status;
use standfast_documents::status::Destination;
use standfast_instruments::{Event, Sample, Statistic};
use standfast_types::APPLY_BEHIND_BYTES;

/// No rate is computed over a shorter time, seconds.
const LEAST_S: f64 = 0.01;

/// The waits of apply while it works. A failover does all of this work.
const APPLYING: [Event; 3] = [Event::RecoveryApply, Event::DbFileParallelWrite, Event::DbFileSync];

/// One moment: how much has been applied, and whether a backlog was left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Seconds since the Unix epoch.
    pub at_s: f64,
    /// Time that apply has worked until then, seconds; pauses count unless they are known.
    pub worked_s: f64,
    /// SCN at the primary, bytes of redo since the start at the standby: only differences count.
    pub applied: u64,
    /// Whether apply had a backlog to work on.
    pub busy: bool,
}

impl Moment {
    /// Returns the moment of a destination as the primary sees it, where pauses of apply are unknown. `None` while the
    /// destination is not heard: its progress meanwhile would arrive at once when it is back.
    pub fn of_destination(time_us: u64, destination: &Destination) -> Option<Moment> {
        if !is_heard(destination, Some(time_us)) {
            return None;
        }
        let busy = is_busy(destination.backlog(), destination.delay_s);
        // The applied position is as old as the message that reported it.
        let at_s = destination.last_heard_us.unwrap_or(time_us).min(time_us) as f64 / 1e6;
        Some(Moment { at_s, worked_s: at_s, applied: destination.applied?, busy })
    }

    /// Returns the moment of a standby from its own observation.
    pub fn of_standby(status: &Status, sample: &Sample) -> Option<Moment> {
        let received = status.standby.as_ref()?;
        let busy = is_busy(received.backlog(), received.delay_s);
        let worked = APPLYING.iter().map(|event| Some(sample.event(*event)?.time_ns));
        Some(Moment {
            at_s: sample.time_us as f64 / 1e6,
            worked_s: worked.sum::<Option<u64>>()? as f64 / 1e9,
            applied: sample.statistic(Statistic::RedoApplied.name())?,
            busy,
        })
    }
}

/// Whether apply has a backlog to work on. With an apply delay the backlog is held back and is no work.
fn is_busy(left: Option<u64>, delay_s: Option<u64>) -> bool {
    left.is_some_and(|left| left >= APPLY_BEHIND_BYTES) && delay_s.is_none_or(|delay| delay == 0)
}

/// What is known of one standby, bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyRate {
    /// The highest rate seen. Of a standby that keeps up, the primary sees only the rate at which redo arrives.
    fastest: Option<f64>,
    /// The rate over the newest moments, while there is a backlog.
    flat_out: Option<f64>,
}

impl ApplyRate {
    /// Adds the newest moments, the oldest first.
    pub fn take(&mut self, moments: &[Moment]) {
        let busy_since = moments.iter().rposition(|moment| !moment.busy).map_or(0, |idle| idle + 1);
        let busy = &moments[busy_since..];
        self.flat_out = rate(since_it_moves(busy), |moment| moment.at_s);
        for seen in self.flat_out.into_iter().chain(rate(moments, |moment| moment.worked_s)) {
            self.fastest = Some(self.fastest.map_or(seen, |fastest| fastest.max(seen)));
        }
    }

    /// Returns the rate at which a backlog would be applied; `None` when none was seen yet.
    pub fn bytes_s(&self) -> Option<f64> {
        self.flat_out.or(self.fastest)
    }
}

/// Drops the leading moments at which apply stood still, because it may have been stopped. It resumed at some time
/// before the first moment that shows progress, so the rest begins with that moment if a later one exists.
fn since_it_moves(moments: &[Moment]) -> &[Moment] {
    let stood = moments.windows(2).take_while(|pair| pair[0].applied == pair[1].applied).count();
    let begun = if stood > 0 && moments.len() > stood + 2 { stood + 1 } else { stood };
    &moments[begun..]
}

fn rate(moments: &[Moment], clock: fn(&Moment) -> f64) -> Option<f64> {
    let (first, last) = (moments.first()?, moments.last()?);
    let (time_s, bytes) = (clock(last) - clock(first), last.applied.checked_sub(first.applied)?);
    (time_s >= LEAST_S && bytes > 0).then(|| bytes as f64 / time_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn moments(all: &[(f64, u64, bool)]) -> Vec<Moment> {
        all.iter().map(|&(at_s, applied, busy)| Moment { at_s, worked_s: at_s, applied, busy }).collect()
    }

    #[test]
    fn apply_rate_is_current_when_busy_and_else_the_fastest_seen() {
        let mut rate = ApplyRate::default();
        assert_eq!(rate.bytes_s(), None);
        rate.take(&moments(&[(0.0, 0, false)]));
        assert_eq!(rate.bytes_s(), None);
        rate.take(&moments(&[(0.0, 0, false), (10.0, 900, false)]));
        rate.take(&moments(&[(20.0, 900, false), (30.0, 1000, false)]));
        assert_eq!(rate.bytes_s(), Some(90.0), "it has been faster");
        rate.take(&moments(&[(30.0, 1000, false), (31.0, 1005, true), (33.0, 1025, true)]));
        assert_eq!(rate.bytes_s(), Some(10.0), "this is as fast as it is now");
        rate.take(&moments(&[(33.0, 1025, true), (34.0, 1025, true)]));
        assert_eq!(rate.bytes_s(), Some(90.0), "apply that stands says nothing of its speed");
        rate.take(&moments(&[(33.0, 1025, true), (38.0, 1025, true), (40.0, 1065, true)]));
        assert_eq!(rate.bytes_s(), Some(20.0), "nor does the time in which it stood");
        rate.take(&moments(&[
            (33.0, 1025, true),
            (38.0, 1025, true),
            (40.0, 1065, true),
            (41.0, 1105, true),
        ]));
        assert_eq!(
            rate.bytes_s(),
            Some(40.0),
            "it may have stood for a while after the last look at which it did"
        );
    }

    #[test]
    fn destination_is_busy_only_with_received_and_undelayed_redo() {
        let moment = |document| {
            let destination: Destination = serde_json::from_value(document).unwrap();
            Moment::of_destination(2_000_000, &destination)
        };
        let there = json!({ "state": "streaming", "applied": 7, "received": 7 + (4 << 20) });
        assert_eq!(moment(there.clone()), Some(Moment { at_s: 2.0, worked_s: 2.0, applied: 7, busy: true }));
        let mut lacking = there.clone();
        (lacking["received"], lacking["apply_lag_bytes"]) = (json!(8), json!(5 << 20));
        assert!(!moment(lacking).unwrap().busy);
        let mut silent = there.clone();
        silent["state"] = json!("connecting");
        assert_eq!(moment(silent), None);
        let mut held_back = there;
        held_back["delay_s"] = json!(60);
        assert!(!moment(held_back).unwrap().busy);
        assert_eq!(moment(json!({ "state": "streaming", "received": 5 })), None);
    }

    #[test]
    fn apply_rate_counts_only_the_working_time() {
        let mut rate = ApplyRate::default();
        let at = |at_s, worked_s, applied| Moment { at_s, worked_s, applied, busy: false };
        rate.take(&[at(0.0, 5.0, 0), at(10.0, 5.5, 1000)]);
        assert_eq!(rate.bytes_s(), Some(2000.0));
    }
}
