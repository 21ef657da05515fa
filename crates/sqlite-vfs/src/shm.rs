//! The locks of the wal-index, where transactions begin and end.
//!
//! Order of events at the end of a write transaction: compute the position under the write lock (no other WAL
//! generation can begin then), release the real lock, notify the instance, grant the lock to the next writer. The
//! notification precedes the grant because the instance's work is on the path of every commit; the next writer's work
//! is not.

use crate::bindings::{code, shm};
use crate::commit;
use crate::connection::Pending;
use crate::main_file::{LogPoint, MainFile, Refusal, WriteLock};
use crate::report::{Cause, report};
use crate::turn::{self, Turn};
use standfast_session::{DatabaseState, Session, SessionWait, monotonic_ns};
use std::ffi::c_int;
use std::time::Duration;

/// Interval at which a session that waits for the instance, at the checkpoint gate or for the write lock, checks
/// whether the instance lives.
const INSTANCE_LOOK: Duration = Duration::from_millis(20);
/// Limit of that wait: a living instance can be stopped in the middle of its work.
const INSTANCE_WAIT_NS: u64 = 1_000_000_000;

/// A reader needs a read mark that is not beyond its snapshot. How far the mark lies behind matters only to
/// checkpoints, which backfill no frame beyond a reader's mark: they leave about this many more frames to the next
/// checkpoint.
const MARK_BEHIND_AT_MOST: u32 = 64;

/// A transaction that has committed drops its read lock as soon as its thread gets a processor, unless another
/// statement is still open. An open statement shows by the pages it reads, or by taking longer than this.
const ENDS_WITHIN_NS: u64 = 20_000_000;

/// How long the opening of a snapshot waits while the instance decides on a checkpoint, which takes microseconds.
const DECISION_WAIT: Duration = Duration::from_millis(20);
const DECISION_LOOK: Duration = Duration::from_micros(50);

/// How long a session may hold the write lock before the lock itself is tried: where many sessions alternate, none
/// holds it so long.
const OWNER_SUSPECT_NS: u64 = 5_000_000;

/// How often, one attempt after the other, the instance may release the write lock between an attempt of a lone session and
/// the look at what the instance does. A busy machine interrupts a session there for as long as the instance needs for the
/// next release.
const RELEASES: u32 = 8;

/// Attempts to take the write lock that found it taken, although the instance was not seen to have it.
#[derive(Default)]
struct Attempts {
    unexplained: u32,
}

impl Attempts {
    /// Whether to try again. `seen`: whether the instance, which had the lock, has released it; `None`: it does not have
    /// it, or is not to be waited for. Where others write, one of them has the lock, and the queue is quicker than
    /// another attempt.
    fn may_repeat(
        &mut self,
        seen: Option<bool>,
        is_alone: impl FnOnce() -> bool,
        is_alive: impl FnOnce() -> bool,
    ) -> bool {
        match seen {
            Some(true) => {
                self.unexplained = 0;
                true
            }
            Some(false) => is_alive(),
            None => {
                self.unexplained += 1;
                self.unexplained == 1 || (self.unexplained <= RELEASES && is_alone())
            }
        }
    }
}

impl MainFile {
    pub fn shm_lock(&self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        let lock = flags & shm::LOCK != 0;
        match (offset, flags & shm::EXCLUSIVE != 0) {
            (shm::WRITE_LOCK, true) if count == 1 && lock => self.lock_write(),
            (shm::WRITE_LOCK, true) if count == 1 => self.unlock_write(),
            // Only the instance checkpoints: the WAL may hold frames that are not captured yet. A range that begins
            // here is a rebuild of the wal-index, which backfills no frames.
            (shm::CHECKPOINT_LOCK, true) if count == 1 && lock => code::BUSY,
            (shm::CHECKPOINT_LOCK, false) if count == 1 && lock => self.lock_snapshot(flags),
            (shm::CHECKPOINT_LOCK, false) if count == 1 => {
                self.opens_snapshot.set(false);
                self.real_shm_lock(offset, count, flags)
            }
            (shm::CHECKPOINT_LOCK, true) | (shm::RECOVER_LOCK, false) if lock && self.is_rewriting() => {
                self.lock_while_rewriting(offset, count, flags)
            }
            (shm::READ_MARK_FIRST.., true) if count == 1 && lock && self.has_read_mark() => code::BUSY,
            (shm::READ_LOCK_FIRST.., false) if lock => self.lock_read(offset, count),
            (shm::READ_LOCK_FIRST.., false) => self.unlock_read(offset, count),
            _ => self.real_shm_lock(offset, count, flags),
        }
    }

