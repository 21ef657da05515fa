//! Links that break, clients that do not read, disks that fail, and peers of another release.

#![allow(clippy::unwrap_used)]

mod common;

use common::relay::Relay;
use common::{CONNECTIONS, Running, test};
use standfast_net::NetError;
use standfast_net::outcome::{Event, Outcome};
use standfast_net::plan::{Direction, Directions, Mode, Plan};
use standfast_net::run::run;
use standfast_net::stream::Target;
use standfast_net::units::Extent;
use standfast_net::wire::{ANSWER_BYTES, HELLO_BYTES, Hello, VERSION};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

fn endless(mode: Mode, directions: Directions) -> Plan {
    Plan {
        mode,
        directions,
        length: 10_000,
        interval: Duration::from_millis(100),
        timeout: Some(Duration::from_secs(1)),
        ..Plan::default()
    }
}

const KINDS: [(Mode, Directions); 5] = [
    (Mode::Sync, Directions::ToServer),
    (Mode::Async, Directions::ToServer),
    (Mode::Sync, Directions::FromServer),
    (Mode::Async, Directions::FromServer),
    (Mode::Async, Directions::Both),
];

/// Runs an endless test over a relay, to which something happens at the second row.
fn broken(server: &Running, plan: &Plan, happens: fn(&Relay)) -> Outcome {
    let relay = Relay::start(&server.target());
    let mut rows = 0;
    run(&relay.target(), plan, &AtomicBool::new(false), &mut |event| {
        if let Event::Row(..) = event {
            rows += 1;
            if rows == 2 {
                happens(&relay);
            }
        }
    })
    .unwrap()
}

#[test]
fn silent_link_is_a_timeout_with_partial_results() {
    let server = Running::start_with_timeout("stall", Duration::from_millis(500));
    for (mode, directions) in KINDS {
        let outcome = broken(&server, &endless(mode, directions), Relay::stall);
        let error = outcome.error.as_ref();
        assert!(matches!(error, Some(NetError::Timeout { .. })), "{mode:?} {directions:?}: {error:?}");
        assert_eq!(error.map(NetError::exit_code), Some(1));
        for one in outcome.directions() {
            assert!(one.total.bytes > 0 && one.intervals.len() >= 2, "{mode:?} {directions:?}");
        }
    }
    all_places_are_free(&server);
}

#[test]
fn reset_connection_ends_the_test_with_partial_results() {
    let server = Running::start_with_timeout("reset", Duration::from_millis(500));
    for (mode, directions) in KINDS {
        // A timeout so long that the reset ends the test.
        let plan = Plan { timeout: Some(Duration::from_secs(60)), ..endless(mode, directions) };
        let outcome = broken(&server, &plan, Relay::cut);
        let error = outcome.error.as_ref();
        assert!(matches!(error, Some(NetError::Cut { .. })), "{mode:?} {directions:?}: {error:?}");
        assert!(outcome.directions().all(|one| one.total.bytes > 0), "{mode:?} {directions:?}");
    }
    all_places_are_free(&server);
}

/// Waits until the server accepts a test with as many connections as it takes, and that test ends well. On a busy
/// machine a client of this test may pause for longer than the server's timeout; it is dropped too, and another one
/// tries.
fn all_places_are_free(server: &Running) {
    let plan = Plan {
        streams: CONNECTIONS as u16,
        length: 100,
        duration: Extent::Time(Duration::from_millis(50)),
        timeout: Some(Duration::from_secs(20)),
        ..Plan::default()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let error = match run(&server.target(), &plan, &AtomicBool::new(false), &mut |_| {}) {
            Ok(Outcome { error: None, .. }) => return,
            Ok(Outcome {
                error: Some(error @ (NetError::Cut { .. } | NetError::Timeout { .. })), ..
            }) => error,
            Err(error @ NetError::Refused(_)) => error,
            Ok(Outcome { error: Some(error), .. }) | Err(error) => panic!("{error}"),
        };
        assert!(Instant::now() < deadline, "{error}");
    }
}

fn hello(mode: Mode, direction: Direction) -> Hello {
    common::hello(&Plan { mode, length: 100_000, ..Plan::default() }, direction)
}

