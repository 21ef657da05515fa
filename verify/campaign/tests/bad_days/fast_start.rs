//! Fast-start failover: the target takes over by itself when primary and observer agree no longer, and no other member does.

use crate::security;
use crate::support::{
    A_WHILE, Client, INSERT, Place, TIMEOUT, add_destination, assert_same_files, await_alert, await_status,
    must, refuses, rows, start,
};
use crate::writers::Writers;
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::{INSECURE, Instance, free_address};
use standfast_campaign::process::{Process, await_condition};
use standfast_campaign::status::Status;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const SYNC: [&str; 4] = ["--mode", "sync-affirm", "--net-timeout-ms", "1500"];
/// Six seconds: long enough for a busy machine.
pub const FAST: [(&str, &str); 2] = [("ObserverPingInterval", "200"), ("ObserverPingRetry", "30")];

/// An observer's directory and, while it runs, its process.
struct Observer {
    standfast: PathBuf,
    directory: PathBuf,
    address: String,
    process: Option<Process>,
}

fn create(place: &Place, directory: &Path, from: &str, address: &str, more: &[&str]) -> Output {
    let mut command = Command::new(&place.programs.standfast);
    command.args(["observer", "create", "--from", from, "--name", "tokyo", "--listen", address]);
    command.args(more).arg("-D").arg(directory).output().unwrap()
}

impl Observer {
    /// Creates and starts the observer `tokyo`.
    fn start(place: &Place, primary: &Instance, more: &[&str]) -> Observer {
        let (directory, address) = (place.path("tokyo"), free_address().unwrap());
        let made = create(place, &directory, &primary.address, &address, more);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let standfast = place.programs.standfast.clone();
        let mut observer = Observer { standfast, directory, address, process: None };
        observer.again();
        observer
    }

    /// Starts it again.
    fn again(&mut self) {
        let ready = self.directory.join("ready");
        let _ = std::fs::remove_file(&ready);
        let mut command = Command::new(&self.standfast);
        command.args(["start", "-D"]).arg(&self.directory);
        self.process = Some(Process::start(command, &self.directory.join("output")).unwrap());
        await_condition("the observer is ready", TIMEOUT, || {
            Ok(if ready.exists() { Ok(()) } else { Err(self.alerts()) })
        })
        .unwrap();
    }

    fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    fn freeze(&self, yes: bool) {
        self.process.as_ref().unwrap().freeze(yes);
    }

    fn alerts(&self) -> String {
        std::fs::read_to_string(self.directory.join("alert.log")).unwrap_or_default()
    }

    fn is_called(&self) -> String {
        format!("tokyo@{}", self.address)
    }
}

/// A primary, `south`, its synchronous standby, `north`, and the observer, with fast-start failover.
struct Family {
    south: Instance,
    north: Instance,
    observer: Observer,
    database: PathBuf,
}

impl Family {
    fn begin(place: &Place) -> Family {
        let (south, north, database) = place.pair(&SYNC[2..]);
        let observer = Observer::start(place, &south, &[INSECURE]);
        let family = Family { south, north, observer, database };
        for instance in [&family.south, &family.north] {
            // Of a primary that is replaced later.
            instance.configure("instance", "auto_reinstate", true).unwrap();
        }
        family.enable();
        family
    }

    fn enable(&self) {
        set(&self.south, "FastStartFailoverObserver", &self.observer.is_called());
        FAST.iter().for_each(|(name, value)| set(&self.south, name, value));
        must(&self.south, &["dg", "enable", "fast_start", "failover"]);
        await_fast_start(&self.south, "SYNCHRONIZED");
        // The target has heard of it, too.
        await_fast_start(&self.north, "SYNCHRONIZED");
    }

    fn copy(&self) -> PathBuf {
        self.north.standby_database("app.db")
    }
}

pub fn set(primary: &Instance, property: &str, value: &str) {
    must(primary, &["dg", "edit", "configuration", "set", "property", property, "=", value]);
}

