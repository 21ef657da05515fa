//! The metrics, and where their values come from.

use super::definition::{Definition, Family, Kind, Value, durations};
use crate::active::active_sessions;
use crate::estimate::Estimate;
use crate::lags::{apply_lag, is_heard, transport_lag};
use standfast_documents::Status;
use standfast_documents::status::{Destination, Gap, Received};
use standfast_instruments::{Event, Observation, Statistic};

macro_rules! metrics {
    ($($constant:ident, $base:literal, $kind:ident, [$($label:literal),*], $help:literal;)*) => {
        $(static $constant: Definition = Definition {
            base: $base, kind: Kind::$kind, labels: &[$($label),*], help: $help,
        };)*
        pub static DEFINITIONS: &[&Definition] = &[$(&$constant),*];
    };
}

metrics! {
    BUILD, "standfast_build", Info, ["version"], "The program.";
    UP, "standfast_up", Gauge, [], "1: the instance does what its role asks for; 0: it has failed, or is between two roles.";
    ROLE, "standfast_role", Info, ["role"], "The role of the instance.";
    STARTED, "standfast_start_time_seconds", Gauge, [], "When the process was started, since the Unix epoch.";
    REDO, "standfast_redo_generated_bytes", Counter, [], "Redo that the primary has made: its position in the redo stream. Begins lower after a failover that lost redo.";
    COMMITS, "standfast_commits", Counter, [], "Commits captured.";
    FOREIGN, "standfast_foreign_commits", Counter, ["database"], "Commits captured that no session announced: of connections without the VFS, which wait for no standby.";
    UNPROTECTED, "standfast_unprotected_databases", Gauge, [], "Database files in protected directories that are not protected.";
    WAITING, "standfast_waiting_commits", Gauge, [], "Commits that wait at the moment.";
    COMMIT, "standfast_commit_duration_seconds", Histogram, [], "Waits of commits for durability (log file sync).";
    STAGE, "standfast_commit_stage_duration_seconds", Histogram, ["stage"], "Where the time of commits went.";
    SWITCHES, "standfast_log_switches", Counter, [], "Log switches.";
    TRANSPORT_S, "standfast_transport_lag_seconds", Gauge, ["standby"], "Time span of redo that the standby has not received.";
    TRANSPORT_B, "standfast_transport_lag_bytes", Gauge, ["standby"], "Redo that the standby has not received.";
    APPLY_S, "standfast_apply_lag_seconds", Gauge, ["standby"], "Time span of redo that the standby has not applied.";
    APPLY_B, "standfast_apply_lag_bytes", Gauge, ["standby"], "Redo that the standby has not applied.";
    HEARTBEAT, "standfast_transport_last_heartbeat_timestamp_seconds", Gauge, ["standby"], "When the other end was last heard, since the Unix epoch.";
    CONNECTED, "standfast_transport_connected", Gauge, ["standby"], "1: redo flows and the other end is heard.";
    REQUIRED, "standfast_transport_required", Gauge, ["standby"], "1: commits wait for this standby.";
    GAP, "standfast_transport_gap_sequences", Gauge, ["standby"], "Whole logs that the standby lacks.";
    SENT, "standfast_transport_sent_bytes", Counter, ["standby"], "Redo sent since the sender was started.";
    SEGMENTS, "standfast_transport_tcp_segments", Counter, ["standby"], "TCP segments with data sent since the sender was started, also those sent again.";
    RESENT, "standfast_transport_tcp_retransmitted_segments", Counter, ["standby"], "Those of them that were sent again.";
    DISCONNECTS, "standfast_transport_disconnects", Counter, ["standby"], "Connections that were lost or refused since the sender was started.";
    TIMEOUTS, "standfast_transport_timeouts", Counter, ["standby"], "Times that commits stopped waiting for the standby, or waited beyond the timeout, since the sender was started.";
    APPLIED, "standfast_apply_applied_bytes", Counter, ["standby"], "How far apply is in the redo stream.";
    DIFFERING, "standfast_verify_differing_pages", Gauge, ["standby"], "Pages of the standby's databases that were not what the primary has when they were last compared.";
    VERIFIED, "standfast_verify_last_run_timestamp_seconds", Gauge, [], "When the newest comparison with the standbys ended, since the Unix epoch.";
    ACK, "standfast_sync_ack_duration_seconds", Histogram, [], "From sending redo to a synchronous standby to its acknowledgement, its write included.";
    WAIT_TIME, "standfast_wait_seconds", Counter, ["class", "event"], "Time of waits that have ended.";
    WAITS, "standfast_waits", Counter, ["class", "event"], "Waits that have ended.";
    ACTIVE, "standfast_active_sessions", Gauge, ["class"], "Sessions of applications that are not idle, by wait class; CPU: they work.";
    CERTIFICATE, "standfast_certificate_expiry_timestamp_seconds", Gauge, [], "When the certificate of the instance ends, since the Unix epoch.";
    RENEWAL, "standfast_certificate_renewal_failed", Gauge, [], "1: the certificate was to be renewed, and that has failed; 0: not.";
    LOSS, "standfast_estimated_data_loss_seconds", Gauge, [], "Time span of acknowledged commits that a failover at this moment would lose, to the standby that loses least.";
    LOSS_B, "standfast_estimated_data_loss_bytes", Gauge, [], "The same as redo.";
    FAILOVER, "standfast_estimated_failover_seconds", Gauge, [], "How long that failover would take from the command on.";
}

