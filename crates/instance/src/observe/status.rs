//! The state of an instance, as a document. Unknown is `None`, never 0.

use crate::role::far_sync::FarSync;
use crate::role::running::{Mode, Running, RunningPrimary, RunningStandby};
use crate::role::snapshot_standby::seconds_to_apply;
use crate::role::verification::differing_page;
use serde::Serialize;
use standfast_documents::Status;
use standfast_documents::group::Group;
use standfast_documents::status::Database as DatabaseStatus;
use standfast_documents::status::{
    Certificate, Checkpoints, Destination, ForeignProcess, Gap, KeptFile, LagThresholds, Log, Protection,
    Received, Security, Snapshot, Source, Stopped, Superseded, VerifiedDatabase, Wait,
};
use standfast_documents::verification::DifferingPage;
use standfast_environment::config::alert_config::AlertConfig;
use standfast_environment::config::settings::ForeignWriters;
use standfast_environment::context::environment::Environment;
use standfast_environment::security::RenewalState;
use standfast_environment::ship::destination_groups::Ships;
use standfast_environment::state::control::{Control, DatabaseRecord};
use standfast_environment::state::now::now_us;
use standfast_format::LogKind;
use standfast_instruments::{Event, Instruments, Statistic, WaitClass};
use standfast_log::RedoLog;
use standfast_primary::checkpoint::checkpointer::CheckpointCounts;
use standfast_primary::commit::database::{Database, Door};
use standfast_primary::commit::foreign_processes;
use standfast_primary::commit::primary::PrimaryShared;
use standfast_session::DatabaseState;
use standfast_standby::forwarding::Forwarding;
use standfast_standby::standby_shared::StandbyShared;
use standfast_transport::{DestinationStatus, GapStatus, Role, StoppedDatabase, TransportMode};
use standfast_types::Scn;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns the state of the instance.
pub fn status(running: &Running) -> Status {
    let environment = &running.environment;
    let control = environment.control();
    let status = of_every_role(running, &control);
    // A command may wait for a long time; the state of a primary can be requested meanwhile.
    if let Some(primary) = running.primary() {
        return with_primary(status, running, &primary, &control);
    }
    let of_mode = |role: String, state: &str, failure: Option<&String>| Status {
        role: Some(role),
        state: Some(state.into()),
        failure: failure.cloned(),
        ..status.clone()
    };
    match &*running.mode() {
        Mode::Primary(primary) => with_primary(status, running, primary, &control),
        Mode::Standby(standby) => with_standby(status, running, standby),
        Mode::FarSync(far_sync) => with_far_sync(status, running, far_sync),
        Mode::Fenced(why) => of_mode("primary".into(), "fenced", Some(why)),
        Mode::Changing => of_mode(control.role.to_string(), "changing role", None),
        Mode::Stuck(why) => of_mode(control.role.to_string(), "failed", Some(why)),
    }
}

fn of_every_role(running: &Running, control: &Control) -> Status {
    let environment = &running.environment;
    let log_config = environment.log_config(LogKind::Online);
    let (mode, level) = running.protection();
    Status {
        name: Some(environment.config.instance.name.clone()),
        instance: Some(control.instance.to_string()),
        family: Some(control.family.to_string()),
        directory: Some(path(&environment.paths.directory)),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        pid: Some(std::process::id().into()),
        incarnation: Some(control.incarnation().number.into()),
        listen: running.listening().map(|address| address.to_string()),
        time_us: Some(now_us()),
        alerts: Some(environment.alert.last()),
        security: Some(security(environment)),
        verification: running.verification().progress(),
        differing_pages: Some(differing_pages(control)),
        kept_files: Some(control.kept_files.iter().map(kept_file).collect()),
        thresholds: Some(thresholds(&environment.config.alert)),
        log: Some(Log {
            group_bytes: log_config.layout().groups.values().max().copied(),
            block_bytes: Some(log_config.block_bytes as u64),
            checkpoint: Some(control.checkpoint.0),
            ..Log::default()
        }),
        moved_files: Some(environment.places.moved().iter().map(ToString::to_string).collect()),
        local_destinations: Some(running.local_destinations()),
        fast_start_failover: running.fast_start().document(),
        protection: Some(Protection { mode: word(&mode), level: level.and_then(|level| word(&level)) }),
        ..Status::default()
    }
}

