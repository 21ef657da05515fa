//! What is known about how far redo is applied to each database. Pure.

use standfast_types::{DatabaseId, Scn, WalPosition};
use std::collections::BTreeMap;

/// One fact of the apply journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// With its WAL at `at`, the database needs redo from `scn` on: all commits before `scn` are in it.
    Position {
        database: DatabaseId,
        at: WalPosition,
        /// Checksum of the frame at `at`, as of [`standfast_sqlite_wal::frame_sums::frame_checksum`]; 0 when unknown.
        checksum: u32,
        /// Redo before it is not needed.
        scn: Scn,
    },
    /// Durable SCN: the database needs no redo before `scn`, whatever its WAL loses in a power loss, because the WAL
    /// was synced.
    Durable { database: DatabaseId, scn: Scn },
    /// File SCN: the database file alone, without its WAL, durably holds all commits before `scn`.
    InFile { database: DatabaseId, scn: Scn },
    /// No redo beyond `scn` has been applied to any database. Synced before redo beyond the previous horizon is
    /// applied.
    Horizon { scn: Scn },
    /// Apply of the database stopped because a page differed from the primary's, or the storage failed.
    Stopped {
        database: DatabaseId,
        /// Last commit that is in it.
        scn: Scn,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Noted {
    at: WalPosition,
    checksum: u32,
    scn: Scn,
}

/// The newest state that a database certainly holds, by the WAL found at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Resume SCN; `None` when nothing is known.
    pub scn: Option<Scn>,
    /// Frames after this one are not known to be this standby's. Redo that accounts for them begins at `scn`.
    pub known_upto: u32,
}

#[derive(Clone, Debug, Default)]
struct Known {
    positions: Vec<Noted>,
    durable_scn: Option<Scn>,
    file_scn: Option<Scn>,
    stopped: Option<Scn>,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    databases: BTreeMap<DatabaseId, Known>,
    horizon: Option<Scn>,
}

/// Positions of a database kept in memory; once redo is applied to it, only the newest matters.
const POSITIONS_KEPT: usize = 64;

impl History {
    pub fn add(&mut self, fact: Fact) {
        match fact {
            Fact::Position { database, at, checksum, scn } => {
                self.known(database).positions.push(Noted { at, checksum, scn });
            }
            Fact::Durable { database, scn } => raise(&mut self.known(database).durable_scn, scn),
            Fact::InFile { database, scn } => raise(&mut self.known(database).file_scn, scn),
            Fact::Horizon { scn } => raise(&mut self.horizon, scn),
            Fact::Stopped { database, scn } => raise(&mut self.known(database).stopped, scn),
        }
    }

    /// Adds a fact of this process, and in time drops positions that only mattered at its start.
    pub fn append(&mut self, fact: Fact) {
        if let Fact::Position { database, .. } = fact {
            let positions = &mut self.known(database).positions;
            if positions.len() >= POSITIONS_KEPT {
                positions.clear();
            }
        }
        self.add(fact);
    }

    fn known(&mut self, database: DatabaseId) -> &mut Known {
        self.databases.entry(database).or_default()
    }

    /// Returns the bound of `database` when its WAL, after SQLite's recovery, is at `at`. `checksum_of` returns the
    /// checksum of a frame of that WAL. Every fact used is a lower bound of what the database holds, so the greatest
    /// counts:
    /// - a durable SCN, because the WAL was synced before the SCN was journalled;
    /// - a position of the same WAL generation at or before `at.frame`, if the frame there has the journalled checksum:
    ///   a WAL that has lost frames in a power loss may have grown past the position again.
    ///
    /// A position of another generation proves nothing: that generation may have lost frames in a power loss, and then
    /// been backfilled into the database and removed by the first process that closed it. Without any WAL the durable
    /// SCN proves nothing either, because the synced WAL may have been removed: then the file SCN counts.
    ///
    /// Frames after the position that is found were written later: by this standby, and then the redo from there on has
    /// their pages, or by another process.
    pub fn bound(
        &self,
        database: DatabaseId,
        at: WalPosition,
        mut checksum_of: impl FnMut(u32) -> Option<u32>,
    ) -> Bound {
        let Some(known) = self.databases.get(&database) else { return Bound { scn: None, known_upto: 0 } };
        if at == WalPosition::default() {
            return Bound { scn: known.file_scn, known_upto: 0 };
        }
        let is_of_generation = |noted: &&Noted| noted.at.salts == at.salts;
        let mut reached: Vec<&Noted> = known
            .positions
            .iter()
            .filter(is_of_generation)
            .filter(|noted| noted.at.frame <= at.frame)
            .collect();
        reached.sort_unstable_by_key(|noted| std::cmp::Reverse((noted.at.frame, noted.scn)));
        let is_there =
            |noted: &&&Noted| noted.checksum == 0 || checksum_of(noted.at.frame) == Some(noted.checksum);
        if let Some(noted) = reached.iter().find(is_there) {
            let is_whole = noted.at.frame == at.frame;
            // Redo before the durable SCN is needed where it must account for frames.
            let scn = if is_whole { Some(noted.scn).max(known.durable_scn) } else { Some(noted.scn) };
            return Bound { scn, known_upto: noted.at.frame };
        }
        if known.positions.iter().any(|noted| is_of_generation(&noted)) {
            // The WAL has lost frames, and the journal has no position among the remaining ones; these are not suspect.
            return Bound { scn: known.durable_scn, known_upto: at.frame };
        }
        // If this standby wrote this generation, all its frames are newer than the newest position of another
        // generation.
        let newest = known.positions.iter().map(|noted| noted.scn).max();
        Bound {
            scn: newest.map_or(known.durable_scn, |newest| {
                known.durable_scn.map(|durable_scn| durable_scn.min(newest))
            }),
            known_upto: 0,
        }
    }

