//! How far standbys are behind, in time: this instance when it is one, and those that it feeds.

use super::{Mode, Running};
use crate::lag::Marks;
use crate::standby::StandbyShared;
use crate::{history::SharedNotes, now_us};
use standfast_types::Scn;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Without a word from the source for this long, nobody knows what has been written there since: a healthy source speaks
/// at least once a second.
const SILENT_US: u64 = 3_000_000;

/// Lags of a standby, microseconds; `None`: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lags {
    /// Age of the oldest redo that is not received.
    pub transport_us: Option<u64>,
    /// Age of the oldest redo that is not applied.
    pub apply_us: Option<u64>,
}

impl Running {
    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is noted over time.
    pub fn history(&self) -> &SharedNotes {
        &self.notes
    }

    /// Notes where the stream ends: of a primary here, of a standby as its source has last said.
    pub(crate) fn note_end(&self, now_us: u64) {
        let end = match &*self.mode() {
            Mode::Primary(primary) => Some(primary.threads.shared().buffer.captured()),
            Mode::Standby(standby) => heard(standby.standby.shared(), now_us),
            Mode::FarSync(far_sync) => heard(far_sync.shared(), now_us),
            _ => None,
        };
        if let Some(end) = end {
            self.marks().note(end.0, now_us);
        }
    }

    /// How old the oldest redo is that comes after `position`, of a stream that ends at `end`, microseconds.
    pub fn lag_us(&self, position: Scn, end: Scn) -> Option<u64> {
        self.marks().lag_us(position.0, end.0, now_us())
    }

    /// Of this instance as a standby; nothing is known of other instances, and while the source is silent.
    pub(crate) fn own_lags(&self, now_us: u64) -> Lags {
        let shared = match &*self.mode() {
            Mode::Standby(standby) => standby.standby.shared().clone(),
            _ => return Lags::default(),
        };
        self.lags_of(&shared, now_us)
    }

    /// Of a standby whose redo is in `shared`.
    pub(crate) fn lags_of(&self, shared: &Arc<StandbyShared>, now_us: u64) -> Lags {
        let Some(end) = heard(shared, now_us) else { return Lags::default() };
        let marks = self.marks();
        let lag = |position: Scn| marks.lag_us(position.0, end.0.max(position.0), now_us);
        let stopped = shared.stopped();
        Lags { transport_us: lag(shared.hardened()), apply_us: stopped.least(shared.applied()).and_then(lag) }
    }
}

/// End of the source's redo, if it has said so lately.
fn heard(shared: &StandbyShared, now_us: u64) -> Option<Scn> {
    let silent = now_us.saturating_sub(shared.last_heard_us()) > SILENT_US;
    shared.source_end().filter(|_| !silent)
}