    /// A lock request of SQLite that found no valid header of the wal-index while the WAL is being rewritten. Shared:
    /// a reader, which met a writer that publishes a header; exclusive: a connection that would make another wal-index.
    fn lock_while_rewriting(&self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        let is_in_progress = !self.is_wal_suspect() && self.is_alive_now();
        match (is_in_progress, flags & shm::EXCLUSIVE != 0) {
            // The living instance is such a writer: SQLite tries again.
            (true, false) => self.real_shm_lock(offset, count, flags),
            // The WAL by itself holds an earlier state until the instance has rewritten it.
            (true, true) => code::BUSY,
            // The instance died, and then every process that had the database open. It repairs the WAL at its start,
            // unless it has to leave the database offline.
            (false, _) => self.refuse(&Refusal::LogLost(code::BUSY), Duration::ZERO),
        }
    }

    pub(crate) fn real_shm_lock(&self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        // SAFETY: the real file is open as long as this state exists, and its methods are constant.
        let method = unsafe { (*(*self.real).methods).shm_lock };
        match method {
            // SAFETY: the host's own method, called with its own file as SQLite would.
            Some(method) => unsafe { method(self.real, offset, count, flags) },
            None => code::IOERR,
        }
    }

    /// Takes the checkpoint lock shared for `sqlite3_snapshot_open`: the instance must not decide on a checkpoint while
    /// SQLite checks whether the frames still exist.
    fn lock_snapshot(&self, flags: c_int) -> c_int {
        let begun = monotonic_ns();
        loop {
            let result = self.real_shm_lock(shm::CHECKPOINT_LOCK, 1, flags);
            let waited = Duration::from_nanos(monotonic_ns().saturating_sub(begun));
            if result & 0xFF != code::BUSY || waited >= DECISION_WAIT {
                self.opens_snapshot.set(result == code::OK);
                return result;
            }
            // The instance gives no signal when it releases the lock.
            std::thread::sleep(DECISION_LOOK);
        }
    }

    /// Returns whether a transaction that is about to begin finds a usable read mark. Where no mark is exactly its
    /// snapshot, SQLite takes a lock exclusively to move one there, and releases it: two system calls a transaction on
    /// a database that is written all the time. When that lock is busy, SQLite takes the best existing mark.
    fn has_read_mark(&self) -> bool {
        let behind = |LogPoint { frame, .. }: LogPoint| {
            let marks = self.read_marks()?.into_iter().filter(|mark| *mark <= frame);
            Some(frame - marks.max()?)
        };
        // A snapshot that is being opened is older than that of the header.
        self.read_locks.get() == 0
            && !self.opens_snapshot.get()
            && self.log_point().and_then(behind).is_some_and(|behind| behind <= MARK_BEHIND_AT_MOST)
    }

    /// By the segment: readers have no session, nor does a connection that found all slots taken.
    fn is_rewriting(&self) -> bool {
        self.database.segment().is_some_and(|(marker, segment)| segment.is_rewriting(marker.database))
    }

    fn is_wal_suspect(&self) -> bool {
        self.database.segment().is_some_and(|(marker, segment)| segment.is_wal_suspect(marker.database))
    }

    /// Returns the result code for a reader of a suspect wal-index, which may show an earlier state; `None` when it is
    /// trusted.
    fn refuse_suspect_wal(&self) -> Option<c_int> {
        let (segment, database) = (self.segment()?, self.database.marker()?.database);
        if !segment.is_wal_suspect(database) {
            return None;
        }
        // SQLite itself waits for a recovery in progress, up to ten seconds.
        let recovers = segment.state(database) == DatabaseState::Recovering && self.recently_alive();
        Some(match recovers {
            true => code::BUSY_RECOVERY,
            false => self.refuse(&Refusal::LogLost(code::IOERR), Duration::ZERO),
        })
    }

