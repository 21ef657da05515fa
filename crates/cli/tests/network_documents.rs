//! Every JSON document of `standfast net` and `tcptest`, as the program writes it: it follows the published forms, and
//! the figures of the benchmark can read it.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../../tools/net/tests/common/schema.rs"]
mod schema;

use common::{Server, standfast};
use schema::follows;
use serde_json::Value;
use standfast_bench::figures::readings;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

/// The single document that a command prints, and its exit code.
fn document(command: &mut Command) -> (Value, i32) {
    let Output { stdout, stderr, status } = command.output().unwrap();
    let parsed = serde_json::from_slice(&stdout);
    let stated = || format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    (parsed.unwrap_or_else(|error| panic!("{error}: {}", stated())), status.code().unwrap())
}

/// A host on which no process listens.
const NO_SERVER: &str = "127.0.0.1:1";

#[test]
fn a_test_of_every_mode_and_direction_prints_a_result() {
    let server = Server::start("client");
    for (words, reverse, trips) in [
        ("--length 0", false, false),
        ("--length 8k --write", false, false),
        ("--mode async --write --omit 100ms", false, false),
        ("--mode async --rate 5MiB/s --length 10k --window 64k --congestion reno", false, false),
        ("--reverse --length 1k", false, false),
        ("--bidir --mode async --streams 2", true, false),
        ("--loaded --duration 200kb", false, true),
    ] {
        let duration = if words.contains("--duration") { "" } else { "--duration 300ms" };
        let words = format!("{words} {duration} --interval 100ms --json");
        let mut command = server.net("client", &words);
        let (result, code) =
            document(command.arg(format!("--file={}", server.directory.join("near").display())));
        follows("result", &result);
        assert_eq!((code, &result["status"]), (0, &"ok".into()), "{words}");
        assert!(result["intervals"].is_array() && result["summary"].is_object(), "{words}");
        assert_eq!(result.get("reverse").is_some(), reverse, "{words}");
        assert_eq!(result["round_trips"].is_object(), trips, "{words}");
    }
}

