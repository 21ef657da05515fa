//! From files to a primary that can serve: recovery of the redo log, then of every database.

use crate::baseline::BaselineJob;
use crate::checkpointer::redo_before_data;
use crate::control::DatabaseRecord;
use crate::database::{Database, committed_pages};
use crate::environment::Environment;
use crate::error::InstanceError;
use crate::members::note_members;
use crate::primary::{Entry, Primary, PrimaryShared, SwitchHelper};
use crate::primary_threads::archive_all;
use crate::reconcile::{self, Anchor, Found, History, Plan, Scan};
use standfast_format::LogKind;
use standfast_io::fault::{self, Fault};
use standfast_log::{LogBuffer, LogError, LostRedo, RedoLog};
use standfast_session::{DatabaseState, Segment};
use standfast_sqlite_wal::capture::Capture;
use standfast_sqlite_wal::guard::Guard;
use standfast_sqlite_wal::pace::Pace;
use standfast_sqlite_wal::{WalIndexHeader, bare_salts, cut_stale_frames, write_again};
use standfast_types::{DatabaseId, Scn, WalPosition};
use std::sync::Arc;
use std::time::Duration;

/// How long recovery waits for a writer that does not know of Standfast.
const WRITER_PATIENCE: Duration = Duration::from_secs(30);

/// A primary whose databases are recovered and served, not yet running.
pub struct OpenedPrimary {
    /// The commit path.
    pub primary: Primary,
    /// What the stations share.
    pub shared: Arc<PrimaryShared>,
    /// The redo log.
    pub log: Arc<RedoLog>,
}

struct Reconciled {
    database: Arc<Database>,
    capture: Capture,
    copy_afresh: Option<&'static str>,
}

/// Recovers and opens everything. Sessions are let in when the caller sets the databases' states.
///
/// # Errors
/// When the redo log cannot be opened. A database that cannot be opened is reported and left out; the control file
/// remembers from where on it may lack redo.
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
        environment
            .alert
            .say(format!("opened until SCN {from}: {}", error.to_string().replace("\nhint: ", " | hint: ")));
    }
    log.set_checkpoint(control.checkpoint);
    let scan = reconcile::scan(&log, control.checkpoint, recovered.end)?;
    if scan.end < recovered.end {
        // A batch that was torn by a power loss: it was never acknowledged.
        writer.cut(scan.end, recovered.confirmed)?;
    }
    let mode = environment.config.mode_bits().unwrap_or(0o600);
    let (segment, new) = Segment::create(&environment.segment_path, control.instance.0, mode)?;
    environment.count_sessions(segment);
    let buffer = Arc::new(LogBuffer::new(scan.end, environment.config.redo.buffer_bytes));
    let shared = Arc::new(PrimaryShared::new(segment, buffer, environment.instruments.clone()));
    let mut primary = Primary::new(shared.clone(), writer, helper);
    for record in &control.databases {
        segment.set_state(record.id.0, DatabaseState::Recovering);
        segment.doubt_rewriting(record.id.0);
        segment.reset_hints(record.id.0);
    }
    let mut reconciled = Vec::new();
    for record in &control.databases {
        match reconcile_database(environment, &log, &segment, !new, record, &scan) {
            Ok(database) => reconciled.push(database),
            Err(error) => leave_out(environment, &segment, record, control.checkpoint, &error)?,
        }
    }
    free_groups(environment, &log, &scan, &reconciled)?;
    for database in reconciled {
        let record = database.database.record().clone();
        match begin_serving(environment, &mut primary, database) {
            Ok(()) => {}
            Err(error @ InstanceError::StoppedWaiting { .. }) => return Err(error),
            Err(error) => leave_out(environment, &segment, &record, control.checkpoint, &error)?,
        }
    }
    begin_recovery_here(environment, &shared, &log, scan.end)?;
    Ok(OpenedPrimary { primary, shared, log })
}

/// The redo from `end` on, durable, says where every database stands that is served, so recovery of these begins
/// there: the next switch may need the group that it has begun in until now, and a checkpoint of the running
/// instance follows a switch.
fn begin_recovery_here(
    environment: &Environment,
    shared: &PrimaryShared,
    log: &RedoLog,
    end: Scn,
) -> Result<(), InstanceError> {
    let served = |id: DatabaseId| shared.database(id).is_some();
    environment.update_control(|control| {
        control.replays.retain(|(id, _)| !served(*id));
        control.left_out.retain(|(id, _)| !served(*id));
        control.checkpoint = control.checkpoint.max(end);
    })?;
    log.set_checkpoint(environment.control().checkpoint);
    Ok(())
}

/// What a database holds while redo is applied to it cannot be told from its write-ahead log, which may begin anew
/// then: another recovery has to begin where this one does.
fn mark_replay(environment: &Environment, id: DatabaseId, from: Scn) -> Result<(), InstanceError> {
    environment.update_control(|control| {
        if control.replays.iter().all(|(known, _)| *known != id) {
            control.replays.push((id, from));
        }
    })
}

