//! The application of the campaign with stock SQLite: it writes enough to be checked, and the checks find a removed
//! row.

// Helpers of tests are tests: a panic is how they fail.
#![allow(clippy::unwrap_used)]

use rusqlite::Connection;
use standfast_campaign::acknowledgements::Acknowledgements;
use standfast_campaign::process::{Process, await_condition};
use standfast_campaign::schema::create_database;
use standfast_campaign::verify::{check_integrity, check_ledger};
use standfast_testkit::TempDir;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn start(directory: &Path, databases: &[PathBuf; 2], seed: u64) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standfast-campaign"));
    command.arg("app").arg("--acknowledgements").arg(directory.join("acknowledged"));
    command.arg("--database").arg(&databases[0]).arg("--database").arg(&databases[1]);
    command.args(["--first-writer", "0", "--threads", "2", "--seed", &seed.to_string()]);
    Process::start(command, &directory.join("application.out")).unwrap()
}

#[test]
fn killed_application_loses_nothing_and_removed_row_is_found() {
    let directory = TempDir::new("application").unwrap();
    let databases = [directory.join("a.db"), directory.join("b.db")];
    create_database(&databases[0], 4096, false).unwrap();
    create_database(&databases[1], 1024, true).unwrap();
    let reported = Acknowledgements::create(&directory.join("acknowledged"), 2).unwrap();
    for seed in 0..3 {
        let process = start(directory.path(), &databases, seed);
        let before = reported.commits(0..2);
        await_condition("commits", Duration::from_secs(60), || {
            Ok(if reported.commits(0..2) > before + 30 { Ok(()) } else { Err("too few".into()) })
        })
        .unwrap();
        process.kill();
    }
    let process = start(directory.path(), &databases, 4);
    let before = reported.commits(0..2);
    await_condition("commits", Duration::from_secs(60), || {
        Ok(if reported.commits(0..2) > before + 30 { Ok(()) } else { Err("too few".into()) })
    })
    .unwrap();
    reported.order_stop(true);
    assert!(process.wait_for_end(Duration::from_secs(60)).unwrap().success());
    for (number, path) in databases.iter().enumerate() {
        assert!(check_integrity(path).unwrap().none());
        let findings = check_ledger(path, number, &reported).unwrap();
        assert!(findings.none(), "{:?}", findings.notes);
    }
    let output = std::fs::read_to_string(directory.join("application.out")).unwrap();
    assert_eq!(output, "", "no transaction failed");

    let connection = Connection::open(&databases[0]).unwrap();
    connection.execute("DELETE FROM ledger WHERE writer = 0 AND seq = 1", []).unwrap();
    let findings = check_ledger(&databases[0], 0, &reported).unwrap();
    assert_eq!((findings.lost, findings.surplus), (1, 1), "{:?}", findings.notes);
}
