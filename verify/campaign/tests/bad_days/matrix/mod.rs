//! Tries every command, request, port and file with every actor, and compares the outcomes with docs/matrix.md. The
//! programs and the file system supply the list: a request, command, listener or file without a row fails.
//!
//! Acting as several users needs root; otherwise these tests are skipped and report it.

mod commands;
mod files;
mod members;
mod ports;
mod requests;

use crate::local_users::{CREW, directory_of, set_mode};
use crate::support::{INSERT, Place, TIMEOUT, must, start};
use standfast_campaign::instance::{Instance, free_address};
use standfast_campaign::process::await_condition;
use std::collections::BTreeMap;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user who tries. Peers run here under separate user ids on the primary's host, which gives them the most access
/// that they can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    pub column: &'static str,
    pub uid: u32,
    pub gid: u32,
}

pub const OTHER_USER: Actor = Actor { column: "other user", uid: 60_002, gid: 60_002 };
pub const APPLICATION: Actor = Actor { column: "application", uid: 60_001, gid: CREW };
pub const NEVER_PRIMARY: Actor = Actor { column: "never-primary", uid: 60_003, gid: 60_003 };
pub const FAR_SYNC: Actor = Actor { column: "far sync", uid: 60_004, gid: 60_004 };
pub const BACKUP: Actor = Actor { column: "backup", uid: 60_006, gid: 60_006 };
pub const ARCHIVE: Actor = Actor { column: "archive", uid: 60_007, gid: 60_007 };
pub const ACTORS: [Actor; 6] = [OTHER_USER, APPLICATION, NEVER_PRIMARY, FAR_SYNC, BACKUP, ARCHIVE];

/// A primary as in the README, with a group for its applications, and the copies of the holders of backups.
pub struct Host {
    pub place: Place,
    pub south: Instance,
    pub database: PathBuf,
    pub http: String,
    copy: PathBuf,
    archive: PathBuf,
}

impl Host {
    pub fn new(test: &str) -> Host {
        let place = Place::new(test);
        let more = ["--group-bytes", "8388608"];
        let mut south = Instance::init_with_tls(&place.programs, &place.path("south"), "south", &more)
            .unwrap_or_else(|error| panic!("{error}"));
        let http = free_address().unwrap();
        south.configure("instance", "group", CREW.to_string()).unwrap();
        south.configure("http", "listen", http.clone()).unwrap();
        start(&mut south);
        // As in "As a service" of docs/security.md.
        let data = place.path("data");
        std::fs::create_dir(&data).unwrap();
        let database = place.database("data/app.db");
        for path in [database.clone(), data.clone()] {
            chown(&path, Some(APPLICATION.uid), Some(CREW)).unwrap();
        }
        set_mode(&data, 0o2770);
        set_mode(&database, 0o660);
        must(&south, &["protect", &database.to_string_lossy()]);
        let mut application = place.application(&database);
        application.run(INSERT);
        // Afterwards all files of `tls` exist.
        must(&south, &["cert", "allow", "east"]);
        must(&south, &["cert", "init"]);
        must(&south, &["snapshot"]);
        application.run(INSERT);
        must(&south, &["snapshot"]);
        must(&south, &["switch-logfile"]);
        await_condition("an archived log", TIMEOUT, || {
            Ok(if logs(&south.directory.join("archive")).is_empty() { Err("none".into()) } else { Ok(()) })
        })
        .unwrap();
        let copy_to = |from: &Path, actor: Actor| {
            let directory = directory_of(&place, actor.column, actor.uid);
            let to = directory.join("copy");
            let run = |program: &str, words: &[&std::ffi::OsStr]| {
                assert!(Command::new(program).args(words).status().unwrap().success(), "{program}");
            };
            // Like a backup of a running host, repeated when a file was removed meanwhile.
            run("sh", &["-c".as_ref(), COPY.as_ref(), from.as_ref(), to.as_ref()]);
            run("chown", &["-hR".as_ref(), format!("{0}:{0}", actor.uid).as_ref(), to.as_ref()]);
            to
        };
        let copy = copy_to(&south.directory, BACKUP);
        let archive = copy_to(&south.directory.join("archive"), ARCHIVE);
        for actor in [OTHER_USER, APPLICATION, NEVER_PRIMARY, FAR_SYNC] {
            directory_of(&place, actor.column, actor.uid);
        }
        Host { place, south, database, http, copy, archive }
    }

