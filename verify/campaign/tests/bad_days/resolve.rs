//! A database is offline because its file does not descend from its redo, and the operator decides which of the two to
//! keep.

use crate::support::{
    INSERT, Place, TIMEOUT, add_destination, assert_same, await_alert, await_rows, await_status, beside,
    must, refuses, rows, start,
};
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use std::path::{Path, PathBuf};

/// Number of commits before the backup, and of those after it.
const HALF: i64 = 40;

/// Replaces the files of a database by `other`.
fn replace(database: &Path, other: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(beside(database, suffix));
    }
    std::fs::rename(other, database).unwrap();
}

fn backup(place: &Place, database: &Path, name: &str) -> PathBuf {
    let path = place.path(name);
    let connection = rusqlite::Connection::open(database).unwrap();
    connection.execute("VACUUM INTO ?1", [path.to_string_lossy()]).unwrap();
    path
}

#[track_caller]
fn await_offline(primary: &Instance, name: &str) {
    await_status(primary, "the database is offline", |status: &Status| {
        status.database_state(name) == "left out"
    });
}

/// Sets up a pair in which the primary's database was replaced by a backup of half of the rows, and is offline.
fn with_a_restored_backup(place: &Place) -> (Instance, Instance, PathBuf) {
    let (mut primary, standby, database) = place.pair(&[]);
    place.insert(&database, HALF);
    let backup = backup(place, &database, "backup.db");
    place.insert(&database, HALF);
    assert_same(&primary, &standby, &database);
    primary.stop().unwrap();
    replace(&database, &backup);
    start(&mut primary);
    await_offline(&primary, "app.db");
    await_status(&primary, "the standby is connected", Status::streams);
    (primary, standby, database)
}

fn set_wal_mode(database: &Path) {
    let connection = rusqlite::Connection::open(database).unwrap();
    let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

/// Returns the files that `standfast database kept` lists.
fn kept(instance: &Instance) -> Vec<PathBuf> {
    let answer: serde_json::Value =
        serde_json::from_str(&must(instance, &["database", "kept", "--json"])).unwrap();
    let files = answer["kept"].as_array().unwrap();
    files.iter().map(|file| PathBuf::from(file["path"].as_str().unwrap())).collect()
}

/// As [`kept`], once there is a file: it is listed after the change that replaced it can be read.
#[track_caller]
fn await_kept(instance: &Instance) -> Vec<PathBuf> {
    let mut files = Vec::new();
    await_condition("a kept file is listed", TIMEOUT, || {
        files = kept(instance);
        Ok(if files.is_empty() { Err(instance.alerts()) } else { Ok(()) })
    })
    .unwrap_or_else(|error| panic!("{error}"));
    files
}

/// Asserts that both ends have the expected rows and take more.
#[track_caller]
fn assert_resumes(place: &Place, primary: &Instance, standby: &Instance, database: &Path, expected: i64) {
    assert_eq!(rows(database), expected, "{}", primary.alerts());
    place.application(database).run(INSERT);
    assert_same(primary, standby, database);
    let name = database.file_name().unwrap().to_string_lossy();
    assert_eq!(rows(&standby.standby_database(&name)), expected + 1);
}

#[test]
fn keep_redo_rebuilds_the_file_from_a_standby() {
    let place = Place::new("resolve-redo");
    let (mut primary, standby, database) = with_a_restored_backup(&place);
    // The output names both choices, and every message gives this command as the remedy.
    let shown = must(&primary, &["database", "resolve", "app.db"]);
    for words in [
        "standfast database resolve app.db --keep redo",
        "by: what standby north holds",
        "standfast database resolve app.db --keep file",
        "commits that were acknowledged",
        "it is another file than",
        "it is not in WAL mode",
    ] {
        assert!(shown.contains(words), "`{words}` is not in: {shown}");
    }
    await_alert(&primary, "`standfast database resolve app.db`");
    assert!(must(&primary, &["status"]).contains("`standfast database resolve app.db`"));
    let diagnosis = primary.run(&["diagnose"]).unwrap().stdout;
    assert!(diagnosis.contains("standfast database resolve app.db"), "{diagnosis}");
    assert_eq!(rows(&database), 1 + HALF, "only asked");
    await_offline(&primary, "app.db");

    // A process that has the file open would keep using it under its new name.
    let reader = place.foreigner(&database);
    refuses(
        &primary,
        &["database", "resolve", "app.db", "--keep", "redo"],
        3,
        &["is open in", "end these programs"],
    );
    reader.close();
    let printed = must(&primary, &["database", "resolve", "app.db", "--keep", "redo"]);
    assert!(printed.contains("the redo counts") && printed.contains(".before-"), "{printed}");
    assert_resumes(&place, &primary, &standby, &database, 1 + 2 * HALF);
    let files = kept(&primary);
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(rows(&files[0]), 1 + HALF, "the file that was there");
    assert!(
        !primary.alerts().contains("full image"),
        "nothing is copied to the standby: {}",
        primary.alerts()
    );
    for orderly in [true, false] {
        if orderly {
            primary.stop().unwrap();
        } else {
            primary.kill();
        }
        start(&mut primary);
        await_status(&primary, "it is open", |status: &Status| status.database_state("app.db") == "open");
    }
    assert_resumes(&place, &primary, &standby, &database, 2 + 2 * HALF);
    let name = files[0].file_name().unwrap().to_string_lossy();
    must(&primary, &["database", "kept", "--remove", &name]);
    assert!(!files[0].exists() && kept(&primary).is_empty());
    refuses(&primary, &["database", "kept", "--remove", &name], 3, &["is no file that this instance keeps"]);
}

/// Replaces a database by an earlier state with one row that is in its WAL only. Returns its number of rows.
fn put_earlier_state(place: &Place, database: &Path, backup: &Path) -> i64 {
    let other = place.path("earlier.db");
    std::fs::copy(backup, &other).unwrap();
    set_wal_mode(&other);
    let mut writer = place.foreigner(&other);
    writer.run("INSERT INTO t(x) VALUES('in the WAL')");
    writer.kill();
    std::fs::remove_file(beside(&other, "-shm")).unwrap();
    replace(database, &other);
    std::fs::rename(beside(&other, "-wal"), beside(database, "-wal")).unwrap();
    2 + HALF
}

/// Returns the files beside a database whose names begin with its name.
fn all_beside(database: &Path) -> Vec<PathBuf> {
    let name = database.file_name().unwrap().to_string_lossy().into_owned();
    let entries = std::fs::read_dir(database.parent().unwrap()).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&name))
        .collect()
}

