//! The standby: received redo, apply, archiving, and forwarding to its own destinations.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod applier;
pub mod apply_delay;
pub mod apply_thread;
pub mod archive_store;
pub mod forwarding;
mod freshness;
pub mod known_complete;
pub mod lost_redo;
pub mod received_gap;
pub mod received_log;
pub mod set_aside;
pub mod sizing;
pub mod source_report;
pub mod standby;
pub mod standby_archiver;
pub mod standby_copy;
pub mod standby_shared;
pub mod stopped;
pub mod upstream;
pub mod verified;
