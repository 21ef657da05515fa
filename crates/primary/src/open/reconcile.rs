//! After a stop of any kind: what do the redo and each database know that the other does not?
//!
//! The database file with the valid prefix of its WAL is exactly the state after some commit m: frames are synced
//! before they are backfilled, and a new WAL header is synced before any frame after it.
//! - The WAL is ahead of the redo: capture picks up the additional frames. They were never acknowledged.
//! - The redo is ahead of the WAL (power loss): everything after m is applied before any session may open the database.
//! - The instance was rewriting the WAL (`standfast_sqlite_wal::rewriting`) and none of it is valid: the database file
//!   holds everything before the start of recovery, perhaps more, and everything from there on is applied.
//! - The WAL is of a generation that the redo does not know and that no session endorses, or it is gone, or the pages
//!   are not those of the position where the files claim to stand: the page checksums in the redo show what the files
//!   hold (`crate::open::evidence`), going back to older logs as far as necessary. Files behind the redo are rolled forward.
//!   Changes that a process without the VFS made on top of the newest state are recorded as a full resync image. In all
//!   other cases nothing is changed: the redo may be the better copy.
//!
//! SQLite takes a WAL of which a power loss left only the header for no WAL. Here it is the beginning of its
//! generation, or no WAL, whichever the redo says last: a database that began to be served in that state is on record
//! as one without a WAL.
//!
//! [`decide`] and [`conclude`](crate::open::conclusion::conclude) are pure; the rest carries out their decisions.

use crate::open::conclusion::{Conclusion, Foreign, conclude};
use crate::open::evidence::{Comparison, Evidence, Pages};
use standfast_apply::{ApplyError, Replay, Replayed};
use standfast_environment::config::error::InstanceError;
use standfast_environment::state::control::DatabaseRecord;
use standfast_format::{DecodeError, Record, Vectors, decode_record, page_sum};
use standfast_log::{RecordReader, RedoLog};
use standfast_sqlite_wal::state::PageFound;
use standfast_types::{DatabaseId, PageNo, PageSize, Scn, WalPosition, WalSalts};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A state of a database that the redo names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    pub position: WalPosition,
    /// Position in the redo: everything before it is in that state, nothing after it.
    pub scn: Scn,
    /// Start of the first record of a transaction that was open at `scn`, else `scn`.
    pub redo_from: Scn,
    /// Size of the database in that state.
    pub database_pages: u32,
    /// Page in the frame at `position` and checksum of its image, if the redo has them. They identify one frame, not
    /// every frame with that number in a WAL with these salts.
    pub frame_page: Option<(PageNo, u32)>,
}

/// History of one database in the redo since the last checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    pub anchors: Vec<Anchor>,
    /// A full resync image began and did not end.
    pub unfinished_baseline: bool,
    /// Start of the newest record that says where the database stands: recovery may begin there once everything is in
    /// the database.
    pub stands_at: Option<Scn>,
    pub last_commit: Option<Scn>,
    salts: WalSalts,
    /// Begin of the transaction that is open at this point of the stream.
    open_since: Option<Scn>,
}

/// Content of the redo since the last checkpoint.
#[derive(Debug, Default)]
pub struct Scan {
    pub histories: BTreeMap<DatabaseId, History>,
    pub begin: Scn,
    /// End of the last complete record.
    pub end: Scn,
    /// The redo ends with a clean stop.
    pub ended_cleanly: bool,
    /// The newest page images, including those of redo before `begin`.
    pub checksums: BTreeMap<DatabaseId, PageChecksums>,
}

/// The newest image of each page that a range of redo touches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageChecksums {
    /// Checksum, and the end of the commit that left the image.
    newest: HashMap<PageNo, (u32, Scn)>,
    /// Pages of the transaction that is open at this point of the stream.
    open: Vec<(PageNo, u32)>,
    database_pages: u32,
}

/// Largest number of pages compared when the files stand at a position that the redo knows.
const COMPARED_MAX: usize = 4096;

