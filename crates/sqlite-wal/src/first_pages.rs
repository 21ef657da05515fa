//! The pages with which a rewritten WAL begins, handed from the thread that wrote it to capture: reading them back
//! takes a call for each, between two writes of redo.

use standfast_types::PageNo;
use std::sync::{Arc, Mutex};

/// The pages of the first transaction of the last rewritten WAL; clones share them.
#[derive(Clone, Debug, Default)]
pub struct FirstPages(Arc<Mutex<Option<LogStart>>>);

/// The first transaction of a WAL.
#[derive(Debug)]
struct LogStart {
    /// In the byte order of the file.
    raw_salts: [u32; 2],
    /// The page of each frame.
    page_nos: Vec<PageNo>,
}

impl FirstPages {
    /// Stores that the WAL with these salts begins with frames of `page_nos`. Call it before sessions are notified of
    /// the WAL.
    pub fn put(&self, raw_salts: [u32; 2], page_nos: Vec<PageNo>) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            Some(LogStart { raw_salts, page_nos });
    }

    /// Takes the pages of the WAL with these salts; `None` when none are stored.
    pub(crate) fn take(&self, raw_salts: [u32; 2]) -> Option<Vec<PageNo>> {
        let mut start = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        start.take_if(|start| start.raw_salts == raw_salts).map(|start| start.page_nos)
    }
}
