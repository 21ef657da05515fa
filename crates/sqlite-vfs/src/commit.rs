//! The wait for durability: of a commit in its second phase, and of a reader with durable visibility.

use crate::bindings::code;
use crate::connection::{Deferred, Pending};
use crate::database::Database;
use crate::main_file::{LogPoint, MainFile};
use crate::report::{Cause, report};
use standfast_session::{DatabaseState, Segment, Target, WaitOutcome, monotonic_ns};
use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

/// How long a reader waits for the instance to publish the epoch of a new WAL generation. The instance publishes it
/// when it captures the generation's first commit, which takes this long only when the instance was stopped.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(5);

/// Handles `SQLITE_FCNTL_COMMIT_PHASETWO`: the write lock is released and other writers continue; waits until the
/// commit is durable. A transaction over several databases waits once, when its last write lock is released.
pub(crate) fn phase_two(file: &MainFile) -> c_int {
    let pending = file.pending.take().filter(|_| !file.commit_mode().nowait);
    let Some(connection) = file.writer() else {
        let outcome = pending.map_or(code::OK, |pending| await_commit(&file.database, pending));
        file.note_outcome(outcome);
        return outcome;
    };
    if connection.holds_write_locks() {
        if let Some(pending) = pending {
            connection.defer(Deferred { database: Arc::clone(&file.database), pending });
        }
        return code::OK;
    }
    // Waits for all even when one fails: each is reported by itself.
    let mut result = code::OK;
    for Deferred { database, pending } in connection.take_deferred() {
        let outcome = await_commit(&database, pending);
        result = if result == code::OK { outcome } else { result };
    }
    if let Some(pending) = pending {
        let outcome = await_commit(&file.database, pending);
        file.durable_ns.set(if outcome == code::OK { monotonic_ns() } else { 0 });
        file.note_outcome(outcome);
        result = if result == code::OK { outcome } else { result };
    }
    result
}

fn await_commit(database: &Database, pending: Pending) -> c_int {
    let Some(marker) = database.marker() else { return code::IOERR_FSYNC };
    let (outcome, state) = match pending {
        Pending::At { session, target } => {
            let outcome = session.wait_commit(target, &|| database.attends(marker, session.segment()));
            (outcome, Some(session.state()))
        }
        Pending::Lost => (WaitOutcome::Replaced, None),
    };
    let why = match outcome {
        WaitOutcome::Durable => return code::OK,
        WaitOutcome::Failed if state == Some(DatabaseState::Offline) => {
            "the database is offline at the instance"
        }
        WaitOutcome::Failed if state == Some(DatabaseState::Fenced) => {
            "another instance has taken over as the primary"
        }
        WaitOutcome::Failed => "the instance has failed",
        WaitOutcome::Replaced => {
            "the instance was restarted and made new shared memory (the one in which the commit began had been \
             removed or was of another release)"
        }
        WaitOutcome::NotReported => {
            "the instance says nothing of this generation of the write-ahead log: the -wal or -shm file was replaced \
             while the database was open, or this process was stopped for long"
        }
        WaitOutcome::Unknown => "the instance is gone",
    };
    let Database { path, .. } = database;
    report(
        path,
        Cause::CommitUnknown,
        code::IOERR_FSYNC,
        &format!(
            "outcome of a commit to {path} unknown: committed and visible here, durability not confirmed, \
             because {why} (instance {}, {}). Once the instance runs again, look whether the change is there \
             before repeating it",
            marker.name,
            marker.directory.display()
        ),
    );
    code::IOERR_FSYNC
}

/// Records, when a transaction starts to read from the WAL, whether it must wait under durable visibility.
///
/// The wait itself must not happen here, inside the lock call: SQLite compares the header afterwards and starts again
/// when it has changed, so a reader of a busy database would hardly ever succeed. The wait happens at the first page
/// read, when the snapshot is settled. From then on the read lock keeps the WAL generation from changing.
///
/// Only a snapshot whose pages the connection has in its cache waits immediately, because it may read no page. Its
/// header has not changed since the last transaction, so it does not change often.
///
/// # Errors
/// As [`before_read`].
pub(crate) fn note_reader(file: &MainFile) -> Result<(), c_int> {
    let point = file.snapshot.get();
    let waits = wants_durable(file) && point.is_some_and(|point| point.frame != 0);
    file.unsettled_read.set(waits);
    if waits && point == file.cached.get() { before_read(file) } else { Ok(()) }
}

fn wants_durable(file: &MainFile) -> bool {
    let default = || file.segment().is_some_and(|segment| segment.config().durable_visibility);
    file.durable_visibility().unwrap_or_else(default)
}

/// Waits, before a page is read, until everything the snapshot shows is durable.
///
/// # Errors
/// The result code for SQLite; the reason is reported. The next read tries again.
pub(crate) fn before_read(file: &MainFile) -> Result<(), c_int> {
    if !file.unsettled_read.get() {
        return Ok(());
    }
    settle(file)?;
    file.unsettled_read.set(false);
    Ok(())
}

/// Waits until the snapshot is durable, whatever the state of the instance: a failed commit is as visible as others,
/// and only its position shows that it is not durable.
fn settle(file: &MainFile) -> Result<(), c_int> {
    let Some(point) = file.snapshot.get() else { return Ok(()) };
    let (why, remedy) = match settled(file, point) {
        Settled::Yes => return Ok(()),
        Settled::Failed => ("has failed", "Restart"),
        Settled::Unknown => ("does not say", "Start"),
    };
    let path = &file.database.path;
    let (name, directory) = match file.database.marker() {
        Some(marker) => (marker.name.as_str(), marker.directory.display().to_string()),
        None => ("?", "?".into()),
    };
    report(
        path,
        Cause::ReadUnknown,
        code::IOERR_READ,
        &format!(
            "cannot tell whether what a reader of {path} sees is durable: instance {name} ({directory}) {why}. {remedy} it, \
             or read without the guarantee with `PRAGMA standfast_visibility=early`"
        ),
    );
    Err(code::IOERR_READ)
}

enum Settled {
    Yes,
    /// The instance has failed: this run of it will never make the snapshot durable.
    Failed,
    Unknown,
}

fn settled(file: &MainFile, point: LogPoint) -> Settled {
    let found = file.database.marker().zip(file.segment()).or_else(|| file.database.segment());
    let Some((marker, segment)) = found else { return Settled::Unknown };
    // Redo that a standby has applied is durable here and at its primary.
    if segment.state(marker.database) == DatabaseState::Standby {
        return Settled::Yes;
    }
    let Some(target) = position_of(segment, marker.database, point) else {
        segment.check_path(&marker.segment);
        return Settled::Unknown;
    };
    if segment.is_durable(marker.database, target) {
        return Settled::Yes;
    }
    let Some(session) = file.attach() else { return Settled::Unknown };
    match session.wait_durable(target, &|| file.database.attends(marker, session.segment())) {
        WaitOutcome::Durable => Settled::Yes,
        WaitOutcome::Failed => Settled::Failed,
        WaitOutcome::Replaced | WaitOutcome::NotReported | WaitOutcome::Unknown => Settled::Unknown,
    }
}

/// Returns the position of a snapshot. Waits for the epoch of a new generation, which the instance publishes when it
/// captures the generation's first commit.
fn position_of(segment: Segment, database: u16, point: LogPoint) -> Option<Target> {
    let start = monotonic_ns();
    loop {
        if let Some(target) = segment.position_for_reader(database, point.salts, point.frame) {
            return Some(target);
        }
        if Duration::from_nanos(monotonic_ns().saturating_sub(start)) > ANNOUNCED_WITHIN {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
