//! Small instances and single commits, for tests.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use crate::databases::{create_database, open_plain};
use crate::primary::PrimaryHost;
use crate::site::{Geometry, SegmentFile};
use standfast_primary::ship::redo_source::PrimarySource;
use standfast_testkit::{Rng, SimMachine};
use standfast_transport::{RedoSlice, RedoSource, StageError};
use standfast_types::{DatabaseId, ReleasePosition, Scn};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Creates a primary with one database and two log groups, on a machine of its own.
pub fn small_primary() -> (Arc<SimMachine>, Geometry, SegmentFile, PrimaryHost) {
    let mut rng = Rng::new(5);
    let (machine, geometry, segment) = (SimMachine::new(1), Geometry::smallest(), SegmentFile::unique());
    geometry.init(&machine).unwrap();
    let path = PathBuf::from("/app/d1.db");
    let page_size = create_database(&machine, &path, &mut rng).unwrap();
    let mut host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
    host.protect("d1.db", path, page_size, false).unwrap();
    (machine, geometry, segment, host)
}

/// Commits one row and announces its WAL generation; returns its release position.
pub fn commit(machine: &Arc<SimMachine>, host: &PrimaryHost, id: DatabaseId) -> ReleasePosition {
    try_commit(machine, host, id).unwrap()
}

/// Does what [`commit`] does.
///
/// # Errors
/// When the machine loses power meanwhile.
pub fn try_commit(
    machine: &Arc<SimMachine>,
    host: &PrimaryHost,
    id: DatabaseId,
) -> rusqlite::Result<ReleasePosition> {
    let database = host.shared.database(id).unwrap();
    let application = open_plain(machine, &database.record().path)?;
    application.execute_batch("INSERT INTO ledger SELECT 1, coalesce(max(seq), 0) + 1 FROM ledger")?;
    let header = database.header().unwrap();
    let epoch = host.shared.segment.announce_generation(id.0, header.raw_salts());
    Ok(ReleasePosition::new(epoch, header.frames()))
}

pub fn rows(machine: &Arc<SimMachine>, path: &Path) -> u32 {
    let connection = open_plain(machine, path).unwrap();
    connection.query_row("SELECT count(*) FROM ledger", [], |row| row.get(0)).unwrap()
}

/// Redo of the primary from `from` on, up to `upto` and `bytes_max` bytes.
///
/// # Errors
/// When the log cannot be read.
pub fn next_redo(
    source: &PrimarySource,
    from: Scn,
    upto: Scn,
    bytes_max: usize,
) -> Result<Vec<u8>, StageError> {
    if upto <= from {
        return Ok(Vec::new());
    }
    let upto = upto.min(from + bytes_max as u64);
    let slices = match source.buffered(from, bytes_max) {
        Some(slices) => slices,
        None => vec![RedoSlice::new(from, Arc::new(source.logged(from, bytes_max)?))],
    };
    Ok(slices.iter().flat_map(|slice| slice.clip(from, upto).bytes().to_vec()).collect())
}
