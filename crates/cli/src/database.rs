//! `standfast database`: what an operator decides about the files of databases.

use crate::printable::text;
use serde_json::Value;
use standfast_environment::InstanceError;
use standfast_instance::role::resolve::Keep;
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Subcommand)]
pub enum DatabaseCommand {
    /// Decide what counts of a database that is offline: its file, or its redo.
    ///
    /// A start takes a database offline when it is not shown that its file descends from the redo; both are kept then. Without
    /// --keep only what each choice would lose is printed.
    #[command(after_help = "\
Examples:
  standfast database resolve -D /srv/sf orders.db                # what each choice would lose
  standfast database resolve -D /srv/sf orders.db --keep redo    # make the file again out of the redo
  standfast database resolve -D /srv/sf orders.db --keep file    # the file counts as it is

--keep redo needs a full image in the redo at hand, or a standby that is a destination and has applied the redo, or the
file as it was. The file that is there is kept beside it as NAME.before-SCN. --keep file puts a full image of the file
into the redo; each standby keeps what it replaces as NAME.before-SCN, and the redo is archived as before.
Exit codes: 0 ok, 3 refused (it is not offline, or the choice cannot be carried out), 4 the instance does not run.")]
    Resolve {
        /// Its name or file.
        name: String,
        /// What counts.
        #[arg(long, value_enum, value_name = "redo|file")]
        keep: Option<KeepArg>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the files that were kept when another content took the place of a database, or remove one.
    #[command(after_help = "\
Examples:
  standfast database kept -D /srv/sf
  standfast database kept -D /srv/sf --remove orders.db.before-81920

They are removed by the limits of [kept] in the configuration, each with a line in the alert log. Each is a database by
itself: `sqlite3 FILE` reads it. Exit codes: 0 ok, 3 there is no such file, 4 the instance does not run.")]
    Kept {
        /// Remove this one.
        #[arg(long, value_name = "FILE")]
        remove: Option<PathBuf>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum KeepArg {
    /// The redo: the file is made again.
    Redo,
    /// The file as it is: a full image of it goes to the standbys.
    File,
}

impl From<KeepArg> for Keep {
    fn from(keep: KeepArg) -> Keep {
        match keep {
            KeepArg::Redo => Keep::Redo,
            KeepArg::File => Keep::File,
        }
    }
}

/// Carries out one of the commands.
///
/// # Errors
/// What the instance says.
pub fn database(directory: &Path, command: DatabaseCommand) -> Result<(), InstanceError> {
    match command {
        DatabaseCommand::Resolve { name, keep, json } => {
            let name =
                Path::new(&name).canonicalize().map_or(name.clone(), |path| path.display().to_string());
            let answer =
                control_client::ask(directory, &Request::Resolve { name, keep: keep.map(Into::into) })?;
            if json {
                println!("{answer:#}");
            } else {
                print!("{}", shown(&answer));
            }
        }
        DatabaseCommand::Kept { remove: Some(file), .. } => {
            let file = file.canonicalize().unwrap_or(file).display().to_string();
            let answer = control_client::ask(directory, &Request::RemoveKept { file })?;
            println!("removed: {}", text(&answer["removed"]));
        }
        DatabaseCommand::Kept { remove: None, json } => {
            let answer = control_client::ask(directory, &Request::Kept)?;
            if json {
                println!("{answer:#}");
            } else {
                print!("{}", kept(&answer));
            }
        }
    }
    Ok(())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn time(value: &Value) -> String {
    value.as_u64().map_or_else(|| "an unknown time".into(), standfast_environment::state::alert::utc_text)
}

/// The kept files, one a line.
fn kept(answer: &Value) -> String {
    let line = |file: &Value| {
        format!(
            "{}  {}  {} bytes  since {}\n",
            text(&file["name"]),
            text(&file["path"]),
            file["bytes"],
            time(&file["kept_us"])
        )
    };
    match list(&answer["kept"]) {
        [] => "no file is kept\n".into(),
        files => files.iter().map(line).collect(),
    }
}

/// What was found and done, and what each choice would lose.
pub fn shown(answer: &Value) -> String {
    let name = text(&answer["database"]);
    let mut lines = String::new();
    let mut line = |text: String| lines.push_str(&(text + "\n"));
    match answer["resolved"].as_str() {
        Some("redo") => {
            line(format!("{name} is open: the redo counts. It was made of {}", text(&answer["by"])));
            if let Some(kept) = answer["kept"].as_str() {
                line(format!("the file that was there is kept as {kept}"));
            }
            return lines;
        }
        Some(_) => {
            line(format!("{name} is open: its file counts, and a full image of it goes to the standbys"));
            line(
                "each standby keeps what the image replaces; `standfast database kept` there lists it".into(),
            );
            return lines;
        }
        None => {}
    }
    line(format!("{name} is offline: {}", text(&answer["path"])));
    if let Some(why) = answer["why"].as_str() {
        line(format!("  {}", why.split('\n').next().unwrap_or_default()));
    }
    for what in file(&answer["file"]) {
        line(format!("  {what}"));
    }
    let compared = &answer["compared"];
    for what in pages(compared) {
        line(format!("  {what}"));
    }
    if let Some(why) = answer["not_compared"].as_str() {
        line(format!("  the file cannot be compared with the redo: {why}"));
    }
    line(format!("standfast database resolve {name} --keep redo"));
    line(format!("  would lose: {}", lost_with_the_file(compared)));
    match list(&answer["redo_possible_by"]) {
        [] => line(
            "  not possible now, unless the file proves to be an earlier state: there is no full image in the redo at hand, \
             and no standby is configured"
                .into(),
        ),
        by => {
            let by: Vec<String> = by.iter().map(text).collect();
            line(format!("  by: {}", by.join("; or by ")));
        }
    }
    line(format!("standfast database resolve {name} --keep file"));
    match answer["file"]["unusable"].as_str() {
        Some(why) => line(format!("  not possible: {why}")),
        None => {
            if answer["file"]["is_not_in_wal_mode"] == true {
                let path = text(&answer["path"]);
                line(format!(
                    "  not before `sqlite3 {path} 'PRAGMA journal_mode=WAL'`: it is not in WAL mode"
                ));
            }
            line(format!("  would lose: {}", lost_with_the_redo(compared)));
            line("  every standby gets a full image, and keeps what it replaces as NAME.before-SCN".into());
        }
    }
    lines
}

fn file(file: &Value) -> Vec<String> {
    if file["exists"] != true {
        return vec!["there is no file".into()];
    }
    let mut found = vec![format!("file: {} bytes, written {}", file["bytes"], time(&file["modified_us"]))];
    if number(&file["wal_bytes"]) > 0 {
        found.push(format!("WAL: {} bytes, written {}", file["wal_bytes"], time(&file["wal_modified_us"])));
    }
    if file["is_known"] == false {
        found.push("it is another file than the one that the instance had open".into());
    }
    let noted = &file["noted"];
    if !noted.is_null() {
        found.push(format!(
            "last known to hold everything: as of SCN {}, {} bytes, written {}",
            noted["scn"],
            noted["bytes"],
            time(&noted["modified_us"])
        ));
    }
    found
}

fn numbers(pages: &Value) -> String {
    let pages: Vec<String> = list(pages).iter().map(text).collect();
    pages.join(", ")
}

fn pages(compared: &Value) -> Vec<String> {
    if compared.is_null() {
        return Vec::new();
    }
    let mut found = vec![format!(
        "compared with {} commits of the redo from SCN {} on, {} to {}: {} pages are the newest, {} older, {} not explained",
        compared["commits"]["number"],
        compared["from"],
        time(&compared["commits"]["first"]["time_us"]),
        time(&compared["last"]["time_us"]),
        compared["newest"],
        compared["older"],
        compared["unexplained"]
    )];
    for (pages, words) in
        [("older_pages", "older pages"), ("unexplained_pages", "pages that no redo explains")]
    {
        if !list(&compared[pages]).is_empty() {
            found.push(format!("{words}: {}", numbers(&compared[pages])));
        }
    }
    found
}

/// What `--keep redo` gives up: what is in the file only.
fn lost_with_the_file(compared: &Value) -> String {
    match number(&compared["unexplained"]) {
        _ if compared.is_null() => "what the file holds and the redo does not; not known what".into(),
        0 => "nothing that is known; pages that no redo touches are not compared".into(),
        pages => format!("what {pages} pages of the file hold that the redo does not"),
    }
}

/// What `--keep file` gives up: what is in the redo only.
fn lost_with_the_redo(compared: &Value) -> String {
    if compared.is_null() {
        return "what the redo holds and the file does not; not known what".into();
    }
    let (least, most) = (&compared["lacks_at_least"], &compared["lacks_at_most"]);
    let since = |commits: &Value| {
        format!("since SCN {}, {}", commits["first"]["scn"], time(&commits["first"]["time_us"]))
    };
    match (number(&least["number"]), number(&most["number"])) {
        (_, 0) => "no commit of the redo that was compared".into(),
        (0, commits) => {
            format!("at most {commits} commits that were acknowledged ({}); none for certain", since(most))
        }
        (certain, commits) if certain == commits => {
            format!("{certain} commits that were acknowledged ({})", since(least))
        }
        (certain, commits) => format!(
            "at least {certain} commits that were acknowledged ({}), at most {commits} ({})",
            since(least),
            since(most)
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn offline(least: u64, most: u64, unexplained: u64) -> Value {
        let commits = |number: u64| json!({ "number": number, "first": { "scn": 77, "time_us": 1_000_000 } });
        json!({
            "database": "a.db", "path": "/srv/a.db", "why": "it does not descend", "resolved": null,
            "file": { "exists": true, "bytes": 8192, "modified_us": 2_000_000, "wal_bytes": 0, "is_known": false },
            "compared": { "from": 70, "commits": commits(9), "last": { "scn": 99, "time_us": 3_000_000 }, "newest": 1,
                "older": 2, "unexplained": unexplained, "older_pages": [2, 3], "unexplained_pages": [],
                "lacks_at_least": commits(least), "lacks_at_most": commits(most) },
            "redo_possible_by": ["what standby oslo holds, and the redo since"],
        })
    }

    #[test]
    fn each_choice_shows_what_it_would_lose() {
        let text = shown(&offline(3, 5, 2));
        assert!(text.contains("what 2 pages of the file hold that the redo does not"), "{text}");
        assert!(
            text.contains("at least 3 commits that were acknowledged (since SCN 77, 1970-01-01"),
            "{text}"
        );
        assert!(text.contains("by: what standby oslo holds") && text.contains("older pages: 2, 3"), "{text}");
        assert!(text.contains("standfast database resolve a.db --keep file\n"), "{text}");
        assert!(text.contains("it is another file than"), "{text}");
    }

    #[test]
    fn loss_is_shown_exactly_or_with_its_bound() {
        assert!(shown(&offline(5, 5, 0)).contains("lose: 5 commits that were acknowledged"));
        assert!(shown(&offline(0, 0, 0)).contains("lose: no commit of the redo"));
        assert!(shown(&offline(0, 4, 1)).contains("at most 4 commits"));
    }

    #[test]
    fn impossible_choice_is_shown_with_its_reason() {
        let mut answer = offline(0, 0, 0);
        answer["compared"] = Value::Null;
        answer["file"]["unusable"] = json!("its page size is 512");
        answer["redo_possible_by"] = json!([]);
        let text = shown(&answer);
        assert!(text.contains("not possible: its page size is 512"), "{text}");
        assert!(text.contains("no standby is configured"), "{text}");
    }
}
