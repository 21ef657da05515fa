//! Reports of the tool about emulated links, against their settings.

use std::time::Duration;

use serde::Serialize;
use standfast_net::wire::{HEADER_BYTES, REPORT_BYTES};
use standfast_wan::settings::Settings;

use super::lab::{Lab, Labs, ample_buffer, carries, deep_queue, link, round_trip};
use super::tool::{document, millis};
use super::{Value, apart, readings};
use crate::Result;
use crate::suite::Missing;

/// Round trips of the emulated links, milliseconds.
const DISTANCES: [f64; 5] = [1.0, 4.0, 10.0, 25.0, 100.0];
/// Rates of the emulated links, megabits per second.
const RATES: [f64; 3] = [10.0, 100.0, 1000.0];
/// Round trips of a stream that are not measured: its rate doubles in each until the link is full.
const RAMP_UP: f64 = 30.0;
/// Bytes of a message without payload and of its acknowledgement, including the headers of their packets (IPv4, TCP
/// with timestamps).
const QUESTION: u64 = HEADER_BYTES as u64 + HEADERS;
const ANSWER: u64 = REPORT_BYTES as u64 + HEADERS;
const HEADERS: u64 = 20 + 32;
/// Allowed lateness of one packet in a hundred: this share of the round trip, or at least the time that a wake-up
/// takes.
const LATE_SHARE: f64 = 0.02;
const LATE_LEAST: f64 = 100e-6;
/// Allowed lateness for a stream, whose queue does not run empty meanwhile.
const LATE_STREAM: f64 = 5e-3;

/// A reported number and the configured one, in seconds or bytes per second.
#[derive(Debug, Serialize)]
pub struct Reported {
    pub reported: f64,
    pub truth: f64,
    /// Runs that were discarded because the emulator was late.
    pub discarded: u32,
    /// The emulator was late at the last attempt too, which counts nevertheless.
    pub late: bool,
}

impl Reported {
    /// Their difference in percent of the configured value.
    pub fn percent_apart(&self) -> f64 {
        apart(self.reported, self.truth)
    }
}

#[derive(Debug, Serialize)]
pub struct Cell {
    pub rtt_ms: f64,
    pub megabits: f64,
    /// Median round trip of messages without payload, only the network's part: the wake-up of the two programs does not
    /// belong to it.
    pub round_trip: Reported,
    pub rate: Reported,
}

pub(super) fn grid(labs: &Labs<'_>) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for rtt_ms in DISTANCES {
        for megabits in RATES {
            cells.push(cell(labs, rtt_ms, megabits)?);
        }
    }
    Ok(cells)
}

fn cell(labs: &Labs<'_>, rtt_ms: f64, megabits: f64) -> Result<Cell> {
    let mut settings = link(rtt_ms, megabits);
    settings.queue = deep_queue(&settings);
    let lab = labs.open(settings)?;
    lab.set_ceilings(ample_buffer(&settings))?;
    let _server = lab.server()?;
    let round_trip = reported_round_trip(labs, &lab, &settings)?;
    let rate = reported_rate(labs, &lab, &settings)?;
    let cell = Cell { rtt_ms, megabits, round_trip, rate };
    eprintln!(
        "link of {rtt_ms} ms, {megabits} Mbit/s: round trip {:.2} % apart, rate {:.2} %",
        cell.round_trip.percent_apart(),
        cell.rate.percent_apart()
    );
    Ok(cell)
}

fn reported_round_trip(labs: &Labs<'_>, lab: &Lab<'_>, settings: &Settings) -> Result<Reported> {
    let bound = (round_trip(settings) * LATE_SHARE).max(LATE_LEAST);
    let found = lab.on_time(bound, || {
        let mut command = lab.net_first("client")?;
        command.args(["--length", "0", "--duration", &millis(labs.context.measure / 3)]);
        command.args(["--omit", &millis(labs.context.warmup / 2)]);
        readings::network_median(&document(&mut command)?)
    })?;
    let (discarded, late) = (found.discarded, found.late);
    Ok(Reported { reported: found.value, truth: true_round_trip(settings), discarded, late })
}

