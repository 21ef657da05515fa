//! The kill campaign: a primary, a standby and several applications are killed with `kill -9` at random moments,
//! repeatedly; no acknowledged commit may ever be lost.

mod arms;
mod campaign;
mod report;
mod strike;

pub use campaign::{KillConfig, run};
pub use report::{KillReport, Kills};
pub use strike::Strike;
