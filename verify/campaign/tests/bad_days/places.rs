//! Files that are removed or replaced while an instance has them open.

use super::support::*;
use standfast_campaign::instance::Instance;

fn check(instance: &Instance) -> (i32, String) {
    let checked = instance.run(&["status", "--check"]).unwrap();
    (checked.code, checked.stdout)
}

#[test]
fn a_standby_without_its_directory_acknowledges_nothing_more() {
    let place = Place::new("directory-removed");
    let (primary, standby, database) = place.pair(&["--on-timeout", "stall"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    let away = place.path("away");
    std::fs::rename(&standby.directory, &away).unwrap();
    await_status(&primary, "the standby is refused", |status| {
        status.json()["destinations"][0]["last_trouble"].to_string().contains("standby log failed")
    });
    application.send(INSERT);
    assert!(application.answer_within(A_WHILE).is_none(), "acknowledged by a log that is not there");
    let (code, line) = check(&primary);
    assert_eq!(code, 2, "{line}");
    std::fs::rename(&away, &standby.directory).unwrap();
}

#[test]
fn database_removed_at_the_standby_is_offline_at_both_ends() {
    let place = Place::new("database-removed");
    let (primary, standby, database) = place.pair(&QUICK);
    let other = place.database("other.db");
    must(&primary, &["protect", &other.to_string_lossy()]);
    let mut application = place.application(&database);
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_same(&primary, &standby, &other);
    let copy = standby.standby_database("app.db");
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{suffix}", copy.display())).unwrap();
    }
    await_alert(&standby, "was removed while it was open");
    await_alert(&primary, "NOT APPLIED to database app.db");
    for instance in [&primary, &standby] {
        let (code, line) = check(instance);
        assert!(code == 2 && line.contains("app.db"), "{code} {line}");
    }
    refuses(
        &standby,
        &["failover", "--force"],
        3,
        &["would leave 1 of its databases offline", "app.db", "--immediate"],
    );
    assert_eq!(
        standby.run(&["failover", "--force", "--immediate"]).unwrap().code,
        6,
        "{}",
        standby.last_words()
    );
    assert!(standby.alerts().contains("database app.db is offline"), "{}", standby.alerts());
    let (code, line) = check(&standby);
    assert!(code == 2 && line.contains("app.db"), "{code} {line}");
    place.application(&standby.standby_database("other.db")).run(INSERT);
}

#[test]
fn database_replaced_at_the_standby_is_detected() {
    let place = Place::new("database-replaced");
    let (primary, standby, database) = place.pair(&QUICK);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    let copy = standby.standby_database("app.db");
    let fresh = copy.with_extension("fresh");
    std::fs::copy(&copy, &fresh).unwrap();
    std::fs::rename(&fresh, &copy).unwrap();
    await_alert(&primary, "NOT APPLIED to database app.db");
    assert_eq!(check(&standby).0, 2);
}

#[test]
fn a_primary_whose_log_is_removed_acknowledges_nothing_more() {
    let place = Place::new("log-removed");
    let (primary, database) = place.protecting();
    let mut application = place.application(&database);
    application.run(INSERT);
    std::fs::rename(primary.directory.join("redo"), place.path("away")).unwrap();
    await_alert(&primary, "the primary has poisoned");
    application.fails(INSERT, SQLITE_IOERR);
    assert_eq!(check(&primary).0, 2);
}

#[test]
fn an_instance_whose_lock_is_removed_acknowledges_nothing_more() {
    let place = Place::new("lock-removed");
    let (primary, database) = place.protecting();
    let mut application = place.application(&database);
    application.run(INSERT);
    std::fs::remove_file(primary.directory.join("lock")).unwrap();
    await_alert(&primary, "FILE NOT IN ITS PLACE: lock file");
    await_alert(&primary, "the primary has poisoned");
    application.fails(INSERT, SQLITE_IOERR);
}

#[test]
fn copy_of_an_instance_directory_is_refused_until_adopted() {
    let place = Place::new("directory-copied");
    let (primary, mut standby, database) = place.pair(&QUICK);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    let (renamed, copy) = (place.path("renamed"), place.path("copy"));
    let cp = std::process::Command::new("cp").arg("-a").arg(&standby.directory).arg(&copy).status().unwrap();
    assert!(cp.success());
    let start_in = |directory: &std::path::Path, more: &[&str]| {
        let mut command = std::process::Command::new(&place.programs.standfast);
        command.arg("start").arg("-D").arg(directory).args(more);
        command
    };
    let refused = start_in(&copy, &[]).output().unwrap();
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(3) && printed.contains("--adopt"), "{printed}");
    // The directory itself may be renamed.
    standby.stop().unwrap();
    std::fs::rename(&standby.directory, &renamed).unwrap();
    std::fs::rename(&renamed, &standby.directory).unwrap();
    start(&mut standby);
    standby.stop().unwrap();
    // The original is gone: the copy replaces it, and opens its own files.
    std::fs::rename(&standby.directory, place.path("gone")).unwrap();
    std::fs::rename(&copy, &standby.directory).unwrap();
    let mut adopted = start_in(&standby.directory, &["--adopt"]).spawn().unwrap();
    place.application(&database).run(INSERT);
    await_status(&primary, "the adopted copy follows", |status| status.streams() && status.settled());
    assert_same(&primary, &standby, &database);
    let _ = adopted.kill();
    let _ = adopted.wait();
    start(&mut standby);
}

/// Removed by hand, or by a program that creates its database again: with an application on the old files, and without.
#[test]
fn database_recreated_at_the_primary_fails_the_status_check() {
    for is_open in [true, false] {
        let place = Place::new("made-again");
        let (primary, standby, database) = place.pair(&QUICK);
        let mut application = place.application(&database);
        application.run(INSERT);
        assert_same(&primary, &standby, &database);
        let application = if is_open {
            Some(application)
        } else {
            application.close();
            None
        };
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", database.display()));
        }
        assert_eq!(place.database("app.db"), database);
        await_status(&primary, "it is not open", |status| status.database_state("app.db") != "open");
        let (code, line) = check(&primary);
        assert!(code == 2 && line.contains("app.db"), "{code} {line}");
        if let Some(mut application) = application {
            let answer = application.try_run(INSERT);
            assert!(
                matches!(answer, standfast_campaign::application::client::Answer::Failed { .. }),
                "acknowledged, into a file that is gone: {answer:?}"
            );
        }
        let mut new = place.application(&database);
        let answer = new.try_run(INSERT);
        assert!(
            matches!(answer, standfast_campaign::application::client::Answer::Failed { .. }),
            "acknowledged, and in no redo: {answer:?}"
        );
        assert_eq!(rows(&standby.standby_database("app.db")), 2);
    }
}
