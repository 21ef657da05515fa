//! The tool against its peers on the loopback, pinned in the same way: servers on one processor, clients on another.

use std::cell::Cell;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::start::Start;
use super::tool::{document, free_port, millis, server};
use super::{Against, peers, readings};
use crate::context::need;
use crate::process::{Process, Scratch};
use crate::{Context, Result};

const ADDRESS: &str = "127.0.0.1";
/// Bytes of an ASYNC message, and of a write of iperf3: its default.
const WRITE_BYTES: u32 = 128 << 10;
/// Bytes that the receiver writes durably at a time.
const WRITE: u32 = 8 << 10;
/// Latencies need more and shorter rounds than throughput, because other work disturbs them for seconds at a time.
const LATENCY_ROUNDS: usize = 4;
/// Duration of the shortest test of sockperf and qperf.
const LATENCY_TIME: Duration = Duration::from_secs(1);
const DISK_TIME: Duration = Duration::from_millis(500);
/// Disk tests per round: the latency of a disk in the host's network changes from second to second.
const DISK_ROUNDS: usize = 8;

pub(super) struct Loopback<'a> {
    pub(super) context: &'a Context,
    pub(super) start: &'a Start,
    pub(super) scratch: &'a Scratch,
    pub(super) rounds: usize,
}

impl Loopback<'_> {
    fn standfast(&self) -> Result<&Path> {
        need(&self.context.programs.standfast, "standfast is not built beside this program")
    }

    /// A command with a processor each for server and client.
    fn working(&self, server: bool, program: &Path) -> Command {
        self.start.pinned(self.cpu(server), vec![program.into()])
    }

    /// A command like that of [`Loopback::working`], with priority over the other work of the machine.
    fn waiting(&self, server: bool, program: &Path) -> Command {
        self.start.pinned(self.cpu(server), self.start.first(program))
    }

    fn cpu(&self, server: bool) -> usize {
        if server { self.start.cpus.1 } else { self.start.cpus.0 }
    }

    fn server(&self, command: Command, port: u16) -> Result<Process> {
        let directory = self.scratch.path();
        server(command, (ADDRESS, port), &directory.join("server.tmp"), directory)
    }

    /// Adds the arguments that all tests of `standfast net client` have.
    fn client(&self, mut command: Command, port: u16, length: u32, time: Duration) -> Command {
        command.args(["net", "client", ADDRESS, "--json", "--port", &port.to_string()]);
        command.args(["--length", &length.to_string(), "--duration", &millis(time)]);
        command.args(["--omit", &millis(self.context.warmup)]);
        command
    }

    /// ASYNC without write: bytes per second.
    pub(super) fn throughput(&self, connections: usize) -> Result<Against> {
        eprintln!("ASYNC over loopback and iperf3, {connections} connections, {} rounds", self.rounds);
        let (program, iperf3) = (self.standfast()?, need(&self.context.programs.iperf3, INSTALL)?);
        let (port, other_port) = (free_port()?, free_port()?);
        let _server = self.server(self.working(true, program), port)?;
        let _other = peers::iperf3_server(self.working(true, iperf3), other_port, self.scratch.path())?;
        let time = self.context.measure;
        Against::alternate(
            self.rounds,
            || {
                let mut command = self.client(self.working(false, program), port, WRITE_BYTES, time);
                command.args(["--mode", "async", "--streams", &connections.to_string()]);
                readings::bytes_per_second(&document(&mut command)?)
            },
            || {
                let command = self.working(false, iperf3);
                peers::iperf3(command, other_port, (connections, WRITE_BYTES), (self.context.warmup, time))
            },
        )
    }

    /// SYNC without write: median round trip in seconds, against sockperf.
    pub(super) fn latency(&self, length: u32) -> Result<Against> {
        let rounds = self.rounds * LATENCY_ROUNDS;
        eprintln!("SYNC of {length} bytes over loopback and sockperf, {rounds} rounds");
        let sockperf = need(&self.context.programs.sockperf, INSTALL)?;
        Against::alternate(
            rounds,
            || self.sync(length, readings::median),
            || {
                let port = free_port()?;
                let _server =
                    peers::sockperf_server(self.waiting(true, sockperf), port, self.scratch.path())?;
                peers::sockperf(self.waiting(false, sockperf), port, length, LATENCY_TIME)
            },
        )
    }

    /// SYNC without write: mean round trip in seconds, against qperf, which has no other figure.
    pub(super) fn mean_latency(&self, length: u32) -> Result<Against> {
        let rounds = self.rounds * LATENCY_ROUNDS;
        eprintln!("SYNC of {length} bytes over loopback and qperf, {rounds} rounds");
        let qperf = need(&self.context.programs.qperf, INSTALL)?;
        Against::alternate(
            rounds,
            || self.sync(length, readings::mean),
            || {
                let ports = (free_port()?, free_port()?);
                let _server = peers::qperf_server(self.waiting(true, qperf), ports.0, self.scratch.path())?;
                peers::qperf(self.waiting(false, qperf), ports, length, LATENCY_TIME)
            },
        )
    }

    /// Returns a figure of SYNC without write. Both programs are started for each measurement, like those of the peer:
    /// the memory that a process happens to get makes it faster or slower by some percent for as long as it lives.
    fn sync(&self, length: u32, figure: fn(&Value) -> Result<f64>) -> Result<f64> {
        let (program, port) = (self.standfast()?, free_port()?);
        let _server = self.server(self.waiting(true, program), port)?;
        let mut command = self.client(self.waiting(false, program), port, length, LATENCY_TIME);
        figure(&document(&mut command)?)
    }

    /// SYNC with write: the disk's part of the latency, against durable writes alone in the same rhythm, because a disk
    /// that idles while a message is in transit answers later than one that is kept busy. Medians in seconds.
    pub(super) fn disk(&self) -> Result<Against> {
        let rounds = self.rounds * DISK_ROUNDS;
        eprintln!("SYNC with write of {WRITE} bytes over loopback and `net disk`, {rounds} rounds");
        let (program, port) = (self.standfast()?, free_port()?);
        let _server = self.server(self.waiting(true, program), port)?;
        let rest_s = Cell::new(0.0);
        Against::alternate(
            rounds,
            || {
                let mut command = self.client(self.waiting(false, program), port, WRITE, DISK_TIME);
                let found = document(command.arg("--write"))?;
                let disk_s = readings::disk_part_median(&found)?;
                rest_s.set(readings::median(&found)? - disk_s);
                Ok(disk_s)
            },
            || {
                let mut command = self.waiting(true, program);
                command.args(["net", "disk", "--json", "--length", &WRITE.to_string()]);
                command.args(["--delay", &format!("{:.0}us", rest_s.get() * 1e6)]);
                command.args(["--duration", &millis(DISK_TIME), "--dir"]).arg(self.scratch.path());
                readings::disk_median(&document(&mut command)?)
            },
        )
    }
}

const INSTALL: &str = "iperf3, sockperf or qperf is not installed: run bench/rivals.sh";