fn fast_start(status: &Status) -> String {
    status.json()["fast_start_failover"]["status"].as_str().unwrap_or("none").to_owned()
}

#[track_caller]
pub fn await_fast_start(instance: &Instance, wanted: &str) {
    await_status(instance, wanted, |status| fast_start(status) == wanted);
}

/// Kills the primary, which acknowledged alone, fails over to the standby by command, and kills that, too. While the primary
/// has been heard within the threshold the command is refused.
#[track_caller]
fn fail_over_from_a_primary_that_was_alone(family: &mut Family) {
    family.south.kill();
    start(&mut family.north);
    await_fast_start(&family.north, "UNSYNCHRONIZED");
    await_condition("the primary has been silent for the threshold", TIMEOUT, || {
        let done = family.north.run(&["failover"])?;
        Ok(if done.code == 6 { Ok(()) } else { Err(done.stderr) })
    })
    .unwrap();
    family.north.kill();
}

/// Starts the primary: it acknowledges nothing before the observer has confirmed its place. Returns the application, which
/// waits for its commit.
#[track_caller]
fn start_and_wait_for_the_observer(place: &Place, family: &mut Family) -> Client {
    start(&mut family.south);
    let mut application = place.application(&family.database);
    application.send(INSERT);
    await_status(&family.south, "commits wait for the observer", |status| {
        status.json()["waiting_for"].as_str().is_some_and(|event| event.contains("the observer"))
    });
    assert!(application.answer_within(A_WHILE).is_none());
    application
}

/// The new primary comes back, and the old one finds out that it has been replaced.
#[track_caller]
fn old_primary_acknowledges_nothing_more(family: &mut Family, application: &Client) {
    start(&mut family.north);
    await_alert(&family.south, "FENCED");
    assert!(!matches!(application.answer(), Answer::Rows(_)));
}

pub fn is_open(status: &Status) -> bool {
    status.json()["role"] == "primary" && status.json()["state"] == "open"
}

fn is(role: &str) -> impl Fn(&Status) -> bool + '_ {
    move |status| status.json()["role"] == role
}

#[test]
fn target_takes_over_when_the_primary_dies_and_back_again() {
    let place = Place::new("fast-start");
    let mut family = Family::begin(&place);
    let writers = Writers::start(&place, &family.database, 2);
    writers.await_progress();
    family.south.kill();
    await_status(&family.north, "the target is the primary", is_open);
    let acknowledged = writers.noted();
    drop(writers);
    acknowledged.all_in(&family.copy());
    await_fast_start(&family.north, "UNSYNCHRONIZED");
    place.application(&family.copy()).run(INSERT);
    // The old primary comes back as the target of the new one.
    family.south.configure("instance", "auto_reinstate", true).unwrap();
    start(&mut family.south);
    await_status(&family.south, "it is a standby", is("standby"));
    await_fast_start(&family.north, "SYNCHRONIZED");
    await_fast_start(&family.south, "SYNCHRONIZED");
    place.insert(&family.copy(), 3);
    let before = rows(&family.copy());
    family.north.kill();
    await_status(&family.south, "the old primary is the primary again", is_open);
    assert_eq!(rows(&family.database), before);
    assert_eq!(family.south.status().unwrap().json()["incarnation"], 3);
}

#[test]
fn frozen_primary_is_replaced_and_acknowledges_nothing_more() {
    let place = Place::new("fast-start-frozen");
    let family = Family::begin(&place);
    let mut application = place.application(&family.database);
    application.run(INSERT);
    family.south.process().unwrap().freeze(true);
    await_status(&family.north, "the target is the primary", is_open);
    let before = rows(&family.copy());
    application.send(INSERT);
    family.south.process().unwrap().freeze(false);
    let answer = application.answer();
    await_alert(&family.south, "FENCED");
    // What was answered with success is at the new primary, and this was not.
    assert!(!matches!(answer, Answer::Rows(_)), "{answer:?}");
    assert_eq!(rows(&family.copy()), before);
}

