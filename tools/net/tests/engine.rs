//! Client and server over loopback, and a server with misbehaving clients.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Running, scratch, test};
use standfast_net::NetError;
use standfast_net::outcome::Event;
use standfast_net::plan::{Direction, Mode, Plan};
use standfast_net::run::run;
use standfast_net::units::Extent;
use standfast_net::wire::{
    ANSWER_BYTES, Answer, Answered, HEADER_BYTES, Header, Hello, Kind, Status, VERSION,
};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn short(plan: Plan) -> Plan {
    Plan {
        duration: Extent::Time(Duration::from_millis(300)),
        interval: Duration::from_millis(100),
        timeout: Some(Duration::from_secs(20)),
        ..plan
    }
}

#[test]
fn sync_write_test_separates_network_and_disk_time() {
    let server = Running::start("sync-write");
    let outcome = test(&server, &short(Plan { write: true, length: 8192, ..Plan::default() }));
    assert!(outcome.error.is_none());
    let latency = outcome.latency().unwrap();
    assert_eq!(latency.count, outcome.total.messages);
    assert!(latency.disk.mean > 0.0 && latency.network.mean > 0.0);
    let parts = latency.disk.mean + latency.network.mean + latency.waking.mean;
    assert!((parts - latency.total.mean).abs() < 1e-9);
    // Waking a program always takes some time; it is measured for messages after slow ones.
    assert!(latency.total.p50 < 0.000_2 || latency.waking.max > 0.0, "{latency:?}");
    // One connection, SYNC: throughput x latency = length, less the time between two messages in which the client works
    // or is not scheduled.
    let product = outcome.total.rate() * latency.total.mean;
    assert!((0.1..1.01).contains(&(product / 8192.0)), "{product}");
    assert!(outcome.intervals.len() >= 3);
    assert!(outcome.intervals.iter().map(|row| row.bytes).sum::<u64>() <= outcome.total.bytes);
}

#[test]
fn async_test_counts_what_the_server_received_per_connection() {
    let server = Running::start("async");
    let plan = short(Plan { mode: Mode::Async, length: 100_000, streams: 3, ..Plan::default() });
    let outcome = test(&server, &plan);
    assert!(outcome.error.is_none());
    assert_eq!(outcome.streams.len(), 3);
    assert!(outcome.streams.iter().all(|bytes| *bytes > 0 && bytes % 100_000 == 0));
    assert_eq!(outcome.total.bytes, outcome.streams.iter().sum::<u64>());
    assert_eq!(outcome.total.bytes, outcome.total.messages * 100_000);
    assert!(outcome.latency().is_none());
    assert!(outcome.total.tcp.min_rtt.is_some() && outcome.total.limit.is_some());
}

#[test]
fn async_write_test_reports_time_spent_on_the_disk() {
    let server = Running::start("async-write");
    let plan = short(Plan { mode: Mode::Async, write: true, length: 16384, ..Plan::default() });
    let outcome = test(&server, &plan);
    assert!(outcome.total.disk_share > 0.1, "{}", outcome.total.disk_share);
    assert!(outcome.total.bytes > 0);
}

#[test]
fn duration_in_bytes_sends_exactly_that_many() {
    let server = Running::start("bytes");
    for (mode, streams) in [(Mode::Sync, 1), (Mode::Async, 2)] {
        let plan = Plan {
            mode,
            streams,
            length: 3000,
            random_length: true,
            duration: Extent::Bytes(1_000_001),
            ..short(Plan::default())
        };
        let plan = Plan { duration: Extent::Bytes(1_000_001), ..plan };
        let outcome = test(&server, &plan);
        assert!(outcome.error.is_none());
        assert_eq!(outcome.total.bytes, 1_000_001, "{mode:?}");
    }
}

#[test]
fn messages_may_be_empty_or_longer_than_one_write() {
    let server = Running::start("lengths");
    let outcome = test(&server, &short(Plan { length: 0, ..Plan::default() }));
    assert!(outcome.total.bytes == 0 && outcome.latency().unwrap().count > 10);
    let plan = short(Plan { length: 3_000_001, write: true, ..Plan::default() });
    let outcome = test(&server, &plan);
    assert!(outcome.error.is_none() && outcome.total.bytes > 0);
}