pub(crate) fn path(of: &Path) -> String {
    of.to_string_lossy().into_owned()
}

/// Returns how a value is spelled in the configuration.
pub(crate) fn word(of: &impl Serialize) -> Option<String> {
    serde_json::to_value(of).ok()?.as_str().map(str::to_owned)
}

/// Waits that the configuration could avoid; all others are in V$SYSTEM_EVENT.
fn waits(instruments: &Instruments) -> Vec<Wait> {
    let of = |event: &Event| {
        let counts = instruments.event(*event);
        Wait {
            event: Some(event.name().into()),
            count: Some(counts.count),
            time_us: Some(counts.time_ns / 1000),
        }
    };
    let held_up = |event: &&Event| event.class() == WaitClass::Configuration && !event.is_foreground();
    Event::ALL.iter().filter(held_up).map(of).collect()
}

/// Pages of the databases here that differed from the primary's when last compared.
fn differing_pages(control: &Control) -> Vec<DifferingPage> {
    let pages = control.differing.iter().filter_map(|at| {
        let record = control.databases.iter().find(|record| record.id == at.database)?;
        Some(DifferingPage { database: Some(record.name.clone()), ..differing_page(&at.difference) })
    });
    pages.collect()
}

pub(crate) fn kept_file(file: &standfast_environment::state::control::KeptFile) -> KeptFile {
    KeptFile {
        name: Some(file.name.clone()),
        path: Some(path(&file.path)),
        scn: Some(file.scn.0),
        bytes: Some(file.bytes),
        kept_us: Some(file.kept_us),
    }
}

fn thresholds(alert: &AlertConfig) -> LagThresholds {
    LagThresholds {
        transport_lag_warn_s: Some(alert.transport_lag_warn_s),
        transport_lag_critical_s: Some(alert.transport_lag_critical_s),
        apply_lag_warn_s: Some(alert.apply_lag_warn_s),
        apply_lag_critical_s: Some(alert.apply_lag_critical_s),
    }
}

fn security(environment: &Environment) -> Security {
    let now = now_us() / 1_000_000;
    let shown = environment.keeper.shown().ok().flatten();
    let state = environment.keeper.renewal_state();
    Security {
        insecure: Some(environment.config.instance.insecure),
        certificate: shown.as_ref().map(|shown| Certificate {
            name: Some(shown.info.name.clone()),
            fingerprint: Some(shown.info.fingerprint_text()),
            not_after_us: Some(shown.info.not_after * 1_000_000),
            days_left: Some(shown.info.days_left(now)),
            renew_at_us: Some(shown.info.renew_at() * 1_000_000),
            state: state.as_ref().map(|state| RenewalState::word(state).into()),
            renewal_failure: environment.keeper.renewal_failure(),
        }),
        gives_certificates: Some(shown.is_some_and(|shown| shown.is_issuer)),
    }
}

fn with_primary(status: Status, running: &Running, primary: &RunningPrimary, control: &Control) -> Status {
    let shared = primary.threads.shared();
    let captured = shared.buffer.captured();
    let failure = primary.threads.failure();
    let state = match &failure {
        None => "open",
        Some(failure) if failure.is_poisoned => "poisoned",
        Some(_) => "failed",
    };
    let served = shared.all_databases();
    let databases = served.iter().map(|database| of_database(running, shared, control, database));
    // The list of files may be older than the protection of some of them; those are excluded.
    let protected = |path: &PathBuf| control.databases.iter().any(|record| record.path == *path);
    let unprotected = shared.unprotected().into_iter().filter(|path| !protected(path));
    Status {
        role: Some("primary".into()),
        state: Some(state.into()),
        failure: failure.map(|failure| failure.why),
        captured: Some(captured.0),
        durable: Some(shared.buffer.durable().0),
        released: Some(shared.released().0),
        commits: Some(shared.instruments.statistic(Statistic::UserCommits)),
        waiting_commits: Some(shared.held_up_commits() as u64),
        waiting_for: Some(shared.waiting_for()),
        waits: Some(waits(&shared.instruments)),
        checkpoints: Some(checkpoints(primary.threads.checkpoint_counts())),
        sessions: Some(shared.segment.sessions().count() as u64),
        databases: Some(databases.chain(excluded(running, shared, control)).collect()),
        unprotected_files: Some(unprotected.map(|file| path(&file)).collect()),
        destinations: Some(destinations(running, primary.destinations().status(), captured)),
        log: status.log.clone().map(|log| with_groups(log, primary.source.redo_log())),
        ..status
    }
}