    /// Waits at the checkpoint gate while a living instance keeps it closed: the instance's work there takes
    /// milliseconds, or as long as the disk takes. After [`INSTANCE_WAIT_NS`] without success, each transaction waits
    /// only [`INSTANCE_LOOK`] until the gate was seen open.
    fn pass_gate(&self, session: Session) {
        let begun = monotonic_ns();
        let is_open = loop {
            if session.pass_gate(INSTANCE_LOOK) {
                break true;
            }
            let is_over = monotonic_ns().saturating_sub(begun) >= INSTANCE_WAIT_NS;
            if is_over || self.gate_ignored.get() || !self.is_alive_now() {
                break false;
            }
        };
        self.gate_ignored.set(!is_open);
    }

    /// Takes the write lock without waiting for another writer; waits for the instance, which holds the lock only
    /// briefly.
    fn take_write_lock_after_instance(&self, session: Session) -> c_int {
        let begun = monotonic_ns();
        let mut attempts = Attempts::default();
        loop {
            let result = self.take_write_lock();
            if result & 0xFF != code::BUSY {
                return result;
            }
            let seen = session.await_instance(INSTANCE_LOOK);
            let is_over = monotonic_ns().saturating_sub(begun) >= INSTANCE_WAIT_NS;
            if is_over || !attempts.may_repeat(seen, || session.is_alone(), || self.is_alive_now()) {
                return result;
            }
        }
    }

    fn lock_read(&self, offset: c_int, count: c_int) -> c_int {
        // The checkpoint gate stops the start of a transaction, not a connection that already holds a lock or has a
        // lock grant: the instance, which closed the gate, waits for that connection.
        let starts = self.read_locks.get() == 0;
        if starts && let Err(result) = self.await_fresh_data() {
            return result;
        }
        if starts && self.write_lock.get() == WriteLock::Free && !turn::holds(self.id) {
            if let Some(session) = self.session() {
                self.pass_gate(session);
            }
            if let Some(result) = self.refuse_suspect_wal() {
                return result;
            }
        }
        if starts {
            // After a sleep in the queue this is the next attempt of the same statement.
            self.began_ns.set(turn::slept_until(self.id).unwrap_or_else(monotonic_ns));
        }
        // With blocking locks SQLite takes the write lock before the read lock. This VFS does not offer them, but a VFS
        // stacked on it may: a write lock granted only to read the header then belongs to a write transaction.
        let writes_first = match self.write_lock.get() {
            WriteLock::Recovery => match self.writable() {
                Ok(session) => Some(session),
                Err(result) => return result,
            },
            WriteLock::Free | WriteLock::Held => None,
        };
        let result = self.real_shm_lock(offset, count, shm::LOCK | shm::SHARED);
        if result == code::OK {
            if let Some(session) = writes_first {
                session.force_turn();
                self.hold_write_lock();
            }
            self.read_locks.set(self.read_locks.get() | lock_bit(offset));
            // If the header changes before SQLite compares it with its own copy, SQLite takes the lock again, and this
            // snapshot is taken again.
            self.snapshot.set(self.log_point());
            // Readers under the first read lock ignore the WAL: they see the database file, into which the instance
            // backfills only durable frames.
            if starts
                && offset > shm::READ_LOCK_FIRST
                && let Err(result) = commit::note_reader(self)
            {
                self.unlock_read(offset, count);
                return result;
            }
        }
        result
    }

    fn unlock_read(&self, offset: c_int, count: c_int) -> c_int {
        let result = self.real_shm_lock(offset, count, shm::UNLOCK | shm::SHARED);
        self.read_locks.set(self.read_locks.get() & !lock_bit(offset));
        if self.read_locks.get() == 0 {
            self.unsettled_read.set(false);
            self.cached.set(self.snapshot.take());
            self.note_end();
            turn::snapshot_dropped(self.id);
            self.let_others_write();
        }
        result
    }