    /// Returns where redo must be read from, by [`History::bound`], when the frames have the journalled checksums.
    #[cfg(test)]
    pub fn lower_bound(&self, database: DatabaseId, at: WalPosition) -> Option<Scn> {
        let known = self.databases.get(&database);
        let noted = |frame| {
            let mut noted = known?.positions.iter().filter(|noted| noted.at.salts == at.salts);
            noted.find(|noted| noted.at.frame == frame).map(|noted| noted.checksum)
        };
        self.bound(database, at, noted).scn.max(known.and_then(|known| known.durable_scn))
    }

    /// Returns whether anything has been committed to `database`.
    pub fn has_commits(&self, database: DatabaseId) -> bool {
        self.databases.get(&database).is_some_and(|known| !known.positions.is_empty())
    }

    /// Returns the durable SCN of `database`.
    pub fn durable_scn(&self, database: DatabaseId) -> Option<Scn> {
        self.databases.get(&database)?.durable_scn
    }

    /// Returns the file SCN of `database`.
    pub fn file_scn(&self, database: DatabaseId) -> Option<Scn> {
        self.databases.get(&database)?.file_scn
    }

    /// Returns where apply of `database` stopped for good, if it did.
    pub fn stopped(&self, database: DatabaseId) -> Option<Scn> {
        self.databases.get(&database)?.stopped
    }

    /// Returns the SCN beyond which nothing has been applied.
    pub fn horizon(&self) -> Option<Scn> {
        self.horizon
    }

    /// Lowers the horizon: nothing beyond `scn` has been applied, whatever was possible before. The caller must remove
    /// all facts with a higher horizon from the journal.
    pub fn lower_horizon(&mut self, scn: Scn) {
        self.horizon = Some(scn);
    }

    pub fn forget(&mut self, database: DatabaseId) {
        self.databases.remove(&database);
    }

    /// Drops all positions but the newest of each database.
    pub fn compact(&mut self) {
        for known in self.databases.values_mut() {
            if let Some(newest) = known.positions.iter().max_by_key(|noted| noted.scn).copied() {
                known.positions.clear();
                known.positions.push(newest);
            }
        }
    }

    /// Returns the facts with which a new half of the journal begins.
    pub fn newest(&self) -> impl Iterator<Item = Fact> + '_ {
        let of_databases = self.databases.iter().flat_map(|(database, known)| {
            let database = *database;
            let newest = known.positions.iter().max_by_key(|noted| noted.scn);
            let position = newest.map(|Noted { at, checksum, scn }| Fact::Position {
                database,
                at: *at,
                checksum: *checksum,
                scn: *scn,
            });
            let durable_scn = known.durable_scn.map(|scn| Fact::Durable { database, scn });
            let file_scn = known.file_scn.map(|scn| Fact::InFile { database, scn });
            let stopped = known.stopped.map(|scn| Fact::Stopped { database, scn });
            [position, durable_scn, file_scn, stopped].into_iter().flatten()
        });
        of_databases.chain(self.horizon.map(|scn| Fact::Horizon { scn }))
    }
}

fn raise(bound: &mut Option<Scn>, scn: Scn) {
    *bound = (*bound).max(Some(scn));
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::WalSalts;

    const DB: DatabaseId = DatabaseId(1);
    const OLD: WalSalts = WalSalts(9, 9);
    const NOW: WalSalts = WalSalts(1, 1);

    fn history(positions: &[(WalSalts, u32, u64)]) -> History {
        let mut history = History::default();
        for (salts, frame, scn) in positions {
            let at = WalPosition { salts: *salts, frame: *frame };
            history.add(Fact::Position { database: DB, at, checksum: *frame, scn: Scn(*scn) });
        }
        history
    }

    fn bound(history: &History, salts: WalSalts, frame: u32) -> Option<Scn> {
        history.lower_bound(DB, WalPosition { salts, frame })
    }

    #[test]
    fn a_position_counts_only_when_the_wal_reaches_it() {
        let history = history(&[(NOW, 10, 100), (NOW, 20, 200), (NOW, 30, 300)]);
        assert_eq!(bound(&history, NOW, 29), Some(Scn(200)));
        assert_eq!(bound(&history, NOW, 30), Some(Scn(300)));
        assert_eq!(bound(&history, NOW, 9), None);
    }

    #[test]
    fn positions_of_another_generation_do_not_count() {
        let history = history(&[(OLD, 500, 100), (NOW, 3, 200)]);
        assert_eq!(bound(&history, NOW, 0), None);
        assert_eq!(bound(&history, OLD, 500), Some(Scn(100)));
        assert_eq!(bound(&history, WalSalts(0, 0), 0), None);
    }

    #[test]
    fn without_a_wal_only_the_file_scn_counts() {
        let mut history = history(&[(NOW, 10, 100)]);
        history.add(Fact::Durable { database: DB, scn: Scn(60) });
        let without = |history: &History| history.bound(DB, WalPosition::default(), |_| None).scn;
        assert_eq!(without(&history), None, "the WAL that was synced is gone");
        history.add(Fact::InFile { database: DB, scn: Scn(40) });
        assert_eq!(without(&history), Some(Scn(40)));
    }

    #[test]
    fn durable_scn_counts_whatever_the_wal_lost() {
        let mut history = history(&[(NOW, 10, 100)]);
        history.add(Fact::Durable { database: DB, scn: Scn(60) });
        history.add(Fact::Durable { database: DB, scn: Scn(50) });
        assert_eq!(bound(&history, NOW, 5), Some(Scn(60)));
        assert_eq!(bound(&history, NOW, 10), Some(Scn(100)));
        history.forget(DB);
        assert_eq!(bound(&history, NOW, 10), None);
    }
}
