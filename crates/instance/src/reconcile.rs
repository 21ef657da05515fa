//! After a stop of any kind: what do the redo and each database know that the other does not?
//!
//! The database file with the valid prefix of its WAL is exactly the state after some commit m: the WAL is
//! synced before frames are moved into the file, and a new WAL header is synced before any frame behind it.
//! - The WAL goes further than the redo: capture picks the surplus up. It was never acknowledged.
//! - The redo goes further than the WAL (power loss): what comes after m is applied before anyone may open
//!   the database.
//! - The WAL is of a generation that the redo does not know and that no session vouches for: somebody else
//!   has reset it, and may have lost frames on the way that were not captured. The database is copied afresh.
//!
//! [`decide`] is pure; the rest carries it out.

use crate::error::InstanceError;
use rusqlite::Connection;
use standfast_format::{DecodeError, Record, Vectors, apply_ranges, decode_record, page_sum};
use standfast_log::{RecordReader, RedoLog};
use standfast_types::{DatabaseId, PageNo, Scn, WalPosition, WalSalts};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A state of a database that the redo names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Where in the WAL.
    pub position: WalPosition,
    /// Where in the redo: everything before is in that state, nothing after.
    pub scn: Scn,
    /// Size of the database then.
    pub database_pages: u32,
}

/// What the redo since the last checkpoint says of one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Named states, in the order of the stream.
    pub anchors: Vec<Anchor>,
    /// A full copy began and did not end.
    pub unfinished_baseline: bool,
    salts: WalSalts,
}

/// What the redo since the last checkpoint holds.
#[derive(Debug, Default)]
pub struct Scan {
    /// By database.
    pub histories: BTreeMap<DatabaseId, History>,
    /// End of the last whole record.
    pub end: Scn,
    /// The redo ends with a clean stop.
    pub ended_cleanly: bool,
}

/// Reads the redo from `from`, a record boundary, to its end.
///
/// # Errors
/// When the log cannot be read.
pub fn scan(log: &Arc<RedoLog>, from: Scn, upto: Scn) -> Result<Scan, InstanceError> {
    let mut reader = RecordReader::new(log.clone(), from, upto);
    let mut scan = Scan::default();
    while let Some((bytes, scn)) = reader.next_record()? {
        let (record, _) = decode_record(bytes).map_err(damaged(scn))?;
        scan.ended_cleanly = matches!(record, Record::EndOfRedo { .. });
        note(&mut scan.histories, &record, scn);
    }
    scan.end = reader.position();
    Ok(scan)
}

fn damaged(scn: Scn) -> impl Fn(DecodeError) -> InstanceError {
    move |error| InstanceError::Failed(format!("redo record that ends at SCN {scn}: {error}"))
}

fn note(histories: &mut BTreeMap<DatabaseId, History>, record: &Record<'_>, scn: Scn) {
    match *record {
        Record::WalGeneration { database, salts, captured_frames, database_pages, .. } => {
            let history = histories.entry(database).or_default();
            history.salts = salts;
            let position = WalPosition { salts, frame: captured_frames };
            history.anchors.push(Anchor { position, scn, database_pages });
        }
        Record::Commit { database, frame, database_pages, .. } => {
            let history = histories.entry(database).or_default();
            if frame == 0 {
                // The end of a baseline: which WAL position it stands for is said by the record that follows.
                history.unfinished_baseline = false;
                history.anchors.clear();
            } else {
                let position = WalPosition { salts: history.salts, frame };
                history.anchors.push(Anchor { position, scn, database_pages });
            }
        }
        Record::Baseline { database } => histories.entry(database).or_default().unfinished_baseline = true,
        Record::Detach { database } => {
            histories.remove(&database);
        }
        _ => {}
    }
}

/// What SQLite's own recovery has made of a database, and what vouches for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The committed state.
    pub position: WalPosition,
    /// Every WAL generation since the redo's last one was seen by sessions under the write lock; they
    /// stand at this one now.
    pub vouched_for: Option<WalSalts>,
}

/// What has to be done before a database may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Capture goes on behind this state; nothing is missing.
    Capture(Anchor),
    /// The database lacks everything after this state, up to the end of the redo.
    Reapply(Anchor),
    /// The redo and the database have parted: copy it afresh.
    CopyAfresh(&'static str),
}

