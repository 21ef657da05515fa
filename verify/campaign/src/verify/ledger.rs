//! Checks that every acknowledged row is present and intact, and that no other row is.

use super::{Findings, open_plain};
use crate::acknowledgements::Acknowledgements;
use crate::schema::row_sum;
use crate::{During, Result};
use std::path::Path;

/// The ledger rows of one writer.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Intact rows up to the acknowledged one.
    acknowledged_rows: u64,
    /// Number of the newest row seen.
    last: u64,
    /// Gaps in the numbers up to `last`, however long each is.
    holes: u64,
}

/// Compares the ledger in the database at `path`, which has the number `database` in `reported`, with what the applications
/// were acknowledged.
///
/// # Errors
/// SQLite's, when the ledger cannot be read.
pub fn check_ledger(path: &Path, database: usize, reported: &Acknowledgements) -> Result<Findings> {
    let mut findings = Findings::default();
    let mut seen = vec![Seen::default(); reported.writers()];
    read_ledger(path, database, reported, &mut seen, &mut findings)
        .during(|| format!("read the ledger in {}", path.display()))?;
    for (writer, seen) in seen.iter().enumerate() {
        let entry = reported.entry(writer, database);
        let mut complain = |count: &mut u64, more: u64, what: &str| {
            if more > 0 {
                *count += more;
                findings.notes.push(format!(
                    "{}: writer {writer}: {more} {what} (acknowledged {}, attempted {}, newest there {})",
                    path.display(),
                    entry.acknowledged(),
                    entry.attempted(),
                    seen.last
                ));
            }
        };
        let (mut lost, mut surplus) = (0, 0);
        complain(&mut lost, entry.acknowledged() - seen.acknowledged_rows, "acknowledged rows lost");
        complain(&mut lost, entry.lost(), "acknowledged rows were missing when the writer started again");
        complain(&mut surplus, seen.holes, "holes");
        complain(
            &mut surplus,
            seen.last.saturating_sub(entry.attempted()),
            "rows that no application tried to write",
        );
        findings.lost += lost;
        findings.surplus += surplus;
    }
    Ok(findings)
}

fn read_ledger(
    path: &Path,
    database: usize,
    reported: &Acknowledgements,
    seen: &mut [Seen],
    findings: &mut Findings,
) -> rusqlite::Result<()> {
    let connection = open_plain(path).map_err(|_| rusqlite::Error::InvalidPath(path.to_owned()))?;
    let mut select =
        connection.prepare("SELECT writer, seq, sum, payload FROM ledger ORDER BY writer, seq")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (writer, seq): (i64, i64) = (row.get(0)?, row.get(1)?);
        let known = usize::try_from(writer).ok().filter(|writer| *writer < seen.len());
        let (Some(index), Ok(seq)) = (known, u64::try_from(seq)) else {
            findings.surplus += 1;
            findings.notes.push(format!("{}: row ({writer}, {seq}) was rolled back", path.display()));
            continue;
        };
        let payload = row.get_ref(3)?.as_blob()?;
        if row.get::<_, i64>(2)? != row_sum(index as u64, seq, payload) {
            findings.notes.push(format!("{}: row ({writer}, {seq}) is damaged", path.display()));
            continue;
        }
        let seen = &mut seen[index];
        seen.holes += u64::from(seq != seen.last + 1);
        seen.last = seq;
        seen.acknowledged_rows += u64::from(seq <= reported.entry(index, database).acknowledged());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{GHOST, create_database};
    use rusqlite::Connection;

    fn with_rows(rows: &[(i64, u64)], acknowledged: u64, attempted: u64) -> Findings {
        let directory = standfast_testkit::TempDir::new("ledger").unwrap();
        let path = directory.join("a.db");
        create_database(&path, 4096, false).unwrap();
        let connection = Connection::open(&path).unwrap();
        for (writer, seq) in rows {
            let sum = row_sum(*writer as u64, *seq, b"x");
            let row = (writer, *seq as i64, sum);
            connection.execute("INSERT INTO ledger VALUES(?1, ?2, ?3, X'78')", row).unwrap();
        }
        let reported = Acknowledgements::create(&directory.join("acknowledged"), 1).unwrap();
        reported.entry(0, 0).attempt(attempted);
        reported.entry(0, 0).acknowledge(acknowledged);
        check_ledger(&path, 0, &reported).unwrap()
    }

    #[test]
    fn ledger_with_acknowledged_and_unknown_outcome_rows_is_right() {
        assert!(with_rows(&[(0, 1), (0, 2)], 2, 2).none());
        assert!(with_rows(&[(0, 1), (0, 2), (0, 3)], 2, 3).none(), "its outcome was not known");
    }

    #[test]
    fn missing_rows_gaps_ghosts_and_unknown_rows_are_found() {
        assert_eq!(with_rows(&[(0, 1)], 3, 3).lost, 2);
        let hole = with_rows(&[(0, 1), (0, 3)], 3, 3);
        assert_eq!((hole.lost, hole.surplus), (1, 1));
        assert_eq!(with_rows(&[(0, 1), (0, 2)], 1, 1).surplus, 1);
        assert_eq!(with_rows(&[(GHOST, 1), (0, 1)], 1, 1).surplus, 1);
        assert_eq!(with_rows(&[(0, 1), (7, 1)], 1, 1).surplus, 1);
    }
}
