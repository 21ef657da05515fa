//! The commit path of a primary: capture what is dirty, hand it to the destinations, write it, and release waiting
//! commits. One thread (`lgwr`) runs [`Primary::step`]; nothing here waits for the network.
//!
//! An acknowledged commit is safe because of the order of events in a step:
//! 1. new frames become records of one chunk, in the order of the stream;
//! 2. there is room for the chunk in the current log group, else the log is switched first;
//! 3. the chunk enters the log buffer and is offered to the destinations;
//! 4. the chunk is written durably in all members;
//! 5. commits are released as far as the local log and every required destination have them.
//!
//! If a batch leaves redo for the next one, as a large transaction does, the next one captures while the chunk is
//! written.

mod chunks;
mod in_flight;
pub(crate) mod log_switch;
mod shared;
mod verification;
mod watched_pages;

pub use shared::{NoShipping, PrimaryShared, Shipping};
pub use verification::{ReadPage, Recorded};

use crate::commit::baseline::BaselineJob;
use crate::commit::database::Database;
use crate::commit::foreign_commits::ForeignCommits;
use in_flight::{InFlight, Then};
use standfast_environment::config::error::InstanceError;
use standfast_environment::ship::open_database::recover_index;
use standfast_environment::state::now::now_us;
use standfast_format::{Attach, RecordBuilder};
use standfast_instruments::{Event, Statistic, waiting};
use standfast_log::{LogSwitch, LogWriter, SwitchBlocked, WriteCounts};
use standfast_session::{DatabaseState, DirtySet, Segment, monotonic_ns};
use standfast_sqlite_wal::WalIndexHeader;
use standfast_sqlite_wal::capture::{Capture, CaptureError, CaptureOutcome, CommitMark, Epoch};
use standfast_sqlite_wal::guard::Guard;
use standfast_types::{DatabaseId, Hint, ReleasePosition, Scn, WalPosition, WalSalts};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use watched_pages::WatchedPages;

/// A batch of capture ends once it has produced this many bytes, so that a burst does not delay its first commit.
const CAPTURE_BYTES_MAX: usize = 1 << 20;
/// Interval at which every database is polled for commits without a notification, whatever else is captured meanwhile.
const POLL_NS: u64 = 100_000_000;
/// If an unannounced generation or a torn header persists for this long, the instance repairs it.
const HEAL_AFTER: Duration = Duration::from_millis(20);

/// Work for the log writer thread, in stream order.
pub type Command = Box<dyn FnOnce(&mut Primary) -> Result<(), InstanceError> + Send>;

/// Result of a step, for the loop around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Wrote {
        commits: usize,
    },
    Idle,
    /// Something is dirty and cannot be captured yet; retry in about a millisecond.
    Blocked,
}

/// Helper of the log writer: does what the log writer's thread must not do itself, also while it waits for a log group.
pub trait SwitchHelper: Send {
    /// The log cannot be switched; called repeatedly. An error makes the log writer stop waiting.
    fn blocked(&mut self, why: SwitchBlocked) -> Result<(), InstanceError>;
    fn switched(&mut self, switch: &LogSwitch);
    /// Recovery can start at `candidate` once every database is synced.
    fn checkpoint_candidate(&mut self, candidate: Scn);
    /// A database needs a full resync; the helper prepares a [`BaselineJob`] and passes it in as a command.
    fn resynchronise(&mut self, database: Arc<Database>, why: String);
    /// The full resync image is in the redo.
    fn resynchronised(&mut self, database: &Arc<Database>);
}

/// State of the redo about a database that begins to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Known,
    /// Announced by an attach record, for standbys that are copied later.
    New,
    /// Announced by an attach record to standbys that do not know it. The caller begins a full resync, whose image
    /// replaces everything earlier.
    NewWithCopy,
}

