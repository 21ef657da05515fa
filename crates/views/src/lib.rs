//! The V$ views: their names and columns ([`VIEWS`]), and the bytes in which rows come from an instance ([`codec`]).
//!
//! It runs inside applications and depends on nothing. What the rows are is decided in the instance.

mod catalogue;
pub mod codec;

pub use catalogue::{Column, Kind, VIEWS, View, view};
pub use codec::{Cell, CellRef, CodecError, RowAt, Rows, Table};
