//! `standfast database resolve`: shows what the file of an offline database has that its redo lacks, and the reverse,
//! and carries out an operator's choice between the two.
//!
//! A start takes a database offline when its file is not proven to descend from the redo; both are kept (decision
//! 0041). With `--keep redo` the file is rebuilt from the redo (`rebuild`), and the old one is kept beside it. With
//! `--keep file` the file is used as it is: a full resync image of it goes into the redo, marked as possibly lacking
//! earlier redo, so that standbys keep what it replaces. The redo is archived as before. See
//! `docs/decisions/0051-the-operator-decides.md`.

mod file;

pub use file::{FileFound, Noted};

use crate::role::running::{Running, RunningPrimary};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use standfast_environment::config::error::InstanceError;
use standfast_environment::ship::open_database::open_guarded;
use standfast_environment::state::control::{DatabaseRecord, FileStamp, LastingIdentity};
use standfast_log::RedoLog;
use standfast_primary::commit::baseline::{BaselineJob, owed_image};
use standfast_primary::commit::database::{Database, committed_pages};
use standfast_primary::commit::foreign_processes::{self, KernelFile, Wanted};
use standfast_primary::commit::primary::Entry;
use standfast_primary::open::divergence::Divergence;
use standfast_primary::open::foreign_watch;
use standfast_primary::open::open_primary::{install_hooks, open_offline};
use standfast_primary::open::protect;
use standfast_primary::open::rebuild::{self, Base};
use standfast_primary::open::swap::{self, Settled};
use standfast_session::DatabaseState;
use standfast_sqlite_wal::guard::{Guard, GuardError};
use standfast_types::{DatabaseId, Scn};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

/// How long one attempt holds off other commands while it waits for a writer.
const ATTEMPT: Duration = Duration::from_millis(500);
const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);
const WRITERS: Duration = Duration::from_secs(30);

/// The choice between file and redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// Keep the redo: rebuild the file from it.
    Redo,
    /// Keep the file as it is.
    File,
}

/// An offline database and the range of its redo.
struct Offline {
    record: DatabaseRecord,
    log: Arc<RedoLog>,
    /// Start of the redo that it may lack.
    from: Scn,
    /// End of the redo; the database adds none while it is offline.
    end: Scn,
    /// Its file before it was examined.
    looked_at: Looked,
}

/// Identity of a database's file, and whether it was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Looked {
    identity: Option<LastingIdentity>,
    stamp: Option<FileStamp>,
}

/// What has become of a file since it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Replaced,
    Written,
}

impl Looked {
    /// Compares with what is there `now`. `is_whole`: a file that was only written to counts as changed, too.
    fn change_to(self, now: Looked, is_whole: bool) -> Option<Change> {
        if self.identity != now.identity {
            return Some(Change::Replaced);
        }
        (is_whole && self.stamp != now.stamp).then_some(Change::Written)
    }
}

/// What was found of an offline database, and what was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    pub database: String,
    pub path: PathBuf,
    /// Why it is offline.
    pub why: Option<String>,
    /// Begin of the redo that it may lack.
    pub redo_needed_from: Scn,
    pub redo_end: Scn,
    pub file: FileFound,
    pub compared: Option<Divergence>,
    /// Why the file could not be compared with the redo.
    pub not_compared: Option<String>,
    /// From what the file can be rebuilt.
    pub redo_possible_by: Vec<String>,
    /// The choice that was carried out; `None`: none was given.
    pub resolved: Option<Keep>,
    /// From what the file was rebuilt.
    pub by: Option<String>,
    /// Where the replaced file is kept.
    pub kept: Option<PathBuf>,
}

/// Held while a database is being resolved: one at a time.
static RESOLVING: Mutex<()> = Mutex::new(());

