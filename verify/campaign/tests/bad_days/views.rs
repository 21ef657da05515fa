//! V$ views in applications and on the command line, also without an instance that answers.

use crate::support::{INSERT, Place, await_status, must, refuses, start};
use serde_json::json;
use standfast_campaign::status::Status;

const SQLITE_ERROR: i32 = 1;

#[test]
fn views_answer_and_fail_with_a_remedy_when_instance_is_down() {
    let (place, began) = (Place::new("views"), std::time::Instant::now());
    let (mut primary, database) = place.protecting();
    let mut application = place.application(&database);
    application.run(INSERT);
    let role = "SELECT db_unique_name, database_role, open_mode FROM v$database";
    assert_eq!(application.run(role), [[json!("south"), json!("PRIMARY"), json!("READ WRITE")]]);
    must(&primary, &["switch-logfile"]);
    let log = "SELECT group_no, status, typeof(next_change_no) FROM v$log ORDER BY group_no LIMIT 2";
    let rows = application.run(log);
    assert_eq!(rows[1], [json!(2), json!("CURRENT"), json!("null")]);
    assert_eq!(rows[0][2], "integer");
    // A join scans one view repeatedly; each view is fetched once.
    let join =
        "SELECT DISTINCT f.type FROM v$log l JOIN v$logfile f USING (group_no) WHERE l.bytes = 8388608";
    assert_eq!(application.run(join), [[json!("ONLINE")]]);
    let unfilled = "SELECT count(*), count(total_timeouts) FROM v$system_event WHERE event = 'log file sync'";
    assert_eq!(application.run(unfilled), [[json!(1), json!(0)]]);
    // Within a transaction, without taking part in it.
    let rows = application.run("BEGIN; INSERT INTO t(x) VALUES('in'); SELECT name FROM v$database; COMMIT");
    assert_eq!(rows, [[json!("south")]]);
    application.fails("INSERT INTO v$log(group_no) VALUES(1)", SQLITE_ERROR);
    application.fails("CREATE VIRTUAL TABLE x USING \"v$log\"", SQLITE_ERROR);

    primary.stop().unwrap();
    let printed = application.fails(role, SQLITE_ERROR);
    assert!(printed.contains("v$database") && printed.contains("standfast start -D"), "{printed}");
    start(&mut primary);
    assert_eq!(application.run(role).len(), 1, "it is found again");
    // The time in which the log writer was idle is not write time.
    let time = "SELECT value FROM v$sysstat WHERE name = 'redo write time (usec)'";
    let written_us = application.run(time)[0][0].as_u64().unwrap();
    assert!(u128::from(written_us) < began.elapsed().as_micros(), "{written_us} us since the start");
    application.close();
}

#[test]
fn view_fails_without_protected_database_and_finds_attached_one() {
    let place = Place::new("views-plain");
    let (_primary, database) = place.protecting();
    let mut application = place.application(&place.database("plain.db"));
    let printed = application.fails("SELECT * FROM v$log", SQLITE_ERROR);
    assert!(printed.contains("standfast protect"), "{printed}");
    application.run(&format!("ATTACH '{}' AS other", database.display()));
    assert_eq!(application.run("SELECT name FROM v$database"), [[json!("south")]]);
    application.close();
    let mut foreigner = place.foreigner(&database);
    let printed = foreigner.fails("SELECT * FROM v$log", SQLITE_ERROR);
    assert!(printed.contains("no such table"), "{printed}");
}

