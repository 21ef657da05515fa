//! The standby redo log while whole logs are missing: it continues beyond the gap, archived logs fill the gap, and any
//! early end leaves redo without a gap.
//!
//! Order of events, each durable before the next: everything before the gap is archived; the control file records the
//! gap; the log begins beyond it. Then archived logs arrive, one by one. At the end the groups before the gap are
//! voided, since archived logs hold their content, and the control file forgets the gap. After a stop in between, the
//! next start decides ([`RedoLog::open_after_hole`]): redo beyond the gap counts if the gap is filled; otherwise it is
//! dropped and sent again.

use crate::archive_store::{self, Expected, FetchedLogs};
use crate::received_log::ReceivedLog;
use crate::standby_shared::BUFFER_BYTES;
use standfast_environment::config::error::InstanceError;
use standfast_environment::ship::archive_source::is_of_history;
use standfast_environment::state::control::GapRecord;
use standfast_format::{LogFileHeader, StreamCrc, peek_length};
use standfast_log::{
    Chain, LogBuffer, LogError, LogIdentity, LogSwitch, LogWriter, SwitchBlocked, archive_group,
    archived_logs, keep_beginning,
};
use standfast_transport::{Gap, GivenUp, OpenedGap};
use standfast_types::Scn;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// The first log of the gap.
struct FirstLog {
    identity: LogIdentity,
    sequence: u64,
    first_scn: Scn,
}

/// How long the archiver may take for the logs before a gap.
const ARCHIVE_TIMEOUT: Duration = Duration::from_secs(30);

impl ReceivedLog {
    pub(crate) fn open_gap_to(
        &mut self,
        gap: &Gap,
        log: &LogSwitch,
        identity: LogIdentity,
    ) -> Result<OpenedGap, InstanceError> {
        let history = self.environment.control().incarnations;
        let foreign = gap
            .logs
            .iter()
            .find(|log| !is_of_history(&history, log.incarnation_id, log.first_scn, log.next_scn));
        if let Some(foreign) = foreign {
            let text = format!("log {} of the gap is not of this stream", foreign.sequence);
            return Err(InstanceError::Failed(text));
        }
        let crc = self.writer.stream_crc();
        let held = self.keep_only(gap, crc)?;
        let record = GapRecord {
            from: gap.from,
            to: gap.to,
            low_sequence: gap.low_sequence(),
            high_sequence: gap.high_sequence(),
        };
        let family = identity.instance;
        let first = gap.logs.first().map(|log| FirstLog {
            identity: LogIdentity {
                instance: family,
                incarnation: log.incarnation,
                incarnation_id: log.incarnation_id,
            },
            sequence: log.sequence,
            first_scn: log.first_scn,
        });
        self.jump(record, first, log, identity, StreamCrc(gap.crc))?;
        self.beyond_gap = Some(self.shared.confirmed());
        self.shared.note_contiguous();
        let store = FetchedLogs::new(&self.environment, &self.shared, gap, crc);
        Ok(OpenedGap { store: Arc::new(store), held })
    }

    /// Deletes archived logs past the end unless they are complete logs of this gap. Returns which logs of the gap are
    /// present.
    fn keep_only(&self, gap: &Gap, crc: StreamCrc) -> Result<Vec<bool>, InstanceError> {
        let (log, family) = (&self.shared.log, self.environment.control().family);
        let archived = log.archived();
        let mut held = Vec::new();
        for (index, wanted) in gap.logs.iter().enumerate() {
            let path = archive_store::archive_path(log, wanted);
            let is_there = archived.iter().any(|log| log.path == path);
            let expected = Expected::of(gap, index, family, crc);
            held.push(is_there && expected.is_met_by(self.environment.disk.as_ref(), &path)?.is_some());
        }
        let kept = |header: &LogFileHeader| {
            let mut pairs = gap.logs.iter().zip(&held);
            pairs.any(|(log, held)| {
                *held && (log.incarnation_id, log.sequence) == (header.incarnation_id, header.sequence)
            })
        };
        let beyond = |header: &LogFileHeader| header.next_scn.is_none_or(|next| next > gap.from);
        log.remove_archived_if(&|header| beyond(header) && !kept(header))?;
        Ok(held)
    }

