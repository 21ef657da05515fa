//! Small instances, a primary with its standby, and single commits, for tests.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use crate::databases::{create_database, open_plain};
use crate::primary::PrimaryHost;
use crate::site::{Geometry, SegmentFile, paths};
use crate::standby::{StandbyHost, create};
use standfast_primary::commit::primary::NoShipping;
use standfast_primary::ship::redo_source::PrimarySource;
use standfast_standby::received_log::ReceivedLog;
use standfast_testkit::{Loss, Rng, SimMachine};
use standfast_transport::{RedoSlice, RedoSource, StageError, StandbyLog};
use standfast_types::{DatabaseId, ReleasePosition, Scn};
use std::path::Path;
use std::sync::Arc;

/// Name of the database of [`small_primary`].
const NAME: &str = "d1.db";

/// Creates a primary with one database and two log groups, on a machine of its own.
pub fn small_primary() -> (Arc<SimMachine>, Geometry, SegmentFile, PrimaryHost) {
    let mut rng = Rng::new(5);
    let (machine, geometry, segment) = (SimMachine::new(1), Geometry::smallest(), SegmentFile::unique());
    geometry.init(&machine).unwrap();
    let path = Path::new("/app").join(NAME);
    let page_size = create_database(&machine, &path, &mut rng).unwrap();
    let mut host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
    host.protect(NAME, path, page_size, false).unwrap();
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

/// Counts the rows in the copy of the database of [`small_primary`] that the standby on `machine` has.
pub fn rows_of_copy(machine: &Arc<SimMachine>) -> u32 {
    rows(machine, &paths().databases.join(NAME))
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

/// A primary, and a standby created before its first commit.
pub struct Pair {
    pub primary: PrimaryHost,
    /// The machine of the standby.
    pub machine: Arc<SimMachine>,
    pub geometry: Geometry,
    /// SCN at the end of each commit.
    pub ends: Vec<Scn>,
    /// Shared memory of the standby.
    segment: SegmentFile,
    _segment_of_primary: SegmentFile,
}

impl Pair {
    /// Creates both; the primary then commits `commits` times.
    pub fn new(commits: usize) -> Pair {
        let (_, geometry, segment_of_primary, primary) = small_primary();
        primary.shared.ship_through(Arc::new(NoShipping));
        let machine = SimMachine::new(2);
        create(&machine, &geometry, &primary, 2).unwrap();
        let mut pair = Pair {
            primary,
            machine,
            geometry,
            ends: Vec::new(),
            segment: SegmentFile::unique(),
            _segment_of_primary: segment_of_primary,
        };
        (0..commits).for_each(|_| pair.commit());
        pair
    }

    /// Commits one row, and captures its redo.
    pub fn commit(&mut self) {
        commit(&self.primary.machine, &self.primary, DatabaseId(1));
        self.primary.drain().unwrap();
        self.ends.push(self.primary.source.durable());
    }

    /// Opens the standby.
    pub fn open(&self) -> StandbyHost {
        self.open_on(&self.machine, &self.segment)
    }

    /// Opens the standby on `machine`, a copy of its machine.
    pub fn open_on(&self, machine: &Arc<SimMachine>, segment: &SegmentFile) -> StandbyHost {
        StandbyHost::open(machine, &self.geometry, segment).unwrap()
    }

    /// Ends the standby, whose machine loses power, and opens it again.
    pub fn lose_power_and_open(&self, standby: StandbyHost) -> StandbyHost {
        drop(standby);
        self.machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
        self.segment.lose();
        self.open()
    }

    /// Sends the redo from the end of `log` on, up to `upto`, without confirming it.
    ///
    /// # Errors
    /// When the redo cannot be read, or `log` cannot be written.
    pub fn send(&self, log: &mut ReceivedLog, upto: Scn) -> Result<(), StageError> {
        while log.received_end() < upto {
            let redo = next_redo(&self.primary.source, log.received_end(), upto, 1 << 20)?;
            let confirmed = log.confirmed();
            log.append(&[&redo], confirmed)?;
        }
        Ok(())
    }

    /// Applies all confirmed redo; returns how many rows the standby then has.
    pub fn applied_rows(&self, standby: &StandbyHost) -> u32 {
        while standby.apply().unwrap() {}
        rows_of_copy(&self.machine)
    }
}
