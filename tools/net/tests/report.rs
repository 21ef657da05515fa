//! Results for machines against `docs/network.schema.json`.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/schema.rs"]
mod schema;

use common::{Running, test};
use schema::{NETWORK, WAN, check, follows, published};
use serde_json::{Value, json};
use standfast_net::loaded::run_loaded;
use standfast_net::plan::{Directions, Mode, Plan};
use standfast_net::units::Extent;
use standfast_net::{NetError, report};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn plan(mode: Mode) -> Plan {
    Plan {
        mode,
        write: mode == Mode::Sync,
        length: 4096,
        duration: Extent::Time(Duration::from_millis(200)),
        interval: Duration::from_millis(50),
        timeout: Some(Duration::from_secs(20)),
        ..Plan::default()
    }
}

#[test]
fn results_of_good_and_failed_tests_follow_the_schema() {
    let server = Running::start("schema");
    for mode in [Mode::Sync, Mode::Async] {
        let plan = |mode| Plan { directions: Directions::Both, write: false, ..plan(mode) };
        let outcome = Ok(test(&server, &plan(mode)));
        let report = report::json(&server.target(), &plan(mode), &outcome);
        follows("result", &report);
        assert_eq!(
            (&report["direction"], &report["reverse"]["summary"]["direction"]),
            (&"to_server".into(), &"from_server".into())
        );
        assert!(report["reverse"]["summary"]["bytes_per_second"].as_f64().unwrap() > 0.0);
    }
    for mode in [Mode::Sync, Mode::Async] {
        let outcome = Ok(test(&server, &plan(mode)));
        let report = report::json(&server.target(), &plan(mode), &outcome);
        follows("result", &report);
        assert_eq!(report["status"], "ok");
        // Through text and back: a value that is not a number would be null by now.
        let again: Value = serde_json::from_str(&report.to_string()).unwrap();
        assert!(again["summary"]["bytes_per_second"].as_f64().unwrap() > 0.0);
    }
    let plan_loaded = plan(Mode::Async);
    let outcome = run_loaded(&server.target(), &plan_loaded, &AtomicBool::new(false), &mut |_| {});
    let report = report::json(&server.target(), &plan_loaded, &outcome);
    follows("result", &report);
    assert!(report["round_trips"]["growth"]["p99"].as_f64().unwrap() > 0.0);
    let refused = Err(NetError::Refused("busy".into()));
    let report = report::json(&server.target(), &plan(Mode::Sync), &refused);
    follows("result", &report);
    assert_eq!((&report["status"], &report["error"]["code"]), (&"failed".into(), &"refused".into()));
}

#[test]
fn csv_has_one_line_per_interval_and_one_cell_per_column() {
    let server = Running::start("csv");
    let outcome = Ok(test(&server, &plan(Mode::Async)));
    let report = report::json(&server.target(), &plan(Mode::Async), &outcome);
    let rows = report["intervals"].as_array().unwrap().len();
    let table = report::csv(&[report]);
    let cells: Vec<usize> = table.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(cells.len(), rows + 1);
    assert!(cells.iter().all(|count| *count == cells[0]), "{table}");
    assert!(table.starts_with("test,direction,start,seconds,bytes,"));
}

/// A schema without closed objects and required fields would let everything pass.
#[test]
fn every_schema_object_is_closed_and_lists_required_fields() {
    fn visit(schema: &Value, place: &str) {
        let types = &schema["type"];
        let object =
            types == "object" || types.as_array().is_some_and(|types| types.contains(&"object".into()));
        if object {
            assert_eq!(schema["additionalProperties"], false, "{place}");
            let properties = schema["properties"].as_object().unwrap();
            let required = schema["required"].as_array().unwrap();
            assert!(!properties.is_empty() && !required.is_empty(), "{place}");
            for name in required {
                assert!(properties.contains_key(name.as_str().unwrap()), "{place}: {name}");
            }
        }
        for (name, part) in schema.as_object().into_iter().flatten() {
            if part.is_object() {
                visit(part, &format!("{place}.{name}"));
            }
        }
    }
    for file in [NETWORK, WAN] {
        visit(&published(file), file);
    }
}

#[test]
fn schema_check_finds_missing_mistyped_and_unknown_fields() {
    let root = json!({
        "type": "object",
        "properties": { "rate": { "type": "number", "minimum": 0 }, "limit": { "enum": ["path", null] } },
        "required": ["rate"],
        "additionalProperties": false,
    });
    let wrong = |value: Value| check(&root, &root, &value, "x").unwrap_err();
    assert_eq!(check(&root, &root, &json!({ "rate": 1.5, "limit": null }), "x"), Ok(()));
    assert!(wrong(json!({ "limit": "path" })).contains("rate is missing"));
    assert!(wrong(json!({ "rate": null })).contains("x.rate"));
    assert!(wrong(json!({ "rate": -1 })).contains("less than"));
    assert!(wrong(json!({ "rate": 1, "limit": "moon" })).contains("x.limit"));
    assert!(wrong(json!({ "rate": 1, "more": 1 })).contains("x.more"));
}
