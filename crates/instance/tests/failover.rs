//! A failover of a standby that loses power at every sync boundary of it, on a simulated machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use standfast_environment::state::control::Role;
use standfast_instance::role::failover::take_over;
use standfast_simulation::Outcome;
use standfast_simulation::primary::PrimaryHost;
use standfast_simulation::rig::{Pair, rows_of_copy};
use standfast_simulation::site::SegmentFile;
use standfast_simulation::standby::{StandbyHost, role};
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine};
use standfast_transport::StandbyLog;
use std::sync::Arc;

const APPLIED: u32 = 1;
const CONFIRMED: u32 = 3;
const RECEIVED: u32 = 6;

/// Opens the standby on `machine`, with received redo that is partly confirmed. Of the confirmed redo the first commits
/// are applied, so that recovery builds on pages of the database, not only on redo of complete pages.
fn standby(pair: &Pair, machine: &Arc<SimMachine>, segment: &SegmentFile) -> StandbyHost {
    let standby = pair.open_on(machine, segment);
    for (row, end) in (1..).zip(&pair.ends) {
        let mut log = standby.log();
        pair.send(&mut log, *end).unwrap();
        if [APPLIED, CONFIRMED].contains(&row) {
            log.confirm(*end).unwrap();
        }
        drop(log);
        if row == APPLIED {
            standby.apply().unwrap();
            standby.sync().unwrap();
        }
    }
    standby
}

fn take_over_as_primary(machine: &Arc<SimMachine>, standby: StandbyHost) -> Outcome<PrimaryHost> {
    let (environment, applier, received) = standby.into_parts()?;
    let done =
        take_over(&environment, applier, &received, false, false).map_err(|error| error.to_string())?;
    let host = PrimaryHost::open_in(machine, environment);
    drop(done.keepers);
    host
}

#[test]
fn failover_repeats_after_power_loss_and_keeps_unconfirmed_redo() {
    let pair = Pair::new(RECEIVED as usize);
    let again = |machine: &Arc<SimMachine>, segment: &SegmentFile| {
        if role(machine)? == Role::Primary {
            return PrimaryHost::open(machine, &pair.geometry, segment);
        }
        take_over_as_primary(machine, StandbyHost::open(machine, &pair.geometry, segment)?)
    };
    for place in CrashPlace::ALL {
        for loss in [Loss::DropUnsynced, Loss::KeepUnsynced, Loss::Random] {
            let mut boundary = 0;
            loop {
                boundary += 1;
                let at = format!("boundary {boundary}, {place:?}, {loss:?}");
                let (machine, segment) = (pair.machine.copy(boundary), SegmentFile::unique());
                let standby = standby(&pair, &machine, &segment);
                machine.crash_at(boundary, place);
                let done = take_over_as_primary(&machine, standby);
                let finished = machine.is_powered();
                if !finished {
                    drop(done);
                    machine.power_loss(loss, &mut Rng::new(boundary));
                    segment.lose();
                    drop(again(&machine, &segment).unwrap_or_else(|error| panic!("{at}: {error}")));
                }
                assert_eq!(rows_of_copy(&machine), RECEIVED, "{at}");
                if finished {
                    break;
                }
            }
            assert!(boundary > 10, "a failover passes more than {boundary} boundaries");
        }
    }
}
