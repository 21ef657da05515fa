//! Completes checksums that SQLite before 3.50.2 omits; see [`standfast_types::WalHeader`].
//!
//! A transaction that has overwritten one of its own frames computes checksums when it commits. It first reads the
//! checksum of the frame before, eight bytes that no other operation reads. At this moment the frames are complete, no
//! other connection has seen them, and SQLite continues with what the read returns, even where it computes none itself.
//! So the frames before get their missing checksums, and the read returns the checksum of the last one.

use standfast_types::{FrameRun, WAL_HEADER_BYTES, WalFile, WalHeader};

/// Bytes of a checksum, which are the first read of SQLite's recomputation.
pub(crate) const SUM_BYTES: usize = 8;
/// Offset of the checksum in the header of the file; below, in the header of a frame.
const SUM_IN_FILE: u64 = 24;
const SUM_IN_FRAME: u64 = 16;

/// Handles SQLite's read of a checksum at `offset` of a WAL: completes the frames of the transaction up to that one,
/// and returns the checksum with which SQLite continues. `None` when no frame lacks one: the read proceeds as it is.
///
/// # Errors
/// The error of the file; the transaction must fail.
pub(crate) fn complete<F: WalFile>(
    frames: &mut FrameRun,
    file: &mut F,
    offset: u64,
) -> Result<Option<[u8; SUM_BYTES]>, F::Error> {
    let Some(unsummed) = frames.unsummed() else { return Ok(None) };
    frames.write_out(|offset, run| file.write(offset, run))?;
    let mut header = [0; WAL_HEADER_BYTES];
    file.read(0, &mut header)?;
    let Some(header) = WalHeader::of(&header) else { return Ok(None) };
    let before = match offset.checked_sub(SUM_IN_FRAME) {
        _ if offset == SUM_IN_FILE => Some(0),
        Some(begin) => header.frame_at(begin),
        None => None,
    };
    let places = (before, header.frame_at(unsummed.first), header.frame_at(unsummed.last));
    let (Some(before), Some(first), Some(last)) = places else { return Ok(None) };
    // `before` may lie past the last frame, among discarded frames.
    let end = before.min(last);
    if first > end {
        return Ok(None);
    }
    let sums = header.frame_sums(file, first, end)?;
    for (frame, sum) in (first..).zip(&sums) {
        header.write_frame_sum(file, frame, *sum)?;
    }
    Ok(sums.last().map(|sum| {
        let [[a, b, c, d], [e, f, g, h]] = sum.map(u32::to_be_bytes);
        [a, b, c, d, e, f, g, h]
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::{WAL_FRAME_HEADER_BYTES, WAL_MAGIC, WalSum, is_unsummed};

    const PAGE: usize = 512;

    #[derive(Default)]
    struct Log {
        run: FrameRun,
        bytes: Bytes,
        /// As SQLite keeps it in memory.
        sum: [u32; 2],
        recompute_from: u32,
        frames: u32,
    }

    #[derive(Default)]
    struct Bytes(Vec<u8>);

    impl WalFile for Bytes {
        type Error = &'static str;

        fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), &'static str> {
            let at = offset as usize;
            out.copy_from_slice(self.0.get(at..at + out.len()).ok_or("a short read")?);
            Ok(())
        }

        fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), &'static str> {
            let end = offset as usize + data.len();
            self.0.resize(self.0.len().max(end), 0);
            self.0[offset as usize..end].copy_from_slice(data);
            Ok(())
        }
    }

    /// Models SQLite 3.40's `walEncodeFrame`, `walFrames`, `sqlite3WalSavepointUndo` and `walRewriteChecksums`.
    impl Log {
        fn new() -> Log {
            let mut log = Log::default();
            let mut head = WAL_MAGIC.to_be_bytes().to_vec();
            head.extend([3_007_000u32, PAGE as u32, 0, 7, 8].map(u32::to_be_bytes).as_flattened());
            let mut sum = WalSum::new(false);
            sum.add(&head);
            head.extend(sum.words().map(u32::to_be_bytes).as_flattened());
            log.bytes.0 = head;
            log.sum = sum.words();
            log
        }

        fn offset(frame: u32) -> u64 {
            (WAL_HEADER_BYTES + (frame as usize - 1) * (WAL_FRAME_HEADER_BYTES + PAGE)) as u64
        }

        fn header(&mut self, page_no: u32, commit: u32, page: &[u8]) -> Vec<u8> {
            let mut header = [page_no, commit].map(u32::to_be_bytes).as_flattened().to_vec();
            if self.recompute_from == 0 {
                let mut sum = WalSum::after(self.sum, false);
                sum.add(&header);
                sum.add(page);
                self.sum = sum.words();
                header.extend([7u32, 8, self.sum[0], self.sum[1]].map(u32::to_be_bytes).as_flattened());
            }
            header.resize(WAL_FRAME_HEADER_BYTES, 0);
            header
        }

        fn write(&mut self, offset: u64, data: &[u8]) {
            let bytes = &mut self.bytes;
            self.run.write(offset, data, |offset, data| bytes.write(offset, data)).unwrap();
        }

        fn append(&mut self, commit: u32) {
            self.frames += 1;
            let (offset, page) = (Log::offset(self.frames), [self.frames as u8; PAGE]);
            let header = self.header(self.frames, commit, &page);
            self.write(offset, &header);
            self.write(offset + WAL_FRAME_HEADER_BYTES as u64, &page);
        }

        fn overwrite(&mut self, frame: u32) {
            if self.recompute_from == 0 || frame < self.recompute_from {
                self.recompute_from = frame;
            }
            self.write(Log::offset(frame) + WAL_FRAME_HEADER_BYTES as u64, &[0xee; PAGE]);
        }

        fn commit(&mut self) -> Result<(), &'static str> {
            self.append(9);
            if self.recompute_from == 0 {
                return Ok(());
            }
            let from = std::mem::take(&mut self.recompute_from);
            let offset = if from == 1 { SUM_IN_FILE } else { Log::offset(from - 1) + SUM_IN_FRAME };
            let mut sum = [0; SUM_BYTES];
            match complete(&mut self.run, &mut self.bytes, offset)? {
                Some(completed) => sum = completed,
                None => self.bytes.read(offset, &mut sum)?,
            }
            let [a, b, c, d, e, f, g, h] = sum;
            self.sum = [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])];
            for frame in from..=self.frames {
                let mut bytes = vec![0; WAL_FRAME_HEADER_BYTES + PAGE];
                self.bytes.read(Log::offset(frame), &mut bytes)?;
                let word = |at: usize| u32::from_be_bytes(*bytes[at..].first_chunk().unwrap());
                let header = self.header(word(0), word(4), &bytes[WAL_FRAME_HEADER_BYTES..]);
                self.write(Log::offset(frame), &header);
            }
            Ok(())
        }

        /// Returns how many frames recovery accepts, and whether SQLite's checksum in memory is that of the last frame.
        fn valid_frames(&mut self) -> (u32, bool) {
            let header = WalHeader::of(self.bytes.0.first_chunk().unwrap()).unwrap();
            let sums = header.frame_sums(&mut self.bytes, 1, self.frames).unwrap();
            let valid = (1..).zip(&sums).take_while(|(frame, sum)| {
                let mut head = [0; WAL_FRAME_HEADER_BYTES];
                self.bytes.read(Log::offset(*frame), &mut head).unwrap();
                head[8..16] == header.salts() && head[16..] == *sum.map(u32::to_be_bytes).as_flattened()
            });
            (valid.count() as u32, sums.last() == Some(&self.sum))
        }
    }

    /// Writes two committed frames, then `before` frames, overwrites number `overwritten` of these, writes `behind`
    /// more, rolls back to `before - given_up`, and writes `again` frames, the last of which commits.
    fn run(before: u32, overwritten: u32, behind: u32, given_up: u32, again: u32) -> Log {
        let mut log = Log::new();
        log.append(0);
        log.append(9);
        log.run.clear();
        (0..before).for_each(|_| log.append(0));
        let mut sums = log.sum;
        log.overwrite(2 + overwritten);
        (0..behind).for_each(|_| log.append(0));
        let kept = before - given_up;
        if given_up > 0 {
            // The savepoint restores this checksum.
            let header = WalHeader::of(log.bytes.0.first_chunk().unwrap()).unwrap();
            let bytes = &mut log.bytes;
            log.run.write_out(|offset, data| bytes.write(offset, data)).unwrap();
            sums = *header.frame_sums(&mut log.bytes, 1, 2 + kept).unwrap().last().unwrap();
        }
        (log.frames, log.sum) = (2 + kept, sums);
        (1..again).for_each(|_| log.append(0));
        log.commit().unwrap();
        log
    }

    #[test]
    fn frames_forgotten_by_sqlite_are_completed_before_the_commit() {
        let mut forgotten = 0;
        for (before, overwritten) in [(1, 1), (6, 1), (6, 5), (6, 6)] {
            for behind in [0, 3] {
                for given_up in 0..=before {
                    for again in 1..10 {
                        let mut log = run(before, overwritten, behind, given_up, again);
                        let what = format!("{before} {overwritten} {behind} {given_up} {again}");
                        assert_eq!(log.valid_frames(), (log.frames, true), "{what}");
                        forgotten += u32::from(overwritten > before - given_up);
                    }
                }
            }
        }
        assert!(forgotten > 100, "{forgotten}");
    }

    #[test]
    fn other_reads_do_not_complete_frames() {
        let mut log = Log::new();
        log.append(0);
        log.append(0);
        assert_eq!(complete(&mut log.run, &mut log.bytes, SUM_IN_FILE), Ok(None));
        log.overwrite(1);
        log.append(0);
        for offset in [0, 8, SUM_IN_FILE, Log::offset(2), Log::offset(1) + SUM_IN_FRAME] {
            assert_eq!(complete(&mut log.run, &mut log.bytes, offset), Ok(None), "{offset}");
        }
        let mut head = [0; WAL_FRAME_HEADER_BYTES];
        log.bytes.read(Log::offset(3), &mut head).unwrap();
        assert!(is_unsummed(&head));
    }
}
