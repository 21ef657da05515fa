//! Checkpoints.

pub mod candidates;
pub mod checkpointer;
pub mod database_writer;
pub mod failed_files;
