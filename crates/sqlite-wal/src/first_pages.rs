//! The pages that a log begins with which the instance has written anew, from who wrote it to who captures: reading them
//! back takes a call for each, between two writes of redo.

use standfast_types::PageNo;
use std::sync::{Arc, Mutex};

/// See the module. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct FirstPages(Arc<Mutex<Option<LogStart>>>);

/// The first transaction of a log.
#[derive(Debug)]
struct LogStart {
    /// In the byte order of the file.
    raw_salts: [u32; 2],
    /// The page of each frame.
    page_nos: Vec<PageNo>,
}

impl FirstPages {
    /// The log with these salts begins with frames of `page_nos`. To be called before sessions are told of the log.
    pub fn put(&self, raw_salts: [u32; 2], page_nos: Vec<PageNo>) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            Some(LogStart { raw_salts, page_nos });
    }

    /// Those of the log with these salts, once; `None` when nobody has said.
    pub(crate) fn take(&self, raw_salts: [u32; 2]) -> Option<Vec<PageNo>> {
        let mut start = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        start.take_if(|start| start.raw_salts == raw_salts).map(|start| start.page_nos)
    }
}
