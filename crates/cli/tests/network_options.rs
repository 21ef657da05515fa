//! Every option of `standfast net`, `tcptest` and `wan` with a range or a form gets an invalid value: exit code 2, and
//! a message with the option, the value and what is allowed. Options that the table lacks are found.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Command, option, an invalid value, part of what is allowed.
const WRONG: &[(&str, &str, &str, &str)] = &[
    ("net server", "--bind", "10.0.0.1:0", "HOST:PORT"),
    ("net server", "--port", "0", "1..=65535"),
    ("net server", "--port", "70000", "1..=65535"),
    ("net server", "--window", "-1", "1,024-based"),
    ("net server", "--window", "2g", "1073741824"),
    ("net server", "--max-connections", "0", "1..=65535"),
    ("net server", "--max-connections", "-1", "1..=65535"),
    ("net server", "--allow", "10.0.0.1/8", "10.0.0.0/8"),
    ("net server", "--allow", "-", "10.1.0.0/16"),
    ("net server", "--psk-file", "/dev/null", "secret of 16"),
    ("net client beta", "--port", "x", "invalid digit"),
    ("net client beta", "--port", "0", "1..=65535"),
    ("net client beta", "--mode", "both", "sync, async"),
    ("net client beta", "--length", "8kk", "1,024-based"),
    ("net client beta", "--length", "65m", "67108864"),
    ("net client beta", "--length", "-1", "1,024-based"),
    ("net client beta", "--streams", "0", "1..=256"),
    ("net client beta", "--streams", "257", "1..=256"),
    ("net client beta", "--streams", "-2", "1..=256"),
    ("net client beta", "--window", "x", "1,024-based"),
    ("net client beta", "--payload", "/no/such/file", "RANDOM, ZERO"),
    ("net client beta", "--delay", "2h", "1 hour"),
    ("net client beta", "--delay", "-1ms", "500ms"),
    ("net client beta", "--rate", "1Gbps", "100mbit"),
    ("net client beta", "--rate", "0", "100mbit"),
    ("net client beta", "--rate", "-1", "100mbit"),
    ("net client beta", "--interval", "1ms", "10 milliseconds"),
    ("net client beta", "--duration", "foo", "a bare number is seconds"),
    ("net client beta", "--duration", "-5", "a bare number is seconds"),
    ("net client beta", "--duration", "0", "a bare number is seconds"),
    ("net client beta", "--duration", "0kb", "a bare number is seconds"),
    ("net client beta", "--omit", "25h", "24 hours"),
    ("net client beta", "--timeout", "-1", "24 hours"),
    ("net client beta", "--format", "xml", "ndjson"),
    ("net client beta", "--fail-if", "p42>1", "p99>5ms"),
    ("net client beta", "--fail-if", "-", "p99>5ms"),
    ("net client beta", "--output", "/no/such/directory/x", "can be written"),
    ("net client beta", "--psk-file", "/no/such/file", "secret of 16"),
    ("net disk", "--length", "0", "1048576"),
    ("net disk", "--length", "2m", "1048576"),
    ("net disk", "--duration", "1ms", "100 milliseconds"),
    ("net disk", "--duration", "-1", "100 milliseconds"),
    ("net disk", "--delay", "2h", "1 hour"),
    ("net disk", "--delay", "-1ms", "500ms"),
    ("net sweep beta", "--port", "0", "1..=65535"),
    ("net sweep beta", "--duration", "2d", "24 hours"),
    ("net sweep beta", "--max-window", "2g", "1073741824"),
    ("net sweep beta", "--max-streams", "0", "1..=256"),
    ("net sweep beta", "--psk-file", "/dev/null", "secret of 16"),
    ("net advise beta", "--peak-redo", "0", "100mbit"),
    ("net advise beta", "--peak-redo", "-1", "100mbit"),
    ("net advise beta --peak-redo 1m", "--port", "0", "1..=65535"),
    ("net advise beta --peak-redo 1m", "--redo-write", "2m", "1048576"),
    ("net advise beta --peak-redo 1m --redo-writes 5", "--redo-bytes", "x", "invalid digit"),
    ("net advise beta --peak-redo 1m --redo-bytes 5", "--redo-writes", "0", "1.."),
    ("net advise beta --peak-redo 1m", "--duration", "0", "100 milliseconds"),
    ("net advise beta --peak-redo 1m", "--max-traffic", "0", "1,024-based"),
    ("net advise beta --peak-redo 1m", "--psk-file", "/dev/null", "secret of 16"),
    ("net advise beta", "--log-history", "/no/such/file", "can be read"),
    ("net diff a b", "--tolerance", "-1", "from 0 to 1000"),
    ("net diff a b", "--tolerance", "x", "from 0 to 1000"),
    ("wan run", "--rtt", "-1ms", "25ms"),
    ("wan run", "--delay", "x", "25ms"),
    ("wan run", "--rate", "1gbps", "100mbit"),
    ("wan run", "--queue", "-1", "auto"),
    ("wan run", "--loss", "101%", "%"),
    ("wan run", "--jitter", "x", "25ms"),
    ("wan run", "--reorder", "-1%", "%"),
    ("wan run", "--reorder-by", "x", "25ms"),
    ("wan run", "--link", "ab,loss=1%", "FROM:TO"),
    ("wan run", "--seed", "x", "invalid digit"),
    ("wan run", "--fail-late", "-1", "25ms"),
    ("wan run", "--ready-fd", "x", "invalid digit"),
    ("wan stats lab", "--fail-late", "x", "25ms"),
];