#[test]
fn rate_limited_messages_are_sent_when_they_are_due() {
    let server = Running::start("rate");
    // 100 messages a second, the first one immediately.
    let plan = Plan { length: 1000, rate: Some(100_000.0), ..Plan::default() };
    let outcome = test(&server, &Plan { duration: Extent::Bytes(30_000), ..short(plan) });
    assert_eq!(outcome.total.messages, 30);
    assert!(outcome.total.seconds >= 0.285, "{}", outcome.total.seconds);
}

#[test]
fn warm_up_is_not_counted() {
    let server = Running::start("omit");
    let plan = short(Plan { length: 1000, omit: Duration::from_millis(200), ..Plan::default() });
    let began = std::time::Instant::now();
    let outcome = test(&server, &plan);
    let most = began.elapsed().as_secs_f64() - 0.2;
    // How much less depends on when the thread that begins to count was scheduled.
    let seconds = outcome.total.seconds;
    assert!(seconds < most && outcome.total.messages > 0, "{seconds} of {most}");
    // Messages in less than a twentieth of an interval at the end get no row.
    let rows_end = outcome.intervals.last().map_or(0.0, |row| row.start + row.seconds);
    let is_without_row = seconds - rows_end < plan.interval.as_secs_f64() / 20.0;
    let without_row = outcome.total.messages - outcome.intervals.iter().map(|row| row.messages).sum::<u64>();
    assert!(without_row == 0 || is_without_row, "{without_row} of {}", outcome.total.messages);
}

#[test]
fn requested_small_buffers_are_granted_on_both_sides() {
    let server = Running::start("buffers");
    let plan = short(Plan { mode: Mode::Async, buffer: 16384, far_buffer: 16384, ..Plan::default() });
    let outcome = test(&server, &plan);
    assert_eq!((outcome.buffers.send, outcome.buffers.receive), (32768, 32768));
    assert!(outcome.buffers.clamped_by.is_empty());
    let limit = standfast_net::socket::sysctl("net.core.wmem_max").unwrap_or(0);
    if let Ok(too_much) = u32::try_from(limit + 4096) {
        let outcome = test(&server, &Plan { buffer: too_much, ..plan });
        assert_eq!(outcome.buffers.clamped_by, ["net.core.wmem_max of this host"]);
    }
}

#[test]
fn interrupted_test_returns_its_partial_results() {
    let server = Running::start("interrupt");
    let stop = AtomicBool::new(false);
    let plan = Plan { duration: Extent::Endless, ..short(Plan { length: 1000, ..Plan::default() }) };
    let mut rows = 0;
    let outcome = run(&server.target(), &plan, &stop, &mut |event| {
        if let Event::Row(..) = event {
            rows += 1;
            stop.store(rows >= 2, Ordering::Relaxed);
        }
    })
    .unwrap();
    assert!(outcome.interrupted && outcome.error.is_none());
    assert!(outcome.total.messages > 0 && outcome.intervals.len() >= 2);
}

#[test]
fn killed_server_leaves_partial_results_at_the_client() {
    let server = Running::start("killed");
    let mut server = Some(server);
    let plan = Plan { duration: Extent::Endless, ..short(Plan { length: 1000, ..Plan::default() }) };
    let target = server.as_ref().unwrap().target();
    let outcome = run(&target, &plan, &AtomicBool::new(false), &mut |event| {
        if let Event::Row(..) = event {
            server.take();
        }
    })
    .unwrap();
    assert!(matches!(outcome.error, Some(NetError::Cut { .. })), "{:?}", outcome.error);
    assert!(outcome.total.messages > 0 && !outcome.interrupted);
}

#[test]
fn silent_server_is_reported_as_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let silent = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; 64]).unwrap();
        let answer =
            Answer { status: Status::Ready, text: 0, receive_buffer: 0, receive_limit: 0, send_limit: 0 };
        socket.write_all(&answer.encode()).unwrap();
        // Keeps the connection open until the client ends.
        let _ = std::io::copy(&mut socket, &mut std::io::sink());
    });
    let target = standfast_net::stream::Target { host: "127.0.0.1".into(), port, key: None };
    let plan = Plan { timeout: Some(Duration::from_millis(300)), ..short(Plan::default()) };
    let plan = Plan { timeout: Some(Duration::from_millis(300)), ..plan };
    let outcome = run(&target, &plan, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert!(matches!(outcome.error, Some(NetError::Timeout { .. })), "{:?}", outcome.error);
    silent.join().unwrap();
}

