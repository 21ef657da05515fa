//! The fault matrix: every fault of a standby, its disk and its link, in every transport mode, repeatedly. It checks
//! two promises: no acknowledged commit is lost where `docs/guarantees.md` says so, and no commit waits longer than the
//! net timeout plus a second, unless it is configured to (`on_timeout = "stall"`).

mod campaign;
mod full_volume;
mod plan;
mod proxy;
mod report;
mod scene;

pub use campaign::{FaultsConfig, run};
pub use plan::{ARRANGEMENTS, Fault};
pub use report::{Cell, FaultsReport};