#[track_caller]
fn assert_no_file_has_two_names(database: &Path) {
    for path in all_beside(database) {
        let links = std::os::unix::fs::MetadataExt::nlink(&std::fs::metadata(&path).unwrap());
        assert_eq!(links, 1, "{} has another name", path.display());
    }
}

/// The next start completes a command that was killed midway; a failed one names the cause and is repeated.
#[test]
fn keep_redo_recovers_from_a_failure_at_every_step() {
    let place = Place::new("resolve-steps");
    let (mut primary, standby, database) = place.pair(&[]);
    place.insert(&database, HALF);
    let backup = backup(&place, &database, "backup.db");
    place.insert(&database, HALF);
    assert_same(&primary, &standby, &database);
    let keep = ["database", "resolve", "app.db", "--keep", "redo"];
    let (mut expected, mut known) = (1 + 2 * HALF, Vec::new());
    // Steps: copy the WAL, rename the file, rename the WAL, rename the rebuilt file, write the control file.
    let rounds =
        ["kill", "EIO", "EIO+"].into_iter().flat_map(|action| (1..=5).map(move |step| (action, step)));
    for (action, step) in rounds {
        let what = format!("{action} at step {step}");
        primary.stop().unwrap();
        let earlier = put_earlier_state(&place, &database, &backup);
        let (fault, onwards) = action.strip_suffix('+').map_or((action, ""), |fault| (fault, "+"));
        primary.faults = Some(format!("set-aside={fault}@{step}{onwards}"));
        start(&mut primary);
        await_offline(&primary, "app.db");
        await_status(&primary, "the standby is connected", Status::streams);
        let finished = primary.run(&keep).unwrap();
        assert_ne!(finished.code, 0, "{what}: {}", finished.stdout);
        assert_no_file_has_two_names(&database);
        primary.faults = None;
        if action == "kill" {
            primary.kill();
            start(&mut primary);
        } else {
            for words in ["Input/output error", "give `standfast database resolve app.db --keep redo` again"]
            {
                assert!(finished.stderr.contains(words), "{what}: {}", finished.stderr);
            }
            assert_eq!(step > 2, finished.stderr.contains(".before-"), "{what}: {}", finished.stderr);
            // If the command cannot be completed now, the next start completes it.
            if action == "EIO+" {
                primary.stop().unwrap();
                start(&mut primary);
            }
        }
        let open = |status: &Status| status.database_state("app.db") == "open";
        if step > 2 {
            assert_eq!(kept(&primary).len(), known.len() + 1, "{what}: what is kept is listed already");
        }
        if action == "EIO" || step <= 2 {
            await_offline(&primary, "app.db");
            await_status(&primary, "the standby is connected", Status::streams);
            must(&primary, &keep);
        }
        await_status(&primary, &format!("{what}: it is open"), open);
        await_status(&primary, "the standby is connected", Status::streams);
        assert_resumes(&place, &primary, &standby, &database, expected);
        expected += 1;
        let mut listed = kept(&primary);
        listed.retain(|file| !known.contains(file));
        assert_eq!(listed.len(), 1, "{what}: {listed:?}");
        assert_eq!(rows(&listed[0]), earlier, "{what}: the file and its WAL");
        known.append(&mut listed);
        for path in all_beside(&database) {
            let name = path.to_string_lossy();
            assert!(!name.contains(".rebuilding"), "{what}: {name}");
            let is_listed = known.iter().any(|file| name.starts_with(&*file.to_string_lossy()));
            assert!(is_listed || !name.contains(".before-"), "{what}: {name}");
        }
    }
}

