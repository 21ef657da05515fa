//! The pages of `--html`: well-formed, self-contained, with the figures of the same results as JSON.

#![allow(clippy::unwrap_used)]

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;
use standfast_net::advice::{Advice, Findings, Grade, Measured, Way};
use standfast_net::auth::Key;
use standfast_net::html::advise::AdviceReport;
use standfast_net::html::client::{ClientReport, Judged};
use standfast_net::html::page::{Identity, SIGNATURE, placeholder};
use standfast_net::html::sweep::SweepReport;
use standfast_net::html::{advise, client, sweep};
use standfast_net::limit::Limit;
use standfast_net::outcome::{Buffers, Outcome, RoundTrips};
use standfast_net::plan::{Direction, Directions, Mode, Payload, Plan};
use standfast_net::search::{Sweep, Tried};
use standfast_net::stats::{Interval, Latencies, Tcp};
use standfast_net::stream::Target;
use standfast_net::{NetError, Result, report};
use std::collections::HashSet;
use std::time::{Duration, UNIX_EPOCH};

/// Every page must stay below this.
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
    Target { host: "beta".into(), port: 7460, key: None }
}

/// Intervals repeat after this many.
const PATTERN: u32 = 9;

/// Returns a run of `intervals` intervals; with `latency` its messages waited, partly for the disk.
fn outcome(intervals: u32, latency: bool) -> Outcome {
    let (mut all, mut rows, mut figures) = (Latencies::default(), Vec::new(), Vec::new());
    // Intervals repeat: a histogram for each interval of a day would take the test minutes.
    for number in 0..intervals.min(PATTERN) {
        let mut latencies = Latencies::default();
        for message in 0..if latency { 40 } else { 0 } {
            latencies.record(1_234_567 + 7_919 * u64::from(message * (number + 1)), 345_678, 54_321);
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
        direction: Direction::ToServer,
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
        error: None,
        interrupted: false,
        round_trips: None,
        reverse: None,
    }
}

/// Returns a test in both directions, with different figures in each, and round trips beside it.
fn both_ways(latency: bool) -> Outcome {
    let trips = |intervals| outcome(intervals, true).latency();
    Outcome {
        round_trips: Some(RoundTrips { idle: trips(1), loaded: trips(5) }),
        reverse: Some(Box::new(from_server(outcome(4, latency)))),
        ..outcome(9, latency)
    }
}

fn from_server(outcome: Outcome) -> Outcome {
    Outcome { direction: Direction::FromServer, ..outcome }
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

fn client_page(plan: &Plan, outcome: &Result<Outcome>, criteria: &[Judged]) -> String {
    let (identity, target) = (identity(), target());
    let loaded = outcome.as_ref().is_ok_and(|outcome| outcome.round_trips.is_some());
    client::page_of(&ClientReport { identity: &identity, target: &target, plan, loaded, outcome, criteria })
}

fn sweep_page(directions: Directions, ways: &[(Direction, Sweep)], ended: &Result<()>) -> String {
    let (identity, target) = (identity(), target());
    sweep::page_of(&SweepReport {
        identity: &identity,
        target: &target,
        directions,
        options: vec![("most connections tried", "32".into())],
        round_trip: Some(0.012_345),
        ways,
        ended,
    })
}

fn found_both() -> Vec<(Direction, Sweep)> {
    let back = Sweep { outcomes: (0..6).map(|_| from_server(outcome(3, false))).collect(), ..found() };
    vec![(Direction::ToServer, found()), (Direction::FromServer, back)]
}

/// Returns round trips that take about this long.
fn trips(nanoseconds: u64) -> Outcome {
    let mut latencies = Latencies::default();
    for number in 0..40 {
        latencies.record(nanoseconds + 1_009 * number, 0, 0);
    }
    let run = outcome(2, false);
    let total = Interval { latency: latencies.figures(), ..run.total };
    Outcome { latencies, total, ..run }
}

fn findings() -> Findings {
    Findings {
        idle: Some(trips(12_345_678)),
        fastsync: Some(outcome(3, true)),
        affirm: Some(outcome(4, true)),
        sweep: found(),
        paced: Some(outcome(5, false)),
        loaded: Some(trips(45_678_901)),
    }
}

fn findings_back() -> Findings {
    let turned = |run: Option<Outcome>| run.map(from_server);
    let Findings { idle, fastsync, affirm, mut sweep, paced, loaded } = findings();
    sweep.outcomes = sweep.outcomes.into_iter().map(from_server).collect();
    Findings {
        fastsync: turned(fastsync),
        affirm: turned(affirm),
        paced: turned(paced),
        sweep,
        // Round trips are always measured by the client.
        idle,
        loaded,
    }
}

fn measured(findings: &Findings, peak: f64) -> Measured {
    let latency = |run: &Option<Outcome>| run.as_ref().and_then(Outcome::latency);
    Measured {
        peak,
        redo_write: 8192,
        round_trip: findings.round_trip().unwrap(),
        idle: latency(&findings.idle),
        loaded: latency(&findings.loaded),
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
        ceiling: Some(212_992),
        automatic_ceiling: Some(425_984),
    }
}

/// Returns a direction whose tests completed.
fn judged(direction: Direction, peak: f64) -> Way {
    let findings = match direction {
        Direction::ToServer => findings(),
        Direction::FromServer => findings_back(),
    };
    let measured = measured(&findings, peak);
    let advice = standfast_net::advice::advise(&measured);
    Way { direction, findings, judged: Some((measured, advice)) }
}

/// Returns a direction whose tests did not complete.
fn unjudged(direction: Direction, findings: Findings) -> Way {
    Way { direction, findings, judged: None }
}

fn advice_page(directions: Directions, ways: &[Way], ended: &Result<()>) -> String {
    let (identity, target) = (identity(), target());
    advise::page_of(&AdviceReport {
        identity: &identity,
        target: &target,
        directions,
        options: vec![("redo write", "8 kbytes".into())],
        history: None,
        ways,
        ended,
    })
}

/// Returns one page of every kind, good and bad.
fn pages() -> Vec<(&'static str, String)> {
    use Direction::{FromServer, ToServer};
    let cut = || NetError::Protocol("cut off".into());
    let interrupted = || NetError::Interrupted { doing: "testing settings" };
    let (one, both) = (Directions::ToServer, Directions::Both);
    let there = || vec![(ToServer, found())];
    let way_back = [(ToServer, found()), (FromServer, Sweep::default())];
    let (ok, stopped_early, failed) = (Ok(()), Err(interrupted()), Err(cut()));
    let broken = Outcome { error: Some(cut()), ..outcome(2, true) };
    let stopped = Outcome { interrupted: true, ..outcome(1, false) };
    let back = Plan { directions: Directions::FromServer, ..plan(Mode::Sync) };
    vec![
        ("sync", client_page(&plan(Mode::Sync), &Ok(outcome(9, true)), &[])),
        ("async", client_page(&plan(Mode::Async), &Ok(outcome(9, false)), &[])),
        ("one interval", client_page(&plan(Mode::Sync), &Ok(outcome(1, true)), &[])),
        ("nothing", client_page(&plan(Mode::Sync), &Ok(outcome(0, true)), &[])),
        ("refused", client_page(&plan(Mode::Sync), &Err(NetError::Refused("busy".into())), &[])),
        ("broken", client_page(&plan(Mode::Sync), &Ok(broken), &[])),
        ("stopped", client_page(&plan(Mode::Async), &Ok(stopped), &[])),
        ("reverse", client_page(&back, &Ok(from_server(outcome(9, true))), &[])),
        ("both", client_page(&plan_both(Mode::Sync), &Ok(both_ways(true)), &[])),
        ("both async", client_page(&plan_both(Mode::Async), &Ok(both_ways(false)), &[])),
        ("sweep", sweep_page(one, &there(), &ok)),
        ("sweep both", sweep_page(both, &found_both(), &ok)),
        ("sweep stopped", sweep_page(one, &there(), &stopped_early)),
        ("sweep stopped on the way back", sweep_page(both, &way_back, &stopped_early)),
        ("sweep of nothing", sweep_page(one, &[], &failed)),
        ("advice", advice_page(one, &[judged(ToServer, 30e6)], &ok)),
        ("advice both", advice_page(both, &[judged(ToServer, 30e6), judged(FromServer, 30e6)], &ok)),
        ("advice stopped", advice_page(one, &[unjudged(ToServer, findings())], &stopped_early)),
        (
            "advice stopped on the way back",
            advice_page(
                both,
                &[judged(ToServer, 30e6), unjudged(FromServer, findings_back())],
                &stopped_early,
            ),
        ),
        ("advice of nothing", advice_page(one, &[unjudged(ToServer, Findings::default())], &failed)),
        ("placeholder", placeholder(&identity())),
    ]
}

fn plan_both(mode: Mode) -> Plan {
    Plan { directions: Directions::Both, file: "/near/file".into(), ..plan(mode) }
}

fn parsed(page: &str) -> Document<'_> {
    Document::parse_with_options(page, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() })
        .unwrap()
}

