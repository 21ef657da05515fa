//! From files to a primary that can serve: recovery of the redo log, then of every database.

use crate::baseline::{BaselineJob, note_owed_image};
use crate::checkpointer::redo_before_data;
use crate::control::{Control, DatabaseRecord, FileStamp, LastingIdentity, WholeFile};
use crate::database::{Database, committed_pages};
use crate::environment::Environment;
use crate::error::InstanceError;
use crate::members::note_members;
use crate::primary::{Entry, Primary, PrimaryShared, SwitchHelper};
use crate::primary_threads::{PrimaryThreads, archive_all};
use crate::reconcile::{self, Anchor, Conclusion, Foreign, Found, History, PageChecksums, Plan, Scan};
use rusqlite::Connection;
use standfast_format::{LogKind, page_sum};
use standfast_io::fault::{self, Fault};
use standfast_log::{LogBuffer, LogError, LostRedo, RedoLog};
use standfast_session::{DatabaseState, FileId, Marker, Segment};
use standfast_sqlite_wal::capture::{Capture, check_index};
use standfast_sqlite_wal::guard::{Guard, GuardError};
use standfast_sqlite_wal::pace::Pace;
use standfast_sqlite_wal::state::{Frames, StateReader, first_commit_frame};
use standfast_sqlite_wal::{WalIndexHeader, bare_salts, cut_stale_frames, write_again};
use standfast_types::{DatabaseId, PageNo, Scn, WalPosition, WalSalts};
use std::sync::Arc;
use std::time::Duration;

/// How long recovery waits for a transaction that was begun before the start: all other databases wait for as long. One
/// that takes longer is waited for by its own database, see [`open_late`].
const WRITER_PATIENCE: Duration = Duration::from_millis(500);

/// A primary whose databases are recovered and served, not yet running.
pub struct OpenedPrimary {
    /// The commit path.
    pub primary: Primary,
    /// What the stations share.
    pub shared: Arc<PrimaryShared>,
    /// The redo log.
    pub log: Arc<RedoLog>,
    /// Databases that a transaction of before the start still writes to.
    pub late: Late,
}

