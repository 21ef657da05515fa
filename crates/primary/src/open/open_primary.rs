//! From files to a primary that can serve: recovery of the redo log, then of every database.

use crate::checkpoint::checkpointer::redo_before_data;
use crate::commit::baseline::{BaselineJob, owed_image};
use crate::commit::database::Database;
use crate::commit::primary::{Entry, Primary, PrimaryShared, SwitchHelper};
use crate::commit::whole_file::{note_when_all_backfilled, stamp_without_wal};
use crate::open::foreign_watch;
use crate::open::primary_threads::PrimaryThreads;
use crate::open::reconcile::{self, Anchor, Found, Plan, Scan};
use crate::open::recovery::{Recovery, check_identity};
use crate::open::swap;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::archiving::archive_at_once;
use standfast_environment::ship::members::note_members;
use standfast_environment::state::control::{Control, DatabaseRecord, LastingIdentity, OwedImage, WholeFile};
use standfast_format::LogKind;
use standfast_log::{LogBuffer, LogError, LostRedo, RedoLog};
use standfast_session::{DatabaseState, Segment};
use standfast_sqlite_wal::capture::{Capture, check_index};
use standfast_sqlite_wal::guard::{Guard, GuardError};
use standfast_sqlite_wal::pace::Pace;
use standfast_sqlite_wal::{WalIndexHeader, bare_salts, cut_stale_frames, write_again};
use standfast_types::{DatabaseId, Hint, Scn, hint};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A primary whose databases are recovered and served, before its threads run.
pub struct OpenedPrimary {
    pub primary: Primary,
    pub shared: Arc<PrimaryShared>,
    pub log: Arc<RedoLog>,
    /// Databases that other processes hold locked.
    pub late: Late,
}

/// Databases that [`open_late`] opens while the others are served.
#[derive(Debug, Default)]
pub struct Late {
    pub databases: Vec<DatabaseId>,
    /// Whether the shared memory survived from before the start.
    pub sessions_confirm: bool,
}

/// How long a start waits, in total, for databases that other processes have locked. Then it serves the other
/// databases.
const LOCKED_TIMEOUT: Duration = Duration::from_secs(4);
/// Longest wait for one database: a transaction in progress, or a recovery by an application.
const ONE_TIMEOUT: Duration = Duration::from_millis(1_000);
/// Shortest wait for one database, even when [`LOCKED_TIMEOUT`] is used up.
const TIMEOUT_MIN: Duration = Duration::from_millis(10);
/// Wait per attempt for a database that is opened late, while the others are served.
const LATE_TIMEOUT: Duration = Duration::from_millis(100);

/// What is left of [`LOCKED_TIMEOUT`] for the databases that are still to be opened.
struct TimeLeft {
    left: Duration,
}

impl TimeLeft {
    fn for_one(&self) -> Duration {
        self.left.clamp(TIMEOUT_MIN, ONE_TIMEOUT)
    }

    fn spend(&mut self, waited: Duration) {
        self.left = self.left.saturating_sub(waited);
    }
}

struct Reconciled {
    database: Arc<Database>,
    capture: Capture,
    image_reason: Option<&'static str>,
    found: FoundFile,
}

/// What was found out about the file of a database. Durable before the database is served.
struct FoundFile {
    database: DatabaseId,
    identity: Option<LastingIdentity>,
    whole: Option<WholeFile>,
    owed: Option<OwedImage>,
}

impl FoundFile {
    fn note(&self, control: &mut Control) {
        control.know_file(self.database, self.identity);
        if let Some(whole) = self.whole {
            control.note_whole(whole);
        }
        if let Some(owed) = self.owed {
            control.owe_image(owed);
        }
    }
}