/// Returns all words that a reader sees, without the style.
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
        assert!(page.starts_with(SIGNATURE), "{name}");
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
            // The text that a screen reader reads instead of the drawing, and the numbers beside it.
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

/// Collects every number of the document as the page writes it: MiB/s for rates, milliseconds for times.
fn figures(value: &Value, place: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| figures(value, &format!("{place}/{name}"), found));
        }
        Value::Array(items) => items.iter().for_each(|item| figures(item, place, found)),
        Value::Number(number) => {
            let number = number.as_f64().unwrap();
            let name = place.rsplit('/').next().unwrap();
            let printed = match name {
                "bytes_per_second" | "required" | "peak" => format!("{:.3}", number / 1_048_576.0),
                "mean" | "p50" | "p99" | "max" | "min_rtt" | "round_trip" | "commit" | "fastsync_gain" => {
                    format!("{:.3}", number * 1e3)
                }
                "messages" | "retransmissions" | "count" => format!("{number}"),
                _ => return,
            };
            found.push((place.to_owned(), printed));
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
        let waits = mode == Mode::Sync;
        for (plan, outcome) in [(plan(mode), outcome(9, waits)), (plan_both(mode), both_ways(waits))] {
            let outcome = Ok(outcome);
            let mut document = report::json(&target(), &plan, &outcome);
            let page = client_page(&plan, &outcome, &[]);
            without_what_no_page_has(&mut document);
            has_figures_of("client", &page, &document, least);
            for way in [&document, &document["reverse"]].into_iter().filter(|way| way["summary"].is_object())
            {
                has_distributions_of(&page, way);
            }
        }
    }
    let both = found_both();
    let page = sweep_page(Directions::Both, &both, &Ok(()));
    for (_, sweep) in &both {
        has_figures_of("sweep", &page, &sweep.document(), 16);
    }
    let ways = [judged(Direction::ToServer, 30e6), judged(Direction::FromServer, 30e6)];
    let page = advice_page(Directions::Both, &ways, &Ok(()));
    for Way { findings, judged, .. } in &ways {
        let (measured, advice) = judged.as_ref().unwrap();
        has_figures_of("advice", &page, &serde_json::to_value(advice).unwrap(), 4);
        has_figures_of("advice", &page, &findings.sweep.document(), 16);
        for latency in [measured.fastsync, measured.affirm] {
            has_figures_of("advice", &page, &serde_json::json!({ "total": latency.unwrap().total }), 4);
        }
        let loaded = measured.loaded.unwrap().total.p50;
        says("advice", &page, &format!("{:.3} ms while one connection fills the link", loaded * 1e3));
    }
}

