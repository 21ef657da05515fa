//! What a standby hardens, applies, forwards and archives of received redo, on a simulated machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use standfast_format::LogFileHeader;
use standfast_io::Disk;
use standfast_log::ArchivedLog;
use standfast_primary::commit::primary::NoShipping;
use standfast_simulation::primary::PrimaryHost;
use standfast_simulation::rig::{commit, next_redo, rows, small_primary};
use standfast_simulation::site::{Geometry, SegmentFile, paths};
use standfast_simulation::standby::{StandbyHost, create};
use standfast_standby::forwarding::Forwarding;
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine};
use standfast_transport::{ArchivedLogInfo, Gap, LogSwitch, RedoSource, StageError, StandbyLog};
use standfast_types::{DatabaseId, Scn};
use std::path::PathBuf;
use std::sync::Arc;

const CONFIRMED: usize = 3;
const RECEIVED: usize = 6;

/// A primary with commits, and a standby created before them.
struct Rig {
    primary: PrimaryHost,
    machine: Arc<SimMachine>,
    geometry: Geometry,
    /// SCN at the end of each commit.
    ends: Vec<Scn>,
    _segment: SegmentFile,
}

impl Rig {
    fn new() -> Rig {
        let (primary_machine, geometry, segment, mut primary) = small_primary();
        primary.shared.ship_through(Arc::new(NoShipping));
        let machine = SimMachine::new(2);
        create(&machine, &geometry, &primary, 2).unwrap();
        let mut commit = || {
            commit(&primary_machine, &primary, DatabaseId(1));
            primary.drain().unwrap();
            primary.source.durable()
        };
        let ends = (0..RECEIVED).map(|_| commit()).collect();
        Rig { primary, machine, geometry, ends, _segment: segment }
    }

    fn open(&self, machine: &Arc<SimMachine>, segment: &SegmentFile) -> StandbyHost {
        StandbyHost::open(machine, &self.geometry, segment).unwrap()
    }

    /// Hands the standby all redo; the primary reports the first commits as confirmed.
    fn receive(&self, standby: &StandbyHost) -> Result<(), StageError> {
        let mut log = standby.log();
        for (row, end) in (1..).zip(&self.ends) {
            while log.received_end() < *end {
                let redo = next_redo(&self.primary.source, log.received_end(), *end, 1 << 20)?;
                let confirmed = log.confirmed();
                log.append(&[&redo], confirmed)?;
            }
            if row == CONFIRMED {
                log.confirm(*end)?;
            }
        }
        Ok(())
    }
}

fn copy() -> PathBuf {
    paths().databases.join("d1.db")
}

fn apply_all(standby: &StandbyHost) {
    while standby.apply().unwrap() {}
}

#[test]
fn redo_is_applied_only_as_far_as_the_primary_has_confirmed_it() {
    let (rig, segment) = (Rig::new(), SegmentFile::unique());
    let standby = rig.open(&rig.machine, &segment);
    rig.receive(&standby).unwrap();
    apply_all(&standby);
    assert_eq!(rows(&rig.machine, &copy()), CONFIRMED as u32);
    assert_eq!(standby.log().applied(), rig.ends[CONFIRMED - 1]);
    standby.log().confirm(rig.ends[RECEIVED - 1]).unwrap();
    apply_all(&standby);
    assert_eq!(rows(&rig.machine, &copy()), RECEIVED as u32);
}

#[test]
fn acknowledged_redo_survives_power_loss_at_every_boundary() {
    let rig = Rig::new();
    for place in CrashPlace::ALL {
        let mut boundary = 0;
        loop {
            boundary += 1;
            let at = format!("boundary {boundary}, {place:?}");
            let (machine, segment) = (rig.machine.copy(boundary), SegmentFile::unique());
            let standby = rig.open(&machine, &segment);
            machine.crash_at(boundary, place);
            let received = rig.receive(&standby);
            // What is reported to a sender after each append.
            let acknowledged = standby.log().shared().hardened();
            let is_finished = received.is_ok() && machine.is_powered();
            drop(standby);
            machine.power_loss(Loss::DropUnsynced, &mut Rng::new(boundary));
            segment.lose();
            let standby = rig.open(&machine, &segment);
            let held = standby.log().received_end();
            assert!(held >= acknowledged, "{at}: {held} of {acknowledged}");
            if is_finished {
                assert_eq!(acknowledged, rig.ends[RECEIVED - 1], "{at}");
                break;
            }
        }
        assert!(boundary > 5, "receiving passes more than {boundary} boundaries");
    }
}

#[test]
fn withdrawn_redo_is_cut_and_confirmed_redo_never() {
    let (rig, segment) = (Rig::new(), SegmentFile::unique());
    let standby = rig.open(&rig.machine, &segment);
    rig.receive(&standby).unwrap();
    let mut log = standby.log();
    log.cut(rig.ends[RECEIVED - 2]).unwrap();
    assert_eq!(log.received_end(), rig.ends[RECEIVED - 2]);
    assert!(log.cut(rig.ends[0]).is_err());
    assert_eq!(log.received_end(), rig.ends[RECEIVED - 2]);
}

