//! Faults of the network and of peers.

use crate::support::{
    A_WHILE, INSERT, Place, TIMEOUT, add_destination, assert_same, await_alert, await_status, must, rows,
    start,
};
use crate::writers::Writers;
use standfast_campaign::status::Status;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

#[test]
fn garbage_on_the_port_is_refused_and_disturbs_no_stream() {
    let place = Place::new("garbage");
    let (primary, standby, database) = place.pair(&[]);
    let mut garbage = vec![0xa5u8; 100_000];
    garbage.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= (at * 31 % 251) as u8);
    for (instance, bytes) in [
        (&primary, &garbage[..]),
        (&standby, &garbage[..]),
        (&standby, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        (&primary, &[0; 4096]),
        (&standby, &[0xff; 4096]),
    ] {
        let mut stream = TcpStream::connect(&instance.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        // The other end may close before it has read everything.
        let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer);
        assert!(
            !matches!(&end, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
            "left open: {end:?}"
        );
        assert!(answer.len() < 4096);
    }
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
}

#[test]
fn half_open_connections_block_no_other_peer() {
    let place = Place::new("half-open");
    let (primary, database) = place.protecting();
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&primary.address).unwrap()).collect();
    let standby = place.standby_of(&primary, "north");
    let more: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&standby.address).unwrap()).collect();
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    drop((silent, more));
}

#[test]
fn standby_refuses_redo_of_an_unrelated_primary() {
    let place = Place::new("wrong-peer");
    let (primary, standby, database) = place.pair(&[]);
    let other_family = place.primary("west");
    add_destination(&other_family, &standby, &["--mode", "async", "--no-wait"]);
    let status = await_status(&other_family, "the destination refuses", |status| {
        status.text("/destinations/0/state") == "failed"
    });
    assert_eq!(status.number("/destinations/0/hardened"), 0);
    await_alert(&other_family, "destination north: refused: ");
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
}

const DEGRADED: &str = "destination north: DEGRADED to asynchronous";

#[test]
fn silent_standby_is_degraded_after_the_net_timeout() {
    let place = Place::new("degrade");
    let (primary, standby, database) = place.pair(&["--on-timeout", "degrade", "--net-timeout-ms", "700"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    await_status(&primary, "commits wait for the standby", |status| {
        status.settled() && status.json()["destinations"][0]["required"] == true
    });
    standby.process().unwrap().freeze(true);
    let begun = Instant::now();
    application.run(INSERT);
    let waited = begun.elapsed().as_millis();
    assert!(waited >= 600, "went on after {waited} ms");
    let status = primary.status().unwrap();
    assert_eq!(status.json()["destinations"][0]["required"], false, "{}", status.json());
    await_alert(&primary, DEGRADED);
    application.run(INSERT);
    // If it were required again, it would have to be degraded again before a commit returns.
    assert_eq!(primary.alerts().matches(DEGRADED).count(), 1, "{}", primary.alerts());
    standby.process().unwrap().freeze(false);
    await_status(&primary, "commits wait for the standby again", |status| {
        status.json()["destinations"][0]["required"] == true
    });
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&database), 5);
}

#[test]
fn stall_policy_waits_for_a_silent_standby_without_limit() {
    let place = Place::new("stall");
    let (primary, standby, database) = place.pair(&["--on-timeout", "stall", "--net-timeout-ms", "400"]);
    let mut application = place.application(&database);
    standby.process().unwrap().freeze(true);
    application.send(INSERT);
    await_alert(&primary, "destination north: STALLED");
    assert_eq!(application.answer_within(4 * A_WHILE), None, "committed without the standby");
    let status = primary.status().unwrap();
    assert_eq!(status.text("/destinations/0/standing"), "stalled", "{}", status.json());
    assert_eq!(status.number("/waiting_commits"), 1);
    assert_eq!(status.text("/waiting_for"), "SYNC destination north (stalled)");
    let printed = must(&primary, &["status"]);
    for words in ["WAITING for SYNC destination north (stalled); commits held up: 1", "hint: "] {
        assert!(printed.contains(words), "`{words}` is missing: {printed}");
    }
    standby.process().unwrap().freeze(false);
    application.answer();
    let status = primary.status().unwrap();
    assert_eq!(status.text("/waiting_for"), "", "{}", status.json());
    assert_same(&primary, &standby, &database);
}

#[test]
fn commits_waiting_for_a_lost_standby_show_its_name() {
    let place = Place::new("gone");
    let (primary, mut standby, database) = place.pair(&["--on-timeout", "stall", "--net-timeout-ms", "400"]);
    let mut application = place.application(&database);
    standby.kill();
    await_status(&primary, "the connection is lost", |status| !status.streams());
    assert_eq!(primary.status().unwrap().text("/waiting_for"), "", "nothing waits yet");
    application.send(INSERT);
    await_status(&primary, "the wait has its name", |status| {
        status.text("/waiting_for").starts_with("SYNC destination north (")
    });
    await_status(&primary, "the stall has its name", |status| {
        status.text("/waiting_for") == "SYNC destination north (stalled)"
    });
    start(&mut standby);
    application.answer();
    await_status(&primary, "nothing waits", |status| status.text("/waiting_for").is_empty());
    assert_same(&primary, &standby, &database);
}

#[test]
fn killed_standby_catches_up_when_it_returns() {
    let place = Place::new("returns");
    let (primary, mut standby, database) =
        place.pair(&["--on-timeout", "degrade", "--net-timeout-ms", "300"]);
    let mut application = place.application(&database);
    standby.kill();
    // More than the log buffer holds of one log group: the rest comes from the logs.
    for _ in 0..40 {
        application.run(crate::support::INSERT_BULK);
    }
    start(&mut standby);
    await_status(&primary, "the standby has caught up", |status| status.streams() && status.settled());
    assert_same(&primary, &standby, &database);
    assert!(Status::settled(&primary.status().unwrap()));
}

/// A standby that starts listens before it can receive redo. Commits keep waiting for it meanwhile. (A standby that is
/// shut down cleanly reports that, and commits do not wait for it: `stops.rs`.)
#[test]
fn a_standby_that_is_restarted_under_load_stays_required() {
    let place = Place::new("restarts");
    // Only a refusal could degrade it within the time of this test.
    let (mut primary, mut standby, database) =
        place.pair(&["--on-timeout", "degrade", "--net-timeout-ms", "600000"]);
    let writers = Writers::start(&place, &database, 2);
    // Its start takes a while.
    standby.faults = Some("replace=sleep:300@1".into());
    for _ in 0..6 {
        writers.await_progress();
        standby.kill();
        // An intact marker is not rewritten, so the fault would not strike.
        let marker = format!("{}-standfast", standby.standby_database("app.db").display());
        std::fs::remove_file(marker).unwrap();
        start(&mut standby);
    }
    writers.await_progress();
    let status = primary.status().unwrap();
    assert_eq!(status.json()["destinations"][0]["required"], true, "{}", status.json());
    let alerts = primary.alerts();
    assert!(alerts.contains("[starting]"), "the primary was never faster than the standby: {alerts}");
    assert!(!alerts.contains("DEGRADED"), "{alerts}");

    primary.kill();
    let acknowledged = writers.noted();
    must(&standby, &["failover"]);
    acknowledged.all_in(&standby.standby_database("app.db"));
}
