//! A primary becomes a standby in place: its databases stay where they are, and its standby redo log begins where its
//! redo ends.
//!
//! Order of events, each durable before the next: the files of the databases hold everything; the apply journal of an
//! earlier time as a standby is gone; the standby log begins at the end of the redo; the control file says standby. A
//! crash before the last step leaves a primary that opens as after any stop.

use standfast_environment::config::destination_config::ValidFor;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::DestinationConfig;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::members::note_members;
use standfast_environment::state::control::RestingFile;
use standfast_environment::state::log_layout::recorded;
use standfast_environment::state::now::now_us;
use standfast_format::LogKind;
use standfast_log::{Layout, LogSwitch, RedoLog};
use standfast_primary::commit::database::{Database, Rest};
use standfast_primary::commit::primary::PrimaryShared;
use standfast_primary::open::primary_threads::RedoEnd;
use standfast_primary::ship::destinations::Destinations;
use standfast_session::DatabaseState;
use standfast_transport::LogGeometry;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long read transactions may keep frames from being backfilled.
const READERS_TIMEOUT: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Creates the standby log for the redo of a primary with the online logs `online`. This takes a while, so it is done
/// while this primary still serves. A log that is large enough already stays.
///
/// # Errors
/// When a file cannot be created, or the block sizes differ.
pub fn prepare(environment: &Environment, online: LogGeometry) -> Result<(), InstanceError> {
    let log = environment.log_config(LogKind::Standby);
    if log.block_bytes != online.block_bytes {
        return Err(InstanceError::refused(
            format!("the logs there have blocks of {} bytes, here {}", online.block_bytes, log.block_bytes),
            "create that standby again: it takes the block size of its primary",
        ));
    }
    if let Some(groups) = large_enough(&log.layout().groups, online) {
        let layout = Layout { groups, ..log.layout() };
        let layout = recorded(&environment.config, &environment.paths, &layout);
        environment.update_control(|control| control.redo_layouts.set(LogKind::Standby, layout))?;
    }
    Ok(RedoLog::create_files(environment.disk.as_ref(), &environment.log_config(LogKind::Standby))?)
}

/// Returns the groups of a standby log for the redo of `online`: one more than that has, each as large as its largest.
/// `None`: `groups` are that already. Pure.
fn large_enough(groups: &BTreeMap<usize, u64>, online: LogGeometry) -> Option<BTreeMap<usize, u64>> {
    let count = groups.len().max(online.groups + 1);
    let large = |bytes: u64| bytes.max(online.group_bytes);
    let named = groups.iter().map(|(number, bytes)| (*number, large(*bytes)));
    let mut needed: BTreeMap<usize, u64> = named.collect();
    let unused = (1..).filter(|number| !groups.contains_key(number));
    needed.extend(unused.take(count - groups.len()).map(|number| (number, online.group_bytes)));
    (needed != *groups).then_some(needed)
}

/// Refuses writers from now on, those that wait included, and brings the files of all databases to rest: a writer that
/// waits holds the snapshot that it began with, and no frame beyond it can be backfilled. The threads of the primary have
/// ended.
///
/// # Errors
/// `Refused` when a read transaction is open on frames that are not in the database, and stays open.
pub fn come_to_rest(
    environment: &Environment,
    shared: &PrimaryShared,
) -> Result<Vec<RestingFile>, InstanceError> {
    let databases = shared.all_databases();
    for database in &databases {
        shared.segment.set_state(database.id().0, DatabaseState::Standby);
        shared.segment.wake_all(database.id().0);
    }
    let until = Instant::now() + READERS_TIMEOUT;
    let rests = databases.iter().map(|database| rest_of(environment, database, until));
    Ok(rests.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

fn rest_of(
    environment: &Environment,
    database: &Database,
    until: Instant,
) -> Result<Option<RestingFile>, InstanceError> {
    loop {
        match database.come_to_rest(environment.disk.as_ref())? {
            Rest::Resting(file) => return Ok(file),
            Rest::Backfilling if Instant::now() < until => std::thread::park_timeout(LOOK_EVERY),
            Rest::Backfilling => {
                return Err(InstanceError::refused(
                    format!(
                        "a read transaction keeps the write-ahead log of database {} in use",
                        database.record().name
                    ),
                    "let it end, or end its process, and try again",
                ));
            }
        }
    }
}

/// Makes the directory of this primary, whose threads have ended, that of a standby.
///
/// # Errors
/// When a file cannot be written; the directory is then still that of a primary, unless the control file was replaced
/// and that could not be confirmed.
pub fn step_down(
    environment: &Arc<Environment>,
    end: &RedoEnd,
    rests: Vec<RestingFile>,
) -> Result<(), InstanceError> {
    let disk = &environment.disk;
    remove_apply_journal(environment)?;
    let config = environment.log_config(LogKind::Standby);
    let start = LogSwitch { sequence: end.sequence, first_scn: end.scn, time_us: now_us(), first_record: 0 };
    let (log, _writer) = RedoLog::start(disk.clone(), config, end.identity, start, end.crc)?;
    note_members(environment, &log)?;
    // Everything of the databases is in their files at the end of the redo.
    environment.update_control(|control| {
        for record in &mut control.databases {
            (record.start_scn, record.redo_from, record.begun_empty) = (end.scn, end.scn, false);
        }
        control.begin_as_standby(end.scn, rests);
    })
}

/// Removes the apply journal of an earlier time as a standby.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_apply_journal(environment: &Environment) -> Result<(), InstanceError> {
    let journal = &environment.paths.apply_journal;
    match environment.disk.remove(journal) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(InstanceError::io("remove the old apply journal", journal)(error))
        }
        _ => Ok(()),
    }
}

/// From now on destinations without a role are in use when this instance is the primary again.
pub fn ship_only_as_primary(configured: &mut [DestinationConfig]) {
    let undecided =
        |at: &&mut DestinationConfig| Destinations::are_shipped_to(at) && at.valid_for == ValidFor::default();
    configured.iter_mut().filter(undecided).for_each(|at| at.valid_for = ValidFor::AS_PRIMARY);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standby_log_fits_the_online_logs_of_the_new_primary() {
        let online = LogGeometry { groups: 3, group_bytes: 64, block_bytes: 4096 };
        let needed = |groups: &[(usize, u64)]| large_enough(&groups.iter().copied().collect(), online);
        let made = |groups: &[(usize, u64)]| Some(groups.iter().copied().collect());
        assert_eq!(needed(&[(1, 64), (2, 64), (3, 80), (4, 64)]), None);
        assert_eq!(needed(&[(1, 8), (2, 80), (4, 64)]), made(&[(1, 64), (2, 80), (3, 64), (4, 64)]));
        assert_eq!(needed(&[]), made(&[(1, 64), (2, 64), (3, 64), (4, 64)]));
    }
}
