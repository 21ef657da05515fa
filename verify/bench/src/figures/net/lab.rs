//! Two hosts with an emulated link between them, one of them with a server.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use standfast_wan::settings::{Nanos, Queue, Settings};
use standfast_wan::{Wan, WanConfig, WanError};

use super::start::Start;
use super::tool::server;
use crate::context::need;
use crate::error::During;
use crate::process::{Process, Scratch};
use crate::{BenchError, Context, Result};

pub(in super::super) const NEAR: &str = "a";
pub(in super::super) const FAR: &str = "b";
/// Port of the server, which is alone in its namespace.
const PORT: u16 = 7460;
/// Payload of a full segment with timestamps, and size of its IP packet.
const SEGMENT: (f64, f64) = (1448.0, 1500.0);
/// Smallest buffer of a connection, however short the link, bytes.
const LEAST_BUFFER: f64 = 1_048_576.0;

pub(in super::super) struct Labs<'a> {
    pub(in super::super) context: &'a Context,
    pub(in super::super) start: &'a Start,
    pub(in super::super) scratch: &'a Scratch,
}

pub(in super::super) struct Lab<'a> {
    labs: &'a Labs<'a>,
    wan: Wan,
}

/// Settings of a link with this round trip and rate, and the emulator's default queue.
pub(in super::super) fn link(rtt_ms: f64, megabits: f64) -> Settings {
    Settings {
        delay: (rtt_ms / 2.0 * 1e6) as Nanos,
        rate: Some((megabits * 1e6) as u64),
        ..Settings::default()
    }
}

/// Settings like those of [`link`]; without a round trip, the link is as fast as the host.
pub(in super::super) fn link_or_wire(rtt_ms: f64, megabits: f64) -> Settings {
    if rtt_ms > 0.0 { link(rtt_ms, megabits) } else { Settings::default() }
}

/// Payload bytes per second that a stream gets from a link.
pub(in super::super) fn carries(settings: &Settings) -> f64 {
    settings.rate.map_or(f64::INFINITY, |bits| bits as f64 / 8.0 * SEGMENT.0 / SEGMENT.1)
}

/// Round trip in seconds without transmission time.
pub(in super::super) fn round_trip(settings: &Settings) -> f64 {
    2.0 * settings.delay as f64 / 1e9
}

/// Buffers of three times bandwidth x delay, bytes.
pub(in super::super) fn ample_buffer(settings: &Settings) -> u64 {
    (3.0 * carries(settings) * round_trip(settings)).max(LEAST_BUFFER) as u64
}

/// A queue with room for everything that ample buffers send, so that a stream neither loses a segment nor pauses: only
/// the rate limits it.
pub(in super::super) fn deep_queue(settings: &Settings) -> Queue {
    Queue::Bytes(4 * ample_buffer(settings))
}

/// Turns a refusal of the emulator, for lack of privileges, into a reason to skip.
pub(in super::super) fn emulated<T>(done: standfast_wan::Result<T>) -> Result<T> {
    done.map_err(|error| match error {
        WanError::Refused { .. } => BenchError::Unavailable(error.to_string()),
        other => BenchError::Workload(format!("emulated link: {other}")),
    })
}

impl Labs<'_> {
    /// Opens two hosts with a link that is the same in both directions.
    pub(in super::super) fn open(&self, settings: Settings) -> Result<Lab<'_>> {
        self.open_nodes(&[NEAR, FAR], settings)
    }

    /// Opens hosts, each two of which have such a link.
    pub(in super::super) fn open_nodes(&self, nodes: &[&str], settings: Settings) -> Result<Lab<'_>> {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        let wan = emulated(Wan::start(WanConfig { settings, nodes, ..WanConfig::default() }))?;
        Ok(Lab { labs: self, wan })
    }
}

