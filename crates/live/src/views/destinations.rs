//! Views of destinations: v$archive_dest, v$archive_dest_status, v$redo_dest_resp_histogram.

use super::builder::{Builder, cell};
use super::family::{observation_of, sender_of};
use super::logs::list;
use super::text::{capitals, time};
use super::waits::BEYOND_US;
use standfast_documents::catalog::{ArchivedLog, ConfiguredDestination};
use standfast_documents::group::Group;
use standfast_documents::status::{Destination, LocalDestination};
use standfast_instruments::{Observation, bucket_upper_us};
use standfast_views::Cell;

/// A configured destination and its known state.
struct Known<'a> {
    config: &'a ConfiguredDestination,
    /// What its sender knows.
    sender: Option<&'a Destination>,
    /// The state of its local copies.
    local: Option<&'a LocalDestination>,
    /// What the destination reports about itself.
    remote: Option<&'a Observation>,
}

impl Known<'_> {
    fn id(&self) -> Option<u64> {
        self.config.id
    }

    fn is_local(&self) -> bool {
        self.config.location.is_some()
    }

    fn is_sync(&self) -> bool {
        self.config.mode.as_deref() != Some("async") && !self.is_local()
    }

    fn name(&self) -> Cell {
        cell(self.id().map(|id| format!("LOG_ARCHIVE_DEST_{id}")))
    }

    fn place(&self) -> Cell {
        cell(if self.is_local() { &self.config.location } else { &self.config.address })
    }

    fn instance(&self) -> Cell {
        if self.is_local() { Cell::Null } else { cell(&self.config.name) }
    }

    fn status(&self) -> &str {
        match (self.config.state.as_deref(), self.state()) {
            (Some("defer"), _) => "DEFERRED",
            _ if self.is_local() => self.local.and_then(|at| at.status.as_deref()).unwrap_or("INACTIVE"),
            (Some("alternate"), None) => "ALTERNATE",
            (_, None) => "INACTIVE",
            (_, Some("streaming" | "catching_up" | "resolving")) => "VALID",
            (_, Some("failed")) if self.is_given_up() => "DISABLED",
            (_, Some("failed")) => "ERROR",
            _ if self.failures() > Some(0) => "ERROR",
            _ => "VALID",
        }
    }

    fn is_given_up(&self) -> bool {
        let allowed = self.config.max_failure.unwrap_or(0);
        allowed > 0 && self.failures() >= Some(allowed)
    }

    /// The last error, while the destination is not valid.
    fn error(&self) -> Cell {
        match (self.status(), self.is_local()) {
            ("VALID", _) => Cell::Null,
            (_, true) => cell(self.local.and_then(|at| at.trouble.as_deref())),
            (_, false) => cell(self.sender.and_then(|at| at.last_trouble.as_deref())),
        }
    }

    /// State of its sender.
    fn state(&self) -> Option<&str> {
        self.sender?.state.as_deref()
    }

    fn failures(&self) -> Option<u64> {
        self.sender.map_or_else(|| self.local?.failures, |sender| sender.failures)
    }

    fn has_gap(&self) -> bool {
        self.sender.is_some_and(|at| at.gap.is_some())
    }

    fn streams(&self) -> bool {
        self.state() == Some("streaming")
    }

    fn synchronization(&self) -> &'static str {
        let standing = self.sender.and_then(|at| at.standing.as_deref());
        match (self.is_sync(), self.has_gap(), standing) {
            (false, ..) => "NOT AVAILABLE",
            (_, true, _) => "DESTINATION HAS A GAP",
            (.., Some("required")) if self.streams() => "OK",
            _ => "CHECK NETWORK",
        }
    }

    fn gap(&self) -> Option<&'static str> {
        if self.has_gap() {
            return Some("RESOLVABLE GAP");
        }
        self.streams().then_some("NO GAP")
    }
}

