//! Power losses: what is lost, how the machines recover, and what must then be in the databases.

use super::application::AppDatabase;
use super::members;
use super::members::Strike;
use super::truth::inspect;
use super::world::World;
use standfast_environment::state::control::Role;
use standfast_instance::role::failover::take_over;
use standfast_io::Disk;
use standfast_simulation::databases::open_plain;
use standfast_simulation::primary::PrimaryHost;
use standfast_simulation::site::SegmentFile;
use standfast_simulation::standby::{self, StandbyHost};
use standfast_simulation::{Outcome, lock, trace};
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine};
use standfast_transport::StandbyLog;
use standfast_types::{Scn, WAL_HEADER_BYTES};
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum number of power losses in a row.
const IN_A_ROW: u32 = 5;

/// Draws what happens to unsynced writes.
pub fn draw_loss(rng: &mut Rng) -> Loss {
    match rng.below(10) {
        0..=6 => Loss::Random,
        7 | 8 => Loss::DropUnsynced,
        _ => Loss::KeepUnsynced,
    }
}

/// Lets the power of `machine` fail at one of its next `within` sync boundaries.
pub fn arm(machine: &SimMachine, rng: &mut Rng, within: u64) {
    let place = rng.pick(&CrashPlace::ALL).copied().unwrap_or(CrashPlace::Before);
    machine.crash_at(rng.between(1, within), place);
}

/// Extension of a database file that is moved away.
const AWAY: &str = "away";

/// How the machines are treated after a power loss.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// The loss; `None` draws one each time.
    pub loss: Option<Loss>,
    /// Power may fail again during recovery, the other machine may fail as well, and a failover may follow.
    pub harsh: bool,
}

impl World {
    /// Checks after an event whether the machines have power, and recovers those without. Err when the history cannot
    /// continue.
    pub fn settle(&mut self, event: Outcome<()>, fate: Fate) -> Result<(), ()> {
        self.note_releases();
        let inside = self.link.as_ref().and_then(|link| link.take_failure());
        let result = match (event, inside) {
            (Ok(()), Some(error)) => Err(error),
            (result, _) => result,
        };
        let primary_down = !self.primary_machine.is_powered();
        let standby_down = self.standby_machine.as_ref().is_some_and(|machine| !machine.is_powered());
        if let (Err(error), false, false) = (&result, primary_down, standby_down) {
            let alerts = self.primary.as_ref().map(PrimaryHost::alerts).unwrap_or_default();
            self.report.fail(format!("{error}\n    {alerts}"));
            return Err(());
        }
        let recovered = self.recover(primary_down, standby_down, fate);
        recovered.map_err(|error| {
            if self.ended_offline {
                self.report.offline += 1;
            } else {
                self.report.fail(error);
            }
        })
    }

    fn recover(&mut self, mut primary_down: bool, mut standby_down: bool, fate: Fate) -> Outcome<()> {
        if primary_down && fate.harsh && self.rng.chance(12) {
            if let Some(machine) = &self.standby_machine {
                machine.cut_power();
                standby_down = true;
            }
        } else if standby_down && fate.harsh && self.rng.chance(12) {
            self.primary_machine.cut_power();
            primary_down = true;
        }
        if primary_down {
            self.kill_primary();
        }
        if standby_down {
            self.recover_standby(fate)?;
        }
        if primary_down {
            let there = lock(&self.standby).is_some();
            if there && fate.harsh && self.rng.chance(15) {
                return self.fail_over(fate);
            }
            self.recover_primary(fate)?;
        }
        self.connect_again(fate)
    }

    /// Usually reconnects immediately. The power of either machine may fail again meanwhile.
    fn connect_again(&mut self, fate: Fate) -> Outcome<()> {
        if fate.harsh && self.rng.chance(30) {
            return Ok(());
        }
        match self.connect() {
            Err(error) if self.all_powered() => Err(error),
            _ => Ok(()),
        }
    }

    fn all_powered(&self) -> bool {
        self.primary_machine.is_powered()
            && self.standby_machine.as_ref().is_none_or(|machine| machine.is_powered())
    }

