//! `standfast verify`: are the pages of the standbys what they are here?
//!
//! A thread reads the pages of each database at a bounded rate and puts their checksums into the redo, at a position
//! where they are right (`primary/verification.rs`). Each standby compares when it applies that record, whatever the
//! network or its lag is like, and says what differs before it acknowledges the position. So a comparison needs neither
//! locks nor agreement between the instances, and commits go on. See `docs/decisions/0050-verification-in-the-redo.md`.

use crate::control::DatabaseRecord;
use crate::database::{committed_pages, open_guarded};
use crate::destination_groups::Ships;
use crate::error::InstanceError;
use crate::now_us;
use crate::primary::{ReadPage, Recorded};
use crate::running::{Running, RunningPrimary};
use rusqlite::{Connection, OptionalExtension};
use serde::Serialize;
use standfast_format::page_sum;
use standfast_transport::{DestinationStatus, PageDifference, Role};
use standfast_types::{DatabaseId, PageNo, Scn};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of pages that are read for one record, at most.
const CHUNK_BYTES: usize = 1 << 20;
/// Pages of a record at most.
const CHUNK_PAGES: usize = 1024;
/// Bytes of pages in one record that replaces them.
const REPAIR_BYTES: usize = 192 << 10;
/// A database that cannot be compared at the moment is waited for that long.
const OBSTACLE_WAIT: Duration = Duration::from_secs(60);
/// Time between two attempts, and between two looks at what standbys have applied.
const PAUSE: Duration = Duration::from_millis(20);
/// A standby whose apply has not moved for that long is not waited for any more.
const STANDSTILL: Duration = Duration::from_secs(60);
/// Pages that change while they are read are read again this often; those that change always are compared by apply.
const ROUNDS: usize = 3;
/// Rounds of a repair: each covers the pages that standbys have named.
const REPAIR_ROUNDS: usize = 100;

/// What is to be verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// One database, by name or path; `None`: all.
    pub database: Option<String>,
    /// Pages that differ are sent to the standbys.
    pub repair: bool,
    /// Bytes read a second; `None`: as configured.
    pub bytes_per_s: Option<u64>,
    /// It is a run of the schedule.
    pub scheduled: bool,
}

/// A run, under way or ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// Its number: when it began, microseconds since the Unix epoch.
    pub run: u64,
    /// `reading`, `waiting` for standbys to apply, `repairing`, `done` or `failed`.
    pub state: &'static str,
    /// When it ended.
    pub ended_us: Option<u64>,
    /// Whether it is one of the schedule.
    pub scheduled: bool,
    /// Whether pages that differ are sent.
    pub repair: bool,
    /// Pages to read.
    pub pages: u64,
    /// Pages read.
    pub pages_read: u64,
    /// Why it has failed.
    pub failure: Option<String>,
    /// What was found, in the order of the databases.
    pub databases: Vec<DatabaseResult>,
}

/// What was found of one database.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DatabaseResult {
    /// Its name.
    pub name: String,
    /// Pages whose checksums are in the redo.
    pub pages: u64,
    /// The position as of which the last of them are.
    pub scn: Option<Scn>,
    /// Why it was not compared.
    pub skipped: Option<String>,
    /// Pages that were sent to standbys.
    pub repaired: u64,
    /// Why pages that differ were not sent.
    pub not_repaired: Option<String>,
    /// By destination.
    pub destinations: Vec<DestinationResult>,
}

/// What a destination has found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DestinationResult {
    /// Its name.
    pub name: String,
    /// See [`Outcome`].
    pub outcome: Outcome,
    /// Pages compared there.
    pub compared: u64,
    /// Pages that differ.
    pub differing: u64,
    /// The first of them.
    pub pages: Vec<PageDifference>,
    /// What kept it from comparing.
    pub why: Option<String>,
}

/// How a comparison ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All pages are equal.
    Equal,
    /// Some differ.
    Differs,
    /// It has not compared them all.
    NotCompared,
    /// It applies redo with a delay, and will compare then.
    Later,
}

