//! The log writer: writes batches of redo as blocks of the current group, durably, to all members.
//!
//! Invariants: a block is never rewritten; the header of a group is durable before its first block; one block of every
//! group stays free for a truncation block. A write is committed when at least one member holds it and every member
//! that does not is durably recorded as stale; until then it is not reported. If no member holds it, or a stale member
//! cannot be recorded, this process never writes the log again. See `docs/decisions/0014-lost-members.md`.

mod extents;
mod holes;
mod in_flight;
mod losses;
mod places;

pub use self::places::MemberPlace;
use crate::config::header_for;
use crate::error::LogError;
use crate::groups::{Cut, Member};
use crate::header::{LogIdentity, LogSwitch};
use crate::members::{IN_FLIGHT_MAX, MemberWriters};
use crate::redo_log::{RedoLog, SwitchBlocked};
use crate::unreachable::Unreachable;
use extents::{EXTENT_BYTES, extents_of, sole, total};
use standfast_format::{BlockWriter, LogKind, StreamCrc, decode_block, encode_void, incarnation_tag};
use standfast_instruments::{Event, Waiting, waiting};
use standfast_io::AlignedBuf;
use standfast_types::Scn;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Blocks that are read to find the generation of a file.
const LOOK_FOR_TURN: u64 = 8;

/// Counts since the log writer started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    pub writes: u64,
    /// The statistic `redo size`: bytes of records.
    pub bytes: u64,
    /// The statistic `redo blocks written`, one member counted.
    pub blocks: u64,
    /// The statistic `redo wastage`: bytes of padding.
    pub wastage: u64,
    pub switches: u64,
}

pub struct LogWriter {
    log: Arc<RedoLog>,
    identity: LogIdentity,
    /// Index of the group being written.
    group: usize,
    targets: Vec<Member>,
    members: MemberWriters,
    /// The end of the durable redo.
    writer: BlockWriter,
    in_flight: VecDeque<InFlight>,
    blocks_per_group: u32,
    /// The first one serves single writes; writes in flight use all of them in rotation.
    buffers: [Arc<AlignedBuf>; IN_FLIGHT_MAX],
    /// Number of writes begun so far of those that may be in flight together.
    begun: usize,
    poisoned: Option<(Scn, String)>,
    /// Redo found by recovery beyond the end, not voided yet.
    unreachable: Option<Unreachable>,
    counts: WriteCounts,
}

/// A write that was begun and not awaited yet.
struct InFlight {
    writer: BlockWriter,
    /// Bytes of the buffer that are written, whole blocks.
    used: usize,
    written_to: Vec<Member>,
}

impl LogWriter {
    pub(crate) fn new(
        log: Arc<RedoLog>,
        identity: LogIdentity,
        writer: BlockWriter,
    ) -> Result<LogWriter, LogError> {
        let (group, targets, layout, unreachable) = {
            let mut catalog = log.catalog();
            let members = catalog.groups[catalog.current].members.clone();
            (catalog.current, members, catalog.layout.clone(), catalog.unreachable.take())
        };
        let config = log.config();
        let members = MemberWriters::new(layout.members.len(), log.disk.in_turns()).map_err(LogError::io(
            "begin threads that write the redo log archived in",
            &config.archive_directory,
        ))?;
        let bytes = layout.bytes_at(group).unwrap_or(0);
        let blocks_per_group = (bytes / config.block_bytes as u64) as u32;
        Ok(LogWriter {
            group,
            targets,
            members,
            writer,
            in_flight: VecDeque::new(),
            blocks_per_group,
            buffers: std::array::from_fn(|_| Arc::new(AlignedBuf::new(config.block_bytes))),
            begun: 0,
            poisoned: None,
            unreachable,
            counts: WriteCounts::default(),
            identity,
            log,
        })
    }

    /// SCN after the last durable byte.
    pub fn position(&self) -> Scn {
        self.writer.position
    }

    /// Running checksum of the stream at [`LogWriter::position`].
    pub fn stream_crc(&self) -> StreamCrc {
        self.writer.stream_crc
    }

    /// Sequence of the log being filled.
    pub fn sequence(&self) -> u64 {
        self.writer.sequence
    }

    /// Identity of the redo being written.
    pub fn identity(&self) -> LogIdentity {
        self.identity
    }

    pub fn counts(&self) -> WriteCounts {
        self.counts
    }

    pub fn log(&self) -> &Arc<RedoLog> {
        &self.log
    }

