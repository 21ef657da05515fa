//! Certificate files of an instance: readable only by their owner, and either complete or absent.

use crate::config::error::InstanceError;
use standfast_io::sync_directory_of;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;

/// Version of a file: inode, and modification time in seconds and nanoseconds.
pub type Stamp = (u64, i64, i64);

/// Version of a file; `None` if it does not exist.
pub fn stamp_of(path: &Path) -> Option<Stamp> {
    let metadata = path.metadata().ok()?;
    Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
}

#[derive(Clone, Debug)]
pub struct Files {
    pub directory: PathBuf,
    /// Certificates of the trusted authorities; the first one signs.
    pub authorities: PathBuf,
    /// The authority's key; exists only where certificates are issued.
    pub authority_key: PathBuf,
    /// Key and certificate of this instance.
    pub identity: PathBuf,
    pub endorsements: PathBuf,
    pub members: PathBuf,
}

impl Files {
    /// Paths in `directory`, which need not exist.
    pub fn new(directory: PathBuf) -> Files {
        Files {
            authorities: directory.join("ca.crt"),
            authority_key: directory.join("ca.key"),
            identity: directory.join("identity.pem"),
            endorsements: directory.join("authorities.json"),
            members: directory.join("members.json"),
            directory,
        }
    }

    /// Creates the directory.
    ///
    /// # Errors
    /// The system's.
    pub fn make_directory(&self) -> Result<(), InstanceError> {
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY)
            .create(&self.directory)
            .map_err(InstanceError::io("make the directory", &self.directory))
    }

    /// Versions of the identity and the authorities; changes when one of them is replaced.
    pub fn stamp(&self) -> Option<[Stamp; 2]> {
        Some([stamp_of(&self.identity)?, stamp_of(&self.authorities)?])
    }
}

/// Reads a text file; `None` if it does not exist.
///
/// # Errors
/// The system's.
pub fn read(path: &Path) -> Result<Option<String>, InstanceError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(InstanceError::io("read", path)(source)),
    }
}

/// Replaces a file durably; only its owner can ever read it.
///
/// # Errors
/// The system's; the old content stays.
pub fn replace(path: &Path, text: &str) -> Result<(), InstanceError> {
    let fresh = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        // A leftover of a crash may have other permissions.
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)?;
        sync_directory_of(path)
    };
    write().map_err(InstanceError::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secret_files_are_private_and_replaced_atomically() {
        let directory = std::env::temp_dir().join(format!("standfast-secrets-{}", std::process::id()));
        let files = Files::new(directory.clone());
        files.make_directory().unwrap();
        assert_eq!((files.stamp(), read(&files.identity).unwrap()), (None, None));
        // A leftover of a crash, readable by every user.
        std::fs::write(files.identity.with_extension("new"), "half").unwrap();
        replace(&files.identity, "first").unwrap();
        replace(&files.authorities, "all").unwrap();
        let before = files.stamp();
        replace(&files.identity, "second").unwrap();
        assert_eq!(read(&files.identity).unwrap().as_deref(), Some("second"));
        assert!(before.is_some() && files.stamp() != before);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&files.identity)), (0o700, 0o600));
        assert!(!files.identity.with_extension("new").exists());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