/// The newest run of an instance.
#[derive(Default)]
pub struct Verification {
    progress: Mutex<Option<Progress>>,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Verification {
    /// The newest run.
    pub fn progress(&self) -> Option<Progress> {
        self.lock().clone()
    }

    /// Begins a run; returns its number.
    ///
    /// # Errors
    /// `Refused` when one is under way, there is no such database or no standby, or the instance is no primary.
    pub fn begin(
        &self,
        running: &Running,
        primary: Arc<RunningPrimary>,
        wanted: &Wanted,
    ) -> Result<u64, InstanceError> {
        let control = running.environment.control();
        let records = match &wanted.database {
            None => control.databases.clone(),
            Some(name) => vec![control.database_named(name).cloned().ok_or_else(|| {
                let what = format!("{name} is not protected by this instance");
                InstanceError::refused(what, "`standfast status` lists the protected databases")
            })?],
        };
        if standbys(&primary).is_empty() {
            let hint = "add one with `standfast destination add NAME HOST:PORT`";
            return Err(InstanceError::refused("there is no standby to compare with", hint));
        }
        if wanted.bytes_per_s == Some(0) {
            return Err(InstanceError::refused(
                "nothing is read at a rate of 0",
                "give --rate a number of bytes",
            ));
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) || self.stop.load(SeqCst) {
            let hint = "`standfast status` shows how far it is; try again when it has ended";
            return Err(InstanceError::refused("a verification is under way", hint));
        }
        let run = now_us();
        *self.lock() = Some(Progress {
            run,
            state: "reading",
            ended_us: None,
            scheduled: wanted.scheduled,
            repair: wanted.repair,
            pages: 0,
            pages_read: 0,
            failure: None,
            databases: Vec::new(),
        });
        let Some(me) = running.me() else { return Ok(run) };
        let bytes_per_s = wanted.bytes_per_s.unwrap_or(me.environment.config.verify.bytes_per_s);
        let (repair, instruments) = (wanted.repair, me.environment.instruments.clone());
        let work = move || {
            instruments.enter_thread("vrfy");
            standfast_io::behind::run_behind();
            let run = Run { running: &me, primary: &primary, run, bytes_per_s, repair };
            let ended = run.carry_out(&records);
            run.end(ended);
        };
        let begun = std::thread::Builder::new().name("vrfy".into()).spawn(work);
        *thread = Some(begun.map_err(InstanceError::io(
            "begin the thread that verifies databases of",
            &running.environment.paths.directory,
        ))?);
        Ok(run)
    }

    /// Ends the run that is under way; none begins any more.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last owner of the instance may be the thread itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panic was reported by the runtime.
            let _ = thread.join();
        }
    }

    /// Begins a run when the schedule says so. Called now and then.
    pub fn look(&self, running: &Running) {
        let config = &running.environment.config.verify;
        let Some(primary) = running.primary().filter(|_| config.every_hours > 0) else { return };
        let every_us = config.every_hours * 3_600_000_000;
        let due = running.environment.of_control(|control| control.verify_due_us);
        let now = now_us();
        match next_run(due, now, every_us) {
            Schedule::Later => return,
            Schedule::Due => {
                let wanted = Wanted { scheduled: true, ..Wanted::default() };
                // Without a standby, or while one is under way, the next one is soon enough.
                let _ = self.begin(running, primary, &wanted);
            }
            Schedule::Unknown => {}
        }
        // One that cannot be written is tried again at the next look.
        let _ = running.environment.update_control(|control| control.verify_due_us = Some(now + every_us));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Progress>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut Progress)) {
        if let Some(progress) = self.lock().as_mut() {
            change(progress);
        }
    }
}

/// Whether a run of the schedule is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Schedule {
    /// There is no date yet.
    Unknown,
    /// Not yet.
    Later,
    /// Now.
    Due,
}

/// A date further away than one interval is of a longer one, or of a clock that was wrong.
fn next_run(due_us: Option<u64>, now_us: u64, every_us: u64) -> Schedule {
    match due_us {
        None => Schedule::Unknown,
        Some(due) if due > now_us + every_us => Schedule::Unknown,
        Some(due) if due > now_us => Schedule::Later,
        Some(_) => Schedule::Due,
    }
}

