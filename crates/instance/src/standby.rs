//! A standby: the receiver's log, and the thread that applies what is in it.

use crate::control::{DatabaseRecord, Incarnation};
use crate::environment::Environment;
use crate::error::InstanceError;
use standfast_apply::{Apply, ApplyConfig, ApplyEvent, ApplyReport, Limits, StartPoint};
use standfast_format::{LogKind, StreamCrc};
use standfast_log::{LogBuffer, LogIdentity, LogWriter, RecordReader, RedoLog};
use standfast_transport as transport;
use standfast_transport::{StandbyLog, StationError, StreamStart};
use standfast_types::Scn;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Redo kept in memory between receiver and apply; what is older is read from the log.
const BUFFER_BYTES: usize = 32 << 20;
/// Largest stretch of redo given to apply at once.
const STRETCH_BYTES: usize = 16 << 20;
const SYNC_EVERY: Duration = Duration::from_secs(1);
const RETRY_APPLY: Duration = Duration::from_secs(5);

/// Positions and wake-ups between receiver and apply.
pub struct StandbyShared {
    /// Received redo in memory.
    pub buffer: Mutex<Arc<LogBuffer>>,
    /// The standby redo log.
    pub log: Arc<RedoLog>,
    hardened: AtomicU64,
    confirmed: AtomicU64,
    applied: AtomicU64,
    transactions: AtomicU64,
    stop: AtomicBool,
    news: Mutex<bool>,
    news_came: Condvar,
    errors: Mutex<BTreeMap<String, String>>,
    last_heard_us: AtomicU64,
}

impl StandbyShared {
    fn new(log: Arc<RedoLog>, end: Scn, confirmed: Scn) -> StandbyShared {
        StandbyShared {
            buffer: Mutex::new(Arc::new(LogBuffer::new(end, BUFFER_BYTES))),
            log,
            hardened: AtomicU64::new(end.0),
            confirmed: AtomicU64::new(confirmed.0),
            applied: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            news: Mutex::new(false),
            news_came: Condvar::new(),
            errors: Mutex::default(),
            last_heard_us: AtomicU64::new(0),
        }
    }

