//! Errors of the shared memory.

use crate::layout::VERSION;
use std::io;
use std::path::PathBuf;

/// Why a segment cannot be used.
#[derive(Debug)]
pub enum SegmentError {
    /// A file cannot be opened or mapped.
    Io(io::Error),
    /// It is not a segment, or not complete.
    NotASegment,
    /// Another version of Standfast made it.
    Version {
        found: u32,
    },
    OtherInstance,
    /// Other users may have written what the instance publishes.
    Untrusted {
        path: PathBuf,
        owner: u32,
        mode: u32,
    },
    /// Other users could replace our files with files of theirs.
    Directory {
        path: PathBuf,
    },
    /// A file that is not ours has the name, and cannot be removed.
    InTheWay {
        path: PathBuf,
        source: io::Error,
    },
}

impl From<io::Error> for SegmentError {
    fn from(error: io::Error) -> Self {
        SegmentError::Io(error)
    }
}

impl std::fmt::Display for SegmentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SegmentError::Io(error) => write!(f, "shared memory: {error}"),
            SegmentError::NotASegment => write!(f, "shared memory is not a Standfast segment"),
            SegmentError::Version { found } => write!(
                f,
                "shared memory has version {found}, this build has version {VERSION}: extension and instance must be of the same release"
            ),
            SegmentError::OtherInstance => write!(f, "shared memory belongs to another instance"),
            SegmentError::Untrusted { path, owner, mode } => write!(
                f,
                "shared memory {} belongs to user {owner} and has mode {mode:04o}: it is not what the instance publishes, or \
                 others may have written to it. Restart the instance, which makes it again",
                path.display()
            ),
            SegmentError::Directory { path } => {
                write!(f, "shared memory: others could replace files in {}", path.display())
            }
            SegmentError::InTheWay { path, source } => write!(
                f,
                "shared memory: {} is not a file of this instance, and cannot be removed: {source}",
                path.display()
            ),
        }
    }
}

impl std::error::Error for SegmentError {}

impl SegmentError {
    /// Returns what to do about the error, as the trait `Hint` does: this crate runs inside applications, without the
    /// crate of that trait.
    pub fn hint(&self) -> Option<String> {
        match self {
            SegmentError::Directory { path } => Some(format!(
                "it must belong to root or to the user of the instance, and not be writable by others unless it has the \
                 sticky bit: `chmod +t {}`",
                path.display()
            )),
            SegmentError::InTheWay { path, .. } => Some(format!(
                "another user has made it, or the instance ran as another user before. Remove it as root: `rm -r {}`. \
                 `runtime_directory` in [instance], a directory that only the user of the instance can write to, keeps \
                 others from doing so",
                path.display()
            )),
            _ => None,
        }
    }
}
