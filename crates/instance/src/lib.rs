//! Wires the stages of one instance together: configuration, control file, the primary's commit path, the standby's
//! receive and apply path, checkpoints, roles, and the control socket.

pub mod address;
pub mod alert;
mod alert_config;
pub mod applier;
mod apply_control;
pub mod apply_delay;
mod apply_thread;
pub mod archive_lag;
pub mod archive_source;
pub mod archive_store;
pub mod attribute_text;
pub mod baseline;
mod candidates;
pub mod catalog;
pub mod checkpointer;

mod conclusion;
pub mod config;
pub mod control;
mod control_connections;
mod control_socket;
pub mod create;
pub mod database;
pub mod database_writer;
pub mod descriptors;
mod destination_commands;
pub mod destination_config;
pub mod destination_groups;
mod destination_lines;
mod divergence;
pub mod drain;
pub mod environment;
pub mod error;
pub mod evidence;
pub mod far_sync;

pub mod failed_files;
pub mod failover;
pub mod fence;
pub mod file_system;
pub mod foreign_commits;
pub mod foreign_processes;
pub mod foreign_watch;
pub mod forwarding;
mod group;
pub mod history;
pub mod http;
pub mod kept;
mod known_complete;
mod lag;
pub mod live_watch;
pub mod local_archive;
mod lock;
pub mod log_changes;
pub mod log_layout;
mod lost_redo;
pub mod members;
mod mmnl;
pub mod modes;
pub mod observe;
mod open_database;
pub mod open_primary;
mod page_copy;
pub mod paths;
pub mod places;
pub mod primary;
pub mod primary_threads;
pub mod process;
pub mod protect;
pub mod protection;
pub mod query;
mod rebuild;
mod received_gap;
pub mod received_log;
pub mod reconcile;
mod recovery;
pub mod refusals;
pub mod register;
pub mod release_queue;
pub mod resolve;
pub mod retention;
pub mod rights;
pub mod running;
mod runtime;
pub mod security;
pub mod server;
mod session_counts;
pub mod sessions;
pub mod shared_memory;
pub mod shipping;
pub mod sizing;
pub mod snapshots;
pub mod standby;
mod standby_copy;
pub mod status;
pub mod stopped;
mod swap;
pub mod unfinished;
pub mod verification;
pub mod verified;
pub mod view_request;
pub mod views;
mod watchers;
mod watching;
pub mod whole_file;

pub use error::InstanceError;
pub use standfast_transport::protection::ProtectionMode;
pub use standfast_transport::{Right, Rights};

/// Microseconds since the Unix epoch, for times shown to users.
pub fn now_us() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64)
}
