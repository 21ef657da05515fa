//! A primary that makes redo by comparing all pages before and after each transaction, and helpers.
#![allow(dead_code, clippy::unwrap_used)]

use rusqlite::Connection;
use standfast_apply::{
    Apply, ApplyConfig, ApplyError, ApplyReport, Limits, RedoInMemory, RedoSource, StartPoint,
};
use standfast_format::{Attach, RecordBuilder, page_sum};
use standfast_io::DirectDisk;
use standfast_testkit::{Rng, TempDir};
use standfast_types::{DatabaseId, PageSize, Scn};
use std::path::Path;
use std::sync::Arc;

/// The redo stream of an instance.
#[derive(Default)]
pub struct Stream {
    pub bytes: Vec<u8>,
}

impl Stream {
    pub fn end(&self) -> Scn {
        Scn::START + self.bytes.len() as u64
    }
    pub fn from(&self, scn: Scn) -> &[u8] {
        &self.bytes[scn.bytes_since(Scn::START) as usize..]
    }
}

pub struct Primary {
    pub id: DatabaseId,
    pub name: String,
    pub page_size: PageSize,
    pub connection: Connection,
    images: Vec<Vec<u8>>,
    /// The pages after each commit; `None` when they are not recorded.
    pub past: Option<Vec<(Scn, Vec<Vec<u8>>)>>,
    /// Maximum number of vectors in a record; a transaction with more has several records.
    pub record_vectors: usize,
}

impl Primary {
    pub fn new(directory: &Path, id: u16, name: &str, page_size: u32) -> Primary {
        let connection = Connection::open(directory.join(name)).unwrap();
        connection.execute_batch(&format!("PRAGMA page_size={page_size}; PRAGMA journal_mode=WAL")).unwrap();
        Primary {
            id: DatabaseId(id),
            name: name.to_owned(),
            page_size: PageSize::new(page_size).unwrap(),
            connection,
            images: Vec::new(),
            past: None,
            record_vectors: usize::MAX,
        }
    }

    pub fn attach(&mut self, stream: &mut Stream) {
        let attach = Attach { database: self.id, page_size: self.page_size, name: &self.name };
        RecordBuilder::attach(&mut stream.bytes, &attach);
        self.baseline(stream);
    }

    pub fn baseline(&mut self, stream: &mut Stream) {
        self.image(stream, true);
    }

    /// Appends a full resync image; `complete`: it is known to hold all redo before it.
    pub fn image(&mut self, stream: &mut Stream, complete: bool) {
        RecordBuilder::baseline(&mut stream.bytes, self.id, complete);
        self.images.clear();
        self.capture(stream);
    }

    /// Runs `sql` and captures it as one transaction.
    pub fn run(&mut self, stream: &mut Stream, sql: &str) {
        self.connection.execute_batch(sql).unwrap();
        self.capture(stream);
    }

    pub fn capture(&mut self, stream: &mut Stream) {
        let now = pages(&self.connection);
        let mut changes = Vec::new();
        for (at, image) in now.iter().enumerate() {
            let before = self.images.get(at);
            if before != Some(image) {
                changes.push((at as u32 + 1, before, image));
            }
        }
        let mut scratch = Vec::new();
        let rest =
            changes.split_off(changes.len() - changes.len() % self.record_vectors.min(changes.len() + 1));
        for record in changes.chunks(self.record_vectors) {
            let mut builder = RecordBuilder::change(&mut stream.bytes, self.id);
            for (page, before, after) in record {
                builder.vector(*page, before.map(Vec::as_slice), after, page_sum(*page, after), &mut scratch);
            }
            builder.finish();
        }
        let mut builder = RecordBuilder::commit(&mut stream.bytes, self.id, 0, now.len() as u32, 1);
        for (page, before, after) in &rest {
            builder.vector(*page, before.map(Vec::as_slice), after, page_sum(*page, after), &mut scratch);
        }
        builder.finish();
        if let Some(past) = &mut self.past {
            past.push((stream.end(), now.clone()));
        }
        self.images = now;
    }

    /// Returns the pages as of `scn`.
    pub fn at(&self, scn: Scn) -> Option<&[Vec<u8>]> {
        let past = self.past.as_ref().unwrap();
        past.iter().rev().find(|(commit, _)| *commit <= scn).map(|(_, images)| images.as_slice())
    }

    /// Fails unless the database `name` in `standby` has the same pages.
    pub fn check(&self, standby: &TempDir) {
        let copy = Connection::open(standby.join(&self.name)).unwrap();
        same(&self.images, &pages(&copy), &self.name);
        let count: u32 = copy.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        assert_eq!(count as usize, self.images.len());
        let verdict: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
    }
}

