//! Receives the pages in which the databases of the primary differ from those here.

use standfast_apply::{ApplyError, PageUpdate};
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::control::{Control, DatabaseRecord, Reinstating, RestingFile};
use standfast_environment::state::unfinished::is_plain;
use standfast_io::fault::{self, Fault};
use standfast_io::outside;
use standfast_transport::{
    DatabaseInfo, Incarnation, Manifest, SnapshotInfo, SnapshotSink, StageError, stage_error,
};
use standfast_types::{DatabaseId, PageNo, PageSize, Scn};
use std::path::{Path, PathBuf};

/// Hears how far the copy is: the database, and the pages of it that were compared. False ends the copy.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64) -> bool;

/// The databases as they become those of the primary.
pub struct Differences<'a> {
    environment: &'a Environment,
    /// The databases that this instance had.
    before: Control,
    reinstating: Reinstating,
    /// The history of the primary, as it was when the databases here were given up.
    there: Vec<Incarnation>,
    progress: Progress<'a>,
    current: Option<(DatabaseRecord, PageUpdate)>,
    pub databases: Vec<DatabaseRecord>,
    pub rests: Vec<RestingFile>,
    /// Pages of all databases, and how many of them were fetched.
    pub pages: u64,
    pub fetched: u64,
    pub fetched_bytes: u64,
}

impl<'a> Differences<'a> {
    pub fn new(environment: &'a Environment, there: Vec<Incarnation>, progress: Progress<'a>) -> Self {
        let before = environment.control();
        Differences {
            environment,
            reinstating: before.reinstating.clone().unwrap_or_default(),
            before,
            there,
            progress,
            current: None,
            databases: Vec::new(),
            rests: Vec::new(),
            pages: 0,
            fetched: 0,
            fetched_bytes: 0,
        }
    }

    /// Returns the database here of which `there` is another version. One that was protected here after the histories
    /// parted is another database, even if it has the same number and name.
    fn here(&self, there: &DatabaseInfo) -> Option<&DatabaseRecord> {
        let is_same = |record: &&DatabaseRecord| {
            record.id == there.id
                && record.name == there.name
                && record.page_size == there.page_size
                && !self.reinstating.protected_since.contains(&record.id)
        };
        self.before.databases.iter().find(is_same)
    }

    /// Returns where a database that is not here is put: in the place of a copy of an earlier one of that name, if this
    /// was a standby. Durable before the file is created.
    fn new_path(&mut self, name: &str) -> Result<PathBuf, StageError> {
        let path = self.environment.paths.databases.join(name);
        let is_copy = self.before.databases.iter().any(|record| record.path == path);
        if is_copy || self.reinstating.created.iter().any(|created| created == name) {
            return Ok(path);
        }
        if outside::look(&path).is_ok() {
            let what = format!("{} exists, and is no database of the primary", path.display());
            return Err(stage_error(InstanceError::refused(what, "move it away, then run this again")));
        }
        self.reinstating.created.push(name.to_owned());
        let reinstating = Some(self.reinstating.clone());
        self.environment.update_control(|control| control.reinstating = reinstating).map_err(stage_error)?;
        Ok(path)
    }

    fn open(&self, path: &Path, page_size: PageSize) -> Result<PageUpdate, StageError> {
        // A run that was killed may have left a file of no bytes.
        let is_missing = match outside::look(path) {
            Ok(_) => std::fs::metadata(path).is_ok_and(|found| found.len() == 0),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        let opened = PageUpdate::open(path, page_size, self.environment.vfs_base.as_deref(), is_missing);
        opened.map_err(|error| match error {
            ApplyError::Unusable { .. } => stage_error(InstanceError::refused(
                error.to_string(),
                "move that file away, then run this again: the database is copied whole",
            )),
            error => stage_error(error),
        })
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
        Ok(())
    }

    fn begin(&mut self, database: &DatabaseInfo) -> Result<(), StageError> {
        fault::check(Fault::Reinstate)?;
        if !is_plain(&database.name) {
            return Err(format!("it names a database `{}`, which is not a file name", database.name).into());
        }
        let here = self.here(database).map(|record| record.path.clone());
        let path = here.map_or_else(|| self.new_path(&database.name), Ok)?;
        let update = self.open(&path, database.page_size)?;
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
        let (record, update) = self.current.as_ref().ok_or("a page of no database")?;
        if !(self.progress)(&record.name, u64::from(page_no)) {
            return Err("interrupted".into());
        }
        update.read(page_no, page).map_err(stage_error)
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