fn with_groups(log: Log, of: &RedoLog) -> Log {
    Log { groups: Some(groups(of)), archived: Some(of.archived().len() as u64), ..log }
}

fn checkpoints(counts: CheckpointCounts) -> Checkpoints {
    Checkpoints {
        passive: Some(counts.passive),
        resets: Some(counts.resets),
        rewrites: Some(counts.rewrites),
        gates: Some(counts.gates),
        gate_us_max: Some(counts.gate_us_max),
        early_frames: Some(counts.early_frames),
    }
}

/// What is recorded of a database in every role.
fn recorded(record: &DatabaseRecord, state: &str) -> DatabaseStatus {
    DatabaseStatus {
        id: Some(record.id.0.into()),
        name: Some(record.name.clone()),
        path: Some(path(&record.path)),
        page_size: Some(record.page_size.bytes() as u64),
        state: Some(state.into()),
        ..Default::default()
    }
}

/// The databases that this primary does not serve.
fn excluded<'a>(
    running: &'a Running,
    shared: &'a PrimaryShared,
    control: &'a Control,
) -> impl Iterator<Item = DatabaseStatus> + 'a {
    control.databases.iter().filter(|record| shared.database(record.id).is_none()).filter_map(|record| {
        let from = control.offline_from(record.id)?;
        Some(DatabaseStatus {
            redo_needed_from: Some(from.0),
            why: running.environment.why_offline(record.id),
            ..recorded(record, "left out")
        })
    })
}

fn of_database(
    running: &Running,
    shared: &PrimaryShared,
    control: &Control,
    database: &Database,
) -> DatabaseStatus {
    let record = database.record();
    let state = state_name(shared.segment.state(record.id.0));
    let setting = running.environment.config.instance.foreign_writers(&record.name);
    let foreign = database.foreign_processes().into_iter();
    DatabaseStatus {
        failure: database.failure().map(str::to_owned),
        redo_needed_from: control.offline_from(record.id).map(|scn| scn.0),
        scn: Some(database.last_commit().0),
        wal_frames: database.header().map(|header| header.frames().into()),
        wal_frames_backfilled: Some(database.backfilled().into()),
        foreign_commits: Some(database.foreign_commits()),
        foreign_seen_us: database.foreign_seen_us(),
        foreign_processes: Some(foreign.map(foreign_process).collect()),
        foreign_writers: foreign_writers(database.door(), setting).map(str::to_owned),
        ..recorded(record, &state)
    }
}

fn foreign_process(of: foreign_processes::ForeignProcess) -> ForeignProcess {
    ForeignProcess { pid: Some(of.pid.into()), name: Some(of.name), access: word(&of.access) }
}

/// How processes without the VFS that write are treated; `refusing`: the lock that keeps them out cannot be taken
/// because one of them is writing.
fn foreign_writers(door: Door, setting: ForeignWriters) -> Option<&'static str> {
    match (setting, door) {
        (ForeignWriters::Refuse, Door::Closed) => Some("refused"),
        (ForeignWriters::Refuse, _) => Some("refusing"),
        (ForeignWriters::Count, Door::Unknown) => None,
        (ForeignWriters::Count, _) => Some("counted"),
    }
}