/// Fails unless the pages are equal, except for bytes that every SQLite writes for itself.
pub fn same(here: &[Vec<u8>], there: &[Vec<u8>], name: &str) {
    assert_eq!(there.len(), here.len(), "size of {name} in pages");
    for (at, (here, there)) in here.iter().zip(there).enumerate() {
        let page = at as u32 + 1;
        assert_eq!(page_sum(page, here), page_sum(page, there), "page {page} of {name}");
    }
}

pub const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB); CREATE INDEX by_body ON t(body);";

pub fn insert(rows: u32, bytes: u32) -> String {
    format!(
        "INSERT INTO t(body) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{rows}) \
         SELECT randomblob({bytes}) FROM n"
    )
}

pub fn history(primary: &mut Primary, stream: &mut Stream, steps: u32, rng: &mut Rng) {
    for _ in 0..steps {
        let sql = match rng.below(8) {
            0 => insert(1 + rng.below(40) as u32, 200),
            1 => format!("DELETE FROM t WHERE id % 7 = {}", rng.below(7)),
            2 => format!("CREATE TABLE x{}(a, b UNIQUE); INSERT INTO t(body) VALUES('x')", rng.next_u64()),
            3 if rng.chance(30) => "VACUUM".to_owned(),
            _ => format!("UPDATE t SET body=randomblob(90) WHERE id % 31 = {}", rng.below(31)),
        };
        primary.record_vectors = if rng.chance(20) { 3 } else { usize::MAX };
        primary.run(stream, &sql);
    }
}

pub fn pages(connection: &Connection) -> Vec<Vec<u8>> {
    let mut statement = connection.prepare("SELECT data FROM sqlite_dbpage('main')").unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

pub fn small_limits() -> Limits {
    Limits {
        image_bytes: 1 << 20,
        pending_bytes: 4 << 10,
        checkpoint_frames: 50,
        reset_frames: 400,
        ..Limits::default()
    }
}

pub fn config(standby: &TempDir, workers: usize, limits: Limits) -> ApplyConfig {
    ApplyConfig {
        directory: standby.path().to_owned(),
        journal: standby.join("apply.journal"),
        disk: Arc::new(DirectDisk),
        vfs_base: None,
        workers,
        limits,
    }
}

/// Returns a standby that starts at the beginning of the stream.
pub fn fresh(standby: &TempDir, workers: usize, limits: Limits) -> Apply {
    let mut apply = Apply::open(config(standby, workers, limits), Box::new(|_| Ok(()))).unwrap();
    let report =
        apply.recover(Scn::START, Scn::START, &mut RedoInMemory { first: Scn::START, bytes: &[] }).unwrap();
    assert!(report.errors.is_empty());
    apply
}

/// Redo in memory, handed out in small chunks.
pub struct Chunked<'a>(pub RedoInMemory<'a>);

impl RedoSource for Chunked<'_> {
    fn read(&mut self, from: Scn, upto: Scn, out: &mut Vec<u8>) -> std::io::Result<()> {
        let bytes = &self.0.bytes[from.bytes_since(self.0.first) as usize..];
        let mut end = 0;
        while end < 5_000 && end < bytes.len() {
            end += standfast_format::peek_length(&bytes[end..]).unwrap();
        }
        self.0.read(from, upto.min(from + end as u64), out)
    }
}

/// Returns a standby after a crash: everything that was attached is attached again and recovered.
pub fn again(
    standby: &TempDir,
    primaries: &[&Primary],
    stream: &Stream,
    confirmed: Scn,
    limits: Limits,
) -> (Apply, ApplyReport) {
    let mut apply = Apply::open(config(standby, 0, limits), Box::new(|_| Ok(()))).unwrap();
    for primary in primaries {
        apply
            .attach_existing(
                primary.id,
                &primary.name,
                primary.page_size,
                StartPoint::attached_at(Scn::START),
            )
            .unwrap();
    }
    let from = apply.resume_scn().unwrap();
    let mut redo = Chunked(RedoInMemory { first: Scn::START, bytes: &stream.bytes });
    let report = apply.recover(from, confirmed, &mut redo).unwrap();
    let stopped_before = |error: &ApplyError| matches!(error, ApplyError::Stopped { .. });
    assert!(report.errors.iter().all(|(_, error)| stopped_before(error)), "{:?}", report.errors);
    (apply, report)
}

/// Applies the redo that has arrived since; returns the errors of single databases.
pub fn follow(apply: &mut Apply, stream: &Stream) -> ApplyReport {
    let from = apply.applied();
    apply.apply(from, stream.from(from), stream.end()).unwrap()
}

pub fn follow_well(apply: &mut Apply, stream: &Stream) -> ApplyReport {
    let report = follow(apply, stream);
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert_eq!(apply.applied(), stream.end());
    report
}
