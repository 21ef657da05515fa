//! Test support: a machine that loses power, seeded randomness, and small helpers for tests.
//!
//! [`SimMachine`] is one simulated host: an in-memory file tree in which every change is *unsynced* until a sync makes
//! it durable. The redo stages access it through [`SimDisk`] (the `standfast-io` traits), SQLite through a VFS of the
//! machine ([`SimMachine::vfs_name`]); both see the same files. A power loss keeps all synced changes and an arbitrary
//! part of the others: each sector survives or is lost on its own, in any order.
//!
//! ```
//! use standfast_io::Disk;
//! use standfast_testkit::{Loss, Rng, SimMachine};
//! use std::path::Path;
//!
//! let machine = SimMachine::new(7);
//! let path = Path::new("/db/redo.log");
//! let log = machine.disk().create(path, 4096).unwrap();
//! log.write(b"never synced", 0).unwrap();
//! machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
//! assert_eq!(machine.contents(path), Some(vec![0; 4096]));
//! assert!(log.sync().is_err(), "handles from before the power loss are dead");
//! ```
//!
//! Order of events in a crash test: run a history once and read [`SimMachine::boundaries`]; then, for each boundary,
//! run the history on a new machine with [`SimMachine::crash_at`] until a call fails; then call
//! [`SimMachine::power_loss`], recover, and check that all acknowledged commits are there.

mod clock;
mod content;
mod file_tree;
mod from_address;
mod link;
mod locks;
mod loss;
mod machine;
mod port;
mod rng;
mod schedule;
mod seeds;
mod sim_disk;
mod sim_file;
mod sim_vfs;
mod sim_vfs_shm;
mod sqlite_seed;
mod temp;
mod wait;

pub use clock::SimClock;
pub use from_address::connect_from;
pub use link::{LinkEnd, MemoryLink};
pub use loss::{Loss, LossReport};
pub use machine::{PowerLoss, SimMachine, SimOptions, is_power_loss};
pub use port::reserved_port;
pub use rng::Rng;
pub use schedule::CrashPlace;
pub use seeds::{crash_replay_line, seeds};
pub use sim_disk::SimDisk;
pub use sqlite_seed::SqliteSeed;
pub use temp::TempDir;
pub use wait::{thread_id, until_asleep, wait_until};

/// Unit, in bytes, in which an unsynced write survives a power loss or is lost.
pub const SECTOR_BYTES: u64 = 512;
