//! Reinstatement: a primary that another one has replaced becomes its standby without a full copy, and what only it had
//! stays readable.

use crate::support::{
    Client, INSERT, INSERT_BULK, Place, SQLITE_READONLY, add_destination, assert_same_files, await_alert,
    await_another_alert, await_rows, await_status, must, refuses, rows, start,
};
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use std::path::{Path, PathBuf};

const REINSTATE: [&str; 2] = ["reinstate", "--yes"];

/// A primary `south`, dead, which `north` has replaced: `lost` rows are only in `database` of south, `kept` only in
/// `copy`, the database of north.
struct Replaced {
    place: Place,
    south: Instance,
    north: Instance,
    database: PathBuf,
    copy: PathBuf,
}

/// Creates a primary that protects a database, and its asynchronous standby.
fn pair(place: &Place) -> (Instance, Instance, PathBuf) {
    let (south, database) = place.protecting();
    let north = place.standby_of(&south, "north");
    add_destination(&south, &north, &["--mode", "async"]);
    await_status(&south, "the standby follows", |status| status.streams() && status.settled());
    (south, north, database)
}

fn protect(primary: &Instance, databases: &[&Path]) {
    databases.iter().for_each(|path| _ = must(primary, &["protect", &path.to_string_lossy()]));
}

fn replaced(test: &str, lost: i64, kept: i64) -> Replaced {
    let place = Place::new(test);
    let (south, mut north, database) = pair(&place);
    place.insert(&database, 3);
    await_status(&south, "the standby has the first rows", Status::settled);
    north.kill();
    place.insert(&database, lost);
    replace(place, south, north, database, kept)
}

/// Kills `south` and makes `north`, which does not run, the primary.
fn replace(place: Place, mut south: Instance, mut north: Instance, database: PathBuf, kept: i64) -> Replaced {
    south.kill();
    start(&mut north);
    must(&north, &["failover"]);
    let copy = north.standby_database("app.db");
    place.insert(&copy, kept);
    Replaced { place, south, north, database, copy }
}

impl Replaced {
    /// Starts the reinstated instance, which has become a destination of the new primary.
    fn follow(&mut self) {
        start(&mut self.south);
        await_status(&self.north, "it follows", |status| status.streams() && status.settled());
    }

    #[track_caller]
    fn assert_same(&self) {
        assert_same_files(&self.north, &self.south, &self.copy, &self.database);
    }
}

fn number(document: &str, key: &str) -> u64 {
    serde_json::from_str::<serde_json::Value>(document).unwrap()[key].as_u64().unwrap()
}

/// Directory with the archived logs of the lost branch.
fn lost_logs(instance: &Instance) -> Option<PathBuf> {
    let found = std::fs::read_dir(instance.directory.join("archive")).unwrap();
    let mut found = found.map(|entry| entry.unwrap().path());
    found.find(|path| path.file_name().unwrap().to_string_lossy().starts_with("lost-"))
}

fn dump(instance: &Instance, directory: &Path) -> String {
    let logs = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    logs.map(|log| must(instance, &["log", "dump", &log.to_string_lossy()])).collect()
}

#[test]
fn lost_branch_is_discarded_and_stays_readable() {
    let mut pair = replaced("reinstate", 5, 7);
    let plan = pair.south.run(&["reinstate"]).unwrap();
    assert_eq!(plan.code, 1, "{}", plan.stderr);
    assert!(plan.stdout.contains("5 commits after SCN"), "{}", plan.stdout);
    assert_eq!(rows(&pair.database), 9, "nothing was done");
    let done = must(&pair.south, &[&REINSTATE[..], &["--json"]].concat());
    assert_eq!(rows(&pair.database), 11);
    let logs = lost_logs(&pair.south).unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&done).unwrap()["lost_logs"],
        *logs.to_string_lossy()
    );
    let dumped = dump(&pair.south, &logs);
    assert_eq!(dumped.matches(" commit ").count(), 9 - 1, "{dumped}");
    pair.follow();
    pair.place.insert(&pair.copy, 2);
    pair.assert_same();
    // A session of the old primary reads what the new one has, and is told where to write.
    let mut here = pair.place.application(&pair.database);
    here.fails(INSERT, SQLITE_READONLY);
    drop(here);
    // It has everything that a standby needs to take over.
    pair.north.kill();
    must(&pair.south, &["failover"]);
    pair.place.insert(&pair.database, 1);
    assert_eq!(rows(&pair.database), 14);
}

