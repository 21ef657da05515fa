//! Events that transport reports to the alert log. Their text is for operators: the event, its cause and, where action
//! is needed, the remedy.

use crate::error::{Refusal, RefuseCode};
use crate::gap::{GapStatus, GivenUp};
use crate::identity::Incarnation;
use crate::stopped::{StoppedDatabase, StoppedDatabases};
use crate::verified::{PageDifference, VerifiedDatabase, VerifiedDatabases};
use standfast_types::Scn;
use std::fmt;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    Connected {
        from: Scn,
        /// End of the redo that the standby holds, if the stream starts over before it. The standby may hold redo that
        /// a crash of this primary has lost, and compares.
        held_end: Option<Scn>,
    },
    /// The next redo is no longer in the log buffer.
    CatchingUp {
        /// First position read from the logs.
        from: Scn,
    },
    /// The destination is fed from the log buffer again.
    FromBuffer {
        /// First position read from the log buffer.
        from: Scn,
    },
    /// The standby lacks whole archived logs: they are sent over separate connections, and the stream continues beyond
    /// them.
    GapFound(GapStatus),
    /// The standby has all logs of the gap.
    GapResolved {
        /// The gap as it was found.
        gap: GapStatus,
        took: Duration,
    },
    /// An archived log that the standby lacks cannot be sent; its redo comes over the stream.
    ArchiveUnusable {
        sequence: u64,
        reason: String,
    },
    /// The connection is lost; a new attempt follows.
    Disconnected {
        reason: String,
    },
    /// Commits no longer wait for this destination.
    Degraded {
        reason: String,
        /// Newest position acknowledged by it.
        acknowledged: Scn,
        captured: Scn,
    },
    /// Commits have waited for this destination longer than the net timeout and, as configured, keep waiting.
    Stalled {
        /// Newest position acknowledged by it.
        acknowledged: Scn,
        captured: Scn,
        /// How long the oldest commit has waited.
        waited: Duration,
    },
    StallEnded {
        /// Newest position acknowledged by it.
        acknowledged: Scn,
    },
    /// The destination has caught up for the first time: commits wait for it from now on, also after a restart.
    Synchronised {
        /// Newest position acknowledged by it.
        acknowledged: Scn,
    },
    /// The destination has caught up: commits wait for it again.
    Resynchronised {
        /// Newest position acknowledged by it.
        acknowledged: Scn,
    },
    /// Redo is not applied to a database of the standby.
    ApplyStopped(StoppedDatabase),
    /// Redo is applied to the database again, or the database no longer exists.
    ApplyResumes {
        database: String,
    },
    /// Verification has found pages of the standby that differ from this instance's.
    PagesDiffer {
        database: String,
        /// Number of differing pages.
        pages: u64,
        first: PageDifference,
    },
    /// No page of the database differs any more: the pages agree again or were replaced.
    PagesAgree {
        database: String,
    },
    Refused(Refusal),
    /// The standby takes redo of a newer incarnation. This instance must accept no more commits.
    Fenced {
        incarnation: Incarnation,
        /// `db_unique_name` of the peer that knows it.
        peer: String,
    },
    /// `max_failure` consecutive attempts have failed; no further attempt follows.
    GaveUp {
        /// Number of attempts.
        failures: u32,
    },
}

impl SenderEvent {
    /// Returns the events when the stopped databases `now` replace `before`.
    pub(crate) fn of_stopped(now: &StoppedDatabases, before: &StoppedDatabases) -> Vec<SenderEvent> {
        let mut changes: Vec<_> =
            now.without(before).map(|stopped| SenderEvent::ApplyStopped(stopped.clone())).collect();
        // A database that is not listed may be among those that are only counted.
        if now.is_complete() {
            let gone = before.without(now);
            changes.extend(gone.map(|at| SenderEvent::ApplyResumes { database: at.database.clone() }));
        }
        changes
    }

