//! Reads of a standby that know how old the data are: `PRAGMA standfast_max_data_delay`, `standfast_sync_with_primary()`.

use crate::support::{
    Client, INSERT, Place, QUICK, SQLITE_READONLY, TIMEOUT, add_destination, await_status, must, start,
};
use crate::writers::Writers;
use standfast_campaign::application::client::Answer;
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use std::path::Path;

const SQLITE_ERROR: i32 = 1;
const SQLITE_PROTOCOL: i32 = 15;
const COUNT: &str = "SELECT count(*) FROM t";
/// Longer than a busy machine takes.
const SYNC: &str = "SELECT standfast_sync_with_primary('main', 60)";

fn number(client: &mut Client, sql: &str) -> i64 {
    client.run(sql)[0][0].as_i64().unwrap()
}

fn text(client: &mut Client, sql: &str) -> String {
    client.run(sql)[0][0].as_str().unwrap().to_owned()
}

fn status_of(client: &mut Client) -> serde_json::Value {
    serde_json::from_str(&text(client, "SELECT standfast_status()")).unwrap()
}

/// Waits until a read returns: on a busy machine one may fail although the standby is connected.
#[track_caller]
fn await_read(client: &mut Client) {
    let mut read = || match client.try_run(COUNT) {
        Answer::Rows(_) => Ok(Ok(())),
        Answer::Failed { code, message } => Ok(Err(format!("{message} ({code})"))),
    };
    await_condition("a read that is current enough", TIMEOUT, &mut read)
        .unwrap_or_else(|error| panic!("{error}"));
}

/// Waits until a read fails because the data are too old.
#[track_caller]
fn await_too_old(client: &mut Client) -> String {
    let mut read = || match client.try_run(COUNT) {
        Answer::Failed { code: SQLITE_PROTOCOL, .. } => Ok(Ok(())),
        other => Ok(Err(format!("{other:?}"))),
    };
    await_condition("the data are too old", TIMEOUT, &mut read).unwrap_or_else(|error| panic!("{error}"));
    status_of(client)["last_error"].as_str().unwrap().to_owned()
}

#[test]
fn read_at_a_standby_fails_when_its_data_are_older_than_allowed() {
    let place = Place::new("max-data-delay");
    let (primary, standby, database) = place.pair(&QUICK);
    let mut reader = place.application(&standby.standby_database("app.db"));
    assert_eq!(text(&mut reader, "PRAGMA standfast_max_data_delay"), "none");
    assert_eq!(text(&mut reader, "PRAGMA standfast_max_data_delay = 1.5"), "1.5");
    await_read(&mut reader);
    // An idle primary makes no data old, and a limit of zero asks for each read.
    assert_eq!(text(&mut reader, "PRAGMA standfast_max_data_delay = 0"), "0");
    await_read(&mut reader);
    let status = status_of(&mut reader);
    assert!(status["data_delay_ms"].as_u64().is_some() && status["primary"] == "south", "{status}");
    reader.run("PRAGMA standfast_max_data_delay = 1");
    place.insert(&database, 3);
    reader.run(SYNC);
    let process = primary.process().unwrap();
    process.freeze(true);
    let why = await_too_old(&mut reader);
    assert!(why.contains("standfast_max_data_delay is 1 s: its data are "), "{why}");
    let message = reader.fails(SYNC.replace("60", "0.2").as_str(), SQLITE_ERROR);
    assert!(message.starts_with("standfast_sync_with_primary: ") && message.contains(" s old"), "{message}");
    // Others do not care.
    assert_eq!(number(&mut place.application(&standby.standby_database("app.db")), COUNT), 4);
    process.freeze(false);
    await_read(&mut reader);
    assert_eq!(number(&mut reader, COUNT), 4);
    reader.run("PRAGMA standfast_max_data_delay = none");
    process.freeze(true);
    assert_eq!(number(&mut reader, COUNT), 4);
    process.freeze(false);
    let message = reader.fails("PRAGMA standfast_max_data_delay = soon", SQLITE_ERROR);
    assert!(message.contains("`soon` is not a time; give seconds"), "{message}");
}