#[test]
fn few_pages_of_a_large_database_are_fetched() {
    let place = Place::new("reinstate-pages");
    let (south, mut north, database) = pair(&place);
    let mut application = place.application(&database);
    (0..40).for_each(|_| _ = application.run(INSERT_BULK));
    await_status(&south, "the standby has them", Status::settled);
    north.kill();
    (0..10).for_each(|_| _ = application.run(INSERT));
    application.close();
    let mut pair = replace(place, south, north, database, 10);
    let done = must(&pair.south, &[&REINSTATE[..], &["--json"]].concat());
    let (pages, fetched) = (number(&done, "pages"), number(&done, "fetched"));
    assert!(pages > 4800 && fetched < 20, "{done}");
    assert!(number(&done, "fetched_bytes") < 20 * 4096, "{done}");
    pair.follow();
    pair.assert_same();
}

#[test]
fn killed_at_any_step_it_is_run_again() {
    let mut pair = replaced("reinstate-steps", 3, 3);
    for step in 1.. {
        let killed = pair.south.run_with_faults(&REINSTATE, &format!("reinstate=kill@{step}")).unwrap();
        if killed.code == 0 {
            assert_eq!(step, 7, "the steps are numbered");
            break;
        }
        if step > 1 {
            // The databases count for nothing: neither does it open, nor can the fence be lifted.
            refuses(&pair.south, &["start"], 3, &["reinstate -D", "--yes"]);
            refuses(&pair.south, &["fence", "lift", "--yes"], 3, &["reinstate -D", "--yes"]);
        }
    }
    assert_eq!(rows(&pair.database), 7);
    pair.follow();
    pair.assert_same();
    assert_eq!(dump(&pair.south, &lost_logs(&pair.south).unwrap()).matches(" commit ").count(), 6);
}

#[test]
fn failing_disk_at_any_step_is_reported_and_it_is_run_again() {
    let mut pair = replaced("reinstate-disk", 3, 3);
    for step in 1..=6 {
        let failed = pair.south.run_with_faults(&REINSTATE, &format!("reinstate=EIO@{step}")).unwrap();
        assert_eq!(failed.code, if [2, 3].contains(&step) { 3 } else { 1 }, "{step}: {}", failed.stderr);
        assert!(failed.stderr.contains("Input/output error"), "{step}: {}", failed.stderr);
    }
    must(&pair.south, &REINSTATE);
    pair.follow();
    pair.assert_same();
}

#[test]
fn databases_that_only_one_of_them_protects_are_kept_apart() {
    let place = Place::new("reinstate-databases");
    let (south, mut north, database) = pair(&place);
    north.kill();
    // Both give the next number, and one name, to databases that have nothing to do with each other.
    let (only_here, namesake) = (place.database("here.db"), place.database("both.db"));
    protect(&south, &[&only_here, &namesake]);
    place.insert(&only_here, 2);
    place.insert(&namesake, 3);
    std::fs::create_dir(place.path("there")).unwrap();
    let (only_there, other) = (place.database("there/there.db"), place.database("there/both.db"));
    let mut pair = replace(place, south, north, database, 1);
    protect(&pair.north, &[&only_there, &other]);
    pair.place.insert(&only_there, 4);
    pair.place.insert(&other, 5);
    let printed = must(&pair.south, &REINSTATE);
    for path in [&only_here, &namesake] {
        assert!(
            printed.contains(&format!("no longer protected, and not at `north`: {}", path.display())),
            "{printed}"
        );
    }
    assert_eq!((rows(&only_here), rows(&namesake)), (3, 4), "they stay as they are");
    pair.follow();
    pair.assert_same();
    for (path, name) in [(&only_there, "there.db"), (&other, "both.db")] {
        assert_same_files(&pair.north, &pair.south, path, &pair.south.standby_database(name));
    }
    // They are ordinary files again.
    pair.place.foreigner(&only_here).run(INSERT);
}

