//! What a view is: a name and columns with the types of their values.

/// Type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Signed integers of 64 bits, as in SQLite.
    Integer,
    Real,
    /// UTF-8 text. Times are `YYYY-MM-DD HH:MM:SS`, UTC.
    Text,
}

impl Kind {
    pub fn sql(self) -> &'static str {
        match self {
            Kind::Integer => "INTEGER",
            Kind::Real => "REAL",
            Kind::Text => "TEXT",
        }
    }
}

/// A column. Any value may be NULL: unknown, or not applicable to that row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    pub about: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub name: &'static str,
    pub about: &'static str,
    pub columns: &'static [Column],
    /// Whether its rows are made of what was recorded over time, which is long.
    pub needs_history: bool,
}

impl View {
    /// Index of a column; `None` when there is no such column.
    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|known| known.name == column)
    }

    /// Returns the statement that creates a table with these columns.
    pub fn create_table(&self) -> String {
        let columns: Vec<String> =
            self.columns.iter().map(|column| format!("\"{}\" {}", column.name, column.kind.sql())).collect();
        format!("CREATE TABLE \"{}\"({})", self.name, columns.join(", "))
    }
}
