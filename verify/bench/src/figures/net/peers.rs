//! iperf3, sockperf and qperf: their command lines and their output.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::readings::number;
use crate::error::parsed;
use crate::process::{Process, run};
use crate::{BenchError, Result, interrupt};

/// Address on which the servers listen.
const ADDRESS: &str = "127.0.0.1";
/// How long a peer may take until it listens.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Starts a peer's server; `command` ends with its program.
pub(super) fn iperf3_server(mut command: Command, port: u16, scratch: &Path) -> Result<Process> {
    command.args(["--server", "--forceflush", "--port", &port.to_string()]);
    started(command, port, &scratch.join("iperf3.log"))
}

/// Starts a server on another host; `command` ends with its program. Does not wait until it listens: the first test is
/// repeated until the server answers.
pub(in super::super) fn far_iperf3_server(
    mut command: Command,
    port: u16,
    scratch: &Path,
) -> Result<Process> {
    command.args(["--server", "--forceflush", "--port", &port.to_string()]);
    Process::start(command, Some(&scratch.join("iperf3.log")), libc::SIGTERM)
}

/// Payload bytes per second that the server at `address` received over one connection.
pub(in super::super) fn far_iperf3(
    command: impl Fn() -> Result<Command>,
    (address, port): (&str, u16),
    length: u32,
    (warmup, time): (Duration, Duration),
) -> Result<f64> {
    let begun = std::time::Instant::now();
    loop {
        let mut client = command()?;
        client.args([
            "--client",
            address,
            "--json",
            "--port",
            &port.to_string(),
            "--length",
            &length.to_string(),
        ]);
        client.args(["--time", &time.as_secs().max(1).to_string()]);
        client.args(["--omit", &warmup.as_secs().max(1).to_string()]);
        match run(&mut client).and_then(|output| iperf3_rate(&output)) {
            Err(BenchError::Program { .. }) if begun.elapsed() < TIMEOUT => {
                interrupt::pause(Duration::from_millis(200))?;
            }
            other => return other,
        }
    }
}

/// Payload bytes per second that the server received.
pub(super) fn iperf3(
    mut command: Command,
    port: u16,
    (connections, length): (usize, u32),
    (warmup, time): (Duration, Duration),
) -> Result<f64> {
    command.args(["--client", ADDRESS, "--json", "--port", &port.to_string()]);
    command.args(["--parallel", &connections.to_string(), "--length", &length.to_string()]);
    // iperf3 accepts whole seconds only.
    command.args([
        "--time",
        &time.as_secs().max(1).to_string(),
        "--omit",
        &warmup.as_secs().max(1).to_string(),
    ]);
    iperf3_rate(&run(&mut command)?)
}

/// Starts a peer's server; `command` ends with its program.
pub(super) fn sockperf_server(mut command: Command, port: u16, scratch: &Path) -> Result<Process> {
    command.args(["server", "--tcp", "-i", ADDRESS, "-p", &port.to_string()]);
    started(command, port, &scratch.join("sockperf.log"))
}

/// Returns the median round trip in seconds, as sockperf reports it.
pub(super) fn sockperf(mut command: Command, port: u16, length: u32, time: Duration) -> Result<f64> {
    command.args(["ping-pong", "--tcp", "--full-rtt", "-i", ADDRESS, "-p", &port.to_string()]);
    // sockperf's own warm-up of 400 ms is not counted either.
    command.args(["-m", &length.to_string(), "-t", &time.as_secs().max(1).to_string()]);
    sockperf_median(&run(&mut command)?)
}

/// Starts a peer's server; `command` ends with its program.
pub(super) fn qperf_server(mut command: Command, port: u16, scratch: &Path) -> Result<Process> {
    command.args(["--listen_port", &port.to_string()]);
    started(command, port, &scratch.join("qperf.log"))
}

/// Mean round trip in seconds. qperf takes a second port for the messages.
pub(super) fn qperf(
    mut command: Command,
    (port, test_port): (u16, u16),
    length: u32,
    time: Duration,
) -> Result<f64> {
    command.args([ADDRESS, "--listen_port", &port.to_string(), "--ip_port", &test_port.to_string()]);
    command.args(["--msg_size", &length.to_string(), "--time", &time.as_secs().max(1).to_string()]);
    qperf_mean(&run(command.args(["--unify_units", "tcp_lat"]))?)
}

fn started(command: Command, port: u16, log: &Path) -> Result<Process> {
    let process = Process::start(command, Some(log), libc::SIGTERM)?;
    process.await_ready("a peer that listens", TIMEOUT, || Ok(listens(port)))?;
    // A connection that only tested the listener ends before the first test.
    interrupt::pause(Duration::from_millis(100))?;
    Ok(process)
}

