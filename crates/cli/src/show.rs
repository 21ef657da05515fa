//! The state of an instance as readable text: 80 columns, no colour.

use crate::printable::printable_lines;
use standfast_documents::Status;
use standfast_documents::group::Group;
use standfast_documents::status::{
    Database, Destination, FastStartFailover, Gap, KeptFile, LocalDestination, Protection, Received, Stopped,
};
use standfast_documents::verification::{DifferingPage, VerificationRun};
use standfast_types::hint;
use std::fmt::Display;

/// Names of files and processes may hold anything; they are escaped for the terminal.
fn text(of: &Option<impl Display>) -> String {
    let escaped = |of: &dyn Display| standfast_types::printable(&of.to_string(), usize::MAX);
    of.as_ref().map_or_else(|| "unknown".into(), |of| escaped(of))
}

pub(crate) fn bytes(of: Option<u64>) -> String {
    match of {
        None => "unknown".into(),
        Some(bytes) if bytes < 10 << 10 => format!("{bytes} B"),
        Some(bytes) if bytes < 10 << 20 => format!("{} KiB", bytes >> 10),
        Some(bytes) => format!("{} MiB", bytes >> 20),
    }
}

fn list<T>(of: &Option<Vec<T>>) -> &[T] {
    of.as_deref().unwrap_or_default()
}

/// State of the certificate; `None` without one.
fn certificate(status: &Status) -> Option<String> {
    let certificate = status.certificate()?;
    let state = certificate.state.as_deref()?;
    let left = standfast_live::certificate::left(certificate, status.time_us);
    let left = left.map_or_else(String::new, |left| format!(", {left} left"));
    Some(match (state, &certificate.renewal_failure) {
        ("valid" | "due", None) => format!("certificate: {state}{left}"),
        (_, why) => {
            let why = hint::lines(why.as_deref().unwrap_or("it was not renewed"), "  ");
            format!("CERTIFICATE {}{left}: {why}", state.to_uppercase())
        }
    })
}

/// Protection mode, and the level where it differs.
pub fn protection(protection: &Protection) -> String {
    let words = |of: &Option<String>| text(of).replace('-', " ");
    let (mode, level) = (words(&protection.mode), words(&protection.level));
    if mode == level || protection.level.is_none() {
        mode
    } else {
        format!("{mode}, level {}", level.to_uppercase())
    }
}

/// Fast-start failover in one line.
fn fast_start(shown: &FastStartFailover) -> String {
    let target = shown.target.as_deref().filter(|target| !target.is_empty());
    let may =
        target.map_or_else(|| "no member may take over".into(), |target| format!("`{target}` may take over"));
    let error = shown.observer_error.as_deref().filter(|error| !error.is_empty());
    let why = error.map_or_else(String::new, |error| format!(": {error}"));
    printable_lines(&format!("{}  {may}  observer {}{why}", text(&shown.status), text(&shown.observer)))
}

/// Prints the state of an instance.
pub fn status(status: &Status) {
    println!(
        "{}  {} ({})  incarnation {}  {}",
        text(&status.name),
        text(&status.role),
        text(&status.state),
        text(&status.incarnation),
        text(&status.directory),
    );
    if status.failure.is_some() {
        println!("FAILURE: {}", text(&status.failure));
    }
    if status.security.as_ref().is_some_and(|security| security.insecure == Some(true)) {
        println!("INSECURE: plain TCP lets every user and host that reaches the port read and write redo");
        println!(
            "  hint: give each instance a certificate (`standfast cert join`), then take `insecure = true` out of"
        );
        println!("  [instance] at both ends and restart them");
    }
    if let Some(certificate) = certificate(status) {
        println!("{certificate}");
    }
    if status.is_primary() && status.captured.is_some() {
        println!(
            "redo: captured {}  durable {}  released {}  commits {}  waiting {}",
            text(&status.captured),
            text(&status.durable),
            text(&status.released),
            text(&status.commits),
            text(&status.waiting_commits),
        );
        println!("protection: {}", protection(&status.protection.clone().unwrap_or_default()));
        let checkpoints = status.checkpoints.clone().unwrap_or_default();
        println!(
            "checkpoints: passive {}  WALs rewritten {}  reset {}  gates {}  longest gate {} us",
            text(&checkpoints.passive),
            text(&checkpoints.rewrites),
            text(&checkpoints.resets),
            text(&checkpoints.gates),
            text(&checkpoints.gate_us_max),
        );
        if let Some(event) = status.blocked_by() {
            println!("WAITING for {event}; commits held up: {}", text(&status.waiting_commits));
            println!("  {}", remedy(event));
        }
    }
    if let Some(shown) = &status.fast_start_failover {
        println!("fast-start failover: {}", fast_start(shown));
    }
    standby(status.standby.as_ref());
    if let Some(event) = status.blocked_by()
        && status.role.as_deref() == Some("standby")
    {
        println!("WAITING for {event}");
    }
    for wait in list(&status.waits).iter().filter(|wait| wait.count != Some(0)) {
        println!("waited: {} x {}, {} us", text(&wait.count), text(&wait.event), text(&wait.time_us));
    }
    for group in status.groups() {
        for member in list(&group.lost_members) {
            println!("LOST redo log member: {}", text(&Some(member)));
        }
    }
    if !status.databases().is_empty() {
        println!("\n{:>4}  {:<10} {:<20} path", "id", "state", "database");
        for database in status.databases() {
            println!(
                "{:>4}  {:<10} {:<20} {}",
                text(&database.id),
                text(&database.state),
                text(&database.name),
                text(&database.path)
            );
        }
        for database in status.databases() {
            foreign_commits(database);
        }
        for database in
            status.databases().iter().filter(|database| database.state.as_deref() == Some("left out"))
        {
            let (name, why) =
                (text(&database.name), database.why.as_deref().unwrap_or("the alert log says why"));
            println!("OFFLINE {name}: {}", printable_lines(hint::split(why).0));
            println!(
                "  hint: remove the cause and restart the instance, or decide what counts: `standfast database resolve {name}`"
            );
        }
        for database in status.databases().iter().filter(|database| database.failure.is_some()) {
            println!("FAILED {}: {}", text(&database.name), text(&database.failure));
            println!("  hint: check its disk, then restart the instance; its redo is kept");
        }
    }
    for file in list(&status.unprotected_files) {
        println!("NOT PROTECTED, in a protected directory: {}", text(&Some(file)));
    }
    kept_files(list(&status.kept_files));
    differing_pages(list(&status.differing_pages));
    verification(status.verification.as_ref());
    destinations(status.destinations());
    local_destinations(list(&status.local_destinations));
}

