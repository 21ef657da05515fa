//! Puts a database under protection: all checks come before any change.

use crate::commit::database::Database;
use crate::commit::primary::PrimaryShared;
use rusqlite::ErrorCode;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::control::DatabaseRecord;
use standfast_environment::state::descriptors;
use standfast_environment::state::file_system;
use standfast_io::outside;
use standfast_session::{FileId, Foreign, Marker};
use standfast_sqlite_wal::guard::GuardError;
use standfast_types::{DatabaseId, PageSize, Scn};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Returns the SQLite databases that `path` names: the file itself, or all in a directory. `protected` databases and
/// their companion files are not opened: closing a file would drop the locks that this process holds on it.
///
/// # Errors
/// When nothing is there, or the directory has no databases.
pub fn databases_at(path: &Path, protected: &[DatabaseRecord]) -> Result<Vec<PathBuf>, InstanceError> {
    let canonical = path.canonicalize().map_err(|error| {
        InstanceError::refused(
            format!("{}: {error}", path.display()),
            "name an existing database file or a directory of them",
        )
    })?;
    if !canonical.is_dir() {
        return Ok(vec![canonical]);
    }
    let entries = std::fs::read_dir(&canonical).map_err(InstanceError::io("list", &canonical))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        // A symbolic link may lead to another user's file; it is protected only when named itself.
        .filter(|path| is_plain_file(path) && !is_companion(path))
        // A file that cannot be opened now may be a database; it is refused later with the reason.
        .filter(|path| {
            is_protected(protected, path) || has_magic(path).unwrap_or_else(|error| is_leased(&error))
        })
        .collect();
    found.sort();
    if found.is_empty() {
        return Err(InstanceError::refused(
            format!("{} holds no SQLite database", canonical.display()),
            "name a directory with database files, or a file",
        ));
    }
    Ok(found)
}

/// Held while a database is put under protection.
static SEARCH: Mutex<()> = Mutex::new(());

/// Prevents the search for unprotected databases until the guard is dropped.
pub fn hold_search() -> MutexGuard<'static, ()> {
    SEARCH.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns the unprotected database files in `directories`; `None` while a database is put under protection, because
/// opening and closing its file would drop the locks of this process. Files that cannot be read, or that another
/// instance protects, are not listed.
pub fn unprotected_in(
    instance: [u8; 16],
    directories: &[PathBuf],
    protected: &dyn Fn() -> Vec<DatabaseRecord>,
) -> Option<Vec<PathBuf>> {
    let _no_protect = SEARCH.try_lock().ok()?;
    let protected = protected();
    let entries =
        directories.iter().filter_map(|directory| std::fs::read_dir(directory).ok()).flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| is_plain_file(path) && !is_companion(path));
    let mut found: Vec<PathBuf> = files
        .filter(|path| !is_protected(&protected, path) && marker_of_another(path, instance).is_none())
        .filter(|path| has_magic(path).unwrap_or(false))
        .collect();
    found.sort();
    Some(found)
}

/// Whether the file at `path`, under any name, is one of these databases.
pub fn is_protected(protected: &[DatabaseRecord], path: &Path) -> bool {
    known_as(protected, path).is_some()
}

/// Whether the name is that of a file that SQLite, or this instance, keeps beside a database.
fn is_companion(path: &Path) -> bool {
    let name = path.as_os_str().as_encoded_bytes();
    [b"-wal".as_slice(), b"-shm", b"-journal"].iter().any(|suffix| name.ends_with(suffix))
        || standfast_environment::context::kept::is_named_so(path)
}

fn is_plain_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_file())
}

/// Must not be called for a database that this process has open: closing the file would drop its locks.
fn has_magic(path: &Path) -> io::Result<bool> {
    let mut magic = [0; 16];
    match outside::open(path)?.read_exact(&mut magic) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| &magic == MAGIC),
    }
}

/// A non-blocking `open` fails with this error when another process holds a lease on the file.
fn is_leased(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn no_header(path: &Path) -> impl FnOnce(io::Error) -> InstanceError + '_ {
    move |error| match is_leased(&error) {
        true => GuardError::Leased(path.to_owned()).into(),
        false => InstanceError::io("read the header of", path)(error),
    }
}

