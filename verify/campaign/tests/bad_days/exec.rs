//! `standfast exec --when-primary`: a program runs where the primary is, and only there.

use crate::support::{INSERT, Place, QUICK, TIMEOUT, await_status, must, refuses, start};
use standfast_campaign::instance::Instance;
use standfast_campaign::process::{Process, await_condition};
use standfast_campaign::status::Status;
use std::path::Path;

/// Notes in `$1` when it begins and when it is asked to end, then ends with `$2`.
const PROGRAM: &str = r#"trap 'echo ended >> "$1"; exit "$2"' TERM; echo begun >> "$1"; sleep 600 & wait"#;

fn exec(instance: &Instance, notes: &Path, code: &str) -> Process {
    let directory = instance.directory.to_string_lossy().into_owned();
    let program = ["sh", "-c", PROGRAM, "program", &notes.to_string_lossy(), code].map(str::to_owned);
    let words = ["exec", "-D", &directory, "--when-primary", "--"].map(str::to_owned);
    instance.begin_as_given(&[&words[..], &program].concat()).unwrap()
}

#[track_caller]
fn await_notes(notes: &Path, expected: &[&str]) {
    await_condition(&format!("{expected:?} in {}", notes.display()), TIMEOUT, || {
        let text = std::fs::read_to_string(notes).unwrap_or_default();
        Ok(if text.lines().eq(expected.iter().copied()) { Ok(()) } else { Err(text) })
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn program_moves_with_the_role_and_ends_with_its_supervisor() {
    let place = Place::new("exec");
    let (south, mut north, _database) = place.pair(&QUICK);
    let (here, there) = (place.path("here"), place.path("there"));
    let (at_south, at_north) = (exec(&south, &here, "0"), exec(&north, &there, "5"));
    await_notes(&here, &["begun"]);
    assert!(!there.exists(), "the standby runs nothing");
    must(&south, &["switchover", "north"]);
    await_notes(&here, &["begun", "ended"]);
    await_notes(&there, &["begun"]);
    // An instance that restarts is no change of the role.
    await_status(&north, "it follows", |status: &Status| status.streams() && status.settled());
    north.stop().unwrap();
    start(&mut north);
    place.insert(&north.standby_database("app.db"), 1);
    await_notes(&there, &["begun"]);
    assert_eq!(at_north.terminate().unwrap().code(), Some(5));
    await_notes(&there, &["begun", "ended"]);
    assert_eq!(at_south.terminate().unwrap().code(), Some(0));
    await_notes(&here, &["begun", "ended"]);
}

#[test]
fn program_that_ends_or_cannot_be_started_ends_the_supervisor() {
    let place = Place::new("exec-ends");
    let (south, north, _database) = place.pair(&QUICK);
    let run = |instance: &Instance, words: &[&str]| {
        let directory = instance.directory.to_string_lossy().into_owned();
        instance.run_as_given(&[&["exec", "-D", &directory, "--when-primary"], words].concat()).unwrap()
    };
    assert_eq!(run(&south, &["--", "sh", "-c", "exit 7"]).code, 7);
    assert_eq!(run(&south, &["--", "sh", "-c", "kill -KILL $$"]).code, 137);
    // What the supervisor has blocked the program has not.
    let signals = run(&south, &["--", "sh", "-c", "kill -TERM $$; exit 0"]);
    assert_eq!(signals.code, 143);
    let missing = run(&south, &["--", "/no/such/program"]);
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("/no/such/program cannot be started"), "{}", missing.stderr);
    let refused = run(&north, &["--once", "--", "true"]);
    assert_eq!(refused.code, 3);
    assert!(refused.stderr.contains("not the primary: standby"), "{}", refused.stderr);
    assert_eq!(run(&south, &["--once", "--", "true"]).code, 0);
    refuses(&south, &["exec"], 2, &["--when-primary"]);
}

#[test]
fn program_that_does_not_end_is_killed() {
    let place = Place::new("exec-kill");
    let (south, north, database) = place.pair(&QUICK);
    let notes = place.path("notes");
    let directory = south.directory.to_string_lossy().into_owned();
    let stubborn = r#"trap '' TERM; echo begun >> "$1"; while :; do sleep 600 & wait; done"#;
    let words =
        ["exec", "-D", &directory, "--when-primary", "--stop-timeout", "1", "--", "sh", "-c", stubborn, "p"];
    let words = words.map(str::to_owned).into_iter().chain([notes.to_string_lossy().into_owned()]);
    let words: Vec<String> = words.collect();
    let supervisor = south.begin_as_given(&words).unwrap();
    await_notes(&notes, &["begun"]);
    must(&south, &["switchover", "north"]);
    await_status(&north, "it follows", |status: &Status| status.streams() && status.settled());
    must(&north, &["switchover", "south"]);
    // It was killed, or a second one would not have begun.
    await_notes(&notes, &["begun", "begun"]);
    assert_eq!(supervisor.terminate().unwrap().code(), Some(137));
    place.application(&database).run(INSERT);
}