/// Options that accept any value: names and switches. Only the kernel knows the values of `--congestion`.
const FREE: &[&str] = &[
    "--file",
    "--loaded",
    "--reverse",
    "--bidir",
    "--write",
    "--congestion",
    "--json",
    "--html",
    "--dir",
    "--second-dir",
    "--both",
    "--nodes",
    "--reset",
    "--help",
    "--directory",
];

fn standfast(words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standfast"));
    let output = command.args(words).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn option_out_of_range_is_refused_with_name_value_and_range() {
    for (command, option, value, allowed) in WRONG {
        // As one word and as two: a value may begin with a dash.
        let joined = format!("{option}={value}");
        for given in [vec![joined.as_str()], vec![*option, *value]] {
            let words: Vec<&str> = command.split_whitespace().chain(given).collect();
            let (code, _, complaint) = standfast(&words);
            assert_eq!(code, Some(2), "{words:?}: {complaint}");
            for part in [option, value, allowed] {
                assert!(complaint.contains(part), "{words:?} does not say {part}: {complaint}");
            }
        }
    }
}

#[test]
fn table_covers_every_option_in_the_help() {
    let commands = [
        "net server",
        "net client",
        "net disk",
        "net sweep",
        "net advise",
        "net diff",
        "wan run",
        "wan stats",
    ];
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let (_, help, _) = standfast(&words);
        let named = help
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("-h, ").or(Some(line.trim_start())));
        let options: BTreeSet<&str> = named
            .filter(|line| line.starts_with("--"))
            .filter_map(|line| line.split([' ', ',']).next())
            .collect();
        assert!(options.len() > 2, "{command}: {help}");
        for option in options {
            let tried = WRONG.iter().any(|(of, name, ..)| of.starts_with(command) && *name == option);
            assert!(tried || FREE.contains(&option), "{command} {option}");
        }
    }
}

#[test]
fn help_of_every_network_command_has_examples_and_exit_codes() {
    for command in [
        "net server",
        "net client",
        "net disk",
        "net sweep",
        "net advise",
        "net diff",
        "wan run",
        "wan stats",
    ] {
        let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let (code, help, _) = standfast(&words);
        assert_eq!(code, Some(0));
        assert!(
            help.contains("Examples:\n  standfast ") && help.contains("Exit codes: "),
            "{command}: {help}"
        );
    }
}

/// The host of a test is an option without a name.
#[test]
fn invalid_host_is_refused_before_anything_is_sent() {
    for host in ["beta:0", "beta:70000", "beta:", ":7460", "a:b:7460"] {
        for command in ["net client", "net sweep", "net advise --peak-redo 1m"] {
            let words: Vec<&str> = command.split_whitespace().chain([host]).collect();
            let (code, _, complaint) = standfast(&words);
            assert_eq!(code, Some(2), "{words:?}: {complaint}");
            assert!(complaint.contains(host) && complaint.contains("HOST:PORT"), "{complaint}");
        }
    }
    let (code, _, complaint) = standfast(&["tcptest", "beta:7460", "-port=7460"]);
    assert!(code == Some(2) && complaint.contains("-port=N"), "{complaint}");
    let (code, _, complaint) = standfast(&["net", "client", "no-such-host.invalid", "--duration", "1s"]);
    assert!(
        code == Some(1) && complaint.contains("cannot find the host no-such-host.invalid"),
        "{complaint}"
    );
}

/// Output is often piped to `head`, which stops reading.
#[test]
fn closed_output_pipe_causes_no_crash() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    for words in [
        format!("tcptest 127.0.0.1 -port={port} -duration=1"),
        format!("net advise 127.0.0.1:{port} --peak-redo 1m"),
        format!("net sweep 127.0.0.1:{port}"),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_standfast"));
        let command = command.args(words.split_whitespace()).stdin(Stdio::null());
        let status = command.stdout(writer.try_clone().unwrap()).stderr(writer).status().unwrap();
        assert!([Some(0), Some(1)].contains(&status.code()), "{words}: {status}");
    }
}