/// Removes what the page lacks. Of an interval it has the mean of each part, as the screen has; of round trips it has
/// the total.
fn without_what_no_page_has(document: &mut Value) {
    for intervals in ["/intervals", "/reverse/intervals"] {
        for interval in document.pointer_mut(intervals).and_then(Value::as_array_mut).into_iter().flatten() {
            for part in ["network", "disk", "waking"] {
                if let Some(part) = interval["latency"].get_mut(part) {
                    *part = serde_json::json!({ "mean": part["mean"] });
                }
            }
            interval["min_rtt"] = Value::Null;
            interval["latency"]["count"] = Value::Null;
        }
    }
    for link in ["idle", "loaded"] {
        for part in ["network", "disk", "waking"] {
            if let Some(part) = document.pointer_mut(&format!("/round_trips/{link}/{part}")) {
                *part = Value::Null;
            }
        }
    }
    if let Some(growth) = document.pointer_mut("/round_trips/growth") {
        *growth = Value::Null;
    }
}

fn has_distributions_of(page: &str, way: &Value) {
    for pair in ["distribution", "distribution_network", "distribution_disk"] {
        for pair in way["summary"][pair].as_array().unwrap() {
            says(pair.to_string().as_str(), page, &format!("{:.3} ms", pair[1].as_f64().unwrap() * 1e3));
        }
    }
}

#[test]
fn every_figure_belongs_to_a_direction_shown_on_the_page() {
    let there = ["to server"].as_slice();
    let both = ["to server", "from server"].as_slice();
    for (name, page) in pages() {
        let ways = match name {
            "refused" | "placeholder" | "sweep of nothing" => continue,
            "reverse" => &["from server"],
            name if name.contains("both") || name.contains("back") => both,
            _ => there,
        };
        let document = parsed(&page);
        let named = |node: Node<'_, '_>| {
            let text: String =
                node.descendants().filter(Node::is_text).filter_map(|text| text.text()).collect();
            ways.iter().any(|way| text.contains(way))
                || text == "Conditions"
                || text == "Round trips beside the test"
        };
        for (tag, least) in [("h2", 1), ("figcaption", 0)] {
            let nodes: Vec<Node<'_, '_>> =
                document.descendants().filter(|node| node.has_tag_name(tag)).collect();
            assert!(nodes.len() >= least * ways.len(), "{name}: {}", nodes.len());
            for node in nodes {
                assert!(named(node), "{name}: {:?}", node.text());
            }
        }
        for way in ways {
            says(name, &page, way);
        }
        let drawn = document.descendants().filter(|node| node.has_tag_name("figure")).count();
        assert!(["nothing", "advice of nothing"].contains(&name) || drawn >= ways.len(), "{name}: {drawn}");
    }
}

