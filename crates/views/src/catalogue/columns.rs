//! How columns are written down, and the columns that several views have.

use super::definition::{Column, Kind};

pub(super) const fn integer(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: Kind::Integer, about }
}

pub(super) const fn real(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: Kind::Real, about }
}

pub(super) const fn text(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: Kind::Text, about }
}

/// The last column of almost all views.
pub(super) const INSTANCE: Column = text("db_unique_name", "Name of the instance that the row is about.");
/// The last column where `db_unique_name` is a documented column with another meaning.
pub(super) const SOURCE: Column =
    text("source_db_unique_name", "Name of the instance that has the destination.");
pub(super) const THREAD: Column = integer("thread_no", "Always 1: an instance has one stream of redo.");
pub(super) const RESETLOGS_CHANGE: Column =
    integer("resetlogs_change_no", "SCN at which the incarnation left the one before.");
pub(super) const RESETLOGS_TIME: Column = text("resetlogs_time", "When the incarnation began.");
