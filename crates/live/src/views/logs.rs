//! Redo logs, archived logs, gaps.

use super::builder::{Builder, cell};
use super::family::{sender_of, silent};
use super::text::{time, time_of};
use standfast_documents::catalog::{ArchivedLog, ConfiguredDestination};
use standfast_documents::group::Group;
use standfast_documents::status::{Gap, Received};
use standfast_instruments::Observation;
use standfast_views::Cell;
use std::collections::HashMap;

/// Elements of a list; none while it is unknown.
pub(super) fn list<T>(of: &Option<Vec<T>>) -> &[T] {
    of.as_deref().unwrap_or_default()
}

/// Groups of the log that the instance writes in its role.
pub(super) fn all_groups(at: &Observation) -> &[Group] {
    at.catalog.logs.as_ref().map_or(&[], |logs| list(&logs.groups))
}

/// Times of log switches, by the SCN at which the log begins.
struct Switches(HashMap<u64, u64>);

impl Switches {
    fn of(at: &Observation) -> Switches {
        let groups = all_groups(at).iter().map(|group| (group.first_scn, group.first_time_us));
        let archived = list(&at.catalog.archived).iter().map(|log| (log.first_scn, log.first_time_us));
        Switches(groups.chain(archived).filter_map(|(scn, time_us)| scn.zip(time_us)).collect())
    }

    /// Time of the switch, microseconds since the Unix epoch.
    fn at(&self, scn: Option<u64>) -> Option<u64> {
        self.0.get(&scn?).copied()
    }

    fn time_at(&self, scn: Option<u64>) -> Option<String> {
        self.at(scn).map(time)
    }
}

fn groups<'a>(at: &'a Observation, kind: &str) -> &'a [Group] {
    let is_kind = at.catalog.logs.as_ref().is_some_and(|logs| logs.kind.as_deref() == Some(kind));
    if is_kind { all_groups(at) } else { &[] }
}

fn block_bytes(at: &Observation) -> Option<u64> {
    at.catalog.logs.as_ref()?.block_bytes
}

/// Thread number 1 if the group contains a log, of either kind.
fn thread_of(group: &Group) -> Option<u64> {
    group.sequence.map(|_| 1)
}

pub fn log(rows: &mut Builder, at: &Observation) {
    let switches = Switches::of(at);
    for group in groups(at, "online") {
        rows.row([
            ("group_no", cell(group.group)),
            ("thread_no", cell(1u64)),
            ("sequence_no", cell(group.sequence)),
            ("bytes", cell(group.bytes)),
            ("blocksize", cell(block_bytes(at))),
            ("members", cell(list(&group.members).len())),
            // A group that was never used has nothing to archive.
            (
                "archived",
                if group.state.as_deref() == Some("unused") { cell(true) } else { cell(group.archived) },
            ),
            ("status", cell(group.state.as_deref().map(str::to_uppercase))),
            ("first_change_no", cell(group.first_scn)),
            ("first_time", cell(time_of(group.first_time_us))),
            ("next_change_no", cell(group.next_scn)),
            ("next_time", cell(switches.time_at(group.next_scn))),
        ]);
    }
}

