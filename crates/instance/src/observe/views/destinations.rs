//! Views of destinations: v$archive_dest, v$archive_dest_status, v$redo_dest_resp_histogram.

use super::builder::{Builder, cell};
use super::family::observation_of;
use super::logs::list;
use super::text::{capitals, time};
use super::waits::BEYOND_US;
use serde_json::Value;
use standfast_instruments::{Observation, bucket_upper_us};
use standfast_views::Cell;

/// A configured destination and its known state.
struct Known<'a> {
    config: &'a Value,
    /// Status of its sender or of its local copies; null while there is none.
    status: &'a Value,
    /// What the destination reports about itself.
    remote: Option<&'a Observation>,
}

impl Known<'_> {
    fn id(&self) -> Option<u64> {
        self.config["id"].as_u64()
    }

    fn is_local(&self) -> bool {
        !self.config["location"].is_null()
    }

    fn is_sync(&self) -> bool {
        self.config["mode"] != "async" && !self.is_local()
    }

    fn name(&self) -> Cell {
        cell(self.id().map(|id| format!("LOG_ARCHIVE_DEST_{id}")))
    }

    fn place(&self) -> Cell {
        cell(if self.is_local() { &self.config["location"] } else { &self.config["address"] })
    }

    fn instance(&self) -> Cell {
        if self.is_local() { Cell::Null } else { cell(&self.config["name"]) }
    }

    fn status(&self) -> &str {
        match (self.config["state"].as_str(), self.status["state"].as_str()) {
            (Some("defer"), _) => "DEFERRED",
            _ if self.is_local() => self.status["status"].as_str().unwrap_or("INACTIVE"),
            (Some("alternate"), None) => "ALTERNATE",
            (_, None) => "INACTIVE",
            (_, Some("streaming" | "catching_up" | "resolving")) => "VALID",
            (_, Some("failed")) if self.is_given_up() => "DISABLED",
            (_, Some("failed")) => "ERROR",
            _ if self.status["failures"].as_u64().is_some_and(|failures| failures > 0) => "ERROR",
            _ => "VALID",
        }
    }

    fn is_given_up(&self) -> bool {
        let allowed = self.config["max_failure"].as_u64().unwrap_or(0);
        allowed > 0 && self.status["failures"].as_u64().is_some_and(|failures| failures >= allowed)
    }

    /// The last error, while the destination is not valid.
    fn error(&self) -> Cell {
        match (self.status(), self.is_local()) {
            ("VALID", _) => Cell::Null,
            (_, true) => cell(&self.status["trouble"]),
            (_, false) => cell(&self.status["last_trouble"]),
        }
    }

    fn streams(&self) -> bool {
        self.status["state"] == "streaming"
    }

    fn synchronization(&self) -> &'static str {
        match (self.is_sync(), self.status["gap"].is_object(), self.status["standing"].as_str()) {
            (false, ..) => "NOT AVAILABLE",
            (_, true, _) => "DESTINATION HAS A GAP",
            (.., Some("required")) if self.streams() => "OK",
            _ => "CHECK NETWORK",
        }
    }

    fn gap(&self) -> Option<&'static str> {
        if self.status["gap"].is_object() {
            return Some("RESOLVABLE GAP");
        }
        self.streams().then_some("NO GAP")
    }
}

fn all(at: &Observation) -> impl Iterator<Item = Known<'_>> {
    list(&at.catalog["destinations"]).iter().map(|config| {
        let name = config["name"].as_str().unwrap_or_default();
        let local = !config["location"].is_null();
        let known = list(&at.status[if local { "local_destinations" } else { "destinations" }]);
        let status = known.iter().find(|known| known["name"] == name).unwrap_or(&Value::Null);
        Known { config, status, remote: observation_of(at, name) }
    })
}

/// Converts milliseconds to seconds, rounded up: never shows a shorter time than configured.
fn seconds(milliseconds: &Value) -> Option<u64> {
    milliseconds.as_u64().map(|milliseconds| milliseconds.div_ceil(1_000))
}

fn valid_now(at: &Observation, config: &Value) -> Option<&'static str> {
    let (role, other) = match at.catalog["role"].as_str()? {
        "primary" => ("valid_for_primary", "standby_logfile"),
        _ => ("valid_for_standby", "online_logfile"),
    };
    Some(match (config[role].as_bool()?, config["valid_for"][0] == other) {
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
    Some(if known.config["insecure"].as_bool()? { "DISABLE" } else { "ENABLE" })
}

pub fn archive_dest(rows: &mut Builder, at: &Observation) {
    for known in all(at) {
        let config = known.config;
        let local = known.is_local();
        let deferred = config["state"] == "defer";
        let mandatory = config["mandatory"] == true;
        let compression = match config["compression"].as_str() {
            None | Some("none") => Some("DISABLE".into()),
            Some(name) => Some(name.to_uppercase()),
        };
        let word = |at: usize| cell(config["valid_for"][at].as_str().map(str::to_uppercase));
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
            ("reopen_secs", cell(seconds(&config["reopen_ms"]))),
            ("delay_mins", cell(&config["delay_min"])),
            ("max_connections", cell(&config["max_connections"])),
            ("net_timeout", cell(seconds(&config["net_timeout_ms"]))),
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
            ("failure_count", cell(&known.status["failures"])),
            ("max_failure", cell(&config["max_failure"])),
            ("error", known.error()),
            ("alternate", cell(&config["alternate"])),
            ("dependency", cell("NONE")),
            ("remote_template", cell("NONE")),
            ("quota_size", cell(0u64)),
            ("quota_used", cell(0u64)),
            ("mountid", cell(0u64)),
            ("transmit_mode", cell(if known.is_sync() { "PARALLELSYNC" } else { "ASYNCHRONOUS" })),
            ("async_blocks", cell(0u64)),
            ("affirm", cell(config["mode"] == "sync-affirm")),
            ("type", cell("PUBLIC")),
            ("valid_now", cell(valid_now(at, config))),
            ("valid_type", word(0)),
            ("valid_role", word(1)),
            ("db_unique_name", known.instance()),
            ("verify", cell(local)),
            ("compression", cell(compression)),
            ("applied_scn", cell(&known.status["applied"])),
            ("encryption", cell(encryption(&known))),
        ]);
    }
}

