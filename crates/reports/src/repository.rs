//! Snapshots in a SQLite file: each is the difference from the previous one, compressed.
//!
//! A chain begins with a complete snapshot. The others need their predecessors, so chains are removed as a whole. One
//! process writes (the instance); any number of processes read meanwhile, and while the instance is stopped.

use crate::condense::{Before, condensed};
use crate::delta;
use crate::error::ReportError;
use crate::period::{Moment, Period, Weighted};
use crate::units;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use standfast_instruments::Observation;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `PRAGMA user_version`; 0 is a file without content.
const SCHEMA: i64 = 1;
const TABLES: &str = "CREATE TABLE IF NOT EXISTS snapshot(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time_us INTEGER NOT NULL,      -- when it was taken, since the Unix epoch
    started_us INTEGER NOT NULL,   -- start of the process that counted
    role TEXT, state TEXT,
    chain INTEGER NOT NULL,        -- number of the chain
    raw_bytes INTEGER NOT NULL,    -- of body before it was compressed
    body BLOB NOT NULL             -- difference from the snapshot before in the chain; of the first, from null
); CREATE INDEX IF NOT EXISTS snapshot_chain ON snapshot(chain)";
/// Snapshots in a chain. Reading the last one decodes all of them.
const CHAIN_MAX: u32 = 36;
/// Maximum bytes of one difference before compression; more means damage.
const RAW_MAX: i64 = 64 << 20;
/// Zstandard level. Snapshots are minutes apart, so compression may take longer than it may for redo in transit.
const LEVEL: i32 = 19;
/// Busy timeout, of readers for the writer and the other way round.
const BUSY: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Condensed to what is worth keeping.
    pub observation: Observation,
    #[serde(default)]
    pub parameters: Value,
    /// Seconds that a row of the activity stands for.
    pub activity_every_s: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
    pub id: i64,
    pub time_us: i64,
    /// Start of the process that counted, microseconds since the Unix epoch.
    pub started_us: i64,
    pub role: Option<String>,
    pub state: Option<String>,
    pub bytes: i64,
}

/// The end of the chain being written.
struct Tail {
    chain: i64,
    length: u32,
    document: Value,
    before: Before,
}

pub struct Repository {
    path: PathBuf,
    database: Connection,
    tail: Option<Tail>,
}

impl Repository {
    /// Opens the repository for writing; creates it when it does not exist.
    ///
    /// # Errors
    /// When it cannot be opened, or has another schema version.
    pub fn open(path: &Path) -> Result<Repository, ReportError> {
        let failed = failed("open", path);
        // SQLite would create a file that all users may read. If the file cannot be created, the open below fails.
        let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let database = Connection::open(path).map_err(&failed)?;
        database.busy_timeout(BUSY).map_err(&failed)?;
        // In WAL mode a reader never blocks the writer. A commit needs no sync; a power loss costs the newest snapshots
        // at most.
        database.pragma_update(None, "journal_mode", "wal").map_err(&failed)?;
        database.pragma_update(None, "synchronous", "normal").map_err(&failed)?;
        database.pragma_update(None, "journal_size_limit", 1 << 20).map_err(&failed)?;
        let repository = Repository { path: path.to_owned(), database, tail: None };
        if repository.version()? == 0 {
            repository.database.execute_batch(TABLES).map_err(&failed)?;
            repository.database.pragma_update(None, "user_version", SCHEMA).map_err(&failed)?;
        }
        repository.check_version()?;
        Ok(repository)
    }

    /// Opens the repository for reading.
    ///
    /// # Errors
    /// When it does not exist or cannot be read.
    pub fn read(path: &Path) -> Result<Repository, ReportError> {
        if !path.exists() {
            return Err(ReportError::Missing { path: path.to_owned() });
        }
        let failed = failed("read", path);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(path, flags).map_err(&failed)?;
        database.busy_timeout(BUSY).map_err(&failed)?;
        let repository = Repository { path: path.to_owned(), database, tail: None };
        repository.check_version()?;
        Ok(repository)
    }

    fn version(&self) -> Result<i64, ReportError> {
        let version = self.database.pragma_query_value(None, "user_version", |row| row.get(0));
        version.map_err(failed("read", &self.path))
    }

    fn check_version(&self) -> Result<(), ReportError> {
        match self.version()? {
            SCHEMA => Ok(()),
            found => Err(ReportError::Version { path: self.path.clone(), found, known: SCHEMA }),
        }
    }

