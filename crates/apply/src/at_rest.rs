//! Detects whether another process has written to a standby database while its standby did not run.
//!
//! A clean shutdown backfills the WAL of each database into its file, truncates it to zero and records the state of the
//! file. A plain process that only reads has nothing to backfill, so any difference at the next start comes from a
//! process that wrote. Where readers keep the WAL in use during the shutdown, the WAL stays, and its last frame is
//! recorded: salts, number and checksum.
//!
//! After a crash there is no such record. Then redo must account for every frame after the last position in the
//! journal, see [`crate::database::Database`], and where the WAL is gone, the replay begins at the file SCN.

use crate::database::Condition;
use crate::history::Fact;
use crate::standby_file::StandbyFile;
use crate::{Apply, ApplyError, ApplyReport};
use standfast_io::outside;
use standfast_types::{DatabaseId, WalPosition};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Size of a file and when it was last written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub bytes: u64,
    /// Time of the last write, nanoseconds since the Unix epoch.
    pub modified_ns: u64,
}

impl Stamp {
    /// Returns the stamp of the file at `path`; `None` when there is none, or its file system has no modification time.
    pub fn of(path: &Path) -> Option<Stamp> {
        let metadata = std::fs::metadata(path).ok()?;
        let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(Stamp { bytes: metadata.len(), modified_ns: u64::try_from(modified.as_nanos()).ok()? })
    }
}

/// The WAL of a database that stayed in use over a clean shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalAtRest {
    pub position: WalPosition,
    /// Checksum of that frame, as of [`standfast_sqlite_wal::frame_sums::frame_checksum`].
    pub checksum: u32,
    /// All frames are backfilled into the database file.
    pub is_in_file: bool,
}

/// The files of a database after a clean shutdown of its standby, durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtRest {
    pub file: Stamp,
    /// The WAL; `None` when it was truncated to zero.
    pub wal: Option<WalAtRest>,
}

/// The files of a database at a start, once no other process can write to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesFound {
    pub file: Option<Stamp>,
    /// WAL position after SQLite's recovery.
    pub position: WalPosition,
    /// Checksum of the last frame; 0 without one.
    pub checksum: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The files hold what they held.
    Same,
    /// Another process has written to them, with the evidence.
    Written(&'static str),
    /// Not decidable, as after a crash.
    Unknown,
}

impl Apply {
    /// Ends apply at a clean shutdown: backfills WALs as far as readers allow, makes everything durable, and returns
    /// the state of each database's files, for [`Apply::attach_at_rest`]. Leaves databases that are not live as they
    /// are.
    ///
    /// # Errors
    /// When the journal cannot be written; errors of one database are in the report.
    pub fn rest(mut self, report: &mut ApplyReport) -> Result<Vec<(DatabaseId, AtRest)>, ApplyError> {
        self.sync(report)?;
        let mut rests = Vec::new();
        for database in self.databases.values_mut().filter(|database| database.condition == Condition::Live) {
            match database.file.rest() {
                Ok(rest) => rests.extend(rest.map(|rest| (database.id, rest))),
                Err(error) => report.errors.push((database.id, error)),
            }
        }
        let is_whole = |rest: &AtRest| rest.wal.is_none_or(|wal| wal.is_in_file);
        let file_scn = rests.iter().filter(|(_, rest)| is_whole(rest));
        let file_scn = file_scn.filter_map(|(id, _)| Some((*id, self.databases.get(id)?.resume_scn)));
        let facts: Vec<Fact> = file_scn
            .flat_map(|(database, scn)| [Fact::Durable { database, scn }, Fact::InFile { database, scn }])
            .collect();
        let written = self.journal.append(&facts).and_then(|()| self.journal.sync());
        written.map_err(|source| self.journal_error(source))?;
        let paths: BTreeMap<DatabaseId, PathBuf> =
            self.databases.iter().map(|(id, database)| (*id, database.file.plan().path.clone())).collect();
        drop(self);
        // Syncs the time of the last write too, because SQLite only syncs data. Locks that closing the file drops are
        // gone already.
        rests.retain(|(id, _)| {
            paths.get(id).is_some_and(|path| outside::open(path).and_then(|file| file.sync_all()).is_ok())
        });
        Ok(rests)
    }
}

impl Apply {
    /// Journals durably which databases another process was found to have written to, because the evidence is about to
    /// vanish.
    ///
    /// # Errors
    /// `Journal`.
    pub fn note_found(&mut self, report: &mut ApplyReport) -> Result<(), ApplyError> {
        self.collect(report);
        self.write_facts()
    }
}

