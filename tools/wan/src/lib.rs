//! WAN in a box: network namespaces on one machine and emulated links between them, without netem and without any
//! change to the programs that run there.
//!
//! Each node is a namespace with a TUN device whose other end is in this process. Pure modules: [`settings`],
//! [`chance`], [`link`] (which segments are dropped, when the others arrive), [`packet`] and [`forward`] (segments of
//! large packets), [`late`]. Threads and descriptors: [`worker`], [`control`], [`tun`], [`namespace`], [`place`].
//! [`Wan`] combines them.
//!
//! ```no_run
//! use standfast_wan::{Wan, WanConfig};
//! use std::time::Duration;
//!
//! let wan = Wan::start(WanConfig::with_rtt(Duration::from_millis(10)))?;
//! let mut server = wan.command("b", "standfast")?.args(["net", "server"]).spawn()?;
//! wan.control().cut(&[])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod awake;
pub mod chance;
pub mod clock;
pub mod command;
pub mod control;
pub mod emulator;
pub mod error;
pub mod event;
pub mod forward;
pub mod late;
pub mod link;
pub mod namespace;
pub mod packet;
pub mod place;
pub mod probe;
pub mod settings;
pub mod signals;
pub mod tun;
pub mod wan;
pub mod worker;

pub use error::{Result, WanError};
pub use wan::{Wan, WanConfig, possible};
