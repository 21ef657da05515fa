//! Queries on V$ views without a connection to a database: an in-memory SQLite database has the views that the query
//! names as tables.

use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use standfast_environment::config::error::InstanceError;
use standfast_views::{Cell, CellRef, Table, VIEWS, View};

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub columns: Vec<String>,
    /// Rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// Returns the views that a query names. A name inside a string literal counts too; an unneeded table does no harm.
pub fn views_in(query: &str) -> Vec<&'static View> {
    let query = query.to_ascii_lowercase();
    let is_named = |view: &&'static View| {
        query.match_indices(view.name).any(|(at, name)| {
            let word = |byte: Option<&u8>| {
                byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_$".contains(byte))
            };
            let bytes = query.as_bytes();
            !word(at.checked_sub(1).and_then(|before| bytes.get(before))) && !word(bytes.get(at + name.len()))
        })
    };
    VIEWS.into_iter().filter(is_named).collect()
}

/// Runs one statement; `fetch` returns the rows of a view.
///
/// # Errors
/// Those of `fetch` and of SQLite; an unknown table or column gets a hint where to find the views.
pub fn run(
    query: &str,
    fetch: &mut dyn FnMut(&'static View) -> Result<Table, InstanceError>,
) -> Result<Answer, InstanceError> {
    let sqlite = Connection::open_in_memory()?;
    for view in views_in(query) {
        fill(&sqlite, view, &fetch(view)?)?;
    }
    answer(&sqlite, query).map_err(explained)
}

fn explained(error: rusqlite::Error) -> InstanceError {
    let text = error.to_string();
    if text.contains("no such table") || text.contains("no such column") {
        InstanceError::failed(text, "`standfast sql --views` lists the views, with --json their columns")
    } else {
        InstanceError::Sqlite(error)
    }
}

fn fill(sqlite: &Connection, view: &View, table: &Table) -> Result<(), rusqlite::Error> {
    sqlite.execute_batch(&view.create_table())?;
    let placeholders = vec!["?"; view.columns.len()].join(",");
    let places: Vec<Option<usize>> = view.columns.iter().map(|column| table.position(column.name)).collect();
    let transaction = sqlite.unchecked_transaction()?;
    let mut insert = sqlite.prepare(&format!("INSERT INTO \"{}\" VALUES({placeholders})", view.name))?;
    for row in table.rows() {
        let cells = places.iter().map(|place| match place.map(|place| table.cell(row, place)) {
            None | Some(CellRef::Null) => ToSqlOutput::Owned(Value::Null),
            Some(CellRef::Integer(value)) => ToSqlOutput::Owned(Value::Integer(value)),
            Some(CellRef::Real(value)) => ToSqlOutput::Owned(Value::Real(value)),
            Some(CellRef::Text(text)) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        });
        insert.execute(rusqlite::params_from_iter(cells))?;
    }
    drop(insert);
    transaction.commit()
}

fn answer(sqlite: &Connection, query: &str) -> Result<Answer, rusqlite::Error> {
    let mut statement = sqlite.prepare(query)?;
    let columns: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
    let count = columns.len();
    let mut found = statement.query([])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        rows.push((0..count).map(|at| Ok(cell(row.get_ref(at)?))).collect::<Result<_, rusqlite::Error>>()?);
    }
    Ok(Answer { columns, rows })
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(value) => Cell::Integer(value),
        ValueRef::Real(value) => Cell::Real(value),
        ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Cell::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_live::views::example;
    use standfast_types::Hint;

    fn ask(query: &str) -> Result<Answer, InstanceError> {
        let mut at = example::family();
        at.sample.put_statistic("redo size", 81_920);
        at.sample.put_statistic("redo writes", 20);
        run(query, &mut |view| Ok(Table::decode(standfast_live::views::rows(view, &at).encode()).unwrap()))
    }

    fn texts(query: &str) -> Vec<Vec<String>> {
        let text = |cell: &Cell| match cell {
            Cell::Null => "-".to_owned(),
            Cell::Integer(value) => value.to_string(),
            Cell::Real(value) => format!("{value:.3}"),
            Cell::Text(text) => text.clone(),
        };
        ask(query).unwrap().rows.iter().map(|row| row.iter().map(text).collect()).collect()
    }

    /// Returns a query from docs/views.md by its heading, so that the documented queries are tested.
    fn query_of_the_page(heading: &str) -> String {
        let page = include_str!("../../../../docs/views.md");
        let (_, section) = page.split_once(&format!("### {heading}\n")).unwrap();
        let (_, code) = section.split_once("```sql\n").unwrap();
        code.split_once("```").unwrap().0.to_owned()
    }

    #[test]
    fn documented_transport_lag_query_returns_the_standby_lag() {
        let rows = texts(&query_of_the_page("Transport lag"));
        assert_eq!(
            rows,
            [["north", "transport lag", "+00 00:00:00", "2026-11-21 10:00:30", "2026-11-21 10:00:29"]]
        );
    }

    #[test]
    fn documented_log_rate_query_uses_archived_logs() {
        // Archived logs of the standby are excluded.
        let rows = texts(&query_of_the_page("Log rates"));
        assert_eq!(rows, [["6", "2", "60.000", "0.033"], ["7", "1", "60.000", "0.017"]]);
    }

    #[test]
    fn documented_wait_event_query_sorts_by_time_waited() {
        let rows = texts(&query_of_the_page("Wait events"));
        assert_eq!(rows[0][..2], ["SYNC Remote Write", "2"]);
    }

    #[test]
    fn documented_redo_write_query_divides_two_statistics() {
        assert_eq!(texts(&query_of_the_page("Average redo write")), [["south", "4.000"]]);
    }

    #[test]
    fn query_views_are_matched_as_words_in_any_case() {
        let names = |query| views_in(query).iter().map(|view| view.name).collect::<Vec<_>>();
        assert_eq!(names("SELECT * FROM V$LOG JOIN v$log_history"), ["v$log", "v$log_history"]);
        assert_eq!(names("SELECT * FROM \"v$logfile\""), ["v$logfile"]);
        assert_eq!(names("SELECT * FROM xv$log, v$logs"), Vec::<&str>::new());
    }

    #[test]
    fn unknown_view_error_has_a_hint_where_to_look() {
        let error = ask("SELECT * FROM v$nothing").unwrap_err().for_terminal();
        assert!(error.contains("v$nothing") && error.contains("hint: "), "{error}");
        assert!(ask("SELEC").is_err());
        assert_eq!(ask("SELECT 1 AS one").unwrap().columns, ["one"]);
    }
}
