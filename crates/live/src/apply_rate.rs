//! How fast a standby applies redo when it does nothing else, which is how long a failover takes that finds a backlog.

use crate::lags::is_heard;
use crate::status::{Destination, Status};
use standfast_instruments::{Event, Sample, Statistic};
use standfast_types::APPLY_BEHIND_BYTES;

/// What is concluded from less time, seconds, says nothing.
const LEAST_S: f64 = 0.01;

/// What apply does when it does not pause. A failover does all of it.
const APPLYING: [Event; 3] = [Event::RecoveryApply, Event::DbFileParallelWrite, Event::DbFileSync];

/// At one moment: what has been applied, and whether much was left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Seconds.
    pub at_s: f64,
    /// Time that apply has worked until then, as far as it is known to have paused, seconds.
    pub worked_s: f64,
    /// Redo applied, bytes.
    pub applied: u64,
    /// Apply had more to do than it could.
    pub busy: bool,
}

impl Moment {
    /// Of a destination, as its primary sees it: whether apply pauses there is not known. `None` while it is not heard:
    /// what it did meanwhile comes all at once when it is back.
    pub fn of_destination(time_us: u64, destination: &Destination) -> Option<Moment> {
        if !is_heard(destination, Some(time_us)) {
            return None;
        }
        let busy = is_busy(destination.backlog(), destination.delay_s);
        // What it has applied it had when it said so.
        let at_s = destination.last_heard_us.unwrap_or(time_us).min(time_us) as f64 / 1e6;
        Some(Moment { at_s, worked_s: at_s, applied: destination.applied?, busy })
    }

    /// Of a standby that looks at itself.
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

/// `delay_s`: what is held back is left and gives apply nothing to do.
fn is_busy(left: Option<u64>, delay_s: Option<u64>) -> bool {
    left.is_some_and(|left| left >= APPLY_BEHIND_BYTES) && delay_s.is_none_or(|delay| delay == 0)
}

/// What is known of one standby, bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyRate {
    /// The fastest that was seen. Of a standby that keeps up the primary sees no more than what arrives there.
    fastest: Option<f64>,
    /// Of the newest moments, while much is left.
    flat_out: Option<f64>,
}

impl ApplyRate {
    /// Takes in the newest moments, the oldest first.
    pub fn take(&mut self, moments: &[Moment]) {
        let busy_since = moments.iter().rposition(|moment| !moment.busy).map_or(0, |idle| idle + 1);
        let busy = &moments[busy_since..];
        self.flat_out = rate(since_it_moves(busy), |moment| moment.at_s);
        for seen in self.flat_out.into_iter().chain(rate(moments, |moment| moment.worked_s)) {
            self.fastest = Some(self.fastest.map_or(seen, |fastest| fastest.max(seen)));
        }
    }

    /// How fast a backlog would be applied; `None`: nothing was seen yet.
    pub fn bytes_s(&self) -> Option<f64> {
        self.flat_out.or(self.fastest)
    }
}

/// Without the time in which apply stood, for it may have been switched off. When it began to move is not known any better
/// than by the first moment at which it had, where there is a later one.
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
    fn while_much_is_left_the_rate_is_the_present_one_and_else_the_fastest_seen() {
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
    fn a_destination_is_busy_with_what_it_has_and_not_with_what_it_lacks_or_holds_back() {
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
    fn a_standby_that_works_now_and_then_is_as_fast_as_it_works() {
        let mut rate = ApplyRate::default();
        let at = |at_s, worked_s, applied| Moment { at_s, worked_s, applied, busy: false };
        rate.take(&[at(0.0, 5.0, 0), at(10.0, 5.5, 1000)]);
        assert_eq!(rate.bytes_s(), Some(2000.0));
    }
}
