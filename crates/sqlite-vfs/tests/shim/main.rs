//! The shim in the SQLite of this process, against a stand-in for the instance.

#![allow(clippy::unwrap_used)]

mod commit;
mod fake;
mod full_disk;
mod host;
mod locks;
mod read_marks;
mod refusals;
mod shared_cache;
mod stacked;
mod support;
mod visibility;
