//! The content of a database, as text that can be compared.

use super::connection::sum;
use crate::verify::open_plain;
use crate::{During, Result};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use std::path::Path;

/// Describes the content of a database: schema, rows in table order, and header fields.
///
/// # Errors
/// SQLite's.
pub fn describe(path: &Path) -> Result<Vec<String>> {
    describe_all(&open_plain(path)?).during(|| format!("read {}", path.display()))
}

fn describe_all(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut lines = Vec::new();
    for pragma in
        ["page_size", "page_count", "freelist_count", "auto_vacuum", "user_version", "application_id"]
    {
        let value: i64 = connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0))?;
        lines.push(format!("{pragma} {value}"));
    }
    let mut schema = connection.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY rowid")?;
    let mut rows = schema.query([])?;
    let mut tables = Vec::new();
    while let Some(row) = rows.next()? {
        let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
        lines.push(format!("{kind} {name} {:?}", row.get::<_, Option<String>>(2)?));
        if kind == "table" {
            tables.push(name);
        }
    }
    for table in tables {
        let (rows, sum) = rows_of(connection, &table)?;
        lines.push(format!("rows of {table}: {rows} with the sum {sum:x}"));
    }
    let mut check = connection.prepare("PRAGMA integrity_check")?;
    let answers =
        check.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    lines.push(format!("integrity {answers:?}"));
    Ok(lines)
}

fn rows_of(connection: &Connection, table: &str) -> rusqlite::Result<(u64, u64)> {
    let mut statement = connection.prepare(&format!("SELECT * FROM \"{table}\""))?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let (mut count, mut total) = (0, 0);
    while let Some(row) = rows.next()? {
        count += 1;
        for column in 0..columns {
            let value = row.get_ref(column)?;
            total = sum(&[value.data_type() as u8], total);
            total = match value {
                ValueRef::Null => total,
                ValueRef::Integer(number) => sum(&number.to_le_bytes(), total),
                ValueRef::Real(number) => sum(&number.to_le_bytes(), total),
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => sum(bytes, total),
            };
        }
    }
    Ok((count, total))
}

/// Returns up to five lines that only one of two descriptions has, for each side.
pub fn difference(stock: &[String], ours: &[String]) -> Option<String> {
    if stock == ours {
        return None;
    }
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|line| !those.contains(line)).take(5).cloned().collect()
    };
    Some(format!("stock has {:?}, the primary {:?}", only(stock, ours), only(ours, stock)))
}