    fn lose_power(&mut self, machine: &Arc<SimMachine>, fate: Fate, attempt: u32) {
        let loss = fate.loss.unwrap_or_else(|| draw_loss(&mut self.rng));
        machine.power_loss(loss, &mut self.rng);
        machine.repair_directories();
        self.report.crashes += 1;
        let whose = if Arc::ptr_eq(machine, &self.primary_machine) { "primary" } else { "standby" };
        trace::say(|| format!("power loss {loss:?} of the {whose}"));
        if attempt == 0 {
            self.strike_members(machine);
        }
        if attempt < IN_A_ROW && fate.harsh && self.rng.chance(30) {
            arm(machine, &mut self.rng, 25);
        }
    }

    /// Lets the device of a member fail while everything runs.
    pub(super) fn break_member(&mut self, rng: &mut Rng) {
        let machine = match &self.standby_machine {
            Some(machine) if rng.chance(40) && lock(&self.standby).is_some() => machine.clone(),
            _ => self.primary_machine.clone(),
        };
        match members::break_device(&machine, rng) {
            Ok(broken) => self.report.failed_members += u64::from(broken),
            // The power failed first.
            Err(_) if !machine.is_powered() => {}
            Err(error) => self.report.fail(format!("members: {error}")),
        }
    }

    /// Damages or removes a member. The instance on `machine` was open until its power failed, so its members held the
    /// same.
    fn strike_members(&mut self, machine: &Arc<SimMachine>) {
        if self.geometry.members() < 2 {
            return;
        }
        match members::strike(machine, &self.geometry, &mut self.rng) {
            Ok(Some(Strike::Lost)) => self.report.lost_members += 1,
            Ok(Some(Strike::Damaged)) => self.report.damaged_members += 1,
            Ok(_) => {}
            Err(error) => self.report.fail(format!("members: {error}")),
        }
    }

    fn recover_standby(&mut self, fate: Fate) -> Outcome<()> {
        if let Some(link) = &self.link {
            link.lose_standby();
        }
        // What it had acknowledged it must still hold.
        self.note_releases();
        *lock(&self.standby) = None;
        let Some(machine) = self.standby_machine.clone() else { return Ok(()) };
        for attempt in 0.. {
            self.lose_power(&machine, fate, attempt);
            self.standby_segment.lose();
            match StandbyHost::open(&machine, &self.geometry, &self.standby_segment) {
                Ok(standby) => {
                    trace::say(|| format!("the standby is back: {}", standby.alerts()));
                    *lock(&self.standby) = Some(standby);
                    break;
                }
                Err(_) if !machine.is_powered() => {}
                Err(error) => return Err(format!("the standby does not come back: {error}")),
            }
        }
        self.check_standby(&machine)
    }

    /// Checks that no acknowledged redo is missing, and that every database is in a state that was once committed.
    fn check_standby(&mut self, machine: &Arc<SimMachine>) -> Outcome<()> {
        let Some((end, databases)) =
            lock(&self.standby).as_ref().map(|standby| (standby.log().received_end(), standby.databases()))
        else {
            return Ok(());
        };
        if end < self.hardened_floor {
            let note = format!("the standby holds redo up to {end}, it acknowledged {}", self.hardened_floor);
            self.report.lose(1, note);
        }
        for (name, path) in databases {
            let Some(database) = self.databases.iter().find(|database| database.truth.name == name) else {
                continue;
            };
            match inspect(machine, &path, &mut self.report) {
                Ok(state) => database.truth.seen_on_standby(&state, &mut self.report),
                Err(_) if !machine.is_powered() => {}
                Err(error) => return Err(format!("standby {error}")),
            }
        }
        Ok(())
    }

