//! What a standby hardens, applies, forwards and archives of received redo, on a simulated machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use standfast_format::LogFileHeader;
use standfast_io::Disk;
use standfast_log::ArchivedLog;
use standfast_simulation::rig::Pair;
use standfast_simulation::site::SegmentFile;
use standfast_simulation::standby::StandbyHost;
use standfast_standby::forwarding::Forwarding;
use standfast_testkit::{CrashPlace, Loss, Rng};
use standfast_transport::{ArchivedLogInfo, Gap, LogSwitch, RedoSource, StageError, StandbyLog};
use standfast_types::Scn;
use std::sync::Arc;

const CONFIRMED: usize = 3;
const RECEIVED: usize = 6;

/// Hands the standby all redo; the primary reports the first commits as confirmed.
fn receive(pair: &Pair, standby: &StandbyHost) -> Result<(), StageError> {
    let mut log = standby.log();
    for (row, end) in (1..).zip(&pair.ends) {
        pair.send(&mut log, *end)?;
        if row == CONFIRMED {
            log.confirm(*end)?;
        }
    }
    Ok(())
}

#[test]
fn redo_is_applied_only_as_far_as_the_primary_has_confirmed_it() {
    let pair = Pair::new(RECEIVED);
    let standby = pair.open();
    receive(&pair, &standby).unwrap();
    assert_eq!(pair.applied_rows(&standby), CONFIRMED as u32);
    assert_eq!(standby.log().applied(), pair.ends[CONFIRMED - 1]);
    standby.log().confirm(pair.ends[RECEIVED - 1]).unwrap();
    assert_eq!(pair.applied_rows(&standby), RECEIVED as u32);
}

#[test]
fn acknowledged_redo_survives_power_loss_at_every_boundary() {
    let pair = Pair::new(RECEIVED);
    for place in CrashPlace::ALL {
        let mut boundary = 0;
        loop {
            boundary += 1;
            let at = format!("boundary {boundary}, {place:?}");
            let (machine, segment) = (pair.machine.copy(boundary), SegmentFile::unique());
            let standby = pair.open_on(&machine, &segment);
            machine.crash_at(boundary, place);
            let received = receive(&pair, &standby);
            // What is reported to a sender after each append.
            let acknowledged = standby.log().shared().hardened();
            let is_finished = received.is_ok() && machine.is_powered();
            drop(standby);
            machine.power_loss(Loss::DropUnsynced, &mut Rng::new(boundary));
            segment.lose();
            let standby = pair.open_on(&machine, &segment);
            let held = standby.log().received_end();
            assert!(held >= acknowledged, "{at}: {held} of {acknowledged}");
            if is_finished {
                assert_eq!(acknowledged, pair.ends[RECEIVED - 1], "{at}");
                break;
            }
        }
        assert!(boundary > 5, "receiving passes more than {boundary} boundaries");
    }
}

#[test]
fn withdrawn_redo_is_cut_and_confirmed_redo_never() {
    let pair = Pair::new(RECEIVED);
    let standby = pair.open();
    receive(&pair, &standby).unwrap();
    let mut log = standby.log();
    log.cut(pair.ends[RECEIVED - 2]).unwrap();
    assert_eq!(log.received_end(), pair.ends[RECEIVED - 2]);
    assert!(log.cut(pair.ends[0]).is_err());
    assert_eq!(log.received_end(), pair.ends[RECEIVED - 2]);
}

#[test]
fn redo_is_forwarded_with_the_limits_that_the_primary_has_set() {
    let pair = Pair::new(RECEIVED);
    let standby = pair.open();
    receive(&pair, &standby).unwrap();
    let shared = standby.log().shared().clone();
    let superseded = Arc::new(|_: &_, _: &_| panic!("no peer"));
    let forwarding = Forwarding::start(&standby.environment, &shared, &[], superseded).unwrap();
    let source = forwarding.source();
    assert_eq!(source.captured(), pair.ends[RECEIVED - 1], "what is hardened here");
    assert_eq!(source.durable(), pair.ends[CONFIRMED - 1], "what the primary has confirmed");
    let epoch = source.epoch();
    standby.log().cut(pair.ends[CONFIRMED]).unwrap();
    assert_eq!(source.captured(), pair.ends[CONFIRMED]);
    assert!(source.epoch() > epoch && source.epoch().is_multiple_of(2), "streams begin again");
}

#[test]
fn group_is_archived_only_with_confirmed_redo() {
    let mut pair = Pair::new(RECEIVED);
    let standby = pair.open();
    receive(&pair, &standby).unwrap();
    pair.primary.switch_log().unwrap();
    let switch = *pair.primary.source.switches(pair.ends[RECEIVED - 2], Scn(u64::MAX)).last().unwrap();
    let mut log = standby.log();
    pair.send(&mut log, switch.first_scn).unwrap();
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
    let pair = Pair::new(RECEIVED);
    let standby = pair.open();
    receive(&pair, &standby).unwrap();
    let end = pair.ends[RECEIVED - 1];
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
    let standby = pair.lose_power_and_open(standby);
    let log = standby.log();
    let found = (log.shared().confirmed(), log.received_end());
    assert_eq!(found, (end, end));
}

#[test]
fn disk_failing_while_archived_logs_are_taken_over_leaves_nothing_confirmed_that_is_not_held() {
    let mut pair = Pair::new(RECEIVED);
    pair.primary.switch_log().unwrap();
    pair.primary.archive().unwrap();
    let archived = pair.primary.source.redo_log().archived();
    let end = archived.last().unwrap().header.next_scn.unwrap();
    for boundary in 1.. {
        let (machine, segment) = (pair.machine.copy(boundary), SegmentFile::unique());
        let standby = pair.open_on(&machine, &segment);
        let shared = standby.log().shared().clone();
        for log in &archived {
            let LogFileHeader { incarnation, incarnation_id, sequence, .. } = log.header;
            let path = shared.log.archive_path(incarnation, incarnation_id, sequence);
            machine.disk().replace(&path, &pair.primary.machine.disk().read(&log.path).unwrap()).unwrap();
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
            let standby = pair.open_on(&machine, &segment);
            assert_eq!(standby.log().shared().confirmed(), end);
            break;
        }
    }
}