#[test]
fn sync_with_primary_shows_every_commit_that_returned_before() {
    let place = Place::new("sync-with-primary");
    let (_primary, standby, database) = place.pair(&QUICK);
    let mut reader = place.application(&standby.standby_database("app.db"));
    let mut application = place.application(&database);
    let others = Writers::start(&place, &database, 4);
    others.await_progress();
    application.run("CREATE TABLE mine(n)");
    for committed in 1..=60 {
        application.run("INSERT INTO mine VALUES(1)");
        reader.run(SYNC);
        assert_eq!(number(&mut reader, "SELECT count(*) FROM mine"), committed);
    }
    // The same by a limit of zero, which waits for one second only.
    reader.run("PRAGMA standfast_max_data_delay = 0");
    let mut read = 0;
    for committed in 61..=90 {
        application.run("INSERT INTO mine VALUES(1)");
        match reader.try_run("SELECT count(*) FROM mine") {
            Answer::Rows(rows) => {
                read += 1;
                assert_eq!(rows[0][0], committed);
            }
            Answer::Failed { code, message } => assert_eq!(code & 0xff, SQLITE_PROTOCOL, "{message}"),
        }
    }
    assert!(read > 0, "no read was current enough: {}", reader.printed());
    drop(others.finish());
    // At the primary both hold without a question.
    application.run("PRAGMA standfast_max_data_delay = 0");
    assert_eq!(number(&mut application, "SELECT count(*) FROM mine"), 90);
    assert_eq!(number(&mut application, SYNC), 1);
    // Neither promises anything about what was begun earlier.
    reader.run("BEGIN");
    reader.run(COUNT);
    let message = reader.fails(SYNC, SQLITE_ERROR);
    assert!(message.contains("a read transaction is open"), "{message}");
    reader.run("ROLLBACK");
}

#[test]
fn connection_that_reads_without_locks_or_in_a_shared_cache_gets_no_promise() {
    let place = Place::new("fresh-immutable");
    let (_primary, standby, _database) = place.pair(&QUICK);
    let copy = standby.standby_database("app.db");
    let mut reader = place.application(&place.database("other.db"));
    reader.run(&format!("ATTACH 'file:{}?immutable=1' AS there", copy.display()));
    let message = reader.fails("PRAGMA there.standfast_max_data_delay = 5", SQLITE_ERROR);
    assert!(message.contains("opened as immutable"), "{message}");
    let message = reader.fails("SELECT standfast_sync_with_primary('there')", SQLITE_ERROR);
    assert!(message.contains("opened as immutable"), "{message}");
    reader.run("DETACH there");
    // A limit is that of one database of the connection.
    reader.run(&format!("ATTACH '{}' AS there", copy.display()));
    reader.run("PRAGMA there.standfast_max_data_delay = 5");
    assert_eq!(text(&mut reader, "PRAGMA there.standfast_max_data_delay"), "5");
    reader.run("SELECT standfast_sync_with_primary('there', 60)");
    assert_eq!(number(&mut reader, "SELECT count(*) FROM there.t"), 1);
}

#[test]
fn question_passes_through_a_far_sync_and_a_cascading_standby() {
    let place = Place::new("sync-chain");
    let (primary, database) = place.protecting();
    let mut near =
        standfast_campaign::instance::Instance::far_sync_of(&primary, &place.path("near"), "near").unwrap();
    start(&mut near);
    let middle = place.standby_of(&primary, "middle");
    let far = place.standby_of(&primary, "far");
    add_destination(&middle, &far, &["--mode", "async"]);
    add_destination(&near, &middle, &["--mode", "async"]);
    add_destination(&primary, &near, &["--mode", "sync-affirm"]);
    await_status(&primary, "the far sync follows", Status::streams);
    await_status(&near, "the first standby follows", Status::streams);
    await_status(&middle, "the second standby follows", Status::streams);
    let mut application = place.application(&database);
    let mut reader = place.application(&far.standby_database("app.db"));
    for committed in 2..12 {
        application.run(INSERT);
        reader.run(SYNC);
        assert_eq!(number(&mut reader, COUNT), committed);
    }
    assert_eq!(status_of(&mut reader)["primary"], "south");
    // What a member in the middle holds says nothing of the primary.
    reader.run("PRAGMA standfast_max_data_delay = 1");
    await_read(&mut reader);
    primary.process().unwrap().freeze(true);
    await_too_old(&mut reader);
    primary.process().unwrap().freeze(false);
    await_read(&mut reader);
}

#[test]
fn unapplied_redo_makes_data_old_however_well_the_standby_is_connected() {
    let place = Place::new("fresh-apply");
    let (primary, standby, database) = place.pair(&QUICK);
    let mut reader = place.application(&standby.standby_database("app.db"));
    reader.run("PRAGMA standfast_max_data_delay = 1");
    await_read(&mut reader);
    must(&standby, &["apply", "stop"]);
    // Nothing is missing yet.
    reader.run(SYNC);
    let mut application = place.application(&database);
    application.run(INSERT);
    await_status(&primary, "the standby holds it", |status| {
        status.number("/destinations/0/hardened") >= status.number("/captured")
    });
    reader.fails(SYNC.replace("60", "0.3").as_str(), SQLITE_ERROR);
    await_too_old(&mut reader);
    must(&standby, &["apply", "start"]);
    reader.run(SYNC);
    assert_eq!(number(&mut reader, COUNT), 2);
}

