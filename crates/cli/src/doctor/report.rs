//! What was observed, and what to do about it.

use super::copy::Copy;
use super::trace::{Image, Observed, Opened};
use serde_json::{Value, json};
use standfast_session::Marker;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// A database that the program opened.
#[derive(Clone, Debug)]
struct Database {
    path: PathBuf,
    /// Directory of the instance that protects it.
    instance: Option<PathBuf>,
    /// Why its marker cannot be used.
    error: Option<String>,
    opened: Opened,
}

/// A copy of SQLite in one process.
#[derive(Clone, Debug)]
struct Found {
    process: i32,
    command: String,
    copy: Copy,
    is_served: bool,
    is_used: bool,
}

pub struct Report {
    code: i32,
    copies: Vec<Found>,
    databases: Vec<Database>,
    advice: Vec<String>,
}

impl Report {
    pub fn of(observed: Observed) -> Report {
        // A process without SQLite that reads a database file only copies it, for example.
        let images: Vec<_> =
            observed.images.into_iter().filter(|image| !image.loaded.copies.is_empty()).collect();
        let copies: Vec<_> = images.iter().flat_map(found_in).collect();
        let mut opened: BTreeMap<PathBuf, Opened> = BTreeMap::new();
        for (path, times) in images.iter().flat_map(|image| &image.databases) {
            let sum = opened.entry(path.clone()).or_default();
            sum.with_marker += times.with_marker;
            sum.without += times.without;
        }
        let databases: Vec<_> = opened.into_iter().map(|(path, opened)| database(path, opened)).collect();
        let advice = advise(&copies, &databases, &preload_library());
        Report { code: observed.code, copies, databases, advice }
    }

    /// Whether a SQLite and a database were found, and everything that the program opened is protected.
    pub fn is_well(&self) -> bool {
        self.advice.is_empty()
    }

