//! A standby that reconnects after logs were written fetches them over separate connections while commits continue.

use crate::support::{
    INSERT, INSERT_BULK, Place, TIMEOUT, add_destination, assert_same, await_alert, await_status, must, rows,
    start,
};
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use std::path::{Path, PathBuf};

/// Number of half-megabyte rows that fill six logs of 8 MiB.
const SIX_LOGS: usize = 100;
const ROW_BYTES: u64 = 500_000;
const GAP: &str = "/destinations/0/gap";

fn has_gap(status: &Status) -> bool {
    status.json().pointer(GAP).is_some_and(|gap| gap.is_object())
}

/// Sets up a primary with a redo log for tests of gaps, and a standby that follows it.
fn followed(place: &Place, faults: &str, mode: &str) -> (Instance, Instance, PathBuf) {
    let (mut primary, database) = (place.instance("south"), place.database("app.db"));
    primary.configure("redo", "archive_processes", 4).unwrap();
    primary.configure("redo", "archive_unit_bytes", 1 << 20).unwrap();
    primary.faults = Some(faults.into());
    start(&mut primary);
    must(&primary, &["protect", &database.to_string_lossy()]);
    let standby = place.standby_of(&primary, "north");
    let more = ["--mode", mode, "--max-connections", "2", "--net-timeout-ms", "6000"];
    add_destination(&primary, &standby, &more);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    (primary, standby, database)
}

/// Sets up a primary whose standby, `north`, lacks logs and does not run.
fn missed(place: &Place, faults: &str, mode: &str) -> (Instance, Instance, PathBuf) {
    let (primary, mut standby, database) = followed(place, faults, mode);
    standby.kill();
    write_logs(place, &primary, &database, SIX_LOGS);
    // Until the timeout a commit waits for the standby, even when it is back and has a gap.
    await_status(&primary, "no commit waits for the standby", |status| {
        status.text("/destinations/0/standing") != "required"
    });
    (primary, standby, database)
}

fn write_logs(place: &Place, primary: &Instance, database: &Path, rows: usize) {
    let before = primary.status().unwrap().number("/durable");
    let mut application = place.application(database);
    // Commits with `nowait` do not wait for the standby either.
    application.run("PRAGMA standfast_commit_write = 'nowait'");
    for _ in 0..rows {
        application.run(INSERT_BULK);
    }
    application.close();
    await_status(primary, "all of it is in the log", |status| {
        status.number("/durable") > before + rows as u64 * ROW_BYTES
    });
    await_status(primary, "all full logs are archived", |status| {
        let groups = status.json()["log"]["groups"].as_array().unwrap();
        groups.iter().all(|group| group["state"] != "active" || group["archived"] == true)
    });
}

#[test]
fn commits_continue_while_a_gap_is_filled_over_many_connections() {
    for mode in ["async", "sync-affirm"] {
        let place = Place::new("gap");
        let (primary, mut standby, database) = missed(&place, "archive-send=sleep:40@1+", mode);
        start(&mut standby);
        let found = await_status(&primary, "the gap is found", has_gap);
        let to = found.number(&format!("{GAP}/to"));
        let mut application = place.application(&database);
        let mut seen = 0;
        // Commits continue, and their redo is sent to the standby.
        await_status(&primary, "the gap is resolved", |status| {
            application.run(INSERT);
            if !has_gap(status) {
                return true;
            }
            let hardened = status.number("/destinations/0/hardened");
            assert!(hardened < to, "{hardened} counts, and before {to} something is missing");
            seen += u64::from(status.number(&format!("{GAP}/connections")) >= 2);
            false
        });
        assert!(seen > 0, "several connections at a time");
        application.run(INSERT);
        await_alert(&primary, "gap resolved: logs");
        await_alert(&standby, "gap resolved: logs");
        let low = found.number(&format!("{GAP}/low_sequence"));
        assert!(found.number(&format!("{GAP}/high_sequence")) > low + 3);
        assert_same(&primary, &standby, &database);
        // The logs also survive a restart.
        standby.stop().unwrap();
        application.run(INSERT);
        start(&mut standby);
        assert_same(&primary, &standby, &database);
    }
}