/// Name of the state of a served database, as shown to operators.
fn state_name(state: DatabaseState) -> String {
    match state {
        DatabaseState::Offline => "failed".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// State of the destinations. `captured`: end of the redo that is sent to them.
fn destinations(running: &Running, of: Vec<(DestinationStatus, bool)>, captured: Scn) -> Vec<Destination> {
    of.into_iter().map(|(status, required)| destination(running, status, required, captured)).collect()
}

fn destination(running: &Running, at: DestinationStatus, required: bool, captured: Scn) -> Destination {
    let known = at.received > Scn::ZERO;
    let applies = known && at.role != Some(Role::FarSync);
    let behind = |position: Scn| known.then(|| captured.bytes_since(position));
    // A lag of 0 is certain only while the standby reports.
    let heard = matches!(at.phase, "streaming" | "catching_up");
    let late = |position: Scn| {
        let lag = running.lag_us(position, captured).filter(|lag| *lag > 0 || heard);
        lag.map(|lag| lag as f64 / 1e6)
    };
    let applied = at.stopped.least(at.applied).filter(|_| applies);
    Destination {
        name: Some(at.name),
        address: Some(at.address),
        role: at.role.map(|role| role.to_string()),
        mode: Some(mode_name(at.mode).into()),
        state: Some(at.phase.into()),
        standing: word(&at.standing),
        required: Some(required),
        received: known.then_some(at.received.0),
        hardened: known.then_some(at.hardened.0),
        applied: applies.then_some(at.applied.0),
        stopped_databases: Some(at.stopped.databases.iter().map(stopped_database).collect()),
        stopped_total: Some(at.stopped.total),
        verified_databases: Some(at.verified.databases.iter().map(verified_database).collect()),
        differing_pages: Some(at.verified.differing),
        transport_lag_bytes: behind(at.received),
        transport_lag_s: known.then(|| late(at.received)).flatten(),
        redo_bytes: Some(at.redo_bytes),
        wire_bytes: Some(at.wire_bytes),
        tcp_segments: Some(at.tcp_segments),
        tcp_retransmitted: Some(at.tcp_retransmitted),
        disconnects: Some(at.disconnects),
        timeouts: Some(at.timeouts),
        apply_lag_bytes: applied.and_then(behind),
        apply_lag_s: applied.and_then(late),
        round_trip_us: Some(at.round_trip_us),
        network_round_trip_us: at.network_round_trip_us,
        log_write_us: at.log_write_us,
        responses: Some(up_to_the_last(&at.responses.buckets).to_vec()),
        delay_s: at.delay.map(|delay| delay.as_secs()),
        last_heard_us: at.last_heard_us,
        failures: Some(at.failures.into()),
        last_trouble: at.last_error,
        gap: at.gap.map(gap),
    }
}

fn stopped_database(of: &StoppedDatabase) -> Stopped {
    Stopped {
        database: Some(of.database.clone()),
        applied: of.applied.map(|scn| scn.0),
        reason: Some(of.reason.clone()),
    }
}

fn verified_database(of: &standfast_transport::VerifiedDatabase) -> VerifiedDatabase {
    VerifiedDatabase {
        database: Some(of.database.clone()),
        run: Some(of.run),
        compared: Some(of.compared),
        scn: Some(of.scn.0),
        differing: Some(of.differing),
        pages: Some(of.pages.iter().map(differing_page).collect()),
    }
}

fn gap(of: GapStatus) -> Gap {
    Gap {
        low_sequence: Some(of.low_sequence),
        high_sequence: Some(of.high_sequence),
        from: Some(of.from.0),
        to: Some(of.to.0),
        bytes: Some(of.bytes),
        bytes_left: Some(of.bytes_left),
        connections: Some(of.connections.into()),
    }
}

/// The counts without trailing zeros: most buckets are always empty.
fn up_to_the_last(buckets: &[u64]) -> &[u64] {
    &buckets[..buckets.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1)]
}

/// As spelled on the command line and in the configuration.
fn mode_name(mode: TransportMode) -> &'static str {
    match mode {
        TransportMode::SyncAffirm => "sync-affirm",
        TransportMode::FastSync => "fastsync",
        TransportMode::Async => "async",
    }
}

fn with_standby(status: Status, running: &Running, standby: &RunningStandby) -> Status {
    let shared = standby.standby.shared();
    let applied = shared.applied();
    let stopped = shared.stopped();
    let control = running.environment.control();
    let snapshot = control.snapshot.as_ref();
    let state = match (stopped.total, shared.apply_is_on()) {
        _ if snapshot.is_some() => "snapshot standby",
        (0, true) => "applying",
        (0, false) => "apply stopped",
        _ => "apply error",
    };
    let received = Received {
        applied: Some(applied.0),
        applied_time_us: shared.applied_commit_us(),
        stopped_databases: Some(stopped.databases.iter().map(stopped_database).collect()),
        apply_lag_bytes: stopped.least(applied).map(|least| shared.confirmed().bytes_since(least)),
        transactions: Some(shared.transactions()),
        delay_s: Some(shared.delay_us(&running.environment) / 1_000_000),
        next_apply_us: shared.next_due_us(),
        snapshot: snapshot.map(|snapshot| Snapshot {
            since_us: Some(snapshot.since_us),
            apply_s: seconds_to_apply(snapshot, shared.confirmed()),
        }),
        ..received(running, shared)
    };
    let is_stopped =
        |name: &str| stopped.databases.iter().any(|at| at.database == name || at.database == "(all)");
    let state_of = |name: &str| match is_stopped(name) {
        _ if snapshot.is_some() => "snapshot",
        true => "stopped",
        false => "standby",
    };
    let databases = control.databases.iter().map(|record| recorded(record, state_of(&record.name)));
    Status {
        role: Some("standby".into()),
        state: Some(state.into()),
        standby: Some(received),
        databases: Some(databases.collect()),
        ..with_received(status, running, shared, &standby.forwarding)
    }
}

