//! The marker beside a database: copied with it, damaged, or of a file that is gone.

use crate::support::{
    INSERT, Place, SQLITE_READONLY, assert_same, await_alert, beside, must, refuses, rows, start,
};
use std::fs;
use std::path::{Path, PathBuf};

fn copy_to(directory: &Path, database: &Path, suffixes: &[&str]) -> PathBuf {
    fs::create_dir_all(directory).unwrap();
    let copy = directory.join(database.file_name().unwrap());
    for suffix in suffixes {
        fs::copy(beside(database, suffix), beside(&copy, suffix)).unwrap();
    }
    copy
}

#[test]
fn copy_with_its_marker_is_read_only_and_spares_the_original() {
    let place = Place::new("copy");
    let (primary, standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    application.run(INSERT);
    let copy = copy_to(&place.path("other"), &database, &["", "-wal", "-standfast"]);
    let mut reader = place.application(&copy);
    assert_eq!(reader.run("SELECT count(*) FROM t")[0][0], 2);
    reader.fails(INSERT, SQLITE_READONLY);
    let printed = reader.printed();
    for word in [database.to_str().unwrap(), copy.to_str().unwrap(), "Remove the marker", "standfast protect"]
    {
        assert!(printed.contains(word), "{printed} does not say {word}");
    }
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    // Protected by itself, it becomes a database like any other, with its own marker.
    must(&primary, &["protect", &copy.to_string_lossy(), "--name", "copy.db"]);
    reader.run(INSERT);
    assert_eq!((rows(&database), rows(&copy)), (3, 3));
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
}

#[test]
fn protect_rewrites_the_damaged_marker_of_a_known_database() {
    let place = Place::new("damaged-marker");
    let (primary, database) = place.protecting();
    let path = database.to_string_lossy().into_owned();
    let good = fs::read_to_string(beside(&database, "-standfast")).unwrap();
    let elsewhere = good.replace("database=", "database=7");
    for bad in ["", "standfast-marker 9\n", &elsewhere] {
        fs::write(beside(&database, "-standfast"), bad).unwrap();
        let mut application = place.application(&database);
        if bad != elsewhere {
            application.fails(INSERT, SQLITE_READONLY);
            assert!(application.printed().contains("standfast protect"), "{}", application.printed());
        }
        assert!(must(&primary, &["protect", &path]).contains("app.db"));
        assert_eq!(fs::read_to_string(beside(&database, "-standfast")).unwrap(), good);
        // An application that found it damaged need not open the database again.
        let mut fresh = place.application(&database);
        if bad == elsewhere {
            fresh.run(INSERT)
        } else {
            application.run(INSERT)
        };
    }
    refuses(&primary, &["protect", &path], 3, &["already protected"]);
    assert_eq!(rows(&database), 4);
}

#[test]
fn restored_file_is_offline_until_the_operator_decides() {
    let place = Place::new("restored");
    let (mut primary, database) = place.protecting();
    let mut before = place.application(&database);
    before.run(INSERT);
    before.close();
    primary.stop().unwrap();
    let backup = copy_to(&place.path("backup"), &database, &["", "-wal"]);
    for suffix in ["", "-wal"] {
        fs::rename(beside(&backup, suffix), beside(&database, suffix)).unwrap();
    }
    let _ = fs::remove_file(beside(&database, "-shm"));
    let mut application = place.application(&database);
    application.fails(INSERT, SQLITE_READONLY);
    assert!(application.printed().contains("Restart instance south"), "{}", application.printed());
    start(&mut primary);
    await_alert(&primary, "another file is at");
    must(&primary, &["unprotect", "app.db"]);
    must(&primary, &["protect", &database.to_string_lossy()]);
    place.application(&database).run(INSERT);
    assert_eq!(rows(&database), 3);
}

#[test]
fn directory_reached_by_another_name_has_the_same_protection() {
    let place = Place::new("renamed");
    let primary = place.primary("south");
    let inner = place.path("data");
    fs::create_dir(&inner).unwrap();
    let database = place.database("data/app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    std::os::unix::fs::symlink(&inner, place.path("alias")).unwrap();
    for path in [database.clone(), place.path("alias/app.db")] {
        place.application(&path).run(INSERT);
    }
    assert_eq!(rows(&database), 3);
}
