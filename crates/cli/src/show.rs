//! The state of an instance as readable text: 80 columns, no colour.

use crate::printable::printable_lines;
use serde_json::Value;
use standfast_live::Status;

fn text(value: &Value) -> String {
    match value {
        Value::Null => "unknown".into(),
        // Names of files and processes may hold anything; they are escaped for the terminal.
        Value::String(text) => standfast_types::printable(text, usize::MAX),
        other => other.to_string(),
    }
}

fn bytes(value: &Value) -> String {
    match value.as_u64() {
        None => "unknown".into(),
        Some(bytes) if bytes < 10 << 10 => format!("{bytes} B"),
        Some(bytes) if bytes < 10 << 20 => format!("{} KiB", bytes >> 10),
        Some(bytes) => format!("{} MiB", bytes >> 20),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// State of the certificate; `None` without one.
fn certificate(status: &Value) -> Option<String> {
    let status = Status::of(status);
    let certificate = status.certificate()?;
    let state = certificate.state.as_deref()?;
    let left = certificate.left(status.time_us).map_or_else(String::new, |left| format!(", {left} left"));
    Some(match (state, &certificate.renewal_failure) {
        ("valid" | "due", None) => format!("certificate: {state}{left}"),
        (_, why) => {
            let why = why.as_deref().unwrap_or("it was not renewed").replace(" | hint: ", "\n  hint: ");
            format!("CERTIFICATE {}{left}: {why}", state.to_uppercase())
        }
    })
}

/// Protection mode, and the level where it differs.
pub fn protection(protection: &Value) -> String {
    let words = |key: &str| text(&protection[key]).replace('-', " ");
    let (mode, level) = (words("mode"), words("level"));
    if mode == level || protection["level"].is_null() {
        mode
    } else {
        format!("{mode}, level {}", level.to_uppercase())
    }
}

/// Prints the state of an instance.
pub fn status(status: &Value) {
    println!(
        "{}  {} ({})  incarnation {}  {}",
        text(&status["name"]),
        text(&status["role"]),
        text(&status["state"]),
        text(&status["incarnation"]),
        text(&status["directory"]),
    );
    if !status["failure"].is_null() {
        println!("FAILURE: {}", text(&status["failure"]));
    }
    if status["security"]["insecure"] == true {
        println!("INSECURE: plain TCP lets every user and host that reaches the port read and write redo");
        println!(
            "  hint: give each instance a certificate (`standfast cert join`), then take `insecure = true` out of"
        );
        println!("  [instance] at both ends and restart them");
    }
    if let Some(certificate) = certificate(status) {
        println!("{certificate}");
    }
    if status["role"] == "primary" && !status["captured"].is_null() {
        println!(
            "redo: captured {}  durable {}  released {}  commits {}  waiting {}",
            text(&status["captured"]),
            text(&status["durable"]),
            text(&status["released"]),
            text(&status["commits"]),
            text(&status["waiting_commits"]),
        );
        println!("protection: {}", protection(&status["protection"]));
        let checkpoints = &status["checkpoints"];
        println!(
            "checkpoints: passive {}  WALs rewritten {}  reset {}  gates {}  longest gate {} us",
            text(&checkpoints["passive"]),
            text(&checkpoints["rewrites"]),
            text(&checkpoints["resets"]),
            text(&checkpoints["gates"]),
            text(&checkpoints["gate_us_max"]),
        );
        if let Some(event) = status["waiting_for"].as_str().filter(|event| !event.is_empty()) {
            println!("WAITING for {event}; commits held up: {}", text(&status["waiting_commits"]));
            println!("  {}", remedy(event));
        }
    }
    standby(&status["standby"]);
    if let Some(event) = status["waiting_for"].as_str().filter(|event| !event.is_empty())
        && status["role"] == "standby"
    {
        println!("WAITING for {event}");
    }
    for wait in list(&status["waits"]).iter().filter(|wait| wait["count"] != 0) {
        println!(
            "waited: {} x {}, {} us",
            text(&wait["count"]),
            text(&wait["event"]),
            text(&wait["time_us"])
        );
    }
    for group in list(&status["log"]["groups"]) {
        for member in list(&group["lost_members"]) {
            println!("LOST redo log member: {}", text(member));
        }
    }
    if !list(&status["databases"]).is_empty() {
        println!("\n{:>4}  {:<10} {:<20} path", "id", "state", "database");
        for database in list(&status["databases"]) {
            println!(
                "{:>4}  {:<10} {:<20} {}",
                text(&database["id"]),
                text(&database["state"]),
                text(&database["name"]),
                text(&database["path"])
            );
        }
        for database in list(&status["databases"]) {
            foreign_commits(database);
        }
        for database in list(&status["databases"]).iter().filter(|database| database["state"] == "left out") {
            let (name, why) =
                (text(&database["name"]), database["why"].as_str().unwrap_or("the alert log says why"));
            println!("OFFLINE {name}: {}", printable_lines(why.split('\n').next().unwrap_or_default()));
            println!(
                "  hint: remove the cause and restart the instance, or decide what counts: `standfast database resolve {name}`"
            );
        }
        for database in list(&status["databases"]).iter().filter(|database| !database["failure"].is_null()) {
            println!("FAILED {}: {}", text(&database["name"]), text(&database["failure"]));
            println!("  hint: check its disk, then restart the instance; its redo is kept");
        }
    }
    for file in list(&status["unprotected_files"]) {
        println!("NOT PROTECTED, in a protected directory: {}", text(file));
    }
    kept_files(&status["kept_files"]);
    differing_pages(&status["differing_pages"]);
    verification(&status["verification"]);
    destinations(&status["destinations"]);
    local_destinations(&status["local_destinations"]);
}

/// Prints commits without the VFS, if there were any.
fn foreign_commits(database: &Value) {
    if database["foreign_commits"].as_u64().is_none_or(|commits| commits == 0) {
        return;
    }
    println!(
        "COMMITS WITHOUT STANDFAST {}: {} since the instance opened it; they waited for no standby",
        text(&database["name"]),
        text(&database["foreign_commits"])
    );
    for process in list(&database["foreign_processes"]) {
        println!("  open without the VFS in {} (pid {})", text(&process["name"]), text(&process["pid"]));
    }
}

/// Prints the number of files that were kept when another content replaced a database.
fn kept_files(files: &Value) {
    let bytes: u64 = list(files).iter().filter_map(|file| file["bytes"].as_u64()).sum();
    if !list(files).is_empty() {
        println!("kept: {} files, {bytes} bytes; `standfast database kept` lists them", list(files).len());
    }
}

/// Prints pages here that differ from those of a primary.
fn differing_pages(pages: &Value) {
    for page in list(pages).iter().take(10) {
        println!(
            "DIFFERS: page {} of {} is not what the primary had as of SCN {}",
            text(&page["page"]),
            text(&page["database"]),
            text(&page["scn"])
        );
    }
    if let Some(more) = list(pages).len().checked_sub(10).filter(|more| *more > 0) {
        println!("DIFFERS: {more} more");
    }
}

/// Prints the newest comparison with standbys.
fn verification(run: &Value) {
    if run.is_null() {
        return;
    }
    let (state, repair) = (text(&run["state"]), if run["repair"] == true { " with repair" } else { "" });
    print!(
        "verification{repair}: {state}, {} of {} pages read",
        text(&run["pages_read"]),
        text(&run["pages"])
    );
    match run["failure"].as_str() {
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

fn standby(standby: &Value) {
    if standby.is_null() {
        return;
    }
    let connected = if standby["connected"] == true { "connected" } else { "NOT CONNECTED" };
    let (hardened, confirmed) = (text(&standby["hardened"]), text(&standby["confirmed"]));
    print!("standby: {connected}  hardened {hardened}  confirmed {confirmed}");
    match standby.get("applied") {
        Some(applied) => {
            println!("  applied {}  apply lag {}", text(applied), bytes(&standby["apply_lag_bytes"]))
        }
        None => println!(),
    }
    if let Some(warning) = standby["log_warning"].as_str() {
        println!("WARNING: {}", printable_lines(warning));
    }
    if let Some(delay) = standby["delay_s"].as_u64().filter(|delay| *delay > 0) {
        println!("apply delay: {delay} s");
    }
    let source = &standby["source"];
    if !source.is_null() && source["role"] != "primary" {
        let via: Vec<String> = list(&source["via"]).iter().map(text).collect();
        println!(
            "source: {} ({}), which gets its redo from {}; it had redo up to {}",
            text(&source["name"]),
            text(&source["role"]),
            if via.is_empty() { "no instance".into() } else { via.join(" > ") },
            text(&standby["source_end"]),
        );
    }
    gap(&standby["gap"]);
    stopped(&standby["stopped_databases"], "");
}

/// Prints archived logs that are missing and being transferred.
fn gap(gap: &Value) {
    if gap.is_null() {
        return;
    }
    println!(
        "             GAP: logs {} to {} are missing, {} of {} left over {} connections; the stream continues at SCN {}",
        text(&gap["low_sequence"]),
        text(&gap["high_sequence"]),
        bytes(&gap["bytes_left"]),
        bytes(&gap["bytes"]),
        text(&gap["connections"]),
        text(&gap["to"]),
    );
}

/// Prints the databases to which redo is not applied, and why.
fn stopped(databases: &Value, place: &str) {
    for stopped in list(databases) {
        println!(
            "NOT APPLIED{place} to {} since SCN {}: {}",
            text(&stopped["database"]),
            text(&stopped["applied"]),
            printable_lines(stopped["reason"].as_str().unwrap_or("unknown"))
                .replace(" | hint: ", "\nhint: ")
                .replace("\nhint: ", "\n  hint: "),
        );
    }
}

fn local_destinations(destinations: &Value) {
    if list(destinations).is_empty() {
        return;
    }
    println!("\n{:<17} {:<10} {:<9} location", "local destination", "status", "");
    for at in list(destinations) {
        let mandatory = if at["mandatory"] == true { "mandatory" } else { "optional" };
        println!(
            "{:<17} {:<10} {mandatory:<9} {}",
            text(&at["name"]),
            text(&at["status"]),
            text(&at["location"])
        );
        if let Some(trouble) = at["trouble"].as_str().filter(|_| at["status"] != "VALID") {
            println!("                  {}", printable_lines(trouble));
        }
    }
}

fn destinations(destinations: &Value) {
    if list(destinations).is_empty() {
        return;
    }
    println!(
        "\n{:<12} {:<12} {:<12} {:<10} {:>13} {:>10}",
        "destination", "mode", "state", "commits", "transport lag", "apply lag"
    );
    for destination in list(destinations) {
        println!(
            "{:<12} {:<12} {:<12} {:<10} {:>13} {:>10}",
            text(&destination["name"]),
            text(&destination["mode"]),
            text(&destination["state"]),
            if destination["required"] == true { "wait" } else { "do not" },
            bytes(&destination["transport_lag_bytes"]),
            bytes(&destination["apply_lag_bytes"]),
        );
        if let Some(trouble) =
            destination["last_trouble"].as_str().filter(|_| destination["state"] != "streaming")
        {
            println!("             {}", printable_lines(trouble));
        }
        gap(&destination["gap"]);
    }
    for destination in list(destinations) {
        let databases = &destination["stopped_databases"];
        stopped(databases, &format!(" at {}", text(&destination["name"])));
        let named = list(databases).len() as u64;
        if let Some(more) = destination["stopped_total"].as_u64().filter(|total| *total > named) {
            println!("NOT APPLIED at {}: {} more", text(&destination["name"]), more - named);
        }
        for database in list(&destination["verified_databases"]).iter().filter(|at| at["differing"] != 0) {
            println!(
                "DIFFERS at {}: {} pages of {}, page {} as of SCN {} the first",
                text(&destination["name"]),
                text(&database["differing"]),
                text(&database["database"]),
                text(&database["pages"][0]["page"]),
                text(&database["pages"][0]["scn"]),
            );
            println!("  hint: `standfast verify {} --repair` sends them again", text(&database["database"]));
        }
    }
}

/// Prints log groups with their members.
pub fn groups(groups: &Value) {
    println!(
        "{:>5} {:<9} {:>13} {:>9} {:>14} {:<9} members",
        "group", "state", "bytes", "sequence", "first SCN", "archived"
    );
    for group in list(groups) {
        let unless_unused = |key: &str| if group[key].is_null() { "-".to_owned() } else { text(&group[key]) };
        println!(
            "{:>5} {:<9} {:>13} {:>9} {:>14} {:<9} {}",
            text(&group["group"]),
            text(&group["state"]),
            text(&group["bytes"]),
            unless_unused("sequence"),
            unless_unused("first_scn"),
            if group["archived"] == true { "yes" } else { "no" },
            list(&group["members"]).iter().map(text).collect::<Vec<_>>().join(" "),
        );
        for member in list(&group["lost_members"]) {
            println!("      LOST {}", text(member));
        }
    }
}