impl PageChecksums {
    fn note(&mut self, record: &Record<'_>, scn: Scn) -> Result<(), DecodeError> {
        match record {
            Record::Change { vectors, .. } => self.note_vectors(*vectors)?,
            Record::Commit { vectors, database_pages, frame, .. } => {
                self.note_vectors(*vectors)?;
                if *frame == 0 {
                    // A full resync image: earlier images are void.
                    self.newest.clear();
                }
                self.newest.extend(self.open.drain(..).map(|(page_no, checksum)| (page_no, (checksum, scn))));
                self.database_pages = *database_pages;
            }
            Record::WalGeneration { restart: true, .. } | Record::Baseline { .. } => self.open.clear(),
            Record::Attach(_) => self.open.clear(),
            Record::Detach { .. } => *self = PageChecksums::default(),
            _ => {}
        }
        Ok(())
    }

    fn note_vectors(&mut self, vectors: Vectors<'_>) -> Result<(), DecodeError> {
        for vector in vectors {
            let vector = vector?;
            self.open.push((vector.page_no, vector.sum_after));
        }
        Ok(())
    }

    /// Returns a page in `pages` that differs from the redo's state at `scn`; the most recently changed pages are
    /// compared first.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn first_difference(
        &self,
        pages: &mut dyn Pages,
        page_size: PageSize,
        scn: Scn,
    ) -> Result<Option<PageNo>, InstanceError> {
        let is_in_state =
            |(page_no, (_, left)): &(&PageNo, &(u32, Scn))| *left <= scn && **page_no <= self.database_pages;
        let mut compared: Vec<_> = self.newest.iter().filter(is_in_state).collect();
        compared.sort_unstable_by_key(|(page_no, (_, left))| (std::cmp::Reverse(*left), **page_no));
        let mut image = vec![0; page_size.bytes()];
        for (page_no, (checksum, _)) in compared.into_iter().take(COMPARED_MAX) {
            let found = pages
                .read(*page_no, &mut image)
                .map_err(|error| InstanceError::Failed(format!("page {page_no} cannot be read: {error}")))?;
            let is_it = match found {
                PageFound::There => page_sum(*page_no, &image) == *checksum,
                PageFound::Absent => false,
                PageFound::Unknown => true,
            };
            if !is_it {
                return Ok(Some(*page_no));
            }
        }
        Ok(None)
    }
}

pub type AllChecksums = BTreeMap<DatabaseId, PageChecksums>;

/// Reads the redo from `from`, a record boundary, to its end. `earlier`: page images of the redo before it.
///
/// # Errors
/// When the log cannot be read.
pub fn scan(log: &Arc<RedoLog>, from: Scn, upto: Scn, earlier: AllChecksums) -> Result<Scan, InstanceError> {
    let mut reader = RecordReader::new(log.clone(), from, upto);
    let mut scan = Scan { begin: from, checksums: earlier, ..Scan::default() };
    let mut start = from;
    while let Some((bytes, scn)) = reader.next_record()? {
        let (record, _) = decode_record(bytes).map_err(damaged(scn))?;
        scan.ended_cleanly = matches!(record, Record::EndOfRedo { .. });
        note(&mut scan.histories, &record, start, scn);
        note_checksums(&mut scan.checksums, &record, scn)?;
        start = scn;
    }
    scan.end = reader.position();
    Ok(scan)
}

/// Returns the page images of the redo between two record boundaries; empty if it cannot be read to its end. Where an
/// incarnation ends in between, its last record may be incomplete.
pub fn checksums_between(log: &Arc<RedoLog>, from: Scn, to: Scn) -> AllChecksums {
    let mut reader = RecordReader::new(log.clone(), from, to);
    let mut checksums = AllChecksums::new();
    while let Ok(Some((bytes, scn))) = reader.next_record() {
        let Ok((record, _)) = decode_record(bytes) else { break };
        if note_checksums(&mut checksums, &record, scn).is_err() {
            break;
        }
    }
    if reader.position() == to { checksums } else { AllChecksums::new() }
}

