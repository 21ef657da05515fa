//! The table of figures: measurement, bar and aim. Speeds are ratios of medians within one run.

use super::Better::{Higher, Lower};
use super::Group::{
    Apply, Commit, Idle, Instruments, Kill, Log, Net, Power, Promise, Roles, Transport, Trust,
};
use super::instruments::InstrumentsResult;
use super::net::{LEAST_LINKS, NetResult};
use super::roles::RolesResult;
use super::transport::TransportResult;
use super::{Better, Figure, Group, Measured};
use crate::run::RunResult;
use crate::suite::Missing;
use crate::systems::SystemKind::{
    self, Local, Postgres, StockFull, SyncAffirm, SyncAffirm10ms, SyncAffirmBareFlood, SyncAffirmFlood,
    SyncAffirmHttpFlood,
};
use crate::systems::{Case, DELAY_US};
use crate::workload::Layout::{DatabasePerClient, OneDatabase};

type Value = Result<f64, Missing>;

/// One database, 40 clients: the case of most figures.
pub(super) const FORTY: Case = Case { clients: 40, layout: OneDatabase };
pub(super) const EIGHT: Case = Case { clients: 8, layout: OneDatabase };
pub(super) const ONE: Case = Case { clients: 1, layout: OneDatabase };
pub(super) const FORTY_EACH: Case = Case { clients: 40, layout: DatabasePerClient };
pub(super) const EIGHT_EACH: Case = Case { clients: 8, layout: DatabasePerClient };

/// Databases over which the backlog of apply is spread.
pub(super) const APPLY_DATABASES: usize = 40;
/// Fewest cycles of the kill campaign for its bar to count.
pub(super) const KILL_CYCLES: u64 = 200;
/// Fewest seeds of the power campaign for its bar to count.
pub(super) const POWER_SEEDS: u64 = 2000;
/// Fewest programs of the differential campaign, over all SQLites, for its bar to count.
const PROMISE_PROGRAMS: u64 = 2000;
/// Programs per SQLite; `scripts/sqlites.sh` makes ten.
pub(super) const PROGRAMS_EACH: u64 = PROMISE_PROGRAMS / 10;

/// Limit for every commit of the long run.
const WORST_BAR_MS: f64 = 50.0;

const fn figure(
    group: Group,
    name: &'static str,
    unit: &'static str,
    digits: usize,
    limits: (Option<f64>, Option<f64>),
    better: Better,
    compute: fn(&Measured) -> Value,
) -> Figure {
    Figure { group, name, unit, digits, bar: limits.0, aim: limits.1, better, compute }
}

const fn limits(bar: f64, aim: f64) -> (Option<f64>, Option<f64>) {
    (Some(bar), Some(aim))
}

/// Unit of a latency compared with that of a tool that only measures latency. A signed difference, not a distance: a
/// program that is faster than its peer reports no wrong latency, and is no worse when its peer has a bad minute.
const SLOWER: &str = "% slower (< 0 faster)";

/// Unit of the longest time in which no client can write.
const BEYOND_THRESHOLD: &str = "s without writes, beyond the threshold";
const UNAVAILABLE: &str = "s without writes";

/// Unit for applications that run as separate users in separate namespaces.
const CONTAINERS: &str = "x the same namespaces, SYNC AFFIRM";