    /// Adds a snapshot and returns its number. Removes chains whose newest snapshot is more than `retention_us` older.
    /// `parameters` is the configuration in force.
    ///
    /// # Errors
    /// When it cannot be written; the repository is then unchanged.
    pub fn add(
        &mut self,
        observation: &Observation,
        parameters: Value,
        retention_us: u64,
    ) -> Result<i64, ReportError> {
        let tail = self.tail.take();
        let before = tail.as_ref().map(|tail| tail.before.clone()).unwrap_or_default();
        let tail = tail.filter(|tail| tail.length < CHAIN_MAX);
        let (kept, activity_every_s) = condensed(observation, &before);
        let document = without_nulls(json!(Snapshot { observation: kept, parameters, activity_every_s }));
        let base = tail.as_ref().map_or(&Value::Null, |tail| &tail.document);
        let raw = delta::encode(&document, base);
        let body = zstd::bulk::compress(&raw, LEVEL).unwrap_or_default();
        let sample = &observation.sample;
        let failed = failed("write to", &self.path);
        let at = self.database.transaction().map_err(&failed)?;
        let chain = match &tail {
            Some(tail) => tail.chain,
            None => at
                .query_row("SELECT coalesce(max(chain), 0) + 1 FROM snapshot", [], |row| row.get(0))
                .map_err(&failed)?,
        };
        at.execute(
            "INSERT INTO snapshot(time_us, started_us, role, state, chain, raw_bytes, body) VALUES(?,?,?,?,?,?,?)",
            params![
                sample.time_us as i64,
                sample.started_us as i64,
                observation.status.role,
                observation.status.state,
                chain,
                raw.len() as i64,
                body
            ],
        )
        .map_err(&failed)?;
        let id = at.last_insert_rowid();
        let oldest = sample.time_us.saturating_sub(retention_us) as i64;
        let expired = "DELETE FROM snapshot WHERE chain <> ?1 AND chain IN
            (SELECT chain FROM snapshot GROUP BY chain HAVING max(time_us) < ?2)";
        at.execute(expired, params![chain, oldest]).map_err(&failed)?;
        at.commit().map_err(&failed)?;
        let length = tail.map_or(0, |tail| tail.length) + 1;
        self.tail = Some(Tail { chain, length, document, before: Before::of(observation) });
        Ok(id)
    }

    /// Lists all snapshots, the oldest first.
    ///
    /// # Errors
    /// When the repository cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>, ReportError> {
        let failed = failed("read", &self.path);
        let query = "SELECT id, time_us, started_us, role, state, length(body) FROM snapshot ORDER BY id";
        let mut query = self.database.prepare(query).map_err(&failed)?;
        let rows = query.query_map([], |row| {
            Ok(Listed {
                id: row.get(0)?,
                time_us: row.get(1)?,
                started_us: row.get(2)?,
                role: row.get(3)?,
                state: row.get(4)?,
                bytes: row.get(5)?,
            })
        });
        rows.and_then(Iterator::collect).map_err(&failed)
    }

    /// Returns the numbers of the last two snapshots.
    ///
    /// # Errors
    /// When there are fewer than two, or the repository cannot be read.
    pub fn last_two(&self) -> Result<(i64, i64), ReportError> {
        let all = self.list()?;
        match all.as_slice() {
            [.., from, to] => Ok((from.id, to.id)),
            few => Err(ReportError::TooFew { found: few.len() }),
        }
    }

    /// Returns the time between two snapshots, with the events noted in it.
    ///
    /// # Errors
    /// When a snapshot does not exist or is damaged, or the second is not later.
    pub fn period(&self, from: i64, to: i64) -> Result<Period, ReportError> {
        if to <= from {
            return Err(ReportError::Order { from, to });
        }
        let chain = self.chain_of(from)?;
        self.chain_of(to)?;
        let (mut first, mut last) = (None, None);
        let mut period_of = |id: i64, snapshot: Snapshot| {
            if id == from {
                first = Some(moment(id, snapshot));
            } else if id > from {
                let period: &mut Collected = last.get_or_insert_with(Collected::default);
                period.take(id, snapshot);
            }
        };
        self.decode(chain, to, &mut period_of)?;
        match (first, last.and_then(|collected| collected.newest.clone().zip(Some(collected)))) {
            (Some(first), Some((newest, collected))) => Ok(collected.period(first, newest)),
            _ => Err(ReportError::Unknown { id: from }),
        }
    }

    /// Returns the period from the last snapshot up to that time to the newest one.
    ///
    /// # Errors
    /// When no snapshot is newer, or the repository is damaged.
    pub fn since(&self, time_us: u64) -> Result<Period, ReportError> {
        let all = self.list()?;
        let later = all.iter().position(|listed| listed.time_us as u64 > time_us).unwrap_or(all.len());
        // The snapshot before is where the first interval begins.
        match (all.get(later.saturating_sub(1)), all.last()) {
            (Some(from), Some(to)) if from.id < to.id => self.period(from.id, to.id),
            _ => Err(ReportError::TooFew { found: all.len() - later }),
        }
    }

    fn chain_of(&self, id: i64) -> Result<i64, ReportError> {
        let chain =
            self.database.query_row("SELECT chain FROM snapshot WHERE id = ?", [id], |row| row.get(0));
        chain.optional().map_err(failed("read", &self.path))?.ok_or(ReportError::Unknown { id })
    }

    /// Passes the snapshots from the first of `chain` to `to` to `hand_on`, in order.
    fn decode(
        &self,
        chain: i64,
        to: i64,
        hand_on: &mut impl FnMut(i64, Snapshot),
    ) -> Result<(), ReportError> {
        let failed = failed("read", &self.path);
        let query =
            "SELECT id, chain, raw_bytes, body FROM snapshot WHERE chain >= ?1 AND id <= ?2 ORDER BY id";
        let mut query = self.database.prepare(query).map_err(&failed)?;
        let mut rows = query.query(params![chain, to]).map_err(&failed)?;
        let mut before: Option<(i64, Value)> = None;
        while let Some(row) = rows.next().map_err(&failed)? {
            let read = || Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
            let (id, chain, raw_bytes, body): (i64, i64, i64, Vec<u8>) = read().map_err(&failed)?;
            let base = before.take().filter(|(of, _)| *of == chain).map_or(Value::Null, |(_, base)| base);
            let damaged = |why: String| ReportError::Damaged { id, path: self.path.clone(), why };
            let (document, snapshot) = unpacked(&body, raw_bytes, &base).map_err(damaged)?;
            hand_on(id, snapshot);
            before = Some((chain, document));
        }
        Ok(())
    }
}