#[test]
fn file_created_in_the_empty_place_is_set_aside_too() {
    let place = Place::new("resolve-stray");
    let (mut primary, standby, database) = with_a_restored_backup(&place);
    primary.stop().unwrap();
    std::fs::rename(&database, place.path("older.db")).unwrap();
    let earlier = put_earlier_state(&place, &database, &place.path("older.db"));
    primary.faults = Some("set-aside=kill@3".into());
    start(&mut primary);
    await_offline(&primary, "app.db");
    await_status(&primary, "the standby is connected", Status::streams);
    let keep = ["database", "resolve", "app.db", "--keep", "redo"];
    assert_ne!(primary.run(&keep).unwrap().code, 0);
    primary.kill();
    primary.faults = None;
    assert!(!database.exists());
    // As an application does that starts before the instance. SQLite removes the WAL that it finds.
    place.database("app.db");
    start(&mut primary);
    await_offline(&primary, "app.db");
    assert_eq!(rows(&kept(&primary)[0]), earlier, "the file and its WAL");
    await_status(&primary, "the standby is connected", Status::streams);
    must(&primary, &keep);
    assert_resumes(&place, &primary, &standby, &database, 1 + 2 * HALF);
    let files = kept(&primary);
    assert_eq!(files.iter().map(|file| rows(file)).sum::<i64>(), earlier + 1, "{files:?}");
    assert_eq!(files.len(), 2);
}

#[test]
fn rollback_journal_is_set_aside_with_its_file() {
    let place = Place::new("resolve-journal");
    let (primary, standby, database) = with_a_restored_backup(&place);
    // A crash in rollback mode leaves a journal, which SQLite would apply to whatever file has the name.
    std::fs::write(beside(&database, "-journal"), [1; 512]).unwrap();
    must(&primary, &["database", "resolve", "app.db", "--keep", "redo"]);
    assert!(!beside(&database, "-journal").exists());
    assert_eq!(std::fs::read(beside(&kept(&primary)[0], "-journal")).unwrap(), [1; 512]);
    assert_resumes(&place, &primary, &standby, &database, 1 + 2 * HALF);
}

