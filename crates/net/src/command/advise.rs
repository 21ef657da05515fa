//! `net advise`: the whole procedure. It announces what it costs, measures, and prints; it sets nothing.

use super::arguments::AdviseArgs;
use super::sweep::{Budget, HEADS, Sweep, document, line, ramp_up, round_trip, sweep};
use crate::advice::{Advice, Grade, Measured, advise};
use crate::loaded::{beside, probe};
use crate::log_history::LogHistory;
use crate::plan::{Direction, Directions, Mode, Plan};
use crate::run::Outcome;
use crate::stream::Target;
use crate::units::{classic_size, readable_size};
use crate::{Result, interrupt, socket};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// Largest socket buffer that is tried, bytes.
const MOST_WINDOW: u32 = 64 << 20;
/// Most connections that are tried.
const MOST_STREAMS: u16 = 16;
/// Segments carry about so much.
const SEGMENT: f64 = 1448.0;

/// Most tests of one direction, the round trips included.
const MOST_TESTS: u32 = 21;

/// What redo there is.
struct Redo {
    /// Bytes per second.
    peak: f64,
    /// Bytes.
    write: u32,
}

pub fn main(args: &AdviseArgs) -> Result<u8> {
    let target = args.target.target()?;
    let (peak, history) = args.peak()?;
    let redo = Redo { peak, write: args.redo_write()? };
    if let Some(history) = &history {
        eprintln!("{}", source(history));
    }
    let directions = if args.both { Directions::Both } else { Directions::ToServer };
    let ways = directions.all().len() as u64;
    eprintln!(
        "up to {} tests of {:.1} s each, and up to 3 s to get going, that fill the link to {target}{}; they end after \
         about {} of data; nothing is changed",
        u64::from(MOST_TESTS) * ways,
        args.duration.as_secs_f64(),
        if args.both { " and back" } else { "" },
        readable_size(args.max_traffic as f64)
    );
    let mut report = json!({
        "schema_version": crate::report::SCHEMA_VERSION,
        "peak": redo.peak,
        "redo_write": redo.write,
        "log_history": history,
    });
    let mut failed = false;
    for direction in directions.all() {
        // Each direction has its part of the traffic: the second one is not left without.
        let bytes = args.max_traffic / ways;
        let mut budget = Budget { time: args.duration, bytes, stop: interrupt::flag() };
        let (measured, found) = measure(&target, *direction, &redo, &args.file, &mut budget)?;
        let advice = advise(&measured);
        failed |= advice.verdicts.iter().any(|verdict| verdict.grade == Grade::Fail);
        if args.json {
            report[direction.code()] = json!({
                "round_trip": measured.round_trip,
                "fastsync": measured.fastsync,
                "affirm": measured.affirm,
                "loaded_round_trip": measured.loaded,
                "sweep": document(&found),
                "advice": advice,
            });
            continue;
        }
        if args.both {
            println!("redo {} {target}", if *direction == Direction::ToServer { "to" } else { "from" });
        }
        print!("{}", text(&measured, &advice));
        if args.both && *direction == Direction::ToServer {
            println!();
        }
    }
    if args.json {
        println!("{report:#}");
    }
    Ok(if failed { 3 } else { 0 })
}

/// All tests of one direction. The durable writes are those of its receiver.
fn measure(
    target: &Target,
    direction: Direction,
    redo: &Redo,
    file: &Path,
    budget: &mut Budget<'_>,
) -> Result<(Measured, Sweep)> {
    let recoveries = socket::sack_recoveries();
    eprintln!("redo {}: round trip ...", direction.name());
    let idle = round_trip(target, budget)?;
    let size = classic_size(redo.write.into());
    eprintln!("SYNC messages of {size}, without and with the receiver's disk ...");
    let plan = || Plan { directions: direction.into(), length: redo.write, ..Plan::default() };
    let fastsync = budget.run(target, &plan())?;
    let affirm = budget.run(target, &Plan { write: true, file: file.to_owned(), ..plan() })?;
    let rtt = idle.latency().map_or(0.0, |latency| latency.total.p50);
    eprintln!("socket buffers and connections ...\n{HEADS}");
    let most = (MOST_WINDOW, MOST_STREAMS);
    let found = match budget.is_left() {
        true => sweep(target, direction, budget, rtt, most, &mut |tried, outcome| {
            eprintln!("{}", line(tried, outcome));
        })?,
        false => Sweep::default(),
    };
    let mut calm = vec![fastsync, affirm];
    if let Some(fastest) = found.best().filter(|_| budget.is_left()) {
        // Slower than some messages a second there would be nothing to see.
        let rate = redo.peak.min(fastest.rate / 2.0).max(10.0 * f64::from(redo.write));
        eprintln!("redo at {}/s ...", readable_size(rate));
        calm.push(budget.run(target, &Plan { mode: Mode::Async, rate: Some(rate), ..plan() })?);
    }
    let mut loaded = None;
    if budget.is_left() {
        eprintln!("round trips while one connection fills the link ...");
        // As a gap being closed, or somebody else, would fill it; beside it commits go on.
        let load = Plan { mode: Mode::Async, omit: ramp_up(rtt), length: 1 << 20, ..plan() };
        let probe = Plan { timeout: Some(Duration::from_secs(30)), ..probe(&load) };
        let (_, probed) = beside(target, &probe, || budget.run(target, &load))?;
        loaded = probed.total.latency;
    }
    let mut measured = Measured { loaded, ..measured(redo, direction, &idle, &calm, &found) };
    // Only a sender recovers losses, and only this host's kernel is at hand.
    measured.sack_recoveries = recoveries
        .zip(socket::sack_recoveries())
        .filter(|_| direction == Direction::ToServer)
        .map(|(before, now)| now.saturating_sub(before));
    Ok((measured, found))
}

