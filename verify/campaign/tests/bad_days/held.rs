//! Databases on which other processes have locks or leases when an instance starts: the other databases are served
//! meanwhile, and these are opened once they are free.

use crate::support::{INSERT, Place, TIMEOUT, await_alert, beside, must, refuses, rows, start};
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time within which an unobstructed commit returns. Far below the 45 s after which the kernel breaks a lease.
const UNHINDERED: Duration = Duration::from_secs(10);

/// Sets up a primary of app.db and busy.db that does not run; no process has busy.db open, and its WAL is there.
fn stopped(place: &Place) -> (Instance, PathBuf, PathBuf) {
    let (mut primary, database) = place.protecting();
    let busy = place.database("busy.db");
    must(&primary, &["protect", &busy.to_string_lossy()]);
    let mut application = place.application(&busy);
    application.run(INSERT);
    primary.kill();
    application.kill();
    (primary, database, busy)
}

const OPENED: &str = "database busy.db opened: no other process holds it any more";

fn starts_unhindered(place: &Place, primary: &mut Instance, database: &Path) {
    let begun = Instant::now();
    start(primary);
    let mut application = place.application(database);
    application.send(INSERT);
    assert!(application.answer_within(UNHINDERED).is_some(), "a commit waits for another database");
    assert!(begun.elapsed() < UNHINDERED, "{:?}", begun.elapsed());
}

/// Starts the primary while busy.db is locked, which the alert log reports in `words`.
fn starts_without_it(place: &Place, primary: &mut Instance, database: &Path, words: &str) {
    starts_unhindered(place, primary, database);
    await_alert(primary, words);
    assert!(checked(primary).contains("left out"), "{}", checked(primary));
    assert!(must(primary, &["status"]).contains("left out"));
}

/// Returns the output of `status --check`. It is never OK here, because there is no standby.
fn checked(primary: &Instance) -> String {
    primary.run(&["status", "--check"]).unwrap().stdout
}

fn is_served_again(place: &Place, primary: &Instance, busy: &Path) {
    place.application(busy).run(INSERT);
    assert!(!checked(primary).contains("left out"), "{}", checked(primary));
    assert_eq!(rows(busy), 3);
}

/// Takes a lease of `kind` on a file, until the file is closed.
fn lease(path: &Path, kind: libc::c_int) -> File {
    // SAFETY: signal has no preconditions. A process that breaks the lease causes SIGIO, which would end this process.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    let file = OpenOptions::new().read(true).write(kind == libc::F_WRLCK).open(path).unwrap();
    // A process that another test starts also has the file open until it executes its program.
    await_condition("the lease", TIMEOUT, || {
        // SAFETY: the descriptor is open.
        let code = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
        Ok(if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().to_string()) })
    })
    .unwrap();
    file
}

#[test]
fn lease_on_a_database_file_delays_only_that_database() {
    for (suffix, kind) in
        [("", libc::F_WRLCK), ("", libc::F_RDLCK), ("-wal", libc::F_WRLCK), ("-shm", libc::F_RDLCK)]
    {
        let place = Place::new("lease");
        let (mut primary, database, busy) = stopped(&place);
        let file = beside(&busy, suffix);
        let leased = lease(&file, kind);
        let words = format!("another process has a lease on {}", file.display());
        starts_without_it(&place, &mut primary, &database, &words);
        drop(leased);
        await_alert(&primary, OPENED);
        is_served_again(&place, &primary, &busy);
    }
}

#[test]
fn database_with_a_lease_is_refused_with_the_reason() {
    let place = Place::new("lease-protect");
    let (primary, database) = place.protecting();
    let other = place.database("other.db");
    let leased = lease(&other, libc::F_WRLCK);
    let begun = Instant::now();
    refuses(&primary, &["protect", &other.to_string_lossy()], 3, &["lease on", "/proc/locks"]);
    assert!(begun.elapsed() < UNHINDERED, "{:?}", begun.elapsed());
    place.application(&database).run(INSERT);
    drop(leased);
    must(&primary, &["protect", &other.to_string_lossy()]);
    place.application(&other).run(INSERT);
}

/// Locks a range of a file. Read access to the file suffices for that.
fn lock(path: &Path, begin: i64, length: i64) -> File {
    let file = File::open(path).unwrap();
    let range = libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: begin,
        l_len: length,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open and the structure is valid.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) }, 0);
    file
}

#[test]
fn reader_locks_delay_only_their_own_database() {
    /// First lock byte of the wal-index: <https://www.sqlite.org/walformat.html>, locks.
    const FIRST: i64 = 120;
    // Some of these locks alone do not obstruct a start.
    for (begin, length, holds) in [
        (FIRST, 8, true),
        (FIRST, 1, false),
        (FIRST + 1, 1, false),
        (FIRST + 2, 1, false),
        (FIRST + 3, 5, false),
    ] {
        let place = Place::new(&format!("locked-{begin}-{length}"));
        let (mut primary, database, busy) = stopped(&place);
        let locked = lock(&beside(&busy, "-shm"), begin, length);
        if holds {
            starts_without_it(&place, &mut primary, &database, "database busy.db: ");
        } else {
            starts_unhindered(&place, &mut primary, &database);
        }
        drop(locked);
        if holds {
            await_alert(&primary, OPENED);
        }
        is_served_again(&place, &primary, &busy);
    }
}

/// The delay does not grow with the number of locked databases.
#[test]
fn many_locked_databases_delay_others_no_longer_than_a_few() {
    let place = Place::new("locked-many");
    let (mut primary, database) = place.protecting();
    let others: Vec<PathBuf> = (0..30).map(|number| place.database(&format!("{number}.db"))).collect();
    for other in &others {
        must(&primary, &["protect", &other.to_string_lossy()]);
        place.insert(other, 1);
    }
    primary.kill();
    let locked: Vec<File> = others.iter().map(|other| lease(other, libc::F_WRLCK)).collect();
    starts_without_it(&place, &mut primary, &database, "database 29.db: another process has a lease");
    drop(locked);
    for other in &others {
        let name = other.file_name().unwrap().to_string_lossy();
        await_alert(&primary, &format!("database {name} opened: no other process holds it any more"));
        place.application(other).run(INSERT);
    }
    assert!(!checked(&primary).contains("left out"), "{}", checked(&primary));
}

/// The WAL is gone and the file holds everything, as shown only by the redo and the state recorded at the stop.
#[test]
fn quiescent_database_is_served_when_its_lease_has_ended() {
    let place = Place::new("lease-rest");
    let (mut primary, database) = place.protecting();
    let busy = place.database("busy.db");
    must(&primary, &["protect", &busy.to_string_lossy()]);
    place.insert(&busy, 1);
    must(&primary, &["stop"]);
    // The last connection to close backfills everything into the file.
    rusqlite::Connection::open(&busy).unwrap().execute("UPDATE t SET x = x", []).unwrap();
    assert!(!beside(&busy, "-wal").exists());
    let leased = lease(&busy, libc::F_WRLCK);
    starts_without_it(&place, &mut primary, &database, "another process has a lease on");
    drop(leased);
    await_alert(&primary, OPENED);
    is_served_again(&place, &primary, &busy);
}
