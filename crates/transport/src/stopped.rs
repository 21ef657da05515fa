//! The databases of a standby to which redo is not applied, as reported to the primary: payload of `Stopped` frames.

use crate::error::TransportError;
use crate::hello;
use serde::{Deserialize, Serialize};
use standfast_format::{Frame, FrameHeader, FrameKind, encode_frame};
use standfast_types::{FOREIGN_TEXT_MAX, Scn, printable_line};

/// Limit of one payload: the frame must fit into a sender's limit for frames of its peer. Databases that do not fit are
/// only counted.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 60 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedDatabase {
    /// Name; `(all)` when apply has ended altogether or waits for redo that cannot be read.
    pub database: String,
    /// SCN of the last commit in it; `None` when that is not known.
    pub applied: Option<Scn>,
    pub reason: String,
}

/// All stopped databases of a standby.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoppedDatabases {
    /// Number of stopped databases.
    pub total: u64,
    /// The databases reported by name: all, unless they do not fit into a frame.
    pub databases: Vec<StoppedDatabase>,
}

impl StoppedDatabases {
    /// Position up to which all databases hold the redo, when those that are not stopped hold it up to `applied`;
    /// `None` when that is not known of one of them.
    pub fn least(&self, applied: Scn) -> Option<Scn> {
        if !self.is_complete() {
            return None;
        }
        self.databases.iter().try_fold(applied, |least, stopped| Some(least.min(stopped.applied?)))
    }

    /// Whether all of them are reported by name.
    pub(crate) fn is_complete(&self) -> bool {
        self.total == self.databases.len() as u64
    }

    /// Returns those that are not reported in `other`.
    pub(crate) fn without<'a>(
        &'a self,
        other: &'a StoppedDatabases,
    ) -> impl Iterator<Item = &'a StoppedDatabase> {
        let there = |name: &str| other.databases.iter().any(|stopped| stopped.database == name);
        self.databases.iter().filter(move |stopped| !there(&stopped.database))
    }

    /// Decodes a `Stopped` frame.
    ///
    /// # Errors
    /// `Protocol`.
    pub fn decode(frame: &Frame<'_>) -> Result<StoppedDatabases, TransportError> {
        let mut databases: Vec<StoppedDatabase> = hello::decode(frame)?;
        for stopped in &mut databases {
            stopped.database = printable(&stopped.database);
            stopped.reason = printable(&stopped.reason);
        }
        Ok(StoppedDatabases { total: frame.header.a.max(databases.len() as u64), databases })
    }
}

pub(crate) fn encode(databases: &[StoppedDatabase]) -> Vec<u8> {
    let mut payload = vec![b'['];
    for stopped in databases {
        let brief = StoppedDatabase { reason: printable(&stopped.reason), ..stopped.clone() };
        // Serialising strings and numbers cannot fail.
        let text = serde_json::to_vec(&brief).unwrap_or_default();
        if payload.len() + text.len() + 2 > PAYLOAD_BYTES_MAX {
            break;
        }
        if payload.len() > 1 {
            payload.push(b',');
        }
        payload.extend_from_slice(&text);
    }
    payload.push(b']');
    let mut frame = Vec::new();
    let header = FrameHeader::new(FrameKind::Stopped, databases.len() as u64, 0, 0, 0);
    encode_frame(header, &payload, &mut frame);
    frame
}

/// Makes a text of a peer one printable line of bounded length, for logs and terminals.
pub(crate) fn printable(text: &str) -> String {
    printable_line(text, FOREIGN_TEXT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(database: &str, applied: Option<u64>) -> StoppedDatabase {
        StoppedDatabase {
            database: database.into(),
            applied: applied.map(Scn),
            reason: "a\nb\x1b[31m".into(),
        }
    }

    fn there_and_back(databases: &[StoppedDatabase]) -> StoppedDatabases {
        let bytes = encode(databases);
        assert!(bytes.len() <= crate::framing::HELLO_BYTES_MAX);
        let (frame, _) = Frame::decode(&bytes).unwrap();
        StoppedDatabases::decode(&frame).unwrap()
    }

    #[test]
    fn stopped_databases_arrive_with_printable_reasons() {
        let reported = there_and_back(&[stopped("a.db", Some(7)), stopped("b.db", None)]);
        assert_eq!((reported.total, reported.databases.len()), (2, 2));
        assert_eq!((reported.databases[0].applied, reported.databases[1].applied), (Some(Scn(7)), None));
        assert_eq!(reported.databases[0].reason, r"a | b\u{1b}[31m");
        assert_eq!(there_and_back(&[]), StoppedDatabases::default());
    }

    #[test]
    fn stopped_databases_that_do_not_fit_are_counted() {
        let databases: Vec<_> = (0..1024)
            .map(|at| StoppedDatabase {
                reason: "\u{1}".repeat(600),
                ..stopped(&format!("{at}.db"), Some(1))
            })
            .collect();
        let reported = there_and_back(&databases);
        assert_eq!(reported.total, 1024);
        assert!(!reported.databases.is_empty() && reported.databases.len() < 1024);
        assert!(reported.databases[0].reason.len() <= standfast_types::FOREIGN_TEXT_MAX);
        assert_eq!(reported.least(Scn(5)), None, "of some nothing is known");
    }

    #[test]
    fn least_is_the_lowest_applied_position_if_all_are_known() {
        assert_eq!(StoppedDatabases::default().least(Scn(9)), Some(Scn(9)));
        assert_eq!(
            there_and_back(&[stopped("a", Some(7)), stopped("b", Some(8))]).least(Scn(9)),
            Some(Scn(7))
        );
        assert_eq!(there_and_back(&[stopped("a", Some(7)), stopped("b", None)]).least(Scn(9)), None);
    }
}
