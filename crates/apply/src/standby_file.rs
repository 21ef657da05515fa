//! One standby database as pages, read and written through SQLite's `sqlite_dbpage` table, so that readers
//! in other processes have SQLite's snapshots.
//!
//! Behaviour of SQLite with raw pages, and its consequences:
//! - At the start of any statement the connection reads the schema again when the schema version in page 1 differs from
//!   the one it knows. In the middle of a batch it would find half of the schema. So the last statement writes page 1,
//!   and the cache, which holds decoded forms of the old pages, is dropped after the commit.
//! - `INSERT (n, NULL)` truncates the database at the commit, unless a page is written after it through the same table,
//!   or the database already looks as short: it does once SQLite has read the size in the new page 1, as it does at the
//!   end of a statement of several rows. So the truncation goes through a second table of the kind, before page 1 and
//!   in a statement of its own.
//! - SQLite reads the size that `sqlite_dbpage` sees from page 1 at the start of a transaction, and at the release of a
//!   savepoint.

use crate::never_vacuum::never_vacuum;
use crate::{ApplyError, Limits};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, ffi};
use standfast_io::outside;
use standfast_sqlite_wal::guard::{Guard, GuardError, register_guard_vfs};
use standfast_sqlite_wal::journal::{INTO_WAL_MODE, check_no_journal};
use standfast_sqlite_wal::lifecycle::{Rhythm, WalLifecycle};
use standfast_sqlite_wal::write_back::WriteBack;
use standfast_sqlite_wal::{VfsFile, cut_stale_frames};
use standfast_types::{PageNo, PageSize, WalPosition};
use std::path::{Path, PathBuf};
use std::time::Duration;

const READ: &str = "SELECT data FROM sqlite_dbpage('main') WHERE pgno=?1";
const WRITE: &str = "INSERT OR REPLACE INTO sqlite_dbpage(pgno,data) VALUES(?1,?2)";
const CUT: &str = "INSERT INTO temp.standfast_cut(pgno,data) VALUES(?1,NULL)";

/// How long an open waits for a process that recovers or writes the database.
pub(crate) const OPEN_WAIT: Duration = Duration::from_secs(5);
/// Where page 1 has the schema version; below, the size in pages. `PENDING_BYTE` is the file offset of SQLite's lock
/// bytes.
const SCHEMA_VERSION: std::ops::Range<usize> = 40..44;
const SIZE_IN_PAGES: std::ops::Range<usize> = 28..32;
const PENDING_BYTE: u64 = 0x4000_0000;

/// Which files to open, and how.
#[derive(Clone, Debug)]
pub struct FilePlan {
    /// Name of the database, for messages.
    pub name: String,
    pub path: PathBuf,
    /// Page size that the file has or gets.
    pub page_size: PageSize,
    pub vfs: String,
    /// Name of the VFS below the guard; `None` for SQLite's default.
    pub vfs_base: Option<String>,
    /// Size of SQLite's page cache in KiB.
    pub cache_kib: u32,
    /// The WAL may be rewritten.
    pub rewrites_wal: bool,
}

impl FilePlan {
    /// A database that is opened alone, for something other than live apply: its WAL is not rewritten.
    ///
    /// # Errors
    /// When the guard's VFS cannot be registered.
    pub fn alone(path: &Path, page_size: PageSize, vfs_base: Option<&str>) -> Result<FilePlan, ApplyError> {
        let name = path.display().to_string();
        let vfs = register_guard_vfs(vfs_base)
            .map_err(|source| ApplyError::Guard { name: name.clone(), source })?;
        Ok(FilePlan {
            name,
            path: path.to_owned(),
            page_size,
            vfs,
            vfs_base: vfs_base.map(str::to_owned),
            cache_kib: Limits::default().cache_kib,
            rewrites_wal: false,
        })
    }
}

