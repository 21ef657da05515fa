//! The disk of the redo log: full, unwritable, broken.

use crate::support::{
    A_WHILE, Client, INSERT, INSERT_BULK, PATIENCE, Place, SQLITE_IOERR, assert_same, await_alert,
    await_status, rows, start,
};
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use std::time::Duration;

/// More redo than three log groups of 8 MiB hold, in half-megabyte rows.
const MORE_THAN_THE_LOG: usize = 80;
/// Between two looks while a commit is waited for that may never be answered.
const LOOK: Duration = Duration::from_millis(20);
const ARCHIVING_NEEDED: &str = "log file switch (archiving needed)";

/// Writes bulk until a commit gets no answer because nothing can be archived; returns how many got one.
fn write_until_stuck(primary: &Instance, application: &mut Client) -> i64 {
    for written in 0..MORE_THAN_THE_LOG {
        application.send(INSERT_BULK);
        let mut answer = None;
        await_status(primary, "the commit is answered, or waits under its name", |status| {
            let stuck = status.text("/waiting_for") == ARCHIVING_NEEDED;
            answer = application.answer_within(LOOK);
            stuck || answer.is_some()
        });
        match answer {
            Some(Answer::Rows(_)) => {}
            None => return written as i64,
            Some(failed) => panic!("commit {written} failed: {failed:?}; {}", application.said()),
        }
    }
    panic!("everything was written although nothing can be archived");
}

/// The answer of the application, unless the instance ends first and leaves it waiting.
fn answer_unless_ended(primary: &Instance, application: &Client) -> Option<Answer> {
    let mut answer = None;
    await_condition("the commit is answered or the instance ends", PATIENCE, || {
        let ended = primary.has_ended();
        answer = application.answer_within(if ended { A_WHILE } else { LOOK });
        Ok(if ended || answer.is_some() { Ok(()) } else { Err("neither".into()) })
    })
    .unwrap_or_else(|error| panic!("{error}{}", primary.last_words()));
    answer
}

#[test]
fn while_nothing_can_be_archived_commits_wait_under_a_name_and_then_go_on() {
    let place = Place::new("no-archive");
    let (primary, database) = place.protecting();
    let archive = primary.directory.join("archive");
    std::fs::rename(&archive, place.path("away")).unwrap();
    std::fs::write(&archive, "a file where a directory should be").unwrap();
    let mut application = place.application(&database);
    let written = write_until_stuck(&primary, &mut application);
    await_alert(&primary, "rchiv");

    std::fs::remove_file(&archive).unwrap();
    std::fs::rename(place.path("away"), &archive).unwrap();
    assert_eq!(application.answer(), Answer::Rows(vec![]), "the waiting commit");
    application.run(INSERT);
    await_status(&primary, "nothing waits", |status| status.text("/waiting_for").is_empty());
    assert_eq!(rows(&database), 1 + written + 2);
}

#[test]
fn a_full_archive_volume_stalls_commits_and_a_restart_with_room_loses_none() {
    let place = Place::new("archive-full");
    let (mut primary, standby, database) = place.pair(&[]);
    primary.stop().unwrap();
    primary.faults = Some("copy=ENOSPC@1+".into());
    start(&mut primary);
    let mut application = place.application(&database);
    let written = write_until_stuck(&primary, &mut application);
    primary.kill();
    primary.faults = None;
    start(&mut primary);
    // Nobody told the application no: the commit waited for the instance and is now confirmed.
    assert_eq!(application.answer(), Answer::Rows(vec![]));
    application.run(INSERT);
    assert_eq!(rows(&database), 1 + written + 2);
    assert_same(&primary, &standby, &database);
}

#[test]
fn after_an_error_of_the_log_nothing_is_acknowledged_until_a_restart() {
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
    assert!(application.said().contains("unknown"), "{}", application.said());
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
fn killed_between_writing_the_log_and_telling_anybody_nothing_is_lost() {
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
