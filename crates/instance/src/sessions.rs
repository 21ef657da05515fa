//! Burying sessions whose process has died (PMON): their hints would hold up the living.

use standfast_session::Segment;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// How often it is looked who has died. Until then those who wait for the write lock look for themselves.
const EVERY: Duration = Duration::from_millis(100);

/// Frees the slots of sessions that have died, until `stop`. Whether one lives is told by its lock in the shared memory, which is
/// the same for all users and namespaces; the process numbers there are not.
pub fn bury_until(stop: &AtomicBool, segment: Segment) {
    while !stop.load(SeqCst) {
        segment.bury_dead();
        std::thread::sleep(EVERY);
    }
}
