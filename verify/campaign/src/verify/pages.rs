//! Compares two databases page by page.

use super::{Findings, open_plain};
use crate::{During, Result};
use rusqlite::{Connection, Row};
use std::path::Path;

/// Bytes of page 1 that always differ: the change counter, and the version and version-valid-for fields.
const OWN: [std::ops::Range<usize>; 2] = [24..28, 92..100];
/// Maximum number of differing pages that are named.
const NAMED_MAX: u64 = 10;

#[derive(Clone, Debug, Default)]
pub struct Comparison {
    pub pages: u64,
    pub findings: Findings,
}

/// Compares the committed pages of two databases, each as of one moment.
///
/// # Errors
/// SQLite's, when a page cannot be read.
pub fn compare_pages(first: &Path, second: &Path) -> Result<Comparison> {
    let during = || format!("compare {} with {}", first.display(), second.display());
    compare(&open_plain(first)?, &open_plain(second)?, first).during(during)
}

fn compare(first: &Connection, second: &Connection, path: &Path) -> rusqlite::Result<Comparison> {
    let mut result = Comparison::default();
    let sql = "SELECT pgno, data FROM sqlite_dbpage('main') ORDER BY pgno";
    let (mut first, mut second) = (first.prepare(sql)?, second.prepare(sql)?);
    let (mut ours, mut theirs) = (first.query([])?, second.query([])?);
    loop {
        let (ours, theirs) = (page(ours.next()?)?, page(theirs.next()?)?);
        if ours.is_none() && theirs.is_none() {
            return Ok(result);
        }
        result.pages += u64::from(ours.is_some());
        if ours == theirs {
            continue;
        }
        result.findings.page_differences += 1;
        if result.findings.page_differences <= NAMED_MAX {
            result.findings.notes.push(format!("{}: {}", path.display(), describe(ours, theirs)));
        }
    }
}

type Page = Option<(i64, Vec<u8>)>;

fn page(row: Option<&Row<'_>>) -> rusqlite::Result<Page> {
    let Some(row) = row else { return Ok(None) };
    let (number, mut data): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
    if number == 1 {
        for range in OWN {
            if let Some(bytes) = data.get_mut(range) {
                bytes.fill(0);
            }
        }
    }
    Ok(Some((number, data)))
}

fn describe(ours: Page, theirs: Page) -> String {
    match (ours, theirs) {
        (Some((number, ours)), Some((_, theirs))) => {
            let differing: Vec<usize> =
                (0..ours.len().min(theirs.len())).filter(|at| ours[*at] != theirs[*at]).collect();
            let (first, last) = (differing.first().unwrap_or(&0), differing.last().unwrap_or(&0));
            format!("page {number} differs in {} bytes between {first} and {last}", differing.len())
        }
        (Some((number, _)), None) => format!("page {number} is missing in the copy"),
        (None, Some((number, _))) => format!("page {number} is only in the copy"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::create_database;

    #[test]
    fn copies_are_the_same_until_one_byte_is_changed() {
        let directory = standfast_testkit::TempDir::new("pages").unwrap();
        let (first, second) = (directory.join("a.db"), directory.join("b.db"));
        create_database(&first, 4096, false).unwrap();
        let mut bytes = std::fs::read(&first).unwrap();
        bytes[24] ^= 1;
        bytes[95] ^= 1;
        std::fs::write(&second, &bytes).unwrap();
        let same = compare_pages(&first, &second).unwrap();
        assert!(same.findings.none() && same.pages > 50, "{same:?}");
        bytes[4096 + 4000] ^= 1;
        std::fs::write(&second, &bytes).unwrap();
        let differs = compare_pages(&first, &second).unwrap().findings;
        assert_eq!(differs.page_differences, 1);
        assert!(differs.notes[0].contains("page 2 differs in 1 bytes between 4000"), "{differs:?}");
        bytes.truncate(bytes.len() - 4096);
        std::fs::write(&second, &bytes).unwrap();
        assert!(
            compare_pages(&first, &second).is_err()
                || compare_pages(&first, &second).unwrap().findings.page_differences == 2
        );
    }
}