fn all(at: &Observation) -> impl Iterator<Item = Known<'_>> {
    list(&at.catalog.destinations).iter().map(|config| {
        let name = config.name.as_deref().unwrap_or_default();
        let is_local = config.location.is_some();
        let local =
            list(&at.status.local_destinations).iter().find(|known| known.name.as_deref() == Some(name));
        Known {
            config,
            sender: sender_of(at, name).filter(|_| !is_local),
            local: local.filter(|_| is_local),
            remote: observation_of(at, name),
        }
    })
}

/// Converts milliseconds to seconds, rounded up: never shows a shorter time than configured.
fn seconds(milliseconds: Option<u64>) -> Option<u64> {
    milliseconds.map(|milliseconds| milliseconds.div_ceil(1_000))
}

fn valid_now(at: &Observation, config: &ConfiguredDestination) -> Option<&'static str> {
    let (is_valid, other) = match at.catalog.role.as_deref()? {
        "primary" => (config.valid_for_primary?, "standby_logfile"),
        _ => (config.valid_for_standby?, "online_logfile"),
    };
    let is_other_log = list(&config.valid_for).first().is_some_and(|logs| logs == other);
    Some(match (is_valid, is_other_log) {
        (true, _) => "YES",
        (false, true) => "WRONG VALID_TYPE",
        (false, false) => "WRONG VALID_ROLE",
    })
}

/// Whether the connection is encrypted; `None` for a local destination.
fn encryption(known: &Known<'_>) -> Option<&'static str> {
    if known.is_local() {
        return None;
    }
    Some(if known.config.insecure? { "DISABLE" } else { "ENABLE" })
}

pub fn archive_dest(rows: &mut Builder, at: &Observation) {
    for known in all(at) {
        let config = known.config;
        let local = known.is_local();
        let deferred = config.state.as_deref() == Some("defer");
        let mandatory = config.mandatory == Some(true);
        let compression = match config.compression.as_deref() {
            None | Some("none") => Some("DISABLE".into()),
            Some(name) => Some(name.to_uppercase()),
        };
        let word = |at: usize| cell(list(&config.valid_for).get(at).map(|word| word.to_uppercase()));
        rows.row([
            ("dest_id", cell(known.id())),
            ("dest_name", known.name()),
            ("status", cell(known.status())),
            ("binding", cell(if mandatory { "MANDATORY" } else { "OPTIONAL" })),
            ("name_space", cell("SYSTEM")),
            ("target", cell(if local { "LOCAL" } else { "STANDBY" })),
            ("archiver", cell(if local { "ARCH" } else { "LGWR" })),
            ("schedule", cell(if deferred { "INACTIVE" } else { "ACTIVE" })),
            ("destination", known.place()),
            ("reopen_secs", cell(seconds(config.reopen_ms))),
            ("delay_mins", cell(config.delay_min)),
            ("max_connections", cell(config.max_connections)),
            ("net_timeout", cell(seconds(config.net_timeout_ms))),
            (
                "process",
                cell(if local {
                    "ARCH"
                } else if known.is_sync() {
                    "LGWR"
                } else {
                    "TT00"
                }),
            ),
            ("register", cell(true)),
            ("failure_count", cell(known.failures())),
            ("max_failure", cell(config.max_failure)),
            ("error", known.error()),
            ("alternate", cell(&config.alternate)),
            ("dependency", cell("NONE")),
            ("remote_template", cell("NONE")),
            ("quota_size", cell(0u64)),
            ("quota_used", cell(0u64)),
            ("mountid", cell(0u64)),
            ("transmit_mode", cell(if known.is_sync() { "PARALLELSYNC" } else { "ASYNCHRONOUS" })),
            ("async_blocks", cell(0u64)),
            ("affirm", cell(config.mode.as_deref() == Some("sync-affirm"))),
            ("type", cell("PUBLIC")),
            ("valid_now", cell(valid_now(at, config))),
            ("valid_type", word(0)),
            ("valid_role", word(1)),
            ("db_unique_name", known.instance()),
            ("verify", cell(local)),
            ("compression", cell(compression)),
            ("applied_scn", cell(known.sender.and_then(|at| at.applied))),
            ("encryption", cell(encryption(&known))),
        ]);
    }
}

/// Sequence of the newest archived log that ends at or before `upto`.
fn newest_sequence(of: &Observation, upto: Option<u64>) -> Option<u64> {
    let ends_before = |log: &&ArchivedLog| log.next_scn.zip(upto).is_some_and(|(end, upto)| end <= upto);
    list(&of.catalog.archived).iter().filter(ends_before).filter_map(|log| log.sequence).max()
}

fn recovery_mode(remote: &Observation) -> Option<&'static str> {
    let delay_s = remote.status.standby.as_ref().and_then(|standby| standby.delay_s);
    Some(match remote.status.state.as_deref()? {
        "applying" if delay_s > Some(0) => "MANAGED WITH QUERY",
        "applying" => "MANAGED REAL TIME APPLY WITH QUERY",
        "apply stopped" | "apply error" | "snapshot standby" | "forwarding" => "IDLE",
        _ => return None,
    })
}

