//! Values that the figures read from the documents of `standfast net`. All paths are named here and nowhere else: the
//! tests of the command run these functions on real output.

use serde_json::Value;

use crate::{BenchError, Result};

/// Payload bytes per second of a test (`net client`).
pub fn bytes_per_second(document: &Value) -> Result<f64> {
    number(document, "/summary/bytes_per_second")
}

/// Median latency of a SYNC test, seconds.
pub fn median(document: &Value) -> Result<f64> {
    number(document, "/summary/latency/p50")
}

/// Mean latency of a SYNC test, seconds.
pub fn mean(document: &Value) -> Result<f64> {
    number(document, "/summary/latency/mean")
}

/// Median of the network's part of the latency, seconds.
pub fn network_median(document: &Value) -> Result<f64> {
    number(document, "/summary/latency/network/p50")
}

/// Median of the receiver's durable writes, seconds.
pub fn disk_part_median(document: &Value) -> Result<f64> {
    number(document, "/summary/latency/disk/p50")
}

pub fn limit(document: &Value) -> Result<&str> {
    text(document, "/summary/limited_by")
}

/// Median of the durable writes of one member (`net disk`), seconds: the first row.
pub fn disk_median(document: &Value) -> Result<f64> {
    number(document, "/disk/0/latency/p50")
}

/// The verdict on a transport mode.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict<'d> {
    pub mode: &'d str,
    pub grade: &'d str,
    pub causes: Vec<&'d str>,
}

/// The verdicts on the direction to the server (`net advise`).
pub fn verdicts(document: &Value) -> Result<Vec<Verdict<'_>>> {
    const PLACE: &str = "/to_server/advice/verdicts";
    let list = document.pointer(PLACE).and_then(Value::as_array);
    let list = list.ok_or_else(|| unreadable(format!("no list at {PLACE}")))?;
    list.iter().map(verdict).collect()
}

fn verdict(verdict: &Value) -> Result<Verdict<'_>> {
    let causes = verdict.pointer("/causes").and_then(Value::as_array);
    let causes = causes.ok_or_else(|| unreadable("a verdict without its causes".into()))?;
    Ok(Verdict {
        mode: text(verdict, "/mode")?,
        grade: text(verdict, "/grade")?,
        causes: causes.iter().map(|cause| text(cause, "/name")).collect::<Result<_>>()?,
    })
}

fn unreadable(detail: String) -> BenchError {
    BenchError::Unreadable { what: "the JSON of a network test".into(), detail }
}

pub(super) fn number(document: &Value, pointer: &str) -> Result<f64> {
    let found = document.pointer(pointer).and_then(Value::as_f64);
    found.ok_or_else(|| unreadable(format!("no number at {pointer}")))
}

fn text<'d>(document: &'d Value, pointer: &str) -> Result<&'d str> {
    let found = document.pointer(pointer).and_then(Value::as_str);
    found.ok_or_else(|| unreadable(format!("no text at {pointer}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missing_field_of_a_document_is_named() {
        let document = json!({ "summary": { "bytes_per_second": 1.5, "limited_by": "path" } });
        assert_eq!(bytes_per_second(&document).unwrap(), 1.5);
        assert_eq!(limit(&document).unwrap(), "path");
        let error = median(&document).unwrap_err().to_string();
        assert!(error.contains("/summary/latency/p50"), "{error}");
        // A document with the advice in another place, or without its causes, is an error, not an empty list.
        let verdict = json!({ "mode": "ASYNC", "grade": "PASS" });
        for document in [
            json!({ "advice": { "verdicts": [] } }),
            json!({ "to_server": { "advice": { "verdicts": [verdict] } } }),
        ] {
            assert!(verdicts(&document).is_err(), "{document}");
        }
    }
}
