//! From files to a primary that serves.

pub mod conclusion;
pub mod divergence;
pub mod evidence;
pub mod foreign_watch;
pub mod open_primary;
pub mod primary_threads;
pub mod protect;
pub mod rebuild;
pub mod reconcile;
pub mod recovery;
pub mod sessions;
pub mod swap;
