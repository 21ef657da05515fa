//! Arbitrary bytes for a server and for a client in every state, and arbitrary words for both command lines.

#![allow(clippy::unwrap_used)]

mod common;

use clap::Parser;
use common::{CONNECTIONS, Running, test};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use standfast_net::auth::Key;
use standfast_net::command::NetCommand;
use standfast_net::plan::{Direction, Directions, Mode, Plan};
use standfast_net::run::run;
use standfast_net::stats::Sender;
use standfast_net::stream::Target;
use standfast_net::tcptest::options::{Command, parse};
use standfast_net::units::Extent;
use standfast_net::wire::{
    ANSWER_BYTES, Answer, Answered, HELLO_BYTES, Header, Hello, Kind, Report, ReportKind, Status,
};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const LENGTH: u32 = 3000;

fn hello(mode: Mode, direction: Direction, write: bool) -> Hello {
    let plan = Plan { mode, write, length: LENGTH, ..Plan::default() };
    Hello { zero_payload: true, ..common::hello(&plan, direction) }
}

/// What a peer may say: anything, or something that is nearly right.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let header = (0..3_u8, 0..2 * LENGTH, any::<u64>(), any::<u64>()).prop_map(
        |(kind, length, sequence, latency_ns)| {
            let answered = Answered { latency_ns, waking_ns: latency_ns / 2 };
            let kind = [Kind::Data, Kind::Finish, Kind::State][usize::from(kind)];
            let mut bytes = Header { kind, length, sequence, answered }.encode().to_vec();
            bytes.extend(vec![0xaa; length as usize]);
            bytes
        },
    );
    let state = any::<u64>().prop_map(|number| {
        let header = Header {
            kind: Kind::State,
            length: 64,
            sequence: number,
            answered: Answered { latency_ns: number, waking_ns: number },
        };
        let sender = Sender { busy_us: number, acknowledged: number, ..Sender::default() };
        [&header.encode()[..], &sender.encode()].concat()
    });
    let report = (0..4_u8, 0..3_u32, any::<u64>(), any::<u32>()).prop_map(|(kind, errno, number, small)| {
        use ReportKind::{Acknowledgement, Enough, Progress, Summary};
        let report = Report {
            kind: [Acknowledgement, Progress, Summary, Enough][usize::from(kind)],
            errno: errno.saturating_sub(1).wrapping_mul(small),
            sequence: number % 3,
            write_ns: number,
            received: number,
            disk_ns: number,
            wait_ns: number,
            receive_buffer: small,
            writes: small,
            waking_ns: number,
        };
        report.encode().to_vec()
    });
    let noise = prop::collection::vec(any::<u8>(), 0..300);
    let messages = prop::collection::vec(prop_oneof![header, state, report, noise], 0..5);
    // A flipped bit, anywhere.
    (messages, any::<prop::sample::Index>(), 0..16_u8).prop_map(|(messages, at, bit)| {
        let mut bytes = messages.concat();
        if bit < 8 && !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        bytes
    })
}

