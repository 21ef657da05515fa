//! Processes without the VFS are refused, and sessions write under the inner lock instead.

use crate::support::{
    INSERT, Place, add_destination, assert_same, await_alert, await_status, must, rows, start,
};
use crate::writers::Writers;
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use standfast_campaign::verify::check_integrity;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SQLITE_BUSY: i32 = 5;
/// The lock is never granted, so a short timeout suffices.
const IMPATIENT: &str = "PRAGMA busy_timeout=100";
const CLOSED: &str = "processes without Standfast find it locked when they write";

/// Sets up a primary that refuses processes without the VFS, and its synchronous standby.
fn refusing(place: &Place) -> (Instance, Instance, PathBuf) {
    let mut primary = place.instance("south");
    primary.configure("instance", "foreign_writers", "refuse").unwrap();
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let standby = place.standby_of(&primary, "north");
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    await_closed(&primary, 1);
    (primary, standby, database)
}

/// Waits until the alert log has reported `times` times that such processes are refused.
#[track_caller]
fn await_closed(primary: &Instance, times: usize) {
    await_status(primary, "others are refused", |_| primary.alerts().matches(CLOSED).count() >= times);
}

#[test]
fn refuse_setting_locks_out_a_process_without_the_vfs() {
    let place = Place::new("refuse");
    let (primary, standby, database) = refusing(&place);
    let (mut first, mut second) = (place.application(&database), place.application(&database));
    let mut foreigner = place.foreigner(&database);
    foreigner.run(IMPATIENT);
    for _ in 0..3 {
        first.run(INSERT);
        foreigner.fails(INSERT, SQLITE_BUSY);
        second.run(INSERT);
        must(&primary, &["checkpoint"]);
    }
    // A transaction of one session makes the other session wait.
    first.run("BEGIN IMMEDIATE");
    first.run(INSERT);
    second.send(INSERT);
    first.run("COMMIT");
    assert_eq!(second.answer(), Answer::Rows(vec![]));
    assert_eq!(foreigner.run("SELECT count(*) FROM t")[0][0], 9);
    assert_same(&primary, &standby, &database);
    let status = primary.status().unwrap();
    assert_eq!(status.number("/databases/0/foreign_commits"), 0);
    assert_eq!(status.text("/databases/0/foreign_writers"), "refused");
}

#[test]
fn one_database_refuses_foreign_writers_and_others_count_them() {
    let place = Place::new("refuse-one");
    let mut primary = place.instance("south");
    let of: toml::Table = "'app.db' = 'refuse'".parse().unwrap();
    primary.configure("instance", "foreign_writers_of", of).unwrap();
    start(&mut primary);
    let (database, other) = (place.database("app.db"), place.database("other.db"));
    for path in [&database, &other] {
        must(&primary, &["protect", &path.to_string_lossy()]);
    }
    await_alert(&primary, CLOSED);
    let mut foreigner = place.foreigner(&database);
    foreigner.run(IMPATIENT);
    foreigner.fails(INSERT, SQLITE_BUSY);
    await_status(&primary, "the other one is open to all", |status| {
        status.text("/databases/1/foreign_writers") == "counted"
    });
    place.foreigner(&other).run(INSERT);
    let mut pooled = place.application(&database);
    pooled.run(INSERT);
    // The end of the protection takes effect as soon as a connection that has written is used again.
    must(&primary, &["unprotect", "app.db"]);
    pooled.run("SELECT count(*) FROM t");
    foreigner.run(INSERT);
}

/// Asserts that processes without the VFS were refused before the last alert `printed`, not later by the thread that
/// checks every second.
#[track_caller]
fn assert_closed_before(primary: &Instance, printed: &str) {
    let alerts = primary.alerts();
    let (closed, printed) = (alerts.rfind(CLOSED), alerts.rfind(printed));
    assert!(closed.is_some() && closed < printed, "{alerts}");
}

