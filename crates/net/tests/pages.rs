//! The pages of `--html`: well-formed, self-contained, with the figures of the same results as JSON.

#![allow(clippy::unwrap_used)]

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;
use standfast_net::advice::{Advice, Findings, Grade, Measured};
use standfast_net::html::advise::AdviceReport;
use standfast_net::html::client::ClientReport;
use standfast_net::html::page::{Identity, MARK, placeholder};
use standfast_net::html::sweep::SweepReport;
use standfast_net::html::{advise, client, sweep};
use standfast_net::limit::Limit;
use standfast_net::plan::{Mode, Payload, Plan};
use standfast_net::run::{Buffers, Outcome};
use standfast_net::search::{Sweep, Tried};
use standfast_net::stats::{Interval, Latencies, Tcp};
use standfast_net::stream::Target;
use standfast_net::{NetError, Result, report};
use std::collections::HashSet;
use std::time::{Duration, UNIX_EPOCH};

/// No page may be larger.
const MOST_BYTES: usize = 2_000_000;

fn identity() -> Identity {
    Identity {
        host: "alpha".into(),
        kernel: "Linux 6.1".into(),
        begun: UNIX_EPOCH + Duration::from_secs(1_795_277_448),
        took: Duration::from_millis(12_300),
    }
}

fn target() -> Target {
    Target { host: "beta".into(), port: 7460 }
}

/// So many intervals differ.
const PATTERN: u32 = 9;

/// A run of so many intervals; with `latency` messages that waited, a part of each for the disk.
fn outcome(intervals: u32, latency: bool) -> Outcome {
    let (mut all, mut rows, mut figures) = (Latencies::default(), Vec::new(), Vec::new());
    // Intervals repeat: a histogram for each of a day would take the test minutes.
    for number in 0..intervals.min(PATTERN) {
        let mut latencies = Latencies::default();
        for message in 0..if latency { 40 } else { 0 } {
            latencies.record(1_234_567 + 7_919 * u64::from(message * (number + 1)), 345_678);
        }
        all.add(&latencies);
        figures.push(latencies.figures());
    }
    for number in 0..intervals {
        rows.push(Interval {
            start: f64::from(number),
            seconds: 1.0,
            bytes: 23_456_789 + 1_000_003 * u64::from(number % 7),
            messages: 40,
            latency: figures[(number % PATTERN) as usize],
            disk_share: 0.27,
            tcp: Tcp {
                retransmissions: u64::from(number % 3),
                congestion_window: 524_288,
                min_rtt: Some(0.001_234),
                sack: true,
            },
            limit: Some(Limit::ReceiverWindow),
        });
    }
    let total = Interval {
        start: 0.0,
        seconds: f64::from(intervals),
        bytes: rows.iter().map(|row| row.bytes).sum(),
        messages: 40 * u64::from(intervals),
        latency: all.figures(),
        disk_share: 0.27,
        tcp: Tcp {
            retransmissions: rows.iter().map(|row| row.tcp.retransmissions).sum(),
            congestion_window: 524_288,
            min_rtt: Some(0.001_234),
            sack: true,
        },
        limit: Some(Limit::ReceiverWindow),
    };
    Outcome {
        streams: vec![total.bytes / 2, total.bytes / 2],
        total,
        intervals: rows,
        latencies: all,
        buffers: Buffers {
            requested: 8 << 20,
            requested_far: 8 << 20,
            send: 425_984,
            receive: 131_072,
            clamped_by: vec!["net.core.wmem_max of this host"],
        },
        congestion: Some("cubic".into()),
        trouble: None,
        interrupted: false,
    }
}

fn found() -> Sweep {
    let tried = |window: u32, streams: u16, rate: f64| Tried { window, streams, rate, clamped: false };
    let windows = vec![
        tried(0, 1, 11.111e6),
        tried(2 << 20, 1, 22.222e6),
        tried(4 << 20, 1, 44.444e6),
        tried(9_437_184, 1, 45.555e6),
    ];
    let streams = vec![tried(4 << 20, 1, 44.444e6), tried(4 << 20, 2, 61.234e6), tried(4 << 20, 4, 60.001e6)];
    let outcomes = (0..6).map(|_| outcome(5, false)).collect();
    Sweep { windows, streams, outcomes }
}

fn plan(mode: Mode) -> Plan {
    Plan { mode, write: true, length: 8192, streams: 2, ..Plan::default() }
}

