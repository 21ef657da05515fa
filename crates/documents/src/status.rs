//! The state of an instance (`standfast status --json`). What is missing there, or is not understood, is `None`.

use crate::group::Group;
use crate::verification::{DifferingPage, VerificationRun};
use serde::Deserialize;

document! {
    /// State of an instance: the answer to `standfast status --json`.
    Status {
        name: String,
        /// Identity, hexadecimal.
        instance: String,
        /// Identity of the family, hexadecimal.
        family: String,
        directory: String,
        /// Version of the program.
        version: String,
        pid: u64,
        /// `primary`, `standby` or `far sync`.
        role: String,
        /// What it does in that role, or how it has failed.
        state: String,
        /// Why it has failed; `None` while it works.
        failure: String,
        incarnation: u64,
        /// HOST:PORT of its receiver.
        listen: String,
        /// When this was true, microseconds since the Unix epoch.
        time_us: u64,
        /// The newest lines of the alert log, oldest first.
        alerts: Vec<String>,
        security: Security,
        /// The newest comparison of a primary with its standbys.
        verification: VerificationRun,
        /// Pages here that differed from the primary when last compared.
        differing_pages: Vec<DifferingPage>,
        kept_files: Vec<KeptFile>,
        thresholds: LagThresholds,
        log: Log,
        /// Open files whose paths name other files now.
        moved_files: Vec<String>,
        local_destinations: Vec<LocalDestination>,
        protection: Protection,
        /// `None` while fast-start failover is disabled.
        fast_start_failover: FastStartFailover,
    }
    of_a_role {
        /// End of the redo in the log buffer, SCN.
        captured: u64,
        /// End of the redo on disk, SCN.
        durable: u64,
        /// Commits up to this SCN have returned to their applications.
        released: u64,
        /// Commits captured since the start.
        commits: u64,
        /// Commits that wait at the moment.
        waiting_commits: u64,
        /// The wait event that holds commits or redo up; empty: none.
        waiting_for: String,
        /// Waits that another configuration could avoid.
        waits: Vec<Wait>,
        checkpoints: Checkpoints,
        /// Connected sessions.
        sessions: u64,
        databases: Vec<Database>,
        /// Number of databases, where a snapshot lists only some.
        databases_total: u64,
        /// Database files in protected directories that are not protected.
        unprotected_files: Vec<String>,
        destinations: Vec<Destination>,
        /// What a standby or far sync has received.
        standby: Received,
    }
}

document! {
    /// Fast-start failover, as a member sees it.
    FastStartFailover {
        /// As in V$DATABASE.FS_FAILOVER_STATUS: SYNCHRONIZED, UNSYNCHRONIZED, STALLED, PRIMARY UNOBSERVED, SUSPENDED or
        /// REINSTATE REQUIRED; at a standby also BYSTANDER, UNOBSERVED, NOT READY and LACKS REDO.
        status: String,
        /// The member that may take over; empty: none may at the moment.
        target: String,
        /// NAME@HOST:PORT.
        observer: String,
        /// Whether it answers, and decides.
        observed: bool,
        /// Why it does not; empty: it does.
        observer_error: String,
        /// How long the primary must be silent before the target takes over, milliseconds.
        threshold_ms: u64,
    }
}

document! {
    /// The certificate of an instance.
    Certificate {
        name: String,
        fingerprint: String,
        /// Whole days until it ends.
        days_left: i64,
        /// When it ends, microseconds since the Unix epoch.
        not_after_us: u64,
        /// When its renewal is due, microseconds since the Unix epoch.
        renew_at_us: u64,
        /// `valid`, `due`, `renewal failed`, `ending`, `not valid yet` or `expired`.
        state: String,
        /// Why the last renewal failed.
        renewal_failure: String,
    }
}

document! {
    /// How connections with other instances are protected.
    Security {
        /// Whether plain TCP is allowed.
        insecure: bool,
        certificate: Certificate,
        /// Whether this instance has the key of the authority.
        gives_certificates: bool,
    }
}

