//! `net advise`: the whole procedure. It announces its cost, measures, and prints; it changes no setting.

use super::arguments::AdviseArgs;
use super::html_file::ReportFile;
use super::progress::Progress;
use super::sweep::{Budget, HEADS, line, ramp_up, round_trip, sweep};
use crate::advice::{Advice, Findings, Grade, Measured, Way, advise};
use crate::html::{self, advise::AdviceReport, words::window_name};
use crate::loaded::{beside, probe};
use crate::log_history::LogHistory;
use crate::outcome::Outcome;
use crate::plan::{Direction, Directions, Mode, Plan};
use crate::stream::Target;
use crate::terminal::{print, say, tell};
use crate::{Result, interrupt, report, socket};
use serde_json::{Value, json};
use standfast_page::units::{classic_size, classic_time, readable_size};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Largest socket buffer that is tried, bytes.
const MOST_WINDOW: u32 = 64 << 20;
/// Maximum number of connections that are tried.
const MOST_STREAMS: u16 = 16;
/// Usual payload of a segment, bytes.
const SEGMENT: f64 = 1448.0;

/// Maximum number of tests of one direction, the round trips included.
const MOST_TESTS: u32 = 21;

struct Redo {
    /// Bytes per second at the peak.
    peak: f64,
    /// Bytes of a redo write, on average.
    write: u32,
}

pub fn main(args: &AdviseArgs) -> Result<u8> {
    // Set up before the first output: the user may interrupt from then on.
    let stop = interrupt::flag();
    let target = args.target.target()?;
    let (peak, history) = args.peak()?;
    let redo = Redo { peak, write: args.redo_write()? };
    let file = args.html.as_deref().map(ReportFile::begin).transpose()?;
    if let Some(history) = &history {
        tell!("{}", source(history));
    }
    let directions = if args.both { Directions::Both } else { Directions::ToServer };
    let mut ways = Vec::new();
    let ended = every_way(args, &target, &redo, (directions, stop), &mut ways);
    if args.json {
        say!("{:#}", document(&target, (&redo, history.as_ref()), &ways, &ended));
    }
    if let Some(file) = file {
        file.end(|identity| {
            html::advise::page_of(&AdviceReport {
                identity,
                target: &target,
                directions,
                options: options(args, &redo),
                history: history.as_ref(),
                ways: &ways,
                ended: &ended,
            })
        })?;
    }
    ended?;
    let mut verdicts =
        ways.iter().filter_map(|way| way.judged.as_ref()).flat_map(|(_, advice)| &advice.verdicts);
    Ok(if verdicts.any(|verdict| verdict.grade == Grade::Fail) { 3 } else { 0 })
}

fn options(args: &AdviseArgs, redo: &Redo) -> Vec<(&'static str, String)> {
    let mut reported = vec![
        ("redo write", classic_size(redo.write.into())),
        ("time of each test", classic_time(args.duration)),
        ("no further test after", readable_size(args.max_traffic as f64)),
        ("largest socket buffer tried", readable_size(MOST_WINDOW.into())),
        ("most connections tried", MOST_STREAMS.to_string()),
    ];
    if args.both {
        reported.push(("file of this host's durable writes", args.file.display().to_string()));
    }
    reported
}

fn document(
    target: &Target,
    (redo, history): (&Redo, Option<&LogHistory>),
    ways: &[Way],
    ended: &Result<()>,
) -> Value {
    let mut report = report::begin();
    report["server"] = target.to_string().into();
    report["peak"] = redo.peak.into();
    report["redo_write"] = redo.write.into();
    report["log_history"] = json!(history);
    for Way { direction, findings, judged } in ways {
        let latency = |run: &Option<Outcome>| {
            run.as_ref().and_then(Outcome::latency).map(|latency| report::latency(&latency))
        };
        report[direction.code()] = json!({
            "round_trip": findings.round_trip(),
            "fastsync": latency(&findings.fastsync),
            "affirm": latency(&findings.affirm),
            "loaded_round_trip": latency(&findings.loaded),
            "sweep": findings.sweep.document(),
            "advice": judged.as_ref().map(|(_, advice)| advice),
        });
    }
    report::ending(&mut report, ended);
    report
}

