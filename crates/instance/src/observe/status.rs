//! The state of an instance as JSON. Unknown is null, never 0.

use crate::role::far_sync::FarSync;
use crate::role::running::{Mode, Running, RunningPrimary, RunningStandby};
use serde_json::{Value, json};
use standfast_environment::config::alert_config::AlertConfig;
use standfast_environment::config::settings::ForeignWriters;
use standfast_environment::security::RenewalState;
use standfast_environment::ship::destination_groups::Ships;
use standfast_environment::state::control::Control;
use standfast_environment::state::now::now_us;
use standfast_format::LogKind;
use standfast_instruments::{Event, Instruments, Statistic, WaitClass};
use standfast_primary::commit::database::Door;
use standfast_session::DatabaseState;
use standfast_standby::forwarding::Forwarding;
use standfast_standby::standby_shared::StandbyShared;
use standfast_transport::{DestinationStatus, Role, TransportMode};
use standfast_types::Scn;
use std::path::PathBuf;
use std::sync::Arc;

/// Returns the state of the instance.
pub fn status(running: &Running) -> Value {
    let environment = &running.environment;
    let control = environment.control();
    let log_config = environment.log_config(LogKind::Online);
    let mut status = json!({
        "name": environment.config.instance.name,
        "instance": control.instance.to_string(),
        "family": control.family.to_string(),
        "directory": environment.paths.directory,
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "incarnation": control.incarnation().number,
        "listen": running.listening(),
        "time_us": now_us(),
        "alerts": environment.alert.last(),
        "security": security(environment),
        "verification": running.verification().progress(),
        "differing_pages": differing_pages(&control),
        "kept_files": control.kept_files,
        "thresholds": thresholds(&environment.config.alert),
        "log": {
            "group_bytes": log_config.layout().groups.values().max(),
            "block_bytes": log_config.block_bytes,
            "checkpoint": control.checkpoint,
        },
    });
    let moved = environment.places.moved();
    status["moved_files"] = json!(moved.iter().map(ToString::to_string).collect::<Vec<_>>());
    let (mode, level) = running.protection();
    status["local_destinations"] = json!(running.local_destinations());
    status["protection"] = json!({ "mode": mode, "level": level });
    // A command may wait for a long time; the state of a primary can be requested meanwhile.
    if let Some(primary) = running.primary() {
        add_primary(&mut status, running, &primary, &control);
        return status;
    }
    match &*running.mode() {
        Mode::Primary(primary) => add_primary(&mut status, running, primary, &control),
        Mode::Standby(standby) => add_standby(&mut status, running, standby),
        Mode::FarSync(far_sync) => add_far_sync(&mut status, running, far_sync),
        Mode::Fenced(why) => {
            status["role"] = json!("primary");
            status["state"] = json!("fenced");
            status["failure"] = json!(why);
        }
        Mode::Changing => {
            status["role"] = json!(control.role);
            status["state"] = json!("changing role");
        }
        Mode::Stuck(why) => {
            status["role"] = json!(control.role);
            status["state"] = json!("failed");
            status["failure"] = json!(why);
        }
    }
    status
}

/// Waits that the configuration could avoid; all others are in V$SYSTEM_EVENT.
fn waits(instruments: &Instruments) -> Value {
    let of = |event: &Event| {
        let counts = instruments.event(*event);
        json!({ "event": event.name(), "count": counts.count, "time_us": counts.time_ns / 1000 })
    };
    let held_up = |event: &&Event| event.class() == WaitClass::Configuration && !event.is_foreground();
    Event::ALL.iter().filter(held_up).map(of).collect()
}

/// Pages of the databases here that differed from the primary's when last compared.
fn differing_pages(control: &Control) -> Value {
    let pages = control.differing.iter().filter_map(|at| {
        let record = control.databases.iter().find(|record| record.id == at.database)?;
        Some(json!({ "database": record.name, "page": at.difference.page, "scn": at.difference.scn }))
    });
    pages.collect()
}

fn thresholds(alert: &AlertConfig) -> Value {
    json!({
        "transport_lag_warn_s": alert.transport_lag_warn_s,
        "transport_lag_critical_s": alert.transport_lag_critical_s,
        "apply_lag_warn_s": alert.apply_lag_warn_s,
        "apply_lag_critical_s": alert.apply_lag_critical_s,
    })
}

fn security(environment: &standfast_environment::context::environment::Environment) -> Value {
    let now = now_us() / 1_000_000;
    let shown = environment.keeper.shown().ok().flatten();
    let state = environment.keeper.renewal_state();
    json!({
        "insecure": environment.config.instance.insecure,
        "certificate": shown.as_ref().map(|shown| json!({
            "name": shown.info.name,
            "fingerprint": shown.info.fingerprint_text(),
            "not_after_us": shown.info.not_after * 1_000_000,
            "days_left": shown.info.days_left(now),
            "renew_at_us": shown.info.renew_at() * 1_000_000,
            "state": state.as_ref().map(RenewalState::word),
            "renewal_failure": environment.keeper.renewal_failure(),
        })),
        "gives_certificates": shown.is_some_and(|shown| shown.is_issuer),
    })
}

