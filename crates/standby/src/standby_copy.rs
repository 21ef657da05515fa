//! Copies one database of a standby to a primary that rebuilds the database because its own file does not descend from
//! its redo (`resolve`).

use crate::standby_shared::{Copyable, StandbyShared};
use rusqlite::Connection;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::open_database::open_guarded;
use standfast_environment::ship::open_database::recover_index;
use standfast_environment::ship::page_copy::copy_pages;
use standfast_environment::ship::source_error::failed;
use standfast_transport::{DatabaseInfo, SnapshotInfo, SourceError};
use standfast_types::{DatabaseId, PageNo, Scn};

pub fn databases(environment: &Environment) -> Vec<DatabaseInfo> {
    let info = |record: &standfast_environment::state::control::DatabaseRecord| DatabaseInfo {
        id: record.id,
        name: record.name.clone(),
        page_size: record.page_size,
        path: record.path.display().to_string(),
    };
    environment.control().databases.iter().map(info).collect()
}

/// Copies the database. The SCN in the result says which commits the copy certainly holds; it may hold later ones.
///
/// # Errors
/// When redo is not applied to the database here, or an image is about to replace it, or it cannot be read.
pub fn copy(
    environment: &Environment,
    shared: &StandbyShared,
    id: DatabaseId,
    sink: &mut dyn FnMut(PageNo, &[u8]) -> std::io::Result<()>,
) -> Result<SnapshotInfo, SourceError> {
    // Read before the snapshot begins, so the snapshot holds all of it.
    let copyable = shared.copyable();
    let reader = begin(environment, shared, id, &copyable).map_err(failed)?;
    Ok(SnapshotInfo { database: id, scn: copyable.upto, pages: copy_pages(&reader, sink)? })
}

fn begin(
    environment: &Environment,
    shared: &StandbyShared,
    id: DatabaseId,
    copyable: &Copyable,
) -> Result<Connection, InstanceError> {
    let control = environment.control();
    let record = control.databases.iter().find(|record| record.id == id);
    let record = record.ok_or_else(|| InstanceError::Failed(format!("database {id} is not here")))?;
    if copyable.replaced.contains(&id) {
        return Err(InstanceError::Failed(format!(
            "a full image of database {} is on its way here",
            record.name
        )));
    }
    if copyable.upto == Scn::ZERO || shared.stopped().databases.iter().any(|at| at.database == record.name) {
        return Err(InstanceError::Failed(format!("redo is not applied to database {} here", record.name)));
    }
    let reader = open_guarded(&record.path, environment.vfs_base.as_deref())?;
    reader.execute_batch("PRAGMA mmap_size=0; BEGIN")?;
    recover_index(&reader)?;
    Ok(reader)
}
