//! Whole reports: the text equals the one kept in `golden/`, HTML pages are well-formed, and figures have the shape of
//! the published tables about synchronous transport.
//!
//! `STANDFAST_BLESS=1 cargo test -p standfast-reports golden` rewrites the kept texts; review the diff.

use crate::compare::{self, comparison};
use crate::html::html;
use crate::period::Period;
use crate::report::{document, report};
use crate::synthetic::{BEGIN_US, Load, counts, pair};
use crate::text::{WIDTH, text};
use serde_json::{Value, json};
use standfast_instruments::{CommitPart, Event, Metric};

const PAGE_MAX: usize = 2 << 20;

/// Figure 34 as 600 s of load: without a standby, then SYNC to a standby with a two-member log, one member on a slow
/// disk.
fn figure_34() -> (Period, Period) {
    let (before, after) = (7_814.92, 6_224.03);
    let load = |tps: f64, writes: u64, kib: f64| Load {
        commits: (tps * 600.0) as u64,
        writes,
        redo_bytes: (kib * 1024.0) as u64 * writes,
        ..Load::healthy()
    };
    let events = |load: Load, sync_ms: f64, local_ms: f64| {
        let (commits, writes) = (load.commits, load.writes);
        load.events(Event::LogFileSync, commits, sync_ms * 1e3).events(
            Event::LogFileParallelWrite,
            writes,
            local_ms * 1e3,
        )
    };
    let mut none = load(before, 2_312_366, 10.58);
    (none.events, none.parts, none.standby_events) = (Vec::new(), Vec::new(), Vec::new());
    none.parts = vec![(CommitPart::LocalWrite, 570.0), (CommitPart::Scheduling, 110.0)];
    let none = events(none, 0.68, 0.57).always("/destinations", json!([]));
    let mut slow = load(after, 897_751, 20.50);
    (slow.events, slow.parts) = (Vec::new(), Vec::new());
    slow.parts = vec![
        (CommitPart::Gather, 300.0),
        (CommitPart::Network, 560.0),
        (CommitPart::RemoteWrite, 2_890.0),
        (CommitPart::Scheduling, 850.0),
    ];
    let slow = events(slow, 4.60, 0.62)
        .events(Event::SyncRemoteWrite, 897_751, 3_450.0)
        .standby_event(Event::RfsRandomIo, 2_890.0)
        .standby_event(Event::RfsWrite, 2_900.0)
        .standby_at_end("/log/groups", json!([{ "members": ["fast", "slow"] }]));
    (pair(&none), pair(&slow))
}

/// A period with everything that a report can show.
fn rich() -> Period {
    let mut period = pair(
        &Load::healthy()
            .event(Event::LogFileParallelWrite, 620.0)
            .event(Event::SyncRemoteWrite, 3_450.0)
            .standby_event(Event::RfsRandomIo, 2_890.0)
            .part(CommitPart::RemoteWrite, 2_890.0)
            .at_end("/destinations/0/disconnects", json!(1))
            .alert("destination oslo: disconnected: <reset> & gone"),
    );
    period.from.id = Some(17);
    period.to.id = Some(18);
    period.from.parameters["redo"]["groups"] = json!(2);
    period.to.observation.status.destinations.as_mut().unwrap()[0].last_trouble =
        Some("<script>alert(1)</script>".into());
    let mut late = counts(600, 10_000_000.0);
    late.add(&counts(3, 90_000_000.0));
    period.to.observation.sample.put_event(Event::RdbmsIpcMessage, late);
    for minute in 0..10 {
        let end_us = BEGIN_US + (minute + 1) * 60_000_000;
        let metric = |name: &str, unit: &str, value| Metric {
            name: name.into(),
            unit: unit.into(),
            begin_us: end_us - 60_000_000,
            end_us,
            group_s: 60,
            value,
        };
        period.metrics.push(metric(
            "User Transaction Per Sec",
            "Transactions Per Second",
            Some(900.0 + 20.0 * minute as f64),
        ));
        period.metrics.push(metric(
            "Redo Generated Per Sec",
            "Bytes Per Second",
            (minute != 4).then_some(160_000.0),
        ));
    }
    period
}

fn is_as_kept(name: &str, kept: &str, now: &str) {
    if std::env::var_os("STANDFAST_BLESS").is_some() {
        std::fs::write(format!("{}/src/golden/{name}", env!("CARGO_MANIFEST_DIR")), now).unwrap();
    } else {
        assert_eq!(now, kept, "{name} is another one now: STANDFAST_BLESS=1 writes it again");
    }
}

