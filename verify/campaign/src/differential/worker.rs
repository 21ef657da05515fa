//! The process that runs a program, with or without the shim. It writes one outcome a line to standard output.

use super::connection::{Blob, Connection, Statement, code};
use super::library::Library;
use super::program::{Access, BLOBS, CONNECTIONS, CURSORS, Outcome, Program, Step};
use crate::{CampaignError, During, Result};
use standfast_testkit::Rng;
use std::io::Write;
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct WorkerConfig {
    pub library: PathBuf,
    pub extension: Option<PathBuf>,
    pub program: PathBuf,
    /// Run the steps that only the shim refuses.
    pub shim: bool,
}

/// Runs a program in the current directory.
///
/// # Errors
/// When it cannot be started: an error of a step is an outcome.
pub fn serve(config: &WorkerConfig) -> Result<()> {
    let text =
        std::fs::read_to_string(&config.program).during(|| format!("read {}", config.program.display()))?;
    let program: Program = serde_json::from_str(&text).map_err(|error| CampaignError::Unreadable {
        what: "the program".into(),
        detail: error.to_string(),
    })?;
    let library = Library::load(&config.library).map_err(|why| CampaignError::Unreadable {
        what: config.library.display().to_string(),
        detail: why,
    })?;
    let failed = |what: String| {
        move |(number, message): (i32, String)| CampaignError::Unreadable {
            what,
            detail: format!("{message} (code {number})"),
        }
    };
    // Stays open: the extension does not need it, but a program that loads an extension has such a connection.
    let loader =
        Connection::open(&library, ":memory:", Access::Write).map_err(failed("the library".into()))?;
    if let Some(extension) = &config.extension {
        let path = extension.to_string_lossy();
        loader.load_extension(&path).map_err(failed(path.into_owned()))?;
    }
    for (file, auto_vacuum) in &program.protected {
        let connection = Connection::open(&library, file, Access::Write).map_err(failed(file.clone()))?;
        connection.timeout(10_000);
        connection.empty(*auto_vacuum).map_err(failed(file.clone()))?;
    }
    let mut worker = Worker::new(&library, config.shim);
    let mut out = std::io::stdout().lock();
    for step in &program.steps {
        let outcome = worker.run(step);
        writeln!(out, "{}", serde_json::json!(outcome)).during(|| "write an outcome".into())?;
        // Flushed one by one, so that a step that kills the process is known.
        out.flush().during(|| "write an outcome".into())?;
    }
    Ok(())
}

