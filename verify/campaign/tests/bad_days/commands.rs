//! Wrong use of the command line, and exit codes.

use crate::support::{INSERT, Place, TIMEOUT, await_status, must, refuses, rows, start};
use standfast_campaign::instance::Instance;
use standfast_sqlite_wal::log_length::share;
use standfast_testkit::wait_until;
use std::path::Path;

#[test]
fn directory_without_an_instance_is_a_configuration_error() {
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
fn unknown_setting_is_named_in_the_error() {
    let place = Place::new("wrong-setting");
    let instance = place.instance("south");
    instance.configure("redo", "gruops", 3).unwrap();
    refuses(&instance, &["start"], 2, &["gruops", "hint: "]);
}

#[test]
fn unknown_command_is_a_usage_error() {
    let place = Place::new("usage");
    let instance = place.instance("south");
    refuses(&instance, &["pretoct"], 2, &["pretoct"]);
}

#[test]
fn commands_without_running_instance_show_how_to_start_it() {
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
fn command_right_after_the_start_waits_for_the_instance() {
    let place = Place::new("right-behind");
    let mut instance = place.instance("south");
    let database = place.database("app.db");
    instance.spawn().unwrap();
    must(&instance, &["protect", &database.to_string_lossy()]);
    place.application(&database).run(INSERT);
}

#[test]
fn protecting_a_directory_again_adds_databases_and_keeps_locks() {
    let place = Place::new("directory");
    let primary = place.primary("south");
    let directory = place.path("data");
    std::fs::create_dir(&directory).unwrap();
    let first = place.database("data/first.db");
    must(&primary, &["protect", &directory.to_string_lossy()]);
    place.application(&first).run(INSERT);
    let second = place.database("data/second.db");
    let printed = must(&primary, &["protect", &directory.to_string_lossy()]);
    assert!(printed.contains("second.db") && !printed.contains("first.db"), "{printed}");
    place.application(&second).run(INSERT);
    // Only the instance checkpoints: it holds the checkpoint lock as long as it has the database open.
    let mut foreigner = place.foreigner(&first);
    foreigner.run("PRAGMA busy_timeout=200");
    assert_eq!(foreigner.run("PRAGMA wal_checkpoint(TRUNCATE)")[0][0], 1, "busy");
    refuses(&primary, &["protect", &directory.to_string_lossy()], 3, &["already protected"]);
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
    let status = await_status(&primary, "the WAL was made short behind a gate", |status| {
        let shortened = status.number("/checkpoints/resets") + status.number("/checkpoints/rewrites");
        status.number("/checkpoints/gates") > 0 && shortened > 0
    });
    let checkpoints = &status.json()["checkpoints"];
    assert!(checkpoints["passive"].as_u64() > Some(0) && checkpoints["gate_us_max"].as_u64() > Some(0));
    let printed = must(&primary, &["status"]);
    assert!(printed.contains("checkpoints: passive ") && printed.contains("longest gate "), "{printed}");
}

/// An idle instance does not poll for new frames: the next write wakes the thread that starts their writeback.
#[test]
fn writeback_of_frames_written_after_idle_time_starts_early() {
    let place = Place::new("early-frames");
    let mut primary = place.instance("south");
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut application = place.application(&database);
    for times in 1..=2 {
        await_rest(&primary, "dbw0");
        application.run("INSERT INTO t(x) VALUES(zeroblob(1000000))");
        await_status(&primary, "the frames were handed over", |status| {
            status.number("/checkpoints/early_frames") >= times * 240
        });
    }
}

/// Waits until a thread of the instance is idle: its count of context switches stays the same over ten polls.
fn await_rest(instance: &Instance, thread: &str) {
    let tasks = format!("/proc/{}/task", instance.process().unwrap().pid());
    let read = |task: &Path, file| std::fs::read_to_string(task.join(file)).unwrap_or_default();
    let mut tasks = std::fs::read_dir(tasks).unwrap().map(|task| task.unwrap().path());
    let task = tasks.find(|task| read(task, "comm").trim() == thread).expect(thread);
    let (mut last, mut looks) = (String::new(), 0);
    wait_until("the thread rests", TIMEOUT, || {
        let status = read(&task, "status");
        let now = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
        looks = if last == now { looks + 1 } else { 0 };
        now.clone_into(&mut last);
        looks == 10
    });
}

/// The WAL length that one database alone may reach is shared by many databases: otherwise it would be 100 MB for each.
#[test]
fn many_databases_share_the_maximum_wal_length() {
    const LONG: &str = "INSERT INTO t(x) VALUES(zeroblob(5000000))";
    let place = Place::new("shared-length");
    let mut primary = place.instance("south");
    primary.configure("checkpoint", "passive_frames", 1_100).unwrap();
    primary.configure("checkpoint", "reset_frames", 2_300).unwrap();
    start(&mut primary);
    let directory = place.path("data");
    std::fs::create_dir(&directory).unwrap();
    let many = (1..).find(|many| share(2_300, *many) < 1_200).unwrap();
    let databases: Vec<_> = (0..many).map(|i| place.database(&format!("data/{i}.db"))).collect();
    must(&primary, &["protect", &directory.to_string_lossy()]);
    place.application(&databases[0]).run(LONG);
    let alone = await_status(&primary, "a checkpoint", |status| status.number("/checkpoints/passive") > 0);
    assert_eq!(alone.number("/checkpoints/resets"), 0, "one log of 1,200 frames is not too long");
    for database in &databases[1..] {
        place.application(database).run(LONG);
    }
    await_status(&primary, "all are short again, the quiet one as well", |status| {
        status.number("/checkpoints/resets") + status.number("/checkpoints/rewrites") >= many as u64
    });
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
fn control_file_damaged_or_of_another_version_is_refused() {
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
fn clean_stop_exits_with_0_however_it_is_requested() {
    let place = Place::new("stop");
    let (mut primary, database) = place.protecting();
    primary.stop().unwrap();
    start(&mut primary);
    must(&primary, &["stop"]);
    let process = primary.take_process().unwrap();
    assert!(process.wait_for_end(TIMEOUT).unwrap().success());
    assert!(!primary.directory.join("ready").exists());
    start(&mut primary);
    await_status(&primary, "the database is served", |status| {
        status.json()["databases"][0]["path"] == *database.to_string_lossy()
    });
}

#[test]
fn member_directories_are_created_and_must_be_distinct_and_free() {
    let place = Place::new("member-directories");
    let elsewhere = place.path("elsewhere");
    let make = |name: &str, members: &str| {
        Instance::init(
            &place.programs,
            &place.path(name),
            name,
            &["--group-bytes", "8388608", "--members", members],
        )
    };
    let both = format!("redo,{}", elsewhere.display());
    let mut first = make("first", &both).unwrap();
    assert!(elsewhere.join("online_3b.log").exists() && first.directory.join("redo/online_3a.log").exists());
    start(&mut first);
    for (name, members, words) in [
        ("twice", "redo,./redo/", "each member has a directory of its own"),
        ("six", "a,b,c,d,e,f", "1 to 5 directories"),
        ("taken", &*both, "is there already, perhaps of another instance"),
    ] {
        let printed = make(name, members).err().unwrap().to_string();
        assert!(printed.contains(words), "{members}: {printed}");
    }
    std::os::unix::fs::symlink("redo", place.path("first/link")).unwrap();
    let linked = place.path("first/link").display().to_string();
    let printed = make("linked", &format!("{linked},{}", place.path("first/redo").display())).err().unwrap();
    assert!(printed.to_string().contains("hint: "), "{printed}");
}

#[test]
fn geometry_unlike_the_log_files_is_refused_with_a_remedy() {
    let place = Place::new("geometry");
    let primary = place.primary("south");
    let standby = place.standby_of(&primary, "north");
    // The standby's files have the default size.
    for (mut instance, prefix, bytes) in [(primary, "online_", 8_388_608), (standby, "standby_", 67_108_864)]
    {
        instance.stop().unwrap();
        for (setting, was, is) in [
            ("group_bytes", bytes, 16_777_216),
            ("block_bytes", 4096, 512),
            ("groups", 3, 2),
            ("groups", 3, 4),
        ] {
            instance.configure("redo", setting, is).unwrap();
            let set_back = format!("hint: set redo.{setting} = {was} again");
            let found = format!("has redo.{setting} = {was}, but {is} is configured");
            refuses(&instance, &["start"], 2, &[prefix, &found, &set_back]);
            instance.configure("redo", setting, was).unwrap();
        }
        start(&mut instance);
    }
}

#[test]
fn stderr_is_json_if_configured_and_thresholds_apply() {
    let place = Place::new("alert-json");
    let mut instance = place.instance("south");
    instance.configure("alert", "stderr", "json").unwrap();
    instance.configure("alert", "transport_lag_warn_s", 0).unwrap();
    refuses(&instance, &["start"], 2, &["alert.transport_lag_warn_s = 0", "1 to 604800 seconds"]);
    instance.configure("alert", "transport_lag_warn_s", 7).unwrap();
    start(&mut instance);
    assert_eq!(instance.status().unwrap().number("/thresholds/transport_lag_warn_s"), 7);
    instance.stop().unwrap();
    let printed = std::fs::read_to_string(instance.output_path()).unwrap();
    let lines: Vec<serde_json::Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(lines.len() >= 3 && lines.iter().all(|line| line["instance"] == "south"), "{printed}");
    assert!(lines[0]["message"].as_str().unwrap().starts_with("starting"), "{printed}");
    let file = std::fs::read_to_string(instance.directory.join("alert.log")).unwrap();
    assert!(file.lines().count() == lines.len() && !file.contains('{'), "{file}");
}
