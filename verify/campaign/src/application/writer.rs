//! One thread of an application.

use super::ApplicationConfig;
use super::transactions::{Kind, Transaction};
use crate::acknowledgements::Acknowledgements;
use rusqlite::{Connection, OpenFlags, Result};
use standfast_testkit::Rng;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Names of the databases in a connection, by position.
const SCHEMAS: [&str; 2] = ["main", "other"];
const BUSY_TIMEOUT: Duration = Duration::from_secs(20);
/// Delay after an error, because the cause may be transient (the instance restarts).
const AFTER_ERROR: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its schema name in the connection.
    pub schema: &'static str,
    pub database: usize,
    /// The next row of this writer in it.
    pub next: u64,
}

pub(super) struct Writer<'a> {
    acknowledgements: &'a Acknowledgements,
    writer: usize,
    /// (number, path); the first one is the main database.
    databases: Vec<(usize, PathBuf)>,
    rng: Rng,
    light: bool,
}

impl<'a> Writer<'a> {
    pub fn new(
        config: &ApplicationConfig,
        acknowledgements: &'a Acknowledgements,
        thread: usize,
    ) -> Writer<'a> {
        let mut databases: Vec<_> =
            config.databases.iter().cloned().enumerate().take(SCHEMAS.len()).collect();
        let shift = thread % databases.len().max(1);
        databases.rotate_left(shift);
        let rng = Rng::new(config.seed.wrapping_mul(1_000_003).wrapping_add(thread as u64));
        let writer = config.first_writer + thread;
        Writer { acknowledgements, writer, databases, rng, light: config.light }
    }

    /// Writes until the order to stop, or until it finds that an acknowledged row is missing.
    pub fn work(mut self) {
        let mut first = true;
        while !self.acknowledgements.stop_ordered() {
            // A new connection after every error: state of the old connection may no longer hold.
            let result = self.open().and_then(|connection| self.write(&connection, &mut first));
            match result {
                Ok(Ended::Ordered) => return,
                Ok(Ended::Lost(rows)) => {
                    eprintln!("writer {}: {rows} acknowledged rows are gone", self.writer);
                    return;
                }
                Err(error) => {
                    self.acknowledgements.entry(self.writer, 0).refuse();
                    eprintln!("writer {}: {error}", self.writer);
                    std::thread::sleep(AFTER_ERROR);
                }
            }
        }
    }

    fn open(&mut self) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.databases[0].1, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // A small cache makes large transactions spill.
        connection.execute_batch("PRAGMA cache_size=200")?;
        let attached = if self.rng.chance(50) { SCHEMAS.len() } else { 1 };
        for ((_, path), schema) in self.databases.iter().zip(SCHEMAS).take(attached).skip(1) {
            connection.execute(&format!("ATTACH ?1 AS {schema}"), [path.to_string_lossy()])?;
            connection.execute_batch(&format!("PRAGMA {schema}.cache_size=200"))?;
        }
        Ok(connection)
    }

    fn write(&mut self, connection: &Connection, first: &mut bool) -> Result<Ended> {
        let mut places = self.find_places(connection)?;
        if let Some(rows) = self.lost(&places) {
            return Ok(Ended::Lost(rows));
        }
        while !self.acknowledgements.stop_ordered() {
            let kind = match self.light {
                true => Kind::Small,
                false => Kind::draw(&mut self.rng, places.len(), std::mem::take(first)),
            };
            let at = usize::from(places.len() > 1 && self.rng.chance(20));
            let mut transaction =
                Transaction { connection, rng: &mut self.rng, writer: self.writer, places: &places };
            let Some(reached) = transaction.run(kind, at)? else { continue };
            for (database, seq) in &reached {
                self.acknowledgements.entry(self.writer, *database).attempt(*seq);
            }
            let begun = Instant::now();
            let committed = connection.execute_batch("COMMIT");
            for (database, _) in &reached {
                self.acknowledgements.entry(self.writer, *database).waited(begun.elapsed());
            }
            committed?;
            for (database, seq) in reached {
                self.acknowledgements.entry(self.writer, database).acknowledge(seq);
                if let Some(place) = places.iter_mut().find(|place| place.database == database) {
                    place.next = seq + 1;
                }
            }
        }
        Ok(Ended::Ordered)
    }

    /// Finds the end of this writer's ledger in each database: the outcome of the last transaction may be unknown.
    fn find_places(&self, connection: &Connection) -> Result<Vec<Place>> {
        let attached: i64 =
            connection.query_row("SELECT count(*) FROM pragma_database_list", [], |row| row.get(0))?;
        let place = |((database, _), schema): (&(usize, PathBuf), &'static str)| {
            let sql = format!("SELECT coalesce(max(seq), 0) + 1 FROM {schema}.ledger WHERE writer = ?1");
            let next: i64 = connection.query_row(&sql, [self.writer as i64], |row| row.get(0))?;
            Ok(Place { schema, database: *database, next: next as u64 })
        };
        self.databases.iter().zip(SCHEMAS).take(attached as usize).map(place).collect()
    }

    fn lost(&self, places: &[Place]) -> Option<u64> {
        let mut lost = 0;
        for place in places {
            let entry = self.acknowledgements.entry(self.writer, place.database);
            let missing = (entry.acknowledged() + 1).saturating_sub(place.next);
            entry.report_lost(missing);
            lost += missing;
        }
        (lost > 0).then_some(lost)
    }
}

enum Ended {
    Ordered,
    /// This many acknowledged rows are missing.
    Lost(u64),
}