/// Sequence of the newest archived log that ends at or before `upto`.
fn newest_sequence(of: &Observation, upto: Option<u64>) -> Option<u64> {
    let ends_before =
        |log: &&Value| log["next_scn"].as_u64().zip(upto).is_some_and(|(end, upto)| end <= upto);
    list(&of.catalog["archived"]).iter().filter(ends_before).filter_map(|log| log["sequence"].as_u64()).max()
}

fn recovery_mode(remote: &Observation) -> Option<&'static str> {
    Some(match remote.status["state"].as_str()? {
        "applying" if remote.status["standby"]["delay_s"].as_u64() > Some(0) => "MANAGED WITH QUERY",
        "applying" => "MANAGED REAL TIME APPLY WITH QUERY",
        "apply stopped" | "apply error" | "forwarding" => "IDLE",
        _ => return None,
    })
}

pub fn archive_dest_status(rows: &mut Builder, at: &Observation) {
    for known in all(at) {
        let (status, local) = (known.status, known.is_local());
        let role = status["role"].as_str();
        let logs =
            known.remote.map(|remote| &remote.catalog["logs"]["groups"]).filter(|logs| logs.is_array());
        let active = |logs: &Value| {
            let holds = |group: &&Value| group["sequence"].is_u64() && group["archived"] == false;
            list(logs).iter().filter(holds).count()
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
        let copied = newest_sequence(at, status["has"].as_u64());
        let archived = if local { copied } else { sequence(Some(u64::MAX)) };
        let applied = sequence(status["applied"].as_u64());
        rows.row([
            ("dest_id", cell(known.id())),
            ("dest_name", known.name()),
            ("status", cell(known.status())),
            ("type", cell(kind)),
            ("database_mode", cell(open)),
            ("recovery_mode", cell(known.remote.and_then(recovery_mode))),
            ("protection_mode", cell(capitals(&at.status["protection"]["mode"]))),
            ("destination", known.place()),
            ("standby_logfile_count", cell(logs.map(|logs| list(logs).len()))),
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
        let buckets = known.status["responses"].as_array().into_iter().flatten();
        let counts = buckets.enumerate().filter_map(|(bucket, count)| Some((bucket, count.as_u64()?)));
        for (bucket, count) in counts.filter(|(_, count)| *count > 0) {
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
    use crate::observe::views::example::{self, Shown};
    use serde_json::json;

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
            at.catalog["destinations"][0]["state"] = json!(configured);
            at.catalog["destinations"][0]["max_failure"] = json!(max_failure);
            at.status["destinations"][0]["state"] = json!(state);
            at.status["destinations"][0]["failures"] = json!(failures);
            Shown::of("v$archive_dest", &at).with("dest_id", "1").only(&["status"]).concat()
        };
        assert_eq!(status("streaming", 0, "enable", 0), "VALID");
        assert_eq!(status("connecting", 3, "enable", 0), "ERROR");
        assert_eq!(status("failed", 3, "enable", 3), "DISABLED");
        assert_eq!(status("streaming", 0, "defer", 0), "DEFERRED");
        let mut at = example::primary();
        at.status["destinations"] = json!([]);
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
        at.status["destinations"] = json!([]);
        let shown = Shown::of("v$archive_dest_status", &at).with("dest_id", "1");
        assert_eq!(shown.only(&columns), ["-", "-", "-", "-", "-"]);
        assert_eq!(shown.only(&["synchronized", "gap_status"]), ["NO", "-"]);
    }

    #[test]
    fn response_histogram_covers_each_synchronous_destination() {
        let columns = ["dest_id", "duration", "frequency"];
        let mut at = example::primary();
        assert_eq!(Shown::of("v$redo_dest_resp_histogram", &at).all(&columns), [["1", "512", "2"]]);
        let mut other = at.catalog["destinations"][0].clone();
        (other["id"], other["name"]) = (json!(3), json!("west"));
        at.catalog["destinations"].as_array_mut().unwrap().push(other);
        let west = json!({ "name": "west", "responses": [0, 5, 0, 1] });
        at.status["destinations"].as_array_mut().unwrap().push(west);
        at.status["local_destinations"][0]["responses"] = json!([7]);
        let expected = [["1", "512", "2"], ["3", "2", "5"], ["3", "8", "1"]];
        assert_eq!(
            Shown::of("v$redo_dest_resp_histogram", &at).all(&columns),
            expected,
            "the second is local"
        );
    }
}
