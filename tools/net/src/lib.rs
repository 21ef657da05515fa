//! Network assessment: whether a link and the disk behind it carry synchronous or asynchronous redo transport,
//! and what limits them.
//!
//! A test has a [`server`](crate::server) on one host and a client ([`run`](crate::run)) on the other. Pure parts:
//! [`units`], [`plan`], [`wire`], [`framer`], [`limit`], [`stats`], [`html`]. Threads and sockets: [`server`] and
//! [`lobby`] on the server, [`run`] and [`stream`] on the client. [`sender`] and [`session`] are the two ends of a
//! connection; either end may be on either side.

pub mod access;
pub mod advice;
pub mod arrivals;
pub mod auth;
mod collect;
pub mod command;
pub mod error;
pub mod file;
pub mod framer;
pub mod html;
pub mod interrupt;
pub mod limit;
pub mod link;
pub mod loaded;
pub mod lobby;
pub mod log_history;
pub mod outcome;
pub mod plan;
pub mod random;
pub mod report;
pub mod run;
pub mod search;
pub mod sender;
pub mod server;
pub mod session;
pub mod socket;
pub mod stats;
pub mod stream;
pub mod tcptest;
pub mod terminal;
pub mod watch;
pub mod wire;

pub use error::{NetError, Result};
pub use standfast_page::units;
