//! Attaches and detaches databases.

use crate::apply::Apply;
use crate::at_rest::{AtRest, FilesFound, Stamp, Verdict};
use crate::database::{Condition, Database, Mode};
use crate::standby_file::{FilePlan, StandbyFile};
use crate::{ApplyError, ApplyEvent, ApplyReport, StartPoint};
use standfast_types::{DatabaseId, PageSize, Scn, WalPosition};
use std::path::Path;

/// Page cache of a database, in KiB, when very many share it.
const CACHE_KIB_MIN: u32 = 256;

impl Apply {
    /// Opens a database that was copied here at `start`, or to which redo has been applied since. Called for every
    /// database of the catalogue before [`Apply::recover`], each time with the start of its life.
    ///
    /// # Errors
    /// When the file is missing or not the right one.
    pub fn attach_existing(
        &mut self,
        id: DatabaseId,
        name: &str,
        page_size: PageSize,
        start: StartPoint,
    ) -> Result<(), ApplyError> {
        let plan = self.plan(name, page_size)?;
        self.attach(id, plan, start, None)
    }

    /// Attaches like [`Apply::attach_existing`] the file at `path`, wherever that is, with the state recorded by a clean
    /// shutdown, if that was the last event here. A database that another process has written to since stops; the next
    /// report has the error.
    ///
    /// # Errors
    /// As [`Apply::attach_existing`].
    pub fn attach_at_rest(
        &mut self,
        id: DatabaseId,
        (name, path): (&str, &Path),
        page_size: PageSize,
        start: StartPoint,
        rest: Option<&AtRest>,
    ) -> Result<(), ApplyError> {
        let plan = FilePlan { path: path.to_owned(), ..self.plan(name, page_size)? };
        self.attach(id, plan, start, rest)
    }

    fn attach(
        &mut self,
        id: DatabaseId,
        plan: FilePlan,
        start: StartPoint,
        rest: Option<&AtRest>,
    ) -> Result<(), ApplyError> {
        let name = plan.name.clone();
        // A missing file to which redo has been applied is not created again.
        let create = start.empty && !self.journal.history().has_commits(id);
        let mut file = StandbyFile::open(plan, create)?;
        // From here on no other process can write.
        let (position, checksum) = file.wal_state()?;
        let verdict = rest.map_or(Verdict::Unknown, |rest| {
            rest.compare(&FilesFound { file: Stamp::of(&file.plan().path), position, checksum })
        });
        let is_proven = verdict == Verdict::Same;
        let history = self.journal.history();
        let bound =
            history.bound(id, position, |frame| file.frame_checksum(position.salts, frame).ok().flatten());
        // The WAL that was synced may have been removed since.
        let is_wal_gone = position == WalPosition::default() && !is_proven;
        let durable = if is_wal_gone { history.file_scn(id) } else { history.durable_scn(id) };
        let known = if is_proven { bound.scn.max(durable) } else { bound.scn };
        let known = known.filter(|known| *known >= start.scn);
        let (resume_scn, state) = known.map_or((start.redo_from, start.scn), |known| (known, known));
        let durable_scn = durable.filter(|durable| *durable >= start.scn).unwrap_or(start.redo_from);
        let stopped = history.stopped(id);
        let suspects = if verdict != Verdict::Unknown || stopped.is_some() {
            Default::default()
        } else {
            file.page_sums_behind(bound.known_upto)?
        };
        let mut database = Database::new(id, &name, file, resume_scn, state, &self.directory, &self.limits);
        database.durable_scn = durable_scn;
        database.file_scn =
            history.file_scn(id).map_or(start.redo_from, |file_scn| file_scn.max(start.redo_from));
        database.keeps_replaced = true;
        (database.begin, database.begin_state) = (start.redo_from, start.scn);
        (database.suspects, database.is_generation_unknown) = (suspects, bound.known_upto == 0);
        if let Verdict::Written(why) = verdict {
            // Reported and journalled with the next report.
            database.condition = Condition::Stopped;
            database.outcome = Some(Err(ApplyError::written_to(&name, why)));
        }
        if let Some(scn) = stopped {
            database.condition = Condition::Stopped;
            // Reported with the next report.
            database.outcome = Some(Err(ApplyError::Stopped { name, scn }));
        }
        self.databases.insert(id, database);
        self.divide_cache();
        Ok(())
    }

    /// Attaches like [`Apply::attach_existing`] a file that has just been fully resynced: facts about the file before
    /// it are void, even that it had stopped. [`Apply::recover`] brings it to where the others are.
    ///
    /// # Errors
    /// As for [`Apply::attach_existing`], and when the journal cannot be written.
    pub fn attach_copy(
        &mut self,
        id: DatabaseId,
        name: &str,
        page_size: PageSize,
        start: StartPoint,
    ) -> Result<(), ApplyError> {
        self.detach(id)?;
        self.attach_existing(id, name, page_size, start)
    }

