//! The file for durable writes: the same preallocated blocks and the same durable writes as a standby redo log.
//!
//! The first block carries a mark. A file without it belongs to another program and is never written.

use crate::{NetError, Result};
use standfast_io::{ALIGNMENT, AlignedBuf, DirectDisk, Disk, LogFile};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that are preallocated; writes wrap around in them.
pub const FILE_BYTES: u64 = 64 << 20;
/// Longest durable write, bytes, as the receiver of redo writes.
pub const MAX_WRITE: usize = 1 << 20;

const SIGNATURE: &[u8] = b"standfast network test file, version 1: made by a test server, may be removed\n";

/// A file that is created when the first test wants to write, and removed at the end.
pub struct TestFile {
    path: PathBuf,
    open: Mutex<Option<Arc<Ring>>>,
}

/// The open file; all connections write it in a circle.
pub struct Ring {
    file: Arc<dyn LogFile>,
    /// Bytes allocated so far. Each write has its own blocks, as long as less than one round is in flight.
    next: AtomicU64,
}

impl TestFile {
    /// Prepares a file at `path`. Fails when another file is there, or when its directory cannot be used.
    pub fn new(path: &Path) -> Result<TestFile> {
        check(path)?;
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        match std::fs::metadata(directory) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                return Err(unusable(
                    path,
                    "its directory is none; name a file in a directory (-file, --file)",
                ));
            }
            Err(error) => return Err(unusable(path, &format!("its directory cannot be used: {error}"))),
        }
        Ok(TestFile { path: path.to_owned(), open: Mutex::new(None) })
    }

    /// Returns the file; creates it at the first call.
    pub fn ring(&self) -> Result<Arc<Ring>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = &*open {
            return Ok(Arc::clone(ring));
        }
        let ring = Arc::new(create(&self.path)?);
        *open = Some(Arc::clone(&ring));
        Ok(ring)
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let made = self.open.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if made && check(&self.path).is_ok() {
            // A file that is left behind carries the mark; the next server takes it over.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn unusable(path: &Path, reason: &str) -> NetError {
    NetError::File { path: path.to_owned(), reason: reason.to_owned() }
}

/// Returns Ok when nothing is at `path`, or a file of an earlier server.
fn check(path: &Path) -> Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unusable(path, &format!("cannot be looked at: {error}"))),
        Ok(metadata) => metadata,
    };
    if !metadata.is_file() {
        return Err(unusable(path, "is not a regular file; name one that does not exist (-file, --file)"));
    }
    let mut start = vec![0; SIGNATURE.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    match read {
        Ok(()) if start == SIGNATURE => Ok(()),
        _ => Err(unusable(
            path,
            "exists and is not a file of a test server; it is left alone. Name another one (-file, --file), or remove it",
        )),
    }
}

fn create(path: &Path) -> Result<Ring> {
    check(path)?;
    let failed = |what: &str, error: std::io::Error| {
        unusable(
            path,
            &format!(
                "{what}: {error}; choose a directory that can be written, with {} MiB free",
                FILE_BYTES >> 20
            ),
        )
    };
    // Created from scratch, because an old file may have holes or another size.
    if path.exists() {
        DirectDisk
            .remove(path)
            .map_err(|error| failed("cannot replace the file of an earlier server", error))?;
    }
    let file = DirectDisk.create(path, FILE_BYTES).map_err(|error| failed("cannot be made", error))?;
    let mut first = AlignedBuf::new(ALIGNMENT);
    first[..SIGNATURE.len()].copy_from_slice(SIGNATURE);
    if let Err(error) = file.write_durable(&first, 0) {
        let _ = std::fs::remove_file(path);
        return Err(failed("cannot be written", error));
    }
    Ok(Ring { file, next: AtomicU64::new(0) })
}

impl Ring {
    /// Returns a ring over any file.
    #[cfg(test)]
    pub(crate) fn over(file: Arc<dyn LogFile>) -> Ring {
        Ring { file, next: AtomicU64::new(0) }
    }

    /// Writes the whole number of blocks in `data`, which is aligned and has at most [`MAX_WRITE`] bytes, and returns
    /// the time until they were durable.
    pub fn write(&self, data: &[u8]) -> std::io::Result<Duration> {
        debug_assert!(data.len().is_multiple_of(ALIGNMENT) && data.len() <= MAX_WRITE);
        let bytes = data.len() as u64;
        let first = ALIGNMENT as u64;
        let place = loop {
            let next = self.next.fetch_add(bytes, Ordering::Relaxed) % (FILE_BYTES - first);
            // A chunk that would pass the end of the file is skipped.
            if first + next + bytes <= FILE_BYTES {
                break first + next;
            }
        };
        let began = Instant::now();
        self.file.write_durable(data, place)?;
        Ok(began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("standfast-net-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn existing_foreign_file_is_never_touched() {
        let directory = directory("foreign");
        let path = directory.join("precious");
        std::fs::write(&path, "my thesis").unwrap();
        assert!(matches!(TestFile::new(&path), Err(NetError::File { .. })));
        let late = directory.join("late");
        let file = TestFile::new(&late).unwrap();
        std::fs::write(&late, "came between").unwrap();
        assert!(file.ring().is_err());
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"my thesis");
        assert_eq!(std::fs::read(&late).unwrap(), b"came between");
        assert!(TestFile::new(&directory).is_err(), "a directory is no file");
        assert!(TestFile::new(&directory.join("none/file")).is_err());
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn test_file_of_a_killed_server_is_reused_and_finally_removed() {
        let directory = directory("ours");
        let path = directory.join("test");
        let killed = TestFile::new(&path).unwrap();
        killed.ring().unwrap();
        std::mem::forget(killed);
        assert!(path.exists());
        let file = TestFile::new(&path).unwrap();
        let ring = file.ring().unwrap();
        let data = AlignedBuf::new(MAX_WRITE);
        for _ in 0..FILE_BYTES / MAX_WRITE as u64 + 2 {
            ring.write(&data).unwrap();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), FILE_BYTES);
        drop((ring, file));
        assert!(!path.exists());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
