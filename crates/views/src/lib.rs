//! The V$ views: their names and columns ([`VIEWS`]), and the bytes in which an instance sends rows ([`codec`]).
//!
//! This crate runs inside applications and has no dependencies. The instance decides what the rows are.

mod catalogue;
pub mod codec;

pub use catalogue::{Column, Kind, VIEWS, View, view};
pub use codec::{Cell, CellRef, CodecError, RowAt, Rows, Table};