/// Databases to be opened by [`open_late`] while the others are served.
#[derive(Debug, Default)]
pub struct Late {
    /// Their numbers.
    pub databases: Vec<DatabaseId>,
    /// Whether the shared memory is that of before the start.
    pub sessions_vouch: bool,
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
    // The newest redo before the checkpoint says what the files should hold, too. At a failover they were just written.
    let is_new = control.incarnation().branch == control.checkpoint;
    let earlier = match reconcile::log_before(&log, control.checkpoint) {
        Some(from) if !is_new => reconcile::checksums_between(&log, from, control.checkpoint),
        _ => Default::default(),
    };
    let scan = reconcile::scan(&log, control.checkpoint, recovered.end, earlier)?;
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
    let mut late = Late { databases: Vec::new(), sessions_vouch: !new };
    for record in &control.databases {
        match reconcile_database(environment, &log, &segment, !new, record, &scan) {
            Ok(database) => reconciled.push(database),
            Err(error) if is_written_to(&error) => {
                wait_for_writer(environment, &segment, record, control.checkpoint)?;
                late.databases.push(record.id);
            }
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
    Ok(OpenedPrimary { primary, shared, log, late })
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
    segment.set_state(record.id.0, DatabaseState::Offline);
    environment.update_control(|control| control.leave_out(record.id, from))?;
    let from = environment.control().left_out_from(record.id).unwrap_or(from);
    environment.alert.say(format!("database {} cannot be opened: {error}", record.path.display()));
    environment.alert.say(format!(
        "database {} is left out; the redo from SCN {from} on is kept for it until a start can open it",
        record.name
    ));
    Ok(())
}

fn is_written_to(error: &InstanceError) -> bool {
    matches!(error, InstanceError::Guard(GuardError::Busy { lock: "write" }))
}

/// The database is left out for as long as a transaction of before the start writes to it. Its sessions wait.
fn wait_for_writer(
    environment: &Environment,
    segment: &Segment,
    record: &DatabaseRecord,
    from: Scn,
) -> Result<(), InstanceError> {
    segment.set_state(record.id.0, DatabaseState::Recovering);
    environment.update_control(|control| control.leave_out(record.id, from))?;
    environment.alert.say(format!(
        "database {}: a transaction that was begun before this start still writes to it; it is opened when that has \
         ended, the others are served meanwhile | hint: end the transaction, or the process that has it open",
        record.name
    ));
    Ok(())
}

/// Opens a database of [`Late`] beside those that are served. The caller keeps other commands away.
///
/// # Errors
/// `Guard(Busy)` while the transaction has not ended: to be called again. Any other error leaves the database out until
/// the next start, and is reported.
pub fn open_late(
    environment: &Environment,
    threads: &PrimaryThreads,
    log: &Arc<RedoLog>,
    id: DatabaseId,
    sessions_vouch: bool,
) -> Result<(), InstanceError> {
    let control = environment.control();
    // It may have been unprotected meanwhile.
    let Some(record) = control.databases.iter().find(|record| record.id == id) else { return Ok(()) };
    let shared = threads.shared();
    // What was written since the start holds nothing of it.
    let scan = Scan { begin: control.checkpoint, end: shared.buffer.durable(), ..Scan::default() };
    let opened = reconcile_database(environment, log, &shared.segment, sessions_vouch, record, &scan)
        .and_then(|reconciled| {
            install_hook(shared, &reconciled.database, Duration::from_secs(10))?;
            Ok(reconciled)
        });
    let Reconciled { database, capture, copy_afresh } = match opened {
        Err(error) if !is_written_to(&error) => {
            return leave_out(environment, &shared.segment, record, control.checkpoint, &error);
        }
        other => other?,
    };
    let served = database.clone();
    threads.call(move |primary| {
        let entry = if copy_afresh.is_some() { Entry::NewWithCopy } else { Entry::Known };
        primary.serve(served, capture, entry)?;
        if copy_afresh.is_some() {
            primary.copy_when_possible(id);
        }
        Ok(())
    })?;
    environment.update_control(|control| {
        control.replays.retain(|(other, _)| *other != id);
        control.left_out.retain(|(other, _)| *other != id);
    })?;
    match environment.write_marker(record, database.file()) {
        Ok(()) => shared.segment.set_state(id.0, DatabaseState::Open),
        Err(error) => database.fail(error.to_string().replace('\n', " | ")),
    }
    environment.alert.say(format!("database {} opened: the transaction has ended", record.name));
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
    let copy = copy_afresh.map(|why| match BaselineJob::begin_within(&database, WRITER_PATIENCE) {
        Ok(job) => Ok((why, Some(job))),
        Err(error) if is_written_to(&error) => Ok((why, None)),
        Err(error) => Err(error),
    });
    let copy = copy.transpose()?;
    // A standby may not know it yet: the crash may have come between the control file and the redo.
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
    let control = environment.control();
    check_identity(&control, record)?;
    let left_out = control.left_out_from(record.id);
    let database = Arc::new(Database::open(record.clone(), environment.vfs_base.as_deref())?);
    let recovery = match left_out {
        Some(from) => Recovery::of_left_out(environment, log, &database, from, scan.end)?,
        None => Recovery::since_checkpoint(environment, log, &database, scan),
    };
    let (position, pages, copy_afresh, stamp) = {
        let connection = database.connection();
        let guard = Guard::of(&connection)?;
        guard.hold_write_lock_within(WRITER_PATIENCE)?;
        let mut header = make_log_whole(&guard, &database, segment)?;
        // Of a database that was left out, the log is believed as it is or not at all.
        let is_known = !reconcile::is_lost(header.position());
        if left_out.is_none()
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
        let (position, pages, copy_afresh) = match recovery.plan(&connection, &control, &header, &found)? {
            // The log begins anew behind a bare header, too.
            Plan::Capture(anchor) if bare.is_some() => (header.position(), anchor.database_pages, None),
            Plan::Capture(anchor) => (anchor.position, anchor.database_pages, None),
            Plan::Reapply(Anchor { redo_from, .. }) => {
                let (position, pages) = recovery.roll_forward(&connection, redo_from)?;
                (position, pages, recovery.foreign_meanwhile(&guard, position)?)
            }
            Plan::FindOut(why) => recovery.settle(&connection, &header, &found, why)?,
        };
        // Nobody writes, and this instance moves nothing into the file yet.
        let is_whole = copy_afresh.is_none() && guard.wal_header()?.frames() == 0;
        let stamp = is_whole.then(|| FileStamp::of(environment.disk.as_ref(), &record.path)).flatten();
        (position, pages, copy_afresh, stamp)
    };
    if stamp.is_some() {
        database.sync_file()?;
    }
    let capture = database.capture_from(position, pages)?;
    database.sync_wal(&Pace::AtOnce)?;
    segment.end_rewriting(record.id.0);
    if copy_afresh.is_some() {
        note_owed_image(environment, &database, position, scan.end)?;
    }
    let identity = LastingIdentity::of(&record.path).ok();
    environment.update_control(|control| {
        control.know_file(record.id, identity);
        if let Some(stamp) = stamp {
            control.note_whole(WholeFile { database: record.id, scn: scan.end, stamp });
        }
    })?;
    Ok(Reconciled { database, capture, copy_afresh })
}

/// Positions in a WAL, and the redo, mean something for the file that the instance had open, and for no other.
fn check_identity(control: &Control, record: &DatabaseRecord) -> Result<(), InstanceError> {
    let known = control.known_file(record.id).map(|known| known.identity);
    let found = LastingIdentity::of(&record.path).ok();
    match known.zip(found) {
        Some((known, found)) if !known.may_be(&found) => Err(InstanceError::refused(
            format!(
                "another file is at {} than the one that {} was: inode {}, and it was {}; it may be an older copy, or an \
                 empty database that a program made before its volume was mounted",
                record.path.display(),
                record.name,
                found.inode,
                known.inode
            ),
            keep_or_fail_over(record),
        )),
        _ => Ok(()),
    }
}

/// One database at a start, and what the redo says of it.
struct Recovery<'a> {
    environment: &'a Environment,
    log: &'a Arc<RedoLog>,
    database: &'a Database,
    history: History,
    checksums: PageChecksums,
    /// Recovery begins here, so the files held everything before.
    begin: Scn,
    end: Scn,
    left_out: bool,
}

impl<'a> Recovery<'a> {
    fn since_checkpoint(
        environment: &'a Environment,
        log: &'a Arc<RedoLog>,
        database: &'a Database,
        scan: &Scan,
    ) -> Recovery<'a> {
        let id = database.id();
        let history = scan.histories.get(&id).cloned().unwrap_or_default();
        let checksums = scan.checksums.get(&id).cloned().unwrap_or_default();
        let (begin, end, left_out) = (scan.begin, scan.end, false);
        Recovery { environment, log, database, history, checksums, begin, end, left_out }
    }

