//! `standfast database`: what an operator decides about the files of databases.

use crate::printable::printable_lines;
use serde_json::json;
use standfast_environment::InstanceError;
use standfast_environment::state::control::KeptFile;
use standfast_instance::role::resolve::{FileFound, Keep, Resolution};
use standfast_instance::server::answer::{KeptFiles, KeptRemoved};
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request;
use standfast_primary::open::divergence::{CommitAt, Commits, Divergence};
use standfast_types::{PageNo, hint, utc_text};
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
            let request = Request::Resolve { name, keep: keep.map(Into::into) };
            let answer: Resolution = control_client::ask_for(directory, &request)?;
            if json {
                println!("{:#}", json!(answer));
            } else {
                print!("{}", shown(&answer));
            }
        }
        DatabaseCommand::Kept { remove: Some(file), .. } => {
            let file = file.canonicalize().unwrap_or(file).display().to_string();
            let answer: KeptRemoved = control_client::ask_for(directory, &Request::RemoveKept { file })?;
            println!("removed: {}", path(&answer.removed));
        }
        DatabaseCommand::Kept { remove: None, json } => {
            let answer: KeptFiles = control_client::ask_for(directory, &Request::Kept)?;
            if json {
                println!("{:#}", json!(answer));
            } else {
                print!("{}", kept(&answer));
            }
        }
    }
    Ok(())
}

fn path(of: &Path) -> String {
    printable_lines(&of.display().to_string())
}

/// The kept files, one a line.
fn kept(answer: &KeptFiles) -> String {
    let line = |file: &KeptFile| {
        let (name, path, since) = (printable_lines(&file.name), path(&file.path), utc_text(file.kept_us));
        format!("{name}  {path}  {} bytes  since {since}\n", file.bytes)
    };
    match &answer.kept[..] {
        [] => "no file is kept\n".into(),
        files => files.iter().map(line).collect(),
    }
}

/// What was found and done, and what each choice would lose.
pub fn shown(answer: &Resolution) -> String {
    match answer.resolved {
        Some(Keep::Redo) => kept_redo(answer),
        Some(Keep::File) => {
            let name = printable_lines(&answer.database);
            format!(
                "{name} is open: its file counts, and a full image of it goes to the standbys\n\
                 each standby keeps what the image replaces; `standfast database kept` there lists it\n"
            )
        }
        None => choices(answer),
    }
}

fn kept_redo(answer: &Resolution) -> String {
    let (name, by) = (printable_lines(&answer.database), answer.by.as_deref().unwrap_or("unknown"));
    let mut lines = format!("{name} is open: the redo counts. It was made of {}\n", printable_lines(by));
    if let Some(kept) = &answer.kept {
        lines += &format!("the file that was there is kept as {}\n", path(kept));
    }
    lines
}

/// What is known of an offline database, and what each choice would lose.
fn choices(answer: &Resolution) -> String {
    let (name, place) = (printable_lines(&answer.database), path(&answer.path));
    let compared = answer.compared.as_ref();
    let mut lines = vec![format!("{name} is offline: {place}")];
    if let Some(why) = &answer.why {
        lines.push(format!("  {}", printable_lines(hint::split(why).0)));
    }
    lines.extend(file(&answer.file).into_iter().chain(pages(compared)).map(|found| format!("  {found}")));
    if let Some(why) = &answer.not_compared {
        lines.push(format!("  the file cannot be compared with the redo: {}", printable_lines(why)));
    }
    lines.push(format!("standfast database resolve {name} --keep redo"));
    lines.push(format!("  would lose: {}", lost_with_the_file(compared)));
    lines.push(match &answer.redo_possible_by[..] {
        [] => "  not possible now, unless the file proves to be an earlier state: there is no full image in the redo at hand, \
             and no standby is configured"
            .into(),
        by => format!("  by: {}", printable_lines(&by.join("; or by "))),
    });
    lines.push(format!("standfast database resolve {name} --keep file"));
    if let Some(why) = &answer.file.unusable {
        lines.push(format!("  not possible: {}", printable_lines(why)));
        return lines.join("\n") + "\n";
    }
    if answer.file.is_not_in_wal_mode {
        lines
            .push(format!("  not before `sqlite3 {place} 'PRAGMA journal_mode=WAL'`: it is not in WAL mode"));
    }
    lines.push(format!("  would lose: {}", lost_with_the_redo(compared)));
    lines.push("  every standby gets a full image, and keeps what it replaces as NAME.before-SCN".into());
    lines.join("\n") + "\n"
}

