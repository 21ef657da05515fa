//! Peers that claim to be the primary without the right to, and how a fence is lifted.

use crate::security::{create, joined, primary, standby, token};
use crate::support::{
    A_WHILE, INSERT, Place, QUICK, TIMEOUT, add_destination, assert_same, await_alert, await_rows,
    await_status, must, refuses, start,
};
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use std::net::{TcpListener, TcpStream};

const NOT_ACCEPTED: &str = "which is not accepted: `reports` may not become primary";

/// Fails over an instance although its family does not allow it, as its operator or an attacker there could.
fn seize(instance: &Instance, name: &str) {
    must(instance, &["cert", "allow", name]);
    must(instance, &["failover", "--force"]);
}

#[test]
fn host_barred_from_the_primary_role_fences_no_primary() {
    let place = Place::new("rights-fence");
    let (mut south, database) = primary(&place);
    let north = standby(&place, &south, "north", &[]);
    let reports = standby(&place, &south, "reports", &["--never-primary"]);
    add_destination(&south, &north, &["--mode", "sync-affirm"]);
    add_destination(&south, &reports, &["--mode", "async"]);
    await_status(&south, "both follow", |status| status.streams() && Status::settled(status));
    refuses(&reports, &["failover"], 3, &["may not become primary", "fail over another standby"]);
    seize(&reports, "reports");
    // The primary connects to it.
    await_alert(&south, NOT_ACCEPTED);
    await_alert(&reports, NOT_ACCEPTED);
    // It connects to the primary and to a standby.
    add_destination(&reports, &south, &["--mode", "async", "--no-wait"]);
    add_destination(&reports, &north, &["--mode", "async", "--no-wait"]);
    await_alert(&reports, "may not send redo at `south`");
    await_alert(&reports, "may not send redo at `north`");
    must(&south, &["destination", "remove", "reports"]);
    place.application(&database).run(INSERT);
    assert_same(&south, &north, &database);
    south.kill();
    start(&mut south);
    await_status(&south, "it is open", |status| status.text("/state") == "open");
    // The same holds after a failover, because the allow-list is replicated.
    south.kill();
    must(&north, &["failover"]);
    add_destination(&north, &reports, &["--mode", "async", "--no-wait"]);
    assert_eq!(listed(&north, "reports"), ONLY_RECEIVES);
}

const ONLY_RECEIVES: &str = r#"["receive","read","status"]"#;

/// Returns the rights of `name` on the allow-list of `instance`; empty when it is not on the list.
fn listed(instance: &Instance, name: &str) -> String {
    let shown: serde_json::Value =
        serde_json::from_str(&must(instance, &["cert", "show", "--json"])).unwrap();
    let peer = shown["peers"].as_array().unwrap().iter().find(|peer| peer["name"] == name);
    peer.map(|peer| peer["rights"].to_string()).unwrap_or_default()
}

#[test]
fn revoked_member_regains_no_right_as_a_destination() {
    let place = Place::new("rights-revoke");
    let (south, database) = primary(&place);
    let reports = standby(&place, &south, "reports", &["--never-primary"]);
    add_destination(&south, &reports, &["--mode", "async"]);
    await_status(&south, "it follows", |status| status.streams() && Status::settled(status));
    let remedy = ["is a destination of this instance", "standfast destination remove reports"];
    refuses(&south, &["cert", "revoke", "reports"], 3, &remedy);
    assert_eq!(listed(&south, "reports"), ONLY_RECEIVES);
    must(&south, &["destination", "remove", "reports"]);
    must(&south, &["cert", "revoke", "reports"]);
    assert_eq!(listed(&south, "reports"), "[]");
    // Configuring it again as a destination does not restore its rights.
    seize(&reports, "reports");
    add_destination(&south, &reports, &["--mode", "async", "--no-wait"]);
    await_alert(&south, "`reports` may not receive redo, `south` lists it for: nothing");
    add_destination(&reports, &south, &["--mode", "async", "--no-wait"]);
    await_alert(&reports, "`reports` is not listed among those that may send redo at `south`");
    place.application(&database).run(INSERT);
    assert_eq!(south.status().unwrap().text("/state"), "open");
    must(&south, &["destination", "remove", "reports"]);
    refuses(&south, &["cert", "revoke", "reports"], 3, &["has not joined here"]);
}