#[test]
fn primary_that_loses_its_target_continues_with_the_observer_and_the_target_stays_a_standby() {
    let place = Place::new("fast-start-alone");
    let mut family = Family::begin(&place);
    family.north.kill();
    let mut application = place.application(&family.database);
    application.run(INSERT);
    await_fast_start(&family.south, "UNSYNCHRONIZED");
    application.run(INSERT);
    assert!(family.observer.alerts().contains("`south` acknowledges alone"), "{}", family.observer.alerts());
    family.south.kill();
    start(&mut family.north);
    await_alert(&family.north, "fast-start failover: UNSYNCHRONIZED");
    // The observer gives no member the place of a primary that acknowledges alone; an operator may decide otherwise.
    assert_eq!(family.north.status().unwrap().json()["role"], "standby");
    start(&mut family.south);
    await_fast_start(&family.south, "SYNCHRONIZED");
    await_fast_start(&family.north, "SYNCHRONIZED");
    application.close();
    place.application(&family.database).run(INSERT);
    assert_same_files(&family.south, &family.north, &family.database, &family.copy());
}

#[test]
fn orderly_stop_of_the_target_holds_no_commit_up() {
    let place = Place::new("fast-start-stop");
    let family = Family::begin(&place);
    // A net timeout that a test would notice.
    must(&family.south, &["dg", "edit", "database", "north", "set", "property", "NetTimeout", "=", "600"]);
    await_fast_start(&family.south, "SYNCHRONIZED");
    must(&family.north, &["stop"]);
    place.application(&family.database).run(INSERT);
    await_fast_start(&family.south, "UNSYNCHRONIZED");
}

#[test]
fn primary_that_was_alone_acknowledges_nothing_after_a_start_before_the_observer_confirms_it() {
    let place = Place::new("fast-start-confirm");
    let mut family = Family::begin(&place);
    family.north.kill();
    await_fast_start(&family.south, "UNSYNCHRONIZED");
    family.south.kill();
    family.observer.freeze(true);
    let application = start_and_wait_for_the_observer(&place, &mut family);
    family.observer.freeze(false);
    assert!(matches!(application.answer(), Answer::Rows(_)));
    // An operator fails over to the standby while the primary is gone; back again, it finds that in the record, also
    // without the standby.
    application.close();
    fail_over_from_a_primary_that_was_alone(&mut family);
    start(&mut family.south);
    await_fast_start(&family.south, "REINSTATE REQUIRED");
    let mut application = place.application(&family.database);
    application.send(INSERT);
    await_status(&family.south, "commits wait for good", |status| {
        status.json()["waiting_for"].as_str().is_some_and(|event| event.contains("`north` takes over"))
    });
    assert!(application.answer_within(A_WHILE).is_none());
    old_primary_acknowledges_nothing_more(&mut family, &application);
}

#[test]
fn observer_that_has_forgotten_confirms_no_primary_before_all_that_could_have_replaced_it_are_heard() {
    let place = Place::new("fast-start-confirm-forgetful");
    let mut family = Family::begin(&place);
    family.north.kill();
    await_fast_start(&family.south, "UNSYNCHRONIZED");
    fail_over_from_a_primary_that_was_alone(&mut family);
    // The observer comes back with what it had before the failover.
    family.observer.kill();
    std::fs::remove_dir_all(&family.observer.directory).unwrap();
    let empty =
        create(&place, &family.observer.directory, "127.0.0.1:9", &family.observer.address, &[INSECURE]);
    assert!(empty.status.success(), "{}", String::from_utf8_lossy(&empty.stderr));
    family.observer.again();
    let application = start_and_wait_for_the_observer(&place, &mut family);
    old_primary_acknowledges_nothing_more(&mut family, &application);
}

