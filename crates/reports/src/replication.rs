//! A standby in an interval, as the primary and as the standby itself report it. Pure.

use crate::counters::Counters;
use serde::Serialize;
use standfast_documents::status::{Destination, Stopped};
use standfast_instruments::{LagCount, Observation, Statistic};

/// `None`: unknown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StandbyFigures {
    pub name: String,
    pub mode: Option<String>,
    pub state: Option<String>,
    /// Whether commits wait for it, and whether they should.
    pub standing: Option<String>,
    /// Transport lag at the begin of the interval, bytes.
    pub transport_lag_begin: Option<u64>,
    /// Transport lag at the end of the interval, bytes.
    pub transport_lag_end: Option<u64>,
    /// Apply lag at the begin of the interval, bytes.
    pub apply_lag_begin: Option<u64>,
    /// Apply lag at the end of the interval, bytes.
    pub apply_lag_end: Option<u64>,
    /// Redo sent, bytes.
    pub sent_bytes: Option<u64>,
    /// Bytes on the wire for the redo sent.
    pub wire_bytes: Option<u64>,
    /// TCP segments with data sent, retransmissions included.
    pub segments: Option<u64>,
    pub retransmitted: Option<u64>,
    /// Mean time from a frame to its acknowledgement since the sender started, microseconds.
    pub round_trip_us: Option<f64>,
    /// The shortest round trip of the connection itself, microseconds.
    pub network_round_trip_us: Option<f64>,
    /// Connections that were lost or refused.
    pub disconnects: Option<u64>,
    /// Times that it was degraded or stalled because it did not answer in time.
    pub timeouts: Option<u64>,
    /// Bytes missing in a gap at the begin.
    pub gap_begin: Option<u64>,
    /// Bytes missing in a gap at the end.
    pub gap_end: Option<u64>,
    pub gap_connections: Option<u64>,
    /// The newest error of this destination.
    pub last_trouble: Option<String>,
    /// Why its own figures are missing; `None` when they are there.
    pub silent: Option<String>,
    /// Its own counts; `None` when it did not answer or was restarted.
    pub counters: Option<Counters>,
    /// Whether its process was restarted in the interval.
    pub restarted: bool,
    /// State of the standby itself (whether it applies redo).
    pub apply_state: Option<String>,
    /// Databases to which redo is not applied, with the reasons.
    pub stopped: Vec<String>,
    /// Apply delay (DELAY), seconds.
    pub delay_s: Option<u64>,
    /// Members of its standby redo log.
    pub log_members: Option<usize>,
    /// Counts of the lag by size, in the interval.
    pub lags: Vec<LagCount>,
}

impl StandbyFigures {
    /// Share of the TCP segments sent to it that were retransmitted.
    pub fn retransmitted_share(&self) -> Option<f64> {
        let sent = self.segments.filter(|sent| *sent > 0)?;
        Some(self.retransmitted? as f64 / sent as f64)
    }

    /// Whether its mode is synchronous, so that commits are meant to wait for it.
    pub fn is_sync(&self) -> bool {
        matches!(self.mode.as_deref(), Some("sync-affirm" | "fastsync"))
    }

    /// Whether its sender is streaming or catching up.
    pub fn is_streaming(&self) -> bool {
        matches!(self.state.as_deref(), Some("streaming" | "catching_up"))
    }

    /// Bytes of redo sent per second.
    pub fn sent_per_second(&self, seconds: f64) -> Option<f64> {
        Some(self.sent_bytes? as f64 / seconds)
    }

    /// Bytes of redo applied per second.
    pub fn applied_per_second(&self) -> Option<f64> {
        self.counters.as_ref()?.per_second(Statistic::RedoApplied)
    }
}

/// Returns the standbys that the primary has at the end of an interval.
pub fn standbys(from: &Observation, to: &Observation, same_process: bool) -> Vec<StandbyFigures> {
    let all = to.status.destinations();
    all.iter().map(|now| standby(from, to, now, same_process)).collect()
}

