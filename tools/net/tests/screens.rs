//! Every screen against a file in `tests/golden`. `GOLDEN=write cargo test` rewrites the files.

#![allow(clippy::unwrap_used)]

use standfast_net::NetError;
use standfast_net::limit::Limit;
use standfast_net::outcome::{Buffers, Outcome};
use standfast_net::plan::{Direction, Plan};
use standfast_net::server::{ServerPlan, TIMEOUT};
use standfast_net::stats::{Interval, Latencies, Tcp};
use standfast_net::tcptest::options::{ClientCommand, Command, parse};
use standfast_net::tcptest::{HELP, screen};
use std::path::PathBuf;

fn golden(name: &str, screen: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var("GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, screen).unwrap();
    }
    assert_eq!(screen, std::fs::read_to_string(&path).unwrap_or_default(), "{}", path.display());
}

fn client(line: &str) -> ClientCommand {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    match parse(&words).unwrap() {
        Command::Client(client) => *client,
        other => panic!("{other:?}"),
    }
}

/// Returns a row of 20 s with this payload, and with messages of these (total, disk) nanoseconds.
fn interval(bytes: u64, latencies: &[(u64, u64)]) -> (Interval, Latencies) {
    let mut sum = Latencies::default();
    latencies.iter().for_each(|(all, disk)| sum.record(*all, *disk, 0));
    let interval = Interval {
        start: 0.0,
        seconds: 20.0,
        bytes,
        messages: latencies.len() as u64,
        latency: sum.figures(),
        disk_share: 0.4,
        tcp: Tcp { retransmissions: 3, congestion_window: 524_288, min_rtt: Some(0.000_25), sack: true },
        limit: Some(Limit::Path),
    };
    (interval, sum)
}

fn screens(line: &str, bytes: u64, latencies: &[(u64, u64)], error: Option<NetError>) -> String {
    let client = client(line);
    let plan: &Plan = &client.plan;
    let (total, sum) = interval(bytes, latencies);
    let mut out = screen::request(plan, client.frequency);
    out += &screen::ready(plan, (14, 43, 3));
    out += &screen::row(plan, &total, (14, 43, 23));
    out += &screen::row(plan, &total, (14, 43, 43));
    let outcome = Outcome {
        direction: Direction::ToServer,
        intervals: vec![total.clone()],
        total,
        latencies: sum,
        streams: vec![bytes],
        buffers: Buffers {
            requested: plan.buffer,
            requested_far: 0,
            send: 2_019_328,
            receive: 131_072,
            clamped_by: if plan.buffer > 4 << 20 { vec!["net.core.wmem_max of this host"] } else { vec![] },
        },
        congestion: Some("cubic".into()),
        error,
        interrupted: false,
        round_trips: None,
        reverse: None,
    };
    out + &screen::summary(plan, &outcome, (14, 43, 43))
}

const LATENCIES: [(u64, u64); 3] = [(1_200_000, 900_000), (1_385_000, 1_073_000), (1_570_000, 1_246_000)];

#[test]
fn the_async_screens_keep_the_documented_layout() {
    let line = "beta -port=7460 -mode=async -duration=120 -interval=20";
    golden("async.txt", &screens(line, 2_372_927_488, &[], None));
    let line = "beta -port=7460 -mode=ASYNC -num_conn=2 -sockbuf=8388608 -duration=4gb -interval=20s";
    golden("async-connections.txt", &screens(line, 5_874_000_000, &[], None));
    let line = "beta -port=7460 -mode=async -write -length=8k -payload=zero -interval=20 -duration=1h";
    golden("async-write.txt", &screens(line, 118_000_000, &[], None));
}

#[test]
fn the_sync_screens_keep_the_documented_layout() {
    let line = "beta -port=7460 -mode=sync -length=8k -interval=20 -duration=2m";
    golden("sync.txt", &screens(line, 525_700_000, &[(312_000, 0); 3], None));
    let line = "beta -port=7460 -length=8k -write -interval=20 -duration=2m -timeout=30";
    golden("sync-write.txt", &screens(line, 118_469_000, &LATENCIES, None));
    let line = "beta -port=7460 -random_length -delay=5 -random_delay -interval=20";
    golden("sync-random.txt", &screens(line, 118_469_000, &[(312_000, 0); 3], None));
}

#[test]
fn round_trip_and_repetition_screens_keep_their_layout() {
    let line = "beta -port=7460 -rtt -interval=20 -duration=1m";
    golden("rtt.txt", &screens(line, 0, &[(250_000, 0); 60], None));
    let line = "beta -port=7460 -mode=async -interval=20 -duration=1m -freq=1h/24h";
    golden("freq.txt", &screens(line, 2_372_927_488, &[], None));
    let cut = NetError::Cut { doing: "sending", source: std::io::ErrorKind::ConnectionReset.into() };
    let line = "beta -port=7460 -mode=async -interval=20";
    golden("cut.txt", &screens(line, 2_372_927_488, &[], Some(cut)));
}

