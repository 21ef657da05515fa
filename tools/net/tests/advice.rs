//! The advice on links of every kind.

use standfast_net::advice::{Advice, Grade, Measured, advise};
use standfast_net::limit::Limit;
use standfast_net::search::Tried;
use standfast_net::stats::{Latency, Spread};

const MIB: f64 = 1_048_576.0;

fn latency(network: f64, disk: f64) -> Latency {
    let spread = |mean| Spread { mean, p50: mean, p90: mean, p99: mean, p999: mean, max: mean };
    Latency {
        count: 1000,
        total: spread(network + disk),
        network: spread(network),
        disk: spread(disk),
        waking: spread(0.0),
    }
}

fn run(window: u32, streams: u16, rate: f64) -> Option<Tried> {
    Some(Tried { window, streams, rate, clamped: false })
}

/// A gigabit in the same building: everything is good.
fn good() -> Measured {
    Measured {
        peak: 20.0 * MIB,
        redo_write: 8192,
        round_trip: 0.000_3,
        idle: Some(latency(0.000_3, 0.0)),
        loaded: Some(latency(0.000_8, 0.0)),
        fastsync: Some(latency(0.000_35, 0.0)),
        affirm: Some(latency(0.000_35, 0.000_2)),
        automatic: run(0, 1, 112.0 * MIB),
        automatic_limit: Some(Limit::Path),
        single: run(0, 1, 112.0 * MIB),
        fastest: run(0, 1, 112.0 * MIB),
        loss: 0.0,
        sack_negotiated: true,
        sack_enabled: Some(true),
        sack_recoveries: Some(0),
        ceiling: Some(16 << 20),
        automatic_ceiling: Some(16 << 20),
    }
}

fn judged(measured: &Measured, mode: &str) -> (Grade, Option<&'static str>) {
    let advice = advise(measured);
    let verdict = advice.verdicts.iter().find(|verdict| verdict.mode == mode);
    verdict.map_or((Grade::Pass, Some("no such mode")), |verdict| {
        (verdict.grade, verdict.causes.first().map(|cause| cause.name))
    })
}

#[test]
fn a_good_link_passes_in_every_mode_and_needs_no_setting() {
    let advice: Advice = advise(&good());
    assert!(advice.verdicts.iter().all(|verdict| verdict.grade == Grade::Pass && verdict.causes.is_empty()));
    assert_eq!(advice.settings, Vec::<String>::new());
    assert!((advice.required - 26.0 * MIB).abs() < 1.0);
    assert!((advice.log_bytes - 6000.0 * MIB).abs() < 1.0);
    assert!(advice.fastsync_gain.is_some_and(|gain| (gain - 0.000_2).abs() < 1e-9));
}

#[test]
fn link_below_peak_fails_and_link_below_headroom_warns() {
    let slow = |rate| Measured {
        single: run(0, 1, rate),
        fastest: run(0, 1, rate),
        automatic: run(0, 1, rate),
        ..good()
    };
    for mode in ["ASYNC", "FASTSYNC", "SYNC AFFIRM"] {
        assert_eq!(judged(&slow(12.0 * MIB), mode), (Grade::Fail, Some("bandwidth")));
        assert_eq!(judged(&slow(22.0 * MIB), mode), (Grade::Warn, Some("bandwidth")));
    }
}

#[test]
fn long_link_warns_and_very_long_link_fails_if_commits_wait() {
    let long = |rtt: f64| Measured {
        round_trip: rtt,
        fastsync: Some(latency(rtt, 0.0)),
        affirm: Some(latency(rtt, 0.000_2)),
        ..good()
    };
    assert_eq!(judged(&long(0.010), "SYNC AFFIRM"), (Grade::Warn, Some("distance")));
    assert_eq!(judged(&long(0.010), "FASTSYNC"), (Grade::Warn, Some("distance")));
    assert_eq!(judged(&long(0.100), "FASTSYNC"), (Grade::Fail, Some("distance")));
    assert_eq!(judged(&long(0.100), "ASYNC"), (Grade::Pass, None));
}