    /// Redo bytes that still fit into the current group.
    pub fn room(&self) -> usize {
        self.blocks_left() * standfast_format::payload_capacity(self.writer.block_bytes)
    }

    /// Blocks of the current group that redo may still fill.
    fn blocks_left(&self) -> usize {
        self.blocks_per_group.saturating_sub(self.ahead().number + 1) as usize
    }

    /// Where the next write starts: after the writes in flight.
    fn ahead(&self) -> &BlockWriter {
        self.in_flight.back().map_or(&self.writer, |write| &write.writer)
    }

    /// Returns whether nothing has been written to the current group.
    pub fn group_is_empty(&self) -> bool {
        self.ahead().number == 1
    }

    /// Waits for the writes in flight and checks that the log may be written. Every write calls this first, except a
    /// write that follows those in flight.
    pub(crate) fn usable(&mut self) -> Result<(), LogError> {
        self.end_all()?;
        self.may_begin()
    }

    /// Checks that the log may be written. Every write calls this first; the first call voids what recovery found
    /// beyond the end.
    fn may_begin(&mut self) -> Result<(), LogError> {
        if let Some((at, cause)) = &self.poisoned {
            return Err(LogError::Poisoned { at: *at, cause: cause.clone() });
        }
        match self.unreachable.take() {
            None => Ok(()),
            Some(Unreachable { blocks, headerless, .. }) => {
                headerless.map_or(Ok(()), |group| self.void_group(group))?;
                self.wipe(blocks)
            }
        }
    }

    /// Overwrites blocks of the current group with zeros.
    fn wipe(&mut self, blocks: Range<u32>) -> Result<(), LogError> {
        let size = self.writer.block_bytes;
        for first in blocks.clone().step_by(EXTENT_BYTES / size) {
            let count = (EXTENT_BYTES / size).min((blocks.end - first) as usize);
            self.buffer(count)[..count * size].fill(0);
            self.write_blocks(count * size, first)?;
        }
        Ok(())
    }

    /// Where the next write starts; the blocks of the writes in flight are not known to be durable.
    fn next_write(&self) -> BlockWriter {
        BlockWriter { durable_before: self.writer.number, ..*self.ahead() }
    }

    fn poison(&mut self, cause: String) -> LogError {
        self.poisoned = Some((self.writer.position, cause.clone()));
        LogError::Poisoned { at: self.writer.position, cause }
    }

    fn write_blocks(&mut self, bytes: usize, first_block: u32) -> Result<(), LogError> {
        debug_assert!(self.writes_to_all_living(), "a living member misses a write");
        let offset = u64::from(first_block) * self.writer.block_bytes as u64;
        let wait = self.wait_for_write(first_block);
        let failures = self.members.write(&self.targets, &self.buffers[0], bytes, offset);
        drop(wait);
        if failures.is_empty() {
            return Ok(());
        }
        let written_to = self.targets.clone();
        self.continue_without(&written_to, failures)
    }

    /// Whether a write reaches every member that is not recorded as stale.
    fn writes_to_all_living(&self) -> bool {
        let catalog = self.log.catalog();
        let living = catalog.groups[self.group].members.iter().map(|member| &member.path);
        living.eq(self.targets.iter().map(|member| &member.path))
    }

    fn wait_for_write(&self, first_block: u32) -> Waiting {
        waiting(match (first_block, self.log.config().kind) {
            (0, _) => Event::LogFileSingleWrite,
            (_, LogKind::Standby) => Event::RfsRandomIo,
            _ => Event::LogFileParallelWrite,
        })
    }

    /// Block buffer of single writes, for at least one block.
    fn buffer(&mut self, blocks: usize) -> &mut AlignedBuf {
        sole(&mut self.buffers[0], blocks * self.writer.block_bytes)
    }

