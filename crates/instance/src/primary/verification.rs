//! Verification records: what pages of a database are at a position of the stream, for standbys to compare.
//!
//! Reading pages takes long, and the log writer must not do it. So it watches which of the pages to be compared change,
//! while another thread reads them, and then writes the record with those that have not: what that thread has read is
//! then what they are at the position of the record, whichever committed state it read each of them in. A page that
//! changed needs no comparison: a standby compares every page that it changes with its checksum in the redo.

use super::Primary;
use crate::error::InstanceError;
use crate::now_us;
use standfast_format::{Record, RecordBuilder, decode_record};
use standfast_types::{DatabaseId, PageNo, Scn};
use std::collections::BTreeSet;

/// Pages that are being read for a comparison.
#[derive(Debug, Default)]
pub(super) struct WatchedPages {
    pages: BTreeSet<PageNo>,
    changed: BTreeSet<PageNo>,
}

impl WatchedPages {
    /// Notes which of the pages the records have changed.
    pub(super) fn note(&mut self, mut records: &[u8]) {
        while let Ok((record, length)) = decode_record(records) {
            if let Record::Change { vectors, .. } | Record::Commit { vectors, .. } = record {
                let changed = vectors.flatten().map(|vector| vector.page_no);
                self.changed.extend(changed.filter(|page_no| self.pages.contains(page_no)));
            }
            records = &records[length..];
        }
    }
}

/// A page as it was read.
#[derive(Debug)]
pub struct ReadPage {
    /// The page.
    pub page_no: PageNo,
    /// Its checksum.
    pub sum: u32,
    /// All of it, to replace that of standbys.
    pub image: Option<Vec<u8>>,
}

/// What became of the pages that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// They are in the redo.
    Done {
        /// End of the record.
        scn: Scn,
        /// Pages in it.
        pages: u64,
        /// Pages that changed meanwhile and so are not in it.
        changed: Vec<PageNo>,
        /// Size of the database there, in pages.
        database_pages: u32,
    },
    /// Not everything that the reader may have seen is captured: call again.
    NotYet,
    /// The pages must be watched again from the beginning: a copy of the database was begun.
    Again,
    /// The database is not served.
    Gone,
}

impl Primary {
    /// From now on changes of these pages are noted, until [`Primary::record_pages`]. False when the database cannot be
    /// compared at the moment: it is not served, or being copied.
    pub fn watch_pages(&mut self, id: DatabaseId, pages: impl Iterator<Item = PageNo>) -> bool {
        let Some(served) = self.served.get_mut(&id.0) else { return false };
        if served.awaiting_baseline || served.baseline.is_some() {
            return false;
        }
        served.watched = Some(WatchedPages { pages: pages.collect(), changed: BTreeSet::new() });
        true
    }

    /// Writes a verification record of the pages, which were read after [`Primary::watch_pages`]. Those with an image
    /// replace the pages of standbys. What is gathered goes into the log with the next round.
    ///
    /// # Errors
    /// When the redo cannot be captured.
    pub fn record_pages(
        &mut self,
        id: DatabaseId,
        run: u64,
        read: &[ReadPage],
    ) -> Result<Recorded, InstanceError> {
        // What the reader saw was published before: once that is captured, all changes of it are noted.
        let up_to_date = self.capture_database(id.0, now_us());
        let Some(served) = self.served.get_mut(&id.0) else { return Ok(Recorded::Gone) };
        if served.watched.is_none() {
            return Ok(Recorded::Again);
        }
        if !up_to_date || served.capture.in_transaction() {
            return Ok(Recorded::NotYet);
        }
        let changed = served.watched.take().unwrap_or_default().changed;
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

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_format::page_sum;

    #[test]
    fn changes_of_watched_pages_are_noted_and_no_others() {
        let id = DatabaseId(1);
        let page = vec![7; 512];
        let mut records = Vec::new();
        let mut change = RecordBuilder::change(&mut records, id);
        change.vector(3, None, &page, page_sum(3, &page), &mut Vec::new());
        change.finish();
        let mut commit = RecordBuilder::commit(&mut records, id, 1, 9, 4);
        commit.vector(5, None, &page, page_sum(5, &page), &mut Vec::new());
        commit.vector(8, None, &page, page_sum(8, &page), &mut Vec::new());
        commit.finish();
        let mut watched = WatchedPages { pages: (1..=5).collect(), changed: BTreeSet::new() };
        watched.note(&records);
        assert_eq!(watched.changed, [3, 5].into());
    }
}
