//! Changes of the groups and members of redo logs under load.

use crate::support::{
    INSERT, INSERT_BULK, Place, add_destination, assert_same, await_alert, await_status, must, refuses, rows,
    start,
};
use serde_json::Value;
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;

const MIB_16: &str = "16777216";

fn groups(instance: &Instance) -> Vec<Value> {
    let listed = must(instance, &["log", "group", "list", "--json"]);
    serde_json::from_str::<Value>(&listed).unwrap().as_array().unwrap().clone()
}

fn numbers_and_sizes(instance: &Instance) -> Vec<(u64, u64)> {
    let number = |group: &Value, key: &str| group[key].as_u64().unwrap();
    groups(instance).iter().map(|group| (number(group, "group"), number(group, "bytes"))).collect()
}

fn current(instance: &Instance) -> String {
    let groups = groups(instance);
    groups.iter().find(|group| group["state"] == "current").unwrap()["group"].to_string()
}

/// Makes every group but the current one droppable.
fn free_groups(primary: &Instance) {
    must(primary, &["switch-logfile"]);
    must(primary, &["checkpoint"]);
    await_status(primary, "all full groups are archived", |_| {
        groups(primary).iter().all(|group| {
            group["state"] == "current" || group["state"] == "unused" || group["archived"] == true
        })
    });
}

#[test]
fn log_group_changes_under_load_survive_kill_9() {
    let place = Place::new("log-groups");
    let (mut primary, standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    application.run(INSERT);
    refuses(&primary, &["log", "group", "drop", &current(&primary)], 3, &["current one", "switch-logfile"]);
    refuses(&primary, &["log", "group", "drop", "9"], 3, &["there is no log group 9", "list"]);
    refuses(&primary, &["log", "group", "add", "--bytes", "5000"], 3, &["at least 8 MiB"]);
    must(&primary, &["log", "group", "add", "--bytes", MIB_16]);
    let four = [(1, 8388608), (2, 8388608), (3, 8388608), (4, 16777216)];
    assert_eq!(numbers_and_sizes(&primary), four);

    // Every group is enlarged while the application continues.
    for group in ["1", "2", "3"] {
        application.run(INSERT_BULK);
        if current(&primary) == group {
            must(&primary, &["switch-logfile"]);
        }
        free_groups(&primary);
        must(&primary, &["log", "group", "resize", group, "--bytes", MIB_16]);
        application.run(INSERT);
    }
    let larger = numbers_and_sizes(&primary);
    assert!(larger.len() == 4 && larger.iter().all(|(_, bytes)| *bytes == 16777216), "{larger:?}");
    (0..80).for_each(|_| _ = application.run(INSERT_BULK));
    primary.kill();
    start(&mut primary);
    assert_eq!(numbers_and_sizes(&primary), larger);
    application.run(INSERT);
    assert_eq!(rows(&database), 1 + 1 + 3 * 2 + 80 + 1);
    assert_same(&primary, &standby, &database);
    must(&primary, &["log", "dump", "--limit", "3"]);

    // The settings only apply when the log is created; a changed one is refused with a remedy.
    primary.stop().unwrap();
    primary.configure("redo", "groups", 5).unwrap();
    refuses(&primary, &["start"], 3, &["redo.groups", "set groups = 3", "standfast log group"]);
    primary.configure("redo", "groups", 3).unwrap();
    start(&mut primary);
}

#[test]
fn adding_a_log_group_ends_the_wait_for_archiving() {
    let place = Place::new("log-group-wait");
    let (primary, database) = place.protecting();
    let archive = primary.directory.join("archive");
    std::fs::rename(&archive, place.path("away")).unwrap();
    std::fs::write(&archive, "a file where a directory should be").unwrap();
    let mut application = place.application(&database);
    let waits = |primary: &Instance| {
        primary.status().unwrap().text("/waiting_for") == "log file switch (archiving needed)"
    };
    let mut written = 0;
    loop {
        application.send(INSERT_BULK);
        let mut answer = None;
        await_status(&primary, "the commit is answered or waits", |_| {
            answer = application.answer_within(std::time::Duration::from_millis(20));
            answer.is_some() || waits(&primary)
        });
        match answer {
            Some(answer) => assert_eq!(answer, Answer::Rows(vec![])),
            None => break,
        }
        written += 1;
        assert!(written < 100, "the log never was full");
    }
    must(&primary, &["log", "group", "add"]);
    assert_eq!(application.answer(), Answer::Rows(vec![]), "the commit that waited");
    assert_eq!(rows(&database), 1 + written + 1);
}

#[test]
fn member_is_added_lost_restored_and_dropped_while_running() {
    let place = Place::new("log-member");
    let mut primary = place.instance("south");
    primary.faults = Some("log-write:/redo2/=EIO@60".into());
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut application = place.application(&database);
    application.run(INSERT);
    refuses(&primary, &["log", "member", "drop", "redo"], 3, &["no living member but", "member add"]);
    refuses(&primary, &["log", "member", "add", "redo"], 3, &["living member in", "already"]);
    must(&primary, &["log", "member", "add", "redo2"]);
    let two = |primary: &Instance| {
        groups(primary).iter().all(|group| group["members"].as_array().unwrap().len() == 2)
    };
    assert!(two(&primary), "{:?}", groups(&primary));
    (0..80).for_each(|_| _ = application.run(INSERT));
    await_alert(&primary, "REDO LOG MEMBER LOST");
    assert!(!two(&primary));
    must(&primary, &["log", "member", "add", "redo2"]);
    assert!(two(&primary), "{:?}", groups(&primary));
    application.run(INSERT);
    let control = std::fs::read_to_string(primary.directory.join("control")).unwrap();
    assert!(!control.contains("stale_members"), "{control}");

    // It is now as good as the other member.
    primary.kill();
    primary.faults = None;
    primary.forget_shared_memory();
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", database.display()));
    }
    std::fs::rename(primary.directory.join("redo"), place.path("away")).unwrap();
    start(&mut primary);
    assert_eq!(rows(&database), 1 + 1 + 80 + 1);
    must(&primary, &["log", "member", "drop", "redo"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    primary.kill();
    start(&mut primary);
    assert!(!primary.alerts().rsplit("starting").next().unwrap().contains("LOST"), "{}", primary.alerts());
    assert_eq!(rows(&database), 1 + 1 + 80 + 2);
}

#[test]
fn standby_log_groups_and_members_change_before_its_failover() {
    let place = Place::new("standby-log-groups");
    let (primary, database) = place.protecting();
    let mut standby = place.standby_of(&primary, "north");
    add_destination(&primary, &standby, &["--on-timeout", "stall"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    assert_eq!(groups(&standby).len(), 4);
    must(&standby, &["log", "group", "add", "--bytes", MIB_16]);
    must(&standby, &["log", "member", "add", "redo2"]);
    refuses(&standby, &["log", "group", "drop", &current(&standby)], 3, &["current one"]);
    must(&standby, &["log", "group", "drop", "4"]);
    (0..60).for_each(|_| _ = application.run(INSERT_BULK));
    assert_same(&primary, &standby, &database);
    standby.kill();
    start(&mut standby);
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    let sizes: Vec<u64> = numbers_and_sizes(&standby).iter().map(|(number, _)| *number).collect();
    assert_eq!(sizes, [1, 2, 3, 5]);
    must(&standby, &["failover", "--force"]);
    let online = groups(&standby);
    assert!(online.iter().all(|group| group["members"].as_array().unwrap().len() == 2), "{online:?}");
}
