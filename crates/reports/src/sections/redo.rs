//! Commits, the redo log, and I/O by function.

use super::load::rate;
use super::{unknown, with_notes, with_table};
use crate::counters::{Counters, Times};
use crate::interval::Interval;
use crate::section::{Section, Table, left, right};
use crate::units::{UNKNOWN, bytes, count, duration, millis, number, share, whole_bytes};
use standfast_instruments::{CommitPart, Event, Statistic};

/// Parts of commits, with the critical path.
pub fn commits(interval: &Interval) -> Section {
    let title = "Commit and redo";
    let Some(counters) = &interval.counters else { return unknown(title) };
    let all = counters.commit_s().filter(|all| *all > 0.0);
    let row = |part: CommitPart| {
        let times = counters.part(part);
        let of_sync = times.zip(all).filter(|_| part.is_of_log_file_sync());
        vec![
            part.name().to_owned(),
            number(times.map(|times| times.total_s), 1),
            millis(times.and_then(|times| times.mean_us)),
            millis(times.and_then(|times| times.p99_us)),
            share(of_sync.map(|(times, all)| times.total_s / all)),
            critical(part).to_owned(),
        ]
    };
    let columns = vec![
        left("part of a commit"),
        right("time s"),
        right("avg ms"),
        right("p99 ms"),
        right("% of sync"),
        left("path"),
    ];
    let rows = CommitPart::ALL.into_iter().map(row).collect();
    let facts = vec![
        ("average redo write", bytes(counters.write_bytes())),
        ("commits in a write", number(commits_in_a_write(counters), 2)),
        ("critical path", critical_path(counters)),
        ("cost of waiting for standbys", cost(counters)),
    ];
    let note = "The local write and the way to the standby overlap: what ended later was waited for, and the time is its.";
    Section { facts, ..with_table(title, note, Table { columns, rows }) }
}

fn critical(part: CommitPart) -> &'static str {
    match part {
        CommitPart::WriteLockQueue | CommitPart::Transaction => "before",
        CommitPart::LocalWrite => "local",
        CommitPart::Network | CommitPart::RemoteWrite => "remote",
        _ => "both",
    }
}

fn commits_in_a_write(counters: &Counters) -> Option<f64> {
    let (commits, writes) =
        (counters.statistic(Statistic::UserCommits)?, counters.statistic(Statistic::RedoWrites)?);
    (writes > 0).then(|| commits as f64 / writes as f64)
}

/// The share of commits for which the standby answered last, and the shares of the waiting.
fn critical_path(counters: &Counters) -> String {
    let remote = counters.part(CommitPart::Network).zip(counters.part(CommitPart::RemoteWrite));
    let commits =
        remote.map(|(network, write)| (network.above_zero().max(write.above_zero()), network.count));
    let last = commits.filter(|(_, all)| *all > 0).map(|(remote, all)| remote as f64 / all as f64);
    let Some(last) = last else { return UNKNOWN.to_owned() };
    format!(
        "the standby was last for {} % of the commits; {} % of the waiting was for it, {} % for the local write",
        share(Some(last)),
        share(counters.remote_share()),
        share(counters.share_of(CommitPart::LocalWrite))
    )
}

/// R3: bounds of the extra wait for standbys, beyond the local write alone.
fn cost(counters: &Counters) -> String {
    let remote = counters.mean_us(Event::SyncRemoteWrite);
    let Some((local, remote)) = counters.mean_us(Event::LogFileParallelWrite).zip(remote) else {
        return UNKNOWN.to_owned();
    };
    format!(
        "between {} and {} ms a write (max(0, R - L) and R of R3)",
        millis(Some((remote - local).max(0.0))),
        millis(Some(remote))
    )
}

pub fn io(interval: &Interval) -> Section {
    let title = "I/O by function";
    let Some(counters) = &interval.counters else { return unknown(title) };
    let row = |name: &str, times: Option<&Times>, written: Option<u64>| {
        vec![
            name.to_owned(),
            count(times.map(|times| times.count)),
            number(times.map(|times| times.count as f64 / counters.seconds), 2),
            written
                .map_or_else(|| UNKNOWN.to_owned(), |of| format!("{}/s", rate(Some(of), counters.seconds))),
            millis(times.and_then(|times| times.mean_us)),
            millis(times.and_then(|times| times.p99_us)),
            millis(times.and_then(|times| times.max_us)),
        ]
    };
    let of = |event: Event| counters.event(event);
    let log_bytes = counters.statistic(Statistic::RedoBlocksWritten).zip(interval.block_bytes);
    let log_bytes = log_bytes.map(|(blocks, bytes)| blocks * bytes);
    let mut rows = vec![
        row("log writer: log", of(Event::LogFileParallelWrite), log_bytes),
        row("log writer: headers", of(Event::LogFileSingleWrite), None),
        row("checkpoints: pages", of(Event::DbFileParallelWrite), None),
        row("checkpoints: syncs", of(Event::DbFileSync), None),
        row("archivers: writes", of(Event::LogArchiveIo), None),
        row("log reads", of(Event::LogFileSequentialRead), None),
        row("control file", of(Event::ControlFileWrite), None),
        row("RFS: log", of(Event::RfsRandomIo), None),
        row("RFS: archived logs", of(Event::RfsSequentialIo), None),
        row("apply", of(Event::RecoveryApply), counters.statistic(Statistic::RedoApplied)),
    ];
    rows.retain(|row| row[1] != "0");
    for standby in &interval.standbys {
        let own = |event: Event| standby.counters.as_ref().and_then(|counters| counters.event(event));
        rows.push(row(&format!("{}: RFS log", standby.name), own(Event::RfsRandomIo), standby.sent_bytes));
        rows.push(row(&format!("{}: apply", standby.name), own(Event::RecoveryApply), None));
    }
    let columns = vec![
        left("function"),
        right("requests"),
        right("per s"),
        right("data"),
        right("avg ms"),
        right("p99 ms"),
        right("max ms"),
    ];
    let note = "What did not happen here is omitted. The longest is not known when a longer one came before the interval.";
    with_table(title, note, Table { columns, rows })
}

pub fn log_switches(interval: &Interval) -> Section {
    let title = "Log switches";
    let Some(counters) = &interval.counters else { return unknown(title) };
    let switches = counters.statistic(Statistic::LogSwitches);
    let waits = [
        Event::LogBufferSpace,
        Event::SwitchCompletion,
        Event::SwitchCheckpointIncomplete,
        Event::SwitchArchivingNeeded,
    ];
    let row = |event: Event| {
        let times = counters.event(event);
        vec![
            event.name().to_owned(),
            count(times.map(|times| times.count)),
            number(times.map(|times| times.total_s), 2),
            millis(times.and_then(|times| times.mean_us)),
        ]
    };
    let each = switches.filter(|switches| *switches > 0).map(|switches| counters.seconds / switches as f64);
    let facts = vec![
        ("switches", count(switches)),
        ("per hour", number(switches.map(|switches| switches as f64 / counters.seconds * 3600.0), 1)),
        ("one every", each.map_or_else(|| UNKNOWN.to_owned(), duration)),
        ("groups", interval.groups.map_or_else(|| UNKNOWN.to_owned(), |groups| groups.to_string())),
        ("bytes of a group", whole_bytes(interval.group_bytes)),
    ];
    let columns = vec![left("wait of the log writer"), right("waits"), right("time s"), right("avg ms")];
    let table = Table { columns, rows: waits.into_iter().map(row).collect() };
    Section { facts, table: Some(table), ..with_notes(title, Vec::new()) }
}
