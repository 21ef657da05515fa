//! Opens a protected database: the instance's own connection, through the guard VFS.

use crate::config::error::InstanceError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use standfast_io::outside;
use standfast_sqlite_wal::guard::{Guard, GuardError, register_guard_vfs};
use standfast_sqlite_wal::opening;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait for other processes that recover the database when it is opened.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for another process's checkpoint.
pub const CHECKPOINT_LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a checkpoint waits for readers.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_millis(10);

/// Runs SQLite's recovery of the wal-index if a writer died while publishing.
///
/// # Errors
/// SQLite's.
pub fn recover_index(connection: &Connection) -> Result<(), InstanceError> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(())
}

/// Opens a connection through the guard VFS that never checkpoints by itself and never removes the WAL.
pub fn open_guarded(path: &Path, vfs_base: Option<&str>) -> Result<Connection, InstanceError> {
    open_guarded_within(path, vfs_base, OPEN_TIMEOUT)
}

pub fn open_guarded_within(
    path: &Path,
    vfs_base: Option<&str>,
    limit: Duration,
) -> Result<Connection, InstanceError> {
    opening::take_leased();
    let opened = opening::within(limit, || open_and_prepare(path, vfs_base));
    opened.map_err(|error| match opening::take_leased() {
        Some(leased) if error.is_held_by_others() => GuardError::Leased(leased).into(),
        _ => error,
    })
}

fn open_and_prepare(path: &Path, vfs_base: Option<&str>) -> Result<Connection, InstanceError> {
    if vfs_base.is_none() {
        // Refuses a path in which another user has placed a symbolic link, for the file or a directory: it could lead
        // to a file that is not that user's.
        outside::look(path).map_err(InstanceError::io("open", path))?;
    }
    let vfs = register_guard_vfs(vfs_base)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags_and_vfs(path, flags, vfs.as_str())?;
    // After a crash of all processes an application may be recovering the wal-index, which takes time in proportion to
    // the WAL.
    connection.busy_timeout(OPEN_TIMEOUT)?;
    // Set before any statement reads the schema: an instance only reads pages, and a schema that needs a newer SQLite
    // must not stop it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(InstanceError::refused(
            format!("{} is in journal mode {mode}, not WAL", path.display()),
            format!(
                "run `sqlite3 {} 'PRAGMA journal_mode=WAL'` while no application uses it",
                path.display()
            ),
        ));
    }
    connection
        .execute_batch("PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-256")?;
    recover_index(&connection)?;
    connection.busy_timeout(CHECKPOINT_TIMEOUT)?;
    keep_wal(&connection);
    Ok(connection)
}

pub fn hold_checkpoint_lock(guard: &Guard<'_>, limit: Duration) -> Result<(), InstanceError> {
    let end = Instant::now() + limit;
    loop {
        match guard.hold_checkpoint_lock() {
            Err(GuardError::Busy { .. }) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return Ok(other?),
        }
    }
}

/// Sets SQLITE_FCNTL_PERSIST_WAL: the last connection to close keeps the WAL.
fn keep_wal(connection: &Connection) {
    let mut on: std::ffi::c_int = 1;
    // SAFETY: the connection is open and the control reads and writes one int.
    unsafe {
        rusqlite::ffi::sqlite3_file_control(
            connection.handle(),
            c"main".as_ptr(),
            rusqlite::ffi::SQLITE_FCNTL_PERSIST_WAL,
            (&raw mut on).cast(),
        );
    }
}
