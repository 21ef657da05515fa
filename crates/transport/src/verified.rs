//! Verification findings in the databases of a standby, as reported to the primary: payload of `Verified` frames.

use crate::error::TransportError;
use crate::hello;
use crate::stopped::{PAYLOAD_BYTES_MAX, printable};
use serde::{Deserialize, Serialize};
use standfast_format::{Frame, FrameHeader, FrameKind, encode_frame};
use standfast_types::{PageNo, Scn};

/// Differing pages of one database that a frame lists; all are counted.
const PAGES_NAMED_MAX: usize = 100;

/// A page of a standby that differs from the primary's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageDifference {
    pub page: PageNo,
    /// SCN as of which it was last compared.
    pub scn: Scn,
    /// Checksum at the primary, as of that SCN.
    pub expected: u32,
    /// Checksum at the standby; `None` when the page could not be read or does not exist.
    pub found: Option<u32>,
}

/// Verification result of one database of a standby.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifiedDatabase {
    pub database: String,
    /// The newest run that has compared a page of it since the standby started; 0: none.
    pub run: u64,
    /// Pages compared in that run.
    pub compared: u64,
    /// SCN as of which the last of them was compared.
    pub scn: Scn,
    /// Pages that differ, found by any run.
    pub differing: u64,
    /// The first differing pages.
    pub pages: Vec<PageDifference>,
}

/// Verification results of all databases of a standby.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifiedDatabases {
    /// Pages that differ, over all databases.
    pub differing: u64,
    /// Databases with a compared page: all, unless they do not fit into a frame.
    pub databases: Vec<VerifiedDatabase>,
}

impl VerifiedDatabases {
    pub fn of(&self, name: &str) -> Option<&VerifiedDatabase> {
        self.databases.iter().find(|database| database.database == name)
    }

    /// Decodes a `Verified` frame.
    ///
    /// # Errors
    /// `Protocol`.
    pub fn decode(frame: &Frame<'_>) -> Result<VerifiedDatabases, TransportError> {
        let mut databases: Vec<VerifiedDatabase> = hello::decode(frame)?;
        for at in &mut databases {
            at.database = printable(&at.database);
            at.pages.truncate(PAGES_NAMED_MAX);
            at.differing = at.differing.max(at.pages.len() as u64);
        }
        let named = databases.iter().fold(0u64, |sum, at| sum.saturating_add(at.differing));
        Ok(VerifiedDatabases { differing: frame.header.b.max(named), databases })
    }
}

/// Returns the whole frame. Databases with differences come first; databases that do not fit are only counted.
pub(crate) fn encode(databases: &[VerifiedDatabase]) -> Vec<u8> {
    let mut sorted: Vec<_> = databases.iter().collect();
    sorted.sort_by_key(|at| at.differing == 0);
    let mut payload = vec![b'['];
    for at in sorted {
        let mut brief = at.clone();
        brief.pages.truncate(PAGES_NAMED_MAX);
        // Serialising strings and numbers cannot fail.
        let mut text = serde_json::to_vec(&brief).unwrap_or_default();
        if payload.len() + text.len() + 2 > PAYLOAD_BYTES_MAX {
            brief.pages.truncate(1);
            text = serde_json::to_vec(&brief).unwrap_or_default();
        }
        if payload.len() + text.len() + 2 > PAYLOAD_BYTES_MAX {
            break;
        }
        if payload.len() > 1 {
            payload.push(b',');
        }
        payload.extend_from_slice(&text);
    }
    payload.push(b']');
    let differing = databases.iter().fold(0u64, |sum, at| sum.saturating_add(at.differing));
    let mut frame = Vec::new();
    let header = FrameHeader::new(FrameKind::Verified, databases.len() as u64, differing, 0, 0);
    encode_frame(header, &payload, &mut frame);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(database: &str, differing: u32) -> VerifiedDatabase {
        let page = |page| PageDifference { page, scn: Scn(900), expected: 1, found: Some(2) };
        VerifiedDatabase {
            database: database.into(),
            run: 7,
            compared: 50,
            scn: Scn(900),
            differing: u64::from(differing),
            pages: (1..=differing).map(page).collect(),
        }
    }

    fn there_and_back(databases: &[VerifiedDatabase]) -> VerifiedDatabases {
        let bytes = encode(databases);
        assert!(bytes.len() <= crate::framing::HELLO_BYTES_MAX);
        let (frame, _) = Frame::decode(&bytes).unwrap();
        VerifiedDatabases::decode(&frame).unwrap()
    }

    #[test]
    fn a_differing_page_arrives_with_its_database_and_position() {
        let reported = there_and_back(&[verified("a.db", 0), verified("b.db", 1)]);
        assert_eq!((reported.differing, reported.databases.len()), (1, 2));
        assert_eq!(reported.of("b.db"), Some(&verified("b.db", 1)));
        assert_eq!(there_and_back(&[]), VerifiedDatabases::default());
    }

    #[test]
    fn more_differing_pages_than_fit_are_counted() {
        let many: Vec<_> = (0..1024).map(|at| verified(&format!("{at}.db"), 500)).collect();
        let reported = there_and_back(&many);
        assert_eq!(reported.differing, 512_000);
        assert!(!reported.databases.is_empty() && reported.databases.len() < 1024);
        assert_eq!(
            (reported.databases[0].differing, reported.databases[0].pages.len()),
            (500, PAGES_NAMED_MAX)
        );
    }
}