    /// Continues the log at `switch`, beyond the gap in `record`, whose first log is `first`.
    fn jump(
        &mut self,
        record: GapRecord,
        first: Option<FirstLog>,
        switch: &LogSwitch,
        identity: LogIdentity,
        stream_crc: StreamCrc,
    ) -> Result<(), InstanceError> {
        // The source has later redo in archived logs, so it has made durable all redo held here: that redo is
        // confirmed.
        let end = self.writer.position();
        if end > self.shared.confirmed() {
            self.writer.write_confirmed(end)?;
            self.shared.confirmed.fetch_max(end.0, SeqCst);
        }
        if let Some(first) = &first
            && (first.sequence, first.identity) == (self.writer.sequence(), self.writer.identity())
            && first.first_scn > self.shared.log.current_first().max(self.shared.log.checkpoint())
        {
            // The fetched log takes the place of the one here, and lacks its beginning.
            keep_beginning(&self.shared.log, end)?;
        }
        if let Some(FirstLog { identity, sequence, first_scn }) = first
            && first_scn == end
            && (sequence, identity) != (self.writer.sequence(), self.writer.identity())
        {
            // The redo held here ends exactly at the end of a log. No log of the gap contains it, so the last group
            // must be archived here.
            let (time_us, first_record) =
                (standfast_environment::state::now::now_us(), self.writer.first_record());
            let switch = LogSwitch { sequence, first_scn, time_us, first_record };
            self.await_group(|writer| writer.switch_to(&switch, identity))?;
            // The group that holds the confirmed position may be filled again beyond the gap. If a start found less, the
            // databases would hold redo that it does not replay.
            self.writer.write_confirmed(end)?;
        }
        self.archive_full_groups()?;
        self.environment.update_control(|control| control.gap = Some(record))?;
        self.await_group(|writer| writer.jump(switch, identity, stream_crc))?;
        *self.shared.buffer() = Arc::new(LogBuffer::new(switch.first_scn, BUFFER_BYTES));
        Ok(())
    }

