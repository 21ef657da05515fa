//! The kinds of transactions, mostly small ones.

use super::writer::Place;
use crate::schema::{ACCOUNTS, GHOST, row_sum};
use rusqlite::{Connection, Result};
use standfast_testkit::Rng;

/// One in this many transactions is a heavy one.
const HEAVY_ONE_IN: u64 = 1_200;
/// Rows of `ballast` beyond which heavy transactions delete.
const BALLAST_MAX: i64 = 30_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Small,
    /// Up to 40 rows in one transaction.
    Several,
    /// A savepoint is rolled back half-way, another one released.
    Savepoints,
    Rollback,
    Both,
    /// Thousands of rows, more than the page cache holds: pages spill into the WAL before the commit.
    Large,
    /// Thousands of rows, rolled back after they have spilled.
    LargeRollback,
    /// Drops an index on `ballast` and creates it.
    Index,
    /// Half of `ballast` is deleted and free pages are returned.
    Shrink,
    Vacuum,
}

impl Kind {
    const HEAVY: [Kind; 5] = [Kind::Large, Kind::LargeRollback, Kind::Index, Kind::Shrink, Kind::Vacuum];

    /// Draws a kind. `first`: the transaction is the first after a start, where few follow before the next kill, so
    /// heavy ones are drawn more often.
    pub fn draw(rng: &mut Rng, databases: usize, first: bool) -> Kind {
        if rng.below(HEAVY_ONE_IN) == 0 || first && rng.chance(15) {
            return *rng.pick(&Kind::HEAVY).unwrap_or(&Kind::Large);
        }
        match rng.below(100) {
            0..70 => Kind::Small,
            70..82 => Kind::Several,
            82..89 => Kind::Savepoints,
            89..95 => Kind::Rollback,
            _ if databases > 1 => Kind::Both,
            _ => Kind::Small,
        }
    }
}

/// Rows written, by database: the last row of this writer's ledger once the transaction commits.
pub(super) type Reached = Vec<(usize, u64)>;

pub(super) struct Transaction<'a> {
    pub connection: &'a Connection,
    pub rng: &'a mut Rng,
    pub writer: usize,
    pub places: &'a [Place],
}

