//! The wait for durability: of a commit in its second phase, and of a reader that asked for durable
//! visibility.

use crate::bindings::code;
use crate::connection::Deferred;
use crate::instance;
use crate::main_file::{Database, LogPoint, MainFile};
use crate::report::{Cause, report};
use standfast_session::{DatabaseState, Session, WaitOutcome, monotonic_ns};
use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

/// How long a reader waits for the writer that has published a new generation but not announced it yet.
/// That writer is between two steps; it takes this long only when it was stopped there.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(5);

/// `SQLITE_FCNTL_COMMIT_PHASETWO`: the write lock is released, others go on; now wait until the commit is
/// durable. A transaction over several databases waits once, when its last write lock is released.
pub(crate) fn phase_two(file: &MainFile) -> c_int {
    let target = file.commit_target.replace(0);
    let wait = (target != 0).then(|| file.session()).flatten();
    let wait = wait.filter(|session| !file.commit_mode(*session).nowait);
    let connection = file.connection.borrow();
    let Some(connection) = &*connection else {
        return wait.map_or(code::OK, |session| await_commit(&file.database, session, target));
    };
    if connection.holds_write_locks() {
        if let Some(session) = wait {
            connection.defer(Deferred { database: Arc::clone(&file.database), session, target });
        }
        return code::OK;
    }
    // All are waited for even when one fails: each is reported by itself.
    let mut result = code::OK;
    for Deferred { database, session, target } in connection.take_deferred() {
        let outcome = await_commit(&database, session, target);
        result = if result == code::OK { outcome } else { result };
    }
    let outcome = wait.map_or(code::OK, |session| await_commit(&file.database, session, target));
    if result == code::OK { outcome } else { result }
}

fn await_commit(database: &Database, session: Session, target: u64) -> c_int {
    let Ok(marker) = &database.marker else { return code::IOERR_FSYNC };
    let outcome = session.wait_durable(target, &|| instance::alive(marker));
    let why = match outcome {
        WaitOutcome::Durable => return code::OK,
        WaitOutcome::Failed => "the instance has failed",
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

/// A transaction starts to read from the log: notes whether it has to wait under durable visibility.
///
/// The wait itself must not happen here, inside the lock call: SQLite compares the header afterwards and
/// begins anew when it has changed, so that on a busy database it would hardly ever get through. It happens
/// at the first page read, when the snapshot is settled. From then on the read lock keeps the generation of
/// the log from changing.
pub(crate) fn note_reader(file: &MainFile) {
    file.unsettled_read.set(durable_reader(file).is_some_and(|(_, point)| point.frame != 0));
}

/// Session and snapshot of a reader that wants durable visibility and can have it.
fn durable_reader(file: &MainFile) -> Option<(Session, LogPoint)> {
    let wanted = match file.durable_visibility.get() {
        Some(wanted) => wanted,
        None => file.segment()?.config().durable_visibility,
    };
    if !wanted {
        return None;
    }
    let session = file.attach()?;
    (session.state() == DatabaseState::Open).then_some((session, file.snapshot.get()?))
}

/// A page is about to be read: waits until what the snapshot shows is durable.
///
/// # Errors
/// The result code for SQLite; the reason is reported.
pub(crate) fn before_read(file: &MainFile) -> Result<(), c_int> {
    if !file.unsettled_read.replace(false) {
        return Ok(());
    }
    let Some((session, point)) = durable_reader(file) else { return Ok(()) };
    let Ok(marker) = &file.database.marker else { return Ok(()) };
    let outcome = match position_of(session, point) {
        Some(target) => session.wait_durable(target, &|| instance::alive(marker)),
        None => WaitOutcome::Unknown,
    };
    if outcome == WaitOutcome::Durable || session.state() != DatabaseState::Open {
        return Ok(());
    }
    let path = &file.database.path;
    report(
        path,
        Cause::ReadUnknown,
        code::IOERR_READ,
        &format!(
            "cannot tell whether what a reader of {path} sees is durable: instance {} ({}) does not say. Start \
             it, or read without the guarantee with `PRAGMA standfast_visibility=early`",
            marker.name,
            marker.directory.display()
        ),
    );
    Err(code::IOERR_READ)
}

/// The position of a snapshot. A writer announces a new generation before it releases the write lock, but
/// after it has published its header.
fn position_of(session: Session, point: LogPoint) -> Option<u64> {
    let start = monotonic_ns();
    loop {
        if let Some(target) = session.position_for_reader(point.salts, point.frame) {
            return Some(target);
        }
        if Duration::from_nanos(monotonic_ns().saturating_sub(start)) > ANNOUNCED_WITHIN {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