#[test]
fn a_standby_shows_its_lags_and_its_own_logs() {
    let place = Place::new("views-standby");
    let (primary, standby, database) = place.pair(&[]);
    place.application(&database).run(INSERT);
    await_status(&primary, "the standby has applied everything", Status::settled);
    let ask = |instance: &standfast_campaign::instance::Instance, query: &str| {
        let answer = must(instance, &["sql", "--json", query]);
        serde_json::from_str::<serde_json::Value>(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
    };
    let lags =
        "SELECT name, value FROM v$dataguard_stats WHERE name LIKE '%lag' AND db_unique_name = 'north'";
    let expected = json!([{"name": "transport lag", "value": "+00 00:00:00"},
        {"name": "apply lag", "value": "+00 00:00:00"}]);
    standfast_campaign::process::await_condition("both lags are 0", crate::support::TIMEOUT, || {
        let lags = ask(&standby, lags);
        Ok(if lags == expected { Ok(()) } else { Err(lags.to_string()) })
    })
    .unwrap();
    // Values that the standby knows of itself are not NULL.
    let times = "SELECT count(value) AS known FROM v$dataguard_stats WHERE db_unique_name = 'north' \
                 AND name IN ('apply finish time', 'estimated startup time')";
    assert_eq!(ask(&standby, times), json!([{"known": 2}]));
    let applied =
        "SELECT count(timestamp) AS known FROM v$recovery_progress WHERE item = 'Last Applied Redo'";
    assert_eq!(ask(&standby, applied), json!([{"known": 1}]));
    // A log that was shipped has a row of its destination, and therefore a rate.
    must(&primary, &["switch-logfile"]);
    let rate = "SELECT count(*) > 0 AS shipped FROM v$archived_log WHERE dest_id = 1 AND standby_dest = 'YES' \
                AND db_unique_name = 'south'";
    standfast_campaign::process::await_condition(
        "the log is at the standby",
        crate::support::TIMEOUT,
        || {
            let rate = ask(&primary, rate);
            Ok(if rate == json!([{"shipped": 1}]) { Ok(()) } else { Err(rate.to_string()) })
        },
    )
    .unwrap();
    let roles = ask(&primary, "SELECT database_role FROM v$database");
    let expected = json!([{"database_role": "PRIMARY"}, {"database_role": "PHYSICAL STANDBY"}]);
    assert_eq!(roles, expected, "the standby is shown at the primary as well");
    // The standby records its lag once a second, and its metrics every 15 seconds.
    let noted = "SELECT (SELECT count(*) > 0 FROM v$standby_event_histogram WHERE db_unique_name = 'north') AS lags, \
                 (SELECT count(*) > 0 FROM v$sysmetric_history WHERE db_unique_name = 'north') AS metrics";
    standfast_campaign::process::await_condition(
        "its history at the primary",
        crate::support::TIMEOUT,
        || {
            let noted = ask(&primary, noted);
            Ok(if noted == json!([{"lags": 1, "metrics": 1}]) { Ok(()) } else { Err(noted.to_string()) })
        },
    )
    .unwrap();
    let kinds = "SELECT DISTINCT type FROM v$logfile WHERE db_unique_name = 'north'";
    assert_eq!(ask(&standby, kinds), json!([{"type": "STANDBY"}]));
    let destination = "SELECT dest_id, status, affirm, db_unique_name FROM v$archive_dest \
                       WHERE source_db_unique_name = 'south'";
    let expected = json!([{"dest_id": 1, "status": "VALID", "affirm": "YES", "db_unique_name": "north"}]);
    assert_eq!(ask(&primary, destination), expected);
}

#[test]
fn sql_command_fails_with_the_common_exit_codes() {
    let place = Place::new("views-cli");
    let mut primary = place.primary("south");
    let table = must(&primary, &["sql", "SELECT name, flashback_on FROM v$database"]);
    assert_eq!(table, "name   flashback_on\n-----  ------------\nsouth  NO\n");
    assert_eq!(must(&primary, &["sql", "--csv", "--no-header", "SELECT NULL, 'a,b', ''"]), ",\"a,b\",\"\"\n");
    refuses(&primary, &["sql", "SELECT * FROM v$nothing"], 1, &["v$nothing", "hint: ", "--views"]);
    refuses(&primary, &["sql", "SELEC"], 1, &["syntax error"]);
    refuses(&primary, &["sql", "--json", "--csv", "SELECT 1"], 2, &["--csv"]);
    primary.stop().unwrap();
    refuses(&primary, &["sql", "SELECT * FROM v$log"], 4, &["does not run", "standfast start"]);
    assert!(must(&primary, &["sql", "--views"]).contains("v$event_histogram_micro"));
}
