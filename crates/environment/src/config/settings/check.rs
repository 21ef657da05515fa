//! Which values of the settings are valid.

use super::{Config, ConfigError, TlsSetting};
use crate::config::address::{ADDRESS_RULE, NAME_RULE, is_address, is_name};
use crate::config::destination_config;
use crate::config::role_change_config::RoleChangeConfig;
use std::path::{Path, PathBuf};

impl Config {
    /// Checks the settings in the file at `path`.
    ///
    /// # Errors
    /// The first setting that is not valid, with the rule.
    pub(super) fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let fail = |setting, value: String, rule| {
            Err(ConfigError::Range { path: path.to_owned(), setting, value, rule })
        };
        let redo = &self.redo;
        if !(2..=64).contains(&redo.groups) {
            return fail("redo.groups", redo.groups.to_string(), "2 to 64 groups");
        }
        let valid_s = self.security.certificate_valid_s;
        if !(10..=3650 * 86_400).contains(&valid_s) {
            return fail("security.certificate_valid_s", valid_s.to_string(), "10 to 315360000 (ten years)");
        }
        if redo.group_bytes < 8 << 20 || !redo.group_bytes.is_multiple_of(4096) {
            return fail(
                "redo.group_bytes",
                redo.group_bytes.to_string(),
                "at least 8 MiB (8388608), a multiple of 4096",
            );
        }
        if redo.block_bytes != 512 && redo.block_bytes != 4096 {
            return fail("redo.block_bytes", redo.block_bytes.to_string(), "512 or 4096");
        }
        if redo.members.is_empty() || redo.members.len() > 5 {
            return fail("redo.members", redo.members.len().to_string(), "1 to 5 directories");
        }
        // Compares the text only; links are resolved when the directories are made.
        let written = |member: &PathBuf| -> PathBuf {
            member.components().filter(|part| *part != std::path::Component::CurDir).collect()
        };
        for (index, member) in redo.members.iter().enumerate() {
            if member.as_os_str().is_empty() {
                return fail("redo.members", "\"\"".into(), "directories have names");
            }
            if redo.members[..index].iter().any(|other| written(other) == written(member)) {
                return fail(
                    "redo.members",
                    member.display().to_string(),
                    "each member has a directory of its own",
                );
            }
        }
        let places =
            1 + self.destinations.iter().filter(|at| at.id <= destination_config::FULL_ID_MAX).count();
        if !(1..=places.min(10)).contains(&redo.archive_min_succeed) {
            return fail(
                "redo.archive_min_succeed",
                redo.archive_min_succeed.to_string(),
                "1 to 10, and no more than there are destinations 1 to 10 and the instance's own archive",
            );
        }
        if redo.buffer_bytes < 8 << 20 {
            return fail("redo.buffer_bytes", redo.buffer_bytes.to_string(), "at least 8 MiB (8388608)");
        }
        if redo.archive_lag_target_s != 0 && !(60..=7200).contains(&redo.archive_lag_target_s) {
            return fail(
                "redo.archive_lag_target_s",
                redo.archive_lag_target_s.to_string(),
                "0 for none, or 60 to 7200 seconds",
            );
        }
        if !(1..=30).contains(&redo.archive_processes) {
            return fail("redo.archive_processes", redo.archive_processes.to_string(), "1 to 30 archivers");
        }
        if !(64 << 10..=1 << 30).contains(&redo.archive_unit_bytes)
            || !redo.archive_unit_bytes.is_multiple_of(4096)
        {
            return fail(
                "redo.archive_unit_bytes",
                redo.archive_unit_bytes.to_string(),
                "65536 to 1073741824, a multiple of 4096",
            );
        }
        if self.commit_mode_bits().is_none() {
            return fail(
                "commit.write",
                self.commit.write.clone(),
                "wait or nowait, immediate or batch, separated by a comma",
            );
        }
        if !["early", "durable"].contains(&self.commit.visibility.as_str()) {
            return fail("commit.visibility", self.commit.visibility.clone(), "early or durable");
        }
        if self.standby.apply_delay_s > 604_800 {
            let value = self.standby.apply_delay_s.to_string();
            return fail("standby.apply_delay_s", value, "0 to 604800 (a week)");
        }
        if self.instance.mode_bits().is_none() {
            return fail(
                "instance.mode",
                self.instance.mode.clone(),
                "octal permissions such as 0600 or 0660",
            );
        }
        if self.checkpoint.passive_frames == 0
            || self.checkpoint.reset_frames <= self.checkpoint.passive_frames
        {
            return fail(
                "checkpoint.reset_frames",
                self.checkpoint.reset_frames.to_string(),
                "more than checkpoint.passive_frames, which is at least 1",
            );
        }
        if self.standby.sdu_bytes != 0 && !(512..=2_097_152).contains(&self.standby.sdu_bytes) {
            return fail(
                "standby.sdu_bytes",
                self.standby.sdu_bytes.to_string(),
                "512 to 2097152, or 0 for as large as the protocol allows",
            );
        }
        if self.protection.sync_latency_s > 1200 {
            return fail(
                "protection.sync_latency_s",
                self.protection.sync_latency_s.to_string(),
                "0 to 1200, the largest net timeout",
            );
        }
        let snapshot = &self.snapshot;
        if snapshot.interval_s != 0 && !(10..=86_400).contains(&snapshot.interval_s) {
            let value = snapshot.interval_s.to_string();
            return fail("snapshot.interval_s", value, "0 for none, or 10 to 86400 seconds");
        }
        if !(1..=3650).contains(&snapshot.retention_days) {
            return fail("snapshot.retention_days", snapshot.retention_days.to_string(), "1 to 3650 days");
        }
        if self.verify.every_hours > 8760 {
            return fail(
                "verify.every_hours",
                self.verify.every_hours.to_string(),
                "0 for none, or 1 to 8760 hours",
            );
        }
        if self.verify.bytes_per_s < 65_536 {
            return fail("verify.bytes_per_s", self.verify.bytes_per_s.to_string(), "65536 or more");
        }
        let drain_s = self.role_change.drain_timeout_s;
        if drain_s > RoleChangeConfig::DRAIN_TIMEOUT_MAX_S {
            return fail("role_change.drain_timeout_s", drain_s.to_string(), "0 to 3600 seconds");
        }
        if let Some((setting, value, rule)) = self.role_change.fast_start_failover.first_fault() {
            return fail(setting, value, rule);
        }
        if let Some((setting, value, rule)) = self.arbiter.first_fault() {
            return fail(setting, value, rule);
        }
        if !(1..=3650).contains(&self.kept.days) {
            return fail("kept.days", self.kept.days.to_string(), "1 to 3650 days");
        }
        let instance = &self.instance;
        if instance.insecure && self.security.tls == Some(TlsSetting::Required) {
            return fail(
                "instance.insecure",
                "true".into(),
                "false, or no [security] tls = \"required\": they contradict",
            );
        }
        if self.security.directory.as_os_str().is_empty() {
            return fail("security.directory", "\"\"".into(), "directories have names");
        }
        if !is_name(&instance.name) {
            return fail("instance.name", format!("\"{}\"", instance.name), NAME_RULE);
        }
        if !instance.listen.is_empty() && !is_address(&instance.listen) {
            return fail("instance.listen", instance.listen.clone(), ADDRESS_RULE);
        }
        if !self.http.listen.is_empty() && !is_address(&self.http.listen) {
            return fail("http.listen", self.http.listen.clone(), ADDRESS_RULE);
        }
        if self.http.anonymous && !self.http.token_file.as_os_str().is_empty() {
            return fail("http.anonymous", "true".into(), "false, or no http.token_file: they contradict");
        }
        if let Some((setting, value, rule)) = self.alert.broken() {
            return fail(setting, value.to_string(), rule);
        }
        let broken = destination_config::check_all(&self.destinations);
        broken.map_err(|rule| ConfigError::Destination { path: path.to_owned(), rule })
    }
}