#[test]
fn readers_of_the_old_primary_keep_their_snapshot() {
    let mut pair = replaced("reinstate-readers", 4, 2);
    let mut reader = pair.place.foreigner(&pair.database);
    reader.run("BEGIN");
    let count = |reader: &mut Client| reader.run("SELECT count(*) FROM t")[0][0].clone();
    assert_eq!(count(&mut reader), 8);
    must(&pair.south, &REINSTATE);
    assert_eq!(count(&mut reader), 8);
    pair.follow();
    pair.place.insert(&pair.copy, 1);
    assert_eq!(count(&mut reader), 8);
    reader.run("COMMIT");
    await_rows(&pair.database, 7);
    pair.assert_same();
}

#[test]
fn writer_that_is_in_the_way_is_named() {
    let pair = replaced("reinstate-writer", 1, 1);
    let mut writer = pair.place.foreigner(&pair.database);
    writer.run("BEGIN IMMEDIATE");
    refuses(&pair.south, &REINSTATE, 3, &["app.db", "write lock", "let it finish"]);
    writer.run("COMMIT");
    drop(writer);
    must(&pair.south, &REINSTATE);
}

#[test]
fn only_a_stopped_instance_follows_only_a_newer_primary() {
    let mut pair = replaced("reinstate-refused", 2, 2);
    refuses(&pair.north, &["reinstate"], 3, &["the instance runs", "standfast stop"]);
    let other = pair.place.primary("other");
    refuses(&pair.south, &["reinstate", "--from", &other.address], 3, &["no instance of this family"]);
    pair.north.kill();
    refuses(&pair.south, &["reinstate"], 3, &["does not answer", "--from HOST:PORT"]);
    // The newer one does not follow the older one.
    start(&mut pair.south);
    must(&pair.south, &["destination", "remove", "north"]);
    refuses(&pair.north, &["reinstate", "--from", &pair.south.address], 3, &["is not older than `south`"]);
    let before = std::fs::read(pair.north.directory.join("control")).unwrap();
    refuses(&pair.north, &["reinstate", "--yes", "--from", &pair.south.address], 3, &["is not older"]);
    assert_eq!(std::fs::read(pair.north.directory.join("control")).unwrap(), before);
    assert_eq!(rows(&pair.database), 6);
}

#[test]
fn standby_whose_redo_exists_no_more_is_brought_up_to_date() {
    let place = Place::new("reinstate-behind");
    let (south, mut north, database) = pair(&place);
    place.insert(&database, 3);
    await_status(&south, "the standby has the first rows", Status::settled);
    // A second one gets another number meanwhile, and keeps its name.
    let second = place.database("second.db");
    protect(&south, &[&second]);
    await_status(&south, "the standby has both", |status| status.settled());
    north.stop().unwrap();
    must(&south, &["unprotect", "second.db"]);
    protect(&south, &[&second]);
    place.insert(&second, 4);
    place.insert(&database, 5);
    must(&south, &["switch-logfile"]);
    await_status(&south, "the log is archived", |status| {
        let groups = status.json()["log"]["groups"].as_array().unwrap();
        groups.iter().all(|group| group["state"] != "active" || group["archived"] == true)
    });
    let done = must(&north, &["reinstate", "--yes", "--json", "--from", &south.address]);
    assert!(number(&done, "fetched") < 8, "{done}");
    assert_eq!(rows(&north.standby_database("second.db")), 5);
    assert_eq!(rows(&north.standby_database("app.db")), 9);
    start(&mut north);
    place.insert(&database, 2);
    crate::support::assert_same(&south, &north, &database);
}