/// The destinations that have databases.
fn standbys(primary: &RunningPrimary) -> Vec<DestinationStatus> {
    let all = primary.destinations().status().into_iter().map(|(status, _)| status);
    all.filter(|status| status.role != Some(Role::FarSync)).collect()
}

/// What a destination has found of a database of which `pages` pages are in the redo, the last of them before `scn`.
fn assess(destination: &DestinationStatus, run: u64, name: &str, pages: u64, scn: Scn) -> DestinationResult {
    let found = destination.verified.of(name);
    let compared = found.filter(|found| found.run == run).map_or(0, |found| found.compared);
    let (differing, first) = found.map_or((0, Vec::new()), |found| (found.differing, found.pages.clone()));
    let is_stopped =
        |at: &standfast_transport::StoppedDatabase| at.database == name || at.database == "(all)";
    let held_back = destination.delay.is_some_and(|delay| !delay.is_zero());
    let (outcome, why) = if destination.applied >= scn && differing > 0 {
        (Outcome::Differs, None)
    } else if destination.stopped.databases.iter().any(is_stopped) {
        (Outcome::NotCompared, Some("redo is not applied to it there".to_owned()))
    } else if destination.applied < scn && held_back {
        (Outcome::Later, Some("redo is applied there with a delay".to_owned()))
    } else if destination.applied < scn {
        let why = format!(
            "it has applied redo up to SCN {} of {scn}, and is {}",
            destination.applied, destination.phase
        );
        (Outcome::NotCompared, Some(why))
    } else if compared < pages {
        let why =
            format!("{compared} of {pages} pages were compared there; it may have been restarted meanwhile");
        (Outcome::NotCompared, Some(why))
    } else {
        (Outcome::Equal, None)
    };
    DestinationResult { name: destination.name.clone(), outcome, compared, differing, pages: first, why }
}

/// The pages of a database that standbys have named, and those of them that two standbys hold with the same other
/// content: there the page here is more likely to be the damaged one.
fn pages_to_repair(destinations: &[DestinationStatus], name: &str) -> (BTreeSet<PageNo>, BTreeSet<PageNo>) {
    let (mut all, mut agreed, mut seen) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let found = destinations.iter().filter_map(|destination| destination.verified.of(name));
    for page in found.flat_map(|found| &found.pages) {
        all.insert(page.page);
        if page.found.is_some() && !seen.insert((page.page, page.found)) {
            agreed.insert(page.page);
        }
    }
    (&all - &agreed, agreed)
}

/// A run.
struct Run<'a> {
    running: &'a Running,
    primary: &'a RunningPrimary,
    run: u64,
    bytes_per_s: u64,
    repair: bool,
}

/// What became of a chunk of pages.
struct Chunk {
    scn: Scn,
    pages: u64,
    changed: Vec<PageNo>,
    database_pages: u32,
}

/// Why a database is not compared, or that the whole run ends.
enum Obstacle {
    /// Of this database.
    Skipped(String),
    /// Of all.
    Ended(InstanceError),
}

impl From<InstanceError> for Obstacle {
    fn from(error: InstanceError) -> Obstacle {
        Obstacle::Ended(error)
    }
}

