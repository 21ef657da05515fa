//! What the control file remembers of the files of databases: which file each is, and what it held at which position.

use serde::{Deserialize, Serialize};
use standfast_apply::{AtRest, Stamp, WalAtRest};
use standfast_io::Disk;
use standfast_types::{DatabaseId, Scn, WalPosition};
use std::path::{Path, PathBuf};

/// The file of a protected database as the instance last had it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFile {
    /// Database.
    pub database: DatabaseId,
    /// Which file it is.
    pub identity: LastingIdentity,
}

/// A database whose file alone, without its WAL, held everything before a position, durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeFile {
    /// Database.
    pub database: DatabaseId,
    /// The position.
    pub scn: Scn,
    /// How the file was then.
    pub stamp: FileStamp,
}

impl WholeFile {
    /// The same at `scn`, if no redo that changes the database ends behind the position: that of the last is `last_change`.
    pub fn carried_to(self, scn: Scn, last_change: Scn) -> WholeFile {
        if self.scn >= last_change { WholeFile { scn: self.scn.max(scn), ..self } } else { self }
    }
}

/// The files of a database as a clean stop of a standby left them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestingFile {
    /// Database.
    pub database: DatabaseId,
    /// How its file was then.
    pub stamp: FileStamp,
    /// Its WAL, where readers kept it in use: else it was cut to nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<RestingWal>,
}

/// See [`RestingFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestingWal {
    /// The last frame.
    pub position: WalPosition,
    /// Second word of the checksum of that frame.
    pub checksum: u32,
    /// All frames were in the database file, too.
    pub is_in_file: bool,
}

impl RestingFile {
    /// As apply has noted it.
    pub fn new(database: DatabaseId, rest: &AtRest) -> RestingFile {
        let AtRest { file: Stamp { bytes, modified_ns }, wal } = *rest;
        let wal = wal.map(|WalAtRest { position, checksum, is_in_file }| RestingWal {
            position,
            checksum,
            is_in_file,
        });
        RestingFile { database, stamp: FileStamp { bytes, modified_ns }, wal }
    }

    /// As apply compares it.
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

/// A database of which a full image was begun. Its files held everything then, and what the redo cannot prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwedImage {
    /// Database.
    pub database: DatabaseId,
    /// No commit of it before this position is missing in its files.
    pub scn: Scn,
    /// The state that they held, durably.
    pub position: WalPosition,
    /// How the file was then.
    pub stamp: Option<FileStamp>,
    /// An operator has decided for the file, which may lack redo: standbys keep what the image replaces.
    #[serde(default)]
    pub may_lack: bool,
}

/// A file that was set aside when another content took the place of a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    /// Name of the database.
    pub name: String,
    /// The file. In the control file, one within the instance directory is relative to it.
    pub path: PathBuf,
    /// Where in the redo the other content begins to count.
    pub scn: Scn,
    /// Its size, with that of its WAL.
    pub bytes: u64,
    /// When it was kept, microseconds since the Unix epoch.
    pub kept_us: u64,
}

/// The file of a database gives its place to one that was made again. In the control file from before the first step until
/// after the last: whatever ends the process in between, the next start knows what is where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSwap {
    /// Database.
    pub database: DatabaseId,
    /// The file that was made.
    pub made: LastingIdentity,
    /// What it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<WholeFile>,
    /// Where the file that was there is kept, if there was one.
    pub kept: KeptFile,
}

/// What a file or directory is, over restarts of the machine: device numbers are given again at each start, and inode numbers when a file
/// is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastingIdentity {
    /// Its number in its file system.
    pub inode: u64,
    /// When it was created, nanoseconds since the Unix epoch; unknown on some file systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ns: Option<u64>,
}

/// Tells whether a file has been written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// Its size.
    pub bytes: u64,
    /// When it was last written, nanoseconds since the Unix epoch.
    pub modified_ns: u64,
}

impl FileStamp {
    /// Of the file at `path`; `None` when there is none, or its disk does not say.
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
    /// Of what is at `path`.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn of(path: &Path) -> std::io::Result<LastingIdentity> {
        Ok(LastingIdentity::in_metadata(&std::fs::metadata(path)?))
    }

    fn in_metadata(metadata: &std::fs::Metadata) -> LastingIdentity {
        LastingIdentity {
            inode: std::os::unix::fs::MetadataExt::ino(metadata),
            created_ns: metadata.created().ok().and_then(nanoseconds),
        }
    }

    /// Whether both may be the same file: what is unknown of one is not compared.
    pub fn may_be(&self, other: &LastingIdentity) -> bool {
        let created = self.created_ns.zip(other.created_ns);
        self.inode == other.inode && created.is_none_or(|(one, other)| one == other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_known_again_after_a_rename_and_a_copy_is_not() {
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
