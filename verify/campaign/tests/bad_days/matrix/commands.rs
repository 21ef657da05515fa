//! Every command of the program, run by every actor.

use super::{ACTORS, Actor, Host, Table, Tried, logs};
use crate::local_users::is_root;
use standfast_campaign::process::run;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Returns the commands about an instance, each with all its words: commands whose manual page has `-D`, and which act
/// by themselves instead of only grouping subcommands. Without `tcptest`, which has a `-D` of its own.
fn known(host: &Host) -> BTreeSet<String> {
    let pages = host.place.path("man");
    let mut command = Command::new(&host.place.programs.standfast);
    command.arg("man").arg("--output").arg(&pages);
    run(command).unwrap().ok().unwrap();
    let names: Vec<(String, String)> = logs(&pages)
        .iter()
        .map(|page| {
            let name = page.file_stem().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(page).unwrap())
        })
        .collect();
    let is_group = |name: &str| names.iter().any(|(other, _)| other.starts_with(&format!("{name}-")));
    let about_an_instance = names.iter().filter(|(name, page)| {
        (!is_group(name) || name == "standfast-snapshot")
            && page.contains("\\-\\-directory\\fR")
            && *name != "standfast-tcptest"
    });
    about_an_instance.map(|(name, _)| name.trim_start_matches("standfast-").to_owned()).collect()
}

/// Returns what a refused command must not change.
fn state(directory: &Path) -> Vec<(String, Vec<u8>)> {
    const KEPT: [&str; 6] = [
        "standfast.toml",
        "tls/ca.crt",
        "tls/ca.key",
        "tls/identity.pem",
        "tls/members.json",
        "tls/authorities.json",
    ];
    let mut all: Vec<(String, Vec<u8>)> = KEPT
        .iter()
        .map(|name| ((*name).to_owned(), std::fs::read(directory.join(name)).unwrap_or_default()))
        .collect();
    // The files of the repository come and go with its readers, and files being written with their writer.
    let names =
        logs(directory).into_iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
    all.extend(
        names
            .filter(|name| !name.starts_with("repository") && !name.ends_with(".new"))
            .map(|name| (name, Vec::new())),
    );
    all
}

/// Returns the words of a row, as `actor` would type them.
fn words(host: &Host, actor: Actor, row: &str) -> Vec<String> {
    let word = |word: &str| match word {
        "DATABASE" => host.database.to_string_lossy().into_owned(),
        "ADDRESS" => host.south.address.clone(),
        "ARCHIVED" => host.archived(actor).to_string_lossy().into_owned(),
        "QUERY" => "SELECT * FROM v$database".to_owned(),
        word => word.to_owned(),
    };
    row.split(' ').map(word).collect()
}

#[test]
fn every_command_is_carried_out_or_refused_as_the_matrix_says() {
    if !is_root() {
        return;
    }
    let host = Host::new("matrix-commands");
    let table = Table::read("commands");
    for known in known(&host) {
        let is_it = |row: &String| {
            let dashed = row.replace(' ', "-");
            dashed == known || dashed.starts_with(&format!("{known}-"))
        };
        assert!(table.rows.iter().any(is_it), "docs/matrix.md has no row for `standfast {known}`");
    }
    let before = state(&host.south.directory);
    let attempts = &|actor: Actor| {
        let mut tried = Tried::default();
        for row in &table.rows {
            let mut command = Command::new(&host.place.programs.standfast);
            let words = words(&host, actor, row);
            let program = words.iter().position(|word| word == "--").unwrap_or(words.len());
            command.args(&words[..program]).arg("-D").arg(host.directory(actor)).args(&words[program..]);
            command.uid(actor.uid).gid(actor.gid).current_dir(host.home(actor));
            command.env_remove("STANDFAST_TOKEN").env_remove("STANDFAST_DIR");
            let finished = run(command).unwrap();
            let printed = format!("{}{}", finished.stderr, finished.stdout);
            assert!(finished.code < 100, "{row} as {actor:?}: {} {printed}", finished.code);
            // Its exit code tells whether it has findings.
            let reports = ["diagnose", "dg show"].iter().any(|report| row.starts_with(report));
            let has_findings = reports && !finished.stdout.is_empty();
            let is_done = finished.code == 0 || has_findings;
            tried.note(row, actor, if is_done { "done" } else { "refused" });
            assert!(
                state(&host.south.directory) == before,
                "{row} as {actor:?} changed the instance: {printed}"
            );
        }
        tried
    };
    // In parallel: most commands on a copy wait a second for an instance that could be starting there.
    let tried = std::thread::scope(|scope| {
        let all: Vec<_> = ACTORS.into_iter().map(|actor| scope.spawn(move || attempts(actor))).collect();
        let mut tried = Tried::default();
        all.into_iter().for_each(|actor| tried.extend(actor.join().unwrap()));
        tried
    });
    table.compare(&tried);
    let status = host.south.status().unwrap();
    assert!(status.text("/state") == "open" && status.database_state("app.db") == "open");
}
