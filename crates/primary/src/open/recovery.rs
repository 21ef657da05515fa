//! Recovery of one database at a start: determines where its files stand, proves it, and acts on it.

use crate::commit::database::{Database, committed_pages};
use crate::open::conclusion::{Action, Conclusion, Foreign, Standing, may_be_half_written};
use crate::open::reconcile::{
    self, Anchor, Found, History, PageChecksums, Plan, Scan, give_up, keep_or_fail_over,
};
use rusqlite::Connection;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::open_database::recover_index;
use standfast_environment::state::control::{Control, DatabaseRecord, FileStamp, LastingIdentity};
use standfast_format::page_sum;
use standfast_io::fault::{self, Fault};
use standfast_log::RedoLog;
use standfast_session::{FileId, Marker};
use standfast_sqlite_wal::WalIndexHeader;
use standfast_sqlite_wal::guard::Guard;
use standfast_sqlite_wal::state::{Frames, StateReader, first_commit_frame};
use standfast_types::{DatabaseId, Hint, PageNo, Scn, WalPosition, WalSalts};
use std::sync::Arc;
use std::time::Duration;

/// How long recovery, after applying redo, waits for a transaction begun meanwhile. A longer one is waited for
/// separately, see [`crate::open::open_primary::open_late`].
const WRITER_TIMEOUT: Duration = Duration::from_millis(500);

/// Refuses a file other than the one that the instance had open: WAL positions and redo have no meaning for it.
pub(crate) fn check_identity(control: &Control, record: &DatabaseRecord) -> Result<(), InstanceError> {
    let known = control.known_file(record.id).map(|known| known.identity);
    let found = LastingIdentity::of(&record.path).ok();
    match known.zip(found) {
        Some((known, found)) if !known.may_be(&found) => Err(InstanceError::refused(
            format!(
                "another file is at {} than the one that {} was: inode {}, and it was {}; it may be an older copy, or an \
                 empty database that a program made before its volume was mounted",
                record.path.display(),
                record.name,
                found.inode,
                known.inode
            ),
            keep_or_fail_over(record),
        )),
        _ => Ok(()),
    }
}

/// Recovery of one database at a start, with the redo about it.
pub(crate) struct Recovery<'a> {
    environment: &'a Environment,
    log: &'a Arc<RedoLog>,
    database: &'a Database,
    history: History,
    checksums: PageChecksums,
    /// Recovery begins here, so the files held everything before it.
    begin: Scn,
    end: Scn,
    offline: bool,
    /// The shared memory of the last run still exists: there was no power failure since.
    is_power_kept: bool,
}

