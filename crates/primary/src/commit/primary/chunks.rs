//! Chunks of redo on their way into the log: steps 2 to 5 of the commit path.

use super::Primary;
use super::in_flight::{InFlight, Then};
use standfast_environment::config::error::InstanceError;
use standfast_format::count_records;
use standfast_instruments::{BatchTimes, Cause, Statistic};
use standfast_session::monotonic_ns;
use standfast_sqlite_wal::capture::CommitMark;
use standfast_types::{DatabaseId, Scn};
use std::sync::atomic::Ordering::SeqCst;

/// Memory kept allocated for the records of the next batch.
const OUT_BYTES_KEPT: usize = 1 << 20;

impl Primary {
    /// Writes what `out` holds, and after a log switch the anchors at the beginning of the new log.
    pub(super) fn write_out(&mut self, then: Then) -> Result<(), InstanceError> {
        self.write_chunk(then)?;
        if std::mem::take(&mut self.anchors_due) {
            let candidate = self.anchor_all()?;
            self.noted = self.shared.buffer.captured();
            self.helper.checkpoint_candidate(candidate);
        }
        Ok(())
    }

    /// Writes what `out` holds as one chunk: steps 2 to 5.
    pub(super) fn write_chunk(&mut self, then: Then) -> Result<(), InstanceError> {
        if self.out.is_empty() && self.marks.is_empty() {
            return self.end_writes();
        }
        if self.writer.room() < self.out.len() {
            self.shared.in_hand.store(self.marks.len(), SeqCst);
            let switched = self.switch();
            self.shared.in_hand.store(0, SeqCst);
            switched?;
        }
        let first = self.shared.buffer.captured();
        debug_assert_eq!(
            first,
            self.in_flight.back().map_or(self.writer.position(), |chunk| chunk.end),
            "redo in the buffer that is not on its way into the log"
        );
        let records = count_records(&self.out);
        let chunk = self.shared.buffer.append(self.out.as_slice());
        self.out.clear();
        self.out.shrink_to(OUT_BYTES_KEPT);
        let marks = std::mem::take(&mut self.marks);
        let times =
            BatchTimes { taken_ns: self.taken_ns, issued_ns: monotonic_ns(), ..BatchTimes::default() };
        let number = {
            let mut release = self.shared.releases();
            let number = release.batches.begin(times);
            release.queue.push(first, &marks, number);
            number
        };
        let end = self.shared.buffer.captured();
        self.in_flight.push_back(InFlight { first, end, marks, records, times, number });
        if let Some(chunk) = chunk {
            self.shared.shipping().offer(&chunk, self.shared.buffer.durable());
            match then {
                Then::Wait if !self.writer.is_in_flight() => {
                    self.writer.write(&[&chunk.bytes], Scn::ZERO)?;
                }
                _ => self.writer.begin_write(&[&chunk.bytes], Scn::ZERO)?,
            }
        }
        self.note_ended();
        if then == Then::Wait { self.end_writes() } else { Ok(()) }
    }

    /// Waits for the chunks in flight and does step 5 for them.
    pub(super) fn end_writes(&mut self) -> Result<(), InstanceError> {
        while self.writer.is_in_flight() {
            self.writer.end_oldest()?;
            self.note_ended();
        }
        self.note_ended();
        Ok(())
    }

    /// Does step 5 for the chunks that are durable.
    pub(super) fn note_ended(&mut self) {
        let durable = self.writer.position();
        while let Some(mut chunk) = self.in_flight.pop_front_if(|chunk| chunk.end <= durable) {
            chunk.times.written_ns = monotonic_ns();
            self.shared.releases().batches.written(chunk.number, chunk.times.written_ns);
            self.shared.buffer.set_durable(chunk.end);
            self.note_progress(chunk.first, &chunk.marks);
            self.shared.release(Cause::Local);
            self.shared.buffer.notify();
            chunk.times.ended_ns = monotonic_ns();
            self.shared.releases().batches.ended(chunk.number, chunk.times.ended_ns);
            self.note_batch(&chunk.times, chunk.records);
            self.taken_ns = chunk.times.ended_ns;
            if self.marks.capacity() == 0 {
                chunk.marks.clear();
                self.marks = chunk.marks;
            }
        }
    }

    fn note_batch(&mut self, times: &BatchTimes, records: u64) {
        let now = self.writer.counts();
        let before = std::mem::replace(&mut self.counted, now);
        let instruments = &self.shared.instruments;
        let us = |from: u64, to: u64| to.saturating_sub(from) / 1000;
        instruments.add(Statistic::RedoSize, now.bytes - before.bytes);
        instruments.add(Statistic::RedoWrites, now.writes - before.writes);
        instruments.add(Statistic::RedoBlocksWritten, now.blocks - before.blocks);
        instruments.add(Statistic::RedoWastage, now.wastage - before.wastage);
        instruments.add(Statistic::LogSwitches, now.switches - before.switches);
        instruments.add(Statistic::RedoEntries, records);
        instruments.add(Statistic::RedoWriteGatherTime, us(times.taken_ns, times.issued_ns));
        instruments.add(Statistic::RedoWriteTime, us(times.taken_ns, times.written_ns));
        instruments.add(Statistic::RedoWriteFinishTime, us(times.written_ns, times.ended_ns));
        instruments.add(Statistic::RedoWriteTotalTime, us(times.taken_ns, times.ended_ns));
    }

    fn note_progress(&self, first: Scn, marks: &[CommitMark]) {
        // The newest mark of each database suffices; the marks of one database are in order.
        let mut last: Option<DatabaseId> = None;
        for mark in marks.iter().rev() {
            if last == Some(mark.database) {
                continue;
            }
            last = Some(mark.database);
            if let Some(served) = self.served.get(&mark.database.0)
                && mark.release >= served.shared.local()
            {
                let scn = first + mark.end as u64;
                served.shared.set_captured(mark.release, scn);
                served.shared.set_local(mark.release);
                self.shared.segment.set_scn(mark.database.0, scn.0);
            }
        }
    }
}
