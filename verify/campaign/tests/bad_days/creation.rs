//! Creation of standbys.

use crate::support::{
    INSERT, INSERT_BULK, Place, add_destination, assert_same, await_status, must, refuses, start,
};
use crate::writers::Writers;
use standfast_campaign::instance::{INSECURE, Instance, free_address};
use std::process::Command;

#[test]
fn a_standby_that_is_created_under_load_has_everything() {
    let place = Place::new("created-under-load");
    let (mut primary, database) = place.protecting();
    let mut application = place.application(&database);
    // Some megabytes to copy.
    (0..20).for_each(|_| drop(application.run(INSERT_BULK)));
    let writers = Writers::start(&place, &database, 8);
    writers.await_progress();
    let standby = place.standby_of(&primary, "north");
    writers.await_progress();
    add_destination(&primary, &standby, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    await_status(&primary, "commits wait for the standby", |status| {
        status.json()["destinations"][0]["required"] == true && status.streams()
    });
    writers.await_progress();
    let acknowledged = writers.finish();
    assert_same(&primary, &standby, &database);
    let copy = standby.standby_database("app.db");
    acknowledged.all_in(&copy);
    primary.kill();
    must(&standby, &["failover"]);
    acknowledged.all_in(&copy);
}

#[test]
fn standby_is_created_with_one_log_group_more_than_primary() {
    let place = Place::new("created-geometry");
    let (primary, _) = place.protecting();
    for _ in 0..2 {
        must(&primary, &["log", "group", "add", "--bytes", "8388608"]);
    }
    let standby = place.standby_of(&primary, "north");
    let groups =
        |instance: &Instance| instance.status().unwrap().json()["log"]["groups"].as_array().unwrap().len();
    assert_eq!((groups(&primary), groups(&standby)), (5, 6));
}

#[test]
fn an_interrupted_creation_can_be_repeated() {
    let place = Place::new("creation-killed");
    let (primary, database) = place.protecting();
    place.application(&database).run(INSERT);
    let directory = place.path("north");
    // Killed while its log files are created; then when everything is copied except the control file.
    for point in ["create=kill@3", "replace=kill@2"] {
        let mut command = Command::new(&place.programs.standfast);
        command.args([
            "standby",
            "create",
            INSECURE,
            "--from",
            &primary.address,
            "--name",
            "north",
            "--listen",
        ]);
        command.arg(free_address().unwrap()).arg("-D").arg(&directory).env("STANDFAST_FAULT", point);
        let output = command.output().unwrap();
        assert!(
            !output.status.success() && !directory.join("control").exists(),
            "{point} did not strike: {output:?}"
        );
    }
    assert!(directory.join("db/app.db").exists(), "nothing was copied");
    // Other files in the directory stay.
    std::fs::write(directory.join("db/notes.txt"), "mine").unwrap();
    let mut standby =
        Instance::standby_of(&primary, &directory, "north").unwrap_or_else(|error| panic!("{error}"));
    assert!(directory.join("db/notes.txt").exists() && !directory.join("creating").exists());
    start(&mut standby);
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
}

#[test]
fn standby_creation_overwrites_no_existing_file() {
    let place = Place::new("creation-conflict");
    let (primary, _) = place.protecting();
    let mut standby = place.instance("unused");
    standby.directory = place.path("north");
    let theirs = standby.directory.join("db/app.db");
    std::fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    std::fs::write(&theirs, "theirs").unwrap();
    let create = ["standby", "create", INSECURE, "--from", &primary.address, "--name", "north"];
    for _ in 0..2 {
        let printed = refuses(&standby, &create, 3, &["db/app.db exists", "hint: move it away"]);
        assert!(!printed.contains("check that the primary runs"), "{printed}");
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "theirs");
    }
}
