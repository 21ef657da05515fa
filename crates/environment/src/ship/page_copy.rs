//! Sends the pages of a database to a peer that copies it.

use crate::ship::source_error::failed;
use rusqlite::Connection;
use standfast_sqlite_wal::snapshot::read_pages;
use standfast_transport::SourceError;
use standfast_types::PageNo;

/// Passes the pages that the read transaction of `reader` sees to `sink`; returns their number.
///
/// # Errors
/// The sink's, and when a page cannot be read.
pub fn copy_pages(
    reader: &Connection,
    sink: &mut dyn FnMut(PageNo, &[u8]) -> std::io::Result<()>,
) -> Result<u32, SourceError> {
    let copied = read_pages(reader, |page_no, image| sink(page_no, image).map_err(CopyError::Sink));
    copied.map_err(|error| match error {
        CopyError::Sink(error) => SourceError::Sink(error),
        CopyError::Sqlite(error) => failed(error.into()),
    })
}

enum CopyError {
    Sink(std::io::Error),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for CopyError {
    fn from(error: rusqlite::Error) -> Self {
        CopyError::Sqlite(error)
    }
}