impl<'a> Recovery<'a> {
    pub(crate) fn since_checkpoint(
        environment: &'a Environment,
        log: &'a Arc<RedoLog>,
        database: &'a Database,
        scan: &Scan,
        is_power_kept: bool,
    ) -> Recovery<'a> {
        let id = database.id();
        let history = scan.histories.get(&id).cloned().unwrap_or_default();
        let checksums = scan.checksums.get(&id).cloned().unwrap_or_default();
        let (begin, end, offline) = (scan.begin, scan.end, false);
        Recovery { environment, log, database, history, checksums, begin, end, offline, is_power_kept }
    }

    /// Recovers an excluded database. The checkpoint has advanced without it, so its redo may be in archived logs.
    pub(crate) fn of_offline(
        environment: &'a Environment,
        log: &'a Arc<RedoLog>,
        database: &'a Database,
        begin: Scn,
        end: Scn,
    ) -> Result<Recovery<'a>, InstanceError> {
        let record = database.record();
        let mut scan = reconcile::scan(log, begin, end, Default::default()).map_err(|error| {
            InstanceError::refused(
                format!(
                    "{} was offline and needs the redo from SCN {begin} on: {}",
                    record.name,
                    error.as_a_reason()
                ),
                format!(
                    "put the archived logs from there on back and restart the instance, or {}",
                    give_up(record)
                ),
            )
        })?;
        let history = scan.histories.remove(&record.id).unwrap_or_default();
        let checksums = scan.checksums.remove(&record.id).unwrap_or_default();
        Ok(Recovery {
            environment,
            log,
            database,
            history,
            checksums,
            begin,
            end,
            offline: true,
            is_power_kept: false,
        })
    }

    fn record(&self) -> &DatabaseRecord {
        self.database.record()
    }

    /// Returns the plan for the position at which the files claim to stand, if their pages are those of that state.
    pub(crate) fn plan(
        &self,
        connection: &Connection,
        control: &Control,
        header: &WalIndexHeader,
        found: &Found,
    ) -> Result<Plan, InstanceError> {
        if let Some((_, from)) = control.replays.iter().find(|(id, _)| *id == self.record().id) {
            let position = found.generation_start().unwrap_or(found.position);
            // Every file without a WAL stands there, whatever its content.
            let is_any = self.offline && position == WalPosition::default();
            if is_any && !is_marked(control, self.record()) {
                return Ok(Plan::FindOut("it has no write-ahead log"));
            }
            return Ok(Plan::Reapply(Anchor { position, redo_from: *from, ..Anchor::default() }));
        }
        if header.frames() == 0 && !self.owes_image() && self.is_as_noted() {
            let (position, scn) = (header.position(), self.end);
            let database_pages = committed_pages(connection, header)?;
            let anchor = Anchor { position, scn, database_pages, ..Anchor::default() };
            // A page that differs here was damaged on its disk, and must not be mistaken for a write of another
            // process.
            return Ok(Plan::Capture(anchor));
        }
        let plan = reconcile::decide(&self.history, found, self.begin);
        let (Plan::Capture(anchor) | Plan::Reapply(anchor)) = plan else { return Ok(plan) };
        let is_without_wal = anchor.position == WalPosition::default() && found.bare.is_none();
        if is_without_wal {
            return Ok(Plan::FindOut("it has no write-ahead log"));
        }
        if reconcile::is_lost(found.position) || self.is_state_at(header, &anchor)? {
            return Ok(plan);
        }
        Ok(Plan::FindOut("its pages are not those of the position at which its write-ahead log stands"))
    }

    /// Whether the files hold, at the position of `anchor`, the pages that the redo says.
    fn is_state_at(&self, header: &WalIndexHeader, anchor: &Anchor) -> Result<bool, InstanceError> {
        let (record, present) = (self.record(), header.frames());
        let salts = header.salts();
        let read = InstanceError::io("read the write-ahead log of", &record.path);
        let visible = if anchor.position.salts != salts {
            0
        } else if anchor.position.frame == 0 && present > 0 && salts.is_of_rewritten_log() {
            // The first transaction is what the previous WAL held.
            first_commit_frame(&mut self.database.wal_file()?, record.page_size, salts, present)
                .map_err(read)?
        } else {
            anchor.position.frame
        };
        let frames = Frames { salts, visible: visible.min(present), present };
        let mut pages = self.state(frames)?;
        if anchor.position.salts == salts && !self.is_frame_of(&mut pages, anchor)? {
            self.environment.alert.say(format!(
                "database {}: frame {} of its write-ahead log is not the one that was captured; what its files hold is found \
                 out from the redo",
                record.name, anchor.position.frame
            ));
            return Ok(false);
        }
        let difference = self.checksums.first_difference(&mut pages, record.page_size, anchor.scn)?;
        if let Some(page_no) = difference {
            self.environment.alert.say(format!(
                "database {}: page {page_no} is not what the redo says of {}; what its files hold is found out from the redo",
                record.name, anchor.scn
            ));
        }
        Ok(difference.is_none())
    }

    /// Whether the frame at the position of `anchor` holds what the redo says.
    fn is_frame_of(&self, pages: &mut StateReader, anchor: &Anchor) -> Result<bool, InstanceError> {
        let Some((page_no, checksum)) = anchor.frame_page else { return Ok(true) };
        let record = self.record();
        let mut image = vec![0; record.page_size.bytes()];
        let found = pages
            .read_frame(anchor.position.frame, &mut image)
            .map_err(InstanceError::io("read the write-ahead log of", &record.path))?;
        Ok(found == Some(page_no) && page_sum(page_no, &image) == checksum)
    }

    fn state(&self, frames: Frames) -> Result<StateReader, InstanceError> {
        let record = self.record();
        StateReader::open(self.environment.vfs_base.as_deref(), &record.path, record.page_size, frames)
            .map_err(InstanceError::io("read the pages of", &record.path))
    }

    /// Acts on what the redo proves about files at a position that it does not know. Returns where capture continues,
    /// the size of the database there, and why a full resync image is needed, if it is.
    ///
    /// # Errors
    /// When the redo proves nothing: the database is excluded, and file and redo stay unchanged.
    pub(crate) fn settle(
        &self,
        connection: &Connection,
        header: &WalIndexHeader,
        found: &Found,
        why: &'static str,
    ) -> Result<(WalPosition, u32, Option<&'static str>), InstanceError> {
        let record = self.record();
        // The standbys are still owed an image that was begun and not finished, wherever the files stand.
        let owes_image = self.owes_image();
        // Frames of a WAL that the redo knows were written by sessions and captured: none is foreign.
        let is_ours =
            header.frames() > 0 && self.history.anchors.iter().any(|a| a.position.salts == header.salts());
        let has_unknown_wal = header.frames() > 0 && !is_ours;
        let foreign = match (is_ours, has_unknown_wal) {
            // The reason for the owed image may be foreign changes.
            (true, _) if owes_image => Foreign::InFile,
            (true, _) => Foreign::Excluded,
            (false, true) => Foreign::InWal,
            (false, false) => Foreign::InFile,
        };
        let as_it_is = |image: bool| {
            let pages = committed_pages(connection, header)?;
            Ok((header.position(), pages, image.then_some(why)))
        };
        if self.is_as_when_image_began(header) {
            return as_it_is(true);
        }
        let whole_at = self.whole_at(found);
        let explains = if self.may_be_half_written() { Foreign::Excluded } else { foreign };
        let conclusion = self.find_out(connection, header, explains, whole_at)?;
        self.environment.alert.say(format!("database {}: {why}; by the redo {conclusion}", record.name));
        let standing = Standing {
            has_unknown_wal,
            is_as_noted: self.is_as_noted(),
            offline: self.offline,
            is_new: self.is_new(),
            owes_image,
            may_be_foreign: foreign != Foreign::Excluded,
            follows: self.follows(found),
        };
        let is_generation_named = || reconcile::names_generation(self.log, record, header.salts(), self.end);
        let is_newest_beneath = || self.is_newest_beneath(whole_at);
        match standing.action(conclusion, is_generation_named, is_newest_beneath)? {
            Action::Serve { image } => as_it_is(image),
            Action::RollForward { from, image } => {
                let (position, pages) = self.roll_forward(connection, from)?;
                Ok((position, pages, image.then_some(why)))
            }
            Action::StayOffline(page) => Err(not_proven(record, why, page)),
        }
    }

    fn find_out(
        &self,
        connection: &Connection,
        header: &WalIndexHeader,
        foreign: Foreign,
        whole_at: Option<Scn>,
    ) -> Result<Conclusion, InstanceError> {
        let present = header.frames();
        let frames = Frames { salts: header.salts(), visible: present, present };
        let pages = committed_pages(connection, header)?;
        self.search(foreign, frames, pages, whole_at)
    }

    /// Whether the file holds the newest state if the WAL, of a foreign generation, is ignored. Commits in that WAL may
    /// have shrunk the database, so all pages of the file count.
    fn is_newest_beneath(&self, whole_at: Option<Scn>) -> Result<bool, InstanceError> {
        let none = Frames { salts: WalSalts::default(), visible: 0, present: 0 };
        Ok(matches!(self.search(Foreign::Excluded, none, u32::MAX, whole_at)?, Conclusion::Newest { .. }))
    }

    fn search(
        &self,
        foreign: Foreign,
        frames: Frames,
        pages: u32,
        whole_at: Option<Scn>,
    ) -> Result<Conclusion, InstanceError> {
        let open = || Ok((self.state(frames)?, pages));
        reconcile::find_out(self.log, self.record(), (self.begin, self.end), foreign, whole_at, open)
    }

    fn may_be_half_written(&self) -> bool {
        let whole = self.environment.control().whole_file(self.record().id);
        let last_commit = self.history.last_commit.unwrap_or(self.begin);
        may_be_half_written(self.is_power_kept, whole.map(|whole| whole.scn), last_commit)
    }

    /// Whether the standbys wait for an image: one was begun and is incomplete, or the redo does not say where the
    /// database stands, because the image was begun earlier.
    fn owes_image(&self) -> bool {
        self.history.unfinished_baseline || self.history.anchors.is_empty()
    }

    /// Whether the protection of the database began in the redo that recovery reads, without a record of where it
    /// stands.
    fn is_new(&self) -> bool {
        !self.offline && self.history.anchors.is_empty() && self.record().start_scn >= self.begin
    }

    /// Whether the files still hold what they held when the incomplete image was begun. Nothing is captured meanwhile,
    /// so no acknowledged commit is missing.
    fn is_as_when_image_began(&self, header: &WalIndexHeader) -> bool {
        let Some(owed) = self.environment.control().owed_image(self.record().id) else { return false };
        let is_current = !self.offline
            && owed.scn >= self.begin
            && self.history.last_commit.is_none_or(|scn| scn <= owed.scn);
        let is_there = if owed.position.frame > 0 {
            owed.position.salts == header.salts() && owed.position.frame <= header.frames()
        } else {
            let stamp = FileStamp::of(self.environment.disk.as_ref(), &self.record().path);
            stamp.is_some() && stamp == owed.stamp
        };
        is_current && is_there
    }

    /// Whether SQLite may have derived this WAL, by a reset, from the last one that the redo names; then the file holds
    /// all of that one.
    fn follows(&self, found: &Found) -> bool {
        let last = self.history.anchors.last().map(|anchor| anchor.position.salts);
        let salts = found.bare.unwrap_or(found.position.salts);
        last.is_some_and(|last| reconcile::may_follow(last, salts))
    }

    /// File SCN: a position before which the file alone held everything at some time. What is before the start of
    /// recovery was durably in the WAL that the redo names last, if not in the file.
    fn whole_at(&self, found: &Found) -> Option<Scn> {
        let noted = self.environment.control().whole_file(self.record().id).map(|whole| whole.scn);
        noted.max((!self.offline && self.follows(found)).then_some(self.begin))
    }

    /// Whether the file alone holds everything according to its recorded file SCN: since then the file was not written
    /// and the redo has no commit.
    fn is_as_noted(&self) -> bool {
        let control = self.environment.control();
        let stamp = FileStamp::of(self.environment.disk.as_ref(), &self.record().path);
        control.whole_file(self.record().id).is_some_and(|whole| {
            Some(whole.stamp) == stamp
                && whole.scn >= self.begin
                && self.history.last_commit.is_none_or(|scn| scn <= whole.scn)
        })
    }

    /// Applies the redo from `from` on. The caller holds the write lock and the checkpoint lock, before and after.
    pub(crate) fn roll_forward(
        &self,
        connection: &Connection,
        from: Scn,
    ) -> Result<(WalPosition, u32), InstanceError> {
        let (record, environment) = (self.record(), self.environment);
        let guard = Guard::of(connection)?;
        mark_replay(environment, record.id, from)?;
        fault::check(Fault::RecoveryApply).map_err(InstanceError::io("apply redo to", &record.path))?;
        guard.release_write_lock();
        guard.release_checkpoint_lock();
        let done = reconcile::reapply(self.log, record, environment.vfs_base.as_deref(), from, self.end)?;
        guard.hold_checkpoint_lock()?;
        guard.hold_write_lock_within(WRITER_TIMEOUT)?;
        environment.alert.say(format!(
            "database {}: {} transactions of the redo from SCN {} on applied",
            record.name, done.transactions, from
        ));
        recover_index(connection)?;
        Ok((done.position, committed_pages(connection, &guard.wal_header()?)?))
    }

    /// Returns why an image is needed if the database is not at `applied`, where recovery left it.
    pub(crate) fn foreign_meanwhile(
        &self,
        guard: &Guard<'_>,
        applied: WalPosition,
    ) -> Result<Option<&'static str>, InstanceError> {
        let is_there = guard.wal_header()?.position() == applied;
        Ok((!is_there).then_some("a process that does not use Standfast wrote to it during recovery"))
    }
}