fn client_page(plan: &Plan, outcome: &Result<Outcome>, criteria: &[(String, Option<String>)]) -> String {
    let (identity, target) = (identity(), target());
    client::page_of(&ClientReport { identity: &identity, target: &target, plan, outcome, criteria })
}

fn sweep_page(found: &Sweep, ended: &Result<()>) -> String {
    let (identity, target) = (identity(), target());
    sweep::page_of(&SweepReport {
        identity: &identity,
        target: &target,
        options: vec![("most connections tried", "32".into())],
        round_trip: Some(0.012_345),
        sweep: found,
        ended,
    })
}

fn findings() -> Findings {
    Findings {
        round_trip: Some(0.012_345),
        fastsync: Some(outcome(3, true)),
        affirm: Some(outcome(4, true)),
        sweep: found(),
        paced: Some(outcome(5, false)),
    }
}

fn measured(findings: &Findings, peak: f64) -> Measured {
    let latency = |run: &Option<Outcome>| run.as_ref().and_then(Outcome::latency);
    Measured {
        peak,
        redo_write: 8192,
        round_trip: findings.round_trip.unwrap(),
        fastsync: latency(&findings.fastsync),
        affirm: latency(&findings.affirm),
        automatic: findings.sweep.windows.first().copied(),
        automatic_limit: Some(Limit::ReceiverWindow),
        single: findings.sweep.best_window(),
        fastest: findings.sweep.best(),
        loss: 0.000_34,
        sack_negotiated: true,
        sack_enabled: Some(true),
        sack_recoveries: Some(2),
        send_ceiling: Some(212_992),
        automatic_ceiling: Some(425_984),
    }
}

fn advice_page(findings: &Findings, judged: Option<(&Measured, &Advice)>, ended: &Result<()>) -> String {
    let (identity, target) = (identity(), target());
    advise::page_of(&AdviceReport {
        identity: &identity,
        target: &target,
        options: vec![("redo write", "8 kbytes".into())],
        history: None,
        findings,
        advice: judged,
        ended,
    })
}

/// One page of every kind, good and bad.
fn pages() -> Vec<(&'static str, String)> {
    let cut = || NetError::Protocol("cut off".into());
    let interrupted = || NetError::Interrupted { doing: "testing settings" };
    let findings = findings();
    let measured = measured(&findings, 30e6);
    let advice = standfast_net::advice::advise(&measured);
    let troubled = Outcome { trouble: Some(cut()), ..outcome(2, true) };
    let stopped = Outcome { interrupted: true, ..outcome(1, false) };
    vec![
        ("sync", client_page(&plan(Mode::Sync), &Ok(outcome(9, true)), &[])),
        ("async", client_page(&plan(Mode::Async), &Ok(outcome(9, false)), &[])),
        ("one interval", client_page(&plan(Mode::Sync), &Ok(outcome(1, true)), &[])),
        ("nothing", client_page(&plan(Mode::Sync), &Ok(outcome(0, true)), &[])),
        ("refused", client_page(&plan(Mode::Sync), &Err(NetError::Refused("busy".into())), &[])),
        ("troubled", client_page(&plan(Mode::Sync), &Ok(troubled), &[])),
        ("stopped", client_page(&plan(Mode::Async), &Ok(stopped), &[])),
        ("sweep", sweep_page(&found(), &Ok(()))),
        ("sweep stopped", sweep_page(&found(), &Err(interrupted()))),
        ("sweep of nothing", sweep_page(&Sweep::default(), &Err(cut()))),
        ("advice", advice_page(&findings, Some((&measured, &advice)), &Ok(()))),
        ("advice stopped", advice_page(&findings, None, &Err(interrupted()))),
        ("advice of nothing", advice_page(&Findings::default(), None, &Err(cut()))),
        ("placeholder", placeholder(&identity())),
    ]
}

fn parsed(page: &str) -> Document<'_> {
    Document::parse_with_options(page, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() })
        .unwrap()
}

/// All words that a reader sees, without the style.
fn seen(page: &str) -> String {
    let document = parsed(page);
    let texts = document.descendants().filter(|node| node.is_text());
    let style = |node: Node<'_, '_>| node.parent().is_some_and(|parent| parent.has_tag_name("style"));
    texts
        .filter(|node| !style(*node))
        .filter_map(|node| node.text().map(str::to_owned))
        .collect::<Vec<_>>()
        .join(" ")
}