/// Measures one direction after the other. Results up to an error stay in `ways`.
fn every_way(
    args: &AdviseArgs,
    target: &Target,
    redo: &Redo,
    (directions, stop): (Directions, &AtomicBool),
    ways: &mut Vec<Way>,
) -> Result<()> {
    let parts = directions.all().len() as u64;
    tell!(
        "up to {} tests of {:.1} s each, and up to 3 s to get going, that fill the link to {target}{}; they end after \
         about {} of data; nothing is changed",
        u64::from(MOST_TESTS) * parts,
        args.duration.as_secs_f64(),
        if args.both { " and back" } else { "" },
        readable_size(args.max_traffic as f64)
    );
    let progress = Progress::begin(None);
    for direction in directions.all() {
        // Each direction has its share of the traffic, so that the first one leaves enough for the second.
        let bytes = args.max_traffic / parts;
        let mut budget = Budget { time: args.duration, bytes, stop, progress: &progress };
        let mut findings = Findings::default();
        let recoveries = socket::sack_recoveries();
        let ended = measure(target, *direction, redo, &args.file, &mut budget, &mut findings);
        let judged = ended.is_ok().then(|| {
            let mut measured = measured(redo, *direction, &findings);
            // Only a sender recovers losses, and only this host's kernel can be read.
            measured.sack_recoveries = recoveries
                .zip(socket::sack_recoveries())
                .filter(|_| *direction == Direction::ToServer)
                .map(|(before, now)| now.saturating_sub(before));
            let advice = advise(&measured);
            (measured, advice)
        });
        if let Some((measured, advice)) = judged.as_ref().filter(|_| !args.json) {
            if args.both {
                let gap = if ways.is_empty() { "" } else { "\n" };
                say!("{gap}redo {} {target}", direction.name().trim_end_matches(" server"));
            }
            print(&text(measured, advice));
        }
        ways.push(Way { direction: *direction, findings, judged });
        ended?;
    }
    Ok(())
}

/// Runs all tests of one direction. The durable writes are those of its receiver. Results up to an error stay in
/// `findings`.
fn measure(
    target: &Target,
    direction: Direction,
    redo: &Redo,
    file: &Path,
    budget: &mut Budget<'_>,
    findings: &mut Findings,
) -> Result<()> {
    tell!("redo {}: round trip ...", direction.name());
    findings.idle = Some(round_trip(target, budget)?);
    let size = classic_size(redo.write.into());
    tell!("SYNC messages of {size}, without and with the receiver's disk ...");
    let plan = || Plan { directions: direction.into(), length: redo.write, ..Plan::default() };
    findings.fastsync = Some(budget.run(target, &plan())?);
    findings.affirm = Some(budget.run(target, &Plan { write: true, file: file.to_owned(), ..plan() })?);
    let rtt = findings.round_trip().unwrap_or(0.0);
    tell!("socket buffers and connections ...\n{HEADS}");
    if budget.is_left() {
        let most = (MOST_WINDOW, MOST_STREAMS);
        sweep(target, direction, budget, rtt, most, &mut findings.sweep, &mut |tried, outcome| {
            tell!("{}", line(tried, outcome));
        })?;
    }
    if let Some(fastest) = findings.sweep.best().filter(|_| budget.is_left()) {
        // At least ten messages a second: a slower stream would show nothing.
        let rate = redo.peak.min(fastest.rate / 2.0).max(10.0 * f64::from(redo.write));
        tell!("redo at {}/s ...", readable_size(rate));
        findings.paced = Some(budget.run(target, &Plan { mode: Mode::Async, rate: Some(rate), ..plan() })?);
    }
    if budget.is_left() {
        tell!("round trips while one connection fills the link ...");
        // A gap that is being closed, or other traffic, would fill the link like this while commits continue.
        let load = Plan { mode: Mode::Async, omit: ramp_up(rtt), length: 1 << 20, ..plan() };
        let probe = Plan { timeout: Some(Duration::from_secs(30)), ..probe(&load) };
        let (_, probed) = beside(target, &probe, || budget.run(target, &load))?;
        findings.loaded = Some(probed);
    }
    Ok(())
}

/// Describes the log history that gave the peak.
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

/// Collects the measurements. A test that fills a link overflows its queues, so only the other tests can tell whether
/// the path itself loses segments: FASTSYNC, SYNC AFFIRM, and a stream if there was one.
fn measured(redo: &Redo, direction: Direction, findings: &Findings) -> Measured {
    // Settings of this host, whichever side it is; the other host may have the same or not.
    let ceilings = match direction {
        Direction::ToServer => "wmem",
        Direction::FromServer => "rmem",
    };
    let Findings { idle, fastsync, affirm, sweep: found, paced, loaded } = findings;
    let latency = |run: &Option<Outcome>| run.as_ref().and_then(Outcome::latency);
    let unloaded: Vec<&Outcome> = [fastsync, affirm, paced].into_iter().flatten().collect();
    let sum = |of: &dyn Fn(&Outcome) -> f64| unloaded.iter().map(|outcome| of(outcome)).sum::<f64>();
    let segments = sum(&|outcome| (outcome.total.bytes as f64 / SEGMENT).max(outcome.total.messages as f64));
    let again = sum(&|outcome| outcome.total.tcp.retransmissions as f64);
    Measured {
        peak: redo.peak,
        redo_write: redo.write,
        round_trip: findings.round_trip().unwrap_or(0.0),
        idle: latency(idle),
        loaded: latency(loaded),
        fastsync: latency(fastsync),
        affirm: latency(affirm),
        automatic: found.windows.first().copied(),
        automatic_limit: found.outcomes.first().and_then(|outcome| outcome.total.limit),
        single: found.best_window(),
        fastest: found.best(),
        loss: if segments > 0.0 { again / segments } else { 0.0 },
        sack_negotiated: unloaded.iter().all(|outcome| outcome.total.tcp.sack),
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
            let window = window_name(run.window);
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