impl Running {
    /// Returns what each choice would lose; with `keep`, carries out that choice first.
    ///
    /// # Errors
    /// `Refused` when the database is not offline, or the choice cannot be carried out; nothing has changed then.
    pub fn resolve(&self, name: &str, keep: Option<Keep>) -> Result<Resolution, InstanceError> {
        let _one = match RESOLVING.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let hint = "try again when it has ended; the alert log says what it does";
                return Err(InstanceError::refused("another database is being resolved", hint));
            }
        };
        let offline = self.with_primary(|primary| {
            let offline = self.find_offline(primary, name)?;
            match keep {
                None => Ok(offline),
                Some(keep) => self.settle_before(offline, keep),
            }
        })?;
        let file = FileFound::of(&self.environment, &offline.record);
        let compared = file.compare(&self.environment, &offline);
        let bases = rebuild::bases(&offline.log, &offline.record, offline.end, &self.configured());
        let (mut by, mut kept) = (None, None);
        match keep {
            None => {}
            Some(Keep::File) => self.keep_file(&offline, &file, compared.as_ref().ok())?,
            Some(Keep::Redo) => {
                let done = self.keep_redo(&offline, &file, &bases)?;
                (by, kept) = (Some(done.0), done.1);
            }
        }
        let (compared, not_compared) = match compared {
            Ok(compared) => (Some(compared), None),
            Err(why) => (None, Some(why)),
        };
        Ok(Resolution {
            why: self.environment.why_offline(offline.record.id),
            database: offline.record.name,
            path: offline.record.path,
            redo_needed_from: offline.from,
            redo_end: offline.end,
            file,
            compared,
            not_compared,
            redo_possible_by: bases.iter().map(Base::to_string).collect(),
            resolved: keep,
            by,
            kept,
        })
    }

    fn find_offline(&self, primary: &RunningPrimary, name: &str) -> Result<Offline, InstanceError> {
        let control = self.environment.control();
        let record = control.find_database(name)?.clone();
        let (shared, name) = (primary.threads.shared(), record.name.clone());
        if let Some(database) = shared.database(record.id) {
            return Err(match database.failure() {
                Some(why) => InstanceError::refused(
                    format!(
                        "database {name} has failed, and it is not known whether its file descends from the redo: {why}"
                    ),
                    "fix the cause, then restart the instance: a start finds out, and applies what is missing",
                ),
                None => InstanceError::refused(
                    format!("database {name} is not offline: there is nothing to decide"),
                    "`standfast status` shows the state of every database",
                ),
            });
        }
        if shared.segment.state(record.id.0) == DatabaseState::Recovering {
            return Err(InstanceError::refused(
                format!(
                    "database {name} is not offline: it is opened when a transaction of before the start has ended"
                ),
                "end the transaction, or the process that has it open",
            ));
        }
        let Some(from) = control.offline_from(record.id) else {
            let what = format!("database {name} is not offline: there is nothing to decide");
            return Err(InstanceError::refused(what, "`standfast status` shows the state of every database"));
        };
        let (log, end) = (primary.source.redo_log().clone(), shared.buffer.durable());
        let looked_at = self.look(&record);
        Ok(Offline { record, log, from, end, looked_at })
    }

    /// Completes an earlier decision that was interrupted.
    fn settle_before(&self, offline: Offline, keep: Keep) -> Result<Offline, InstanceError> {
        let record = &offline.record;
        match swap::settle(&self.environment, record)? {
            Settled::Finished(kept) if keep == Keep::File => Err(InstanceError::refused(
                format!(
                    "an earlier decision for the redo of {} was cut short and has been carried out now; {kept}",
                    record.name
                ),
                format!(
                    "`standfast database resolve {} --keep redo` opens it; a file that is kept counts if you put it, and its WAL, \
                     back in its place and decide then",
                    record.name
                ),
            )),
            _ => {
                let looked_at = self.look(record);
                Ok(Offline { looked_at, ..offline })
            }
        }
    }

    /// Uses file system metadata only: this may be called while the database is served, and opening and closing its
    /// file would drop the locks of this process.
    fn look(&self, record: &DatabaseRecord) -> Looked {
        Looked {
            identity: LastingIdentity::of(&record.path).ok(),
            stamp: FileStamp::of(self.environment.disk.as_ref(), &record.path),
        }
    }

    /// Checks that the file is still the one that was compared. `is_whole`: also that it was not written to since.
    fn check_unchanged(&self, offline: &Offline, is_whole: bool) -> Result<(), InstanceError> {
        let Some(change) = offline.looked_at.change_to(self.look(&offline.record), is_whole) else {
            return Ok(());
        };
        let path = offline.record.path.display();
        Err(InstanceError::refused(
            match change {
                Change::Written => format!("{path} has been written to since it was looked at"),
                Change::Replaced => format!("another file is at {path} than the one that was looked at"),
            },
            "see that nothing writes to it, and give the command again: it reads the file again",
        ))
    }

    /// Serves the file as it is.
    fn keep_file(
        &self,
        offline: &Offline,
        file: &FileFound,
        compared: Option<&Divergence>,
    ) -> Result<(), InstanceError> {
        let record = &offline.record;
        if let Some(why) = &file.unusable {
            let (name, path) = (&record.name, record.path.display());
            return Err(InstanceError::refused(
                format!("the file of {name} cannot count: {why}"),
                format!(
                    "`standfast database resolve {name} --keep redo` makes it again; a database that has nothing to do with \
                     this one is taken up by `standfast unprotect {name}` and `standfast protect {path}`"
                ),
            ));
        }
        check_content(record, self.environment.vfs_base.as_deref())?;
        let given_up = match compared {
            Some(found) => format!(
                "of the redo from SCN {} on its file lacks {} to {} of {} commits",
                found.from, found.lacks_at_least.number, found.lacks_at_most.number, found.commits.number
            ),
            None => "what of the redo its file lacks is not known".to_owned(),
        };
        self.environment.alert.say(format!(
            "database {}: an operator has decided that {} counts as it is: {given_up}; the redo up to SCN {} is archived as \
             before, and standbys keep what the image of the file replaces",
            record.name,
            record.path.display(),
            offline.end
        ));
        let end = Instant::now() + WRITERS;
        loop {
            match self.with_primary(|primary| self.take_file(primary, offline)) {
                Err(InstanceError::Guard(GuardError::Busy { .. }))
                    if is_tried_again(Instant::now(), end, self.is_stopping()) =>
                {
                    // There is no notification when another process releases its lock.
                    std::thread::sleep(ATTEMPT_PAUSE);
                }
                Err(error @ InstanceError::Guard(GuardError::Busy { .. })) => {
                    return Err(InstanceError::refused(
                        format!("database {} is still offline: {error}", record.name),
                        "end the transaction that writes to it, and try again",
                    ));
                }
                taken => return taken,
            }
        }
    }

    /// Does everything that can fail or must wait first, on this thread; the log writer gets only what is ready.
    fn take_file(&self, primary: &RunningPrimary, offline: &Offline) -> Result<(), InstanceError> {
        self.check_still_offline(primary, offline)?;
        self.check_unchanged(offline, true)?;
        let (environment, shared) = (&self.environment, primary.threads.shared());
        let id = offline.record.id;
        let _no_copy_begins = primary.source.hold_copies();
        // The search for unprotected databases opens and closes files, which drops the locks of this process on them.
        let _no_search = protect::hold_search();
        let decided = shared.buffer.durable();
        let record = DatabaseRecord { start_scn: decided, ..offline.record.clone() };
        let database = Arc::new(Database::open(record.clone(), environment.vfs_base.as_deref())?);
        database.set_image_may_lack(true);
        complete_wal(&database)?;
        install_hooks(environment, shared, &database, decided, Duration::from_secs(10))?;
        let find = |connection: &Connection, header: &standfast_sqlite_wal::WalIndexHeader| {
            Ok((header.position(), committed_pages(connection, header)?))
        };
        let (_, (position, pages)) = database.snapshot_within(ATTEMPT, find)?;
        let capture = database.capture_from(position, pages)?;
        let copy = BaselineJob::begin_within(&database, ATTEMPT)?;
        let owed = owed_image(environment, &database, copy.position(), decided)?;
        // The file may have changed while this waited for a writer.
        self.check_unchanged(offline, true)?;
        environment.write_marker(&record, database.file())?;
        shared.segment.forget_generation(id.0);
        shared.segment.reset_hints(id.0);
        shared.segment.end_rewriting(id.0);
        environment.update_control(|control| {
            control
                .databases
                .iter_mut()
                .filter(|known| known.id == id)
                .for_each(|known| *known = record.clone());
            control.know_file(id, LastingIdentity::of(&record.path).ok());
            control.whole_files.retain(|whole| whole.database != id);
            control.owe_image(owed);
            served(control, id);
        })?;
        let serving = database.clone();
        let begun = primary.threads.call(move |primary| {
            primary.serve(serving, capture, Entry::NewWithCopy)?;
            primary.start_baseline(copy);
            Ok(())
        });
        self.end_resolving(primary, offline, &database, begun)?;
        environment.alert.say(format!(
            "database {} is open: its file counts from SCN {decided} on, and a full image of it goes into the redo",
            record.name
        ));
        Ok(())
    }

    /// Rebuilds the file. Returns the base used, and the path of the kept old file.
    fn keep_redo(
        &self,
        offline: &Offline,
        file: &FileFound,
        bases: &[Base],
    ) -> Result<(String, Option<PathBuf>), InstanceError> {
        let record = &offline.record;
        let mut obstacles = Vec::new();
        self.check_unused(record)?;
        if file.exists && self.is_file_of_before(record, file) {
            match self.with_primary(|primary| self.open_as_a_start_does(primary, offline)) {
                Ok(()) => {
                    let by = "the file that is there, which the redo leads on from";
                    self.environment.alert.say(format!("database {} is open: {by}", record.name));
                    return Ok((by.into(), None));
                }
                Err(error) => obstacles.push(format!("what is there does not lead to the redo: {error}")),
            }
        }
        if bases.is_empty() {
            obstacles.push(
                "there is no full image of it in the redo at hand, and no standby is configured".into(),
            );
        }
        for base in bases {
            self.environment.alert.say(format!("database {}: it is made again out of {base}", record.name));
            let (environment, log) = (&self.environment, &offline.log);
            let made = rebuild::rebuild(environment, log, record, base, (offline.from, offline.end));
            let made = match made {
                Ok(made) => made,
                Err(error) => {
                    environment.alert.say(format!("database {}: not out of {base}: {error}", record.name));
                    obstacles.push(format!("not out of {base}: {error}"));
                    continue;
                }
            };
            let kept = self.with_primary(|primary| self.take_rebuilt(primary, offline, &made));
            let kept = kept.inspect_err(|_| {
                // A swap that has begun may still need it.
                if environment.of_control(|control| control.file_swap(record.id)).is_none() {
                    rebuild::discard(&made);
                }
            })?;
            let shown = kept.as_ref().map_or("nothing was there".to_owned(), |kept| {
                format!("the file that was there is kept as {}", kept.display())
            });
            environment.alert.say(format!(
                "database {} is open: an operator has decided that the redo counts, and it was made again out of {base}; {shown}",
                record.name
            ));
            return Ok((base.to_string(), kept));
        }
        Err(InstanceError::refused(
            format!("{} cannot be made again out of the redo: {}", record.name, obstacles.join("; ")),
            "connect a standby that has applied the redo and try again, put archived logs back that hold a full image and \
             what follows, or fail over to a standby",
        ))
    }

    /// Whether a start may use the file: it is the previous file, or a copy in the state recorded with the file SCN.
    fn is_file_of_before(&self, record: &DatabaseRecord, file: &FileFound) -> bool {
        if file.is_known != Some(false) {
            return true;
        }
        let stamp = FileStamp::of(self.environment.disk.as_ref(), &record.path);
        let noted = self.environment.control().whole_file(record.id).map(|whole| whole.stamp);
        file.wal_bytes == 0 && stamp.is_some() && stamp == noted
    }

    fn open_as_a_start_does(&self, primary: &RunningPrimary, offline: &Offline) -> Result<(), InstanceError> {
        self.check_still_offline(primary, offline)?;
        let (environment, record) = (&self.environment, &offline.record);
        let before = environment.control().known_file(record.id);
        let found = LastingIdentity::of(&record.path).ok();
        environment.update_control(|control| control.know_file(record.id, found))?;
        open_offline(environment, &primary.threads, &offline.log, record, false).inspect_err(|_| {
            // The control file names the file of before again. If that cannot be written, the next attempt records the
            // file that it finds.
            let known = before.map(|known| known.identity);
            let _ = environment.update_control(|control| control.know_file(record.id, known));
            primary.threads.shared().segment.set_state(record.id.0, DatabaseState::Offline);
        })
    }

    /// Puts `made` in the place of the database's file and serves it. Returns where the old file is kept.
    fn take_rebuilt(
        &self,
        primary: &RunningPrimary,
        offline: &Offline,
        made: &Path,
    ) -> Result<Option<PathBuf>, InstanceError> {
        let (environment, record) = (&self.environment, &offline.record);
        self.check_still_offline(primary, offline)?;
        // Later writes to the file are kept with it.
        self.check_unchanged(offline, false)?;
        self.check_unused(record)?;
        let _no_copy_begins = primary.source.hold_copies();
        let _no_search = protect::hold_search();
        let decided = primary.threads.shared().buffer.durable();
        let swap = swap::begin(environment, record, made, offline.end, decided)?;
        swap::carry_out(record, made, &swap)
            .and_then(|()| swap::adopt(environment, &swap))
            .and_then(|()| self.serve_rebuilt(primary, offline))
            .map_err(|error| swap::interrupted(environment, record, &swap, &error))?;
        environment.update_control(|control| served(control, record.id))?;
        Ok(swap::is_kept(&swap).then_some(swap.kept.path))
    }

    fn serve_rebuilt(&self, primary: &RunningPrimary, offline: &Offline) -> Result<(), InstanceError> {
        let (environment, shared) = (&self.environment, primary.threads.shared());
        let (record, id) = (&offline.record, offline.record.id);
        let database = Arc::new(Database::open(record.clone(), environment.vfs_base.as_deref())?);
        install_hooks(environment, shared, &database, offline.end, Duration::from_secs(10))?;
        let find = |connection: &Connection, header: &standfast_sqlite_wal::WalIndexHeader| {
            Ok((header.position(), committed_pages(connection, header)?))
        };
        let (_, (position, pages)) = database.snapshot_within(ATTEMPT, find)?;
        let capture = database.capture_from(position, pages)?;
        environment.write_marker(record, database.file())?;
        shared.segment.forget_generation(id.0);
        shared.segment.reset_hints(id.0);
        shared.segment.end_rewriting(id.0);
        let serving = database.clone();
        let begun = primary.threads.call(move |primary| primary.serve(serving, capture, Entry::Known));
        self.end_resolving(primary, offline, &database, begun)
    }

    /// Lets sessions in if the log writer serves the database; otherwise it stays offline.
    fn end_resolving(
        &self,
        primary: &RunningPrimary,
        offline: &Offline,
        database: &Database,
        begun: Result<(), InstanceError>,
    ) -> Result<(), InstanceError> {
        let (segment, id) = (primary.threads.shared().segment, offline.record.id);
        if begun.is_ok() {
            self.environment.note_offline(id, None);
            foreign_watch::let_sessions_in(&self.environment, &segment, database);
        } else {
            self.environment.update_control(|control| control.take_offline(id, offline.from))?;
            segment.set_state(id.0, DatabaseState::Offline);
        }
        begun
    }

    /// Other commands may have run meanwhile.
    fn check_still_offline(&self, primary: &RunningPrimary, offline: &Offline) -> Result<(), InstanceError> {
        let now = self.find_offline(primary, &offline.record.name)?;
        if now.record == offline.record {
            return Ok(());
        }
        let what = format!("another database has been protected as {} meanwhile", offline.record.name);
        Err(InstanceError::refused(what, "`standfast status` shows the state of every database"))
    }

    /// A process that has the file open would continue to use it under its new name.
    fn check_unused(&self, record: &DatabaseRecord) -> Result<(), InstanceError> {
        let Some(file) = KernelFile::of(&record.path) else { return Ok(()) };
        let segment = self.environment.segment_path.file_name().unwrap_or_default().to_string_lossy();
        let wanted = [Wanted { file, sessions: BTreeSet::new() }];
        let found: Vec<String> = foreign_processes::find(&wanted, &segment)
            .into_iter()
            .flatten()
            .map(|process| format!("{} (pid {})", process.name, process.pid))
            .collect();
        if found.is_empty() {
            return Ok(());
        }
        Err(InstanceError::refused(
            format!("{} is open in {}", record.path.display(), found.join(", ")),
            "end these programs, or have them close the database, and try again: they would continue with the file that is set \
             aside",
        ))
    }
}

