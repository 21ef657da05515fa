//! Histories: random ones with random power losses, and fixed ones with a power loss at every sync boundary.

use super::crash::{Fate, arm, draw_loss};
use super::report::PowerReport;
use super::world::World;
use standfast_simulation::Outcome;
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine, SqliteSeed};
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
    world.standbys.iter().for_each(|site| site.machine.set_lying(sabotage == Sabotage::StandbyLies));
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
    for site in &world.standbys {
        if rng.chance(50) {
            arm(&site.machine, &mut rng, 60);
        }
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
        let standby = world.pick_standby().filter(|_| rng.chance(30));
        standby.map_or(&world.primary_machine, |at| &world.standbys[at].machine).cut_power();
        world.settle(Ok(()), HARSH)?;
    }
    if rng.chance(30) {
        return catch_up(world, HARSH);
    }
    if world.lacks_standbys() && rng.chance(70) {
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
    world.standbys.iter().for_each(|site| site.machine.cancel_crash());
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
        if !world.all_powered() {
            return Ok((world, true));
        }
        let gentle = Fate { loss: None, harsh: false };
        if world.settle(event, gentle).is_err() {
            return Ok((world, true));
        }
    }
    Ok((world, false))
}

/// Cuts the power at every sync boundary of all machines in the fixed history of `seed`, before, during and after it,
/// with every kind of loss. Tries only boundaries whose number modulo `share.1` is `share.0`.
pub fn run_boundaries(seed: u64, events: u32, share: (u64, u64)) -> PowerReport {
    let mut sum = PowerReport { seed, ..PowerReport::default() };
    let counts = match guarded_boundaries(seed, events) {
        Ok(counts) => counts,
        Err(report) => return *report,
    };
    for (machine, count) in counts.into_iter().enumerate() {
        for boundary in (1..=count).filter(|boundary| boundary % share.1 == share.0) {
            sum.boundaries += 1;
            for place in CrashPlace::ALL {
                for (index, loss) in
                    [Loss::Random, Loss::DropUnsynced, Loss::KeepUnsynced].into_iter().enumerate()
                {
                    let fate = Fate { loss: Some(loss), harsh: false };
                    let variant = (boundary << 4) + ((index as u64) << 2) + place as u64;
                    let mut report =
                        guarded(seed, || crash_at(seed, events, machine, boundary, place, fate, variant));
                    for note in &mut report.notes {
                        *note =
                            format!("boundary {boundary} of machine {machine}, {place:?}, {loss:?}: {note}");
                    }
                    sum.add(report);
                }
            }
        }
    }
    sum
}

/// The machines of a history: that of the primary, then those of the standbys.
fn machines(world: &World) -> Vec<&SimMachine> {
    let standbys = world.standbys.iter().map(|site| &*site.machine);
    std::iter::once(&*world.primary_machine).chain(standbys).collect()
}

/// Sync boundaries of each machine in the fixed history of `seed`.
fn guarded_boundaries(seed: u64, events: u32) -> Result<Vec<u64>, Box<PowerReport>> {
    let mut counts = Vec::new();
    let report = guarded(seed, || {
        let mut before = Vec::new();
        let of = |world: &World| machines(world).iter().map(|machine| machine.boundaries()).collect();
        match fixed(seed, events, |world| before = of(world)) {
            Ok((world, _)) => {
                let after: Vec<u64> = of(&world);
                counts = after.iter().zip(&before).map(|(after, before)| after - before).collect();
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
    machine: usize,
    boundary: u64,
    place: CrashPlace,
    fate: Fate,
    variant: u64,
) -> PowerReport {
    let armed = |world: &World| machines(world)[machine].crash_at(boundary, place);
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
