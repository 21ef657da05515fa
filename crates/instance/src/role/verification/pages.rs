//! Puts pages of a database into the redo: their checksums, or whole pages for a repair.

use super::run::{Obstacle, Run};
use super::{PAUSE, ROUNDS};
use rusqlite::{Connection, OptionalExtension};
use standfast_documents::verification::DatabaseResult;
use standfast_environment::config::error::InstanceError;
use standfast_environment::ship::open_database::open_guarded;
use standfast_environment::state::control::{DatabaseRecord, DifferingPage};
use standfast_format::page_sum;
use standfast_primary::commit::database::committed_pages;
use standfast_primary::commit::primary::{ReadPage, Recorded};
use standfast_types::{DatabaseId, Hint, PageNo, Scn};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limit of page bytes read for one record.
const CHUNK_BYTES: usize = 1 << 20;
/// Limit of pages whose checksums one record carries.
const CHUNK_PAGES: usize = 1024;
/// How long to wait for a database that cannot be compared now.
const OBSTACLE_WAIT: Duration = Duration::from_secs(60);

/// Result of recording a chunk of pages.
pub(super) struct Chunk {
    pub(super) scn: Scn,
    pub(super) pages: u64,
    pub(super) changed: Vec<PageNo>,
    pub(super) database_pages: u32,
}

impl Run<'_> {
    /// Puts the checksums of all pages of a database into the redo.
    pub(super) fn read(&self, record: &DatabaseRecord, result: &mut DatabaseResult) -> Result<(), Obstacle> {
        let database = self.primary.threads.shared().database(record.id);
        let Some(database) = database else { return Err(Obstacle::Skipped("it is offline".into())) };
        let skipped = |error: InstanceError| Obstacle::Skipped(error.for_terminal());
        database.trusted().map_err(skipped)?;
        let mut reader = self.open(record).map_err(skipped)?;
        let known = database.header().and_then(|header| committed_pages(&reader, &header).ok());
        let mut end = known.unwrap_or(1);
        self.verification().update(|progress| progress.pages += u64::from(end));
        let chunk_pages = (CHUNK_BYTES / record.page_size.bytes()).clamp(1, CHUNK_PAGES) as u32;
        let mut again = Vec::new();
        let mut next = 1;
        while next <= end {
            let pages: Vec<PageNo> = (next..=end.min(next + chunk_pages - 1)).collect();
            let chunk = self.record(record, &mut reader, &pages, false)?;
            self.count(result, &chunk);
            let read = pages.len() as u64;
            self.verification().update(|progress| {
                progress.pages =
                    (progress.pages + u64::from(chunk.database_pages)).saturating_sub(u64::from(end));
                progress.pages_read += read;
            });
            again.extend(chunk.changed);
            end = chunk.database_pages;
            next += chunk_pages;
        }
        for _ in 0..ROUNDS {
            let pages: Vec<PageNo> = std::mem::take(&mut again);
            for pages in pages.chunks(chunk_pages as usize) {
                let chunk = self.record(record, &mut reader, pages, false)?;
                self.count(result, &chunk);
                again.extend(chunk.changed);
            }
        }
        Ok(())
    }

    fn count(&self, result: &mut DatabaseResult, chunk: &Chunk) {
        result.pages += chunk.pages;
        result.scn = Some(chunk.scn);
    }

    pub(super) fn open(&self, record: &DatabaseRecord) -> Result<Connection, InstanceError> {
        let reader = open_guarded(&record.path, self.running.environment.vfs_base.as_deref())?;
        reader.busy_timeout(Duration::from_secs(5))?;
        // Always reads from the file, never an earlier read from the cache.
        reader.execute_batch("PRAGMA mmap_size=0; PRAGMA cache_size=16")?;
        Ok(reader)
    }

    /// Reads pages and puts them into the redo: checksums, or whole pages for a repair.
    pub(super) fn record(
        &self,
        record: &DatabaseRecord,
        reader: &mut Connection,
        pages: &[PageNo],
        whole: bool,
    ) -> Result<Chunk, Obstacle> {
        let id = record.id;
        let began = Instant::now();
        let threads = &self.primary.threads;
        let mut obstacle = "it is being copied";
        while began.elapsed() < OBSTACLE_WAIT {
            self.check_stop()?;
            let watched = pages.to_vec();
            if !threads.call(move |primary| Ok(primary.watch_pages(id, watched.into_iter())))? {
                std::thread::sleep(PAUSE);
                continue;
            }
            let read = Arc::new(
                self.read_pages(record, reader, pages, whole)
                    .map_err(|error| Obstacle::Skipped(format!("its pages cannot be read: {error}")))?,
            );
            self.keep_pace(began, read.len() * record.page_size.bytes())?;
            loop {
                let (run, pages) = (self.run, read.clone());
                match threads.call(move |primary| primary.record_pages(id, run, &pages))? {
                    Recorded::Done { scn, pages, changed, database_pages } => {
                        self.forget_rewritten(id, &read);
                        return Ok(Chunk { scn, pages, changed, database_pages });
                    }
                    Recorded::NotYet if began.elapsed() < OBSTACLE_WAIT => {
                        obstacle = "its commits cannot be captured at the moment";
                        self.check_stop()?;
                        std::thread::sleep(PAUSE);
                    }
                    Recorded::NotYet | Recorded::Again => break,
                    Recorded::Gone => return Err(Obstacle::Skipped("it is no longer served".into())),
                }
            }
        }
        Err(Obstacle::Skipped(obstacle.into()))
    }

    fn read_pages(
        &self,
        record: &DatabaseRecord,
        reader: &mut Connection,
        pages: &[PageNo],
        whole: bool,
    ) -> Result<Vec<ReadPage>, rusqlite::Error> {
        let lock_page = (0x4000_0000 / record.page_size.bytes()) as PageNo + 1;
        let transaction = reader.transaction()?;
        let mut read = Vec::with_capacity(pages.len());
        {
            let mut statement =
                transaction.prepare_cached("SELECT data FROM sqlite_dbpage('main') WHERE pgno = ?1")?;
            for page_no in pages.iter().copied().filter(|page_no| *page_no != lock_page) {
                let found = statement.query_row([page_no], |row| {
                    let image = row.get_ref(0)?.as_blob()?;
                    let sum = page_sum(page_no, image);
                    Ok(ReadPage { page_no, sum, image: whole.then(|| image.to_vec()) })
                });
                // A missing page was truncated; by then the log writer knows the new size.
                read.extend(found.optional()?);
            }
        }
        transaction.finish()?;
        Ok(read)
    }

    /// Waits until reading `bytes` since `began` does not exceed the rate.
    fn keep_pace(&self, began: Instant, bytes: usize) -> Result<(), InstanceError> {
        let due = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
        while let Some(left) = due.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            self.check_stop()?;
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
        Ok(())
    }

    /// Forgets pages that differed from a former primary's and have been written since.
    fn forget_rewritten(&self, id: DatabaseId, read: &[ReadPage]) {
        let environment = &self.running.environment;
        let is_rewritten = |at: &DifferingPage| {
            let now = read.iter().find(|page| page.page_no == at.difference.page);
            at.database == id && now.is_some_and(|page| Some(page.sum) != at.difference.found)
        };
        if environment.of_control(|control| control.differing.iter().any(is_rewritten)) {
            // If this cannot be written, the next run detects it again.
            let _ = environment.update_control(|control| control.differing.retain(|at| !is_rewritten(at)));
        }
    }
}