    /// Returns the events when the verification results `now` replace `before`: databases in which more pages differ,
    /// and databases in which no page differs any more.
    pub(crate) fn of_verified(now: &VerifiedDatabases, before: &VerifiedDatabases) -> Vec<SenderEvent> {
        let differing = |of: &VerifiedDatabases, name: &str| of.of(name).map_or(0, |at| at.differing);
        let mut changes = Vec::new();
        for at in &now.databases {
            let known = differing(before, &at.database);
            match at.pages.first() {
                Some(first) if at.differing > known => changes.push(SenderEvent::PagesDiffer {
                    database: at.database.clone(),
                    pages: at.differing,
                    first: *first,
                }),
                None if known > 0 => changes.push(SenderEvent::PagesAgree { database: at.database.clone() }),
                _ => {}
            }
        }
        let gone = |at: &&VerifiedDatabase| at.differing > 0 && now.of(&at.database).is_none();
        let gone = before.databases.iter().filter(gone).filter(|_| now.differing == 0);
        changes.extend(gone.map(|at| SenderEvent::PagesAgree { database: at.database.clone() }));
        changes
    }
}

fn gap_text(gap: &GapStatus) -> String {
    let GapStatus { low_sequence, high_sequence, from, to, bytes, bytes_left, connections } = gap;
    format!(
        "logs {low_sequence} to {high_sequence} are missing ({from}..{to}): {bytes_left} of {bytes} bytes over \
         {connections} connections; the stream continues at {to}"
    )
}

fn resolved_text(gap: &GapStatus, took: Duration) -> String {
    let GapStatus { low_sequence, high_sequence, to, bytes_left, .. } = gap;
    format!(
        "logs {low_sequence} to {high_sequence} up to {to}, {bytes_left} bytes transferred in {:.1} s",
        took.as_secs_f64()
    )
}

