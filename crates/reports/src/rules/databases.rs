//! Rules about the present state of protected databases.

use super::finding::{Finding, Severity, UNPROTECTED, Unit};
use standfast_documents::status::Database;
use standfast_instruments::Observation;
use standfast_types::hint;

/// R30: commits without the VFS count for this many microseconds, as in `status --check`.
const LATELY_US: u64 = 900_000_000;

pub(super) fn all(newest: &Observation) -> Vec<Finding> {
    let now_us = newest.status.time_us;
    let all = || newest.status.databases().iter();
    let foreign = all().filter_map(|database| foreign_commits(database, now_us?));
    let refusing = all().filter_map(not_yet_refused);
    all()
        .filter_map(offline)
        .chain(foreign)
        .chain(refusing)
        .chain(unprotected(newest))
        .chain(not_applied_here(newest))
        .collect()
}

/// R33: a database is offline since the start, because its file is not shown to descend from its redo.
fn offline(database: &Database) -> Option<Finding> {
    if database.state.as_deref() != Some("left out") {
        return None;
    }
    let name = database.name.as_deref()?;
    let title = format!("database {name} is offline: it is not shown that its file descends from its redo");
    let mut finding = Finding::new("R33", Severity::Critical, UNPROTECTED, title).with(
        "its redo is kept from SCN",
        database.redo_needed_from.map(|scn| scn as f64),
        Unit::Count,
    );
    if let Some(why) = database.why.as_deref() {
        finding = finding.saying(hint::split(why).0);
    }
    let finding = finding
        .remedy(format!(
            "remove the cause and restart the instance, or decide what counts: `standfast database resolve {name}` shows what \
             each choice would lose"
        ))
        .unless("a database that is open again a moment later");
    Some(finding)
}

/// R31: unprotected databases in protected directories.
fn unprotected(newest: &Observation) -> Option<Finding> {
    let files = newest.status.unprotected_files.as_ref().filter(|files| !files.is_empty())?;
    let title = "databases in a protected directory are not protected";
    let mut finding = Finding::new("R31", Severity::Warning, UNPROTECTED, title).with(
        "files",
        Some(files.len() as f64),
        Unit::Count,
    );
    for file in files.iter().take(8) {
        finding = finding.saying(file.as_str());
    }
    let finding = finding
        .remedy("`standfast protect` the directory again, or `standfast unprotect` it when they need no protection")
        .unless("files that are backups or not meant to stay");
    Some(finding)
}

/// R22: databases of this standby to which redo is not applied.
fn not_applied_here(newest: &Observation) -> Option<Finding> {
    let stopped = newest.status.standby.as_ref()?.stopped_databases.as_ref().filter(|all| !all.is_empty())?;
    let title = "this standby does not apply redo to some databases";
    let mut finding = Finding::new("R22 apply", Severity::Critical, UNPROTECTED, title).with(
        "databases",
        Some(stopped.len() as f64),
        Unit::Count,
    );
    for stopped in stopped.iter().take(8) {
        let part = |of: &Option<String>| of.as_deref().unwrap_or("unknown").replace('\n', " | ");
        finding = finding.saying(format!("{}: {}", part(&stopped.database), part(&stopped.reason)));
    }
    Some(finding.remedy("as the reason says").unless("a list that is empty a moment later"))
}

/// R30: a process commits without the VFS.
fn foreign_commits(database: &Database, now_us: u64) -> Option<Finding> {
    let ago_us = now_us.saturating_sub(database.foreign_seen_us?);
    if ago_us >= LATELY_US {
        return None;
    }
    let name = database.name.as_deref()?;
    let title = format!("database {name}: commits without Standfast, which wait for no standby");
    let mut finding = Finding::new("R30", Severity::Warning, UNPROTECTED, title)
        .with(
            "commits since the instance opened it",
            database.foreign_commits.map(|commits| commits as f64),
            Unit::Count,
        )
        .with("the last one, before", Some(ago_us as f64 / 1e6), Unit::Seconds);
    for process in database.foreign_processes.iter().flatten() {
        if let (Some(name), Some(pid)) = (&process.name, process.pid) {
            finding = finding.saying(format!("open without the VFS in {name} (pid {pid})"));
        }
    }
    let finding = finding
        .remedy("load the extension in that application before it opens the database, or preload it")
        .unless("a count that no longer grows");
    Some(finding)
}