fn note_checksums(checksums: &mut AllChecksums, record: &Record<'_>, scn: Scn) -> Result<(), InstanceError> {
    match record.database() {
        Some(database) => checksums.entry(database).or_default().note(record, scn).map_err(damaged(scn)),
        None => Ok(()),
    }
}

/// Returns the first record boundary of the log before the one that holds `from`; without an earlier log, that of the
/// latter.
pub fn log_before(log: &RedoLog, from: Scn) -> Option<Scn> {
    let boundaries = boundaries_before(log, from);
    boundaries.get(1).or(boundaries.first()).copied()
}

/// First record boundaries of the available logs that begin before `from`, newest first.
pub fn boundaries_before(log: &RedoLog, from: Scn) -> Vec<Scn> {
    let switches = log.switches(Scn::ZERO, from).into_iter().rev();
    let boundaries = switches.map(|switch| switch.first_scn + u64::from(switch.first_record));
    boundaries.filter(|boundary| *boundary < from).collect()
}

/// Whether the available redo of the database, up to `end`, names a WAL with these salts. In the worst case reads all
/// of it.
///
/// # Errors
/// When available redo cannot be read.
pub(crate) fn names_generation(
    log: &Arc<RedoLog>,
    record: &DatabaseRecord,
    salts: WalSalts,
    end: Scn,
) -> Result<bool, InstanceError> {
    let mut upto = end;
    for from in boundaries_before(log, end) {
        let mut reader = RecordReader::new(log.clone(), from, upto);
        while let Some((bytes, scn)) = reader.next_record()? {
            let (decoded, _) = decode_record(bytes).map_err(damaged(scn))?;
            if let Record::WalGeneration { database, salts: named, .. } = decoded
                && database == record.id
                && named == salts
            {
                return Ok(true);
            }
        }
        if from <= record.start_scn {
            break;
        }
        upto = from;
    }
    Ok(false)
}

/// Compares files with the redo from `begin` on, and with as much earlier redo as a proof needs. `open` returns the
/// pages of the state to compare, and their number. `foreign`: see [`Foreign`]. `whole_at`: see [`Comparison::new`].
///
/// # Errors
/// When the redo from `begin` on, or a file, cannot be read.
pub fn find_out<P: Pages>(
    log: &Arc<RedoLog>,
    record: &DatabaseRecord,
    (begin, end): (Scn, Scn),
    foreign: Foreign,
    whole_at: Option<Scn>,
    mut open: impl FnMut() -> Result<(P, u32), InstanceError>,
) -> Result<Conclusion, InstanceError> {
    let earlier = boundaries_before(log, begin);
    let (mut last, mut silent) = (Evidence::default(), true);
    let (mut next, mut step) = (0, 1);
    let (mut from, mut at_boundary) = (begin, true);
    loop {
        let (pages, found) = open()?;
        let comparison = Comparison::new(record, pages, found, from, at_boundary, whole_at);
        let compared = compare(log, comparison, from, end);
        // Logs before `begin` may be gone; the available ones must suffice.
        let (evidence, is_longest) = match compared {
            Err(_) if !at_boundary => (last, true),
            other => (other?, next >= earlier.len()),
        };
        silent &= evidence.is_silent;
        if let Some(conclusion) = conclude(&evidence, is_longest, silent, foreign) {
            return Ok(conclusion);
        }
        last = evidence;
        let index = (next + step - 1).min(earlier.len() - 1);
        (from, at_boundary) = (earlier[index], false);
        (next, step) = (index + 1, step * 2);
    }
}