#[test]
fn a_server_survives_any_bytes_in_any_state() {
    let open = Running::start_with_timeout("hostile", Duration::from_millis(200));
    let key = || Some(Key::new(b"the secret of both sides").unwrap());
    let keyed = Running::start_with("hostile-keyed", Vec::new(), key());
    let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    let states = (0..8_usize, 0..=HELLO_BYTES, any::<bool>(), messages());
    runner
        .run(&states, |(state, cut, abrupt, bytes)| {
            let server = if state == 7 { &keyed } else { &open };
            let mut socket = server.connect();
            let (mode, direction, write) = match state {
                0 | 1 | 7 => (Mode::Sync, Direction::ToServer, false),
                2 => (Mode::Async, Direction::ToServer, false),
                3 => (Mode::Async, Direction::ToServer, true),
                4 => (Mode::Sync, Direction::ToServer, true),
                5 => (Mode::Async, Direction::FromServer, false),
                _ => (Mode::Sync, Direction::FromServer, false),
            };
            let hello = hello(mode, direction, write).encode();
            let introduced = if state == 0 { &hello[..cut] } else { &hello[..] };
            // Writing fails as soon as the server has dropped the connection.
            let _ = socket.write_all(introduced).and_then(|()| socket.write_all(&bytes));
            if !abrupt {
                let _ = socket.shutdown(Shutdown::Write);
                socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                let _ = socket.read(&mut [0; 4096]);
            }
            Ok(())
        })
        .unwrap();
    // The server still serves its maximum, so no state holds a place for good.
    let plan = Plan {
        streams: CONNECTIONS as u16,
        write: true,
        length: LENGTH,
        duration: Extent::Time(Duration::from_millis(50)),
        timeout: Some(Duration::from_secs(20)),
        ..Plan::default()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    for (server, key) in [(&open, None), (&keyed, key())] {
        let target = Target { key, ..server.target() };
        while let Err(error) = run(&target, &plan, &AtomicBool::new(false), &mut |_| {}) {
            assert!(error.to_string().contains("busy") && Instant::now() < deadline, "{error}");
        }
    }
    assert!(test(&open, &Plan { streams: 1, ..plan }).error.is_none());
}

#[test]
fn a_client_survives_any_bytes_in_any_state() {
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    let kinds = [
        (Mode::Sync, Directions::ToServer),
        (Mode::Async, Directions::ToServer),
        (Mode::Sync, Directions::FromServer),
        (Mode::Async, Directions::FromServer),
    ];
    runner
        .run(
            &(0..4_usize, any::<bool>(), 0..16_u8, messages(), messages()),
            |(kind, consents, end, first, second)| {
                let plan = Plan {
                    mode: kinds[kind].0,
                    directions: kinds[kind].1,
                    length: LENGTH,
                    streams: 2,
                    duration: Extent::Time(Duration::from_millis(20)),
                    interval: Duration::from_millis(10),
                    timeout: Some(Duration::from_millis(100)),
                    ..Plan::default()
                };
                // Each case has its own listener, so that connections that one case left unaccepted do not reach the
                // next.
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let target = Target { host: address.ip().to_string(), port: address.port(), key: None };
                let mut elapsed = Duration::ZERO;
                std::thread::scope(|scope| {
                    let answering = scope.spawn(|| {
                        // One after the other: the second connection comes when the first has its answer.
                        let says = [first, second].map(|bytes| {
                            let Ok((mut socket, _)) = listener.accept() else { return None };
                            let _ = socket.read_exact(&mut [0; HELLO_BYTES]);
                            let answer = Answer {
                                status: Status::Ready,
                                text: 0,
                                receive_buffer: 0,
                                receive_limit: 0,
                                send_limit: 0,
                            };
                            if consents {
                                let _ = socket.write_all(&answer.encode());
                            }
                            let _ = socket.write_all(&bytes);
                            (consents || bytes.len() >= ANSWER_BYTES).then_some(socket)
                        });
                        // In some cases the peer keeps its connections open in silence, and the client must end by
                        // itself.
                        (end == 0).then_some(says)
                    });
                    let began = Instant::now();
                    let outcome = run(&target, &plan, &AtomicBool::new(false), &mut |_| {});
                    elapsed = began.elapsed();
                    // The client may not even have made the first connection; the peer waits for two.
                    let ends = [(); 2].map(|()| TcpStream::connect(address).unwrap());
                    drop(ends);
                    drop(answering.join().unwrap());
                    if let Ok(outcome) = outcome {
                        let report = standfast_net::report::json(&target, &plan, &Ok(outcome));
                        assert!(report["status"].is_string());
                    }
                });
                prop_assert!(elapsed < Duration::from_secs(20));
                Ok(())
            },
        )
        .unwrap();
}

#[test]
fn extreme_server_figures_cause_no_panic_and_stay_numbers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port(), key: None };
    let most = u64::MAX;
    let report = |kind| Report {
        kind,
        errno: 0,
        sequence: 0,
        write_ns: most,
        received: most,
        disk_ns: most,
        wait_ns: most,
        receive_buffer: u32::MAX,
        writes: u32::MAX,
        waking_ns: most,
    };
    let sender = Sender {
        busy_us: most,
        receiver_window_us: most,
        send_buffer_us: most,
        acknowledged: most,
        congestion_window: u32::MAX,
        retransmissions: u32::MAX,
        min_rtt_us: u32::MAX,
        offered_window: 0,
        send_buffer: u32::MAX,
        sack: true,
        congestion: [0xff; 15],
    };
    let header = |kind, length| {
        Header { kind, length, sequence: 0, answered: Answered { latency_ns: most, waking_ns: most } }
            .encode()
    };
    let sent =
        [&header(Kind::State, 64)[..], &sender.encode(), &header(Kind::Data, 0), &header(Kind::Finish, 0)];
    let reported =
        [report(ReportKind::Acknowledgement).encode(), report(ReportKind::Summary).encode()].concat();
    for (mode, directions, says) in [
        (Mode::Async, Directions::ToServer, report(ReportKind::Summary).encode().to_vec()),
        (Mode::Sync, Directions::ToServer, reported),
        (Mode::Async, Directions::FromServer, sent.concat()),
        (Mode::Sync, Directions::FromServer, [sent[0], sent[1], sent[3]].concat()),
    ] {
        // One message per connection: its report is the first.
        let plan = Plan {
            mode,
            directions,
            length: LENGTH,
            streams: 2,
            duration: Extent::Bytes(2 * u64::from(LENGTH)),
            delay: Duration::from_millis(1),
            timeout: Some(Duration::from_secs(20)),
            ..Plan::default()
        };
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                let limit = u32::MAX;
                let ready = Answer {
                    status: Status::Ready,
                    text: 0,
                    receive_buffer: limit,
                    receive_limit: limit,
                    send_limit: limit,
                };
                let sockets: Vec<_> = (0..2)
                    .map(|_| {
                        let (mut socket, _) = listener.accept().unwrap();
                        socket.read_exact(&mut [0; HELLO_BYTES]).unwrap();
                        socket.write_all(&[&ready.encode()[..], &says].concat()).unwrap();
                        socket
                    })
                    .collect();
                // Keeps the connections open until the client has gone.
                for mut socket in sockets {
                    let _ = std::io::copy(&mut socket, &mut std::io::sink());
                }
            });
            run(&target, &plan, &AtomicBool::new(false), &mut |_| {}).unwrap()
        });
        if mode == Mode::Async && directions == Directions::ToServer {
            assert!(outcome.error.is_none());
            assert_eq!(outcome.total.bytes, most);
        }
        let report = standfast_net::report::json(&target, &plan, &Ok(outcome));
        // A value that is not a number would have become null in the text.
        assert!(report["summary"]["bytes_per_second"].as_f64().is_some_and(f64::is_finite), "{report}");
        assert!(report["summary"]["disk_share"].as_f64().is_some_and(f64::is_finite), "{report}");
    }
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    command: NetCommand,
}