impl fmt::Display for SenderEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SenderEvent::*;
        match self {
            Connected { from, held_end: None } => write!(f, "connected: sending from {from}"),
            Connected { from, held_end: Some(end) } => write!(
                f,
                "connected: sending from {from} again; the standby holds redo up to {end} and drops what differs"
            ),
            CatchingUp { from } => write!(f, "catching up from the logs at {from}"),
            FromBuffer { from } => write!(f, "sending from the log buffer at {from}"),
            GapFound(gap) => write!(f, "GAP: {}", gap_text(gap)),
            GapResolved { gap, took } => write!(f, "gap resolved: {}", resolved_text(gap, *took)),
            ArchiveUnusable { sequence, reason } => {
                write!(f, "the archived log {sequence} cannot be sent: {reason}")
            }
            Disconnected { reason } => write!(f, "disconnected: {reason}"),
            Degraded { reason, acknowledged, captured } => write!(
                f,
                "DEGRADED to asynchronous: {reason}; commits no longer wait for this destination ({acknowledged} of \
                 {captured} acknowledged) until it has caught up"
            ),
            Stalled { acknowledged, captured, waited } => write!(
                f,
                "STALLED: commits have waited {:.1} s for this destination ({acknowledged} of {captured} \
                 acknowledged); bring it back, or let them continue without it: on_timeout = \"degrade\", out of maximum \
                 protection another mode",
                waited.as_secs_f64()
            ),
            StallEnded { acknowledged } => write!(f, "stall ended: {acknowledged} acknowledged"),
            Synchronised { acknowledged } => {
                write!(f, "synchronised at {acknowledged}: commits wait for this destination from now on")
            }
            Resynchronised { acknowledged } => {
                write!(f, "resynchronised at {acknowledged}: commits wait for this destination again")
            }
            ApplyStopped(StoppedDatabase { database, applied, reason }) => {
                let applied = applied.map_or("an unknown SCN".into(), |scn| format!("SCN {scn}"));
                write!(f, "NOT APPLIED to database {database} there since {applied}: {reason}")
            }
            ApplyResumes { database } => write!(f, "redo is applied to database {database} there again"),
            PagesDiffer { database, pages, first } => write!(
                f,
                "DIFFERS: {pages} pages of database {database} there are not what they are here, page {} as of SCN {} \
                 the first; a failover would serve them. Run `standfast verify {database} --repair`",
                first.page, first.scn
            ),
            PagesAgree { database } => {
                write!(f, "the pages of database {database} that differed there are what they are here again")
            }
            Refused(refusal) => write!(f, "refused: {refusal}"),
            Fenced { incarnation, peer } => write!(
                f,
                "FENCED: `{peer}` follows incarnation {}, which left this stream at {}; another instance is primary \
                 now. No commit is accepted here; stop this instance and run `standfast reinstate`, which makes it a standby of \
                 the new primary",
                incarnation.number, incarnation.branch
            ),
            GaveUp { failures } => {
                write!(
                    f,
                    "gave up: attempts failed in a row: {failures} (max_failure); enable the destination again"
                )
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    Connected {
        primary: String,
        from: Scn,
    },
    /// Redo was dropped that the primary never made durable or that belongs to an abandoned branch. None of it was
    /// applied.
    Cut {
        at: Scn,
        /// End of the redo held before.
        end: Scn,
    },
    /// Whole logs are missing: they are fetched over separate connections.
    GapFound(GapStatus),
    /// All logs of the gap have arrived.
    GapResolved {
        /// The gap as it was found.
        gap: GapStatus,
        took: Duration,
    },
    /// The stream ended before a gap was filled; the redo beyond the gap was dropped and will be sent again.
    GapGivenUp(GivenUp),
    Ended {
        primary: String,
        received: Scn,
        reason: String,
    },
    /// A peer knows a newer incarnation than this instance: nothing of an older one is acknowledged any more.
    Superseded {
        peer: String,
        incarnation: Incarnation,
    },
    Refused {
        /// Address or name of the peer.
        peer: String,
        refusal: Refusal,
    },
    /// Refusals that are not reported one by one, because their budget in the alert log is used up.
    Suppressed {
        count: u64,
    },
    /// A copy of databases begins, for a standby that is created or reinstated.
    SnapshotStarted {
        standby: String,
    },
    /// That copy is complete.
    SnapshotDone {
        standby: String,
        start: Scn,
    },
}

impl ReceiverEvent {
    /// The code if the event is a refusal.
    pub fn refused(&self) -> Option<RefuseCode> {
        match self {
            ReceiverEvent::Refused { refusal, .. } => Some(refusal.code),
            _ => None,
        }
    }
}

impl fmt::Display for ReceiverEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ReceiverEvent::*;
        match self {
            Connected { primary, from } => write!(f, "receiving from `{primary}` at {from}"),
            Cut { at, end } => write!(f, "dropped redo {at}..{end}, which the primary never made durable"),
            GapFound(gap) => write!(f, "GAP: {}", gap_text(gap)),
            GapResolved { gap, took } => write!(f, "gap resolved: {}", resolved_text(gap, *took)),
            GapGivenUp(GivenUp { end, to, received }) => write!(
                f,
                "the gap {end}..{to} is not filled: redo {to}..{received}, received beyond it, is dropped and has to be \
                 sent again; none of it was acknowledged"
            ),
            Ended { primary, received, reason } => {
                write!(f, "stream from `{primary}` ended at {received}: {reason}")
            }
            Superseded { peer, incarnation } => write!(
                f,
                "`{peer}` follows incarnation {}, which left this stream at {}: nothing of an older one is acknowledged here, \
                 and the old primary is told so when it connects",
                incarnation.number, incarnation.branch
            ),
            Refused { peer, refusal } => write!(f, "refused {peer}: {refusal}"),
            Suppressed { count } => write!(
                f,
                "further refusals are omitted from this log: {count} within the hour; a host tries the port often, see \
                 docs/security.md, \"Limits\""
            ),
            SnapshotStarted { standby } => write!(f, "copying databases for `{standby}`"),
            SnapshotDone { standby, start } => {
                write!(f, "`{standby}` has its copy; its redo begins at {start}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(differing: u64) -> VerifiedDatabases {
        let page = |page| PageDifference { page, scn: Scn(900), expected: 1, found: Some(2) };
        let database = VerifiedDatabase {
            database: "a.db".into(),
            differing,
            pages: (1..).take(differing as usize).map(page).collect(),
            ..VerifiedDatabase::default()
        };
        VerifiedDatabases { differing, databases: vec![database] }
    }

    #[test]
    fn a_difference_is_reported_once_and_its_end_once() {
        let none = VerifiedDatabases::default();
        let events = SenderEvent::of_verified;
        assert_eq!(events(&verified(0), &none), []);
        assert!(matches!(
            events(&verified(2), &verified(0))[..],
            [SenderEvent::PagesDiffer { pages: 2, .. }]
        ));
        assert_eq!(events(&verified(2), &verified(2)), []);
        assert_eq!(events(&verified(1), &verified(2)), []);
        assert!(matches!(events(&verified(0), &verified(1))[..], [SenderEvent::PagesAgree { .. }]));
        assert!(matches!(events(&none, &verified(1))[..], [SenderEvent::PagesAgree { .. }]));
    }
}
