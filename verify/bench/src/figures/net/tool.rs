//! `standfast net` as a user starts it: a server, and clients whose JSON is read.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::Result;
use crate::error::{During, parsed};
use crate::process::{Process, run, run_accepting};

/// Exit code of `net advise` when a mode fails.
const VERDICT_FAILS: i32 = 3;

/// Starts a test server and waits until it listens; `command` ends with the program.
pub(super) fn server(
    mut command: Command,
    (address, port): (&str, u16),
    file: &Path,
    scratch: &Path,
) -> Result<Process> {
    let log = scratch.join("server.log");
    command.args(["net", "server", "--bind", address, "--port", &port.to_string(), "--file"]).arg(file);
    let process = Process::start(command, Some(&log), libc::SIGTERM)?;
    process.await_ready("a server of tests that listens", Duration::from_secs(10), || {
        let text = std::fs::read_to_string(&log).during(|| format!("read {}", log.display()))?;
        Ok(text.contains("server started"))
    })?;
    Ok(process)
}

/// A port of the loopback without a listener.
pub(super) fn free_port() -> Result<u16> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).during(|| "find a free port".into())
}

/// Runs a test and returns its document.
pub(super) fn document(command: &mut Command) -> Result<Value> {
    parse(&run(command)?)
}

/// Runs a test and returns its document; the exit code of a bad verdict is accepted.
pub(super) fn verdict(command: &mut Command) -> Result<Value> {
    parse(&run_accepting(command, &[0, VERDICT_FAILS])?)
}

fn parse(text: &str) -> Result<Value> {
    parsed("the JSON of a network test", text)
}

/// A duration in the format of the tool's options.
pub(super) fn millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_is_not_json_is_quoted_in_the_error() {
        assert!(parse("error: refused").unwrap_err().to_string().contains("refused"));
    }
}