#[test]
fn small_buffers_are_reported_with_the_settings_to_raise_them() {
    let small = Measured {
        round_trip: 0.025,
        automatic: run(0, 1, 5.0 * MIB),
        automatic_limit: Some(Limit::SendBuffer),
        single: run(8 << 20, 1, 110.0 * MIB),
        fastest: run(8 << 20, 1, 110.0 * MIB),
        ceiling: Some(212_992),
        automatic_ceiling: Some(4 << 20),
        ..good()
    };
    assert_eq!(judged(&small, "ASYNC"), (Grade::Warn, Some("buffers")));
    let settings = advise(&small).settings;
    assert!(settings.iter().any(|line| line == "net.core.wmem_max = 16777216"), "{settings:?}");
    // Fast enough only together; redo uses a single connection.
    let together = Measured { single: run(0, 1, 10.0 * MIB), fastest: run(0, 8, 80.0 * MIB), ..small };
    assert_eq!(judged(&together, "ASYNC"), (Grade::Warn, Some("buffers")));
}

#[test]
fn lossy_link_is_reported_as_lossy() {
    let lossy = Measured { loss: 0.01, ..good() };
    assert_eq!(judged(&lossy, "ASYNC"), (Grade::Warn, Some("loss")));
    let rate = run(0, 1, 5.0 * MIB);
    let worse = Measured { single: rate, fastest: rate, automatic: rate, ..lossy };
    assert_eq!(judged(&worse, "ASYNC"), (Grade::Fail, Some("loss")));
}

#[test]
fn slow_remote_disk_is_reported_only_if_commits_wait_for_it() {
    let slow = Measured { affirm: Some(latency(0.000_35, 0.008)), ..good() };
    assert_eq!(judged(&slow, "SYNC AFFIRM"), (Grade::Warn, Some("far_disk")));
    assert_eq!(judged(&slow, "FASTSYNC"), (Grade::Pass, None));
}

#[test]
fn queueing_delay_is_reported_only_if_commits_wait_for_it() {
    let loaded = |seconds: f64| Measured { loaded: Some(latency(seconds, 0.0)), ..good() };
    assert_eq!(judged(&loaded(0.030), "FASTSYNC"), (Grade::Warn, Some("queueing")));
    assert_eq!(judged(&loaded(0.030), "SYNC AFFIRM"), (Grade::Warn, Some("queueing")));
    assert_eq!(judged(&loaded(0.030), "ASYNC"), (Grade::Pass, None));
    // Many times almost nothing is still almost nothing, and a queue of one bandwidth-delay product is right.
    assert_eq!(judged(&loaded(0.005), "FASTSYNC"), (Grade::Pass, None));
    let long = Measured { round_trip: 0.004, ..loaded(0.011) };
    assert_eq!(judged(&long, "FASTSYNC"), (Grade::Pass, None));
    // At 10 Mbit/s ten segments take 12 ms: that is the link, and only a longer time is its queue.
    let narrow = |seconds| Measured { fastest: run(0, 1, 1.2e6), peak: 0.5 * MIB, ..loaded(seconds) };
    assert_eq!(judged(&narrow(0.015), "FASTSYNC"), (Grade::Pass, None));
    assert_eq!(judged(&narrow(0.025), "FASTSYNC"), (Grade::Warn, Some("queueing")));
    let notes = advise(&loaded(0.030)).notes;
    assert!(notes.iter().any(|note| note.contains("p50 30.000 ms") && note.contains("p50 0.300 ms")));
}

#[test]
fn check_without_a_measurement_does_not_pass() {
    let nothing = Measured { automatic: None, single: None, fastest: None, ..good() };
    assert_eq!(judged(&nothing, "ASYNC"), (Grade::Fail, Some("unmeasured")));
}

#[test]
fn gigabit_link_at_25_ms_has_a_bdp_of_3_125_000_bytes() {
    let link = Measured { round_trip: 0.025, fastest: run(0, 1, 125e6), ..good() };
    assert!((advise(&link).bandwidth_delay - 3_125_000.0).abs() < 1.0);
}
