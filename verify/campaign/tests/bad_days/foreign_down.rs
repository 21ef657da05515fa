//! Commits of plain processes to the databases of a primary that is down: those on top of the newest state are captured
//! and shipped to the standby.

use crate::support::assert_same;
use crate::support::{INSERT, Place, await_status, must, rows, start};
use standfast_campaign::status::Status;
use std::path::PathBuf;

/// The last commit before the instance goes down: it changes a row that some of the statements below change.
const LAST: &str = "UPDATE t SET x='the last commit' WHERE id=1";

const STATEMENTS: [(&str, &str); 6] = [
    ("other-page", "INSERT INTO cold VALUES('foreign')"),
    ("same-table", "INSERT INTO t(x) VALUES('foreign')"),
    ("same-row", "UPDATE t SET x='foreign, of another length' WHERE id=1"),
    ("deleted-row", "DELETE FROM t WHERE id=1"),
    ("vacuum", "VACUUM"),
    ("new-table", "CREATE TABLE foreign_table(x)"),
];

struct Case {
    name: String,
    database: PathBuf,
    statement: &'static str,
    closes: bool,
}

/// Runs the statements while the primary of a pair is stopped or killed. Returns the databases that are offline
/// afterwards.
fn run(cleanly: bool) -> Vec<String> {
    let place = Place::new("foreign-down");
    let (mut primary, standby, _) = place.pair(&[]);
    let mut cases = Vec::new();
    for (name, statement) in STATEMENTS {
        for closes in [true, false] {
            let name = format!("{name}-{}.db", if closes { "closed" } else { "killed" });
            let database = place.database(&name);
            must(&primary, &["protect", &database.to_string_lossy()]);
            let mut application = place.application(&database);
            application.run("CREATE TABLE cold(x); INSERT INTO cold VALUES('cold')");
            (0..5).for_each(|_| drop(application.run(INSERT)));
            application.run(LAST);
            application.close();
            cases.push(Case { name, database, statement, closes });
        }
    }
    await_status(&primary, "the standby has applied everything", Status::settled);
    if cleanly {
        primary.stop().unwrap()
    } else {
        primary.kill()
    }
    let before: Vec<i64> = cases.iter().map(|case| rows(&case.database)).collect();
    for case in &cases {
        let mut foreigner = place.foreigner(&case.database);
        foreigner.run(case.statement);
        if case.closes { foreigner.close() } else { foreigner.kill() }
    }
    start(&mut primary);
    let status = primary.status().unwrap();
    let mut offline = Vec::new();
    for (case, before) in cases.iter().zip(before) {
        if status.database_state(&case.name) != "open" {
            let alerts = primary.alerts();
            let reported =
                alerts.lines().filter(|line| line.contains(&case.name)).collect::<Vec<_>>().join("\n");
            assert!(reported.contains("does not stand where the redo says"), "{reported}");
            assert!(!reported.contains("the standbys' copies, when"), "{reported}");
            offline.push(case.name.clone());
            continue;
        }
        let after = rows(&case.database);
        let difference = match case.statement {
            statement if statement.starts_with("INSERT INTO t") => 1,
            statement if statement.starts_with("DELETE") => -1,
            _ => 0,
        };
        assert_eq!(after, before + difference, "{}: what the process wrote is kept", case.name);
        place.application(&case.database).run(INSERT);
        assert_same(&primary, &standby, &case.database);
    }
    offline
}

#[test]
fn plain_commits_after_a_clean_stop_are_captured() {
    assert_eq!(run(true), Vec::<String>::new());
}

#[test]
fn plain_commits_after_a_crash_are_captured() {
    assert_eq!(run(false), Vec::<String>::new());
}