pub fn standby_log(rows: &mut Builder, at: &Observation) {
    let unknown = Received::default();
    let (received, switches) = (at.status.standby.as_ref().unwrap_or(&unknown), Switches::of(at));
    for group in groups(at, "standby") {
        let current = group.state.as_deref() == Some("current");
        // An archived log is no longer needed in its group: the group is free.
        let active = current || group.sequence.is_some() && group.archived == Some(false);
        let last = if current { received.hardened } else { group.next_scn };
        let used = last.zip(group.first_scn).map(|(end, begin)| end.saturating_sub(begin));
        let holds = |value: Option<u64>| if active { cell(value) } else { Cell::Null };
        rows.row([
            ("group_no", cell(group.group)),
            ("dbid", if active { cell(&at.catalog.family) } else { cell("UNASSIGNED") }),
            ("thread_no", cell(thread_of(group).filter(|_| active))),
            ("sequence_no", holds(group.sequence)),
            ("bytes", cell(group.bytes)),
            ("blocksize", cell(block_bytes(at))),
            ("used", cell(used.filter(|_| active))),
            ("archived", cell(group.archived)),
            ("status", cell(if active { "ACTIVE" } else { "UNASSIGNED" })),
            ("first_change_no", holds(group.first_scn)),
            ("first_time", cell(time_of(group.first_time_us).filter(|_| active))),
            ("next_change_no", holds(group.next_scn)),
            ("next_time", cell(switches.time_at(group.next_scn).filter(|_| active))),
            ("last_change_no", holds(last)),
            ("last_time", cell(time_of(received.last_heard_us).filter(|_| current))),
        ]);
    }
}

pub fn logfile(rows: &mut Builder, at: &Observation) {
    let kind = at.catalog.logs.as_ref().and_then(|logs| logs.kind.as_deref()).map(str::to_uppercase);
    for group in all_groups(at) {
        let living = list(&group.members).iter().map(|member| (member, None));
        let lost = list(&group.lost_members).iter().map(|member| (member, Some("INVALID")));
        for (member, status) in living.chain(lost) {
            rows.row([
                ("group_no", cell(group.group)),
                ("status", cell(status)),
                ("type", cell(kind.clone())),
                ("member", cell(member)),
                ("is_recovery_dest_file", cell(false)),
            ]);
        }
    }
}

/// Whether a standby that has applied redo up to `applied` has applied this log.
fn is_applied(applied: u64, log: &ArchivedLog) -> Option<&'static str> {
    let (first, next) = (log.first_scn?, log.next_scn?);
    Some(match applied {
        applied if applied >= next => "YES",
        applied if applied > first => "IN-MEMORY",
        _ => "NO",
    })
}

/// A place where logs are archived.
struct Archive<'a> {
    /// 0: the instance's own archive.
    dest_id: u64,
    /// Name of the log there; `None`: its file name.
    name: Option<&'a str>,
    is_standby: bool,
    /// All redo before this SCN is there; `None`: all listed logs.
    until: Option<u64>,
    /// All redo before this SCN is applied there.
    applied: Option<u64>,
}

/// The archives of an instance: its own one, and the known content of those of its destinations.
fn archives(at: &Observation) -> Vec<Archive<'_>> {
    let own = at.status.standby.as_ref().and_then(|standby| standby.applied);
    let mut archives = vec![Archive { dest_id: 0, name: None, is_standby: false, until: None, applied: own }];
    archives.extend(list(&at.catalog.destinations).iter().filter_map(|config| archive_at(at, config)));
    archives
}

/// The archive of a destination; `None` while it is not known what it has.
fn archive_at<'a>(at: &'a Observation, config: &'a ConfiguredDestination) -> Option<Archive<'a>> {
    let (dest_id, name) = (config.id?, config.name.as_deref()?);
    if config.location.is_none() {
        let known = sender_of(at, name)?;
        let (until, applied) = (Some(known.hardened?), known.applied);
        return Some(Archive { dest_id, name: Some(name), is_standby: true, until, applied });
    }
    let known =
        list(&at.status.local_destinations).iter().find(|known| known.name.as_deref() == Some(name))?;
    Some(Archive { dest_id, name: Some(name), is_standby: false, until: Some(known.has?), applied: None })
}

