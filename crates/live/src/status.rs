//! The state document of an instance (`standfast status --json`), typed. What is missing there, or is not understood, is
//! `None` here.

use crate::figure;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A field that cannot be read is unknown; it does not take the others with it.
fn lenient<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).ok())
}

macro_rules! document {
    ($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $field_doc:literal])* $field:ident: $kind:ty,)* }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[doc = $field_doc])* #[serde(deserialize_with = "lenient")] pub $field: Option<$kind>,)*
        }
    };
}

document! {
    /// Of an instance.
    Status {
        /// `primary`, `standby` or `far sync`.
        role: String,
        /// What it does in that role, or how it fails.
        state: String,
        /// Why it has failed.
        failure: String,
        /// Number of its life as a primary.
        incarnation: u64,
        /// Of the program.
        version: String,
        /// When this was true, microseconds since the Unix epoch.
        time_us: u64,
        /// How connections with other instances are protected.
        security: Security,
        /// Protection mode and level.
        protection: Protection,
        /// End of the redo in the log buffer.
        captured: u64,
        /// End of the redo on disk.
        durable: u64,
        /// Commits captured.
        commits: u64,
        /// Commits that wait at the moment.
        waiting_commits: u64,
        /// What they wait for; empty: nothing out of the ordinary.
        waiting_for: String,
        /// Connected sessions.
        sessions: u64,
        /// Where redo is shipped.
        destinations: Vec<Destination>,
        /// Those that are protected.
        databases: Vec<Database>,
        /// Database files in protected directories that are not protected.
        unprotected_files: Vec<String>,
        /// What a standby has.
        standby: Received,
        /// The redo log.
        log: Log,
        /// Files that are open and not what their paths say any more.
        moved_files: Vec<String>,
        /// The newest lines of the alert log, the oldest first.
        alerts: Vec<String>,
        /// Lags above which something is to be said.
        thresholds: LagThresholds,
        /// Pages here that were not what a primary had when they were last compared.
        differing_pages: Vec<DifferingPage>,
        /// The newest comparison of a primary with its standbys.
        verification: Verification,
    }
}

document! {
    /// A certificate.
    Certificate {
        /// Whole days until it ends.
        days_left: i64,
        /// When it ends, microseconds since the Unix epoch.
        not_after_us: u64,
        /// `valid`, `due`, `renewal failed`, `ending`, `not valid yet` or `expired`.
        state: String,
        /// Why the last renewal failed.
        renewal_failure: String,
    }
}

document! {
    /// How connections with other instances are protected.
    Security {
        /// Plain TCP is allowed.
        insecure: bool,
        /// The certificate of the instance.
        certificate: Certificate,
    }
}

document! {
    /// A protected database.
    Database {
        /// Its name.
        name: String,
        /// `open` at a primary, `standby` at a standby, or what is wrong.
        state: String,
        /// Why it has failed.
        failure: String,
        /// Commits that no session announced, since the instance opened it.
        foreign_writers: String,
        foreign_commits: u64,
        /// When the last of them were found, microseconds since the Unix epoch.
        foreign_seen_us: u64,
        /// Who had the file open without the VFS then.
        foreign_processes: Vec<ForeignProcess>,
    }
}

document! {
    /// A process that has a database open without the VFS.
    ForeignProcess {
        /// Its number.
        pid: u64,
        /// Its name.
        name: String,
    }
}

document! {
    /// `[alert]` of the configuration, seconds.
    LagThresholds {
        /// Of the transport lag: a warning.
        transport_lag_warn_s: f64,
        /// Critical.
        transport_lag_critical_s: f64,
        /// Of the apply lag: a warning.
        apply_lag_warn_s: f64,
        /// Critical.
        apply_lag_critical_s: f64,
    }
}

document! {
    /// What is promised and what is kept.
    Protection {
        /// As configured.
        mode: String,
        /// In force at the moment.
        level: String,
    }
}

document! {
    /// Of a destination.
    Destination {
        /// Its name.
        name: String,
        /// HOST:PORT.
        address: String,
        /// What it was when it last answered.
        role: String,
        /// `sync-affirm`, `fastsync` or `async`.
        mode: String,
        /// `streaming`, or what keeps it from that.
        state: String,
        /// Whether commits wait for it, and why not.
        standing: String,
        /// Whether commits wait for it at the moment.
        required: bool,
        /// End of the redo received there.
        received: u64,
        /// How far apply is there.
        applied: u64,
        /// Redo that it has not received, bytes.
        transport_lag_bytes: u64,
        /// Redo that it has not applied, bytes.
        apply_lag_bytes: u64,
        /// The same in seconds, where the instance says so itself.
        transport_lag_s: f64,
        /// The same in seconds, where the instance says so itself.
        apply_lag_s: f64,
        /// When it was last heard, microseconds since the Unix epoch.
        last_heard_us: u64,
        /// Redo sent to it since its sender was started, bytes.
        redo_bytes: u64,
        /// TCP segments with data sent to it since its sender was started.
        tcp_segments: u64,
        /// Those of them that were sent again.
        tcp_retransmitted: u64,
        /// Mean time from sending to acknowledgement, microseconds.
        round_trip_us: u64,
        /// A short write of its log, microseconds: a tenth took less.
        log_write_us: u64,
        /// How long transactions are held back there, seconds.
        delay_s: u64,
        /// Newest trouble, also when it is over.
        last_trouble: String,
        /// Logs that it lacks.
        gap: Gap,
        /// Databases there to which redo is not applied.
        stopped_total: u64,
        /// Which these are.
        stopped_databases: Vec<Stopped>,
        /// Pages there that are not what the primary has.
        differing_pages: u64,
        /// What verification has found of each database there.
        verified_databases: Vec<VerifiedDatabase>,
    }
}

