//! Tests in which the server sends, alone or while the client does.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Running, scratch, test};
use standfast_net::NetError;
use standfast_net::loaded::run_loaded;
use standfast_net::outcome::Event;
use standfast_net::plan::{Direction, Directions, Mode, Payload, Plan};
use standfast_net::run::run;
use standfast_net::units::Extent;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn reverse(plan: Plan) -> Plan {
    Plan {
        directions: match plan.directions {
            Directions::Both => Directions::Both,
            _ => Directions::FromServer,
        },
        duration: Extent::Time(Duration::from_millis(400)),
        interval: Duration::from_millis(100),
        timeout: Some(Duration::from_secs(20)),
        ..plan
    }
}

#[test]
fn reverse_async_test_counts_what_the_client_received() {
    let server = Running::start("reverse-async");
    let plan = reverse(Plan { mode: Mode::Async, length: 100_000, streams: 2, ..Plan::default() });
    let outcome = test(&server, &plan);
    assert!(outcome.error.is_none() && outcome.reverse.is_none());
    assert_eq!(outcome.direction, Direction::FromServer);
    assert!(outcome.streams.iter().all(|bytes| *bytes > 0 && bytes % 100_000 == 0));
    assert_eq!(outcome.total.bytes, outcome.streams.iter().sum::<u64>());
    assert_eq!(outcome.total.bytes, outcome.total.messages * 100_000);
    // Figures that only the sender knows came with the stream.
    assert!(outcome.total.tcp.min_rtt.is_some() && outcome.total.tcp.congestion_window > 0);
    assert!(outcome.total.tcp.sack && outcome.congestion.is_some() && outcome.buffers.send > 0);
    assert!(outcome.total.limit.is_some() && outcome.latency().is_none());
}

#[test]
fn reverse_sync_test_measures_at_server_and_writes_at_client() {
    let server = Running::start("reverse-sync");
    let directory = scratch("reverse-sync-near");
    let file = directory.join("near");
    let plan = Plan { write: true, length: 8192, file: file.clone(), ..Plan::default() };
    let outcome = test(&server, &reverse(plan));
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    let latency = outcome.latency().unwrap();
    assert_eq!(latency.count, outcome.total.messages);
    assert!(latency.disk.mean > 0.0 && latency.network.mean > 0.0);
    let product = outcome.total.rate() * latency.total.mean;
    assert!((0.5..1.01).contains(&(product / 8192.0)), "{product}");
    // The write went to this side's disk, and no file is left behind.
    assert!(!file.exists() && !server.file().exists());
    std::fs::remove_dir_all(directory).unwrap();

    let outcome = test(&server, &reverse(Plan { length: 0, ..Plan::default() }));
    assert!(outcome.total.bytes == 0 && outcome.latency().unwrap().count > 10);
}

