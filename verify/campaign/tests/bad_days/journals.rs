//! Rollback journals beside a protected database: with the permissions of the instance, SQLite would roll them back,
//! delete the file that they name, or block on them.

use crate::support::{
    INSERT, Place, add_destination, assert_same, await_status, beside, must, refuses, rows, start,
};
use standfast_campaign::status::Status;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
const SECTOR: usize = 512;

/// Writes a hot journal without pages whose super-journal is `named`: SQLite deletes that file after the rollback.
fn put_hot_journal(database: &Path, named: &Path) {
    const PAGE: u32 = 4096;
    const PENDING_BYTE: u32 = 0x4000_0000;
    let pages = fs::metadata(database).unwrap().len() as u32 / PAGE;
    let mut bytes = MAGIC.to_vec();
    for word in [0, 0x1234, pages, SECTOR as u32, PAGE] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.resize(SECTOR, 0);
    let name = named.as_os_str().as_bytes();
    bytes.extend((PENDING_BYTE / PAGE + 1).to_be_bytes());
    bytes.extend(name);
    bytes.extend((name.len() as u32).to_be_bytes());
    bytes.extend(name.iter().map(|byte| u32::from(*byte)).sum::<u32>().to_be_bytes());
    bytes.extend(MAGIC);
    fs::write(beside(database, "-journal"), bytes).unwrap();
}

fn put_fifo(database: &Path) {
    let name = CString::new(beside(database, "-journal").as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is null-terminated.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
}

fn remove_journal(database: &Path) {
    fs::remove_file(beside(database, "-journal")).unwrap();
}

/// Creates a file that only the user of the instance may delete.
fn victim(place: &Place) -> PathBuf {
    let path = place.path("victim");
    fs::write(&path, "kept").unwrap();
    path
}

#[test]
fn stock_sqlite_deletes_the_file_named_in_the_hot_journal() {
    let place = Place::new("journal-stock");
    let (database, victim) = (place.database("app.db"), victim(&place));
    put_hot_journal(&database, &victim);
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap();
    assert!(!victim.exists(), "the journal is not hot, and the other tests prove nothing");
}

#[test]
fn hot_journal_is_not_rolled_back_and_deletes_nothing() {
    let place = Place::new("journal-hot");
    let (mut primary, database) = place.protecting();
    let (other, victim) = (place.database("other.db"), victim(&place));
    let file = other.to_string_lossy().into_owned();
    put_hot_journal(&other, &victim);
    refuses(&primary, &["protect", &file], 3, &["may hold a transaction that was not finished", "sqlite3"]);
    remove_journal(&other);
    must(&primary, &["protect", &file]);
    primary.stop().unwrap();
    put_hot_journal(&other, &victim);
    start(&mut primary);
    let only_other = |status: &Status| {
        status.database_state("other.db") != "open" && status.database_state("app.db") == "open"
    };
    await_status(&primary, "one database is offline", only_other);
    place.insert(&database, 1);
    primary.stop().unwrap();
    assert!(victim.exists(), "it was deleted");
    remove_journal(&other);
    start(&mut primary);
    place.insert(&other, 1);
    assert_eq!((rows(&database), rows(&other)), (2, 2));
}

#[test]
fn journal_that_is_a_fifo_blocks_no_other_database() {
    let place = Place::new("journal-fifo");
    let (mut primary, standby, database) = place.pair(&[]);
    let other = place.database("other.db");
    let file = other.to_string_lossy().into_owned();
    put_fifo(&other);
    refuses(&primary, &["protect", &file], 3, &["is no rollback journal"]);
    remove_journal(&other);
    must(&primary, &["protect", &file]);
    let mut application = place.application(&database);
    // While the instance runs: its own connections read the database.
    put_fifo(&other);
    application.run(INSERT);
    must(&primary, &["checkpoint"]);
    must(&primary, &["verify"]);
    let late = place.standby_of(&primary, "late");
    add_destination(&primary, &late, &["--mode", "async"]);
    await_status(&primary, "all follow", |status| status.streams() && status.settled());
    assert_same(&primary, &standby, &database);
    application.close();
    primary.stop().unwrap();
    // At a start.
    start(&mut primary);
    let only_other = |status: &Status| {
        status.database_state("other.db") != "open" && status.database_state("app.db") == "open"
    };
    await_status(&primary, "one database is offline", only_other);
    place.insert(&database, 1);
    primary.stop().unwrap();
    remove_journal(&other);
    start(&mut primary);
    place.insert(&other, 1);
    assert_same(&primary, &standby, &other);
}

#[test]
fn journal_beside_a_standby_copy_is_not_rolled_back() {
    let place = Place::new("journal-standby");
    let (primary, mut standby, database) = place.pair(&[]);
    let (copy, victim) = (standby.standby_database("app.db"), victim(&place));
    place.insert(&database, 1);
    assert_same(&primary, &standby, &database);
    standby.stop().unwrap();
    put_hot_journal(&copy, &victim);
    start(&mut standby);
    await_status(&standby, "the database is not applied", |status| status.database_state("app.db") != "open");
    standby.stop().unwrap();
    assert!(victim.exists(), "it was deleted");
    remove_journal(&copy);
    start(&mut standby);
    place.insert(&database, 1);
    assert_same(&primary, &standby, &database);
}