    /// The checkpoint has moved on without the database, so its redo may be in archived logs.
    fn of_left_out(
        environment: &'a Environment,
        log: &'a Arc<RedoLog>,
        database: &'a Database,
        begin: Scn,
        end: Scn,
    ) -> Result<Recovery<'a>, InstanceError> {
        let record = database.record();
        let mut scan = reconcile::scan(log, begin, end, Default::default()).map_err(|error| {
            InstanceError::refused(
                format!("{} was left out and needs the redo from SCN {begin} on: {error}", record.name),
                format!(
                    "put the archived logs from there on back and restart the instance, or {}",
                    give_up(record)
                ),
            )
        })?;
        let history = scan.histories.remove(&record.id).unwrap_or_default();
        let checksums = scan.checksums.remove(&record.id).unwrap_or_default();
        Ok(Recovery { environment, log, database, history, checksums, begin, end, left_out: true })
    }

    fn record(&self) -> &DatabaseRecord {
        self.database.record()
    }

    /// Where the files claim to stand, if their pages are those of that state.
    fn plan(
        &self,
        connection: &Connection,
        control: &Control,
        header: &WalIndexHeader,
        found: &Found,
    ) -> Result<Plan, InstanceError> {
        if let Some((_, from)) = control.replays.iter().find(|(id, _)| *id == self.record().id) {
            let position = found.beginning().unwrap_or(found.position);
            // Every file without a WAL stands there, whatever it holds.
            let is_any = self.left_out && position == WalPosition::default();
            if is_any && !is_marked(control, self.record()) {
                return Ok(Plan::FindOut("it has no write-ahead log"));
            }
            return Ok(Plan::Reapply(Anchor { position, redo_from: *from, ..Anchor::default() }));
        }
        if header.frames() == 0 && !self.owes_image() && self.is_as_noted() {
            let database_pages = committed_pages(connection, header)?;
            let position = header.position();
            return Ok(Plan::Capture(Anchor {
                position,
                scn: self.end,
                database_pages,
                ..Anchor::default()
            }));
        }
        let plan = reconcile::decide(&self.history, found, self.begin);
        let (Plan::Capture(anchor) | Plan::Reapply(anchor)) = plan else { return Ok(plan) };
        let is_without_wal = anchor.position == WalPosition::default() && found.bare.is_none();
        if is_without_wal {
            return Ok(Plan::FindOut("it has no write-ahead log"));
        }
        if reconcile::is_lost(found.position) || self.is_state_at(header, &anchor)? {
            return Ok(plan);
        }
        Ok(Plan::FindOut("its pages are not those of the position at which its write-ahead log stands"))
    }

    /// Whether the files hold, at the position of `anchor`, the pages that the redo says.
    fn is_state_at(&self, header: &WalIndexHeader, anchor: &Anchor) -> Result<bool, InstanceError> {
        let (record, present) = (self.record(), header.frames());
        let salts = header.salts();
        let read = InstanceError::io("read the write-ahead log of", &record.path);
        let visible = if anchor.position.salts != salts {
            0
        } else if anchor.position.frame == 0 && present > 0 && salts.is_of_rewritten_log() {
            // Its first transaction is what the log before held.
            first_commit_frame(&mut self.database.wal_file()?, record.page_size, salts, present)
                .map_err(read)?
        } else {
            anchor.position.frame
        };
        let frames = Frames { salts, visible: visible.min(present), present };
        let mut pages = self.state(frames)?;
        if anchor.position.salts == salts && !self.is_frame_of(&mut pages, anchor)? {
            self.environment.alert.say(format!(
                "database {}: frame {} of its write-ahead log is not the one that was captured; what its files hold is found \
                 out from the redo",
                record.name, anchor.position.frame
            ));
            return Ok(false);
        }
        let difference = self.checksums.first_difference(&mut pages, record.page_size, anchor.scn)?;
        if let Some(page_no) = difference {
            self.environment.alert.say(format!(
                "database {}: page {page_no} is not what the redo says of {}; what its files hold is found out from the redo",
                record.name, anchor.scn
            ));
        }
        Ok(difference.is_none())
    }

    /// Whether the frame at the position of `anchor` holds what the redo says.
    fn is_frame_of(&self, pages: &mut StateReader, anchor: &Anchor) -> Result<bool, InstanceError> {
        let Some((page_no, checksum)) = anchor.frame_page else { return Ok(true) };
        let record = self.record();
        let mut image = vec![0; record.page_size.bytes()];
        let found = pages
            .read_frame(anchor.position.frame, &mut image)
            .map_err(InstanceError::io("read the write-ahead log of", &record.path))?;
        Ok(found == Some(page_no) && page_sum(page_no, &image) == checksum)
    }

    fn state(&self, frames: Frames) -> Result<StateReader, InstanceError> {
        let record = self.record();
        StateReader::open(self.environment.vfs_base.as_deref(), &record.path, record.page_size, frames)
            .map_err(InstanceError::io("read the pages of", &record.path))
    }

    /// Carries out what the redo proves about files that stand at no position that it knows. Returns where capture goes on,
    /// the size of the database there, and why a full image is needed, if it is.
    ///
    /// # Errors
    /// When the redo proves nothing: the database is left out, and file and redo stay as they are.
    fn settle(
        &self,
        connection: &Connection,
        header: &WalIndexHeader,
        found: &Found,
        why: &'static str,
    ) -> Result<(WalPosition, u32, Option<&'static str>), InstanceError> {
        let record = self.record();
        // An image that was begun and not finished is still owed to the standbys, wherever the files stand.
        let owes_image = self.owes_image();
        // Frames of a WAL that the redo knows were written by sessions and captured: nothing foreign is among them.
        let is_ours =
            header.frames() > 0 && self.history.anchors.iter().any(|a| a.position.salts == header.salts());
        let is_on_top = header.frames() > 0 && !is_ours;
        let foreign = match (is_ours, is_on_top) {
            // What the image was owed for may be foreign.
            (true, _) if owes_image => Foreign::InFile,
            (true, _) => Foreign::Excluded,
            (false, true) => Foreign::InWal,
            (false, false) => Foreign::InFile,
        };
        let as_it_is = |image: bool| {
            let pages = committed_pages(connection, header)?;
            Ok((header.position(), pages, image.then_some(why)))
        };
        if self.is_as_when_image_began(header) {
            return as_it_is(true);
        }
        let whole_at = self.whole_at(found);
        let conclusion = self.find_out(connection, header, foreign, whole_at)?;
        self.environment.alert.say(format!("database {}: {why}; by the redo {conclusion}", record.name));
        match conclusion {
            // What a process without the VFS has written to pages that no redo touches cannot be ruled out.
            Conclusion::Newest { whole } => as_it_is(owes_image || !whole && !self.is_as_noted()),
            Conclusion::Behind { from, whole, certain } if certain || !is_on_top => {
                let (position, pages) = self.roll_forward(connection, from)?;
                let image = owes_image || foreign != Foreign::Excluded && !whole;
                Ok((position, pages, image.then_some(why)))
            }
            Conclusion::ForeignOnNewest if !self.left_out => as_it_is(true),
            // Of a database that was taken up right before the end nothing was acknowledged.
            Conclusion::NothingToCompare if self.history.anchors.is_empty() && !self.left_out => {
                as_it_is(true)
            }
            // What follows in a WAL whose generation the redo does not know comes on top of what is in the file: if that is
            // the newest state nothing is missing. Redo must not be applied over it.
            _ if is_on_top && !self.left_out && self.is_newest_beneath(whole_at)? => as_it_is(true),
            // The redo at hand has no commit, so what there was before is in the file.
            Conclusion::NothingToCompare if is_on_top && !self.left_out && self.follows(found) => {
                as_it_is(true)
            }
            Conclusion::Unproven(page) => Err(not_proven(record, why, page)),
            _ => Err(not_proven(record, why, None)),
        }
    }

    fn find_out(
        &self,
        connection: &Connection,
        header: &WalIndexHeader,
        foreign: Foreign,
        whole_at: Option<Scn>,
    ) -> Result<Conclusion, InstanceError> {
        let present = header.frames();
        let frames = Frames { salts: header.salts(), visible: present, present };
        let pages = committed_pages(connection, header)?;
        self.search(foreign, frames, pages, whole_at)
    }

    /// Whether the file holds the newest state, as if the WAL, of a generation that is not ours, were not there. Its commits
    /// may have made the database smaller: all pages that the file has count.
    fn is_newest_beneath(&self, whole_at: Option<Scn>) -> Result<bool, InstanceError> {
        let none = Frames { salts: WalSalts::default(), visible: 0, present: 0 };
        Ok(self.is_as_noted()
            || matches!(self.search(Foreign::Excluded, none, u32::MAX, whole_at)?, Conclusion::Newest { .. }))
    }

    fn search(
        &self,
        foreign: Foreign,
        frames: Frames,
        pages: u32,
        whole_at: Option<Scn>,
    ) -> Result<Conclusion, InstanceError> {
        let open = || Ok((self.state(frames)?, pages));
        reconcile::find_out(self.log, self.record(), (self.begin, self.end), foreign, whole_at, open)
    }

    /// Whether the standbys wait for an image: one was begun and is not complete, or the redo does not say where the database
    /// stands because it was begun before.
    fn owes_image(&self) -> bool {
        self.history.unfinished_baseline || self.history.anchors.is_empty()
    }

    /// Whether the files still hold what they held when an image was begun that is not complete: nothing is captured
    /// meanwhile, so nothing that was acknowledged is missing.
    fn is_as_when_image_began(&self, header: &WalIndexHeader) -> bool {
        let Some(owed) = self.environment.control().owed_image(self.record().id) else { return false };
        let is_current = !self.left_out
            && owed.scn >= self.begin
            && self.history.last_commit.is_none_or(|scn| scn <= owed.scn);
        let is_there = if owed.position.frame > 0 {
            owed.position.salts == header.salts() && owed.position.frame <= header.frames()
        } else {
            let stamp = FileStamp::of(self.environment.disk.as_ref(), &self.record().path);
            stamp.is_some() && stamp == owed.stamp
        };
        is_current && is_there
    }

    /// Whether SQLite may have made this WAL out of the last one that the redo names, by resetting it: then all of that one is
    /// in the file.
    fn follows(&self, found: &Found) -> bool {
        let last = self.history.anchors.last().map(|anchor| anchor.position.salts);
        let salts = found.bare.unwrap_or(found.position.salts);
        last.is_some_and(|last| reconcile::may_follow(last, salts))
    }

    /// A position before which the file alone held everything once. What is before the beginning of recovery was in the WAL
    /// that the redo names last, durably, if it was not in the file.
    fn whole_at(&self, found: &Found) -> Option<Scn> {
        let noted = self.environment.control().whole_file(self.record().id).map(|whole| whole.scn);
        noted.max((!self.left_out && self.follows(found)).then_some(self.begin))
    }

    /// Whether the file alone holds everything by what was noted of it: it was not written to since, and the redo has no
    /// commit since.
    fn is_as_noted(&self) -> bool {
        let control = self.environment.control();
        let stamp = FileStamp::of(self.environment.disk.as_ref(), &self.record().path);
        control.whole_file(self.record().id).is_some_and(|whole| {
            Some(whole.stamp) == stamp
                && whole.scn >= self.begin
                && self.history.last_commit.is_none_or(|scn| scn <= whole.scn)
        })
    }

    /// Applies the redo from `from` on. The caller holds the write lock and the checkpoint lock, before and after.
    fn roll_forward(&self, connection: &Connection, from: Scn) -> Result<(WalPosition, u32), InstanceError> {
        let (record, environment) = (self.record(), self.environment);
        let guard = Guard::of(connection)?;
        mark_replay(environment, record.id, from)?;
        fault::check(Fault::RecoveryApply).map_err(InstanceError::io("apply redo to", &record.path))?;
        guard.release_write_lock();
        guard.release_checkpoint_lock();
        let done = reconcile::reapply(self.log, record, environment.vfs_base.as_deref(), from, self.end)?;
        guard.hold_checkpoint_lock()?;
        guard.hold_write_lock_within(WRITER_PATIENCE)?;
        environment.alert.say(format!(
            "database {}: {} transactions of the redo from SCN {} on applied",
            record.name, done.transactions, from
        ));
        Database::recover_index(connection)?;
        Ok((done.position, committed_pages(connection, &guard.wal_header()?)?))
    }

    /// Why an image is needed when the database is not at `applied`, where recovery has left it.
    fn foreign_meanwhile(
        &self,
        guard: &Guard<'_>,
        applied: WalPosition,
    ) -> Result<Option<&'static str>, InstanceError> {
        let is_there = guard.wal_header()?.position() == applied;
        Ok((!is_there).then_some("a process that does not use Standfast wrote to it during recovery"))
    }
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

