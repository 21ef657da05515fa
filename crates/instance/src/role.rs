//! The role of an instance, changes of it, and the commands of operators.

pub(crate) mod apply_control;
pub mod create;
pub(crate) mod destination_commands;
pub mod drain;
pub mod failover;
pub mod far_sync;
pub(crate) mod fast_start;
pub mod fence;
pub(crate) mod group_watch;
mod heard_source;
pub mod history;
pub(crate) mod lag;
pub mod local_archive;
pub mod log_changes;
pub mod protection;
pub mod register;
pub mod reinstate;
pub mod resolve;
pub mod running;
pub mod serving;
pub mod snapshot_standby;
pub(crate) mod standby_observations;
pub(crate) mod step_down;
pub mod switchover;
pub(crate) mod take_over;
pub mod verification;
