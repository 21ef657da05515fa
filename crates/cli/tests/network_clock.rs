//! `standfast net` while the wall clock of both hosts steps by an hour again and again. No figure, no interval and no
//! end of a test may depend on it. Only the labels of rows do, and they show that the steps were real.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Server, standfast};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A server that runs with the preloaded clock, whose library is in its directory.
struct Stepping(Server);

fn clock(directory: &Path) -> PathBuf {
    let library = directory.join("stepping_clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stepping_clock.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .args([&library, Path::new(source)])
        .output();
    let compiled = compiled.unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library
}

impl Stepping {
    fn start(name: &str) -> Stepping {
        Stepping(Server::start_as(name, |directory| {
            let mut program = standfast("");
            program.env("LD_PRELOAD", clock(directory));
            program
        }))
    }

    fn client(&self, words: &str) -> Command {
        let mut client = self.0.net("client", &format!("--duration 3s {words}"));
        client.env("LD_PRELOAD", self.0.directory.join("stepping_clock.so"));
        client
    }

    /// Runs a test of three seconds with rows of 300 ms; returns the document of a successful test.
    fn tested(&self, words: &str) -> Value {
        let began = Instant::now();
        let mut command = self.client(&format!("{words} --interval 300ms --json"));
        let output =
            command.arg(format!("--file={}", self.0.directory.join("near").display())).output().unwrap();
        let took = began.elapsed();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{words}: {complaint}");
        // The test ended on time. A busy machine is given some delay, but less than an hour.
        assert!((3..60).contains(&took.as_secs()), "{words}: {took:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// What is wrong with the times of one direction of a test of three seconds.
fn insane(figures: &Value) -> Option<String> {
    let seconds = |value: &Value| value["seconds"].as_f64().unwrap();
    let total = seconds(&figures["summary"]);
    if !(2.9..30.0).contains(&total) {
        return Some(format!("the test took {total} s"));
    }
    let rows = figures["intervals"].as_array().unwrap();
    let sum: f64 = rows.iter().map(seconds).sum();
    if rows.len() < 2 || (sum - total).abs() > 0.5 {
        return Some(format!("{} rows have {sum} of {total} s", rows.len()));
    }
    for pair in rows.windows(2) {
        let gap = pair[1]["start"].as_f64().unwrap() - pair[0]["start"].as_f64().unwrap() - seconds(&pair[0]);
        if gap.abs() > 0.01 {
            return Some(format!("a row begins {gap} s after the end of the one before"));
        }
    }
    for latency in
        rows.iter().chain([&figures["summary"]]).map(|row| &row["latency"]).filter(|it| !it.is_null())
    {
        for part in [latency, &latency["network"], &latency["disk"], &latency["waking"]] {
            let figures = ["mean", "p50", "max"].map(|name| part[name].as_f64().unwrap());
            if figures.iter().any(|figure| !(0.0..30.0).contains(figure)) {
                return Some(format!("latencies of {part}"));
            }
        }
        if latency["p50"].as_f64().unwrap() <= 0.0 {
            return Some(format!("no time passed: {latency}"));
        }
    }
    None
}

#[test]
fn wall_clock_step_disturbs_no_figure_and_ends_no_test() {
    let stepping = Stepping::start("steps");
    for words in
        ["--length 1k", "--length 8k --write --bidir", "--mode async --streams 2", "--mode async --reverse"]
    {
        let result = stepping.tested(words);
        assert_eq!(result["status"], "ok", "{words}");
        for figures in [Some(&result), result.get("reverse")].into_iter().flatten() {
            assert_eq!(insane(figures), None, "{words}: {figures:#}");
            assert!(figures["summary"]["messages"].as_u64().unwrap() > 10, "{words}");
        }
        if words.contains("--write") {
            let latency = &result["summary"]["latency"];
            let part = |name: &str| latency[name]["mean"].as_f64().unwrap();
            assert!(part("disk") > 0.0 && part("network") > 0.0, "{latency}");
        }
    }
    // As many messages as were due, and none of them late by a step.
    let paced = stepping.tested("--rate 100KiB/s --length 1k");
    assert_eq!(insane(&paced), None, "{paced:#}");
    let messages = paced["summary"]["messages"].as_u64().unwrap();
    assert!((250..=301).contains(&messages), "{messages}");
}

#[test]
fn only_row_labels_follow_a_step_of_the_wall_clock() {
    let stepping = Stepping::start("labels");
    let output = stepping.client("--length 1k --interval 200ms").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let screen = String::from_utf8(output.stdout).unwrap();
    let hours: BTreeSet<&str> = screen
        .lines()
        .filter_map(|line| line.strip_prefix('(')?.split_once(':'))
        .map(|(hour, _)| hour)
        .collect();
    assert!(hours.len() >= 2, "the clock did not step: {screen}");
}

/// Control test: without it, a program that reads another clock than the preloaded one would pass the tests above.
#[test]
fn step_of_the_monotonic_clock_is_detected() {
    let stepping = Stepping::start("control");
    let mut command = stepping.client("--length 1k --interval 300ms --json");
    let child = command.env("STEPPING", "monotonic").stdout(Stdio::piped()).spawn().unwrap();
    let id = child.id().to_string();
    let (ended, watched) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        // The program may also wait until the step is over; that counts as found, too.
        if watched.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", &id]).status();
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    watch.join().unwrap();
    let result: Result<Value, _> = serde_json::from_slice(&output.stdout);
    assert!(result.is_err() || insane(&result.unwrap()).is_some());
}
