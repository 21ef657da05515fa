//! The V$ views as virtual tables: `SELECT * FROM v$log` on any connection with a protected database.
//!
//! Every view is an eponymous table: it exists without being created, in no schema, and is read-only. A statement
//! queries the instance once for each view that it names and keeps the rows, however often it scans them: it sees one
//! moment. SQLite does all filtering.

mod ask;
mod find;

use crate::bindings::{Context, Cursor, IndexInfo, Module, Sqlite3, Value, VirtualTable, code};
use crate::host::{Host, c_string, host, sqlite_string};
use crate::report::{shield, shield_with};
use standfast_views::{CellRef, RowAt, Table, VIEWS, View};
use std::ffi::{c_char, c_int, c_void};

static MODULE: Module = Module {
    version: 0,
    // Without `create` the tables exist by themselves and cannot be created.
    create: None,
    connect: Some(connect),
    best_index: Some(best_index),
    disconnect: Some(disconnect),
    destroy: None,
    open: Some(open),
    close: Some(close),
    filter: Some(filter),
    next: Some(next),
    eof: Some(eof),
    column: Some(column),
    rowid: Some(rowid),
    update: None,
    begin: None,
    sync: None,
    commit: None,
    rollback: None,
    find_function: None,
    rename: None,
};

/// Registers the views on a connection.
///
/// # Safety
/// `connection` must be an open connection of `host`.
pub(crate) unsafe fn register(host: &Host, connection: *mut Sqlite3) -> c_int {
    for view in VIEWS {
        let view: *const View = view;
        // SAFETY: as the caller promises; the module and the view live as long as the library, which is not unloaded.
        let result = unsafe {
            let name = c_string((*view).name);
            (host.create_module_v2)(
                connection,
                name.as_ptr(),
                &raw const MODULE,
                view.cast_mut().cast(),
                None,
            )
        };
        if result != code::OK {
            return result;
        }
    }
    code::OK
}

/// A view on a connection. SQLite points to its first field.
#[repr(C)]
struct ViewTable {
    base: VirtualTable,
    connection: *mut Sqlite3,
    view: &'static View,
}

/// A scan of a view. SQLite points to its first field.
#[repr(C)]
struct ViewCursor {
    base: Cursor,
    answer: Option<Answer>,
    row: Option<RowAt>,
    number: i64,
}

/// The rows of a view, and the position of each column in them: the instance may be of another release.
struct Answer {
    table: Table,
    places: Vec<Option<usize>>,
}

impl Answer {
    fn new(view: &View, table: Table) -> Answer {
        let places = view.columns.iter().map(|column| table.position(column.name)).collect();
        Answer { table, places }
    }
}

unsafe extern "C" fn connect(
    connection: *mut Sqlite3,
    view: *mut c_void,
    _count: c_int,
    _words: *const *const c_char,
    table: *mut *mut VirtualTable,
    _message: *mut *mut c_char,
) -> c_int {
    shield(|| {
        let Some(host) = host() else { return code::INTERNAL };
        // SAFETY: the pointer that was registered with the module: a view that lives as long as the library.
        let view: &'static View = unsafe { &*view.cast::<View>() };
        let statement = c_string(&view.create_table());
        // SAFETY: the connection on which SQLite connects the table, and a C string.
        let result = unsafe { (host.declare_vtab)(connection, statement.as_ptr()) };
        if result != code::OK {
            return result;
        }
        let base = VirtualTable { module: &raw const MODULE, references: 0, message: std::ptr::null_mut() };
        let new = Box::into_raw(Box::new(ViewTable { base, connection, view }));
        // SAFETY: the place for the new table; it is given back in `disconnect`.
        unsafe { *table = new.cast() };
        code::OK
    })
}

unsafe extern "C" fn best_index(_table: *mut VirtualTable, _info: *mut IndexInfo) -> c_int {
    // SQLite has filled in a full scan.
    shield(|| code::OK)
}

unsafe extern "C" fn disconnect(table: *mut VirtualTable) -> c_int {
    shield(|| {
        // SAFETY: made in `connect`, and given back once.
        drop(unsafe { Box::from_raw(table.cast::<ViewTable>()) });
        code::OK
    })
}

unsafe extern "C" fn open(_table: *mut VirtualTable, cursor: *mut *mut Cursor) -> c_int {
    shield(|| {
        let base = Cursor { table: std::ptr::null_mut() };
        let new = Box::into_raw(Box::new(ViewCursor { base, answer: None, row: None, number: 0 }));
        // SAFETY: the place for the new cursor, whose table SQLite sets; it is given back in `close`.
        unsafe { *cursor = new.cast() };
        code::OK
    })
}

unsafe extern "C" fn close(cursor: *mut Cursor) -> c_int {
    shield(|| {
        // SAFETY: made in `open`, and given back once.
        drop(unsafe { Box::from_raw(cursor.cast::<ViewCursor>()) });
        code::OK
    })
}

/// # Safety
/// `cursor` was made in `open` and is not closed; SQLite uses a cursor from one thread at a time.
unsafe fn cursor_of<'a>(cursor: *mut Cursor) -> &'a mut ViewCursor {
    // SAFETY: as the caller promises; the cursor is the first field of a structure of C layout.
    unsafe { &mut *cursor.cast::<ViewCursor>() }
}