/// The round trip, plus the transmission time of a question and its answer.
fn true_round_trip(settings: &Settings) -> f64 {
    round_trip(settings) + (settings.wire_time(QUESTION) + settings.wire_time(ANSWER)) as f64 / 1e9
}

fn reported_rate(labs: &Labs<'_>, lab: &Lab<'_>, settings: &Settings) -> Result<Reported> {
    let found = lab.on_time(LATE_STREAM, || {
        let mut command = lab.net("client")?;
        command.args(["--mode", "async", "--duration", &millis(labs.context.measure)]);
        command.args(["--omit", &millis(ramp_up(settings))]);
        readings::bytes_per_second(&document(&mut command)?)
    })?;
    let (discarded, late) = (found.discarded, found.late);
    Ok(Reported { reported: found.value, truth: carries(settings), discarded, late })
}

fn ramp_up(settings: &Settings) -> Duration {
    Duration::from_secs_f64((RAMP_UP * round_trip(settings)).clamp(0.5, 3.0))
}

/// A link with socket buffers that are too small for it, and with buffers that are large enough.
#[derive(Debug, Serialize)]
pub struct Buffers {
    /// Bytes per second with small buffers.
    pub small: f64,
    /// What limited the stream according to the tool.
    pub small_limit: String,
    /// Bytes per second with buffers of three times bandwidth x delay.
    pub large: f64,
    /// What limited the stream according to the tool.
    pub large_limit: String,
}

impl Buffers {
    /// How many times faster large buffers are, if the tool names the right limit.
    pub(super) fn judge(&self) -> Value {
        match self.small_limit.as_str() {
            "receiver_window" | "send_buffer" => Ok(self.large / self.small),
            other => Err(Missing::Failed(format!(
                "{:.0} times faster, but the tool says that {other} limited the small buffers",
                self.large / self.small
            ))),
        }
    }
}

/// Compares 16 KB with three times bandwidth x delay at 1 Gbit/s and 25 ms.
pub(super) fn buffers(labs: &Labs<'_>) -> Result<Buffers> {
    const SMALL: u64 = 16 << 10;
    let settings = link(25.0, 1000.0);
    let lab = labs.open(settings)?;
    let _server = lab.server()?;
    let run = |window: u64| -> Result<(f64, String)> {
        let found = lab.on_time(LATE_STREAM, || {
            let mut command = lab.net("client")?;
            command.args(["--mode", "async", "--window", &window.to_string()]);
            command.args([
                "--duration",
                &millis(labs.context.measure),
                "--omit",
                &millis(ramp_up(&settings)),
            ]);
            document(&mut command)
        })?;
        let document = found.value;
        Ok((readings::bytes_per_second(&document)?, readings::limit(&document)?.to_owned()))
    };
    let (small, small_limit) = run(SMALL)?;
    let (large, large_limit) = run(ample_buffer(&settings))?;
    let found = Buffers { small, small_limit, large, large_limit };
    eprintln!("socket buffers: {found:?}");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_round_trip_includes_the_bits_of_a_message() {
        let truth = true_round_trip(&link(1.0, 10.0));
        // 84 and 116 bytes at 10 Mbit/s.
        assert!((truth - 0.001_16).abs() < 1e-9, "{truth}");
        assert!((true_round_trip(&link(100.0, 1000.0)) - 0.1).abs() < 2e-6);
    }

    #[test]
    fn a_ratio_counts_only_with_the_right_cause() {
        let of = |limit: &str| Buffers {
            small: 1.0,
            small_limit: limit.into(),
            large: 100.0,
            large_limit: "path".into(),
        };
        assert_eq!(of("receiver_window").judge(), Ok(100.0));
        assert_eq!(of("send_buffer").judge(), Ok(100.0));
        assert!(matches!(of("path").judge(), Err(Missing::Failed(_))));
    }
}
