//! From what a crash left to a known state.
//!
//! After a crash a database holds all commits up to some U that is not known exactly. Known are a lower bound
//! L (from the journal, see [`crate::history`]) and an upper bound: the horizon, and the confirmed position of
//! the standby log, since nothing beyond either is ever applied. Replaying everything from L to the upper
//! bound in one transaction ends in exactly the pages of the upper bound, because vectors hold absolute bytes;
//! states in between would be mixtures, so nobody may see them, and only at the end do the sums mean anything.

use crate::ApplyError;
use crate::apply::{Apply, ApplyReport};
use crate::crew::share_out;
use crate::database::{Condition, Mode, Redo};
use standfast_io::fault::{self, Fault};
use standfast_types::Scn;

/// Redo that is read a second time to explain frames of a WAL, at most.
const BEGIN_AGAIN_BYTES: u64 = 256 << 20;

/// Where recovery reads redo from.
pub trait RedoSource {
    /// Fills `out` with bytes of the stream from `from`, the start of a record, up to at most `upto`: at
    /// least one whole record when there is one that ends by `upto`, and some MiB at best. Nothing when there
    /// is none.
    ///
    /// # Errors
    /// When the redo is not there or cannot be read.
    fn read(&mut self, from: Scn, upto: Scn, out: &mut Vec<u8>) -> std::io::Result<()>;
}

/// Redo in memory.
pub struct RedoInMemory<'a> {
    /// Position of the first byte.
    pub first: Scn,
    /// Whole records.
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
    /// Where recovery has to read redo from; `None` when no database needs any. Redo from earlier does no harm:
    /// what is in a database already is skipped. It is needed when the catalogue may lack a database that was
    /// attached before.
    pub fn resume_scn(&self) -> Option<Scn> {
        let recovering =
            self.databases.values().filter(|database| database.condition == Condition::Recovering);
        recovering.map(|database| database.need).min()
    }

    /// The oldest redo there is begins at `oldest`: databases that need earlier redo stop now, and do not keep
    /// the others from being recovered. They have to be copied again.
    pub fn redo_begins_at(&mut self, oldest: Scn, report: &mut ApplyReport) {
        for database in self.databases.values_mut() {
            if database.condition == Condition::Recovering
                && database.need < oldest
                && database.floor >= oldest
                && !database.lacks_wal
            {
                // What was synced is there; redo from before could only have shown who wrote it.
                (database.need, database.state, database.read) =
                    (database.floor, database.floor, database.floor);
            }
            if database.condition == Condition::Recovering && database.need < oldest {
                database.condition = Condition::Stopped;
                let gap =
                    ApplyError::Gap { name: database.name.clone(), needed: database.need, given: oldest };
                report.errors.push((database.id, gap));
            }
        }
    }

    /// Brings all databases that were attached since, or that failed, to a known state, with redo from `from`
    /// on: [`Apply::resume_scn`], or where the standby begins when it has no database. `upto` is the
    /// position that the primary had confirmed according to the standby log. [`Apply::apply`] goes on at
    /// [`Apply::applied`], which may be earlier than `upto`, since recovery reads no further than needed.
    ///
    /// # Errors
    /// What ends all apply; what concerns one database is in the report.
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
            // A hole in the middle explains nothing.
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

    /// A journal that has lost facts lets frames of this standby look like those of another process: redo from the beginning of
    /// the database up to `upto` explains them. Where that is gone, or too much, and the journal has no position of that WAL, nothing
    /// shows that another process wrote them, and `verify` compares them with those of the primary. Returns where to begin.
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
                && database.begin < database.need
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
        share_out(databases, &mut self.overlays, |database, overlay| {
            let struck = fault::check(Fault::RecoveryApply).map_err(|source| ApplyError::Io {
                name: database.name.clone(),
                doing: "recovering",
                source,
            });
            database.outcome = Some(struck.and_then(|()| database.finish_replay(overlay)));
        });
        self.collect(report);
        for database in
            self.databases.values_mut().filter(|database| database.condition == Condition::Recovering)
        {
            database.condition = Condition::Live;
            // Also without a commit: the file may hold more than its newest position says.
            database.unnoted = true;
            database.advance(at);
        }
        self.write_facts()
    }

    /// Makes databases that failed, but whose pages were never found wrong, ready for another
    /// [`Apply::recover`], up to [`Apply::applied`], once the cause is mended. Returns where to read from.
    pub fn retry_failed(&mut self) -> Option<Scn> {
        for database in self.databases.values_mut().filter(|database| database.condition == Condition::Failed)
        {
            database.condition = Condition::Recovering;
        }
        self.resume_scn()
    }
}
