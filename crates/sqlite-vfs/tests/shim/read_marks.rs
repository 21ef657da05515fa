//! Which read mark a transaction takes.

use crate::support::{count, insert, open, protected};
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The wal-index of a database, never closed: closing any descriptor of it would drop the locks of this process.
struct WalIndex(&'static File);

impl WalIndex {
    fn of(path: &Path) -> WalIndex {
        let mut name = path.as_os_str().to_owned();
        name.push("-shm");
        WalIndex(Box::leak(Box::new(File::open(name).unwrap())))
    }

    fn word(&self, index: u64) -> u32 {
        let mut word = [0; 4];
        self.0.read_exact_at(&mut word, index * 4).unwrap();
        u32::from_ne_bytes(word)
    }

    fn frames(&self) -> u32 {
        self.word(4)
    }

    fn backfilled(&self) -> u32 {
        self.word(24)
    }

    /// Returns the newest mark that a reader of all frames can use.
    fn mark(&self) -> u32 {
        (26..30).map(|index| self.word(index)).filter(|mark| *mark <= self.frames()).max().unwrap()
    }
}

fn without_the_shim(path: &Path) -> Connection {
    Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_WRITE, c"unix").unwrap()
}

/// Writes at least 640 frames and returns how often the newest mark moved; checks that it is never far behind.
fn marks_moved(connection: &Connection, index: &WalIndex) -> u32 {
    let (begin, mut moved) = (index.frames(), 0);
    while index.frames() < begin + 640 {
        let before = index.mark();
        insert(connection).unwrap();
        moved += u32::from(index.mark() != before);
        let behind = index.frames() - index.mark();
        assert!(behind <= 64 + 8, "{behind} frames behind: what a checkpoint leaves is no longer little");
    }
    moved
}

#[test]
fn read_mark_advances_only_when_it_is_far_behind() {
    let (_scratch, _instance, path) = protected("marks");
    let connection = open(&path);
    insert(&connection).unwrap();
    let moved = marks_moved(&connection, &WalIndex::of(&path));
    assert!((5..=10).contains(&moved), "moved {moved} times in 640 frames");
}

#[test]
fn held_read_mark_does_not_keep_others_from_newer_marks() {
    let (_scratch, _instance, path) = protected("held");
    let (reader, writer) = (open(&path), open(&path));
    insert(&writer).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let rows = count(&reader);
    let moved = marks_moved(&writer, &WalIndex::of(&path));
    assert!((5..=10).contains(&moved), "moved {moved} times in 640 frames");
    assert_eq!(count(&reader), rows, "it has kept its snapshot");
}

#[test]
fn reader_with_an_older_read_mark_keeps_its_snapshot() {
    let (_scratch, _instance, path) = protected("behind");
    let (reader, writer) = (open(&path), open(&path));
    let index = WalIndex::of(&path);
    while index.mark() == index.frames() {
        insert(&writer).unwrap();
    }
    let rows = count(&writer);
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(count(&reader), rows);
    let mark = index.mark();
    assert!(mark < index.frames());
    writer.execute_batch("UPDATE t SET x = 2; INSERT INTO t SELECT zeroblob(900) FROM t").unwrap();

    // Unlike with an instance, the checkpoint lock is free here.
    let foreign = without_the_shim(&path);
    let checkpoint = || foreign.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    checkpoint();
    assert_eq!(index.backfilled(), mark, "up to the mark, and no further");
    assert_eq!(count(&reader), rows);
    let old: i64 = reader.query_row("SELECT count(*) FROM t WHERE x = 1", [], |row| row.get(0)).unwrap();
    assert_eq!(old, rows);

    reader.execute_batch("COMMIT").unwrap();
    checkpoint();
    assert_eq!(index.backfilled(), index.frames());
    assert_eq!(count(&reader), 2 * rows);
    std::mem::forget(foreign);
}
