//! Completes what a passive checkpoint has backfilled, so that the database file alone is the state after a commit.
//!
//! For each page, SQLite copies the newest frame that it sees when the checkpoint begins. It leaves the page out when
//! that frame is after the limit of the oldest reader: the page stays in the WAL, in a newer version than the readers
//! of the file need. The database file without its WAL is then no state, however far the index says that it was
//! backfilled: such a page is as old as it was before. Here the page gets the newest version among the backfilled
//! frames. A reader of the WAL finds a newer frame, and no connection reads the database file without the WAL while the
//! WAL has more frames.

use crate::VfsFile;
use crate::guard::{Guard, GuardError};
use crate::guard_vfs::READ_FILE_LOCK;
use crate::wal_index_regions::WalIndexRegions;
use crate::wal_layout::{FrameHead, frame_offset, image_offset};
use rusqlite::ffi;
use standfast_types::{PageNo, PageSize, WAL_FRAME_HEADER_BYTES};
use std::collections::BTreeSet;

impl Guard<'_> {
    /// Completes the database file. False when the file alone cannot be made a state: the last
    /// operation was no checkpoint of this connection through [`Guard::at_pace`], that checkpoint backfilled nothing,
    /// the database became smaller meanwhile, or a connection reads the file alone. Does not sync what it wrote.
    ///
    /// The caller holds the checkpoint lock.
    ///
    /// # Errors
    /// The SQLite error of a failed checkpoint, when the WAL cannot be read or the database file cannot be written.
    pub fn complete_backfill(&self, wal: &mut VfsFile, page_size: PageSize) -> Result<bool, rusqlite::Error> {
        let Some(skipped) = self.skipped(wal, page_size).ok().flatten() else { return Ok(false) };
        if skipped.is_empty() {
            return Ok(true);
        }
        let exclusive = |action| self.file().shm_lock(READ_FILE_LOCK, 1, action | ffi::SQLITE_SHM_EXCLUSIVE);
        if exclusive(ffi::SQLITE_SHM_LOCK) != ffi::SQLITE_OK {
            return Ok(false);
        }
        let mut image = vec![0; page_size.bytes()];
        let written = skipped.iter().try_for_each(|(page_no, frame)| {
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

    /// Pages that have frames among the backfilled ones, but also a newer frame that the checkpoint may have seen, each
    /// with its newest backfilled frame.
    fn skipped(
        &self,
        wal: &mut VfsFile,
        page_size: PageSize,
    ) -> Result<Option<Vec<(PageNo, u32)>>, GuardError> {
        let header = self.settled_wal_header()?;
        let backfilled = self.wal_index()?.backfilled();
        let seen = self.seen_by_checkpoint();
        if backfilled == 0 || seen < backfilled || seen > header.frames() {
            return Ok(None);
        }
        let regions = WalIndexRegions::of(self.file(), seen).ok_or(GuardError::NoWal)?;
        let mut commit = |frame: u32| {
            let mut head = [0; WAL_FRAME_HEADER_BYTES];
            let whole = wal.read_at(&mut head, frame_offset(frame, page_size.bytes())).unwrap_or(false);
            whole.then(|| FrameHead::of(&head).commit_pages)
        };
        let Some(database_pages) = commit(backfilled).filter(|pages| *pages > 0) else { return Ok(None) };
        let is_no_smaller = |pages: u32| pages == 0 || pages >= database_pages;
        if !(backfilled + 1..=seen).all(|frame| commit(frame).is_some_and(is_no_smaller)) {
            return Ok(None);
        }
        let mut newer: BTreeSet<PageNo> =
            (backfilled + 1..=seen).map(|frame| regions.page_of(frame)).collect();
        let mut skipped = Vec::new();
        for frame in (1..=backfilled).rev() {
            if newer.is_empty() {
                break;
            }
            let page_no = regions.page_of(frame);
            if newer.remove(&page_no) && page_no <= database_pages {
                skipped.push((page_no, frame));
            }
        }
        skipped.sort_unstable();
        Ok(Some(skipped))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::rewriting::WalSnapshot;
    use crate::scene::{Scene, ok, total};
    use rusqlite::Connection;

    /// A WAL with a reader that has seen the sum 100, where the snapshot is, and that continues with `later`.
    fn held_back(later: &str) -> (Scene, Connection, WalSnapshot) {
        let scene = Scene::backfilled(1);
        let application = scene.application();
        scene.change_all(&application, 1);
        let reader = scene.application();
        reader.execute_batch("BEGIN").unwrap();
        assert_eq!(total(&reader), 100);
        let snapshot = scene.snapshot();
        application.execute_batch(later).unwrap();
        (scene, reader, snapshot)
    }

    #[test]
    fn file_alone_holds_the_state_that_the_oldest_reader_sees() {
        let (mut scene, reader, snapshot) = held_back(
            "UPDATE t SET n = n + 1 WHERE id <= 20; UPDATE t SET n = n + 1 WHERE id BETWEEN 11 AND 30",
        );
        assert!(scene.backfill_upto(snapshot).is_some());
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
    fn file_that_may_lack_pages_has_no_file_scn() {
        let (mut scene, reader, snapshot) = held_back("DELETE FROM t WHERE id > 10; VACUUM");
        assert_eq!(scene.backfill_upto(snapshot), None, "the database became smaller");
        drop(reader);
        assert!(scene.backfill().is_some());

        let (mut scene, reader, snapshot) = held_back("UPDATE t SET n = n + 1");
        assert!(scene.backfill_upto(snapshot).is_some());
        assert_eq!(scene.backfill_upto(snapshot), None, "nothing was left to be backfilled");
        assert_eq!(total(&reader), 100);
    }
}