type Series = Vec<(Vec<String>, Value)>;

/// A series without labels; none when the value is unknown.
fn one(value: Option<f64>) -> Series {
    value.map(|value| (Vec::new(), Value::Number(value))).into_iter().collect()
}

fn micros(us: Option<u64>) -> Option<f64> {
    us.map(|us| us as f64 / 1e6)
}

fn count(of: Option<u64>) -> Option<f64> {
    of.map(|count| count as f64)
}

fn flag(on: bool) -> Option<f64> {
    Some(f64::from(u8::from(on)))
}

/// Number of missing logs; 0 without a gap.
fn sequences(gap: Option<&Gap>) -> Option<f64> {
    let Some(gap) = gap else { return Some(0.0) };
    Some((gap.high_sequence?.checked_sub(gap.low_sequence?)? + 1) as f64)
}

/// Metrics per standby: a primary has them for each destination, a standby for itself.
struct PerStandby<'o> {
    status: &'o Status,
    name: &'o str,
}

impl PerStandby<'_> {
    fn series(
        &self,
        at_source: impl Fn(&Destination) -> Option<f64>,
        here: impl Fn(&Received) -> Option<f64>,
    ) -> Series {
        let there = self.status.destinations().iter().map(|at| (at.label().to_owned(), at_source(at)));
        let mine = self.status.standby.iter().map(|received| (self.name.to_owned(), here(received)));
        let all = there.chain(mine).filter_map(|(name, value)| Some((vec![name], Value::Number(value?))));
        all.collect()
    }
}

/// Returns all metrics that have a value.
pub fn families(observation: &Observation, estimate: &Estimate) -> Vec<Family> {
    let status = &observation.status;
    let mut all = of_instance(observation, status);
    all.extend(of_standbys(observation, status));
    all.extend(of_waits(observation));
    all.extend([
        Family { definition: &LOSS, series: one(estimate.loss.seconds) },
        Family { definition: &LOSS_B, series: one(count(estimate.loss.bytes)) },
        Family { definition: &FAILOVER, series: one(estimate.failover_s) },
    ]);
    all.retain(|family| !family.series.is_empty());
    all
}

fn of_instance(observation: &Observation, status: &Status) -> Vec<Family> {
    let label =
        |text: &Option<String>| text.iter().map(|text| (vec![text.clone()], Value::Number(1.0))).collect();
    let works = ["open", "applying", "apply stopped", "snapshot standby", "forwarding"];
    let up = status.state.as_deref().map(|state| works.contains(&state) && status.failure.is_none());
    let histogram = |event| observation.sample.event(event).filter(|_| status.is_primary());
    let single = |event| histogram(event).map(|counts| (Vec::new(), durations(counts))).into_iter().collect();
    let stage = observation.sample.parts.iter().filter(|_| status.is_primary());
    let started = Some(observation.sample.started_us).filter(|us| *us > 0);
    let switches =
        observation.sample.statistic(Statistic::LogSwitches.name()).filter(|_| status.is_primary());
    let unprotected = status.unprotected_files.as_ref().map(|files| files.len() as u64);
    let foreign = status.databases().iter().filter_map(|database| {
        Some((vec![database.name.clone()?], Value::Number(database.foreign_commits? as f64)))
    });
    vec![
        Family { definition: &BUILD, series: label(&status.version) },
        Family { definition: &UP, series: one(up.and_then(flag)) },
        Family { definition: &ROLE, series: label(&status.role) },
        Family { definition: &STARTED, series: one(micros(started)) },
        Family { definition: &REDO, series: one(count(status.captured)) },
        Family { definition: &COMMITS, series: one(count(status.commits)) },
        Family { definition: &FOREIGN, series: foreign.collect() },
        Family { definition: &UNPROTECTED, series: one(count(unprotected)) },
        Family { definition: &WAITING, series: one(count(status.waiting_commits)) },
        Family { definition: &COMMIT, series: single(Event::LogFileSync) },
        Family {
            definition: &STAGE,
            series: stage.map(|part| (vec![part.part.label().into()], durations(&part.counts))).collect(),
        },
        Family { definition: &SWITCHES, series: one(count(switches)) },
        Family { definition: &ACK, series: single(Event::SyncRemoteWrite) },
        Family {
            definition: &CERTIFICATE,
            series: one(micros(status.certificate().and_then(|certificate| certificate.not_after_us))),
        },
        Family {
            definition: &RENEWAL,
            series: one(status
                .certificate()
                .and_then(|certificate| flag(certificate.renewal_failure.is_some()))),
        },
    ]
}