/// How far the WAL is checkpointed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpointed {
    /// Salts of the WAL, in the byte order of the file.
    pub raw_salts: [u32; 2],
    /// Frames in the WAL (mxFrame).
    pub frames: u32,
    /// Frames that are in the database file (nBackfill).
    pub backfilled: u32,
}

/// An open standby database whose write and checkpoint locks this connection holds.
pub struct StandbyFile {
    pub(crate) plan: FilePlan,
    pub(crate) connection: Connection,
    pub(crate) wal: Option<VfsFile>,
    pub(crate) write_back: WriteBack,
    pub(crate) lifecycle: WalLifecycle,
    /// Size in pages as of the last commit, without the open transaction.
    pub(crate) pages: u32,
    /// Size in pages that `sqlite_dbpage` sees in the open transaction.
    seen_pages: u32,
    in_transaction: bool,
    schema_version: [u8; 4],
}

impl StandbyFile {
    /// Opens the database and takes its locks. With `create`, a missing or empty file becomes an empty WAL database.
    ///
    /// # Errors
    /// `Sqlite`, `Guard`, or `Unusable` when the file is something else.
    pub fn open(plan: FilePlan, create: bool) -> Result<StandbyFile, ApplyError> {
        let connection = connect(&plan, create)?;
        let write_back = WriteBack::new(&plan.path, plan.page_size.bytes());
        let lifecycle = WalLifecycle::new(plan.rewrites_wal, plan.page_size, Rhythm::BetweenBatches);
        let mut file = StandbyFile {
            plan,
            connection,
            wal: None,
            write_back,
            lifecycle,
            pages: 0,
            seen_pages: 0,
            in_transaction: false,
            schema_version: [0; 4],
        };
        file.read_header()?;
        file.take_locks()?;
        file.repair_inconsistent_wal()?;
        file.cut_stale_frames()?;
        Ok(file)
    }

    /// Truncates frames left from before a power loss: positions journalled from now on must not match them.
    fn cut_stale_frames(&mut self) -> Result<(), ApplyError> {
        let guard_failed = |source| ApplyError::Guard { name: self.plan.name.clone(), source };
        let header = self.guard()?.wal_header().map_err(guard_failed)?;
        let page_size = self.plan.page_size;
        self.with_wal(|wal| cut_stale_frames(wal, &header, page_size))
    }

    /// Changes the size of the page cache, in KiB. A failure leaves the size as it is, which only costs memory or time.
    pub fn set_cache(&mut self, kib: u32) {
        if kib != self.plan.cache_kib && self.connection.execute_batch(&cache_size(kib)).is_ok() {
            self.plan.cache_kib = kib;
        }
    }

    /// Opens the database again, because properties that a connection reads only once (text encoding, reserved bytes)
    /// may have changed with the whole content.
    ///
    /// # Errors
    /// As for [`StandbyFile::open`].
    pub fn reopen(&mut self) -> Result<(), ApplyError> {
        // The new connection opens before the old one closes: the last one to close would delete the WAL.
        let fresh = connect(&self.plan, false)?;
        self.release_locks();
        self.connection = fresh;
        self.lifecycle.end_deferral();
        self.read_header()?;
        self.take_locks()
    }

    fn read_header(&mut self) -> Result<(), ApplyError> {
        let unusable = |why| ApplyError::Unusable { name: self.plan.name.clone(), why };
        let page_bytes: u32 = self.pragma("PRAGMA page_size")?;
        if page_bytes as usize != self.plan.page_size.bytes() {
            return Err(unusable("its page size is not that of the primary"));
        }
        let mode: String = self.pragma("PRAGMA journal_mode")?;
        if mode != "wal" {
            return Err(unusable("it is not in WAL mode"));
        }
        self.pages = self.pragma("PRAGMA page_count")?;
        self.seen_pages = self.pages;
        let mut first = vec![0; self.plan.page_size.bytes()];
        self.read_page(1, &mut first)?;
        self.schema_version.copy_from_slice(&first[SCHEMA_VERSION]);
        Ok(())
    }

