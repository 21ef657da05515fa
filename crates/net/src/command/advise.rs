//! `net advise`: the whole procedure. It announces what it costs, measures, and prints; it sets nothing.

use super::arguments::AdviseArgs;
use super::sweep::{Budget, HEADS, Sweep, document, line, round_trip, sweep};
use crate::advice::{Advice, Grade, Measured, advise};
use crate::log_history::LogHistory;
use crate::plan::{Mode, Plan};
use crate::run::Outcome;
use crate::stats::Latency;
use crate::units::{classic_size, readable_size};
use crate::{Result, interrupt, socket};
use serde_json::json;

/// Largest socket buffer that is tried, bytes.
const MOST_WINDOW: u32 = 64 << 20;
/// Most connections that are tried.
const MOST_STREAMS: u16 = 16;
/// Segments carry about so much.
const SEGMENT: f64 = 1448.0;

pub fn main(args: &AdviseArgs) -> Result<u8> {
    let target = args.target.target();
    let ((peak, history), redo_write) = (args.peak()?, args.redo_write()?);
    if let Some(history) = &history {
        eprintln!("{}", source(history));
    }
    let mut budget = Budget { time: args.duration, bytes: args.max_traffic, stop: interrupt::flag() };
    eprintln!(
        "up to 20 tests of {:.1} s each, and up to 3 s to get going, that fill the link to {target}; they end after about \
         {} of data; nothing is changed",
        args.duration.as_secs_f64(),
        readable_size(args.max_traffic as f64)
    );
    let recoveries = socket::sack_recoveries();
    eprintln!("round trip ...");
    let idle = round_trip(&target, &mut budget)?;
    eprintln!(
        "SYNC messages of {}, without and with the standby's disk ...",
        classic_size(redo_write.into())
    );
    let message = Plan { length: redo_write, ..Plan::default() };
    let fastsync = budget.run(&target, &message)?;
    let affirm = budget.run(&target, &Plan { write: true, ..message })?;
    let rtt = shortest_median(&[idle.latency(), fastsync.latency()]);
    eprintln!("socket buffers and connections ...\n{HEADS}");
    let found = match budget.is_left() {
        true => sweep(&target, &mut budget, rtt, (MOST_WINDOW, MOST_STREAMS), &mut |tried, outcome| {
            eprintln!("{}", line(tried, outcome));
        })?,
        false => Sweep::default(),
    };
    let mut calm = vec![fastsync, affirm];
    if let Some(fastest) = found.best().filter(|_| budget.is_left()) {
        let rate = peak.min(fastest.rate / 2.0);
        eprintln!("redo at {}/s ...", readable_size(rate));
        let plan = Plan { mode: Mode::Async, rate: Some(rate), length: redo_write, ..Plan::default() };
        calm.push(budget.run(&target, &plan)?);
    }
    let mut measured = measured((peak, redo_write), rtt, &calm, &found);
    measured.sack_recoveries =
        recoveries.zip(socket::sack_recoveries()).map(|(before, now)| now.saturating_sub(before));
    let advice = advise(&measured);
    if args.json {
        let mut report = json!({
            "schema_version": crate::report::SCHEMA_VERSION,
            "peak": peak,
            "redo_write": redo_write,
            "log_history": history,
            "round_trip": rtt,
            "fastsync": measured.fastsync,
            "affirm": measured.affirm,
            "advice": advice,
        });
        report["sweep"] = document(&found);
        println!("{report:#}");
    } else {
        print!("{}", text(&measured, &advice));
    }
    let failed = advice.verdicts.iter().any(|verdict| verdict.grade == Grade::Fail);
    Ok(if failed { 3 } else { 0 })
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

/// A message with payload is never faster than one without: when it seems so, something disturbed the first test, and
/// the link is not as far as it looked.
fn shortest_median(tests: &[Option<Latency>]) -> f64 {
    tests.iter().flatten().map(|latency| latency.total.p50).reduce(f64::min).unwrap_or(0.0)
}

/// `calm` are the runs that do not fill the link: FASTSYNC, SYNC AFFIRM, and a stream when there was one. A test that
/// fills a link overflows its queues, so only the others can tell whether the path loses segments by itself.
fn measured((peak, redo_write): (f64, u32), rtt: f64, calm: &[Outcome], found: &Sweep) -> Measured {
    let sum = |of: &dyn Fn(&Outcome) -> f64| calm.iter().map(of).sum::<f64>();
    let segments = sum(&|outcome| (outcome.total.bytes as f64 / SEGMENT).max(outcome.total.messages as f64));
    let again = sum(&|outcome| outcome.total.tcp.retransmissions as f64);
    Measured {
        peak,
        redo_write,
        round_trip: rtt,
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
        send_ceiling: socket::sysctl("net.core.wmem_max"),
        automatic_ceiling: socket::sysctl_numbers("net.ipv4.tcp_wmem").get(2).copied(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Latencies;

    #[test]
    fn a_disturbed_round_trip_is_not_taken_for_distance() {
        let test = |millis: u64| {
            let mut latencies = Latencies::default();
            latencies.record(millis * 1_000_000, 0);
            latencies.figures()
        };
        let near = |found: f64, truth: f64| (found - truth).abs() < truth * 0.01;
        assert!(near(shortest_median(&[test(7), test(4)]), 0.004));
        assert!(near(shortest_median(&[test(4), test(5)]), 0.004));
        assert_eq!(shortest_median(&[None, None]), 0.0);
    }
}