/// What a client says, the server understands, whatever was asked for on the command line.
fn is_understood(plan: &Plan) {
    for direction in plan.directions.all() {
        let hello = Hello {
            direction: *direction,
            pace: plan.pace(),
            write: plan.write,
            zero_payload: false,
            amount: plan.amount(0),
            buffer: plan.far_buffer,
            stream: 0,
            streams: plan.streams,
            test: 0,
        };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello), "{plan:?}");
    }
}

const VALUES: &str = "[0-9]{1,12}|[0-9]{1,4}(k|m|g|ms|s|h|mb|mbit|MiB/s|/24h)|[0-9]{0,3}\\.[0-9]{1,20}|sync|ASYNC|zero|\
                      p99>[0-9]{1,3}ms|throughput<[0-9]{1,3}mb|.{0,8}";

proptest! {
    #[test]
    fn any_modern_command_line_is_a_test_or_refused(
        command in "client|server|sweep|advise|diff|disk|.{0,6}",
        host in "[a-z0-9.:\\[\\]]{0,12}",
        options in prop::collection::vec((
            "mode|length|streams|window|payload|delay|rate|interval|duration|omit|timeout|format|fail-if|reverse|bidir|\
             loaded|write|json|both|allow|psk-file|peak-redo|redo-write|max-traffic|max-window|port|congestion|.{0,6}",
            VALUES, any::<bool>()), 0..6),
    ) {
        let mut words = vec![command, host];
        for (name, value, joined) in options {
            match joined {
                true => words.push(format!("--{name}={value}")),
                false => words.extend([format!("--{name}"), value]),
            }
        }
        match Line::try_parse_from(&words) {
            Ok(Line { command: NetCommand::Client(args) }) => match args.plan() {
                Ok(plan) => is_understood(&plan),
                Err(error) => prop_assert_eq!(error.exit_code(), 2),
            },
            Ok(_) => {}
            // --help has exit code 0.
            Err(error) => prop_assert!([0, 2].contains(&error.exit_code())),
        }
    }

    #[test]
    fn any_classic_command_line_is_a_test_or_refused(
        options in prop::collection::vec((
            "mode|length|num_conn|sockbuf|payload|delay|interval|duration|freq|timeout|output|write|rtt|random_length|\
             random_delay|server|file|psk_file|.{0,6}",
            VALUES), 0..6),
        port in 0..70_000_u32,
    ) {
        let mut words = vec!["beta".to_owned(), format!("-port={port}")];
        words.extend(options.iter().map(|(name, value)| format!("-{name}={value}")));
        match parse(&words) {
            Ok(Command::Client(client)) => is_understood(&client.plan),
            Ok(_) => {}
            Err(error) => prop_assert_eq!(error.exit_code(), 2),
        }
    }
}

#[test]
fn rejected_clients_cause_few_log_lines() {
    let running = Running::start("few-lines");
    for number in 0..500_u32 {
        let mut stream = running.connect();
        let _ = stream.write_all(&[b"\x1b[2Jforged\n", &number.to_le_bytes()[..]].concat());
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let lines = running.lines();
    assert!((1..20).contains(&lines.len()), "{} lines: {lines:?}", lines.len());
    assert!(lines.iter().all(|line| !line.contains(['\x1b', '\n'])), "{lines:?}");
}