#[test]
fn remains_of_an_unfinished_rebuild_are_removed() {
    let place = Place::new("resolve-left");
    let (mut primary, _standby, database) = with_a_restored_backup(&place);
    set_wal_mode(&database);
    let leave = || {
        ["", "-wal", "-shm", "-journal"].map(|suffix| {
            let path = beside(&database, &format!(".rebuilding{suffix}"));
            std::fs::write(&path, "half of it").unwrap();
            path
        })
    };
    let left = leave();
    primary.stop().unwrap();
    start(&mut primary);
    await_offline(&primary, "app.db");
    assert!(left.iter().all(|path| !path.exists()), "a start removes it: {:?}", all_beside(&database));
    let left = leave();
    must(&primary, &["database", "resolve", "app.db", "--keep", "file"]);
    assert!(left.iter().all(|path| !path.exists()), "a decision does: {:?}", all_beside(&database));
}

#[test]
fn file_that_changes_after_its_examination_is_not_accepted() {
    let place = Place::new("resolve-changed");
    let (primary, _standby, database) = with_a_restored_backup(&place);
    set_wal_mode(&database);
    let other = place.path("other.db");
    std::fs::copy(&database, &other).unwrap();
    let mut writer = place.foreigner(&database);
    writer.run("BEGIN IMMEDIATE");
    let keep = ["database", "resolve", "app.db", "--keep", "file"];
    let command = primary.begin(&keep).unwrap();
    // The file has been examined, and the command waits for the writer.
    await_alert(&primary, "an operator has decided that");
    replace(&database, &other);
    writer.kill();
    let code = command.wait_for_end(TIMEOUT).unwrap().code();
    assert_eq!(code, Some(3), "{}", primary.alerts());
    await_offline(&primary, "app.db");
    must(&primary, &keep);
    await_status(&primary, "it is open", |status: &Status| status.database_state("app.db") == "open");
}

#[test]
fn delayed_standby_provides_all_of_a_large_transaction() {
    // Larger than what one batch of capture takes of a transaction.
    const LARGE: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
         INSERT INTO t(x) SELECT hex(randomblob(500)) FROM n";
    let place = Place::new("resolve-large");
    let (mut primary, mut standby, database) = place.pair(&[]);
    place.insert(&database, HALF);
    let backup = backup(&place, &database, "backup.db");
    assert_same(&primary, &standby, &database);
    standby.stop().unwrap();
    standby.configure("standby", "apply_delay_s", 3600).unwrap();
    start(&mut standby);
    await_status(&primary, "the standby is connected", Status::streams);
    let applied = |status: &Status| status.number("/standby/applied");
    let before = applied(&standby.status().unwrap());
    place.application(&database).run(LARGE);
    await_status(&standby, "records of the transaction are taken in", |status| applied(status) > before);
    primary.stop().unwrap();
    replace(&database, &backup);
    start(&mut primary);
    await_offline(&primary, "app.db");
    await_status(&primary, "the standby is connected", Status::streams);
    let printed = must(&primary, &["database", "resolve", "app.db", "--keep", "redo"]);
    assert!(printed.contains("what standby north holds"), "{printed}");
    must(&standby, &["apply", "start", "--no-delay"]);
    assert_resumes(&place, &primary, &standby, &database, 1 + HALF + 2000);
}

