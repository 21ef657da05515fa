//! The shared-memory contract between application and instance.
//!
//! One segment per instance, in two files. Sessions map what the instance *publishes* (positions, states, settings) for
//! reading; on it alone they decide that a commit is durable. What they *request* (that a database has new frames, that
//! they wait, for what) they write into the other file, which has a slot per session (a connection to a protected
//! database). Nothing in that file can reach the redo or make an acknowledgement. An application that dies at any
//! instruction leaves at worst a stale hint, which these rules heal:
//!
//! - the fcntl lock of SQLite is the truth about which connection writes; `owner`, tickets and reservations are hints;
//! - a wake that never comes costs one timeout of the waiter, which then checks by itself;
//! - only the instance moves `durable`, and only forwards;
//! - a lock on the byte of its slot tells whether a session lives, whatever the slot holds (module `slot_locks`).
//!
//! Bitmaps and tickets only: no pointers, no lists in shared memory.

mod activity;
mod beside;
mod bits;
mod bus_error;
mod daemon;
mod durations;
mod error;
mod files;
mod first_in_line;
mod freshness;
mod futex;
mod index_descriptor;
mod inner_lock;
mod layout;
pub mod liveness;
mod mapping;
mod marker;
mod publish;
mod published;
mod queue;
mod segment;
mod session;
mod slot;
mod slot_locks;
mod spin;
mod waiters;

pub use activity::SessionActivity;
pub use beside::{journal_path, wal_index_path, wal_path};
pub use bus_error::{Resolver, map_zeros, on_bus_error};
pub use daemon::{DirtySet, SessionCounts};
pub use durations::{BUCKETS, SessionWait, WaitCounts, bucket_of};
pub use error::SegmentError;
pub use files::{own_user, published_mode, published_path};
pub use freshness::boot_ns;
pub use index_descriptor::IndexDescriptor;
pub use inner_lock::InnerLock;
pub use layout::{DATABASES, DatabaseState, OtherWriters, RELEASE_STALL_MS, SESSIONS_MAX};
pub use marker::{FileId, Foreign, Marker, MarkerError, marker_path};
pub use publish::Repaired;
pub use published::Target;
pub use queue::{Owner, TurnTicket};
pub use segment::{Segment, SegmentConfig};
pub use session::{AttachError, CommitMode, Session, WaitOutcome};
pub use slot::OuterWait;
pub use waiters::Waiters;

/// Name of the symbol, in libraries with the shim, that holds the address of a function of the SQLite that they serve,
/// 0 while there is none: `standfast doctor` reads it from outside.
pub const SERVES_SYMBOL: &str = "standfast_serves";

/// Nanoseconds of the monotonic clock, comparable between processes of one machine.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time is a valid timespec to write to; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
