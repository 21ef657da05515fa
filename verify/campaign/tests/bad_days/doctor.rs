//! `standfast doctor`: which SQLite libraries a program loads, and whether the databases that it opens are protected.
//! With real programs: Python, the sqlite3 shell, and a program with SQLite compiled in.

use crate::support::Place;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const NOT_PROTECTED: i32 = 3;

/// Runs `standfast doctor OPTIONS -- COMMAND`.
fn run(place: &Place, options: &[&str], command: &[&str]) -> Output {
    let mut doctor = Command::new(&place.programs.standfast);
    doctor.arg("doctor").args(options).arg("--").args(command).stdin(Stdio::null());
    doctor.output().unwrap()
}

/// Returns the report as JSON, and the exit code.
#[track_caller]
fn report(place: &Place, command: &[&str]) -> (Value, i32) {
    let output = run(place, &["--json"], command);
    let errors = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    (report, output.status.code().unwrap())
}

fn preload(place: &Place) -> String {
    let library: PathBuf = place.programs.standfast.with_file_name("libstandfast_preload.so");
    format!("LD_PRELOAD={}", library.display())
}

/// Returns a Python program that opens a database and writes to it.
fn python(database: &Path) -> String {
    format!(
        "import sqlite3; c = sqlite3.connect('{}', timeout=30); c.execute('INSERT INTO t(x) VALUES(1)'); c.commit(); c.close()",
        database.display()
    )
}

/// Returns the only copy of SQLite that opened a database.
#[track_caller]
fn used(report: &Value) -> &Value {
    let copies = report["copies"].as_array().unwrap();
    let used: Vec<_> = copies.iter().filter(|copy| copy["opened_databases"] == true).collect();
    assert_eq!(used.len(), 1, "{report:#}");
    used[0]
}

#[test]
fn doctor_finds_shared_sqlite_of_python_with_and_without_shim() {
    let place = Place::new("doctor-python");
    let (_primary, database) = place.protecting();
    let script = python(&database);
    let (without, code) = report(&place, &["python3", "-c", &script]);
    assert_eq!((code, &without["exit_code"]), (NOT_PROTECTED, &Value::from(0)), "{without:#}");
    assert_eq!((&used(&without)["shim"], &used(&without)["linked"]), (&false.into(), &"shared".into()));
    assert_eq!(without["databases"][0]["protected"], true);
    assert!(without["databases"][0]["opened_without_vfs"].as_u64().unwrap() > 0);
    assert!(without["advice"][0].as_str().unwrap().contains("LD_PRELOAD="), "{without:#}");
    let (with, code) = report(&place, &["env", &preload(&place), "python3", "-c", &script]);
    assert_eq!(code, 0, "{with:#}");
    assert_eq!(used(&with)["shim"], true);
    assert!(used(&with)["version"].as_str().unwrap().starts_with("3."), "{with:#}");
    assert_eq!(with["databases"][0]["opened_without_vfs"], 0);
    assert!(with["databases"][0]["opened_through_vfs"].as_u64().unwrap() > 0);
}

#[test]
fn doctor_follows_a_shell_and_names_an_unprotected_database() {
    let place = Place::new("doctor-shell");
    let database = place.database("app.db");
    let script = format!("true; sqlite3 {} 'SELECT count(*) FROM t' | cat; exit 7", database.display());
    let output = run(&place, &[], &["sh", "-c", &script]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code().unwrap(), NOT_PROTECTED, "{text}");
    // The output of the program comes first, unchanged, before the report.
    assert!(text.starts_with("1\n== standfast doctor: the program ended with exit code 7\n"), "{text}");
    for words in ["WITHOUT STANDFAST", "NOT PROTECTED", "standfast protect"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn doctor_finds_a_sqlite_that_is_compiled_in() {
    let place = Place::new("doctor-static");
    let (_primary, database) = place.protecting();
    let campaign = place.programs.campaign.to_string_lossy().into_owned();
    let (path, extension) = (database.to_string_lossy(), place.programs.extension.to_string_lossy());
    let (without, code) = report(&place, &[&campaign, "client", &path]);
    assert_eq!((code, &used(&without)["linked"]), (NOT_PROTECTED, &"static".into()), "{without:#}");
    assert_eq!(used(&without)["version"], rusqlite::version(), "{without:#}");
    assert!(without["advice"][0].as_str().unwrap().contains("compiled in"), "{without:#}");
    let (with, code) = report(&place, &[&campaign, "client", "--extension", &extension, &path]);
    assert_eq!((code, &used(&with)["shim"]), (0, &true.into()), "{with:#}");
}

#[test]
fn doctor_passes_output_through_and_explains_a_failed_start() {
    let place = Place::new("doctor-output");
    let output = run(&place, &["--json"], &["sh", "-c", "echo data; echo error >&2; kill -9 $$"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["exit_code"], output.status.code()), (&137.into(), Some(NOT_PROTECTED)));
    assert!(report["advice"][0].as_str().unwrap().contains("no SQLite was found"));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "data\nerror\n");
    let missing = run(&place, &[], &["/no/such/program"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot run and trace /no/such/program"));
}