struct Served {
    capture: Capture,
    shared: Arc<Database>,
    /// Since when capture is obstructed; `None` while it is not.
    obstructed: Option<Instant>,
    baseline: Option<BaselineJob>,
    /// Waiting for a full resync; nothing is captured.
    awaiting_baseline: bool,
    /// The database has failed: it is neither captured nor anchored; its redo is kept.
    is_offline: bool,
    /// Commits may be waiting that the redo held before the database was served.
    release_due: bool,
    foreign: ForeignCommits,
    /// Position of the redo when serving began: commits up to here are not counted.
    counted_after: ReleasePosition,
    /// Pages that are being read for a comparison.
    watched: Option<WatchedPages>,
}

impl Served {
    /// Epoch and salts of the published generation, in which sessions wait.
    fn generation(&self, segment: &Segment) -> (u32, [u32; 2]) {
        generation_of(segment, &self.shared, || self.capture.header())
    }
}

/// Returns [`Segment::epoch`], first advancing it if `header` shows a new generation that contains a commit. No commit
/// of that generation is captured before, so sessions wait in an epoch that stands for their generation.
fn generation_of(
    segment: &Segment,
    database: &Database,
    header: impl FnOnce() -> Option<WalIndexHeader>,
) -> (u32, [u32; 2]) {
    let id = database.id().0;
    // Read first: the header must not be older than the epoch.
    let published = segment.epoch(id);
    match header().filter(|_| !database.begins_generation()) {
        Some(header) if header.frames() > 0 && header.raw_salts() != published.1 => {
            segment.adopt_generation(id, published, header.raw_salts());
            segment.epoch(id)
        }
        _ => published,
    }
}

/// The commit path; runs on the log writer thread.
pub struct Primary {
    shared: Arc<PrimaryShared>,
    writer: LogWriter,
    served: BTreeMap<u16, Served>,
    helper: Box<dyn SwitchHelper>,
    retry: DirtySet,
    out: Vec<u8>,
    marks: Vec<CommitMark>,
    in_flight: VecDeque<InFlight>,
    heal_after: Duration,
    batch_bytes_max: usize,
    anchors_due: bool,
    /// End of the anchor records at the beginning of the current log.
    noted: Scn,
    /// Something dirty is left for the next batch, because this one is full.
    left_over: bool,
    /// When gathering into `out` began, by [`monotonic_ns`].
    taken_ns: u64,
    /// When the databases were last polled, by [`monotonic_ns`].
    polled_ns: u64,
    /// Counts of the writer that the statistics already include; the statistics continue when a new writer begins.
    counted: WriteCounts,
}

impl Primary {
    /// Returns a primary that writes through `writer` and serves no database yet.
    pub fn new(shared: Arc<PrimaryShared>, writer: LogWriter, helper: Box<dyn SwitchHelper>) -> Primary {
        Primary {
            shared,
            writer,
            served: BTreeMap::new(),
            helper,
            retry: DirtySet::default(),
            out: Vec::new(),
            marks: Vec::new(),
            in_flight: VecDeque::new(),
            heal_after: HEAL_AFTER,
            batch_bytes_max: CAPTURE_BYTES_MAX,
            anchors_due: false,
            noted: Scn::ZERO,
            left_over: false,
            taken_ns: monotonic_ns(),
            polled_ns: 0,
            counted: WriteCounts::default(),
        }
    }

    /// Repairs obstructions immediately; for simulations without time.
    pub fn heal_at_once(&mut self) {
        self.heal_after = Duration::ZERO;
    }

    /// Limits the redo of one batch, which must fit into a group; for simulations with small log groups.
    pub fn limit_batch(&mut self, bytes: usize) {
        self.batch_bytes_max = bytes;
    }

    pub fn set_helper(&mut self, helper: Box<dyn SwitchHelper>) {
        self.helper = helper;
    }

    /// State shared between the threads of the primary.
    pub fn shared(&self) -> &Arc<PrimaryShared> {
        &self.shared
    }

