//! The fault matrix: every fault of a standby, its disk and the way to it, in every mode of transport, again and again;
//! and two promises: nothing acknowledged is lost where `docs/guarantees.md` says so, and no commit waits longer than
//! the net timeout and a second, unless it was told to (`on_timeout = "stall"`).

mod campaign;
mod full_volume;
mod plan;
mod proxy;
mod report;
mod scene;

pub use campaign::{FaultsConfig, run};
pub use plan::{ARRANGEMENTS, Fault};
pub use report::{Cell, FaultsReport};
