//! The configuration that all instances share: a new primary continues with what the old one had configured.

use crate::security;
use crate::support::{
    INSERT, Place, QUICK, TIMEOUT, add_destination, assert_same, assert_same_files, await_alert, await_rows,
    await_status, must, start,
};
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request;
use std::path::PathBuf;

/// A primary, `south`, with a synchronous and an asynchronous standby, and its database.
pub fn family(place: &Place) -> (Instance, Instance, Instance, PathBuf) {
    let (south, database) = place.protecting();
    let [north, east] = ["north", "east"].map(|name| place.standby_of(&south, name));
    add_destination(&south, &north, &QUICK);
    add_destination(&south, &east, &["--mode", "async", "--reopen-ms", "200"]);
    await_status(&south, "both follow", |status| status.streams() && status.settled());
    await_configuration(&south, &north);
    (south, north, east, database)
}

fn ask(instance: &Instance, request: &Request) -> serde_json::Value {
    control_client::ask(&instance.directory, request).unwrap()
}

/// Waits until `standby` has the configuration that `primary` has, and returns it.
#[track_caller]
pub fn await_configuration(primary: &Instance, standby: &Instance) -> serde_json::Value {
    let shared = ask(primary, &Request::Configuration);
    let kept = || match ask(standby, &Request::Configuration) {
        kept if kept["version"] == shared["version"] => Ok(Ok(())),
        kept => Ok(Err(kept.to_string())),
    };
    await_condition("the standby has the configuration of the primary", TIMEOUT, kept).unwrap();
    shared
}

/// How the destination of this name is configured; null: there is none.
fn listed(instance: &Instance, name: &str) -> serde_json::Value {
    let all = ask(instance, &Request::ListDestinations);
    all.as_array()
        .unwrap()
        .iter()
        .find(|at| at["name"] == name)
        .map_or(serde_json::Value::Null, |at| at["config"].clone())
}

#[test]
fn bystander_follows_the_new_primary_after_a_failover_as_it_was_shipped_to() {
    let place = Place::new("shared-failover");
    let (mut south, north, east, database) = family(&place);
    place.application(&database).run(INSERT);
    let shared = await_configuration(&south, &north);
    assert_eq!(shared["standbys"].as_array().unwrap().len(), 2, "{shared}");
    south.kill();
    must(&north, &["failover"]);
    let copy = north.standby_database("app.db");
    place.application(&copy).run(INSERT);
    await_rows(&east.standby_database("app.db"), 3);
    let east_now = listed(&north, "east");
    assert_eq!((&east_now["mode"], &east_now["reopen_ms"]), (&"async".into(), &200.into()), "{east_now}");
    // And the old one, once it is a standby.
    must(&south, &["reinstate", "--yes"]);
    start(&mut south);
    await_status(&north, "all follow", |status| status.streams() && status.settled());
    place.application(&copy).run(INSERT);
    assert_same_files(&north, &south, &copy, &database);
    // And on to the third.
    await_configuration(&north, &east);
    must(&north, &["switchover", "east"]);
    await_status(&east, "all follow", |status| status.streams() && status.settled());
    for standby in ["south", "north"] {
        assert_ne!(listed(&east, standby), serde_json::Value::Null, "{standby}");
    }
}

#[test]
fn bystander_follows_over_tls() {
    let place = Place::new("shared-tls");
    let (mut south, database) = security::primary(&place);
    let [north, east] = ["north", "east"].map(|name| security::standby(&place, &south, name, &[]));
    add_destination(&south, &north, &["--mode", "sync-affirm"]);
    add_destination(&south, &east, &["--mode", "async"]);
    place.application(&database).run(INSERT);
    await_rows(&east.standby_database("app.db"), 2);
    assert_same(&south, &north, &database);
    await_configuration(&south, &north);
    south.kill();
    must(&north, &["failover"]);
    place.application(&north.standby_database("app.db")).run(INSERT);
    await_rows(&east.standby_database("app.db"), 3);
}

#[test]
fn change_of_the_configuration_reaches_standbys_at_once_and_after_an_outage() {
    let place = Place::new("shared-changes");
    let (south, mut north, east, _) = family(&place);
    let before = await_configuration(&south, &north);
    must(
        &south,
        &["destination", "add", "east", &east.address, "--mode", "async", "--net-timeout-ms", "4000"],
    );
    let after = await_configuration(&south, &north);
    assert_eq!(after["version"].as_u64(), before["version"].as_u64().map(|version| version + 1));
    assert_eq!(after["standbys"][1]["net_timeout_ms"], 4000, "{after}");
    north.kill();
    must(&south, &["destination", "remove", "east"]);
    start(&mut north);
    await_configuration(&south, &north);
    assert_eq!(ask(&north, &Request::Configuration)["standbys"].as_array().unwrap().len(), 1);
}

