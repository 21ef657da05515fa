//! A standby becomes primary: everything hardened is applied, a new incarnation begins.
//!
//! Order of events, each durable before the next: all the redo counts as confirmed; the databases hold it; the
//! standby log ends and is archived; the online log begins with the incarnation and the state of every database; the
//! control file says primary. A crash before the last step leaves a standby that can be failed over again. So does an
//! error: the instance then goes on as a standby, as after a restart.
//!
//! A database that has stopped or cannot be opened does not hold all the redo: the new primary leaves it out.

use crate::applier::Applier;
use crate::apply_thread::redo_is_read;
use crate::control::{Control, DatabaseRecord, Incarnation, Role};
use crate::database::{committed_pages, open_guarded};
use crate::environment::Environment;
use crate::error::InstanceError;
use crate::members::note_members;
use crate::now_us;
use crate::standby::{LentLog, ReceivedLog, Standby};
use rusqlite::Connection;
use standfast_format::{LogKind, RecordBuilder};
use standfast_log::{LogIdentity, LogSwitch, RedoLog};
use standfast_sqlite_wal::guard::Guard;
use standfast_transport::GivenUp;
use standfast_transport::protection::ProtectionMode;
use standfast_types::{DatabaseId, IncarnationId, Scn};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What a failover found.
pub struct FailedOver {
    /// Where the new incarnation begins: all redo before is in the databases.
    pub branch: Scn,
    /// Keep the wal-index of every database as it is noted in the redo until the primary has opened them.
    pub keepers: Vec<Connection>,
}

/// What the operator is told when a failover failed and the standby goes on.
pub fn failed(error: &InstanceError) -> InstanceError {
    let text = error.to_string();
    let (cause, remedy) = text.split_once("\nhint: ").unwrap_or((&text, "remove the cause"));
    InstanceError::Answered {
        what: format!("the failover failed: {cause}; this instance is still a standby and goes on as one"),
        hint: Some(format!("{remedy}; then run `standfast failover` again")),
        code: 1,
    }
}

/// What the operator is told when the instance is in no role any more.
pub fn stuck(why: &str) -> InstanceError {
    InstanceError::Answered {
        what: format!("the change of role failed, and this instance has no role now: {why}"),
        hint: Some(
            "remove the cause and restart the instance; it opens in the role that its control file says, and \
             `standfast status` tells whether `standfast failover` is to be repeated"
                .into(),
        ),
        code: 1,
    }
}

/// The control file on disk says what this process believes, that this is a standby: a replacement that failed may
/// be there all the same.
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

/// Makes this standby's directory that of a primary. The receiver no longer has the log.
///
/// # Errors
/// When redo cannot be applied or a file not be written; the directory is then still that of a standby, which can be
/// opened as after a restart once `standby` and `received` are gone.
pub fn become_primary(
    environment: &Arc<Environment>,
    standby: Standby,
    received: &Arc<Mutex<ReceivedLog>>,
) -> Result<FailedOver, InstanceError> {
    take_over(environment, standby.stop()?, received)
}

/// [`become_primary`] once the threads of the standby have ended.
///
/// # Errors
/// As there.
pub fn take_over(
    environment: &Arc<Environment>,
    mut applier: Applier,
    received: &Arc<Mutex<ReceivedLog>>,
) -> Result<FailedOver, InstanceError> {
    let received = LentLog(received.clone());
    // Recovery replays as far as is confirmed: it must not end before what the databases may hold.
    received.confirm_everything()?;
    if let Some(GivenUp { end, to, received }) = received.given_up() {
        environment.alert.say(format!(
            "a gap was open: redo {end}..{to} never came, and what had come beyond it, {to}..{received}, is not applied; \
             commits of the old primary from SCN {end} on are not here | hint: none of them was acknowledged because of this \
             standby; if another standby has more, fail over that one"
        ));
    }
    let (from, began) = (applier.shared().applied(), Instant::now());
    let branch = applier.apply_everything()?;
    redo_is_read(environment, applier.shared());
    environment.alert.say(format!(
        "failover: redo applied up to the end, {branch}: {} bytes in {:.2} s",
        branch.0.saturating_sub(from.0),
        began.elapsed().as_secs_f64()
    ));
    let stopped = applier.shared().stopped().databases;
    for stopped in &stopped {
        let since = stopped.applied.map_or("an unknown SCN".into(), |scn| format!("SCN {scn}"));
        environment.alert.say(format!(
            "database {} is left out, its redo since {since} is not applied: {} | hint: `unprotect` and `protect` \
             it to take it as it is",
            stopped.database, stopped.reason
        ));
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
    let incarnation = Incarnation { number: control.incarnation().number + 1, id, branch, time_us: now_us() };
    let identity =
        LogIdentity { instance: control.family, incarnation: incarnation.number, incarnation_id: id };
    let config = environment.log_config(LogKind::Online);
    // A member that cannot be made must not keep the standby from taking over: starting the log says so.
    RedoLog::create_living_files(environment.disk.as_ref(), &config);
    let start = LogSwitch { sequence: 1, first_scn: branch, time_us: incarnation.time_us, first_record: 0 };
    let (log, mut writer) = RedoLog::start(environment.disk.clone(), config, identity, start, crc)?;
    note_members(environment, &log)?;
    let whole = |record: &&DatabaseRecord| stopped.iter().all(|stopped| stopped.database != record.name);
    let records: Vec<&DatabaseRecord> = control.databases.iter().filter(whole).collect();
    let Opening { records, keepers, known } = opening_records(environment, &records, &incarnation)?;
    writer.write(&[&records], branch)?;

    environment.update_control(|control| {
        control.role = Role::Primary;
        control.upstream = None;
        // Nobody protects a new primary yet: it must open all the same.
        if control.protection_mode == ProtectionMode::MaximumProtection {
            control.protection_mode = ProtectionMode::MaximumAvailability;
        }
        control.copied = true;
        control.incarnations.push(incarnation);
        control.checkpoint = branch;
        let unknown = control.databases.iter().map(|record| record.id).filter(|id| !known.contains(id));
        control.left_out = unknown.map(|id| (id, branch)).collect();
    })?;
    Ok(FailedOver { branch, keepers })
}

struct Opening {
    records: Vec<u8>,
    keepers: Vec<Connection>,
    known: Vec<DatabaseId>,
}

/// The incarnation, and where each of `databases` that can be opened stands in its own WAL.
fn opening_records(
    environment: &Environment,
    databases: &[&DatabaseRecord],
    incarnation: &Incarnation,
) -> Result<Opening, InstanceError> {
    let (mut records, mut keepers, mut known) = (Vec::new(), Vec::new(), Vec::new());
    let Incarnation { number, id, branch, time_us } = incarnation.clone();
    RecordBuilder::incarnation(&mut records, number, id, branch, time_us);
    for record in databases {
        match open_guarded(&record.path, environment.vfs_base.as_deref()) {
            Ok(connection) => {
                let header = Guard::of(&connection)?.wal_header()?;
                let pages = committed_pages(&connection, &header)?;
                RecordBuilder::wal_generation(&mut records, record.id, header.position(), pages, true);
                keepers.push(connection);
                known.push(record.id);
            }
            Err(error) => {
                environment
                    .alert
                    .say(format!("database {} cannot be opened as primary: {error}", record.name));
            }
        }
    }
    Ok(Opening { records, keepers, known })
}
