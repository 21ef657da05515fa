//! What all parts of an instance share.

pub mod commit_hold;
pub mod environment;
pub mod kept;
pub mod kept_configuration;
pub mod peer_rights;
pub mod places;
pub mod session_counts;
pub mod shared_memory;
