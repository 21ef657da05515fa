//! Random and fixed programs have the same results as with stock SQLite. `make campaign-differential` runs many more.

// Helpers of tests are tests: a panic is how they fail.
#![allow(clippy::unwrap_used)]

use standfast_campaign::differential::program::{Access, Door, Outcome, Program, Step};
use standfast_campaign::differential::scene::Scene;
use standfast_campaign::differential::{DifferentialConfig, DifferentialReport, Version, find_versions, run};
use standfast_campaign::programs::Programs;
use standfast_campaign::site::Site;
use standfast_testkit::TempDir;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory of the SQLites, which are built first if they are missing.
fn libraries() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = Command::new(root.join("scripts/sqlites.sh")).status().unwrap();
    assert!(made.success(), "scripts/sqlites.sh failed");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("sqlite")
}

fn programs() -> Programs {
    Programs::find(None).unwrap_or_else(|error| panic!("{error}"))
}

fn newest() -> Version {
    find_versions(&libraries(), &[]).unwrap().pop().unwrap()
}

fn run_sql(connection: usize, sql: &str) -> Step {
    Step::Run { connection, sql: sql.into(), values: Vec::new() }
}

fn open(connection: usize) -> Step {
    Step::Open { connection, file: "p4096.db".into(), access: Access::Write, timeout_ms: 0 }
}

/// Judges a program of these steps on three connections to a database with some rows.
fn judge(name: &str, steps: Vec<Step>) -> (DifferentialReport, Vec<Outcome>) {
    let directory = TempDir::new(name).unwrap();
    let scene = Scene::set_up(&programs(), &directory.join("scene")).unwrap();
    let mut all: Vec<Step> = (0..3).map(open).collect();
    all.push(run_sql(
        0,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, b TEXT); INSERT INTO t VALUES(1,'one'),(2,'two')",
    ));
    all.extend(steps);
    let protected = vec![("p4096.db".to_owned(), 0)];
    let program = Program { seed: 0, door: Door::Preload, protected, steps: all };
    scene.judge_with_outcomes(&program, &newest()).unwrap()
}

#[test]
fn random_programs_have_the_results_of_stock_sqlite() {
    let directory =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("differential-{}", std::process::id()));
    let report = run(&DifferentialConfig {
        site: Site::new(programs(), directory, true).unwrap(),
        programs: 4,
        seed: 11,
        libraries: libraries(),
        versions: vec!["3.40.1".into(), newest().name],
        jobs: 2,
        whole: true,
    });
    assert!(report.passed(), "{report}");
    assert!(report.steps > 200 && report.errors > 10, "{report}");
}

#[test]
fn a_snapshot_is_opened_while_the_instance_serves_the_database() {
    let snapshot = |kept| Step::Snapshot {
        taken: 0,
        kept,
        writer: 1,
        write: "UPDATE main.t SET b=b||'z'".into(),
        opened: 2,
        read: "SELECT group_concat(b) FROM main.t".into(),
        schema: "main".into(),
    };
    // Enough frames that the nearest read mark is not that of the snapshot.
    let (report, outcomes) = judge("snapshot", vec![snapshot(true), snapshot(true), snapshot(true)]);
    assert!(report.passed(), "{report}");
    for (outcome, seen) in outcomes[4..].iter().zip(["one,two", "onez,twoz", "onezz,twozz"]) {
        assert_eq!(outcome.code, 0, "{outcome:?}");
        assert!(outcome.message.contains(seen), "{outcome:?}");
    }
}

#[test]
fn refused_statements_change_nothing_in_the_database() {
    let refused = |sql: &str| Step::Refused { connection: 0, sql: sql.into() };
    let (report, outcomes) = judge(
        "refused",
        vec![
            refused("PRAGMA journal_mode=DELETE"),
            refused("PRAGMA locking_mode=EXCLUSIVE"),
            Step::RefusedTogether { file: "p4096.db".into() },
            run_sql(0, "PRAGMA journal_mode; INSERT INTO t VALUES(3,'three')"),
            run_sql(1, "SELECT count(*) FROM t"),
        ],
    );
    assert!(report.passed(), "{report}");
    assert_eq!(outcomes.iter().map(|outcome| outcome.code).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 8, 0, 0]);
}
