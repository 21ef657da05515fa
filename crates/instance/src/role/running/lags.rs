//! How far standbys are behind, in time: this instance as a standby, and the standbys that it feeds.

use super::{Mode, Running};
use crate::role::history::SharedNotes;
use crate::role::lag::EndSamples;
use standfast_environment::state::now::now_us;
use standfast_standby::standby_shared::StandbyShared;
use standfast_types::Scn;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Longest silence of the source after which its position is still trusted: a healthy source sends at least once a
/// second.
const SILENT_US: u64 = 3_000_000;

/// Lags of a standby, microseconds; `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lags {
    /// Age of the oldest redo that is not received.
    pub transport_us: Option<u64>,
    /// Age of the oldest redo that is not applied.
    pub apply_us: Option<u64>,
}

impl Running {
    fn samples(&self) -> MutexGuard<'_, EndSamples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn history(&self) -> &SharedNotes {
        &self.notes
    }

    /// Records the end of the stream: a primary's own end, or the end that a standby's source last reported.
    pub(crate) fn note_end(&self, now_us: u64) {
        let end = match &*self.mode() {
            Mode::Primary(primary) => Some(primary.threads.shared().buffer.captured()),
            Mode::Standby(standby) => heard(standby.standby.shared(), now_us),
            Mode::FarSync(far_sync) => heard(far_sync.shared(), now_us),
            _ => None,
        };
        if let Some(end) = end {
            self.samples().note(end.0, now_us);
        }
    }

    /// Age of the oldest redo after `position`, in a stream that ends at `end`, microseconds.
    pub fn lag_us(&self, position: Scn, end: Scn) -> Option<u64> {
        self.samples().lag_us(position.0, end.0, now_us())
    }

    /// Lags of this instance as a standby; unknown in other roles, and while the source is silent.
    pub(crate) fn own_lags(&self, now_us: u64) -> Lags {
        let shared = match &*self.mode() {
            Mode::Standby(standby) => standby.standby.shared().clone(),
            _ => return Lags::default(),
        };
        self.lags_of(&shared, now_us)
    }

    /// Lags of a standby with the positions in `shared`.
    pub(crate) fn lags_of(&self, shared: &Arc<StandbyShared>, now_us: u64) -> Lags {
        let Some(end) = heard(shared, now_us) else { return Lags::default() };
        let samples = self.samples();
        let lag = |position: Scn| samples.lag_us(position.0, end.0.max(position.0), now_us);
        let stopped = shared.stopped();
        Lags { transport_us: lag(shared.hardened()), apply_us: stopped.least(shared.applied()).and_then(lag) }
    }
}

/// End of the source's redo, if reported recently.
fn heard(shared: &StandbyShared, now_us: u64) -> Option<Scn> {
    let silent = now_us.saturating_sub(shared.last_heard_us()) > SILENT_US;
    shared.source_end().filter(|_| !silent)
}
