//! `standfast sql`: queries on the V$ views.

use clap::Parser;
use serde_json::{Value, json};
use standfast_environment::InstanceError;
use standfast_instance::observe::query::{self, Answer};
use standfast_instance::server::control_client;
use standfast_views::{Cell, VIEWS};
use std::io::{IsTerminal, Read};
use std::path::Path;

/// Columns of a terminal, and of a page.
const WIDTH: usize = 80;

pub const EXAMPLES: &str = "\
Examples:
  standfast sql -D /srv/sf 'SELECT * FROM v$database'
  standfast sql -D /srv/sf --csv 'SELECT event, time_waited FROM v$system_event'
  standfast sql -D /srv/sf --json < query.sql | jq '.[0]'
  standfast sql --views

Put the query in single quotes: in double ones the shell replaces $database. `-` is NULL: unknown. Times are UTC.
Rows that are wider than 80 columns are shown one column a line.
Exit codes: 0 ok, 1 the query failed, 2 usage, 4 the instance does not run.";

/// Options of `standfast sql`.
#[derive(Debug, Parser)]
pub struct SqlArgs {
    /// One statement; without it, it is read from standard input.
    query: Option<String>,
    /// Rows as a JSON array of objects.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Rows as comma-separated values; NULL is an empty field, an empty text is quoted.
    #[arg(long)]
    csv: bool,
    /// Without the names of the columns.
    #[arg(long, conflicts_with = "json")]
    no_header: bool,
    /// List the views instead; with --json their columns, too.
    #[arg(long, conflicts_with_all = ["query", "csv", "no_header"])]
    views: bool,
}

/// Runs the command for the instance in `directory`.
///
/// # Errors
/// When the instance does not answer, or the query fails.
pub fn run(directory: &Path, args: SqlArgs) -> Result<(), InstanceError> {
    if args.views {
        print!("{}", catalogue(args.json));
        return Ok(());
    }
    let query = match args.query {
        Some(query) => query,
        None => from_standard_input()?,
    };
    let answer = query::run(&query, &mut |view| control_client::ask_for_view(directory, view.name))?;
    let text = match (args.json, args.csv) {
        (true, _) => as_json(&answer),
        (_, true) => as_csv(&answer, !args.no_header),
        _ => as_text(&answer, !args.no_header),
    };
    print!("{text}");
    Ok(())
}

fn from_standard_input() -> Result<String, InstanceError> {
    let mut input = std::io::stdin();
    if input.is_terminal() {
        eprintln!("reading the query from the terminal; end it with Ctrl-D");
    }
    let mut query = String::new();
    let read = input.read_to_string(&mut query);
    read.map_err(|error| InstanceError::Failed(format!("the query cannot be read: {error}")))?;
    Ok(query)
}

fn catalogue(json: bool) -> String {
    if !json {
        let line = |view: &&standfast_views::View| format!("{:<27} {}\n", view.name, view.about);
        return VIEWS.iter().map(line).collect();
    }
    let views = VIEWS.iter().map(|view| {
        let columns: Vec<Value> = view
            .columns
            .iter()
            .map(|column| json!({"name": column.name, "type": column.kind.sql(), "about": column.about}))
            .collect();
        json!({"name": view.name, "about": view.about, "columns": columns})
    });
    format!("{:#}\n", Value::Array(views.collect()))
}

fn text(cell: &Cell) -> String {
    match cell {
        Cell::Null => "-".into(),
        Cell::Integer(value) => value.to_string(),
        Cell::Real(value) => real(*value),
        // Text from a peer or a file name must not control the terminal.
        Cell::Text(text) => standfast_types::printable(text, usize::MAX),
    }
}

