//! The documented differences between stock SQLite and Standfast. Any other difference is a finding.
//!
//! `docs/differences.md` has the same table; a test compares them.

use super::connection::code;
use super::generate::PROTECTED;
use super::program::{Outcome, Step};
use crate::{During, Result};
use standfast_session::wal_path;
use std::io::ErrorKind;
use std::path::Path;

#[derive(Clone, Copy, Debug)]
pub struct Difference {
    pub name: &'static str,
    /// One side has written and the other has not: later steps cannot be compared.
    pub parts: bool,
    /// Whether the two outcomes of a step are this difference. Arguments: the steps before it, the step, the outcome of
    /// stock SQLite, and ours.
    pub applies: fn(&[Step], &Step, &Outcome, &Outcome) -> bool,
}

const fn same(name: &'static str, applies: fn(&[Step], &Step, &Outcome, &Outcome) -> bool) -> Difference {
    Difference { name, parts: false, applies }
}

pub const DIFFERENCES: &[Difference] = &[
    same("wal-only", |_, step, _, ours| refused(step, ours, "journal_mode")),
    same("no-exclusive-locking", |_, step, _, ours| refused(step, ours, "locking_mode")),
    // BUSY: another connection of the program holds the write lock of a database.
    same("rollback-journals-beside", |_, step, _, ours| {
        matches!(step, Step::RefusedTogether { .. })
            && matches!(ours.code & 0xFF, code::READONLY | code::BUSY | LOCKED)
    }),
    same("checkpoints", |_, step, stock, ours| checkpoint(step, stock, ours)),
    same("snapshots", |_, step, stock, ours| snapshot(step, stock, ours)),
    same("stale-snapshot", |_, step, stock, ours| stale(step, stock, ours)),
    Difference { name: "begun-again", parts: true, applies: begun_again },
    same("data-version", |_, step, stock, ours| data_version(step, stock, ours)),
];

/// A difference of content: SQLite before 3.50.2 may commit frames without checksums. When a process ends without
/// closing the database, stock SQLite loses them and all later frames; Standfast completes them.
pub const UNSUMMED: &str = "frames-without-checksums";

/// Whether stock SQLite of this version may lose commits to the database at `path`. Must be called before any process
/// opens the database. In every version an uncommitted transaction may leave frames without checksums too, so the
/// contents decide.
///
/// # Errors
/// When the WAL cannot be read.
pub fn forgets_commits(version: &str, path: &Path) -> Result<bool> {
    if !has_the_bug(version) {
        return Ok(false);
    }
    let wal = wal_path(path);
    let bytes = match std::fs::read(&wal) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        read => read.during(|| format!("read {}", wal.display()))?,
    };
    Ok(has_unsummed_frame(&bytes))
}

/// `version` is a name such as `3.40.1-setlk`.
fn has_the_bug(version: &str) -> bool {
    let numbers = version.split('-').next().unwrap_or_default().split('.').map(|part| part.parse::<u32>());
    numbers
        .collect::<std::result::Result<Vec<_>, _>>()
        .is_ok_and(|numbers| numbers.as_slice() < [3, 50, 2].as_slice())
}

/// Parses the frames of a WAL as in SQLite's file format: page number, size, salts and checksums, then the page.
fn has_unsummed_frame(wal: &[u8]) -> bool {
    let Some(header) = wal.first_chunk::<32>() else { return false };
    let page_bytes = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    wal[32..]
        .chunks_exact(24 + page_bytes)
        .any(|frame| frame[..4].iter().any(|byte| *byte != 0) && frame[8..24].iter().all(|byte| *byte == 0))
}

const LOCKED: i32 = 6;

/// Returns the documented difference between the two outcomes, if there is one.
pub fn documented(
    before: &[Step],
    step: &Step,
    stock: &Outcome,
    ours: &Outcome,
) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|difference| (difference.applies)(before, step, stock, ours))
}