/// The redo may be the better copy: an image of what the file holds would take the place of those of the standbys.
fn not_proven(record: &DatabaseRecord, why: &str, page: Option<PageNo>) -> InstanceError {
    let example = page.map_or(String::new(), |page_no| {
        format!("; page {page_no} is neither what the redo says nor what it was before")
    });
    InstanceError::refused(
        format!(
            "{} does not stand where the redo says ({why}{example}): it may lack commits that were acknowledged",
            record.name
        ),
        keep_or_fail_over(record),
    )
}

/// Whether the file is the one beside which this instance has last written a marker. A failover that left it out did not write
/// another one, and the checksums of the redo from there on prove the rest.
fn is_marked(control: &Control, record: &DatabaseRecord) -> bool {
    let marker = Marker::read(&record.path).ok().flatten();
    marker.zip(FileId::of(&record.path)).is_some_and(|(marker, file)| {
        marker.instance == control.instance.0 && marker.check(&record.path, file).is_ok()
    })
}

fn keep_or_fail_over(record: &DatabaseRecord) -> String {
    format!("restore the file that was here, fail over to a standby, or {}", give_up(record))
}

pub(crate) fn give_up(record: &DatabaseRecord) -> String {
    let (name, path) = (&record.name, record.path.display());
    format!(
        "decide that what it holds now counts: `standfast unprotect {name}`, then `standfast protect {path}` \
         puts that in the place of the standbys' copies"
    )
}
