//! A standby becomes primary: all hardened redo is applied, and a new incarnation begins.
//!
//! Order of events, each durable before the next: all the redo counts as confirmed; the databases hold it; the standby
//! log ends and is archived; the online log begins with the incarnation and the state of every database; the control
//! file says primary. A crash before the last step leaves a standby that can be failed over again. So does an error:
//! the instance then continues as a standby, as after a restart.
//!
//! A database that has stopped or cannot be opened does not hold all the redo. Databases that stopped for a reason that
//! may pass are tried again first. If any remain, the failover is refused, unless the operator decides that they stay
//! offline at the new primary. Their redo is kept as far as it is here, and later starts take it back.

use rusqlite::Connection;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::members::note_members;
use standfast_environment::ship::open_database::open_guarded;
use standfast_environment::state::control::{Control, DatabaseRecord, Incarnation, Role, WholeFile};
use standfast_environment::state::now::now_us;
use standfast_format::{LogKind, RecordBuilder};
use standfast_log::{LogIdentity, LogSwitch, RedoLog};
use standfast_primary::commit::database::committed_pages;
use standfast_primary::commit::whole_file::stamp_without_wal;
use standfast_sqlite_wal::guard::Guard;
use standfast_standby::applier::Applier;
use standfast_standby::apply_thread::redo_is_read;
use standfast_standby::received_log::{LentLog, ReceivedLog};
use standfast_standby::standby::Standby;
use standfast_standby::stopped::ALL;
use standfast_transport as transport;
use standfast_transport::GivenUp;
use standfast_transport::protection::ProtectionMode;
use standfast_types::{DatabaseId, Hint, IncarnationId, Scn, hint};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a failover retries databases to which redo is not applied.
const TRY_AGAIN: Duration = Duration::from_secs(5);
const TRY_EVERY: Duration = Duration::from_millis(200);

/// A database that stays offline at a new primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfflineDatabase {
    pub database: String,
    /// Last commit that is in it, when known.
    pub applied: Option<Scn>,
    pub reason: String,
    /// Start of the redo that it lacks, which is kept for a later start; `None`: some of that redo is missing here.
    pub redo_from: Option<Scn>,
}

impl OfflineDatabase {
    /// Returns the message for the operator.
    pub fn text(&self) -> String {
        let since = self.applied.map_or("an unknown SCN".into(), |scn| format!("SCN {scn}"));
        format!("redo since {since} is not in database {}: {}", self.database, hint::split(&self.reason).0)
    }

    /// Returns what can be done once this instance is the primary.
    pub fn remedy(&self) -> String {
        let name = &self.database;
        match self.redo_from {
            Some(from) => format!(
                "its redo is kept from SCN {from} on: remove the cause and restart the instance, which applies it; or decide \
                 what counts: `standfast database resolve {name}`"
            ),
            None => {
                format!(
                    "decide what counts: `standfast database resolve {name}` shows what each choice would lose"
                )
            }
        }
    }
}

pub struct FailedOver {
    /// Where the new incarnation begins: the databases hold all earlier redo.
    pub branch: Scn,
    /// Databases that are offline: they do not hold all the redo.
    pub offline: Vec<OfflineDatabase>,
    /// Databases that are served although pages differed when they were last compared, in words.
    pub differing: Vec<String>,
    /// Connections that keep the wal-index of every database as the redo names it, until the primary has opened the
    /// databases.
    pub keepers: Vec<Connection>,
}

/// Returns the error for the operator when a failover failed and the standby continues.
pub fn failed(error: &InstanceError) -> InstanceError {
    if let InstanceError::Refused { what, hint } = error {
        return InstanceError::Answered {
            what: format!("{what}; this instance is still a standby and continues as one"),
            hint: Some(hint.clone()),
            code: error.exit_code(),
        };
    }
    let remedy = error.hint().unwrap_or("remove the cause".into());
    InstanceError::failed(
        format!("the failover failed: {error}; this instance is still a standby and continues as one"),
        format!("{remedy}; then run `standfast failover` again"),
    )
}