    fn take_locks(&self) -> Result<(), ApplyError> {
        let guard = self.guard()?;
        guard
            .hold_write_lock_within(OPEN_WAIT)
            .and_then(|()| guard.hold_checkpoint_lock())
            .map_err(|source| ApplyError::Guard { name: self.plan.name.clone(), source })
    }

    /// Lets other processes write and checkpoint.
    pub fn release_locks(&self) {
        if let Ok(guard) = self.guard() {
            guard.release_write_lock();
            guard.release_checkpoint_lock();
        }
    }

    pub(crate) fn guard(&self) -> Result<Guard<'_>, ApplyError> {
        Guard::of(&self.connection)
            .map_err(|source| ApplyError::Guard { name: self.plan.name.clone(), source })
    }

    fn pragma<T: rusqlite::types::FromSql>(&self, sql: &str) -> Result<T, ApplyError> {
        self.connection
            .query_row(sql, [], |row| row.get(0))
            .map_err(|source| self.sqlite("reading the header", source))
    }

    pub(crate) fn sqlite(&self, doing: &'static str, source: rusqlite::Error) -> ApplyError {
        let name = self.plan.name.clone();
        match source {
            rusqlite::Error::SqliteFailure(error, _) if error.extended_code == ffi::SQLITE_IOERR_FSYNC => {
                ApplyError::SyncFailed { name, why: format!("{doing}: {source}") }
            }
            source => ApplyError::Sqlite { name, doing, source },
        }
    }

    /// Returns the committed size in pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Returns the size in pages that the open transaction sees.
    pub fn seen_pages(&self) -> u32 {
        self.seen_pages
    }

    pub fn page_size(&self) -> PageSize {
        self.plan.page_size
    }

    /// Returns the page that SQLite never uses because lock bytes are there.
    pub fn lock_page(&self) -> PageNo {
        (PENDING_BYTE / self.plan.page_size.bytes() as u64) as PageNo + 1
    }

    /// Returns the committed state as a WAL position.
    ///
    /// # Errors
    /// `Guard` when the wal-index cannot be read.
    pub fn wal_position(&self) -> Result<WalPosition, ApplyError> {
        self.guard()?
            .wal_position()
            .map_err(|source| ApplyError::Guard { name: self.plan.name.clone(), source })
    }

    /// Returns [`StandbyFile::wal_position`] and the checksum of its frame, 0 for an empty WAL.
    ///
    /// # Errors
    /// As [`StandbyFile::wal_position`].
    pub fn wal_state(&self) -> Result<(WalPosition, u32), ApplyError> {
        let header = self.guard()?.wal_header();
        let state = header.map(|header| (header.position(), header.last_checksum()));
        state.map_err(|source| ApplyError::Guard { name: self.plan.name.clone(), source })
    }

    /// Returns the frames of the WAL, and how many of them are backfilled.
    ///
    /// # Errors
    /// `Guard` when the wal-index cannot be read.
    pub fn checkpointed(&self) -> Result<Checkpointed, ApplyError> {
        let guard = self.guard()?;
        let read = guard.wal_header().and_then(|header| Ok((header, guard.wal_index()?.backfilled())));
        let (header, backfilled) =
            read.map_err(|source| ApplyError::Guard { name: self.plan.name.clone(), source })?;
        Ok(Checkpointed { raw_salts: header.raw_salts(), frames: header.frames(), backfilled })
    }

    /// Fills `out` with a page; false when the database ends before it.
    ///
    /// # Errors
    /// `Sqlite`.
    pub fn read_page(&self, page_no: PageNo, out: &mut [u8]) -> Result<bool, ApplyError> {
        let mut read = || {
            let mut statement = self.connection.prepare_cached(READ)?;
            let copy = |row: &rusqlite::Row<'_>| {
                let data = row.get_ref(0)?.as_blob()?;
                let same_size = data.len() == out.len();
                if same_size {
                    out.copy_from_slice(data);
                }
                Ok(same_size)
            };
            statement.query_row([page_no], copy).optional().map(|found| found.unwrap_or(false))
        };
        read().map_err(|source| self.sqlite("reading a page", source))
    }

    /// Opens a transaction.
    ///
    /// # Errors
    /// `Sqlite`.
    pub fn begin(&mut self) -> Result<(), ApplyError> {
        debug_assert!(!self.in_transaction);
        self.execute("BEGIN IMMEDIATE", "opening a transaction")?;
        self.in_transaction = true;
        self.seen_pages = self.pages;
        Ok(())
    }

    fn execute(&self, sql: &str, doing: &'static str) -> Result<(), ApplyError> {
        let run = || self.connection.prepare_cached(sql)?.execute([]);
        run().map(|_| ()).map_err(|source| self.sqlite(doing, source))
    }

    /// Writes pages within the transaction; never page 1.
    ///
    /// # Errors
    /// `Sqlite`.
    pub fn write_pages<'a>(&self, pages: impl Iterator<Item = (PageNo, &'a [u8])>) -> Result<(), ApplyError> {
        let write = || {
            let mut statement = self.connection.prepare_cached(WRITE)?;
            for (page_no, image) in pages {
                debug_assert!(page_no > 1 && self.in_transaction);
                statement.execute((page_no, image))?;
            }
            Ok(())
        };
        write().map_err(|source| self.sqlite("writing pages", source))
    }

    /// Makes the transaction see the pages that it wrote beyond the end of the database.
    ///
    /// # Errors
    /// `Sqlite`.
    pub fn see_pages(&mut self, pages: u32) -> Result<(), ApplyError> {
        if pages <= self.seen_pages {
            return Ok(());
        }
        let mut first = vec![0; self.plan.page_size.bytes()];
        self.read_page(1, &mut first)?;
        first[SIZE_IN_PAGES].copy_from_slice(&pages.to_be_bytes());
        self.write_first(&first)?;
        self.execute("SAVEPOINT size", "growing the database")?;
        self.execute("RELEASE size", "growing the database")?;
        self.seen_pages = pages;
        Ok(())
    }

    fn write_first(&self, first: &[u8]) -> Result<(), ApplyError> {
        let write = || self.connection.prepare_cached(WRITE)?.execute((1, first));
        write().map(|_| ()).map_err(|source| self.sqlite("writing pages", source))
    }

    /// Writes page 1 if given, sets the size of the database to `pages`, and commits.
    ///
    /// # Errors
    /// An error up to the COMMIT leaves the transaction open; `Unusable` when the committed size is wrong.
    pub fn commit(&mut self, first: Option<&[u8]>, pages: u32) -> Result<(), ApplyError> {
        if pages < self.seen_pages {
            self.cut(first, pages)?;
        } else if let Some(first) = first {
            self.write_first(first)?;
        }
        self.execute("COMMIT", "committing")?;
        self.in_transaction = false;
        (self.pages, self.seen_pages) = (pages, pages);
        self.check_size()?;
        if let Some(first) = first
            && first[SCHEMA_VERSION] != self.schema_version
        {
            self.schema_version.copy_from_slice(&first[SCHEMA_VERSION]);
            self.connection.release_memory().map_err(|source| self.sqlite("dropping the cache", source))?;
        }
        Ok(())
    }

    /// Checks the size, the one part of a commit that no page checksum covers.
    fn check_size(&self) -> Result<(), ApplyError> {
        let header = self
            .guard()?
            .wal_header()
            .map_err(|source| ApplyError::Guard { name: self.plan.name.clone(), source })?;
        // A commit that changes no page leaves an empty WAL as it is, and its wal-index has no size.
        let pages = match header.frames() {
            0 => self.pragma("PRAGMA page_count")?,
            _ => header.database_pages(),
        };
        if pages == self.pages {
            return Ok(());
        }
        let why = "SQLite has not committed it with the size that the redo says";
        Err(ApplyError::Unusable { name: self.plan.name.clone(), why })
    }

    fn cut(&self, first: Option<&[u8]>, pages: u32) -> Result<(), ApplyError> {
        let current;
        let first = match first {
            Some(first) => first,
            None => {
                let mut page = vec![0; self.plan.page_size.bytes()];
                self.read_page(1, &mut page)?;
                current = page;
                &current
            }
        };
        let cut = || self.connection.prepare_cached(CUT)?.execute([pages + 1]);
        cut().map_err(|source| self.sqlite("cutting the database", source))?;
        self.write_first(first)
    }

    /// Rolls back the transaction, if one is open.
    pub fn rollback(&mut self) {
        if std::mem::take(&mut self.in_transaction) {
            // SQLite may have rolled back by itself; afterwards no transaction is open in either case.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        self.seen_pages = self.pages;
    }

    pub fn plan(&self) -> &FilePlan {
        &self.plan
    }

    /// Returns how far the WAL has been handed to the disk.
    pub fn write_back(&mut self) -> &mut WriteBack {
        &mut self.write_back
    }
}