/// Prints commits without the VFS, if there were any.
fn foreign_commits(database: &Database) {
    if database.foreign_commits.is_none_or(|commits| commits == 0) {
        return;
    }
    println!(
        "COMMITS WITHOUT STANDFAST {}: {} since the instance opened it; they waited for no standby",
        text(&database.name),
        text(&database.foreign_commits)
    );
    for process in list(&database.foreign_processes) {
        println!("  open without the VFS in {} (pid {})", text(&process.name), text(&process.pid));
    }
}

/// Prints the number of files that were kept when another content replaced a database.
fn kept_files(files: &[KeptFile]) {
    let bytes: u64 = files.iter().filter_map(|file| file.bytes).sum();
    if !files.is_empty() {
        println!("kept: {} files, {bytes} bytes; `standfast database kept` lists them", files.len());
    }
}

/// Prints pages here that differ from those of a primary.
fn differing_pages(pages: &[DifferingPage]) {
    for page in pages.iter().take(10) {
        println!(
            "DIFFERS: page {} of {} is not what the primary had as of SCN {}",
            text(&page.page),
            text(&page.database),
            text(&page.scn)
        );
    }
    if let Some(more) = pages.len().checked_sub(10).filter(|more| *more > 0) {
        println!("DIFFERS: {more} more");
    }
}

/// Prints the newest comparison with standbys.
fn verification(run: Option<&VerificationRun>) {
    let Some(run) = run else { return };
    let (state, repair) = (run.state.name(), if run.repair { " with repair" } else { "" });
    print!("verification{repair}: {state}, {} of {} pages read", run.pages_read, run.pages);
    match &run.failure {
        Some(why) => println!(": {why}"),
        None => println!(),
    }
    for line in crate::verify::report(run).lines().filter(|line| !line.contains(" pages are equal, ")) {
        println!("  {line}");
    }
}

/// The remedy for a named wait.
fn remedy(event: &str) -> &'static str {
    if event.starts_with("SYNC destination") {
        "hint: bring the destination back, or let commits continue without it: add it again with --on-timeout degrade"
    } else if event.starts_with("fast-start failover") {
        "hint: `standfast dg show fast_start failover` says what is missing; commits continue once it is back"
    } else if event.starts_with("full resync") {
        "hint: end the transaction that writes to the database; the alert log says what keeps the copy from beginning"
    } else if event.contains("archiving") {
        "hint: make room for archived logs; the alert log says what keeps them from being written"
    } else if event.starts_with("log buffer") || event.ends_with("completion") {
        "hint: the redo log cannot be written faster; look after its device, and what else writes to it"
    } else {
        "hint: it passes when the databases are synced; if it comes often, make redo group_bytes larger"
    }
}

