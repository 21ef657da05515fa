//! Durable visibility: readers wait until what they see is durable.

use crate::support::{count, insert, open, protected, until};

#[test]
fn a_reader_that_asked_for_it_sees_only_what_is_durable() {
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
        // Others go on: it holds no lock that anybody needs.
        insert(&writer).unwrap();
        assert!(!reader.is_finished());
        instance.hold(false);
        assert_eq!(reader.join().unwrap(), 1, "the snapshot is the one that was waited for");
    });
    assert_eq!(count(&durable), 2);
}

#[test]
fn the_instances_default_applies_and_readers_get_through_under_load() {
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