/// Recovers and opens everything. Sessions are let in when the caller sets the databases' states.
///
/// # Errors
/// When the redo log cannot be opened. A database that cannot be opened is reported and excluded; the control file
/// records from which SCN on it may lack redo.
pub fn open_primary(
    environment: &Arc<Environment>,
    helper: Box<dyn SwitchHelper>,
) -> Result<OpenedPrimary, InstanceError> {
    let control = environment.control();
    let (log, mut writer, recovered) =
        RedoLog::open(environment.disk.clone(), environment.log_config(LogKind::Online))?;
    note_members(environment, &log)?;
    if let Some(LostRedo { path, from, to }) = recovered.lost {
        let error = LogError::LostEnd { path, from, to };
        if environment.until_scn != Some(from) {
            return Err(error.into());
        }
        environment.alert.say(format!("opened until SCN {from}: {}", error.in_one_line()));
    }
    log.set_checkpoint(control.checkpoint);
    // The newest redo before the checkpoint also says what the files should hold. At a failover the files were just
    // written.
    let is_new = control.incarnation().branch == control.checkpoint;
    let earlier = match reconcile::log_before(&log, control.checkpoint) {
        Some(from) if !is_new => reconcile::checksums_between(&log, from, control.checkpoint),
        _ => Default::default(),
    };
    let scan = reconcile::scan(&log, control.checkpoint, recovered.end, earlier)?;
    if scan.end < recovered.end {
        // A batch torn by a power loss; it was never acknowledged.
        writer.cut(scan.end, recovered.confirmed)?;
    }
    let access = environment.access()?;
    let (segment, new) = access.segment(&environment.segment_path, control.instance.0)?;
    environment.count_sessions(segment);
    segment.set_unconfirmed(environment.commit_hold.is_held());
    let buffer = Arc::new(LogBuffer::new(scan.end, environment.config.redo.buffer_bytes));
    let shared = Arc::new(PrimaryShared::new(segment, buffer, environment.instruments.clone()));
    let mut primary = Primary::new(shared.clone(), writer, helper);
    for record in &control.databases {
        segment.set_state(record.id.0, DatabaseState::Recovering);
        segment.suspect_rewriting(record.id.0);
        segment.reset_hints(record.id.0);
    }
    let mut reconciled = Vec::new();
    let mut late = Late { databases: Vec::new(), sessions_confirm: !new };
    let mut time_left = TimeLeft { left: LOCKED_TIMEOUT };
    for record in &control.databases {
        // Before anything opens its file.
        if let Err(error) = swap::settle(environment, record) {
            take_offline(environment, &segment, record, control.checkpoint, &error)?;
            continue;
        }
        let limit = time_left.for_one();
        let begun = Instant::now();
        match reconcile_database(environment, &log, &segment, !new, record, &scan, limit) {
            Ok(database) => reconciled.push(database),
            Err(error) if error.is_held_by_others() => {
                time_left.spend(begun.elapsed());
                wait_for_others(environment, &segment, record, control.checkpoint, &error)?;
                late.databases.push(record.id);
            }
            Err(error) => take_offline(environment, &segment, record, control.checkpoint, &error)?,
        }
    }
    // One replacement of the control file for all: it lists all databases.
    environment.update_control(|control| {
        reconciled.iter().for_each(|database| database.found.note(control));
    })?;
    free_groups(environment, &log, &scan, &reconciled)?;
    for database in reconciled {
        let record = database.database.record().clone();
        match begin_serving(environment, &mut primary, database, scan.end, time_left.for_one()) {
            Ok(()) => {}
            Err(error @ InstanceError::StoppedWaiting { .. }) => return Err(error),
            Err(error) => take_offline(environment, &segment, &record, control.checkpoint, &error)?,
        }
    }
    begin_recovery_here(environment, &shared, &log, scan.end)?;
    Ok(OpenedPrimary { primary, shared, log, late })
}

/// Moves the start of recovery to `end`: the redo from there on, which is durable, says where each served database
/// stands. Otherwise the next log switch might need the group in which recovery began until now, and a running instance
/// checkpoints only after a switch.
fn begin_recovery_here(
    environment: &Environment,
    shared: &PrimaryShared,
    log: &RedoLog,
    end: Scn,
) -> Result<(), InstanceError> {
    let served = |id: DatabaseId| shared.database(id).is_some();
    environment.update_control(|control| {
        control.replays.retain(|(id, _)| !served(*id));
        control.offline.retain(|(id, _)| !served(*id));
        control.checkpoint = control.checkpoint.max(end);
    })?;
    log.set_checkpoint(environment.control().checkpoint);
    Ok(())
}

/// Excludes the database from service. It may lack redo from `from` on, or from an SCN recorded earlier. The control
/// file records that before the checkpoint advances, which keeps the archived logs.
fn take_offline(
    environment: &Environment,
    segment: &Segment,
    record: &DatabaseRecord,
    from: Scn,
    error: &InstanceError,
) -> Result<(), InstanceError> {
    segment.set_state(record.id.0, DatabaseState::Offline);
    environment.update_control(|control| control.take_offline(record.id, from))?;
    environment.note_offline(record.id, Some(error.for_terminal()));
    let from = environment.control().offline_from(record.id).unwrap_or(from);
    environment.alert.say(format!(
        "database {} cannot be opened: {}",
        record.path.display(),
        error.in_one_line()
    ));
    let name = &record.name;
    environment.alert.say(hint::in_one_line(
        format_args!(
            "database {name} is offline; the redo from SCN {from} on is kept for it until a start can open it"
        ),
        Some(&format!("`standfast database resolve {name}` shows what is known, and decides what counts")),
    ));
    Ok(())
}

