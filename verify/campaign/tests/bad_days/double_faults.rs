//! Two faults in a row lose what the protection mode says, and nothing else.

use crate::support::{INSERT, Place, QUICK, add_destination, await_alert, await_status, must, start};
use crate::writers::Writers;
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use std::path::PathBuf;
use std::time::Duration;

/// Sets up a primary whose commits wait for the standbys `names`, all of them synchronised.
fn synchronised(place: &Place, names: &[&str]) -> (Instance, Vec<Instance>, PathBuf) {
    let (primary, database) = place.protecting();
    let standbys: Vec<Instance> = names.iter().map(|name| place.standby_of(&primary, name)).collect();
    for standby in &standbys {
        add_destination(&primary, standby, &QUICK);
    }
    await_status(&primary, "all standbys are synchronised", |status| {
        status.settled()
            && (0..names.len()).all(|at| {
                status.text(&format!("/destinations/{at}/state")) == "streaming"
                    && status.json()["destinations"][at]["required"] == true
            })
    });
    (primary, standbys, database)
}

fn ids(database: &std::path::Path) -> Vec<i64> {
    let connection = standfast_campaign::verify::open_plain(database).unwrap();
    let mut rows = connection.prepare("SELECT id FROM t ORDER BY id").unwrap();
    rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Maximum availability: commits acknowledged after the loss of the standby are on one machine, and the alert log
/// reports it.
#[test]
fn loss_of_primary_after_standby_loses_only_commits_in_between() {
    let place = Place::new("degraded-and-lost");
    let (mut primary, mut standbys, database) = synchronised(&place, &["north"]);
    let mut application = place.application(&database);
    application.run("INSERT INTO t(id, x) VALUES(10, 'both')");
    standbys[0].kill();
    application.run("INSERT INTO t(id, x) VALUES(20, 'alone')");
    await_alert(&primary, "DEGRADED");
    await_status(&primary, "no other instance has what is committed", |status| {
        status.json()["protection"]["level"] == "resynchronization"
    });
    await_alert(&primary, "protection level: resynchronization");
    primary.kill();
    start(&mut standbys[0]);
    must(&standbys[0], &["failover"]);
    assert_eq!(ids(&standbys[0].standby_database("app.db")), [1, 10]);
}

/// Maximum protection: no commit is acknowledged after the loss of the standby.
#[test]
fn maximum_protection_loses_no_commit_when_both_hosts_fail() {
    let place = Place::new("protected-and-lost");
    let (mut primary, mut standbys, database) = synchronised(&place, &["north"]);
    must(&primary, &["protection-mode", "maximum-protection"]);
    let mut application = place.application(&database);
    application.run("INSERT INTO t(id, x) VALUES(10, 'both')");
    standbys[0].kill();
    application.send("INSERT INTO t(id, x) VALUES(20, 'alone')");
    await_alert(&primary, "STALLED");
    assert!(application.answer_within(Duration::ZERO).is_none(), "acknowledged, and on one machine");
    primary.kill();
    start(&mut standbys[0]);
    must(&standbys[0], &["failover"]);
    assert_eq!(ids(&standbys[0].standby_database("app.db")), [1, 10]);
    let answer = application.answer_within(Duration::ZERO);
    assert!(!matches!(answer, Some(Answer::Rows(_))), "acknowledged without an instance: {answer:?}");
}

/// With two standbys the second fault loses nothing either, whichever of them failed.
#[test]
fn remaining_standby_has_everything_when_primary_is_lost_too() {
    for lost in [0, 1] {
        let place = Place::new("one-of-two");
        let (mut primary, mut standbys, database) = synchronised(&place, &["north", "east"]);
        let writers = Writers::start(&place, &database, 3);
        writers.await_progress();
        standbys[lost].kill();
        writers.await_progress();
        primary.kill();
        let acknowledged = writers.noted();
        let left = &standbys[1 - lost];
        must(left, &["failover"]);
        acknowledged.all_in(&left.standby_database("app.db"));
    }
}

/// Of two standbys that were lost one after the other, the one lost last has more redo and is the one to fail over to.
#[test]
fn standby_lost_last_has_the_commits_acknowledged_in_between() {
    let place = Place::new("two-lost");
    let (mut primary, mut standbys, database) = synchronised(&place, &["north", "east"]);
    must(&primary, &["protection-mode", "maximum-protection"]);
    let mut application = place.application(&database);
    application.run("INSERT INTO t(id, x) VALUES(10, 'three')");
    standbys[0].kill();
    application.run("INSERT INTO t(id, x) VALUES(20, 'two')");
    standbys[1].kill();
    application.send(INSERT);
    await_alert(&primary, "STALLED");
    primary.kill();
    for standby in &mut standbys {
        start(standby);
    }
    let hardened = |standby: &Instance| standby.status().unwrap().number("/standby/hardened");
    assert!(hardened(&standbys[1]) > hardened(&standbys[0]), "status says which one has more");
    must(&standbys[1], &["failover"]);
    let found = ids(&standbys[1].standby_database("app.db"));
    assert!(found.starts_with(&[1, 10, 20]), "{found:?}");
}