    /// Repeats `begin` until a group is free.
    fn await_group(
        &mut self,
        mut begin: impl FnMut(&mut LogWriter) -> Result<Result<LogSwitch, SwitchBlocked>, LogError>,
    ) -> Result<(), InstanceError> {
        while let Err(blocked) = begin(&mut self.writer)? {
            if self.shared.is_stopping() {
                let text = format!("stopped while waiting for a standby log ({blocked:?})");
                return Err(InstanceError::Failed(text));
            }
            self.archive_full_groups()?;
            std::thread::park_timeout(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Waits until all full groups are archived. Archives them itself only if there is no archiver thread: two threads
    /// must not archive one group at the same time.
    fn archive_full_groups(&self) -> Result<(), InstanceError> {
        let began = Instant::now();
        loop {
            let full = self.shared.log.to_archive();
            if full.is_empty() {
                return Ok(());
            }
            if !self.has_archiver {
                for (group, _) in full {
                    archive_group(&self.shared.log, group, &mut || {})?;
                }
                continue;
            }
            if self.shared.is_stopping() || began.elapsed() > ARCHIVE_TIMEOUT {
                let text =
                    "the logs before the gap are not archived; the alert log says what keeps them from it";
                return Err(InstanceError::Failed(text.into()));
            }
            (self.archive)();
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// The archived logs fill the gap: redo beyond it counts from now on.
    pub(crate) fn fill(&mut self) -> Result<(), InstanceError> {
        // A source archives only durable redo.
        let filled_to = self.shared.log.hole().map_or(Scn::ZERO, |hole| hole.to);
        self.writer.fill_hole()?;
        self.environment.update_control(|control| control.gap = None)?;
        let confirmed = filled_to.max(self.beyond_gap.take().unwrap_or_default());
        self.shared.confirmed.fetch_max(confirmed.0, SeqCst);
        self.shared.set_hardened(self.writer.position());
        self.shared.wake();
        self.shared.wake_senders();
        Ok(())
    }

    /// Discards the redo beyond a gap that was not filled when the stream ended.
    pub(crate) fn give_up(&mut self) -> Result<Option<GivenUp>, InstanceError> {
        let Some(hole) = self.shared.log.hole() else { return Ok(None) };
        let received = self.writer.position();
        self.beyond_gap = None;
        self.shared.confirmed_beyond.store(0, SeqCst);
        self.writer.give_up_beyond_hole()?;
        self.remove_archived_beyond(hole.to)?;
        self.environment.update_control(|control| control.gap = None)?;
        *self.shared.buffer() = Arc::new(LogBuffer::new(self.writer.position(), BUFFER_BYTES));
        self.lead_on()?;
        let given_up = GivenUp { end: self.writer.position(), to: hole.to, received };
        self.given_up = Some(given_up);
        Ok(Some(given_up))
    }

    /// Continues at the end of the archived logs that follow the end of the log: logs fetched before a gap was
    /// discarded, or registered by an operator. Returns their number.
    pub fn lead_on(&mut self) -> Result<usize, InstanceError> {
        let control = self.environment.control();
        let of_stream = |header: &LogFileHeader| {
            let next = header.next_scn.unwrap_or(Scn(u64::MAX));
            header.instance == control.family
                && is_of_history(&control.incarnations, header.incarnation_id, header.first_scn, next)
        };
        let end = self.writer.position();
        let chain = self.shared.log.chain(end, Some(self.writer.stream_crc()), &of_stream);
        if let (Some(first), Some(last)) = (chain.logs.first(), chain.logs.last()) {
            let switch = LogSwitch {
                sequence: last.header.sequence + 1,
                first_scn: chain.end,
                time_us: standfast_environment::state::now::now_us(),
                first_record: self.first_record_after(&chain)?,
            };
            let record = GapRecord {
                from: end,
                to: chain.end,
                low_sequence: first.header.sequence,
                high_sequence: last.header.sequence,
            };
            let first = FirstLog {
                identity: LogIdentity::of(&first.header),
                sequence: first.header.sequence,
                first_scn: first.header.first_scn,
            };
            self.jump(record, Some(first), &switch, LogIdentity::of(&last.header), chain.crc)?;
            self.fill()?;
        }
        Ok(chain.logs.len())
    }

    /// Bytes from the end of the chain to the first record that begins there or later.
    fn first_record_after(&self, chain: &Chain) -> Result<u32, InstanceError> {
        let mut begin = Vec::new();
        self.shared.log.read(chain.last_record, chain.end, 16, &mut begin)?;
        let length = peek_length(&begin).unwrap_or(0) as u64;
        Ok((chain.last_record + length).0.saturating_sub(chain.end.0) as u32)
    }

    /// Removes archived logs that end after `end`: they must never be read as part of this stream.
    pub(crate) fn remove_archived_beyond(&self, end: Scn) -> Result<(), InstanceError> {
        self.remove_archived(&|header| header.next_scn.is_some_and(|next| next > end))
    }

    /// Removes fetched logs beyond the end that do not belong to the stream now followed.
    pub(crate) fn forget_foreign_logs(&self) -> Result<(), InstanceError> {
        let (end, history) = (self.writer.position(), self.environment.control().incarnations);
        self.remove_archived(&|header| {
            let next = header.next_scn.unwrap_or(Scn(u64::MAX));
            next > end && !is_of_history(&history, header.incarnation_id, header.first_scn, next)
        })
    }

    /// Removes unwanted archived logs, in the catalog or not: a copy of a group that has since become void may just
    /// have been finished.
    fn remove_archived(&self, unwanted: &dyn Fn(&LogFileHeader) -> bool) -> Result<(), InstanceError> {
        self.shared.log.remove_archived_if(unwanted)?;
        let (disk, directory) = (&self.environment.disk, &self.environment.paths.archive);
        let family = self.environment.control().family;
        for log in archived_logs(disk.as_ref(), directory, Some(family))? {
            if unwanted(&log.header) {
                disk.remove(&log.path).map_err(InstanceError::io("remove the archived log", &log.path))?;
            }
        }
        Ok(())
    }
}