#[test]
fn start_refuses_foreign_writers_before_it_admits_sessions() {
    let place = Place::new("refuse-at-once");
    let (mut primary, _standby, database) = refusing(&place);
    assert_closed_before(&primary, "app.db protected");
    for _ in 0..3 {
        primary.stop().unwrap();
        let mut foreigner = place.foreigner(&database);
        foreigner.run(IMPATIENT);
        foreigner.run(INSERT);
        start(&mut primary);
        foreigner.fails(INSERT, SQLITE_BUSY);
        assert_eq!(primary.status().unwrap().text("/databases/0/foreign_writers"), "refused");
        assert_closed_before(&primary, "primary opened at SCN");
    }
    // The start waits for a process that is in a transaction.
    primary.stop().unwrap();
    let mut foreigner = place.foreigner(&database);
    foreigner.run("BEGIN IMMEDIATE");
    start(&mut primary);
    assert_ne!(primary.run(&["status", "--check"]).unwrap().code, 0);
    foreigner.run("COMMIT");
    await_status(&primary, "it is refused", |status| {
        status.json()["databases"][0]["foreign_writers"] == "refused"
    });
}

#[test]
fn sessions_survive_killed_lock_holders_and_a_killed_instance() {
    let place = Place::new("refuse-killed");
    let (mut primary, standby, database) = refusing(&place);
    let writers = Writers::start(&place, &database, 3);
    for round in 0..4 {
        let mut holder = place.application(&database);
        holder.run("BEGIN IMMEDIATE");
        holder.run("INSERT INTO t(x) VALUES('of the dead')");
        holder.kill();
        writers.await_progress();
        if round % 2 == 1 {
            primary.kill();
            start(&mut primary);
        }
    }
    writers.await_progress();
    let acknowledged = writers.finish();
    acknowledged.all_in(&database);
    let ghosts = standfast_campaign::verify::open_plain(&database)
        .unwrap()
        .query_row("SELECT count(*) FROM t WHERE x = 'of the dead'", [], |row| row.get::<_, i64>(0))
        .unwrap();
    assert_eq!(ghosts, 0);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    assert_same(&primary, &standby, &database);
    acknowledged.all_in(&standby.standby_database("app.db"));
}

#[test]
fn open_transaction_blocks_foreign_writers_after_instance_kill() {
    let place = Place::new("refuse-down");
    let (mut primary, standby, database) = refusing(&place);
    let (mut application, mut foreigner) = (place.application(&database), place.foreigner(&database));
    foreigner.run(IMPATIENT);
    application.run("BEGIN IMMEDIATE");
    application.run(INSERT);
    primary.kill();
    foreigner.fails(INSERT, SQLITE_BUSY);
    start(&mut primary);
    // Its outcome may be unknown: the instance was down while the transaction was open.
    let _ = application.try_run("COMMIT");
    await_closed(&primary, 2);
    foreigner.fails(INSERT, SQLITE_BUSY);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    assert!(check_integrity(&database).unwrap().none());
}

#[test]
fn open_sessions_follow_a_changed_setting() {
    let place = Place::new("refuse-changed");
    let (mut primary, standby, database) = refusing(&place);
    let (mut application, mut idle) = (place.application(&database), place.application(&database));
    let mut foreigner = place.foreigner(&database);
    for client in [&mut application, &mut idle] {
        client.run(INSERT);
    }
    primary.stop().unwrap();
    primary.configure("instance", "foreign_writers", "count").unwrap();
    start(&mut primary);
    // An idle session releases its lock when it is used or closed, and does not block other sessions until then.
    application.run(INSERT);
    idle.run("SELECT count(*) FROM t");
    foreigner.run(INSERT);
    application.run(INSERT);
    foreigner.run(INSERT);
    primary.kill();
    primary.configure("instance", "foreign_writers", "refuse").unwrap();
    start(&mut primary);
    await_closed(&primary, 2);
    foreigner.run(IMPATIENT);
    foreigner.fails(INSERT, SQLITE_BUSY);
    application.run(INSERT);
    idle.run(INSERT);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&database), 9);
}

/// Inserts a row with the machine's sqlite3 shell, whatever its version; returns whether that succeeded.
fn sqlite3(place: &Place, database: &Path, with_extension: bool) -> bool {
    let mut command = Command::new("sqlite3");
    command.arg("-bail").arg(":memory:").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    let load = match with_extension {
        true => format!(".load {}\n", place.programs.extension.display()),
        false => String::new(),
    };
    let text = format!("{load}.open {}\n{IMPATIENT};\n{INSERT};\n", database.display());
    process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    process.wait().unwrap().success()
}

#[test]
fn another_sqlite_can_write_only_with_the_extension() {
    let place = Place::new("refuse-shell");
    let (primary, standby, database) = refusing(&place);
    let mut application = place.application(&database);
    application.run(INSERT);
    assert!(!sqlite3(&place, &database, false));
    assert!(sqlite3(&place, &database, true));
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&database), 4);
}