#[test]
fn server_and_help_output_match_the_documentation() {
    let plan = ServerPlan {
        host: None,
        port: 7460,
        file: "standfast-net.tmp".into(),
        buffer: 2 << 20,
        connections: 1,
        timeout: TIMEOUT,
        allow: Vec::new(),
        key: None,
    };
    let started = screen::server_started(&plan, "[::]:7460".parse().unwrap(), (14, 40, 0));
    golden("server.txt", &started);
    assert!(HELP.lines().all(|line| line.len() <= 80));
}

#[test]
fn bad_input_is_refused_with_option_value_and_allowed_forms() {
    let cases = [
        ("beta -port=0", "-port", "65535"),
        ("beta -port=foo", "-port", "65535"),
        ("beta -port=70000", "-port", "65535"),
        ("beta -port=1 -duration=foo", "-duration", "bare number is seconds"),
        ("beta -port=1 -duration=-5", "-duration", "bare number is seconds"),
        ("beta -port=1 -duration=0", "-duration", "bare number is seconds"),
        ("beta -port=1 -length=8kk", "-length", "1,024-based"),
        ("beta -port=1 -length=65m", "-length", "67108864"),
        ("beta -port=1 -num_conn=0", "-num_conn", "1 to 256"),
        ("beta -port=1 -num_conn=257", "-num_conn", "1 to 256"),
        ("beta -port=1 -num_conn=2.5", "-num_conn", "1 to 256"),
        ("beta -port=1 -sockbuf=x", "-sockbuf", "1,024-based"),
        ("beta -port=1 -mode=both", "-mode", "SYNC or ASYNC"),
        ("beta -port=1 -write=maybe", "-write", "true or false"),
        ("beta -port=1 -delay=2h", "-delay", "1 hour"),
        ("beta -port=1 -interval=0", "-interval", "10 milliseconds"),
        ("beta -port=1 -timeout=x", "-timeout", "500ms"),
        ("beta -port=1 -freq=1h", "-freq", "every hour for a day"),
        ("beta -port=1 -freq=24h/1h -duration=1", "-freq", "every hour for a day"),
        ("beta -port=1 -payload=/no/such/file", "-payload", "RANDOM, ZERO"),
        ("beta -port=1 -payload=", "-payload", "RANDOM, ZERO"),
        ("beta -port=1 -output=", "-output", "name of a file"),
    ];
    for (line, option, allowed) in cases {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let error = parse(&words).err().unwrap_or_else(|| panic!("{line} is taken"));
        let text = error.to_string();
        assert_eq!(error.exit_code(), 2, "{line}");
        assert!(text.contains(option) && text.contains(allowed), "{line}: {text}");
        let value = line.rsplit('=').next().unwrap();
        assert!(line.contains("-freq=24h") || text.contains(&format!("{value:?}")), "{line}: {text}");
    }
}

#[test]
fn conflicting_command_line_options_are_refused() {
    for line in [
        "beta",
        "-port=1",
        "beta gamma -port=1",
        "beta -port=1 -port=2",
        "beta -port=1 -colour=red",
        "beta -port=1 -file=x",
        "-server -port=1 -mode=sync",
        "-server a b -port=1",
        "-server",
        "beta -port=1 -rtt -mode=async",
        "beta -port=1 -rtt -length=8k",
        "beta -port=1 -length=0 -mode=async",
        "beta -port=1 -length=0 -duration=1mb",
        "beta -port=1 -random_length -length=100",
        "beta -port=1 -random_delay",
        "beta -port=1 -freq=1h/24h",
        "beta -port=1 -freq=1m/1h -duration=2m",
    ] {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let error = parse(&words).err().unwrap_or_else(|| panic!("{line} is taken"));
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

#[test]
fn classic_command_lines_are_still_accepted() {
    // A blank after the equals sign, which a shell turns into two words; mixed case; defaults.
    let plan = client("beta -Port= 7460 -MODE=Async -sockbuf= 8388608 -Duration=120").plan;
    assert_eq!((plan.buffer, plan.mode.name(), plan.length), (8_388_608, "ASYNC", 1 << 20));
    assert_eq!(client("beta -port=1").plan.mode.name(), "SYNC");
    let minutes = client("beta -port=1 -duration=10m");
    assert!(minutes.notices[0].contains("minutes"));
    let words = ["-server", "10.0.0.1", "-port=5"].map(str::to_owned);
    assert!(matches!(parse(&words), Ok(Command::Server(plan)) if plan.host.as_deref() == Some("10.0.0.1")));
}

proptest::proptest! {
    #[test]
    fn no_command_line_makes_the_parser_panic(words in proptest::collection::vec(
        proptest::prop_oneof![
            "-(port|mode|length|duration|freq|delay|num_conn|payload|server|rtt)=[0-9a-z/.]{0,6}", ".{0,12}"
        ], 0..6)) {
        if let Err(error) = parse(&words) {
            proptest::prop_assert_eq!(error.exit_code(), 2);
        }
    }
}
