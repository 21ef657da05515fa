//! What the primary and the standby of an instance share: configuration, control file, security, and what the senders
//! of both need.

pub mod config;
pub mod context;
pub mod creation;
pub mod security;
pub mod ship;
pub mod state;

pub use config::error::InstanceError;
pub use standfast_transport::protection::ProtectionMode;
pub use standfast_transport::{Right, Rights};