fn standby(standby: Option<&Received>) {
    let Some(standby) = standby else { return };
    let connected = if standby.connected == Some(true) { "connected" } else { "NOT CONNECTED" };
    let (hardened, confirmed) = (text(&standby.hardened), text(&standby.confirmed));
    print!("standby: {connected}  hardened {hardened}  confirmed {confirmed}");
    match standby.applied {
        Some(applied) => println!("  applied {applied}  apply lag {}", bytes(standby.apply_lag_bytes)),
        None => println!(),
    }
    if let Some(warning) = standby.log_warning.as_deref() {
        println!("WARNING: {}", printable_lines(warning));
    }
    if let Some(snapshot) = &standby.snapshot {
        let takes = snapshot.apply_s.map_or(String::new(), |left| {
            format!(", which takes about {}", standfast_live::figure::seconds(left))
        });
        println!(
            "snapshot standby: applications write to its databases, and the redo waits{takes}; `standfast convert \
             physical-standby` discards what they have written and applies it"
        );
    }
    if let Some(delay) = standby.delay_s.filter(|delay| *delay > 0) {
        println!("apply delay: {delay} s");
    }
    if let Some(source) = standby.source.as_ref().filter(|source| source.role.as_deref() != Some("primary")) {
        let via: Vec<String> = list(&source.via).iter().map(|name| text(&Some(name))).collect();
        println!(
            "source: {} ({}), which gets its redo from {}; it had redo up to {}",
            text(&source.name),
            text(&source.role),
            if via.is_empty() { "no instance".into() } else { via.join(" > ") },
            text(&standby.source_end),
        );
    }
    gap(standby.gap.as_ref());
    stopped(list(&standby.stopped_databases), "");
}

/// Prints archived logs that are missing and being transferred.
fn gap(gap: Option<&Gap>) {
    let Some(gap) = gap else { return };
    println!(
        "             GAP: logs {} to {} are missing, {} of {} left over {} connections; the stream continues at SCN {}",
        text(&gap.low_sequence),
        text(&gap.high_sequence),
        bytes(gap.bytes_left),
        bytes(gap.bytes),
        text(&gap.connections),
        text(&gap.to),
    );
}

/// Prints the databases to which redo is not applied, and why.
fn stopped(databases: &[Stopped], place: &str) {
    for stopped in databases {
        println!(
            "NOT APPLIED{place} to {} since SCN {}: {}",
            text(&stopped.database),
            text(&stopped.applied),
            hint::lines(&printable_lines(stopped.reason.as_deref().unwrap_or("unknown")), "  "),
        );
    }
}

fn local_destinations(destinations: &[LocalDestination]) {
    if destinations.is_empty() {
        return;
    }
    println!("\n{:<17} {:<10} {:<9} location", "local destination", "status", "");
    for at in destinations {
        let mandatory = if at.mandatory == Some(true) { "mandatory" } else { "optional" };
        println!("{:<17} {:<10} {mandatory:<9} {}", text(&at.name), text(&at.status), text(&at.location));
        if let Some(error) = at.trouble.as_deref().filter(|_| at.status.as_deref() != Some("VALID")) {
            println!("                  {}", printable_lines(error));
        }
    }
}

fn destinations(destinations: &[Destination]) {
    if destinations.is_empty() {
        return;
    }
    println!(
        "\n{:<12} {:<12} {:<12} {:<10} {:>13} {:>10}",
        "destination", "mode", "state", "commits", "transport lag", "apply lag"
    );
    for destination in destinations {
        println!(
            "{:<12} {:<12} {:<12} {:<10} {:>13} {:>10}",
            text(&destination.name),
            text(&destination.mode),
            text(&destination.state),
            if destination.required == Some(true) { "wait" } else { "do not" },
            bytes(destination.transport_lag_bytes),
            bytes(destination.apply_lag_bytes),
        );
        if let Some(error) =
            destination.last_trouble.as_deref().filter(|_| destination.state.as_deref() != Some("streaming"))
        {
            println!("             {}", printable_lines(error));
        }
        gap(destination.gap.as_ref());
    }
    for destination in destinations {
        let databases = list(&destination.stopped_databases);
        stopped(databases, &format!(" at {}", text(&destination.name)));
        let named = databases.len() as u64;
        if let Some(more) = destination.stopped_total.filter(|total| *total > named) {
            println!("NOT APPLIED at {}: {} more", text(&destination.name), more - named);
        }
        for database in list(&destination.verified_databases).iter().filter(|at| at.differing != Some(0)) {
            let first = list(&database.pages).first().cloned().unwrap_or_default();
            println!(
                "DIFFERS at {}: {} pages of {}, page {} as of SCN {} the first",
                text(&destination.name),
                text(&database.differing),
                text(&database.database),
                text(&first.page),
                text(&first.scn),
            );
            println!("  hint: `standfast verify {} --repair` sends them again", text(&database.database));
        }
    }
}

/// Prints log groups with their members.
pub fn groups(groups: &[Group]) {
    println!(
        "{:>5} {:<9} {:>13} {:>9} {:>14} {:<9} members",
        "group", "state", "bytes", "sequence", "first SCN", "archived"
    );
    for group in groups {
        let unless_unused = |of: Option<u64>| of.map_or_else(|| "-".to_owned(), |of| of.to_string());
        println!(
            "{:>5} {:<9} {:>13} {:>9} {:>14} {:<9} {}",
            text(&group.group),
            text(&group.state),
            text(&group.bytes),
            unless_unused(group.sequence),
            unless_unused(group.first_scn),
            if group.archived == Some(true) { "yes" } else { "no" },
            list(&group.members).iter().map(|file| text(&Some(file))).collect::<Vec<_>>().join(" "),
        );
        for member in list(&group.lost_members) {
            println!("      LOST {}", text(&Some(member)));
        }
    }
}
