//! A sender that is refused tries again, every second perhaps: the alert log has it once until something changes.

use standfast_transport::{ReceiverEvent, Refusal};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What goes on for longer is said again.
const SAID_AGAIN: Duration = Duration::from_secs(600);

/// The newest refusal that was said.
#[derive(Default)]
pub struct Refusals(Mutex<Option<(Refusal, Instant)>>);

impl Refusals {
    /// Whether the event belongs into the alert log.
    pub fn is_news(&self, event: &ReceiverEvent) -> bool {
        let mut last = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let ReceiverEvent::Refused { refusal, .. } = event else {
            *last = None;
            return true;
        };
        let said = last.as_ref().is_some_and(|(said, when)| said == refusal && when.elapsed() < SAID_AGAIN);
        if !said {
            *last = Some((refusal.clone(), Instant::now()));
        }
        !said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_transport::RefuseCode;
    use standfast_types::Scn;

    #[test]
    fn the_same_refusal_is_said_once_until_something_else_happens() {
        let refusals = Refusals::default();
        let refused = |port: u16, text: &str| ReceiverEvent::Refused {
            peer: format!("`far` at 127.0.0.1:{port}"),
            refusal: Refusal::new(RefuseCode::Busy, text),
        };
        assert!(refusals.is_news(&refused(1, "a")) && !refusals.is_news(&refused(2, "a")));
        assert!(refusals.is_news(&refused(3, "b")) && refusals.is_news(&refused(4, "a")));
        let other = ReceiverEvent::Connected { primary: "south".into(), from: Scn(1) };
        assert!(refusals.is_news(&other) && refusals.is_news(&refused(5, "a")));
    }
}
