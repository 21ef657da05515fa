//! The disk of the redo log is full, not writable or broken.

use crate::support::{
    A_WHILE, Client, INSERT, INSERT_BULK, Place, SQLITE_IOERR, TIMEOUT, assert_same, await_alert,
    await_status, must, rows, start,
};
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use std::time::Duration;

/// Number of half-megabyte rows whose redo exceeds three log groups of 8 MiB.
const MORE_THAN_THE_LOG: usize = 80;
/// Interval of polls while a commit may never be answered.
const LOOK: Duration = Duration::from_millis(20);
const CHECKPOINT_INCOMPLETE: &str = "log file switch (checkpoint incomplete)";
const ARCHIVING_NEEDED: &str = "log file switch (archiving needed)";

/// Writes bulk until a commit gets no answer because of the named wait `wait`; returns how many commits were answered.
fn write_until_stuck(primary: &Instance, application: &mut Client, wait: &str) -> i64 {
    for written in 0..MORE_THAN_THE_LOG {
        application.send(INSERT_BULK);
        let mut answer = None;
        await_status(primary, "the commit is answered, or waits under its name", |status| {
            let stuck = status.text("/waiting_for") == wait;
            answer = application.answer_within(LOOK);
            stuck || answer.is_some()
        });
        match answer {
            Some(Answer::Rows(_)) => {}
            None => return written as i64,
            Some(failed) => panic!("commit {written} failed: {failed:?}; {}", application.printed()),
        }
    }
    panic!("everything was written, and nothing led to {wait}");
}

/// Returns the answer of the application, or `None` when the instance ends first.
fn answer_unless_ended(primary: &Instance, application: &Client) -> Option<Answer> {
    let mut answer = None;
    await_condition("the commit is answered or the instance ends", TIMEOUT, || {
        let ended = primary.has_ended();
        answer = application.answer_within(if ended { A_WHILE } else { LOOK });
        Ok(if ended || answer.is_some() { Ok(()) } else { Err("neither".into()) })
    })
    .unwrap_or_else(|error| panic!("{error}{}", primary.last_words()));
    answer
}

#[test]
fn commits_wait_for_archiving_in_a_named_wait_then_continue() {
    let place = Place::new("no-archive");
    let (primary, database) = place.protecting();
    let archive = primary.directory.join("archive");
    std::fs::rename(&archive, place.path("away")).unwrap();
    std::fs::write(&archive, "a file where a directory should be").unwrap();
    let mut application = place.application(&database);
    let written = write_until_stuck(&primary, &mut application, ARCHIVING_NEEDED);
    await_alert(&primary, "rchiv");

    std::fs::remove_file(&archive).unwrap();
    std::fs::rename(place.path("away"), &archive).unwrap();
    assert_eq!(application.answer(), Answer::Rows(vec![]), "the waiting commit");
    application.run(INSERT);
    let status = await_status(&primary, "nothing waits", |status| status.text("/waiting_for").is_empty());
    assert_eq!(rows(&database), 1 + written + 2);
    // The archiver tries again after half a second.
    let (count, time_us) = status.waited_for(ARCHIVING_NEEDED);
    assert!(count >= 1 && time_us > 1_000, "{}", status.json());
    let (switches, time_us) = status.waited_for("log file switch completion");
    assert!(switches >= 3 && time_us > 0, "{}", status.json());
    assert!(must(&primary, &["status"]).contains("log file switch (archiving needed)"));
}

#[test]
fn redo_larger_than_one_batch_waits_for_log_buffer_space() {
    let place = Place::new("buffer-space");
    let mut primary = place.instance("south");
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut application = place.application(&database);
    application.run(INSERT);
    const BUFFER_SPACE: &str = "log buffer space";
    assert_eq!(primary.status().unwrap().waited_for(BUFFER_SPACE), (0, 0), "one small commit waits for none");
    application.run("INSERT INTO t(x) VALUES(randomblob(6000000))");
    let status = primary.status().unwrap();
    let (count, time_us) = status.waited_for(BUFFER_SPACE);
    assert!(count >= 4 && time_us > 0, "{}", status.json());

    // A slow disk shows as this named wait.
    primary.stop().unwrap();
    primary.faults = Some("log-write:online=sleep:300@1+".into());
    start(&mut primary);
    application.send("INSERT INTO t(x) VALUES(randomblob(6000000))");
    await_status(&primary, "the wait has its name", |status| status.text("/waiting_for") == BUFFER_SPACE);
    assert_eq!(application.answer(), Answer::Rows(vec![]));
}