fn is_written_to(error: &InstanceError) -> bool {
    matches!(error, InstanceError::Guard(GuardError::Busy { lock: "write" }))
}

/// Excludes the database while another process holds it. Its sessions wait.
fn wait_for_others(
    environment: &Environment,
    segment: &Segment,
    record: &DatabaseRecord,
    from: Scn,
    error: &InstanceError,
) -> Result<(), InstanceError> {
    segment.set_state(record.id.0, DatabaseState::Recovering);
    environment.update_control(|control| control.take_offline(record.id, from))?;
    let why = match error {
        error if is_written_to(error) => {
            "a transaction that was begun before this start still writes to it".to_owned()
        }
        InstanceError::Guard(GuardError::Leased(path)) => {
            format!("another process has a lease on {}", path.display())
        }
        _ => format!("another process has it locked ({error})"),
    };
    environment.note_offline(record.id, Some(why.clone()));
    environment.alert.say(hint::in_one_line(
        format_args!(
            "database {}: {why}; it is opened when that has ended, the others are served meanwhile",
            record.name
        ),
        Some(&format!(
            "end the transaction, or the process that has it open; `lsof {}` names processes",
            record.path.display()
        )),
    ));
    Ok(())
}

/// Opens a database of [`Late`] while the others are served. The caller keeps other commands away.
///
/// # Errors
/// One that [is caused by other processes](InstanceError::is_held_by_others) while they hold the database: call again.
/// Any other error excludes the database until the next start, and is reported.
pub fn open_late(
    environment: &Arc<Environment>,
    threads: &PrimaryThreads,
    log: &Arc<RedoLog>,
    id: DatabaseId,
    sessions_confirm: bool,
) -> Result<(), InstanceError> {
    let control = environment.control();
    // It may have been unprotected meanwhile, or opened by command.
    let Some(record) = control.databases.iter().find(|record| record.id == id) else { return Ok(()) };
    let shared = threads.shared();
    if shared.database(id).is_some() {
        return Ok(());
    }
    match open_offline(environment, threads, log, record, sessions_confirm) {
        Err(error) if !error.is_held_by_others() => {
            take_offline(environment, &shared.segment, record, control.checkpoint, &error)
        }
        opened => {
            opened?;
            environment
                .alert
                .say(format!("database {} opened: no other process holds it any more", record.name));
            Ok(())
        }
    }
}

/// Opens an excluded database as a start does, while the others are served.
///
/// # Errors
/// Why it cannot be opened; it stays excluded.
pub fn open_offline(
    environment: &Arc<Environment>,
    threads: &PrimaryThreads,
    log: &Arc<RedoLog>,
    record: &DatabaseRecord,
    sessions_confirm: bool,
) -> Result<(), InstanceError> {
    let (control, shared, id) = (environment.control(), threads.shared(), record.id);
    // The redo written since the start contains nothing of this database.
    let scan = Scan { begin: control.checkpoint, end: shared.buffer.durable(), ..Scan::default() };
    let reconciled =
        reconcile_database(environment, log, &shared.segment, sessions_confirm, record, &scan, LATE_TIMEOUT)?;
    let Reconciled { database, capture, image_reason, found } = reconciled;
    environment.update_control(|control| found.note(control))?;
    install_hooks(environment, shared, &database, scan.end, Duration::from_secs(10))?;
    let served = database.clone();
    threads.call(move |primary| {
        let entry = if image_reason.is_some() { Entry::NewWithCopy } else { Entry::Known };
        primary.serve(served, capture, entry)?;
        if image_reason.is_some() {
            primary.copy_when_possible(id);
        }
        Ok(())
    })?;
    environment.update_control(|control| {
        control.replays.retain(|(other, _)| *other != id);
        control.offline.retain(|(other, _)| *other != id);
    })?;
    environment.note_offline(id, None);
    match environment.write_marker(record, database.file()) {
        Ok(()) => {
            foreign_watch::let_sessions_in(environment, &shared.segment, &database);
        }
        Err(error) => database.fail(error.as_a_reason()),
    }
    Ok(())
}

