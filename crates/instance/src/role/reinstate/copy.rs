//! Receives the pages in which the databases of the primary differ from those here.

use super::branch::{Relation, relation};
use standfast_apply::PageUpdate;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::identity::peer_identity;
use standfast_environment::state::control::{Control, DatabaseRecord, RestingFile, Role};
use standfast_environment::state::unfinished::is_plain;
use standfast_io::fault::{self, Fault};
use standfast_io::outside;
use standfast_transport::{
    DatabaseInfo, Incarnation, Manifest, SnapshotInfo, SnapshotSink, StageError, stage_error,
};
use standfast_types::{DatabaseId, PageNo, Scn};
use std::path::PathBuf;

/// How far the copy is: the database, and the pages of it that were compared.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64);

/// The databases as they become those of the primary.
pub struct Differences<'a> {
    environment: &'a Environment,
    /// The databases that this instance had.
    before: Control,
    /// The history of the primary, as it was when the databases here were given up.
    there: Vec<Incarnation>,
    progress: Progress<'a>,
    current: Option<(DatabaseRecord, PageUpdate)>,
    pub manifest: Option<Manifest>,
    pub databases: Vec<DatabaseRecord>,
    pub rests: Vec<RestingFile>,
    /// Pages of all databases, and how many of them were fetched.
    pub pages: u64,
    pub fetched: u64,
    pub fetched_bytes: u64,
}

impl<'a> Differences<'a> {
    pub fn new(environment: &'a Environment, there: Vec<Incarnation>, progress: Progress<'a>) -> Self {
        Differences {
            environment,
            before: environment.control(),
            there,
            progress,
            current: None,
            manifest: None,
            databases: Vec::new(),
            rests: Vec::new(),
            pages: 0,
            fetched: 0,
            fetched_bytes: 0,
        }
    }

    /// Returns the database here of which `there` is another version: it was protected before the histories parted. A
    /// later one is another database, even if it has the same number.
    fn here(&self, there: &DatabaseInfo) -> Option<&DatabaseRecord> {
        let own = peer_identity(self.environment, Role::Standby.of_peer()).incarnations;
        let common = match relation(&own, &self.there) {
            Relation::Parted(branch) => branch,
            _ => Scn(u64::MAX),
        };
        let is_same = |record: &&DatabaseRecord| {
            record.id == there.id
                && record.name == there.name
                && record.page_size == there.page_size
                && record.start_scn < common
        };
        self.before.databases.iter().find(is_same)
    }

    /// Returns the databases of this instance that are none of the primary's.
    pub fn unprotected(&self) -> Vec<DatabaseRecord> {
        let is_gone = |record: &&DatabaseRecord| self.databases.iter().all(|kept| kept.path != record.path);
        self.before.databases.iter().filter(is_gone).cloned().collect()
    }

    fn update(&mut self) -> Result<&mut PageUpdate, StageError> {
        let none = || StageError::from("pages of no database");
        self.current.as_mut().map(|(_, update)| update).ok_or_else(none)
    }
}

impl SnapshotSink for Differences<'_> {
    fn has_pages(&self) -> bool {
        true
    }

    fn manifest(&mut self, manifest: &Manifest) -> Result<(), StageError> {
        if manifest.source.incarnations != self.there {
            return Err("it has become another incarnation meanwhile".into());
        }
        self.manifest = Some(manifest.clone());
        Ok(())
    }

    fn begin(&mut self, database: &DatabaseInfo) -> Result<(), StageError> {
        fault::check(Fault::Reinstate)?;
        if !is_plain(&database.name) {
            return Err(format!("it names a database `{}`, which is not a file name", database.name).into());
        }
        let path = match self.here(database) {
            Some(record) => record.path.clone(),
            None => new_path(self.environment, &self.before, &database.name)?,
        };
        let create = outside::look(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        let base = self.environment.vfs_base.as_deref();
        let update = PageUpdate::open(&path, database.page_size, base, create).map_err(stage_error)?;
        let record = DatabaseRecord {
            id: database.id,
            name: database.name.clone(),
            path,
            page_size: database.page_size,
            start_scn: Scn::ZERO,
            redo_from: Scn::ZERO,
            begun_empty: false,
        };
        self.current = Some((record, update));
        Ok(())
    }

    fn page(&mut self, page_no: PageNo, page: &mut [u8]) -> Result<bool, StageError> {
        if let Some((record, _)) = &self.current {
            (self.progress)(&record.name, u64::from(page_no));
        }
        self.update()?.read(page_no, page).map_err(stage_error)
    }

    fn pages(&mut self, _: DatabaseId, first: PageNo, bytes: &[u8]) -> Result<(), StageError> {
        self.fetched_bytes += bytes.len() as u64;
        self.update()?.write(first, bytes).map_err(stage_error)
    }

    fn end(&mut self, info: &SnapshotInfo) -> Result<(), StageError> {
        let (mut record, update) = self.current.take().ok_or("the end of no database")?;
        (record.start_scn, record.redo_from) = (info.scn, info.scn);
        fault::check(Fault::Reinstate)?;
        let (fetched, rest) = update.finish(info.pages).map_err(stage_error)?;
        self.rests.extend(rest.map(|rest| RestingFile::new(record.id, &rest)));
        self.databases.push(record);
        self.pages += u64::from(info.pages);
        self.fetched += fetched;
        Ok(())
    }
}

/// Returns where a database that is not here is put: in the place of a copy of an earlier one of that name, if this was a
/// standby.
fn new_path(environment: &Environment, before: &Control, name: &str) -> Result<PathBuf, StageError> {
    let path = environment.paths.databases.join(name);
    let is_copy = before.databases.iter().any(|record| record.path == path);
    if !is_copy && before.reinstating.is_none() && outside::look(&path).is_ok() {
        let what = format!("{} exists, and is no database of the primary", path.display());
        return Err(stage_error(InstanceError::refused(what, "move it away, then run this again")));
    }
    Ok(path)
}