    /// Writes consecutive slices of the stream, at most [`LogWriter::room`] and `BATCH_BYTES_MAX` bytes in all; returns
    /// the SCN up to which redo is now durable. Each slice holds whole records.
    ///
    /// Writes a large batch of many slices in extents: while one extent is written the next is formatted.
    ///
    /// # Errors
    /// `Poisoned`, now and on every later call, when no member holds the write, or a stale member cannot be recorded.
    pub fn write(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, LogError> {
        self.usable()?;
        let extents = extents_of(slices);
        let blocks: usize = extents.iter().map(|extent| self.writer.blocks_for(total(extent))).sum();
        // Every extent ends with its own partly filled block; where the group has no room for these, all redo is one
        // extent.
        if extents.len() > 1 && blocks <= self.blocks_left() && self.members.can_begin() {
            extents.iter().try_for_each(|extent| self.begin_write(extent, confirmed))?;
            self.end_all()?;
            return Ok(self.writer.position);
        }
        let mut writer = self.next_write();
        let buffer = self.buffer(writer.blocks_for(total(slices)));
        let used = writer.write(slices, confirmed, buffer);
        self.write_blocks(used, self.writer.number)?;
        self.advance(writer, used);
        Ok(self.writer.position)
    }

    /// Records that a write of `used` bytes of blocks is durable; `writer` is where the next write starts.
    fn advance(&mut self, writer: BlockWriter, used: usize) {
        let payload = writer.position.bytes_since(self.writer.position);
        let blocks = used / writer.block_bytes;
        debug_assert!(
            writer.number == self.writer.number + blocks as u32 && writer.sequence == self.writer.sequence,
            "a write does not begin where the one before it ended"
        );
        self.writer = writer;
        self.counts.writes += 1;
        self.counts.bytes += payload;
        self.counts.blocks += blocks as u64;
        self.counts.wastage +=
            (blocks * standfast_format::payload_capacity(writer.block_bytes)) as u64 - payload;
    }

    /// Makes `confirmed` durable without redo. In a full group the files grow for this: received redo is not applied
    /// before it is confirmed, and while the primary is idle no redo comes that could carry it.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn write_confirmed(&mut self, confirmed: Scn) -> Result<(), LogError> {
        self.usable()?;
        let mut writer = self.next_write();
        let used = writer.write_empty(confirmed, self.buffer(1));
        self.write_blocks(used, self.writer.number)?;
        self.writer = writer;
        Ok(())
    }

    /// Number of the block that is written next.
    pub(crate) fn block_number(&self) -> u32 {
        self.writer.number
    }

    pub(crate) fn provide_for(&mut self, members: usize) -> Result<(), LogError> {
        let directory = &self.log.config().archive_directory;
        let failed = LogError::io("begin threads that write the redo log archived in", directory);
        self.members.provide_for(members).map_err(failed)
    }

    /// Why the log cannot be switched now; `None` when it can.
    pub fn switch_blocked(&self) -> Option<SwitchBlocked> {
        self.log.next_group().err()
    }

    /// Bytes from the end of the redo to the first record that begins there or later.
    pub fn first_record(&self) -> u32 {
        self.writer.next_record.bytes_since(self.writer.position) as u32
    }

