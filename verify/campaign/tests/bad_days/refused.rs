//! Files that cannot be protected: refused with cause and remedy and exit code 3, without any change.

use crate::support::{Place, must, refuses};
use standfast_campaign::instance::Instance;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Asserts that `protect FILE` is refused and leaves no marker.
#[track_caller]
fn refuses_to_protect(place: &Place, file: &Path, words: &[&str]) {
    let primary = place.primary("south");
    let printed = refuses(&primary, &["protect", &file.to_string_lossy()], 3, words);
    assert!(printed.contains("hint: "), "no remedy: {printed}");
    assert!(
        printed.contains(&*file.file_name().unwrap().to_string_lossy()),
        "the file is not named: {printed}"
    );
    assert!(!Path::new(&format!("{}-standfast", file.display())).exists(), "a marker was left");
    let databases = primary.status().unwrap();
    assert_eq!(databases.json()["databases"].as_array().map_or(0, Vec::len), 0);
}

#[test]
fn protect_refuses_a_file_that_is_not_a_database() {
    let place = Place::new("not-a-database");
    let file = place.path("notes.txt");
    std::fs::write(&file, "dear diary, this is longer than one hundred bytes ".repeat(10)).unwrap();
    refuses_to_protect(&place, &file, &["not a SQLite database"]);
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("dear diary"));
}

#[test]
fn protect_refuses_an_empty_file() {
    let place = Place::new("empty");
    let file = place.path("empty.db");
    std::fs::write(&file, "").unwrap();
    refuses_to_protect(&place, &file, &["not a SQLite database"]);
}

#[test]
fn protect_refuses_a_damaged_database() {
    let place = Place::new("damaged");
    let file = place.database("app.db");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[16..18].copy_from_slice(&[0, 3]);
    std::fs::write(&file, bytes).unwrap();
    refuses_to_protect(&place, &file, &["page size"]);
}

#[test]
fn protect_refuses_a_database_not_in_wal_mode() {
    let place = Place::new("not-wal");
    let file = place.path("rollback.db");
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
    refuses_to_protect(&place, &file, &["not WAL", "PRAGMA journal_mode=WAL"]);
}

#[test]
fn protect_refuses_a_read_only_file() {
    let place = Place::new("read-only");
    let file = place.database("app.db");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
    refuses_to_protect(&place, &file, &["read-only", "chmod"]);
}

#[test]
fn protect_refuses_a_file_that_does_not_exist() {
    let place = Place::new("missing");
    refuses_to_protect(&place, &place.path("nowhere.db"), &["No such file"]);
}

#[test]
fn protect_refuses_a_directory_without_databases() {
    let place = Place::new("no-databases");
    let directory = place.path("plain-files");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("notes.txt"), "nothing of interest").unwrap();
    refuses_to_protect(&place, &directory, &["no SQLite database"]);
}

#[test]
fn protect_refuses_a_database_on_tmpfs() {
    let place = Place::new("tmpfs");
    let directory = Path::new("/dev/shm").join(place.directory.file_name().unwrap());
    std::fs::create_dir(&directory).unwrap();
    let file = directory.join("app.db");
    let created = std::fs::copy(place.database("app.db"), &file);
    let checked = created
        .map(|_| std::panic::catch_unwind(|| refuses_to_protect(&place, &file, &["tmpfs", "local disk"])));
    std::fs::remove_dir_all(&directory).unwrap();
    checked.unwrap().unwrap();
}

#[test]
fn init_refuses_an_instance_directory_on_tmpfs() {
    let place = Place::new("tmpfs-instance");
    let directory = Path::new("/dev/shm").join(place.directory.file_name().unwrap());
    let made = Instance::init(&place.programs, &directory, "south", &[]).map(|_| ());
    let _ = std::fs::remove_dir_all(&directory);
    let error = made.unwrap_err().to_string();
    assert!(error.contains("tmpfs") && error.contains("local disk"), "{error}");
}

#[test]
fn protect_refuses_a_database_locked_by_another_process() {
    let place = Place::new("locked");
    let file = place.database("app.db");
    let mut hog = place.foreigner(&file);
    hog.run("PRAGMA locking_mode=EXCLUSIVE; INSERT INTO t(x) VALUES('mine')");
    refuses_to_protect(&place, &file, &["locked by another process"]);
    hog.close();
}

#[test]
fn protect_refuses_a_database_that_is_already_protected() {
    let place = Place::new("protected-already");
    let (primary, database) = place.protecting();
    let file = database.to_string_lossy();
    refuses(&primary, &["protect", &file], 3, &["already protected", "hint: "]);
    let other = place.primary("west");
    refuses(&other, &["protect", &file], 3, &["protected by instance south", "hint: ", "unprotect"]);
    must(&primary, &["unprotect", &file]);
    must(&other, &["protect", &file]);
}

#[test]
fn protect_refuses_a_duplicate_name_until_another_is_given() {
    let place = Place::new("same-name");
    let (primary, _) = place.protecting();
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    let second = place.database("elsewhere/app.db");
    let file = second.to_string_lossy();
    refuses(&primary, &["protect", &file], 3, &["app.db is already protected", "--name"]);
    refuses(&primary, &["protect", &file, "--name", "../x.db"], 3, &["not a file name"]);
    must(&primary, &["protect", &file, "--name", "second.db"]);
}