#[test]
fn settings_that_were_changed_while_it_did_not_run_let_no_commit_return_without_the_target() {
    let place = Place::new("fast-start-edited");
    let mut family = Family::begin(&place);
    family.south.kill();
    let file = family.south.directory.join("standfast.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let edited = before.replace("mode = \"sync-affirm\"", "mode = \"async\"");
    assert_ne!(edited, before);
    std::fs::write(&file, edited).unwrap();
    family.observer.freeze(true);
    start(&mut family.south);
    let mut application = place.application(&family.database);
    application.send(INSERT);
    assert!(application.answer_within(A_WHILE).is_none());
    application.kill();
    family.south.kill();
    family.observer.freeze(false);
    let other = before.replace("tokyo@", "osaka@");
    std::fs::write(&file, other).unwrap();
    start(&mut family.south);
    await_status(&family.south, "the observer is another one", |status| {
        let error = status.json()["fast_start_failover"]["observer_error"].as_str();
        error.is_some_and(|error| error.contains("it was changed from tokyo@"))
    });
    family.south.kill();
    std::fs::write(&file, &before).unwrap();
    start(&mut family.south);
    await_fast_start(&family.south, "SYNCHRONIZED");
    let name = family.observer.is_called().replace("tokyo", "osaka");
    let change = ["dg", "edit", "configuration", "set", "property", "FastStartFailoverObserver", "=", &name];
    refuses(&family.south, &change, 3, &["while fast-start failover is enabled"]);
    place.application(&family.database).run(INSERT);
}

#[test]
fn no_member_takes_over_from_a_primary_that_is_stopped_on_purpose() {
    let place = Place::new("fast-start-clean-stop");
    let mut family = Family::begin(&place);
    must(&family.south, &["stop"]);
    assert!(family.observer.alerts().ends_with("`south` acknowledges alone: no member may take over\n"));
    await_fast_start(&family.north, "UNSYNCHRONIZED");
    start(&mut family.south);
    await_fast_start(&family.south, "SYNCHRONIZED");
    place.application(&family.database).run(INSERT);
}

#[test]
fn primary_without_target_and_observer_acknowledges_nothing_and_stops() {
    let place = Place::new("fast-start-isolated");
    let mut family = Family::begin(&place);
    let mut application = place.application(&family.database);
    application.run(INSERT);
    family.observer.kill();
    family.north.kill();
    application.send(INSERT);
    await_alert(&family.south, "fast-start failover: STALLED");
    await_alert(&family.south, "STOPPING for the safety of the data: fast-start failover");
    assert!(!matches!(application.answer(), Answer::Rows(_)));
    let ended = family.south.take_process().unwrap().wait_for_end(TIMEOUT).unwrap();
    assert_eq!(ended.code(), Some(3));
    // Started again without the others it still waits for them; with the target it continues.
    start(&mut family.south);
    start(&mut family.north);
    await_fast_start(&family.south, "PRIMARY UNOBSERVED");
    place.application(&family.database).run(INSERT);
    family.observer.again();
    await_fast_start(&family.south, "SYNCHRONIZED");
}

#[test]
fn without_the_observer_commits_continue_and_no_member_takes_over_by_itself() {
    let place = Place::new("fast-start-unobserved");
    let mut family = Family::begin(&place);
    family.observer.kill();
    await_fast_start(&family.south, "PRIMARY UNOBSERVED");
    place.application(&family.database).run(INSERT);
    let check = family.south.run(&["dg", "show", "fast_start", "failover"]).unwrap();
    assert_eq!(check.code, 3, "{check:?}");
    family.south.kill();
    refuses(&family.north, &["failover"], 3, &["the observer does not give", "--force"]);
    // An observer that has just started does not know what was decided without it.
    family.observer.again();
    refuses(&family.north, &["failover"], 3, &["does not decide yet"]);
    assert_eq!(family.north.status().unwrap().json()["role"], "standby");
    must(&family.north, &["failover", "--force"]);
    place.application(&family.copy()).run(INSERT);
    await_fast_start(&family.north, "UNSYNCHRONIZED");
}