fn says(name: &str, page: &str, words: &str) {
    assert!(seen(page).contains(words), "{name}: {words:?} is not in: {}", seen(page));
}

#[test]
fn every_page_is_well_formed_and_loads_nothing() {
    for (name, page) in pages() {
        assert!(page.starts_with(MARK), "{name}");
        assert!(page.len() < MOST_BYTES, "{name}: {} bytes", page.len());
        let document = parsed(&page);
        let elements: Vec<Node<'_, '_>> = document.descendants().filter(Node::is_element).collect();
        let mut ids = HashSet::new();
        for element in &elements {
            let tag = element.tag_name().name();
            assert!(
                !["script", "link", "img", "iframe", "object", "embed", "base"].contains(&tag),
                "{name}: {tag}"
            );
            for attribute in element.attributes() {
                let (key, value) = (attribute.name(), attribute.value());
                assert!(
                    !["src", "href", "style", "srcset"].contains(&key) && !key.starts_with("on"),
                    "{name}: {key}"
                );
                assert!(key != "id" || ids.insert(value), "{name}: {value} twice");
            }
        }
        for element in elements.iter().filter(|element| element.has_tag_name("svg")) {
            // What a screen reader reads instead of the drawing, and the numbers beside it.
            let named = element.attribute("aria-labelledby").unwrap();
            assert!(
                named.split(' ').count() == 2 && named.split(' ').all(|id| ids.contains(id)),
                "{name}: {named}"
            );
            let figure = element.ancestors().find(|node| node.has_tag_name("figure")).unwrap();
            assert!(figure.descendants().any(|node| node.has_tag_name("tbody")), "{name}: {named}");
        }
        let style = document.descendants().find(|node| node.has_tag_name("style")).unwrap().text().unwrap();
        assert!(!style.contains("url(") && !style.contains("@import"));
        for words in ["alpha", "2026-11-21", "standfast "] {
            says(name, &page, words);
        }
        for nonsense in ["NaN", "inf ", "-0.000"] {
            assert!(!seen(&page).contains(nonsense), "{name}: {nonsense}");
        }
    }
}

/// Every number of the document as the page writes it: MiB/s for rates, milliseconds for times.
fn figures(value: &Value, place: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| figures(value, &format!("{place}/{name}"), found));
        }
        Value::Array(items) => items.iter().for_each(|item| figures(item, place, found)),
        Value::Number(number) => {
            let number = number.as_f64().unwrap();
            let name = place.rsplit('/').next().unwrap();
            let said = match name {
                "bytes_per_second" | "required" | "peak" => format!("{:.3}", number / 1_048_576.0),
                "mean" | "p50" | "p99" | "max" | "min_rtt" | "round_trip" | "commit" | "fastsync_gain" => {
                    format!("{:.3}", number * 1e3)
                }
                "messages" | "retransmissions" | "count" => format!("{number}"),
                _ => return,
            };
            found.push((place.to_owned(), said));
        }
        _ => {}
    }
}

fn has_figures_of(name: &str, page: &str, document: &Value, least: usize) {
    let mut found = Vec::new();
    figures(document, "", &mut found);
    assert!(found.len() >= least, "{name}: {found:?}");
    for (place, figure) in found {
        assert!(seen(page).contains(&figure), "{name}: {place} {figure}");
    }
}

#[test]
fn a_page_has_the_figures_of_its_json() {
    for (mode, least) in [(Mode::Sync, 60), (Mode::Async, 20)] {
        let outcome = Ok(outcome(9, mode == Mode::Sync));
        let mut document = report::json(&target(), &plan(mode), &outcome);
        let page = client_page(&plan(mode), &outcome, &[]);
        // Of an interval the page has the mean of both parts, as the screen.
        for interval in document["intervals"].as_array_mut().unwrap() {
            for part in ["network", "disk"] {
                if let Some(part) = interval["latency"].get_mut(part) {
                    *part = serde_json::json!({ "mean": part["mean"] });
                }
            }
            interval["min_rtt"] = Value::Null;
            interval["latency"]["count"] = Value::Null;
        }
        has_figures_of("client", &page, &document, least);
        for pair in ["distribution", "distribution_network", "distribution_disk"] {
            for pair in document["summary"][pair].as_array().unwrap() {
                says(pair.to_string().as_str(), &page, &format!("{:.3} ms", pair[1].as_f64().unwrap() * 1e3));
            }
        }
    }
    let findings = findings();
    has_figures_of("sweep", &sweep_page(&findings.sweep, &Ok(())), &findings.sweep.document(), 16);
    let measured = measured(&findings, 30e6);
    let advice = standfast_net::advice::advise(&measured);
    let page = advice_page(&findings, Some((&measured, &advice)), &Ok(()));
    has_figures_of("advice", &page, &serde_json::to_value(&advice).unwrap(), 4);
    has_figures_of("advice", &page, &findings.sweep.document(), 16);
    for latency in [measured.fastsync, measured.affirm] {
        has_figures_of("advice", &page, &serde_json::json!({ "total": latency.unwrap().total }), 4);
    }
}