    pub fn writer(&mut self) -> &mut LogWriter {
        &mut self.writer
    }

    /// Begins to serve a database whose capture stands where the redo ends.
    ///
    /// # Errors
    /// When the redo cannot be written.
    pub fn serve(
        &mut self,
        shared: Arc<Database>,
        mut capture: Capture,
        entry: Entry,
    ) -> Result<(), InstanceError> {
        let record = shared.record().clone();
        let counted_after = self.try_settle_epoch(&shared);
        let announced = self.shared.segment.announced(record.id.0);
        self.taken_ns = monotonic_ns();
        if entry != Entry::Known {
            let attach = Attach { database: record.id, page_size: record.page_size, name: &record.name };
            RecordBuilder::attach(&mut self.out, &attach);
        }
        let awaiting_baseline = entry == Entry::NewWithCopy;
        if awaiting_baseline {
            // Before the anchor, so that after a power loss before the image is complete recovery does not find this
            // database known.
            RecordBuilder::baseline(&mut self.out, record.id, !shared.image_may_lack());
        }
        capture.anchor(&mut self.out);
        shared.set_owes_image(awaiting_baseline);
        let release_due = !awaiting_baseline && !self.mark_position(&shared, &capture);
        let databases = &self.shared.databases;
        databases.write().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(record.id, shared.clone());
        let foreign = ForeignCommits::new(announced);
        let served = Served {
            capture,
            shared,
            obstructed: None,
            baseline: None,
            awaiting_baseline,
            is_offline: false,
            release_due,
            foreign,
            counted_after,
            watched: None,
        };
        self.served.insert(record.id.0, served);
        self.shared.segment.mark_dirty(record.id.0);
        self.write_out(Then::Wait)
    }

    /// Counts everything that the redo holds of the database as captured; waiting commits are released with the chunk
    /// in progress. Returns false, without effect, while sessions count frames of another generation.
    fn mark_position(&mut self, shared: &Database, capture: &Capture) -> bool {
        let (epoch, [first, second]) = self.shared.segment.epoch(shared.id().0);
        if capture.position().salts != WalSalts(u32::from_be(first), u32::from_be(second)) {
            return false;
        }
        let release = ReleasePosition::new(epoch, capture.position().frame);
        self.marks.push(CommitMark { database: shared.id(), end: self.out.len(), release });
        true
    }

    /// Makes the sessions' epoch stand for the current WAL generation. Skips this if a transaction has the write lock,
    /// because the log writer's thread waits for no database; it is then done later, as for a session that has died.
    /// Returns what is published.
    fn try_settle_epoch(&self, shared: &Database) -> ReleasePosition {
        if let Some(connection) = shared.try_connection()
            && let Ok(guard) = Guard::of(&connection)
            && guard.hold_write_lock().is_ok()
        {
            if let Ok(header) = guard.wal_header() {
                shared.announce(&self.shared.segment, header.raw_salts());
            }
            guard.release_write_lock();
        }
        let frames = shared.header().map_or(0, |header| header.frames());
        ReleasePosition::new(generation_of(&self.shared.segment, shared, || shared.header()).0, frames)
    }

    /// Requests a full resync of a served database; it begins as soon as its writers allow.
    pub fn copy_when_possible(&mut self, id: DatabaseId) {
        if let Some(served) = self.served.get_mut(&id.0) {
            served.awaiting_baseline = false;
            served.shared.request_resync();
            self.retry_soon(id.0);
        }
    }

