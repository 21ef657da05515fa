//! The state of the renewal of a certificate.

use super::clocks::{ClockWatch, Got};
use standfast_transport::now_seconds;
use std::time::Instant;

/// What renewal has done so far.
pub(super) struct Progress {
    pub(super) failed: Option<String>,
    pub(super) got: Option<Got>,
    pub(super) watch: ClockWatch,
    /// Day and text of the last warning.
    pub(super) warned: Option<(u64, String)>,
}

impl Default for Progress {
    fn default() -> Progress {
        // Detects a clock that is set right after the start as well.
        let watch = ClockWatch::begin(Instant::now(), now_seconds());
        Progress { failed: None, got: None, watch, warned: None }
    }
}
