//! Histories: random ones with random power losses, and fixed ones with a power loss at every sync boundary.

use super::crash::{Fate, arm, draw_loss};
use super::report::PowerReport;
use super::world::World;
use standfast_simulation::Outcome;
use standfast_testkit::{CrashPlace, Loss, Rng, SqliteSeed};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A rule that is broken on purpose, to show that the campaign finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    Nothing,
    /// The primary's disk reports syncs as done without doing them.
    PrimaryLies,
    /// The standby's disk reports syncs as done without doing them.
    StandbyLies,
}

const HARSH: Fate = Fate { loss: None, harsh: true };

/// Runs the random history of `seed`.
pub fn run_seed(seed: u64, sabotage: Sabotage) -> PowerReport {
    let mut report = guarded(seed, || random_history(seed, sabotage));
    report.seeds = 1;
    for note in &mut report.notes {
        *note = format!("seed {seed}: {note}");
    }
    if !report.passed() {
        report.failed_seeds.push(seed);
    }
    report
}

/// Runs a history; a panic in a stage is a finding as well.
fn guarded(seed: u64, history: impl FnOnce() -> PowerReport) -> PowerReport {
    let _sqlite = SqliteSeed::hold(seed as u32 | 1);
    catch_unwind(AssertUnwindSafe(history)).unwrap_or_else(|panic| {
        let printed = panic.downcast_ref::<String>().cloned();
        let printed = printed.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let mut report = PowerReport { seed, ..PowerReport::default() };
        report.fail(format!("panic: {}", printed.unwrap_or_default()));
        report
    })
}

fn could_not_begin(seed: u64, error: String) -> PowerReport {
    let mut report = PowerReport { seed, ..PowerReport::default() };
    report.fail(error);
    report
}

fn random_history(seed: u64, sabotage: Sabotage) -> PowerReport {
    let mut world = match World::new(seed) {
        Ok(world) => world,
        Err(error) => return could_not_begin(seed, error),
    };
    world.primary_machine.set_lying(sabotage == Sabotage::PrimaryLies);
    if let Some(machine) = &world.standby_machine {
        machine.set_lying(sabotage == Sabotage::StandbyLies);
    }
    let lives = world.rng.between(2, 6);
    for _ in 0..lives {
        if live(&mut world).is_err() {
            return world.report.clone();
        }
    }
    let _ = finish(&mut world, HARSH);
    finished(world)
}

/// Runs events, and the recovery after a power loss.
fn live(world: &mut World) -> Result<(), ()> {
    let events = world.rng.between(10, 150);
    let mut rng = world.rng.fork();
    if rng.chance(70) {
        arm(&world.primary_machine, &mut rng, 60);
    }
    if let Some(machine) = world.standby_machine.as_ref().filter(|_| rng.chance(50)) {
        arm(machine, &mut rng, 60);
    }
    let breaks = (world.geometry.members() > 1 && rng.chance(35)).then(|| rng.below(events));
    for nth in 0..events {
        if breaks == Some(nth) {
            world.break_member(&mut rng);
        }
        let event = match rng.below(100) {
            0 | 1 => world.change_groups(&mut rng),
            2 => world.bring_members_back(),
            _ => world.event(),
        };
        world.settle(event, HARSH)?;
    }
    if rng.chance(60) {
        // Also between two sync boundaries.
        let standby = world.standby_machine.clone().filter(|_| rng.chance(30));
        standby.as_ref().unwrap_or(&world.primary_machine).cut_power();
        world.settle(Ok(()), HARSH)?;
    }
    if rng.chance(30) {
        return catch_up(world, HARSH);
    }
    if world.standby_machine.is_none() && rng.chance(70) {
        let made = world.make_standby();
        world.settle(made, HARSH)?;
    }
    Ok(())
}

/// Catches up; the power may fail meanwhile, but only a limited number of times.
fn catch_up(world: &mut World, fate: Fate) -> Result<(), ()> {
    for _ in 0..20 {
        let done = world.catch_up();
        let again = done.is_err();
        world.settle(done, fate)?;
        if !again {
            return Ok(());
        }
    }
    world.report.fail("the power fails for ever".into());
    Err(())
}

fn finish(world: &mut World, fate: Fate) -> Result<(), ()> {
    world.primary_machine.cancel_crash();
    if let Some(machine) = &world.standby_machine {
        machine.cancel_crash();
    }
    catch_up(world, fate)
}