fn standby(from: &Observation, to: &Observation, now: &Destination, same_process: bool) -> StandbyFigures {
    let name = now.name.as_deref().unwrap_or("unknown");
    let unknown = Destination::default();
    let before = from.status.destinations().iter().find(|before| before.name == now.name).unwrap_or(&unknown);
    // A restarted sender counts from zero.
    let grown =
        |of: fn(&Destination) -> Option<u64>| of(now)?.checked_sub(of(before)?).filter(|_| same_process);
    let reported = reported_of(from, to, name);
    let (own, own_before) = (reported.now, reported.before);
    StandbyFigures {
        mode: now.mode.clone(),
        state: now.state.clone(),
        standing: now.standing.clone(),
        transport_lag_begin: before.transport_lag_bytes,
        transport_lag_end: now.transport_lag_bytes,
        apply_lag_begin: before.apply_lag_bytes,
        apply_lag_end: now.apply_lag_bytes,
        sent_bytes: grown(|at| at.redo_bytes),
        wire_bytes: grown(|at| at.wire_bytes),
        segments: grown(|at| at.tcp_segments),
        retransmitted: grown(|at| at.tcp_retransmitted),
        round_trip_us: now.round_trip_us.filter(|us| *us > 0).map(|us| us as f64),
        network_round_trip_us: now.network_round_trip_us.map(|us| us as f64),
        disconnects: grown(|at| at.disconnects),
        timeouts: grown(|at| at.timeouts),
        gap_begin: before.gap.as_ref().and_then(|gap| gap.bytes_left),
        gap_end: now.gap.as_ref().and_then(|gap| gap.bytes_left),
        gap_connections: now.gap.as_ref().and_then(|gap| gap.connections),
        last_trouble: now.last_trouble.clone(),
        silent: reported.silent,
        restarted: own
            .zip(own_before)
            .is_some_and(|(now, before)| now.sample.started_us != before.sample.started_us),
        counters: own
            .zip(own_before)
            .and_then(|(now, before)| Counters::between(&before.sample, &now.sample)),
        apply_state: own.and_then(|own| own.status.state.clone()),
        stopped: stopped(now),
        delay_s: own.and_then(|own| own.status.standby.as_ref()?.delay_s),
        log_members: own.and_then(|own| {
            own.status.groups().iter().filter_map(|group| Some(group.members.as_ref()?.len())).max()
        }),
        lags: own.map_or_else(Vec::new, |own| lags(own, own_before)),
        name: name.to_owned(),
    }
}

/// A standby's observations of itself, at both ends.
struct Reported<'o> {
    now: Option<&'o Observation>,
    before: Option<&'o Observation>,
    silent: Option<String>,
}

fn reported_of<'o>(from: &'o Observation, to: &'o Observation, name: &str) -> Reported<'o> {
    let in_one = |of: &'o Observation| of.standbys.iter().find(|remote| remote.name == name);
    let now = in_one(to);
    let silent = match now {
        None => Some("it was not asked".to_owned()),
        Some(remote) if remote.observation.is_none() => {
            Some(remote.error.clone().unwrap_or_else(|| "it did not answer".to_owned()))
        }
        Some(_) => None,
    };
    let own = |remote: Option<&'o standfast_instruments::Remote>| remote?.observation.as_deref();
    Reported { now: own(now), before: own(in_one(from)), silent }
}

fn stopped(destination: &Destination) -> Vec<String> {
    let unknown = "unknown".to_owned();
    let all = destination.stopped_databases.iter().flatten();
    let text = |at: &Stopped| {
        format!("{}: {}", at.database.as_ref().unwrap_or(&unknown), at.reason.as_ref().unwrap_or(&unknown))
    };
    all.map(text).collect()
}

/// Lag counts of the interval; all counts when the standby was restarted in it.
fn lags(now: &Observation, before: Option<&Observation>) -> Vec<LagCount> {
    let before = before.filter(|before| before.sample.started_us == now.sample.started_us);
    let earlier = |lag: &LagCount| {
        let all = before.map_or(&[][..], |before| &before.history.lags);
        all.iter().find(|at| at.name == lag.name && at.seconds == lag.seconds).map_or(0, |at| at.count)
    };
    let grown = |lag: &LagCount| {
        let count = lag.count.checked_sub(earlier(lag)).filter(|count| *count > 0)?;
        Some(LagCount { count, ..lag.clone() })
    };
    now.history.lags.iter().filter_map(grown).collect()
}
