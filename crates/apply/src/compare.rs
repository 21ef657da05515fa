//! Compares pages of a standby database, as its files hold them, with a verification record.

use crate::ApplyError;
use crate::standby_file::FilePlan;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use standfast_format::{PageVector, page_sum};
use standfast_types::{PageNo, Scn};

/// Result of one verification record, or the end of all earlier results of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    Pages {
        /// Run that the record belongs to.
        run: u64,
        /// End of the record: the pages were compared as of this position.
        scn: Scn,
        /// Size of the database there, in pages: no page exists beyond it.
        database_pages: u32,
        /// The pages, in the order of the record.
        pages: Vec<ComparedPage>,
    },
    /// The pages of a record could not be compared.
    Failed {
        /// Run that the record belongs to.
        run: u64,
        error: String,
    },
    /// A full resync image replaced the whole content: earlier results no longer count.
    Replaced,
}

/// Result for one page of the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComparedPage {
    pub page_no: PageNo,
    pub expected: u32,
    /// Its checksum here; `None` when it cannot be read, or the database ends before it.
    pub found: Option<u32>,
}

impl ComparedPage {
    /// Returns whether the page equals the primary's.
    pub fn is_equal(&self) -> bool {
        self.found == Some(self.expected)
    }
}

/// Compares pages with the files of the database. Reads through a separate connection, because the one that applies
/// redo may have a page in its cache that is damaged on disk.
///
/// # Errors
/// When the database cannot be read.
pub fn compare<'a>(
    plan: &FilePlan,
    vectors: impl Iterator<Item = PageVector<'a>>,
) -> Result<Vec<ComparedPage>, ApplyError> {
    let read = || -> Result<Vec<ComparedPage>, rusqlite::Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags_and_vfs(&plan.path, flags, plan.vfs.as_str())?;
        connection.busy_timeout(crate::standby_file::OPEN_WAIT)?;
        // Pages are read whatever the schema contains.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.execute_batch("PRAGMA mmap_size=0; PRAGMA cache_size=16; BEGIN")?;
        let mut statement = connection.prepare("SELECT data FROM sqlite_dbpage('main') WHERE pgno=?1")?;
        let mut compared = Vec::new();
        for vector in vectors {
            let page_no = vector.page_no;
            let sum = |row: &rusqlite::Row<'_>| Ok(page_sum(page_no, row.get_ref(0)?.as_blob()?));
            // A page that cannot be read from disk is damaged; the others are compared all the same.
            let found = statement.query_row([page_no], sum).optional().unwrap_or(None);
            compared.push(ComparedPage { page_no, expected: vector.sum_after, found });
        }
        Ok(compared)
    };
    read().map_err(|source| ApplyError::Sqlite { name: plan.name.clone(), doing: "comparing pages", source })
}