#[test]
fn report_text_matches_the_golden_file_and_fits_80_columns() {
    let shown = text("Workload report of paris, snapshots 17 to 18", &report(&rich()));
    assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
    is_as_kept("report.txt", include_str!("golden/report.txt"), &shown);
}

#[test]
fn comparison_text_matches_the_golden_file_and_fits_80_columns() {
    let (before, after) = figure_34();
    let shown = text("Comparison of paris", &compare::sections(&comparison(&before, &after)));
    assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
    is_as_kept("comparison.txt", include_str!("golden/comparison.txt"), &shown);
}

#[test]
fn a_comparison_has_the_shape_of_figure_34() {
    let (before, after) = figure_34();
    let compared = comparison(&before, &after);
    let key = |name: &str| compared.key.iter().find(|figure| figure.name == name).unwrap();
    let percent = |name: &str| key(name).percent.map(|percent| (percent * 10.0).round() / 10.0);
    assert_eq!(percent("TPS"), Some(-20.4), "printed there as -20.3 %");
    assert_eq!(percent("log file sync"), Some(576.5));
    assert_eq!(percent("log file parallel write"), Some(8.8));
    assert_eq!(percent("redo writes"), Some(-61.2));
    assert_eq!(percent("redo write size"), Some(93.8));
    let after_is = |name: &str, ms: f64| key(name).after.is_some_and(|after| (after - ms).abs() < 0.005);
    assert!(after_is("RFS random i/o", 2.89) && after_is("SYNC Remote Write", 3.45));
    assert!(after_is("network (remote - RFS)", 0.56));
    assert_eq!((key("SYNC Remote Write").before, key("SYNC Remote Write").percent), (None, None));
    let remarks: Vec<&str> = compared.remarks.iter().map(|finding| finding.rule).collect();
    assert_eq!(remarks, ["R6", "R10"], "the loss is not for nothing: R9 is silent");
    assert_eq!(compared.findings.first().map(|finding| finding.rule), Some("R7"));
}

#[test]
fn report_page_is_well_formed_and_has_the_numbers_of_the_text() {
    let sections = report(&rich());
    let page = html("Workload report", &sections);
    assert!(page.len() < PAGE_MAX, "{} bytes", page.len());
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
    let elements = || document.descendants().filter(roxmltree::Node::is_element);
    assert!(elements().all(|node| !["script", "link", "img", "iframe"].contains(&node.tag_name().name())));
    assert!(elements().all(|node| node.attribute("src").is_none() && node.attribute("href").is_none()));
    let headings: Vec<&str> =
        elements().filter(|node| node.has_tag_name("h2")).filter_map(|node| node.text()).collect();
    let titles: Vec<&str> = sections.iter().map(|section| section.title.as_str()).collect();
    assert_eq!(headings, titles);
    // Two plots of metrics, the waits and the parts; each in a version for screens and one for phones.
    assert_eq!(elements().filter(|node| node.has_tag_name("svg")).count(), 2 * 4);
    let cells: Vec<&str> = elements()
        .filter(|node| node.has_tag_name("td") || node.has_tag_name("th"))
        .filter_map(|node| node.text())
        .collect();
    let tables = sections.iter().filter_map(|section| section.table.as_ref());
    for cell in tables.flat_map(|table| table.rows.iter().flatten()).filter(|cell| !cell.is_empty()) {
        assert!(cells.contains(&cell.as_str()), "{cell}");
    }
}

#[test]
fn report_sections_are_in_reading_order() {
    let titles: Vec<String> = report(&rich()).into_iter().map(|section| section.title).collect();
    let expected = [
        "Identity and interval",
        "Findings",
        "Load profile",
        "Time model",
        "Top 10 foreground events",
        "Background events",
        "Wait event histograms",
        "Commit and redo",
        "Replication: oslo",
        "I/O by function",
        "Log switches",
        "Statistics",
        "Changed parameters",
    ];
    assert_eq!(titles, expected);
}

#[test]
fn json_report_has_the_figures_of_the_text_and_null_if_unknown() {
    let mut period = rich();
    let json = json!(document(&period));
    assert_eq!(json["counters"]["seconds"], 600.0);
    assert_eq!(json["findings"][0]["rule"], "R7");
    assert!(json["findings"][0]["evidence"][0]["value"].is_f64());
    period.to.observation.sample.started_us += 1;
    let json = json!(document(&period));
    assert_eq!(json["counters"], Value::Null);
    assert_eq!(json["standbys"][0]["sent_bytes"], Value::Null);
    let shown = text("restarted", &report(&period));
    assert!(shown.contains("RESTART") && shown.contains("Not known"), "{shown}");
}
