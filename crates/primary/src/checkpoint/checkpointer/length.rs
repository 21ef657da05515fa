//! How long the WAL of a database may be on its volume, and how the file of a WAL that was longer is truncated.
//!
//! The guard suppresses SQLite's own truncation: after it the file may be short while its header is still that of the
//! longer WAL, and a power loss would leave a WAL without its newest frames. Here a file is truncated only after the
//! frames of a later generation whose header and frames are durable: the removed part belongs to no WAL, whether the
//! truncation survives a power loss or not.

use crate::commit::database::Database;
use standfast_io::{DirectDisk, Disk};
use standfast_sqlite_wal::WalIndexHeader;
use standfast_sqlite_wal::guard::Guard;
use standfast_types::{WAL_FRAME_HEADER_BYTES, WalSalts};
use std::time::{Duration, Instant};

/// Interval at which the free space of the volume and the length of the file are checked.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A WAL may take one part in this many of what its volume has for it and others.
const PART_OF_ROOM: u64 = 8;
/// Frames that a WAL may have in any case.
const FRAMES_MIN: u32 = 1_000;

/// What is known of the space for a WAL and of the length of its file.
#[derive(Default)]
pub(super) struct Length {
    looked: Option<Instant>,
    /// Frames that the space on the volume allows; `None` when unknown.
    frames_max: Option<u32>,
    file_bytes: u64,
}

impl Length {
    /// Returns the frames after which to reset the WAL, `wanted` at most.
    pub fn limit(&mut self, database: &Database, wanted: u32) -> u32 {
        let now = Instant::now();
        if self.looked.is_none_or(|looked| now >= looked + LOOK_EVERY) {
            self.looked = Some(now);
            self.look(database);
        }
        self.frames_max.map_or(wanted, |most| wanted.min(most))
    }

    fn look(&mut self, database: &Database) {
        // A file that cannot be opened is reported where it is needed.
        self.file_bytes = database.with_wal(|wal| Ok(wal.bytes().unwrap_or(0))).unwrap_or(0);
        let frame = WAL_FRAME_HEADER_BYTES + database.record().page_size.bytes();
        self.frames_max = DirectDisk
            .free_bytes(&database.record().path)
            .ok()
            .map(|free| frames_for(free, self.file_bytes, frame as u64));
    }

    /// Truncates the file of a WAL that was longer than `reset_frames` and has restarted. An error makes this database
    /// fail.
    pub fn cut_if_due(&mut self, database: &Database, reset_frames: u32) {
        let frame = (WAL_FRAME_HEADER_BYTES + database.record().page_size.bytes()) as u64;
        let most = frame * u64::from(self.frames_max.map_or(reset_frames, |frames| frames.min(reset_frames)));
        // Not for a small excess: the file would grow and be truncated again.
        if self.file_bytes <= most + most / 2 {
            return;
        }
        let Some(header) = database.header().filter(|header| is_shorter(header, most)) else { return };
        // Once per check of the file, whatever the result.
        self.file_bytes = 0;
        if let Err(error) = cut(database, &header, most) {
            database.fail(format!("its write-ahead log cannot be cut: {error}"));
        }
    }
}

fn is_shorter(header: &WalIndexHeader, most: u64) -> bool {
    header.frames() > 0 && header.log_bytes().is_some_and(|bytes| bytes <= most)
}

/// Makes the WAL that `header` shows durable, then truncates the file to `most` bytes, which hold that WAL, unless a
/// connection is writing.
fn cut(database: &Database, header: &WalIndexHeader, most: u64) -> std::io::Result<()> {
    let with_wal = |work: &mut dyn FnMut(&mut standfast_sqlite_wal::VfsFile) -> std::io::Result<bool>| {
        let mut done = Ok(false);
        // A WAL that cannot be opened is not truncated.
        let _ = database.with_wal(|wal| {
            done = work(wal);
            Ok(())
        });
        done
    };
    let is_durable = with_wal(&mut |wal| {
        let mut salts = [0; 8];
        // The header must be of the generation of the wal-index; otherwise a recovery would still find the old
        // generation.
        if !wal.read_at(&mut salts, SALTS_AT)? || salts_of(salts) != header.salts() {
            return Ok(false);
        }
        wal.sync().map(|()| true)
    })?;
    let Some(connection) = database.try_connection().filter(|_| is_durable) else { return Ok(()) };
    let Ok(guard) = Guard::of(&connection) else { return Ok(()) };
    if guard.hold_write_lock().is_err() {
        return Ok(());
    }
    // Under the write lock no connection writes frames or begins another generation.
    let stays = guard.wal_header().is_ok_and(|now| now.salts() == header.salts() && is_shorter(&now, most));
    let cut = if stays { with_wal(&mut |wal| wal.truncate(most).map(|()| true)) } else { Ok(false) };
    guard.release_write_lock();
    cut.map(drop)
}

/// Offset of the salts in the header of a WAL.
const SALTS_AT: u64 = 16;

fn salts_of(bytes: [u8; 8]) -> WalSalts {
    let [a, b, c, d, e, f, g, h] = bytes;
    WalSalts(u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

/// Returns how many frames of `frame` bytes a WAL may have whose file has `own` bytes, on a volume with `free` bytes
/// more.
fn frames_for(free: u64, own: u64, frame: u64) -> u32 {
    let frames = free.saturating_add(own) / PART_OF_ROOM / frame;
    u32::try_from(frames).unwrap_or(u32::MAX).max(FRAMES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wal_on_a_small_volume_is_reset_earlier() {
        let frame = 4_120;
        // A volume of 100 MB that the log has filled.
        assert_eq!(frames_for(0, 98 << 20, frame), 3_117);
        assert_eq!(frames_for(2 << 20, 96 << 20, frame), 3_117);
        assert!(frames_for(10 << 30, 0, frame) > 24_000);
        assert_eq!(frames_for(0, 0, frame), FRAMES_MIN);
        assert_eq!(frames_for(u64::MAX, 1, frame), u32::MAX);
    }
}
