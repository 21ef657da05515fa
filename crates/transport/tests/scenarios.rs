//! Scenarios of the destination's state machine as text: commands in; its events and its state out.
//!
//! Each `testdata/*.txt` holds blocks of `commands`, a line `----`, the expected output, and an empty line.
//! `REGENERATE=1 cargo test` writes the current output into the files; review the difference before keeping it.

use standfast_transport::*;
use standfast_types::{IncarnationId, Scn};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

struct Scenario {
    destination: Option<Destination>,
    now: Duration,
    captured: Scn,
}

struct Command<'a> {
    name: &'a str,
    values: HashMap<&'a str, &'a str>,
}

impl<'a> Command<'a> {
    fn parse(line: &'a str) -> Command<'a> {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a command");
        let pair =
            |word: &'a str| word.split_once('=').unwrap_or_else(|| panic!("`{word}` is not key=value"));
        Command { name, values: words.map(pair).collect() }
    }

    fn text(&self, key: &str) -> &'a str {
        self.values.get(key).unwrap_or_else(|| panic!("`{}` needs {key}=", self.name))
    }

    fn scn(&self, key: &str) -> Scn {
        Scn(self.text(key).parse().expect("a position"))
    }

    fn or(&self, key: &str, default: &'a str) -> &'a str {
        self.values.get(key).copied().unwrap_or(default)
    }
}

fn duration(text: &str) -> Duration {
    let split = text.find(|c: char| c.is_alphabetic()).expect("a unit");
    let number: u64 = text[..split].parse().expect("a number");
    match &text[split..] {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        unit => panic!("unknown unit {unit}"),
    }
}

impl Scenario {
    fn run(&mut self, line: &str, out: &mut String) {
        let command = Command::parse(line);
        if command.name == "new" {
            self.destination =
                Some(Destination::new(config(&command), command.or("counts", "yes") == "yes", self.now));
            return self.report(out);
        }
        if command.name == "advance" {
            self.now += duration(command.text("by"));
        }
        let (now, captured) = (self.now, self.captured);
        let at = self.destination.as_mut().expect("`new` comes first");
        match command.name {
            "advance" => {
                if let Some(reason) = at.tick(now, captured) {
                    let _ = writeln!(out, "close the connection: {reason}");
                    at.lost(now, reason);
                }
            }
            "capture" => {
                self.captured = command.scn("upto");
                assert!(at.tick(now, self.captured).is_none());
            }
            "connect" => {
                let _ = writeln!(out, "connect due: {:?}", at.connect_due(now));
                at.connected(now);
            }
            "resolve" => {
                let from = command.scn("from");
                let held = command.or("held", command.text("from")).parse().expect("a position");
                at.resolved(now, from, Scn(held), from, captured);
            }
            "ack" => {
                let received = command.scn("received");
                let hardened = command.or("hardened", command.text("received")).parse().expect("a position");
                at.acked(now, received, Scn(hardened), Scn(hardened), captured);
            }
            "feed" => at.feeding(command.text("from") == "logs", command.scn("at")),
            "lose" => at.lost(now, command.text("why")),
            "restart" => at.restarts_stream(now, command.text("why")),
            "refuse" => at.refused(now, Refusal::new(code(command.text("code")), "because")),
            "fence" => {
                let number = command.text("incarnation").parse().expect("a number");
                let branch = command.scn("branch");
                at.fenced(Incarnation { number, id: IncarnationId::default(), branch }, "oslo");
            }
            "enable" => at.enable(now),
            "let_go" => at.let_go(),
            "end" => at.end(),
            "others" => at.see(Others {
                synchronised: command.or("synchronised", "yes") == "yes",
                acknowledged: Scn(command.or("acknowledged", "0").parse().expect("a position")),
            }),
            other => panic!("unknown command {other}"),
        }
        self.report(out);
    }

    fn report(&mut self, out: &mut String) {
        let at = self.destination.as_mut().expect("a destination");
        for event in at.take_events() {
            let _ = writeln!(out, "{event}");
        }
        let required = if at.is_required() { "required" } else { "not required" };
        let next = match at.connect_due(self.now) {
            Some(Duration::ZERO) => ", connect now".to_owned(),
            Some(wait) => format!(", connect in {wait:?}"),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "{:?}: {} {:?}, {required}, acknowledged {}{next}",
            self.now,
            at.phase().word(),
            at.standing(),
            at.acknowledged()
        );
    }
}

fn config(command: &Command<'_>) -> DestinationConfig {
    DestinationConfig {
        name: "oslo".into(),
        mode: match command.text("mode") {
            "affirm" => TransportMode::SyncAffirm,
            "fastsync" => TransportMode::FastSync,
            "async" => TransportMode::Async,
            other => panic!("unknown mode {other}"),
        },
        net_timeout: duration(command.or("net_timeout", "8s")),
        reopen: duration(command.or("reopen", "1s")),
        max_failure: command.or("max_failure", "0").parse().expect("a number"),
        grouped: command.or("grouped", "no") == "yes",
        on_timeout: match command.or("on_timeout", "degrade") {
            "degrade" => OnTimeout::Degrade,
            "stall" => OnTimeout::Stall,
            "stall_if_last" => OnTimeout::StallIfLast,
            other => panic!("unknown policy {other}"),
        },
        sync_latency: duration(command.or("sync_latency", "0s")),
    }
}

fn code(text: &str) -> RefuseCode {
    RefuseCode::ALL
        .into_iter()
        .find(|code| code.to_string() == text)
        .unwrap_or_else(|| panic!("unknown code {text}"))
}

fn replay(text: &str) -> String {
    let mut scenario = Scenario { destination: None, now: Duration::ZERO, captured: Scn::ZERO };
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(out, "{line}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut commands = vec![line];
        for line in lines.by_ref() {
            let _ = writeln!(out, "{line}");
            if line == "----" {
                break;
            }
            commands.push(line);
        }
        for command in commands {
            scenario.run(command, &mut out);
        }
        let _ = writeln!(out);
        // Skips the expected output, which is compared as part of the whole file.
        lines.by_ref().find(|line| line.is_empty());
    }
    out
}

#[test]
fn destination_state_machine_matches_the_scenarios() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut files: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let replayed = replay(&text);
        if std::env::var_os("REGENERATE").is_some() {
            std::fs::write(&file, &replayed).unwrap();
        } else {
            let first = text.lines().zip(replayed.lines()).position(|(expected, got)| expected != got);
            if let Some(line) = first {
                let (expected, got) = (text.lines().nth(line).unwrap(), replayed.lines().nth(line).unwrap());
                panic!("{}:{}\nexpected: {expected}\n     got: {got}", file.display(), line + 1);
            }
            assert_eq!(text.lines().count(), replayed.lines().count(), "{}", file.display());
        }
    }
}
