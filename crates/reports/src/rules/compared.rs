//! Rules about two intervals: what changed, and whether they can be compared at all.

use super::finding::{ASIDE, Finding, Severity, Unit};
use crate::counters::Counters;
use crate::interval::Interval;
use standfast_instruments::{Event, Statistic};

/// R6, R9: increase of `log file sync` that counts as sharp. Our own choice; figures 33 to 35 have +139 % to +576 %.
const UP_SHARPLY: f64 = 1.5;
/// R6: smallest increase of `log file sync`, microseconds.
const UP_US: f64 = 300.0;
/// R6: the local write is flat up to this increase (figures 33 to 35: +8 % to +24 %). R24 uses the same bound.
const FLAT: f64 = 1.25;
/// R9: throughput counts as unchanged down to this ratio (figures 33 and 35: -4 % and -3 %).
const SAME_RATE: f64 = 0.95;
/// R10: fewer and larger writes (figures 33 to 35: -56 % to -61 % and +92 % to +94 %).
const FEWER: f64 = 0.8;
/// R10: smallest increase of the write size.
const LARGER: f64 = 1.25;
/// R24: commit rates that differ by more are different loads (DGSI: a factor of two).
const SAME_LOAD: f64 = 2.0;

/// Applies the rules that compare the second interval with the first.
pub fn compared(before: &Interval, after: &Interval) -> Vec<Finding> {
    let Some((before, after)) = before.counters.as_ref().zip(after.counters.as_ref()) else {
        return Vec::new();
    };
    let rules = [baseline, remote_path, by_throughput, group_commit];
    rules.iter().filter_map(|rule| rule(before, after)).collect()
}

/// Ratio of the second to the first; `None` when either is unknown or the first is zero.
fn times(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some(after? / before.filter(|before| *before > 0.0)?)
}

fn growth(before: &Counters, after: &Counters, event: Event) -> Option<f64> {
    times(before.mean_us(event), after.mean_us(event))
}

fn commits(counters: &Counters) -> Option<f64> {
    counters.per_second(Statistic::UserCommits)
}

/// R24: the loads or the local writes differ too much for a comparison.
fn baseline(before: &Counters, after: &Counters) -> Option<Finding> {
    let load = times(commits(before), commits(after))?;
    let local = growth(before, after, Event::LogFileParallelWrite);
    let other_load = !(1.0 / SAME_LOAD..=SAME_LOAD).contains(&load);
    let other_disk = local.is_some_and(|local| !(1.0 / FLAT..=FLAT).contains(&local));
    (other_load || other_disk).then(|| {
        Finding::new("R24", Severity::Remark, 1.0, "the two intervals cannot be compared as cause and effect")
            .with("commits, the second to the first", Some(load), Unit::Times)
            .with("log file parallel write, the second to the first", local, Unit::Times)
            .remedy("choose intervals with the same load (commits within a factor of two) and the same local log write")
            .unless("a difference that the change itself explains, as a rate that the new waits hold down")
    })
}

/// R6: commits wait longer but the local write does not, so the remote path is the reason.
fn remote_path(before: &Counters, after: &Counters) -> Option<Finding> {
    let sync = growth(before, after, Event::LogFileSync)?;
    let more = after.mean_us(Event::LogFileSync)? - before.mean_us(Event::LogFileSync)?;
    let local = growth(before, after, Event::LogFileParallelWrite)?;
    (sync >= UP_SHARPLY && more >= UP_US && local <= FLAT).then(|| {
        Finding::new(
            "R6",
            Severity::Remark,
            0.9,
            "commits wait longer and the local write does not: the difference is the remote path",
        )
        .with("log file sync before", before.mean_us(Event::LogFileSync), Unit::Micros)
        .with("log file sync after", after.mean_us(Event::LogFileSync), Unit::Micros)
        .with("log file parallel write, after to before", Some(local), Unit::Times)
        .with("SYNC Remote Write after", after.mean_us(Event::SyncRemoteWrite), Unit::Micros)
        .with("share of the waiting that is remote, after", after.remote_share(), Unit::Share)
        .remedy("RFS random i/o beside SYNC Remote Write says whether it is the standby's disk (R7) or the network (R8)")
        .unless("a scheduling part that has grown as much (R4)")
    })
}

/// R9: synchronous transport is judged by throughput, not by waits.
fn by_throughput(before: &Counters, after: &Counters) -> Option<Finding> {
    let sync = growth(before, after, Event::LogFileSync).filter(|sync| *sync >= UP_SHARPLY)?;
    let load = times(commits(before), commits(after)).filter(|load| *load >= SAME_RATE)?;
    Some(
        Finding::new("R9", Severity::Remark, 2.0 * ASIDE, "commits wait longer, and as many are made")
            .with("log file sync, after to before", Some(sync), Unit::Times)
            .with("commits, after to before", Some(load), Unit::Times)
            .remedy(
                "none by itself: judge by commits for each second and the response time of the application",
            )
            .unless("response times of the application that have grown as well"),
    )
}

/// R10: fewer and larger writes are the effect of longer waits on group commit.
fn group_commit(before: &Counters, after: &Counters) -> Option<Finding> {
    let writes = |of: &Counters| of.per_second(Statistic::RedoWrites);
    let fewer = times(writes(before), writes(after)).filter(|fewer| *fewer <= FEWER)?;
    let larger = times(before.write_bytes(), after.write_bytes()).filter(|larger| *larger >= LARGER)?;
    Some(
        Finding::new(
            "R10",
            Severity::Remark,
            ASIDE,
            "redo writes are fewer and larger: group commit at work",
        )
        .with("redo writes, after to before", Some(fewer), Unit::Times)
        .with("redo of a write, after to before", Some(larger), Unit::Times)
        .remedy("none; measure disks and link again with the new size of a write")
        .unless("a commit rate that has fallen as much as the writes"),
    )
}
