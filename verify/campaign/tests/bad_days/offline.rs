//! A database that cannot be opened at a start, and an instance that runs without it.

use crate::support::{
    INSERT, Place, assert_same, await_alert, await_status, beside, must, refuses, rows, start,
};

#[test]
fn missing_database_is_served_on_return_and_its_copy_is_kept() {
    let place = Place::new("offline");
    let (mut primary, standby, database) = place.pair(&[]);
    let other = place.database("other.db");
    let (file, away) = (database.to_string_lossy().into_owned(), place.path("away.db"));
    must(&primary, &["protect", &other.to_string_lossy()]);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    primary.kill();
    std::fs::rename(&database, &away).unwrap();
    for _ in 0..2 {
        start(&mut primary);
        let offline =
            |status: &standfast_campaign::status::Status| status.database_state("app.db") == "left out";
        await_status(&primary, "the database is offline", offline);
        await_alert(&primary, "is kept for it until a start can open it");
        for _ in 0..3 {
            place.application(&other).run(INSERT);
            must(&primary, &["switch-logfile"]);
            must(&primary, &["checkpoint"]);
        }
        assert_same(&primary, &standby, &other);
        primary.stop().unwrap();
    }
    assert_eq!(rows(&standby.standby_database("app.db")), 2);
    std::fs::rename(&away, &database).unwrap();
    start(&mut primary);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&standby.standby_database("app.db")), 3);
    assert!(!primary.alerts().contains("full image"), "{}", primary.alerts());

    // An older file in its place does not replace the copy of the standby until the operator decides so.
    primary.stop().unwrap();
    std::fs::rename(&database, &away).unwrap();
    start(&mut primary);
    primary.stop().unwrap();
    std::fs::remove_file(beside(&database, "-wal")).unwrap();
    drop(rusqlite::Connection::open(&away).unwrap());
    std::fs::copy(&away, &database).unwrap();
    start(&mut primary);
    await_alert(&primary, "another file is at");
    refuses(&primary, &["protect", &file], 3, &["could not be opened when the instance started", "restart"]);
    place.application(&other).run(INSERT);
    assert_same(&primary, &standby, &other);
    assert_eq!(rows(&standby.standby_database("app.db")), 3);
    must(&primary, &["unprotect", "app.db"]);
    must(&primary, &["protect", &file]);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
}