#[test]
fn redo_is_forwarded_with_the_limits_that_the_primary_has_set() {
    let (rig, segment) = (Rig::new(), SegmentFile::unique());
    let standby = rig.open(&rig.machine, &segment);
    rig.receive(&standby).unwrap();
    let shared = standby.log().shared().clone();
    let superseded = Arc::new(|_: &_, _: &_| panic!("no peer"));
    let forwarding = Forwarding::start(&standby.environment, &shared, &[], superseded).unwrap();
    let source = forwarding.source();
    assert_eq!(source.captured(), rig.ends[RECEIVED - 1], "what is hardened here");
    assert_eq!(source.durable(), rig.ends[CONFIRMED - 1], "what the primary has confirmed");
    let epoch = source.epoch();
    standby.log().cut(rig.ends[CONFIRMED]).unwrap();
    assert_eq!(source.captured(), rig.ends[CONFIRMED]);
    assert!(source.epoch() > epoch && source.epoch().is_multiple_of(2), "streams begin again");
}

#[test]
fn group_is_archived_only_with_confirmed_redo() {
    let (mut rig, segment) = (Rig::new(), SegmentFile::unique());
    let standby = rig.open(&rig.machine, &segment);
    rig.receive(&standby).unwrap();
    rig.primary.switch_log().unwrap();
    let switch = *rig.primary.source.switches(rig.ends[RECEIVED - 2], Scn(u64::MAX)).last().unwrap();
    let mut log = standby.log();
    let rest = next_redo(&rig.primary.source, log.received_end(), switch.first_scn, 1 << 20).unwrap();
    let confirmed = log.confirmed();
    if !rest.is_empty() {
        log.append(&[&rest], confirmed).unwrap();
    }
    log.switch(&switch).unwrap();
    let redo = log.shared().log.clone();
    drop(log);
    standby.archive().unwrap();
    assert!(redo.archived().is_empty(), "the primary may still withdraw what is in it");
    standby.log().confirm(switch.first_scn).unwrap();
    standby.archive().unwrap();
    assert_eq!(redo.archived().len(), 1);
}

/// The group that holds the confirmed position is filled again beyond a gap, and the gap is given up at the next start:
/// what remains is the log that was begun before the gap, without redo.
#[test]
fn start_finds_what_was_confirmed_when_its_group_is_filled_again() {
    let (rig, segment) = (Rig::new(), SegmentFile::unique());
    let standby = rig.open(&rig.machine, &segment);
    rig.receive(&standby).unwrap();
    let end = rig.ends[RECEIVED - 1];
    standby.log().confirm(end).unwrap();
    let held = standby.log().log_containing(end).unwrap();
    let identity = standby.log().writer().identity();
    let log = |number: u64| LogSwitch {
        sequence: held.sequence + number,
        first_scn: end + 100 * (number - 1),
        ..held
    };
    let missing = ArchivedLogInfo {
        sequence: held.sequence + 1,
        incarnation: identity.incarnation,
        incarnation_id: identity.incarnation_id,
        first_scn: end,
        next_scn: end + 100,
        crc: 0,
        bytes: 8192,
    };
    let gap = Gap {
        from: end,
        to: end + 100,
        crc: 0,
        logs: vec![missing],
        unit_bytes: 1 << 20,
        per_log: 1,
        connections: 1,
    };
    standby.log().open_gap(&gap, &log(2)).unwrap();
    // As many logs as there are groups.
    for number in 3..6 {
        standby.log().append(&[&[0; 100]], end + 100).unwrap();
        standby.log().confirm(end + 100 * (number - 1)).unwrap();
        standby.log().switch(&log(number)).unwrap();
        standby.archive().unwrap();
    }
    drop(standby);
    rig.machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
    segment.lose();
    let standby = rig.open(&rig.machine, &segment);
    let log = standby.log();
    let found = (log.shared().confirmed(), log.received_end());
    assert_eq!(found, (end, end));
}

#[test]
fn disk_failing_while_archived_logs_are_taken_over_leaves_nothing_confirmed_that_is_not_held() {
    let mut rig = Rig::new();
    rig.primary.switch_log().unwrap();
    rig.primary.archive().unwrap();
    let archived = rig.primary.source.redo_log().archived();
    let end = archived.last().unwrap().header.next_scn.unwrap();
    for boundary in 1.. {
        let (machine, segment) = (rig.machine.copy(boundary), SegmentFile::unique());
        let standby = rig.open(&machine, &segment);
        let shared = standby.log().shared().clone();
        for log in &archived {
            let LogFileHeader { incarnation, incarnation_id, sequence, .. } = log.header;
            let path = shared.log.archive_path(incarnation, incarnation_id, sequence);
            machine.disk().replace(&path, &rig.primary.machine.disk().read(&log.path).unwrap()).unwrap();
            shared.log.add_archived(ArchivedLog { path, ..log.clone() });
        }
        machine.fail_at(boundary);
        let taken_over = standby.log().lead_on();
        let (confirmed, held) = (shared.confirmed(), shared.hardened());
        assert!(confirmed <= held, "boundary {boundary}: {confirmed} is confirmed and {held} held");
        if taken_over.is_ok() {
            assert_eq!((confirmed, held), (end, end));
            assert!(boundary > 3, "only {boundary} boundaries");
            // The databases may hold all of it: a start must not find less confirmed.
            drop((shared, standby));
            machine.power_loss(Loss::DropUnsynced, &mut Rng::new(boundary));
            segment.lose();
            let standby = rig.open(&machine, &segment);
            assert_eq!(standby.log().shared().confirmed(), end);
            break;
        }
    }
}