    pub fn json(&self) -> Value {
        let copy = |found: &Found| {
            json!({
                "pid": found.process,
                "command": found.command,
                "file": found.copy.path,
                "version": found.copy.version,
                "source_id": found.copy.source_id,
                "linked": if found.copy.is_dynamic { "shared" } else { "static" },
                "shim": found.is_served,
                "opened_databases": found.is_used,
            })
        };
        let database = |database: &Database| {
            json!({
                "path": database.path,
                "protected": database.instance.is_some(),
                "instance_directory": database.instance,
                "marker_error": database.error,
                "opened_through_vfs": database.opened.with_marker,
                "opened_without_vfs": database.opened.without,
            })
        };
        json!({
            "exit_code": self.code,
            "well": self.is_well(),
            "copies": self.copies.iter().map(copy).collect::<Vec<_>>(),
            "databases": self.databases.iter().map(database).collect::<Vec<_>>(),
            "advice": self.advice,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "== standfast doctor: the program ended with exit code {}", self.code)?;
        for found in &self.copies {
            let version = found.copy.version.as_deref().unwrap_or("of unknown version");
            let linked = if found.copy.is_dynamic { "shared library" } else { "compiled in" };
            let shim = if found.is_served { "with Standfast" } else { "WITHOUT STANDFAST" };
            writeln!(f, "SQLite {version}, {linked}, {shim}: {}", found.copy.path.display())?;
            writeln!(f, "  in process {}: {}", found.process, found.command)?;
        }
        for database in &self.databases {
            let state = match (&database.instance, &database.error) {
                (_, Some(error)) => format!("NOT PROTECTED: {error}"),
                (Some(directory), None) => format!("protected by {}", directory.display()),
                (None, None) => "NOT PROTECTED".into(),
            };
            writeln!(f, "database {}: {state}", database.path.display())?;
            if database.instance.is_some() {
                let Opened { with_marker, without } = database.opened;
                writeln!(f, "  opened {with_marker} times through Standfast, {without} times without")?;
            }
        }
        for advice in &self.advice {
            writeln!(f, "hint: {advice}")?;
        }
        if self.is_well() {
            writeln!(f, "everything that it opened is protected")?;
        }
        Ok(())
    }
}

fn found_in(image: &Image) -> impl Iterator<Item = Found> {
    image.loaded.copies.values().map(|(copy, is_served)| Found {
        process: image.process,
        command: image.command.clone(),
        copy: copy.clone(),
        is_served: *is_served,
        is_used: !image.databases.is_empty(),
    })
}

fn database(path: PathBuf, opened: Opened) -> Database {
    let (instance, error) = match Marker::read(&path) {
        Ok(marker) => (marker.map(|marker| marker.directory), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Database { path, instance, error, opened }
}

/// The library to preload: next to this program, or else in the installation directory.
fn preload_library() -> PathBuf {
    const NAME: &str = "libstandfast_preload.so";
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(NAME)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| Path::new("/usr/local/lib/standfast").join(NAME))
}

fn advise(copies: &[Found], databases: &[Database], preload: &Path) -> Vec<String> {
    if copies.is_empty() {
        return vec![
            "no SQLite was found in the program: see that it really opens its databases in this run".into(),
        ];
    }
    let mut advice = Vec::new();
    let mut add = |text: String| {
        if !advice.contains(&text) {
            advice.push(text);
        }
    };
    for found in copies.iter().filter(|found| found.is_used && !found.is_served) {
        let path = found.copy.path.display();
        let another_is = copies.iter().any(|other| other.process == found.process && other.is_served);
        add(match (another_is, found.copy.is_dynamic) {
            (true, _) => format!(
                "{path}: Standfast serves another copy of SQLite in the same process, and can serve one only. What is \
                 opened through this one is not protected: let the program use one copy"
            ),
            (false, true) => format!("{path}: start the program with LD_PRELOAD={}", preload.display()),
            (false, false) => format!(
                "{path}: its SQLite is compiled in, which a preloaded library does not reach: let the program load \
                 libstandfast.so as an extension before it opens its databases"
            ),
        });
    }
    if !databases.is_empty() {
        let unserved = copies.iter().any(|found| found.is_used && !found.is_served);
        for database in databases {
            let path = database.path.display();
            match (&database.instance, &database.error) {
                (None, None) => add(format!("{path}: run `standfast protect {path}` at its instance")),
                (_, Some(_)) => add(format!(
                    "{path}: its marker cannot be used: run `standfast protect {path}` at its instance, which writes it \
                     again"
                )),
                // With a copy that is not served, the advice above covers this.
                (Some(_), None) if database.opened.without > 0 && !unserved => add(format!(
                    "{path}: a connection was opened before Standfast was loaded, or by the name of another VFS; its \
                     commits wait for no standby: load Standfast first"
                )),
                _ => {}
            }
        }
        return advice;
    }
    add("the program has SQLite, but opened no database in this run: let it do what it does every day".into());
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(process: i32, is_served: bool, is_dynamic: bool) -> Found {
        let copy = Copy {
            path: format!("/lib/{process}-{is_dynamic}.so").into(),
            version: None,
            source_id: String::new(),
            is_dynamic,
        };
        Found { process, command: "app".into(), copy, is_served, is_used: true }
    }

    fn opened(instance: Option<&str>, with_marker: u64, without: u64) -> Database {
        Database {
            path: "/srv/app.db".into(),
            instance: instance.map(PathBuf::from),
            error: None,
            opened: Opened { with_marker, without },
        }
    }

    fn one(copies: &[Found], databases: &[Database], words: &str) {
        let advice = advise(copies, databases, Path::new("/lib/p.so"));
        assert!(advice.len() == 1 && advice[0].contains(words), "{advice:?}");
    }

    #[test]
    fn protected_database_opened_through_the_vfs_needs_no_advice() {
        let well = advise(&[found(1, true, true)], &[opened(Some("/srv/sf"), 2, 0)], Path::new("/p"));
        assert!(well.is_empty(), "{well:?}");
    }

    #[test]
    fn each_cause_of_missing_protection_has_its_own_advice() {
        let protected = [opened(Some("/srv/sf"), 0, 1)];
        one(&[found(1, false, true)], &protected, "LD_PRELOAD=/lib/p.so");
        one(&[found(1, false, false)], &protected, "compiled in");
        one(&[found(1, true, true), found(1, false, false)], &[opened(Some("/srv/sf"), 1, 0)], "one only");
        one(&[found(1, true, true)], &protected, "before Standfast was loaded");
        one(&[found(1, true, true)], &[opened(None, 0, 1)], "standfast protect /srv/app.db");
        one(&[], &[], "no SQLite was found");
        one(&[found(1, true, true)], &[], "opened no database");
    }

    #[test]
    fn sqlite_copy_that_opened_nothing_causes_no_advice() {
        let unused = Found { is_used: false, ..found(2, false, true) };
        let well = advise(&[found(1, true, true), unused], &[opened(Some("/srv/sf"), 1, 0)], Path::new("/p"));
        assert!(well.is_empty(), "{well:?}");
    }
}