unsafe extern "C" fn filter(
    cursor: *mut Cursor,
    _number: c_int,
    _text: *const c_char,
    _count: c_int,
    _values: *mut *mut Value,
) -> c_int {
    shield(|| {
        let Some(host) = host() else { return code::INTERNAL };
        // SAFETY: a cursor of SQLite, and the table that SQLite has set in it, which outlives it.
        let (cursor, table) = unsafe {
            let cursor = cursor_of(cursor);
            let table = &mut *cursor.base.table.cast::<ViewTable>();
            (cursor, table)
        };
        if cursor.answer.is_none() {
            // SAFETY: the scanning statement uses the connection, on this thread.
            match unsafe { rows_of(host, table.connection, table.view) } {
                Ok(rows) => cursor.answer = Some(Answer::new(table.view, rows)),
                Err(text) => {
                    // SAFETY: null or allocated here; SQLite takes it as the message of the statement and frees it.
                    unsafe { (host.free)(table.base.message.cast()) };
                    table.base.message = sqlite_string(host, &text);
                    return code::ERROR;
                }
            }
        }
        cursor.row = cursor.answer.as_ref().and_then(|answer| answer.table.first());
        cursor.number = 0;
        code::OK
    })
}

/// # Safety
/// `connection` must be an open connection of `host`, used by this thread.
unsafe fn rows_of(host: &Host, connection: *mut Sqlite3, view: &View) -> Result<Table, String> {
    // SAFETY: as the caller promises.
    let marker = unsafe { find::marker(host, connection) };
    let rows = marker.and_then(|marker| ask::rows(&marker, view.name));
    rows.map_err(|why| format!("{}: {why}", view.name))
}

unsafe extern "C" fn next(cursor: *mut Cursor) -> c_int {
    shield(|| {
        // SAFETY: a cursor of SQLite.
        let cursor = unsafe { cursor_of(cursor) };
        cursor.row = cursor.answer.as_ref().zip(cursor.row).and_then(|(answer, row)| answer.table.next(row));
        cursor.number += 1;
        code::OK
    })
}

unsafe extern "C" fn eof(cursor: *mut Cursor) -> c_int {
    // After a panic there are no more rows. SAFETY: a cursor of SQLite.
    shield_with(1, || c_int::from(unsafe { cursor_of(cursor) }.row.is_none()))
}

unsafe extern "C" fn column(cursor: *mut Cursor, context: *mut Context, column: c_int) -> c_int {
    shield(|| {
        const COPY: isize = -1;
        let Some(host) = host() else { return code::INTERNAL };
        // SAFETY: a cursor of SQLite.
        let cursor = unsafe { cursor_of(cursor) };
        let cell = match (&cursor.answer, cursor.row, usize::try_from(column)) {
            (Some(answer), Some(row), Ok(column)) => {
                let place = answer.places.get(column).copied().flatten();
                place.map_or(CellRef::Null, |place| answer.table.cell(row, place))
            }
            _ => CellRef::Null,
        };
        // SAFETY: the context of this call; SQLite copies the text, whose length is passed.
        unsafe {
            match cell {
                CellRef::Null => (host.result_null)(context),
                CellRef::Integer(value) => (host.result_int64)(context, value),
                CellRef::Real(value) => (host.result_double)(context, value),
                CellRef::Text(text) => match c_int::try_from(text.len()) {
                    Ok(bytes) => (host.result_text)(context, text.as_ptr().cast(), bytes, COPY),
                    Err(_) => return code::TOOBIG,
                },
            }
        }
        code::OK
    })
}

unsafe extern "C" fn rowid(cursor: *mut Cursor, number: *mut i64) -> c_int {
    shield(|| {
        // SAFETY: a cursor of SQLite, and the place for the number.
        unsafe { *number = cursor_of(cursor).number };
        code::OK
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;
    use std::mem::offset_of;

    #[test]
    fn virtual_table_structures_match_sqlites_layout() {
        macro_rules! same {
            ($ours:ty, $theirs:ty: $($field:ident = $name:ident),* $(,)?) => {
                $(assert_eq!(offset_of!($ours, $field), offset_of!($theirs, $name), stringify!($name));)*
            };
        }
        same!(Module, ffi::sqlite3_module:
            version = iVersion, create = xCreate, connect = xConnect, best_index = xBestIndex,
            disconnect = xDisconnect, destroy = xDestroy, open = xOpen, close = xClose, filter = xFilter, next = xNext,
            eof = xEof, column = xColumn, rowid = xRowid, update = xUpdate, begin = xBegin, sync = xSync,
            commit = xCommit, rollback = xRollback, find_function = xFindFunction, rename = xRename);
        // All methods of the first version, and none of the second.
        assert_eq!(size_of::<Module>(), offset_of!(ffi::sqlite3_module, xSavepoint));
        same!(VirtualTable, ffi::sqlite3_vtab: module = pModule, references = nRef, message = zErrMsg);
        assert_eq!(size_of::<VirtualTable>(), size_of::<ffi::sqlite3_vtab>());
        assert_eq!(size_of::<Cursor>(), size_of::<ffi::sqlite3_vtab_cursor>());
        assert_eq!((offset_of!(ViewTable, base), offset_of!(ViewCursor, base)), (0, 0));
    }
}