/// Advances the checkpoint to the newest SCN from which on every database is known, and so frees log groups: all redo
/// is durably in the databases now. Without this the log could be full before the first checkpoint, which itself needs
/// room in the log. Excluded databases keep positions of their own until they are served.
fn free_groups(
    environment: &Environment,
    log: &Arc<RedoLog>,
    scan: &Scan,
    reconciled: &[Reconciled],
) -> Result<(), InstanceError> {
    let offline = environment.control().offline;
    let is_offline = |id: DatabaseId| offline.iter().any(|(other, _)| *other == id);
    let known = |database: &Reconciled| scan.histories.get(&database.database.id())?.stands_at;
    let needing = reconciled
        .iter()
        .filter(|database| database.image_reason.is_none() && !is_offline(database.database.id()));
    let checkpoint = match needing.map(known).collect::<Option<Vec<Scn>>>() {
        Some(positions) => positions.into_iter().min().unwrap_or(scan.end),
        None => return Ok(()),
    };
    environment.update_control(|control| {
        control.checkpoint = control.checkpoint.max(checkpoint);
        for (_, from) in control.replays.iter_mut().filter(|(id, _)| !is_offline(*id)) {
            *from = checkpoint.max(*from);
        }
    })?;
    log.set_checkpoint(checkpoint);
    if let Err(error) = archive_at_once(log) {
        environment.alert.say(format!("archiving failed and will be tried again: {}", error.in_one_line()));
    }
    Ok(())
}

fn begin_serving(
    environment: &Arc<Environment>,
    primary: &mut Primary,
    Reconciled { database, capture, image_reason, .. }: Reconciled,
    redo_end: Scn,
    limit: Duration,
) -> Result<(), InstanceError> {
    install_hooks(environment, primary.shared(), &database, redo_end, Duration::from_secs(10))?;
    let copy = image_reason.map(|why| match BaselineJob::begin_within(&database, limit) {
        Ok(job) => Ok((why, Some(job))),
        Err(error) if is_written_to(&error) => Ok((why, None)),
        Err(error) => Err(error),
    });
    let copy = copy.transpose()?;
    // A standby may not know the database yet: the crash may have come between the control file and the redo.
    let entry = if copy.is_some() { Entry::NewWithCopy } else { Entry::Known };
    primary.serve(database.clone(), capture, entry)?;
    if let Some((why, job)) = copy {
        environment
            .alert
            .say(format!("database {} gets a full image in the redo: {why}", database.record().name));
        match job {
            Some(job) => primary.start_baseline(job),
            None => primary.copy_when_possible(database.id()),
        }
    }
    Ok(())
}

/// Keeps checkpoints of the database behind the redo, and records the file SCN in the control file at each checkpoint
/// that backfills everything. Apart from what is captured from now on, the redo of the database ends before `known_to`.
///
/// # Errors
/// When the connection is not guarded.
pub fn install_hooks(
    environment: &Arc<Environment>,
    shared: &Arc<PrimaryShared>,
    database: &Arc<Database>,
    known_to: Scn,
    limit: Duration,
) -> Result<(), InstanceError> {
    database.set_changed(known_to);
    let connection = database.connection();
    let guard = Guard::of(&connection)?;
    let (segment, id) = (shared.segment, database.id().0);
    guard.report_write_lock(Box::new(move |held| segment.note_write_lock(id, held)))?;
    guard.before_backfill(redo_before_data(shared, database, limit))?;
    Ok(guard.on_all_backfilled(note_when_all_backfilled(environment, database))?)
}

