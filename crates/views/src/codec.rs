//! Rows as bytes. All numbers are little-endian.
//!
//! ```text
//! 8 bytes "SFROWS01"
//! u32     columns; then for each: u32 length and that many bytes of its name
//! rows, each:  u8 'R', then for each column one of
//!              u8 0                     NULL
//!              u8 1, i64                integer
//!              u8 2, 8 bytes            IEEE 754 double
//!              u8 3, u32 length, bytes  text, UTF-8
//! u8 'E', u64 count of rows
//! ```
//! Columns are identified by their names, so both ends need not be of the same release. Rows without the end are
//! incomplete.

use std::fmt;

const MAGIC: &[u8; 8] = b"SFROWS01";
const ROW: u8 = b'R';
const END: u8 = b'E';

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cell {
    /// The value is unknown, or means nothing in this row.
    #[default]
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
}

/// A value within the bytes of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CellRef<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'a str),
}

impl From<CellRef<'_>> for Cell {
    fn from(cell: CellRef<'_>) -> Cell {
        match cell {
            CellRef::Null => Cell::Null,
            CellRef::Integer(value) => Cell::Integer(value),
            CellRef::Real(value) => Cell::Real(value),
            CellRef::Text(text) => Cell::Text(text.to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// They do not begin with the magic number of this version.
    NotRows,
    Short,
    /// They contain something that the format does not allow.
    Malformed,
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CodecError::NotRows => "these are no rows of this version",
            CodecError::Short => "the rows end too early",
            CodecError::Malformed => "the rows are malformed",
        })
    }
}

impl std::error::Error for CodecError {}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    pub columns: Vec<&'static str>,
    /// Rows, each with a cell for each column. Missing cells at the end of a row are NULL.
    pub rows: Vec<Vec<Cell>>,
}

impl Rows {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend((self.columns.len() as u32).to_le_bytes());
        for name in &self.columns {
            put_text(&mut out, name);
        }
        for row in &self.rows {
            out.push(ROW);
            for at in 0..self.columns.len() {
                match row.get(at).unwrap_or(&Cell::Null) {
                    Cell::Null => out.push(0),
                    Cell::Integer(value) => {
                        out.push(1);
                        out.extend(value.to_le_bytes());
                    }
                    Cell::Real(value) => {
                        out.push(2);
                        out.extend(value.to_le_bytes());
                    }
                    Cell::Text(text) => {
                        out.push(3);
                        put_text(&mut out, text);
                    }
                }
            }
        }
        out.push(END);
        out.extend((self.rows.len() as u64).to_le_bytes());
        out
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Position of a row in a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowAt(usize);

/// Rows that were verified from the first byte to the last. Nothing is allocated besides the bytes themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    bytes: Vec<u8>,
    columns: usize,
    first: usize,
    rows: u64,
}

