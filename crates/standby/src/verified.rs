//! Verification findings about the databases of a standby. Apply maintains them; the receiver sends them to the
//! primary.
//!
//! Pages that differ are kept in the control file, so that they survive restarts and a failover, until they are found
//! equal or their database is resynced or released. The number of compared pages is kept in memory only.

use standfast_apply::Compared;
use standfast_environment::state::control::DifferingPage;
use standfast_transport::{PageDifference, VerifiedDatabase};
use standfast_types::{DatabaseId, PageNo, Scn, hint};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

/// Limit of differing pages in the control file; further ones are not stored.
pub const DIFFERING_PAGES_MAX: usize = 1000;

pub struct Verified {
    /// Starts at 1; incremented by every change, under the lock.
    version: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    databases: BTreeMap<DatabaseId, Found>,
}

#[derive(Default)]
struct Found {
    run: u64,
    compared: u64,
    scn: Scn,
    differing: BTreeMap<PageNo, PageDifference>,
    /// The run for which a failure to compare was already reported.
    failed: u64,
}

/// What to do about a new finding.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The set of differing pages has changed and must be stored.
    pub keep: bool,
    /// A line for the alert log about this database.
    pub alert: Option<String>,
}

impl Verified {
    /// Starts with the pages in the control file.
    pub fn new(known: &[DifferingPage]) -> Verified {
        let mut state = State::default();
        for page in known {
            let found = state.databases.entry(page.database).or_default();
            found.differing.insert(page.difference.page, page.difference);
        }
        Verified { version: AtomicU64::new(1), state: Mutex::new(state) }
    }

    pub fn note(&self, database: DatabaseId, compared: &Compared) -> Changes {
        let mut state = self.lock();
        let found = state.databases.entry(database).or_default();
        let changes = found.note(compared);
        self.version.fetch_add(1, SeqCst);
        changes
    }

    /// Forgets databases that no longer exist.
    pub fn retain(&self, is_there: impl Fn(DatabaseId) -> bool) {
        let mut state = self.lock();
        let before = state.databases.len();
        state.databases.retain(|id, _| is_there(*id));
        if state.databases.len() != before {
            self.version.fetch_add(1, SeqCst);
        }
    }

    /// The pages that differ, for the control file.
    pub fn differing(&self) -> Vec<DifferingPage> {
        let state = self.lock();
        let pages = state.databases.iter().flat_map(|(database, found)| {
            found
                .differing
                .values()
                .map(|difference| DifferingPage { database: *database, difference: *difference })
        });
        pages.take(DIFFERING_PAGES_MAX).collect()
    }