#[test]
fn rows_files_and_repeated_tests_have_the_published_format() {
    let server = Server::start("forms");
    let file = server.directory.join("result.json");
    let mut command = server.net("client", "--duration 300ms --interval 100ms --format ndjson");
    let output = command.arg(format!("--output={}", file.display())).output().unwrap();
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (last, rows) = lines.split_last().unwrap();
    assert!(!rows.is_empty());
    rows.iter().for_each(|row| follows("row", row));
    follows("result", last);
    let written = || serde_json::from_str::<Value>(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(&written(), last);

    let classic = format!("tcptest 127.0.0.1 -port={} -length=1k -duration=100ms", server.port);
    let done = standfast(&classic).arg(format!("-output={}", file.display())).output().unwrap();
    assert!(done.status.success());
    follows("result", &written());
    let twice = standfast(&format!("{classic} -freq=200ms/400ms"))
        .arg(format!("-output={}", file.display()))
        .output();
    assert!(twice.unwrap().status.success());
    follows("results", &written());
    assert_eq!(written().as_array().unwrap().len(), 2);
}

#[test]
fn searches_and_advice_have_the_published_format() {
    let server = Server::start("searches");
    let short = "--duration 100ms --both --json";
    let (result, code) =
        document(&mut server.net("sweep", &format!("{short} --max-window 64k --max-streams 2")));
    follows("sweep", &result);
    assert_eq!((code, &result["status"]), (0, &"ok".into()));
    assert!(result["to_server"]["best"].is_object() && result["from_server"]["best"].is_object());

    let history = server.directory.join("history");
    std::fs::write(&history, "SEQUENCE# MB SEC\n7 10 5\n8 10 0\n").unwrap();
    let mut command = server.net("advise", &format!("{short} --max-traffic 20mb"));
    command.arg(format!("--log-history={}", history.display()));
    let (result, code) = document(command.arg(format!("--file={}", server.directory.join("near").display())));
    follows("advise", &result);
    assert!(code == 0 || code == 3, "{code}");
    assert_eq!(result["log_history"]["peak"]["sequence"], 7);
    for direction in ["to_server", "from_server"] {
        assert!(result[direction]["affirm"]["disk"]["mean"].as_f64().unwrap() > 0.0, "{result}");
        assert!(result[direction]["fastsync"]["p50"].as_f64().unwrap() > 0.0, "{result}");
    }
    for (verb, words) in [("sweep", ""), ("advise", "--peak-redo 1m")] {
        let (result, code) = document(&mut standfast(&format!("net {verb} {NO_SERVER} {words} --json")));
        follows(verb, &result);
        assert_eq!(
            (code, &result["status"], &result["error"]["code"]),
            (1, &"failed".into(), &"connect".into())
        );
    }
    let (result, code) = document(&mut standfast(&format!("net client {NO_SERVER} --json")));
    follows("result", &result);
    assert_eq!((code, &result["error"]["code"]), (1, &"connect".into()));
}

#[test]
fn disk_test_and_comparison_have_the_published_format() {
    let server = Server::start("disk");
    let directory = server.directory.display();
    let (result, code) =
        document(&mut standfast(&format!("net disk --dir {directory} --length 4k --duration 100ms --json")));
    follows("disk", &result);
    assert_eq!((code, result["disk"].as_array().unwrap().len()), (0, 2), "one and two members");
    let paced = format!("net disk --dir {directory} --length 4k --duration 100ms --delay 20ms --json");
    let (result, code) = document(&mut standfast(&paced));
    let writes = result["disk"][0]["writes"].as_u64().unwrap();
    assert!(code == 0 && (1..=5).contains(&writes), "a pause after each of {writes} writes");
    let (result, code) = document(&mut standfast("net disk --dir /no/such/directory --json"));
    follows("disk", &result);
    assert_eq!((code, &result["status"], &result["error"]["code"]), (4, &"failed".into(), &"file".into()));

    let file = server.directory.join("result");
    let mut command = server.net("client", "--length 1k --duration 100ms");
    assert!(command.arg(format!("--output={}", file.display())).output().unwrap().status.success());
    // Compares a result with itself.
    let (result, code) = document(standfast("net diff --tolerance 0 --json").args([&file, &file]));
    follows("diff", &result);
    assert_eq!((code, &result["worse"]), (0, &false.into()));
    assert!(!result["figures"].as_array().unwrap().is_empty());
}

#[test]
fn interrupted_search_is_marked_and_keeps_its_results() {
    let server = Server::start("interrupted");
    for (verb, words) in [("sweep", ""), ("advise", "--peak-redo 1m")] {
        let mut command = server.net(verb, &format!("{words} --duration 100ms --json"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut printed = BufReader::new(child.stderr.take().unwrap());
        // The command announces each step before it begins.
        printed.read_line(&mut String::new()).unwrap();
        let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(status.success());
        std::io::copy(&mut printed, &mut std::io::sink()).unwrap();
        let Output { stdout, status, .. } = child.wait_with_output().unwrap();
        let result: Value = serde_json::from_slice(&stdout).unwrap();
        follows(verb, &result);
        assert_eq!((status.code(), &result["status"]), (Some(130), &"interrupted".into()), "{verb}");
        assert_eq!(result["error"], Value::Null);
    }
}

/// Runs the commands of the group `net`: a document in which a number has moved fails here instead of leaving a table
/// empty.
#[test]
fn figures_find_every_field_that_they_read_in_program_output() {
    let server = Server::start("readings");
    let client =
        |words: &str| document(&mut server.net("client", &format!("{words} --duration 200ms --json"))).0;
    let sync = client("--length 1k --write");
    let (all, network) = (readings::median(&sync).unwrap(), readings::network_median(&sync).unwrap());
    let disk = readings::disk_part_median(&sync).unwrap();
    assert!(all > network && network > 0.0 && all > disk && disk > 0.0);
    assert!(readings::mean(&sync).unwrap() > 0.0);
    let stream = client("--mode async");
    assert!(readings::bytes_per_second(&stream).unwrap() > 0.0);
    assert!(
        ["path", "application", "receiver_window", "send_buffer"]
            .contains(&readings::limit(&stream).unwrap())
    );
    let disk = format!("net disk --dir {} --length 8k --duration 100ms --json", server.directory.display());
    assert!(readings::disk_median(&document(&mut standfast(&disk)).0).unwrap() > 0.0);
    let advice =
        document(&mut server.net("advise", "--peak-redo 1MiB/s --duration 100ms --max-traffic 1m --json")).0;
    let verdicts = readings::verdicts(&advice).unwrap();
    let modes: Vec<&str> = verdicts.iter().map(|verdict| verdict.mode).collect();
    assert_eq!(modes, ["ASYNC", "FASTSYNC", "SYNC AFFIRM"]);
    for verdict in verdicts {
        assert!(["PASS", "WARN", "FAIL"].contains(&verdict.grade), "{}", verdict.grade);
        assert_eq!(verdict.grade == "PASS", verdict.causes.is_empty(), "{advice:#}");
    }
}
