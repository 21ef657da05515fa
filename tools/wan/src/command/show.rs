//! What the commands print.

use crate::emulator::{LinkStats, Stats};
use crate::link::State;
use std::fmt::Write as _;
use std::io::Write as _;

/// Prints to stdout; ends the process when the reader has closed it.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

pub fn json(stats: &Stats) {
    // Numbers and texts only: serialisation does not fail.
    print(&format!("{:#}\n", serde_json::to_value(stats).unwrap_or_default()));
}

/// `12 us`, `3.40 ms`, `1.20 s`.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

pub fn table(stats: &Stats) -> String {
    let mut out = format!(
        "{:<10}{:<9}{:>9}{:>12}{:>9}{:>8}{:>8}{:>8}{:>10}{:>10}\n",
        "link", "state", "delay", "rate", "segments", "lost", "full", "cut", "late p99", "max"
    );
    for link in &stats.links {
        let _ = writeln!(
            out,
            "{:<10}{:<9}{:>9}{:>12}{:>9}{:>8}{:>8}{:>8}{:>10}{:>10}",
            format!("{}:{}", link.from, link.to),
            state(link),
            time(link.delay),
            link.rate.map_or("-".into(), |bytes| format!("{:.1} Mbit/s", bytes * 8.0 / 1e6)),
            link.counts.segments,
            link.counts.lost,
            link.counts.queue_full,
            link.counts.cut,
            time(link.late.p99),
            time(link.late.max),
        );
    }
    if stats.overruns > 0 {
        let _ = writeln!(out, "{} packets were dropped before the emulator saw them", stats.overruns);
    }
    out
}

fn state(link: &LinkStats) -> &'static str {
    match link.state {
        State::Up => "up",
        State::Cut => "cut",
        State::Stalled => "stalled",
    }
}
