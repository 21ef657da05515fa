//! Generations of the WAL: which pages the captured frames of the current one hold, and what changes when a new one
//! begins.

use super::{Capture, CaptureError};
use crate::wal_index::WalIndexHeader;
use standfast_format::RecordBuilder;
use standfast_types::WalPosition;

impl Capture {
    /// Finds which pages the captured frames of this generation hold.
    ///
    /// The WAL may have been reset meanwhile: a reader of a fully backfilled WAL does not keep a writer from that. Then
    /// all captured frames are in the database file, and nothing of the new generation is captured.
    pub(super) fn load_pages(&mut self) -> Result<(), CaptureError> {
        let loaded = self.load_pages_of_generation();
        if matches!(loaded, Err(CaptureError::ForeignFrame { .. }))
            && self.index.settled_header().is_some_and(|header| header.salts() != self.salts)
        {
            self.pages.clear();
            self.unsummed = None;
            return Ok(());
        }
        loaded
    }

    fn load_pages_of_generation(&mut self) -> Result<(), CaptureError> {
        self.pages.clear();
        self.recent.clear();
        for frame in 1..=self.frame {
            let head = self.read_frame_head(frame)?;
            self.pages.insert(head.page_no, frame);
        }
        Ok(())
    }

    /// Sets the position: everything up to it is in the redo by other means (recovery, a full resync). The next records
    /// say so with a WAL generation record.
    ///
    /// # Errors
    /// When the frames up to `position` cannot be read.
    pub fn adopt(&mut self, position: WalPosition, database_pages: u32) -> Result<(), CaptureError> {
        self.salts = position.salts;
        self.frame = position.frame;
        self.previous = None;
        self.generation_recorded = false;
        self.database_pages = database_pages;
        self.file_is_base = false;
        self.committed_frame = position.frame;
        self.new_pages.clear();
        self.next_skipped = None;
        self.load_pages()
    }

    pub(super) fn enter_generation(&mut self, header: &WalIndexHeader) -> Result<(), CaptureError> {
        let left = WalPosition { salts: self.salts, frame: self.frame };
        // A crash between the reset and the first new header: recovery brings the old generation back, all of which is
        // captured and in the database file.
        let captured =
            self.previous.filter(|previous| previous.salts == header.salts()).map_or(0, |p| p.frame);
        self.previous = Some(left);
        self.salts = header.salts();
        self.frame = captured;
        self.committed_frame = captured;
        self.generation_recorded = false;
        self.pages.clear();
        self.recent.clear();
        self.unsummed = None;
        if captured == 0 && self.salts.is_rewritten_of(left.salts) {
            self.enter_rewritten_log(header.raw_salts())?;
        }
        Ok(())
    }

    /// Enters a WAL that the instance has rewritten after everything was captured: its first transaction holds nothing
    /// new.
    fn enter_rewritten_log(&mut self, raw_salts: [u32; 2]) -> Result<(), CaptureError> {
        match self.first_pages.take(raw_salts) {
            Some(page_nos) => {
                self.frame = page_nos.len() as u32;
                self.pages.extend(page_nos.into_iter().zip(1..));
            }
            None => loop {
                let frame = self.frame + 1;
                let head = self.read_frame_head(frame)?;
                self.pages.insert(head.page_no, frame);
                self.frame = frame;
                if head.commit_pages != 0 {
                    break;
                }
            },
        }
        self.committed_frame = self.frame;
        self.rewritten_entered = true;
        Ok(())
    }

    /// Appends a record of where capture stands, for recovery to start from.
    pub fn anchor(&mut self, out: &mut Vec<u8>) {
        let restart = !self.generation_recorded;
        self.generation_recorded = true;
        let captured = WalPosition { salts: self.salts, frame: self.committed_frame };
        RecordBuilder::wal_generation(out, self.database, captured, self.database_pages, restart);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::capture::{CaptureOutcome, Epoch};
    use crate::first_pages::FirstPages;
    use crate::scene::{Scene, size};
    use crate::{VfsFile, VfsFileKind};
    use standfast_types::DatabaseId;

    #[test]
    fn capture_given_first_pages_equals_capture_that_reads_the_wal() {
        let mut scene = Scene::backfilled(2);
        let application = scene.application();
        let first_pages = FirstPages::default();
        let open = |scene: &Scene| {
            let open = |kind| VfsFile::open(None, &scene.path(), kind).unwrap();
            let (wal, file) = (open(VfsFileKind::Wal), open(VfsFileKind::Database));
            let header = scene.guard().wal_header().unwrap();
            let (position, pages) = (header.position(), header.database_pages());
            let index = scene.guard().wal_index().unwrap();
            Capture::new(DatabaseId(1), size(), wal, file, index, position, pages).unwrap()
        };
        let mut reported = open(&scene).reported_by(first_pages.clone());
        let mut reads = open(&scene);
        for round in 1..=2 {
            let mut out = [Vec::new(), Vec::new()];
            let mut capture_both = |scene: &Scene| {
                let raw_salts = scene.guard().wal_header().unwrap().raw_salts();
                let epoch = Epoch { number: round, raw_salts };
                for (capture, out) in [&mut reported, &mut reads].into_iter().zip(&mut out) {
                    let outcome = capture.capture(epoch, 0, usize::MAX, out, &mut Vec::new());
                    assert_eq!(outcome.unwrap(), CaptureOutcome::UpToDate);
                }
            };
            scene.change_all(&application, 3);
            capture_both(&scene);
            let log = scene.rewrite().unwrap();
            first_pages.put(log.raw_salts, log.page_nos.clone());
            scene.change_all(&application, 1);
            capture_both(&scene);
            assert_eq!(reported.pages, reads.pages);
            assert!(reported.pages.len() >= 50, "{}", reported.pages.len());
            assert_eq!((reported.frame, reported.committed_frame), (reads.frame, reads.committed_frame));
            assert!(!out[0].is_empty() && out[0] == out[1]);
            assert_eq!(first_pages.take(log.raw_salts), None, "it was used");
            scene.backfill().unwrap();
        }
        assert!(reported.take_rewritten_entered() && reads.take_rewritten_entered());
    }
}
