//! Hands new WAL bytes to the disk early and in small chunks: a sync that finds everything written competes less with
//! durable writes of redo.

use standfast_io::behind::start_writing;
use standfast_session::wal_path;
use standfast_types::WAL_FRAME_HEADER_BYTES;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes handed over at once: more would delay a durable write that comes right behind them by longer than that write
/// takes, and less is not worth a system call.
const CHUNK_BYTES: u64 = 256 << 10;
/// Upper limit of the frames of a chunk, so that small frames of a database that commits seldom are not left to the
/// sync of a checkpoint.
const CHUNK_FRAMES_MAX: u64 = 64;
/// Most chunks that one call of [`WriteBack::hand_most`] hands over.
const CHUNKS_MAX: u32 = 4;
/// While much is left, a chunk is at least this fraction of it, so that a WAL that grows fast is handed over as fast, a
/// little later.
const PART_OF_MUCH: u32 = 8;

/// How far the WAL of one database has been handed to the disk.
pub struct WriteBack {
    path: PathBuf,
    frame_bytes: u64,
    chunk_frames: u32,
    file: Option<File>,
    /// Frames in the WAL.
    frames: u32,
    /// Frames handed over; never more than `frames`.
    handed: u32,
}

impl WriteBack {
    /// For the WAL of `database`, with nothing handed over; [`WriteBack::grew_to`] reports its length.
    pub fn new(database: &Path, page_bytes: usize) -> WriteBack {
        let frame_bytes = (WAL_FRAME_HEADER_BYTES + page_bytes) as u64;
        let chunk_frames = (CHUNK_BYTES / frame_bytes).clamp(1, CHUNK_FRAMES_MAX) as u32;
        WriteBack { path: wal_path(database), frame_bytes, chunk_frames, file: None, frames: 0, handed: 0 }
    }

    /// Closes the file, so that a removed file is not held open; the next write opens it again.
    pub fn close(&mut self) {
        self.file = None;
    }

    /// Reports that the WAL has `frames` frames. Fewer than before: it was reset.
    pub fn grew_to(&mut self, frames: u32) {
        if frames < self.frames {
            self.handed = 0;
        }
        self.frames = frames;
    }

    /// Frames not yet handed over, if they fill a chunk.
    pub fn left(&self) -> Option<u32> {
        Some(self.frames - self.handed).filter(|left| *left >= self.chunk_frames)
    }

    /// Starts writing the next chunk without waiting, and returns the number of its frames.
    pub fn hand_chunk(&mut self) -> u32 {
        self.left().map_or(0, |left| self.hand(self.chunk_frames.max(left / PART_OF_MUCH)))
    }

    /// Starts writing what is left if it fills a chunk, four chunks at most, and returns the number of frames.
    pub fn hand_most(&mut self) -> u32 {
        self.left().map_or(0, |left| self.hand(left.min(CHUNKS_MAX * self.chunk_frames)))
    }

    /// Starts over: nothing of the WAL is handed over, and its length is unknown until it is reported.
    pub fn restart_wal(&mut self) {
        (self.frames, self.handed, self.file) = (0, 0, None);
    }

    /// Starts writing all that is left if it fills a chunk, and returns the number of frames.
    pub fn hand_all(&mut self) -> u32 {
        self.left().map_or(0, |left| self.hand(left))
    }

    fn hand(&mut self, frames: u32) -> u32 {
        if self.file.is_none() {
            // SQLite's locks are on the database and the -shm; closing a descriptor of the -wal drops none. If the file
            // cannot be opened, nothing is written early; the next sync writes it.
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
            self.file = File::options().read(true).custom_flags(flags).open(&self.path).ok();
        }
        if let Some(file) = &self.file {
            start_writing(
                file,
                u64::from(self.handed) * self.frame_bytes,
                u64::from(frames) * self.frame_bytes,
            );
        }
        self.handed += frames;
        frames
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use standfast_testkit::TempDir;

    #[test]
    fn frames_are_written_back_in_chunks_and_again_after_a_reset() {
        let directory = TempDir::new("write-back").unwrap();
        let wal = directory.path().join("app.db-wal");
        std::fs::write(&wal, [1; 4096]).unwrap();
        let mut log = WriteBack::new(&directory.path().join("app.db"), 4096);
        let chunk = log.chunk_frames;
        assert_eq!(chunk, 63, "256 KiB");
        let grow = |log: &mut WriteBack, frames| {
            log.grew_to(frames);
            (log.hand_all(), log.file.is_some())
        };
        assert_eq!(grow(&mut log, chunk - 1), (0, false));
        assert_eq!(grow(&mut log, chunk), (chunk, true));
        log.close();
        assert!(log.file.is_none());
        assert_eq!(grow(&mut log, 20), (0, false), "few of a new log");
        assert_eq!(grow(&mut log, chunk), (chunk, true), "all of them: the WAL was restarted");
        log.close();
        std::fs::remove_file(&wal).unwrap();
        assert_eq!(grow(&mut log, 3 * chunk), (2 * chunk, false), "no file is no error");
    }

    #[test]
    fn burst_is_written_back_four_chunks_at_a_time() {
        let directory = TempDir::new("write-back-burst").unwrap();
        std::fs::write(directory.path().join("app.db-wal"), [1; 4096]).unwrap();
        let mut log = WriteBack::new(&directory.path().join("app.db"), 4096);
        let chunk = log.chunk_frames;
        log.grew_to(9 * chunk + 1);
        let handed: Vec<u32> = (0..4).map(|_| log.hand_most()).collect();
        assert_eq!(handed, [4 * chunk, 4 * chunk, chunk + 1, 0]);
    }

    #[test]
    fn long_backlog_is_written_back_in_larger_chunks() {
        let mut log = WriteBack::new(Path::new("absent.db"), 4096);
        let chunk = log.chunk_frames;
        log.grew_to(3 * chunk + 5);
        assert_eq!([(); 4].map(|()| log.hand_chunk()), [chunk, chunk, chunk, 0]);
        log.grew_to(100_000);
        let mut calls = 0;
        while log.hand_chunk() > 0 {
            calls += 1;
        }
        assert!((20..60).contains(&calls), "{calls}: an eighth each time");
        let chunks =
            [512, 65_536].map(|page_bytes| WriteBack::new(Path::new("absent.db"), page_bytes).chunk_frames);
        assert_eq!(chunks, [64, 3]);
    }
}