#[test]
fn standby_killed_during_gap_resolution_keeps_received_logs() {
    let place = Place::new("gap-killed");
    let (primary, mut standby, database) = missed(&place, "archive-send=sleep:20@1+", "async");
    let mut application = place.application(&database);
    let mut fewer = 0;
    for round in 0..4u64 {
        start(&mut standby);
        let gap = await_status(&primary, "the gap is found", has_gap);
        let low = gap.number(&format!("{GAP}/low_sequence"));
        application.run(INSERT);
        // One log more than in the previous iteration.
        let what = format!("a log comes in round {round}");
        await_status(&standby, &what, |status| status.number("/standby/hardened") > fewer);
        fewer = standby.status().unwrap().number("/standby/hardened");
        standby.kill();
        assert!(low > round.saturating_sub(1), "it begins again: {}", standby.alerts());
    }
    start(&mut standby);
    await_status(&primary, "everything has come", |status| status.streams() && !has_gap(status));
    application.run(INSERT);
    assert!(standby.alerts().contains("were missing at the stop"), "{}", standby.alerts());
    assert_same(&primary, &standby, &database);
}

#[test]
fn primary_killed_during_gap_resolution_resumes_it() {
    let place = Place::new("gap-primary");
    let (mut primary, mut standby, database) = missed(&place, "archive-send=sleep:20@1+", "async");
    start(&mut standby);
    for _ in 0..2 {
        await_status(&primary, "the gap is found", has_gap);
        primary.kill();
        await_alert(&standby, "is not filled");
        start(&mut primary);
    }
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
}

#[test]
fn failover_with_a_gap_applies_up_to_it_and_reports_the_rest() {
    let place = Place::new("gap-failover");
    // Sends the first two logs, of 9 units each, and no more.
    let faults = "archive-send=sleep:600000@24+";
    let (mut primary, mut standby, database) = missed(&place, faults, "async");
    let begun = standby.directory.clone();
    start(&mut standby);
    let to = await_status(&primary, "the gap is found", has_gap).number(&format!("{GAP}/to"));
    let mut application = place.application(&database);
    application.run(INSERT);
    let end = primary.status().unwrap().number("/captured");
    await_condition("live redo is there", TIMEOUT, || {
        let status = standby.status()?;
        let groups = status.json()["log"]["groups"].as_array().unwrap().clone();
        let beyond = groups.iter().any(|group| group["first_scn"].as_u64() == Some(to));
        Ok(if beyond { Ok(()) } else { Err(format!("{groups:?}")) })
    })
    .unwrap();
    assert!(end > to && begun.exists());
    primary.kill();
    await_alert(&standby, "is not filled");
    must(&standby, &["failover"]);
    let alerts = standby.alerts();
    assert!(alerts.contains("a gap was open: redo"), "{alerts}");
    let copy = standby.standby_database("app.db");
    let left = rows(&copy);
    assert!(left < 1 + SIX_LOGS as i64, "{left} rows over a hole");
    // It serves, and a standby of its own receives everything.
    place.application(&copy).run(INSERT);
    let second = place.standby_of(&standby, "west");
    add_destination(&standby, &second, &["--mode", "sync-affirm"]);
    place.application(&copy).run(INSERT);
    assert_same(&standby, &second, &copy);
}

#[test]
fn gap_at_the_end_of_a_log_keeps_redo_that_apply_still_needs() {
    let place = Place::new("gap-boundary");
    let (primary, mut standby, database) = followed(&place, "archive-send=sleep:1@1+", "async");
    standby.stop().unwrap();
    standby.configure("standby", "apply_delay_s", 3600).unwrap();
    start(&mut standby);
    place.application(&database).run(INSERT);
    let settled = |status: &Status| {
        status.streams() && status.number("/destinations/0/hardened") == status.number("/durable")
    };
    await_status(&primary, "the standby has the row and does not apply it", settled);
    standby.stop().unwrap();
    let end = primary.status().unwrap().number("/durable");
    // The next log begins where the standby's redo ends.
    must(&primary, &["switch-logfile"]);
    write_logs(&place, &primary, &database, SIX_LOGS);
    start(&mut standby);
    await_alert(&standby, "gap resolved: logs");
    assert!(standby.alerts().contains(&format!("{end}")), "{}", standby.alerts());
    must(&standby, &["apply", "start", "--no-delay"]);
    assert_same(&primary, &standby, &database);
}