fn of_standbys(observation: &Observation, status: &Status) -> Vec<Family> {
    let now = status.time_us;
    let each = PerStandby { status, name: &observation.name };
    vec![
        Family {
            definition: &TRANSPORT_S,
            series: each.series(|at| transport_lag(at, now).seconds, |here| here.transport_lag_s),
        },
        Family {
            definition: &TRANSPORT_B,
            series: each
                .series(|at| count(transport_lag(at, now).bytes), |here| count(here.transport_lag_bytes)),
        },
        Family {
            definition: &APPLY_S,
            series: each.series(|at| apply_lag(at, now).seconds, |here| here.apply_lag_s),
        },
        Family {
            definition: &APPLY_B,
            series: each.series(|at| count(apply_lag(at, now).bytes), |here| count(here.apply_lag_bytes)),
        },
        Family {
            definition: &HEARTBEAT,
            series: each.series(|at| micros(at.last_heard_us), |here| micros(here.last_heard_us)),
        },
        Family {
            definition: &CONNECTED,
            series: each.series(|at| flag(is_heard(at, now)), |here| flag(here.connected?)),
        },
        Family { definition: &REQUIRED, series: each.series(|at| flag(at.required?), |_| None) },
        Family {
            definition: &GAP,
            series: each.series(|at| sequences(at.gap.as_ref()), |here| sequences(here.gap.as_ref())),
        },
        Family { definition: &SENT, series: each.series(|at| count(at.redo_bytes), |_| None) },
        Family { definition: &SEGMENTS, series: each.series(|at| count(at.tcp_segments), |_| None) },
        Family { definition: &RESENT, series: each.series(|at| count(at.tcp_retransmitted), |_| None) },
        Family { definition: &DISCONNECTS, series: each.series(|at| count(at.disconnects), |_| None) },
        Family { definition: &TIMEOUTS, series: each.series(|at| count(at.timeouts), |_| None) },
        Family {
            definition: &APPLIED,
            series: each.series(|at| count(at.applied), |here| count(here.applied)),
        },
        Family {
            definition: &DIFFERING,
            series: each.series(
                |at| count(at.differing_pages),
                |_| count(status.differing_pages.as_ref().map(|pages| pages.len() as u64)),
            ),
        },
        Family {
            definition: &VERIFIED,
            series: one(micros(status.verification.as_ref().and_then(|run| run.ended_us))),
        },
    ]
}

fn of_waits(observation: &Observation) -> Vec<Family> {
    let labels = |at: &standfast_instruments::EventTotals| vec![at.class.name().to_owned(), at.event.clone()];
    let events = &observation.sample.events;
    let time = events.iter().map(|at| (labels(at), Value::Number(at.counts.time_ns as f64 / 1e9)));
    let waits = events.iter().map(|at| (labels(at), Value::Number(at.counts.count as f64)));
    let active = active_sessions(observation).unwrap_or_default();
    let active = active.into_iter().map(|at| (vec![at.class], Value::Number(at.sessions as f64)));
    vec![
        Family { definition: &WAIT_TIME, series: time.collect() },
        Family { definition: &WAITS, series: waits.collect() },
        Family { definition: &ACTIVE, series: active.collect() },
    ]
}
