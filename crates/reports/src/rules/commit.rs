//! Rules about the path of a commit: what is critical, locally or at the standby.

use super::case::Case;
use super::finding::{ASIDE, Finding, PART_MIN, Severity, Unit};
use crate::replication::StandbyFigures;
use standfast_instruments::{CommitPart, Event};

/// R1: smallest time that the standby spends around its write, microseconds. Our own choice.
const STANDBY_CPU_US: f64 = 500.0;
/// R2: share of the waiting from which the local write is critical. Our own choice.
const LOCAL_SHARE: f64 = 0.5;
/// R2: a log write is slow from here on, microseconds. Our own choice: a flash device takes 0.1 ms, a disk 5 ms.
const LOCAL_SLOW_US: f64 = 4_000.0;
/// R3: tolerated difference between the parts of commits and `log file sync`. Different processes count them, and
/// commits in flight at either end are in only one of them.
const PARTS_OFF: f64 = 0.25;
/// R3: below this sum, seconds, the ends of the interval dominate.
const PARTS_S_MIN: f64 = 1.0;
/// R4: share of the waiting. DGSI says dominant. But a wait for a write or the network also ends with a wake-up and a
/// wait for a processor, which counts in that part.
const SCHEDULING_SHARE: f64 = 0.25;
/// R4: microseconds per commit; two wake-ups between cores take a tenth of it.
const SCHEDULING_US: f64 = 500.0;
/// R5: share of the waiting. Our own choice.
const GATHER_SHARE: f64 = 0.3;
/// R5: microseconds per commit; an ordinary capture takes 5.
const GATHER_US: f64 = 300.0;
/// R7: the standby's write time over the primary's. Figure 34 (slow log) has 4.7, figures 33 and 35 (equal disks) 1.3
/// and 1.4.
const STANDBY_SLOWER: f64 = 2.5;
/// R7: smallest difference of the two write times, microseconds.
const STANDBY_SLOWER_US: f64 = 500.0;
/// R11: a small write, bytes (S0: 1 to 8 KB).
const SMALL_WRITE: f64 = 8192.0;
/// R11: share of the standby's disk in the remote write. Our own choice.
const DISK_SHARE: f64 = 0.6;
/// R11, R13: a shorter remote write, microseconds, is not worth a change.
const REMOTE_US: f64 = 1_000.0;
/// R13: share of the remote write that FASTSYNC would save. Our own choice.
const FASTSYNC_SHARE: f64 = 0.5;
/// R18: p99 over the median. Buckets are powers of two, so a smaller ratio shows nothing.
const OUTLIERS: f64 = 8.0;
/// R18: smallest p99 that is a finding, microseconds.
const OUTLIERS_US: f64 = 5_000.0;
/// R21: share of DB time spent waiting for durability. Our own choice.
const SYNC_SHARE: f64 = 0.9;
/// R21: smallest mean wait of a commit, microseconds.
const SYNC_US: f64 = 20_000.0;

pub(super) fn all(case: &Case<'_>) -> Vec<Finding> {
    let of_case = [local_write(case), contradiction(case), scheduling(case), gather(case), relaxed(case)];
    let rules = [standby_cpu, standby_disk, small_writes, fastsync, shared_disk];
    let of_standbys =
        case.sync_standbys().flat_map(|standby| rules.iter().filter_map(|rule| rule(case, standby)));
    of_case.into_iter().flatten().chain(of_standbys).collect()
}

/// Share of the standby's write in the waiting; `None` below [`PART_MIN`].
fn remote_write_share(case: &Case<'_>) -> Option<f64> {
    case.counters.share_of(CommitPart::RemoteWrite).filter(|share| *share >= PART_MIN)
}

fn at_standby(standby: &StandbyFigures, event: Event) -> Option<f64> {
    standby.counters.as_ref()?.mean_us(event)
}

/// R1: the standby spends more time around its write than in it.
fn standby_cpu(case: &Case<'_>, standby: &StandbyFigures) -> Option<Finding> {
    let share = remote_write_share(case)?;
    let (all, disk) = (at_standby(standby, Event::RfsWrite)?, at_standby(standby, Event::RfsRandomIo)?);
    let cpu = all - disk;
    (cpu >= STANDBY_CPU_US && cpu >= disk).then(|| {
        Finding::new(
            "R1",
            Severity::Warning,
            share * cpu / all,
            format!("standby {} computes longer than it writes before it answers", standby.name),
        )
        .with("RFS write, mean", Some(all), Unit::Micros)
        .with("RFS random i/o, mean", Some(disk), Unit::Micros)
        .with("share of the commits' waiting that is remote write", Some(share), Unit::Share)
        .remedy("give the standby's receiver a processor: look for others on that machine, and whether apply or queries there take all of it")
        .unless("`top -H` at the standby shows processors idle while rfs-N runs")
    })
}

