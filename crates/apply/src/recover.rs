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
