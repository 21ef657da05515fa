//! The redo of a primary as its destinations get it.

pub mod destinations;
pub mod redo_source;
