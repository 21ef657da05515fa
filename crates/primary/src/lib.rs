//! The primary: the commit path, checkpoints, and the way from files to an open primary.

pub mod checkpoint;
pub mod commit;
pub mod open;
pub mod ship;