#[test]
fn database_that_is_stopped_alone_gets_old_alone() {
    let place = Place::new("fresh-stopped");
    let (primary, mut standby, database) = place.pair(&QUICK);
    let other = place.database("other.db");
    must(&primary, &["protect", &other.to_string_lossy()]);
    place.insert(&other, 1);
    await_status(&primary, "it is applied", Status::settled);
    let copy = standby.standby_database("app.db");
    standby.stop().unwrap();
    // Apply to this database stops at the start, and continues for the others.
    place.foreigner(&copy).run("UPDATE t SET x = 'foreign'");
    start(&mut standby);
    place.insert(&database, 1);
    place.insert(&other, 1);
    let mut reader = place.application(&standby.standby_database("other.db"));
    reader.run(SYNC);
    assert_eq!(number(&mut reader, COUNT), 3);
    let mut behind = place.application(&copy);
    behind.fails(SYNC.replace("60", "0.5").as_str(), SQLITE_ERROR);
    behind.run("PRAGMA standfast_max_data_delay = 1");
    await_too_old(&mut behind);
    await_read(&mut reader);
}

#[test]
fn file_that_was_replaced_while_open_is_not_current() {
    let place = Place::new("fresh-replaced");
    let (_primary, standby, database) = place.pair(&QUICK);
    let copy = standby.standby_database("app.db");
    let mut reader = place.application(&copy);
    reader.run("PRAGMA standfast_max_data_delay = 1000");
    await_read(&mut reader);
    let other = place.path("other.db");
    std::fs::copy(&copy, &other).unwrap();
    std::fs::rename(&other, &copy).unwrap();
    let why = await_too_old(&mut reader);
    assert!(why.contains("close and reopen it"), "{why}");
    place.insert(&database, 1);
    assert!(reader.fails(SYNC.replace("60", "0.5").as_str(), SQLITE_ERROR).contains("standfast"));
}

#[test]
fn primary_that_was_replaced_is_not_current() {
    let place = Place::new("fresh-fenced");
    let (mut primary, standby, database) = place.pair(&QUICK);
    let mut reader = place.application(&database);
    reader.run("PRAGMA standfast_max_data_delay = 5");
    await_read(&mut reader);
    primary.process().unwrap().freeze(true);
    must(&standby, &["failover", "--force"]);
    primary.process().unwrap().freeze(false);
    await_status(&primary, "it is fenced", |status| status.text("/state") == "fenced");
    let why = await_too_old(&mut reader);
    assert!(why.contains("another instance is the primary now"), "{why}");
    reader.run("PRAGMA standfast_max_data_delay = none");
    assert_eq!(number(&mut reader, COUNT), 1);
    // Nor is one that does not run.
    let copy = standby.standby_database("app.db");
    let mut there = place.application(&copy);
    there.run("PRAGMA standfast_max_data_delay = 5");
    await_read(&mut there);
    primary.kill();
    let mut standby = standby;
    standby.kill();
    let why = await_too_old(&mut there);
    assert!(why.contains("does not serve it"), "{why}");
    assert_eq!(number(&mut place.application(&copy), COUNT), 1);
}

#[test]
fn questions_are_answered_after_each_change_of_roles() {
    let place = Place::new("fresh-roles");
    let (south, north, database) = place.pair(&QUICK);
    let copy = north.standby_database("app.db");
    let check = |writes: &Path, reads: &Path, rows: i64| {
        let mut application = place.application(writes);
        application.run(INSERT);
        let mut reader = place.application(reads);
        reader.run(SYNC);
        assert_eq!(number(&mut reader, COUNT), rows);
    };
    check(&database, &copy, 2);
    must(&south, &["switchover", "north"]);
    await_status(&north, "it follows", |status| status.streams() && status.settled());
    check(&copy, &database, 3);
    must(&north, &["switchover", "south"]);
    await_status(&south, "it follows", |status| status.streams() && status.settled());
    check(&database, &copy, 4);
}

#[test]
fn refused_write_at_a_standby_names_the_primary() {
    let place = Place::new("names-primary");
    let (_primary, standby, _database) = place.pair(&QUICK);
    let mut application = place.application(&standby.standby_database("app.db"));
    application.fails(INSERT, SQLITE_READONLY);
    let why = status_of(&mut application)["last_error"].as_str().unwrap().to_owned();
    assert!(why.contains("write to the primary, `south`, or "), "{why}");
}

#[test]
fn process_with_another_clock_does_not_judge_the_age() {
    let wrapper = ["unshare", "--time", "--boottime", "100000", "--fork"].map(str::to_owned);
    let works = std::process::Command::new("unshare").args(&wrapper[1..]).arg("true").output();
    if !works.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this machine has no time namespaces, or this user may not make one");
        return;
    }
    let place = Place::new("fresh-time");
    let (_primary, standby, _database) = place.pair(&QUICK);
    let mut reader = Client::wrapped(&place, &wrapper, &standby.standby_database("app.db"));
    assert_eq!(number(&mut reader, COUNT), 1);
    reader.run("PRAGMA standfast_max_data_delay = 1000");
    let why = await_too_old(&mut reader);
    assert!(why.contains("another clock"), "{why}");
}