#[test]
fn stop_ends_the_log_switch_wait_and_status_answers_during_it() {
    let place = Place::new("stop-stalled");
    let mut primary = place.instance("south");
    primary.configure("commit", "outcome_wait_ms", 300).unwrap();
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let archive = primary.directory.join("archive");
    std::fs::rename(&archive, place.path("away")).unwrap();
    std::fs::write(&archive, "a file where a directory should be").unwrap();
    let mut application = place.application(&database);
    let written = write_until_stuck(&primary, &mut application, ARCHIVING_NEEDED);
    let commands: Vec<_> =
        [["switch-logfile"], ["checkpoint"]].iter().map(|words| primary.begin(words).unwrap()).collect();
    for _ in 0..3 {
        let status = await_status(&primary, "the wait has its name", |status| {
            status.text("/waiting_for") == ARCHIVING_NEEDED
        });
        assert_eq!(status.number("/waiting_commits"), 1, "{}", status.json());
    }
    assert!(commands.iter().all(|command| !command.ended_within(A_WHILE)), "the commands wait");

    assert!(!primary.take_process().unwrap().terminate().unwrap().success(), "commits were not in the log");
    for command in commands {
        assert!(!command.wait_for_end(TIMEOUT).unwrap().success());
    }
    await_alert(&primary, "stopped while commits waited for a log switch");
    let Answer::Failed { code, .. } = application.answer() else { panic!("acknowledged without redo") };
    assert_eq!(code & 0xff, SQLITE_IOERR);
    assert!(application.printed().contains("unknown"), "{}", application.printed());

    // The same after a restart with a full volume.
    std::fs::remove_file(&archive).unwrap();
    std::fs::rename(place.path("away"), &archive).unwrap();
    primary.faults = Some("copy=ENOSPC@1+".into());
    primary.spawn().unwrap();
    await_alert_after(&primary, "stopped while commits", "log switch waits");
    assert!(!primary.take_process().unwrap().terminate().unwrap().success());

    primary.faults = None;
    start(&mut primary);
    application.run(INSERT);
    assert_eq!(rows(&database), 1 + written + 2);
    assert_eq!(primary.status().unwrap().database_state("app.db"), "open");
    primary.stop().unwrap();
}

