//! Verification records: the pages of a database as of a position of the stream, for standbys to compare.
//!
//! Reading pages takes long, and the log writer must not do it. While another thread reads the pages to be compared,
//! the log writer watches which of them change; then it writes the record with those that have not. These are at the
//! position of the record as that thread read them, whichever committed state it read each of them in. A page that
//! changed needs no comparison: a standby compares every page that it changes with its checksum in the redo.

use super::Primary;
use super::watched_pages::WatchedPages;
use standfast_environment::config::error::InstanceError;
use standfast_environment::state::now::now_us;
use standfast_format::RecordBuilder;
use standfast_types::{DatabaseId, PageNo, Scn};

/// A page as read from the database.
#[derive(Debug)]
pub struct ReadPage {
    pub page_no: PageNo,
    pub sum: u32,
    /// Page image that replaces the page of standbys; `None` to compare only.
    pub image: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// The pages are in the redo.
    Done {
        scn: Scn,
        pages: u64,
        /// Pages that changed meanwhile and therefore are not in it.
        changed: Vec<PageNo>,
        /// Size of the database there, in pages.
        database_pages: u32,
    },
    /// The reader may have seen something that is not captured yet: call again.
    NotYet,
    /// The pages must be watched again from the beginning: a full resync of the database has begun.
    Again,
    /// The database is not served any more.
    Gone,
}

impl Primary {
    /// Starts recording changes of these pages, until [`Primary::record_pages`]. Returns false when the database cannot
    /// be compared now: it is not served, or is being resynced.
    pub fn watch_pages(&mut self, id: DatabaseId, pages: impl Iterator<Item = PageNo>) -> bool {
        let Some(served) = self.served.get_mut(&id.0) else { return false };
        if served.awaiting_baseline || served.baseline.is_some() {
            return false;
        }
        served.watched = Some(WatchedPages::new(pages.collect()));
        true
    }

    /// Writes a verification record of the pages, which were read after [`Primary::watch_pages`]. Pages with an image
    /// replace those of standbys. The record goes into the log with the next batch.
    ///
    /// # Errors
    /// When the redo cannot be captured.
    pub fn record_pages(
        &mut self,
        id: DatabaseId,
        run: u64,
        read: &[ReadPage],
    ) -> Result<Recorded, InstanceError> {
        // What the reader saw was published earlier: once it is captured, all its changes are recorded.
        let up_to_date = self.capture_database(id.0, now_us());
        let Some(served) = self.served.get_mut(&id.0) else { return Ok(Recorded::Gone) };
        if served.watched.is_none() {
            return Ok(Recorded::Again);
        }
        if !up_to_date || served.capture.in_transaction() {
            return Ok(Recorded::NotYet);
        }
        let changed = served.watched.take().unwrap_or_default().changed();
        let database_pages = served.capture.database_pages();
        let same = |page: &&ReadPage| page.page_no <= database_pages && !changed.contains(&page.page_no);
        let repair = read.iter().any(|page| page.image.is_some());
        let mut record = RecordBuilder::verification(&mut self.out, id, run, database_pages, repair);
        let mut scratch = Vec::new();
        let mut pages = 0;
        for page in read.iter().filter(same) {
            match &page.image {
                Some(image) => record.vector(page.page_no, None, image, page.sum, &mut scratch),
                None => record.page(page.page_no, page.sum),
            }
            pages += 1;
        }
        record.finish();
        let scn = self.shared.buffer.captured() + self.out.len() as u64;
        Ok(Recorded::Done { scn, pages, changed: changed.into_iter().collect(), database_pages })
    }
}
