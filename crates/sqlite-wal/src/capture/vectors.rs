//! Page vectors: what the page of each frame is coded against, and the pages that a commit adds without writing them.

use super::frames::{Span, page_no_of};
use super::{Capture, CaptureError, CommitMark, Epoch};
use crate::wal_layout::image_offset;
use standfast_format::{RecordBuilder, page_sum};
use standfast_types::{PageNo, ReleasePosition, WAL_FRAME_HEADER_BYTES};

/// A page that has changed within this many frames is likely to change again soon.
const HOT_WITHIN: u32 = 256;

/// Pages that a transaction adds without writing them, captured at once: less than a millisecond, and 20 KB of redo.
const SKIPPED_AT_ONCE: u32 = 512;

/// Source of the image of a page before a frame.
enum Base {
    /// The page did not exist, or its image cannot be trusted: code against zeros.
    Zeros,
    /// The frame with this index in the chunk.
    Chunk(usize),
    Wal(u32),
    File,
}

impl Capture {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn capture_span(
        &mut self,
        chunk: &[u8],
        chunk_first: u32,
        span: &Span,
        epoch: Epoch,
        now_us: u64,
        out: &mut Vec<u8>,
        marks: &mut Vec<CommitMark>,
    ) -> Result<(), CaptureError> {
        let end_frame = chunk_first + (span.first + span.count) as u32 - 1;
        if span.commit_pages.is_none() {
            self.note_new_pages(chunk, span);
        }
        let mut builder = match span.commit_pages {
            Some(pages) => RecordBuilder::commit(out, self.database, now_us, pages, end_frame),
            None => RecordBuilder::change(out, self.database),
        };
        let frame_bytes = self.frame_bytes();
        for index in span.first..span.first + span.count {
            let start = index * frame_bytes;
            let frame = &chunk[start..start + frame_bytes];
            let page_no = page_no_of(frame);
            let after = &frame[WAL_FRAME_HEADER_BYTES..];
            let base = self.base_of(page_no, chunk_first);
            self.is_hot.push(match base {
                Base::Zeros | Base::Chunk(_) => true,
                Base::Wal(frame) => chunk_first + index as u32 - frame <= HOT_WITHIN,
                Base::File => false,
            });
            let before = match base {
                Base::Zeros => None,
                Base::Chunk(index) => {
                    let start = index * frame_bytes + WAL_FRAME_HEADER_BYTES;
                    Some(&chunk[start..start + self.page_bytes])
                }
                Base::Wal(frame) => match self.recent.get(page_no, frame) {
                    Some(image) => Some(image),
                    None => {
                        let offset = image_offset(frame, self.page_bytes);
                        self.wal.read_at(&mut self.before, offset)?;
                        Some(self.before.as_slice())
                    }
                },
                Base::File => {
                    let offset = u64::from(page_no - 1) * self.page_bytes as u64;
                    let whole = self.file.read_at(&mut self.before, offset)?;
                    whole.then_some(self.before.as_slice())
                }
            };
            builder.vector(page_no, before, after, page_sum(page_no, after), &mut self.scratch);
            self.pages.insert(page_no, chunk_first + index as u32);
        }
        builder.finish();
        self.frame = end_frame;
        if let Some(pages) = span.commit_pages {
            self.committed_frame = end_frame;
            self.database_pages = pages;
            self.new_pages.clear();
            self.next_skipped = None;
            let release = ReleasePosition::new(epoch.number, end_frame);
            marks.push(CommitMark { database: self.database, end: out.len(), release });
        }
        Ok(())
    }

    fn base_of(&self, page_no: PageNo, chunk_first: u32) -> Base {
        // Beyond the old end a standby has no page to start from, whatever older frames hold.
        if page_no > self.database_pages {
            return Base::Zeros;
        }
        match self.pages.get(&page_no) {
            Some(frame) if *frame >= chunk_first => Base::Chunk((*frame - chunk_first) as usize),
            Some(frame) => Base::Wal(*frame),
            None if self.file_is_base => Base::File,
            None => Base::Zeros,
        }
    }

    fn note_new_pages(&mut self, chunk: &[u8], span: &Span) {
        for index in span.first..span.first + span.count {
            let page_no = page_no_of(&chunk[index * self.frame_bytes()..]);
            if page_no > self.database_pages {
                self.new_pages.push(page_no);
            }
        }
    }