fn finished(mut world: World) -> PowerReport {
    world.kill_primary();
    world.report.clone()
}

/// Runs the fixed history: its events up to the first power loss or failure. Returns whether there was one.
fn fixed(seed: u64, events: u32, prepare: impl FnOnce(&World)) -> Outcome<(World, bool)> {
    let mut world = World::new(seed)?;
    prepare(&world);
    for _ in 0..events {
        let event = world.event();
        let down = !world.primary_machine.is_powered()
            || world.standby_machine.as_ref().is_some_and(|machine| !machine.is_powered());
        if down {
            return Ok((world, true));
        }
        let gentle = Fate { loss: None, harsh: false };
        if world.settle(event, gentle).is_err() {
            return Ok((world, true));
        }
    }
    Ok((world, false))
}

/// Cuts the power at every sync boundary of both machines in the fixed history of `seed`, before, during and after it,
/// with every kind of loss. Tries only boundaries whose number modulo `share.1` is `share.0`.
pub fn run_boundaries(seed: u64, events: u32, share: (u64, u64)) -> PowerReport {
    let mut sum = PowerReport { seed, ..PowerReport::default() };
    let rehearsal = guarded_boundaries(seed, events);
    let [primary, standby] = match rehearsal {
        Ok(counts) => counts,
        Err(report) => return *report,
    };
    for (on_standby, count) in [(false, primary), (true, standby)] {
        for boundary in (1..=count).filter(|boundary| boundary % share.1 == share.0) {
            sum.boundaries += 1;
            for place in CrashPlace::ALL {
                for (index, loss) in
                    [Loss::Random, Loss::DropUnsynced, Loss::KeepUnsynced].into_iter().enumerate()
                {
                    let fate = Fate { loss: Some(loss), harsh: false };
                    let variant = (boundary << 4) + ((index as u64) << 2) + place as u64;
                    let mut report =
                        guarded(seed, || crash_at(seed, events, on_standby, boundary, place, fate, variant));
                    let machine = if on_standby { "standby" } else { "primary" };
                    for note in &mut report.notes {
                        *note = format!("boundary {boundary} of the {machine}, {place:?}, {loss:?}: {note}");
                    }
                    sum.add(report);
                }
            }
        }
    }
    sum
}

fn guarded_boundaries(seed: u64, events: u32) -> Result<[u64; 2], Box<PowerReport>> {
    let mut counts = [0; 2];
    let report = guarded(seed, || {
        let mut before = [0; 2];
        let of = |world: &World| {
            [world.primary_machine.boundaries(), world.standby_machine.as_ref().map_or(0, |m| m.boundaries())]
        };
        match fixed(seed, events, |world| before = of(world)) {
            Ok((world, _)) => {
                let after = of(&world);
                counts = [after[0] - before[0], after[1] - before[1]];
                world.report.clone()
            }
            Err(error) => could_not_begin(seed, error),
        }
    });
    if report.passed() { Ok(counts) } else { Err(Box::new(report)) }
}

fn crash_at(
    seed: u64,
    events: u32,
    on_standby: bool,
    boundary: u64,
    place: CrashPlace,
    fate: Fate,
    variant: u64,
) -> PowerReport {
    let armed = |world: &World| match &world.standby_machine {
        Some(machine) if on_standby => machine.crash_at(boundary, place),
        _ => world.primary_machine.crash_at(boundary, place),
    };
    let (mut world, down) = match fixed(seed, events, armed) {
        Ok(outcome) => outcome,
        Err(error) => return could_not_begin(seed, error),
    };
    if !down {
        world.report.fail("the history did not reach the boundary again".into());
        return finished(world);
    }
    if !world.report.passed() {
        return finished(world);
    }
    world.rng = Rng::new(seed ^ variant << 20);
    let _ = after_the_crash(&mut world, fate);
    finished(world)
}

/// Recovers and checks, runs some more events, and catches up.
fn after_the_crash(world: &mut World, fate: Fate) -> Result<(), ()> {
    world.settle(Ok(()), fate)?;
    for _ in 0..20 {
        let event = world.event();
        world.settle(event, fate)?;
    }
    let another = Fate { loss: Some(draw_loss(&mut world.rng)), harsh: false };
    world.primary_machine.cut_power();
    world.settle(Ok(()), another)?;
    finish(world, fate)
}