/// Six significant digits are enough for people.
fn real(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { 5 - (value.abs().log10().floor() as i32).clamp(-10, 5) };
    let text = format!("{value:.*}", usize::try_from(digits).unwrap_or(0));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A table when it is narrow enough, else a line for each column of each row.
fn as_text(answer: &Answer, header: bool) -> String {
    let rows: Vec<Vec<String>> = answer.rows.iter().map(|row| row.iter().map(text).collect()).collect();
    let width = |at: usize| {
        let name = if header { answer.columns[at].chars().count() } else { 0 };
        rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0).max(name)
    };
    let widths: Vec<usize> = (0..answer.columns.len()).map(width).collect();
    let total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
    if total > WIDTH && widths.len() > 1 {
        return as_records(answer, &rows, header);
    }
    let is_number = |at: usize| {
        let mut known = answer.rows.iter().map(|row| &row[at]).filter(|cell| **cell != Cell::Null).peekable();
        known.peek().is_some() && known.all(|cell| matches!(cell, Cell::Integer(_) | Cell::Real(_)))
    };
    let right: Vec<bool> = (0..widths.len()).map(is_number).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(widths.iter().zip(&right)).map(|(cell, (width, right))| {
            if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut out = String::new();
    if header && !answer.columns.is_empty() {
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        out += &line(&answer.columns);
        out += &line(&rule);
    }
    rows.iter().for_each(|row| out += &line(row));
    out
}

fn as_records(answer: &Answer, rows: &[Vec<String>], header: bool) -> String {
    let width = answer.columns.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let record = |row: &Vec<String>| {
        let line = |(name, cell): (&String, &String)| match header {
            true => format!("{name:<width$}  {cell}\n"),
            false => format!("{cell}\n"),
        };
        answer.columns.iter().zip(row).map(line).collect::<String>()
    };
    rows.iter().map(record).collect::<Vec<_>>().join("\n")
}

fn as_json(answer: &Answer) -> String {
    let value = |cell: &Cell| match cell {
        Cell::Null => Value::Null,
        Cell::Integer(value) => json!(value),
        Cell::Real(value) => json!(value),
        Cell::Text(text) => json!(text),
    };
    // Not a map, so that the columns keep the order of the query.
    let object = |row: &Vec<Cell>| {
        let fields: Vec<String> = answer
            .columns
            .iter()
            .zip(row)
            .map(|(name, cell)| format!("{}:{}", json!(name), value(cell)))
            .collect();
        format!("{{{}}}", fields.join(","))
    };
    format!("[{}]\n", answer.rows.iter().map(object).collect::<Vec<_>>().join(",\n "))
}

fn as_csv(answer: &Answer, header: bool) -> String {
    let quoted = |text: &str| {
        let plain = !text.is_empty() && !text.contains(['"', ',', '\n', '\r']);
        if plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
    };
    let field = |cell: &Cell| match cell {
        Cell::Null => String::new(),
        Cell::Integer(value) => value.to_string(),
        Cell::Real(value) => value.to_string(),
        Cell::Text(text) => quoted(text),
    };
    let names = header.then(|| answer.columns.iter().map(|name| quoted(name)).collect::<Vec<_>>());
    let rows = answer.rows.iter().map(|row| row.iter().map(field).collect());
    names.into_iter().chain(rows).map(|fields: Vec<String>| fields.join(",") + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rows: Vec<Vec<Cell>>) -> Answer {
        Answer { columns: vec!["name".into(), "value".into()], rows }
    }

    fn example() -> Answer {
        let (name, number) = (Cell::Text("redo size".into()), Cell::Integer(42));
        answer(vec![vec![name, number], vec![Cell::Text("a,\"b\"".into()), Cell::Null]])
    }

    #[test]
    fn numbers_are_right_aligned_and_null_is_a_dash() {
        let expected = "name       value\n---------  -----\nredo size     42\na,\"b\"          -\n";
        assert_eq!(as_text(&example(), true), expected);
        assert_eq!(as_text(&example(), false), "redo size  42\na,\"b\"       -\n");
    }

    #[test]
    fn rows_that_are_too_wide_are_shown_column_by_column() {
        let wide = answer(vec![vec![Cell::Text("x".repeat(90)), Cell::Integer(1)]; 2]);
        let text = as_text(&wide, true);
        assert!(text.starts_with(&format!("name   {}\nvalue  1\n\nname   x", "x".repeat(90))), "{text}");
    }

    #[test]
    fn json_keeps_the_order_of_the_columns_and_null() {
        assert_eq!(
            as_json(&example()),
            "[{\"name\":\"redo size\",\"value\":42},\n {\"name\":\"a,\\\"b\\\"\",\"value\":null}]\n"
        );
        assert_eq!(as_json(&answer(vec![])), "[]\n");
    }

    #[test]
    fn csv_distinguishes_null_from_an_empty_text() {
        assert_eq!(as_csv(&example(), true), "name,value\nredo size,42\n\"a,\"\"b\"\"\",\n");
        let empty = answer(vec![vec![Cell::Text(String::new()), Cell::Null]]);
        assert_eq!(as_csv(&empty, false), "\"\",\n");
    }

    #[test]
    fn terminal_control_characters_are_escaped_in_text() {
        assert_eq!(text(&Cell::Text("a\u{1b}[2Jb\n".into())), r"a\u{1b}[2Jb\n");
        assert_eq!(
            [real(0.0), real(1234567.0), real(0.000125), real(2.5)],
            ["0", "1234567", "0.000125", "2.5"]
        );
    }

    #[test]
    fn list_of_views_has_one_line_per_view_or_is_json() {
        assert!(catalogue(false).lines().count() == VIEWS.len());
        let all: Value = serde_json::from_str(&catalogue(true)).unwrap();
        assert_eq!(all.as_array().map(Vec::len), Some(VIEWS.len()));
    }
}