#[test]
fn a_page_says_how_its_test_ended() {
    let pages: std::collections::HashMap<_, _> = pages().into_iter().collect();
    for (name, words) in [
        ("sync", "The test ran to its end."),
        ("refused", "FAILED refused: the server refused the test: busy"),
        ("troubled", "FAILED protocol: cut off"),
        ("stopped", "INTERRUPTED"),
        ("sweep stopped", "INTERRUPTED"),
        ("sweep of nothing", "No setting was tried."),
        ("advice stopped", "There is no verdict"),
        ("placeholder", "NO RESULT"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let page = seen(&pages[name]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(&words.join(" ")), "{name}: {page}");
    }
    let criteria = [("p99>5ms".to_owned(), Some("found 7 ms".to_owned())), ("max>1s".to_owned(), None)];
    let judged = client_page(&plan(Mode::Sync), &Ok(outcome(2, true)), &criteria);
    says("criteria", &judged, "p99>5ms: met (found 7 ms)");
    says("criteria", &judged, "max>1s: not met");
    assert!(!seen(&judged).contains("ran to its end"));
}

#[test]
fn the_verdict_comes_before_the_settings_and_they_before_the_measurements() {
    let findings = findings();
    for (peak, grade) in [(1e6, Grade::Warn), (30e6, Grade::Warn), (90e6, Grade::Fail)] {
        let measured = measured(&findings, peak);
        let advice = standfast_net::advice::advise(&measured);
        let page = advice_page(&findings, Some((&measured, &advice)), &Ok(()));
        let order: Vec<Option<usize>> = ["Verdict", "Settings for both hosts", "Measurements", "Conditions"]
            .map(|head| page.find(&format!("<h2>{head}")))
            .into();
        assert!(order[0].is_some() && order.is_sorted(), "{order:?}");
        for verdict in &advice.verdicts {
            says("verdict", &page, verdict.mode);
            for cause in &verdict.causes {
                says("cause", &page, &cause.text);
            }
        }
        assert_eq!(advice.verdicts.iter().map(|verdict| verdict.grade).max(), Some(grade));
        says("grade", &page, &grade.to_string());
        let document = parsed(&page);
        let lines =
            document.descendants().find(|node| node.has_tag_name("pre")).and_then(|pre| pre.text()).unwrap();
        assert_eq!(lines.lines().collect::<Vec<_>>(), advice.settings);
    }
}

#[test]
fn a_day_of_intervals_and_many_connections_stay_small_and_a_foreign_name_stays_text() {
    let mut long = outcome(86_400, true);
    long.streams = vec![1_234_567_890; 256];
    let hostile = "</title><script>alert('1')</script>&\"\u{1b}[2J";
    let plan = Plan {
        payload: Payload::File { name: hostile.into(), content: vec![1].into() },
        streams: 256,
        ..plan(Mode::Sync)
    };
    long.congestion = Some(hostile.into());
    long.trouble = Some(NetError::Protocol(hostile.into()));
    let identity = Identity { host: hostile.into(), ..identity() };
    let target = Target { host: hostile.into(), port: 7460 };
    let outcome = Ok(long);
    let page = client::page_of(&ClientReport {
        identity: &identity,
        target: &target,
        plan: &plan,
        outcome: &outcome,
        criteria: &[(hostile.into(), Some(hostile.into()))],
    });
    assert!(page.len() < MOST_BYTES, "{} bytes", page.len());
    let shown = hostile.replace('\u{1b}', "\u{fffd}");
    assert!(seen(&page).matches(&shown).count() >= 6, "{}", seen(&page));
    assert!(!parsed(&page).descendants().any(|node| node.has_tag_name("script")));
}
