//! Reaps sessions whose process has died (PMON): their hints would delay living sessions.

use standfast_session::Segment;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Interval of the check for dead sessions. Until then sessions that wait for the write lock check for themselves.
const EVERY: Duration = Duration::from_millis(100);

/// Frees the slots of dead sessions, until `stop`. A session lives as long as its lock in the shared memory, which is
/// the same for all users and namespaces; process IDs are not.
pub fn reap_until(stop: &AtomicBool, segment: Segment) {
    while !stop.load(SeqCst) {
        segment.reap_dead();
        std::thread::sleep(EVERY);
    }
}
