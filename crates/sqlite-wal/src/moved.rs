//! The rest of what a passive checkpoint has moved, so that the database file alone is the state after a commit.
//!
//! SQLite takes of each page the newest frame that it sees when it begins, and leaves the page out when that is behind what
//! the oldest reader allows: the page stays in the log, in a newer version than the readers of the file need. But then the
//! database file without its log is no state, however far the index says that it was moved: of such a page it has whatever
//! it had before. Here it gets the newest version among the frames that were moved. Who reads the log finds a newer frame,
//! and nobody reads the database file without the log while the log has more.

use crate::VfsFile;
use crate::guard::{Guard, GuardError};
use crate::guard_vfs::READ_FILE_LOCK;
use crate::wal_index_regions::WalIndexRegions;
use crate::wal_layout::{FrameHead, frame_offset, image_offset};
use rusqlite::ffi;
use standfast_types::{PageNo, PageSize, WAL_FRAME_HEADER_BYTES};
use std::collections::BTreeSet;

impl Guard<'_> {
    /// See the module; false when the database file alone cannot be made a state: a checkpoint of this connection at its pace
    /// was not the last thing that happened, it moved nothing, or the database became smaller meanwhile. What was written is
    /// not synced.
    ///
    /// The caller holds the checkpoint lock.
    ///
    /// # Errors
    /// SQLite's, as of a checkpoint, when the database file cannot be written.
    pub fn complete_moved(&self, wal: &mut VfsFile, page_size: PageSize) -> Result<bool, rusqlite::Error> {
        let Some(left_out) = self.left_out(wal, page_size).ok().flatten() else { return Ok(false) };
        if left_out.is_empty() {
            return Ok(true);
        }
        let exclusive = |action| self.file().shm_lock(READ_FILE_LOCK, 1, action | ffi::SQLITE_SHM_EXCLUSIVE);
        if exclusive(ffi::SQLITE_SHM_LOCK) != ffi::SQLITE_OK {
            return Ok(false);
        }
        let mut image = vec![0; page_size.bytes()];
        let written = left_out.iter().try_for_each(|(page_no, frame)| {
            match wal.read_at(&mut image, image_offset(*frame, page_size.bytes())) {
                Ok(true) => self.write_page(&image, *page_no),
                Ok(false) | Err(_) => Err(ffi::SQLITE_IOERR_READ),
            }
        });
        exclusive(ffi::SQLITE_SHM_UNLOCK);
        match written {
            Ok(()) => Ok(true),
            Err(code) => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
        }
    }

    /// Pages that have frames among those that were moved, but a newer one that the checkpoint may have seen, with the newest
    /// of the former.
    fn left_out(
        &self,
        wal: &mut VfsFile,
        page_size: PageSize,
    ) -> Result<Option<Vec<(PageNo, u32)>>, GuardError> {
        let header = self.settled_wal_header()?;
        let moved = self.wal_index()?.backfilled();
        let seen = self.seen_by_checkpoint();
        if moved == 0 || seen < moved || seen > header.frames() {
            return Ok(None);
        }
        let regions = WalIndexRegions::of(self.file(), seen).ok_or(GuardError::NoWal)?;
        let mut commit = |frame: u32| {
            let mut head = [0; WAL_FRAME_HEADER_BYTES];
            let whole = wal.read_at(&mut head, frame_offset(frame, page_size.bytes())).unwrap_or(false);
            whole.then(|| FrameHead::of(&head).commit_pages)
        };
        let Some(database_pages) = commit(moved).filter(|pages| *pages > 0) else { return Ok(None) };
        let is_no_smaller = |pages: u32| pages == 0 || pages >= database_pages;
        if !(moved + 1..=seen).all(|frame| commit(frame).is_some_and(is_no_smaller)) {
            return Ok(None);
        }
        let mut newer: BTreeSet<PageNo> = (moved + 1..=seen).map(|frame| regions.page_of(frame)).collect();
        let mut left_out = Vec::new();
        for frame in (1..=moved).rev() {
            if newer.is_empty() {
                break;
            }
            let page_no = regions.page_of(frame);
            if newer.remove(&page_no) && page_no <= database_pages {
                left_out.push((page_no, frame));
            }
        }
        left_out.sort_unstable();
        Ok(Some(left_out))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::scene::{Scene, ok, total};
    use crate::tail::Mark;
    use rusqlite::Connection;

    /// A log whose sum somebody reads when it is 100, as the mark says, and which goes on with `later`.
    fn held_back(later: &str) -> (Scene, Connection, Mark) {
        let scene = Scene::moved(1);
        let application = scene.application();
        scene.change_all(&application, 1);
        let reader = scene.application();
        reader.execute_batch("BEGIN").unwrap();
        assert_eq!(total(&reader), 100);
        let mark = scene.mark();
        application.execute_batch(later).unwrap();
        (scene, reader, mark)
    }

    #[test]
    fn the_file_alone_is_the_state_before_what_the_oldest_reader_holds_back() {
        let (mut scene, reader, mark) = held_back(
            "UPDATE t SET n = n + 1 WHERE id <= 20; UPDATE t SET n = n + 1 WHERE id BETWEEN 11 AND 30",
        );
        assert!(scene.move_frames_of(mark).is_some());
        assert!(scene.guard().wal_index().unwrap().backfilled() < scene.frames());
        assert_eq!(scene.recovered(&[("", scene.file(""))]), ok(100));
        assert_eq!((total(&reader), total(&scene.application())), (100, 140));
        drop(reader);
        let (file, mut torn) = (scene.file(""), scene.file("-wal"));
        let log = scene.rewrite().unwrap();
        assert!(log.frames() <= 35, "{}", log.frames());
        assert_eq!(scene.recovered(&[("", scene.file("")), ("-wal", scene.file("-wal"))]), ok(140));
        torn[..32].copy_from_slice(&scene.file("-wal")[..32]);
        assert_eq!(scene.recovered(&[("", file), ("-wal", torn)]), ok(100));
    }

    #[test]
    fn a_file_that_may_lack_pages_is_no_state() {
        let (mut scene, reader, mark) = held_back("DELETE FROM t WHERE id > 10; VACUUM");
        assert_eq!(scene.move_frames_of(mark), None, "the database became smaller");
        drop(reader);
        assert!(scene.move_frames().is_some());

        let (mut scene, reader, mark) = held_back("UPDATE t SET n = n + 1");
        assert!(scene.move_frames_of(mark).is_some());
        assert_eq!(scene.move_frames_of(mark), None, "nothing was left to be moved");
        assert_eq!(total(&reader), 100);
    }
}