    /// Stops serving a database, which may be excluded, and informs standbys.
    ///
    /// # Errors
    /// When the redo cannot be written.
    pub fn release_database(&mut self, id: DatabaseId) -> Result<(), InstanceError> {
        self.served.remove(&id.0);
        RecordBuilder::detach(&mut self.out, id);
        self.shared.databases.write().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&id);
        self.write_out(Then::Wait)
    }

    /// Starts writing a full resync image of a database into the redo, in chunks between commits of other databases.
    pub fn start_baseline(&mut self, job: BaselineJob) {
        if let Some(served) = self.served.get_mut(&job.database().0) {
            let id = job.database().0;
            if served.is_offline {
                return;
            }
            served.baseline = Some(job);
            served.awaiting_baseline = true;
            served.shared.set_owes_image(true);
            served.watched = None;
            self.retry_soon(id);
        }
    }

    /// Writes anchor records: where every database stands. Recovery can start at the returned position once the
    /// databases are synced: frames captured by then are in their WALs, including those of a partly captured
    /// transaction, because only committed transactions are captured.
    ///
    /// # Errors
    /// When the redo cannot be written.
    pub fn anchor_all(&mut self) -> Result<Scn, InstanceError> {
        self.write_out(Then::Wait)?;
        let start = self.shared.buffer.captured();
        // No anchor while an image is incomplete: recovery has to copy that database again. No anchor for a failed
        // database either: the redo may lack what capture last held.
        let is_known = |served: &&mut Served| !served.awaiting_baseline && !served.is_offline;
        for served in self.served.values_mut().filter(is_known) {
            served.capture.anchor(&mut self.out);
        }
        self.write_chunk(Then::Wait)?;
        Ok(start)
    }

    /// Writes the record of a clean end of the redo.
    ///
    /// # Errors
    /// When the redo cannot be written.
    pub fn end_of_redo(&mut self) -> Result<(), InstanceError> {
        self.taken_ns = monotonic_ns();
        RecordBuilder::end_of_redo(&mut self.out, now_us());
        self.write_out(Then::Wait)
    }

    /// Writes records that do not come from capture.
    ///
    /// # Errors
    /// When the redo cannot be written.
    pub fn append(&mut self, build: impl FnOnce(&mut Vec<u8>)) -> Result<(), InstanceError> {
        self.taken_ns = monotonic_ns();
        build(&mut self.out);
        self.write_out(Then::Wait)
    }

    /// Runs one batch: commands, then everything dirty.
    ///
    /// # Errors
    /// Any error here ends the primary; unacknowledged commits stay unacknowledged.
    pub fn step(&mut self) -> Result<Step, InstanceError> {
        let commands = self.shared.take_commands();
        if !commands.is_empty() {
            self.end_writes()?;
            self.do_log_work();
        }
        for command in commands {
            // Gathering begins now, not at the last write, which may be hours ago.
            self.taken_ns = monotonic_ns();
            command(self)?;
        }
        self.step_once()
    }

    /// Runs one batch without commands; callable from a command.
    ///
    /// # Errors
    /// See [`Primary::step`].
    pub fn step_once(&mut self) -> Result<Step, InstanceError> {
        self.writer.end_those_done()?;
        self.note_ended();
        self.taken_ns = monotonic_ns();
        let mut dirty = self.shared.segment.take_dirty();
        dirty.merge(&std::mem::take(&mut self.retry));
        self.batch(&dirty)
    }

    fn batch(&mut self, dirty: &DirtySet) -> Result<Step, InstanceError> {
        let now = now_us();
        for id in dirty.iter() {
            self.capture_database(id, now);
        }
        if !self.out.is_empty() || !self.marks.is_empty() {
            let more = std::mem::take(&mut self.left_over);
            let _wait = more.then(|| waiting(Event::LogBufferSpace));
            let commits = self.marks.len();
            self.write_out(if more { Then::Resume } else { Then::Wait })?;
            return Ok(Step::Wrote { commits });
        }
        self.end_writes()?;
        Ok(if self.retry.is_empty() { Step::Idle } else { Step::Blocked })
    }

    /// Captures what is new in a database. An error concerns no other database: the records that this call appended are
    /// removed, and the database is resynced or taken offline. Returns whether everything published at the time of the
    /// call is captured.
    fn capture_database(&mut self, id: u16, now: u64) -> bool {
        let (bytes, marks) = (self.out.len(), self.marks.len());
        let failed = match self.capture_changes(id, now) {
            Ok(is_complete) => return is_complete,
            Err(error) => error,
        };
        // The last record may be incomplete.
        self.out.truncate(bytes);
        self.marks.truncate(marks);
        match failed {
            InstanceError::Capture(error @ (CaptureError::ForeignFrame { .. } | CaptureError::Io(_)))
                if self.served.get(&id).is_some_and(|served| served.baseline.is_none()) =>
            {
                self.resynchronise(id, error.in_one_line());
            }
            error => self.take_offline(id, &error),
        }
        false
    }

    /// Stops capturing and acknowledging the database until a restart; its redo is kept.
    fn take_offline(&mut self, id: u16, why: &InstanceError) {
        let Some(served) = self.served.get_mut(&id) else { return };
        served.is_offline = true;
        served.baseline = None;
        served.watched = None;
        served.shared.fail(format!("it cannot be captured: {}", why.as_a_reason()));
        // The checkpointer reports it to the operator and the control file within half a second.
        self.shared.segment.set_state(id, DatabaseState::Failed);
        self.shared.segment.wake_all(id);
    }

    fn capture_changes(&mut self, id: u16, now: u64) -> Result<bool, InstanceError> {
        let Some(served) = self.served.get_mut(&id).filter(|served| !served.is_offline) else {
            return Ok(false);
        };
        if served.shared.is_index_lost() {
            let what = "another process has made the -shm file shorter".to_owned();
            return Err(CaptureError::BadIndex { what }.into());
        }
        if let Some(job) = &mut served.baseline {
            if job.copy_part(self.batch_bytes_max, now, &mut self.out)? {
                let (position, pages) = (job.position(), job.pages());
                if position.frame > 0 {
                    served.shared.set_changed(self.shared.buffer.captured() + self.out.len() as u64);
                }
                // Cleared before `adopt`: if the WAL was restarted meanwhile, no redo continues from the state of the
                // image, and a capture error must lead to another resync.
                served.baseline = None;
                served.capture.adopt(position, pages)?;
                served.capture.anchor(&mut self.out);
                served.awaiting_baseline = false;
                served.shared.set_owes_image(false);
                self.helper.resynchronised(&served.shared);
                let release = release_of(served.generation(&self.shared.segment), served.capture.position());
                self.marks.push(CommitMark { database: DatabaseId(id), end: self.out.len(), release });
            }
            self.retry_soon(id);
            return Ok(false);
        }
        if served.awaiting_baseline {
            return Ok(false);
        }
        if served.shared.take_resync() {
            self.resynchronise(id, "asked for".into());
            return Ok(false);
        }
        let (number, raw_salts) = served.generation(&self.shared.segment);
        // Read before capture reads what is published: all announced commits are included.
        let announced = self.shared.segment.announced(id);
        let first_mark = self.marks.len();
        let epoch = Epoch { number, raw_salts };
        let before = self.out.len();
        let outcome =
            served.capture.capture(epoch, now, self.batch_bytes_max, &mut self.out, &mut self.marks)?;
        if let Some(frame) = served.capture.take_unsummed() {
            served.shared.note_unsummed(frame);
        }
        if self.out.len() > before {
            let end = self.shared.buffer.captured() + self.out.len() as u64;
            served.shared.set_in_redo(end);
            if self.marks.len() > first_mark || served.capture.in_transaction() {
                served.shared.set_changed(end);
            }
            if let Some(watched) = &mut served.watched {
                watched.note(&self.out[before..]);
            }
        }
        let found = &self.marks[first_mark..];
        self.shared.instruments.add(Statistic::UserCommits, found.len() as u64);
        // In ascending order: except for the first few after a start, all are beyond `counted_after`.
        let counted = found.iter().rev().take_while(|mark| mark.release > served.counted_after).count();
        served.foreign.captured(counted);
        if served.capture.take_rewritten_entered() {
            // Frame numbers restart, and the redo already holds what the rewritten WAL begins with.
            let release = ReleasePosition::new(number, served.capture.position().frame);
            self.marks.push(CommitMark { database: DatabaseId(id), end: self.out.len(), release });
        }
        if served.release_due && self.marks.len() == first_mark {
            let WalSalts(first, second) = served.capture.position().salts;
            if raw_salts == [first.to_be(), second.to_be()] {
                let release = ReleasePosition::new(number, served.capture.position().frame);
                self.marks.push(CommitMark { database: DatabaseId(id), end: self.out.len(), release });
            }
        }
        served.release_due &= self.marks.len() == first_mark;
        match outcome {
            CaptureOutcome::UpToDate => {
                served.obstructed = None;
                served.foreign.read(announced);
                return Ok(true);
            }
            CaptureOutcome::More => {
                self.left_over = true;
                self.retry_soon(id);
            }
            CaptureOutcome::Torn | CaptureOutcome::Unannounced => {
                let since = *served.obstructed.get_or_insert_with(Instant::now);
                if since.elapsed() >= self.heal_after {
                    self.heal(id);
                }
                self.retry_soon(id);
            }
        }
        Ok(false)
    }

    fn retry_soon(&mut self, id: u16) {
        self.retry.insert(id);
    }

    /// Does what a session would have done, had it survived or used the VFS: recovers a torn header as SQLite does, and
    /// announces a WAL generation.
    fn heal(&mut self, id: u16) {
        let Some(served) = self.served.get_mut(&id) else { return };
        let shared = served.shared.clone();
        let Some(connection) = shared.try_connection() else { return };
        if served.shared.header().is_none() && recover_index(&connection).is_err() {
            return;
        }
        let Ok(guard) = Guard::of(&connection) else { return };
        if guard.hold_write_lock().is_ok() {
            let published = guard.wal_header();
            if let Ok(header) = published {
                shared.announce(&self.shared.segment, header.raw_salts());
                served.obstructed = None;
            }
            guard.release_write_lock();
        }
    }

    /// Requests a full resync of the database, to begin as soon as possible; its commits wait until then.
    pub(crate) fn resynchronise(&mut self, id: u16, why: String) {
        if let Some(served) = self.served.get_mut(&id) {
            served.awaiting_baseline = true;
            served.shared.set_owes_image(true);
            served.watched = None;
            self.helper.resynchronise(served.shared.clone(), why);
        }
    }

    /// Whether a [poll](Primary::poll) is due, by the clock reading of the last step.
    pub fn poll_is_due(&self) -> bool {
        self.taken_ns.saturating_sub(self.polled_ns) >= POLL_NS
    }

    /// How long the log writer may sleep until the next poll.
    pub fn until_poll(&self) -> Duration {
        Duration::from_nanos(POLL_NS.saturating_sub(monotonic_ns().saturating_sub(self.polled_ns)))
    }

    /// Marks databases dirty whose published commits are not all captured, with or without a notification: processes
    /// without the VFS send none, nor does a session killed before it could. Reads mapped memory only. Counts commits
    /// made without the VFS per database.
    pub fn poll(&mut self) {
        let now_ns = monotonic_ns();
        self.polled_ns = now_ns;
        let segment = self.shared.segment;
        for (id, served) in self.served.iter_mut().filter(|(_, served)| !served.is_offline) {
            let announced = segment.announced(*id);
            match served.capture.header() {
                Some(header) if served.capture.holds(&header) => served.foreign.read(announced),
                _ => segment.mark_dirty(*id),
            }
            if served.foreign.is_due(now_ns) {
                let commits = served.foreign.end_interval(now_ns, segment.take_orphans(*id));
                if commits > 0 {
                    served.shared.add_foreign_commits(commits, now_us());
                }
            }
        }
    }

    /// Captures and writes everything published now, from any connection. Waits up to `limit` for what cannot be
    /// captured immediately: an unannounced generation, or a header being written. Later commits need not be included:
    /// a process without the VFS may continue forever.
    ///
    /// # Errors
    /// When the redo cannot be written.
    pub fn capture_published(&mut self, limit: Duration) -> Result<(), InstanceError> {
        let end = Instant::now() + limit;
        let published = |served: &Served| served.capture.header().map(|header| header.position());
        let mut awaited: Vec<_> = self.served.iter().map(|(id, served)| (*id, published(served))).collect();
        loop {
            for (id, _) in &awaited {
                self.shared.segment.mark_dirty(*id);
            }
            let step = self.step_once()?;
            awaited.retain(|(id, first)| {
                let served = self.served.get(id).filter(|served| !served.awaiting_baseline);
                served.is_some_and(|served| is_behind(*first, served.capture.position(), published(served)))
            });
            if awaited.is_empty() || Instant::now() >= end {
                return Ok(());
            }
            if !matches!(step, Step::Wrote { .. }) {
                // Nothing wakes this thread when another process publishes or ends.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Whether capture has not yet reached `published`; `current` is published now. `None`: the header was, or is, being
/// written. Pure.
fn is_behind(published: Option<WalPosition>, captured: WalPosition, current: Option<WalPosition>) -> bool {
    let Some(published) = published.or(current) else { return true };
    if published.frame == 0 {
        return false;
    }
    if published.salts == captured.salts {
        return captured.frame < published.frame;
    }
    // Capture may have moved to a later generation, after capturing this one.
    current.is_none_or(|current| current.salts != captured.salts)
}

/// Returns what to release to sessions at `epoch` when the redo holds everything up to `captured`. A writer may have
/// restarted the WAL since: frames of the new generation have the same numbers, and none of them is captured.
fn release_of((epoch, raw_salts): (u32, [u32; 2]), captured: WalPosition) -> ReleasePosition {
    let [first, second] = raw_salts.map(u32::from_be);
    let is_same = WalSalts(first, second) == captured.salts;
    ReleasePosition::new(epoch, if is_same { captured.frame } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::WalSalts;

    #[test]
    fn capture_is_behind_until_it_reaches_the_published_frame() {
        let at = |generation, frame| WalPosition { salts: WalSalts(generation, 0), frame };
        assert!(is_behind(Some(at(1, 5)), at(1, 4), Some(at(1, 9))));
        assert!(!is_behind(Some(at(1, 5)), at(1, 5), Some(at(1, 9))), "what followed is not awaited");
        assert!(is_behind(Some(at(2, 1)), at(1, 5), Some(at(2, 1))), "a generation without announcement");
        assert!(!is_behind(Some(at(2, 1)), at(3, 1), Some(at(3, 1))), "that one is over");
        assert!(!is_behind(Some(at(2, 0)), at(1, 5), Some(at(2, 0))), "an empty log");
        assert!(is_behind(None, at(1, 5), None), "being written");
        assert!(is_behind(None, at(1, 5), Some(at(1, 6))) && !is_behind(None, at(1, 6), Some(at(1, 6))));
    }

    #[test]
    fn copy_of_the_old_wal_releases_no_frames_of_the_restarted_wal() {
        let captured = WalPosition { salts: WalSalts(5, 6), frame: 100 };
        let raw = |salts: [u32; 2]| salts.map(u32::to_be);
        assert_eq!(release_of((7, raw([5, 6])), captured), ReleasePosition::new(7, 100));
        let restarted = release_of((8, raw([6, 9])), captured);
        assert!(restarted > ReleasePosition::new(7, 100), "what is in the copy is released");
        assert!(restarted < ReleasePosition::new(8, 1), "the first commit behind it is not");
    }
}