document! {
    /// A protected database.
    Database {
        id: u64,
        name: String,
        path: String,
        /// Bytes.
        page_size: u64,
        /// `open` at a primary, `standby` at a standby, or what is wrong.
        state: String,
        failure: String,
        /// Why it is offline.
        why: String,
        /// Redo from this SCN on is kept for it.
        redo_needed_from: u64,
        /// SCN of its last commit.
        scn: u64,
        wal_frames: u64,
        wal_frames_backfilled: u64,
        /// Commits that no session announced, since the instance opened it.
        foreign_commits: u64,
        /// When the last of them were found, microseconds since the Unix epoch.
        foreign_seen_us: u64,
        /// Processes that had the file open without the VFS then.
        foreign_processes: Vec<ForeignProcess>,
        /// `refused`, `refusing` (the lock that keeps them out is not held yet) or `counted`.
        foreign_writers: String,
    }
}

document! {
    /// A process that has a database open without the VFS.
    ForeignProcess {
        pid: u64,
        name: String,
        /// `no_extension`, `no_session` or `hidden`.
        access: String,
    }
}

document! {
    /// `[alert]` of the configuration: lags above which something is reported, seconds.
    LagThresholds {
        transport_lag_warn_s: u64,
        transport_lag_critical_s: u64,
        apply_lag_warn_s: u64,
        apply_lag_critical_s: u64,
    }
}

document! {
    /// Protection mode and level.
    Protection {
        /// As configured.
        mode: String,
        /// In force at the moment.
        level: String,
    }
}

document! {
    /// Count and time of a wait event.
    Wait {
        event: String,
        count: u64,
        time_us: u64,
    }
}

document! {
    /// What checkpoints have done since the start.
    Checkpoints {
        passive: u64,
        resets: u64,
        /// WALs rewritten with the newest version of each page.
        rewrites: u64,
        gates: u64,
        /// Longest checkpoint gate, microseconds.
        gate_us_max: u64,
        /// Frames handed to the disk before a checkpoint asked for it.
        early_frames: u64,
    }
}

document! {
    /// A file that was kept when other content replaced a database.
    KeptFile {
        /// Name of the database.
        name: String,
        path: String,
        /// From this SCN on the other content counts.
        scn: u64,
        /// Bytes of the file and its WAL.
        bytes: u64,
        /// When it was kept, microseconds since the Unix epoch.
        kept_us: u64,
    }
}

document! {
    /// A directory to which archived logs are copied.
    LocalDestination {
        name: String,
        location: String,
        /// As V$ARCHIVE_DEST.STATUS.
        status: String,
        /// Whether the reuse of logs waits for it.
        mandatory: bool,
        /// All archived logs up to this SCN are there.
        has: u64,
        failures: u64,
        /// The last failure.
        trouble: String,
    }
}

document! {
    /// Where redo is shipped, as its sender knows it.
    Destination {
        name: String,
        /// HOST:PORT.
        address: String,
        /// Its role when it last answered.
        role: String,
        /// `sync-affirm`, `fastsync` or `async`.
        mode: String,
        /// `streaming`, or what keeps it from that.
        state: String,
        /// Whether commits wait for it, and why not.
        standing: String,
        /// Whether commits wait for it at the moment.
        required: bool,
        /// End of the redo received there, SCN.
        received: u64,
        /// End of the redo on disk there, SCN.
        hardened: u64,
        /// End of the redo applied there, SCN.
        applied: u64,
        stopped_databases: Vec<Stopped>,
        /// Number of databases there to which redo is not applied.
        stopped_total: u64,
        verified_databases: Vec<VerifiedDatabase>,
        /// Pages there that differ from the primary.
        differing_pages: u64,
        /// Redo that it has not received, bytes.
        transport_lag_bytes: u64,
        /// How old the oldest redo is that it has not received.
        transport_lag_s: f64,
        /// Redo sent since its sender was started, bytes.
        redo_bytes: u64,
        /// Bytes sent for it, after compression.
        wire_bytes: u64,
        /// TCP segments with data sent since its sender was started.
        tcp_segments: u64,
        /// Those of them that were sent again.
        tcp_retransmitted: u64,
        /// Connections to it that were lost or refused since its sender was started.
        disconnects: u64,
        /// Times that commits stopped waiting for it, or waited beyond the timeout, since its sender was started.
        timeouts: u64,
        /// Redo that it has not applied, bytes.
        apply_lag_bytes: u64,
        /// How old the oldest redo is that it has not applied.
        apply_lag_s: f64,
        /// Mean time from sending to acknowledgement, microseconds.
        round_trip_us: u64,
        /// The same as TCP measures it, microseconds.
        network_round_trip_us: u64,
        /// A short write of its log, microseconds: a tenth took less.
        log_write_us: u64,
        /// Counts of responses by powers of two of microseconds.
        responses: Vec<u64>,
        /// How long transactions are held back there, seconds.
        delay_s: u64,
        /// When it was last heard, microseconds since the Unix epoch.
        last_heard_us: u64,
        /// Failed attempts to connect since the last success.
        failures: u64,
        /// The newest failure, also when it is over.
        last_trouble: String,
        gap: Gap,
    }
}

