//! Which databases a primary protects.

use super::{Running, RunningPrimary};
use crate::control::look_at_file;
use crate::database::committed_pages;
use crate::error::InstanceError;
use crate::open_primary::install_hook;
use crate::primary::Entry;
use crate::protect;
use standfast_session::DatabaseState;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

impl Running {
    /// Protects a database, or all databases in a directory; returns their names.
    ///
    /// # Errors
    /// `Refused` with cause and remedy. Databases of a directory that come before are protected then.
    pub fn protect(&self, path: &Path, name: Option<&str>) -> Result<Vec<String>, InstanceError> {
        let protected = self.environment.control().databases;
        let mut paths = protect::databases_at(path, &protected)?;
        let beside_new = |path: &PathBuf| !protect::is_protected(&protected, path);
        if paths.iter().any(beside_new) {
            paths.retain(beside_new);
        }
        if paths.len() > 1 && name.is_some() {
            return Err(InstanceError::refused(
                "one name for several databases",
                "leave --name away for a directory",
            ));
        }
        self.with_primary(|primary| {
            let mut names = Vec::new();
            for path in &paths {
                names.push(self.protect_one(primary, path, name)?);
            }
            Ok(names)
        })
    }

    fn protect_one(
        &self,
        primary: &RunningPrimary,
        path: &Path,
        name: Option<&str>,
    ) -> Result<String, InstanceError> {
        let environment = &self.environment;
        let shared = primary.threads.shared();
        let _no_copy_begins = primary.source.hold_copies();
        if let Some(known) = protect::renew_marker(environment, shared, path)? {
            return Ok(known);
        }
        let database = Arc::new(protect::open_for_protection(environment, path, name)?);
        let record = database.record().clone();
        shared.segment.set_state(record.id.0, DatabaseState::Recovering);
        shared.segment.reset_hints(record.id.0);
        install_hook(shared, &database, Duration::from_secs(10))?;
        environment.update_control(|control| {
            control.next_database = record.id.0 + 1;
            control.databases.push(record.clone());
            let identity = look_at_file(&record.path).map(|(identity, _)| identity);
            control.know_file(record.id, identity, None);
        })?;
        environment.write_marker(&record, database.file())?;
        let copy_now = environment.control().copied || !self.configured().is_empty();
        let served = database.clone();
        primary.threads.call(move |primary| {
            let (_, (position, pages)) = served.snapshot_and(|connection, header| {
                Ok((header.position(), committed_pages(connection, header)?))
            })?;
            let capture = served.capture_from(position, pages)?;
            let entry = if copy_now { Entry::NewWithCopy } else { Entry::New };
            primary.serve(served.clone(), capture, entry)?;
            if copy_now {
                primary.start_baseline(crate::baseline::BaselineJob::begin(&served)?);
            }
            Ok(())
        })?;
        shared.segment.set_state(record.id.0, DatabaseState::Open);
        environment.alert.say(format!("database {} protected: {}", record.name, record.path.display()));
        Ok(record.name)
    }

    /// Ends the protection of a database, by path or name.
    ///
    /// # Errors
    /// When it is not protected here.
    pub fn unprotect(&self, name: &str) -> Result<String, InstanceError> {
        let control = self.environment.control();
        let canonical = Path::new(name).canonicalize().ok();
        let by_path = canonical.as_ref().and_then(|path| path.to_str());
        let found =
            control.database_named(name).or_else(|| by_path.and_then(|path| control.database_named(path)));
        let Some(record) = found.cloned() else {
            let what = format!("{name} is not protected by this instance");
            return Err(InstanceError::refused(what, "`standfast status` lists the protected databases"));
        };
        self.with_primary(|primary| {
            let segment = primary.threads.shared().segment;
            segment.set_state(record.id.0, DatabaseState::Stopped);
            primary.threads.call(|primary| {
                primary.look_for_unnoticed();
                primary.step_once()
            })?;
            let id = record.id;
            primary.threads.call(move |primary| primary.release_database(id))?;
            self.environment.update_control(|control| control.forget(id))?;
            self.environment.remove_marker(&record)?;
            segment.set_state(id.0, DatabaseState::Absent);
            segment.wake_all(id.0);
            self.environment.alert.say(format!("database {} is no longer protected", record.name));
            Ok(record.name.clone())
        })
    }
}
