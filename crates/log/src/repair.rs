//! After any stop the members of a group may differ: a write had reached some of them, a block was damaged, or a member
//! was away for a while. Before anything new is written, recovery makes all members hold what they hold together.
//!
//! Only blocks that differ are written, never one that is correct: after an interruption each block can still be read
//! where it was read before.
//!
//! A member that was away may hold more than the others: a write that reached it alone before it failed. That write was
//! never acknowledged and the others do not hold it, so it is voided. Otherwise the log would continue behind blocks
//! that only this member has.

use crate::blocks::{Blocks, Source};
use crate::error::LogError;
use crate::groups::MemberNotice;
use crate::open::{OpenGroup, OpenMember, Opened};
use standfast_format::{LogFileHeader, encode_void};
use standfast_io::AlignedBuf;

const EXTENT_BYTES: usize = 1 << 20;

/// Repairs the members of every group. A member that cannot be written is dropped.
pub(crate) fn bring_in_line(opened: &mut Opened, block_bytes: usize) -> Result<(), LogError> {
    let Opened { groups, notices } = opened;
    for group in groups.iter_mut().filter(|group| group.members.len() > 1) {
        let mut progress: Vec<Progress> = group.members.iter().map(|_| Progress::default()).collect();
        match group.header() {
            Some(header) => complete(group, &header, block_bytes, &mut progress)?,
            None => void(group, block_bytes, &mut progress),
        }
        for (open, progress) in group.members.iter_mut().zip(&progress) {
            open.distrusted = false;
            if progress.written > 0 && progress.failure.is_none() {
                let (path, blocks) = (open.member.path.clone(), progress.written);
                notices.push(MemberNotice::Repaired { path, blocks, damaged: progress.damaged });
            }
        }
        let mut failures = progress.into_iter().map(|progress| progress.failure);
        group.drop_members(|_| failures.next().flatten());
        group.check_alive()?;
    }
    Ok(())
}

/// Progress of the repair of one member.
#[derive(Default)]
struct Progress {
    written: u32,
    /// A correct block came after a wrong one.
    damaged: bool,
    failure: Option<LogError>,
}

/// Voids the headers of an unused group, whatever a member that was away says.
fn void(group: &mut OpenGroup, block_bytes: usize, progress: &mut [Progress]) {
    let mut void = AlignedBuf::new(block_bytes);
    encode_void(&mut void[..block_bytes]);
    for (open, progress) in group.members.iter_mut().zip(progress) {
        if open.header.take().is_some() {
            progress.write(open, &void[..block_bytes], 0);
            progress.written += 1;
        }
    }
}

fn complete(
    group: &mut OpenGroup,
    header: &LogFileHeader,
    block_bytes: usize,
    progress: &mut [Progress],
) -> Result<(), LogError> {
    let mut blocks = Blocks::new(Source { members: group.trusted(), header: *header, cuts: Vec::new() })?;
    let mut extent =
        Extent { blocks: AlignedBuf::new(EXTENT_BYTES), first: 0, used: block_bytes, block_bytes };
    let mut found = AlignedBuf::new(EXTENT_BYTES);
    header.encode(&mut extent.blocks[..block_bytes]);
    while let Some((_, block)) = blocks.next_block()? {
        if extent.used == EXTENT_BYTES {
            extent.give_to(group, progress, &mut found);
        }
        extent.blocks[extent.used..extent.used + block_bytes].copy_from_slice(block);
        extent.used += block_bytes;
    }
    extent.give_to(group, progress, &mut found);
    let end = u64::from(extent.first) * block_bytes as u64;
    for (open, progress) in group.members.iter().zip(progress).filter(|(open, _)| open.distrusted) {
        void_from(open, end, block_bytes, progress, &mut found);
    }
    group.members.iter_mut().for_each(|open| open.header = Some(*header));
    Ok(())
}

/// Voids everything that the member holds from `offset` on, a block boundary.
fn void_from(
    open: &OpenMember,
    offset: u64,
    block_bytes: usize,
    progress: &mut Progress,
    found: &mut AlignedBuf,
) {
    let zeros = AlignedBuf::new(EXTENT_BYTES);
    let length = match open.member.file.len() {
        Ok(length) => length,
        Err(error) => return progress.fail(open, error),
    };
    for start in (offset..length).step_by(EXTENT_BYTES) {
        let bytes = (length - start).min(EXTENT_BYTES as u64) as usize;
        let readable = open.member.file.read_at(&mut found[..bytes], start).is_ok();
        if !readable || found[..bytes] != zeros[..bytes] {
            progress.write(open, &zeros[..bytes], start);
            progress.written += (bytes / block_bytes) as u32;
        }
    }
}

/// Blocks that all members are to have.
struct Extent {
    blocks: AlignedBuf,
    /// Number, within the file, of the first block.
    first: u32,
    /// Bytes of `blocks` that are filled.
    used: usize,
    block_bytes: usize,
}

impl Extent {
    /// Compares each member with the blocks and repairs it, then begins the next extent.
    fn give_to(&mut self, group: &OpenGroup, progress: &mut [Progress], found: &mut AlignedBuf) {
        let start = u64::from(self.first) * self.block_bytes as u64;
        for (open, progress) in group.members.iter().zip(progress) {
            for (begin, end) in self.differing(open, start, progress, found) {
                let mut run = AlignedBuf::new(end - begin);
                run[..end - begin].copy_from_slice(&self.blocks[begin..end]);
                progress.write(open, &run[..end - begin], start + begin as u64);
                progress.written += ((end - begin) / self.block_bytes) as u32;
            }
        }
        self.first += (self.used / self.block_bytes) as u32;
        self.used = 0;
    }

    /// Ranges of bytes in which a member has other blocks.
    fn differing(
        &self,
        open: &OpenMember,
        start: u64,
        progress: &mut Progress,
        found: &mut AlignedBuf,
    ) -> Vec<(usize, usize)> {
        let size = self.block_bytes;
        let file = &open.member.file;
        let whole = file.read_at(&mut found[..self.used], start).is_ok();
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in (0..self.used).step_by(size) {
            let place = at..at + size;
            let readable = whole || file.read_at(&mut found[place.clone()], start + at as u64).is_ok();
            let equal = readable && found[place.clone()] == self.blocks[place];
            match runs.last_mut() {
                _ if equal => progress.damaged |= progress.written > 0 || !runs.is_empty(),
                Some((_, end)) if *end == at => *end += size,
                _ => runs.push((at, at + size)),
            }
        }
        runs
    }
}

impl Progress {
    fn write(&mut self, open: &OpenMember, bytes: &[u8], offset: u64) {
        if self.failure.is_none()
            && let Err(error) = open.member.file.write_durable(bytes, offset)
        {
            self.fail(open, error);
        }
    }

    fn fail(&mut self, open: &OpenMember, error: std::io::Error) {
        let failed = LogError::io("bring in line the redo log", &open.member.path);
        self.failure = Some(failed(error));
    }
}
