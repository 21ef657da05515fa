//! Filters repeated refusals: a refused sender retries, perhaps every second; the alert log gets each refusal once
//! until something changes.

use standfast_transport::{ReceiverEvent, Refusal};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A refusal that persists is reported again after this time.
const REPEATED_AFTER: Duration = Duration::from_secs(600);
/// Number of different refusals remembered: several peers may be refused in turn.
const KEPT: usize = 16;

/// The refusals reported last, oldest first.
#[derive(Default)]
pub struct Refusals(Mutex<VecDeque<(Refusal, Instant)>>);

impl Refusals {
    /// Whether the event goes into the alert log.
    pub fn is_new(&self, event: &ReceiverEvent) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match event {
            // A count of suppressed refusals: the state of refused peers has not changed.
            ReceiverEvent::Suppressed { .. } => true,
            ReceiverEvent::Refused { refusal, .. } => {
                reported.retain(|(_, when)| when.elapsed() < REPEATED_AFTER);
                if reported.iter().any(|(known, _)| known == refusal) {
                    return false;
                }
                if reported.len() == KEPT {
                    reported.pop_front();
                }
                reported.push_back((refusal.clone(), Instant::now()));
                true
            }
            _ => {
                reported.clear();
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_transport::RefuseCode;
    use standfast_types::Scn;

    #[test]
    fn repeated_refusal_is_reported_once_until_another_event() {
        let refusals = Refusals::default();
        let refused = |port: u16, text: &str| ReceiverEvent::Refused {
            peer: format!("`far` at 127.0.0.1:{port}"),
            refusal: Refusal::new(RefuseCode::Busy, text),
        };
        assert!(refusals.is_new(&refused(1, "a")) && !refusals.is_new(&refused(2, "a")));
        assert!(refusals.is_new(&refused(3, "b")) && !refusals.is_new(&refused(4, "a")));
        assert!(
            refusals.is_new(&ReceiverEvent::Suppressed { count: 1 }) && !refusals.is_new(&refused(4, "b"))
        );
        let other = ReceiverEvent::Connected { primary: "south".into(), from: Scn(1) };
        assert!(refusals.is_new(&other) && refusals.is_new(&refused(5, "a")));
    }
}