document! {
    /// A database to which redo is not applied.
    Stopped {
        /// Its name; `(all)`: nothing is applied at all.
        database: String,
        /// Why.
        reason: String,
    }
}

document! {
    /// A comparison of a primary with its standbys.
    Verification {
        /// When it began, microseconds since the Unix epoch.
        run: u64,
        /// When it ended.
        ended_us: u64,
    }
}

document! {
    /// What verification has found of a database of a destination.
    VerifiedDatabase {
        /// Its name.
        database: String,
        /// Pages that differ.
        differing: u64,
        /// The first of them.
        pages: Vec<DifferingPage>,
    }
}

document! {
    /// A page that is not what the primary had when it was last compared.
    DifferingPage {
        /// Its database, where it is not said already.
        database: String,
        /// Its number.
        page: u64,
        /// The position as of which it was compared.
        scn: u64,
    }
}

document! {
    /// Missing logs.
    Gap {
        /// The first.
        low_sequence: u64,
        /// The last.
        high_sequence: u64,
        /// Bytes that have not been transferred.
        bytes_left: u64,
    }
}

document! {
    /// What a standby or a far sync has received.
    Received {
        /// Whether redo is arriving.
        connected: bool,
        /// Logs that it lacks.
        gap: Gap,
        /// End of the redo on disk here.
        hardened: u64,
        /// End of the redo that is also durable at the primary.
        confirmed: u64,
        /// How far apply is.
        applied: u64,
        /// Redo that is here and not applied, bytes.
        apply_lag_bytes: u64,
        /// Redo of the source that is not here, bytes.
        transport_lag_bytes: u64,
        /// The same in seconds.
        transport_lag_s: f64,
        /// How old the oldest redo is that is not applied, seconds.
        apply_lag_s: f64,
        /// When its source was last heard, microseconds since the Unix epoch.
        last_heard_us: u64,
        /// Who sends.
        source: Source,
        /// End of the redo at the source, as last heard.
        source_end: u64,
        /// Databases to which redo is not applied.
        stopped_databases: Vec<Value>,
        /// How long transactions are held back, seconds.
        delay_s: u64,
    }
}

document! {
    /// Where a standby's redo comes from.
    Source {
        /// Its name.
        name: String,
        /// Its role.
        role: String,
    }
}

document! {
    /// The redo log.
    Log {
        /// Bytes of a block; every write fills whole blocks.
        block_bytes: u64,
        /// Its groups.
        groups: Vec<Group>,
    }
}

document! {
    /// A group of the redo log.
    Group {
        /// `current`, `active`, `inactive` or `unused`.
        state: String,
        /// Number of the log in it.
        sequence: u64,
        /// Begin of its redo.
        first_scn: u64,
        /// Bytes of each of its files.
        bytes: u64,
        /// Whether what it holds is archived.
        archived: bool,
        /// Members that are neither read nor written.
        lost_members: Vec<String>,
    }
}

impl Certificate {
    /// For how long it is valid yet when it is `now_us`, in words; `None`: it is over, or that is not known.
    pub fn left(&self, now_us: Option<u64>) -> Option<String> {
        let seconds = match (self.not_after_us, now_us, self.days_left) {
            (Some(end_us), Some(now_us), _) => end_us.checked_sub(now_us)? / 1_000_000,
            (_, _, days) => u64::try_from(days?).ok()? * 86_400,
        };
        Some(if seconds < 2 * 86_400 {
            figure::seconds(seconds as f64)
        } else {
            format!("{} days", seconds / 86_400)
        })
    }
}

impl Status {
    /// The certificate, if there is one and it is known.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.security.as_ref()?.certificate.as_ref()
    }

    /// Out of the document; all of it is unknown when it is none.
    pub fn of(document: &Value) -> Status {
        Status::deserialize(document).unwrap_or_default()
    }

    /// The destinations, none when they are not known.
    pub fn destinations(&self) -> &[Destination] {
        self.destinations.as_deref().unwrap_or_default()
    }

    /// The groups of the redo log, none when they are not known.
    pub fn groups(&self) -> &[Group] {
        self.log.as_ref().and_then(|log| log.groups.as_deref()).unwrap_or_default()
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
    fn certificate_expiry_is_shown_in_a_suitable_unit() {
        let left = |seconds: i64| {
            let not_after_us = Some(1_000_000_000_000_000);
            let certificate = Certificate { not_after_us, ..Certificate::default() };
            certificate.left(Some((1_000_000_000_i64 - seconds) as u64 * 1_000_000))
        };
        assert_eq!(left(243 * 86_400 + 5).as_deref(), Some("243 days"));
        assert_eq!(left(1100).as_deref(), Some("18 min 20 s"));
        assert_eq!(left(-1), None);
        let days = |days_left| Certificate { days_left, ..Certificate::default() }.left(None);
        assert_eq!((days(Some(100)).as_deref(), days(Some(-1)), days(None)), (Some("100 days"), None, None));
    }

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
}
