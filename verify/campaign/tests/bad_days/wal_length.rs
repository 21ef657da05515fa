//! A WAL that has grown beyond its limit is truncated again.

use crate::support::{INSERT, INSERT_BULK, Place, TIMEOUT, must, rows, start};
use rusqlite::Connection;
use standfast_campaign::process::await_condition;
use std::path::Path;

/// Number of half-megabyte rows: many times the allowed length of the WAL.
const BULK: usize = 60;
/// Frames after which a WAL is reset.
const RESET_FRAMES: i64 = 1_000;
/// One and a half times that, and the last transaction; in bytes.
const SHORT: u64 = 7 << 20;

fn wal_bytes(database: &Path) -> u64 {
    std::fs::metadata(format!("{}-wal", database.display())).unwrap().len()
}

#[test]
fn wal_that_grew_under_a_reader_is_truncated_once_it_restarts() {
    let place = Place::new("wal-length");
    let mut primary = place.instance("south");
    primary.configure("checkpoint", "reset_frames", RESET_FRAMES).unwrap();
    primary.configure("checkpoint", "passive_frames", RESET_FRAMES / 2).unwrap();
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let reader = Connection::open(&database).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
    let mut application = place.application(&database);
    for _ in 0..BULK {
        application.run(INSERT_BULK);
    }
    assert!(wal_bytes(&database) > 3 * SHORT, "{}", wal_bytes(&database));
    let printed = must(&primary, &["checkpoint"]);
    assert!(printed.contains("app.db: ") && printed.contains("frames stay in its WAL"), "{printed}");
    reader.execute_batch("COMMIT").unwrap();
    await_condition("the log is short", TIMEOUT, || {
        application.run(INSERT);
        let bytes = wal_bytes(&database);
        Ok(if bytes <= SHORT { Ok(()) } else { Err(format!("{bytes} bytes")) })
    })
    .unwrap_or_else(|error| panic!("{error}"));
    let before = rows(&database);
    // Everything can be recovered from the truncated WAL.
    application.run(INSERT);
    application.close();
    primary.kill();
    start(&mut primary);
    assert_eq!(rows(&database), before + 1);
    let verdict: String = Connection::open(&database)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}
