//! Zero loss to a standby too distant to wait for: a far sync near the primary receives the redo and forwards it.

use crate::shared_configuration::await_configuration;
use crate::support::{
    A_WHILE, INSERT, INSERT_BULK, Place, TIMEOUT, add_destination, await_alert, await_rows, await_status,
    must, refuses, rows, start,
};
use crate::writers::Writers;
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use std::path::PathBuf;

struct Site {
    primary: Instance,
    near: Instance,
    far: Instance,
    database: PathBuf,
}

/// Sets up `south`, which ships synchronously to the far sync `near`, which forwards to the standby `far`. `faults` are
/// those of `far`.
fn site(place: &Place, faults: Option<&str>) -> Site {
    let (primary, database) = place.protecting();
    let mut near = Instance::far_sync_of(&primary, &place.path("near"), "near").unwrap();
    start(&mut near);
    // The database has not changed since then, so the far sync holds all the redo that the new standby needs.
    let mut far = place.standby_of(&primary, "far");
    if faults.is_some() {
        far.stop().unwrap();
        far.faults = faults.map(str::to_owned);
        start(&mut far);
    }
    add_destination(&near, &far, &["--mode", "async"]);
    add_destination(&primary, &near, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    await_status(&primary, "the far sync follows", |status| {
        status.streams() && status.number("/destinations/0/hardened") >= status.number("/captured")
    });
    await_status(&near, "the standby follows", Status::streams);
    Site { primary, near, far, database }
}

#[test]
fn far_sync_only_forwards_redo_and_cannot_take_over() {
    let place = Place::new("far-sync");
    let Site { primary, near, far, database } = site(&place, None);
    let mut application = place.application(&database);
    for _ in 0..10 {
        application.run(INSERT);
        must(&primary, &["switch-logfile"]);
    }
    await_rows(&far.standby_database("app.db"), 11);
    let status = near.status().unwrap();
    assert_eq!((status.role(), status.text("/state")), ("far sync", "forwarding"));
    assert!(status.json().get("databases").is_none() && !near.standby_database("app.db").exists());
    let destination = primary.status().unwrap().json()["destinations"][0].clone();
    assert!(destination["role"] == "far sync" && destination["applied"].is_null(), "{destination}");
    assert_eq!(far.status().unwrap().text("/standby/source/role"), "far sync");
    let database = database.to_string_lossy();
    for command in [&["failover"][..], &["switch-logfile"], &["protect", &database]] {
        refuses(&near, command, 3, &["far sync", "hint: ", "standby that it feeds"]);
    }
    // Its logs are reused although no redo is applied there.
    let archived = near.status().unwrap().number("/log/archived");
    assert!(archived >= 5, "{archived}");
}

#[test]
fn far_standby_takes_over_with_all_acknowledged_commits() {
    let place = Place::new("far-sync-failover");
    // So slow that it is always behind.
    let Site { mut primary, near, far, database } = site(&place, Some("received=sleep:300@1+"));
    let writers = Writers::start(&place, &database, 4);
    for _ in 0..5 {
        writers.await_progress();
    }
    primary.kill();
    let acknowledged = writers.noted();
    let printed = far.run(&["failover"]).unwrap();
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    assert!(printed.stderr.contains("everything that its source, `near`, has is here"), "{}", printed.stderr);
    acknowledged.all_in(&far.standby_database("app.db"));
    drop(near);
}

#[test]
fn failover_waits_for_returning_source_and_warns_without_one() {
    let place = Place::new("far-sync-gone");
    let Site { mut primary, mut near, mut far, database } = site(&place, None);
    far.kill();
    let mut application = place.application(&database);
    application.run(INSERT);
    primary.kill();
    near.kill();
    start(&mut far);
    let early = far.begin(&["failover", "--wait", "60"]).unwrap();
    await_alert(&far, "waiting for what `near` still has");
    start(&mut near);
    assert!(early.ended_within(TIMEOUT), "{}", far.alerts());
    await_alert(&far, "everything that its source, `near`, has is here");
    assert_eq!(rows(&far.standby_database("app.db")), 2);

    let place = Place::new("far-sync-lost");
    let Site { mut primary, mut near, far, .. } = site(&place, None);
    primary.kill();
    near.kill();
    let printed = far.run(&["failover", "--wait", "0"]).unwrap();
    // The failover is done, and this database may lack commits.
    assert_eq!(printed.code, 6, "{}", printed.stderr);
    for word in ["warning: NOT KNOWN", "`near`", "hint: "] {
        assert!(printed.stderr.contains(word), "{}", printed.stderr);
    }
}

/// Makes `near` forward to `far` synchronously from now on.
fn wait_for_both(near: &Instance, far: &Instance, more: &str) {
    let attributes = format!(
        "SERVICE={} SYNC AFFIRM VALID_FOR=(STANDBY_LOGFILE,STANDBY_ROLE) {more} DB_UNIQUE_NAME=far",
        far.address
    );
    must(near, &["destination", "set", "1", &attributes]);
    await_status(near, "it is synchronous", |status| {
        status.streams() && status.text("/destinations/0/mode") == "sync-affirm"
    });
}

/// `far` is slow: without waiting for it, it would lack the last acknowledged commits.
#[test]
fn synchronous_forwarding_survives_loss_of_primary_and_far_sync() {
    let place = Place::new("far-sync-chain");
    let Site { mut primary, mut near, far, database } = site(&place, Some("received=sleep:100@1+"));
    wait_for_both(&near, &far, "ON_TIMEOUT=STALL");
    let writers = Writers::start(&place, &database, 4);
    for _ in 0..3 {
        writers.await_progress();
        near.kill();
        start(&mut near);
    }
    writers.await_progress();
    primary.kill();
    near.kill();
    let acknowledged = writers.noted();
    assert_eq!(far.run(&["failover", "--wait", "0"]).unwrap().code, 6, "it cannot know that it has all");
    acknowledged.all_in(&far.standby_database("app.db"));
}

#[test]
fn silent_far_sync_destination_delays_commits_for_net_timeout() {
    let place = Place::new("far-sync-degrade");
    let Site { primary, near, mut far, database } = site(&place, None);
    wait_for_both(&near, &far, "NET_TIMEOUT=1 ON_TIMEOUT=DEGRADE");
    let mut application = place.application(&database);
    application.run(INSERT);
    far.kill();
    application.run(INSERT);
    await_alert(&near, "destination far: DEGRADED");
    start(&mut far);
    await_alert(&near, "destination far: resynchronised");
    application.run(INSERT);
    await_rows(&far.standby_database("app.db"), 4);
    assert!(!primary.alerts().contains("DEGRADED"), "{}", primary.alerts());
}

#[test]
fn absent_standby_of_a_far_sync_is_left_behind() {
    let place = Place::new("far-sync-volume");
    let Site { primary, mut near, mut far, database } = site(&place, None);
    near.stop().unwrap();
    near.configure("redo", "archive_bytes_max", 16 << 20).unwrap();
    start(&mut near);
    await_status(&near, "the standby follows", Status::streams);
    far.kill();
    let mut application = place.application(&database);
    // Five logs of 8 MiB.
    for _ in 0..84 {
        application.run(INSERT_BULK);
    }
    must(&primary, &["switch-logfile"]);
    await_alert(&near, "destination far: LEFT BEHIND");
    start(&mut far);
    await_alert(&near, "[gap]");
    application.run(INSERT);
    assert!(!primary.alerts().contains("DEGRADED"), "{}", primary.alerts());
}

#[test]
fn far_sync_killed_repeatedly_loses_nothing() {
    let place = Place::new("far-sync-kill");
    let Site { mut primary, mut near, far, database } = site(&place, None);
    let writers = Writers::start(&place, &database, 4);
    for round in 0..6 {
        writers.await_progress();
        if round == 2 {
            must(&primary, &["switch-logfile"]);
        }
        near.kill();
        start(&mut near);
    }
    writers.await_progress();
    primary.kill();
    let acknowledged = writers.noted();
    // Once more when it is the only one left.
    near.kill();
    start(&mut near);
    must(&far, &["failover"]);
    acknowledged.all_in(&far.standby_database("app.db"));
}

/// Maximum protection through the far sync, and a failover while the old primary still runs.
#[test]
fn far_sync_acknowledges_no_old_primary_after_a_failover() {
    let place = Place::new("far-sync-replaced");
    let Site { primary, mut near, far, database } = site(&place, None);
    // Else the new primary would ship to the far sync at once.
    must(&primary, &["dg", "edit configuration set property BystandersFollowRoleChange = NONE"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    await_configuration(&primary, &far);
    refuses(&far, &["failover"], 3, &["is alive", "standfast failover --force"]);
    must(&far, &["failover", "--force"]);
    let copy = far.standby_database("app.db");
    await_alert(&near, "nothing of an older one is acknowledged here");
    await_status(&primary, "it is fenced", |status| status.text("/state") == "fenced");
    application.send(INSERT);
    let answer = application.answer_within(A_WHILE);
    assert!(!matches!(answer, Some(Answer::Rows(_))), "the old primary acknowledged a commit");
    assert_eq!(near.status().unwrap().number("/standby/superseded_by/incarnation"), 2);
    // The far sync remembers this, until the new primary ships to it.
    near.stop().unwrap();
    start(&mut near);
    assert_eq!(near.status().unwrap().number("/standby/superseded_by/incarnation"), 2);
    add_destination(&far, &near, &["--mode", "sync-affirm"]);
    place.application(&copy).run(INSERT);
    await_status(&far, "the far sync follows", Status::streams);
    assert!(near.status().unwrap().json()["standby"]["superseded_by"].is_null());
}
