//! Copies a database as of one committed state.

use rusqlite::Connection;
use standfast_types::PageNo;

/// Reads all pages of the read transaction that `connection` is in, in order, and hands each to `sink`.
/// Returns the number of pages.
///
/// # Errors
/// SQLite's error, or that of the sink.
pub fn read_pages<E: From<rusqlite::Error>>(
    connection: &Connection,
    mut sink: impl FnMut(PageNo, &[u8]) -> Result<(), E>,
) -> Result<u32, E> {
    let mut statement = connection.prepare_cached("SELECT pgno, data FROM sqlite_dbpage('main')")?;
    let mut rows = statement.query([])?;
    let mut pages = 0;
    while let Some(row) = rows.next()? {
        let page_no: PageNo = row.get(0)?;
        let image = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        sink(page_no, image)?;
        pages += 1;
    }
    Ok(pages)
}
