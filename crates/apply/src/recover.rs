//! Recovery of standby databases after a crash, to a known state.
//!
//! After a crash a database holds all commits up to some SCN U that is not known exactly. Known are a lower bound L
//! (from the journal, see [`crate::history`]) and an upper bound: the horizon, and the confirmed position of the
//! standby log, since redo beyond either is never applied. Replaying everything from L to the upper bound in one
//! transaction ends in exactly the pages of the upper bound, because vectors hold absolute bytes. States in between
//! would be mixtures: no reader may see them, and only at the end are the checksums meaningful.

use crate::ApplyError;
use crate::apply::{Apply, ApplyReport};
use crate::database::{Condition, Mode, Redo};
use crate::worker_pool::run_on_workers;
use standfast_io::fault::{self, Fault};
use standfast_types::Scn;

/// Maximum bytes of redo read a second time to account for frames of a WAL.
const BEGIN_AGAIN_BYTES: u64 = 256 << 20;

pub trait RedoSource {
    /// Fills `out` with bytes of the stream from `from`, the start of a record, up to at most `upto`: at least one
    /// complete record when one ends by `upto`, and some MiB at best. Adds nothing when there is none.
    ///
    /// # Errors
    /// When the redo is missing or cannot be read.
    fn read(&mut self, from: Scn, upto: Scn, out: &mut Vec<u8>) -> std::io::Result<()>;
}

pub struct RedoInMemory<'a> {
    /// SCN of `bytes[0]`; a read of an earlier SCN fails.
    pub first: Scn,
    pub bytes: &'a [u8],
}

impl RedoSource for RedoInMemory<'_> {
    fn read(&mut self, from: Scn, upto: Scn, out: &mut Vec<u8>) -> std::io::Result<()> {
        let Some(start) = from.0.checked_sub(self.first.0).map(|start| start as usize) else {
            return Err(std::io::Error::other(format!("redo starts at SCN {}", self.first)));
        };
        let end = self.bytes.len().min(upto.bytes_since(self.first) as usize);
        out.extend_from_slice(&self.bytes[start.min(end)..end]);
        Ok(())
    }
}

impl Apply {
    /// Returns where recovery must start to read redo; `None` when no database needs any. Earlier redo does no harm:
    /// records that a database already holds are skipped. It is needed when the catalogue may lack a database that was
    /// attached before.
    pub fn resume_scn(&self) -> Option<Scn> {
        let recovering =
            self.databases.values().filter(|database| database.condition == Condition::Recovering);
        recovering.map(|database| database.resume_scn).min()
    }

    /// Sets where the oldest available redo begins: databases that need earlier redo stop now, and do not keep the
    /// others from being recovered. They need a full resync.
    pub fn redo_begins_at(&mut self, oldest: Scn, report: &mut ApplyReport) {
        for database in self.databases.values_mut() {
            if database.condition == Condition::Recovering
                && database.resume_scn < oldest
                && database.durable_scn >= oldest
            {
                // Synced content is there; earlier redo could only have shown which process wrote it.
                (database.resume_scn, database.state, database.read) =
                    (database.durable_scn, database.durable_scn, database.durable_scn);
            }
            if database.condition == Condition::Recovering && database.resume_scn < oldest {
                database.condition = Condition::Stopped;
                let gap = ApplyError::Gap {
                    name: database.name.clone(),
                    needed: database.resume_scn,
                    given: oldest,
                };
                report.errors.push((database.id, gap));
            }
        }
    }