fn add_primary(status: &mut Value, running: &Running, primary: &RunningPrimary, control: &Control) {
    let shared = primary.threads.shared();
    let captured = shared.buffer.captured();
    let failure = primary.threads.failure();
    let poisoned = failure.as_ref().is_some_and(|why| why.contains("poisoned"));
    status["role"] = json!("primary");
    status["state"] = json!(match (&failure, poisoned) {
        (None, _) => "open",
        (Some(_), true) => "poisoned",
        (Some(_), false) => "failed",
    });
    status["failure"] = json!(failure);
    status["captured"] = json!(captured);
    status["durable"] = json!(shared.buffer.durable());
    status["released"] = json!(shared.released());
    status["commits"] = json!(shared.instruments.statistic(Statistic::UserCommits));
    status["waiting_commits"] = json!(shared.held_up_commits());
    status["waiting_for"] = json!(shared.waiting_for());
    status["waits"] = waits(&shared.instruments);
    status["checkpoints"] = json!(primary.threads.checkpoint_counts());
    status["sessions"] = json!(shared.segment.sessions().count());
    let left_out = control.databases.iter().filter_map(|record| {
        if shared.database(record.id).is_some() {
            return None;
        }
        let from = control.left_out_from(record.id)?;
        Some(json!({
            "id": record.id,
            "name": record.name,
            "path": record.path,
            "page_size": record.page_size,
            "state": "left out",
            "redo_needed_from": from,
            "why": running.environment.why_offline(record.id),
        }))
    });
    status["databases"] = shared
        .all_databases()
        .iter()
        .map(|database| {
            let record = database.record();
            json!({
                "id": record.id,
                "name": record.name,
                "path": record.path,
                "page_size": record.page_size,
                "state": state_name(shared.segment.state(record.id.0)),
                "failure": database.failure(),
                "redo_needed_from": control.left_out_from(record.id),
                "scn": database.last_commit(),
                "wal_frames": database.header().map(|header| header.frames()),
                "wal_frames_backfilled": database.backfilled(),
                "foreign_commits": database.foreign_commits(),
                "foreign_seen_us": database.foreign_seen_us(),
                "foreign_processes": database.foreign_processes(),
                "foreign_writers": foreign_writers(
                    database.door(),
                    running.environment.config.instance.foreign_writers(&record.name),
                ),
            })
        })
        .chain(left_out)
        .collect();
    // The list of files may be older than the protection of some of them; those are excluded.
    let protected = |path: &PathBuf| control.databases.iter().any(|record| record.path == *path);
    status["unprotected_files"] =
        shared.unprotected().into_iter().filter(|path| !protected(path)).map(|path| json!(path)).collect();
    status["log"]["groups"] = groups(primary.source.redo_log());
    status["log"]["archived"] = json!(primary.source.redo_log().archived().len());
    status["destinations"] = destinations(running, primary.destinations().status(), captured);
}

