//! Protection modes: commits after the loss of one standby, and of all.

use crate::support::{INSERT, Place, add_destination, assert_same, await_alert, await_status, must, refuses};
use crate::support::{QUICK, SQLITE_IOERR, TIMEOUT, start};
use crate::writers::Writers;
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;

fn mode(primary: &Instance, mode: &str) {
    must(primary, &["protection-mode", mode]);
}

fn level(status: &Status) -> String {
    status.text("/protection/level").to_owned()
}

/// Sets up a primary in maximum protection with two standbys.
fn protected_by_two(place: &Place) -> (Instance, [Instance; 2], std::path::PathBuf) {
    let (primary, database) = place.protecting();
    let standbys = ["north", "east"].map(|name| place.standby_of(&primary, name));
    for standby in &standbys {
        add_destination(&primary, standby, &QUICK);
    }
    await_status(&primary, "both standbys are synchronised", |status| {
        status.settled() && level(status) == "maximum-availability"
    });
    mode(&primary, "maximum-protection");
    (primary, standbys, database)
}

#[test]
fn maximum_protection_stops_primary_without_its_last_standby() {
    let place = Place::new("protection");
    let mut primary = place.instance("west");
    primary.configure("protection", "stop_after_s", 1).unwrap();
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut standbys = ["north", "east"].map(|name| place.standby_of(&primary, name));
    for standby in &standbys {
        add_destination(&primary, standby, &QUICK);
    }
    await_status(&primary, "both standbys are synchronised", |status| {
        (0..2).all(|at| status.text(&format!("/destinations/{at}/state")) == "streaming")
    });
    mode(&primary, "maximum-protection");
    assert_eq!(level(&primary.status().unwrap()), "maximum-protection");

    standbys[0].kill();
    let mut application = place.application(&database);
    application.run(INSERT);
    await_alert(&primary, "another destination protects commits");
    assert_eq!(level(&primary.status().unwrap()), "maximum-protection");

    standbys[1].kill();
    application.send(INSERT);
    await_alert(&primary, "STALLED");
    await_alert(&primary, "protection level: resynchronization");
    await_alert(&primary, "STOPPING for the safety of the data");
    // Its commit was never acknowledged.
    let status = primary.take_process().unwrap().wait_for_end(TIMEOUT).unwrap();
    assert_eq!(status.code(), Some(3), "{}", primary.last_words());
    let printed = std::fs::read_to_string(primary.directory.with_extension("out")).unwrap();
    assert!(printed.contains("standfast protection-mode"), "{printed}");
    let answer = application.answer();
    let standfast_campaign::application::client::Answer::Failed { code, .. } = answer else {
        panic!("an unprotected commit was acknowledged: {answer:?}")
    };
    assert_eq!(code & 0xff, SQLITE_IOERR);

    // With one of them back, the primary opens and continues.
    start(&mut standbys[1]);
    start(&mut primary);
    place.application(&database).run(INSERT);
    await_status(&primary, "protected again", |status| level(status) == "maximum-protection");
}

#[test]
fn protection_mode_needs_a_destination_and_does_not_release_it() {
    let place = Place::new("mode-refused");
    let (primary, _) = place.protecting();
    assert_eq!(
        must(&primary, &["protection-mode"]).trim(),
        "maximum availability, level MAXIMUM PERFORMANCE"
    );
    let no_destination = ["SYNC AFFIRM", "add one first"];
    refuses(&primary, &["protection-mode", "maximum-protection"], 3, &no_destination);
    let mut standby = place.standby_of(&primary, "north");
    add_destination(&primary, &standby, &[&QUICK[..], &["--mode", "fastsync"]].concat());
    refuses(&primary, &["protection-mode", "maximum-protection"], 3, &no_destination);
    standby.kill();
    add_destination(&primary, &standby, &QUICK);
    refuses(&primary, &["protection-mode", "maximum-protection"], 3, &["synchronised now"]);
    assert_eq!(level(&primary.status().unwrap()), "resynchronization");
    start(&mut standby);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    mode(&primary, "maximum-protection");
    refuses(&primary, &["destination", "remove", "north"], 3, &["maximum protection needs"]);
    refuses(&primary, &["destination", "defer", "north"], 3, &["maximum protection needs"]);
    refuses(
        &primary,
        &["destination", "add", "north", &standby.address, "--on-timeout", "degrade"],
        3,
        &["no use for it"],
    );
    mode(&primary, "maximum-availability");
    must(&primary, &["destination", "defer", "north"]);
    refuses(&standby, &["protection-mode", "maximum-protection"], 3, &["at the primary"]);
}

/// A failover must open the new primary even if the old one was in maximum protection.
#[test]
fn failover_from_maximum_protection_opens_with_everything() {
    let place = Place::new("protection-failover");
    let (mut primary, [north, _east], database) = protected_by_two(&place);
    let writers = Writers::start(&place, &database, 3);
    writers.await_progress();
    primary.kill();
    let acknowledged = writers.noted();
    must(&north, &["failover"]);
    acknowledged.all_in(&north.standby_database("app.db"));
    assert_eq!(north.status().unwrap().text("/protection/mode"), "maximum-availability");
}

#[test]
fn deferred_destination_catches_up_when_it_is_enabled() {
    let place = Place::new("defer");
    let (primary, standby, database) = place.pair(&QUICK);
    must(&primary, &["destination", "defer", "north"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    let listed = must(&primary, &["destination", "list"]);
    assert!(listed.contains("DEFER") && listed.contains("SYNC AFFIRM NET_TIMEOUT=1.500"), "{listed}");
    assert!(primary.status().unwrap().json()["destinations"].as_array().unwrap().is_empty());
    must(&primary, &["destination", "enable", "north"]);
    assert_same(&primary, &standby, &database);
}

#[test]
fn attributes_are_set_in_oracle_syntax_and_errors_name_them() {
    let place = Place::new("attributes");
    let (primary, standby, database) = place.pair(&[]);
    let set = |attributes: &str| format!("SERVICE={} {attributes} DB_UNIQUE_NAME=north", standby.address);
    must(&primary, &["destination", "set", "4", &set("ASYNC REOPEN=2 MAX_FAILURE=7")]);
    let listed: serde_json::Value =
        serde_json::from_str(&must(&primary, &["destination", "list", "--json"])).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!((&listed[0]["id"], &listed[0]["config"]["reopen_ms"]), (&4.into(), &2000.into()));
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    refuses(
        &primary,
        &["destination", "set", "4", &set("NET_TIMEOUT=4000")],
        2,
        &["net_timeout_ms", "1200000"],
    );
    refuses(&primary, &["destination", "set", "4", &set("GRUOP=1")], 2, &["GRUOP=1", "unknown"]);
    refuses(&primary, &["destination", "set", "12", &set("SYNC")], 2, &["11 to 31 are async"]);
    refuses(&primary, &["destination", "set", "4", "SERVICE=h:1 SYNC"], 2, &["DB_UNIQUE_NAME"]);
    must(&primary, &["destination", "set", "4", ""]);
    assert_eq!(must(&primary, &["destination", "list"]), "");
}