fn hello() -> Hello {
    common::hello(&Plan { length: 100, ..Plan::default() }, Direction::ToServer)
}

fn answer_of(socket: &mut TcpStream) -> (Answer, String) {
    let mut bytes = [0; ANSWER_BYTES];
    socket.read_exact(&mut bytes).unwrap();
    let answer = Answer::decode(&bytes).unwrap();
    let mut text = vec![0; answer.text];
    socket.read_exact(&mut text).unwrap();
    (answer, String::from_utf8(text).unwrap())
}

#[test]
fn the_server_survives_scanners_garbage_and_other_versions() {
    let server = Running::start("guests");
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 200], &[0xff; 7], b"SFNETTST"] {
        let mut socket = server.connect();
        socket.write_all(bytes).unwrap();
        // May fail already: the server does not wait for more bytes of another protocol.
        let _ = socket.shutdown(Shutdown::Write);
        // Reset or end: the server drops the connection either way, without an answer.
        assert!(!matches!(socket.read(&mut [0; 1]), Ok(1)));
    }
    let mut other = hello().encode();
    other[8] = 9;
    let mut socket = server.connect();
    // Another version may have a shorter Hello.
    socket.write_all(&other[..10]).unwrap();
    let (answer, text) = answer_of(&mut socket);
    assert_eq!(answer.status, Status::Version);
    assert!(text.contains(&format!("version {VERSION}")) && text.contains('9'), "{text}");

    let mut socket = server.connect();
    socket.write_all(&hello().encode()).unwrap();
    assert_eq!(answer_of(&mut socket).0.status, Status::Ready);
    // A message longer than announced ends its connection, and nothing else.
    socket
        .write_all(
            &Header { kind: Kind::Data, length: 101, sequence: 0, answered: Answered::default() }.encode(),
        )
        .unwrap();
    socket.write_all(&[0xaa; HEADER_BYTES]).unwrap();
    assert!(!matches!(socket.read(&mut [0; 1]), Ok(1)));

    assert!(test(&server, &short(Plan { length: 100, ..Plan::default() })).error.is_none());
}

#[test]
fn silent_connections_do_not_exclude_a_client() {
    let server = Running::start("silent");
    // More connections than the server keeps, within the descriptors of a plain shell.
    let silent: Vec<TcpStream> = (0..400).map(|_| server.connect()).collect();
    assert!(test(&server, &short(Plan { length: 100, ..Plan::default() })).error.is_none());
    drop(silent);
}

#[test]
fn full_server_refuses_clients_and_stops_despite_a_stalled_one() {
    let server = Running::start("busy");
    let mut held = Vec::new();
    for _ in 0..common::CONNECTIONS {
        let mut socket = server.connect();
        socket.write_all(&hello().encode()).unwrap();
        assert_eq!(answer_of(&mut socket).0.status, Status::Ready);
        held.push(socket);
    }
    let refused = run(&server.target(), &short(Plan::default()), &AtomicBool::new(false), &mut |_| {});
    match refused {
        Err(error @ NetError::Refused(_)) => {
            assert_eq!(error.exit_code(), 4);
            assert!(error.to_string().contains("busy"), "{error}");
        }
        _ => panic!("the server takes more connections than it should"),
    }
    // Endless messages whose acknowledgements the client does not read: the server must still stop when asked to.
    let message =
        [&Header { kind: Kind::Data, length: 0, sequence: 0, answered: Answered::default() }.encode()[..]]
            .concat();
    held[0].set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    while held[0].write(&message).is_ok() {}
    let began = Instant::now();
    drop(server);
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn file_created_meanwhile_refuses_the_test_and_is_left_alone() {
    let server = Running::start("foreign");
    std::fs::write(server.file(), "not yours").unwrap();
    let plan = short(Plan { write: true, length: 100, ..Plan::default() });
    let refused = run(&server.target(), &plan, &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(&refused, Err(NetError::Refused(text)) if text.contains("left alone")));
    assert_eq!(std::fs::read(server.file()).unwrap(), b"not yours");
    assert!(test(&server, &short(Plan { length: 100, ..Plan::default() })).error.is_none());
    assert!(scratch("foreign").exists());
}
