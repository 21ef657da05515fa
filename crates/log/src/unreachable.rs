//! Redo that had been durable and lies behind the end that recovery finds: the log is damaged.
//!
//! A loss of power leaves the blocks of the writes that were under way in any state, and whatever order they reached the
//! disk in, no valid block behind the end says that a block there had been durable. Damage does: every block tells which
//! ones were durable when it was written. Taken for the end of the log, damage would lose what was acknowledged without a
//! word. Likewise the header of a log is durable before its first block.

use crate::blocks::{Blocks, Source};
use crate::error::LogError;
use crate::groups::{Group, Member};
use standfast_format::{
    BLOCK_HEADER_BYTES, BlockHeader, LogFileHeader, StreamCrc, decode_block, incarnation_tag, is_void,
};
use standfast_types::Scn;
use std::ops::Range;
use std::path::PathBuf;

/// How far behind the end blocks are looked for. Damage in one piece that is larger than this is not told from the end.
const LOOK_BEHIND_BYTES: u64 = 64 << 20;

/// Redo that had been durable and cannot be read any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRedo {
    /// The file, or its first member, that held it.
    pub path: PathBuf,
    /// The redo ends here now.
    pub from: Scn,
    /// It had reached this position, perhaps with a last write that nobody has acknowledged.
    pub to: Scn,
}

/// What recovery found behind the end.
pub(crate) struct Unreachable {
    pub lost: LostRedo,
    /// Blocks of the current group that must not be found again once the log goes on.
    pub blocks: Range<u32>,
    /// Group whose header is damaged: it is the one that was being filled.
    pub headerless: Option<usize>,
}

/// Looks behind `end`, where the blocks of the log in group `current` end: number of the next one, position, running sum.
pub(crate) fn look_behind(
    groups: &[Group],
    current: usize,
    source: &Source,
    end: (u32, Scn, StreamCrc),
) -> Result<Option<Unreachable>, LogError> {
    let mut blocks = Blocks::new(source.clone())?;
    blocks.go_on_at(end);
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

/// From where to where at least redo is lost, if one of the blocks behind the end says so.
fn was_durable(behind: &[BlockHeader], (number, position, _): (u32, Scn, StreamCrc)) -> Option<(Scn, Scn)> {
    let durable = behind.iter().map(|block| block.durable_before).max()?;
    if durable <= number {
        return None;
    }
    // Where the damaged block was a cut, even what stands before it is void.
    let from = behind.iter().map(|block| block.position).min()?.min(position);
    // Also that of the last write, which nothing behind it proves.
    let to = behind.iter().map(BlockHeader::end).max()?;
    // What was damaged held something, or reading had gone on behind it.
    Some((from, to.max(position + 1)))
}

/// First and last block of the log that `group` was given behind the one of `before`, which ends at `end`, if its header
/// is damaged.
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

/// The number that a block says it has; cheaper than to decode what is not one.
pub(crate) fn says_number(block: &[u8], number: u32) -> bool {
    debug_assert!(block.len() >= BLOCK_HEADER_BYTES);
    block[4..8] == number.to_le_bytes()
}
