//! Redo logs with two members: damaged, lost, and repaired.

use crate::support::{INSERT, Place, assert_same, await_alert, must, refuses, rows, start};
use standfast_campaign::instance::Instance;
use std::path::{Path, PathBuf};

/// Number of commits before the fault; each has blocks of its own.
const COMMITS: i64 = 8;

/// Sets up a running primary with two members, which protects a database with [`COMMITS`] more rows than it began with.
fn with_two_members(place: &Place) -> (Instance, PathBuf) {
    let more = ["--group-bytes", "8388608", "--members", "redo,redo2"];
    let mut primary = Instance::init(&place.programs, &place.path("south"), "south", &more).unwrap();
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut application = place.application(&database);
    (0..COMMITS).for_each(|_| _ = application.run(INSERT));
    (primary, database)
}

/// Kills the instance and removes its shared memory and the WAL, as the first power loss of the host does. Only the
/// redo log holds the commits.
fn lose_power(primary: &mut Instance, database: &Path) {
    primary.kill();
    primary.forget_shared_memory();
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", database.display()));
    }
}

fn member(primary: &Instance, name: &str) -> PathBuf {
    let directory = if name.ends_with("b.log") { "redo2" } else { "redo" };
    primary.directory.join(directory).join(name)
}

/// Number of the last block of a log that is not empty.
fn last_block(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap();
    let used = bytes.chunks(4096).rposition(|block| block.iter().any(|byte| *byte != 0));
    used.expect("the log holds something")
}

fn damage_block(path: &Path, block: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[block * 4096 + 100..block * 4096 + 140].fill(0xEE);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn blocks_damaged_in_one_member_each_are_reported_without_loss() {
    let place = Place::new("member-damaged");
    let (mut primary, database) = with_two_members(&place);
    let (a, b) = (member(&primary, "online_1a.log"), member(&primary, "online_1b.log"));
    lose_power(&mut primary, &database);
    let last = last_block(&a);
    assert!(last >= COMMITS as usize && std::fs::read(&a).unwrap() == std::fs::read(&b).unwrap());
    damage_block(&a, last - 5);
    damage_block(&b, last - 2);
    start(&mut primary);
    await_alert(&primary, "online_1a.log was damaged: 1 blocks");
    await_alert(&primary, "online_1b.log was damaged: 1 blocks");
    assert_eq!(rows(&database), 1 + COMMITS);
    place.application(&database).run(INSERT);
    assert!(std::fs::read(&a).unwrap() == std::fs::read(&b).unwrap(), "the members differ");
    must(&primary, &["log", "dump"]);
    let standby = place.standby_of(&primary, "north");
    crate::support::add_destination(&primary, &standby, &[]);
    assert_same(&primary, &standby, &database);
}

#[test]
fn lost_member_raises_an_alert_and_is_restored_from_a_copy() {
    let place = Place::new("member-lost");
    let (mut primary, database) = with_two_members(&place);
    let (a, b) = (member(&primary, "online_1a.log"), member(&primary, "online_1b.log"));
    lose_power(&mut primary, &database);
    std::fs::rename(&a, place.path("kept")).unwrap();
    start(&mut primary);
    await_alert(&primary, "REDO LOG MEMBER LOST");
    let alerts = primary.alerts();
    for words in [&*a.to_string_lossy(), &*b.to_string_lossy(), "No such file", "hint: ", "copying"] {
        assert!(alerts.contains(words), "no `{words}` in: {alerts}");
    }
    let status = primary.status().unwrap();
    assert_eq!(status.text("/log/groups/0/lost_members/0"), a.to_string_lossy(), "{}", status.json());
    assert_eq!(rows(&database), 1 + COMMITS);
    place.application(&database).run(INSERT);
    primary.kill();

    // The member with its former content lacks redo, and the start reports it.
    std::fs::rename(place.path("kept"), &a).unwrap();
    std::fs::rename(&b, place.path("away")).unwrap();
    refuses(&primary, &["start"], 1, &["online_1a.log", "lacks redo", "hint: "]);
    std::fs::rename(place.path("away"), &b).unwrap();
    std::fs::remove_file(&a).unwrap();
    std::fs::copy(&b, &a).unwrap();
    start(&mut primary);
    assert_eq!(rows(&database), 1 + COMMITS + 1);
    let status = primary.status().unwrap();
    assert_eq!(status.text("/log/groups/0/lost_members/0"), "", "{}", status.json());
    place.application(&database).run(INSERT);
    // From now on it is a full member again.
    primary.kill();
    std::fs::remove_file(&b).unwrap();
    start(&mut primary);
    assert_eq!(rows(&database), 1 + COMMITS + 2);
}
