//! Putting databases under protection and ending it, on a primary.

use super::{Running, RunningPrimary};
use standfast_environment::config::error::InstanceError;
use standfast_environment::state::control::{LastingIdentity, WholeFile};
use standfast_primary::commit::baseline::{BaselineJob, owed_image};
use standfast_primary::commit::database::{WRITER_TIMEOUT, committed_pages};
use standfast_primary::commit::primary::Entry;
use standfast_primary::commit::whole_file::stamp_without_wal;
use standfast_primary::open::foreign_watch;
use standfast_primary::open::open_primary::install_hooks;
use standfast_primary::open::protect;
use standfast_session::{DatabaseState, OtherWriters};
use standfast_sqlite_wal::guard::GuardError;
use standfast_types::{DatabaseId, Scn};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long one attempt holds off other commands while it waits for a writer; then the pause in which they can run.
const ATTEMPT: Duration = Duration::from_millis(500);
const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);

/// How long an unprotect waits for published commits that cannot be captured immediately.
const LAST_CAPTURE: Duration = Duration::from_secs(2);

impl Running {
    /// Protects a database, or all databases in a directory; returns their names.
    ///
    /// # Errors
    /// `Refused` with cause and remedy. Databases that come earlier in the directory are protected then.
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
        if let Some(directory) = path.canonicalize().ok().filter(|path| path.is_dir()) {
            self.with_primary(|_| {
                self.environment.update_control(|control| {
                    if !control.directories.contains(&directory) {
                        control.directories.push(directory);
                    }
                })
            })?;
        }
        paths.iter().map(|path| self.protect_one(path, name)).collect()
    }

    /// Waits for the transaction that has the write lock without holding off other commands or a stop.
    fn protect_one(&self, path: &Path, name: Option<&str>) -> Result<String, InstanceError> {
        let end = Instant::now() + WRITER_TIMEOUT;
        loop {
            match self.with_primary(|primary| self.try_protect(primary, path, name)) {
                Err(InstanceError::Guard(GuardError::Busy { .. })) if self.is_stopping() => {
                    let what = format!("{} was not protected: the instance stops", path.display());
                    return Err(InstanceError::refused(what, "protect it when the instance runs again"));
                }
                Err(InstanceError::Guard(GuardError::Busy { .. })) if Instant::now() < end => {
                    // There is no notification when another process releases its lock.
                    std::thread::sleep(ATTEMPT_PAUSE);
                }
                Err(error @ InstanceError::Guard(GuardError::Busy { .. })) => {
                    return Err(InstanceError::refused(
                        format!("{} was not protected: {error}", path.display()),
                        "end the transaction that writes to it, and try again",
                    ));
                }
                other => return other,
            }
        }
    }

    /// Does everything that can fail or must wait first, on this thread; the log writer gets only what is ready.
    fn try_protect(
        &self,
        primary: &RunningPrimary,
        path: &Path,
        name: Option<&str>,
    ) -> Result<String, InstanceError> {
        let environment = &self.environment;
        let shared = primary.threads.shared();
        let _no_copy_begins = primary.source.hold_copies();
        // The search for unprotected databases opens and closes files, which drops the locks of this process on them.
        let _no_search = protect::hold_search();
        if let Some(known) = protect::renew_marker(environment, shared, path)? {
            return Ok(known);
        }
        let in_use = |id: DatabaseId| shared.segment.sessions_of_databases().any(|(of, _)| of == id.0);
        let born = shared.buffer.durable();
        let database = Arc::new(protect::open_for_protection(environment, path, name, born, &in_use)?);
        let record = database.record().clone();
        install_hooks(environment, shared, &database, born, Duration::from_secs(10))?;
        let (_, (position, pages, stamp)) = database.snapshot_within(ATTEMPT, |connection, header| {
            let stamp = stamp_without_wal(environment, &record, header);
            Ok((header.position(), committed_pages(connection, header)?, stamp))
        })?;
        if stamp.is_some() {
            database.sync_file()?;
        }
        let capture = database.capture_from(position, pages)?;
        let copy_now = environment.control().copied || !self.configured().is_empty();
        let copy = copy_now.then(|| BaselineJob::begin_within(&database, ATTEMPT)).transpose()?;
        let owed = match &copy {
            Some(copy) => Some(owed_image(environment, &database, copy.position(), born)?),
            None => None,
        };

        shared.segment.forget_generation(record.id.0);
        shared.segment.set_state(record.id.0, DatabaseState::Recovering);
        shared.segment.reset_hints(record.id.0);
        let served = database.clone();
        let begun = environment
            .update_control(|control| {
                control.next_database = control.next_database.max(record.id.0 + 1);
                control.databases.push(record.clone());
                control.know_file(record.id, LastingIdentity::of(&record.path).ok());
                if let Some(stamp) = stamp {
                    control.note_whole(WholeFile { database: record.id, scn: born, stamp });
                }
                if let Some(owed) = owed {
                    control.owe_image(owed);
                }
            })
            .and_then(|()| environment.write_marker(&record, database.file()));
        if let Err(error) = begun {
            let _ = environment.update_control(|control| control.forget(record.id, Scn::ZERO));
            let _ = environment.remove_marker(&record);
            shared.segment.set_state(record.id.0, DatabaseState::Absent);
            return Err(error);
        }
        primary.threads.call(move |primary| {
            let entry = if copy.is_some() { Entry::NewWithCopy } else { Entry::New };
            primary.serve(served, capture, entry)?;
            if let Some(copy) = copy {
                primary.start_baseline(copy);
            }
            Ok(())
        })?;
        foreign_watch::let_sessions_in(&self.environment, &shared.segment, &database);
        environment.alert.say(format!("database {} protected: {}", record.name, record.path.display()));
        environment.give_access_again();
        Ok(record.name)
    }

    /// Ends the protection of a database, by path or name.
    ///
    /// # Errors
    /// When it is not protected here.
    pub fn unprotect(&self, name: &str) -> Result<String, InstanceError> {
        let control = self.environment.control();
        let record = match control.find_database(name) {
            Ok(record) => record.clone(),
            Err(refused) => {
                let directory = Path::new(name).canonicalize().ok();
                let Some(directory) = directory.filter(|path| control.directories.contains(path)) else {
                    return Err(refused);
                };
                self.environment
                    .update_control(|control| control.directories.retain(|known| *known != directory))?;
                let text = format!("new databases in {} are no longer looked for", directory.display());
                self.environment.alert.say(text);
                return Ok(directory.display().to_string());
            }
        };
        self.with_primary(|primary| {
            let segment = primary.threads.shared().segment;
            segment.set_state(record.id.0, DatabaseState::Stopped);
            primary.threads.call(|primary| primary.capture_published(LAST_CAPTURE))?;
            let id = record.id;
            let detached = primary.threads.call(move |primary| {
                primary.release_database(id)?;
                Ok(primary.shared().buffer.captured())
            })?;
            self.environment.update_control(|control| control.forget(id, detached))?;
            self.environment.remove_marker(&record)?;
            segment.set_state(id.0, DatabaseState::Absent);
            // A connection that holds out other writers releases its lock when it is next used.
            segment.set_other_writers(id.0, OtherWriters::CountedAgain);
            segment.wake_all(id.0);
            self.environment.alert.say(format!("database {} is no longer protected", record.name));
            self.environment.give_access_again();
            Ok(record.name.clone())
        })
    }
}
