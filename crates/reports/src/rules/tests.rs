//! Each rule has a load at which it is the first finding, and a neighbouring load at which it is silent.

use super::*;
use crate::interval::Interval;
use crate::period::Period;
use crate::synthetic::{Load, counts, pair};
use serde_json::{Value, json};
use standfast_instruments::{BUCKETS, CommitPart, Event, HistogramCounts, Statistic, ThreadSample};

fn found(period: &Period) -> Vec<Finding> {
    diagnose(&Interval::of(period), &period.to.observation)
}

fn rules_of(load: &Load) -> Vec<&'static str> {
    found(&pair(load)).iter().map(|finding| finding.rule).collect()
}

/// A load in which the log writer waits for `event` for this share of the time.
fn waiting(event: Event, share: f64) -> Load {
    let waits = 600;
    Load::healthy().events(event, waits, share * 600.0 / waits as f64 * 1e6)
}

fn slow_standby_log() -> Load {
    // Figure 34: 0.62 ms here, 2.89 ms there, 3.45 ms in all.
    Load::healthy()
        .event(Event::LogFileParallelWrite, 620.0)
        .event(Event::SyncRemoteWrite, 3_450.0)
        .standby_event(Event::RfsRandomIo, 2_890.0)
        .standby_event(Event::RfsWrite, 2_940.0)
        .part(CommitPart::Network, 560.0)
        .part(CommitPart::RemoteWrite, 2_890.0)
}

/// Mostly fast, with one in fifty slow.
fn with_outliers(count: u64, mean_us: f64, outlier_us: f64) -> HistogramCounts {
    let mut all = counts(count - count / 50, mean_us);
    all.add(&counts(count / 50, outlier_us));
    assert_eq!(all.buckets.len(), BUCKETS);
    all
}

fn outliers_at_standby(mean_us: f64, outlier_us: f64) -> Period {
    let mut period = pair(&Load::healthy());
    let standby = period.to.observation.standbys[0].observation.as_mut().unwrap();
    standby.sample.put_event(Event::RfsRandomIo, with_outliers(300_000, mean_us, outlier_us));
    period
}

#[test]
fn healthy_pair_produces_no_findings() {
    assert_eq!(rules_of(&Load::healthy()), Vec::<&str>::new());
    let mut alone = pair(&Load::healthy());
    alone.to.observation.standbys.clear();
    alone.from.observation.standbys.clear();
    assert_eq!(found(&alone), []);
    let idle = Load { commits: 0, writes: 0, redo_bytes: 0, events: Vec::new(), ..Load::healthy() };
    assert_eq!(rules_of(&Load { standby_events: Vec::new(), ..idle }), Vec::<&str>::new());
    assert_eq!(found(&Period::default()), [], "nothing is known, so nothing is reported");
}

/// Returns the places of all values in a document.
fn places(value: &Value, at: &str, into: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.replace('/', "~1"), value)).collect(),
        Value::Array(rows) => rows.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (key, value) in inner {
        let place = format!("{at}/{key}");
        places(value, &place, into);
        into.push(place);
    }
}

#[test]
fn a_rule_that_lacks_a_figure_reports_nothing() {
    let healthy = pair(&Load::healthy());
    let mut tried = 0;
    for at_end in [false, true] {
        let moment = if at_end { &healthy.to } else { &healthy.from };
        let document = json!(moment.observation);
        let mut all = Vec::new();
        places(&document, "", &mut all);
        // No rule reads the history, and what a histogram counts is one figure.
        for place in all.into_iter().filter(|at| !at.contains("/history/") && !at.contains("/buckets/")) {
            let mut lacking = document.clone();
            let (parent, key) = place.rsplit_once('/').unwrap();
            match lacking.pointer_mut(parent) {
                Some(Value::Array(rows)) => drop(rows.remove(key.parse().unwrap())),
                _ => *lacking.pointer_mut(&place).unwrap() = Value::Null,
            }
            // Figures that are always there are not nullable.
            let Ok(observation) = serde_json::from_value(lacking) else { continue };
            let mut period = healthy.clone();
            let moment = if at_end { &mut period.to } else { &mut period.from };
            moment.observation = observation;
            // That a standby does not answer is a finding of its own.
            let mut found = found(&period);
            found.retain(|finding| !finding.title.ends_with("does not say what it counts"));
            assert_eq!(found, [], "without {place}");
            tried += 1;
        }
    }
    assert!(tried > 100, "only {tried} figures");
}

