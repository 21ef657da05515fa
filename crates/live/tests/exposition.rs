//! The text that Prometheus reads, and the Grafana dashboard that uses it.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use standfast_documents::status::Destination;
use standfast_instruments::Observation;
use standfast_live::{Looks, metrics, synthetic};
use std::collections::BTreeSet;

fn text_of(observation: &Observation) -> String {
    let mut looks = Looks::default();
    looks.take(observation);
    metrics::exposition(metrics::families(observation, &looks.estimate(observation)))
}

/// The names of all series in a text.
fn names(text: &str) -> BTreeSet<&str> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .collect()
}

#[test]
fn a_full_observation_has_all_metrics_in_base_units() {
    let text = synthetic::exposition();
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in [
        "standfast_build_info{version=\"0.1.0\"} 1",
        "standfast_role_info{role=\"primary\"} 1",
        "standfast_up 1.0",
        "standfast_transport_connected{standby=\"oslo\"} 1.0",
        "standfast_transport_lag_seconds{standby=\"oslo\"} 0.0",
        "standfast_transport_gap_sequences{standby=\"rome\"} 3.0",
        "standfast_active_sessions{class=\"Commit\"} 5.0",
        "standfast_active_sessions{class=\"Network\"} 0.0",
        "standfast_estimated_data_loss_seconds 0.0",
        "standfast_commit_duration_seconds_count 4000",
        "standfast_commit_duration_seconds_bucket{le=\"+Inf\"} 4000",
        "standfast_commit_duration_seconds_bucket{le=\"0.000064\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    for row in metrics::reference().lines().skip(2) {
        let name = row.split('`').nth(1).unwrap();
        assert!(names(&text).iter().any(|found| found.starts_with(name)), "{name}");
    }
}

#[test]
fn unknown_metrics_have_no_series() {
    let mut observation = synthetic::observation(10);
    observation.history.activity.clear();
    let destinations = observation.status.destinations.as_mut().unwrap();
    (destinations[0].state, destinations[0].required) = (Some("connecting".into()), Some(false));
    destinations[1] = Destination::of(&json!({ "name": "rome", "state": "connecting" }));
    let text = text_of(&observation);
    let found = names(&text);
    for name in [
        "standfast_active_sessions",
        "standfast_transport_lag_seconds",
        "standfast_transport_lag_bytes",
        "standfast_estimated_data_loss_seconds",
        "standfast_estimated_failover_seconds",
    ] {
        assert!(!found.contains(name), "{name}\n{text}");
    }
    assert!(text.contains("standfast_transport_connected{standby=\"oslo\"} 0.0"), "{text}");
    let nothing = text_of(&Observation::default());
    assert_eq!(names(&nothing), BTreeSet::new(), "{nothing}");
}

#[test]
fn every_metric_of_the_grafana_dashboard_exists() {
    let dashboard: Value =
        serde_json::from_str(include_str!("../../../docs/grafana/standfast.json")).unwrap();
    let text = synthetic::exposition();
    let known = names(&text);
    let mut used = BTreeSet::new();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| {
        let targets = panel["targets"].as_array();
        assert!(panel["type"] == "row" || targets.is_some_and(|all| !all.is_empty()), "{}", panel["title"]);
        targets.into_iter().flatten()
    });
    for target in targets {
        let expression = target["expr"].as_str().unwrap();
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("standfast_")) {
            assert!(known.contains(name), "{name} in {expression}");
            used.insert(name.to_owned());
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let query = variable["query"].as_str().unwrap_or_default();
        assert!(variable["type"] == "datasource" || known.iter().any(|name| query.contains(name)), "{query}");
    }
    assert!(used.len() >= 15, "{used:?}");
}
