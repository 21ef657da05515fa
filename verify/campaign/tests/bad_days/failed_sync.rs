//! The disk of a protected database on the primary fails a write or a sync; afterwards none of its content is trusted.

use crate::support::{
    Client, INSERT, Place, SQLITE_IOERR, TIMEOUT, await_alert, await_status, must, refuses, rows, start,
};
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use standfast_campaign::verify::check_integrity;
use std::path::{Path, PathBuf};

/// A commit whose pages fill several frames.
const INSERT_PAGES: &str = "INSERT INTO t(x) VALUES(randomblob(9000))";
const COMMITS: i64 = 12;

/// An instance that protects two databases, before its first sync of a WAL or a database.
struct Scene {
    place: Place,
    primary: Instance,
    database: PathBuf,
    other: PathBuf,
}

impl Scene {
    fn new(test: &str, faults: &str, passive_frames: Option<i64>) -> Scene {
        let place = Place::new(test);
        let mut primary = place.instance("south");
        if let Some(frames) = passive_frames {
            primary.configure("checkpoint", "passive_frames", frames).unwrap();
        }
        primary.faults = Some(faults.into());
        start(&mut primary);
        let (database, other) = (place.database("app.db"), place.database("other.db"));
        for path in [&database, &other] {
            must(&primary, &["protect", &path.to_string_lossy()]);
        }
        Scene { place, primary, database, other }
    }

    /// Asserts that the database has failed, that its commits return an error with the reason, and that the other
    /// database is served.
    fn assert_failed(&self, application: &mut Client) {
        await_status(&self.primary, "the database has failed", |status| {
            status.database_state("app.db") == "failed"
                && !database(status, "app.db")["redo_needed_from"].is_null()
        });
        await_alert(&self.primary, "database app.db has failed");
        let from = needed_from(&self.primary);
        for _ in 0..3 {
            application.fails(INSERT, SQLITE_IOERR);
            let words = ["app.db has failed", "restart the instance"];
            refuses(&self.primary, &["checkpoint"], 1, &words);
            must(&self.primary, &["switch-logfile"]);
            self.place.application(&self.other).run(INSERT);
        }
        let status = self.primary.status().unwrap();
        assert_eq!(status.database_state("app.db"), "failed", "{}", status.json());
        assert_eq!(status.database_state("other.db"), "open", "{}", status.json());
        assert_eq!(needed_from(&self.primary), from, "the redo that repairs it is kept");
        application.run("SELECT count(*) FROM t");
        let printed = application.printed();
        assert!(printed.contains("is offline at"), "{printed}");
        assert!(!printed.contains("instance south has failed"), "{printed}");
    }

    /// Restarts the instance and asserts that all rows are there and the database is open again.
    fn assert_repaired(&mut self, there: i64) {
        self.primary.faults = None;
        start(&mut self.primary);
        await_status(&self.primary, "the database is served", |status| {
            status.database_state("app.db") == "open"
        });
        assert_eq!(needed_from(&self.primary), "null");
        assert_eq!(rows(&self.database), there);
        self.place.application(&self.database).run(INSERT);
        must(&self.primary, &["checkpoint"]);
        assert_eq!(rows(&self.database), there + 1);
        let integrity = check_integrity(&self.database).unwrap();
        assert!(integrity.none(), "{:?}", integrity.notes);
        assert!(!self.primary.alerts().contains("full image"), "{}", self.primary.alerts());
    }
}

fn database<'s>(status: &'s Status, name: &str) -> &'s serde_json::Value {
    let databases = status.json()["databases"].as_array().unwrap();
    databases.iter().find(|database| database["name"] == name).unwrap()
}

fn needed_from(primary: &Instance) -> String {
    database(&primary.status().unwrap(), "app.db")["redo_needed_from"].to_string()
}

fn wal(database: &Path) -> PathBuf {
    PathBuf::from(format!("{}-wal", database.display()))
}

/// Zeroes the second half of the WAL, as if the disk had not taken it.
fn lose_half(wal: &Path) {
    let mut bytes = std::fs::read(wal).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(0);
    std::fs::write(wal, bytes).unwrap();
}

