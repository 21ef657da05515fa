//! The classic screen: the block of settings, one line per interval, the summary. Pure: clock times are given.

use crate::outcome::Outcome;
use crate::plan::{Mode, Payload, Plan};
use crate::server::ServerPlan;
use crate::stats::Interval;
use crate::tcptest::options::Frequency;
use standfast_page::units::{Extent, classic_size, classic_time};
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// Hour, minute and second of the day.
pub type Clock = (u8, u8, u8);

const MEGABYTE: f64 = 1_048_576.0;

fn stamp((hour, minute, second): Clock) -> String {
    format!("({hour:02}:{minute:02}:{second:02})")
}

fn yes(on: bool) -> String {
    String::from(if on { "YES" } else { "NO" })
}

fn time_or_no(time: Duration) -> String {
    if time.is_zero() { yes(false) } else { classic_time(time) }
}

/// Returns the block of what is requested.
pub fn request(plan: &Plan, frequency: Option<Frequency>) -> String {
    let up_to = |on: bool, text: String| if on { format!("random, up to {text}") } else { text };
    let rows = [
        ("Message payload", up_to(plan.random_length, classic_size(plan.length.into()))),
        (
            "Payload content type",
            match &plan.payload {
                Payload::File { name, .. } => format!("FILE ({name})"),
                other => other.name().to_owned(),
            },
        ),
        ("Delay between messages", up_to(plan.random_delay, time_or_no(plan.delay))),
        ("Number of connections", plan.streams.to_string()),
        (
            "Socket send buffer",
            match plan.buffer {
                0 => "(system default)".into(),
                bytes => classic_size(bytes.into()),
            },
        ),
        ("Transport mode", plan.mode.name().into()),
        ("Disk write", yes(plan.write)),
        ("Statistics interval", classic_time(plan.interval)),
        (
            "Test duration",
            match plan.duration {
                Extent::Endless => "(until interrupted)".into(),
                Extent::Time(time) => classic_time(time),
                Extent::Bytes(bytes) => classic_size(bytes),
            },
        ),
        (
            "Test frequency",
            frequency.map_or_else(
                || yes(false),
                |every| format!("every {} for {}", classic_time(every.every), classic_time(every.during)),
            ),
        ),
        ("Network Timeout", time_or_no(plan.timeout.unwrap_or_default())),
    ];
    let mut out = String::from("[Requesting a test]\n");
    for (name, value) in rows {
        let _ = writeln!(out, "        {name:<22} = {value}");
    }
    out.push_str("        (1 Mbyte = 1024x1024 bytes)\n");
    out
}

/// Returns the line that says that the test begins, and the column heads.
pub fn ready(plan: &Plan, now: Clock) -> String {
    let latency = match (plan.mode, plan.write) {
        (Mode::Async, _) => "",
        (Mode::Sync, false) => "Latency",
        (Mode::Sync, true) => "Latency (including disk-write)",
    };
    let throughput = if plan.is_round_trip() { "Round trips" } else { "Throughput" };
    let heads = format!("{throughput:>30}{:13}{latency}", "");
    format!("\n{} The server is ready.\n{}\n", stamp(now), heads.trim_end())
}

/// Returns the line of one interval.
pub fn row(plan: &Plan, interval: &Interval, now: Clock) -> String {
    let mut out = stamp(now);
    if plan.is_round_trip() {
        // No payload is carried, so messages are counted.
        let _ = write!(out, "{:>13.0} per second", interval.messages as f64 / interval.seconds.max(1e-9));
    } else {
        let _ = write!(out, "{:>13.3} Mbytes/s", interval.rate() / MEGABYTE);
    }
    if plan.mode == Mode::Sync {
        let _ = match &interval.latency {
            Some(latency) => write!(out, "{:>18.3} ms", latency.total.mean * 1e3),
            None => write!(out, "{:>18} ms", "-"),
        };
    }
    out.push('\n');
    out
}

/// Returns the end and the summary: first the lines of the classic screen, then those that it lacks.
pub fn summary(plan: &Plan, outcome: &Outcome, now: Clock) -> String {
    let mut out = format!("{} Test {}.\n", stamp(now), ending(outcome));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:>31} = {value}");
    };
    let many = plan.streams > 1;
    line(
        if many { "Avg. socket send buffer" } else { "Socket send buffer" },
        match outcome.buffers.send {
            bytes if bytes > 0 && bytes.is_multiple_of(1 << 20) => classic_size(bytes),
            bytes => bytes.to_string(),
        },
    );
    if !plan.is_round_trip() {
        let name = if many { "Avg. aggregate throughput" } else { "Avg. throughput" };
        line(name, format!("{:.3} Mbytes/s", outcome.total.rate() / MEGABYTE));
    }
    if let Some(latency) = outcome.latency() {
        let millis = |seconds: f64| format!("{:.3} ms", seconds * 1e3);
        let note = if plan.write { " (including disk-write at server)" } else { "" };
        line("Avg. latency", millis(latency.total.mean) + note);
        if plan.write {
            line("of it network", millis(latency.network.mean));
            line("of it disk-write", millis(latency.disk.mean));
            if latency.waking.mean > 0.0 {
                line("of it waking up", millis(latency.waking.mean));
            }
        }
        line("Latency p50 / p99 / max", {
            let total = latency.total;
            format!("{:.3} / {:.3} / {:.3} ms", total.p50 * 1e3, total.p99 * 1e3, total.max * 1e3)
        });
    } else if plan.write {
        line("Disk-write share of time", format!("{:.0} %", outcome.total.disk_share * 100.0));
    }
    line("Retransmissions", outcome.total.tcp.retransmissions.to_string());
    for setting in &outcome.buffers.clamped_by {
        line("Socket buffer clamped by", (*setting).to_owned());
    }
    if let Some(limit) = outcome.total.limit {
        line("Limited by", limit.to_string());
    }
    out
}

fn ending(outcome: &Outcome) -> &'static str {
    match (&outcome.error, outcome.interrupted) {
        (Some(_), _) => "failed",
        (None, true) => "interrupted",
        (None, false) => "finished",
    }
}

/// Returns the text of a server that has started to listen.
pub fn server_started(plan: &ServerPlan, address: SocketAddr, now: Clock) -> String {
    format!(
        "{} TcpTest server started.\n        Address                = {address}\n        \
         File                   = {}\n        Socket receive buffer  = {}\n",
        stamp(now),
        plan.file.display(),
        if plan.buffer == 0 { "(system default)".into() } else { classic_size(plan.buffer.into()) },
    )
}

/// Returns a line of a server's output.
pub fn server_line(text: &str, now: Clock) -> String {
    format!("{} {text}\n", stamp(now))
}
