//! Fast-start failover with three members and an arbiter, in simulated time. The members make the decisions of the
//! shipped [`standfast_arbitration`]; redo, links, clocks and hosts are a model. A seed always gives the same history.
//!
//! Hosts crash, freeze and come back; links are cut one way or both ways and deliver late; clocks run at different rates;
//! an observer forgets, or comes back with an older file; a store loses its answers. Checked at every event:
//! - a commit that was acknowledged is in the redo of every member that becomes primary later, and of the last primary;
//! - no member acknowledges once a member has begun a newer incarnation;
//!
//! and at the end, when everything is connected again: there is a primary, it acknowledges, and all follow it.

pub mod arbiters;
pub mod history;
pub mod member;
pub mod world;

pub use arbiters::Kind;
pub use world::{Finding, Report, run};

/// Milliseconds since the start of a run.
pub type Millis = u64;

/// The names of the members.
pub const MEMBERS: [&str; 3] = ["alpha", "beta", "gamma"];
