//! Durable visibility: readers wait until their snapshot is durable.

use crate::support::{code, count, insert, open, protected, status, until};
use rusqlite::ffi;
use standfast_session::DatabaseState;

#[test]
fn durable_reader_sees_only_durable_commits() {
    let (_scratch, instance, path) = protected("durable");
    let (early, mut durable, writer) = (open(&path), open(&path), open(&path));
    let set = |value: &str| {
        durable.query_row(&format!("PRAGMA standfast_visibility={value}"), [], |row| row.get::<_, String>(0))
    };
    assert_eq!(set("durable").unwrap(), "durable");
    assert!(set("sometimes").unwrap_err().to_string().contains("`sometimes`"));
    writer.query_row("PRAGMA standfast_commit_write=nowait", [], |_| Ok(())).unwrap();
    assert_eq!(count(&durable), 0);
    instance.hold(true);
    insert(&writer).unwrap();
    assert_eq!(count(&early), 1);
    let moved = &mut durable;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || count(moved));
        until("the reader waits", || instance.segment.has_commit_waiters(3));
        // The waiting reader holds no lock that writers need.
        insert(&writer).unwrap();
        assert!(!reader.is_finished());
        instance.hold(false);
        assert_eq!(reader.join().unwrap(), 1, "the snapshot is the one that was waited for");
    });
    assert_eq!(count(&durable), 2);
}

#[test]
fn instance_default_applies_and_readers_progress_under_load() {
    let (_scratch, instance, path) = protected("load");
    let config = standfast_session::SegmentConfig { durable_visibility: true, ..crate::fake::CONFIG };
    instance.segment.set_running(true, &config);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let connection = open(&path);
                    for _ in 0..200 {
                        insert(&connection).unwrap();
                    }
                })
            })
            .collect();
        let reader = open(&path);
        let mut last = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            let now = count(&reader);
            assert!(now >= last);
            last = now;
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(count(&reader), 600);
    });
}

fn open_durable(path: &std::path::Path) -> rusqlite::Connection {
    let connection = open(path);
    connection.query_row("PRAGMA standfast_visibility=durable", [], |_| Ok(())).unwrap();
    connection
}

/// Returns the number of rows that a read sees, or its extended result code.
fn seen(connection: &rusqlite::Connection) -> Result<i64, i32> {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).map_err(|error| code(&error))
}

#[test]
fn durable_reader_never_sees_a_failed_commit() {
    let lost = Err(ffi::SQLITE_IOERR_READ);
    for state in [DatabaseState::Failed, DatabaseState::Stopped] {
        let (_scratch, instance, path) = protected(&format!("failed-commit-{state:?}"));
        insert(&open(&path)).unwrap();
        // `before` has the pages before the commit in its cache, `after` those after it.
        let (before, after, early) = (open_durable(&path), open(&path), open(&path));
        assert_eq!(seen(&before), Ok(1));
        instance.hold(true);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| insert(&open(&path)).unwrap_err());
            until("the commit waits", || instance.segment.has_commit_waiters(3));
            instance.segment.set_state(3, state);
            if state == DatabaseState::Stopped {
                instance.segment.set_running(false, &crate::fake::CONFIG);
            }
            instance.segment.wake_all(3);
            assert_eq!(code(&writer.join().unwrap()), ffi::SQLITE_IOERR_FSYNC);
        });
        assert_eq!(seen(&after), Ok(2));
        after.query_row("PRAGMA standfast_visibility=durable", [], |_| Ok(())).unwrap();
        for _ in 0..2 {
            assert_eq!((seen(&before), seen(&after), seen(&early)), (lost, lost, Ok(2)), "{state:?}");
        }
        before.execute_batch("BEGIN").unwrap();
        assert_eq!([seen(&before), seen(&before)], [lost; 2], "{state:?}: in a transaction");
        assert!(before.is_autocommit(), "SQLite has ended it");
        assert!(status(&before).contains("standfast_visibility=early"), "{}", status(&before));
        // The instance captured the commit after all.
        instance.segment.set_state(3, DatabaseState::Open);
        instance.segment.set_running(true, &crate::fake::CONFIG);
        instance.hold(false);
        assert_eq!((seen(&before), seen(&after)), (Ok(2), Ok(2)));
    }
}

#[test]
fn durable_reader_of_a_stopped_instance_sees_durable_commits() {
    let (_scratch, instance, path) = protected("durable-stopped");
    insert(&open(&path)).unwrap();
    instance.segment.set_state(3, DatabaseState::Stopped);
    instance.segment.set_running(false, &crate::fake::CONFIG);
    assert_eq!(seen(&open_durable(&path)), Ok(1));
    assert_eq!(instance.segment.sessions().count(), 0, "it waits for nothing");
}
