//! Connections that share a cache: SQLite calls one file for several connections, on several threads.

use crate::support::{Scratch, code, count, insert, open, protected, until};
use rusqlite::{Connection, OpenFlags, ffi};
use std::path::Path;
use std::time::Duration;

fn open_shared(path: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_SHARED_CACHE;
    let connection = Connection::open_with_flags(path, flags).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    connection
}

/// Inserts a row; retries while another connection of the cache has the table locked.
fn insert_in_turn(connection: &Connection) {
    loop {
        match insert(connection) {
            Ok(_) => return,
            Err(error) if code(&error) & 0xFF == ffi::SQLITE_LOCKED => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn commit_waits_while_another_cache_user_writes_elsewhere() {
    let scratch = Scratch::new("shared-two");
    let (one, two) = (scratch.database("one.db"), scratch.database("two.db"));
    let instance = scratch.instance();
    instance.protect(&one, 3);
    instance.protect(&two, 70);
    let (first, second) = (open_shared(&one), open_shared(&one));
    second.execute("ATTACH ?1 AS other", [two.to_str().unwrap()]).unwrap();
    // Both have read the schemas, which are locked from here on.
    first.query_row("SELECT count(*) FROM main.t", [], |_| Ok(())).unwrap();
    second.query_row("SELECT count(*) FROM main.t, other.t", [], |_| Ok(())).unwrap();
    second.execute_batch("BEGIN; INSERT INTO other.t VALUES(2)").unwrap();
    instance.hold(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || insert(&first).unwrap());
        until("the commit waits", || {
            assert!(!writer.is_finished(), "the commit returned without a wait");
            instance.segment.has_commit_waiters(3)
        });
        instance.hold(false);
        writer.join().unwrap();
    });
    second.execute_batch("COMMIT").unwrap();
    assert_eq!((count(&open(&one)), count(&open(&two))), (1, 1));
}

#[test]
fn shared_cache_transaction_waits_for_both_databases() {
    let scratch = Scratch::new("shared-both");
    let (one, two) = (scratch.database("one.db"), scratch.database("two.db"));
    let (instance, behind) =
        (scratch.instance(), crate::fake::FakeInstance::start(&scratch.path.join("behind")));
    behind.protect(&one, 3);
    instance.protect(&two, 70);
    let (first, second) = (open_shared(&one), open_shared(&two));
    first.execute("ATTACH ?1 AS other", [two.to_str().unwrap()]).unwrap();
    second.execute("ATTACH ?1 AS other", [one.to_str().unwrap()]).unwrap();
    behind.hold(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            first.execute_batch("BEGIN; INSERT INTO main.t VALUES(1); INSERT INTO other.t VALUES(1); COMMIT")
        });
        until("the commit waits for the first database", || {
            assert!(!writer.is_finished(), "the commit returned without a wait");
            behind.segment.has_commit_waiters(3)
        });
        behind.hold(false);
        writer.join().unwrap().unwrap();
    });
}

#[test]
fn threads_may_share_a_cache_while_writing_and_opening() {
    let (_scratch, instance, path) = protected("shared-threads");
    let keeps_the_cache = open_shared(&path);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let connection = open_shared(&path);
                    (0..200).for_each(|_| insert_in_turn(&connection));
                })
            })
            .collect();
        let mut opened = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            let status: String =
                open_shared(&path).query_row("SELECT standfast_status()", [], |row| row.get(0)).unwrap();
            assert!(status.contains("\"wait,immediate\""), "{status}");
            opened += 1;
        }
        assert!(opened > 0);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    drop(keeps_the_cache);
    assert_eq!(count(&open(&path)), 400);
    assert_eq!(instance.segment.sessions().count(), 0);
}

#[test]
fn connection_cannot_weaken_durability_for_others_of_its_cache() {
    let (_scratch, instance, path) = protected("shared-settings");
    let pragma = |connection: &Connection, sql: &str| {
        connection.query_row(sql, [], |row| row.get::<_, String>(0)).map_err(|error| error.to_string())
    };
    let first = open_shared(&path);
    assert_eq!(pragma(&first, "PRAGMA standfast_commit_write=nowait").unwrap(), "nowait,immediate");
    let second = open_shared(&path);
    assert_eq!(pragma(&second, "PRAGMA standfast_commit_write").unwrap(), "wait,immediate");
    assert!(pragma(&second, "PRAGMA standfast_commit_write=nowait").unwrap_err().contains("shared cache"));
    assert!(pragma(&second, "PRAGMA standfast_visibility=early").unwrap_err().contains("shared cache"));
    assert_eq!(pragma(&second, "PRAGMA standfast_visibility=durable").unwrap(), "durable");
    assert_eq!(pragma(&second, "PRAGMA standfast_commit_write=batch").unwrap(), "wait,batch");
    instance.hold(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || insert(&second).unwrap());
        until("the commit waits", || {
            assert!(!writer.is_finished(), "the commit returned without a wait");
            instance.segment.has_commit_waiters(3)
        });
        instance.hold(false);
    });
    drop(first);
}