document! {
    /// A database to which redo is not applied.
    Stopped {
        /// Its name; `(all)`: nothing is applied at all.
        database: String,
        /// SCN of the last commit applied to it.
        applied: u64,
        reason: String,
    }
}

document! {
    /// What verification has found of a database of a destination.
    VerifiedDatabase {
        database: String,
        /// The newest run that compared a page of it; 0: none.
        run: u64,
        /// Pages compared in that run.
        compared: u64,
        /// The SCN as of which the last of them was compared.
        scn: u64,
        /// Pages that differ, found by any run.
        differing: u64,
        /// The first of them.
        pages: Vec<DifferingPage>,
    }
}

document! {
    /// Missing logs.
    Gap {
        low_sequence: u64,
        high_sequence: u64,
        /// End of the redo held when the gap was found, SCN.
        from: u64,
        /// First SCN of the stream beyond the gap.
        to: u64,
        /// Bytes of its archived logs.
        bytes: u64,
        /// Bytes that have not been transferred.
        bytes_left: u64,
        connections: u64,
    }
}

document! {
    /// What a standby or a far sync has received.
    Received {
        superseded_by: Superseded,
        /// Whether redo is arriving.
        connected: bool,
        gap: Gap,
        /// End of the redo received, SCN.
        received: u64,
        /// End of the redo on disk here, SCN.
        hardened: u64,
        /// End of the redo that is also durable at the primary, SCN.
        confirmed: u64,
        /// Time of the last commit applied, microseconds since the Unix epoch.
        applied_time_us: u64,
        /// Redo that is here and not applied, bytes.
        apply_lag_bytes: u64,
        /// Redo of the source that is not here, bytes.
        transport_lag_bytes: u64,
        transport_lag_s: f64,
        /// How old the oldest redo is that is not applied, seconds.
        apply_lag_s: f64,
        /// When its source was last heard, microseconds since the Unix epoch.
        last_heard_us: u64,
        source: Source,
        /// End of the redo at the source, as last heard, SCN.
        source_end: u64,
        /// Warning about the sizes of its standby redo logs.
        log_warning: String,
        /// When the next delayed transaction is due, microseconds since the Unix epoch.
        next_apply_us: u64,
    }
    of_a_role {
        /// End of the redo applied, SCN.
        applied: u64,
        stopped_databases: Vec<Stopped>,
        /// Transactions applied since the start.
        transactions: u64,
        /// How long transactions are held back, seconds.
        delay_s: u64,
        /// Of a snapshot standby.
        snapshot: Snapshot,
    }
}

document! {
    /// A standby of whose databases applications write copies.
    Snapshot {
        /// Since when, microseconds since the Unix epoch.
        since_us: u64,
        /// How long it will take to apply the redo that has arrived since, seconds.
        apply_s: f64,
    }
}

document! {
    /// The primary of a newer incarnation that was heard of.
    Superseded {
        incarnation: u64,
        /// The instance that reported it.
        peer: String,
    }
}

document! {
    /// Where a standby's redo comes from.
    Source {
        name: String,
        role: String,
        /// The instances that forward it, from the primary on.
        via: Vec<String>,
    }
}

document! {
    /// The redo log.
    Log {
        /// Bytes of the largest group.
        group_bytes: u64,
        /// Bytes of a block; every write fills whole blocks.
        block_bytes: u64,
        /// Recovery begins at this SCN.
        checkpoint: u64,
        groups: Vec<Group>,
        /// Number of archived logs.
        archived: u64,
    }
}

/// The part of an observation that has the status.
#[derive(Deserialize)]
struct Observed {
    #[serde(default, deserialize_with = "crate::or_unknown")]
    status: Status,
}

