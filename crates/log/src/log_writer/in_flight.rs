//! Writes in flight: while one write is made, the next one is formatted and handed to the device concurrently.
//!
//! They are committed in order, whichever the device completes first. After a power loss, blocks behind a write that is
//! not durable are not redo, and they do not record that write as durable.

use super::extents::{sole, total};
use super::{InFlight, LogWriter};
use crate::error::LogError;
use crate::members::IN_FLIGHT_MAX;
use standfast_types::Scn;

impl LogWriter {
    /// Begins to write consecutive slices of the stream, at most [`LogWriter::room`] bytes, behind the writes in
    /// flight. Waits for the oldest of them when the maximum is in flight. [`LogWriter::position`] covers only awaited
    /// writes; every other kind of write awaits all of them first. Each slice holds whole records.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn begin_write(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<(), LogError> {
        self.may_begin()?;
        if !self.members.can_begin() {
            return self.write(slices, confirmed).map(drop);
        }
        if self.in_flight.len() == IN_FLIGHT_MAX {
            self.end_oldest()?;
        }
        debug_assert!(self.writes_to_all_living(), "a living member misses a write");
        let mut writer = self.next_write();
        let offset = u64::from(writer.number) * writer.block_bytes as u64;
        let bytes = writer.blocks_for(total(slices)) * writer.block_bytes;
        let buffer = &mut self.buffers[self.begun % IN_FLIGHT_MAX];
        let used = writer.write(slices, confirmed, sole(buffer, bytes));
        self.members.begin(&self.targets, buffer, used, offset);
        self.begun += 1;
        self.in_flight.push_back(InFlight { writer, used, written_to: self.targets.clone() });
        Ok(())
    }

    /// Waits for the oldest write in flight, if there is one.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn end_oldest(&mut self) -> Result<(), LogError> {
        let Some(InFlight { writer, used, written_to }) = self.in_flight.pop_front() else { return Ok(()) };
        let wait = self.wait_for_write(self.writer.number);
        let failures = self.members.await_oldest(written_to.len());
        drop(wait);
        if !failures.is_empty()
            && let Err(poisoned) = self.continue_without(&written_to, failures)
        {
            self.await_without_use();
            return Err(poisoned);
        }
        self.advance(writer, used);
        Ok(())
    }

    /// Ends the oldest writes in flight that need no waiting.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn end_those_done(&mut self) -> Result<(), LogError> {
        while let Some(oldest) = self.in_flight.front()
            && self.members.oldest_has_ended(oldest.written_to.len())
        {
            self.end_oldest()?;
        }
        Ok(())
    }

    /// Waits for all writes in flight.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn end_all(&mut self) -> Result<(), LogError> {
        while !self.in_flight.is_empty() {
            self.end_oldest()?;
        }
        Ok(())
    }

    /// Returns whether a write is in flight.
    pub fn is_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Waits for the writes in flight: they must end before anything else reads or writes the files.
    pub(super) fn await_without_use(&mut self) {
        while let Some(write) = self.in_flight.pop_front() {
            // The write was never reported.
            let _ = self.members.await_oldest(write.written_to.len());
        }
    }
}