/// Reads the kernel's tables instead of connecting: iperf3 takes the first connection for a test.
fn listens(port: u16) -> bool {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    tables.iter().any(|table| has_listener(table, port))
}

/// Whether a line of `/proc/net/tcp` is a listening socket of the port.
fn has_listener(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let wanted = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().is_some_and(|local| local.ends_with(&wanted));
        local && fields.nth(1) == Some(LISTEN)
    })
}

fn iperf3_rate(output: &str) -> Result<f64> {
    let what = "the JSON of iperf3";
    let document: Value = parsed(what, output)?;
    if let Some(error) = document.get("error").and_then(Value::as_str) {
        return Err(BenchError::Unreadable { what: what.into(), detail: error.into() });
    }
    Ok(number(&document, "/end/sum_received/bits_per_second")? / 8.0)
}

fn sockperf_median(output: &str) -> Result<f64> {
    let lines = output.lines().filter(|line| line.contains("percentile 50.0"));
    let micros: Option<f64> = lines.filter_map(|line| line.rsplit('=').next()?.trim().parse().ok()).next();
    let whole_trip = output.contains("Round trip is");
    let found = micros.filter(|_| whole_trip).map(|micros| micros / 1e6);
    found.ok_or_else(|| BenchError::Unreadable {
        what: "the output of sockperf".into(),
        detail: output.lines().last().unwrap_or("it wrote nothing").to_owned(),
    })
}

/// Doubles the printed latency, which is one way: half of a message and its answer.
fn qperf_mean(output: &str) -> Result<f64> {
    let line = output.lines().find_map(|line| line.trim().strip_prefix("latency"));
    let nanos = line.and_then(|line| line.trim_start().strip_prefix('=')?.trim().strip_suffix("ns"));
    let nanos: Option<f64> = nanos.and_then(|number| number.trim().parse().ok());
    nanos.map(|nanos| 2.0 * nanos / 1e9).ok_or_else(|| BenchError::Unreadable {
        what: "the output of qperf".into(),
        detail: output.lines().last().unwrap_or("it wrote nothing").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf3_rate_is_what_the_server_received() {
        let output = r#"{"start": {}, "end": {"sum_sent": {"bits_per_second": 9e9},
            "sum_received": {"bits_per_second": 8e9, "bytes": 1}}}"#;
        assert_eq!(iperf3_rate(output).unwrap(), 1e9);
        let failed = iperf3_rate(r#"{"start": {}, "error": "unable to connect"}"#).unwrap_err();
        assert!(failed.to_string().contains("unable to connect"), "{failed}");
        assert!(iperf3_rate("iperf3: error").is_err());
    }

    #[test]
    fn sockperf_median_is_read_only_from_full_round_trips() {
        let output = "sockperf: Summary: Round trip is 24.407 usec\n\
            sockperf: Total 100 observations; each percentile contains 1.00 observations\n\
            sockperf: ---> <MAX> observation = 901.5\n\
            sockperf: ---> percentile 99.000 =   80.100\n\
            sockperf: ---> percentile 50.000 =   23.480\n\
            sockperf: ---> <MIN> observation =   11.0\n";
        assert!((sockperf_median(output).unwrap() - 23.48e-6).abs() < 1e-12);
        let half = output.replace("Round trip is", "Latency is");
        assert!(sockperf_median(&half).is_err(), "half a round trip is another figure");
        assert!(sockperf_median("sockperf: ERROR: connection refused").is_err());
    }

    #[test]
    fn qperf_latency_is_half_a_round_trip() {
        let output = "tcp_lat:\n    latency   =     10118 ns\n    msg_rate  =     98834 /sec\n";
        assert!((qperf_mean(output).unwrap() - 20.236e-6).abs() < 1e-12);
        // Another unit is another number.
        assert!(qperf_mean("tcp_lat:\n    latency  =  10.1 us\n").is_err());
        assert!(qperf_mean("failed to connect").is_err());
    }

    #[test]
    fn listening_socket_is_distinguished_from_a_connected_one() {
        let line = |local: &str, state: &str| format!("   0: 0100007F:{local} 00000000:0000 {state} 0 0\n");
        let table = line("14B5", "0A") + &line("14B6", "01");
        assert!(has_listener(&table, 0x14b5));
        assert!(!has_listener(&table, 0x14b6));
        assert!(!has_listener(&table, 0x4b5));
    }
}
