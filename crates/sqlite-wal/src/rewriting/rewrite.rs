//! Writes the newest version of each page over the first frames of a WAL, which no connection reads any more, and repairs
//! a WAL in which that was interrupted. See [`crate::rewriting`] for why no power loss does harm.

use super::new_log::NewLog;
use crate::VfsFile;
use crate::guard::{Guard, GuardError};
use crate::guard_vfs::READ_LOCKS;
use crate::page_map::PageMap;
use crate::wal_index::WalIndexHeader;
use crate::wal_index_regions::{NewHeader, WalIndexRegions};
use crate::wal_layout::{FrameHead, SALTS, SUMMED_HEAD, frame_offset, image_offset};
use rusqlite::ffi;
use standfast_io::fault::{self, Fault};
use standfast_types::{Hint, PageNo, PageSize, WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES};
use standfast_types::{WAL_MAGIC as MAGIC, WalSum as Sum};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// Bytes per write: SQLite's VFS for Unix takes less than 128 KiB in one call.
const WRITE_BYTES: usize = 124 << 10;
/// Largest WAL that is rewritten, in bytes. The new WAL is built in memory, so that new transactions wait for its
/// writing only.
const MOST_BYTES: usize = 32 << 20;
/// Bytes of an inconsistent WAL that are written per step of its repair.
const REPAIRED_AT_ONCE: usize = 1 << 20;
/// Passes that collect pages changed by other connections, at most this many, or until a pass finds at most [`FEW`].
const LOOKS: u32 = 4;
const FEW: u32 = 64;

