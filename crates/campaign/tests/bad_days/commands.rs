//! The command line when it is used wrongly, and its exit codes.

use crate::support::{INSERT, PATIENCE, Place, await_status, must, refuses, rows, start};

#[test]
fn a_directory_without_an_instance_is_a_matter_of_configuration() {
    let place = Place::new("wrong-directory");
    let mut instance = place.instance("south");
    instance.directory = place.path("nowhere");
    for command in [&["start"][..], &["status"], &["protect", "x.db"], &["config"]] {
        refuses(&instance, command, 2, &["standfast.toml", "hint: ", "standfast init"]);
    }
    std::fs::create_dir(&instance.directory).unwrap();
    refuses(&instance, &["start"], 2, &["standfast.toml", "hint: "]);
}

#[test]
fn a_setting_that_does_not_exist_is_named() {
    let place = Place::new("wrong-setting");
    let instance = place.instance("south");
    instance.configure("redo", "gruops", 3).unwrap();
    refuses(&instance, &["start"], 2, &["gruops", "hint: "]);
}

#[test]
fn a_command_that_does_not_exist_is_a_usage_error() {
    let place = Place::new("usage");
    let instance = place.instance("south");
    refuses(&instance, &["pretoct"], 2, &["pretoct"]);
}

#[test]
fn without_a_running_instance_commands_say_how_to_start_it() {
    let place = Place::new("not-running");
    let instance = place.instance("south");
    let database = place.database("app.db");
    for command in
        [&["status"][..], &["protect", &database.to_string_lossy()], &["checkpoint"], &["switch-logfile"]]
    {
        refuses(&instance, command, 4, &["does not run", "standfast start"]);
    }
}

#[test]
fn a_command_right_behind_the_start_waits_for_the_instance() {
    let place = Place::new("right-behind");
    let mut instance = place.instance("south");
    let database = place.database("app.db");
    instance.spawn().unwrap();
    must(&instance, &["protect", &database.to_string_lossy()]);
    place.application(&database).run(INSERT);
}

#[test]
fn checkpoints_are_counted_in_the_status() {
    let place = Place::new("checkpoints");
    let mut primary = place.instance("south");
    primary.configure("checkpoint", "passive_frames", 10).unwrap();
    primary.configure("checkpoint", "reset_frames", 40).unwrap();
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let status = primary.status().unwrap();
    assert_eq!(status.json()["checkpoints"]["gates"], 0, "{}", status.json());
    let mut application = place.application(&database);
    for _ in 0..100 {
        application.run(INSERT);
    }
    let status = await_status(&primary, "the WAL was reset behind a gate", |status| {
        status.number("/checkpoints/gates") > 0 && status.number("/checkpoints/resets") > 0
    });
    let checkpoints = &status.json()["checkpoints"];
    assert!(checkpoints["passive"].as_u64() > Some(0) && checkpoints["gate_us_max"].as_u64() > Some(0));
    let said = must(&primary, &["status"]);
    assert!(said.contains("checkpoints: passive ") && said.contains("longest gate "), "{said}");
}

#[test]
fn a_directory_can_hold_one_instance_and_one_process() {
    let place = Place::new("second");
    let (mut primary, database) = place.protecting();
    refuses(&primary, &["init"], 3, &["already holds an instance", "hint: "]);
    refuses(&primary, &["start"], 5, &["already runs", "hint: "]);
    // The second process has not disturbed the first one.
    let mut application = place.application(&database);
    application.run(INSERT);
    primary.stop().unwrap();
    start(&mut primary);
    application.run(INSERT);
    assert_eq!(rows(&database), 3);
}

#[test]
fn a_control_file_that_is_damaged_or_of_another_version_is_not_used() {
    let place = Place::new("control");
    let instance = place.instance("south");
    let path = instance.directory.join("control");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("standfast-control 1", "standfast-control 9", 1)).unwrap();
    refuses(&instance, &["start"], 3, &["another version", "hint: "]);
    std::fs::write(&path, &text[..text.len() - 5]).unwrap();
    refuses(&instance, &["start"], 3, &["damaged", "hint: "]);
    std::fs::write(&path, text).unwrap();
    let mut instance = instance;
    start(&mut instance);
}

#[test]
fn a_clean_stop_ends_with_exit_code_0_however_it_is_asked_for() {
    let place = Place::new("stop");
    let (mut primary, database) = place.protecting();
    primary.stop().unwrap();
    start(&mut primary);
    must(&primary, &["stop"]);
    let process = primary.take_process().unwrap();
    assert!(process.wait_for_end(PATIENCE).unwrap().success());
    assert!(!primary.directory.join("ready").exists());
    start(&mut primary);
    await_status(&primary, "the database is served", |status| {
        status.json()["databases"][0]["path"] == *database.to_string_lossy()
    });
}