    /// Handles the drop of the read lock. Right after the wait for a commit this ends its transaction, whose counted
    /// time is extended to now.
    fn note_end(&self) {
        let durable_ns = self.durable_ns.take();
        if durable_ns == 0 {
            return;
        }
        let took_ns = monotonic_ns().saturating_sub(durable_ns);
        if took_ns < ENDS_WITHIN_NS
            && let Some(session) = self.session()
        {
            session.lengthen(SessionWait::Transaction, took_ns);
        }
    }

    fn lock_write(&self) -> c_int {
        // Without a read lock SQLite reads the wal-index header again or rebuilds the wal-index, on behalf of a reader:
        // allowed on a standby, and when no instance runs.
        let session = if self.read_locks.get() != 0 {
            match self.writable() {
                Ok(session) => session,
                Err(result) => return result,
            }
        } else {
            match self.writable_now() {
                Some(session) => session,
                None => return self.lock_for_recovery(),
            }
        };
        let turn = turn::take(self.id);
        // A transaction cannot write on a stale snapshot: SQLite would find out after taking the lock, and other
        // sessions would have waited for nothing.
        if let (Some(snapshot), Some(now)) = (self.snapshot.get(), self.log_point())
            && snapshot != now
        {
            if turn == Turn::Granted {
                session.lock_race_lost();
            }
            turn::missed(self.id, session, self.began_ns.get());
            return code::BUSY_SNAPSHOT;
        }
        let granted = turn == Turn::Granted || session.try_turn();
        if !granted && turn != Turn::TimedOut && !self.suspects_owner(session) {
            turn::missed(self.id, session, self.began_ns.get());
            return code::BUSY;
        }
        self.lock_in_turn(session, granted)
    }

    /// Returns whether to try the lock itself although the hints say that a session has it. A connection that does not
    /// wait would get BUSY for as long as a hint is stale: of a killed process, or of a session that was granted the
    /// lock and has not come for it.
    fn suspects_owner(&self, session: Session) -> bool {
        let Some(owner) = session.owner() else { return false };
        let now = monotonic_ns();
        match self.owner_seen.get() {
            Some((seen, since)) if seen == owner => now.saturating_sub(since) >= OWNER_SUSPECT_NS,
            _ => {
                self.owner_seen.set(Some((owner, now)));
                // Where many sessions alternate, each attempt sees another holder: check its process only now and then.
                if now.saturating_sub(self.owner_asked_ns.get()) < OWNER_SUSPECT_NS {
                    return false;
                }
                self.owner_asked_ns.set(now);
                session.has_owner_ended(owner)
            }
        }
    }

    /// Takes the real lock. Without a lock grant (the last sleep timed out) the hints may be stale, left by a killed
    /// process; the lock itself decides.
    fn lock_in_turn(&self, session: Session, granted: bool) -> c_int {
        let result = self.take_write_lock_after_instance(session);
        if result == code::OK {
            if granted {
                session.lock_taken();
            } else {
                session.force_turn();
            }
            let point = self.log_point();
            if let Some(point) = point {
                session.inspect_generation(point.salts, point.frame);
            }
            self.at_lock.set(point);
            session.begin_write();
            self.hold_write_lock();
        } else if granted {
            // The holder does not queue: its release wakes no waiter, so SQLite's own sleep must do.
            session.lock_race_lost();
            if result & 0xFF == code::BUSY {
                turn::held_out(self.id, session, self.began_ns.get());
            }
        } else if result & 0xFF == code::BUSY {
            turn::missed(self.id, session, self.began_ns.get());
        }
        result
    }

    /// Records that the real write lock is held, for a transaction.
    fn hold_write_lock(&self) {
        turn::taken();
        self.owner_seen.set(None);
        self.write_lock.set(WriteLock::Held);
        self.frames.borrow_mut().clear();
        self.write_lock_taken();
    }

