//! The dashboard document.

#![allow(clippy::unwrap_used)]

use standfast_documents::Status;
use standfast_live::{Dashboard, Looks, Machine, Severity, synthetic};

fn of(change: impl FnOnce(&mut Status)) -> Dashboard {
    let mut observation = synthetic::observation(10);
    change(&mut observation.status);
    let mut looks = Looks::default();
    looks.take(&synthetic::observation(0));
    looks.take(&observation);
    Dashboard::of(&observation, &looks, &Machine::default())
}

#[test]
fn verdict_states_data_loss_and_downtime_of_a_failover() {
    let verdict = synthetic::dashboard().verdict;
    assert_eq!(verdict.headline, "If you fail over to oslo now: no data lost, about 47 ms of downtime");
    assert_eq!(verdict.severity, Severity::Critical);
    assert_eq!(verdict.findings[0].text, "rome: transport lag 87 s");
    let degraded =
        of(|status| status.protection.as_mut().unwrap().level = Some("resynchronization".into())).verdict;
    assert_eq!(
        (degraded.configured.as_str(), degraded.actual.as_str()),
        ("maximum availability", "resynchronization")
    );
}

#[test]
fn verdict_promises_no_failover_without_a_standby() {
    let alone = of(|status| status.destinations = Some(vec![])).verdict;
    assert_eq!(alone.headline, "no standby is known: a failover is not possible");
    assert_eq!((alone.loss_time.text.as_str(), alone.failover.text.as_str()), ("unknown", "unknown"));
}

#[test]
fn rates_and_shares_cover_the_time_between_two_polls() {
    let dashboard = synthetic::dashboard();
    assert_eq!(dashboard.commit.commits.value, Some(400.0));
    assert_eq!(dashboard.pressure.redo_rate.text, "3.0 MiB/s");
    assert_eq!(dashboard.commit.critical_path, "the way to the standby and its write");
    let shares: f64 = dashboard.commit.parts.iter().filter_map(|part| part.share.value).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    assert_eq!(dashboard.standbys[0].catch_up.text, "13 ms");
    assert_eq!(dashboard.standbys[1].catch_up.text, "4 min 50 s");
}

#[test]
fn single_poll_shows_rates_as_unknown() {
    let observation = synthetic::observation(10);
    let mut looks = Looks::default();
    looks.take(&observation);
    let dashboard = Dashboard::of(&observation, &looks, &Machine::default());
    for figure in [&dashboard.commit.commits, &dashboard.commit.p99, &dashboard.pressure.redo_rate] {
        assert_eq!((figure.value, figure.text.as_str()), (None, "unknown"));
    }
    assert_eq!(dashboard.pressure.disk_free.text, "unknown");
}

#[test]
fn dashboard_survives_a_json_round_trip() {
    let dashboard = synthetic::dashboard();
    let text = serde_json::to_string(&dashboard).unwrap();
    let read: Dashboard = serde_json::from_str(&text).unwrap();
    // Other floating-point numbers may differ in the last digit.
    assert_eq!((&read.verdict, &read.topology), (&dashboard.verdict, &dashboard.topology));
    assert_eq!((&read.standbys, &read.events), (&dashboard.standbys, &dashboard.events));
}
