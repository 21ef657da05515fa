//! Checks that every command named in a text of the program exists.

use std::path::{Path, PathBuf};

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "tests" && name != "target" && name != "corpus" {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            found.push(path);
        }
    }
}

/// The text of a source with each string and comment joined into one line.
fn joined(text: &str) -> String {
    let mut joined = String::new();
    let mut continued = false;
    for line in text.lines() {
        // A string with a line continuation resumes after the white space of the next line.
        let line = if continued { line.trim_start() } else { line };
        continued = line.ends_with('\\');
        let comment = ["///", "//!", "//"].iter().find_map(|prefix| line.trim_start().strip_prefix(prefix));
        match comment {
            _ if continued => joined.push_str(line.trim_end_matches('\\')),
            Some(comment) => joined.extend([" ", comment.trim()]),
            None => joined.extend([line, "\n"]),
        }
    }
    joined
}

/// The commands quoted in a text, without the program's name.
fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for (at, _) in text.match_indices("`standfast ") {
        let rest = &text[at + "`standfast ".len()..];
        if let Some(end) = rest.find('`').filter(|end| *end < 200) {
            commands.push(rest[..end].to_owned());
        }
    }
    commands
}

/// Why the command line rejects the command; `None` when it is accepted, or only lacks values that the user supplies.
fn rejected(command: &str) -> Option<String> {
    use clap::error::ErrorKind::*;
    // Only the first command of a pipe, without redirection.
    let command = command.split(['|', '>', '<', '&']).next().unwrap_or_default();
    let words = command.split_whitespace().map(|word| word.trim_matches(['\'', '"']));
    let words: Vec<&str> = words.take_while(|word| !word.contains("...")).collect();
    if words.first().is_some_and(|word| ["tcptest", "WORDS"].contains(word)) || words.contains(&"VERB") {
        return None;
    }
    let error = crate::args::command().try_get_matches_from(["standfast"].into_iter().chain(words)).err()?;
    let is_wrong = matches!(error.kind(), InvalidSubcommand | UnknownArgument | ArgumentConflict);
    is_wrong.then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

#[test]
fn every_command_named_in_a_text_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["crates", "tools", "verify", "docs"] {
        sources(&root.join(folder), &mut files);
    }
    files.push(root.join("README.md"));
    let mut named = 0;
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with("cli/src/hints.rs")) {
        // Decisions are kept as written.
        if file.components().any(|part| part.as_os_str() == "decisions") {
            continue;
        }
        for command in commands(&joined(&std::fs::read_to_string(file).unwrap())) {
            named += 1;
            if let Some(why) = rejected(&command) {
                wrong.push(format!("{}: `standfast {command}`: {why}", file.display()));
            }
        }
    }
    assert!(named > 100, "{named}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unknown_command_or_option_is_detected() {
    assert_eq!(commands("run `standfast enlarge -D X` now"), ["enlarge -D X"]);
    assert!(rejected("enlarge -D X").is_some());
    assert!(rejected("status --all").is_some());
    assert!(rejected("log group shrink").is_some());
    assert!(rejected("status -D {directory}").is_none());
    assert!(rejected("destination add NAME HOST:PORT").is_none());
    assert!(rejected("failover").is_none());
    let text = "\"see `standfast \\\n     status` there\"";
    assert_eq!(commands(&joined(text)), ["status"]);
}