struct Worker<'l> {
    library: &'l Library,
    shim: bool,
    // In the order in which they are closed at the end.
    blobs: [Option<(usize, Blob<'l>)>; BLOBS],
    cursors: [Option<(usize, Statement<'l>)>; CURSORS],
    connections: [Option<Connection<'l>>; CONNECTIONS],
}

fn not_run() -> Outcome {
    Outcome { code: code::NOT_RUN, ..Outcome::default() }
}

impl<'l> Worker<'l> {
    fn new(library: &'l Library, shim: bool) -> Self {
        Worker {
            library,
            shim,
            blobs: Default::default(),
            cursors: Default::default(),
            connections: Default::default(),
        }
    }

    fn run(&mut self, step: &Step) -> Outcome {
        self.try_run(step).unwrap_or_else(not_run)
    }

    fn connection(&self, number: usize) -> Option<&Connection<'l>> {
        self.connections.get(number)?.as_ref()
    }

    /// Returns `None` when no object is open under a number of the step.
    fn try_run(&mut self, step: &Step) -> Option<Outcome> {
        Some(match step {
            Step::Open { connection, file, access, timeout_ms } => {
                self.close_all_of(*connection);
                self.connections[*connection] = None;
                match Connection::open(self.library, file, *access) {
                    Ok(opened) => {
                        opened.timeout(*timeout_ms);
                        let outcome = opened.outcome(code::OK, Vec::new());
                        self.connections[*connection] = Some(opened);
                        outcome
                    }
                    Err((number, message)) => Outcome { code: number, message, ..Outcome::default() },
                }
            }
            Step::Close { connection } => {
                let open = self.connections[*connection].take()?;
                match open.close() {
                    Ok(()) => Outcome::default(),
                    Err(((number, message), open)) => {
                        let outcome = Outcome { code: number, message, ..Outcome::default() };
                        self.connections[*connection] = Some(open);
                        outcome
                    }
                }
            }
            Step::Timeout { connection, ms } => {
                let open = self.connection(*connection)?;
                open.timeout(*ms);
                open.outcome(code::OK, Vec::new())
            }
            Step::Run { connection, sql, values } => self.connection(*connection)?.run(sql, values),
            Step::Prepare { connection, cursor, sql } => {
                self.cursors[*cursor] = None;
                let open = self.connection(*connection)?;
                match open.prepare(sql) {
                    Ok(statement) => {
                        let outcome = open.outcome(code::OK, Vec::new());
                        self.cursors[*cursor] = statement.map(|statement| (*connection, statement));
                        outcome
                    }
                    Err(result) => open.outcome(result, Vec::new()),
                }
            }
            Step::Next { cursor, rows } => {
                let (connection, statement) = self.cursors[*cursor].as_ref()?;
                let open = self.connection(*connection)?;
                let mut read = Vec::new();
                let mut result = code::ROW;
                for _ in 0..*rows {
                    result = statement.step();
                    if result != code::ROW {
                        break;
                    }
                    read.push(statement.row());
                }
                let mut outcome = open.outcome(result, read);
                if result == code::DONE {
                    outcome.rows.push("end".into());
                }
                if result != code::ROW {
                    statement.reset();
                }
                outcome
            }
            Step::Finalize { cursor } => {
                let (connection, statement) = self.cursors[*cursor].take()?;
                drop(statement);
                self.connection(connection)?.outcome(code::OK, Vec::new())
            }
            Step::BlobOpen { connection, blob, schema, table, row, write } => {
                self.blobs[*blob] = None;
                let open = self.connection(*connection)?;
                match open.blob(schema, table, *row, *write) {
                    Ok(found) => {
                        let outcome = open.outcome(code::OK, Vec::new());
                        self.blobs[*blob] = Some((*connection, found));
                        outcome
                    }
                    Err(result) => open.outcome(result, Vec::new()),
                }
            }
            Step::BlobReopen { blob, row } => {
                let (connection, found) = self.blobs[*blob].as_ref()?;
                self.connection(*connection)?.outcome(found.reopen(*row), Vec::new())
            }
            Step::BlobRead { blob, at, length } => {
                let (connection, found) = self.blobs[*blob].as_ref()?;
                let (result, bytes) = found.read(found.place(*at), *length);
                self.connection(*connection)?.outcome(result, vec![bytes])
            }
            Step::BlobWrite { blob, at, length, seed } => {
                let (connection, found) = self.blobs[*blob].as_ref()?;
                let result = found.write(found.place(*at), &Rng::new(*seed).bytes(*length as usize));
                self.connection(*connection)?.outcome(result, Vec::new())
            }
            Step::BlobClose { blob } => {
                let (connection, found) = self.blobs[*blob].take()?;
                drop(found);
                self.connection(connection)?.outcome(code::OK, Vec::new())
            }
            Step::Checkpoint { connection, schema, mode, pragma } => {
                let open = self.connection(*connection)?;
                let files = open.files(schema.as_deref());
                let mut outcome = if *pragma {
                    const MODES: [&str; 4] = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"];
                    let schema = schema.as_ref().map_or(String::new(), |schema| format!("{schema}."));
                    open.run(
                        &format!("PRAGMA {schema}wal_checkpoint({})", MODES[usize::from(*mode) % 4]),
                        &[],
                    )
                } else {
                    open.outcome(open.checkpoint(schema.as_deref(), *mode), Vec::new())
                };
                outcome.rows.insert(0, files);
                outcome
            }
            Step::Snapshot { .. } => self.snapshot(step)?,
            Step::Backup { from, to, pages } => {
                let from = self.connection(*from)?;
                let memory = Connection::open(self.library, ":memory:", Access::Write).ok()?;
                let to = self.connection(*to).unwrap_or(&memory);
                let result = from.copy_to(to, *pages);
                let rows = to.run("SELECT count(*) FROM sqlite_schema", &[]).rows;
                Outcome { code: result, rows, ..Outcome::default() }
            }
            Step::Flush { connection } => {
                let open = self.connection(*connection)?;
                open.outcome(open.flush(), Vec::new())
            }
            Step::Refused { connection, sql } if self.shim => self.connection(*connection)?.run(sql, &[]),
            Step::RefusedTogether { file } if self.shim => self.together(file),
            Step::Refused { .. } | Step::RefusedTogether { .. } => return None,
        })
    }

    /// Closes the cursors and blobs of a connection that is about to be replaced.
    fn close_all_of(&mut self, connection: usize) {
        for cursor in &mut self.cursors {
            if cursor.as_ref().is_some_and(|(of, _)| *of == connection) {
                *cursor = None;
            }
        }
        for blob in &mut self.blobs {
            if blob.as_ref().is_some_and(|(of, _)| *of == connection) {
                *blob = None;
            }
        }
    }

    fn snapshot(&self, step: &Step) -> Option<Outcome> {
        let Step::Snapshot { taken, kept, writer, write, opened, read, schema } = step else { return None };
        let (taken, writer, opened) =
            (self.connection(*taken)?, self.connection(*writer)?, self.connection(*opened)?);
        let mut rows = Vec::new();
        let mut note = |what: &str, outcome: &Outcome| {
            rows.push(format!("{what} {} {:?}", outcome.code, outcome.rows));
        };
        let look = format!("SELECT count(*) FROM {schema}.sqlite_schema");
        note("reader", &opened.run(&look, &[]));
        note("begin", &taken.run("BEGIN", &[]));
        note("look", &taken.run(&look, &[]));
        let snapshot = taken.snapshot(schema)?;
        let got = snapshot.as_ref().err().copied().unwrap_or(code::OK);
        note("get", &Outcome { code: got, ..Outcome::default() });
        if !kept {
            note("end", &taken.run("COMMIT", &[]));
        }
        note("write", &writer.run(write, &[]));
        note("begin", &opened.run("BEGIN", &[]));
        let result = match &snapshot {
            Ok(snapshot) => opened.open_snapshot(schema, snapshot),
            Err(_) => code::NOT_RUN,
        };
        let seen = if result == code::OK { opened.run(read, &[]) } else { not_run() };
        note("end", &opened.run("COMMIT", &[]));
        if *kept {
            note("end", &taken.run("COMMIT", &[]));
        }
        // The message holds what may differ: whether the snapshot could be opened, and what was read then.
        let message = format!("read {} {:?}", seen.code, seen.rows);
        Some(Outcome { code: result, message, rows, state: String::new() })
    }

    fn together(&self, file: &str) -> Outcome {
        let open = match Connection::open(self.library, file, Access::Write) {
            Ok(open) => open,
            Err((number, message)) => return Outcome { code: number, message, ..Outcome::default() },
        };
        open.timeout(0);
        let mut prepare = String::new();
        for name in ["one", "two"] {
            prepare +=
                &format!("ATTACH 'together-{name}.db' AS {name}; CREATE TABLE IF NOT EXISTS {name}.t(x); ");
        }
        let prepared = open.run(&prepare, &[]);
        if prepared.code != code::OK {
            return prepared;
        }
        let begun = open.run(
            "BEGIN IMMEDIATE; PRAGMA main.user_version=99; INSERT INTO one.t VALUES(1); INSERT INTO two.t VALUES(1)",
            &[],
        );
        if begun.code != code::OK {
            return begun;
        }
        let outcome = open.run("COMMIT", &[]);
        open.run("ROLLBACK", &[]);
        outcome
    }
}
