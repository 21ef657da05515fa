//! What the control file records about database files: which file each is, and what it held at which position.

use serde::{Deserialize, Serialize};
use standfast_apply::{AtRest, Stamp, WalAtRest};
use standfast_io::Disk;
use standfast_types::{DatabaseId, Scn, WalPosition};
use std::path::{Path, PathBuf};

/// The file of a protected database as the instance last had it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFile {
    pub database: DatabaseId,
    pub identity: LastingIdentity,
}

/// A database whose file alone, without its WAL, durably held everything before a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeFile {
    pub database: DatabaseId,
    /// File SCN: up to where the file alone holds every commit.
    pub scn: Scn,
    /// Stamp of the file at that time.
    pub stamp: FileStamp,
}

impl WholeFile {
    /// Advances the position to `scn`, unless redo that changes the database ends after the recorded position. The last
    /// such redo ends at `last_change`.
    pub fn carried_to(self, scn: Scn, last_change: Scn) -> WholeFile {
        if self.scn >= last_change { WholeFile { scn: self.scn.max(scn), ..self } } else { self }
    }
}

/// The files of a database as a clean shutdown of a standby left them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestingFile {
    pub database: DatabaseId,
    pub stamp: FileStamp,
    /// Its WAL, if readers kept it in use; otherwise it was truncated to nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<RestingWal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestingWal {
    pub position: WalPosition,
    /// Second word of the checksum of that frame.
    pub checksum: u32,
    /// All frames were in the database file, too.
    pub is_in_file: bool,
}

impl RestingFile {
    /// Converts from the form in which apply records it.
    pub fn new(database: DatabaseId, rest: &AtRest) -> RestingFile {
        let AtRest { file: Stamp { bytes, modified_ns }, wal } = *rest;
        let wal = wal.map(|WalAtRest { position, checksum, is_in_file }| RestingWal {
            position,
            checksum,
            is_in_file,
        });
        RestingFile { database, stamp: FileStamp { bytes, modified_ns }, wal }
    }

    /// Converts to the form that apply compares.
    pub fn at_rest(&self) -> AtRest {
        let FileStamp { bytes, modified_ns } = self.stamp;
        let wal = self.wal.map(|RestingWal { position, checksum, is_in_file }| WalAtRest {
            position,
            checksum,
            is_in_file,
        });
        AtRest { file: Stamp { bytes, modified_ns }, wal }
    }
}

/// A database of which a full resync image was begun. Its files held everything then, also what the redo cannot prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwedImage {
    pub database: DatabaseId,
    /// No commit of the database before this position is missing in its files.
    pub scn: Scn,
    /// The state that the files held, durably.
    pub position: WalPosition,
    /// Stamp of the file at that time.
    pub stamp: Option<FileStamp>,
    /// The operator has decided in favour of the file, which may lack redo: standbys keep what the image replaces.
    #[serde(default)]
    pub may_lack: bool,
}

/// A file that was set aside when other content replaced a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    pub name: String,
    /// Path of the file. In the control file, a path within the instance directory is relative to it.
    pub path: PathBuf,
    /// Where in the redo the other content begins to count.
    pub scn: Scn,
    /// Bytes of the file and its WAL.
    pub bytes: u64,
    /// When it was kept, microseconds since the Unix epoch.
    pub kept_us: u64,
}

/// Replacement of a database's file by a rebuilt one. In the control file from before the first step until after the
/// last: whatever ends the process in between, the next start knows which file is where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSwap {
    pub database: DatabaseId,
    pub made: LastingIdentity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<WholeFile>,
    /// Where the replaced file is kept, if there was one.
    pub kept: KeptFile,
}

/// Identity of a file or directory that survives restarts of the machine. It has no device number, which each start
/// assigns again. It has the creation time, because the inode number of a removed file is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastingIdentity {
    pub inode: u64,
    /// When it was created, nanoseconds since the Unix epoch; `None` where the file system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ns: Option<u64>,
}

/// Shows whether a file has been written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    pub bytes: u64,
    /// When it was last written, nanoseconds since the Unix epoch.
    pub modified_ns: u64,
}

impl FileStamp {
    /// Reads the stamp of the file at `path`; `None` when there is no file, or its disk does not say.
    pub fn of(disk: &dyn Disk, path: &Path) -> Option<FileStamp> {
        let (bytes, modified_ns) = disk.last_write(path).ok().flatten()?;
        Some(FileStamp { bytes, modified_ns })
    }
}

fn nanoseconds(time: std::time::SystemTime) -> Option<u64> {
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

impl LastingIdentity {
    /// Reads the identity of the file or directory at `path`.
    ///
    /// # Errors
    /// When its metadata cannot be read.
    pub fn of(path: &Path) -> std::io::Result<LastingIdentity> {
        Ok(LastingIdentity::in_metadata(&std::fs::metadata(path)?))
    }

    fn in_metadata(metadata: &std::fs::Metadata) -> LastingIdentity {
        LastingIdentity {
            inode: std::os::unix::fs::MetadataExt::ino(metadata),
            created_ns: metadata.created().ok().and_then(nanoseconds),
        }
    }

    /// Whether both may be the same file; a creation time that one of them lacks is not compared.
    pub fn may_be(&self, other: &LastingIdentity) -> bool {
        let created = self.created_ns.zip(other.created_ns);
        self.inode == other.inode && created.is_none_or(|(one, other)| one == other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_identity_survives_a_rename_but_not_a_copy() {
        let base = std::env::temp_dir().join(format!("standfast-home-{}", std::process::id()));
        let [one, renamed, copy] = ["one", "renamed", "copy"].map(|name| base.join(name));
        std::fs::create_dir_all(&one).unwrap();
        let home = LastingIdentity::of(&one).unwrap();
        std::fs::rename(&one, &renamed).unwrap();
        std::fs::create_dir_all(&copy).unwrap();
        assert!(home.may_be(&LastingIdentity::of(&renamed).unwrap()));
        assert!(!home.may_be(&LastingIdentity::of(&copy).unwrap()));
        assert!(
            home.may_be(&LastingIdentity { created_ns: None, ..home }),
            "a file system that does not say"
        );
        assert!(!home.may_be(&LastingIdentity { created_ns: Some(1), ..home }) || home.created_ns.is_none());
        std::fs::remove_dir_all(base).unwrap();
    }
}