#[test]
fn reinstated_instance_keeps_its_files_when_it_is_left_behind_again() {
    let Replaced { place, mut south, north, database, copy } = replaced("reinstate-twice", 2, 2);
    let mut west = place.standby_of(&north, "west");
    add_destination(&north, &west, &["--mode", "async"]);
    await_status(&north, "it follows", |status| status.streams() && status.settled());
    west.kill();
    place.insert(&copy, 3);
    must(&south, &[&REINSTATE[..], &["--from", &north.address]].concat());
    // The one that takes over has less than what was copied.
    let mut north = north;
    north.kill();
    start(&mut west);
    must(&west, &["failover"]);
    let printed = must(&south, &[&REINSTATE[..], &["--from", &west.address]].concat());
    assert!(!printed.contains("no longer protected"), "{printed}");
    start(&mut south);
    let there = west.standby_database("app.db");
    place.insert(&there, 1);
    await_status(&west, "the old one follows", |status| status.streams() && status.settled());
    assert_same_files(&west, &south, &there, &database);
}

#[test]
fn instance_that_has_met_the_newest_primary_follows_no_earlier_one() {
    let Replaced { place, mut south, mut north, database: _, copy: _ } = replaced("reinstate-stale", 2, 2);
    let mut west = place.standby_of(&north, "west");
    add_destination(&north, &west, &["--mode", "async"]);
    await_status(&north, "it follows", |status| status.streams() && status.settled());
    // A failover to the third one, of which the second has not heard.
    north.kill();
    must(&west, &["failover"]);
    add_destination(&west, &south, &[]);
    start(&mut south);
    await_status(&south, "it has met the newest", |status| status.text("/state") == "fenced");
    south.stop().unwrap();
    west.kill();
    start(&mut north);
    refuses(&south, &[&REINSTATE[..], &["--from", &north.address]].concat(), 3, &["is itself replaced"]);
    start(&mut west);
    must(&south, &[&REINSTATE[..], &["--from", &west.address]].concat());
}

#[test]
fn file_in_the_way_is_not_overwritten_by_a_second_run() {
    let place = Place::new("reinstate-in-the-way");
    let (south, mut north, database) = pair(&place);
    north.kill();
    let pair = replace(place, south, north, database, 1);
    std::fs::create_dir(pair.place.path("there")).unwrap();
    let there = pair.place.database("there/new.db");
    protect(&pair.north, &[&there]);
    let in_the_way = pair.south.standby_database("new.db");
    std::fs::copy(pair.place.database("mine.db"), &in_the_way).unwrap();
    let before = std::fs::read(&in_the_way).unwrap();
    for _ in 0..2 {
        refuses(&pair.south, &REINSTATE, 3, &["new.db exists", "move it away"]);
        assert!(std::fs::read(&in_the_way).unwrap() == before);
    }
    std::fs::remove_file(&in_the_way).unwrap();
    // What a run that was killed has left.
    std::fs::write(pair.south.standby_database("new.db"), b"").unwrap();
    refuses(&pair.south, &REINSTATE, 3, &["new.db exists"]);
    std::fs::remove_file(&in_the_way).unwrap();
    must(&pair.south, &REINSTATE);
    assert_eq!(rows(&in_the_way), 1);
}

#[test]
fn replaced_primary_becomes_a_standby_by_itself_where_that_is_configured() {
    let place = Place::new("reinstate-auto");
    let (mut south, mut north, database) = pair(&place);
    south.stop().unwrap();
    south.configure("instance", "auto_reinstate", true).unwrap();
    north.configure("instance", "auto_reinstate", true).unwrap();
    start(&mut south);
    place.insert(&database, 3);
    await_status(&south, "the standby has the first rows", Status::settled);
    north.kill();
    place.insert(&database, 2);
    let mut pair = replace(place, south, north, database, 4);
    // It has heard nothing of the failover: it opens as the primary that it was, and meets the new one.
    start(&mut pair.south);
    let follows = |status: &Status| status.streams() && status.settled();
    await_status(&pair.north, "the old primary follows", follows);
    assert!(pair.south.alerts().contains("2 commits after SCN"), "{}", pair.south.alerts());
    pair.place.insert(&pair.copy, 1);
    pair.assert_same();
    await_rows(&pair.database, 9);
    // A failover while the primary runs: it becomes a standby without a restart.
    must(&pair.south, &["failover", "--force"]);
    await_status(&pair.south, "the old primary follows", follows);
    assert_eq!(pair.north.status().unwrap().role(), "standby");
    pair.place.insert(&pair.database, 2);
    await_rows(&pair.copy, 11);
    pair.north.stop().unwrap();
}

