//! An application that runs statements from standard input, one a line, and writes one answer a line to standard
//! output. For tests that need a separate process, with the extension loaded or without it.

use super::load_extension;
use crate::{CampaignError, During, Result};
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BUSY_TIMEOUT: Duration = Duration::from_secs(20);

/// Result of a line of statements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    Rows(Vec<Vec<Value>>),
    Failed { code: i32, message: String },
}

/// Serves statements from standard input against `database` until standard input is closed.
///
/// # Errors
/// When the extension cannot be loaded or the database cannot be opened.
pub fn serve(extension: Option<&Path>, database: &PathBuf) -> Result<()> {
    let _loaded = extension.map(load_extension).transpose()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags);
    let connection = connection.during(|| format!("open {}", database.display()))?;
    connection.busy_timeout(BUSY_TIMEOUT).during(|| "set the busy timeout".into())?;
    for line in std::io::stdin().lines() {
        let line = line.during(|| "read a statement".into())?;
        let sql: String = serde_json::from_str(&line).map_err(|error| CampaignError::Unreadable {
            what: "a statement".into(),
            detail: error.to_string(),
        })?;
        let answer = run_all(&connection, &sql).unwrap_or_else(|error| failed(&error));
        println!("{}", serde_json::json!(answer));
    }
    Ok(())
}

fn failed(error: &rusqlite::Error) -> Answer {
    let code = error.sqlite_error().map_or(-1, |error| error.extended_code);
    Answer::Failed { code, message: error.to_string() }
}

/// Runs one or more statements and returns the rows of all of them.
fn run_all(connection: &Connection, sql: &str) -> rusqlite::Result<Answer> {
    let mut answer = Vec::new();
    let mut batch = rusqlite::Batch::new(connection, sql);
    while let Some(mut statement) = batch.next()? {
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let cell = |column| row.get_ref(column).map(to_json);
            answer.push((0..columns).map(cell).collect::<rusqlite::Result<Vec<_>>>()?);
        }
    }
    Ok(Answer::Rows(answer))
}

fn to_json(value: rusqlite::types::ValueRef<'_>) -> Value {
    use rusqlite::types::ValueRef;
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        ValueRef::Blob(bytes) => format!("{} bytes", bytes.len()).into(),
    }
}