    /// Captures the pages between the old and the new end that the transaction, which ends with `span`, did not write.
    /// There may be millions, by intent or because another process has put that size into the wal-index, while other
    /// databases wait. So it returns false after [`SKIPPED_AT_ONCE`] of them, and the next call continues.
    pub(super) fn capture_skipped_pages(
        &mut self,
        chunk: &[u8],
        chunk_first: u32,
        span: &Span,
        commit_pages: u32,
        out: &mut Vec<u8>,
    ) -> Result<bool, CaptureError> {
        let begin = match self.next_skipped {
            Some(page_no) => page_no,
            None => {
                self.note_new_pages(chunk, span);
                self.check_growth(chunk, chunk_first, span, commit_pages)?;
                if commit_pages <= self.database_pages {
                    return Ok(true);
                }
                self.new_pages.sort_unstable();
                self.new_pages.dedup();
                let written = self.new_pages.iter().filter(|page| **page <= commit_pages).count();
                if written == (commit_pages - self.database_pages) as usize {
                    return Ok(true);
                }
                self.database_pages + 1
            }
        };
        let mut image = vec![0; self.page_bytes];
        for page_no in begin..=commit_pages {
            if page_no - begin >= SKIPPED_AT_ONCE {
                self.next_skipped = Some(page_no);
                return Ok(false);
            }
            if self.new_pages.binary_search(&page_no).is_ok() {
                continue;
            }
            self.read_page(page_no, &mut image)?;
            let mut builder = RecordBuilder::change(out, self.database);
            builder.vector(page_no, None, &image, page_sum(page_no, &image), &mut self.scratch);
            builder.finish();
        }
        Ok(true)
    }

    /// Reads a page as a reader sees it at the captured position.
    fn read_page(&mut self, page_no: PageNo, image: &mut [u8]) -> Result<(), CaptureError> {
        match self.pages.get(&page_no).copied() {
            Some(frame) => {
                let offset = image_offset(frame, self.page_bytes);
                self.wal.read_at(image, offset)?;
            }
            None => {
                let offset = u64::from(page_no - 1) * self.page_bytes as u64;
                self.file.read_at(image, offset)?;
            }
        }
        Ok(())
    }

    /// Keeps the newest image of every hot page in the first `count` frames of the chunk.
    pub(super) fn keep_newest(&mut self, chunk: &[u8], first: u32, count: usize) {
        let frames = chunk.chunks_exact(self.frame_bytes()).take(count);
        for ((frame, bytes), is_hot) in (first..).zip(frames).zip(&self.is_hot) {
            let page_no = page_no_of(bytes);
            if *is_hot && self.pages.get(&page_no) == Some(&frame) {
                self.recent.keep(page_no, frame, &bytes[WAL_FRAME_HEADER_BYTES..]);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::capture::CaptureOutcome;
    use crate::scene::{Scene, size};
    use crate::{VfsFile, VfsFileKind};
    use standfast_types::DatabaseId;

    #[test]
    fn only_images_of_frequently_changed_pages_are_kept() {
        let scene = Scene::backfilled(1);
        let application = scene.application();
        application.execute_batch("CREATE TABLE hot(n); INSERT INTO hot VALUES(0)").unwrap();
        let header = scene.guard().wal_header().unwrap();
        let epoch = Epoch { number: 1, raw_salts: header.raw_salts() };
        let open = |kind| VfsFile::open(None, &scene.path(), kind).unwrap();
        let (position, pages) = (header.position(), header.database_pages());
        let (wal, file) = (open(VfsFileKind::Wal), open(VfsFileKind::Database));
        let index = scene.guard().wal_index().unwrap();
        let mut capture = Capture::new(DatabaseId(1), size(), wal, file, index, position, pages).unwrap();
        // Whether the image of the page in the last frame is kept.
        let mut change = |sql: &str| {
            application.execute_batch(sql).unwrap();
            let outcome = capture.capture(epoch, 0, usize::MAX, &mut Vec::new(), &mut Vec::new());
            assert_eq!(outcome.unwrap(), CaptureOutcome::UpToDate);
            let last = capture.position().frame;
            let page_no =
                capture.pages.iter().find(|(_, frame)| **frame == last).map(|(page_no, _)| *page_no);
            capture.recent.get(page_no.unwrap(), last).is_some()
        };
        for _ in 0..=HOT_WITHIN {
            assert!(change("UPDATE hot SET n = n + 1"));
        }
        assert!(!change("UPDATE t SET n = n + 1 WHERE id = 1"), "it changed long ago");
        assert!(change("UPDATE t SET n = n + 1 WHERE id = 1"), "and changes again");
    }
}
