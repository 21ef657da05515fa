//! Builds rows by column names; cells that are not set are NULL.

use standfast_views::{Cell, Rows, View};

/// Rows of a view under construction.
pub struct Builder {
    view: &'static View,
    instance: String,
    rows: Vec<Vec<Cell>>,
}

impl Builder {
    /// Begins without rows.
    pub fn new(view: &'static View) -> Builder {
        Builder { view, instance: String::new(), rows: Vec::new() }
    }

    /// Sets the instance that the following rows are about.
    pub fn begin_instance(&mut self, name: &str) {
        self.instance = name.to_owned();
    }

    /// Adds a row. Its last column names the instance. A name that is not a column of the view is an error of the
    /// caller, which tests find.
    pub fn row<'a>(&mut self, cells: impl IntoIterator<Item = (&'a str, Cell)>) {
        let columns = self.view.columns;
        let mut row = vec![Cell::Null; columns.len()];
        if let Some(last) = row.last_mut() {
            *last = Cell::Text(self.instance.clone());
        }
        for (name, cell) in cells {
            let place = self.view.position(name).and_then(|at| row.get_mut(at));
            debug_assert!(place.is_some(), "{} has no column {name}", self.view.name);
            if let Some(place) = place {
                *place = cell;
            }
        }
        self.rows.push(row);
    }

    pub fn finish(self) -> Rows {
        Rows { columns: self.view.columns.iter().map(|column| column.name).collect(), rows: self.rows }
    }
}

/// Converts a value to a cell; `None` becomes NULL.
pub fn cell(value: impl IntoCell) -> Cell {
    value.into_cell()
}

/// A type that can be converted to a cell.
pub trait IntoCell {
    fn into_cell(self) -> Cell;
}

impl IntoCell for u64 {
    fn into_cell(self) -> Cell {
        Cell::Integer(i64::try_from(self).unwrap_or(i64::MAX))
    }
}

impl IntoCell for u32 {
    fn into_cell(self) -> Cell {
        Cell::Integer(i64::from(self))
    }
}

impl IntoCell for usize {
    fn into_cell(self) -> Cell {
        Cell::Integer(i64::try_from(self).unwrap_or(i64::MAX))
    }
}

impl IntoCell for f64 {
    fn into_cell(self) -> Cell {
        if self.is_finite() { Cell::Real(self) } else { Cell::Null }
    }
}

impl IntoCell for &str {
    fn into_cell(self) -> Cell {
        Cell::Text(self.to_owned())
    }
}

impl IntoCell for String {
    fn into_cell(self) -> Cell {
        Cell::Text(self)
    }
}

impl IntoCell for bool {
    fn into_cell(self) -> Cell {
        cell(if self { "YES" } else { "NO" })
    }
}

impl IntoCell for &String {
    fn into_cell(self) -> Cell {
        cell(self.as_str())
    }
}

impl IntoCell for &u64 {
    fn into_cell(self) -> Cell {
        cell(*self)
    }
}

impl IntoCell for &bool {
    fn into_cell(self) -> Cell {
        cell(*self)
    }
}

impl<'a, T> IntoCell for &'a Option<T>
where
    &'a T: IntoCell,
{
    fn into_cell(self) -> Cell {
        self.as_ref().map_or(Cell::Null, IntoCell::into_cell)
    }
}

impl<T: IntoCell> IntoCell for Option<T> {
    fn into_cell(self) -> Cell {
        self.map_or(Cell::Null, IntoCell::into_cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_cells_are_null_and_last_column_names_the_instance() {
        let view = standfast_views::view("v$archive_gap").unwrap();
        let mut rows = Builder::new(view);
        rows.begin_instance("oslo");
        rows.row([("low_sequence_no", cell(7u64)), ("high_sequence_no", cell(None::<u64>))]);
        let rows = rows.finish();
        assert_eq!(rows.columns.last(), Some(&"db_unique_name"));
        assert_eq!(
            rows.rows,
            [[Cell::Null, Cell::Integer(7), Cell::Null, Cell::Text("oslo".into())].to_vec()]
        );
    }

    #[test]
    fn values_become_cells_of_their_kind() {
        assert_eq!(cell(Some(5u64)), Cell::Integer(5));
        assert_eq!(cell(u64::MAX), Cell::Integer(i64::MAX));
        assert_eq!(cell(0.5), Cell::Real(0.5));
        assert_eq!(cell(Some(true)), Cell::Text("YES".into()));
        assert_eq!(cell(f64::NAN), Cell::Null);
    }
}