    /// Brings all databases that were attached since, or that failed, to a known state, with redo from `from` on:
    /// [`Apply::resume_scn`], or where the standby begins when it has no database. `upto` is the position that the
    /// primary had confirmed according to the standby log. [`Apply::apply`] continues at [`Apply::applied`], which may
    /// be earlier than `upto`, because recovery reads no further than needed.
    ///
    /// # Errors
    /// Errors that end all apply; errors of one database are in the report.
    pub fn recover(
        &mut self,
        from: Scn,
        upto: Scn,
        source: &mut dyn RedoSource,
    ) -> Result<ApplyReport, ApplyError> {
        let horizon = self.journal.history().horizon();
        let target = horizon.map_or(upto, |horizon| horizon.min(upto));
        self.raise_horizon(target)?;
        let mut report = ApplyReport::default();
        let at = self.replay(from, target, source, &mut report)?;
        if let Some(begin) = self.begin_again_with_suspects(at, source) {
            // Redo with a gap in the middle does not account for the suspect pages.
            match self.replay(begin, at, source, &mut report) {
                Ok(_) | Err(ApplyError::Source { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.finish_replays(at, &mut report)?;
        self.applied = self.applied.max(at);
        report.applied = self.applied;
        Ok(report)
    }

    fn replay(
        &mut self,
        from: Scn,
        target: Scn,
        source: &mut dyn RedoSource,
        report: &mut ApplyReport,
    ) -> Result<Scn, ApplyError> {
        let mut at = from;
        let mut chunk = Vec::new();
        while at < target {
            chunk.clear();
            source.read(at, target, &mut chunk).map_err(|source| ApplyError::Source { from: at, source })?;
            let end = self.run(Redo { first: at, bytes: &chunk }, target, Mode::Replay, report)?;
            if end == at {
                break;
            }
            at = end;
        }
        Ok(at)
    }

    /// Restarts the replay of databases with suspect pages, where redo may account for these. A journal that has lost
    /// facts makes frames of this standby look like those of another process: redo from the beginning of the database
    /// up to `upto` accounts for them. Where that redo is gone or too long, and the journal has no position of that WAL
    /// generation, nothing shows that another process wrote the frames; they are trusted, and `verify` compares them
    /// with the primary's. Returns where to begin.
    fn begin_again_with_suspects(&mut self, upto: Scn, source: &mut dyn RedoSource) -> Option<Scn> {
        let mut chunk = Vec::new();
        let mut is_at_hand = |begin: Scn| {
            chunk.clear();
            upto.bytes_since(begin) <= BEGIN_AGAIN_BYTES
                && source.read(begin, upto, &mut chunk).is_ok_and(|()| !chunk.is_empty())
        };
        let suspected = self.databases.values_mut().filter(|database| {
            database.condition == Condition::Recovering
                && !database.suspects.is_empty()
                && database.begin < database.resume_scn
        });
        let mut earliest = None;
        for database in suspected {
            if is_at_hand(database.begin) {
                database.begin_again();
                earliest = Some(earliest.unwrap_or(database.begin).min(database.begin));
            } else if database.is_generation_unknown {
                database.suspects.clear();
            }
        }
        earliest
    }

    fn finish_replays(&mut self, at: Scn, report: &mut ApplyReport) -> Result<(), ApplyError> {
        let databases =
            self.databases.values_mut().filter(|database| database.condition == Condition::Recovering);
        run_on_workers(databases, &mut self.dirty_pages, |database, dirty_pages| {
            let struck = fault::check(Fault::RecoveryApply).map_err(|source| ApplyError::Io {
                name: database.name.clone(),
                doing: "recovering",
                source,
            });
            database.outcome = Some(struck.and_then(|()| database.finish_replay(dirty_pages)));
        });
        self.collect(report);
        for database in
            self.databases.values_mut().filter(|database| database.condition == Condition::Recovering)
        {
            database.condition = Condition::Live;
            // Also without a commit: the file may hold more than its newest journalled position shows.
            database.unnoted = true;
            database.advance(at);
        }
        self.write_facts()
    }

    /// Makes databases that failed, but whose pages were never found wrong, ready for another [`Apply::recover`], up to
    /// [`Apply::applied`], once the cause is repaired. Returns where to read from.
    pub fn retry_failed(&mut self) -> Option<Scn> {
        for database in self.databases.values_mut().filter(|database| database.condition == Condition::Failed)
        {
            database.condition = Condition::Recovering;
        }
        self.resume_scn()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::scene;
    use standfast_testkit::TempDir;
    use standfast_types::DatabaseId;

    /// A standby with empty databases that wait for recovery, by resume SCN and durable SCN.
    fn standby(databases: &[(u64, u64)]) -> (TempDir, Apply) {
        let (directory, mut apply) = scene::standby("recover");
        for (number, (resume, durable)) in (1..).zip(databases) {
            scene::attach_empty(&mut apply, number, Scn(100));
            let database = database(&mut apply, number);
            (database.resume_scn, database.state, database.read) = (Scn(*resume), Scn(*resume), Scn(*resume));
            database.durable_scn = Scn(*durable);
        }
        (directory, apply)
    }

    fn database(apply: &mut Apply, number: u16) -> &mut crate::database::Database {
        apply.databases.get_mut(&DatabaseId(number)).unwrap()
    }

    #[test]
    fn redo_in_memory_is_read_within_its_limits() {
        let mut redo = RedoInMemory { first: Scn(100), bytes: b"0123456789" };
        let mut read = |from, upto| {
            let mut out = b"before ".to_vec();
            redo.read(Scn(from), Scn(upto), &mut out).map(|()| String::from_utf8(out).unwrap()).ok()
        };
        assert_eq!(read(100, 110).unwrap(), "before 0123456789");
        assert_eq!(read(103, 105).unwrap(), "before 34");
        assert_eq!(read(103, 900).unwrap(), "before 3456789", "it ends there");
        assert_eq!(read(110, 120).unwrap(), "before ");
        assert_eq!(read(140, 150).unwrap(), "before ");
        assert_eq!(read(99, 105), None, "it is gone");
    }

    #[test]
    fn recovery_starts_where_the_first_database_that_waits_for_it_does() {
        let (_directory, mut apply) = standby(&[(300, 300), (200, 200), (400, 400)]);
        assert_eq!(apply.resume_scn(), Some(Scn(200)));
        database(&mut apply, 2).condition = Condition::Live;
        assert_eq!(apply.resume_scn(), Some(Scn(300)));
        database(&mut apply, 1).condition = Condition::Failed;
        database(&mut apply, 3).condition = Condition::Stopped;
        assert_eq!(apply.resume_scn(), None);
        assert_eq!(
            apply.retry_failed(),
            Some(Scn(300)),
            "what failed is tried again, and what is wrong is not"
        );
    }

    #[test]
    fn database_that_needs_redo_from_before_the_oldest_stops() {
        let (_directory, mut apply) = standby(&[
            (200, 250), // lacks redo
            (200, 300), // synced where the redo begins
            (200, 350), // synced beyond
            (300, 200), // needs no more than there is
            (200, 250), // not recovered
            (200, 350), // not recovered
        ]);
        (database(&mut apply, 5).condition, database(&mut apply, 6).condition) =
            (Condition::Live, Condition::Live);
        let mut report = ApplyReport::default();
        apply.redo_begins_at(Scn(300), &mut report);
        assert_eq!(report.errors.len(), 1, "{report:?}");
        let (id, error) = &report.errors[0];
        let expected = |error: &ApplyError| matches!(error, ApplyError::Gap { needed, given, .. } if (*needed, *given) == (Scn(200), Scn(300)));
        assert!(*id == DatabaseId(1) && expected(error), "{report:?}");
        let mut found = |number| {
            let database = database(&mut apply, number);
            assert_eq!(
                (database.state, database.read),
                (database.resume_scn, database.resume_scn),
                "{number}"
            );
            (database.condition == Condition::Stopped, database.resume_scn.0)
        };
        assert_eq!([1, 2, 3].map(&mut found), [(true, 200), (false, 300), (false, 350)]);
        assert_eq!([4, 5, 6].map(&mut found), [(false, 300), (false, 200), (false, 200)]);
    }

    /// Redo from a position on; `None`: none can be read. Counts how often it is read.
    struct Kept(Option<Scn>, u32);

    impl RedoSource for Kept {
        fn read(&mut self, from: Scn, upto: Scn, out: &mut Vec<u8>) -> std::io::Result<()> {
            self.1 += 1;
            match self.0 {
                Some(oldest) if oldest <= from => {
                    out.resize(upto.bytes_since(from).min(1) as usize, 0);
                    Ok(())
                }
                Some(_) => Ok(()),
                None => Err(std::io::Error::other("it cannot be read")),
            }
        }
    }

    /// A standby whose databases begin at 100, 150 and 120 and have pages that no redo since 300 accounts for.
    fn with_suspects() -> (TempDir, Apply) {
        let (directory, mut apply) = standby(&[(300, 300), (300, 300), (300, 300)]);
        for (number, begin) in [(1, 100), (2, 150), (3, 120)] {
            let database = database(&mut apply, number);
            (database.begin, database.begin_state) = (Scn(begin), Scn(begin + 1));
            database.suspects.insert(7, 1);
        }
        (directory, apply)
    }

    #[test]
    fn suspect_pages_are_looked_for_from_the_beginning_of_their_database() {
        let (_directory, mut apply) = with_suspects();
        database(&mut apply, 1).suspects.clear();
        assert_eq!(apply.begin_again_with_suspects(Scn(400), &mut Kept(Some(Scn(50)), 0)), Some(Scn(120)));
        let mut found = |number| {
            let database = database(&mut apply, number);
            (database.resume_scn.0, database.read.0, database.state.0, database.suspects.len())
        };
        assert_eq!(found(1), (300, 300, 300, 0), "nothing is suspect");
        assert_eq!(found(2), (150, 150, 151, 1));
        assert_eq!(found(3), (120, 120, 121, 1));
    }

    #[test]
    fn only_a_replay_that_began_late_is_begun_again() {
        let (_directory, mut apply) = with_suspects();
        database(&mut apply, 1).condition = Condition::Stopped;
        database(&mut apply, 2).begin = Scn(300);
        database(&mut apply, 3).suspects.clear();
        let mut redo = Kept(Some(Scn(50)), 0);
        assert_eq!((apply.begin_again_with_suspects(Scn(400), &mut redo), redo.1), (None, 0));
    }

    #[test]
    fn suspect_pages_are_trusted_only_if_neither_redo_nor_journal_knows_them() {
        for (redo, upto, reads) in [
            (Some(Scn(151)), Scn(400), 2),
            (None, Scn(400), 2),
            // Redo that is too long is not even read.
            (Some(Scn(50)), Scn(150 + BEGIN_AGAIN_BYTES + 1), 0),
        ] {
            let (_directory, mut apply) = with_suspects();
            database(&mut apply, 3).suspects.clear();
            database(&mut apply, 1).is_generation_unknown = false;
            let mut redo = Kept(redo, 0);
            assert_eq!(apply.begin_again_with_suspects(upto, &mut redo), None);
            assert_eq!(redo.1, reads);
            assert_eq!(database(&mut apply, 1).suspects.len(), 1, "the journal has positions of its WAL");
            assert_eq!(database(&mut apply, 2).suspects.len(), 0);
            assert_eq!(database(&mut apply, 2).resume_scn, Scn(300));
        }
        let (_directory, mut apply) = with_suspects();
        let longest = Scn(100 + BEGIN_AGAIN_BYTES);
        assert_eq!(apply.begin_again_with_suspects(longest, &mut Kept(Some(Scn(50)), 0)), Some(Scn(100)));
    }
}