    /// Closes a database and removes its facts; its file stays. Called before its file is replaced.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn detach(&mut self, id: DatabaseId) -> Result<(), ApplyError> {
        self.databases.remove(&id);
        self.divide_cache();
        let forgotten = self.journal.forget(id);
        forgotten.map_err(|source| self.journal_error(source))
    }

    fn plan(&self, name: &str, page_size: PageSize) -> Result<FilePlan, ApplyError> {
        if Path::new(name).file_name().is_none_or(|file| file != name) {
            return Err(ApplyError::Unusable {
                name: name.to_owned(),
                why: "its name is not a plain file name",
            });
        }
        Ok(FilePlan {
            name: name.to_owned(),
            path: self.directory.join(name),
            page_size,
            vfs: self.guard_vfs.clone(),
            vfs_base: self.vfs_base.clone(),
            cache_kib: self.limits.cache_kib,
            rewrites_wal: self.limits.rewrite_wals,
        })
    }

    /// Handles an event of the redo; everything before it has been consumed.
    pub(crate) fn happen(
        &mut self,
        event: ApplyEvent,
        start: Scn,
        mode: Mode,
        report: &mut ApplyReport,
    ) -> Result<(), ApplyError> {
        match &event {
            ApplyEvent::Attached { database, name, page_size, .. }
                if !self.databases.contains_key(database) =>
            {
                if let Err(error) = self.attach_new(*database, name, *page_size, start, mode) {
                    report.errors.push((*database, error));
                    return Ok(());
                }
            }
            ApplyEvent::Detached { database, scn } => {
                self.detach_in_redo(*database, report)?;
                self.detached_before(*database, *scn);
            }
            _ => {}
        }
        (self.observer)(&event).map_err(|source| ApplyError::Event { scn: start, source })
    }

    fn attach_new(
        &mut self,
        id: DatabaseId,
        name: &str,
        page_size: PageSize,
        start: Scn,
        mode: Mode,
    ) -> Result<(), ApplyError> {
        // An existing file belongs to a predecessor of that name, or is what a power loss has left of this one.
        let file = match StandbyFile::open(self.plan(name, page_size)?, true) {
            Ok(file) if file.pages() <= 1 => file,
            Err(error) if !error.is_another_file() => return Err(error),
            found => {
                drop(found);
                self.set_aside(name, start)?;
                StandbyFile::open(self.plan(name, page_size)?, true)?
            }
        };
        let mut database = Database::new(id, name, file, start, start, &self.directory, &self.limits);
        database.keeps_replaced = true;
        if mode == Mode::Live {
            database.condition = Condition::Live;
        }
        self.databases.insert(id, database);
        self.divide_cache();
        Ok(())
    }

    /// Partitions the page cache: the kernel caches the files anyway, so hundreds of databases get smaller caches here.
    fn divide_cache(&mut self) {
        let share = cache_share(self.limits.cache_kib, self.databases.len());
        for database in self.databases.values_mut() {
            database.file.set_cache(share);
        }
    }

    /// Keeps the file of a database that was protected under the same name before, under another name.
    fn set_aside(&self, name: &str, scn: Scn) -> Result<(), ApplyError> {
        let failed =
            |source| ApplyError::Io { name: name.to_owned(), doing: "setting its predecessor aside", source };
        let path = self.directory.join(name);
        for suffix in ["-wal", ""] {
            let from = path.with_file_name(format!("{name}{suffix}"));
            let to = path.with_file_name(format!("{name}.detached-{scn}{suffix}"));
            match self.disk.rename(&from, &to) {
                Err(error) if suffix.is_empty() || error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed(error));
                }
                _ => {}
            }
        }
        let _ = self.disk.remove(&path.with_file_name(format!("{name}-shm")));
        Ok(())
    }

    fn detach_in_redo(&mut self, id: DatabaseId, report: &mut ApplyReport) -> Result<(), ApplyError> {
        let Some(database) = self.databases.get_mut(&id) else { return Ok(()) };
        if database.condition == Condition::Recovering {
            // No redo follows, so the redo consumed so far covers all that the file may hold.
            database.outcome = Some(database.finish_replay(&mut self.dirty_pages[0]));
            self.collect(report);
        }
        self.detach(id)
    }
}

/// Returns the page cache in KiB of each of `databases`; a single one has `alone`.
fn cache_share(alone: u32, databases: usize) -> u32 {
    let databases = u32::try_from(databases).unwrap_or(u32::MAX).max(1);
    (alone / databases).max(CACHE_KIB_MIN.min(alone))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::scene;

    #[test]
    fn databases_share_the_page_cache_down_to_a_minimum() {
        let shares = [0, 1, 2, 8, 32, 33, 5000].map(|databases| cache_share(8192, databases));
        assert_eq!(shares, [8192, 8192, 4096, 1024, 256, 256, 256]);
        assert_eq!(cache_share(64, 40), 64, "who wants less has it");
    }

    #[test]
    fn page_cache_is_redivided_when_databases_come_and_go() {
        let (_directory, mut apply) = scene::standby("cache-share");
        let attach = |apply: &mut Apply, number: u16| {
            scene::attach_empty(apply, number, Scn::START);
            apply.databases.values().map(|database| database.file.cache_kib()).collect::<Vec<_>>()
        };
        assert_eq!(attach(&mut apply, 1), [8192]);
        assert_eq!(attach(&mut apply, 2), [4096; 2]);
        assert_eq!(attach(&mut apply, 3), [2730; 3]);
        apply.detach(DatabaseId(1)).unwrap();
        let left: Vec<_> = apply.databases.values().map(|database| database.file.cache_kib()).collect();
        assert_eq!(left, [4096; 2]);
    }
}