pub const FIGURES: &[Figure] = &[
    figure(Commit, "affirm_40_one_db", "x FULL", 2, limits(3.0, 4.5), Higher, |m| speed(m, FORTY)),
    figure(Commit, "affirm_8_one_db", "x FULL", 2, limits(1.8, 2.3), Higher, |m| speed(m, EIGHT)),
    figure(Commit, "affirm_40_db_each", "x FULL", 2, limits(1.0, 1.5), Higher, |m| speed(m, FORTY_EACH)),
    figure(Commit, "affirm_8_db_each", "x FULL", 2, limits(0.6, 1.0), Higher, |m| speed(m, EIGHT_EACH)),
    figure(Commit, "affirm_40_postgres", "x PostgreSQL", 2, limits(1.6, 2.2), Higher, |m| {
        Ok(rate(m, SyncAffirm, FORTY)? / rate(m, Postgres, FORTY)?)
    }),
    figure(Commit, "affirm_1_latency", "x (ping-pong + two writes)", 2, limits(1.6, 1.25), Lower, |m| {
        let raw = m.raw.as_ref().map_err(Clone::clone)?;
        let median_us = m.commit_series(SyncAffirm, ONE)?.of(|run| run.latency.p50_us)?.median;
        Ok(median_us / (raw.ping_pong_us + raw.two_writes_us))
    }),
    figure(Commit, "local_1", "x FULL", 2, limits(0.9, 1.1), Higher, |m| {
        Ok(rate(m, Local, ONE)? / rate(m, StockFull, ONE)?)
    }),
    figure(Commit, "rtt10_40", "% of 40/10 ms", 1, limits(90.0, 98.0), Higher, |m| {
        let bound = FORTY.clients as f64 * 1e6 / DELAY_US as f64;
        Ok(rate(m, SyncAffirm10ms, FORTY)? / bound * 100.0)
    }),
    figure(Commit, "rtt10_40_p99", "ms", 2, (None, Some(11.5)), Lower, |m| {
        Ok(m.commit_series(SyncAffirm10ms, FORTY)?.of(|run| run.latency.p99_us / 1e3)?.median)
    }),
    figure(Commit, "long_40_p99", "ms", 2, limits(8.0, 4.0), Lower, |m| {
        long(m, |run| run.latency.p99_us / 1e3)
    }),
    figure(Commit, "long_40_worst", "ms", 1, limits(WORST_BAR_MS, 15.0), Lower, worst),
    figure(Commit, "long_40_fairness", "fewest/most", 2, limits(0.8, 0.9), Higher, |m| {
        long(m, RunResult::fairness)
    }),
    figure(Commit, "redo_per_commit", "B", 0, limits(200.0, 110.0), Lower, |m| {
        Ok(m.commit_series(SyncAffirm, FORTY)?
            .of(|run| run.redo_bytes_per_commit.unwrap_or(f64::NAN))?
            .median)
    }),
    figure(Commit, "cpu_per_commit", "us", 1, limits(65.0, 45.0), Lower, |m| {
        Ok(m.commit_series(SyncAffirm, FORTY)?.of(RunResult::cpu_us_per_commit)?.median)
    }),
    figure(Apply, "one_db", "tx/s", 0, limits(100_000.0, 300_000.0), Higher, |m| {
        m.apply_one.as_ref().map(|result| result.rate.median).map_err(Clone::clone)
    }),
    figure(Apply, "forty_dbs", "tx/s", 0, limits(60_000.0, 150_000.0), Higher, |m| {
        m.apply_spread.as_ref().map(|result| result.rate.median).map_err(Clone::clone)
    }),
    figure(Log, "writer", "% of one-thread 1 MB writes", 1, limits(80.0, 95.0), Higher, |m| {
        m.log.as_ref().map(|result| result.ratio() * 100.0).map_err(Clone::clone)
    }),
    figure(Log, "writer_rate", "GB/s", 2, (Some(1.1), None), Higher, |m| {
        m.log.as_ref().map(|result| result.rate.median / 1e9).map_err(Clone::clone)
    }),
    figure(Kill, "lost", "acknowledged commits", 0, limits(0.0, 0.0), Lower, |m| {
        m.kill.as_ref().map(|report| report.lost as f64).map_err(Clone::clone)
    }),
    figure(Kill, "damaged", "databases or pages", 0, limits(0.0, 0.0), Lower, |m| {
        m.kill.as_ref().map(|report| report.damaged() as f64).map_err(Clone::clone)
    }),
    figure(Kill, "cycles", "cycles", 0, limits(KILL_CYCLES as f64, 1000.0), Higher, |m| {
        m.kill.as_ref().map_err(Clone::clone)?.enough(KILL_CYCLES)
    }),
    figure(Power, "lost", "acknowledged commits", 0, limits(0.0, 0.0), Lower, |m| {
        m.power.as_ref().map(|report| report.lost as f64).map_err(Clone::clone)
    }),
    figure(Power, "damaged", "databases or pages", 0, limits(0.0, 0.0), Lower, |m| {
        m.power.as_ref().map(|report| report.damaged() as f64).map_err(Clone::clone)
    }),
    figure(Power, "seeds", "seeds", 0, limits(POWER_SEEDS as f64, 10_000.0), Higher, |m| {
        m.power.as_ref().map_err(Clone::clone)?.enough(POWER_SEEDS)
    }),
    figure(Promise, "differing", "programs", 0, limits(0.0, 0.0), Lower, |m| {
        m.promise.as_ref().map(|report| report.differing as f64).map_err(Clone::clone)
    }),
    figure(Promise, "damaged", "databases or pages", 0, limits(0.0, 0.0), Lower, |m| {
        m.promise.as_ref().map(|report| (report.lost + report.damaged()) as f64).map_err(Clone::clone)
    }),
    figure(Promise, "programs", "programs", 0, limits(PROMISE_PROGRAMS as f64, 20_000.0), Higher, |m| {
        m.promise.as_ref().map_err(Clone::clone)?.enough(PROMISE_PROGRAMS)
    }),
    figure(
        Promise,
        "isolation_rate",
        "x before the fault, of all others, at worst",
        3,
        limits(0.9, 0.97),
        Higher,
        |m| m.isolation.as_ref().map_err(Clone::clone)?.worst_ratio(),
    ),
    figure(
        Promise,
        "isolation_spread",
        "changes, failed commits, differences",
        0,
        (Some(0.0), None),
        Lower,
        |m| m.isolation.as_ref().map_err(Clone::clone)?.spread(),
    ),
    figure(Idle, "cpu", "%", 3, limits(0.5, 0.1), Lower, |m| {
        m.idle.as_ref().map(|result| result.cpu_percent).map_err(Clone::clone)
    }),
    figure(Idle, "resident", "MB", 1, limits(40.0, 20.0), Lower, |m| {
        m.idle.as_ref().map(|result| result.resident_bytes as f64 / 1e6).map_err(Clone::clone)
    }),
    figure(Net, "async_1_iperf3", "x iperf3", 2, limits(0.95, 1.1), Higher, |m| {
        net(m, |n| n.throughput_ratio(1))
    }),
    figure(Net, "async_2_iperf3", "x iperf3", 2, limits(0.95, 1.1), Higher, |m| {
        net(m, |n| n.throughput_ratio(2))
    }),
    figure(Net, "sync_1k_sockperf", SLOWER, 1, limits(10.0, 3.0), Lower, |m| net(m, |n| n.latency_slower(0))),
    figure(Net, "sync_1k_qperf", SLOWER, 1, limits(10.0, 3.0), Lower, |m| {
        net(m, |n| n.mean_latency_slower(0))
    }),
    figure(Net, "sync_8k_sockperf", SLOWER, 1, limits(10.0, 3.0), Lower, |m| net(m, |n| n.latency_slower(1))),
    figure(Net, "sync_8k_qperf", SLOWER, 1, limits(10.0, 3.0), Lower, |m| {
        net(m, |n| n.mean_latency_slower(1))
    }),
    figure(Net, "disk_part", "% apart", 1, limits(10.0, 5.0), Lower, |m| net(m, NetResult::disk_apart)),
    figure(Net, "wan_round_trip", "% apart at worst", 1, limits(5.0, 2.0), Lower, |m| {
        net(m, NetResult::worst_round_trip)
    }),
    figure(Net, "wan_rate", "% apart at worst", 1, limits(5.0, 2.0), Lower, |m| {
        net(m, NetResult::worst_rate)
    }),
    figure(Net, "buffer_effect", "x", 0, (Some(50.0), None), Higher, |m| net(m, NetResult::buffer_effect)),
    figure(Net, "advise", "links judged right", 0, (Some(LEAST_LINKS as f64), None), Higher, |m| {
        net(m, NetResult::links_judged_right)
    }),
    figure(Net, "emulator_25ms", "% apart", 2, (Some(2.0), None), Lower, |m| {
        net(m, NetResult::emulator_apart)
    }),
    figure(Net, "emulator_0ms", "Gbit/s", 1, (Some(8.0), None), Higher, |m| {
        net(m, NetResult::emulator_gigabits)
    }),
    figure(Transport, "async_25ms_iperf3", "x iperf3", 2, limits(0.9, 0.97), Higher, |m| {
        transport(m, |t| t.goodput_ratio(0))
    }),
    figure(Transport, "async_100ms_iperf3", "x iperf3", 2, limits(0.9, 0.97), Higher, |m| {
        transport(m, |t| t.goodput_ratio(1))
    }),
    figure(Transport, "async_100ms_impact", "% fewer commits", 1, limits(5.0, 2.0), Lower, |m| {
        transport(m, TransportResult::async_impact)
    }),
    figure(Transport, "sync_10ms_impact", "% fewer commits", 1, limits(5.0, 2.0), Lower, |m| {
        transport(m, TransportResult::sync_impact)
    }),
    figure(Transport, "exposure_2mb_50ms", "s", 3, limits(3.0, 0.2), Lower, |m| {
        transport(m, |t| t.exposure(0))
    }),
    figure(Transport, "exposure_20mb_100ms", "s", 3, limits(5.0, 0.5), Lower, |m| {
        transport(m, |t| t.exposure(1))
    }),
    figure(Transport, "fastsync_slow_disk", "x fast disk", 2, (Some(1.1), None), Lower, |m| {
        transport(m, TransportResult::fastsync_on_slow_disk)
    }),
    figure(Transport, "ship_5_connections", "% less time than 1", 1, (Some(55.0), None), Higher, |m| {
        transport(m, TransportResult::less_time_with_connections)
    }),
    figure(Transport, "gap_2gb_commit_p99", "x without a gap", 2, limits(2.0, 1.1), Lower, |m| {
        transport(m, TransportResult::gap_growth)
    }),
    figure(Transport, "tls_throughput", "x plain", 2, limits(0.7, 0.9), Higher, |m| {
        transport(m, TransportResult::tls_throughput)
    }),
    figure(Transport, "tls_sync_latency", "us more than plain", 1, limits(20.0, 10.0), Lower, |m| {
        transport(m, TransportResult::tls_added)
    }),
    figure(Transport, "lz4_wire", "x bytes without", 2, (Some(0.5), None), Lower, |m| {
        transport(m, TransportResult::lz4_share)
    }),
    figure(Transport, "lz4_cpu", "us more a commit at the primary", 1, (None, None), Lower, |m| {
        transport(m, TransportResult::lz4_cpu)
    }),
    figure(
        Instruments,
        "parts_sum",
        "% apart from the stopwatch at worst",
        2,
        (Some(2.0), None),
        Lower,
        |m| instruments(m, InstrumentsResult::worst_sum),
    ),
    figure(
        Instruments,
        "delays",
        "% of a delay in another part at worst",
        1,
        (Some(5.0), None),
        Lower,
        |m| instruments(m, InstrumentsResult::worst_stray),
    ),
    figure(Instruments, "lags", "looks that were wrong", 0, (Some(0.0), None), Lower, |m| {
        instruments(m, InstrumentsResult::wrong_lags)
    }),
    figure(
        Instruments,
        "estimates",
        "% off of a real failover's loss and duration at worst",
        0,
        (Some(20.0), None),
        Lower,
        |m| instruments(m, InstrumentsResult::worst_estimate),
    ),
    figure(
        Instruments,
        "diagnosis",
        "faults not named first, or healthy pairs not silent",
        0,
        (Some(0.0), None),
        Lower,
        |m| instruments(m, InstrumentsResult::wrong_findings),
    ),
    figure(
        Instruments,
        "comparisons",
        "of three without the documented shape",
        0,
        (Some(0.0), None),
        Lower,
        |m| instruments(m, InstrumentsResult::wrong_tables),
    ),
    figure(
        Instruments,
        "page",
        "s until the dashboard shows data, 1,000 databases, 500 sessions",
        2,
        (Some(1.0), None),
        Lower,
        |m| instruments(m, InstrumentsResult::page),
    ),
    figure(Instruments, "cost", "% fewer commits", 2, (Some(1.0), None), Lower, |m| {
        instruments(m, InstrumentsResult::cost)
    }),
    figure(Trust, "tls_1", "x plain TCP, SYNC AFFIRM on loopback", 3, limits(0.9, 0.97), Higher, |m| {
        tls(m, ONE)
    }),
    figure(Trust, "tls_8", "x plain TCP, SYNC AFFIRM on loopback", 3, limits(0.9, 0.97), Higher, |m| {
        tls(m, EIGHT)
    }),
    figure(Trust, "tls_40", "x plain TCP, SYNC AFFIRM on loopback", 3, limits(0.9, 0.97), Higher, |m| {
        tls(m, FORTY)
    }),
    figure(
        Trust,
        "flood_elsewhere",
        "x p99 without 5,000 connections/s to another program",
        2,
        (None, None),
        Lower,
        |m| flood(m, SyncAffirmBareFlood),
    ),
    figure(Trust, "flood", "x p99 without 5,000 hostile connections/s", 2, (Some(2.0), None), Lower, |m| {
        flood(m, SyncAffirmFlood)
    }),
    figure(
        Trust,
        "flood_http",
        "x p99 without 5,000 hostile connections/s",
        2,
        (Some(2.0), None),
        Lower,
        |m| flood(m, SyncAffirmHttpFlood),
    ),
    figure(Trust, "containers_1", CONTAINERS, 3, limits(0.95, 0.99), Higher, |m| containers(m, ONE)),
    figure(Trust, "containers_8", CONTAINERS, 3, limits(0.95, 0.99), Higher, |m| containers(m, EIGHT)),
    figure(Trust, "containers_40", CONTAINERS, 3, limits(0.95, 0.99), Higher, |m| containers(m, FORTY)),
    figure(Roles, "switchover_1_database", UNAVAILABLE, 2, limits(2.0, 0.3), Lower, |m| {
        roles(m, |found| slowest(&found.switchover_one))
    }),
    figure(Roles, "switchover_100_databases", UNAVAILABLE, 2, limits(2.0, 0.3), Lower, |m| {
        roles(m, |found| slowest(&found.switchover_many))
    }),
    figure(Roles, "lost_in_switchovers", "writes", 0, limits(0.0, 0.0), Lower, |m| {
        roles(m, |found| found.lost as f64)
    }),
    figure(Roles, "failover_100_databases", UNAVAILABLE, 2, limits(2.0, 0.5), Lower, |m| {
        roles(m, |found| slowest(&found.failover))
    }),
    figure(Roles, "automatic_failover_fast", UNAVAILABLE, 2, limits(3.0, 1.5), Lower, |m| {
        roles(m, |found| slowest(&found.automatic_fast))
    }),
    figure(Roles, "automatic_failover_default", BEYOND_THRESHOLD, 2, (Some(2.0), None), Lower, |m| {
        roles(m, |found| slowest(&found.automatic_default))
    }),
    figure(Roles, "reinstate_copied", "% of 5 GB", 2, (Some(2.0), None), Lower, |m| {
        roles(m, |found| found.reinstated.fetched as f64 / found.reinstated.pages as f64 * 100.0)
    }),
    figure(Roles, "reinstate_5_gb", "s", 1, (None, Some(10.0)), Lower, |m| {
        roles(m, |found| found.reinstated.seconds)
    }),
    figure(Roles, "reinstate_identical", "files", 0, limits(1.0, 1.0), Higher, |m| {
        roles(m, |found| f64::from(u8::from(found.reinstated.is_identical)))
    }),
];