    /// All findings with their version, if that is not `known`. `name` returns the name of a database.
    pub fn since(
        &self,
        known: u64,
        name: impl Fn(DatabaseId) -> Option<String>,
    ) -> Option<(u64, Vec<VerifiedDatabase>)> {
        if self.version.load(SeqCst) == known {
            return None;
        }
        let state = self.lock();
        let databases = state.databases.iter().filter_map(|(id, found)| {
            Some(VerifiedDatabase {
                database: name(*id)?,
                run: found.run,
                compared: found.compared,
                scn: found.scn,
                differing: found.differing.len() as u64,
                pages: found.differing.values().copied().collect(),
            })
        });
        Some((self.version.load(SeqCst), databases.collect()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Found {
    fn note(&mut self, compared: &Compared) -> Changes {
        let before: BTreeSet<PageNo> = self.differing.keys().copied().collect();
        let mut changes = Changes::default();
        match compared {
            Compared::Replaced => self.differing.clear(),
            Compared::Failed { run, error } => {
                if std::mem::replace(&mut self.failed, *run) != *run {
                    changes.alert = Some(format!("cannot be compared with the primary: {error}"));
                }
            }
            Compared::Pages { run, scn, database_pages, pages } => {
                if std::mem::replace(&mut self.run, *run) != *run {
                    self.compared = 0;
                }
                self.scn = *scn;
                self.compared += pages.len() as u64;
                self.differing.retain(|page, _| page <= database_pages);
                for page in pages {
                    if page.is_equal() {
                        self.differing.remove(&page.page_no);
                    } else {
                        let (expected, found) = (page.expected, page.found);
                        let difference = PageDifference { page: page.page_no, scn: *scn, expected, found };
                        self.differing.insert(page.page_no, difference);
                    }
                }
            }
        }
        let now: BTreeSet<PageNo> = self.differing.keys().copied().collect();
        changes.keep = now != before;
        let new: Vec<_> = now.difference(&before).collect();
        if let Some(first) = new.first() {
            let what = format!(
                "DIFFERS from the primary in {} pages, page {first} as of SCN {} the first; a failover would serve them",
                new.len(),
                self.scn
            );
            changes.alert =
                Some(hint::in_one_line(what, Some("run `standfast verify --repair` at the primary")));
        } else if now.is_empty() && !before.is_empty() {
            changes.alert = Some("the pages that differed are what the primary has again".into());
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_apply::ComparedPage;

    const DB: DatabaseId = DatabaseId(3);

    fn pages(run: u64, scn: u64, pages: &[(PageNo, Option<u32>)]) -> Compared {
        let page = |(page_no, found): &(PageNo, Option<u32>)| ComparedPage {
            page_no: *page_no,
            expected: 1,
            found: *found,
        };
        Compared::Pages { run, scn: Scn(scn), database_pages: 50, pages: pages.iter().map(page).collect() }
    }

    fn reported(verified: &Verified) -> VerifiedDatabase {
        verified.since(0, |id| Some(id.to_string())).unwrap().1.remove(0)
    }

    #[test]
    fn differing_page_is_remembered_until_it_is_found_equal() {
        let verified = Verified::new(&[]);
        let first = verified.note(DB, &pages(7, 100, &[(1, Some(1)), (2, Some(9)), (3, None)]));
        assert!(
            first.keep && first.alert.is_some_and(|alert| alert.contains("2 pages, page 2 as of SCN 100"))
        );
        assert_eq!((reported(&verified).compared, reported(&verified).differing), (3, 2));
        assert_eq!(verified.note(DB, &pages(7, 200, &[(4, Some(1))])), Changes::default());
        assert_eq!(verified.differing().len(), 2);
        // After a restart it knows the pages, and has compared nothing.
        let verified = Verified::new(&verified.differing());
        assert_eq!((reported(&verified).compared, reported(&verified).differing), (0, 2));
        let again = verified.note(DB, &pages(8, 300, &[(2, Some(9))]));
        assert_eq!(again, Changes::default());
        let cured = verified.note(DB, &pages(8, 400, &[(2, Some(1)), (3, Some(1))]));
        assert!(cured.keep && cured.alert.is_some());
        assert_eq!((reported(&verified).compared, reported(&verified).differing), (3, 0));
    }

    #[test]
    fn removed_or_replaced_pages_no_longer_count_as_differing() {
        let verified = Verified::new(&[]);
        verified.note(DB, &pages(7, 100, &[(40, Some(9)), (60, Some(9))]));
        verified.note(DB, &pages(7, 200, &[]));
        assert_eq!(reported(&verified).differing, 1, "the database ends before page 60");
        assert!(verified.note(DB, &Compared::Replaced).keep);
        assert!(verified.differing().is_empty());
        verified.note(DB, &pages(7, 300, &[(40, Some(9))]));
        verified.retain(|id| id != DB);
        assert!(verified.differing().is_empty());
    }

    #[test]
    fn failed_comparison_of_a_database_is_reported_once_per_run() {
        let verified = Verified::new(&[]);
        let says = |run| verified.note(DB, &Compared::Failed { run, error: "why".into() }).alert.is_some();
        assert_eq!([7, 7, 8].map(says), [true, false, true]);
    }

    #[test]
    fn verification_state_gets_a_new_version_only_on_change() {
        let verified = Verified::new(&[]);
        let (version, _) = verified.since(0, |_| None).unwrap();
        assert!(verified.since(version, |_| None).is_none());
        verified.note(DB, &pages(7, 100, &[]));
        assert!(verified.since(version, |_| None).is_some());
    }
}