pub fn archive_dest_status(rows: &mut Builder, at: &Observation) {
    let protection = at.status.protection.as_ref().and_then(|protection| protection.mode.as_deref());
    for known in all(at) {
        let (sender, local) = (known.sender, known.is_local());
        let role = sender.and_then(|at| at.role.as_deref());
        let logs = known.remote.and_then(|remote| remote.catalog.logs.as_ref()?.groups.as_deref());
        let active = |logs: &[Group]| {
            let holds = |group: &&Group| group.sequence.is_some() && group.archived == Some(false);
            logs.iter().filter(holds).count()
        };
        let kind = match (local, role) {
            (true, _) => Some("LOCAL"),
            (_, Some("far sync")) => Some("FAR SYNC"),
            (_, Some(_)) => Some("PHYSICAL"),
            (_, None) => None,
        };
        let open = match (known.remote, role) {
            (Some(_), Some("far sync")) => Some("MOUNTED-STANDBY"),
            (Some(_), _) => Some("OPEN_READ-ONLY"),
            _ => None,
        };
        let sequence = |upto: Option<u64>| known.remote.and_then(|remote| newest_sequence(remote, upto));
        let copied = newest_sequence(at, known.local.and_then(|at| at.has));
        let archived = if local { copied } else { sequence(Some(u64::MAX)) };
        let applied = sequence(sender.and_then(|at| at.applied));
        rows.row([
            ("dest_id", cell(known.id())),
            ("dest_name", known.name()),
            ("status", cell(known.status())),
            ("type", cell(kind)),
            ("database_mode", cell(open)),
            ("recovery_mode", cell(known.remote.and_then(recovery_mode))),
            ("protection_mode", cell(protection.map(capitals))),
            ("destination", known.place()),
            ("standby_logfile_count", cell(logs.map(<[Group]>::len))),
            ("standby_logfile_active", cell(logs.map(active))),
            ("archived_thread_no", cell(archived.map(|_| 1u64))),
            ("archived_seq_no", cell(archived)),
            ("applied_thread_no", cell(applied.map(|_| 1u64))),
            ("applied_seq_no", cell(applied)),
            ("error", known.error()),
            ("srl", cell(!local)),
            ("db_unique_name", known.instance()),
            ("synchronization_status", cell(known.synchronization())),
            ("synchronized", cell(known.synchronization() == "OK")),
            ("gap_status", cell(known.gap())),
        ]);
    }
}

