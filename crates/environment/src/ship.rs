//! What a primary and a forwarding standby have in common: log files, senders, archived logs.

pub mod archive_source;
pub mod archiving;
pub mod destination_groups;
pub mod destination_lines;
pub mod identity;
pub mod members;
pub mod open_database;
pub mod page_copy;
pub mod refusals;
pub mod retention;
pub mod sender_settings;
pub mod slices;
pub mod source_error;
