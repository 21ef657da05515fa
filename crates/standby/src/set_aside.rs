//! The files of a snapshot standby. Applications write to copies, which are at the paths of the databases; the standby's own
//! files wait beside them, under another name, for the redo that has arrived since.
//!
//! ```text
//!  open:   app.db ── copied ──> app.db-snapshot     then   app.db, -wal, -shm ──> app.db-standby, -standby-wal, -standby-shm
//!                                                          app.db-snapshot ──> app.db
//!  close:  app.db, -wal, -shm removed;  app.db-standby, ... ──> app.db, ...
//! ```
//!
//! [`bring_back`] undoes every prefix of these steps, also of its own. The control file says first that the files are being
//! changed, so a start after a crash calls it.

use crate::standby_copy;
use crate::standby_shared::StandbyShared;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::control::DatabaseRecord;
use standfast_io::fault::{self, Fault};
use standfast_io::outside;
use standfast_transport::SourceError;
use std::ffi::OsString;
use std::io::{ErrorKind, Result, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Ends of the names of the files of a database.
const FILES: [&str; 3] = ["", "-wal", "-shm"];

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Where the standby's own file waits.
fn aside(path: &Path, file: &str) -> PathBuf {
    beside(path, &format!("-standby{file}"))
}

fn copy_of(path: &Path) -> PathBuf {
    beside(path, "-snapshot")
}

fn failed<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> InstanceError + 'a {
    InstanceError::io(what, path)
}

/// Copies a database, as it is now, beside its file, with the file's owner and permissions. Returns its bytes.
///
/// # Errors
/// When redo is not applied to it, or the copy cannot be written; nothing is left then.
pub fn copy(
    environment: &Environment,
    shared: &StandbyShared,
    record: &DatabaseRecord,
) -> std::result::Result<u64, InstanceError> {
    let to = copy_of(&record.path);
    let written = write_copy(environment, shared, record, &to);
    if written.is_err() {
        let _ = outside::remove(&to);
    }
    written
}

fn write_copy(
    environment: &Environment,
    shared: &StandbyShared,
    record: &DatabaseRecord,
    to: &Path,
) -> std::result::Result<u64, InstanceError> {
    // Not opened: closing it would drop the locks that this process has on it.
    step().map_err(failed("copy", &record.path))?;
    let like = std::fs::symlink_metadata(&record.path).map_err(failed("read the owner of", &record.path))?;
    outside::remove(to).map_err(failed("remove", to))?;
    let mut file =
        outside::create_new(to, like.permissions().mode() & 0o777).map_err(failed("create", to))?;
    let mut bytes = 0;
    let copied = standby_copy::copy(environment, shared, record.id, &mut |_, pages| {
        bytes += pages.len() as u64;
        file.write_all(pages)
    });
    copied.map_err(|error| match error {
        SourceError::Sink(error) => failed("write", to)(error),
        other => InstanceError::Failed(format!("database {} cannot be copied: {other}", record.name)),
    })?;
    if fchown(&file, Some(like.uid()), Some(like.gid())).is_err() {
        environment.alert.say(format!(
            "database {}: its copy belongs to the user of this instance, because the owner cannot be given",
            record.name
        ));
    }
    file.sync_all().map_err(failed("write", to))?;
    Ok(bytes)
}

/// Removes a copy that is not used.
pub fn remove_copy(record: &DatabaseRecord) {
    let _ = outside::remove(&copy_of(&record.path));
}

/// Sets the files of a database aside and puts the copy into their place. No connection of this process is open.
///
/// # Errors
/// When a file cannot be renamed; [`bring_back`] then restores the files.
pub fn open(record: &DatabaseRecord) -> std::result::Result<(), InstanceError> {
    let path = &record.path;
    // The database file last: while it has its name, nothing else needs to be undone at its place.
    for file in ["-shm", "-wal", ""] {
        let from = beside(path, file);
        match step().and_then(|()| outside::rename(&from, &aside(path, file))) {
            Err(error) if error.kind() == ErrorKind::NotFound && !file.is_empty() => {}
            renamed => renamed.map_err(failed("set aside", &from))?,
        }
    }
    let copy = copy_of(path);
    step().and_then(|()| outside::rename_new(&copy, path)).map_err(failed("put into its place", &copy))
}