/// Waits until `name` has `rights` on the allow-list of `instance`.
fn await_listed(instance: &Instance, name: &str, rights: &str) {
    await_condition(&format!("`{name}` is listed for {rights}"), TIMEOUT, || {
        let found = listed(instance, name);
        Ok(if found == rights { Ok(()) } else { Err(found) })
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn restriction_reaches_hosts_behind_an_open_stream() {
    let place = Place::new("rights-later");
    let (south, database) = primary(&place);
    let north = standby(&place, &south, "north", &[]);
    add_destination(&south, &north, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    await_status(&south, "it follows", |status| status.streams() && status.settled());
    // It joins while that stream is open, and receives its redo from the standby.
    let reports = standby(&place, &south, "reports", &["--never-primary"]);
    await_listed(&north, "reports", ONLY_RECEIVES);
    add_destination(&north, &reports, &["--mode", "async"]);
    place.application(&database).run(INSERT);
    await_rows(&reports.standby_database("app.db"), 2);
    // Without a certificate it does not sign a record of its promotion.
    must(&reports, &["cert", "allow", "reports"]);
    let identity = reports.directory.join("tls/identity.pem");
    std::fs::rename(&identity, place.path("identity")).unwrap();
    // The failover warns that it does not know what its source has, and continues.
    reports.run(&["failover", "--wait", "0"]).unwrap();
    await_status(&reports, "it is a primary", |status| status.text("/role") == "primary");
    std::fs::rename(place.path("identity"), &identity).unwrap();
    await_alert(&north, NOT_ACCEPTED);
    place.application(&database).run(INSERT);
    assert_same(&south, &north, &database);
    assert_eq!(south.status().unwrap().text("/state"), "open");
    assert_eq!(south.alerts().matches("connected: sending").count(), 1, "the stream was interrupted");
}

#[test]
fn revoked_member_is_refused_at_standbys_with_an_open_stream() {
    let place = Place::new("rights-open");
    let (mut south, database) = primary(&place);
    let oslo = standby(&place, &south, "oslo", &[]);
    let north = standby(&place, &south, "north", &[]);
    add_destination(&south, &oslo, &["--mode", "async"]);
    add_destination(&south, &north, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    await_status(&south, "both follow", |status| status.streams() && Status::settled(status));
    must(&south, &["destination", "remove", "oslo"]);
    must(&south, &["cert", "revoke", "oslo"]);
    await_listed(&north, "oslo", "[]");
    // A failover there uses the revoked certificate.
    must(&oslo, &["failover"]);
    add_destination(&oslo, &north, &["--mode", "async", "--no-wait"]);
    await_alert(&oslo, "`oslo` is not listed among those that may send redo at `north`");
    place.application(&database).run(INSERT);
    assert_same(&south, &north, &database);
    assert_eq!(south.alerts().matches("destination north: connected").count(), 1);
    // The next primary sends it nothing either.
    south.kill();
    must(&north, &["failover"]);
    add_destination(&north, &oslo, &["--mode", "async", "--no-wait"]);
    await_alert(&north, "`oslo` may not receive redo, `north` lists it for: nothing");
    assert_eq!(north.status().unwrap().text("/state"), "open");
}

#[test]
fn revoked_right_ends_the_stream_that_needs_it() {
    let place = Place::new("rights-stream");
    let (south, database) = primary(&place);
    let reports = standby(&place, &south, "reports", &[]);
    add_destination(&south, &reports, &["--mode", "async"]);
    await_status(&south, "it follows", |status| status.streams() && status.settled());
    must(&south, &["cert", "allow", "reports", "--status-only"]);
    await_alert(&reports, "may not receive redo");
    place.application(&database).run(INSERT);
    assert!(!south.status().unwrap().streams());
    must(&south, &["cert", "allow", "reports"]);
    must(&south, &["destination", "enable", "reports"]);
    await_rows(&reports.standby_database("app.db"), 2);
    // The same at the other end: its source may not send any more.
    must(&reports, &["cert", "allow", "south", "--status-only"]);
    await_alert(&south, "`south` may not send redo at `reports`");
}

#[test]
fn promotion_without_a_record_is_recorded_at_the_next_start() {
    let place = Place::new("rights-record");
    let (mut south, _) = primary(&place);
    let mut north = standby(&place, &south, "north", &[]);
    let east = standby(&place, &south, "east", &[]);
    add_destination(&south, &north, &["--mode", "async"]);
    add_destination(&south, &east, &["--mode", "async"]);
    await_status(&south, "both follow", |status| status.streams() && Status::settled(status));
    south.kill();
    // Like an earlier release, which signed no record.
    let identity = north.directory.join("tls/identity.pem");
    std::fs::rename(&identity, place.path("identity")).unwrap();
    north.run(&["failover", "--wait", "0"]).unwrap();
    await_status(&north, "it is a primary", |status| status.text("/role") == "primary");
    std::fs::rename(place.path("identity"), &identity).unwrap();
    north.stop().unwrap();
    start(&mut north);
    add_destination(&north, &east, &["--mode", "async"]);
    await_status(&north, "it is followed", Status::streams);
    north.kill();
    // Only the standby can inform the old primary, which may be fenced before it is open.
    let _ = south.start();
    await_alert(&south, "destination east: FENCED");
}

/// Forwards the first connection to one address and all later ones to another, like an address that moves to another
/// host.
fn change_hands(first: &str, others: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (first, others) = (first.to_owned(), others.to_owned());
    std::thread::spawn(move || {
        let mut to = first;
        while let Ok((near, _)) = listener.accept() {
            let far = TcpStream::connect(&to).unwrap();
            to.clone_from(&others);
            for (mut from, mut into) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut into);
                    let _ = into.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    address
}

#[test]
fn standby_is_not_created_from_a_host_barred_from_primary_role() {
    let place = Place::new("rights-copy");
    let (south, _) = primary(&place);
    let reports = standby(&place, &south, "reports", &["--never-primary"]);
    add_destination(&south, &reports, &["--mode", "async"]);
    await_status(&south, "it follows", |status| status.streams() && status.settled());
    must(&south, &["destination", "remove", "reports"]);
    seize(&reports, "reports");
    must(&reports, &["cert", "allow", "oslo"]);
    let token = token(&place, &south, "oslo", &[]).to_string_lossy().into_owned();
    let from = change_hands(&south.address, &reports.address);
    let made = create(&place, &from, "oslo", "127.0.0.1:1", &["--token-file", &token]);
    let printed = String::from_utf8_lossy(&made.stderr).into_owned();
    assert_eq!(made.status.code(), Some(3), "{printed}");
    assert!(
        printed.contains("`reports` answers at") && printed.contains("where `south` was expected"),
        "{printed}"
    );
    // The certificate was issued; the copy comes from the primary.
    let made = create(&place, &south.address, "oslo", "127.0.0.1:1", &[]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn destination_without_the_receive_right_gets_no_redo() {
    let place = Place::new("rights-receive");
    let (south, database) = primary(&place);
    let watcher = standby(&place, &south, "watcher", &[]);
    let received = || watcher.status().unwrap().number("/standby/received");
    let before = received();
    must(&south, &["cert", "allow", "watcher", "--status-only"]);
    add_destination(&south, &watcher, &["--mode", "async", "--no-wait"]);
    await_alert(&south, "`watcher` may not receive redo, `south` lists it for: read the state");
    place.application(&database).run(INSERT);
    assert_eq!(received(), before);
    must(&south, &["cert", "allow", "watcher"]);
    await_status(&south, "it follows", |status| status.streams() && Status::settled(status));
}

#[test]
fn far_sync_forwards_a_signed_promotion_without_any_right() {
    let place = Place::new("rights-far-sync");
    let (south, database) = primary(&place);
    let mut near = joined(&place, &south, "near", &["--far-sync"], &["--far-sync"]);
    start(&mut near);
    let far = standby(&place, &south, "far", &[]);
    add_destination(&south, &near, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    add_destination(&near, &far, &["--mode", "async"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    must(&far, &["failover", "--force"]);
    await_alert(&near, "nothing of an older one is acknowledged here");
    await_status(&south, "it is fenced", |status| status.text("/state") == "fenced");
    application.send(INSERT);
    let answer = application.answer_within(A_WHILE);
    assert!(!matches!(answer, Some(Answer::Rows(_))), "the old primary acknowledged a commit");
}

#[test]
fn fence_is_not_lifted_while_another_primary_is_open() {
    let place = Place::new("rights-lift");
    let more = [&["--on-timeout", "degrade"], &QUICK[..]].concat();
    let (mut south, mut north, database) = place.pair(&more);
    refuses(&south, &["fence", "lift", "--yes"], 3, &["the instance runs", "standfast stop"]);
    must(&north, &["failover", "--force"]);
    await_status(&south, "it is fenced", |status| status.text("/state") == "fenced");
    south.stop().unwrap();
    refuses(&south, &["fence", "lift", "--yes"], 3, &["`north`", "open as primary, of incarnation 2"]);
    north.stop().unwrap();
    let shown = south.run(&["fence", "lift"]).unwrap();
    assert_eq!(shown.code, 1, "{}", shown.stderr);
    for word in ["MAKE SURE", "incarnation 2", "standby create", "opens as primary"] {
        assert!(shown.stdout.contains(word), "{}", shown.stdout);
    }
    assert!(south.start().is_err(), "nothing was done without --yes");
    south.kill();
    must(&south, &["fence", "lift", "--yes"]);
    start(&mut south);
    assert!(south.alerts().contains("FENCE LIFTED by an operator of incarnation 2"), "{}", south.alerts());
    place.application(&database).run(INSERT);
    // The other instance returns as a primary, and is no longer trusted.
    start(&mut north);
    await_alert(&south, "was disowned at `south`");
    place.application(&database).run(INSERT);
    assert_eq!(south.status().unwrap().text("/state"), "open");
    refuses(&north, &["fence", "lift"], 3, &["the instance runs"]);
}