#[test]
fn keep_redo_needs_no_standby_if_the_redo_has_a_full_image() {
    let place = Place::new("resolve-image");
    let (mut primary, mut standby, _database) = place.pair(&[]);
    let other = place.database("other.db");
    // With a standby, protection begins with a full resync image in the redo.
    must(&primary, &["protect", &other.to_string_lossy()]);
    place.insert(&other, HALF);
    assert_same(&primary, &standby, &other);
    standby.stop().unwrap();
    must(&primary, &["switch-logfile"]);
    must(&primary, &["checkpoint"]);
    primary.stop().unwrap();
    replace(&other, &place.database("empty.db"));
    start(&mut primary);
    await_offline(&primary, "other.db");
    let answer = must(&primary, &["database", "resolve", "other.db", "--keep", "redo", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert!(answer["by"].as_str().unwrap().contains("the full image in the redo"), "{answer}");
    assert_eq!(rows(&PathBuf::from(answer["kept"].as_str().unwrap())), 1);
    start(&mut standby);
    await_status(&primary, "the standby is connected", Status::streams);
    assert_resumes(&place, &primary, &standby, &other, 1 + HALF);
}

#[test]
fn keep_redo_is_refused_without_a_standby_or_full_image() {
    let place = Place::new("resolve-unproven");
    let (mut primary, database) = place.protecting();
    place.insert(&database, HALF);
    primary.stop().unwrap();
    replace(&database, &place.database("empty.db"));
    start(&mut primary);
    await_offline(&primary, "app.db");
    let words =
        ["cannot be made again", "no full image", "no standby is configured", "hint: connect a standby"];
    refuses(&primary, &["database", "resolve", "app.db", "--keep", "redo"], 3, &words);
    await_offline(&primary, "app.db");
    assert_eq!(rows(&database), 1, "the file is as it was");
    assert_eq!(kept(&primary), Vec::<PathBuf>::new());
}

#[test]
fn missing_file_can_be_rebuilt_but_not_kept() {
    let place = Place::new("resolve-gone");
    let (mut primary, standby, database) = place.pair(&[]);
    place.insert(&database, HALF);
    assert_same(&primary, &standby, &database);
    primary.kill();
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(beside(&database, suffix)).unwrap();
    }
    start(&mut primary);
    await_offline(&primary, "app.db");
    await_status(&primary, "the standby is connected", Status::streams);
    let shown = must(&primary, &["database", "resolve", "app.db"]);
    assert!(shown.contains("there is no file") && shown.contains("not possible: "), "{shown}");
    refuses(
        &primary,
        &["database", "resolve", "app.db", "--keep", "file"],
        3,
        &["cannot count", "--keep redo"],
    );
    must(&primary, &["database", "resolve", "app.db", "--keep", "redo"]);
    assert_resumes(&place, &primary, &standby, &database, 1 + HALF);
}

#[test]
fn identical_copy_of_the_recorded_file_is_rolled_forward() {
    let place = Place::new("resolve-copy");
    let (mut primary, database) = place.protecting();
    place.insert(&database, HALF);
    primary.stop().unwrap();
    // As `cp -p` restores it: another inode with the same size and time.
    let copy = place.path("copy.db");
    std::fs::copy(&database, &copy).unwrap();
    let modified = std::fs::metadata(&database).unwrap().modified().unwrap();
    std::fs::File::options().write(true).open(&copy).unwrap().set_modified(modified).unwrap();
    replace(&database, &copy);
    start(&mut primary);
    await_offline(&primary, "app.db");
    let printed = must(&primary, &["database", "resolve", "app.db", "--keep", "redo"]);
    assert!(printed.contains("the file that is there"), "{printed}");
    assert_eq!(rows(&database), 1 + HALF);
    place.application(&database).run(INSERT);
}

#[test]
fn keep_file_ships_it_to_the_standby_which_keeps_its_own() {
    for crash in [false, true] {
        let place = Place::new("resolve-file");
        let (mut primary, mut standby, database) = with_a_restored_backup(&place);
        let keep = ["database", "resolve", "app.db", "--keep", "file"];
        refuses(&primary, &keep, 3, &["in journal mode delete", "PRAGMA journal_mode=WAL"]);
        set_wal_mode(&database);
        let printed = must(&primary, &["database", "resolve", "app.db", "--keep", "file"]);
        assert!(printed.contains("its file counts"), "{printed}");
        await_alert(&primary, "an operator has decided that");
        if crash {
            primary.kill();
            start(&mut primary);
        }
        let copy = standby.standby_database("app.db");
        await_rows(&copy, 1 + HALF);
        await_status(&primary, "it is open", |status: &Status| {
            status.database_state("app.db") == "open" && status.settled()
        });
        await_alert(&standby, "what was here is kept as");
        let files = await_kept(&standby);
        assert_eq!(files[0].parent(), copy.parent());
        assert!(files.iter().any(|file| rows(file) == 1 + 2 * HALF), "all that was acknowledged is there");
        assert_resumes(&place, &primary, &standby, &database, 1 + HALF);
        standby.stop().unwrap();
        start(&mut standby);
        await_status(&primary, "the standby is connected", Status::streams);
        assert_resumes(&place, &primary, &standby, &database, 2 + HALF);
        assert!(files.iter().all(|file| file.exists()));
        let name = files[0].to_string_lossy().into_owned();
        must(&standby, &["database", "kept", "--remove", &name]);
        assert!(!files[0].exists());
    }
}

#[test]
fn full_image_waits_until_the_replaced_copy_can_be_kept() {
    let place = Place::new("resolve-room");
    let (primary, mut standby, database) = with_a_restored_backup(&place);
    standby.stop().unwrap();
    standby.configure("kept", "free_bytes_min", 1_i64 << 60).unwrap();
    start(&mut standby);
    await_status(&primary, "the standby is connected", Status::streams);
    set_wal_mode(&database);
    must(&primary, &["database", "resolve", "app.db", "--keep", "file"]);
    await_alert(&standby, "what it would replace cannot be kept");
    let copy = standby.standby_database("app.db");
    assert_eq!(rows(&copy), 1 + 2 * HALF, "nothing replaces the copy that knows more");
    assert!(kept(&standby).is_empty());
    standby.stop().unwrap();
    standby.configure("kept", "free_bytes_min", 0_i64).unwrap();
    start(&mut standby);
    await_status(&primary, "the standby is connected", Status::streams);
    await_rows(&copy, 1 + HALF);
    assert_eq!(rows(&await_kept(&standby)[0]), 1 + 2 * HALF);
    assert_resumes(&place, &primary, &standby, &database, 1 + HALF);
}

#[test]
fn plain_write_on_an_earlier_state_can_be_discarded_or_kept() {
    for keep in ["redo", "file"] {
        let place = Place::new("resolve-plain");
        let (mut primary, standby, database) = place.pair(&[]);
        place.insert(&database, HALF);
        let read = |path: &Path| std::fs::read(path).unwrap();
        let (content, wal) = (read(&database), read(&beside(&database, "-wal")));
        place.insert(&database, HALF);
        assert_same(&primary, &standby, &database);
        primary.kill();
        std::fs::write(&database, &content).unwrap();
        std::fs::write(beside(&database, "-wal"), &wal).unwrap();
        std::fs::remove_file(beside(&database, "-shm")).unwrap();
        let mut writer = place.foreigner(&database);
        writer.run("INSERT INTO t(x) VALUES('a plain process wrote this')");
        writer.close();
        start(&mut primary);
        await_offline(&primary, "app.db");
        await_status(&primary, "the standby is connected", Status::streams);
        // When the file is kept, a program that has it open continues.
        let mut application = (keep == "file").then(|| place.application(&database));
        if let Some(application) = &mut application {
            application.run("SELECT count(*) FROM t");
        }
        must(&primary, &["database", "resolve", "app.db", "--keep", keep]);
        let (expected, other) = match keep {
            "redo" => (1 + 2 * HALF, kept(&primary)),
            _ => {
                application.iter_mut().for_each(|application| drop(application.run(INSERT)));
                await_rows(&standby.standby_database("app.db"), 3 + HALF);
                (3 + HALF, await_kept(&standby))
            }
        };
        assert_resumes(&place, &primary, &standby, &database, expected);
        let given_up = if keep == "redo" { 2 + HALF } else { 1 + 2 * HALF };
        assert_eq!(other.len(), 1, "{other:?}");
        assert_eq!(rows(&other[0]), given_up, "what was given up is kept");
    }
}

#[test]
fn only_an_offline_database_can_be_resolved() {
    let place = Place::new("resolve-open");
    let (primary, database) = place.protecting();
    for keep in [&["database", "resolve", "app.db"][..], &["database", "resolve", "app.db", "--keep", "file"]]
    {
        refuses(&primary, keep, 3, &["is not offline: there is nothing to decide", "standfast status"]);
    }
    let file = database.to_string_lossy();
    refuses(&primary, &["database", "resolve", &file, "--keep", "redo"], 3, &["is not offline"]);
    refuses(&primary, &["database", "resolve", "none.db"], 3, &["is not protected by this instance"]);
    let standby = place.standby_of(&primary, "north");
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    refuses(&standby, &["database", "resolve", "app.db"], 3, &["this instance is a standby"]);
    place.insert(&database, 1);
    assert_same(&primary, &standby, &database);
    assert!(must(&standby, &["database", "kept"]).contains("no file is kept"));
}