/// Compares a database with its history.
pub fn decide(history: &History, found: &Found) -> Plan {
    if history.unfinished_baseline {
        return Plan::CopyAfresh("the last full copy into the redo was not finished");
    }
    let Some(last) = history.anchors.last() else {
        return Plan::CopyAfresh("the redo since the last checkpoint does not know the database");
    };
    // The newest mention counts: after a recovery frame numbers of one generation may occur twice.
    if let Some(index) = history.anchors.iter().rposition(|anchor| anchor.position == found.position) {
        let anchor = history.anchors[index];
        return if index + 1 == history.anchors.len() {
            Plan::Capture(anchor)
        } else {
            Plan::Reapply(anchor)
        };
    }
    if found.position.salts == last.position.salts && found.position.frame > last.position.frame {
        return Plan::Capture(*last);
    }
    if found.vouched_for == Some(found.position.salts) {
        // Reset after everything before was captured and in the database file; only the record of the new
        // generation is missing from the redo.
        let position = WalPosition { salts: found.position.salts, frame: 0 };
        return Plan::Capture(Anchor { position, ..*last });
    }
    Plan::CopyAfresh("its write-ahead log was reset by a process that does not use Standfast")
}

/// Pages written to the WAL in one go; bounds the memory of [`reapply`].
const PAGES_AT_ONCE: usize = 4096;

/// Applies what the redo holds of `database` between `after` and `upto`, in one transaction. The caller
/// holds the write lock through `connection`. Returns the transactions applied.
///
/// # Errors
/// When an image does not have the sum that the redo says (nothing is changed then), or SQLite's.
pub fn reapply(
    log: &Arc<RedoLog>,
    connection: &Connection,
    database: DatabaseId,
    after: Scn,
    upto: Scn,
) -> Result<u64, InstanceError> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    match reapply_in_transaction(log, connection, database, after, upto) {
        Ok(applied) => {
            connection.execute_batch("COMMIT")?;
            Ok(applied)
        }
        Err(error) => {
            connection.execute_batch("ROLLBACK")?;
            Err(error)
        }
    }
}

fn reapply_in_transaction(
    log: &Arc<RedoLog>,
    connection: &Connection,
    database: DatabaseId,
    after: Scn,
    upto: Scn,
) -> Result<u64, InstanceError> {
    let mut reader = RecordReader::new(log.clone(), after, upto);
    let mut pages = Pages::default();
    // Vectors of a transaction count only with its commit record.
    let mut pending: Vec<Vec<u8>> = Vec::new();
    let mut applied = 0;
    while let Some((bytes, scn)) = reader.next_record()? {
        match decode_record(bytes).map_err(damaged(scn))?.0 {
            Record::Change { database: id, .. } if id == database => pending.push(bytes.to_vec()),
            Record::WalGeneration { database: id, restart: true, .. } if id == database => pending.clear(),
            Record::Commit { database: id, database_pages, vectors, .. } if id == database => {
                for piece in pending.drain(..) {
                    if let (Record::Change { vectors, .. }, _) =
                        decode_record(&piece).map_err(damaged(scn))?
                    {
                        pages.apply(connection, vectors, scn)?;
                    }
                }
                pages.apply(connection, vectors, scn)?;
                pages.shrink(connection, database_pages)?;
                applied += 1;
                if pages.images.len() > PAGES_AT_ONCE {
                    pages.write(connection)?;
                }
            }
            _ => {}
        }
    }
    pages.write(connection)?;
    Ok(applied)
}

#[derive(Default)]
struct Pages {
    images: HashMap<PageNo, (Vec<u8>, u32)>,
}

impl Pages {
    fn apply(
        &mut self,
        connection: &Connection,
        vectors: Vectors<'_>,
        scn: Scn,
    ) -> Result<(), InstanceError> {
        for vector in vectors {
            let vector = vector.map_err(damaged(scn))?;
            let (image, sum) = match self.images.entry(vector.page_no) {
                std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::hash_map::Entry::Vacant(entry) => {
                    entry.insert((read_page(connection, vector.page_no)?, 0))
                }
            };
            if vector.from_zeros {
                image.fill(0);
            }
            apply_ranges(vector.ranges, image).map_err(damaged(scn))?;
            *sum = vector.sum_after;
            if page_sum(vector.page_no, image) != vector.sum_after {
                return Err(InstanceError::Failed(format!(
                    "page {} does not have the image that the redo describes at SCN {scn}: a write was lost\n\
                     hint: fail over to a standby, or restore the database and protect it anew",
                    vector.page_no
                )));
            }
        }
        Ok(())
    }