#[test]
fn bystanders_stay_where_they_are_if_the_configuration_says_so() {
    let place = Place::new("shared-alone");
    let (mut south, north, _east, _) = family(&place);
    must(&south, &["dg", "edit configuration set property BystandersFollowRoleChange = NONE"]);
    await_configuration(&south, &north);
    south.kill();
    must(&north, &["failover"]);
    assert_eq!(listed(&north, "east"), serde_json::Value::Null);
    assert_eq!(
        ask(&north, &Request::Configuration)["role_change"]["bystanders_follow"],
        false,
        "it holds there too"
    );
}

#[test]
fn failover_goes_through_although_the_configuration_cannot_be_written() {
    let place = Place::new("shared-disk");
    let (mut south, north, east, database) = family(&place);
    place.application(&database).run(INSERT);
    assert_same(&south, &east, &database);
    await_configuration(&south, &north);
    south.kill();
    let in_the_way = ["standfast.toml.new", "configuration.new"].map(|name| north.directory.join(name));
    for directory in &in_the_way {
        std::fs::create_dir(directory).unwrap();
    }
    must(&north, &["failover"]);
    await_alert(&north, "standbys of the old primary cannot be configured here");
    await_alert(&north, "the shared configuration is not durable here");
    place.application(&north.standby_database("app.db")).run(INSERT);
    for directory in &in_the_way {
        std::fs::remove_dir(directory).unwrap();
    }
    add_destination(&north, &east, &["--mode", "async"]);
    await_rows(&east.standby_database("app.db"), 3);
    await_configuration(&north, &east);
}

#[test]
fn damaged_shared_configuration_is_replaced_by_the_primary_s() {
    let place = Place::new("shared-damaged");
    let (south, mut north, _east, _) = family(&place);
    await_configuration(&south, &north);
    north.stop().unwrap();
    std::fs::write(north.directory.join("configuration"), "{ \"version\": 90").unwrap();
    start(&mut north);
    await_configuration(&south, &north);
}

#[test]
fn settings_of_the_last_primary_hold_when_an_earlier_one_is_back() {
    let place = Place::new("shared-back");
    let (south, north, east, database) = family(&place);
    let west = place.standby_of(&south, "west");
    add_destination(&south, &west, &["--mode", "async"]);
    must(&south, &["switchover", "north"]);
    await_status(&north, "all follow", |status| status.streams() && status.settled());
    must(&north, &["dg", "edit database east set property NetTimeout = 7"]);
    must(&north, &["dg", "remove database west"]);
    // The switchover itself hands the configuration over.
    must(&north, &["switchover", "south"]);
    await_status(&south, "all follow", |status| status.streams() && status.settled());
    assert_eq!(listed(&south, "east")["net_timeout_ms"], 7000);
    assert_eq!(listed(&south, "west"), serde_json::Value::Null, "it was removed");
    place.application(&database).run(INSERT);
    await_rows(&east.standby_database("app.db"), 2);
    // Added at this one, it is back for all.
    add_destination(&south, &west, &["--mode", "async"]);
    must(&south, &["switchover", "north"]);
    await_status(&north, "all follow", |status| status.streams() && status.settled());
    assert_ne!(listed(&north, "west"), serde_json::Value::Null);
}

#[test]
fn primary_that_has_lost_its_shared_configuration_makes_another_that_counts() {
    let place = Place::new("shared-lost");
    let (mut south, north, ..) = family(&place);
    for seconds in 3..6 {
        must(&south, &["dg", &format!("edit database east set property NetTimeout = {seconds}")]);
    }
    let kept = await_configuration(&south, &north);
    south.stop().unwrap();
    std::fs::write(south.directory.join("configuration"), "").unwrap();
    start(&mut south);
    await_alert(&south, "cannot be read");
    must(&south, &["dg", "edit database east set property NetTimeout = 9"]);
    let now = await_configuration(&south, &north);
    assert!(now["version"].as_u64() < kept["version"].as_u64(), "{now}");
    assert_eq!(ask(&north, &Request::Configuration)["standbys"][1]["net_timeout_ms"], 9000);
}

#[test]
fn refused_failover_changes_no_settings_and_one_without_the_configuration_is_reported() {
    let place = Place::new("shared-refused");
    let (mut south, mut north, _east, _) = family(&place);
    await_configuration(&south, &north);
    let settings = north.directory.join("standfast.toml");
    let before = std::fs::read_to_string(&settings).unwrap();
    assert_eq!(north.run(&["failover"]).unwrap().code, 3);
    assert_eq!(std::fs::read_to_string(&settings).unwrap(), before);
    // The primary is lost, and so is what it has sent.
    south.kill();
    north.stop().unwrap();
    std::fs::remove_file(north.directory.join("configuration")).unwrap();
    start(&mut north);
    assert_eq!(north.run(&["failover"]).unwrap().code, 6, "it has heard nothing since its start");
    await_alert(&north, "the configuration of the old primary has not come here");
    assert_eq!(listed(&north, "east"), serde_json::Value::Null);
}