/// Time from sending redo to its acknowledgement, for each synchronous destination.
pub fn redo_dest_resp_histogram(rows: &mut Builder, at: &Observation) {
    for known in all(at).filter(Known::is_sync) {
        let counts = known.sender.map_or(&[][..], |sender| list(&sender.responses)).iter().copied();
        for (bucket, count) in counts.enumerate().filter(|(_, count)| *count > 0) {
            rows.row([
                ("dest_id", cell(known.id())),
                ("time", cell(time(at.sample.time_us))),
                ("duration", cell(bucket_upper_us(bucket).unwrap_or(BEYOND_US))),
                ("frequency", cell(count)),
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::views::example::{self, Shown};
    use standfast_documents::catalog::ConfiguredDestination;
    use standfast_documents::status::Destination;

    #[test]
    fn archive_dest_view_shows_the_destination_attributes() {
        let shown = Shown::of("v$archive_dest", &example::primary()).with("dest_id", "1");
        let columns =
            ["dest_name", "status", "transmit_mode", "affirm", "net_timeout", "db_unique_name", "valid_now"];
        let expected = ["LOG_ARCHIVE_DEST_1", "VALID", "PARALLELSYNC", "YES", "30", "north", "YES"];
        assert_eq!(shown.only(&columns), expected);
        assert_eq!(shown.only(&["source_db_unique_name", "error", "encryption"]), ["south", "-", "ENABLE"]);
        let local = Shown::of("v$archive_dest", &example::primary()).with("dest_id", "2");
        let expected = ["LOCAL", "/copies", "ERROR", "no room", "-"];
        assert_eq!(local.only(&["target", "destination", "status", "error", "db_unique_name"]), expected);
    }

    #[test]
    fn destination_status_follows_the_sender_state() {
        let status = |state: &str, failures: u64, configured: &str, max_failure: u64| {
            let mut at = example::primary();
            let config = &mut at.catalog.destinations.as_mut().unwrap()[0];
            (config.state, config.max_failure) = (Some(configured.into()), Some(max_failure));
            let sender = &mut at.status.destinations.as_mut().unwrap()[0];
            (sender.state, sender.failures) = (Some(state.into()), Some(failures));
            Shown::of("v$archive_dest", &at).with("dest_id", "1").only(&["status"]).concat()
        };
        assert_eq!(status("streaming", 0, "enable", 0), "VALID");
        assert_eq!(status("connecting", 3, "enable", 0), "ERROR");
        assert_eq!(status("failed", 3, "enable", 3), "DISABLED");
        assert_eq!(status("streaming", 0, "defer", 0), "DEFERRED");
        let mut at = example::primary();
        at.status.destinations = Some(vec![]);
        assert_eq!(Shown::of("v$archive_dest", &at).with("dest_id", "1").only(&["status"]), ["INACTIVE"]);
    }

    #[test]
    fn standby_columns_show_its_own_report_and_are_null_without_it() {
        let columns = ["type", "database_mode", "recovery_mode", "standby_logfile_count", "applied_seq_no"];
        let shown = Shown::of("v$archive_dest_status", &example::family()).with("dest_id", "1");
        let mode = "MANAGED REAL TIME APPLY WITH QUERY";
        assert_eq!(shown.only(&columns), ["PHYSICAL", "OPEN_READ-ONLY", mode, "2", "7"]);
        let expected = ["OK", "YES", "NO GAP"];
        assert_eq!(shown.only(&["synchronization_status", "synchronized", "gap_status"]), expected);
        let mut at = example::primary();
        at.standbys = vec![example::silent("north")];
        at.status.destinations = Some(vec![]);
        let shown = Shown::of("v$archive_dest_status", &at).with("dest_id", "1");
        assert_eq!(shown.only(&columns), ["-", "-", "-", "-", "-"]);
        assert_eq!(shown.only(&["synchronized", "gap_status"]), ["NO", "-"]);
    }

    #[test]
    fn response_histogram_covers_each_synchronous_destination() {
        let columns = ["dest_id", "duration", "frequency"];
        let mut at = example::primary();
        assert_eq!(Shown::of("v$redo_dest_resp_histogram", &at).all(&columns), [["1", "512", "2"]]);
        let configured = at.catalog.destinations.as_mut().unwrap();
        let (id, name) = (Some(3), Some("west".to_owned()));
        configured.push(ConfiguredDestination { id, name: name.clone(), ..configured[0].clone() });
        let responses = Some(vec![0, 5, 0, 1]);
        let west = Destination { name, responses, ..Destination::default() };
        at.status.destinations.as_mut().unwrap().push(west);
        let expected = [["1", "512", "2"], ["3", "2", "5"], ["3", "8", "1"]];
        assert_eq!(
            Shown::of("v$redo_dest_resp_histogram", &at).all(&columns),
            expected,
            "the second is local"
        );
    }
}
