//! Transactions over several databases, and several databases protected by one command.

use crate::support::{INSERT, Place, assert_same, must, rows};

#[test]
fn transaction_over_two_databases_reaches_both_standby_copies() {
    let place = Place::new("attached");
    let (primary, standby, first) = place.pair(&["--on-timeout", "stall"]);
    let second = place.database("second.db");
    must(&primary, &["protect", &second.to_string_lossy()]);
    let mut application = place.application(&first);
    application.run(&format!("ATTACH '{}' AS second", second.display()));
    for _ in 0..10 {
        application.run("BEGIN; INSERT INTO t(x) VALUES('a'); INSERT INTO second.t(x) VALUES('b'); COMMIT");
    }
    application.run("BEGIN; INSERT INTO t(x) VALUES('a'); INSERT INTO second.t(x) VALUES('b'); ROLLBACK");
    assert_same(&primary, &standby, &first);
    assert_same(&primary, &standby, &second);
    for name in ["app.db", "second.db"] {
        assert_eq!(rows(&standby.standby_database(name)), 11);
    }
}

#[test]
fn unprotected_database_attached_to_protected_one_is_unchanged() {
    let place = Place::new("attached-plain");
    let (primary, standby, protected) = place.pair(&[]);
    let plain = place.path("plain.db");
    rusqlite::Connection::open(&plain).unwrap().execute_batch("PRAGMA user_version=1").unwrap();
    let mut application = place.application(&protected);
    application.run(&format!("ATTACH '{}' AS plain; CREATE TABLE plain.t(x)", plain.display()));
    application.run("BEGIN; INSERT INTO t(x) VALUES('a'); INSERT INTO plain.t(x) VALUES('b'); COMMIT");
    assert_eq!(application.run("PRAGMA plain.journal_mode")[0][0], "delete");
    application.run("CREATE TEMP TABLE scratch(x); INSERT INTO scratch VALUES(1)");
    assert_same(&primary, &standby, &protected);
    assert_eq!(rows(&plain), 1);
    assert!(!standby.standby_database("plain.db").exists());
}

#[test]
fn a_directory_is_protected_with_all_its_databases() {
    let place = Place::new("directory");
    let directory = place.path("data");
    std::fs::create_dir(&directory).unwrap();
    let databases: Vec<_> = (0..3).map(|number| place.database(&format!("data/{number}.db"))).collect();
    std::fs::write(directory.join("readme.txt"), "not a database").unwrap();
    let primary = place.primary("south");
    must(&primary, &["protect", &directory.to_string_lossy()]);
    let standby = place.standby_of(&primary, "north");
    crate::support::add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    for database in &databases {
        place.application(database).run(INSERT);
    }
    for database in &databases {
        assert_same(&primary, &standby, database);
    }
    assert_eq!(primary.status().unwrap().json()["databases"].as_array().unwrap().len(), 3);
}