/// Returns the error for the operator when the instance is no longer in any role.
pub fn stuck(why: &str) -> InstanceError {
    InstanceError::failed(
        format!("the change of role failed, and this instance has no role now: {why}"),
        "remove the cause and restart the instance; it opens in the role that its control file says, and \
         `standfast status` tells whether `standfast failover` is to be repeated",
    )
}

/// Checks that the control file on disk says standby, as this process does: a replacement of the file that returned an
/// error may have taken effect.
///
/// # Errors
/// When it says something else or cannot be read.
pub fn is_still_standby(environment: &Environment) -> Result<(), InstanceError> {
    let stored = Control::load(environment.disk.as_ref(), &environment.paths.control)?;
    if stored.role == Role::Standby && stored == environment.control() {
        return Ok(());
    }
    Err(InstanceError::Failed("the control file says otherwise".into()))
}

/// Makes this standby's directory that of a primary. Call it once the receiver has released the log. `immediate`: even if
/// databases have to stay offline. `handed_over`: by the old primary, whose protection mode continues.
///
/// # Errors
/// When redo cannot be applied or a file cannot be written; `Refused` when a database would be left offline. The
/// directory is then still that of a standby, which can be opened as after a restart once `standby` and `received` are
/// dropped.
pub fn become_primary(
    environment: &Arc<Environment>,
    standby: Standby,
    received: &Arc<Mutex<ReceivedLog>>,
    immediate: bool,
    handed_over: bool,
) -> Result<FailedOver, InstanceError> {
    let applier = standby.stop()?.ok_or_else(|| {
        InstanceError::refused(
            "this is a snapshot standby",
            "make it apply redo again with `standfast convert physical-standby`",
        )
    })?;
    take_over(environment, applier, received, immediate, handed_over)
}

/// Retries, for a while, databases that stopped for a reason that may pass. Also with `immediate`: space that was freed a
/// moment ago may keep a database from being left offline.
fn try_again(environment: &Environment, mut applier: Applier) -> Result<Applier, InstanceError> {
    let until = Instant::now() + TRY_AGAIN;
    let mut reported = false;
    while applier.may_resume() {
        if !std::mem::replace(&mut reported, true) {
            environment.alert.say("failover: databases to which redo is not applied are tried again");
        }
        applier = applier.opened_again()?;
        if Instant::now() >= until || !applier.may_resume() {
            break;
        }
        std::thread::park_timeout(TRY_EVERY);
    }
    Ok(applier)
}

/// Returns the databases that the new primary would leave offline.
fn offline_databases(applier: &Applier) -> Vec<OfflineDatabase> {
    let control = applier.environment().control();
    let here = applier.redo_still_here();
    let kept = |name: &str| {
        let record = control.databases.iter().find(|record| record.name == name)?;
        here.iter().find(|(id, _)| *id == record.id).map(|(_, from)| *from)
    };
    let stopped = applier.shared().stopped().databases.into_iter().filter(|stopped| stopped.database != ALL);
    stopped
        .map(|stopped| OfflineDatabase {
            redo_from: kept(&stopped.database),
            database: stopped.database,
            applied: stopped.applied,
            reason: stopped.reason,
        })
        .collect()
}

fn check_offline(offline: &[OfflineDatabase], immediate: bool) -> Result<(), InstanceError> {
    let Some(first) = offline.first().filter(|_| !immediate) else { return Ok(()) };
    let all: Vec<String> = offline.iter().map(OfflineDatabase::text).collect();
    let may_pass = offline.iter().all(|database| database.redo_from.is_some());
    let remedy = match hint::split(&first.reason).1 {
        Some(remedy) if may_pass => format!("{remedy}; then run `standfast failover` again"),
        _ if may_pass => "remove the cause, then run `standfast failover` again".into(),
        _ => "if the primary still runs, `standfast unprotect` and `standfast protect` there copy the database here again".into(),
    };
    Err(InstanceError::refused(
        format!("the failover would leave {} of its databases offline: {}", offline.len(), all.join("; ")),
        format!(
            "{remedy}; `standfast failover --immediate` takes over without them, and says whether their redo is kept"
        ),
    ))
}