    fn recover_primary(&mut self, fate: Fate) -> Outcome<()> {
        let machine = self.primary_machine.clone();
        let (mut changes_before, mut is_change_cut_short) = (self.report.changed_files, false);
        for attempt in 0.. {
            is_change_cut_short |= self.report.changed_files > changes_before;
            changes_before = self.report.changed_files;
            self.lose_power(&machine, fate, attempt);
            self.primary_segment.lose();
            if fate.harsh && attempt == 0 && self.rng.chance(25) {
                match self.change_files(&machine) {
                    Err(_) if !machine.is_powered() => {
                        is_change_cut_short = true;
                        continue;
                    }
                    other => other?,
                }
            }
            if fate.harsh && attempt == 0 && self.rng.chance(15) {
                match self.live_without_one(&machine) {
                    Err(_) if !machine.is_powered() => continue,
                    other => other?,
                }
            }
            if let Err(error) = self.bring_back(&machine) {
                if machine.is_powered() {
                    return Err(error);
                }
                continue;
            }
            match PrimaryHost::open(&machine, &self.geometry, &self.primary_segment) {
                Ok(host) => {
                    self.primary = Some(host);
                    break;
                }
                Err(_) if !machine.is_powered() => {}
                // The file holds part of a WAL that the redo does not know, and nothing shows whether that continues
                // the newest state. File and redo are kept for the operator to decide. The history ends here.
                Err(error) if is_change_cut_short && error.contains("does not stand where the redo says") => {
                    self.ended_offline = true;
                    return Err(error);
                }
                Err(error) => return Err(format!("the primary does not come back: {error}")),
            }
        }
        let alerts = || self.primary.as_ref().map(PrimaryHost::alerts).unwrap_or_default();
        trace::say(|| format!("the primary is back: {}", alerts()));
        for database in &mut self.databases {
            match inspect(&machine, &database.path, &mut self.report) {
                Ok(state) => database.truth.primary_recovered(&state, &mut self.report),
                Err(_) if !machine.is_powered() => return Ok(()),
                Err(error) => return Err(format!("primary {error}")),
            }
        }
        match self.attach_link() {
            Err(error) if self.all_powered() => Err(error),
            _ => Ok(()),
        }
    }

    /// Changes files between the power loss and the start: a plain process reads a database, which backfills the rest
    /// of its WAL into the file and removes the WAL, or the WAL is removed. Skips a database whose remaining content
    /// the redo at hand cannot prove: it would go offline, correctly.
    fn change_files(&mut self, machine: &Arc<SimMachine>) -> Outcome<()> {
        let Some(changed) = self.pick_database() else { return Ok(()) };
        let path = self.databases[changed].path.clone();
        let is_read = self.rng.chance(50);
        let change = |machine: &Arc<SimMachine>| -> Outcome<()> {
            if is_read {
                let reader = open_plain(machine, &path).map_err(|error| error.to_string())?;
                let count: rusqlite::Result<i64> =
                    reader.query_row("SELECT count(*) FROM ledger", [], |row| row.get(0));
                return count.map(drop).map_err(|error| error.to_string());
            }
            let wal = PathBuf::from(format!("{}-wal", path.display()));
            match machine.contents(&wal) {
                Some(_) => machine.disk().remove(&wal).map_err(|error| error.to_string()),
                None => Ok(()),
            }
        };
        let trial = machine.copy(self.rng.next_u64());
        change(&trial)?;
        match PrimaryHost::open(&trial, &self.geometry, &SegmentFile::unique()) {
            Ok(host) => host.leave(),
            Err(why) => {
                trace::say(|| format!("database {changed} would be offline: {why}"));
                self.report.offline += 1;
                return Ok(());
            }
        }
        change(machine)?;
        self.report.changed_files += 1;
        trace::say(|| {
            format!("database {changed}: {}", if is_read { "a plain read" } else { "its WAL is removed" })
        });
        Ok(())
    }