#[test]
fn observer_that_lost_its_file_decides_once_both_have_told_it() {
    let place = Place::new("fast-start-forgets");
    let mut family = Family::begin(&place);
    let file = family.observer.directory.join("observer");
    family.observer.kill();
    let damaged = std::fs::read_to_string(&file).unwrap().replace("south", "north");
    std::fs::write(&file, damaged).unwrap();
    family.observer.again();
    assert!(family.observer.alerts().contains("the record is damaged"), "{}", family.observer.alerts());
    await_condition("the observer decides", TIMEOUT, || {
        let shown = family.south.run(&["dg", "show", "observer"])?;
        Ok(if shown.code == 0 { Ok(()) } else { Err(shown.stdout) })
    })
    .unwrap();
    family.south.kill();
    await_status(&family.north, "the target is the primary", is_open);
}

#[test]
fn roles_change_by_command_while_it_is_enabled() {
    let place = Place::new("fast-start-switchover");
    let family = Family::begin(&place);
    place.application(&family.database).run(INSERT);
    let shown = must(&family.south, &["status"]);
    assert!(
        shown.contains("fast-start failover: SYNCHRONIZED  `north` may take over  observer tokyo@"),
        "{shown}"
    );
    must(&family.south, &["switchover", "north"]);
    await_fast_start(&family.north, "SYNCHRONIZED");
    await_fast_start(&family.south, "SYNCHRONIZED");
    place.application(&family.copy()).run(INSERT);
    assert_eq!(family.north.status().unwrap().json()["fast_start_failover"]["target"], "south");
    must(&family.north, &["dg", "disable", "fast_start", "failover"]);
    await_status(&family.north, "disabled", |status| fast_start(status) == "none");
    await_status(&family.south, "disabled", |status| fast_start(status) == "none");
}

#[test]
fn failover_by_command_takes_the_place_from_the_observer() {
    let place = Place::new("fast-start-failover");
    let mut family = Family::begin(&place);
    // So that the command is faster.
    set(&family.south, "ObserverPingRetry", "1000");
    family.south.kill();
    // After a start it has heard nothing of the primary; that everything is here the observer knows.
    family.north.kill();
    start(&mut family.north);
    await_fast_start(&family.north, "SYNCHRONIZED");
    let finished = family.north.run(&["failover"]).unwrap();
    assert_eq!((finished.code, finished.stderr.contains("NOT KNOWN")), (0, false), "{}", finished.stderr);
    let alerts = family.observer.alerts();
    assert!(alerts.contains("FAILOVER: `north` takes over from `south`\n"), "{alerts}");
    place.application(&family.copy()).run(INSERT);
}

#[test]
fn members_and_observer_know_each_other_by_certificate() {
    let place = Place::new("fast-start-tls");
    let (south, database) = security::primary(&place);
    let north = security::standby(&place, &south, "north", &[]);
    add_destination(&south, &north, &SYNC);
    await_status(&south, "the standby follows", |status| status.streams() && status.settled());
    let token = security::token(&place, &south, "tokyo", &["--status-only"]);
    let observer = Observer::start(&place, &south, &["--token-file", &token.to_string_lossy()]);
    let mut family = Family { south, north, observer, database };
    family.enable();
    family.south.kill();
    await_status(&family.north, "the target is the primary", is_open);
    place.application(&family.copy()).run(INSERT);
}