#[test]
fn every_rule_fires_first_on_its_case_and_stays_silent_near_it() {
    const MIB: u64 = 1 << 20;
    let cases: Vec<(&str, Load, Load)> = vec![
        (
            "R1",
            Load::healthy().standby_event(Event::RfsWrite, 2_000.0).part(CommitPart::RemoteWrite, 2_000.0),
            Load::healthy().standby_event(Event::RfsWrite, 250.0).part(CommitPart::RemoteWrite, 250.0),
        ),
        (
            "R2",
            Load::healthy().event(Event::LogFileParallelWrite, 8_000.0).part(CommitPart::LocalWrite, 7_000.0),
            Load::healthy().event(Event::LogFileParallelWrite, 450.0).part(CommitPart::LocalWrite, 450.0),
        ),
        (
            "R3",
            Load::healthy().event(Event::LogFileSync, 900.0),
            Load::healthy().event(Event::LogFileSync, 450.0),
        ),
        (
            "R4",
            Load::healthy().part(CommitPart::Scheduling, 4_000.0),
            Load::healthy().part(CommitPart::Scheduling, 150.0),
        ),
        (
            "R5",
            Load::healthy().part(CommitPart::Gather, 3_000.0),
            Load::healthy().part(CommitPart::Gather, 60.0),
        ),
        ("R7", slow_standby_log(), slow_standby_log().event(Event::LogFileParallelWrite, 2_000.0)),
        (
            "R8",
            Load::healthy()
                .part(CommitPart::Network, 9_000.0)
                .always("/destinations/0/network_round_trip_us", json!(200)),
            Load::healthy()
                .part(CommitPart::Network, 450.0)
                .always("/destinations/0/network_round_trip_us", json!(200)),
        ),
        (
            "R11",
            slow_standby_log()
                .event(Event::LogFileParallelWrite, 2_500.0)
                .event(Event::SyncRemoteWrite, 3_400.0),
            Load { redo_bytes: 40_000 * 300_000, ..Load::healthy() },
        ),
        (
            "R12",
            Load::healthy()
                .part(CommitPart::Network, 25_000.0)
                .always("/destinations/0/network_round_trip_us", json!(25_000)),
            Load::healthy()
                .part(CommitPart::Network, 3_000.0)
                .always("/destinations/0/network_round_trip_us", json!(3_000)),
        ),
        (
            "R13",
            Load {
                redo_bytes: 40_000 * 300_000,
                ..slow_standby_log().event(Event::LogFileParallelWrite, 2_500.0)
            },
            Load {
                redo_bytes: 40_000 * 300_000,
                ..slow_standby_log().event(Event::LogFileParallelWrite, 2_500.0)
            }
            .always("/destinations/0/mode", json!("fastsync")),
        ),
        (
            "R14",
            Load::healthy()
                .always("/destinations/0/mode", json!("async"))
                .at_end("/destinations/0/redo_bytes", json!(40_000_000))
                .at_end("/destinations/0/transport_lag_bytes", json!(56_000_000)),
            Load::healthy()
                .always("/destinations/0/mode", json!("async"))
                .at_end("/destinations/0/redo_bytes", json!(95_000_000))
                .at_end("/destinations/0/transport_lag_bytes", json!(1_000_000)),
        ),
        (
            "R15",
            Load::healthy()
                .at_end("/destinations/0/state", json!("catching_up"))
                .statistic(Statistic::RedoReadForTransport, 60_000),
            Load::healthy().statistic(Statistic::RedoReadForTransport, 60_000),
        ),
        (
            "R16",
            Load { switches: 200, ..waiting(Event::SwitchCheckpointIncomplete, 0.15) },
            Load { switches: 4, ..Load::healthy() },
        ),
        ("R17", waiting(Event::LogBufferSpace, 0.3), waiting(Event::LogBufferSpace, 0.01)),
        ("R17", waiting(Event::SwitchCompletion, 0.3), waiting(Event::SwitchCompletion, 0.01)),
        ("R17", waiting(Event::SwitchArchivingNeeded, 0.3), waiting(Event::SwitchArchivingNeeded, 0.01)),
        (
            "R19",
            Load::healthy()
                .always("/destinations/0/gap", json!({ "bytes_left": 500 * MIB, "connections": 1 }))
                .at_end("/destinations/0/gap", json!({ "bytes_left": 450 * MIB, "connections": 1 })),
            Load::healthy()
                .always("/destinations/0/gap", json!({ "bytes_left": 500 * MIB, "connections": 1 }))
                .at_end("/destinations/0/gap", json!({ "bytes_left": 50 * MIB, "connections": 1 })),
        ),
        (
            "R20",
            Load::healthy()
                .always("/destinations/0/timeouts", json!(7))
                .at_end("/destinations/0/timeouts", json!(9)),
            Load::healthy()
                .always("/destinations/0/timeouts", json!(7))
                .at_end("/destinations/0/timeouts", json!(8)),
        ),
        (
            "R21",
            Load::healthy().part(CommitPart::Acknowledgement, 30_000.0),
            Load::healthy().part(CommitPart::Acknowledgement, 2_000.0),
        ),
        (
            "R22",
            Load::healthy().at_end("/destinations/0/state", json!("connecting")),
            Load::healthy().at_end("/destinations/0/state", json!("catching_up")),
        ),
        (
            "R22",
            Load::healthy()
                .at_end("/destinations/0/apply_lag_bytes", json!(800 * MIB))
                .standby_statistic(Statistic::RedoApplied, 60 * MIB),
            Load::healthy()
                .at_end("/destinations/0/apply_lag_bytes", json!(800 * MIB))
                .standby_at_end("/standby/delay_s", json!(3600)),
        ),
        (
            "R22",
            Load::healthy().at_end(
                "/destinations/0/stopped_databases",
                json!([{ "database": "orders.db", "reason": "page 7 differs" }]),
            ),
            Load::healthy().at_end("/destinations/0/stopped_databases", json!([])),
        ),
        (
            "R23",
            Load::healthy()
                .always("/destinations/0/disconnects", json!(7))
                .at_end("/destinations/0/disconnects", json!(10)),
            Load::healthy()
                .always("/destinations/0/disconnects", json!(7))
                .at_end("/destinations/0/disconnects", json!(8)),
        ),
    ];
    for (rule, load, neighbour) in &cases {
        let first = rules_of(load);
        assert_eq!(first.first(), Some(rule), "{first:?} {:#?}", found(&pair(load)));
        let beside = rules_of(neighbour);
        assert!(!beside.contains(rule), "{rule} speaks of its neighbour: {:#?}", found(&pair(neighbour)));
    }
}