fn refused(step: &Step, ours: &Outcome, pragma: &str) -> bool {
    matches!(step, Step::Refused { sql, .. } if sql.contains(pragma))
        && (ours.code == code::NOT_RUN
            || ours.code == code::ERROR && ours.message.contains("is protected by Standfast"))
}

/// Only the instance backfills frames: an application gets the result that it gets while another connection runs a
/// checkpoint.
fn checkpoint(step: &Step, stock: &Outcome, ours: &Outcome) -> bool {
    let Step::Checkpoint { pragma, .. } = step else { return false };
    let names = |outcome: &Outcome| outcome.rows.first().cloned().unwrap_or_default();
    let is_protected = |name: &str| PROTECTED.iter().any(|(file, _)| *file == name);
    if names(stock) != names(ours) || !names(ours).split(' ').any(is_protected) {
        return false;
    }
    match pragma {
        // The frame counts depend on when the instance has backfilled.
        true => {
            let is_busy = || ours.rows.iter().any(|row| row.starts_with("1|"));
            ours.code == code::OK && stock.state == ours.state && (stock.code == code::OK || is_busy())
        }
        // A refused checkpoint ends before it can meet an error of its own.
        false => ours.code == code::BUSY,
    }
}

/// The instance decides when the frames of a snapshot are backfilled. A read transaction keeps the frames, except one
/// that found the whole WAL backfilled and reads the database file alone: the next writer resets the WAL. An empty WAL
/// has no snapshot either.
fn snapshot(step: &Step, stock: &Outcome, ours: &Outcome) -> bool {
    if !matches!(step, Step::Snapshot { .. }) {
        return false;
    }
    let outcomes = |code| matches!(code, code::OK | code::ERROR_SNAPSHOT);
    let is_got = |row: &String| row.starts_with("get");
    let got = |outcome: &Outcome| outcome.rows.iter().any(|row| row.starts_with("get 0"));
    let others = |outcome: &Outcome| -> Vec<String> {
        outcome.rows.iter().filter(|row| !is_got(row)).cloned().collect()
    };
    let moved = stock.code != ours.code && outcomes(stock.code) && outcomes(ours.code);
    others(stock) == others(ours) && (moved || got(stock) != got(ours))
}

/// SQLite finds that a snapshot is too old to write on once it holds the write lock; the shim finds it earlier.
fn stale(step: &Step, stock: &Outcome, ours: &Outcome) -> bool {
    if (&stock.message, &stock.state) != (&ours.message, &ours.state) {
        return false;
    }
    let is_it = stock.code == code::BUSY && ours.code == code::BUSY_SNAPSHOT && stock.rows == ours.rows;
    // In a snapshot step the write is one of several calls.
    let in_snapshot = || {
        let (busy, stale) = (format!("write {} ", code::BUSY), format!("write {} ", code::BUSY_SNAPSHOT));
        let rows = ours.rows.iter().map(|row| row.replacen(&stale, &busy, 1));
        stock.code == ours.code && stock.rows != ours.rows && stock.rows.iter().cloned().eq(rows)
    };
    is_it || matches!(step, Step::Snapshot { .. }) && in_snapshot()
}

/// A read transaction that found the whole WAL backfilled does not keep a checkpoint of stock SQLite from resetting the
/// WAL, and it cannot write afterwards. With Standfast only the instance resets a WAL.
fn begun_again(before: &[Step], step: &Step, stock: &Outcome, ours: &Outcome) -> bool {
    let begins_again = |step: &Step| matches!(step, Step::Checkpoint { mode: 2.., .. });
    matches!(step, Step::Run { .. })
        && (stock.code, ours.code) == (code::BUSY_SNAPSHOT, code::OK)
        && before.iter().any(begins_again)
}