impl StandbyFile {
    /// Backfills the WAL as far as readers allow. Returns the state of the files, durable but for the time of the last
    /// write; `None` when the file system has no modification time.
    ///
    /// # Errors
    /// `Sqlite`, `SyncFailed`.
    pub(crate) fn rest(&mut self) -> Result<Option<AtRest>, ApplyError> {
        self.reset_wal()?;
        let checkpointed = self.checkpointed()?;
        let wal = if checkpointed.frames == 0 {
            self.cut_empty_wal()?;
            None
        } else {
            let (position, checksum) = self.wal_state()?;
            Some(WalAtRest { position, checksum, is_in_file: checkpointed.backfilled == checkpointed.frames })
        };
        Ok(Stamp::of(&self.plan().path).map(|file| AtRest { file, wal }))
    }
}

impl AtRest {
    /// Compares the files found with the recorded state. Pure.
    pub fn compare(&self, found: &FilesFound) -> Verdict {
        let is_file_same = found.file == Some(self.file);
        let has_frames = found.position.frame > 0;
        let Some(wal) = &self.wal else {
            return match (has_frames, is_file_same) {
                (true, _) => Verdict::Written("its write-ahead log, which was empty, holds commits"),
                (false, false) => Verdict::Written("its file was written to"),
                (false, true) => Verdict::Same,
            };
        };
        if found.position == wal.position && found.checksum == wal.checksum {
            // The last reader may have backfilled frames.
            return Verdict::Same;
        }
        if found.position.salts == wal.position.salts && found.position.frame > wal.position.frame {
            return Verdict::Written("its write-ahead log holds further commits");
        }
        match (has_frames, is_file_same && wal.is_in_file) {
            (true, _) => Verdict::Written("its write-ahead log is another one"),
            (false, true) => Verdict::Same,
            // The last reader has backfilled the frames and removed the WAL, or a writer has, or the WAL was removed.
            (false, false) => Verdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::WalSalts;

    const FILE: Stamp = Stamp { bytes: 8192, modified_ns: 77 };
    const WRITTEN: Stamp = Stamp { bytes: 8192, modified_ns: 78 };

    fn position(first_salt: u32, frame: u32) -> WalPosition {
        WalPosition { salts: WalSalts(first_salt, 5), frame }
    }

    fn found(file: Stamp, position: WalPosition, checksum: u32) -> FilesFound {
        FilesFound { file: Some(file), position, checksum }
    }

    fn is_written(rest: &AtRest, found: &FilesFound) -> bool {
        matches!(rest.compare(found), Verdict::Written(_))
    }

    #[test]
    fn without_a_wal_any_frame_or_write_is_by_another_process() {
        let rest = AtRest { file: FILE, wal: None };
        assert_eq!(rest.compare(&found(FILE, WalPosition::default(), 0)), Verdict::Same);
        assert_eq!(
            rest.compare(&found(FILE, position(9, 0), 0)),
            Verdict::Same,
            "a reader has made an empty one"
        );
        assert!(is_written(&rest, &found(FILE, position(9, 2), 4)));
        assert!(is_written(&rest, &found(WRITTEN, WalPosition::default(), 0)));
        let gone = FilesFound { file: None, ..found(FILE, WalPosition::default(), 0) };
        assert!(is_written(&rest, &gone));
    }

    #[test]
    fn wal_kept_by_readers_must_end_where_it_ended() {
        for is_in_file in [false, true] {
            let wal = WalAtRest { position: position(9, 40), checksum: 6, is_in_file };
            let rest = AtRest { file: FILE, wal: Some(wal) };
            assert_eq!(rest.compare(&found(FILE, position(9, 40), 6)), Verdict::Same);
            let backfilled = found(WRITTEN, position(9, 40), 6);
            assert_eq!(rest.compare(&backfilled), Verdict::Same, "a reader has backfilled frames");
            for (position, checksum) in [(position(9, 40), 7), (position(9, 42), 8), (position(10, 1), 8)] {
                assert!(is_written(&rest, &found(FILE, position, checksum)), "{position:?}");
            }
            let closed = rest.compare(&found(WRITTEN, WalPosition::default(), 0));
            assert_eq!(closed, Verdict::Unknown, "by the last reader or by a writer");
            let removed = rest.compare(&found(FILE, WalPosition::default(), 0));
            let expected = if is_in_file { Verdict::Same } else { Verdict::Unknown };
            assert_eq!(removed, expected, "nothing is lost with a WAL that is in the file");
        }
    }
}
