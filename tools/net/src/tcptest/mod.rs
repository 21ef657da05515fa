//! `standfast tcptest`: the classic command line and screens over the engine.

pub mod options;
pub mod screen;

use crate::outcome::{Event, Outcome};
use crate::report;
use crate::run::run;
use crate::server::{Server, ServerPlan};
use crate::socket::{SLICE, wall_clock};
use crate::terminal::{print, tell};
use crate::{NetError, Result, interrupt};
use options::{ClientCommand, Command};
use standfast_page::units::Extent;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const HELP: &str = include_str!("help.txt");

/// Runs a command line and returns the exit code.
pub fn main(words: &[String]) -> u8 {
    let command = match options::parse(words) {
        Ok(command) => command,
        Err(error) => {
            tell!("error: {error}\nhelp: standfast tcptest -help");
            return error.exit_code();
        }
    };
    let done = match command {
        Command::Help => {
            print(HELP);
            Ok(0)
        }
        Command::Server(plan) => server(plan).map(|()| 0),
        Command::Client(client) => repeat(&client, interrupt::flag()),
    };
    done.unwrap_or_else(|error| {
        tell!("error: {error}");
        error.exit_code()
    })
}

pub fn server(plan: ServerPlan) -> Result<()> {
    let stop = interrupt::flag();
    let server = Server::bind(plan.clone())?;
    print(&screen::server_started(&plan, server.address()?, wall_clock()));
    server.run(stop, &|line| print(&screen::server_line(line, wall_clock())))
}

fn repeat(client: &ClientCommand, stop: &AtomicBool) -> Result<u8> {
    for notice in &client.notices {
        tell!("note: {notice}");
    }
    if let Some(output) = &client.output {
        check_output(output)?;
    }
    let began = Instant::now();
    let mut worst = 0;
    let mut stored = Vec::new();
    for turn in 0_u32.. {
        if turn > 0 {
            print("\n");
        }
        let outcome = once(client, stop);
        if let Some(output) = &client.output {
            stored.push(report::json(&client.target, &client.plan, &outcome));
            store(output, &stored)?;
        }
        let code = match outcome {
            Ok(outcome) => exit_code(client, &outcome),
            // A server that is unreachable in one iteration may be back in the next.
            Err(error) if client.frequency.is_some() => {
                tell!("error: {error}");
                error.exit_code()
            }
            Err(error) => return Err(error),
        };
        worst = worst.max(code);
        let Some(frequency) = client.frequency else { break };
        let next = frequency.every.saturating_mul(turn + 1);
        if next >= frequency.during || !wait_until(began + next, stop) {
            break;
        }
    }
    Ok(worst)
}

/// Waits until `due`; returns false when it was interrupted.
fn wait_until(due: Instant, stop: &AtomicBool) -> bool {
    while !stop.load(Ordering::Relaxed) {
        match due.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return true,
            left => std::thread::sleep(left.min(SLICE)),
        }
    }
    false
}

fn once(client: &ClientCommand, stop: &AtomicBool) -> Result<Outcome> {
    let plan = &client.plan;
    print(&screen::request(plan, client.frequency));
    let outcome = run(&client.target, plan, stop, &mut |event| match event {
        Event::Ready => print(&screen::ready(plan, wall_clock())),
        Event::Row(_, interval) => print(&screen::row(plan, interval, wall_clock())),
    })?;
    print(&screen::summary(plan, &outcome, wall_clock()));
    if let Some(error) = &outcome.error {
        tell!("error: {error}");
    }
    Ok(outcome)
}

fn exit_code(client: &ClientCommand, outcome: &Outcome) -> u8 {
    match &outcome.error {
        Some(error) => error.exit_code(),
        None if outcome.interrupted && client.plan.duration != Extent::Endless => 130,
        None => 0,
    }
}

/// Checks the file before the test, so that the results of a day are not lost to a misspelled directory.
fn check_output(output: &Path) -> Result<()> {
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(output);
    opened.map(drop).map_err(|error| {
        NetError::option(
            "-output",
            &output.display().to_string(),
            &format!("a file that can be written ({error})"),
        )
    })
}

fn store(output: &Path, stored: &[serde_json::Value]) -> Result<()> {
    let csv = output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let text = match (csv, stored) {
        (true, _) => report::csv(stored),
        (false, [one]) => format!("{one:#}\n"),
        (false, many) => format!("{:#}\n", serde_json::Value::from(many)),
    };
    std::fs::write(output, text)
        .map_err(|source| NetError::system(format!("cannot write {}", output.display()), source))
}