#[test]
fn page_shows_the_test_conditions_but_never_the_key() {
    let secret = "correct horse battery staple";
    let target = Target { key: Key::new(secret.as_bytes()), ..target() };
    let (identity, outcome) = (identity(), Ok(both_ways(true)));
    let page = client::page_of(&ClientReport {
        identity: &identity,
        target: &target,
        plan: &plan_both(Mode::Sync),
        loaded: true,
        outcome: &outcome,
        criteria: &[],
    });
    for words in [
        "to server and from server at the same time",
        "durable write at both receivers",
        "/near/file",
        "round trips beside the test",
        "shared secret",
        "proved by both sides",
    ] {
        says("conditions", &page, words);
    }
    assert!(!page.contains("horse"));
    let without = client_page(&plan(Mode::Sync), &outcome, &[]);
    assert!(!seen(&without).contains("proved by both sides"));
}

#[test]
fn a_page_says_how_its_test_ended() {
    let pages: std::collections::HashMap<_, _> = pages().into_iter().collect();
    for (name, words) in [
        ("sync", "The test ran to its end."),
        ("refused", "FAILED refused: the server refused the test: busy"),
        ("broken", "FAILED protocol: cut off"),
        ("stopped", "INTERRUPTED"),
        ("sweep stopped", "INTERRUPTED"),
        ("sweep of nothing", "No setting was tried."),
        ("advice stopped", "There is no verdict to server: it needs all tests."),
        ("advice stopped on the way back", "There is no verdict from server: it needs all tests."),
        ("sweep stopped on the way back", "from server: no setting was tried."),
        ("sweep stopped on the way back", "BEST to server: socket buffers"),
        ("sweep both", "BEST from server: socket buffers"),
        ("placeholder", "NO RESULT"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let page = seen(&pages[name]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(&words.join(" ")), "{name}: {page}");
    }
    let criterion = |criterion: &str, direction, met: Option<&str>| Judged {
        criterion: criterion.into(),
        direction,
        met: met.map(str::to_owned),
    };
    let criteria = [
        criterion("p99>5ms", Direction::ToServer, Some("found 7 ms")),
        criterion("max>1s", Direction::FromServer, None),
    ];
    let judged = client_page(&plan(Mode::Sync), &Ok(outcome(2, true)), &criteria);
    says("criteria", &judged, "p99>5ms, to server: met (found 7 ms)");
    says("criteria", &judged, "max>1s, from server: not met");
    assert!(!seen(&judged).contains("ran to its end"));
}

#[test]
fn page_shows_verdict_then_settings_then_measurements() {
    for (peak, grade) in [(1e6, Grade::Warn), (30e6, Grade::Warn), (90e6, Grade::Fail)] {
        let way = judged(Direction::ToServer, peak);
        let page = advice_page(Directions::ToServer, std::slice::from_ref(&way), &Ok(()));
        let advice: &Advice = &way.judged.as_ref().unwrap().1;
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
fn page_of_a_long_test_stays_small_and_escapes_foreign_names() {
    let mut long = outcome(86_400, true);
    long.streams = vec![1_234_567_890; 256];
    let hostile = "</title><script>alert('1')</script>&\"\u{1b}[2J";
    let plan = Plan {
        payload: Payload::File { name: hostile.into(), content: vec![1].into() },
        streams: 256,
        ..plan(Mode::Sync)
    };
    long.congestion = Some(hostile.into());
    long.error = Some(NetError::Protocol(hostile.into()));
    let identity = Identity { host: hostile.into(), ..identity() };
    let target = Target { host: hostile.into(), port: 7460, key: None };
    let outcome = Ok(long);
    let page = client::page_of(&ClientReport {
        identity: &identity,
        target: &target,
        plan: &plan,
        outcome: &outcome,
        loaded: true,
        criteria: &[Judged {
            criterion: hostile.into(),
            direction: Direction::ToServer,
            met: Some(hostile.into()),
        }],
    });
    assert!(page.len() < MOST_BYTES, "{} bytes", page.len());
    let shown = hostile.replace('\u{1b}', "\u{fffd}");
    assert!(seen(&page).matches(&shown).count() >= 6, "{}", seen(&page));
    assert!(!parsed(&page).descendants().any(|node| node.has_tag_name("script")));
}