fn file(file: &FileFound) -> Vec<String> {
    if !file.exists {
        return vec!["there is no file".into()];
    }
    let mut found = vec![format!("file: {} bytes, written {}", file.bytes, utc_text(file.modified_us))];
    if file.wal_bytes > 0 {
        found.push(format!("WAL: {} bytes, written {}", file.wal_bytes, time(file.wal_modified_us)));
    }
    if file.is_known == Some(false) {
        found.push("it is another file than the one that the instance had open".into());
    }
    if let Some(noted) = &file.noted {
        let (scn, bytes, written) = (noted.scn, noted.bytes, utc_text(noted.modified_us));
        found.push(format!(
            "last known to hold everything: as of SCN {scn}, {bytes} bytes, written {written}"
        ));
    }
    found
}

fn time(us: Option<u64>) -> String {
    us.map_or_else(|| "an unknown time".into(), utc_text)
}

fn numbers(pages: &[PageNo]) -> String {
    pages.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn pages(compared: Option<&Divergence>) -> Vec<String> {
    let Some(compared) = compared else { return Vec::new() };
    let time_of = |commit: Option<CommitAt>| time(commit.map(|commit| commit.time_us));
    let mut found = vec![format!(
        "compared with {} commits of the redo from SCN {} on, {} to {}: {} pages are the newest, {} older, {} not explained",
        compared.commits.number,
        compared.from,
        time_of(compared.commits.first),
        time_of(compared.last),
        compared.newest,
        compared.older,
        compared.unexplained
    )];
    let named = [
        (&compared.older_pages, "older pages"),
        (&compared.unexplained_pages, "pages that no redo explains"),
    ];
    for (pages, words) in named.into_iter().filter(|(pages, _)| !pages.is_empty()) {
        found.push(format!("{words}: {}", numbers(pages)));
    }
    found
}

/// What `--keep redo` gives up: what is in the file only.
fn lost_with_the_file(compared: Option<&Divergence>) -> String {
    match compared.map(|compared| compared.unexplained) {
        None => "what the file holds and the redo does not; not known what".into(),
        Some(0) => "nothing that is known; pages that no redo touches are not compared".into(),
        Some(pages) => format!("what {pages} pages of the file hold that the redo does not"),
    }
}

/// What `--keep file` gives up: what is in the redo only.
fn lost_with_the_redo(compared: Option<&Divergence>) -> String {
    let Some(compared) = compared else {
        return "what the redo holds and the file does not; not known what".into();
    };
    let (least, most) = (&compared.lacks_at_least, &compared.lacks_at_most);
    let since = |commits: &Commits| match commits.first {
        Some(first) => format!("since SCN {}, {}", first.scn, utc_text(first.time_us)),
        None => "since an unknown SCN".into(),
    };
    match (least.number, most.number) {
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

    fn offline(least: u64, most: u64, unexplained: u64) -> Resolution {
        let commits = |number: u64| json!({ "number": number, "first": { "scn": 77, "time_us": 1_000_000 } });
        let found = json!({
            "database": "a.db", "path": "/srv/a.db", "why": "it does not descend", "resolved": null,
            "redo_needed_from": 70, "redo_end": 99, "not_compared": null, "by": null, "kept": null,
            "file": { "exists": true, "bytes": 8192, "modified_us": 2_000_000, "wal_bytes": 0, "is_known": false,
                "wal_modified_us": null, "noted": null, "is_not_in_wal_mode": false, "unusable": null },
            "compared": { "from": 70, "commits": commits(9), "last": { "scn": 99, "time_us": 3_000_000 }, "newest": 1,
                "older": 2, "unexplained": unexplained, "older_pages": [2, 3], "unexplained_pages": [],
                "lacks_at_least": commits(least), "lacks_at_most": commits(most) },
            "redo_possible_by": ["what standby oslo holds, and the redo since"],
        });
        serde_json::from_value(found).unwrap()
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
        answer.compared = None;
        answer.file.unusable = Some("its page size is 512".into());
        answer.redo_possible_by.clear();
        let text = shown(&answer);
        assert!(text.contains("not possible: its page size is 512"), "{text}");
        assert!(text.contains("no standby is configured"), "{text}");
    }
}