#[test]
fn receiving_client_never_writes_a_foreign_file() {
    let server = Running::start("reverse-foreign");
    let file = scratch("reverse-foreign").join("precious");
    std::fs::write(&file, "my thesis").unwrap();
    let plan = reverse(Plan { write: true, file: file.clone(), ..Plan::default() });
    let refused = run(&server.target(), &plan, &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(refused.err(), Some(NetError::File { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), b"my thesis");
}

#[test]
fn both_directions_run_concurrently_with_their_own_figures() {
    let server = Running::start("both");
    for mode in [Mode::Async, Mode::Sync] {
        let plan = Plan { directions: Directions::Both, mode, length: 50_000, ..Plan::default() };
        let plan = Plan { payload: Payload::Zero, ..reverse(plan) };
        let mut rows = [0, 0];
        let outcome = run(&server.target(), &plan, &AtomicBool::new(false), &mut |event| {
            if let Event::Row(direction, interval) = event {
                assert!(interval.seconds > 0.0);
                rows[usize::from(direction == Direction::FromServer)] += 1;
            }
        })
        .unwrap();
        assert!(outcome.error.is_none());
        let other = outcome.reverse.as_deref().unwrap();
        assert_eq!((outcome.direction, other.direction), (Direction::ToServer, Direction::FromServer));
        assert!(outcome.total.bytes > 0 && other.total.bytes > 0);
        assert_eq!([outcome.intervals.len(), other.intervals.len()], rows);
        assert_eq!(other.latency().is_some(), mode == Mode::Sync);
        assert!(rows.iter().all(|rows| *rows >= 3), "{rows:?}");
        // Both lasted as long as requested, so they ran at the same time.
        assert!((0.35..3.0).contains(&other.total.seconds) && (0.35..3.0).contains(&outcome.total.seconds));
    }
}

#[test]
fn byte_amount_is_sent_exactly_in_each_direction() {
    let server = Running::start("reverse-bytes");
    for mode in [Mode::Sync, Mode::Async] {
        let plan = reverse(Plan { directions: Directions::Both, mode, ..Plan::default() });
        let plan = Plan { streams: 3, length: 3000, random_length: true, ..plan };
        let outcome = test(&server, &Plan { duration: Extent::Bytes(1_000_001), ..plan });
        assert!(outcome.error.is_none());
        for one in outcome.directions() {
            assert_eq!(one.total.bytes, 1_000_001, "{mode:?} {:?}", one.direction);
        }
    }
}

#[test]
fn messages_longer_than_the_server_buffer_arrive_complete() {
    let server = Running::start("reverse-long");
    let plan = reverse(Plan { length: 3_000_001, ..Plan::default() });
    for mode in [Mode::Sync, Mode::Async] {
        let outcome = test(&server, &Plan { mode, ..plan.clone() });
        assert!(outcome.error.is_none() && outcome.total.messages > 0);
        assert_eq!(outcome.total.bytes, outcome.total.messages * 3_000_001);
    }
}

#[test]
fn reverse_test_ends_in_time_although_the_server_pauses() {
    let server = Running::start("reverse-rate");
    let plan = reverse(Plan { length: 1000, rate: Some(100_000.0), ..Plan::default() });
    let outcome = test(&server, &plan);
    assert!((35..=45).contains(&outcome.total.messages), "{}", outcome.total.messages);
    // The second message would be due in half an hour.
    let slow = Plan { delay: Duration::from_secs(1800), ..reverse(Plan { length: 1000, ..Plan::default() }) };
    let began = Instant::now();
    let outcome = test(&server, &slow);
    assert!(outcome.error.is_none() && outcome.total.messages == 1);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn reverse_test_omits_warm_up_and_keeps_interrupted_figures() {
    let server = Running::start("reverse-omit");
    let plan = reverse(Plan { mode: Mode::Async, length: 1000, ..Plan::default() });
    let plan = Plan { omit: Duration::from_millis(200), ..plan };
    let began = Instant::now();
    let outcome = test(&server, &plan);
    let most = began.elapsed().as_secs_f64() - 0.2;
    assert!(outcome.total.seconds < most, "{} of {most}", outcome.total.seconds);
    let rows: u64 = outcome.intervals.iter().map(|row| row.messages).sum();
    assert!(rows > 0 && outcome.total.messages >= rows);

    let stop = AtomicBool::new(false);
    let plan = Plan { duration: Extent::Endless, omit: Duration::ZERO, ..plan };
    let outcome = run(&server.target(), &plan, &stop, &mut |event| {
        if let Event::Row(..) = event {
            stop.store(true, Ordering::Relaxed);
        }
    })
    .unwrap();
    assert!(outcome.interrupted && outcome.error.is_none() && outcome.total.bytes > 0);
}

#[test]
fn round_trips_are_measured_before_and_during_the_load() {
    let server = Running::start("loaded");
    for directions in [Directions::ToServer, Directions::Both] {
        let plan = Plan { directions, ..reverse(Plan { mode: Mode::Async, ..Plan::default() }) };
        let mut rows = 0;
        let outcome = run_loaded(&server.target(), &plan, &AtomicBool::new(false), &mut |event| {
            rows += usize::from(matches!(event, Event::Row(..)));
        })
        .unwrap();
        assert!(outcome.error.is_none() && outcome.total.bytes > 0);
        // The rows are those of the load alone.
        assert_eq!(rows, outcome.directions().map(|one| one.intervals.len()).sum::<usize>());
        let trips = outcome.round_trips.unwrap();
        assert!(trips.idle.unwrap().count > 20 && trips.loaded.unwrap().count > 5, "{trips:?}");
        assert!(trips.growth().unwrap().0 > 0.0);
    }
    // A second connection that the server refuses fails the test before it begins.
    let plan = reverse(Plan { mode: Mode::Async, streams: common::CONNECTIONS as u16, ..Plan::default() });
    let refused = run_loaded(&server.target(), &plan, &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(refused.err(), Some(NetError::Refused(_))));
}
