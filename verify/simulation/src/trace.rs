//! Traces the events of a history to standard error.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static ON: AtomicBool = AtomicBool::new(false);

/// Turns the trace on for the histories of this process.
pub fn turn_on() {
    ON.store(true, Relaxed);
}

/// Writes a line if the trace is on.
pub fn say(what: impl FnOnce() -> String) {
    if ON.load(Relaxed) {
        eprintln!("{}", what());
    }
}
