//! An instance: its role, the commands of operators, what can be observed of it, and its process.

pub mod observe;
pub mod role;
pub mod server;
