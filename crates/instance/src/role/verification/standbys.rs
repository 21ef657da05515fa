//! Findings of the standbys: whether their copies are equal, and which pages differ.

use crate::role::running::RunningPrimary;
use standfast_documents::verification::{DestinationResult, DifferingPage, Outcome};
use standfast_environment::ship::destination_groups::Ships;
use standfast_transport::{DestinationStatus, PageDifference, Role};
use standfast_types::{PageNo, Scn};
use std::collections::BTreeSet;

pub(super) fn standbys(primary: &RunningPrimary) -> Vec<DestinationStatus> {
    let all = primary.destinations().status().into_iter().map(|(status, _)| status);
    all.filter(|status| status.role != Some(Role::FarSync)).collect()
}

/// Findings of a destination about a database with `pages` pages in the redo, the last of them before `scn`.
pub(super) fn assess(
    destination: &DestinationStatus,
    run: u64,
    name: &str,
    pages: u64,
    scn: Scn,
) -> DestinationResult {
    let found = destination.verified.of(name);
    let compared = found.filter(|found| found.run == run).map_or(0, |found| found.compared);
    let differing = found.map_or(0, |found| found.differing);
    let first = found.into_iter().flat_map(|found| &found.pages).map(differing_page).collect();
    let is_stopped =
        |at: &standfast_transport::StoppedDatabase| at.database == name || at.database == "(all)";
    let held_back = destination.delay.is_some_and(|delay| !delay.is_zero());
    let (outcome, why) = if destination.applied >= scn && differing > 0 {
        (Outcome::Differs, None)
    } else if destination.stopped.databases.iter().any(is_stopped) {
        (Outcome::NotCompared, Some("redo is not applied to it there".to_owned()))
    } else if destination.applied < scn && held_back {
        (Outcome::Later, Some("redo is applied there with a delay".to_owned()))
    } else if destination.applied < scn {
        let why = format!(
            "it has applied redo up to SCN {} of {scn}, and is {}",
            destination.applied, destination.phase
        );
        (Outcome::NotCompared, Some(why))
    } else if compared < pages {
        let why =
            format!("{compared} of {pages} pages were compared there; it may have been restarted meanwhile");
        (Outcome::NotCompared, Some(why))
    } else {
        (Outcome::Equal, None)
    };
    DestinationResult { name: destination.name.clone(), outcome, compared, differing, pages: first, why }
}

pub(crate) fn differing_page(of: &PageDifference) -> DifferingPage {
    DifferingPage {
        database: None,
        page: Some(of.page.into()),
        scn: Some(of.scn.0),
        expected: Some(of.expected.into()),
        found: of.found.map(u64::from),
    }
}

/// Returns the pages of a database to repair, and separately the pages that two standbys hold with the same different
/// content: there the page here is more likely the damaged one.
pub(super) fn pages_to_repair(
    destinations: &[DestinationStatus],
    name: &str,
) -> (BTreeSet<PageNo>, BTreeSet<PageNo>) {
    let (mut all, mut agreed, mut seen) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let found = destinations.iter().filter_map(|destination| destination.verified.of(name));
    for page in found.flat_map(|found| &found.pages) {
        all.insert(page.page);
        if page.found.is_some() && !seen.insert((page.page, page.found)) {
            agreed.insert(page.page);
        }
    }
    (&all - &agreed, agreed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_transport::{
        PageDifference, Standing, StoppedDatabase, TransportMode, VerifiedDatabase, VerifiedDatabases,
    };
    use std::time::Duration;

    fn difference(page: PageNo, found: u32) -> PageDifference {
        PageDifference { page, scn: Scn(90), expected: 1, found: Some(found) }
    }

    fn destination(applied: u64, found: VerifiedDatabase) -> DestinationStatus {
        DestinationStatus {
            name: "north".into(),
            address: "127.0.0.1:1".into(),
            mode: TransportMode::SyncAffirm,
            phase: "streaming",
            standing: Standing::Required,
            has_left: false,
            received: Scn(applied),
            hardened: Scn(applied),
            applied: Scn(applied),
            stopped: Default::default(),
            verified: VerifiedDatabases { differing: found.differing, databases: vec![found] },
            role: Some(Role::Standby),
            failures: 0,
            redo_bytes: 0,
            wire_bytes: 0,
            tcp_segments: 0,
            tcp_retransmitted: 0,
            disconnects: 0,
            timeouts: 0,
            round_trip_us: 0,
            network_round_trip_us: None,
            responses: Default::default(),
            log_write_us: None,
            delay: None,
            last_heard_us: None,
            last_error: None,
            gap: None,
        }
    }

    fn verified(run: u64, compared: u64, pages: Vec<PageDifference>) -> VerifiedDatabase {
        let differing = pages.len() as u64;
        VerifiedDatabase { database: "a.db".into(), run, compared, scn: Scn(90), differing, pages }
    }

    fn outcome(destination: &DestinationStatus) -> Outcome {
        assess(destination, 7, "a.db", 50, Scn(100)).outcome
    }

    #[test]
    fn copy_is_equal_only_if_the_run_compared_every_page() {
        assert_eq!(outcome(&destination(100, verified(7, 50, vec![]))), Outcome::Equal);
        assert_eq!(outcome(&destination(100, verified(7, 49, vec![]))), Outcome::NotCompared);
        assert_eq!(outcome(&destination(100, verified(6, 50, vec![]))), Outcome::NotCompared);
        assert_eq!(outcome(&destination(99, verified(7, 50, vec![]))), Outcome::NotCompared);
        assert_eq!(outcome(&destination(100, verified(7, 50, vec![difference(3, 9)]))), Outcome::Differs);
        let mut stopped = destination(100, verified(7, 50, vec![]));
        let why = StoppedDatabase { database: "a.db".into(), applied: None, reason: "why".into() };
        stopped.stopped.databases.push(why);
        assert_eq!(outcome(&stopped), Outcome::NotCompared);
        let late = DestinationStatus {
            delay: Some(Duration::from_secs(60)),
            ..destination(5, verified(7, 0, vec![]))
        };
        assert_eq!(outcome(&late), Outcome::Later);
    }

    #[test]
    fn page_on_which_two_standbys_agree_is_not_repaired() {
        let one = destination(100, verified(7, 50, vec![difference(3, 9), difference(4, 9)]));
        let other = destination(100, verified(7, 50, vec![difference(3, 8), difference(4, 9)]));
        let (repair, agreed) = pages_to_repair(&[one, other], "a.db");
        assert_eq!((repair, agreed), ([3].into(), [4].into()));
    }
}
