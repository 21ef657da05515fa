//! Archived logs that the operator copies to a standby by hand.

use crate::support::{
    INSERT, INSERT_BULK, Place, add_destination, assert_same, await_alert, await_status, must, refuses, start,
};
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use std::path::PathBuf;

/// Returns the archived logs of an instance, in order.
fn archive(instance: &Instance) -> Vec<PathBuf> {
    let files = std::fs::read_dir(instance.directory.join("archive")).unwrap();
    let mut logs: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "arc"));
    logs.sort();
    logs
}

#[test]
fn copied_logs_register_in_order_and_wrong_ones_are_refused() {
    let place = Place::new("register");
    let (primary, database) = place.protecting();
    let mut standby = place.standby_of(&primary, "north");
    let mut branch = place.standby_of(&primary, "west");
    add_destination(&primary, &standby, &["--mode", "async"]);
    add_destination(&primary, &branch, &["--mode", "async"]);
    await_status(&primary, "the standbys follow", Status::settled);
    must(&primary, &["destination", "remove", "north"]);
    let mut application = place.application(&database);
    for _ in 0..4 {
        application.run(INSERT_BULK);
        must(&primary, &["switch-logfile"]);
    }
    await_status(&primary, "all full logs are archived", |_| archive(&primary).len() >= 4);
    let logs = archive(&primary);
    let register = |standby: &Instance, log: &PathBuf, code: i32, words: &[&str]| {
        let log = log.to_string_lossy();
        refuses(standby, &["register", "logfile", &log], code, words);
    };
    let before = standby.status().unwrap().number("/standby/hardened");

    // Unsuitable logs of every kind.
    register(&standby, &logs[2], 3, &["begins at SCN", "register log"]);
    register(&standby, &database, 3, &["is no archived log", "switch-logfile"]);
    register(&standby, &place.path("nowhere.arc"), 1, &["cannot open the archived log"]);
    let damaged = place.path("damaged.arc");
    let mut bytes = std::fs::read(&logs[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&damaged, &bytes).unwrap();
    register(&standby, &damaged, 3, &["damaged or incomplete", "copy it again"]);
    std::fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
    register(&standby, &damaged, 3, &["damaged or incomplete"]);
    let other_family = place.primary("elsewhere");
    must(&other_family, &["protect", &place.database("other.db").to_string_lossy()]);
    must(&other_family, &["switch-logfile"]);
    await_status(&other_family, "its log is archived", |status| status.number("/log/archived") > 0);
    register(&standby, &archive(&other_family)[0], 3, &["another family"]);
    await_status(&primary, "the other standby follows", Status::settled);
    // This log would fence the primary.
    must(&primary, &["destination", "remove", "west"]);
    must(&branch, &["failover", "--force"]);
    must(&branch, &["switch-logfile"]);
    let newer = |branch: &Instance| {
        archive(branch)
            .into_iter()
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("2_")))
    };
    await_status(&branch, "its log is archived", |_| newer(&branch).is_some());
    register(&standby, &newer(&branch).unwrap(), 3, &["incarnation 2", "does not follow"]);
    branch.kill();
    register(&primary, &logs[0], 3, &["no standby"]);
    assert_eq!(standby.status().unwrap().number("/standby/hardened"), before, "something was taken");

    // The suitable logs, also over a restart.
    let count = logs.len();
    for (number, log) in logs.iter().enumerate() {
        let printed = must(&standby, &["register", "logfile", &log.to_string_lossy()]);
        assert!(printed.contains(&format!("log {} registered", number + 1)), "{printed}");
        register(&standby, log, 3, &["this standby has redo up to"]);
        if number == 1 {
            standby.kill();
            start(&mut standby);
        }
    }
    await_alert(&standby, &format!("log {count} registered"));
    assert!(log_is_left(&logs), "the originals stay");
    await_status(&standby, "it is applied", |status| {
        status.number("/standby/applied") == status.number("/standby/hardened")
    });
    // The stream continues from there.
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    assert!(!standby.alerts().contains("GAP"), "{}", standby.alerts());
}

fn log_is_left(logs: &[PathBuf]) -> bool {
    logs.iter().all(|log| log.exists())
}