/// Does the work of [`become_primary`] once the threads of the standby have ended.
///
/// # Errors
/// Those of [`become_primary`].
pub fn take_over(
    environment: &Arc<Environment>,
    applier: Applier,
    received: &Arc<Mutex<ReceivedLog>>,
    immediate: bool,
    handed_over: bool,
) -> Result<FailedOver, InstanceError> {
    let received = LentLog(received.clone());
    // Before anything counts as confirmed: a refused standby continues as if nothing had happened.
    let mut applier = try_again(environment, applier)?;
    check_offline(&offline_databases(&applier), immediate)?;
    // Recovery replays up to confirmed: it must not end before what the databases may hold.
    received.confirm_everything()?;
    if let Some(GivenUp { end, to, received }) = received.given_up() {
        environment.alert.say(hint::in_one_line(
            format_args!(
                "a gap was open: redo {end}..{to} never came, and what had come beyond it, {to}..{received}, is not applied; \
                 commits of the old primary from SCN {end} on are not here"
            ),
            Some(
                "none of them was acknowledged because of this standby; if another standby has more, fail over that one",
            ),
        ));
    }
    let (from, began) = (applier.shared().applied(), Instant::now());
    let mut branch = applier.apply_everything()?;
    redo_is_read(environment, applier.shared());
    if applier.may_resume() {
        applier = try_again(environment, applier)?;
        branch = applier.apply_everything()?;
    }
    environment.alert.say(format!(
        "failover: redo applied up to the end, {branch}: {} bytes in {:.2} s",
        branch.0.saturating_sub(from.0),
        began.elapsed().as_secs_f64()
    ));
    let mut offline = offline_databases(&applier);
    check_offline(&offline, immediate)?;
    let kept = applier.redo_still_here();
    let mut differing = Vec::new();
    for found in
        applier.shared().verified.since(0, |id| environment.database_name(id)).map_or(vec![], |(_, all)| all)
    {
        if found.differing > 0 {
            let pages: Vec<_> = found.pages.iter().take(10).map(|page| page.page.to_string()).collect();
            let what = format!(
                "{} pages of database {} were not what the old primary had when they were last compared, and \
                 are served from now on: {}",
                found.differing,
                found.database,
                pages.join(", ")
            );
            let remedy = "run `PRAGMA integrity_check`, and take what they hold from a backup";
            differing.push(hint::in_one_line(what, Some(remedy)));
        }
    }
    for text in &differing {
        environment.alert.say(format!("failover: {text}"));
    }
    let unfinished = applier.shared().hardened().bytes_since(branch);
    if unfinished > 0 {
        environment.alert.say(format!(
            "failover: {unfinished} bytes of an unfinished record are dropped; they hold no commit"
        ));
    }
    applier.into_apply().release_for_failover()?;
    environment.alert.say("failover: what was applied is durable in the databases");
    let crc = received.close_at(branch)?;

    let control = environment.control();
    let id =
        IncarnationId::random().map_err(InstanceError::io("read random numbers from", "/dev/urandom"))?;
    let incarnation = Incarnation { number: control.next_incarnation(), id, branch, time_us: now_us() };
    let identity =
        LogIdentity { instance: control.family, incarnation: incarnation.number, incarnation_id: id };
    let config = environment.log_config(LogKind::Online);
    // A member that cannot be created must not keep the standby from taking over: starting the log reports it.
    RedoLog::create_living_files(environment.disk.as_ref(), &config);
    let start = LogSwitch { sequence: 1, first_scn: branch, time_us: incarnation.time_us, first_record: 0 };
    let (log, mut writer) = RedoLog::start(environment.disk.clone(), config, identity, start, crc)?;
    note_members(environment, &log)?;
    let whole = |record: &&DatabaseRecord| offline.iter().all(|database| database.database != record.name);
    let records: Vec<&DatabaseRecord> = control.databases.iter().filter(whole).collect();
    let Opening { records, keepers, known, whole_files, unopened } =
        opening_records(environment, &records, &incarnation)?;
    check_offline(&unopened, immediate)?;
    offline.extend(unopened);
    for database in &offline {
        let text = hint::in_one_line(database.text(), Some(&database.remedy()));
        environment.alert.say(format!("failover: {text}"));
    }
    writer.write(&[&records], branch)?;

    let began = transport::Incarnation { number: incarnation.number, id, branch };
    let family = control.incarnations.first().map_or(id, |first| first.id);
    let promotion =
        environment.keeper.sign_promotion(family, began, incarnation.time_us).unwrap_or_else(|error| {
            // The new primary also announces the promotion itself; an instance that passes it on is not trusted without
            // the record.
            environment.alert.say(format!(
                "failover: the record of the promotion cannot be signed: {}",
                error.in_one_line()
            ));
            None
        });
    environment.update_control(|control| {
        // What was synchronised with this instance in an earlier time as the primary may be gone, as the old primary is.
        if !handed_over {
            control.synchronised = Some(Default::default());
        }
        control.role = Role::Primary;
        control.no_fast_start();
        control.upstream = None;
        control.superseded_by = None;
        control.trust.promotion = promotion;
        // No standby protects a new primary yet: it must open nevertheless. One that was handed its role ships to the old
        // primary.
        if !handed_over && control.protection_mode == ProtectionMode::MaximumProtection {
            control.protection_mode = ProtectionMode::MaximumAvailability;
        }
        control.copied = true;
        control.incarnations.push(incarnation);
        control.checkpoint = branch;
        control.whole_files = whole_files;
        control.whole_files.retain(|whole| kept.iter().all(|(kept, _)| *kept != whole.database));
        control.owed_images.clear();
        control.resting_files.clear();
        let unknown = control.databases.iter().map(|record| record.id).filter(|id| !known.contains(id));
        let needs = |id| kept.iter().find(|(kept, _)| *kept == id).map_or(branch, |(_, from)| *from);
        control.offline = unknown.map(|id| (id, needs(id))).collect();
        // These databases are behind the redo, and their own WAL does not show exactly where.
        control.replays = kept.clone();
    })?;
    Ok(FailedOver { branch, offline, differing, keepers })
}

