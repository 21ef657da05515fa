//! Alert log lines about a destination. Each event that changes the protection is logged. Other events, which a member
//! can cause about as often as it connects, get a limited number of lines an hour, and a count of the omitted lines.

use standfast_transport::SenderEvent;
use standfast_types::hint;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(3600);
/// Lines in a [`PERIOD`]: a connection that breaks every minute is logged in full.
const LINES: usize = 256;

/// What was logged about one destination.
#[derive(Default)]
pub struct DestinationLines(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    reported: VecDeque<Instant>,
    omitted: u64,
}

impl DestinationLines {
    /// Returns the line about an event at `now`; `None` when it is omitted.
    pub fn line(&self, now: Instant, name: &str, event: &SenderEvent) -> Option<String> {
        if moves_protection(event) {
            return Some(format!("destination {name}: {event}"));
        }
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while lines
            .reported
            .front()
            .is_some_and(|reported| now.saturating_duration_since(*reported) >= PERIOD)
        {
            lines.reported.pop_front();
        }
        if lines.reported.len() < LINES {
            lines.reported.push_back(now);
            return Some(match std::mem::take(&mut lines.omitted) {
                0 => format!("destination {name}: {event}"),
                count => {
                    format!("destination {name}: {event}; {count} events before this are not in this log")
                }
            });
        }
        lines.omitted += 1;
        (lines.omitted == 1).then(|| {
            hint::in_one_line(
                format_args!(
                    "destination {name}: {event}; further events of it are omitted for up to an hour"
                ),
                Some(
                    "`standfast destination list` shows its state; defer it if its host does this on purpose",
                ),
            )
        })
    }
}

fn moves_protection(event: &SenderEvent) -> bool {
    use SenderEvent::*;
    match event {
        Degraded { .. }
        | Stalled { .. }
        | StallEnded { .. }
        | Synchronised { .. }
        | Resynchronised { .. }
        | Fenced { .. }
        | GaveUp { .. } => true,
        Connected { .. }
        | CatchingUp { .. }
        | FromBuffer { .. }
        | GapFound(_)
        | GapResolved { .. }
        | ArchiveUnusable { .. }
        | Disconnected { .. }
        | ApplyStopped(_)
        | ApplyResumes { .. }
        | PagesDiffer { .. }
        | PagesAgree { .. }
        | Refused(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::Scn;

    #[test]
    fn event_flood_is_limited_but_protection_changes_are_logged() {
        let (lines, begun) = (DestinationLines::default(), Instant::now());
        let refused = |number: usize| SenderEvent::Disconnected { reason: format!("reason {number}") };
        let reported = (0..10_000).filter_map(|number| lines.line(begun, "far", &refused(number)));
        let reported: Vec<String> = reported.collect();
        assert_eq!(reported.len(), LINES + 1);
        assert!(reported[LINES - 1].ends_with("reason 255"), "{}", reported[LINES - 1]);
        assert!(reported[LINES].contains("omitted for up to an hour"), "{}", reported[LINES]);
        let moved = SenderEvent::Resynchronised { acknowledged: Scn(1) };
        assert!((0..1_000).all(|_| lines.line(begun, "far", &moved).is_some()));
        let later = lines.line(begun + PERIOD, "far", &refused(0)).unwrap_or_default();
        assert!(later.contains("reason 0") && later.contains("9744 events"), "{later}");
        assert_eq!(
            lines.line(begun + PERIOD, "far", &refused(0)),
            Some("destination far: disconnected: reason 0".into())
        );
    }
}