impl Transaction<'_> {
    /// Carries out everything of `kind` but the COMMIT, in the place with the index `at`. Returns `None` when there is
    /// nothing to commit.
    pub fn run(&mut self, kind: Kind, at: usize) -> Result<Option<Reached>> {
        if kind == Kind::Vacuum {
            self.execute(&format!("VACUUM {}", self.places[at].schema))?;
            return Ok(None);
        }
        // IMMEDIATE would also lock the attached database, and two threads that attach them in opposite order would
        // deadlock. In a deferred transaction the first statement must be a write: a snapshot that was read first may
        // be too old to write by then.
        self.execute(if self.places.len() > 1 { "BEGIN" } else { "BEGIN IMMEDIATE" })?;
        let reached = match kind {
            Kind::Small => {
                self.touch_account(at)?;
                self.rows(at, 1)?
            }
            Kind::Several => {
                let count = self.rng.between(2, 40);
                self.rows(at, count)?
            }
            Kind::Savepoints => self.savepoints(at)?,
            Kind::Rollback | Kind::LargeRollback => {
                let large = kind == Kind::LargeRollback;
                self.ghosts(at, if large { 3_000 } else { 5 })?;
                self.execute("ROLLBACK")?;
                return Ok(None);
            }
            Kind::Both => {
                // In the same order in all threads.
                let first = usize::from(self.places[0].database != 0);
                let mut reached = self.rows(first, 1)?;
                reached.extend(self.rows(1 - first, 1)?);
                reached
            }
            Kind::Large => {
                let reached = self.rows(at, 1)?;
                self.bulk(at)?;
                reached
            }
            Kind::Index => {
                let (schema, reached) = (self.places[at].schema, self.rows(at, 1)?);
                self.execute(&format!("DROP INDEX IF EXISTS {schema}.ballast_body"))?;
                self.execute(&format!("CREATE INDEX {schema}.ballast_body ON ballast(substr(body, 1, 40))"))?;
                reached
            }
            Kind::Shrink | Kind::Vacuum => {
                let reached = self.rows(at, 1)?;
                self.shrink(at)?;
                reached
            }
        };
        Ok(Some(reached))
    }

    fn execute(&self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql)
    }

    /// Adds `count` rows after the newest row of the writer.
    fn rows(&mut self, at: usize, count: u64) -> Result<Reached> {
        let Place { schema, database, next } = self.places[at];
        let sql = format!("INSERT INTO {schema}.ledger VALUES(?1, ?2, ?3, ?4)");
        let mut insert = self.connection.prepare_cached(&sql)?;
        for seq in next..next + count {
            let length = self.rng.between(0, 200) as usize;
            let payload = self.rng.bytes(length);
            let sum = row_sum(self.writer as u64, seq, &payload);
            insert.execute((self.writer as i64, seq as i64, sum, payload))?;
        }
        Ok(vec![(database, next + count - 1)])
    }

    /// Adds rows that must never become visible.
    fn ghosts(&mut self, at: usize, count: i64) -> Result<()> {
        let schema = self.places[at].schema;
        let sql = format!("INSERT INTO {schema}.ledger VALUES(?1, ?2, 0, zeroblob(300))");
        let mut insert = self.connection.prepare_cached(&sql)?;
        (0..count).try_for_each(|nth| insert.execute((GHOST, nth)).map(|_| ()))
    }

    fn touch_account(&mut self, at: usize) -> Result<()> {
        let sql =
            format!("UPDATE {}.account SET balance = balance + 1 WHERE id = ?1", self.places[at].schema);
        let account = self.rng.between(1, ACCOUNTS);
        self.connection.prepare_cached(&sql)?.execute([account as i64]).map(|_| ())
    }

    fn savepoints(&mut self, at: usize) -> Result<Reached> {
        self.execute("SAVEPOINT kept")?;
        let reached = self.rows(at, 1)?;
        self.execute("SAVEPOINT dropped")?;
        self.ghosts(at, 30)?;
        self.touch_account(at)?;
        self.execute("ROLLBACK TO dropped")?;
        self.touch_account(at)?;
        self.execute("RELEASE kept")?;
        Ok(reached)
    }

    fn ballast(&self, at: usize) -> Result<i64> {
        let sql = format!("SELECT count(*) FROM {}.ballast", self.places[at].schema);
        self.connection.query_row(&sql, [], |row| row.get(0))
    }

    fn bulk(&mut self, at: usize) -> Result<()> {
        if self.ballast(at)? > BALLAST_MAX {
            return self.shrink(at);
        }
        let sql = format!("INSERT INTO {}.ballast(body) VALUES(?1)", self.places[at].schema);
        let mut insert = self.connection.prepare_cached(&sql)?;
        for _ in 0..self.rng.between(1_000, 6_000) {
            let length = self.rng.between(40, 500) as usize;
            insert.execute([self.rng.bytes(length)])?;
        }
        Ok(())
    }

    fn shrink(&mut self, at: usize) -> Result<()> {
        let schema = self.places[at].schema;
        let rest = self.rng.below(2);
        self.execute(&format!("DELETE FROM {schema}.ballast WHERE id % 2 = {rest}"))?;
        // Has an effect only in databases with incremental auto-vacuum. It returns rows that must be stepped through,
        // which execute_batch does.
        self.execute(&format!("PRAGMA {schema}.incremental_vacuum(500)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn every_kind_is_drawn_and_most_are_small() {
        let mut rng = Rng::new(5);
        let mut seen: HashMap<Kind, u32> = HashMap::new();
        (0..100_000).for_each(|_| *seen.entry(Kind::draw(&mut rng, 2, false)).or_default() += 1);
        assert_eq!(seen.len(), 10, "{seen:?}");
        assert!(seen[&Kind::Small] > 60_000);
        assert!(Kind::HEAVY.iter().map(|kind| seen[kind]).sum::<u32>() < 200);
        assert!((0..10_000).all(|_| Kind::draw(&mut rng, 1, false) != Kind::Both));
    }
}