/// R2: the local write is critical and slow.
fn local_write(case: &Case<'_>) -> Option<Finding> {
    let counters = case.counters;
    let share = counters.share_of(CommitPart::LocalWrite).filter(|share| *share >= LOCAL_SHARE)?;
    let local = counters.mean_us(Event::LogFileParallelWrite)?;
    let standby =
        case.interval.standbys.iter().filter_map(|at| at_standby(at, Event::RfsRandomIo)).reduce(f64::min);
    let slower = standby
        .is_some_and(|standby| local >= STANDBY_SLOWER * standby && local - standby >= STANDBY_SLOWER_US);
    (local >= LOCAL_SLOW_US || slower).then(|| {
        Finding::new("R2", Severity::Warning, share, "commits wait for the local log write, and it is slow")
            .with("share of the commits' waiting that is the local write", Some(share), Unit::Share)
            .with("log file parallel write, mean", Some(local), Unit::Micros)
            .with("log file parallel write, p99", counters.event(Event::LogFileParallelWrite).and_then(|times| times.p99_us), Unit::Micros)
            .with("RFS random i/o at the fastest standby, mean", standby, Unit::Micros)
            .remedy("put the online redo log on a faster device, away from what else writes; a group is written as fast as its slowest member")
            .unless("`standfast net disk` on the log's directory shows durable writes much faster than that, at the same load")
    })
}

/// R3: the parts must add up to the whole, or the split cannot be trusted.
fn contradiction(case: &Case<'_>) -> Option<Finding> {
    let (parts, sync) = (case.counters.commit_s()?, case.counters.total_s(Event::LogFileSync)?);
    let off = (parts - sync).abs() / sync.max(parts);
    (sync.max(parts) >= PARTS_S_MIN && parts > 0.0 && off >= PARTS_OFF).then(|| {
        Finding::new(
            "R3",
            Severity::Notice,
            ASIDE / 2.0,
            "the parts of commits do not add up to log file sync",
        )
        .with("all parts", Some(parts), Unit::Seconds)
        .with("log file sync", Some(sync), Unit::Seconds)
        .with("difference", Some(off), Unit::Share)
        .remedy(
            "take a longer interval; if it stays, rely on log file sync and the wait events, not the parts",
        )
        .unless("an interval in which both agree")
    })
}

fn scheduling(case: &Case<'_>) -> Option<Finding> {
    let parts = [CommitPart::Scheduling, CommitPart::Wake, CommitPart::Post];
    let mean: f64 = parts.iter().map(|part| case.counters.part(*part)?.mean_us).sum::<Option<f64>>()?;
    let share: f64 = parts.iter().map(|part| case.counters.share_of(*part)).sum::<Option<f64>>()?;
    (share >= SCHEDULING_SHARE && mean >= SCHEDULING_US).then(|| {
        let part = |part: CommitPart| case.counters.part(part).and_then(|times| times.mean_us);
        Finding::new("R4", Severity::Warning, share, "commits wait for processors, not for disks or the network")
            .with("waking up, share of the commits' waiting", Some(share), Unit::Share)
            .with("scheduling: until the session runs again, mean", part(CommitPart::Scheduling), Unit::Micros)
            .with("wake: until the log writer runs, mean", part(CommitPart::Wake), Unit::Micros)
            .with("log file parallel write, mean", case.counters.mean_us(Event::LogFileParallelWrite), Unit::Micros)
            .remedy("find out what takes the processors (top, vmstat: run queue); give the instance and the application more of them, or fewer sessions")
            .unless("processors that are idle in the same interval")
    })
}

/// R5: capture takes long (`redo write time` without the write).
fn gather(case: &Case<'_>) -> Option<Finding> {
    let share = case.counters.share_of(CommitPart::Gather)?;
    let mean = case.counters.part(CommitPart::Gather)?.mean_us?;
    (share >= GATHER_SHARE && mean >= GATHER_US).then(|| {
        Finding::new("R5", Severity::Warning, share, "commits wait for the capture of redo")
            .with("gather, mean", Some(mean), Unit::Micros)
            .with("share of the commits' waiting", Some(share), Unit::Share)
            .with("redo of a write, mean", case.counters.write_bytes(), Unit::Bytes)
            .remedy("split large transactions, which everybody behind them waits for; see that the write-ahead logs stay in memory (free memory, checkpoint.reset_frames)")
            .unless("an interval with small transactions only in which gather takes as long")
    })
}

/// R7: the standby's redo log is on a slower device than the primary's.
fn standby_disk(case: &Case<'_>, standby: &StandbyFigures) -> Option<Finding> {
    let share = remote_write_share(case)?;
    let disk = at_standby(standby, Event::RfsRandomIo)?;
    let local = case.counters.mean_us(Event::LogFileParallelWrite)?;
    if disk < STANDBY_SLOWER * local || disk - local < STANDBY_SLOWER_US {
        return None;
    }
    let members = standby.log_members.filter(|members| *members > 1);
    let why = match members {
        Some(members) => {
            format!("its log has {members} members, and a write ends with the slowest: drop the slow one")
        }
        None => "it has one member: move it".to_owned(),
    };
    let remote = case.counters.mean_us(Event::SyncRemoteWrite);
    Some(
        Finding::new(
            "R7",
            Severity::Warning,
            share,
            format!("the log of standby {} is much slower than that of the primary", standby.name),
        )
        .with("RFS random i/o there, mean", Some(disk), Unit::Micros)
        .with("log file parallel write here, mean", Some(local), Unit::Micros)
        .with("as slow", Some(disk / local), Unit::Times)
        .with("SYNC Remote Write, mean", remote, Unit::Micros)
        .with("network (SYNC Remote Write - RFS random i/o)", remote.map(|remote| (remote - disk).max(0.0)), Unit::Micros)
        .with("members of its log", standby.log_members.map(|members| members as f64), Unit::Count)
        .with("share of the commits' waiting that is remote write", Some(share), Unit::Share)
        .remedy(format!("put the standby redo log on a device as fast as the primary's, alone on it; {why}; FASTSYNC leaves the disk out of the wait, at the price that both machines at once can lose commits"))
        .unless("`standfast net disk` there as fast as here"),
    )
}

