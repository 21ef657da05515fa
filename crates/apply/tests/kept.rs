//! The content of a database is kept before a full resync image replaces it that may lack some of it.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use rusqlite::Connection;
use standfast_apply::{Apply, ApplyError, Condition, Limits, RedoInMemory, StartPoint, path_of_kept};
use standfast_testkit::TempDir;
use standfast_types::Scn;
use std::path::Path;

fn rows(path: &Path) -> u32 {
    Connection::open(path).unwrap().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

/// A standby follows a primary of 30 rows; then an image with other content of 2 rows, not applied yet.
fn scene(complete: bool, limits: Limits) -> (TempDir, Stream, Primary, Apply, Scn) {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "app.db", 1024);
    primary.run(&mut Stream::default(), TABLE);
    primary.attach(&mut stream);
    let mut apply = fresh(&standby, 0, limits);
    primary.run(&mut stream, &insert(20, 100));
    follow(&mut apply, &stream);
    // Arrives together with the image.
    primary.run(&mut stream, &insert(10, 100));
    primary.run(&mut Stream::default(), "DELETE FROM t WHERE id > 2");
    primary.image(&mut stream, complete);
    let image = stream.end();
    primary.run(&mut stream, &insert(3, 100));
    (standby, stream, primary, apply, image)
}

#[test]
fn data_an_image_may_lack_is_kept_beside_the_database() {
    for (complete, expected) in [(true, 0), (false, 1)] {
        let (standby, stream, primary, mut apply, image) = scene(complete, small_limits());
        let report = follow(&mut apply, &stream);
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        assert_eq!(report.kept.len(), expected);
        primary.check(&standby);
        let path = path_of_kept(&standby.join("app.db"), image);
        assert_eq!(path.exists(), !complete);
        if !complete {
            assert_eq!(report.kept[0].1.path, path);
            assert_eq!(report.kept[0].1.bytes, std::fs::metadata(&path).unwrap().len());
            assert_eq!(rows(&path), 30, "also what came together with the image");
        }
    }
}

#[test]
fn database_that_cannot_be_kept_is_not_replaced() {
    let limits = Limits { kept_free_bytes: 1 << 60, ..small_limits() };
    let (standby, stream, primary, mut apply, _) = scene(false, limits);
    let report = follow(&mut apply, &stream);
    assert!(matches!(&report.errors[..], [(_, ApplyError::NotKept { .. })]), "{:?}", report.errors);
    assert_eq!(apply.databases()[0].condition, Condition::Failed, "it is tried again");
    assert_eq!(rows(&standby.join("app.db")), 30);
    drop(apply);
    let mut apply = Apply::open(config(&standby, 0, small_limits()), Box::new(|_| Ok(()))).unwrap();
    let start = StartPoint::attached_at(Scn::START);
    apply.attach_existing(primary.id, &primary.name, primary.page_size, start).unwrap();
    let from = apply.resume_scn().unwrap();
    let source = &mut RedoInMemory { first: Scn::START, bytes: &stream.bytes };
    let report = apply.recover(from, stream.end(), source).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert_eq!(report.kept.len(), 1, "a replay keeps it, too");
    primary.check(&standby);
    assert_eq!(rows(&report.kept[0].1.path), 30);
}

#[test]
fn replay_keeps_no_file_twice() {
    let (standby, stream, primary, mut apply, image) = scene(false, small_limits());
    follow(&mut apply, &stream);
    drop(apply);
    let path = path_of_kept(&standby.join("app.db"), image);
    let before = std::fs::read(&path).unwrap();
    // The journal is lost: everything is replayed.
    std::fs::remove_file(standby.join("apply.journal")).unwrap();
    let mut apply = Apply::open(config(&standby, 0, small_limits()), Box::new(|_| Ok(()))).unwrap();
    let start = StartPoint::attached_at(Scn::START);
    // The file has commits, unlike a new one.
    apply.attach_existing(primary.id, &primary.name, primary.page_size, start).unwrap();
    let source = &mut RedoInMemory { first: Scn::START, bytes: &stream.bytes };
    let report = apply.recover(Scn::START, stream.end(), source).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    primary.check(&standby);
}