#[test]
fn receiving_clients_that_never_read_lose_their_slots() {
    let server = Running::start_with_timeout("deaf", Duration::from_millis(500));
    let deaf: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let mode = if number % 2 == 0 { Mode::Async } else { Mode::Sync };
            let mut socket = server.connect();
            socket.write_all(&hello(mode, Direction::FromServer).encode()).unwrap();
            socket
        })
        .collect();
    all_places_are_free(&server);
    drop(deaf);
}

/// Starts a server that answers the first bytes of a client with these bytes, and then reads until the client has gone.
fn impostor(says: Vec<u8>) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; HELLO_BYTES]).unwrap();
        let _ = socket.write_all(&says);
        let _ = std::io::copy(&mut socket, &mut std::io::sink());
    });
    Target { host: "127.0.0.1".into(), port, key: None }
}

#[test]
fn older_server_is_reported_with_both_protocol_versions() {
    // The answer of version 1 to an unknown version.
    let text = b"its protocol has version 1, the client's 3; use one release";
    let mut says = vec![0; ANSWER_BYTES];
    says[..8].copy_from_slice(b"SFNETTST");
    says[8] = 1;
    says[10] = 2;
    says[12] = text.len() as u8;
    says.extend(text);
    let plan = endless(Mode::Sync, Directions::ToServer);
    let refused = run(&impostor(says), &plan, &AtomicBool::new(false), &mut |_| {});
    let error = refused.err().unwrap();
    assert_eq!(error.exit_code(), 4);
    let text = error.to_string();
    let ours = format!("program's {VERSION}");
    assert!(text.contains("version 1") && text.contains(&ours) && text.contains("one release"), "{text}");
}

#[test]
fn another_program_on_the_port_is_a_protocol_error() {
    for says in [&b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..], &[0xff; 500]] {
        let plan = endless(Mode::Sync, Directions::ToServer);
        let failed = run(&impostor(says.to_vec()), &plan, &AtomicBool::new(false), &mut |_| {});
        let error = failed.err().unwrap();
        assert!(matches!(error, NetError::Protocol(_)) && error.exit_code() == 1, "{error}");
    }
}

#[test]
fn server_that_closes_mid_answer_causes_no_panic() {
    for says in [&b"SFNETTST"[..], b""] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let says = says.to_vec();
        let ended = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.read_exact(&mut [0; HELLO_BYTES]).unwrap();
            socket.write_all(&says).unwrap();
        });
        let target = Target { host: "127.0.0.1".into(), port, key: None };
        let plan = endless(Mode::Sync, Directions::ToServer);
        let failed = run(&target, &plan, &AtomicBool::new(false), &mut |_| {});
        assert!(matches!(failed.err(), Some(NetError::Protocol(_))));
        ended.join().unwrap();
    }
}

#[test]
fn uncreatable_test_file_refuses_only_tests_that_write() {
    // The directory is removed after the start: no user, not even root, can make a file there.
    let server = Running::start("no-directory");
    std::fs::remove_dir_all(server.file().parent().unwrap()).unwrap();
    let plan = Plan {
        length: 100,
        duration: Extent::Time(Duration::from_millis(100)),
        ..endless(Mode::Sync, Directions::ToServer)
    };
    let writing = Plan { write: true, ..plan.clone() };
    let refused = run(&server.target(), &writing, &AtomicBool::new(false), &mut |_| {});
    match refused.err() {
        Some(NetError::Refused(text)) => assert!(text.contains("cannot be made"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert!(test(&server, &plan).error.is_none());
}

#[test]
fn each_direction_has_its_own_figures_on_an_asymmetric_link() {
    let server = Running::start("lopsided");
    // At most 64 KiB in 20 ms.
    let relay = Relay::start_slow(&server.target(), Duration::from_millis(20));
    let bound = 65_536.0 / 0.020;
    let plan = Plan {
        duration: Extent::Time(Duration::from_secs(1)),
        timeout: Some(Duration::from_secs(20)),
        buffer: 65_536,
        far_buffer: 65_536,
        ..endless(Mode::Async, Directions::Both)
    };
    let outcome = run(&relay.target(), &plan, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    let back = outcome.reverse.as_deref().unwrap();
    assert_eq!((outcome.direction, back.direction), (Direction::ToServer, Direction::FromServer));
    // This direction could not be faster, and the other one was.
    assert!(back.total.rate() > 0.0 && back.total.rate() < bound * 1.1, "{}", back.total.rate());
    assert!(outcome.total.rate() > bound * 1.5, "{}", outcome.total.rate());
}