/// R32: processes without the VFS are configured to be refused, but are not yet.
fn not_yet_refused(database: &Database) -> Option<Finding> {
    if database.foreign_writers.as_deref() != Some("refusing") {
        return None;
    }
    let name = database.name.as_deref()?;
    let title =
        format!("database {name}: processes without Standfast can write, though they are to be refused");
    let finding = Finding::new("R32", Severity::Warning, UNPROTECTED, title)
        .remedy("end the process that has a transaction open there without Standfast; the alert log says when others are refused")
        .unless("`refused` a moment later");
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use standfast_documents::Status;

    #[test]
    fn recent_commits_without_the_vfs_are_reported_with_the_process() {
        let observation = |time_us: u64| Observation {
            status: Status::of(&json!({ "time_us": time_us, "databases": [
                { "name": "quiet.db", "foreign_commits": 0, "foreign_seen_us": null },
                { "name": "app.db", "foreign_commits": 2, "foreign_seen_us": 1_000_000,
                  "foreign_processes": [{ "pid": 7, "name": "cron" }] },
            ] })),
            ..Observation::default()
        };
        let found = all(&observation(2_000_000));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].title.contains("app.db") && found[0].evidence.iter().any(|at| at.what.contains("cron"))
        );
        assert_eq!(all(&observation(1_000_000 + LATELY_US)), []);
        assert_eq!(all(&Observation::default()), []);
    }

    #[test]
    fn database_that_still_admits_foreign_writers_is_reported() {
        let of = |writers: &str| {
            let status = json!({ "databases": [{ "name": "app.db", "foreign_writers": writers }] });
            all(&Observation { status: Status::of(&status), ..Observation::default() })
        };
        assert_eq!((of("refused"), of("counted")), (vec![], vec![]));
        assert!(of("refusing").len() == 1 && of("refusing")[0].title.contains("app.db"));
    }

    #[test]
    fn offline_database_is_reported_with_the_resolve_command() {
        let status = json!({ "time_us": 1, "databases": [
            { "name": "app.db", "state": "left out", "redo_needed_from": 70, "why": "another file is at /srv/app.db\nhint: x" },
            { "name": "open.db", "state": "open" },
        ] });
        let found = all(&Observation { status: Status::of(&status), ..Observation::default() });
        assert_eq!(found.len(), 1);
        assert!(found[0].evidence.iter().any(|at| at.what == "another file is at /srv/app.db"));
        assert!(found[0].remedy.contains("standfast database resolve app.db"));
    }

    #[test]
    fn databases_with_stopped_apply_are_reported_at_the_standby() {
        let stopped = |all: Value| Observation {
            status: Status::of(&json!({ "standby": { "stopped_databases": all } })),
            ..Observation::default()
        };
        let found = all(&stopped(json!([{ "database": "app.db", "reason": "a page differs" }])));
        assert!(found.len() == 1 && found[0].severity == Severity::Critical);
        assert!(found[0].evidence.iter().any(|at| at.what == "app.db: a page differs"));
        assert_eq!(all(&stopped(json!([]))), []);
    }

    #[test]
    fn unprotected_files_in_a_protected_directory_are_reported() {
        let status = json!({ "unprotected_files": ["/srv/new.db"] });
        let found = all(&Observation { status: Status::of(&status), ..Observation::default() });
        assert!(found.len() == 1 && found[0].evidence.iter().any(|at| at.what == "/srv/new.db"));
    }
}
