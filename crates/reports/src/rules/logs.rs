//! Rules about the redo log of the primary.

use super::case::Case;
use super::finding::{Finding, STANDS_STILL, Severity, Unit};
use crate::interval::Interval;
use crate::units::duration;
use standfast_instruments::{Event, Observation, Statistic};

/// R16: switches at shorter intervals are too frequent, seconds (S1, S4: no more often than every 5 min at peak).
const SWITCH_S: f64 = 300.0;
/// R16: the interval of fewer switches shows nothing.
const SWITCHES: u64 = 3;
/// R16: share of the time that the log writer waits for switches. Our own choice.
const SWITCH_WAITS: f64 = 0.01;
/// R16: a shorter cycle through all groups, seconds, leaves no time for checkpoint and archive. Our own choice.
const CYCLE_S: f64 = 30.0;
/// R17: share of the time that the log writer waits for one event. Our own choice.
const WAITS: f64 = 0.02;

pub(super) fn all(case: &Case<'_>) -> Vec<Finding> {
    let waits = WAITED_FOR.iter().filter_map(|wait| waits_for(case, wait));
    switches(case).into_iter().chain(waits).collect()
}

/// A wait event of the log writer with its remedy.
struct WaitedFor {
    event: Event,
    title: &'static str,
    remedy: &'static str,
    unless: &'static str,
}

const WAITED_FOR: [WaitedFor; 4] = [
    WaitedFor {
        event: Event::LogBufferSpace,
        title: "redo comes faster than it is written: the log writer has more than a batch takes",
        remedy: "a faster device for the log, members on devices of their own; split transactions of many pages",
        unless: "log file parallel write that leaves the device idle most of the time",
    },
    WaitedFor {
        event: Event::SwitchCompletion,
        title: "log switches take long",
        remedy: "larger logs (`standfast log group resize`), fewer members, a faster device",
        unless: "switches that are rare and short in `Log switches`",
    },
    WaitedFor {
        event: Event::SwitchCheckpointIncomplete,
        title: "the next log is still needed for recovery when it is wanted",
        remedy: "more or larger logs (`standfast log group add`, `resize`), faster disks for the databases",
        unless: "db file sync that takes next to nothing",
    },
    WaitedFor {
        event: Event::SwitchArchivingNeeded,
        title: "the next log is not archived when it is wanted",
        remedy: "make room in the archive directory, or give it a faster device; see the alert log; a mandatory destination that is away holds logs, too",
        unless: "an archive with room and archived logs that follow the current one closely",
    },
];

/// R17: the log writer is blocked now; needs no counts.
pub(super) fn stands_still(interval: &Interval, newest: &Observation) -> Option<Finding> {
    let waiting = newest.status.waiting_for.as_deref()?;
    let wait = WAITED_FOR.iter().find(|wait| wait.event.name() == waiting)?;
    let held_up = newest.status.waiting_commits.map(|commits| commits as f64);
    // A wait that the sample happens to meet is no blockage: commits must be held up, and for at least a second.
    let thread = newest.sample.threads.iter().find(|thread| thread.event.as_deref() == Some(waiting));
    let waited_us = thread.and_then(|thread| thread.waited_us);
    let since_begin = interval.waiting_for.as_deref() == Some(waiting) && waited_us.is_none();
    let long = since_begin || waited_us.is_some_and(|us| us >= 1_000_000);
    (long && held_up.is_some_and(|commits| commits > 0.0)).then(|| {
        Finding::new(
            "R17 now",
            Severity::Critical,
            STANDS_STILL,
            format!("commits stand still: {}", wait.title),
        )
        .saying(format!("the log writer waits for `{waiting}`"))
        .with("for", waited_us.map(|us| us as f64 / 1e6), Unit::Seconds)
        .with("commits that wait", held_up, Unit::Count)
        .remedy(wait.remedy)
        .unless("commits that return meanwhile")
    })
}

/// R17: waits of the log writer in the interval.
fn waits_for(case: &Case<'_>, wait: &WaitedFor) -> Option<Finding> {
    let times = case.counters.event(wait.event)?;
    let share = times.total_s / case.counters.seconds;
    (share >= WAITS).then(|| {
        Finding::new("R17", Severity::Warning, share.min(1.0), wait.title)
            .with(format!("{}, share of the time", wait.event.name()), Some(share), Unit::Share)
            .with("waits", Some(times.count as f64), Unit::Count)
            .with("mean", times.mean_us, Unit::Micros)
            .remedy(wait.remedy)
            .unless(wait.unless)
    })
}

/// R16: the groups are too small.
fn switches(case: &Case<'_>) -> Option<Finding> {
    let counters = case.counters;
    let switches = counters.statistic(Statistic::LogSwitches).filter(|switches| *switches >= SWITCHES)?;
    let each = counters.seconds / switches as f64;
    let target = case.interval.parameter("redo.archive_lag_target_s").filter(|target| *target > 0.0);
    // Not too frequent, or forced by the archive lag target.
    if each >= SWITCH_S || target.is_some_and(|target| each >= 0.9 * target) {
        return None;
    }
    let waited =
        counters.total_s(Event::SwitchCompletion)? + counters.total_s(Event::SwitchCheckpointIncomplete)?;
    let share = waited / counters.seconds;
    let cycle = case.interval.groups.map(|groups| each * groups as f64);
    let is_short = cycle.is_some_and(|cycle| cycle < CYCLE_S);
    (share >= SWITCH_WAITS || is_short).then(|| {
        let severity = if share >= SWITCH_WAITS { Severity::Warning } else { Severity::Notice };
        let rate = counters.per_second(Statistic::RedoSize);
        // Larger groups also shorten the waits of R17, so R16 sorts before it.
        Finding::new(
            "R16",
            severity,
            (share + 0.05).min(1.0),
            "log switches are too close: the logs are too small",
        )
        .with("a switch every", Some(each), Unit::Seconds)
        .with("share of the time that the log writer waited for switches", Some(share), Unit::Share)
        .with("a cycle through all groups takes", cycle, Unit::Seconds)
        .with("bytes of a group", case.interval.group_bytes.map(|bytes| bytes as f64), Unit::Bytes)
        .with("bytes of a group for a switch every 5 min", rate.map(|rate| rate * SWITCH_S), Unit::Bytes)
        .remedy("make the logs so large (`standfast log group resize`), those of the standbys first")
        .unless(format!("a peak that lasted no longer than the interval ({})", duration(counters.seconds)))
    })
}
