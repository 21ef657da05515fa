//! Redo that had been durable and lies beyond the end that recovery finds: the log is damaged.
//!
//! A power loss leaves the blocks of the writes in flight in any state. Whatever order they reached the disk in, no
//! valid block beyond the end says that a block at the end had been durable. Damage does show: every block says which
//! blocks were durable when it was written. If damage were taken for the end of the log, acknowledged redo would be
//! lost silently. Likewise, the header of a log is durable before its first block.

use crate::blocks::{Blocks, Source};
use crate::error::LogError;
use crate::groups::{Group, Member};
use standfast_format::{BlockHeader, LogFileHeader, StreamCrc, decode_block, incarnation_tag, is_void};
use standfast_types::Scn;
use std::ops::Range;
use std::path::PathBuf;

/// How far beyond the end blocks are searched. Contiguous damage that is larger than this cannot be told from the end.
const LOOK_BEHIND_BYTES: u64 = 64 << 20;

/// Redo that had been durable and can no longer be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRedo {
    /// The file that held the redo; of a group, its first member.
    pub path: PathBuf,
    /// SCN at which the redo now ends.
    pub from: Scn,
    /// SCN that the redo had reached, possibly with a last write that was never acknowledged.
    pub to: Scn,
}

/// Findings of recovery beyond the end of the redo.
pub(crate) struct Unreachable {
    pub lost: LostRedo,
    /// Blocks of the current group that must not be found again once the log continues.
    pub blocks: Range<u32>,
    /// Group whose header is damaged: it was being filled.
    pub headerless: Option<usize>,
}

/// Searches beyond `end`, where the blocks of the log in group `current` end: number of the next block, SCN, running
/// checksum.
pub(crate) fn look_behind(
    groups: &[Group],
    current: usize,
    source: &Source,
    end: (u32, Scn, StreamCrc),
) -> Result<Option<Unreachable>, LogError> {
    let mut blocks = Blocks::new(source.clone())?;
    blocks.resume_at(end);
    let behind = blocks.owned_behind(LOOK_BEHIND_BYTES);
    let last = behind.last().map_or(end.0, |block| block.number + 1);
    let path = source.members.first().map(|member| member.path.clone()).unwrap_or_default();
    if let Some((from, to)) = was_durable(&behind, end) {
        let lost = LostRedo { path, from, to };
        return Ok(Some(Unreachable { lost, blocks: end.0..last, headerless: None }));
    }
    let others = groups.iter().enumerate().filter(|(index, _)| *index != current);
    let next = others.filter_map(|(index, group)| {
        let (first, last) = log_without_header(group, &source.header, end.1)?;
        let path = group.members.first().map(|member| member.path.clone()).unwrap_or_default();
        let lost = LostRedo { path, from: first.position, to: last.end().max(first.position + 1) };
        Some(Unreachable { lost, blocks: 0..0, headerless: Some(index) })
    });
    Ok(next.into_iter().next())
}

/// Returns the range of redo that is lost at least, if one of the blocks beyond the end shows a loss.
fn was_durable(behind: &[BlockHeader], (number, position, _): (u32, Scn, StreamCrc)) -> Option<(Scn, Scn)> {
    let durable = behind.iter().map(|block| block.durable_before).max()?;
    if durable <= number {
        return None;
    }
    // If the damaged block was a truncation, even what stands before it is void.
    let from = behind.iter().map(|block| block.position).min()?.min(position);
    // This includes the last write, which no later block proves to have been durable.
    let to = behind.iter().map(BlockHeader::end).max()?;
    // The damaged block held something; otherwise reading would have continued beyond it.
    Some((from, to.max(position + 1)))
}

/// Returns the first and the last block of the log that `group` received after the one of `before`, which ends at
/// `end`, if its header is damaged.
fn log_without_header(group: &Group, before: &LogFileHeader, end: Scn) -> Option<(BlockHeader, BlockHeader)> {
    let size = before.block_bytes as usize;
    let mut first_blocks = vec![0; 2 * size];
    group.members.iter().find_map(|Member { file, path }| {
        file.read_at(&mut first_blocks, 0).ok()?;
        let (header, first) = first_blocks.split_at(size);
        if group.header.is_some() || LogFileHeader::decode(header).is_ok() || is_void(header) {
            return None;
        }
        let first = decode_block(first).ok().filter(|block| {
            block.number == 1
                && block.position == end
                && block.sequence == before.sequence + 1
                && block.incarnation_tag == incarnation_tag(before.incarnation_id)
        })?;
        let header = LogFileHeader {
            sequence: first.sequence,
            first_scn: first.position,
            stream_crc: first.stream_crc,
            turn: first.turn,
            ..*before
        };
        let member = Member { file: file.clone(), path: path.clone() };
        let mut blocks = Blocks::new(Source { members: vec![member], header, cuts: Vec::new() }).ok()?;
        let mut last = first;
        while let Ok(Some((block, _))) = blocks.next_block() {
            last = block;
        }
        Some((first, last))
    })
}