/// The database is not served. It may lack redo from `from` on, or from where it was known to: that is remembered
/// before the checkpoint moves on, and keeps the archived logs.
fn leave_out(
    environment: &Environment,
    segment: &Segment,
    record: &DatabaseRecord,
    from: Scn,
    error: &InstanceError,
) -> Result<(), InstanceError> {
    segment.set_state(record.id.0, DatabaseState::Failed);
    environment.update_control(|control| control.leave_out(record.id, from))?;
    let from = environment.control().left_out_from(record.id).unwrap_or(from);
    environment.alert.say(format!("database {} cannot be opened: {error}", record.path.display()));
    environment.alert.say(format!(
        "database {} is left out; the redo from SCN {from} on is kept for it until a start can open it",
        record.name
    ));
    Ok(())
}

/// All redo is in the databases now, durably, so recovery may begin at the newest position from which on every
/// database is known. Without this the log could be full before the first checkpoint, and a checkpoint needs room in
/// the log. Databases that were left out have positions of their own until they are served.
fn free_groups(
    environment: &Environment,
    log: &Arc<RedoLog>,
    scan: &Scan,
    reconciled: &[Reconciled],
) -> Result<(), InstanceError> {
    let left_out = environment.control().left_out;
    let is_left_out = |id: DatabaseId| left_out.iter().any(|(other, _)| *other == id);
    let known = |database: &Reconciled| scan.histories.get(&database.database.id())?.stands_at;
    let needing = reconciled
        .iter()
        .filter(|database| database.copy_afresh.is_none() && !is_left_out(database.database.id()));
    let checkpoint = match needing.map(known).collect::<Option<Vec<Scn>>>() {
        Some(positions) => positions.into_iter().min().unwrap_or(scan.end),
        None => return Ok(()),
    };
    environment.update_control(|control| {
        control.checkpoint = control.checkpoint.max(checkpoint);
        for (_, from) in control.replays.iter_mut().filter(|(id, _)| !is_left_out(*id)) {
            *from = checkpoint.max(*from);
        }
    })?;
    log.set_checkpoint(checkpoint);
    if let Err(error) = archive_all(log, u64::MAX, Scn::ZERO) {
        environment.alert.say(format!("archiving failed and will be tried again: {error}"));
    }
    Ok(())
}

fn begin_serving(
    environment: &Environment,
    primary: &mut Primary,
    Reconciled { database, capture, copy_afresh }: Reconciled,
) -> Result<(), InstanceError> {
    install_hook(primary.shared(), &database, Duration::from_secs(10))?;
    let copy = copy_afresh.map(|why| BaselineJob::begin(&database).map(|job| (why, job))).transpose()?;
    // A standby may not know it yet: the crash may have come between the control file and the redo.
    let entry = if copy.is_some() { Entry::NewWithCopy } else { Entry::Known };
    primary.serve(database.clone(), capture, entry)?;
    if let Some((why, job)) = copy {
        environment
            .alert
            .say(format!("database {} is copied afresh into the redo: {why}", database.record().name));
        primary.start_baseline(job);
    }
    Ok(())
}

/// Keeps checkpoints of the database behind the redo.
///
/// # Errors
/// When the connection is not guarded.
pub fn install_hook(
    shared: &Arc<PrimaryShared>,
    database: &Arc<Database>,
    limit: Duration,
) -> Result<(), InstanceError> {
    let hook = redo_before_data(shared, database, limit);
    Ok(Guard::of(&database.connection())?.before_backfill(hook)?)
}