/// What a standby and a far sync have received.
fn received(running: &Running, shared: &Arc<StandbyShared>) -> Received {
    let heard = shared.last_heard_us();
    let source_end = shared.source_end();
    let lags = running.lags_of(shared, now_us());
    let missing = source_end.map(|end| end.0.saturating_sub(shared.hardened().0));
    let seconds = |lag: Option<u64>| lag.map(|lag| lag as f64 / 1e6);
    let superseded_by = running.environment.of_control(|control| {
        let newer = control.superseded_by.as_ref();
        newer.map(|newer| Superseded {
            incarnation: Some(newer.number().into()),
            peer: Some(newer.peer.clone()),
        })
    });
    Received {
        superseded_by,
        connected: Some(running.is_streaming()),
        gap: running.gap().map(gap),
        received: Some(shared.hardened().0),
        hardened: Some(shared.hardened().0),
        confirmed: Some(shared.confirmed().0),
        last_heard_us: (heard != 0).then_some(heard),
        source: source(&running.environment.control()),
        source_end: source_end.map(|scn| scn.0),
        transport_lag_bytes: lags.transport_us.and(missing),
        transport_lag_s: seconds(lags.transport_us),
        apply_lag_s: seconds(lags.apply_us),
        log_warning: shared.sizing_warning(),
        ..Received::default()
    }
}

/// Adds what a standby and a far sync have in common.
fn with_received(
    status: Status,
    running: &Running,
    shared: &Arc<StandbyShared>,
    forwarding: &Forwarding,
) -> Status {
    let instruments = &running.environment.instruments;
    let forwarded = forwarding.status();
    Status {
        log: status.log.clone().map(|log| with_groups(log, &shared.log)),
        waiting_for: Some(instruments.held_up_by().map_or("", Event::name).into()),
        waits: Some(waits(instruments)),
        destinations: (!forwarded.is_empty()).then(|| destinations(running, forwarded, shared.hardened())),
        ..status
    }
}

fn with_far_sync(status: Status, running: &Running, far_sync: &FarSync) -> Status {
    Status {
        role: Some("far sync".into()),
        state: Some("forwarding".into()),
        standby: Some(received(running, far_sync.shared())),
        ..with_received(status, running, far_sync.shared(), &far_sync.forwarding)
    }
}

/// Origin of the redo, as the newest stream reported it.
fn source(control: &Control) -> Option<Source> {
    let upstream = control.upstream.as_ref()?;
    Some(Source {
        name: Some(upstream.name.clone()),
        role: Some(upstream.role.to_string()),
        via: Some(upstream.via.iter().map(|hop| hop.name.clone()).collect()),
    })
}

/// The groups of a log, for `status` and for the catalog.
pub(crate) fn groups(log: &RedoLog) -> Vec<Group> {
    let files = |of: &[PathBuf]| of.iter().map(|file| path(file)).collect();
    let group = |group: &standfast_log::GroupView| Group {
        group: Some(group.group as u64),
        state: Some(format!("{:?}", group.state).to_lowercase()),
        sequence: group.header.map(|header| header.sequence),
        first_scn: group.header.map(|header| header.first_scn.0),
        first_time_us: group.header.map(|header| header.first_time_us),
        next_scn: group.next_scn.map(|scn| scn.0),
        archived: Some(group.archived),
        bytes: Some(group.bytes),
        members: Some(files(&group.members)),
        lost_members: Some(files(&group.dropped)),
    };
    log.groups().iter().map(group).collect()
}
