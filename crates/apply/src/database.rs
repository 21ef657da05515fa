//! One standby database: applies its redo records to its file, and tracks how far it is.

use crate::batch::Batch;
use crate::compare::{Compared, compare};
use crate::dirty_pages::DirtyPages;
use crate::history::Fact;
use crate::keep::{Kept, keep, path_of_kept};
use crate::pending::Pending;
use crate::standby_file::{Checkpointed, StandbyFile};
use crate::{ApplyError, Limits};
use standfast_format::{Record, Vectors, decode_record};
use standfast_sqlite_wal::lifecycle::{Action, Look, State};
use standfast_types::{DatabaseId, Hint, PageNo, Scn};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;

/// Number of calls of [`Database::is_to_be_synced`] without an advance of the durable SCN after which the WAL is synced
/// as it is.
const SYNC_ASKED_MAX: u32 = 10;

/// A range of the redo stream: complete records.
#[derive(Clone, Copy)]
pub struct Redo<'a> {
    /// SCN of `bytes[0]`, where a record begins.
    pub first: Scn,
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The state of the database is known exactly; each batch is committed.
    Live,
    /// The database may hold more than is known; nothing is committed before the end of the replay.
    Replay,
}

impl Mode {
    /// Returns the condition of the databases that take redo in this mode.
    pub fn takes(self) -> Condition {
        match self {
            Mode::Live => Condition::Live,
            Mode::Replay => Condition::Recovering,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Attached; a replay is to bring it to a known state.
    Recovering,
    Live,
    /// A page differed from the primary's, the storage failed, or redo is gone: nothing is applied before a full
    /// resync.
    Stopped,
    /// An error occurred that can be repaired: nothing is applied before a new replay.
    Failed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub transactions: u64,
    pub pages: u64,
}

pub struct Database {
    pub id: DatabaseId,
    pub name: String,
    pub file: StandbyFile,
    pub condition: Condition,
    /// Applied SCN: all commits up to here are certainly in the file.
    pub state: Scn,
    /// Consumed SCN: records that start before are in the file or pending.
    pub read: Scn,
    /// Resume SCN: after a restart redo must be read from here.
    pub resume_scn: Scn,
    /// Where the redo of this database begins on this standby.
    pub begin: Scn,
    /// SCN up to which its file held all commits at `begin`.
    pub begin_state: Scn,
    /// Durable SCN: like `resume_scn`, but whatever the storage loses in a power loss.
    pub durable_scn: Scn,
    /// File SCN: the database file alone, without its WAL, durably holds everything before, and the journal has
    /// recorded that.
    pub file_scn: Scn,
    /// `durable_scn` and `resume_scn` at the last call of [`Database::is_to_be_synced`], and the number of calls since `durable_scn` last
    /// moved.
    asked: (Scn, Scn, u32),
    /// There are commits that are not synced.
    pub unsynced: bool,
    /// There are commits that are not in the journal.
    pub unnoted: bool,
    /// The journal's facts about this database are void and must be removed.
    pub revived: bool,
    /// Begin of a full resync image without which the content does not fit the redo: apply had stopped before, or there is no
    /// content yet. Redo from here on is needed until the image is complete.
    lacks_image: Option<Scn>,
    /// The WAL has grown since the last check whether a checkpoint is due.
    pub grown: bool,
    pub due: Action,
    /// Work queue: offsets of the records to take next.
    pub work_queue: Vec<u32>,
    /// Result of the last work on the database, until it is collected.
    pub outcome: Option<Result<Done, ApplyError>>,
    /// Time of the newest commit in the file, microseconds since the Unix epoch; 0 when none was applied since the
    /// start.
    pub commit_us: u64,
    taken_us: u64,
    /// Results of verification records, until they are collected.
    pub compared: Vec<Compared>,
    /// Content that a full resync image replaces, and may lack, is kept.
    pub keeps_replaced: bool,
    /// Kept content, until it is collected.
    pub kept: Vec<Kept>,
    kept_free_bytes: u64,
    /// In a replay after a crash: pages that the WAL holds after the last known position, with checksums of their
    /// images. This standby wrote them if the replayed redo has these images; otherwise another process did.
    pub suspects: HashMap<PageNo, u32>,
    /// The journal has no position of that WAL's generation: it may have lost some in a power loss.
    pub is_generation_unknown: bool,
    pending: Pending,
    batch: Batch,
    image_bytes: usize,
}

impl Database {
    /// Creates a database whose file holds all commits up to `state`, and that needs redo from `resume_scn` on.
    pub fn new(
        id: DatabaseId,
        name: &str,
        file: StandbyFile,
        resume_scn: Scn,
        state: Scn,
        directory: &Path,
        limits: &Limits,
    ) -> Database {
        Database {
            id,
            name: name.to_owned(),
            file,
            condition: Condition::Recovering,
            state,
            read: resume_scn,
            resume_scn,
            begin: resume_scn,
            begin_state: state,
            durable_scn: resume_scn,
            file_scn: Scn::ZERO,
            asked: (Scn::ZERO, Scn::ZERO, 0),
            unsynced: true,
            unnoted: false,
            revived: false,
            lacks_image: None,
            grown: true,
            due: Action::Rest,
            work_queue: Vec::new(),
            outcome: None,
            compared: Vec::new(),
            keeps_replaced: false,
            kept: Vec::new(),
            kept_free_bytes: limits.kept_free_bytes,
            suspects: HashMap::new(),
            is_generation_unknown: false,
            commit_us: 0,
            taken_us: 0,
            pending: Pending::new(directory, limits.pending_bytes),
            batch: Batch::default(),
            image_bytes: limits.image_bytes,
        }
    }

    /// Takes the records of the work queue. In `Live` mode all their commits are in the file afterwards.
    ///
    /// # Errors
    /// See [`ApplyError`]; everything that was not committed is discarded, and `resume_scn` is where to start again.
    pub fn take_work_queue(
        &mut self,
        redo: Redo<'_>,
        mode: Mode,
        dirty_pages: &mut DirtyPages,
    ) -> Result<Done, ApplyError> {
        dirty_pages.clear(self.file.page_size().bytes());
        let work_queue = std::mem::take(&mut self.work_queue);
        let mut done = Done::default();
        let result = work_queue
            .iter()
            .try_for_each(|offset| self.take_record(redo, *offset, mode, dirty_pages, &mut done));
        let result = result.and_then(|()| match mode {
            Mode::Live => self.commit(dirty_pages, &mut done),
            Mode::Replay if dirty_pages.is_empty() => Ok(()),
            Mode::Replay => self.batch.spill(&mut self.file, dirty_pages),
        });
        self.work_queue = work_queue;
        self.work_queue.clear();
        result.map(|()| done).inspect_err(|_| self.give_up(dirty_pages))
    }

    /// Commits what a replay has taken; the caller then makes the database live.
    ///
    /// # Errors
    /// As for [`Database::take_work_queue`], and `WrittenTo` when suspect pages are left.
    pub fn finish_replay(&mut self, dirty_pages: &mut DirtyPages) -> Result<Done, ApplyError> {
        dirty_pages.clear(self.file.page_size().bytes());
        let mut done = Done::default();
        let foreign = std::mem::take(&mut self.suspects).into_keys().min().map(|page_no| {
            let why = format!("page {page_no} in its write-ahead log is none that the redo has");
            ApplyError::written_to(&self.name, why)
        });
        let result = foreign.map_or_else(|| self.commit(dirty_pages, &mut done), Err);
        result.map(|()| done).inspect_err(|_| self.give_up(dirty_pages))
    }

    fn take_record(
        &mut self,
        redo: Redo<'_>,
        offset: u32,
        mode: Mode,
        dirty_pages: &mut DirtyPages,
        done: &mut Done,
    ) -> Result<(), ApplyError> {
        let start = redo.first + u64::from(offset);
        let bytes = &redo.bytes[offset as usize..];
        let (record, length) =
            decode_record(bytes).map_err(|source| ApplyError::Redo { scn: start, source })?;
        let end = start + length as u64;
        self.explain(&record);
        match record {
            Record::Change { .. } => {
                self.pending.push(start, &bytes[..length]).map_err(|source| self.spill_failed(source))?
            }
            Record::Commit { database_pages, vectors, time_us, .. } if end > self.state => {
                self.taken_us = time_us;
                if self.keeps_replaced && self.pending.may_lack() {
                    self.keep_replaced(end, dirty_pages, done)?;
                }
                self.begin_commit(end, dirty_pages)?;
                self.batch.take(vectors, end, &self.file, dirty_pages)?;
                self.batch.end_commit(database_pages, end, dirty_pages);
                if dirty_pages.bytes() >= self.image_bytes {
                    match mode {
                        Mode::Live => self.commit(dirty_pages, done)?,
                        Mode::Replay => self.batch.spill(&mut self.file, dirty_pages)?,
                    }
                }
            }
            Record::Commit { .. } => self.pending.clear(),
            Record::Baseline { complete, .. } => {
                // A replay that begins here: what was there before may be that of a stopped database.
                let begins_here = mode == Mode::Replay && [self.resume_scn, self.state] == [start, start];
                if begins_here || self.file.pages() == 0 {
                    self.lacks_image = Some(start);
                }
                self.pending.begin_replacement(start, complete);
            }
            Record::Verification { run, database_pages, repair, vectors, .. } if end > self.state => {
                if repair {
                    // Whole pages as of this position: a commit that changes only damaged pages.
                    self.batch.begin_commit(&mut self.file, dirty_pages, false)?;
                    self.batch.take(vectors, end, &self.file, dirty_pages)?;
                    self.batch.end_commit(database_pages, end, dirty_pages);
                }
                if mode == Mode::Live {
                    self.commit(dirty_pages, done)?;
                    self.compare(run, end, database_pages, vectors)?;
                }
            }
            // Capture restarts: an open transaction has no commit.
            Record::WalGeneration { restart: true, .. } => self.pending.clear(),
            _ => {}
        }
        Ok(())
    }

    /// Keeps the content of the database in a file beside it, when the full resync image that ends at `end` may lack
    /// some of it. In a replay too: when the kept file does not exist, the image was never committed, so the redo
    /// before the image leads to a state that existed.
    fn keep_replaced(
        &mut self,
        end: Scn,
        dirty_pages: &mut DirtyPages,
        done: &mut Done,
    ) -> Result<(), ApplyError> {
        let path = path_of_kept(&self.file.plan().path, end);
        if !path.exists() {
            if self.commit(dirty_pages, done).is_err() {
                // The redo does not lead from the file to that state. The file is kept as it is.
                self.file.rollback();
                self.batch = Batch::default();
                dirty_pages.clear(self.file.page_size().bytes());
            }
            if self.file.pages() <= 1 {
                return Ok(());
            }
            keep(&self.file, &path, self.kept_free_bytes)?;
        }
        let bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        self.kept.push(Kept { path, bytes, scn: end });
        Ok(())
    }

    /// Removes the pages that a record has from the suspects.
    fn explain(&mut self, record: &Record<'_>) {
        if self.suspects.is_empty() {
            return;
        }
        match record {
            Record::Change { vectors, .. }
            | Record::Commit { vectors, .. }
            | Record::Verification { repair: true, vectors, .. } => {
                for vector in vectors.flatten() {
                    if self.suspects.get(&vector.page_no) == Some(&vector.sum_after) {
                        self.suspects.remove(&vector.page_no);
                    }
                }
            }
            // The image replaces all of the content.
            Record::Baseline { .. } => self.suspects.clear(),
            _ => {}
        }
    }

    /// Begins the commit that ends at `end`, with its pending change records.
    fn begin_commit(&mut self, end: Scn, dirty_pages: &mut DirtyPages) -> Result<(), ApplyError> {
        let replaces_all = self.pending.replaces_all();
        if self.lacks_image.is_some() && !replaces_all {
            return Err(ApplyError::NoImage { name: self.name.clone(), scn: end });
        }
        self.lacks_image = None;
        self.batch.begin_commit(&mut self.file, dirty_pages, replaces_all)?;
        if replaces_all {
            self.compared.push(Compared::Replaced);
        }
        if self.pending.start().is_none() {
            return Ok(());
        }
        let Database { pending, batch, file, name, image_bytes, .. } = self;
        let take = |record: &[u8]| -> Result<(), TakeError> {
            if let Ok((Record::Change { vectors, .. }, _)) = decode_record(record) {
                batch.take(vectors, end, file, dirty_pages).map_err(TakeError::Apply)?;
                if dirty_pages.bytes() >= *image_bytes {
                    batch.spill(file, dirty_pages).map_err(TakeError::Apply)?;
                }
            }
            Ok(())
        };
        pending.drain(take).map_err(|error| match error {
            TakeError::Apply(error) => error,
            TakeError::Io(source) => {
                ApplyError::Io { name: name.clone(), doing: "reading a large transaction", source }
            }
        })
    }

    /// Compares pages with the primary's, once everything before `end` is committed. A difference is reported, and redo
    /// is applied all the same: the other pages of the database are good, and the redo can be trusted.
    fn compare(
        &mut self,
        run: u64,
        scn: Scn,
        database_pages: u32,
        vectors: Vectors<'_>,
    ) -> Result<(), ApplyError> {
        let vectors: Vec<_> =
            vectors.collect::<Result<_, _>>().map_err(|source| ApplyError::Redo { scn, source })?;
        let lock_page = self.file.lock_page();
        let vectors = vectors.into_iter().filter(|vector| vector.page_no != lock_page);
        self.compared.push(match compare(self.file.plan(), vectors) {
            Ok(pages) => Compared::Pages { run, scn, database_pages, pages },
            Err(error) => Compared::Failed { run, error: error.in_one_line() },
        });
        Ok(())
    }

    fn commit(&mut self, dirty_pages: &mut DirtyPages, done: &mut Done) -> Result<(), ApplyError> {
        let (transactions, last_commit) = (self.batch.commits(), self.batch.last_commit());
        if transactions == 0 {
            return Ok(());
        }
        let pages = self.batch.finish(&mut self.file, dirty_pages, &self.name)?;
        self.state = last_commit;
        self.commit_us = self.commit_us.max(self.taken_us);
        (self.unsynced, self.unnoted, self.grown) = (true, true, true);
        done.transactions += transactions;
        done.pages += pages;
        Ok(())
    }

    /// Records that everything before `scn` has been consumed.
    pub fn advance(&mut self, scn: Scn) {
        self.read = self.read.max(scn);
        if self.condition == Condition::Live {
            let needed = self.lacks_image.or(self.pending.start()).unwrap_or(self.read);
            self.resume_scn = needed.max(self.resume_scn);
        }
    }

    /// Returns what is due for the WAL.
    pub fn what_is_due(&mut self, now: Checkpointed, every: u32, reset_at: u32) -> Action {
        let look = Look {
            raw_salts: now.raw_salts,
            frames: now.frames,
            backfilled: now.backfilled,
            grows: self.grown,
            backfill_frames: every,
            reset_frames: reset_at,
            ..Look::default()
        };
        self.file.what_is_due(look, self.durable_scn)
    }

    /// Returns the SCN before which redo is not needed, for content that is durable or will be by a sync of the WAL.
    pub fn durable_after_sync(&self) -> Scn {
        self.file.durable_after_sync(self.resume_scn, self.durable_scn)
    }

    /// Records that the file alone durably holds everything before `scn`. Returns the facts for the journal.
    pub fn file_holds_upto(&mut self, scn: Scn) -> [Fact; 2] {
        self.file_scn = self.file_scn.max(scn);
        [Fact::Durable { database: self.id, scn }, Fact::InFile { database: self.id, scn }]
    }

    /// Returns whether the WAL must be synced now instead of waiting until it is rewritten or backfilled. Called now
    /// and then.
    pub fn is_to_be_synced(&mut self) -> bool {
        if self.file.log() == State::Plain {
            return true;
        }
        let asked = if self.asked.0 == self.durable_scn { self.asked.2 + 1 } else { 0 };
        let rests = self.asked.1 == self.resume_scn;
        self.asked = (self.durable_scn, self.resume_scn, asked);
        rests || asked >= SYNC_ASKED_MAX
    }

    /// Prepares for a full resync: everything from the record at `scn` on replaces the content of the database,
    /// whatever that is.
    pub fn revive(&mut self, scn: Scn, mode: Mode) {
        self.suspects.clear();
        (self.revived, self.lacks_image) = (true, Some(scn));
        self.condition = mode.takes();
        (self.read, self.resume_scn, self.state, self.durable_scn) = (scn, scn, scn, scn);
    }

    /// Returns the start of the oldest change record of a transaction whose commit has not arrived.
    pub fn open_transaction_start(&self) -> Option<Scn> {
        self.pending.start()
    }

    /// Makes a replay take the redo of this database from its beginning here again.
    pub fn begin_again(&mut self) {
        self.give_up(&mut DirtyPages::default());
        (self.resume_scn, self.read, self.state) = (self.begin, self.begin, self.begin_state);
    }

    fn give_up(&mut self, dirty_pages: &mut DirtyPages) {
        self.file.rollback();
        self.batch = Batch::default();
        dirty_pages.clear(self.file.page_size().bytes());
        self.pending.clear();
        self.read = self.resume_scn;
    }

    fn spill_failed(&self, source: std::io::Error) -> ApplyError {
        let doing = match source.kind() {
            ErrorKind::StorageFull => "keeping a large transaction, no space left",
            _ => "keeping a large transaction",
        };
        ApplyError::Io { name: self.name.clone(), doing, source }
    }

    /// Returns whether a full resync image that has begun, or has to begin again, is to replace the whole content.
    pub fn is_being_replaced(&self) -> bool {
        self.lacks_image.is_some() || self.pending.replaces_all()
    }

    /// Drops a transaction without a commit record: after a failover the record will never come.
    pub fn drop_open_transaction(&mut self) {
        self.pending.clear();
    }
}

/// Why pending change records could not be taken.
enum TakeError {
    Apply(ApplyError),
    Io(std::io::Error),
}

impl From<std::io::Error> for TakeError {
    fn from(source: std::io::Error) -> TakeError {
        TakeError::Io(source)
    }
}