impl Status {
    /// Reads the status out of an observation of an instance, as text.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn in_observation(text: &str) -> Result<Status, serde_json::Error> {
        Ok(serde_json::from_str::<Observed>(text)?.status)
    }

    /// The certificate, if there is one and it is known.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.security.as_ref()?.certificate.as_ref()
    }

    /// The destinations, none when they are not known.
    pub fn destinations(&self) -> &[Destination] {
        self.destinations.as_deref().unwrap_or_default()
    }

    /// The groups of the redo log, none when they are not known.
    pub fn groups(&self) -> &[Group] {
        self.log.as_ref().and_then(|log| log.groups.as_deref()).unwrap_or_default()
    }

    /// The newest lines of the alert log, none when they are not known.
    pub fn alerts(&self) -> &[String] {
        self.alerts.as_deref().unwrap_or_default()
    }

    /// The databases, none when they are not known.
    pub fn databases(&self) -> &[Database] {
        self.databases.as_deref().unwrap_or_default()
    }

    /// Whether applications write there.
    pub fn is_primary(&self) -> bool {
        self.role.as_deref() == Some("primary")
    }

    /// End of the redo that this instance knows to exist at the primary.
    pub fn redo_end(&self) -> Option<u64> {
        self.captured.or_else(|| self.standby.as_ref()?.source_end)
    }

    /// What holds commits up out of the ordinary.
    pub fn blocked_by(&self) -> Option<&str> {
        self.waiting_for.as_deref().filter(|event| !event.is_empty())
    }
}

/// For so long after the last commit without the VFS it is a finding, microseconds.
const FOREIGN_LATELY_US: u64 = 900_000_000;

impl Database {
    /// Its name, or a dash.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or("-")
    }

    /// How long ago the last commit without the VFS was found, seconds, when that was within the last quarter of an hour.
    pub fn foreign_lately_s(&self, now_us: Option<u64>) -> Option<f64> {
        let ago_us = now_us?.saturating_sub(self.foreign_seen_us?);
        (ago_us < FOREIGN_LATELY_US).then_some(ago_us as f64 / 1e6)
    }

    /// The processes that had the file open without the VFS, as `python3 (pid 7)`; none when none was found.
    pub fn foreign_names(&self) -> Option<String> {
        let processes = self.foreign_processes.as_deref().filter(|processes| !processes.is_empty())?;
        let shown =
            processes.iter().filter_map(|at| Some(format!("{} (pid {})", at.name.as_ref()?, at.pid?)));
        Some(shown.collect::<Vec<_>>().join(", "))
    }
}

impl Destination {
    /// Its name, or a dash.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or("-")
    }

    /// Whether redo flows to it, and so its positions and heartbeats arrive.
    pub fn is_streaming(&self) -> bool {
        matches!(self.state.as_deref(), Some("streaming" | "catching_up"))
    }

    /// Redo that it has received and not applied, bytes; a database that has stopped does not count.
    pub fn backlog(&self) -> Option<u64> {
        Some(self.received?.saturating_sub(self.applied?))
    }

    /// Whether a failover to it is possible: a far sync has no databases.
    pub fn is_standby(&self) -> bool {
        self.role.as_deref() == Some("standby")
    }
}

impl Received {
    /// Redo that is here and may be applied, and is not, bytes; a database that has stopped does not count.
    pub fn backlog(&self) -> Option<u64> {
        Some(self.confirmed?.saturating_sub(self.applied?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unparsable_status_field_is_unknown_and_others_are_read() {
        let status = Status::of(&json!({
            "role": "primary", "commits": "many", "captured": 7, "failure": null,
            "destinations": [{ "name": "oslo", "received": null, "applied": 5 }],
        }));
        assert_eq!((status.commits, status.captured, &status.failure), (None, Some(7), &None));
        let oslo = &status.destinations()[0];
        assert_eq!((oslo.label(), oslo.received, oslo.applied), ("oslo", None, Some(5)));
        assert_eq!(Status::of(&json!(null)), Status::default());
    }

    #[test]
    fn unknown_fields_are_null_and_those_of_other_roles_absent() {
        let written = json!(Status { role: Some("far sync".into()), ..Status::default() });
        assert_eq!(written.get("listen"), Some(&json!(null)));
        assert_eq!((written.get("databases"), written.get("captured")), (None, None));
        let received = json!(Received::default());
        assert_eq!((received.get("gap"), received.get("applied")), (Some(&json!(null)), None));
    }

    #[test]
    fn malformed_status_of_another_instance_is_unknown() {
        let status = |text: &str| Status::in_observation(text).unwrap();
        assert_eq!(status(r#"{"name": "oslo", "status": ["primary"]}"#), Status::default());
        assert_eq!(status(r#"{"status": {"role": "primary", "pid": -1}}"#).role.as_deref(), Some("primary"));
        assert!(Status::in_observation("primary").is_err());
    }
}