fn roles(measured: &Measured, number: fn(&RolesResult) -> f64) -> Value {
    measured.roles.as_ref().map(number).map_err(Clone::clone)
}

fn slowest(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(0.0, f64::max)
}

fn flood(measured: &Measured, system: SystemKind) -> Value {
    measured.trust.as_ref().map_err(Clone::clone)?.flood_ratio(system)
}

fn tls(measured: &Measured, case: Case) -> Value {
    measured.trust.as_ref().map_err(Clone::clone)?.tls_ratio(case)
}

fn containers(measured: &Measured, case: Case) -> Value {
    measured.trust.as_ref().map_err(Clone::clone)?.containers_ratio(case)
}

fn instruments(measured: &Measured, number: fn(&InstrumentsResult) -> Value) -> Value {
    number(measured.instruments.as_ref().map_err(Clone::clone)?)
}

fn transport(measured: &Measured, number: fn(&TransportResult) -> Value) -> Value {
    number(measured.transport.as_ref().map_err(Clone::clone)?)
}

fn net(measured: &Measured, number: fn(&NetResult) -> Value) -> Value {
    number(measured.net.as_ref().map_err(Clone::clone)?)
}

fn rate(measured: &Measured, system: crate::systems::SystemKind, case: Case) -> Value {
    Ok(measured.commit_series(system, case)?.of(|run| run.commits_per_second)?.median)
}