impl Lab<'_> {
    pub(in super::super) fn wan(&self) -> &Wan {
        &self.wan
    }

    /// Sets a sysctl below `net.ipv4` of a host.
    pub(in super::super) fn set(&self, node: &str, name: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/ipv4/{name}");
        emulated(self.wan.within(node, || std::fs::write(&path, value)))?.during(|| format!("write {path}"))
    }

    /// Lets automatic socket buffers of a host grow to `bytes`.
    pub(in super::super) fn set_ceiling(&self, node: &str, name: &str, bytes: u64) -> Result<()> {
        let path = format!("/proc/sys/net/ipv4/{name}");
        let text = emulated(self.wan.within(node, || std::fs::read_to_string(&path)))?
            .during(|| format!("read {path}"))?;
        self.set(node, name, &with_ceiling(&text, bytes))
    }

    /// Lets automatic socket buffers of both hosts grow to `bytes`.
    pub(in super::super) fn set_ceilings(&self, bytes: u64) -> Result<()> {
        for node in [NEAR, FAR] {
            self.set_ceiling(node, "tcp_rmem", bytes)?;
            self.set_ceiling(node, "tcp_wmem", bytes)?;
        }
        Ok(())
    }

    pub(in super::super) fn command(&self, node: &str, words: &[OsString]) -> Result<Command> {
        let (program, rest) = words.split_first().ok_or_else(|| BenchError::Workload("no program".into()))?;
        let mut command = emulated(self.wan.command(node, program))?;
        command.args(rest);
        Ok(command)
    }

    fn program(&self) -> Result<&Path> {
        let remedy = "standfast is not built beside this program: run `cargo build --release --workspace`";
        need(&self.labs.context.programs.standfast, remedy)
    }

    /// Starts the server on the far host.
    pub(in super::super) fn server(&self) -> Result<Process> {
        self.server_at(&self.labs.scratch.path().join("server.tmp"))
    }

    /// Starts the server with its file elsewhere.
    pub(in super::super) fn server_at(&self, file: &Path) -> Result<Process> {
        let command = self.command(FAR, &self.labs.start.first(self.program()?))?;
        server(command, (&self.far_address()?, PORT), file, self.labs.scratch.path())
    }

    /// Makes a command `standfast net VERB` on the near host against the server.
    pub(in super::super) fn net(&self, verb: &str) -> Result<Command> {
        let mut command = self.command(NEAR, &[self.program()?.into()])?;
        command.args(["net", verb, &self.far_address()?, "--port", &PORT.to_string(), "--json"]);
        Ok(command)
    }

    /// Makes the command of [`Lab::net`] for a test that waits more than it works, with priority.
    pub(in super::super) fn net_first(&self, verb: &str) -> Result<Command> {
        let mut command = self.command(NEAR, &self.labs.start.first(self.program()?))?;
        command.args(["net", verb, &self.far_address()?, "--port", &PORT.to_string(), "--json"]);
        Ok(command)
    }

    pub(in super::super) fn far_address(&self) -> Result<String> {
        Ok(emulated(self.wan.node(FAR))?.address.to_string())
    }

    /// Carries out a measurement. The emulator's own lateness shows whether a run is bad; a bad run is discarded and
    /// repeated, at most twice.
    pub(in super::super) fn on_time<T>(
        &self,
        bound: f64,
        mut measure: impl FnMut() -> Result<T>,
    ) -> Result<OnTime<T>> {
        const ATTEMPTS: u32 = 3;
        let mut discarded = 0;
        loop {
            let before = self.wan.control().stats(true).overruns;
            let value = measure()?;
            let stats = self.wan.control().stats(true);
            let late = is_late(stats.late.p99, bound, stats.overruns - before);
            if !late || discarded + 1 == ATTEMPTS {
                return Ok(OnTime { value, discarded, late });
            }
            discarded += 1;
            eprintln!(
                "  the emulator was late ({:.0} us for 1 packet of 100, {:.0} us allowed, {} dropped): run {discarded} \
                 is discarded",
                stats.late.p99 * 1e6,
                bound * 1e6,
                stats.overruns - before
            );
        }
    }
}

/// A measurement and how often it was repeated.
pub(in super::super) struct OnTime<T> {
    pub(in super::super) value: T,
    pub(in super::super) discarded: u32,
    /// The emulator was late at the last attempt too.
    pub(in super::super) late: bool,
}

/// Smallest, initial and largest buffer with a new largest one; the smaller values are capped at it.
fn with_ceiling(setting: &str, bytes: u64) -> String {
    let smaller = setting.split_whitespace().take(2).filter_map(|word| word.parse::<u64>().ok());
    let numbers: Vec<String> =
        smaller.map(|number| number.min(bytes)).chain([bytes]).map(|number| number.to_string()).collect();
    numbers.join(" ")
}

/// Whether a run measures this machine instead of the link.
fn is_late(p99: f64, bound: f64, overruns: u64) -> bool {
    p99 > bound || overruns > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_values_of_a_link_follow_from_its_settings() {
        let settings = link(25.0, 1000.0);
        assert_eq!((settings.delay, settings.rate), (12_500_000, Some(1_000_000_000)));
        assert!((round_trip(&settings) - 0.025).abs() < 1e-12);
        assert!((carries(&settings) - 120_666_666.7).abs() < 1.0);
        let product = 120_666_666.7 * 0.025;
        assert!((ample_buffer(&settings) as f64 - 3.0 * product).abs() < 4.0);
        assert_eq!(ample_buffer(&link(1.0, 10.0)), 1 << 20);
        let Queue::Bytes(queue) = deep_queue(&settings) else { panic!("a queue of bytes") };
        assert!(queue as f64 > ample_buffer(&settings) as f64);
    }

    #[test]
    fn buffer_ceiling_lowers_other_sizes_only_if_they_exceed_it() {
        assert_eq!(with_ceiling("4096\t131072\t6291456\n", 32 << 10), "4096 32768 32768");
        assert_eq!(with_ceiling("4096 16384 4194304", 8 << 20), "4096 16384 8388608");
    }

    #[test]
    fn late_or_dropped_packets_spoil_a_run() {
        assert!(!is_late(40e-6, 50e-6, 0));
        assert!(is_late(60e-6, 50e-6, 0));
        assert!(is_late(0.0, 50e-6, 1));
    }
}
