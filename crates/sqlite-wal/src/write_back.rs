//! New WAL bytes are handed to the disk early and in small pieces: a sync that finds everything written competes
//! less with the log writer.

use standfast_io::behind::start_writing;
use standfast_types::WAL_FRAME_HEADER_BYTES;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Frames that are worth a system call.
const FRAMES_MIN: u32 = 64;

/// How far the WAL of one database has been handed to the disk.
pub struct WriteBack {
    path: PathBuf,
    frame_bytes: u64,
    file: Option<File>,
    frames: u32,
}

impl WriteBack {
    /// For the WAL of `database`, whose first `frames` frames have been handed over.
    pub fn new(database: &Path, page_bytes: usize, frames: u32) -> WriteBack {
        let mut path = OsString::from(database);
        path.push("-wal");
        let frame_bytes = (WAL_FRAME_HEADER_BYTES + page_bytes) as u64;
        WriteBack { path: path.into(), frame_bytes, file: None, frames }
    }

    /// Closes the file, which is opened again when it is needed: one that was removed meanwhile is not held.
    pub fn close(&mut self) {
        self.file = None;
    }

    /// Starts writing the frames up to `frames` without waiting, and returns how many those were. Fewer than before: the
    /// WAL began anew.
    pub fn advance(&mut self, frames: u32) -> u32 {
        if frames < self.frames {
            self.frames = 0;
        }
        let new = frames - self.frames;
        if new < FRAMES_MIN {
            return 0;
        }
        if self.file.is_none() {
            // SQLite's locks are on the database and the -shm; closing a descriptor of the -wal drops none. Where
            // it cannot be opened everything goes on, less smoothly.
            self.file = File::open(&self.path).ok();
        }
        if let Some(file) = &self.file {
            start_writing(file, u64::from(self.frames) * self.frame_bytes, u64::from(new) * self.frame_bytes);
        }
        self.frames = frames;
        new
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use standfast_testkit::TempDir;

    #[test]
    fn frames_are_handed_over_in_pieces_and_anew_after_a_reset_and_no_file_is_held_at_rest() {
        let directory = TempDir::new("write-back").unwrap();
        let wal = directory.path().join("app.db-wal");
        std::fs::write(&wal, [1; 4096]).unwrap();
        let held = |log: &WriteBack| log.file.is_some();
        let mut log = WriteBack::new(&directory.path().join("app.db"), 4096, 10);
        assert_eq!((log.advance(10 + FRAMES_MIN - 1), held(&log)), (0, false));
        assert_eq!((log.advance(10 + FRAMES_MIN), held(&log)), (FRAMES_MIN, true));
        log.close();
        assert!(!held(&log));
        assert_eq!((log.advance(20), held(&log)), (0, false), "few of a new log");
        assert_eq!(
            (log.advance(FRAMES_MIN), held(&log)),
            (FRAMES_MIN, true),
            "all of them: the log began anew"
        );
        log.close();
        std::fs::remove_file(&wal).unwrap();
        assert_eq!((log.advance(3 * FRAMES_MIN), held(&log)), (2 * FRAMES_MIN, false), "no file is no error");
    }
}