#[test]
fn shared_disk_is_recognised_by_its_outliers() {
    // R18
    let rules = |period: &Period| found(period).iter().map(|finding| finding.rule).collect::<Vec<_>>();
    assert_eq!(rules(&outliers_at_standby(105.0, 20_000.0)), ["R18"]);
    assert_eq!(rules(&outliers_at_standby(105.0, 400.0)), Vec::<&str>::new());
}

#[test]
fn stalled_log_writer_is_always_the_first_finding() {
    let load = slow_standby_log()
        .at_end("/waiting_for", json!("log file switch (archiving needed)"))
        .at_end("/waiting_commits", json!(12));
    let mut period = pair(&load);
    let thread = |waited_us| ThreadSample {
        name: "lgwr".into(),
        event: Some("log file switch (archiving needed)".into()),
        waited_us: Some(waited_us),
    };
    period.to.observation.sample.threads = vec![thread(45_000_000)];
    let first = &found(&period)[0];
    assert_eq!((first.rule, first.severity), ("R17", Severity::Critical));
    assert!(first.remedy.contains("archive"), "{}", first.remedy);
    period.to.observation.sample.threads = vec![thread(3_000)];
    assert_eq!(found(&period)[0].rule, "R7", "a short wait is no standstill");
}

#[test]
fn slow_standby_log_is_reported_with_members_and_network_share() {
    let load = slow_standby_log().standby_at_end(
        "/log/groups",
        json!([{ "members": ["fast", "slow"] }, { "members": ["fast", "slow"] }]),
    );
    let finding = &found(&pair(&load))[0];
    assert_eq!(finding.rule, "R7");
    assert!(finding.remedy.contains("2 members"), "{}", finding.remedy);
    let network = finding.evidence.iter().find(|evidence| evidence.what.starts_with("network")).unwrap();
    assert!(network.value.is_some_and(|us| (us - 560.0).abs() < 1.0), "{network:?}");
    assert_eq!(network.to_string(), "network (SYNC Remote Write - RFS random i/o): 0.560 ms");
}