fn reconcile_database(
    environment: &Environment,
    log: &Arc<RedoLog>,
    segment: &Segment,
    sessions_vouch: bool,
    record: &DatabaseRecord,
    scan: &Scan,
) -> Result<Reconciled, InstanceError> {
    let vfs_base = environment.vfs_base.as_deref();
    let control = environment.control();
    let left_out = control.left_out_from(record.id);
    let database = Arc::new(Database::open(record.clone(), vfs_base)?);
    let begin = left_out.unwrap_or(scan.begin);
    let (position, pages, copy_afresh) = {
        let connection = database.connection();
        let guard = Guard::of(&connection)?;
        guard.hold_write_lock_within(WRITER_PATIENCE)?;
        let header = make_log_whole(&guard, &database, segment)?;
        let history = match left_out {
            Some(from) => redo_since(log, record, from, scan.end)?,
            None => scan.histories.get(&record.id).cloned().unwrap_or_default(),
        };
        // The shared memory may have been made anew at a start that left this database out.
        if !sessions_vouch || left_out.is_some() {
            cut_stale_frames(&mut database.wal_file()?, &header, record.page_size)
                .map_err(InstanceError::io("cut void frames of the write-ahead log of", &record.path))?;
        }
        // A sync may have failed, and a later one says nothing of what was lost then.
        let sure = left_out.is_none()
            || write_again(&mut database.wal_file()?, &header, record.page_size)
                .map_err(InstanceError::io("write the frames again of", &record.path))?;
        if !sure {
            return Err(InstanceError::refused(
                "its write-ahead log does not hold what its index says: it could not be written",
                "end all processes that have the database open, so that the log is read anew, and restart the instance",
            ));
        }
        let known = sessions_vouch && segment.vouches(record.id.0, header.raw_salts());
        let bare = bare_salts(&mut database.wal_file()?, &header)
            .map_err(InstanceError::io("read the write-ahead log of", &record.path))?;
        let found = Found { position: header.position(), bare, vouched_for: known.then_some(header.salts()) };
        let stands_at = found.beginning().unwrap_or(found.position);
        let plan = match control.replays.iter().find(|(id, _)| *id == record.id) {
            Some((_, from)) => {
                Plan::Reapply(Anchor { position: stands_at, redo_from: *from, ..Anchor::default() })
            }
            None => reconcile::decide(&history, &found, begin),
        };
        match plan {
            Plan::CopyAfresh(why) if left_out.is_some() => return Err(not_proven(record, why)),
            // Every file without a log stands there, whatever it holds.
            Plan::Capture(Anchor { position, .. }) | Plan::Reapply(Anchor { position, .. })
                if left_out.is_some() && position == WalPosition::default() =>
            {
                return Err(not_proven(record, "it has no write-ahead log"));
            }
            // The log begins anew behind a bare header, too.
            Plan::Capture(anchor) if bare.is_some() => (header.position(), anchor.database_pages, None),
            Plan::Capture(anchor) => (anchor.position, anchor.database_pages, None),
            Plan::Reapply(Anchor { redo_from: from, .. }) => {
                mark_replay(environment, record.id, from)?;
                fault::check(Fault::RecoveryApply)
                    .map_err(InstanceError::io("apply redo to", &record.path))?;
                guard.release_write_lock();
                guard.release_checkpoint_lock();
                let done = reconcile::reapply(log, record, vfs_base, from, scan.end)?;
                guard.hold_checkpoint_lock()?;
                guard.hold_write_lock_within(WRITER_PATIENCE)?;
                environment.alert.say(format!(
                    "database {}: {} transactions of the redo from SCN {} on applied",
                    record.name, done.transactions, from
                ));
                Database::recover_index(&connection)?;
                let header = guard.wal_header()?;
                let meanwhile = (header.position() != done.position)
                    .then_some("a process that does not use Standfast wrote to it during recovery");
                (header.position(), committed_pages(&connection, &header)?, meanwhile)
            }
            Plan::CopyAfresh(why) => (header.position(), committed_pages(&connection, &header)?, Some(why)),
        }
    };
    let capture = database.capture_from(position, pages)?;
    database.sync_wal(&Pace::AtOnce)?;
    segment.end_rewriting(record.id.0);
    Ok(Reconciled { database, capture, copy_afresh })
}

/// Whatever else comes of this start, who can see the state of the database goes on reading, and nobody reads by an index
/// that shows an earlier one. The caller holds the write lock and the checkpoint lock.
fn make_log_whole(
    guard: &Guard<'_>,
    database: &Database,
    segment: &Segment,
) -> Result<WalIndexHeader, InstanceError> {
    let record = database.record();
    let header = guard.wal_header()?;
    if reconcile::is_lost(header.position()) {
        segment.doubt_log(record.id.0);
        return Ok(header);
    }
    if let Err(error) = guard.mend_torn_log(&mut database.wal_file()?, record.page_size) {
        // Only the index that is there knows the log.
        segment.begin_rewriting(record.id.0);
        return Err(InstanceError::Failed(format!("{}: {error}", record.path.display())));
    }
    segment.end_rewriting(record.id.0);
    Ok(guard.wal_header()?)
}

/// What the redo says of a database that was left out. The checkpoint has moved on without it, so this may be in
/// archived logs.
fn redo_since(
    log: &Arc<RedoLog>,
    record: &DatabaseRecord,
    from: Scn,
    end: Scn,
) -> Result<History, InstanceError> {
    match reconcile::scan(log, from, end) {
        Ok(mut scan) => Ok(scan.histories.remove(&record.id).unwrap_or_default()),
        Err(error) => Err(InstanceError::refused(
            format!("{} was left out and needs the redo from SCN {from} on: {error}", record.name),
            format!(
                "put the archived logs from there on back and restart the instance, or {}",
                give_up(record)
            ),
        )),
    }
}

/// What a database holds that was left out is worth a copy only if the redo shows that nothing is missing: the copy
/// would take the place of that of the standbys, which may be the only one with all acknowledged commits.
fn not_proven(record: &DatabaseRecord, why: &str) -> InstanceError {
    InstanceError::refused(
        format!("{} was left out and does not stand where the redo says ({why})", record.name),
        format!("restore the file that was here, fail over to a standby, or {}", give_up(record)),
    )
}

fn give_up(record: &DatabaseRecord) -> String {
    let (name, path) = (&record.name, record.path.display());
    format!(
        "decide that what it holds now counts: `standfast unprotect {name}`, then `standfast protect {path}` \
         puts that in the place of the standbys' copies"
    )
}
