//! `standfast net` as its user starts it: a server, and clients whose JSON is read.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::error::During;
use crate::process::{Process, run, run_accepting};
use crate::{BenchError, Result};

/// `net advise` ends with it when a mode fails.
const VERDICT_FAILS: i32 = 3;

/// Starts a server of tests by a command that ends with the program, and waits until it listens.
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

/// A port of the loopback that nobody listens on.
pub(super) fn free_port() -> Result<u16> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).during(|| "find a free port".into())
}

/// Carries out a test and returns its document.
pub(super) fn document(command: &mut Command) -> Result<Value> {
    parse(&run(command)?)
}

/// As [`document`], for a program that says by its exit code that a verdict is bad.
pub(super) fn verdict(command: &mut Command) -> Result<Value> {
    parse(&run_accepting(command, &[0, VERDICT_FAILS])?)
}

fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| unreadable(format!("{error} in {:.200}", text.trim())))
}

fn unreadable(detail: String) -> BenchError {
    BenchError::Unreadable { what: "the JSON of a network test".into(), detail }
}

/// A number of a document.
pub(super) fn number(document: &Value, pointer: &str) -> Result<f64> {
    let found = document.pointer(pointer).and_then(Value::as_f64);
    found.ok_or_else(|| unreadable(format!("no number at {pointer}")))
}

/// A text of a document.
pub(super) fn text<'d>(document: &'d Value, pointer: &str) -> Result<&'d str> {
    let found = document.pointer(pointer).and_then(Value::as_str);
    found.ok_or_else(|| unreadable(format!("no text at {pointer}")))
}

/// A time as the options of the tool take it.
pub(super) fn millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_document_lacks_is_named() {
        let document = parse(r#"{"summary": {"bytes_per_second": 1.5, "limited_by": "path"}}"#).unwrap();
        assert_eq!(number(&document, "/summary/bytes_per_second").unwrap(), 1.5);
        assert_eq!(text(&document, "/summary/limited_by").unwrap(), "path");
        let error = number(&document, "/summary/latency/p50").unwrap_err().to_string();
        assert!(error.contains("/summary/latency/p50"), "{error}");
        assert!(parse("error: refused").unwrap_err().to_string().contains("refused"));
    }
}