/// Records that redo is being applied to the database. Its WAL may restart meanwhile and then does not show what the
/// database holds, so another recovery must begin where this one does.
fn mark_replay(environment: &Environment, id: DatabaseId, from: Scn) -> Result<(), InstanceError> {
    environment.update_control(|control| {
        if control.replays.iter().all(|(known, _)| *known != id) {
            control.replays.push((id, from));
        }
    })
}

/// Refusal when nothing is proven. The redo may be the better copy: an image of the file would replace the standbys'
/// copies.
fn not_proven(record: &DatabaseRecord, why: &str, page: Option<PageNo>) -> InstanceError {
    let example = page.map_or(String::new(), |page_no| {
        format!("; page {page_no} is neither what the redo says nor what it was before")
    });
    InstanceError::refused(
        format!(
            "{} does not stand where the redo says ({why}{example}): it may lack commits that were acknowledged",
            record.name
        ),
        keep_or_fail_over(record),
    )
}

/// Whether the file is the one beside which this instance last wrote a marker. A failover that excluded the file wrote
/// no other marker, and the checksums of the redo from there on prove the rest.
fn is_marked(control: &Control, record: &DatabaseRecord) -> bool {
    let marker = Marker::read(&record.path).ok().flatten();
    marker.zip(FileId::of(&record.path)).is_some_and(|(marker, file)| {
        marker.instance == control.instance.0 && marker.check(&record.path, file).is_ok()
    })
}

#[cfg(test)]
mod tests;
