//! What must be found after a power loss: every committed state, and which of them were acknowledged.

use super::report::PowerReport;
use rusqlite::Connection;
use standfast_format::page_sum;
use standfast_simulation::Outcome;
use standfast_simulation::databases::open_plain;
use standfast_testkit::SimMachine;
use standfast_types::{DatabaseId, PageNo, ReleasePosition};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// Checksums of all pages of a database in one committed state, without the fields that SQLite maintains itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    sums: Vec<u32>,
}

impl State {
    /// Reads the state that `connection` sees.
    pub fn read(connection: &Connection) -> rusqlite::Result<State> {
        let mut statement = connection.prepare_cached("SELECT pgno, data FROM sqlite_dbpage('main')")?;
        let rows = statement
            .query_map([], |row| Ok(page_sum(row.get::<_, PageNo>(0)?, row.get_ref(1)?.as_blob()?)))?;
        Ok(State { sums: rows.collect::<rusqlite::Result<_>>()? })
    }

    /// Counts pages that differ, or that only one of the states has.
    pub fn differences(&self, other: &State) -> u64 {
        let differing = self.sums.iter().zip(&other.sums).filter(|(ours, theirs)| ours != theirs).count();
        (differing + self.sums.len().abs_diff(other.sums.len())) as u64
    }

    pub fn pages(&self) -> usize {
        self.sums.len()
    }
}

/// A commit that an application is waiting for.
struct Pending {
    index: usize,
    raw_salts: [u32; 2],
    frame: u32,
    /// `None` until the WAL generation is announced.
    release: Option<ReleasePosition>,
}

/// A state that the primary lost before it was acknowledged; a standby may still hold it.
struct Dropped {
    state: State,
    /// Index of the last state before it that the primary kept.
    base: usize,
}

/// What is known of one database.
pub struct Truth {
    pub id: DatabaseId,
    pub name: String,
    /// Every committed state, the oldest first.
    states: Vec<State>,
    dropped: Vec<Dropped>,
    pending: VecDeque<Pending>,
    /// Index of the newest state whose commit was acknowledged.
    acknowledged: usize,
    /// Index of the newest acknowledged state that a standby has as well.
    protected: usize,
}

impl Truth {
    /// Starts with the first state of a database.
    pub fn new(id: DatabaseId, name: String, state: State) -> Truth {
        Truth {
            id,
            name,
            states: vec![state],
            dropped: Vec::new(),
            pending: VecDeque::new(),
            acknowledged: 0,
            protected: 0,
        }
    }

    /// Describes the state of its commits for the trace.
    pub(super) fn described(&self) -> String {
        let newest = self.states.len() - 1;
        format!(
            "{}: state {newest}, acknowledged {}, protected {}",
            self.name, self.acknowledged, self.protected
        )
    }

    pub fn newest(&self) -> Option<&State> {
        self.states.last()
    }

    /// Records a commit that has returned from SQLite and left the database in `state`.
    pub fn committed(&mut self, state: State, raw_salts: [u32; 2], frame: u32, epoch: Option<u32>) {
        self.states.push(state);
        let release = epoch.map(|epoch| ReleasePosition::new(epoch, frame));
        self.pending.push_back(Pending { index: self.states.len() - 1, raw_salts, frame, release });
    }

    /// Records the epoch of a WAL generation, announced by a session.
    pub fn announced(&mut self, epoch: u32, raw_salts: [u32; 2]) {
        for pending in self.pending.iter_mut().filter(|pending| pending.raw_salts == raw_salts) {
            pending.release.get_or_insert(ReleasePosition::new(epoch, pending.frame));
        }
    }

    /// Returns commits up to `durable` to the applications; returns how many.
    pub fn released(&mut self, durable: ReleasePosition, with_standby: bool) -> u64 {
        let mut count = 0;
        while let Some(pending) = self.pending.front() {
            match pending.release {
                Some(release) if release <= durable => {
                    self.acknowledged = pending.index;
                    count += 1;
                }
                // A commit without a known release position is skipped once a later one is released.
                None if self
                    .pending
                    .iter()
                    .skip(1)
                    .any(|later| later.release.is_some_and(|at| at <= durable)) => {}
                _ => break,
            }
            self.pending.pop_front();
        }
        if with_standby {
            self.protected = self.acknowledged;
        }
        count
    }

    /// Records that a standby has caught up and holds everything acknowledged so far.
    pub fn caught_up(&mut self) {
        self.protected = self.acknowledged;
    }

    /// Whether an application still waits for a commit with a known release position.
    pub fn waits(&self) -> bool {
        self.pending.iter().any(|pending| pending.release.is_some())
    }