    /// End of the redo in the standby log.
    pub fn hardened(&self) -> Scn {
        Scn(self.hardened.load(SeqCst))
    }
    /// What the primary has confirmed durable, as hardened here.
    pub fn confirmed(&self) -> Scn {
        Scn(self.confirmed.load(SeqCst))
    }
    /// How far apply is.
    pub fn applied(&self) -> Scn {
        Scn(self.applied.load(SeqCst))
    }
    /// Transactions applied since the start.
    pub fn transactions(&self) -> u64 {
        self.transactions.load(SeqCst)
    }
    /// When something last came from the primary, microseconds since the Unix epoch; 0 never.
    pub fn last_heard_us(&self) -> u64 {
        self.last_heard_us.load(SeqCst)
    }
    /// Databases that are not applied to, and why.
    pub fn errors(&self) -> BTreeMap<String, String> {
        self.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn set_error(&self, database: &str, error: Option<String>) {
        let mut errors = self.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match error {
            Some(error) => errors.insert(database.to_owned(), error),
            None => errors.remove(database),
        };
    }

    fn buffer(&self) -> MutexGuard<'_, Arc<LogBuffer>> {
        self.buffer.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn wake(&self) {
        let mut news = self.news.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*news {
            *news = true;
            self.news_came.notify_one();
        }
    }

    fn wait_for_news(&self, timeout: Duration) {
        let mut news = self.news.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*news {
            news = match self.news_came.wait_timeout(news, timeout) {
                Ok((news, _)) => news,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        *news = false;
    }
}

/// The standby redo log as the receiver writes it.
pub struct ReceivedLog {
    environment: Arc<Environment>,
    shared: Arc<StandbyShared>,
    writer: LogWriter,
    archive: Arc<dyn Fn() + Send + Sync>,
}

impl ReceivedLog {
    /// Ends the log at `end`, the end of the last whole record, and archives all of it. Returns the running
    /// sum there.
    ///
    /// # Errors
    /// When the log cannot be written or archived.
    pub fn close_at(&mut self, end: Scn) -> Result<StreamCrc, InstanceError> {
        self.writer.cut(end, end)?;
        let crc = self.writer.stream_crc();
        let log = self.shared.log.clone();
        let keep = log.checkpoint();
        crate::primary_threads::archive_all(&log, u64::MAX, keep)?;
        // Everything is applied and synced: any group may be reused.
        log.set_checkpoint(end);
        if !self.writer.group_is_empty() && self.writer.switch(crate::now_us())?.is_ok() {
            crate::primary_threads::archive_all(&log, u64::MAX, keep)?;
        }
        Ok(crc)
    }

    fn note_end(&self, confirmed: Scn) {
        self.shared.hardened.store(self.writer.position().0, SeqCst);
        self.shared.confirmed.fetch_max(confirmed.0, SeqCst);
        self.shared.last_heard_us.store(crate::now_us(), SeqCst);
    }

    /// A whole batch may be larger than what is left in the group: the rest goes to a group of its own only
    /// when the primary says so, hence groups here are at least as large as the primary's.
    fn write(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, StationError> {
        let end = self.writer.write(slices, confirmed)?;
        let bytes = slices.concat();
        let buffer = self.shared.buffer().clone();
        buffer.append(bytes);
        buffer.set_durable(end);
        self.note_end(confirmed);
        Ok(end)
    }
}

impl StandbyLog for ReceivedLog {
    fn received_end(&self) -> Scn {
        self.writer.position()
    }

    fn confirmed(&self) -> Scn {
        self.shared.confirmed()
    }

    fn applied(&self) -> Scn {
        self.shared.applied()
    }

    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, StationError> {
        if at == self.writer.position() {
            return Ok(Some(self.writer.stream_crc()));
        }
        Ok(self.shared.log.stream_crc(at)?)
    }

    fn read(&self, from: Scn, bytes: usize) -> Result<Vec<u8>, StationError> {
        let mut out = Vec::new();
        while out.len() < bytes {
            let before = out.len();
            self.shared.log.read(from + before as u64, self.writer.position(), bytes - before, &mut out)?;
            if out.len() == before {
                return Err(format!("the standby log ends before SCN {}", from + bytes as u64).into());
            }
        }
        Ok(out)
    }

    fn log_containing(&self, at: Scn) -> Option<transport::LogSwitch> {
        self.shared.log.log_containing(at).map(crate::shipping::log_switch)
    }

    fn cut(&mut self, at: Scn) -> Result<(), StationError> {
        self.writer.cut(at, self.shared.confirmed())?;
        *self.shared.buffer() = Arc::new(LogBuffer::new(at, BUFFER_BYTES));
        self.note_end(Scn::ZERO);
        Ok(())
    }

    fn begin(&mut self, start: &StreamStart) -> Result<(), StationError> {
        let known = |incarnation: &transport::Incarnation| Incarnation {
            number: incarnation.number,
            id: incarnation.id,
            branch: incarnation.branch,
            time_us: 0,
        };
        let incarnations: Vec<Incarnation> = start.source.incarnations.iter().map(known).collect();
        self.environment.update_control(|control| {
            let same = |a: &Incarnation, b: &Incarnation| a.id == b.id && a.branch == b.branch;
            let equal = control.incarnations.len() == incarnations.len()
                && control.incarnations.iter().zip(&incarnations).all(|(a, b)| same(a, b));
            if !equal {
                control.incarnations = incarnations;
            }
        })?;
        Ok(())
    }

    fn append(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, StationError> {
        standfast_io::fault::check(standfast_io::fault::Fault::Received)?;
        self.write(slices, confirmed)
    }

    fn switch(&mut self, log: &transport::LogSwitch) -> Result<(), StationError> {
        let identity = self.identity_of(log);
        if log.sequence == self.writer.sequence() && identity == self.writer.identity() {
            return Ok(());
        }
        let switch = standfast_log::LogSwitch {
            sequence: log.sequence,
            first_scn: log.first_scn,
            time_us: log.time_us,
            first_record: log.first_record,
        };
        loop {
            match self.writer.switch_to(&switch, identity)? {
                Ok(_) => break,
                Err(_) if self.shared.stop.load(SeqCst) => return Err("stopped while waiting for a standby log".into()),
                Err(_) => {
                    (self.archive)();
                    self.shared.wake();
                    std::thread::park_timeout(Duration::from_millis(2));
                }
            }
        }
        (self.archive)();
        Ok(())
    }

    fn confirm(&mut self, confirmed: Scn) -> Result<(), StationError> {
        if self.writer.write_confirmed(confirmed)? {
            self.note_end(confirmed);
        }
        Ok(())
    }

    fn hardened_notice(&self) {
        self.shared.wake();
    }
}

impl ReceivedLog {
    fn identity_of(&self, log: &transport::LogSwitch) -> LogIdentity {
        let control = self.environment.control();
        let entered = |incarnation: &&Incarnation| {
            incarnation.branch < log.first_scn || (incarnation.branch == log.first_scn && log.sequence == 1)
        };
        let found = control.incarnations.iter().rev().find(entered).or(control.incarnations.first());
        match found {
            Some(incarnation) => LogIdentity {
                instance: control.family,
                incarnation: incarnation.number,
                incarnation_id: incarnation.id,
            },
            None => self.writer.identity(),
        }
    }
}

/// The log as the receiver holds it; the instance keeps the other reference for a failover.
pub struct LentLog(pub Arc<Mutex<ReceivedLog>>);

impl LentLog {
    /// See [`ReceivedLog::close_at`].
    ///
    /// # Errors
    /// As there.
    pub fn close_at(&self, end: Scn) -> Result<StreamCrc, InstanceError> {
        self.log().close_at(end)
    }

    fn log(&self) -> MutexGuard<'_, ReceivedLog> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl StandbyLog for LentLog {
    fn received_end(&self) -> Scn {
        self.log().received_end()
    }
    fn confirmed(&self) -> Scn {
        self.log().confirmed()
    }
    fn applied(&self) -> Scn {
        self.log().applied()
    }
    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, StationError> {
        self.log().stream_crc(at)
    }
    fn read(&self, from: Scn, bytes: usize) -> Result<Vec<u8>, StationError> {
        self.log().read(from, bytes)
    }
    fn log_containing(&self, at: Scn) -> Option<transport::LogSwitch> {
        self.log().log_containing(at)
    }
    fn cut(&mut self, at: Scn) -> Result<(), StationError> {
        self.log().cut(at)
    }
    fn begin(&mut self, start: &StreamStart) -> Result<(), StationError> {
        self.log().begin(start)
    }
    fn append(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, StationError> {
        self.log().append(slices, confirmed)
    }
    fn switch(&mut self, log: &transport::LogSwitch) -> Result<(), StationError> {
        self.log().switch(log)
    }
    fn confirm(&mut self, confirmed: Scn) -> Result<(), StationError> {
        self.log().confirm(confirmed)
    }
    fn hardened_notice(&self) {
        self.log().hardened_notice();
    }
}

/// A running standby.
pub struct Standby {
    shared: Arc<StandbyShared>,
    apply: Option<JoinHandle<Result<Apply, InstanceError>>>,
    archiver: Option<JoinHandle<()>>,
    archive: std::sync::mpsc::Sender<bool>,
}

impl Standby {
    /// Opens the standby log and the databases and starts to apply. Returns the log for the receiver.
    ///
    /// # Errors
    /// When the log or the apply journal cannot be opened.
    pub fn start(environment: &Arc<Environment>) -> Result<(Standby, ReceivedLog), InstanceError> {
        let config = environment.log_config(LogKind::Standby);
        let (log, writer, recovered) = RedoLog::open(environment.disk.clone(), config)?;
        // What is in synced databases counts as confirmed: it was when it was applied.
        let confirmed = recovered.confirmed.max(environment.control().checkpoint).min(recovered.end);
        let shared = Arc::new(StandbyShared::new(log.clone(), recovered.end, confirmed));
        let (archive, orders) = std::sync::mpsc::channel();
        let archiver = {
            let (environment, log, shared) = (environment.clone(), log.clone(), shared.clone());
            let run = move || run_archiver(&environment, &log, &shared, &orders);
            Builder::new().name("arc0".into()).spawn(run)
        };
        let archiver = archiver.map_err(InstanceError::io(&environment.paths.directory))?;
        let apply = {
            let (environment, shared) = (environment.clone(), shared.clone());
            let applier = open_apply(&environment, &shared)?;
            let run = move || run_apply(&environment, &shared, applier);
            Builder::new().name("mrp0".into()).spawn(run)
        };
        let apply = apply.map_err(InstanceError::io(&environment.paths.directory))?;
        let order = archive.clone();
        let _ = archive.send(true);
        let received = ReceivedLog {
            environment: environment.clone(),
            shared: shared.clone(),
            writer,
            archive: Arc::new(move || drop(order.send(true))),
        };
        Ok((Standby { shared, apply: Some(apply), archiver: Some(archiver), archive }, received))
    }

    /// Positions.
    pub fn shared(&self) -> &Arc<StandbyShared> {
        &self.shared
    }

    /// Ends apply and archiving and gives back what applies, for a failover.
    ///
    /// # Errors
    /// What ended apply.
    pub fn stop(mut self) -> Result<Apply, InstanceError> {
        self.shared.stop.store(true, SeqCst);
        self.shared.wake();
        let _ = self.archive.send(false);
        if let Some(archiver) = self.archiver.take() {
            let _ = archiver.join();
        }
        match self.apply.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(InstanceError::Failed("the apply thread has ended abnormally".into())),
        }
    }
}

fn run_archiver(
    environment: &Environment,
    log: &RedoLog,
    shared: &StandbyShared,
    orders: &std::sync::mpsc::Receiver<bool>,
) {
    let mut said = false;
    loop {
        let order = orders.recv_timeout(Duration::from_millis(500));
        match order {
            Ok(false) | Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
            Ok(true) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) if !said => continue,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
        }
        // A log whose end the primary has not confirmed may still be cut.
        let confirmed = log.to_archive().first().is_none_or(|(_, next)| *next <= shared.confirmed());
        if !confirmed {
            continue;
        }
        let limit = environment.config.redo.archive_bytes_max;
        match crate::primary_threads::archive_all(log, limit, log.checkpoint()) {
            Ok(()) => said = false,
            Err(error) if !said => {
                said = true;
                environment.alert.say(format!("archiving failed and will be tried again: {error}"));
            }
            Err(_) => {}
        }
    }
}

fn open_apply(environment: &Arc<Environment>, shared: &Arc<StandbyShared>) -> Result<Apply, InstanceError> {
    let config = ApplyConfig {
        directory: environment.paths.databases.clone(),
        journal: environment.paths.apply_journal.clone(),
        disk: environment.disk.clone(),
        vfs_base: environment.vfs_base.clone(),
        workers: environment.config.standby.apply_workers,
        limits: Limits::default(),
    };
    let told = environment.clone();
    let mut apply = Apply::open(config, Box::new(move |event| remember(&told, event)))?;
    for record in environment.control().databases {
        let start = StartPoint { scn: record.start_scn, redo_from: record.redo_from, empty: record.begun_empty };
        if let Err(error) = apply.attach_existing(record.id, &record.name, record.page_size, start) {
            environment.alert.say(format!("standby database {} cannot be opened: {error}", record.name));
            shared.set_error(&record.name, Some(error.to_string()));
        }
    }
    Ok(apply)
}

/// The catalogue of databases follows the redo.
fn remember(environment: &Environment, event: &ApplyEvent) -> std::io::Result<()> {
    let changed = match event {
        ApplyEvent::Attached { database, name, page_size, scn } => environment.update_control(|control| {
            if control.databases.iter().all(|record| record.id != *database) {
                control.databases.push(DatabaseRecord {
                    id: *database,
                    name: name.clone(),
                    path: environment.paths.databases.join(name),
                    page_size: *page_size,
                    start_scn: *scn,
                    redo_from: *scn,
                    begun_empty: true,
                });
                control.next_database = control.next_database.max(database.0 + 1);
            }
        }),
        ApplyEvent::Detached { database, .. } => {
            environment.update_control(|control| control.databases.retain(|record| record.id != *database))
        }
        ApplyEvent::EndOfRedo { .. } | ApplyEvent::Incarnation { .. } => Ok(()),
    };
    if let ApplyEvent::Attached { .. } = event {
        for record in environment.control().databases {
            let _ = environment.write_marker(&record);
        }
    }
    changed.map_err(|error| std::io::Error::other(error.to_string()))
}

struct FromLog<'a> {
    log: &'a Arc<RedoLog>,
}

impl standfast_apply::RedoSource for FromLog<'_> {
    fn read(&mut self, from: Scn, upto: Scn, out: &mut Vec<u8>) -> std::io::Result<()> {
        let mut reader = RecordReader::new(self.log.clone(), from, upto);
        while out.len() < STRETCH_BYTES / 4 {
            match reader.next_record() {
                Ok(Some((record, _))) => out.extend_from_slice(record),
                Ok(None) => break,
                Err(error) => return Err(std::io::Error::other(error.to_string())),
            }
        }
        Ok(())
    }
}

fn run_apply(environment: &Environment, shared: &Arc<StandbyShared>, mut apply: Apply) -> Result<Apply, InstanceError> {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and concerns this thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let result = apply_until_stopped(environment, shared, &mut apply);
    if let Err(error) = &result {
        environment.alert.say(format!("apply has ended: {error}"));
        shared.set_error("(all)", Some(error.to_string()));
        // The receiver goes on: what it hardens is not lost.
        while !shared.stop.load(SeqCst) {
            shared.wait_for_news(Duration::from_secs(1));
        }
    }
    result.map(|()| apply)
}

fn apply_until_stopped(environment: &Environment, shared: &Arc<StandbyShared>, apply: &mut Apply) -> Result<(), InstanceError> {
    let start = environment.control().checkpoint;
    let from = apply.resume_scn().unwrap_or(start);
    let report = apply.recover(from, shared.confirmed(), &mut FromLog { log: &shared.log })?;
    note_report(environment, shared, &report);
    shared.applied.store(apply.applied().0, SeqCst);
    let mut feed = Feed { next: apply.applied(), bytes: Vec::new(), first: apply.applied() };
    let mut last_sync = Instant::now();
    let mut retry_at = Instant::now() + RETRY_APPLY;
    let mut dirty = true;
    while !shared.stop.load(SeqCst) {
        if !environment.config.standby.apply {
            shared.wait_for_news(SYNC_EVERY);
            continue;
        }
        let progressed = feed.apply_more(environment, shared, apply, shared.confirmed())?;
        dirty |= progressed;
        let mut report = ApplyReport::default();
        if progressed {
            apply.checkpoint_if_due(&mut report)?;
        }
        if dirty && last_sync.elapsed() >= SYNC_EVERY {
            dirty = progressed;
            last_sync = Instant::now();
            let durable = apply.sync(&mut report)?;
            forget_before(environment, shared, durable)?;
        }
        note_report(environment, shared, &report);
        if Instant::now() >= retry_at && !shared.errors().is_empty() {
            retry_at = Instant::now() + RETRY_APPLY;
            retry(environment, shared, apply)?;
            feed = Feed { next: apply.applied(), bytes: Vec::new(), first: apply.applied() };
        }
        if !progressed {
            shared.wait_for_news(if dirty { SYNC_EVERY } else { Duration::from_secs(5) });
        }
    }
    Ok(())
}

fn retry(environment: &Environment, shared: &Arc<StandbyShared>, apply: &mut Apply) -> Result<(), InstanceError> {
    if let Some(from) = apply.retry_failed() {
        let report = apply.recover(from, apply.applied(), &mut FromLog { log: &shared.log })?;
        for record in environment.control().databases {
            shared.set_error(&record.name, None);
        }
        note_report(environment, shared, &report);
    }
    Ok(())
}

/// Standby logs before `durable` may be reused.
fn forget_before(environment: &Environment, shared: &StandbyShared, durable: Scn) -> Result<(), InstanceError> {
    // The control file is written when a log becomes free, not every second.
    let freed = shared.log.switches(shared.log.checkpoint(), durable).last().map(|switch| switch.first_scn);
    if let Some(freed) = freed.filter(|freed| *freed > shared.log.checkpoint()) {
        environment.update_control(|control| control.checkpoint = control.checkpoint.max(freed))?;
        shared.log.set_checkpoint(freed);
    }
    Ok(())
}

fn note_report(environment: &Environment, shared: &StandbyShared, report: &ApplyReport) {
    shared.transactions.fetch_add(report.transactions, SeqCst);
    for (id, error) in &report.errors {
        let control = environment.control();
        let record = control.databases.iter().find(|record| record.id == *id);
        let name = record.map_or_else(|| id.to_string(), |record| record.name.clone());
        environment.alert.say(format!("apply: {error}"));
        shared.set_error(&name, Some(error.to_string()));
    }
}

/// Redo on its way to apply: what was received, cut to whole records.
struct Feed {
    /// Position of `bytes[0]`.
    first: Scn,
    bytes: Vec<u8>,
    /// Position after `bytes`.
    next: Scn,
}

impl Feed {
    /// Applies what there is up to `upto`; false when there was nothing.
    fn apply_more(
        &mut self,
        environment: &Environment,
        shared: &Arc<StandbyShared>,
        apply: &mut Apply,
        upto: Scn,
    ) -> Result<bool, InstanceError> {
        while self.next < upto && self.bytes.len() < STRETCH_BYTES {
            let before = self.next;
            self.take(shared, upto)?;
            if self.next == before {
                break;
            }
        }
        if self.bytes.is_empty() {
            return Ok(false);
        }
        let report = apply.apply(self.first, &self.bytes, upto)?;
        let done = apply.applied().bytes_since(self.first) as usize;
        if done == 0 {
            return Ok(false);
        }
        self.bytes.drain(..done.min(self.bytes.len()));
        self.first = apply.applied();
        shared.applied.store(self.first.0, SeqCst);
        note_report(environment, shared, &report);
        Ok(true)
    }

    /// Takes the next received bytes, from memory while they are there.
    fn take(&mut self, shared: &StandbyShared, upto: Scn) -> Result<(), InstanceError> {
        let buffer = shared.buffer().clone();
        let chunks = buffer.chunk_start(self.next).and_then(|start| buffer.chunks(start, STRETCH_BYTES));
        match chunks {
            Some(chunks) => {
                for chunk in chunks {
                    let from = self.next.bytes_since(chunk.first) as usize;
                    let until = (upto.bytes_since(chunk.first) as usize).min(chunk.bytes.len());
                    if from < until {
                        self.bytes.extend_from_slice(&chunk.bytes[from..until]);
                        self.next = self.next + (until - from) as u64;
                    }
                }
            }
            None => {
                let before = self.bytes.len();
                shared.log.read(self.next, upto, STRETCH_BYTES, &mut self.bytes)?;
                self.next = self.next + (self.bytes.len() - before) as u64;
            }
        }
        Ok(())
    }
}

/// Applies everything that is whole in the log, confirmed or not: the last act of a standby before it becomes
/// primary. Returns the end of the last whole record.
///
/// # Errors
/// When the log cannot be read or apply ends.
pub fn apply_everything(
    environment: &Environment,
    shared: &Arc<StandbyShared>,
    apply: &mut Apply,
) -> Result<Scn, InstanceError> {
    let mut feed = Feed { next: apply.applied(), bytes: Vec::new(), first: apply.applied() };
    let end = shared.hardened();
    while feed.apply_more(environment, shared, apply, end)? {}
    Ok(apply.applied())
}