/// Checks the file at `path` and opens it for protection under a new number. The redo contains nothing of it before
/// `born`.
///
/// # Errors
/// `Refused` with cause and remedy; nothing has changed then.
pub fn open_for_protection(
    environment: &Environment,
    path: &Path,
    name: Option<&str>,
    born: Scn,
    in_use: &dyn Fn(DatabaseId) -> bool,
) -> Result<Database, InstanceError> {
    let control = environment.control();
    let shown = path.display();
    let metadata = std::fs::metadata(path).map_err(InstanceError::io("read the properties of", path))?;
    if let Some(record) = known_as(&control.databases, path) {
        let what = format!("{shown} is already protected, as database {} ({})", record.id, record.name);
        if control.offline_from(record.id).is_some() {
            return Err(InstanceError::refused(
                format!("{what}, but could not be opened when the instance started"),
                format!(
                    "restart the instance to try again; the alert log says what was wrong, and `standfast database resolve {}` \
                     what can be done",
                    record.name
                ),
            ));
        }
        return Err(InstanceError::refused(what, "nothing to do; `standfast status` shows it"));
    }
    if let Some(marker) = marker_of_another(path, control.instance.0) {
        let what =
            format!("{shown} is protected by instance {} in {}", marker.name, marker.directory.display());
        let hint = format!("run `standfast unprotect -D {} {shown}` first", marker.directory.display());
        return Err(InstanceError::refused(what, hint));
    }
    if !has_magic(path).map_err(no_header(path))? {
        let hint = "name a SQLite database; an empty file becomes one with its first table";
        return Err(InstanceError::refused(format!("{shown} is not a SQLite database"), hint));
    }
    if metadata.nlink() > 1 {
        let (what, hint) = hard_links(path, metadata.nlink());
        return Err(InstanceError::refused(what, hint));
    }
    if metadata.permissions().readonly() {
        let what = format!("{shown} is read-only");
        return Err(InstanceError::refused(
            what,
            format!("run `chmod u+w {shown}` if it is meant to be written"),
        ));
    }
    file_system::check(path, "the database")?;
    let name = name.map_or_else(
        || path.file_name().map_or_else(String::new, |file| file.to_string_lossy().into()),
        str::to_owned,
    );
    let plain = Path::new(&name).file_name().is_some_and(|file| file == name.as_str()) && name.len() <= 255;
    if !plain {
        return Err(InstanceError::refused(
            format!("`{name}` is not a file name"),
            "give a plain file name with --name",
        ));
    }
    if let Some(record) = control.database_named(&name) {
        let what = format!("a database named {name} is already protected: {}", record.path.display());
        return Err(InstanceError::refused(what, "standbys need distinct names: give another with --name"));
    }
    let Some(id) = control.free_number(in_use) else {
        return Err(InstanceError::refused(
            "all database numbers are in use",
            "if databases were unprotected, close the connections that still have them open and run `standfast checkpoint`; else make another instance for more databases",
        ));
    };
    descriptors::check_room(control.databases.len())?;
    let record = DatabaseRecord {
        id,
        name,
        path: path.to_owned(),
        page_size: page_size(path)?,
        start_scn: born,
        redo_from: Scn::ZERO,
        begun_empty: false,
    };
    Database::open(record, environment.vfs_base.as_deref()).map_err(|error| explain(path, error))
}

/// Refusal of a file with several names. A second name may be in another user's directory, and SQLite finds the WAL of
/// a database by its name: a process that opens the file by another name does not see commits made here.
fn hard_links(path: &Path, links: u64) -> (String, String) {
    let (shown, directory) = (path.display(), path.parent().unwrap_or(Path::new("/")).display());
    (
        format!("{shown} has {links} names (hard links)"),
        format!(
            "find the others with `find {directory} -xdev -samefile {shown}` and remove them, or protect a copy of its \
             own (`sqlite3 {shown} \".backup COPY\"`)"
        ),
    )
}

/// The database whose file is at `path`, under any name.
fn known_as<'a>(databases: &'a [DatabaseRecord], path: &Path) -> Option<&'a DatabaseRecord> {
    let file = FileId::of(path)?;
    databases.iter().find(|record| FileId::of(&record.path) == Some(file))
}

/// The marker of another instance that protects the database at `path`. A marker that came with a copy protects
/// nothing.
fn marker_of_another(path: &Path, instance: [u8; 16]) -> Option<Marker> {
    let marker = Marker::read(path).ok()??;
    let foreign = FileId::of(path).and_then(|file| marker.check(path, file).err());
    let copied = matches!(foreign, Some(Foreign::Copy | Foreign::Replaced));
    (marker.instance != instance && !copied).then_some(marker)
}

/// Writes the marker of a served database again if something else has replaced it. Returns the name of the database in
/// that case.
///
/// # Errors
/// When another file has replaced the database, or the marker cannot be written.
pub fn renew_marker(
    environment: &Environment,
    shared: &PrimaryShared,
    path: &Path,
) -> Result<Option<String>, InstanceError> {
    let control = environment.control();
    let Some(record) = known_as(&control.databases, path) else { return Ok(None) };
    let Some(database) = shared.database(record.id) else { return Ok(None) };
    if database.file() != FileId::of(&record.path) {
        return Err(InstanceError::refused(
            format!(
                "another file has been put at {} while the instance has the old one open",
                path.display()
            ),
            "restart the instance: it takes up what is there if the redo allows it",
        ));
    }
    let expected = environment.marker(record, database.file());
    if matches!(Marker::read(&record.path), Ok(Some(found)) if found == expected) {
        return Ok(None);
    }
    environment.write_marker(record, database.file())?;
    environment
        .alert
        .say(format!("the marker of database {} was not its own and was rewritten", record.name));
    Ok(Some(record.name.clone()))
}

pub fn page_size(path: &Path) -> Result<PageSize, InstanceError> {
    let mut header = [0; 18];
    outside::open(path).and_then(|mut file| file.read_exact(&mut header)).map_err(no_header(path))?;
    let field = u16::from_be_bytes([header[16], header[17]]);
    PageSize::from_header_field(field).ok_or_else(|| {
        InstanceError::refused(
            format!("{} has page size {field}", path.display()),
            "the file is damaged; restore it",
        )
    })
}

/// Whether the header of the database shows WAL mode.
///
/// # Errors
/// When it cannot be read.
pub fn is_in_wal_mode(path: &Path) -> io::Result<bool> {
    let mut header = [0; 20];
    outside::open(path)?.read_exact(&mut header)?;
    Ok(header[18..20] == [2, 2])
}

fn explain(path: &Path, error: InstanceError) -> InstanceError {
    let InstanceError::Sqlite(rusqlite::Error::SqliteFailure(failure, _)) = &error else { return error };
    let shown = path.display();
    match failure.code {
        ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt => InstanceError::refused(
            format!("{shown} is not a SQLite database, or damaged: {error}"),
            "run `PRAGMA integrity_check` on it",
        ),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => InstanceError::refused(
            format!("{shown} is locked by another process: {error}"),
            "let it finish, and close connections in exclusive locking mode",
        ),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen => InstanceError::refused(
            format!("{shown} cannot be opened for writing: {error}"),
            "run the instance as a user who may write the database and its directory",
        ),
        _ => error,
    }
}
