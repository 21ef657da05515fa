//! Brings a database file to the content of another instance's copy, of which only the pages that differ are here.
//!
//! All pages are written in one transaction: a reader, and a start after a crash, see the old content or the new one.

use crate::ApplyError;
use crate::at_rest::AtRest;
use crate::standby_file::{FilePlan, StandbyFile};
use standfast_io::outside;
use standfast_sqlite_wal::pace::Pace;
use standfast_types::{PageNo, PageSize};
use std::path::Path;

/// A database whose pages are being replaced. Holds its write lock and its checkpoint lock.
pub struct PageUpdate {
    file: StandbyFile,
    /// The new page 1, if it differs: it has to be written last.
    first: Option<Vec<u8>>,
    /// Pages that were written.
    written: u64,
}

impl PageUpdate {
    /// Opens the database at `path`, or creates an empty one there.
    ///
    /// # Errors
    /// When it cannot be opened, has another page size, or another process writes to it.
    pub fn open(
        path: &Path,
        page_size: PageSize,
        vfs_base: Option<&str>,
        create: bool,
    ) -> Result<PageUpdate, ApplyError> {
        let mut file = StandbyFile::open(FilePlan::alone(path, page_size, vfs_base)?, create)?;
        file.begin()?;
        Ok(PageUpdate { file, first: None, written: 0 })
    }

    /// Fills `page` with a page as it was before; false when the database ends before it.
    ///
    /// # Errors
    /// `Sqlite`.
    pub fn read(&self, page_no: PageNo, page: &mut [u8]) -> Result<bool, ApplyError> {
        if page_no > self.file.pages() { Ok(false) } else { self.file.read_page(page_no, page) }
    }

    /// Replaces pages from `first` on.
    ///
    /// # Errors
    /// `Sqlite`.
    pub fn write(&mut self, first: PageNo, bytes: &[u8]) -> Result<(), ApplyError> {
        let pages = (first..).zip(bytes.chunks_exact(self.file.page_size().bytes()));
        let mut pages = pages.filter(|(page_no, _)| *page_no != self.file.lock_page()).peekable();
        if let Some((_, page)) = pages.next_if(|(page_no, _)| *page_no == 1) {
            self.first = Some(page.to_vec());
            self.written += 1;
        }
        let mut written = 0;
        self.file.write_pages(pages.inspect(|_| written += 1))?;
        self.written += written;
        Ok(())
    }

    /// Makes the database `pages` pages long and the new content durable. Returns the number of pages that were written
    /// and the state of the files.
    ///
    /// # Errors
    /// `Sqlite`, `SyncFailed`; `Unusable` when the database has not got that size.
    pub fn finish(mut self, pages: u32) -> Result<(u64, Option<AtRest>), ApplyError> {
        if pages > self.file.seen_pages() {
            self.file.see_pages(pages)?;
        }
        self.file.commit(self.first.take().as_deref(), pages)?;
        self.file.sync_wal(&Pace::AtOnce)?;
        let rest = self.file.rest()?;
        let PageUpdate { file, written, .. } = self;
        let path = file.plan().path.clone();
        // Closes its descriptors first: SQLite's locks on the file end when any of the process is closed.
        drop(file);
        let synced = outside::open(&path).and_then(|file| file.sync_all());
        synced.map_err(|source| ApplyError::Io {
            name: path.display().to_string(),
            doing: "syncing",
            source,
        })?;
        Ok((written, rest))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use rusqlite::Connection;
    use standfast_format::page_sum;
    use standfast_testkit::TempDir;
    use std::path::PathBuf;

    const SIZE: usize = 4096;

    fn database(directory: &TempDir, name: &str, rows: i64) -> PathBuf {
        let path = directory.join(name);
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, x BLOB)")
            .unwrap();
        let mut insert = connection.prepare("INSERT INTO t VALUES(?1, zeroblob(3000))").unwrap();
        for row in 0..rows {
            insert.execute([row]).unwrap();
        }
        drop(insert);
        connection.close().unwrap();
        path
    }

    /// Returns the sums of all pages.
    fn pages(file: &[u8]) -> Vec<u32> {
        (1..).zip(file.chunks_exact(SIZE)).map(|(page_no, page)| page_sum(page_no, page)).collect()
    }

    /// Copies what differs from the file at `from` to the one at `to`; returns the number of pages written.
    fn copy_differences(from: &Path, to: &Path, create: bool) -> u64 {
        let wanted = std::fs::read(from).unwrap();
        let mut update = PageUpdate::open(to, PageSize::new(4096).unwrap(), None, create).unwrap();
        let mut page = vec![0; SIZE];
        for (page_no, wanted) in (1..).zip(wanted.chunks_exact(SIZE)) {
            if !update.read(page_no, &mut page).unwrap()
                || page_sum(page_no, &page) != page_sum(page_no, wanted)
            {
                update.write(page_no, wanted).unwrap();
            }
        }
        let (written, rest) = update.finish((wanted.len() / SIZE) as u32).unwrap();
        assert_eq!(rest.unwrap().wal, None);
        let (wanted, found) = (pages(&wanted), pages(&std::fs::read(to).unwrap()));
        assert!(wanted == found, "pages differ");
        written
    }

    #[test]
    fn file_becomes_the_same_whether_it_grows_shrinks_or_is_new() {
        let directory = TempDir::new("page-update").unwrap();
        let (short, long) = (database(&directory, "short", 20), database(&directory, "long", 700));
        assert!(copy_differences(&long, &short, false) > 600, "it grew");
        let small = database(&directory, "small", 20);
        assert!(copy_differences(&small, &short, false) < 20, "it shrank");
        assert_eq!(copy_differences(&small, &short, false), 0, "there is nothing to do");
        let new = directory.join("new");
        assert!(copy_differences(&small, &new, true) > 20);
    }

    #[test]
    fn reader_and_a_kill_before_the_end_see_the_old_content() {
        let directory = TempDir::new("page-update-killed").unwrap();
        let (here, there) = (database(&directory, "here", 20), database(&directory, "there", 90));
        let reader = Connection::open(&here).unwrap();
        let rows = |connection: &Connection| {
            connection.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap()
        };
        reader.execute_batch("BEGIN").unwrap();
        assert_eq!(rows(&reader), 20);
        let wanted = std::fs::read(&there).unwrap();
        let mut update = PageUpdate::open(&here, PageSize::new(4096).unwrap(), None, false).unwrap();
        update.write(1, &wanted).unwrap();
        assert_eq!(rows(&Connection::open(&here).unwrap()), 20);
        drop(update);
        assert_eq!(rows(&Connection::open(&here).unwrap()), 20);
        let mut update = PageUpdate::open(&here, PageSize::new(4096).unwrap(), None, false).unwrap();
        update.write(1, &wanted).unwrap();
        let (_, rest) = update.finish((wanted.len() / SIZE) as u32).unwrap();
        assert!(rest.unwrap().wal.is_some_and(|wal| !wal.is_in_file), "the reader keeps frames in the WAL");
        assert_eq!(rows(&reader), 20, "the snapshot of the reader lasts");
        assert_eq!(rows(&Connection::open(&here).unwrap()), 90);
    }
}
