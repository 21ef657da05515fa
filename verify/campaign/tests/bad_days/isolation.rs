//! One database does not delay commits of another.

use crate::support::{INSERT, Place, TIMEOUT, await_alert, await_status, must, start};
use rusqlite::Connection;
use std::time::Duration;

/// Time within which an unobstructed commit returns. Far below every timeout for a lock.
const UNHINDERED: Duration = Duration::from_secs(10);

#[test]
fn protect_behind_an_open_transaction_delays_no_other_database() {
    let place = Place::new("protect-behind");
    let (primary, database) = place.protecting();
    let mut application = place.application(&database);
    let busy = place.database("busy.db");
    let writer = Connection::open(&busy).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; INSERT INTO t(x) VALUES('open')").unwrap();
    let protect = primary.begin(&["protect", &busy.to_string_lossy()]).unwrap();
    // Long enough that each commit meets a `protect` that waits for the write lock.
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        application.send(INSERT);
        assert!(application.answer_within(UNHINDERED).is_some(), "a commit waits for another database");
    }
    must(&primary, &["switch-logfile"]);
    assert!(!protect.ended_within(Duration::ZERO), "it did not wait: {}", primary.last_words());
    writer.execute_batch("COMMIT").unwrap();
    assert!(protect.wait_for_end(TIMEOUT).unwrap().success(), "{}", primary.last_words());
    drop(writer);
    place.application(&busy).run(INSERT);
}

#[test]
fn transaction_open_over_a_restart_delays_only_its_database() {
    let place = Place::new("open-over-restart");
    let (mut primary, database) = place.protecting();
    let busy = place.database("busy.db");
    must(&primary, &["protect", &busy.to_string_lossy()]);
    let (mut application, mut holder) = (place.application(&database), place.application(&busy));
    application.run(INSERT);
    holder.run("BEGIN IMMEDIATE");
    holder.run(INSERT);
    primary.kill();
    start(&mut primary);
    await_alert(&primary, "database busy.db: a transaction that was begun before this start");
    application.send(INSERT);
    assert!(application.answer_within(UNHINDERED).is_some(), "a commit waits for another database");
    must(&primary, &["checkpoint"]);
    // Its outcome may be unknown: the instance was down while the transaction was open.
    let _ = holder.try_run("COMMIT");
    await_alert(&primary, "database busy.db opened");
    place.application(&busy).run(INSERT);
    let standby = place.standby_of(&primary, "north");
    crate::support::add_destination(&primary, &standby, &[]);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    crate::support::assert_same(&primary, &standby, &busy);
}