    /// Begins the next log sequence in the next group, or returns why no group can be used yet.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn switch(&mut self, time_us: u64) -> Result<Result<LogSwitch, SwitchBlocked>, LogError> {
        self.end_all()?;
        let switch = LogSwitch {
            sequence: self.writer.sequence + 1,
            first_scn: self.writer.position,
            time_us,
            first_record: self.first_record(),
        };
        self.switch_to(&switch, self.identity)
    }

    /// Switches like [`LogWriter::switch`], to a sequence that the primary has announced, possibly of a new
    /// incarnation.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn switch_to(
        &mut self,
        switch: &LogSwitch,
        identity: LogIdentity,
    ) -> Result<Result<LogSwitch, SwitchBlocked>, LogError> {
        self.usable()?;
        let next = match self.log.next_group() {
            Ok(next) => next,
            Err(blocked) => return Ok(Err(blocked)),
        };
        self.identity = identity;
        self.writer.incarnation_tag = incarnation_tag(identity.incarnation_id);
        self.begin(next, switch)?;
        self.counts.switches += 1;
        Ok(Ok(*switch))
    }

    /// Begins the log of `switch` in this group: writes the header, and makes the group the current one.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub(crate) fn begin(&mut self, group: usize, switch: &LogSwitch) -> Result<(), LogError> {
        debug_assert!(self.log.is_spare(&self.log.catalog(), group), "the redo of the group is still needed");
        let bytes = self.log.catalog().layout.bytes_at(group).unwrap_or(0);
        let turn = self.next_turn(group);
        let header =
            header_for(self.log.config(), bytes, &self.identity, switch, self.writer.stream_crc, turn);
        let block_bytes = self.writer.block_bytes;
        header.encode(&mut self.buffer(1)[..block_bytes]);
        self.write_to(group);
        // Check the paths before anything relies on files that were opened long ago.
        self.leave_moved_members()?;
        self.write_blocks(block_bytes, 0)?;
        let mut catalog = self.log.catalog();
        let ended = catalog.current;
        if ended != group && catalog.groups[ended].header.is_some() {
            let hole = catalog.hole.filter(|hole| hole.to == switch.first_scn);
            catalog.groups[ended].next_scn = Some(hole.map_or(switch.first_scn, |hole| hole.from));
        }
        let begun = &mut catalog.groups[group];
        begun.header = Some(header);
        begun.next_scn = None;
        begun.archived = false;
        begun.cuts = Some(Vec::new());
        catalog.current = group;
        drop(catalog);
        self.writer.number = 1;
        self.writer.turn = turn;
        self.writer.sequence = switch.sequence;
        self.writer.next_record = switch.first_scn + u64::from(switch.first_record);
        Ok(())
    }

    /// Returns a generation other than that of the blocks in the group's files, whatever became of the files' header.
    fn next_turn(&self, group: usize) -> u8 {
        let catalog = self.log.catalog();
        let group = &catalog.groups[group];
        let size = self.writer.block_bytes;
        let mut block = vec![0; size];
        // A power loss may have torn the first ones.
        let places =
            (1..=LOOK_FOR_TURN).flat_map(|number| group.members.iter().map(move |member| (number, member)));
        let last = { places }.find_map(|(number, member)| {
            member.file.read_at(&mut block, number * size as u64).ok()?;
            Some(decode_block(&block).ok()?.turn)
        });
        let last = last.or_else(|| group.header.map(|header| header.turn));
        last.map_or(0, |last| last.wrapping_add(1))
    }

    /// Directs writes to this group from now on.
    pub(crate) fn write_to(&mut self, group: usize) {
        let catalog = self.log.catalog();
        self.targets.clone_from(&catalog.groups[group].members);
        let bytes = catalog.layout.bytes_at(group).unwrap_or(0);
        self.blocks_per_group = (bytes / self.writer.block_bytes as u64) as u32;
        self.group = group;
    }

    /// Discards everything from `at` on, which must not be older than what is archived. A standby uses this for redo
    /// that its primary never made durable.
    ///
    /// # Errors
    /// As [`LogWriter::write`]; `TooOld` when no group holds `at`.
    pub fn cut(&mut self, at: Scn, confirmed: Scn) -> Result<(), LogError> {
        self.usable()?;
        // A truncation never ends within a gap: the redo before the gap is what remains.
        self.give_up_beyond_hole()?;
        if at >= self.writer.position {
            return Ok(());
        }
        let place = self.log.locate_cut(at)?;
        let current = self.log.catalog().current;
        let log_of = |writer: &BlockWriter| (writer.incarnation_tag, writer.sequence);
        debug_assert!(
            log_of(&place.writer) != log_of(&self.writer) || place.writer.number == self.writer.number,
            "a truncation block in the place of another block"
        );
        if place.group != current {
            self.give_up_groups_after(place.group)?;
        }
        let mut writer = BlockWriter { durable_before: place.writer.number, ..place.writer };
        let used = writer.write_cut(confirmed, self.buffer(1));
        self.write_blocks(used, place.writer.number)?;
        self.writer = writer;
        // The redo that was withdrawn may be of a later incarnation.
        self.identity = place.identity;
        let mut cuts = place.cuts;
        cuts.push(Cut { block: place.writer.number, at });
        self.log.catalog().groups[place.group].cuts = Some(cuts);
        Ok(())
    }

    /// Voids the headers of all groups that were begun after `keep`, newest first, so that a crash on the way leaves a
    /// shorter or longer log but never a gap.
    fn give_up_groups_after(&mut self, keep: usize) -> Result<(), LogError> {
        let block_bytes = self.writer.block_bytes;
        loop {
            let current = self.log.catalog().current;
            self.write_to(current);
            if current == keep {
                return Ok(());
            }
            encode_void(&mut self.buffer(1)[..block_bytes]);
            self.write_blocks(block_bytes, 0)?;
            let mut catalog = self.log.catalog();
            catalog.groups[current].header = None;
            catalog.groups[current].next_scn = None;
            let previous = catalog.newest().unwrap_or(keep);
            catalog.current = previous;
            catalog.groups[previous].next_scn = None;
            catalog.groups[previous].archived = false;
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.await_without_use();
    }
}