/// Zeroes the last page in the WAL that is not needed to open the database.
fn lose_a_page(wal: &Path) {
    const FRAME: usize = 24 + 4096;
    let mut bytes = std::fs::read(wal).unwrap();
    let frames = bytes[32..].chunks_exact_mut(FRAME);
    let page = |frame: &[u8]| u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
    let lost = frames.rev().find(|frame| page(frame) > 2).unwrap();
    lost[24..].fill(0);
    std::fs::write(wal, bytes).unwrap();
}

#[test]
fn redo_repairs_pages_lost_after_a_failed_wal_sync() {
    let mut scene = Scene::new("wal-sync", "wal-sync=EIO@1", None);
    let mut application = scene.place.application(&scene.database);
    for _ in 0..COMMITS {
        application.run(INSERT_PAGES);
    }
    refuses(&scene.primary, &["checkpoint"], 1, &["app.db has failed", "write-ahead log"]);
    scene.assert_failed(&mut application);
    scene.primary.kill();
    application.kill();
    lose_half(&wal(&scene.database));
    scene.assert_repaired(1 + COMMITS);
}

#[test]
fn unsynced_wal_is_not_read_through_a_surviving_wal_index() {
    let mut scene = Scene::new("wal-index", "wal-sync=EIO@1", None);
    let mut application = scene.place.application(&scene.database);
    for _ in 0..COMMITS {
        application.run(INSERT_PAGES);
    }
    must(&scene.primary, &["switch-logfile"]);
    scene.assert_failed(&mut application);
    scene.primary.kill();
    lose_a_page(&wal(&scene.database));
    scene.primary.faults = None;
    start(&mut scene.primary);
    await_alert(&scene.primary, "does not hold what its index says");
    assert_eq!(scene.primary.status().unwrap().database_state("app.db"), "left out");
    scene.primary.stop().unwrap();
    application.kill();
    scene.assert_repaired(1 + COMMITS);
}

#[test]
fn failed_checkpoint_stops_backfill_until_a_restart() {
    // The first two syncs of a WAL come before the resume SCN of recovery moves.
    for fault in ["wal-sync=EIO@3", "database-sync=EIO@1", "database-write=EIO@2"] {
        let mut scene = Scene::new("checkpoint-sync", fault, None);
        let mut application = scene.place.application(&scene.database);
        for _ in 0..COMMITS {
            application.run(INSERT_PAGES);
        }
        let before = std::fs::read(&scene.database).unwrap();
        refuses(&scene.primary, &["checkpoint"], 1, &["app.db has failed", "a checkpoint"]);
        scene.assert_failed(&mut application);
        scene.primary.kill();
        application.kill();
        // No write of the checkpoint has reached the database file: its WAL must still hold all of it.
        std::fs::write(&scene.database, before).unwrap();
        scene.assert_repaired(1 + COMMITS);
    }
}

#[test]
fn failed_background_checkpoint_is_not_ignored() {
    for fault in ["database-sync=EIO@1", "wal-sync=EIO@1"] {
        let mut scene = Scene::new("background", fault, Some(20));
        let mut application = scene.place.application(&scene.database);
        let mut acknowledged = 0;
        loop {
            match application.try_run(INSERT_PAGES) {
                Answer::Rows(_) => acknowledged += 1,
                Answer::Failed { code, .. } if code & 0xff == SQLITE_IOERR => break,
                other => panic!("{other:?}; {}", application.printed()),
            }
            assert!(acknowledged < 20_000, "no checkpoint has met {fault}");
        }
        scene.assert_failed(&mut application);
        scene.primary.kill();
        application.kill();
        let there = rows(&scene.database);
        assert!((1 + acknowledged..=2 + acknowledged).contains(&there), "{acknowledged}, {there}");
        scene.assert_repaired(there);
    }
}

#[test]
fn checkpoint_on_a_full_volume_resumes_when_there_is_space() {
    let scene = Scene::new("checkpoint-full", "database-write=ENOSPC@1", Some(20));
    let mut application = scene.place.application(&scene.database);
    let begun = std::time::Instant::now();
    while !scene.primary.alerts().contains("checkpoints of database app.db continue") {
        application.run(INSERT_PAGES);
        assert!(begun.elapsed() < TIMEOUT, "{}", scene.primary.alerts());
    }
    await_alert(&scene.primary, "a checkpoint of database app.db failed and will be tried again");
    must(&scene.primary, &["checkpoint"]);
    assert_eq!(scene.primary.status().unwrap().database_state("app.db"), "open");
}
