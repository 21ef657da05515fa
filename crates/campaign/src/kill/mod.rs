//! The kill campaign: a primary, a standby and several applications; `kill -9` at random moments, again and
//! again; and the promise that nothing acknowledged is ever lost.

mod arms;
mod campaign;
mod report;
mod strike;

pub use campaign::{KillConfig, run};
pub use report::{KillReport, Kills};
pub use strike::Strike;