pub fn archived_log(rows: &mut Builder, at: &Observation) {
    let archives = archives(at);
    let each = list(&at.catalog.archived).iter().flat_map(|log| archives.iter().map(move |to| (log, to)));
    let is_there = |(log, to): &(&ArchivedLog, &Archive<'_>)| {
        to.until.is_none_or(|until| log.next_scn.is_some_and(|next| next <= until))
    };
    let switches = Switches::of(at);
    let maker = if at.catalog.role.as_deref() == Some("primary") { "ARCH" } else { "RFS" };
    for (number, (log, to)) in each.filter(is_there).enumerate() {
        let blocks = log.bytes.zip(log.block_bytes);
        rows.row([
            ("recid", cell(number + 1)),
            ("stamp", cell(log.completed_us.map(|us| us / 1_000_000))),
            ("name", to.name.map_or_else(|| cell(&log.path), cell)),
            ("dest_id", cell(to.dest_id)),
            ("thread_no", cell(1u64)),
            ("sequence_no", cell(log.sequence)),
            ("resetlogs_change_no", cell(log.branch)),
            ("resetlogs_time", cell(time_of(log.incarnation_time_us))),
            ("resetlogs_id", cell(&log.incarnation_id)),
            ("first_change_no", cell(log.first_scn)),
            ("first_time", cell(time_of(log.first_time_us))),
            ("next_change_no", cell(log.next_scn)),
            ("next_time", cell(switches.time_at(log.next_scn))),
            ("blocks", cell(blocks.and_then(|(bytes, block)| bytes.checked_div(block)))),
            ("block_size", cell(log.block_bytes)),
            ("creator", cell(maker)),
            ("registrar", cell(maker)),
            ("standby_dest", cell(to.is_standby)),
            ("archived", cell(true)),
            ("applied", cell(to.applied.and_then(|applied| is_applied(applied, log)))),
            ("deleted", cell(false)),
            ("status", cell("A")),
            ("completion_time", cell(time_of(log.completed_us))),
            ("dictionary_begin", cell(false)),
            ("dictionary_end", cell(false)),
            ("archival_thread_no", cell(1u64)),
            ("activation_no", cell(&log.incarnation_id)),
            ("is_recovery_dest_file", cell(false)),
            ("compressed", cell(false)),
            ("backed_by_vss", cell(false)),
        ]);
    }
}

pub fn log_history(rows: &mut Builder, at: &Observation) {
    let switches = Switches::of(at);
    for (number, log) in list(&at.catalog.archived).iter().enumerate() {
        rows.row([
            ("recid", cell(number + 1)),
            ("stamp", cell(switches.at(log.next_scn).map(|us| us / 1_000_000))),
            ("thread_no", cell(1u64)),
            ("sequence_no", cell(log.sequence)),
            ("first_change_no", cell(log.first_scn)),
            ("first_time", cell(time_of(log.first_time_us))),
            ("next_change_no", cell(log.next_scn)),
            ("resetlogs_change_no", cell(log.branch)),
            ("resetlogs_time", cell(time_of(log.incarnation_time_us))),
        ]);
    }
}

/// Gaps. For a standby that does not answer, the gap that its sender last knew.
pub fn archive_gap(rows: &mut Builder, at: &Observation) {
    add_gap(rows, at.status.standby.as_ref().and_then(|standby| standby.gap.as_ref()));
    for name in silent(at) {
        rows.begin_instance(name);
        add_gap(rows, sender_of(at, name).and_then(|sender| sender.gap.as_ref()));
    }
}