/// Waits until `then` is in the alert log after the last `first`.
#[track_caller]
fn await_alert_after(primary: &Instance, first: &str, then: &str) {
    await_condition(&format!("`{then}` in the alert log"), TIMEOUT, || {
        let alerts = primary.alerts();
        let behind = alerts.rsplit(first).next().unwrap_or_default();
        Ok(if behind.contains(then) { Ok(()) } else { Err(alerts.clone()) })
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn unwritable_control_file_delays_commits_until_it_is_writable() {
    let place = Place::new("no-control");
    let (primary, database) = place.protecting();
    let in_the_way = primary.directory.join("control.new");
    std::fs::create_dir(&in_the_way).unwrap();
    let mut application = place.application(&database);
    let written = write_until_stuck(&primary, &mut application, CHECKPOINT_INCOMPLETE);
    await_alert(&primary, "failed and will be tried again");
    let printed = primary.alerts().matches("failed and will be tried again").count();
    assert_eq!(printed, 1, "{}", primary.alerts());

    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(application.answer(), Answer::Rows(vec![]), "the waiting commit");
    application.run(INSERT);
    await_status(&primary, "nothing waits", |status| status.text("/waiting_for").is_empty());
    await_alert(&primary, "checkpoints continue");
    assert_eq!(rows(&database), 1 + written + 2);
    let status = primary.status().unwrap();
    let (count, time_us) = status.waited_for(CHECKPOINT_INCOMPLETE);
    assert!(count >= 1 && time_us > 1_000, "{}", status.json());
}

/// The log writer waits for a checkpoint to free a group, while that checkpoint waits for the redo of the frames that
/// it backfills: redo for which there is no group.
#[test]
fn checkpoint_awaited_by_log_writer_does_not_wait_for_redo() {
    let place = Place::new("wait-for-each-other");
    let mut primary = place.instance("south");
    primary.configure("checkpoint", "passive_frames", 10).unwrap();
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let in_the_way = primary.directory.join("control.new");
    std::fs::create_dir(&in_the_way).unwrap();
    let mut application = place.application(&database);
    let written = write_until_stuck(&primary, &mut application, CHECKPOINT_INCOMPLETE);
    await_alert(&primary, "failed and will be tried again");

    std::fs::remove_dir(&in_the_way).unwrap();
    // Half of the time for which a checkpoint waits for redo.
    assert_eq!(
        application.answer_within(Duration::from_secs(5)),
        Some(Answer::Rows(vec![])),
        "{}",
        primary.alerts()
    );
    assert_eq!(rows(&database), 1 + written + 1);
}

#[test]
fn full_archive_volume_stalls_commits_and_restart_loses_none() {
    let place = Place::new("archive-full");
    let (mut primary, standby, database) = place.pair(&[]);
    primary.stop().unwrap();
    primary.faults = Some("copy=ENOSPC@1+".into());
    start(&mut primary);
    let mut application = place.application(&database);
    let written = write_until_stuck(&primary, &mut application, ARCHIVING_NEEDED);
    primary.kill();
    primary.faults = None;
    start(&mut primary);
    // The application received no error: its commit waited for the instance and is now acknowledged.
    assert_eq!(application.answer(), Answer::Rows(vec![]));
    application.run(INSERT);
    assert_eq!(rows(&database), 1 + written + 2);
    assert_same(&primary, &standby, &database);
}

#[test]
fn redo_log_error_stops_acknowledgements_until_a_restart() {
    let place = Place::new("log-error");
    let (mut primary, standby, database) = place.pair(&[]);
    primary.stop().unwrap();
    primary.faults = Some("log-write=EIO@50".into());
    start(&mut primary);
    let mut application = place.application(&database);
    let mut acknowledged = 0;
    let failed = loop {
        match application.try_run(INSERT) {
            Answer::Rows(_) => acknowledged += 1,
            failed => break failed,
        }
        assert!(acknowledged < 200, "the fault did not strike");
    };
    assert!(matches!(failed, Answer::Failed { code, .. } if code & 0xff == SQLITE_IOERR), "{failed:?}");
    assert!(application.printed().contains("unknown"), "{}", application.printed());
    for _ in 0..3 {
        application.fails(INSERT, SQLITE_IOERR);
    }
    place.application(&database).fails(INSERT, SQLITE_IOERR);
    application.run("SELECT count(*) FROM t");
    let status = primary.status().unwrap();
    assert!(status.text("/state").contains("poisoned"), "{}", status.json());
    await_alert(&primary, "poisoned");

    primary.kill();
    primary.faults = None;
    start(&mut primary);
    application.run(INSERT);
    let there = rows(&database);
    assert!(
        (acknowledged + 2..=acknowledged + 3).contains(&there),
        "{acknowledged} acknowledged, {there} there"
    );
    assert_same(&primary, &standby, &database);
}

#[test]
fn kill_between_redo_write_and_acknowledgement_loses_nothing() {
    let place = Place::new("log-written");
    let (mut primary, standby, database) = place.pair(&[]);
    primary.stop().unwrap();
    for point in ["log-write=kill@20", "log-written=kill@20", "send=kill@20"] {
        primary.faults = Some(point.into());
        start(&mut primary);
        let before = rows(&database);
        let mut application = place.application(&database);
        let mut acknowledged = 0;
        loop {
            application.send(INSERT);
            let Some(answer) = answer_unless_ended(&primary, &application) else { break };
            assert_eq!(answer, Answer::Rows(vec![]), "{point}");
            acknowledged += 1;
            assert!(acknowledged < 200, "{point} did not strike");
        }
        primary.kill();
        primary.faults = None;
        start(&mut primary);
        assert_eq!(application.answer(), Answer::Rows(vec![]), "{point}");
        assert_eq!(rows(&database), before + acknowledged + 1, "{point}");
        assert_same(&primary, &standby, &database);
        primary.stop().unwrap();
    }
}
