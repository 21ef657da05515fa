//! The databases of a standby to which redo is not applied. Apply maintains the list; the receiver sends it to the
//! primary.

use standfast_transport::StoppedDatabase;
use standfast_types::Scn;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Name that stands for all databases in the list of stopped databases.
pub const ALL: &str = "(all)";

/// The stopped databases. Until apply has recovered the list is unknown: an empty list would mean that redo is applied
/// to all.
#[derive(Default)]
pub struct Stopped {
    /// 0 until the list is known; then incremented by every change, under the lock.
    version: AtomicU64,
    databases: Mutex<BTreeMap<String, StoppedDatabase>>,
    /// Apply is stopped at an operator's request: reported to the source, but not an error here.
    held: Mutex<Option<StoppedDatabase>>,
}

impl Stopped {
    /// Apply has recovered: the list is complete from now on.
    pub fn are_known(&self) {
        let _databases = self.lock();
        let _ = self.version.compare_exchange(0, 1, SeqCst, SeqCst);
    }

    pub fn all(&self) -> Vec<StoppedDatabase> {
        self.lock().values().cloned().collect()
    }

    /// The list with its version, if it is known and its version is not `known`; `known` is 0 for a caller that has
    /// none. Takes no lock when there is no change.
    pub fn since(&self, known: u64) -> Option<(u64, Vec<StoppedDatabase>)> {
        if [0, known].contains(&self.version.load(SeqCst)) {
            return None;
        }
        let databases = self.lock();
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some((self.version.load(SeqCst), databases.values().cloned().chain(held).collect()))
    }

    /// Sets or clears a stop of apply as a whole, with its reason.
    pub fn hold(&self, held: Option<StoppedDatabase>) {
        let _databases = self.lock();
        let mut known = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // The position is not compared: a stop is reported once.
        let reason = |at: &Option<StoppedDatabase>| at.as_ref().map(|at| at.reason.clone());
        if reason(&known) != reason(&held) {
            *known = held;
            self.changed();
        }
    }

    /// Whether redo is applied to all databases.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Whether redo is not applied to this database.
    pub fn contains(&self, database: &str) -> bool {
        self.lock().contains_key(database)
    }

    /// Adds `database`, whose last applied commit is `applied`. Returns whether that is a change.
    pub fn add(&self, database: &str, applied: Option<Scn>, reason: String) -> bool {
        let stopped = StoppedDatabase { database: database.to_owned(), applied, reason };
        let mut databases = self.lock();
        if databases.get(database) == Some(&stopped) {
            return false;
        }
        databases.insert(database.to_owned(), stopped);
        self.changed();
        true
    }

    /// Removes the databases for which `is_over` returns true, because redo is applied again; returns their names.
    pub fn remove(&self, is_over: impl Fn(&str) -> bool) -> Vec<String> {
        let mut databases = self.lock();
        let over: Vec<String> = databases.keys().filter(|name| is_over(name)).cloned().collect();
        databases.retain(|name, _| !over.contains(name));
        if !over.is_empty() {
            self.changed();
        }
        over
    }

    fn changed(&self) {
        let _ = self.version.fetch_update(SeqCst, SeqCst, |version| (version > 0).then_some(version + 1));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, StoppedDatabase>> {
        self.databases.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_databases_get_a_new_version_only_on_change() {
        let stopped = Stopped::default();
        stopped.are_known();
        let (first, none) = stopped.since(0).unwrap();
        assert!(none.is_empty() && stopped.since(first).is_none());
        assert!(stopped.add("a.db", Some(Scn(7)), "why".into()));
        assert!(!stopped.add("a.db", Some(Scn(7)), "why".into()));
        let (second, databases) = stopped.since(first).unwrap();
        assert_eq!((databases.len(), second > first), (1, true));
        assert!(stopped.add("a.db", Some(Scn(7)), "something else".into()));
        let (third, _) = stopped.since(second).unwrap();
        assert!(stopped.remove(|_| false).is_empty() && stopped.since(third).is_none());
        assert_eq!(stopped.remove(|name| name == "a.db"), ["a.db"]);
        assert!(stopped.since(third).is_some() && stopped.is_empty());
    }
    #[test]
    fn apply_stopped_by_command_is_reported_but_is_no_error() {
        let stopped = Stopped::default();
        stopped.are_known();
        let (first, _) = stopped.since(0).unwrap();
        let held = |scn| StoppedDatabase {
            database: "(all)".into(),
            applied: Some(Scn(scn)),
            reason: "by command".into(),
        };
        stopped.hold(Some(held(7)));
        let (second, reported) = stopped.since(first).unwrap();
        assert_eq!(reported, [held(7)]);
        assert!(stopped.is_empty() && stopped.all().is_empty());
        stopped.hold(Some(held(8)));
        assert!(stopped.since(second).is_none(), "it is reported once");
        stopped.hold(None);
        assert!(stopped.since(second).unwrap().1.is_empty());
    }

    #[test]
    fn stopped_databases_are_not_reported_before_apply_recovery() {
        let stopped = Stopped::default();
        assert!(stopped.since(0).is_none());
        assert!(stopped.add("a.db", None, "why".into()) && stopped.since(0).is_none());
        stopped.are_known();
        let (version, databases) = stopped.since(0).unwrap();
        assert_eq!(databases.len(), 1);
        stopped.are_known();
        assert!(stopped.since(version).is_none());
    }
}