fn compare<P: Pages>(
    log: &Arc<RedoLog>,
    mut comparison: Comparison<P>,
    from: Scn,
    end: Scn,
) -> Result<Evidence, InstanceError> {
    let mut reader = RecordReader::new(log.clone(), from, end);
    while let Some((bytes, scn)) = reader.next_record()? {
        comparison.take(bytes, scn)?;
    }
    if reader.position() != end {
        // Without the redo that follows, an older state would pass for the newest.
        let reached = reader.position();
        return Err(InstanceError::Failed(format!(
            "the redo from SCN {from} on ends at {reached}, before {end}"
        )));
    }
    comparison.finish()
}

fn damaged(scn: Scn) -> impl Fn(DecodeError) -> InstanceError {
    move |error| InstanceError::Failed(format!("redo record that ends at SCN {scn}: {error}"))
}

fn note(histories: &mut BTreeMap<DatabaseId, History>, record: &Record<'_>, start: Scn, scn: Scn) {
    match *record {
        Record::WalGeneration { database, salts, captured_frames, database_pages, restart } => {
            let history = histories.entry(database).or_default();
            if restart {
                history.open_since = None;
            }
            history.salts = salts;
            history.stands_at = Some(start);
            let position = WalPosition { salts, frame: captured_frames };
            let redo_from = history.open_since.unwrap_or(scn);
            let same = history.anchors.last().filter(|last| last.position == position);
            let frame_page = same.and_then(|last| last.frame_page);
            history.anchors.push(Anchor { position, scn, redo_from, database_pages, frame_page });
        }
        Record::Change { database, .. } => {
            histories.entry(database).or_default().open_since.get_or_insert(start);
        }
        Record::Commit { database, frame, database_pages, vectors, .. } => {
            let history = histories.entry(database).or_default();
            history.open_since = None;
            history.last_commit = Some(scn);
            if frame == 0 {
                // The end of a full resync image; the record that follows names its WAL position.
                history.unfinished_baseline = false;
                history.anchors.clear();
            } else {
                let position = WalPosition { salts: history.salts, frame };
                // Capture encodes frames in order, so the last vector is the page of the commit frame.
                let last = vectors.last().and_then(Result::ok);
                let frame_page = last.map(|vector| (vector.page_no, vector.sum_after));
                history.anchors.push(Anchor { position, scn, redo_from: scn, database_pages, frame_page });
            }
        }
        Record::Baseline { database, .. } => {
            let history = histories.entry(database).or_default();
            history.unfinished_baseline = true;
            history.open_since = None;
        }
        Record::Detach { database } => {
            histories.remove(&database);
        }
        _ => {}
    }
}

/// Result of SQLite's own recovery of a database, and what confirms it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub position: WalPosition,
    /// Salts of a WAL that consists only of its header, where SQLite found no WAL.
    pub bare: Option<WalSalts>,
    /// Current WAL generation, if sessions saw it and every generation since the redo's last one under the write lock.
    pub seen_by_sessions: Option<WalSalts>,
}

impl Found {
    /// The beginning of the generation of a WAL that consists only of its header.
    pub fn generation_start(&self) -> Option<WalPosition> {
        self.bare.map(|salts| WalPosition { salts, frame: 0 })
    }
}

/// What to do before a database may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Capture continues after this state; nothing is missing.
    Capture(Anchor),
    /// The database lacks everything after this state, up to the end of the redo.
    Reapply(Anchor),
    /// The files are at no position that the redo knows, for this reason; their content must be found out.
    FindOut(&'static str),
}

/// Whether the WAL was being rewritten and none of it is valid.
pub fn is_lost(found: WalPosition) -> bool {
    found.salts.is_of_rewritten_log() && found.frame == 0
}