/// Removes the fields that are null: unknown is what is missing, too.
fn without_nulls(mut document: Value) -> Value {
    match &mut document {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(|value| *value = without_nulls(value.take()));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = without_nulls(value.take())),
        _ => {}
    }
    document
}

/// Unpacks a body into the document and the snapshot in it.
fn unpacked(body: &[u8], raw_bytes: i64, base: &Value) -> Result<(Value, Snapshot), String> {
    let length = usize::try_from(raw_bytes).ok().filter(|_| raw_bytes <= RAW_MAX);
    let length = length.ok_or_else(|| format!("{raw_bytes} bytes are no length"))?;
    let raw = zstd::bulk::decompress(body, length).map_err(|error| error.to_string())?;
    let document = delta::decode(&raw, base).map_err(|error| error.to_string())?;
    let snapshot = Snapshot::deserialize(&document).map_err(|error| error.to_string())?;
    Ok((document, snapshot))
}

fn failed<'p>(doing: &'static str, path: &'p Path) -> impl Fn(rusqlite::Error) -> ReportError + 'p {
    move |source| ReportError::Repository { doing, path: path.to_owned(), source }
}

fn moment(id: i64, snapshot: Snapshot) -> Moment {
    Moment { id: Some(id), observation: snapshot.observation, parameters: snapshot.parameters }
}

/// What the snapshots after the first one noted.
#[derive(Default)]
struct Collected {
    newest: Option<Moment>,
    alerts: Vec<String>,
    metrics: Vec<standfast_instruments::Metric>,
    activity: Vec<Weighted>,
}

impl Collected {
    fn take(&mut self, id: i64, mut snapshot: Snapshot) {
        let lines = snapshot.observation.status.alerts.take().unwrap_or_default();
        // The first snapshot of a chain repeats lines of its predecessor.
        self.alerts.extend(lines.into_iter().filter(|line| !self.alerts.contains(line)).collect::<Vec<_>>());
        let history = &mut snapshot.observation.history;
        let known_to = self.metrics.last().map_or(0, |metric| metric.end_us);
        self.metrics.extend(history.metrics.drain(..).filter(|metric| metric.end_us > known_to));
        let seen_to = self.activity.last().map_or(0, |row| row.activity.time_us);
        let seconds = f64::from(snapshot.activity_every_s);
        let rows = history.activity.drain(..).filter(|row| row.time_us > seen_to);
        self.activity.extend(rows.map(|activity| Weighted { activity, seconds }));
        self.newest = Some(moment(id, snapshot));
    }

    fn period(mut self, from: Moment, to: Moment) -> Period {
        // Drops what was noted before the interval began.
        let begin_us = from.observation.sample.time_us;
        let old = from.observation.status.alerts();
        self.alerts.retain(|line| is_since(line, begin_us) && !old.contains(line));
        self.metrics.retain(|metric| metric.end_us > begin_us);
        self.activity.retain(|row| row.activity.time_us > begin_us);
        Period { from, to, alerts: self.alerts, metrics: self.metrics, activity: self.activity }
    }
}

/// Whether a line of the alert log, which begins with its time, is not older than `begin_us`. The first snapshot of a
/// process repeats lines of its predecessor.
fn is_since(line: &str, begin_us: u64) -> bool {
    let (at, begin) = (line.get(..19).unwrap_or_default().replace('T', " "), units::when(begin_us));
    !at.starts_with(|first: char| first.is_ascii_digit())
        || begin.get(..19).is_none_or(|begin| at.as_str() >= begin)
}

#[cfg(test)]
mod tests;
