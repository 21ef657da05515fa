//! What a test prints: rows for people, or JSON, NDJSON, CSV.

use crate::outcome::{Outcome, RoundTrips};
use crate::plan::{Direction, Mode, Plan};
use crate::socket::wall_clock;
use crate::stats::Interval;
use crate::stream::Target;
use crate::terminal::print;
use crate::{NetError, Result, report};
use clap::ValueEnum;
use serde_json::json;
use standfast_page::units::{megabits, short_size};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A row an interval and a summary
    Text,
    /// One document at the end
    Json,
    /// One document a row, as it happens, and the summary as the last one
    Ndjson,
    /// A table of the rows
    Csv,
}

/// Prints a test while it runs, and its report at the end.
pub struct Output {
    format: Format,
    file: Option<PathBuf>,
    sync: bool,
}

impl Output {
    /// Checks that the file can be written, before the test.
    pub fn new(format: Format, file: Option<&Path>, plan: &Plan) -> Result<Output> {
        if let Some(file) = file {
            std::fs::OpenOptions::new().append(true).create(true).open(file).map_err(|error| {
                let allowed = format!("a file that can be written ({error})");
                NetError::option("--output", &file.display().to_string(), &allowed)
            })?;
        }
        Ok(Output { format, file: file.map(Path::to_owned), sync: plan.mode == Mode::Sync })
    }

    /// Prints the heads, once all connections are open.
    pub fn begin(&mut self, plan: &Plan) {
        match self.format {
            Format::Text => print(&heads(plan.mode == Mode::Sync)),
            Format::Csv => print(&report::csv_head()),
            Format::Json | Format::Ndjson => {}
        }
    }

    pub fn row(&mut self, direction: Direction, interval: &Interval) {
        match self.format {
            Format::Text => {
                let (hour, minute, second) = wall_clock();
                let row = row(direction, interval, self.sync);
                print(&format!("({hour:02}:{minute:02}:{second:02}) {row}\n"));
            }
            Format::Csv => print(&report::csv_row(0, &report::interval(direction, interval))),
            Format::Ndjson => {
                print(&format!("{}\n", json!({ "interval": report::interval(direction, interval) })));
            }
            Format::Json => {}
        }
    }

    /// Prints the result or the error, and writes the file.
    pub fn end(&mut self, target: &Target, plan: &Plan, outcome: &Result<Outcome>) -> Result<()> {
        let report = report::json(target, plan, outcome);
        if let Some(file) = &self.file {
            std::fs::write(file, format!("{report:#}\n"))
                .map_err(|source| NetError::system(format!("cannot write {}", file.display()), source))?;
        }
        match (self.format, outcome) {
            (Format::Json, _) => print(&format!("{report:#}\n")),
            (Format::Ndjson, _) => print(&format!("{report}\n")),
            (Format::Text, Ok(outcome)) => print(&summary(plan, outcome)),
            _ => {}
        }
        Ok(())
    }
}

pub fn heads(sync: bool) -> String {
    let latency = if sync { "    mean     p50     p99     max | network    disk ms" } else { "    disk" };
    format!("{:>32}{:>10} {latency}  retr  cwnd  limited by\n", "MiB/s", "Mbit/s")
}

/// One interval, behind its clock time: the way its figures go, and they.
pub fn row(direction: Direction, interval: &Interval, sync: bool) -> String {
    let rate = interval.rate();
    let mut out = format!("{:<11}{:>10.3}{:>10.1} ", direction.name(), rate / 1_048_576.0, megabits(rate));
    let _ = match (&interval.latency, sync) {
        (Some(latency), _) => {
            let total = latency.total;
            let parts =
                [total.mean, total.p50, total.p99, total.max].map(|part| format!("{:>8.3}", part * 1e3));
            let (network, disk) = (latency.network.mean * 1e3, latency.disk.mean * 1e3);
            write!(out, "{} |{network:>8.3}{disk:>8.3}   ", parts.concat())
        }
        (None, true) => write!(out, "{:>32} |{:>8}{:>8}   ", "-", "-", "-"),
        (None, false) => write!(out, "{:>6.0} %", interval.disk_share * 100.0),
    };
    let tcp = &interval.tcp;
    let limit = interval.limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
    let _ = write!(out, "{:>6}{:>6}  {limit}", tcp.retransmissions, short_size(tcp.congestion_window));
    out
}

/// The whole test: a block for each direction.
pub fn summary(plan: &Plan, outcome: &Outcome) -> String {
    let mut out: String = outcome.directions().map(|outcome| one_way(plan, outcome)).collect();
    if let Some(trips) = &outcome.round_trips {
        out += &round_trips(trips);
    }
    if outcome.interrupted {
        out.push_str("interrupted\n");
    }
    out
}

fn round_trips(trips: &RoundTrips) -> String {
    let mut out = format!("{:<19}{:>10}{:>10}{:>10}  ms\n", "round trips", "p50", "p99", "max");
    for (name, latency) in [("idle", trips.idle), ("loaded", trips.loaded)] {
        let figures = latency.map(|latency| [latency.total.p50, latency.total.p99, latency.total.max]);
        let cells: String = match figures {
            Some(figures) => figures.iter().map(|figure| format!("{:>10.3}", figure * 1e3)).collect(),
            None => format!("{:>10}", "-").repeat(3),
        };
        let _ = writeln!(out, "  {name:<17}{cells}");
    }
    if let Some((p50, p99)) = trips.growth() {
        let _ = writeln!(out, "  {:<17}{p50:>9.1}x{p99:>9.1}x", "growth");
    }
    out
}

fn one_way(plan: &Plan, outcome: &Outcome) -> String {
    let total = &outcome.total;
    let mut out = format!("{:<11}{}\n", "total", row(outcome.direction, total, plan.mode == Mode::Sync));
    let buffers = &outcome.buffers;
    let (sender, receiver) = match outcome.direction {
        Direction::ToServer => ("send buffer", "server's receive buffer"),
        Direction::FromServer => ("server's send buffer", "receive buffer"),
    };
    let (asked_sender, asked_receiver) = match outcome.direction {
        Direction::ToServer => (buffers.requested, buffers.requested_far),
        Direction::FromServer => (buffers.requested_far, buffers.requested),
    };
    let asked = |bytes: u32| if bytes == 0 { "auto".into() } else { short_size(bytes.into()) };
    let _ = writeln!(
        out,
        "{} messages in {:.3} s; {sender} {} (asked: {}), {receiver} {} (asked: {})",
        total.messages,
        total.seconds,
        short_size(buffers.send),
        asked(asked_sender),
        short_size(buffers.receive),
        asked(asked_receiver),
    );
    if let Some(latency) = total.latency.filter(|latency| latency.waking.mean > 0.0) {
        let mean = latency.waking.mean * 1e3;
        let _ =
            writeln!(out, "{mean:.3} ms of the mean latency went by until the programs saw what had come");
    }
    for setting in &buffers.clamped_by {
        let _ = writeln!(out, "the buffer asked for was cut down by {setting}");
    }
    if let Some(rtt) = total.tcp.min_rtt {
        let sack = if total.tcp.sack { "negotiated" } else { "not negotiated" };
        let congestion = outcome.congestion.as_deref().unwrap_or("unknown");
        let _ = writeln!(
            out,
            "shortest round trip {:.3} ms; SACK {sack}; congestion control {congestion}",
            rtt * 1e3
        );
    }
    out
}