/// `data_version` also changes when the WAL is reset.
fn data_version(step: &Step, stock: &Outcome, ours: &Outcome) -> bool {
    matches!(step, Step::Run { sql, .. } if sql.ends_with(".data_version"))
        && (stock.code, &stock.message, &stock.state) == (ours.code, &ours.message, &ours.state)
        && stock.rows.len() == ours.rows.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_every_difference_and_no_other() {
        let page = include_str!("../../../../docs/differences.md");
        let listed: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        let names: Vec<&str> = DIFFERENCES.iter().map(|difference| difference.name).collect();
        assert_eq!(listed, names);
    }

    #[test]
    fn frames_without_checksums_are_detected_in_a_wal() {
        let mut wal = vec![1u8; 32];
        wal[8..12].copy_from_slice(&512u32.to_be_bytes());
        assert!(!has_unsummed_frame(&wal) && !has_unsummed_frame(&[]));
        wal.extend([2; 24 + 512]);
        assert!(!has_unsummed_frame(&wal));
        wal.extend([0; 24 + 512]);
        assert!(!has_unsummed_frame(&wal), "room that is not used");
        let at = wal.len() - 512 - 24;
        wal[at + 3] = 7;
        assert!(has_unsummed_frame(&wal));
        assert!(has_the_bug("3.35.4") && has_the_bug("3.45.0-setlk"));
        assert!(!has_the_bug("3.50.2-setlk") && !has_the_bug("3.53.2"));
    }

    #[test]
    fn each_difference_covers_only_the_cases_it_names() {
        let outcome = |code, message: &str| Outcome { code, message: message.into(), ..Outcome::default() };
        let (ok, busy) = (outcome(code::OK, ""), outcome(code::BUSY, "database is locked"));
        let asked = Step::Checkpoint { connection: 0, schema: None, mode: 0, pragma: false };
        let of = |file: &str, outcome: &Outcome| Outcome { rows: vec![file.into()], ..outcome.clone() };
        let found = |file: &str| documented(&[], &asked, &of(file, &ok), &of(file, &busy));
        assert!(found("p4096.db").is_some_and(|found| found.name == "checkpoints"));
        assert!(found("plain-wal.db").is_none(), "an unprotected one is checkpointed");
        let mode = Step::Refused { connection: 0, sql: "PRAGMA journal_mode=DELETE".into() };
        let refusal = outcome(code::ERROR, "database x is protected by Standfast and must");
        assert!(documented(&[], &mode, &outcome(code::NOT_RUN, ""), &refusal).is_some());
        assert!(documented(&[], &mode, &outcome(code::NOT_RUN, ""), &ok).is_none(), "it was not refused");
        let write = Step::Run { connection: 0, sql: "DELETE FROM t".into(), values: Vec::new() };
        assert!(documented(&[], &write, &ok, &busy).is_none());
        assert!(
            documented(&[], &write, &busy, &outcome(code::BUSY_SNAPSHOT, "database is locked")).is_some()
        );
        let taken = Step::Snapshot {
            taken: 1,
            kept: true,
            writer: 0,
            write: "DELETE FROM t".into(),
            opened: 0,
            read: "SELECT 1".into(),
            schema: "main".into(),
        };
        let with = |write: &str| Outcome { rows: vec!["begin 0 []".into(), write.into()], ..ok.clone() };
        let found = |stock, ours| documented(&[], &taken, &with(stock), &with(ours));
        assert!(found("write 5 []", "write 517 []").is_some_and(|found| found.name == "stale-snapshot"));
        assert!(found("write 0 []", "write 517 []").is_none() && found("write 5 []", "write 5 []").is_none());
        let too_old = outcome(code::BUSY_SNAPSHOT, "database is locked");
        let truncates = Step::Checkpoint { connection: 1, schema: None, mode: 3, pragma: true };
        assert!(documented(&[truncates], &write, &too_old, &ok).is_some_and(|found| found.parts));
        assert!(documented(&[asked], &write, &too_old, &ok).is_none(), "a write upon an old snapshot");
        assert!(documented(&[], &write, &ok, &too_old).is_none());
    }
}
