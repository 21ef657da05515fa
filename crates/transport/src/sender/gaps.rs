//! Gaps as the machine of a sender sees them: whether there is one, and when it is filled.

use super::failure::{Ended, Failure};
use super::open_gap::OpenGap;
use super::sender_core::SenderCore;
use crate::gap::Gap;
use crate::lock;
use standfast_types::Scn;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

impl SenderCore {
    /// Returns the gap of a standby that holds redo up to `from`, if it is worth archivers.
    pub(super) fn gap_from(&self, from: Scn) -> Result<Option<Gap>, Failure> {
        let settings = &self.config.archive.settings;
        if settings.connections == 0 || !self.shares_logs.load(SeqCst) {
            return Ok(None);
        }
        let Some((mut chain, crc)) = self.source.archived_from(from)? else { return Ok(None) };
        let mut end_crc = crc.0;
        let unusable = lock(&self.unusable);
        let first_bad = chain.iter().position(|log| unusable.contains(&(log.incarnation_id, log.sequence)));
        if let Some(at) = first_bad {
            end_crc = chain[at].crc;
            chain.truncate(at);
        }
        Ok(Gap::find(from, &chain, end_crc, settings))
    }

    /// Checks whether a standby that is fed from the logs, up to `sent`, is so far behind that archivers are faster. Returns
    /// why its stream must begin again.
    pub fn gap_behind(&self, sent: Scn) -> Option<Ended> {
        let behind = matches!(self.phase(), crate::Phase::CatchingUp) && lock(&self.gap).is_none();
        let gap = self.gap_from(sent).ok().flatten().filter(|_| behind)?;
        let (low, high) = (gap.low_sequence(), gap.high_sequence());
        Some(Ended::Restart(format!(
            "logs {low} to {high} are missing there: they are sent over connections of their own"
        )))
    }

    /// The gap that is being resolved.
    pub fn open_gap(&self) -> Option<Arc<OpenGap>> {
        lock(&self.gap).clone()
    }

    /// Ends the archivers of `open`, because the stream beside them is over.
    pub fn end_gap(&self, open: &OpenGap) {
        open.cut();
        *lock(&self.gap) = None;
    }

    /// Reports the gap as resolved once `hardened`, the position that the standby holds without a gap, has reached its end.
    pub(super) fn gap_hardened(&self, hardened: Scn) {
        let resolved = {
            let mut open = lock(&self.gap);
            if open.as_ref().is_some_and(|open| hardened >= open.to()) { open.take() } else { None }
        };
        if let Some(open) = resolved {
            open.end();
            self.report(&open.resolved(self.clock.now()));
        }
    }
}
