//! The instance directory: control file, alert log, locks, permissions.

pub mod alert;
pub mod checked_file;
pub mod control;
pub mod control_socket;
pub mod descriptors;
pub mod file_system;
pub mod group;
pub mod lock;
pub mod log_layout;
pub mod modes;
pub mod now;
pub mod paths;
pub mod process;
pub mod runtime;
pub mod unfinished;