/// R11: larger socket buffers do not help small writes.
fn small_writes(case: &Case<'_>, standby: &StandbyFigures) -> Option<Finding> {
    let share = remote_write_share(case)?;
    let size = case.counters.write_bytes().filter(|size| *size <= SMALL_WRITE)?;
    let disk = at_standby(standby, Event::RfsRandomIo)?;
    let remote = case.counters.mean_us(Event::SyncRemoteWrite).filter(|remote| *remote >= REMOTE_US)?;
    (disk >= DISK_SHARE * remote).then(|| {
        Finding::new(
            "R11",
            Severity::Notice,
            share,
            format!(
                "redo writes are small: what standby {} takes is its disk, not the network",
                standby.name
            ),
        )
        .with("redo of a write, mean", Some(size), Unit::Bytes)
        .with("SYNC Remote Write, mean", Some(remote), Unit::Micros)
        .with("RFS random i/o there, mean", Some(disk), Unit::Micros)
        .remedy("better the disk of the standby's log first; socket buffers hardly help writes of this size")
        .unless("a shorter SYNC Remote Write with larger buffers and the same RFS random i/o")
    })
}

/// R13: FASTSYNC would take the standby's disk out of the wait.
fn fastsync(case: &Case<'_>, standby: &StandbyFigures) -> Option<Finding> {
    let share = remote_write_share(case).filter(|_| standby.mode.as_deref() == Some("sync-affirm"))?;
    let disk = at_standby(standby, Event::RfsRandomIo)?;
    let remote = case.counters.mean_us(Event::SyncRemoteWrite).filter(|remote| *remote >= REMOTE_US)?;
    (disk >= FASTSYNC_SHARE * remote).then(|| {
        Finding::new(
            "R13",
            Severity::Notice,
            share * disk / remote,
            format!("most of what commits wait for standby {} is its disk: FASTSYNC would leave it out", standby.name),
        )
        .with("SYNC Remote Write, mean", Some(remote), Unit::Micros)
        .with("RFS random i/o there, mean", Some(disk), Unit::Micros)
        .with("of it", Some(disk / remote), Unit::Share)
        .remedy("measure the gain with `standfast net client --length` of a redo write, with and without --write; then, if losing commits only when both machines fail at once is acceptable: --mode fastsync")
        .unless("the same latency with and without --write")
    })
}

/// R18: the standby's disk has outliers that the primary's has not, so other processes use it.
fn shared_disk(case: &Case<'_>, standby: &StandbyFigures) -> Option<Finding> {
    let share = remote_write_share(case)?;
    let times = standby.counters.as_ref()?.event(Event::RfsRandomIo)?;
    let (p50, p99) = (times.p50_us?, times.p99_us?);
    let local = case.counters.event(Event::LogFileParallelWrite)?.p99_us?;
    (p99 >= OUTLIERS * p50 && p99 >= OUTLIERS_US && local < p99 / 2.0).then(|| {
        Finding::new(
            "R18",
            Severity::Warning,
            share,
            format!("the disk of standby {} is at times much slower: others use it", standby.name),
        )
        .with("RFS random i/o there, p50", Some(p50), Unit::Micros)
        .with("RFS random i/o there, p99", Some(p99), Unit::Micros)
        .with("log file parallel write here, p99", Some(local), Unit::Micros)
        .remedy("look with iostat at the standby for what else writes there (other services, backups, the standby's own databases and archive) and give the log a device of its own")
        .unless("iostat that shows only the instance on that device")
    })
}

/// R21: waiting for durability dominates; an application that may lose its newest commits need not wait.
fn relaxed(case: &Case<'_>) -> Option<Finding> {
    let sync = case.counters.event(Event::LogFileSync)?;
    let mean = sync.mean_us.filter(|mean| *mean >= SYNC_US)?;
    let share = sync.total_s / case.counters.db_time_s().filter(|all| *all > 0.0)?;
    (share >= SYNC_SHARE).then(|| {
        Finding::new("R21", Severity::Notice, ASIDE, "nearly all time of transactions is waiting for durability")
            .with("log file sync, mean", Some(mean), Unit::Micros)
            .with("share of DB time", Some(share), Unit::Share)
            .remedy("where an application can lose its newest commits, and only there: PRAGMA standfast_commit_write = 'nowait'")
            .unless("an application that must know that its commits are durable")
    })
}