/// Why a WAL could not be rewritten.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// The file system failed; only the index knows what is in the WAL.
    #[error("rewriting the write-ahead log: {0}")]
    Io(#[from] std::io::Error),
    /// The index could not be read or locked; nothing was changed.
    #[error(transparent)]
    Guard(#[from] GuardError),
}

impl Hint for RewriteError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            RewriteError::Io(_) => None,
            RewriteError::Guard(error) => error.hint(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewrittenLog {
    /// In the byte order of the file.
    pub raw_salts: [u32; 2],
    /// The page of each frame of its first transaction.
    pub page_nos: Vec<PageNo>,
}

/// The number of frames that can be written at once.
pub(super) fn most_frames(page_size: PageSize) -> u32 {
    (MOST_BYTES / (WAL_FRAME_HEADER_BYTES + page_size.bytes())) as u32
}

/// A WAL to be written in place of the old one, complete in memory except for what changes until then.
pub struct Prepared {
    new: NewLog,
    /// The old WAL as it was when pages were last taken from it.
    old: WalIndexHeader,
    /// Most frames that the new WAL can have.
    room: u32,
}

impl RewrittenLog {
    /// The number of frames of its first transaction.
    pub fn frames(&self) -> u32 {
        self.page_nos.len() as u32
    }
}

impl Guard<'_> {
    /// Returns the newest frame after `after` of every page, ordered by page. Includes pages beyond the end of a
    /// database that has become smaller: it may grow again without writing them.
    ///
    /// # Errors
    /// When the wal-index cannot be read.
    pub(crate) fn newest_frames(&self, after: u32) -> Result<Vec<(PageNo, u32)>, GuardError> {
        self.newest_frames_of(&self.settled_wal_header()?, after)
    }

    fn newest_frames_of(
        &self,
        header: &WalIndexHeader,
        after: u32,
    ) -> Result<Vec<(PageNo, u32)>, GuardError> {
        let regions = WalIndexRegions::of(self.file(), header.frames()).ok_or(GuardError::NoWal)?;
        let mut newest = PageMap::default();
        for frame in after + 1..=header.frames() {
            newest.insert(regions.page_of(frame), frame);
        }
        let mut frames: Vec<(PageNo, u32)> =
            newest.into_iter().filter(|(page_no, _)| *page_no != 0).collect();
        frames.sort_unstable();
        Ok(frames)
    }

    /// Sets the backfilled count of the WAL of `then` to `frames`, fewer than are in the database file; false when
    /// there is another WAL by now. The caller holds the write lock and the checkpoint lock.
    pub(crate) fn set_backfilled(&self, then: &WalIndexHeader, frames: u32) -> bool {
        let same =
            self.wal_header().is_ok_and(|now| now.raw_salts() == then.raw_salts() && now.frames() > frames);
        match WalIndexRegions::of(self.file(), 1) {
            Some(regions) if same => regions.set_backfilled(frames),
            _ => return false,
        }
        true
    }

    /// Repairs the WAL for everybody if the instance died while it rewrote it: then only the processes that have the
    /// database open still know the WAL. The caller holds the write lock and the checkpoint lock.
    ///
    /// # Errors
    /// When the WAL or its index cannot be read. `Io`: the WAL is as inconsistent as before.
    pub fn repair_inconsistent_wal(
        &self,
        wal: &mut VfsFile,
        page_size: PageSize,
    ) -> Result<(), RewriteError> {
        match self.wal_is_inconsistent(wal)? {
            true => self.repair_wal(wal, page_size),
            false => Ok(()),
        }
    }

    /// Whether a rewrite of the WAL began and did not complete, so that only its index knows the WAL.
    fn wal_is_inconsistent(&self, wal: &mut VfsFile) -> Result<bool, RewriteError> {
        let header = self.settled_wal_header()?;
        let mut head = [0; WAL_HEADER_BYTES];
        let [one, two] = header.raw_salts().map(u32::to_ne_bytes);
        Ok(header.frames() > 0 && wal.read_at(&mut head, 0)? && head[SALTS] != *[one, two].as_flattened())
    }

    /// Repairs an inconsistent WAL while connections read it: backfilled frames get the page that the database file
    /// has, and all frames get the checksums that follow from that. Readers continue, because no page changes that the
    /// index leads to.
    fn repair_wal(&self, wal: &mut VfsFile, page_size: PageSize) -> Result<(), RewriteError> {
        let header = self.settled_wal_header()?;
        let backfilled = self.wal_index()?.backfilled();
        let regions = WalIndexRegions::of(self.file(), header.frames()).ok_or(GuardError::NoWal)?;
        let mut head = [0; WAL_HEADER_BYTES];
        wal.read_at(&mut head, 0)?;
        let mut whole = NewLog::begin(&head, header.salts(), page_size, 0);
        let mut offset = WAL_HEADER_BYTES as u64;
        let mut old = vec![0; WAL_FRAME_HEADER_BYTES + page_size.bytes()];
        // Unknown at first: the checksum of the last backfilled frame is overwritten.
        let mut sum_before = None;
        for frame in 1..=header.frames() {
            let page_no = regions.page_of(frame);
            // The end of the transaction: the last of the backfilled frames has one only if no frame follows.
            let mut commit = if frame == header.frames() { header.database_pages() } else { 0 };
            if frame > backfilled {
                let is_there = wal.read_at(&mut old, frame_offset(frame, page_size.bytes()))?;
                let head = FrameHead::of(&old);
                if !is_there || head.salts != header.salts() {
                    return Err(is_not_what_it_was(frame));
                }
                commit = head.commit_pages;
            }
            whole.append(page_no, commit, |image| match frame > backfilled {
                true => {
                    image.copy_from_slice(&old[WAL_FRAME_HEADER_BYTES..]);
                    Ok(())
                }
                // A page beyond the end of the file belongs to a database that was larger once.
                false => self.file().read_page(image, page_no).map(|_| ()).map_err(|code| {
                    std::io::Error::other(format!("reading page {page_no}: {}", crate::sqlite_code(code)))
                }),
            })?;
            if frame > backfilled {
                let sum = FrameHead::of(&old).sum;
                // An earlier attempt got this far, and wrote what would be written now.
                let is_repaired = sum == whole.frame_checksum();
                let follows = sum_before.is_none_or(|before| frame_sum(before, &old) == sum);
                let is_end = frame < header.frames() || sum == header.frame_checksum();
                let is_as_it_was = follows && is_end;
                if !is_repaired && !is_as_it_was {
                    return Err(is_not_what_it_was(frame));
                }
                sum_before = (!is_repaired).then_some(sum);
            }
            if frame == header.frames() || whole.bytes().len() >= REPAIRED_AT_ONCE {
                let bytes = whole.take_bytes();
                write_in_chunks(wal, &bytes, offset)?;
                offset += bytes.len() as u64;
            }
        }
        let repaired = NewHeader {
            frames: header.frames(),
            database_pages: header.database_pages(),
            frame_checksum: whole.frame_checksum(),
            raw_salts: header.raw_salts(),
        };
        // The header of the file shows that the WAL is inconsistent, so it is written last, after everything that it
        // covers.
        wal.sync_first(offset)?;
        regions.publish_header(&header, &repaired);
        wal.write_durably(whole.head(), 0)?;
        Ok(())
    }

    /// Builds what [`Guard::rewrite_log`] will write, except for what changes until then: the newest version of each
    /// page that the database file does not have. `None` when the new WAL does not fit into the space of the backfilled
    /// frames, when a checkpoint did not complete, or when the WAL is not one that this machine can write.
    ///
    /// The caller holds the checkpoint lock, and keeps it until the WAL is written.
    ///
    /// # Errors
    /// When the WAL or its index cannot be read.
    pub fn prepare_rewrite(
        &self,
        wal: &mut VfsFile,
        page_size: PageSize,
    ) -> Result<Option<Prepared>, RewriteError> {
        let index = self.wal_index()?;
        let backfilled = index.backfilled();
        let room = backfilled.min(most_frames(page_size));
        let Some(new) = self.begin_log(wal, page_size, room)? else { return Ok(None) };
        let mut prepared = Prepared { new, old: self.settled_wal_header()?, room };
        let mut taken = self.take_changed(wal, backfilled, &mut prepared)?;
        for _ in 1..LOOKS {
            if taken.is_some_and(|frames| frames > FEW) {
                let known = prepared.old.frames();
                taken = self.take_changed(wal, known, &mut prepared)?;
            }
        }
        Ok(taken.filter(|_| prepared.new.frames() > 0 && index.attempted() == backfilled).map(|_| prepared))
    }

    /// Adds the newest version of each page that is in the WAL after frame `after`. Returns the number of these pages;
    /// `None` when they and the end of the transaction do not fit.
    fn take_changed(
        &self,
        wal: &mut VfsFile,
        after: u32,
        prepared: &mut Prepared,
    ) -> Result<Option<u32>, RewriteError> {
        let header = self.settled_wal_header()?;
        let changed = self.newest_frames_of(&header, after)?;
        if prepared.new.frames() as usize + changed.len() >= prepared.room as usize {
            return Ok(None);
        }
        for (page_no, frame) in &changed {
            let offset = image_offset(*frame, prepared.new.page_size().bytes());
            prepared.new.append(*page_no, 0, |image| wal.read_at(image, offset).map(|_| ()))?;
        }
        prepared.old = header;
        Ok(Some(changed.len() as u32))
    }

    /// Writes the `prepared` WAL over the old one, with what has changed since. Returns `None` and changes nothing when
    /// that does not fit, or when a connection reads for longer than `timeout`. Calls `is_whole` when the WAL is
    /// complete also for processes that do not have its index.
    ///
    /// The caller holds the write lock and the checkpoint lock. Everything committed is captured and durable in the
    /// redo, and the database file was synced after the backfill.
    ///
    /// # Errors
    /// `Io`: the WAL is complete for the processes that have it open, and inconsistent for all others.
    pub fn rewrite_log(
        &self,
        wal: &mut VfsFile,
        mut prepared: Prepared,
        timeout: Duration,
        is_whole: impl FnOnce(),
    ) -> Result<Option<RewrittenLog>, RewriteError> {
        debug_assert!(self.is_file_synced(), "a WAL is rewritten before the database file is synced");
        self.without_readers(timeout, || {
            let header = self.settled_wal_header()?;
            let known = prepared.old.frames();
            if header.raw_salts() != prepared.old.raw_salts()
                || self.take_changed(wal, known, &mut prepared)?.is_none()
            {
                return Ok(None);
            }
            let mut new = prepared.new;
            new.end(header.database_pages());
            let Some(regions) = WalIndexRegions::of(self.file(), new.frames()) else { return Ok(None) };
            fault::check(Fault::LogRewrite)?;
            wal.write_durably(new.head(), 0)?;
            fault::check(Fault::LogRewrite)?;
            write_in_chunks(wal, new.bytes(), WAL_HEADER_BYTES as u64)?;
            is_whole();
            fault::check(Fault::LogRewrite)?;
            let published = NewHeader {
                frames: new.frames(),
                database_pages: header.database_pages(),
                frame_checksum: new.frame_checksum(),
                raw_salts: new.raw_salts(),
            };
            regions.publish(&header, &published, new.page_nos());
            Ok(Some(RewrittenLog { raw_salts: new.raw_salts(), page_nos: new.into_page_nos() }))
        })
    }

    /// Runs `work` while no connection reads; `None` when a transaction lasts longer than `timeout`. A reader of the
    /// database file without the WAL would not be harmed, but could not start to write: SQLite takes another WAL for
    /// changes that the reader's transaction has not seen (`SQLITE_BUSY_SNAPSHOT`).
    fn without_readers<T>(
        &self,
        timeout: Duration,
        work: impl FnOnce() -> Result<Option<T>, RewriteError>,
    ) -> Result<Option<T>, RewriteError> {
        let (first, count) = READ_LOCKS;
        let exclusive = |action| self.file().shm_lock(first, count, action | ffi::SQLITE_SHM_EXCLUSIVE);
        let end = Instant::now() + timeout;
        while exclusive(ffi::SQLITE_SHM_LOCK) != ffi::SQLITE_OK {
            if Instant::now() >= end {
                return Ok(None);
            }
            // Readers do not signal their end.
            std::thread::sleep(Duration::from_micros(50));
        }
        let result = work();
        exclusive(ffi::SQLITE_SHM_UNLOCK);
        result
    }

    /// Begins the new WAL; `None` when the file does not begin with the header of a WAL whose checksums this machine
    /// computes.
    fn begin_log(
        &self,
        wal: &mut VfsFile,
        page_size: PageSize,
        frames: u32,
    ) -> Result<Option<NewLog>, RewriteError> {
        let header = self.settled_wal_header()?;
        let mut head = [0; WAL_HEADER_BYTES];
        let known = header.sums_in_native_order()
            && header.page_size() == Some(page_size)
            && wal.read_at(&mut head, 0)?
            && head[..4] == (MAGIC | u32::from(cfg!(target_endian = "big"))).to_be_bytes();
        if !known {
            return Ok(None);
        }
        let mut random = [0; 2];
        // SAFETY: the call fills two bytes. SQLite takes its own salts from the same generator.
        unsafe { ffi::sqlite3_randomness(2, random.as_mut_ptr().cast()) };
        let salts = header.salts().of_rewritten_log(u16::from_ne_bytes(random));
        Ok(Some(NewLog::begin(&head, salts, page_size, frames as usize)))
    }
}

fn is_not_what_it_was(frame: u32) -> RewriteError {
    std::io::Error::other(format!("frame {frame} is not what it was")).into()
}

/// The checksum, in the byte order of this machine, of a frame after one with the checksum `before`.
fn frame_sum(before: [u32; 2], frame: &[u8]) -> [u32; 2] {
    let mut sum = Sum::after(before, cfg!(target_endian = "big"));
    sum.add(&frame[SUMMED_HEAD]);
    sum.add(&frame[WAL_FRAME_HEADER_BYTES..]);
    sum.words()
}

fn write_in_chunks(wal: &mut VfsFile, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    for (at, chunk) in (0..).step_by(WRITE_BYTES).zip(bytes.chunks(WRITE_BYTES)) {
        wal.write_at(chunk, offset + at)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::rewriting::{Suffix, WalSnapshot};
    use crate::scene::{Scene, TIMEOUT, ok, size, total};
    use rusqlite::Connection;
    use standfast_types::Scn;

    #[test]
    fn rewritten_wal_keeps_only_the_newest_version_of_each_page() {
        let mut scene = Scene::backfilled(2);
        let application = scene.application();
        for round in 1..=5 {
            scene.change_all(&application, 10);
            let before = scene.frames();
            let log = scene.rewrite().unwrap();
            assert!(before >= 500 && log.frames() <= 55, "{before}, {}", log.frames());
            assert_eq!(log.frames(), scene.frames());
            let sum = 100 + round * 600 - 100;
            assert_eq!((total(&application), total(&scene.application())), (sum, sum));
            // Another process recovers the WAL from the file.
            assert_eq!(scene.recovered(&[("", scene.file("")), ("-wal", scene.file("-wal"))]), ok(sum));
            scene.change_all(&application, 2);
            assert_eq!(scene.backfill().unwrap().backfilled(), scene.frames() - 1);
            assert_eq!(scene.recovered(&[("", scene.file(""))]), ok(sum + 100), "the file alone has it");
        }
        scene.change_all(&application, 1);
        scene.instance.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        assert_eq!(total(&scene.application()), 3150);
    }

    /// The next writer resets a WAL that is fully backfilled, perhaps before the index is set to say otherwise.
    #[test]
    fn backfill_of_one_wal_is_not_recorded_for_the_next() {
        let scene = Scene::backfilled(2);
        let application = scene.application();
        let guard = scene.guard();
        scene.change_all(&application, 1);
        scene.instance.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
        let snapshot = WalSnapshot { header: guard.wal_header().unwrap(), scn: Scn(7) };
        application.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert_eq!(Suffix::behind(&guard, &[snapshot], 1000), None, "a connection writes");
        application.execute_batch("UPDATE t SET n = n + 1; COMMIT").unwrap();
        assert!(guard.wal_header().unwrap().raw_salts() != snapshot.header.raw_salts());
        assert!(!guard.set_backfilled(&snapshot.header, snapshot.header.frames() - 1));
        assert_eq!(Suffix::behind(&guard, &[snapshot], 1000), None);
        assert_eq!(guard.wal_index().unwrap().backfilled(), 0);
        assert_eq!((total(&application), total(&scene.application())), (200, 200));
    }

    /// Its transaction began when the WAL was fully backfilled, so it reads the database file alone.
    #[test]
    fn transaction_reading_the_file_alone_can_still_write() {
        let scene = || {
            let scene = Scene::backfilled(2);
            let application = scene.application();
            scene.change_all(&application, 1);
            let snapshot = scene.snapshot();
            scene.instance.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
            application.busy_timeout(TIMEOUT).unwrap();
            application.execute_batch("BEGIN").unwrap();
            assert_eq!(total(&application), 150);
            (scene, application, snapshot)
        };
        let resumes = |application: &Connection| {
            application.execute_batch("UPDATE t SET n = n + 1 WHERE id = 1; COMMIT").unwrap();
            assert_eq!(total(application), 151);
        };
        let (mut rewritten, application, snapshot) = scene();
        assert!(Suffix::behind(&rewritten.guard(), &[snapshot], 1000).is_some());
        assert_eq!(rewritten.rewrite(), None, "a connection reads");
        resumes(&application);

        let (reset, application, _) = scene();
        let truncate = || {
            let result = reset.instance.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
            result.unwrap_or(1)
        };
        reset.instance.busy_timeout(TIMEOUT).unwrap();
        assert_eq!(truncate(), 1, "a connection reads");
        resumes(&application);
        assert_eq!((truncate(), reset.frames()), (0, 0));
        // The instance's own connection resets the WAL when it writes, as any connection does that reads the file
        // alone.
        let before = reset.guard().wal_header().unwrap().raw_salts();
        reset.instance.execute_batch("UPDATE t SET n = n + 1 WHERE id = 1").unwrap();
        reset.instance.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
        reset.instance.execute_batch("UPDATE t SET n = n + 1 WHERE id = 2").unwrap();
        assert!(reset.guard().wal_header().unwrap().raw_salts() != before && reset.frames() == 1);
    }

    #[test]
    fn rewritten_wal_holds_changes_made_after_its_preparation() {
        let mut scene = Scene::backfilled(4);
        let application = scene.application();
        scene.change_all(&application, 2);
        let prepared = scene.prepare().unwrap();
        application
            .execute_batch("UPDATE t SET n = n + 7 WHERE id <= 20; DELETE FROM t WHERE id = 50")
            .unwrap();
        application.execute("INSERT INTO t VALUES(51, 1000, zeroblob(9000))", []).unwrap();
        let log = scene.write(prepared).unwrap();
        assert_eq!(log.frames(), scene.frames());
        let sum = 300 + 140 - 6 + 1000;
        assert_eq!((total(&application), total(&scene.application())), (sum, sum));
        assert_eq!(scene.recovered(&[("", scene.file("")), ("-wal", scene.file("-wal"))]), ok(sum));
    }

    #[test]
    fn prepared_wal_is_void_after_many_changes_but_not_after_a_shrink() {
        let mut scene = Scene::backfilled(2);
        let application = scene.application();
        scene.change_all(&application, 2);
        let prepared = scene.prepare().unwrap();
        scene.change_all(&application, 1);
        assert_eq!(scene.write(prepared), None, "50 pages twice, and the end");
        let prepared = scene.prepare().unwrap();
        application.execute_batch("DELETE FROM t WHERE id > 25; VACUUM").unwrap();
        assert!(scene.write(prepared).is_some(), "smaller");
        assert_eq!((total(&application), total(&scene.application())), (125, 125));
        assert_eq!(scene.recovered(&[("", scene.file("")), ("-wal", scene.file("-wal"))]), ok(125));
    }

    /// Whatever frames of the new WAL a power loss leaves, the state is the one after some commit.
    #[test]
    fn partly_rewritten_wal_recovers_to_the_file_or_the_new_state() {
        let mut scene = Scene::backfilled(4);
        let application = scene.application();
        scene.change_all(&application, 4);
        let (file, old) = (scene.file(""), scene.file("-wal"));
        let log = scene.rewrite().unwrap();
        let new = scene.file("-wal");
        let frame = WAL_FRAME_HEADER_BYTES + 4096;
        let part = |number: usize| match number {
            0 => 0..WAL_HEADER_BYTES,
            _ => WAL_HEADER_BYTES + (number - 1) * frame..WAL_HEADER_BYTES + number * frame,
        };
        let frames = log.frames() as usize;
        assert_eq!(old[part(frames).end..], new[part(frames).end..]);
        let mix = |takes_new: &dyn Fn(usize) -> bool| {
            let mut wal = old.clone();
            for part in (0..=frames).filter(|number| takes_new(*number)).map(part) {
                wal[part.clone()].copy_from_slice(&new[part]);
            }
            scene.recovered(&[("", file.clone()), ("-wal", wal)])
        };
        assert_eq!(mix(&|_| false), ok(400));
        assert_eq!(mix(&|_| true), ok(400));
        for lost in 1..=frames {
            assert_eq!(mix(&|number| number != lost), ok(200), "all but part {lost}");
            assert_eq!(mix(&|number| number == 0 || number == lost), ok(200), "only part {lost}");
            assert_eq!(mix(&|number| number < lost), ok(200), "up to part {lost}");
        }
    }

    /// The process that rewrites the WAL is killed before it publishes the new index: connections that have the
    /// database open continue with the old index, and the WAL can be repaired under them.
    #[test]
    fn inconsistent_wal_is_detected_and_repaired_under_readers() {
        for frames in [0, 20] {
            let mut scene = Scene::backfilled(4);
            let application = scene.application();
            scene.change_all(&application, 4);
            let guard = Guard::of(&scene.instance).unwrap();
            assert!(!guard.wal_is_inconsistent(&mut scene.wal).unwrap());
            let new = guard.begin_log(&mut scene.wal, size(), 1).unwrap().unwrap();
            scene.wal.write_at(new.head(), 0).unwrap();
            let void = vec![7; frames * (WAL_FRAME_HEADER_BYTES + 4096)];
            scene.wal.write_at(&void, WAL_HEADER_BYTES as u64).unwrap();
            assert!(guard.wal_is_inconsistent(&mut scene.wal).unwrap());
            assert_eq!((total(&application), total(&scene.application())), (400, 400));
            scene.change_all(&application, 1);
            let alone =
                |scene: &Scene| scene.recovered(&[("", scene.file("")), ("-wal", scene.file("-wal"))]);
            assert_eq!(alone(&scene), ok(200), "without the index");
            let reader = scene.application();
            reader.execute_batch("BEGIN").unwrap();
            assert_eq!(total(&reader), 450);
            guard.hold_write_lock().unwrap();
            guard.repair_wal(&mut scene.wal, size()).unwrap();
            guard.release_write_lock();
            assert!(!guard.wal_is_inconsistent(&mut scene.wal).unwrap());
            assert_eq!(alone(&scene), ok(450));
            scene.change_all(&application, 1);
            assert_eq!((total(&reader), total(&application), alone(&scene)), (450, 500, ok(500)));
            drop(reader);
            assert!(scene.rewrite().is_some());
            assert_eq!((total(&application), alone(&scene)), (500, ok(500)));
        }
    }

    #[test]
    fn inconsistent_wal_with_a_lost_frame_is_not_repaired() {
        let mut scene = Scene::backfilled(4);
        let application = scene.application();
        scene.change_all(&application, 4);
        let guard = Guard::of(&scene.instance).unwrap();
        let (backfilled, frames) = (guard.wal_index().unwrap().backfilled(), scene.frames());
        let new = guard.begin_log(&mut scene.wal, size(), 1).unwrap().unwrap();
        scene.wal.write_at(new.head(), 0).unwrap();
        for frame in [backfilled + 2, frames - 1, frames] {
            let mut byte = [0];
            let offset = image_offset(frame, size().bytes()) + 1000;
            scene.wal.read_at(&mut byte, offset).unwrap();
            scene.wal.write_at(&[byte[0] ^ 1], offset).unwrap();
            let before = scene.file("-wal");
            let lost = guard.repair_wal(&mut scene.wal, size()).unwrap_err().to_string();
            assert!(lost.contains(&format!("frame {frame} is not what it was")), "{lost}");
            assert_eq!(scene.file("-wal")[..32], before[..32], "as torn as before");
            scene.wal.write_at(&byte, offset).unwrap();
        }
        guard.repair_wal(&mut scene.wal, size()).unwrap();
        assert_eq!(total(&application), 400);
    }

    #[test]
    fn wal_is_not_rewritten_without_room_or_with_readers() {
        let mut scene = Scene::backfilled(0);
        let application = scene.application();
        scene.change_all(&application, 2);
        let before = scene.file("-wal");
        assert_eq!(scene.rewrite(), None, "nothing was backfilled");
        application.execute("UPDATE t SET n = n WHERE id <= 40", []).unwrap();
        assert_eq!(scene.rewrite(), None, "nothing was backfilled");
        assert_eq!(scene.file("-wal")[..before.len()], before);

        let mut scene = Scene::backfilled(2);
        let application = scene.application();
        scene.change_all(&application, 2);
        let reader = scene.application();
        reader.execute_batch("BEGIN").unwrap();
        assert_eq!(total(&reader), 200);
        scene.change_all(&application, 1);
        assert_eq!(scene.rewrite(), None, "a connection reads");
        assert_eq!((total(&reader), total(&application)), (200, 250));
        reader.execute_batch("COMMIT").unwrap();
        // As left by a checkpoint that could not write all pages into the file.
        let guard = scene.guard();
        let backfilled = guard.wal_index().unwrap().attempted();
        WalIndexRegions::of(guard.file(), 1).unwrap().set_attempted(backfilled + 1);
        assert_eq!(scene.rewrite(), None, "the file may hold newer pages");
        scene.backfill().unwrap();
        scene.change_all(&application, 1);
        assert!(scene.rewrite().is_some());
        assert_eq!(total(&reader), 300);
    }
}