/// Compares a database with its history, which begins at `begin`. Recovery starts there, so the files held everything
/// before it.
pub fn decide(history: &History, found: &Found, begin: Scn) -> Plan {
    if history.unfinished_baseline {
        return Plan::FindOut("the last full copy into the redo was not finished");
    }
    let Some(last) = history.anchors.last() else {
        return Plan::FindOut("the redo since the last checkpoint does not know the database");
    };
    if is_lost(found.position) {
        let position = found.position;
        return Plan::Reapply(Anchor { position, scn: begin, redo_from: begin, frame_page: None, ..*last });
    }
    // The newest occurrence counts: after a recovery the frame numbers of one generation may occur twice.
    let is_it = |anchor: &Anchor| {
        anchor.position == found.position || Some(anchor.position) == found.generation_start()
    };
    if let Some(index) = history.anchors.iter().rposition(is_it) {
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
    let is_known = |salts: WalSalts| history.anchors.iter().any(|anchor| anchor.position.salts == salts);
    if is_known(found.position.salts) && found.position.frame > 0 {
        return Plan::FindOut("its write-ahead log ends before what the redo has of it");
    }
    let is_next = found.position.salts.is_rewritten_of(last.position.salts);
    if found.bare.is_none() && (is_next || found.seen_by_sessions == Some(found.position.salts)) {
        // The WAL was reset or rewritten after everything before was captured and was in the database file or in the
        // new WAL; the redo lacks only the record of the new generation.
        let position = WalPosition { salts: found.position.salts, frame: 0 };
        return Plan::Capture(Anchor { position, frame_page: None, ..*last });
    }
    Plan::FindOut("its write-ahead log was reset by a process that does not use Standfast")
}

/// Applies the redo of a database from `from` to `upto` in one transaction and makes it durable. The database may hold
/// redo from after `from`, but none from after `upto`. No other process may write to it; the caller holds no lock on
/// it.
///
/// # Errors
/// When a page does not have the checksum in the redo (nothing is changed then), or SQLite's.
pub fn reapply(
    log: &Arc<RedoLog>,
    record: &DatabaseRecord,
    vfs_base: Option<&str>,
    from: Scn,
    upto: Scn,
) -> Result<Replayed, InstanceError> {
    let mut replay = Replay::open(record.id, &record.path, record.page_size, vfs_base, from)?;
    let mut reader = RecordReader::new(log.clone(), from, upto);
    let mut start = from;
    while let Some((bytes, end)) = reader.next_record()? {
        replay.take(start, bytes)?;
        start = end;
    }
    replay.finish().map_err(|error| match error {
        ApplyError::Diverged { page, scn, .. } => not_descended(record, page, scn),
        other => other.into(),
    })
}

/// Refusal for a differing page. Apply's own error is meant for a standby; here redo is applied to the database from
/// which it was captured.
fn not_descended(record: &DatabaseRecord, page: PageNo, scn: Scn) -> InstanceError {
    InstanceError::refused(
        format!(
            "what it holds does not lead to its redo: page {page} is not what the redo says as of SCN {scn}. A process that \
             does not use Standfast wrote to it while the instance was down, an older file was put in its place, or a write \
             was lost. The file is as it was, and the redo is kept"
        ),
        format!("restore the file that was here, fail over to a standby, or {}", give_up(record)),
    )
}

/// Whether SQLite may have derived `later` from `earlier` by resetting the WAL: each reset increments the first salt
/// and draws a random second one. The WAL of a file without one has two random salts, and a rewritten WAL holds what
/// the file lacks.
pub fn may_follow(earlier: WalSalts, later: WalSalts) -> bool {
    !later.is_of_rewritten_log() && (1..=RESETS_MAX).contains(&later.0.wrapping_sub(earlier.0))
}

/// Largest number of resets between two WAL generation records in the redo.
const RESETS_MAX: u32 = 16;

/// Remedy when neither the file nor the redo may be discarded.
pub(crate) fn keep_or_fail_over(record: &DatabaseRecord) -> String {
    format!("restore the file that was here, fail over to a standby, or {}", give_up(record))
}

/// Remedy: how to decide between the file and the redo.
pub(crate) fn give_up(record: &DatabaseRecord) -> String {
    format!(
        "decide which of the two counts: `standfast database resolve {}` shows what each choice would lose, and how to make it",
        record.name
    )
}

#[cfg(test)]
mod tests;
