//! A device of the redo log fails while the instance runs, and the device of the other member works.

use crate::support::{
    INSERT, Place, add_destination, assert_same, await_alert, await_status, must, refuses, rows, start,
};
use standfast_campaign::instance::Instance;
use std::path::Path;

const TWO_MEMBERS: [&str; 2] = ["--members", "redo,redo2"];
/// The device of the second member fails under load.
const SECOND_GOES: &str = "log-write:/redo2/=EIO@30+";
const FIRST_GOES: &str = "log-write:/redo/=EIO@30+";

fn primary_with_two_members(place: &Place) -> Instance {
    let more = [&["--group-bytes", "8388608"], &TWO_MEMBERS[..]].concat();
    Instance::init(&place.programs, &place.path("south"), "south", &more).unwrap()
}

/// Kills the instance and removes its shared memory and the WAL, so that only the redo log holds the commits.
fn lose_power(instance: &mut Instance, database: &Path) {
    instance.kill();
    instance.forget_shared_memory();
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", database.display()));
    }
}

#[test]
fn member_failing_under_load_is_dropped_without_losing_a_commit() {
    for (fault, lost) in [(FIRST_GOES, "redo/online_1a.log"), (SECOND_GOES, "redo2/online_1b.log")] {
        let place = Place::new("member-fails");
        let mut primary = primary_with_two_members(&place);
        primary.faults = Some(fault.into());
        start(&mut primary);
        let database = place.database("app.db");
        must(&primary, &["protect", &database.to_string_lossy()]);
        let mut application = place.application(&database);
        (0..80).for_each(|_| _ = application.run(INSERT));
        await_alert(&primary, "REDO LOG MEMBER LOST");
        let lost = primary.directory.join(lost);
        let status = primary.status().unwrap();
        assert_eq!(status.text("/log/groups/0/lost_members/0"), lost.to_string_lossy(), "{}", status.json());
        assert_eq!(status.text("/state"), "open");
        assert!(must(&primary, &["status"]).contains("LOST redo log member"));
        let control = std::fs::read_to_string(primary.directory.join("control")).unwrap();
        assert!(control.contains("stale_members"), "{control}");

        lose_power(&mut primary, &database);
        primary.faults = None;
        start(&mut primary);
        await_alert(&primary, "was behind");
        assert_eq!(rows(&database), 1 + 80);
        let status = primary.status().unwrap();
        assert_eq!(status.text("/log/groups/0/lost_members/0"), "", "{}", status.json());
    }
}

#[test]
fn start_on_volume_of_another_instance_is_refused_unchanged() {
    let place = Place::new("exchanged-volumes");
    let mut instances = ["south", "east"].map(|name| {
        let more = [&["--group-bytes", "8388608"], &TWO_MEMBERS[..]].concat();
        let mut instance = Instance::init(&place.programs, &place.path(name), name, &more).unwrap();
        start(&mut instance);
        let database = place.database(&format!("{name}.db"));
        must(&instance, &["protect", &database.to_string_lossy()]);
        let mut application = place.application(&database);
        (0..10).for_each(|_| _ = application.run(INSERT));
        application.close();
        instance.stop().unwrap();
        instance
    });
    let exchange = || {
        let [south, east] = ["south/redo2", "east/redo2"].map(|name| place.path(name));
        let aside = place.path("aside");
        for (from, to) in [(&south, &aside), (&east, &south), (&aside, &east)] {
            std::fs::rename(from, to).unwrap();
        }
    };
    let files = || {
        let names = ["south/redo", "south/redo2", "east/redo", "east/redo2"];
        let files = names.iter().flat_map(|name| std::fs::read_dir(place.path(name)).unwrap());
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files.into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect::<Vec<_>>()
    };
    exchange();
    let before = files();
    for instance in &instances {
        let hint = "hint: is the right volume mounted there";
        refuses(instance, &["start"], 3, &["redo2/online_1b.log holds redo of instance", hint]);
    }
    assert!(files() == before, "a file was changed");
    exchange();
    for (instance, name) in instances.iter_mut().zip(["south", "east"]) {
        start(instance);
        assert_eq!(rows(&place.path(&format!("{name}.db"))), 1 + 10);
    }
}

#[test]
fn dropping_a_member_removes_no_files_of_another_instance() {
    let place = Place::new("dropped-foreign");
    let [mut south, _east] = ["south", "east"].map(|name| {
        let more = [&["--group-bytes", "8388608"], &TWO_MEMBERS[..]].concat();
        Instance::init(&place.programs, &place.path(name), name, &more).unwrap()
    });
    start(&mut south);
    std::fs::rename(place.path("south/redo2"), place.path("aside")).unwrap();
    std::fs::rename(place.path("east/redo2"), place.path("south/redo2")).unwrap();
    let theirs = place.path("south/redo2/online_1b.log");
    let before = std::fs::read(&theirs).unwrap();
    must(&south, &["log", "member", "drop", &place.path("south/redo2").to_string_lossy()]);
    await_alert(&south, "online_1b.log is not used any more and was not removed");
    assert!(std::fs::read(&theirs).unwrap() == before);
}

#[test]
fn start_is_refused_if_only_the_failed_member_remains() {
    let place = Place::new("member-alone");
    let mut primary = primary_with_two_members(&place);
    primary.faults = Some(SECOND_GOES.into());
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut application = place.application(&database);
    (0..80).for_each(|_| _ = application.run(INSERT));
    lose_power(&mut primary, &database);
    primary.faults = None;
    std::fs::rename(primary.directory.join("redo"), place.path("away")).unwrap();
    crate::support::refuses(&primary, &["start"], 1, &["online_1b.log", "lacks redo", "hint: "]);
}

#[test]
fn standby_stays_required_when_a_standby_log_member_is_dropped() {
    let place = Place::new("standby-member");
    let (primary, database) = place.protecting();
    let mut standby = Instance::standby_with(&primary, &place.path("north"), "north", &TWO_MEMBERS).unwrap();
    standby.faults = Some(SECOND_GOES.into());
    start(&mut standby);
    add_destination(&primary, &standby, &["--on-timeout", "stall"]);
    let mut application = place.application(&database);
    (0..80).for_each(|_| _ = application.run(INSERT));
    await_alert(&standby, "REDO LOG MEMBER LOST");
    let status = await_status(&primary, "the standby follows", |status| status.streams());
    assert_eq!(status.json()["destinations"][0]["required"], true, "{}", status.json());
    assert_same(&primary, &standby, &database);

    standby.kill();
    standby.faults = None;
    start(&mut standby);
    await_alert(&standby, "standby_1b.log was behind");
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
}
