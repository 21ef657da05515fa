//! Fast-start failover: the decisions of who may acknowledge commits and who may take over, without clock, threads or
//! I/O.
//!
//! Primary, target and arbiter are three voices, and a decision needs two of them:
//!
//! | decision | voices |
//! |---|---|
//! | a commit is acknowledged while synchronised | primary and target: the target has its redo |
//! | the primary continues without the target | primary and arbiter |
//! | the target takes over | target and arbiter |
//!
//! Any two of these have a voice in common, and that voice has given its word once. So no clock decides about the data:
//! how long a primary must have been silent ([`Settings::threshold`]) only says when a failover is worth it.
//!
//! The arbiter keeps one [`Record`] and replaces it only for a member that knows the version it replaces. An observer
//! does that ([`register`]), and so can any store that compares and sets ([`arbiter::Arbiter`]).
//!
//! A primary that has neither of the others acknowledges nothing: it needs the target for each commit, and the arbiter to
//! do without. See docs/decisions/0069-fast-start-failover.md.
#![deny(clippy::disallowed_types)]

pub mod arbiter;
pub mod primary;
pub mod record;
pub mod register;
pub mod seen;
pub mod target;

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Times of fast-start failover, the same at every member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How long the primary must be silent, to the target and to the arbiter, before the target takes over; and how long
    /// a primary without the others waits before it stops.
    pub threshold: Duration,
    /// Time between two reports of the primary to the arbiter, and between two looks of the target at the arbiter.
    pub ping_interval: Duration,
    /// Whether a primary that has neither of the others for the threshold stops.
    pub primary_shutdown: bool,
    /// Whether the arbiter's view suffices: the target takes over although it still hears the primary.
    pub observer_override: bool,
}