    /// Returns what `actor` uses as the directory of the instance.
    pub fn directory(&self, actor: Actor) -> &Path {
        match actor {
            BACKUP => &self.copy,
            ARCHIVE => &self.archive,
            _ => &self.south.directory,
        }
    }

    /// Returns a directory that `actor` owns.
    pub fn home(&self, actor: Actor) -> PathBuf {
        self.place.path(actor.column)
    }

    /// Returns the path of an archived log that `actor` would name.
    pub fn archived(&self, actor: Actor) -> PathBuf {
        let directory = self.directory(actor);
        let archive = if actor == ARCHIVE { directory.to_path_buf() } else { directory.join("archive") };
        logs(&archive).remove(0)
    }
}

/// Copies `$0` to `$1`, with at most three attempts.
const COPY: &str = "for try in 1 2 3; do rm -rf \"$1\"; cp -a \"$0\" \"$1\" && exit 0; done; exit 1";

/// Returns the files in a directory, as root sees them.
pub fn logs(directory: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|at| at.unwrap().path()).collect();
    all.sort();
    all
}

/// A table of docs/matrix.md: its cells by row and column, and its rows in order.
pub struct Table {
    pub rows: Vec<String>,
    cells: BTreeMap<(String, String), String>,
}

impl Table {
    pub fn read(name: &str) -> Table {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/matrix.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (_, table) = text.split_once(&format!("<!-- {name} -->\n")).unwrap();
        let (table, _) = table.split_once(&format!("<!-- end of {name} -->")).unwrap();
        let mut lines = table.lines().map(|line| {
            let cells = line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
            cells.collect::<Vec<String>>()
        });
        let columns = lines.next().unwrap();
        let mut found = Table { rows: Vec::new(), cells: BTreeMap::new() };
        for line in lines.skip(1) {
            let row = line[0].trim_matches('`').to_owned();
            assert_eq!(line.len(), columns.len(), "{name}: {row}");
            for (column, cell) in columns.iter().zip(&line).skip(1) {
                found.cells.insert((row.clone(), column.clone()), cell.clone());
            }
            found.rows.push(row);
        }
        found
    }

    /// Asserts that every cell was tried, with the documented outcome.
    #[track_caller]
    pub fn compare(self, tried: &Tried) {
        let mut wrong = Vec::new();
        for (cell, found) in &tried.0 {
            match self.cells.get(cell) {
                Some(printed) if printed == found => {}
                Some(printed) => {
                    wrong.push(format!("{} | {}: documented {printed}, found {found}", cell.0, cell.1))
                }
                None => wrong.push(format!("{} | {}: not documented, found {found}", cell.0, cell.1)),
            }
        }
        let untried = self.cells.keys().filter(|cell| !tried.0.contains_key(*cell));
        wrong.extend(untried.map(|(row, column)| format!("{row} | {column}: not tried")));
        assert!(wrong.is_empty(), "docs/matrix.md:\n{}", wrong.join("\n"));
    }
}

#[derive(Default)]
pub struct Tried(BTreeMap<(String, String), String>);

impl Tried {
    pub fn note(&mut self, row: &str, actor: Actor, found: impl Into<String>) {
        self.0.insert((row.to_owned(), actor.column.to_owned()), found.into());
    }

    pub fn extend(&mut self, other: Tried) {
        self.0.extend(other.0);
    }
}