fn step() -> Result<()> {
    fault::check(Fault::Convert)
}

/// Brings the standby's own files of a database back, wherever [`open`] or this function itself was interrupted. What was
/// written to the copy is lost.
///
/// # Errors
/// When a file cannot be renamed or removed; a later call continues.
pub fn bring_back(record: &DatabaseRecord) -> std::result::Result<(), InstanceError> {
    let path = &record.path;
    let done = bring_back_files(path);
    done.map_err(failed("bring back", path))
}

fn bring_back_files(path: &Path) -> Result<()> {
    // A copy that cannot be removed is in the way of the next one only, which says so.
    let _ = outside::remove(&copy_of(path));
    let own = aside(path, "");
    if exists(&own)? {
        // What has the names now is the copy, and files that SQLite has made beside it.
        for file in ["-journal", "-wal", "-shm", ""] {
            step()?;
            outside::remove(&beside(path, file))?;
        }
        step()?;
        outside::rename(&own, path)?;
    }
    for file in FILES.into_iter().filter(|file| !file.is_empty()) {
        let own = aside(path, file);
        if exists(&own)? {
            step()?;
            outside::rename(&own, &beside(path, file))?;
        }
    }
    Ok(())
}

fn exists(path: &Path) -> Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The content of each file in `folder`, by name.
    fn content(folder: &Path) -> Vec<(String, String)> {
        let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(Result::unwrap)
            .map(|entry| (name(&entry), fs::read_to_string(entry.path()).unwrap()))
            .collect();
        files.sort();
        files
    }

    fn put(folder: &Path, files: &[(&str, &str)]) {
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
    }

    /// Every state that a crash can leave is brought back to the standby's own files.
    #[test]
    fn files_come_back_from_every_state_that_a_crash_leaves() {
        let own = [("a.db", "own"), ("a.db-shm", "own shm"), ("a.db-wal", "own wal")];
        let states: [&[(&str, &str)]; 8] = [
            &[("a.db", "own"), ("a.db-shm", "own shm"), ("a.db-wal", "own wal"), ("a.db-snapshot", "half")],
            &[
                ("a.db", "own"),
                ("a.db-standby-shm", "own shm"),
                ("a.db-wal", "own wal"),
                ("a.db-snapshot", "x"),
            ],
            &[("a.db", "own"), ("a.db-standby-shm", "own shm"), ("a.db-standby-wal", "own wal")],
            &[("a.db-standby", "own"), ("a.db-standby-shm", "own shm"), ("a.db-standby-wal", "own wal")],
            &[
                ("a.db", "written"),
                ("a.db-wal", "of the copy"),
                ("a.db-shm", "of the copy"),
                ("a.db-journal", "of the copy"),
                ("a.db-standby", "own"),
                ("a.db-standby-shm", "own shm"),
                ("a.db-standby-wal", "own wal"),
            ],
            &[
                ("a.db", "written"),
                ("a.db-standby", "own"),
                ("a.db-standby-shm", "own shm"),
                ("a.db-standby-wal", "own wal"),
            ],
            &[("a.db", "own"), ("a.db-standby-shm", "own shm"), ("a.db-standby-wal", "own wal")],
            &[("a.db", "own"), ("a.db-standby-shm", "own shm"), ("a.db-wal", "own wal")],
        ];
        for (number, state) in states.into_iter().enumerate() {
            let folder =
                std::env::temp_dir().join(format!("standfast-aside-{number}-{}", std::process::id()));
            fs::create_dir(&folder).unwrap();
            put(&folder, state);
            for _ in 0..2 {
                bring_back_files(&folder.join("a.db")).unwrap();
                let expected = own.map(|(name, text)| (name.to_owned(), text.to_owned()));
                assert_eq!(content(&folder), expected, "state {number}");
            }
            fs::remove_dir_all(&folder).unwrap();
        }
    }
}
