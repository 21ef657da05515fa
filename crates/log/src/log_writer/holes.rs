//! Writing beyond a gap, and what becomes of the groups when the gap is filled or the redo beyond it is discarded.

use super::LogWriter;
use crate::error::LogError;
use crate::header::{LogIdentity, LogSwitch};
use crate::hole::Hole;
use crate::redo_log::SwitchBlocked;
use standfast_format::{StreamCrc, encode_void, incarnation_tag};
use standfast_types::Scn;

impl LogWriter {
    /// Begins the log `switch` in the next group although the redo between the present end and its start is not held;
    /// `stream_crc` is the running checksum at its start. All groups before the one being filled must be archived. The
    /// caller has recorded the gap durably.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn jump(
        &mut self,
        switch: &LogSwitch,
        identity: LogIdentity,
        stream_crc: StreamCrc,
    ) -> Result<Result<LogSwitch, SwitchBlocked>, LogError> {
        self.usable()?;
        let next = match self.log.next_group() {
            Ok(next) => next,
            Err(blocked) => return Ok(Err(blocked)),
        };
        debug_assert!(
            self.log.hole().is_none() && self.writer.position < switch.first_scn,
            "a second gap, or one that goes back"
        );
        // Set before the group begins, so that no reader takes the group before it to be longer than it is.
        self.log.catalog().hole = Some(Hole { from: self.writer.position, to: switch.first_scn });
        self.identity = identity;
        self.writer.incarnation_tag = incarnation_tag(identity.incarnation_id);
        self.writer.position = switch.first_scn;
        self.writer.stream_crc = stream_crc;
        self.begin(next, switch)?;
        self.counts.switches += 1;
        // Recovery looks for the confirmed SCN in the newest group, and the groups before it may be void then.
        self.write_confirmed(switch.first_scn)?;
        Ok(Ok(*switch))
    }

    /// Closes the gap, which archived logs fill: voids the groups before it, durably, oldest first. If this is
    /// interrupted, archived logs hold the redo of those groups.
    ///
    /// # Errors
    /// `TooOld` when archived logs do not hold all of the gap; otherwise as [`LogWriter::write`].
    pub fn fill_hole(&mut self) -> Result<(), LogError> {
        self.usable()?;
        let before = {
            let catalog = self.log.catalog();
            let Some(hole) = catalog.hole else { return Ok(()) };
            let mut before: Vec<_> = catalog
                .groups
                .iter()
                .enumerate()
                .filter_map(|(index, group)| Some((group.header?.first_scn, index)))
                .filter(|(first, _)| *first < hole.to)
                .collect();
            before.sort_unstable();
            // The redo before the gap was archived when the gap opened, and may have become dispensable since.
            if let Some(at) = catalog.not_archived(hole.from, hole.to) {
                return Err(LogError::TooOld { at, oldest: hole.from });
            }
            before
        };
        for (_, index) in before {
            self.void_group(index)?;
        }
        self.log.catalog().hole = None;
        Ok(())
    }

    /// Discards what was written beyond the gap, newest first, and continues where the redo before the gap ends.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn give_up_beyond_hole(&mut self) -> Result<(), LogError> {
        let (hole, last, mut beyond) = {
            let catalog = self.log.catalog();
            let Some(hole) = catalog.hole else { return Ok(()) };
            let last = (0..catalog.groups.len()).find(|index| catalog.is_last_before_hole(*index));
            let headers = catalog.groups.iter().enumerate();
            let beyond: Vec<_> = headers
                .filter_map(|(index, group)| Some((group.header?.first_scn, index)))
                .filter(|(first, _)| *first >= hole.to)
                .collect();
            (hole, last.unwrap_or(catalog.current), beyond)
        };
        beyond.sort_unstable_by(|a, b| b.cmp(a));
        for (_, index) in beyond {
            self.void_group(index)?;
        }
        {
            let mut catalog = self.log.catalog();
            catalog.current = last;
            (catalog.groups[last].next_scn, catalog.groups[last].archived) = (None, false);
            catalog.hole = None;
        }
        self.write_to(last);
        self.cut(hole.from, Scn::ZERO)
    }

    /// Voids on disk what [`crate::RedoLog::open_after_hole`] found void. The caller does this before any other write.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn settle(&mut self) -> Result<(), LogError> {
        let leftover = std::mem::take(&mut self.log.catalog().leftover);
        leftover.void.into_iter().try_for_each(|index| self.void_group(index))?;
        leftover.filled_to.map_or(Ok(()), |to| self.write_confirmed(to))
    }

    pub(super) fn void_group(&mut self, index: usize) -> Result<(), LogError> {
        let current = self.log.catalog().current;
        let block_bytes = self.writer.block_bytes;
        encode_void(&mut self.buffer(1)[..block_bytes]);
        self.write_to(index);
        let voided = self.write_blocks(block_bytes, 0);
        self.write_to(current);
        voided?;
        let mut catalog = self.log.catalog();
        let group = &mut catalog.groups[index];
        (group.header, group.next_scn, group.archived) = (None, None, false);
        group.cuts = Some(Vec::new());
        Ok(())
    }
}