impl Run<'_> {
    fn verification(&self) -> &Verification {
        self.running.verification()
    }

    fn carry_out(&self, records: &[DatabaseRecord]) -> Result<(), InstanceError> {
        for record in records {
            let mut result = DatabaseResult { name: record.name.clone(), ..DatabaseResult::default() };
            match self.read(record, &mut result) {
                Ok(()) => {}
                Err(Obstacle::Skipped(why)) => result.skipped = Some(why),
                Err(Obstacle::Ended(error)) => return Err(error),
            }
            self.verification().update(|progress| progress.databases.push(result));
        }
        self.set_state("waiting");
        self.await_standbys()?;
        self.assess_all();
        if self.repair {
            self.set_state("repairing");
            for record in records {
                self.repair(record)?;
            }
            self.assess_all();
        }
        Ok(())
    }

    fn set_state(&self, state: &'static str) {
        self.verification().update(|progress| progress.state = state);
    }

    /// Records how it ended.
    fn end(&self, ended: Result<(), InstanceError>) {
        let alert = &self.running.environment.alert;
        let text = match &ended {
            Err(error) => Some(format!("verification has ended: {error}")),
            Ok(()) => self.verification().progress().map(|progress| summary(&progress)),
        };
        if let Some(text) = text {
            alert.say(text);
        }
        self.verification().update(|progress| {
            progress.ended_us = Some(now_us());
            progress.state = if ended.is_ok() { "done" } else { "failed" };
            progress.failure = ended.err().map(|error| error.to_string());
        });
    }

    fn check_stop(&self) -> Result<(), InstanceError> {
        match self.verification().stop.load(SeqCst) || self.running.is_stopping() {
            true => Err(InstanceError::Failed("the instance is stopped".into())),
            false => Ok(()),
        }
    }

    /// Puts the checksums of all pages of a database into the redo.
    fn read(&self, record: &DatabaseRecord, result: &mut DatabaseResult) -> Result<(), Obstacle> {
        let database = self.primary.threads.shared().database(record.id);
        let Some(database) = database else { return Err(Obstacle::Skipped("it is offline".into())) };
        let skipped = |error: InstanceError| Obstacle::Skipped(error.to_string());
        database.believed().map_err(skipped)?;
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

    fn open(&self, record: &DatabaseRecord) -> Result<Connection, InstanceError> {
        let reader = open_guarded(&record.path, self.running.environment.vfs_base.as_deref())?;
        reader.busy_timeout(Duration::from_secs(5))?;
        // What is in the file is to be read, not what was in it when it was read before.
        reader.execute_batch("PRAGMA mmap_size=0; PRAGMA cache_size=16")?;
        Ok(reader)
    }

    /// Reads pages and puts them into the redo: their checksums, or all of them for a repair.
    fn record(
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
                // One that is not there any more was cut off, which the log writer knows by then.
                read.extend(found.optional()?);
            }
        }
        transaction.finish()?;
        Ok(read)
    }

    /// Waits until reading `bytes` since `began` has not been faster than the rate.
    fn keep_pace(&self, began: Instant, bytes: usize) -> Result<(), InstanceError> {
        let due = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
        while let Some(left) = due.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            self.check_stop()?;
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
        Ok(())
    }

    /// A page that differed from a former primary's and was written since is no longer what it was.
    fn forget_rewritten(&self, id: DatabaseId, read: &[ReadPage]) {
        let environment = &self.running.environment;
        let is_rewritten = |at: &crate::control::DifferingPage| {
            let now = read.iter().find(|page| page.page_no == at.difference.page);
            at.database == id && now.is_some_and(|page| Some(page.sum) != at.difference.found)
        };
        if environment.of_control(|control| control.differing.iter().any(is_rewritten)) {
            // What cannot be written stays as it is, and is found again by the next run.
            let _ = environment.update_control(|control| control.differing.retain(|at| !is_rewritten(at)));
        }
    }

    /// Waits until every standby has applied all that this run has put into the redo, or does not get on.
    fn await_standbys(&self) -> Result<(), InstanceError> {
        let ends = self.verification().progress().into_iter().flat_map(|progress| progress.databases);
        let Some(end) = ends.filter_map(|database| database.scn).max() else { return Ok(()) };
        self.await_applied(end)
    }

    fn await_applied(&self, end: Scn) -> Result<(), InstanceError> {
        let mut moved = Instant::now();
        let mut before = Vec::new();
        loop {
            self.check_stop()?;
            let waited_for = |at: &DestinationStatus| {
                let held_back = at.delay.is_some_and(|delay| !delay.is_zero());
                at.applied < end && !held_back && matches!(at.phase, "streaming" | "catching_up")
            };
            let behind: Vec<_> = standbys(self.primary).into_iter().filter(waited_for).collect();
            let positions: Vec<_> = behind.iter().map(|at| (at.name.clone(), at.applied)).collect();
            if positions.is_empty() || moved.elapsed() > STANDSTILL {
                return Ok(());
            }
            if positions != before {
                (moved, before) = (Instant::now(), positions);
            }
            if let Some(why) = self.primary.threads.failure() {
                return Err(InstanceError::Failed(why));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Takes down what the standbys have found by now.
    fn assess_all(&self) {
        let standbys = standbys(self.primary);
        self.verification().update(|progress| {
            for database in &mut progress.databases {
                let Some(scn) = database.scn else { continue };
                let (name, pages) = (&database.name, database.pages);
                let found = standbys.iter().map(|at| assess(at, self.run, name, pages, scn));
                database.destinations = found.collect();
            }
        });
    }

    fn note_repair(&self, name: &str, change: impl FnOnce(&mut DatabaseResult)) {
        self.verification().update(|progress| {
            if let Some(found) = progress.databases.iter_mut().find(|database| database.name == name) {
                change(found);
            }
        });
    }

    /// Sends the pages of a database that standbys have named.
    fn repair(&self, record: &DatabaseRecord) -> Result<(), InstanceError> {
        let name = &record.name;
        if pages_to_repair(&standbys(self.primary), name).0.is_empty() {
            return self.note_agreed(name);
        }
        let refused = |why: String| self.note_repair(name, |found| found.not_repaired = Some(why));
        let checked = self.open(record).and_then(|reader| {
            let said: String = reader.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
            Ok((reader, said))
        });
        let mut reader = match checked {
            Ok((reader, said)) if said == "ok" => reader,
            Ok((_, said)) => {
                refused(format!("the database here is damaged itself: {said}"));
                return Ok(());
            }
            Err(error) => {
                refused(format!("the database here cannot be checked: {error}"));
                return Ok(());
            }
        };
        let chunk_pages = (REPAIR_BYTES / record.page_size.bytes()).max(1);
        let mut fewest = usize::MAX;
        let mut futile = 0;
        for _ in 0..REPAIR_ROUNDS {
            let pages: Vec<PageNo> = pages_to_repair(&standbys(self.primary), name).0.into_iter().collect();
            futile = if pages.len() < fewest { 0 } else { futile + 1 };
            fewest = fewest.min(pages.len());
            if pages.is_empty() || futile > ROUNDS {
                break;
            }
            for pages in pages.chunks(chunk_pages) {
                match self.record(record, &mut reader, pages, true) {
                    Ok(chunk) => {
                        self.note_repair(name, |found| {
                            found.repaired += chunk.pages;
                            found.scn = Some(chunk.scn);
                        });
                        self.await_applied(chunk.scn)?;
                    }
                    Err(Obstacle::Skipped(why)) => {
                        refused(why);
                        return Ok(());
                    }
                    Err(Obstacle::Ended(error)) => return Err(error),
                }
            }
        }
        self.note_agreed(name)
    }

    fn note_agreed(&self, name: &str) -> Result<(), InstanceError> {
        let (_, agreed) = pages_to_repair(&standbys(self.primary), name);
        if let Some(first) = agreed.first() {
            let why = format!(
                "several standbys hold the same other content of {} pages, page {first} the first: the page here is \
                 likely to be the damaged one",
                agreed.len()
            );
            self.note_repair(name, |found| found.not_repaired = Some(why));
        }
        Ok(())
    }
}

/// How a run ended, for the alert log.
fn summary(progress: &Progress) -> String {
    let pages: u64 = progress.databases.iter().map(|database| database.pages).sum();
    let repaired: u64 = progress.databases.iter().map(|database| database.repaired).sum();
    let of = |wanted: Outcome| {
        let destinations = progress.databases.iter().flat_map(|database| &database.destinations);
        destinations.filter(|found| found.outcome == wanted).count()
    };
    let skipped = progress.databases.iter().filter(|database| database.skipped.is_some()).count();
    let mut text =
        format!("verification: {} databases, {pages} pages compared", progress.databases.len() - skipped);
    let differing = of(Outcome::Differs);
    match differing {
        0 => text += ", no difference found",
        copies => text += &format!(", DIFFERENCES in {copies} copies"),
    }
    if repaired > 0 {
        text += &format!(", {repaired} pages sent again");
    }
    let missed = of(Outcome::NotCompared) + of(Outcome::Later) + skipped;
    if missed > 0 {
        text += &format!("; not compared: {missed}");
    }
    if differing + missed > 0 {
        text += " | hint: `standfast status` says what";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_transport::{
        Standing, StoppedDatabase, TransportMode, VerifiedDatabase, VerifiedDatabases,
    };

    fn difference(page: PageNo, found: u32) -> PageDifference {
        PageDifference { page, scn: Scn(90), expected: 1, found: Some(found) }
    }

    fn destination(applied: u64, found: VerifiedDatabase) -> DestinationStatus {
        DestinationStatus {
            name: "north".into(),
            address: "127.0.0.1:1".into(),
            mode: TransportMode::SyncAffirm,
            phase: "streaming",
            standing: Standing::Required,
            received: Scn(applied),
            hardened: Scn(applied),
            applied: Scn(applied),
            stopped: Default::default(),
            verified: VerifiedDatabases { differing: found.differing, databases: vec![found] },
            role: Some(Role::Standby),
            failures: 0,
            redo_bytes: 0,
            wire_bytes: 0,
            tcp_segments: 0,
            tcp_retransmitted: 0,
            round_trip_us: 0,
            network_round_trip_us: None,
            responses: Default::default(),
            log_write_us: None,
            delay: None,
            last_heard_us: None,
            last_trouble: None,
            gap: None,
        }
    }

    fn verified(run: u64, compared: u64, pages: Vec<PageDifference>) -> VerifiedDatabase {
        let differing = pages.len() as u64;
        VerifiedDatabase { database: "a.db".into(), run, compared, scn: Scn(90), differing, pages }
    }

    fn outcome(destination: &DestinationStatus) -> Outcome {
        assess(destination, 7, "a.db", 50, Scn(100)).outcome
    }

    #[test]
    fn a_copy_is_equal_only_when_every_page_of_the_run_was_compared() {
        assert_eq!(outcome(&destination(100, verified(7, 50, vec![]))), Outcome::Equal);
        assert_eq!(outcome(&destination(100, verified(7, 49, vec![]))), Outcome::NotCompared);
        assert_eq!(outcome(&destination(100, verified(6, 50, vec![]))), Outcome::NotCompared);
        assert_eq!(outcome(&destination(99, verified(7, 50, vec![]))), Outcome::NotCompared);
        assert_eq!(outcome(&destination(100, verified(7, 50, vec![difference(3, 9)]))), Outcome::Differs);
        let mut stopped = destination(100, verified(7, 50, vec![]));
        let why = StoppedDatabase { database: "a.db".into(), applied: None, reason: "why".into() };
        stopped.stopped.databases.push(why);
        assert_eq!(outcome(&stopped), Outcome::NotCompared);
        let late = DestinationStatus {
            delay: Some(Duration::from_secs(60)),
            ..destination(5, verified(7, 0, vec![]))
        };
        assert_eq!(outcome(&late), Outcome::Later);
    }

    #[test]
    fn a_page_that_two_standbys_hold_alike_is_not_repaired() {
        let one = destination(100, verified(7, 50, vec![difference(3, 9), difference(4, 9)]));
        let other = destination(100, verified(7, 50, vec![difference(3, 8), difference(4, 9)]));
        let (repair, agreed) = pages_to_repair(&[one, other], "a.db");
        assert_eq!((repair, agreed), ([3].into(), [4].into()));
    }

    #[test]
    fn the_schedule_begins_an_interval_after_the_first_look() {
        const HOUR: u64 = 3_600_000_000;
        assert_eq!(next_run(None, 1000, HOUR), Schedule::Unknown);
        assert_eq!(next_run(Some(1000 + HOUR), 1000, HOUR), Schedule::Later);
        assert_eq!(next_run(Some(1000), 1000, HOUR), Schedule::Due);
        assert_eq!(next_run(Some(1001 + HOUR), 1000, HOUR), Schedule::Unknown, "the interval was shortened");
    }
}