    fn shrink(&mut self, connection: &Connection, database_pages: u32) -> Result<(), InstanceError> {
        let present: u32 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        self.images.retain(|page_no, _| *page_no <= database_pages);
        if present > database_pages {
            let truncate = "INSERT INTO sqlite_dbpage(pgno, data) VALUES(?1, NULL)";
            connection.execute(truncate, [database_pages + 1])?;
        }
        Ok(())
    }

    fn write(&mut self, connection: &Connection) -> Result<(), InstanceError> {
        let mut insert =
            connection.prepare_cached("INSERT OR REPLACE INTO sqlite_dbpage(pgno, data) VALUES(?1, ?2)")?;
        let mut images: Vec<_> = self.images.drain().collect();
        images.sort_unstable_by_key(|(page_no, _)| *page_no);
        for (page_no, (image, _)) in images {
            insert.execute((page_no, image))?;
        }
        Ok(())
    }
}

fn read_page(connection: &Connection, page_no: PageNo) -> Result<Vec<u8>, InstanceError> {
    let mut select = connection.prepare_cached("SELECT data FROM sqlite_dbpage('main') WHERE pgno = ?1")?;
    let mut rows = select.query([page_no])?;
    if let Some(row) = rows.next()? {
        return Ok(row.get(0)?);
    }
    let page_size: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    Ok(vec![0; page_size as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: WalSalts = WalSalts(1, 10);
    const B: WalSalts = WalSalts(2, 20);

    fn anchor(salts: WalSalts, frame: u32, scn: u64) -> Anchor {
        Anchor { position: WalPosition { salts, frame }, scn: Scn(scn), database_pages: 9 }
    }

    fn history(anchors: &[Anchor]) -> History {
        History { anchors: anchors.to_vec(), ..History::default() }
    }

    fn found(salts: WalSalts, frame: u32) -> Found {
        Found { position: WalPosition { salts, frame }, vouched_for: None }
    }

    #[test]
    fn a_database_at_the_end_of_the_redo_is_captured_from_there() {
        let history = history(&[anchor(A, 2, 100), anchor(A, 4, 200)]);
        assert_eq!(decide(&history, &found(A, 4)), Plan::Capture(anchor(A, 4, 200)));
        assert_eq!(decide(&history, &found(A, 9)), Plan::Capture(anchor(A, 4, 200)), "surplus is captured");
    }

    #[test]
    fn a_database_behind_the_redo_gets_the_rest_applied() {
        let history = history(&[anchor(A, 2, 100), anchor(A, 4, 200), anchor(B, 0, 210), anchor(B, 3, 300)]);
        assert_eq!(decide(&history, &found(A, 2)), Plan::Reapply(anchor(A, 2, 100)));
        assert_eq!(decide(&history, &found(A, 4)), Plan::Reapply(anchor(A, 4, 200)), "the reset was lost");
        assert_eq!(decide(&history, &found(B, 0)), Plan::Reapply(anchor(B, 0, 210)));
    }

    #[test]
    fn the_newest_mention_of_a_frame_counts() {
        let twice = [anchor(A, 80, 100), anchor(A, 100, 200), anchor(A, 85, 210), anchor(A, 100, 300)];
        assert_eq!(decide(&history(&twice), &found(A, 100)), Plan::Capture(anchor(A, 100, 300)));
        assert_eq!(decide(&history(&twice), &found(A, 85)), Plan::Reapply(anchor(A, 85, 210)));
    }

    #[test]
    fn an_unknown_generation_is_captured_only_when_sessions_vouch_for_it() {
        let history = history(&[anchor(A, 4, 200)]);
        let vouched = Found { vouched_for: Some(B), ..found(B, 7) };
        assert_eq!(decide(&history, &vouched), Plan::Capture(anchor(B, 0, 200)));
        assert!(matches!(decide(&history, &found(B, 7)), Plan::CopyAfresh(_)));
        let other = Found { vouched_for: Some(A), ..found(B, 7) };
        assert!(matches!(decide(&history, &other), Plan::CopyAfresh(_)));
    }

    #[test]
    fn without_a_state_to_start_from_the_database_is_copied_afresh() {
        assert!(matches!(decide(&history(&[]), &found(A, 1)), Plan::CopyAfresh(_)));
        let unfinished = History { unfinished_baseline: true, ..history(&[anchor(A, 4, 200)]) };
        assert!(matches!(decide(&unfinished, &found(A, 4)), Plan::CopyAfresh(_)));
        let lost = history(&[anchor(A, 4, 200), anchor(A, 6, 300)]);
        assert!(matches!(decide(&lost, &found(A, 3)), Plan::CopyAfresh(_)), "older than any known state");
    }
}
