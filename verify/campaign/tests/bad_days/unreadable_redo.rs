//! Redo that a standby holds and cannot read: an archived log is damaged, or was moved away.

use crate::support::{
    Client, INSERT, Place, TIMEOUT, add_destination, assert_same, await_alert, await_rows, await_status,
    must, refuses, rows, start,
};
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use standfast_format::{LogFileHeader, decode_block};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ROUNDS: i64 = 6;

/// Sets up a synchronous standby that has applied everything.
fn pair(place: &Place) -> (Instance, Instance, PathBuf) {
    let (primary, database) = place.protecting();
    let standby = place.standby_of(&primary, "north");
    add_destination(&primary, &standby, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    assert_same(&primary, &standby, &database);
    (primary, standby, database)
}

/// Writes a row into each of more logs than there are groups: redo that is not applied is then in archived logs only.
fn fill(primary: &Instance, mut application: Client) {
    for _ in 0..ROUNDS {
        application.run(INSERT);
        must(primary, &["switch-logfile"]);
    }
    application.close();
}

/// Sets up a pair whose standby has applied none of that, and holds it on disk only.
fn behind(place: &Place) -> (Instance, Instance, PathBuf) {
    let (primary, mut standby, database) = pair(place);
    standby.stop().unwrap();
    standby.configure("standby", "apply_delay_s", 3600).unwrap();
    start(&mut standby);
    await_status(&primary, "the standby follows again", Status::streams);
    fill(&primary, place.application(&database));
    standby.stop().unwrap();
    start(&mut standby);
    await_status(&primary, "the standby follows once more", Status::streams);
    let copy = standby.standby_database("app.db");
    assert_eq!(rows(&copy), 1);
    (primary, standby, copy)
}

/// Returns the archived log with this index; 2 is in the middle of the redo that is not applied.
fn archived_log(standby: &Instance, at: usize) -> PathBuf {
    let entries = std::fs::read_dir(standby.directory.join("archive")).unwrap();
    let mut logs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    logs.sort();
    logs.swap_remove(at)
}

fn away(log: &Path) -> PathBuf {
    log.with_extension("away")
}

fn name(log: &Path) -> String {
    log.file_name().unwrap().to_string_lossy().into_owned()
}

fn nothing_is_stopped(status: &Status) -> bool {
    status.json()["standby"]["stopped_databases"].as_array().is_none_or(Vec::is_empty)
}

#[test]
fn missing_archived_log_is_applied_when_it_returns() {
    let place = Place::new("redo-missing");
    let (_primary, standby, copy) = behind(&place);
    let log = archived_log(&standby, 2);
    std::fs::rename(&log, away(&log)).unwrap();
    must(&standby, &["apply", "start", "--no-delay"]);
    await_alert(&standby, "apply waits for redo that cannot be read: cannot open the archived log");
    await_status(&standby, "it says so", |status| !nothing_is_stopped(status));
    assert!(rows(&copy) < 1 + ROUNDS);
    std::fs::rename(away(&log), &log).unwrap();
    await_rows(&copy, 1 + ROUNDS);
    await_status(&standby, "it is over", nothing_is_stopped);
    await_alert(&standby, "apply: the redo can be read again");
}

/// Tests recovery when the archived log with index `at` is missing at the start of the standby.
fn recovery_waits_for(test: &str, at: usize) {
    let place = Place::new(test);
    let (primary, mut standby, database) = pair(&place);
    must(&standby, &["apply", "stop"]);
    fill(&primary, place.application(&database));
    standby.stop().unwrap();
    let log = archived_log(&standby, at);
    std::fs::rename(&log, away(&log)).unwrap();
    start(&mut standby);
    await_alert(&standby, "apply waits for redo that cannot be read: cannot read redo from SCN");
    assert!(standby.alerts().contains("an archived log is missing in"), "{}", standby.alerts());
    std::fs::rename(away(&log), &log).unwrap();
    assert_same(&primary, &standby, &database);
    await_status(&standby, "it is over", nothing_is_stopped);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
}

#[test]
fn standby_recovery_waits_for_a_missing_archived_log() {
    recovery_waits_for("redo-missing-at-start", 2);
}

#[test]
fn standby_recovery_waits_for_a_missing_oldest_archived_log() {
    recovery_waits_for("redo-oldest-missing", 0);
}

#[test]
fn failover_succeeds_once_a_missing_archived_log_is_back() {
    let place = Place::new("redo-missing-failover");
    let (mut primary, standby, copy) = behind(&place);
    let log = archived_log(&standby, 2);
    std::fs::rename(&log, away(&log)).unwrap();
    must(&standby, &["apply", "start", "--no-delay"]);
    await_alert(&standby, "apply waits for redo");
    primary.kill();
    refuses(&standby, &["failover"], 1, &[&name(&log), "still a standby"]);
    std::fs::rename(away(&log), &log).unwrap();
    // Also when apply has not detected it yet.
    must(&standby, &["failover"]);
    assert_eq!(rows(&copy), 1 + ROUNDS);
    place.application(&copy).run(INSERT);
}

/// Damages everything in the file but its header.
fn damage(log: &Path) {
    let mut bytes = std::fs::read(log).unwrap();
    bytes[4096..].iter_mut().for_each(|byte| *byte ^= 0x55);
    // In place, because the instance has the file open.
    let mut file = std::fs::OpenOptions::new().write(true).open(log).unwrap();
    file.write_all(&bytes).unwrap();
}

#[test]
fn failover_is_refused_while_redo_it_needs_is_damaged() {
    let place = Place::new("redo-damaged");
    let (mut primary, standby, copy) = behind(&place);
    let log = archived_log(&standby, 2);
    std::fs::copy(&log, away(&log)).unwrap();
    damage(&log);
    primary.kill();
    refuses(&standby, &["failover"], 1, &[&name(&log), "is damaged", "still a standby"]);
    await_alert(&standby, "is damaged");
    std::fs::rename(away(&log), &log).unwrap();
    must(&standby, &["failover"]);
    assert_eq!(rows(&copy), 1 + ROUNDS);
    place.application(&copy).run(INSERT);
}

#[test]
fn redo_damaged_in_a_group_is_read_from_its_archived_log() {
    let place = Place::new("redo-damaged-group");
    let (mut primary, standby, copy) = behind(&place);
    let groups = std::fs::read_dir(standby.directory.join("redo")).unwrap();
    let groups: Vec<PathBuf> = groups.map(|entry| entry.unwrap().path()).collect();
    let archived = |log: &Path| {
        let sequence = LogFileHeader::decode(&std::fs::read(log).unwrap()).unwrap().sequence;
        let archive = standby.directory.join("archive");
        let logs = std::fs::read_dir(archive).unwrap().map(|entry| name(&entry.unwrap().path()));
        logs.into_iter().any(|log| log.contains(&format!("_{sequence:08}_")))
    };
    let held: Vec<&PathBuf> =
        groups.iter().filter(|log| name(log).contains("standby") && archived(log)).collect();
    assert!(held.len() > 1, "{groups:?}");
    held.into_iter().for_each(|log| damage(log));
    primary.kill();
    must(&standby, &["failover"]);
    assert_eq!(rows(&copy), 1 + ROUNDS);
    place.application(&copy).run(INSERT);
}

/// Damages a block of the log that `instance`, which does not run, was filling: a block before the last that it wrote.
fn damage_the_end(instance: &Instance) {
    let files = std::fs::read_dir(instance.directory.join("redo")).unwrap();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap();
        let header = LogFileHeader::decode(&bytes).ok()?;
        Some((header.sequence, header.block_bytes as usize, path, bytes))
    };
    let logs = files.filter_map(|file| read(file.unwrap().path()));
    let (sequence, size, path, mut bytes) = logs.max_by_key(|(sequence, ..)| *sequence).unwrap();
    let written = |block: &[u8]| {
        decode_block(block).is_ok_and(|block| block.sequence == sequence && block.payload_bytes > 0)
    };
    let blocks: Vec<usize> =
        (0..bytes.len() / size).filter(|at| written(&bytes[at * size..(at + 1) * size])).collect();
    assert!(blocks.len() > 4, "{blocks:?}");
    let at = blocks[blocks.len() / 2] * size;
    bytes[at + 100..at + 200].iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_end_of_a_standby_log_is_repaired_by_its_primary() {
    let place = Place::new("redo-damaged-end");
    let (mut primary, mut standby, database) = pair(&place);
    must(&standby, &["apply", "stop"]);
    let mut application = place.application(&database);
    (0..ROUNDS).for_each(|_| drop(application.run(INSERT)));
    application.close();
    primary.kill();
    standby.kill();
    damage_the_end(&standby);
    start(&mut standby);
    await_alert(&standby, "apply waits for redo that cannot be read: redo log");
    let copy = standby.standby_database("app.db");
    // Neither at the first attempt, which opens the log again, nor at the second.
    for _ in 0..2 {
        refuses(&standby, &["failover"], 1, &["is damaged: redo from SCN", "its primary", "still a standby"]);
    }
    assert_eq!(rows(&copy), 1, "nothing is applied that may be a mixture");
    standby.kill();
    start(&mut standby);
    refuses(&standby, &["failover"], 1, &["is damaged: redo from SCN"]);

    start(&mut primary);
    await_alert(&standby, "the redo that was damaged here has come again");
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    await_status(&standby, "it is over", nothing_is_stopped);
    primary.kill();
    standby.kill();
    start(&mut standby);
    must(&standby, &["failover"]);
    assert_eq!(rows(&copy), 2 + ROUNDS);
    place.application(&copy).run(INSERT);
}

#[test]
fn failover_that_needs_no_damaged_redo_succeeds() {
    let place = Place::new("redo-damaged-applied");
    let (mut primary, standby, database) = pair(&place);
    let mut application = place.application(&database);
    (0..ROUNDS).for_each(|_| drop(application.run(INSERT)));
    application.close();
    assert_same(&primary, &standby, &database);
    primary.kill();
    damage_the_end(&standby);
    must(&standby, &["failover"]);
    await_alert(&standby, "failover: a log is not archived: ");
    let copy = standby.standby_database("app.db");
    assert_eq!(rows(&copy), 1 + ROUNDS);
    place.application(&copy).run(INSERT);
}

#[test]
fn primary_with_a_damaged_redo_log_opens_only_with_until_scn() {
    let place = Place::new("redo-damaged-primary");
    let (mut primary, database) = place.protecting();
    let mut application = place.application(&database);
    (0..ROUNDS).for_each(|_| drop(application.run(INSERT)));
    application.close();
    primary.kill();
    damage_the_end(&primary);
    let printed = refuses(&primary, &["start"], 1, &["is damaged: redo from SCN", "fail over to a standby"]);
    let scn = printed.split("--until-scn ").nth(1).unwrap();
    let scn: String = scn.chars().take_while(char::is_ascii_digit).collect();
    let other = (scn.parse::<u64>().unwrap() + 1).to_string();
    refuses(&primary, &["start", "--until-scn", &other], 1, &["is damaged"]);
    let running = primary.begin(&["start", "--until-scn", &scn]).unwrap();
    await_condition("it is open", TIMEOUT, || {
        Ok(primary.status().map(drop).map_err(|error| error.to_string()))
    })
    .unwrap_or_else(|error| panic!("{error}"));
    place.application(&database).run(INSERT);
    assert_eq!(rows(&database), 2 + ROUNDS, "what the database holds counts");
    must(&primary, &["stop"]);
    assert!(running.wait_for_end(Duration::from_secs(30)).unwrap().success());
    start(&mut primary);
    place.application(&database).run(INSERT);
    assert_eq!(rows(&database), 3 + ROUNDS);
}
