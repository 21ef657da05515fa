//! An instance directory that is being made: what it holds can be told from what somebody else put there.
//!
//! While a directory is made it has a file `creating`, which names every database file before it is made. A creation
//! that was interrupted leaves it behind, without a control file; the next one removes what is named there and the log
//! files, and nothing else.

use crate::error::InstanceError;
use crate::paths::Paths;
use standfast_io::{outside, sync_directory_of};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The file `creating`, open for more names.
pub struct Unfinished {
    path: PathBuf,
    file: File,
}

impl Unfinished {
    /// Removes what an interrupted creation has left, and begins a new one. The caller has the lock of the directory and
    /// knows that it holds no instance.
    ///
    /// # Errors
    /// When a file cannot be removed or made.
    pub fn begin(paths: &Paths) -> Result<Unfinished, InstanceError> {
        let path = paths.directory.join("creating");
        match std::fs::read_to_string(&path) {
            Ok(names) => clean(paths, &names)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(InstanceError::io("read", &path)(error)),
        }
        let opened =
            outside::remove(&path).and_then(|()| outside::create_new(&path, 0o600)).and_then(|file| {
                file.sync_all()?;
                sync_directory_of(&path)?;
                Ok(file)
            });
        let file = opened.map_err(InstanceError::io("create", &path))?;
        Ok(Unfinished { path, file })
    }

    /// The database file `name` is made next.
    ///
    /// # Errors
    /// When that cannot be noted.
    pub fn note(&mut self, name: &str) -> std::io::Result<()> {
        self.file.write_all(format!("{name}\n").as_bytes())?;
        self.file.sync_all()
    }

    /// The directory holds an instance now.
    ///
    /// # Errors
    /// When the file cannot be removed. It does no harm then: beside a control file nobody looks at it.
    pub fn finish(self) -> Result<(), InstanceError> {
        std::fs::remove_file(&self.path).map_err(InstanceError::io("remove", &self.path))
    }
}

fn clean(paths: &Paths, names: &str) -> Result<(), InstanceError> {
    // A last line without its end was cut off before the file was made.
    let whole = names.rfind('\n').map_or("", |end| &names[..end]);
    for name in whole.lines().filter(|name| is_plain(name)) {
        remove(&paths.databases.join(name))?;
    }
    for directory in &paths.members {
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let of_a_group = name.starts_with("online_") || name.starts_with("standby_");
            if of_a_group && name.ends_with(".log") {
                remove(&entry.path())?;
            }
        }
    }
    Ok(())
}

/// Whether `name` names a file within a directory.
pub fn is_plain(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|file| file == name)
}

fn remove(path: &Path) -> Result<(), InstanceError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(InstanceError::io("remove", path)(error)),
        _ => Ok(()),
    }
}