#[test]
fn what_cannot_protect_is_refused_and_changes_nothing() {
    let place = Place::new("fast-start-refused");
    let (south, north, _database) = place.pair(&SYNC[2..]);
    let enable = ["dg", "enable", "fast_start", "failover"];
    refuses(&south, &enable, 3, &["needs an observer", "standfast observer create"]);
    refuses(&north, &enable, 3, &["is not the primary", "`south`"]);
    let wrong = ["dg", "edit", "configuration", "set", "property", "FastStartFailoverObserver", "=", "tokyo"];
    refuses(&south, &wrong, 2, &["NAME@HOST:PORT"]);
    let unused = format!("tokyo@{}", free_address().unwrap());
    set(&south, "FastStartFailoverObserver", &unused);
    refuses(&south, &enable, 3, &["does not answer", "standfast start"]);
    refuses(&south, &["dg", "show", "observer"], 3, &["does not answer"]);
    set(&south, "FastStartFailoverObserver", &format!("north@{}", north.address));
    refuses(&south, &enable, 3, &["`north` is no observer"]);
    let observer = Observer::start(&place, &south, &[INSECURE]);
    let again = create(&place, &observer.directory, &south.address, &observer.address, &[INSECURE]);
    assert_eq!(again.status.code(), Some(5), "{}", String::from_utf8_lossy(&again.stderr));
    let nowhere = place.path("nowhere");
    let without_token = create(&place, &nowhere, &south.address, &observer.address, &[]);
    assert_eq!(without_token.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&without_token.stderr).contains("--status-only"));
    assert!(!nowhere.exists(), "nothing stays behind");
    let west = place.instance("west");
    let there = create(&place, &west.directory, &south.address, &observer.address, &[INSECURE]);
    assert_eq!(there.status.code(), Some(3), "{}", String::from_utf8_lossy(&there.stderr));
    set(&south, "FastStartFailoverObserver", &observer.is_called());
    must(&south, &["protection-mode", "maximum-performance"]);
    refuses(&south, &enable, 3, &["maximum performance", "standfast protection-mode"]);
    must(&south, &["protection-mode", "maximum-availability"]);
    set(&south, "FastStartFailoverTarget", "east");
    refuses(&south, &enable, 3, &["no member could take over"]);
    set(&south, "FastStartFailoverTarget", "north");
    must(&south, &enable);
    await_fast_start(&south, "SYNCHRONIZED");
    // Without the target no commit may return, so it stays.
    for command in [
        &["destination", "remove", "north"][..],
        &["dg", "disable", "database", "north"],
        &["dg", "edit", "database", "north", "set", "property", "LogXptMode", "=", "ASYNC"],
    ] {
        refuses(&south, command, 3, &["target of fast-start failover", "disable fast_start failover"]);
    }
    must(&south, &["dg", "disable", "fast_start", "failover"]);
    must(&south, &["destination", "remove", "north"]);
}

#[test]
fn observer_is_started_stopped_and_looked_at_like_an_instance() {
    let place = Place::new("fast-start-observer");
    let mut family = Family::begin(&place);
    let observer = |words: &[&str]| {
        let mut command = Command::new(&family.observer.standfast);
        let output = command.args(words).arg("-D").arg(&family.observer.directory).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = observer(&["status"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Observer tokyo - observing") && text.contains("`north` may take over"), "{text}");
    assert_eq!(observer(&["status", "--json"]).0, Some(0));
    assert_eq!(observer(&["start"]).0, Some(5), "it runs already");
    assert_eq!(observer(&["stop"]), (Some(0), "stopped\n".into()));
    assert_eq!(observer(&["stop"]).0, Some(4));
    assert_eq!(observer(&["status"]).0, Some(4));
    let ended = family.observer.process.take().unwrap().wait_for_end(TIMEOUT).unwrap();
    assert!(ended.success());
    let again = create(
        &place,
        &family.observer.directory,
        &family.south.address,
        &family.observer.address,
        &[INSECURE],
    );
    assert!(String::from_utf8_lossy(&again.stderr).contains("already holds an observer"));
    let (code, text) = observer(&["init", "--insecure"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("already holds an observer"), "{text}");
}

#[test]
fn disabling_waits_for_the_observer_unless_it_is_forced() {
    let place = Place::new("fast-start-disable");
    let mut family = Family::begin(&place);
    family.observer.kill();
    let disable = ["dg", "disable", "fast_start", "failover"];
    refuses(&family.south, &disable, 3, &["does not confirm"]);
    must(&family.south, &["dg", "disable", "fast_start", "failover", "force"]);
    await_status(&family.south, "disabled", |status| fast_start(status) == "none");
    place.application(&family.database).run(INSERT);
}