/// Where the peak comes from.
fn source(history: &LogHistory) -> String {
    let LogHistory { peak, logs, without_duration, shortest } = history;
    format!(
        "log history: {logs} logs ({without_duration} without a duration passed over); the fastest, sequence {} of \
         thread {}, took {}/s; the shortest time between two switches was {shortest:.0} s",
        peak.sequence,
        peak.thread,
        readable_size(peak.rate())
    )
}

/// `calm` are the runs that do not fill the link: FASTSYNC, SYNC AFFIRM, and a stream when there was one. A test that
/// fills a link overflows its queues, so only the others can tell whether the path loses segments by itself.
fn measured(redo: &Redo, direction: Direction, idle: &Outcome, calm: &[Outcome], found: &Sweep) -> Measured {
    // Of this host, whichever side it is: the other one may have the same or not.
    let ceilings = match direction {
        Direction::ToServer => "wmem",
        Direction::FromServer => "rmem",
    };
    let sum = |of: &dyn Fn(&Outcome) -> f64| calm.iter().map(of).sum::<f64>();
    let segments = sum(&|outcome| (outcome.total.bytes as f64 / SEGMENT).max(outcome.total.messages as f64));
    let again = sum(&|outcome| outcome.total.tcp.retransmissions as f64);
    Measured {
        peak: redo.peak,
        redo_write: redo.write,
        round_trip: idle.latency().map_or(0.0, |latency| latency.total.p50),
        idle: idle.latency(),
        loaded: None,
        fastsync: calm.first().and_then(Outcome::latency),
        affirm: calm.get(1).and_then(Outcome::latency),
        automatic: found.windows.first().copied(),
        automatic_limit: found.outcomes.first().and_then(|outcome| outcome.total.limit),
        single: found.best_window(),
        fastest: found.best(),
        loss: if segments > 0.0 { again / segments } else { 0.0 },
        sack_negotiated: calm.iter().all(|outcome| outcome.total.tcp.sack),
        sack_enabled: socket::sysctl("net.ipv4.tcp_sack").map(|value| value != 0),
        sack_recoveries: None,
        ceiling: socket::sysctl(&format!("net.core.{ceilings}_max")),
        automatic_ceiling: socket::sysctl_numbers(&format!("net.ipv4.tcp_{ceilings}")).get(2).copied(),
    }
}

fn text(measured: &Measured, advice: &Advice) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let _ = writeln!(out, "round trip           {:.3} ms", measured.round_trip * 1e3);
    let _ = writeln!(
        out,
        "required             {}/s (peak {}/s + 30 %)",
        readable_size(advice.required),
        readable_size(measured.peak)
    );
    for (name, run) in [("one connection", measured.single), ("fastest", measured.fastest)] {
        if let Some(run) = run {
            let window = super::sweep::window_name(run.window);
            let rate = readable_size(run.rate);
            let _ = writeln!(out, "{name:<20} {rate}/s, buffers {window}, {} connections", run.streams);
        }
    }
    let product = advice.bandwidth_delay;
    let (once, thrice) = (readable_size(product), readable_size(3.0 * product));
    let _ = writeln!(out, "bandwidth x delay    {once}; buffers want three times that, {thrice}");
    if let Some(affirm) = measured.affirm {
        let (network, disk) = (affirm.network.mean * 1e3, affirm.disk.mean * 1e3);
        let _ = writeln!(out, "SYNC AFFIRM wait     network {network:.3} ms, disk {disk:.3} ms");
    }
    if let Some(gain) = advice.fastsync_gain {
        let _ = writeln!(out, "FASTSYNC saves       {:.3} ms a commit", gain * 1e3);
    }
    let _ = writeln!(out, "redo log             at least {} a group\n", readable_size(advice.log_bytes));
    for verdict in &advice.verdicts {
        let commit =
            verdict.commit.map_or_else(String::new, |time| format!("  a commit waits {:.3} ms", time * 1e3));
        let _ = writeln!(out, "{:<12} {}{commit}", verdict.mode, verdict.grade);
        for cause in &verdict.causes {
            let _ = writeln!(out, "  {} {}: {}", cause.grade, cause.name, cause.text);
        }
    }
    if !advice.settings.is_empty() {
        out.push_str("\nsettings for both hosts (not applied):\n");
        for setting in &advice.settings {
            let _ = writeln!(out, "  {setting}");
        }
    }
    out.push('\n');
    for note in &advice.notes {
        let _ = writeln!(out, "{note}");
    }
    out
}
