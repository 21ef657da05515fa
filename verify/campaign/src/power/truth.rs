//! What must be found after a power loss: every committed state, which of them were acknowledged, and what each standby
//! must have of them.
//!
//! | mode | a standby that commits waited for has each acknowledged commit |
//! |---|---|
//! | SYNC AFFIRM | from the acknowledgement on, whatever loses power |
//! | FASTSYNC | from the acknowledgement on, until it loses power itself before it has written the redo |
//! | ASYNC | once it has reported that the redo is on its disk |
//!
//! In every mode, and whether or not commits wait for it, a standby shows only states that were committed.

use super::report::PowerReport;
use rusqlite::Connection;
use standfast_format::page_sum;
use standfast_simulation::Outcome;
use standfast_simulation::databases::open_plain;
use standfast_testkit::SimMachine;
use standfast_types::{DatabaseId, PageNo, ReleasePosition};
use std::collections::{BTreeMap, VecDeque};
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

/// What a standby must have, as the index of the newest state.
#[derive(Clone, Copy, Debug, Default)]
struct Floor {
    /// As long as it does not lose power.
    received: usize,
    hardened: usize,
}

/// What a standby has promised with the acknowledgements since this was last asked.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Number of its instance.
    pub standby: u8,
    /// Commits waited for it until it had received their redo.
    pub received: bool,
    /// Commits waited for it until it had written their redo.
    pub hardened: bool,
    /// It has written all redo that the primary has.
    pub holds_all: bool,
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
    /// What each standby must have, by the number of its instance.
    floors: BTreeMap<u8, Floor>,
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
            floors: BTreeMap::new(),
        }
    }

    /// Describes the state of its commits for the trace.
    pub(super) fn described(&self) -> String {
        let newest = self.states.len() - 1;
        let floor = |(standby, floor): (&u8, &Floor)| {
            format!("; standby {standby} received {}, hardened {}", floor.received, floor.hardened)
        };
        let floors: String = self.floors.iter().map(floor).collect();
        format!("{}: state {newest}, acknowledged {}{floors}", self.name, self.acknowledged)
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
    pub fn released(&mut self, durable: ReleasePosition, promises: &[Promise]) -> u64 {
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
        for promise in promises {
            let floor = self.floors.entry(promise.standby).or_default();
            if promise.holds_all || promise.hardened && count > 0 {
                floor.hardened = floor.hardened.max(self.acknowledged);
            }
            if promise.received && count > 0 {
                floor.received = floor.received.max(self.acknowledged);
            }
            floor.received = floor.received.max(floor.hardened);
        }
        count
    }

    /// Records that a standby has caught up and holds everything acknowledged so far.
    pub fn caught_up(&mut self, standby: u8) {
        let acknowledged = self.acknowledged;
        self.floors.insert(standby, Floor { received: acknowledged, hardened: acknowledged });
    }

    /// Records that a standby has lost power, and with it the redo that it had not written.
    pub fn lost_power(&mut self, standby: u8) {
        if let Some(floor) = self.floors.get_mut(&standby) {
            floor.received = floor.hardened;
        }
    }

    /// Forgets a standby that is gone.
    pub fn forget(&mut self, standby: u8) {
        self.floors.remove(&standby);
    }

    /// Forgets all standbys but `standbys`.
    pub fn keep_only(&mut self, standbys: impl Iterator<Item = u8> + Clone) {
        self.floors.retain(|standby, _| standbys.clone().any(|kept| kept == *standby));
    }

    fn floor(&self, standby: u8) -> usize {
        self.floors.get(&standby).map_or(0, |floor| floor.received)
    }

    /// Whether an application still waits for a commit with a known release position.
    pub fn waits(&self) -> bool {
        self.pending.iter().any(|pending| pending.release.is_some())
    }

    /// Records that the standby that was opened as primary does not know the database.
    pub fn missing(&self, standby: u8, report: &mut PowerReport) {
        let floor = self.floor(standby);
        if floor > 0 {
            report.lose(floor as u64, format!("{} is not there after a failover", self.name));
        }
    }

    /// Whether the first full resync image of the database had not arrived at `standby`, which had to have no commit of
    /// it.
    pub fn is_unborn(&self, standby: u8, found: &State) -> bool {
        self.floor(standby) == 0 && found.pages() <= 1
    }

    /// Records that `standby` was opened as primary, but the database was not inspected yet.
    pub fn failed_over_unseen(&mut self, standby: u8) {
        self.pending.clear();
        self.acknowledged = self.floor(standby);
        self.floors.remove(&standby);
        self.lower_floors(self.acknowledged);
        // The next recovery may find any state that the standby can hold.
        let legal = self.dropped.iter().filter(|dropped| dropped.base >= self.acknowledged);
        self.states.extend(legal.map(|dropped| dropped.state.clone()));
    }

    /// Drops the waiting commits of all sessions.
    pub fn sessions_died(&mut self) {
        self.pending.clear();
    }

    /// Judges the state that the recovered primary has.
    pub fn primary_recovered(&mut self, found: &State, report: &mut PowerReport) {
        self.pending.clear();
        match self.position(found) {
            Some(at) if at >= self.acknowledged => self.fall_back(at),
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

    /// Judges the state that `standby` has after it was opened as primary. The other standbys follow it from now on.
    pub fn failed_over(&mut self, standby: u8, found: &State, report: &mut PowerReport) {
        self.pending.clear();
        let floor = self.floor(standby);
        self.floors.remove(&standby);
        match (self.position(found), self.dropped.iter().rposition(|dropped| dropped.state == *found)) {
            (Some(at), _) if at >= floor => {
                self.fall_back(at);
                self.acknowledged = at;
            }
            (_, Some(at)) if self.dropped[at].base >= floor => {
                self.fall_back(self.dropped[at].base);
                self.states.push(found.clone());
                self.acknowledged = self.states.len() - 1;
            }
            (Some(at), _) => {
                let note = format!("{} after failover: state {at}, must have {floor}", self.name);
                report.lose((floor - at) as u64, note);
                self.start_over(found);
            }
            (None, _) => {
                self.unknown(found, report);
                self.start_over(found);
            }
        }
        if self.floors.is_empty() {
            self.start_over(found);
        }
    }

    /// The history continues from the state `at`. Standbys may still hold the states after it.
    fn fall_back(&mut self, at: usize) {
        self.dropped.iter_mut().for_each(|dropped| dropped.base = dropped.base.min(at));
        let after = self.states.drain(at + 1..);
        self.dropped.extend(after.map(|state| Dropped { state, base: at }));
        self.lower_floors(at);
    }

    fn lower_floors(&mut self, at: usize) {
        for floor in self.floors.values_mut() {
            floor.received = floor.received.min(at);
            floor.hardened = floor.hardened.min(at);
        }
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
        self.acknowledged = 0;
        self.lower_floors(0);
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