fn reconcile_database(
    environment: &Environment,
    log: &Arc<RedoLog>,
    segment: &Segment,
    sessions_confirm: bool,
    record: &DatabaseRecord,
    scan: &Scan,
    limit: Duration,
) -> Result<Reconciled, InstanceError> {
    let control = environment.control();
    check_identity(&control, record)?;
    let offline_from = control.offline_from(record.id);
    let database = Arc::new(Database::open_within(record.clone(), environment.vfs_base.as_deref(), limit)?);
    let owed = control.owed_image(record.id);
    database.set_image_may_lack(owed.is_some_and(|owed| owed.may_lack));
    // A segment created since then has not published a WAL generation of the database yet.
    let is_power_kept = sessions_confirm && segment.epoch(record.id.0).1 != [0, 0];
    let (position, pages, image_reason, stamp) = {
        let connection = database.connection();
        let guard = Guard::of(&connection)?;
        // Before any redo is read: an attempt that finds the database locked must not delay the others.
        guard.hold_write_lock_within(limit)?;
        let recovery = match offline_from {
            Some(from) => Recovery::of_offline(environment, log, &database, from, scan.end)?,
            None => Recovery::since_checkpoint(environment, log, &database, scan, is_power_kept),
        };
        let mut header = make_log_whole(&guard, &database, segment)?;
        // The WAL of an excluded database is trusted as it is, or not at all.
        let is_known = !reconcile::is_lost(header.position());
        if offline_from.is_none()
            && is_known
            && guard
                .complete_frames(&mut database.wal_file()?, 1)
                .map_err(InstanceError::io("complete the frames of the write-ahead log of", &record.path))?
                .is_some()
        {
            header = guard.wal_header()?;
        }
        if is_known {
            check_index(&header, &mut database.wal_file()?, record.page_size)?;
        }
        // An earlier start that excluded this database may have created the shared memory.
        if !sessions_confirm || offline_from.is_some() {
            cut_stale_frames(&mut database.wal_file()?, &header, record.page_size)
                .map_err(InstanceError::io("cut void frames of the write-ahead log of", &record.path))?;
        }
        // A sync may have failed while the database was excluded, and a later successful sync does not reveal what was
        // lost.
        let sure = offline_from.is_none()
            || write_again(&mut database.wal_file()?, &header, record.page_size)
                .map_err(InstanceError::io("write the frames again of", &record.path))?;
        if !sure {
            return Err(InstanceError::refused(
                "its write-ahead log does not hold what its index says: it could not be written",
                "end all processes that have the database open, so that the WAL is read again, and restart the instance",
            ));
        }
        let known = sessions_confirm && segment.sessions_saw(record.id.0, header.raw_salts());
        let bare = bare_salts(&mut database.wal_file()?, &header)
            .map_err(InstanceError::io("read the write-ahead log of", &record.path))?;
        let found =
            Found { position: header.position(), bare, seen_by_sessions: known.then_some(header.salts()) };
        let (position, pages, image_reason) = match recovery.plan(&connection, &control, &header, &found)? {
            // The WAL also restarts after a bare header (a WAL file without frames).
            Plan::Capture(anchor) if bare.is_some() => (header.position(), anchor.database_pages, None),
            Plan::Capture(anchor) => (anchor.position, anchor.database_pages, None),
            Plan::Reapply(Anchor { redo_from, .. }) => {
                let (position, pages) = recovery.roll_forward(&connection, redo_from)?;
                (position, pages, recovery.foreign_meanwhile(&guard, position)?)
            }
            Plan::FindOut(why) => recovery.settle(&connection, &header, &found, why)?,
        };
        let stamp = match image_reason {
            None => stamp_without_wal(environment, record, &guard.wal_header()?),
            Some(_) => None,
        };
        (position, pages, image_reason, stamp)
    };
    if stamp.is_some() {
        database.sync_file()?;
    }
    let capture = database.capture_from(position, pages)?;
    database.sync_wal(&Pace::AtOnce)?;
    segment.end_rewriting(record.id.0);
    let owed = match image_reason {
        Some(_) => Some(owed_image(environment, &database, position, scan.end)?),
        None => None,
    };
    let found = FoundFile {
        database: record.id,
        identity: LastingIdentity::of(&record.path).ok(),
        whole: stamp.map(|stamp| WholeFile { database: record.id, scn: scan.end, stamp }),
        owed,
    };
    Ok(Reconciled { database, capture, image_reason, found })
}

/// Completes the WAL, whatever else this start decides: processes that can see the current state continue to read, and
/// none reads through a wal-index that shows an earlier state. The caller holds the write lock and the checkpoint lock.
fn make_log_whole(
    guard: &Guard<'_>,
    database: &Database,
    segment: &Segment,
) -> Result<WalIndexHeader, InstanceError> {
    let record = database.record();
    let header = guard.wal_header()?;
    if reconcile::is_lost(header.position()) {
        segment.suspect_wal(record.id.0);
        return Ok(header);
    }
    if let Err(error) = guard.repair_inconsistent_wal(&mut database.wal_file()?, record.page_size) {
        // Only the existing wal-index describes the WAL.
        segment.begin_rewriting(record.id.0);
        return Err(InstanceError::Failed(format!("{}: {error}", record.path.display())));
    }
    segment.end_rewriting(record.id.0);
    Ok(guard.wal_header()?)
}
