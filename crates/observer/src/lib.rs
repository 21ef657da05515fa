//! The observer of fast-start failover: a small program on a third host, which keeps the record that primary and target
//! ask for. It has no redo and no databases. What it decides is in `standfast_arbitration::register`.
//!
//! ```text
//! file: the record, durable before it counts  <-  service: answers members  <-  run: the process
//! ```

pub mod file;
pub mod run;
pub mod service;
