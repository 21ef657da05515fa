//! A failover of a standby that loses power at every sync boundary of it, on a simulated machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use standfast_environment::state::control::Role;
use standfast_instance::role::failover::take_over;
use standfast_primary::commit::primary::NoShipping;
use standfast_simulation::Outcome;
use standfast_simulation::primary::PrimaryHost;
use standfast_simulation::rig::{commit, next_redo, rows, small_primary};
use standfast_simulation::site::{Geometry, SegmentFile, paths};
use standfast_simulation::standby::{StandbyHost, create, role};
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine};
use standfast_transport::{RedoSource, StandbyLog};
use standfast_types::{DatabaseId, Scn};
use std::path::PathBuf;
use std::sync::Arc;

const APPLIED: u32 = 1;
const CONFIRMED: u32 = 3;
const RECEIVED: u32 = 6;

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

    /// Opens the standby on `machine`, with received redo that is partly confirmed. Of the confirmed redo the first
    /// commits are applied, so that recovery builds on pages of the database, not only on redo of complete pages.
    fn standby(&self, machine: &Arc<SimMachine>, segment: &SegmentFile) -> StandbyHost {
        let standby = StandbyHost::open(machine, &self.geometry, segment).unwrap();
        for (row, end) in (1..).zip(&self.ends) {
            let mut log = standby.log();
            while log.received_end() < *end {
                let redo = next_redo(&self.primary.source, log.received_end(), *end, 1 << 20).unwrap();
                let confirmed = log.confirmed();
                log.append(&[&redo], confirmed).unwrap();
            }
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
}

fn copy_of_the_database() -> PathBuf {
    paths().databases.join("d1.db")
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
    let rig = Rig::new();
    let again = |machine: &Arc<SimMachine>, segment: &SegmentFile| {
        if role(machine)? == Role::Primary {
            return PrimaryHost::open(machine, &rig.geometry, segment);
        }
        take_over_as_primary(machine, StandbyHost::open(machine, &rig.geometry, segment)?)
    };
    for place in CrashPlace::ALL {
        for loss in [Loss::DropUnsynced, Loss::KeepUnsynced, Loss::Random] {
            let mut boundary = 0;
            loop {
                boundary += 1;
                let at = format!("boundary {boundary}, {place:?}, {loss:?}");
                let (machine, segment) = (rig.machine.copy(boundary), SegmentFile::unique());
                let standby = rig.standby(&machine, &segment);
                machine.crash_at(boundary, place);
                let done = take_over_as_primary(&machine, standby);
                let finished = machine.is_powered();
                if !finished {
                    drop(done);
                    machine.power_loss(loss, &mut Rng::new(boundary));
                    segment.lose();
                    drop(again(&machine, &segment).unwrap_or_else(|error| panic!("{at}: {error}")));
                }
                assert_eq!(rows(&machine, &copy_of_the_database()), RECEIVED, "{at}");
                if finished {
                    break;
                }
            }
            assert!(boundary > 10, "a failover passes more than {boundary} boundaries");
        }
    }
}