/// How processes without the VFS that write are treated; `refusing`: the lock that keeps them out cannot be taken
/// because one of them is writing.
fn foreign_writers(door: Door, setting: ForeignWriters) -> Value {
    match (setting, door) {
        (ForeignWriters::Refuse, Door::Closed) => json!("refused"),
        (ForeignWriters::Refuse, _) => json!("refusing"),
        (ForeignWriters::Count, Door::Unknown) => Value::Null,
        (ForeignWriters::Count, _) => json!("counted"),
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
fn destinations(running: &Running, of: Vec<(DestinationStatus, bool)>, captured: Scn) -> Value {
    of.into_iter()
        .map(|(destination, required)| {
            let known = destination.received > Scn::ZERO;
            let applies = known && destination.role != Some(Role::FarSync);
            let behind = |position: Scn| known.then(|| captured.bytes_since(position));
            // A lag of 0 is certain only while the standby reports.
            let heard = matches!(destination.phase, "streaming" | "catching_up");
            let late = |position: Scn| {
                let lag = running.lag_us(position, captured).filter(|lag| *lag > 0 || heard);
                lag.map(|lag| lag as f64 / 1e6)
            };
            let applied = destination.stopped.least(destination.applied).filter(|_| applies);
            json!({
                "name": destination.name,
                "address": destination.address,
                "role": destination.role.map(|role| role.to_string()),
                "mode": mode_name(destination.mode),
                "state": destination.phase,
                "standing": destination.standing,
                "required": required,
                "received": known.then_some(destination.received),
                "hardened": known.then_some(destination.hardened),
                "applied": applies.then_some(destination.applied),
                "stopped_databases": destination.stopped.databases,
                "stopped_total": destination.stopped.total,
                "verified_databases": destination.verified.databases,
                "differing_pages": destination.verified.differing,
                "transport_lag_bytes": behind(destination.received),
                "transport_lag_s": known.then(|| late(destination.received)).flatten(),
                "redo_bytes": destination.redo_bytes,
                "wire_bytes": destination.wire_bytes,
                "tcp_segments": destination.tcp_segments,
                "tcp_retransmitted": destination.tcp_retransmitted,
                "apply_lag_bytes": applied.and_then(behind),
                "apply_lag_s": applied.and_then(late),
                "round_trip_us": destination.round_trip_us,
                "network_round_trip_us": destination.network_round_trip_us,
                "log_write_us": destination.log_write_us,
                "responses": up_to_the_last(&destination.responses.buckets),
                "delay_s": destination.delay.map(|delay| delay.as_secs()),
                "last_heard_us": destination.last_heard_us,
                "failures": destination.failures,
                "last_trouble": destination.last_trouble,
                "gap": destination.gap,
            })
        })
        .collect()
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

fn add_standby(status: &mut Value, running: &Running, standby: &RunningStandby) {
    let shared = standby.standby.shared();
    let applied = shared.applied();
    let stopped = shared.stopped();
    status["role"] = json!("standby");
    status["state"] = json!(match (stopped.total, shared.apply_is_on()) {
        (0, true) => "applying",
        (0, false) => "apply stopped",
        _ => "apply error",
    });
    add_received(status, running, shared, &standby.forwarding);
    let received = &mut status["standby"];
    received["applied"] = json!(applied);
    received["applied_time_us"] = json!(shared.applied_commit_us());
    received["stopped_databases"] = json!(stopped.databases);
    received["apply_lag_bytes"] =
        json!(stopped.least(applied).map(|least| shared.confirmed().bytes_since(least)));
    received["transactions"] = json!(shared.transactions());
    received["delay_s"] = json!(shared.delay_us(&running.environment) / 1_000_000);
    received["next_apply_us"] = json!(shared.next_due_us());
    let is_stopped =
        |name: &str| stopped.databases.iter().any(|at| at.database == name || at.database == "(all)");
    status["databases"] = running
        .environment
        .control()
        .databases
        .iter()
        .map(|record| {
            json!({
                "id": record.id,
                "name": record.name,
                "path": record.path,
                "page_size": record.page_size,
                "state": if is_stopped(&record.name) { "stopped" } else { "standby" },
            })
        })
        .collect();
}

/// Adds what a standby and a far sync have in common.
fn add_received(status: &mut Value, running: &Running, shared: &Arc<StandbyShared>, forwarding: &Forwarding) {
    let heard = shared.last_heard_us();
    let source_end = shared.source_end();
    let lags = running.lags_of(shared, now_us());
    let missing = source_end.map(|end| end.0.saturating_sub(shared.hardened().0));
    let seconds = |lag: Option<u64>| lag.map(|lag| lag as f64 / 1e6);
    let superseded_by = running.environment.of_control(|control| {
        let newer = control.superseded_by.as_ref();
        newer.map(|newer| json!({ "incarnation": newer.number(), "peer": newer.peer }))
    });
    status["standby"] = json!({
        "superseded_by": superseded_by,
        "connected": running.is_streaming(),
        "gap": running.gap(),
        "received": shared.hardened(),
        "hardened": shared.hardened(),
        "confirmed": shared.confirmed(),
        "last_heard_us": (heard != 0).then_some(heard),
        "source": source(&running.environment.control()),
        "source_end": source_end,
        "transport_lag_bytes": lags.transport_us.and(missing),
        "transport_lag_s": seconds(lags.transport_us),
        "apply_lag_s": seconds(lags.apply_us),
        "log_warning": shared.unwise(),
    });
    status["log"]["groups"] = groups(&shared.log);
    status["log"]["archived"] = json!(shared.log.archived().len());
    let instruments = &running.environment.instruments;
    status["waiting_for"] = json!(instruments.held_up_by().map_or("", Event::name));
    status["waits"] = waits(instruments);
    let forwarded = forwarding.status();
    if !forwarded.is_empty() {
        status["destinations"] = destinations(running, forwarded, shared.hardened());
    }
}

fn add_far_sync(status: &mut Value, running: &Running, far_sync: &FarSync) {
    status["role"] = json!("far sync");
    status["state"] = json!("forwarding");
    add_received(status, running, far_sync.shared(), &far_sync.forwarding);
}

/// Origin of the redo, as the newest stream reported it.
fn source(control: &Control) -> Value {
    let Some(upstream) = &control.upstream else { return Value::Null };
    json!({
        "name": upstream.name,
        "role": upstream.role.to_string(),
        "via": upstream.via.iter().map(|hop| &hop.name).collect::<Vec<_>>(),
    })
}

/// The groups of a log, for `status` and for the catalog.
pub(crate) fn groups(log: &standfast_log::RedoLog) -> Value {
    log.groups()
        .iter()
        .map(|group| {
            json!({
                "group": group.group,
                "state": format!("{:?}", group.state).to_lowercase(),
                "sequence": group.header.map(|header| header.sequence),
                "first_scn": group.header.map(|header| header.first_scn),
                "first_time_us": group.header.map(|header| header.first_time_us),
                "next_scn": group.next_scn,
                "archived": group.archived,
                "bytes": group.bytes,
                "members": group.members,
                "lost_members": group.dropped,
            })
        })
        .collect()
}
