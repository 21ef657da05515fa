//! Which of the pages that are being compared with standbys change meanwhile.

use standfast_format::{Record, decode_record};
use standfast_types::PageNo;
use std::collections::BTreeSet;

/// Pages that are being read for a comparison.
#[derive(Debug, Default)]
pub(super) struct WatchedPages {
    pages: BTreeSet<PageNo>,
    changed: BTreeSet<PageNo>,
}

impl WatchedPages {
    pub(super) fn new(pages: BTreeSet<PageNo>) -> WatchedPages {
        WatchedPages { pages, changed: BTreeSet::new() }
    }

    /// Returns the watched pages that have changed.
    pub(super) fn changed(self) -> BTreeSet<PageNo> {
        self.changed
    }

    /// Records which of the watched pages are changed by `records`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_format::{RecordBuilder, page_sum};
    use standfast_types::DatabaseId;

    #[test]
    fn only_changes_of_watched_pages_are_recorded() {
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
        let mut watched = WatchedPages::new((1..=5).collect());
        watched.note(&records);
        assert_eq!(watched.changed(), [3, 5].into());
    }
}
