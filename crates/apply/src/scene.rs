//! A standby and empty databases for it, for the tests of this crate.

use crate::{Apply, ApplyConfig, Limits, StartPoint};
use standfast_io::DirectDisk;
use standfast_testkit::TempDir;
use standfast_types::{DatabaseId, PageSize, Scn};
use std::sync::Arc;

/// Opens a standby without databases, in a new directory.
pub fn standby(name: &str) -> (TempDir, Apply) {
    let directory = TempDir::new(name).unwrap();
    let config = ApplyConfig {
        directory: directory.path().to_owned(),
        journal: directory.join("journal"),
        disk: Arc::new(DirectDisk),
        vfs_base: None,
        workers: 0,
        limits: Limits::default(),
    };
    let apply = Apply::open(config, Box::new(|_| Ok(()))).unwrap();
    (directory, apply)
}

/// Attaches the empty database `number`, whose attach record is at `scn`.
pub fn attach_empty(apply: &mut Apply, number: u16, scn: Scn) {
    let (page_size, start) = (PageSize::new(4096).unwrap(), StartPoint::attached_at(scn));
    apply.attach_existing(DatabaseId(number), &format!("{number}.db"), page_size, start).unwrap();
}