fn add_gap(rows: &mut Builder, gap: Option<&Gap>) {
    if let Some(gap) = gap {
        rows.row([
            ("thread_no", cell(1u64)),
            ("low_sequence_no", cell(gap.low_sequence)),
            ("high_sequence_no", cell(gap.high_sequence)),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use crate::views::example::{self, Shown};
    use standfast_documents::status::Gap;

    #[test]
    fn primary_groups_are_online_logs_and_standby_groups_are_not() {
        let shown = Shown::of("v$log", &example::family());
        let rows = shown.all(&["db_unique_name", "group_no", "status", "sequence_no", "next_time"]);
        assert_eq!(rows[0], ["south", "1", "INACTIVE", "7", "2026-11-21 10:00:00"]);
        assert_eq!(rows[1], ["south", "2", "CURRENT", "8", "-"]);
        assert_eq!(rows[2], ["south", "3", "UNUSED", "-", "-"]);
        assert_eq!(rows.len(), 3);
        let rows = Shown::of("v$standby_log", &example::family()).all(&[
            "db_unique_name",
            "status",
            "sequence_no",
            "used",
            "last_change_no",
        ]);
        assert_eq!(rows, [["north", "ACTIVE", "8", "1000", "9000"], ["north", "UNASSIGNED", "-", "-", "-"]]);
    }

    #[test]
    fn lost_log_members_are_shown_as_invalid() {
        let rows = Shown::of("v$logfile", &example::primary()).all(&["group_no", "status", "type", "member"]);
        assert!(rows.contains(&vec!["1".into(), "-".into(), "ONLINE".into(), "/redo/1a.log".into()]));
        assert!(rows.contains(&vec!["1".into(), "INVALID".into(), "ONLINE".into(), "/redo2/1b.log".into()]));
    }

    #[test]
    fn an_archived_log_ends_when_the_next_one_begins() {
        let shown = Shown::of("v$archived_log", &example::primary()).with("dest_id", "0");
        let columns = ["sequence_no", "first_time", "next_time", "blocks", "block_size", "applied"];
        let expected = [
            ["6", "2026-11-21 09:58:00", "2026-11-21 09:59:00", "512", "4096", "-"],
            ["7", "2026-11-21 09:59:00", "2026-11-21 10:00:00", "256", "4096", "-"],
        ];
        assert_eq!(shown.all(&columns), expected);
    }

    #[test]
    fn last_archived_log_has_no_end_time() {
        let mut at = example::primary();
        at.catalog.logs = None;
        let shown = Shown::of("v$archived_log", &at).with("dest_id", "0");
        let rows = shown.all(&["next_change_no", "next_time"]);
        assert_eq!(rows[1], ["8000", "-"]);
    }

    #[test]
    fn each_destination_has_rows_for_the_logs_it_holds() {
        let mut at = example::primary();
        let north = &mut at.status.destinations.as_mut().unwrap()[0];
        (north.hardened, north.applied) = (Some(8_100), Some(7_500));
        let columns = ["sequence_no", "name", "standby_dest", "applied"];
        let of = |at: &_, dest_id| Shown::of("v$archived_log", at).with("dest_id", dest_id).all(&columns);
        assert_eq!(of(&at, "1"), [["6", "north", "YES", "YES"], ["7", "north", "YES", "IN-MEMORY"]]);
        assert_eq!(of(&at, "2"), [["6", "copies", "NO", "-"]], "the local one has it up to 7000");
        at.status.destinations.as_mut().unwrap()[0].hardened = None;
        assert!(of(&at, "1").is_empty(), "what is there is not known");
    }

    #[test]
    fn applied_column_shows_standby_progress_within_a_log() {
        let mut at = example::standby();
        let applied = |at: &_| Shown::of("v$archived_log", at).all(&["applied"]).concat();
        assert_eq!(applied(&at), ["YES", "YES"]);
        at.status.standby.as_mut().unwrap().applied = Some(7_500);
        assert_eq!(applied(&at), ["YES", "IN-MEMORY"]);
        at.status.standby.as_mut().unwrap().applied = None;
        assert_eq!(applied(&at), ["-", "-"]);
    }

    #[test]
    fn sender_gap_is_shown_for_a_standby_that_does_not_answer() {
        let mut at = example::primary();
        at.status.destinations.as_mut().unwrap()[0].gap =
            Some(Gap { low_sequence: Some(3), high_sequence: Some(5), ..Gap::default() });
        at.standbys = vec![example::silent("north")];
        let columns = ["db_unique_name", "low_sequence_no", "high_sequence_no"];
        assert_eq!(Shown::of("v$archive_gap", &at).all(&columns), [["north", "3", "5"]]);
        at.standbys = vec![example::answering(example::standby())];
        assert_eq!(Shown::of("v$archive_gap", &at).all(&columns).len(), 0, "the standby knows");
    }
}
