//! An instance directory while it is being created: tells its own files from those of other users.
//!
//! During creation the directory has a file `creating`, which names every database file before it is made. An
//! interrupted creation leaves that file behind, without a control file; the next creation removes the files named
//! there and the log files, and nothing else.

use crate::config::error::InstanceError;
use crate::state::paths::Paths;
use standfast_io::{outside, sync_directory_of};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The file `creating`, open to append names.
pub struct Unfinished {
    path: PathBuf,
    file: File,
}

impl Unfinished {
    /// Removes what an interrupted creation left, and begins a new one. The caller has the lock of the directory and
    /// knows that it holds no instance.
    ///
    /// # Errors
    /// When a file cannot be removed or created.
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

    /// Records that the database file `name` is created next.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn note(&mut self, name: &str) -> std::io::Result<()> {
        self.file.write_all(format!("{name}\n").as_bytes())?;
        self.file.sync_all()
    }

    /// Ends the creation: the directory holds an instance now.
    ///
    /// # Errors
    /// When the file cannot be removed. Then it does no harm: beside a control file it is ignored.
    pub fn finish(self) -> Result<(), InstanceError> {
        std::fs::remove_file(&self.path).map_err(InstanceError::io("remove", &self.path))
    }
}

fn clean(paths: &Paths, names: &str) -> Result<(), InstanceError> {
    // An incomplete last line was cut off by the crash, before its file was created.
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

/// Whether `name` is a plain file name.
pub fn is_plain(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|file| file == name)
}

fn remove(path: &Path) -> Result<(), InstanceError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(InstanceError::io("remove", path)(error)),
        _ => Ok(()),
    }
}