struct Opening {
    records: Vec<u8>,
    keepers: Vec<Connection>,
    known: Vec<DatabaseId>,
    whole_files: Vec<WholeFile>,
    unopened: Vec<OfflineDatabase>,
}

/// Builds the record of the incarnation, and for each of `databases` that can be opened a record of its position in its
/// own WAL.
fn opening_records(
    environment: &Environment,
    databases: &[&DatabaseRecord],
    incarnation: &Incarnation,
) -> Result<Opening, InstanceError> {
    let (mut records, mut keepers, mut known) = (Vec::new(), Vec::new(), Vec::new());
    let (mut whole_files, mut unopened) = (Vec::new(), Vec::new());
    let Incarnation { number, id, branch, time_us } = incarnation;
    RecordBuilder::incarnation(&mut records, *number, *id, *branch, *time_us);
    for record in databases {
        match open_guarded(&record.path, environment.vfs_base.as_deref()) {
            Ok(connection) => {
                let header = Guard::of(&connection)?.wal_header()?;
                let pages = committed_pages(&connection, &header)?;
                RecordBuilder::wal_generation(&mut records, record.id, header.position(), pages, true);
                // What was applied is durable, and without a WAL it is in the file.
                let stamp = stamp_without_wal(environment, record, &header);
                whole_files.extend(stamp.map(|stamp| WholeFile { database: record.id, scn: *branch, stamp }));
                keepers.push(connection);
                known.push(record.id);
            }
            Err(error) => unopened.push(OfflineDatabase {
                database: record.name.clone(),
                applied: Some(*branch),
                reason: hint::for_terminal(
                    format_args!("it cannot be opened as primary: {error}"),
                    error.hint().as_deref(),
                ),
                redo_from: None,
            }),
        }
    }
    Ok(Opening { records, keepers, known, whole_files, unopened })
}
