//! Completes frames that a process with SQLite before 3.50.2 has committed without salts and checksums; see
//! [`standfast_types::WalHeader`]. The wal-index publishes them, and every connection reads them. With what they lack
//! the WAL is as good without its index.

use crate::VfsFile;
use crate::guard::{Guard, GuardError};
use crate::wal_index_regions::{NewHeader, WalIndexRegions};
use crate::wal_layout::{FrameHead, frame_offset};
use standfast_types::{WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES, WalFile, WalHeader};
use std::io::{Error, Result};

impl WalFile for VfsFile {
    type Error = Error;

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.read_at(out, offset)? {
            true => Ok(()),
            false => Err(Error::other(format!("the write-ahead log ends before byte {offset}"))),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_at(data, offset)
    }
}

impl Guard<'_> {
    /// Completes the published frames from the first one on, at or after `from`, that lacks salts and checksum, and
    /// publishes the checksum with which writers continue. Returns that frame; `None` when there is none, and when the
    /// WAL is not that of the index. Does not sync what it wrote.
    ///
    /// The caller holds the write lock. If the process is killed at any moment, that frame is as it was, so that the
    /// next call does all of it.
    ///
    /// # Errors
    /// When the file system fails, the index cannot be read, or the WAL ends before its last published frame.
    pub fn complete_frames(&self, wal: &mut VfsFile, from: u32) -> Result<Option<u32>> {
        let index = self.settled_wal_header().map_err(Error::other)?;
        if index.frames() < from.max(1) {
            return Ok(None);
        }
        let mut start = [0; WAL_HEADER_BYTES];
        let whole = wal.read_at(&mut start, 0)?;
        let log = WalHeader::of(&start).filter(|log| {
            let [first, second] = index.raw_salts().map(u32::to_ne_bytes);
            let same_size = index.page_size().is_some_and(|size| size.bytes() == log.page_bytes());
            whole && same_size && log.salts()[..] == *[first, second].as_flattened()
        });
        let Some(log) = log else { return Ok(None) };
        let Some(first) = first_unsummed(wal, log.page_bytes(), from.max(1), index.frames())? else {
            return Ok(None);
        };
        let sums = log.frame_sums(wal, first, index.frames())?;
        for (frame, sum) in (first..).zip(&sums).skip(1).collect::<Vec<_>>().into_iter().rev() {
            log.write_frame_sum(wal, frame, *sum)?;
        }
        let (Some(first_sum), Some(last_sum)) = (sums.first(), sums.last()) else { return Ok(None) };
        if *last_sum != index.frame_checksum() {
            let regions =
                WalIndexRegions::of(self.file(), 1).ok_or(GuardError::NoWal).map_err(Error::other)?;
            let new = NewHeader {
                frames: index.frames(),
                database_pages: index.database_pages(),
                frame_checksum: *last_sum,
                raw_salts: index.raw_salts(),
            };
            regions.publish_header(&index, &new);
        }
        log.write_frame_sum(wal, first, *first_sum)?;
        Ok(Some(first))
    }
}

fn first_unsummed(wal: &mut VfsFile, page_bytes: usize, from: u32, last: u32) -> Result<Option<u32>> {
    let mut header = [0; WAL_FRAME_HEADER_BYTES];
    for frame in from..=last {
        if !wal.read_at(&mut header, frame_offset(frame, page_bytes))? {
            return Err(Error::other(format!("the write-ahead log ends before frame {frame} of {last}")));
        }
        if FrameHead::of(&header).is_unsummed() {
            return Ok(Some(frame));
        }
    }
    Ok(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::scene::{Scene, ok, total};
    use std::os::unix::fs::FileExt;

    /// Removes salts and checksum from a frame, as SQLite before 3.50.2 leaves them out.
    fn strip(scene: &Scene, frame: u32) {
        let wal = std::fs::File::options().write(true).open(scene.directory.join("app.db-wal")).unwrap();
        wal.write_all_at(&[0; 16], crate::wal_layout::frame_offset(frame, 4096) + 8).unwrap();
    }

    fn recovered(scene: &Scene) -> (i64, String) {
        scene.recovered(&[("", scene.file("")), ("-wal", scene.file("-wal"))])
    }

    #[test]
    fn published_frames_without_checksums_count_after_a_crash() {
        let mut scene = Scene::backfilled(1);
        let application = scene.application();
        scene.change_all(&application, 1);
        let last = scene.frames();
        for (first, count) in [(last, 1), (last - 9, 5), (last - 9, 10)] {
            (first..first + count).for_each(|frame| strip(&scene, frame));
            assert!(recovered(&scene).0 < 100, "SQLite alone loses them");
            scene.guard().hold_write_lock().unwrap();
            let wal = &mut crate::VfsFile::open(None, &scene.path(), crate::VfsFileKind::Wal).unwrap();
            assert_eq!(scene.guard().complete_frames(wal, 1).unwrap(), Some(first));
            assert_eq!(scene.guard().complete_frames(wal, 1).unwrap(), None);
            scene.guard().release_write_lock();
            assert_eq!(recovered(&scene), ok(100));
        }
        assert_eq!(scene.backfill().map(|_| total(&application)), Some(100));
    }

    #[test]
    fn writers_continue_after_completed_frames() {
        let scene = Scene::backfilled(1);
        let application = scene.application();
        scene.change_all(&application, 1);
        let last = scene.frames();
        (last - 2..=last).for_each(|frame| strip(&scene, frame));
        let guard = scene.guard();
        guard.hold_write_lock().unwrap();
        // SQLite publishes the checksum of the frame before those that it left without one.
        let header = guard.wal_header().unwrap();
        let regions = crate::wal_index_regions::WalIndexRegions::of(guard.file(), 1).unwrap();
        let wrong = crate::wal_index_regions::NewHeader {
            frames: header.frames(),
            database_pages: header.database_pages(),
            frame_checksum: [1, 2],
            raw_salts: header.raw_salts(),
        };
        regions.publish_header(&header, &wrong);
        let wal = &mut crate::VfsFile::open(None, &scene.path(), crate::VfsFileKind::Wal).unwrap();
        assert_eq!(guard.complete_frames(wal, last + 1).unwrap(), None, "nothing behind the last frame");
        assert_eq!(guard.complete_frames(wal, last - 20).unwrap(), Some(last - 2));
        guard.release_write_lock();
        scene.change_all(&application, 1);
        scene.change_all(&scene.application(), 1);
        assert_eq!(recovered(&scene), ok(200));
    }
}
