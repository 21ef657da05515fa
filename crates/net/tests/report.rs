//! Results for machines against `docs/network.schema.json`.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Running, test};
use serde_json::Value;
use standfast_net::loaded::run_loaded;
use standfast_net::plan::{Directions, Mode, Plan};
use standfast_net::units::Extent;
use standfast_net::{NetError, report};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn schema() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/network.schema.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The part of JSON Schema that the file uses: type, const, enum, required, properties, items, $ref to a definition.
fn check(schema: &Value, root: &Value, value: &Value, place: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let definition = root.pointer(name.trim_start_matches('#')).unwrap();
        return check(definition, root, value, place);
    }
    if !schema["const"].is_null() {
        assert_eq!(schema["const"], *value, "{place}");
    }
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{place}: {value}");
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let fits = |name: &&str| match *name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    };
    assert!(types.is_empty() || types.iter().any(fits), "{place}: {value} is no {types:?}");
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        assert!(value.is_null() || value.get(name).is_some(), "{place}: {name} is missing");
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        let property = &schema["properties"][name];
        assert!(!property.is_null(), "{place}.{name} is not in the schema");
        check(property, root, value, &format!("{place}.{name}"));
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        if !schema["items"].is_null() {
            check(&schema["items"], root, item, &format!("{place}[{number}]"));
        }
    }
}

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
    let schema = schema();
    for mode in [Mode::Sync, Mode::Async] {
        let plan = |mode| Plan { directions: Directions::Both, write: false, ..plan(mode) };
        let outcome = Ok(test(&server, &plan(mode)));
        let report = report::json(&server.target(), &plan(mode), &outcome);
        check(&schema, &schema, &report, "result");
        assert_eq!(
            (&report["direction"], &report["reverse"]["summary"]["direction"]),
            (&"to_server".into(), &"from_server".into())
        );
        assert!(report["reverse"]["summary"]["bytes_per_second"].as_f64().unwrap() > 0.0);
    }
    for mode in [Mode::Sync, Mode::Async] {
        let outcome = Ok(test(&server, &plan(mode)));
        let report = report::json(&server.target(), &plan(mode), &outcome);
        check(&schema, &schema, &report, "result");
        assert_eq!(report["status"], "ok");
        // Through text and back: what would not be a number would be null by now.
        let again: Value = serde_json::from_str(&report.to_string()).unwrap();
        assert!(again["summary"]["bytes_per_second"].as_f64().unwrap() > 0.0);
    }
    let plan_loaded = plan(Mode::Async);
    let outcome = run_loaded(&server.target(), &plan_loaded, &AtomicBool::new(false), &mut |_| {});
    let report = report::json(&server.target(), &plan_loaded, &outcome);
    check(&schema, &schema, &report, "result");
    assert!(report["round_trips"]["growth"]["p99"].as_f64().unwrap() > 0.0);
    let refused = Err(NetError::Refused("busy".into()));
    let report = report::json(&server.target(), &plan(Mode::Sync), &refused);
    check(&schema, &schema, &report, "result");
    assert_eq!((&report["status"], &report["error"]["code"]), (&"failed".into(), &"refused".into()));
}

#[test]
fn the_table_has_a_line_for_every_interval_and_a_cell_for_every_column() {
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