/// SYNC AFFIRM relative to stock SQLite FULL without any copy.
fn speed(measured: &Measured, case: Case) -> Value {
    Ok(rate(measured, SyncAffirm, case)? / rate(measured, StockFull, case)?)
}

fn long(measured: &Measured, number: fn(&RunResult) -> f64) -> Value {
    let series = measured.long.as_ref().map_err(Clone::clone)?;
    Ok(series.of(number)?.median)
}

fn worst(measured: &Measured) -> Value {
    let commit_ms = long(measured, |run| run.latency.max_us / 1e3)?;
    judgeable(commit_ms, measured.longest_write_ms.as_ref().ok())
}

/// Skips a worst commit beyond the bar when the idle disk exceeds the bar as well: a commit waits for two writes, here
/// and at the standby.
fn judgeable(commit_ms: f64, longest_write_ms: Option<&f64>) -> Value {
    match longest_write_ms {
        Some(write_ms) if commit_ms > WORST_BAR_MS && *write_ms > WORST_BAR_MS => {
            Err(Missing::Skipped(format!(
                "the worst commit took {commit_ms:.1} ms; with nothing else to do this disk took {write_ms:.1} ms for a \
                 durable write of 4 KiB"
            )))
        }
        _ => Ok(commit_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_commit_beyond_bar_is_skipped_only_if_the_disk_is_too() {
        assert_eq!(judgeable(49.0, Some(&300.0)).unwrap(), 49.0);
        assert_eq!(judgeable(51.0, Some(&49.0)).unwrap(), 51.0);
        assert_eq!(judgeable(51.0, None).unwrap(), 51.0);
        let skipped = judgeable(51.0, Some(&52.5)).unwrap_err();
        assert!(
            matches!(&skipped, Missing::Skipped(why) if why.contains("51.0 ms") && why.contains("52.5 ms"))
        );
    }
}