impl Drop for StandbyFile {
    /// SQLite expects a connection to hold no lock when it closes: a remaining lock would last as long as another
    /// connection of this process has the database open.
    fn drop(&mut self) {
        self.rollback();
        self.release_locks();
    }
}

#[cfg(test)]
impl StandbyFile {
    /// Returns the size of the page cache as SQLite has it, in KiB.
    pub fn cache_kib(&self) -> i64 {
        self.connection.query_row("PRAGMA cache_size", [], |row| row.get::<_, i64>(0)).map_or(0, |size| -size)
    }
}

fn cache_size(kib: u32) -> String {
    format!("PRAGMA cache_size=-{kib}")
}

fn connect(plan: &FilePlan, create: bool) -> Result<Connection, ApplyError> {
    if create && plan.vfs_base.is_none() {
        // SQLite would make the file readable for every user, and the permissions of the original are not known here.
        // The WAL and the wal-index get the permissions of the database. SQLite reports the error when the file cannot
        // be made.
        let _ = outside::create_new(&plan.path, 0o600);
    }
    if plan.vfs_base.is_none() {
        let journal = check_no_journal(&plan.path).map_err(GuardError::Journal);
        journal.map_err(|source| ApplyError::Guard { name: plan.name.clone(), source })?;
    }
    let open = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let flags = if create { flags | OpenFlags::SQLITE_OPEN_CREATE } else { flags };
        let connection =
            Connection::open_with_flags_and_vfs(Path::new(&plan.path), flags, plan.vfs.as_str())?;
        connection.busy_timeout(OPEN_WAIT)?;
        // Pages are applied even when this SQLite cannot parse the schema. Set before anything makes SQLite read the
        // schema.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
        if create && connection.query_row("PRAGMA page_count", [], |row| row.get::<_, u32>(0))? == 0 {
            let page_bytes = plan.page_size.bytes();
            connection.execute_batch(&format!("PRAGMA page_size={page_bytes}; {INTO_WAL_MODE}"))?;
        }
        connection.execute_batch(&format!(
            "PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0; PRAGMA mmap_size=0; {}",
            cache_size(plan.cache_kib)
        ))?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
        never_vacuum(&connection)?;
        connection.execute_batch("CREATE VIRTUAL TABLE temp.standfast_cut USING sqlite_dbpage")?;
        connection.query_row("SELECT count(*) FROM sqlite_dbpage('main') WHERE pgno=1", [], |_| Ok(()))?;
        Ok(connection)
    };
    open().map_err(|source| ApplyError::Sqlite { name: plan.name.clone(), doing: "opening", source })
}