    /// Opens the primary without one of its databases. The others continue for a while, so that the redo that it needs
    /// moves from the online log to the archive. Then the instance dies.
    fn live_without_one(&mut self, machine: &Arc<SimMachine>) -> Outcome<()> {
        let Some(away) = self.pick_database() else { return Ok(()) };
        let path = &self.databases[away].path;
        // A database that was offline and whose files do not provably hold everything is refused, correctly: one
        // without a WAL, which any file could be, and one that needs a full resync. Skips both.
        let log = machine.contents(format!("{}-wal", path.display()));
        let trial = machine.copy(self.rng.next_u64());
        let trial = PrimaryHost::open(&trial, &self.geometry, &SegmentFile::unique())?;
        let copies = trial.resynchronisations();
        trial.leave();
        if copies > 0 || log.is_none_or(|log| log.len() <= WAL_HEADER_BYTES) {
            return Ok(());
        }
        machine.disk().rename(path, &path.with_extension(AWAY)).map_err(|error| error.to_string())?;
        let environment = self.geometry.environment(machine, &self.primary_segment)?;
        let mut host = PrimaryHost::open_without(machine, environment, 1)?;
        host.keep_archives_from(match &self.standby_machine {
            Some(_) => self.hardened_floor,
            None => Scn(u64::MAX),
        });
        trace::say(|| format!("without database {away}: {}", host.alerts()));
        let mut rng = self.rng.fork();
        let others: Vec<usize> = (0..self.databases.len()).filter(|index| *index != away).collect();
        for other in &others {
            let database = &mut self.databases[*other];
            let state = inspect(machine, &database.path, &mut self.report)?;
            database.truth.primary_recovered(&state, &mut self.report);
        }
        let lived = (0..rng.between(10, 60)).try_for_each(|_| match (rng.below(12), rng.pick(&others)) {
            (0..=5, Some(other)) => self.databases[*other].turn(&host, &mut rng),
            (8, _) => host.checkpoint(),
            (9 | 10, _) => host.switch_log(),
            (11, _) => host.archive(),
            _ => host.step().map(drop),
        });
        self.databases.iter_mut().for_each(AppDatabase::die);
        self.report.resynchronisations += host.resynchronisations();
        host.leave();
        lived
    }

    /// Moves a database that is away back to its place.
    fn bring_back(&self, machine: &Arc<SimMachine>) -> Outcome<()> {
        let disk = machine.disk();
        let places = self.databases.iter().map(|database| &database.path);
        let mut gone = places.filter(|path| machine.contents(path.with_extension(AWAY)).is_some());
        gone.try_for_each(|path| disk.rename(&path.with_extension(AWAY), path))
            .map_err(|error| error.to_string())
    }

    /// Abandons the primary's machine and fails over to the standby.
    pub fn fail_over(&mut self, fate: Fate) -> Outcome<()> {
        self.kill_primary();
        let Some(machine) = self.standby_machine.take() else { return Ok(()) };
        self.report.failovers += 1;
        if fate.harsh && self.rng.chance(50) {
            arm(&machine, &mut self.rng, 40);
        }
        let mut standby = lock(&self.standby).take();
        let segment = std::mem::replace(&mut self.standby_segment, SegmentFile::unique());
        let mut attempt = 0;
        let host = loop {
            let opened = self.open_as_primary(&machine, standby.take(), &segment);
            match opened {
                Ok(host) => break host,
                Err(_) if !machine.is_powered() => {}
                Err(error) => return Err(format!("failover: {error}")),
            }
            attempt += 1;
            self.lose_power(&machine, fate, attempt);
            segment.lose();
        };
        self.primary_segment = segment;
        self.primary_machine = machine;
        let records = host.environment.control().databases;
        self.primary = Some(host);
        let databases = std::mem::take(&mut self.databases);
        for mut database in databases {
            let Some(record) = records.iter().find(|record| record.id == database.truth.id) else {
                database.truth.missing(&mut self.report);
                continue;
            };
            database.path = record.path.clone();
            let state = match inspect(&self.primary_machine, &database.path, &mut self.report) {
                Ok(state) => state,
                Err(_) if !self.primary_machine.is_powered() => {
                    // The failover is complete and durable: the next recovery checks the database.
                    database.truth.failed_over_unseen();
                    self.databases.push(database);
                    continue;
                }
                Err(error) => return Err(format!("after failover: {error}")),
            };
            if database.truth.is_unborn(&state) {
                continue;
            }
            database.truth.failed_over(&state, &mut self.report);
            self.databases.push(database);
        }
        self.attach_link()
    }

    fn open_as_primary(
        &mut self,
        machine: &Arc<SimMachine>,
        standby: Option<StandbyHost>,
        segment: &SegmentFile,
    ) -> Outcome<PrimaryHost> {
        let standby = match standby {
            Some(standby) => standby,
            None if standby::role(machine)? == Role::Primary => {
                return PrimaryHost::open(machine, &self.geometry, segment);
            }
            None => StandbyHost::open(machine, &self.geometry, segment)?,
        };
        let (environment, applier, received) = standby.into_parts()?;
        let done = take_over(&environment, applier, &received, false).map_err(|error| error.to_string())?;
        let host = PrimaryHost::open_in(machine, environment);
        drop(done.keepers);
        host
    }
}
