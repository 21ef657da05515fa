//! What can be observed of an instance, and the threads that watch it.

pub mod catalog;
pub mod http;
pub(crate) mod latest;
pub mod live_watch;
pub(crate) mod mmnl;
pub mod monitors;
pub mod observation;
pub mod query;
pub mod snapshots;
pub mod status;
pub mod view_request;
pub(crate) mod watchers;
pub(crate) mod watching;