    /// Records that the instance that was opened as primary does not know the database.
    pub fn missing(&self, report: &mut PowerReport) {
        if self.protected > 0 {
            report.lose(self.protected as u64, format!("{} is not there after a failover", self.name));
        }
    }

    /// Whether the first full resync image of the database had not arrived: no commit of it was acknowledged with a
    /// standby.
    pub fn is_unborn(&self, found: &State) -> bool {
        self.protected == 0 && found.pages() <= 1
    }

    /// Records that a standby was opened as primary, but the database was not inspected yet.
    pub fn failed_over_unseen(&mut self) {
        self.pending.clear();
        self.acknowledged = self.protected;
        let dropped = std::mem::take(&mut self.dropped);
        // The next recovery may find any state that the standby can hold.
        let legal = dropped.into_iter().filter(|dropped| dropped.base >= self.protected);
        self.states.extend(legal.map(|dropped| dropped.state));
    }

    /// Drops the waiting commits of all sessions.
    pub fn sessions_died(&mut self) {
        self.pending.clear();
    }

    /// Judges the state that the recovered primary has.
    pub fn primary_recovered(&mut self, found: &State, report: &mut PowerReport) {
        self.pending.clear();
        match self.position(found) {
            Some(at) if at >= self.acknowledged => {
                let base = at;
                self.dropped.extend(self.states.drain(at + 1..).map(|state| Dropped { state, base }));
            }
            Some(at) => {
                let lost = (self.acknowledged - at) as u64;
                report.lose(
                    lost,
                    format!("{}: state {at}, acknowledged up to {}", self.name, self.acknowledged),
                );
                self.start_over(found);
            }
            None => {
                self.unknown(found, report);
                self.start_over(found);
            }
        }
    }

    /// Judges the state that a standby has after it was opened as primary.
    pub fn failed_over(&mut self, found: &State, report: &mut PowerReport) {
        self.pending.clear();
        self.acknowledged = self.protected;
        match (self.position(found), self.dropped.iter().rposition(|dropped| dropped.state == *found)) {
            (Some(at), _) if at >= self.protected => self.states.truncate(at + 1),
            (_, Some(at)) if self.dropped[at].base >= self.protected => {}
            (Some(at), _) => {
                let lost = (self.protected - at) as u64;
                report.lose(
                    lost,
                    format!("{} after failover: state {at}, {} protected", self.name, self.protected),
                );
            }
            (None, _) => self.unknown(found, report),
        }
        self.start_over(found);
    }

    /// Judges the state of a standby: it must have been committed on the primary.
    pub fn seen_on_standby(&self, found: &State, report: &mut PowerReport) {
        let unborn = found.pages() <= 1;
        if !unborn
            && self.position(found).is_none()
            && self.dropped.iter().all(|dropped| dropped.state != *found)
        {
            let differences = self.nearest(found);
            report.differ(differences, format!("standby {} shows a state that never was", self.name));
        }
    }

    fn start_over(&mut self, found: &State) {
        self.states = vec![found.clone()];
        self.dropped.clear();
        (self.acknowledged, self.protected) = (0, 0);
    }

    fn position(&self, found: &State) -> Option<usize> {
        self.states.iter().rposition(|state| state == found)
    }

    fn nearest(&self, found: &State) -> u64 {
        self.states.iter().map(|state| state.differences(found)).min().unwrap_or(0)
    }

    fn unknown(&self, found: &State, report: &mut PowerReport) {
        let near = self.nearest(found);
        let which = self.states.iter().rposition(|state| state.differences(found) == near).unwrap_or(0);
        let pages: Vec<usize> = self.states[which]
            .sums
            .iter()
            .zip(&found.sums)
            .enumerate()
            .filter(|(_, (a, b))| a != b)
            .map(|(at, _)| at + 1)
            .take(8)
            .collect();
        let note = format!(
            "{pages:?} {}: a state that was never committed; {near} of {} pages differ from state {which} of {}, acknowledged {}",
            self.name,
            found.pages(),
            self.states.len() - 1,
            self.acknowledged
        );
        // It is unknown how many acknowledged commits are missing: at least one.
        report.lose(1, note);
    }
}

/// Reads the state of an existing database and runs SQLite's integrity check.
///
/// # Errors
/// When it cannot be read.
pub fn inspect(machine: &Arc<SimMachine>, path: &Path, report: &mut PowerReport) -> Outcome<State> {
    let wrong = |error: rusqlite::Error| format!("{}: {error}", path.display());
    let connection = open_plain(machine, path).map_err(wrong)?;
    let verdict: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(wrong)?;
    if verdict != "ok" {
        report.damage(format!("{}: {verdict}", path.display()));
    }
    State::read(&connection).map_err(wrong)
}