/// Whether an attempt that found a writer is followed by another one. Attempts end at `end`, and with the instance.
fn is_tried_again(now: Instant, end: Instant, is_stopping: bool) -> bool {
    now < end && !is_stopping
}

/// Removes the records of the database as excluded.
fn served(control: &mut standfast_environment::state::control::Control, id: DatabaseId) {
    control.replays.retain(|(other, _)| *other != id);
    control.offline.retain(|(other, _)| *other != id);
}

/// Checks the file with `PRAGMA quick_check`: what replaces the standbys' copies must be a readable database.
fn check_content(record: &DatabaseRecord, vfs_base: Option<&str>) -> Result<(), InstanceError> {
    let connection = open_guarded(&record.path, vfs_base)?;
    let reported: Result<String, _> = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    match reported {
        Ok(reported) if reported == "ok" => Ok(()),
        Ok(reported) => Err(InstanceError::refused(
            format!("{} is damaged: {reported}", record.path.display()),
            format!("`standfast database resolve {} --keep redo` makes it again", record.name),
        )),
        // The schema may need a newer SQLite, or modules of the application.
        Err(_) => Ok(()),
    }
}

/// Completes frames that SQLite before 3.50.2 left without checksums: a later start reads the WAL without its
/// wal-index.
fn complete_wal(database: &Database) -> Result<(), InstanceError> {
    let path = &database.record().path;
    let connection = database.connection();
    let guard = Guard::of(&connection)?;
    guard.hold_write_lock_within(ATTEMPT)?;
    let completed =
        guard.wal_header().map_err(InstanceError::from).and_then(|header| match header.frames() {
            0 => Ok(None),
            _ => guard
                .complete_frames(&mut database.wal_file()?, 1)
                .map_err(InstanceError::io("complete the frames of the write-ahead log of", path)),
        });
    guard.release_write_lock();
    completed.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_waits_for_writers_until_its_time_is_over_or_the_instance_stops() {
        let end = Instant::now() + WRITERS;
        assert!(is_tried_again(end - ATTEMPT, end, false));
        assert!(!is_tried_again(end - ATTEMPT, end, true));
        assert!(!is_tried_again(end, end, false) && !is_tried_again(end + ATTEMPT, end, false));
    }

    #[test]
    fn file_is_unchanged_if_it_is_the_same_and_was_not_written_to() {
        let looked = |inode, bytes| Looked {
            identity: Some(LastingIdentity { inode, created_ns: Some(7) }),
            stamp: Some(FileStamp { bytes, modified_ns: 9 }),
        };
        let before = looked(1, 4096);
        for (now, whole, other) in [
            (looked(1, 4096), None, None),
            (looked(1, 8192), Some(Change::Written), None),
            (looked(2, 4096), Some(Change::Replaced), Some(Change::Replaced)),
            (Looked { identity: None, stamp: None }, Some(Change::Replaced), Some(Change::Replaced)),
        ] {
            assert_eq!(
                (before.change_to(now, true), before.change_to(now, false)),
                (whole, other),
                "{now:?}"
            );
        }
    }
}