impl Table {
    /// Verifies `bytes`.
    ///
    /// # Errors
    /// When they are not rows, or incomplete.
    pub fn decode(bytes: Vec<u8>) -> Result<Table, CodecError> {
        let mut reader = Reader { bytes: &bytes, at: 0 };
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(CodecError::NotRows);
        }
        let columns = reader.u32()? as usize;
        for _ in 0..columns {
            reader.text()?;
        }
        let first = reader.at;
        let mut rows = 0;
        while reader.u8()? == ROW {
            // Without columns a row would be one byte; an instance never sends that.
            if columns == 0 {
                return Err(CodecError::Malformed);
            }
            for _ in 0..columns {
                reader.cell()?;
            }
            rows += 1;
        }
        let is_end = bytes.get(reader.at.wrapping_sub(1)) == Some(&END);
        if !is_end || reader.u64()? != rows || reader.at != bytes.len() {
            return Err(CodecError::Malformed);
        }
        Ok(Table { columns, first, rows, bytes })
    }

    pub fn len(&self) -> u64 {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Names of the columns in order.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        let mut reader = Reader { bytes: &self.bytes, at: MAGIC.len() + 4 };
        (0..self.columns).map_while(move |_| reader.text().ok())
    }

    /// Index of a column; `None` when there is no such column.
    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns().position(|name| name == column)
    }

    pub fn first(&self) -> Option<RowAt> {
        self.row_at(self.first)
    }

    pub fn next(&self, row: RowAt) -> Option<RowAt> {
        let mut reader = self.within(row);
        for _ in 0..self.columns {
            reader.cell().ok()?;
        }
        self.row_at(reader.at)
    }

    /// Returns a value of that row; NULL for a column that does not exist.
    pub fn cell(&self, row: RowAt, column: usize) -> CellRef<'_> {
        if column >= self.columns {
            return CellRef::Null;
        }
        let mut reader = self.within(row);
        for _ in 0..column {
            if reader.cell().is_err() {
                return CellRef::Null;
            }
        }
        reader.cell().unwrap_or(CellRef::Null)
    }

    pub fn rows(&self) -> impl Iterator<Item = RowAt> {
        std::iter::successors(self.first(), |row| self.next(*row))
    }

    fn row_at(&self, at: usize) -> Option<RowAt> {
        (self.bytes.get(at) == Some(&ROW)).then_some(RowAt(at))
    }

    fn within(&self, row: RowAt) -> Reader<'_> {
        Reader { bytes: &self.bytes, at: row.0.saturating_add(1) }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let end = self.at.checked_add(count).ok_or(CodecError::Short)?;
        let taken = self.bytes.get(self.at..end).ok_or(CodecError::Short)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        self.take(N)?.try_into().map_err(|_| CodecError::Short)
    }

    fn u8(&mut self) -> Result<u8, CodecError> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, CodecError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, CodecError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<&'a str, CodecError> {
        let count = self.u32()? as usize;
        std::str::from_utf8(self.take(count)?).map_err(|_| CodecError::Malformed)
    }

    fn cell(&mut self) -> Result<CellRef<'a>, CodecError> {
        Ok(match self.u8()? {
            0 => CellRef::Null,
            1 => CellRef::Integer(i64::from_le_bytes(self.array()?)),
            2 => CellRef::Real(f64::from_le_bytes(self.array()?)),
            3 => CellRef::Text(self.text()?),
            _ => return Err(CodecError::Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Rows {
        Rows {
            columns: vec!["a", "b", "c"],
            rows: vec![
                vec![Cell::Null, Cell::Integer(i64::MIN), Cell::Real(0.5)],
                vec![Cell::Text("Zürich".into()), Cell::Text(String::new())],
            ],
        }
    }

    #[test]
    fn rows_are_decoded_unchanged_and_short_rows_end_in_null() {
        let table = Table::decode(example().encode()).unwrap();
        assert_eq!(table.columns().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!((table.len(), table.position("b"), table.position("x")), (2, Some(1), None));
        let rows: Vec<Vec<CellRef<'_>>> =
            table.rows().map(|row| (0..4).map(|column| table.cell(row, column)).collect()).collect();
        let first = [CellRef::Null, CellRef::Integer(i64::MIN), CellRef::Real(0.5), CellRef::Null];
        let second = [CellRef::Text("Zürich"), CellRef::Text(""), CellRef::Null, CellRef::Null];
        assert_eq!(rows, [first, second]);
    }

    #[test]
    fn empty_table_decodes_but_empty_input_is_refused() {
        let table = Table::decode(Rows { columns: vec!["a"], rows: vec![] }.encode()).unwrap();
        assert!(table.is_empty() && table.first().is_none());
        assert_eq!(Table::decode(vec![]), Err(CodecError::Short));
        assert_eq!(Table::decode(b"GET / HTTP/1.1".to_vec()), Err(CodecError::NotRows));
    }

    #[test]
    fn truncated_or_extended_input_is_refused() {
        let bytes = example().encode();
        for end in 0..bytes.len() {
            assert!(Table::decode(bytes[..end].to_vec()).is_err(), "{end} bytes of {}", bytes.len());
        }
        let mut more = bytes;
        more.push(0);
        assert_eq!(Table::decode(more), Err(CodecError::Malformed));
    }

    #[test]
    fn changed_byte_never_causes_an_out_of_bounds_read() {
        let bytes = example().encode();
        let mut refused = 0;
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 3, 4, b'R', b'E', 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                match Table::decode(changed) {
                    Err(_) => refused += 1,
                    // Every value can be read, and the number of rows is the stated one.
                    Ok(table) => {
                        let last: Vec<CellRef<'_>> = table.rows().map(|row| table.cell(row, 2)).collect();
                        assert_eq!(last.len() as u64, table.len());
                    }
                }
            }
        }
        assert!(refused > bytes.len(), "{refused}");
    }
}