#[test]
fn small_buffers_are_distinguished_from_low_bandwidth() {
    let load = Load::healthy()
        .always("/destinations/0/mode", json!("async"))
        .always("/destinations/0/network_round_trip_us", json!(100_000))
        .at_end("/destinations/0/redo_bytes", json!(40_000_000))
        .at_end("/destinations/0/transport_lag_bytes", json!(56_000_000));
    let mut small = load.clone();
    small.parameters["destination"][0]["send_buffer_bytes"] = json!(16_384);
    assert!(found(&pair(&small))[0].title.contains("buffers are too small"));
    assert!(found(&pair(&load))[0].title.contains("does not carry"));
}

#[test]
fn every_finding_has_a_remedy_and_a_refutation() {
    let loads = [
        slow_standby_log(),
        waiting(Event::SwitchCompletion, 0.3),
        Load::healthy().part(CommitPart::Gather, 3_000.0),
    ];
    for finding in loads.iter().flat_map(|load| found(&pair(load))) {
        assert!(
            !finding.evidence.is_empty() && !finding.remedy.is_empty() && !finding.refuted_by.is_empty(),
            "{finding:?}"
        );
    }
}

#[test]
fn comparison_rules_report_only_what_changed() {
    let printed = |before: &Load, after: &Load| -> Vec<&'static str> {
        let (before, after) = (Interval::of(&pair(before)), Interval::of(&pair(after)));
        compared(&before, &after).iter().map(|finding| finding.rule).collect()
    };
    let local = Load::healthy().event(Event::LogFileSync, 150.0);
    let fewer = Load { writes: 130_000, ..Load::healthy() };
    assert_eq!(printed(&local, &local), Vec::<&str>::new());
    assert_eq!(printed(&local, &slow_standby_log().event(Event::LogFileParallelWrite, 110.0)), ["R6", "R9"]);
    assert_eq!(printed(&Load::healthy(), &fewer), ["R10"]);
    let other = Load { commits: 100_000, ..Load::healthy() };
    assert_eq!(printed(&Load::healthy(), &other), ["R24"]);
    let held_down = Load { commits: 480_000, ..slow_standby_log().event(Event::LogFileParallelWrite, 110.0) };
    assert_eq!(printed(&local, &held_down), ["R6"], "with fewer commits it is not all the same");
    let slower = Load::healthy().event(Event::LogFileParallelWrite, 500.0);
    assert_eq!(printed(&Load::healthy(), &slower), ["R24"]);
}

#[test]
fn cpu_shortage_explains_slow_writes_but_small_delays_do_not() {
    let slow =
        Load::healthy().event(Event::LogFileParallelWrite, 6_000.0).part(CommitPart::LocalWrite, 6_000.0);
    assert_eq!(rules_of(&slow.clone().part(CommitPart::Scheduling, 3_000.0)), ["R4"]);
    assert_eq!(rules_of(&slow.part(CommitPart::Scheduling, 500.0)), ["R2"]);
    let far = Load::healthy()
        .part(CommitPart::Network, 9_000.0)
        .always("/destinations/0/network_round_trip_us", json!(200));
    assert_eq!(rules_of(&far.clone().part(CommitPart::Scheduling, 4_000.0)), ["R4"]);
    assert_eq!(rules_of(&far.part(CommitPart::Scheduling, 500.0)), ["R8"]);
}

#[test]
fn broken_connections_explain_commits_waiting_for_the_network() {
    let waits = Load::healthy()
        .part(CommitPart::Network, 9_000.0)
        .always("/destinations/0/network_round_trip_us", json!(200));
    let breaks = waits
        .always("/destinations/0/disconnects", json!(7))
        .at_end("/destinations/0/disconnects", json!(10));
    assert_eq!(rules_of(&breaks), ["R23"]);
}

#[test]
fn lossy_link_is_reported_even_if_the_round_trip_hides_it() {
    let lossy = |resent: u64| {
        Load::healthy()
            .part(CommitPart::Network, 5_000.0)
            .always("/destinations/0/network_round_trip_us", json!(4_000))
            .always("/destinations/0/tcp_segments", json!(1_000))
            .always("/destinations/0/tcp_retransmitted", json!(7))
            .at_end("/destinations/0/tcp_segments", json!(2_000))
            .at_end("/destinations/0/tcp_retransmitted", json!(7 + resent))
    };
    let found = found(&pair(&lossy(40)));
    assert_eq!(found.iter().map(|finding| finding.rule).collect::<Vec<_>>(), ["R8"]);
    assert!(found[0].title.ends_with("loses what is sent"), "{}", found[0].title);
    assert_eq!(rules_of(&lossy(9)), [""; 0]);
}