#[test]
fn replaced_primary_waits_for_the_new_one_and_can_be_stopped_meanwhile() {
    let mut pair = replaced("reinstate-waits", 1, 1);
    // It has heard of the failover, and the new primary is gone.
    start(&mut pair.south);
    await_status(&pair.south, "it is fenced", |status| status.text("/state") == "fenced");
    pair.south.stop().unwrap();
    pair.south.configure("instance", "auto_reinstate", true).unwrap();
    pair.north.kill();
    pair.south.spawn().unwrap();
    await_alert(&pair.south, "not reinstated yet");
    pair.south.stop().unwrap();
    assert_eq!(rows(&pair.database), 5, "nothing was done");
    pair.south.spawn().unwrap();
    await_another_alert(&pair.south, "not reinstated yet", 1);
    start(&mut pair.north);
    pair.south.await_ready().unwrap();
    await_status(&pair.north, "it follows", |status| status.streams() && status.settled());
    pair.assert_same();
    assert_eq!(pair.south.alerts().matches("not reinstated yet").count(), 2, "each reason once");
}

#[test]
fn primary_whose_fence_cannot_be_recorded_is_not_opened_again() {
    let mut pair = replaced("reinstate-unrecorded", 1, 1);
    pair.south.configure("instance", "auto_reinstate", true).unwrap();
    pair.north.kill();
    start(&mut pair.south);
    let opened = pair.south.alerts().matches("primary opened").count();
    // From now on its control file cannot be replaced.
    let in_the_way = pair.south.directory.join("control.new");
    std::fs::create_dir(&in_the_way).unwrap();
    start(&mut pair.north);
    await_alert(&pair.south, "the fence cannot be recorded");
    await_alert(&pair.south, "not reinstated yet");
    std::fs::remove_dir(&in_the_way).unwrap();
    await_status(&pair.north, "it follows", |status| status.streams() && status.settled());
    let alerts = pair.south.alerts();
    assert_eq!(alerts.matches("primary opened").count(), opened, "{alerts}");
    pair.assert_same();
}

#[test]
fn standby_whose_redo_log_is_destroyed_is_brought_up_to_date() {
    let place = Place::new("reinstate-destroyed");
    let (south, mut north, database) = pair(&place);
    place.insert(&database, 3);
    await_status(&south, "the standby has the first rows", Status::settled);
    north.kill();
    let files = std::fs::read_dir(north.directory.join("redo")).unwrap().map(|entry| entry.unwrap().path());
    let logs: Vec<PathBuf> =
        files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("standby")).collect();
    assert!(logs.len() > 1, "{logs:?}");
    for log in &logs {
        let bytes = std::fs::metadata(log).unwrap().len();
        std::fs::write(log, vec![0x5a; bytes as usize]).unwrap();
    }
    place.insert(&database, 2);
    must(&north, &["reinstate", "--yes", "--from", &south.address]);
    assert!(north.alerts().contains("the redo here is not archived"), "{}", north.alerts());
    start(&mut north);
    place.insert(&database, 1);
    crate::support::assert_same(&south, &north, &database);
}

#[test]
fn roles_change_back_and_forth_by_failover_and_reinstatement() {
    let mut pair = replaced("reinstate-again", 2, 2);
    for expected in 6..9 {
        must(&pair.south, &REINSTATE);
        pair.follow();
        pair.assert_same();
        assert_eq!(rows(&pair.database), expected);
        // The standby dies, more is written, then the primary dies: that is lost, and the standby takes over.
        pair.south.kill();
        pair.place.insert(&pair.copy, 3);
        pair.north.kill();
        start(&mut pair.south);
        must(&pair.south, &["failover"]);
        pair.place.insert(&pair.database, 1);
        std::mem::swap(&mut pair.south, &mut pair.north);
        std::mem::swap(&mut pair.database, &mut pair.copy);
    }
}