    fn lock_for_recovery(&self) -> c_int {
        let result = self.take_write_lock();
        if result == code::OK {
            self.at_lock.set(self.log_point());
            self.write_lock.set(WriteLock::Recovery);
        }
        result
    }

    fn unlock_write(&self) -> c_int {
        let held = self.write_lock.replace(WriteLock::Free);
        self.frames.borrow_mut().clear();
        // An empty WAL holds no commit, and a generation without a commit need not be announced.
        let committed =
            self.log_point().filter(|point| Some(*point) != self.at_lock.get() && point.frame != 0);
        if held == WriteLock::Held {
            // Until the position to wait for is known: SQLite ignores the result of an unlock, and a commit that waits
            // for nothing would return OK. An old value belongs to a COMMIT that has returned an error.
            self.pending.set(committed.map(|_| Pending::Lost));
            // Statements that are still open now have this commit as their snapshot.
            if committed.is_some() && self.read_locks.get() != 0 {
                self.snapshot.set(committed);
            }
        }
        match (held, self.session()) {
            (WriteLock::Held, Some(session)) => {
                let target =
                    committed.and_then(|point| session.position_under_write_lock(point.salts, point.frame));
                session.end_write(committed.is_some());
                if let Some(target) = target {
                    self.pending.set(Some(Pending::At { session, target }));
                }
                let result = self.drop_write_lock();
                if committed.is_some() {
                    let mode = self.commit_mode();
                    let awaited = target.filter(|_| !mode.nowait);
                    session.notice_commit(mode.batch, self.began_ns.get(), awaited);
                }
                session.release_turn();
                self.write_lock_released();
                result
            }
            (held, session) => {
                // A transaction that began in shared memory that the instance no longer reads has no position to wait
                // for: positions in the new shared memory count from elsewhere. It stays `Pending::Lost`.
                let result = self.drop_write_lock();
                if held == WriteLock::Held {
                    self.write_lock_released();
                }
                // A rebuilt wal-index can show commits that a killed process wrote but did not publish.
                let attached_again = || if held == WriteLock::Held { self.attach() } else { None };
                if committed.is_some()
                    && let Some(session) = session.or_else(attached_again)
                {
                    session.notice(false);
                }
                result
            }
        }
    }

    /// Checks that the connection may write to the WAL now. In exclusive locking mode SQLite takes no locks at all, so
    /// the instance would not be notified of the commit.
    ///
    /// # Errors
    /// The result code for SQLite; the reason is reported.
    pub fn may_write_log(&self) -> Result<(), c_int> {
        if self.write_lock.get() == WriteLock::Held {
            return Ok(());
        }
        let path = &self.database.path;
        report(
            path,
            Cause::Exclusive,
            code::IOERR_WRITE,
            &format!(
                "refused a write to {path} without the write lock: the connection is in exclusive locking mode, \
                 in which commits cannot be captured. Use `PRAGMA locking_mode=NORMAL`"
            ),
        );
        Err(code::IOERR_WRITE)
    }
}

fn lock_bit(offset: c_int) -> u32 {
    1 << (offset & 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_session_tries_again_when_the_instance_releases_the_lock_before_each_look() {
        let tried = |is_alone: bool| {
            let mut attempts = Attempts::default();
            (0..100).take_while(|_| attempts.may_repeat(None, || is_alone, || true)).count()
        };
        assert_eq!(tried(true), RELEASES as usize, "another process has it");
        assert_eq!(tried(false), 1, "another session has it");
    }

    #[test]
    fn release_by_the_instance_that_was_seen_explains_the_attempts_before() {
        let mut attempts = Attempts::default();
        for _ in 0..10 {
            assert!(attempts.may_repeat(None, || false, || true));
            assert!(attempts.may_repeat(Some(true), || false, || false));
        }
    }

    #[test]
    fn lock_of_the_instance_is_waited_for_only_while_the_instance_lives() {
        let mut attempts = Attempts::default();
        assert!((0..1_000).all(|_| attempts.may_repeat(Some(false), || false, || true)));
        assert!(!attempts.may_repeat(Some(false), || true, || false));
    }
}
