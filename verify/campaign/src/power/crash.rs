//! Power losses: what is lost, how the machines recover, and what must then be in the databases.

use super::application::AppDatabase;
use super::members;
use super::members::Strike;
use super::sites::{Policy, Site};
use super::truth::inspect;
use super::world::World;
use standfast_environment::state::control::{Incarnation, Role};
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
        let is_down = |at: &usize| !self.standbys[*at].machine.is_powered();
        let down: Vec<usize> = (0..self.standbys.len()).filter(is_down).collect();
        if let (Err(error), false, true) = (&result, primary_down, down.is_empty()) {
            let alerts = self.primary.as_ref().map(PrimaryHost::alerts).unwrap_or_default();
            self.report.fail(format!("{error}\n    {alerts}"));
            return Err(());
        }
        let recovered = self.recover(primary_down, down, fate);
        recovered.map_err(|error| {
            if self.ended_offline {
                self.report.offline += 1;
            } else {
                self.report.fail(error);
            }
        })
    }

    fn recover(&mut self, mut primary_down: bool, mut down: Vec<usize>, fate: Fate) -> Outcome<()> {
        if primary_down && fate.harsh && self.rng.chance(12) {
            let first = self.pick_standby();
            for at in 0..self.standbys.len() {
                if Some(at) == first || self.rng.chance(30) {
                    self.standbys[at].machine.cut_power();
                }
            }
            down = (0..self.standbys.len()).filter(|at| !self.standbys[*at].machine.is_powered()).collect();
        } else if !down.is_empty() && fate.harsh && self.rng.chance(12) {
            self.primary_machine.cut_power();
            primary_down = true;
        }
        if primary_down {
            self.kill_primary();
        }
        for at in down {
            self.recover_standby(at, fate)?;
        }
        if primary_down {
            let taker = self.pick_standby().filter(|at| lock(&self.standbys[*at].host).is_some());
            if let Some(taker) = taker.filter(|_| fate.harsh && self.rng.chance(15)) {
                return self.fail_over(taker, fate);
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

    pub(super) fn all_powered(&self) -> bool {
        self.primary_machine.is_powered() && self.standbys.iter().all(|site| site.machine.is_powered())
    }

    fn lose_power(&mut self, machine: &Arc<SimMachine>, fate: Fate, attempt: u32) {
        let loss = fate.loss.unwrap_or_else(|| draw_loss(&mut self.rng));
        machine.power_loss(loss, &mut self.rng);
        machine.repair_directories();
        self.report.crashes += 1;
        match self.standbys.iter().find(|site| Arc::ptr_eq(&site.machine, machine)) {
            Some(site) => {
                trace::say(|| format!("power loss {loss:?} of standby {}", site.number));
                self.databases.iter_mut().for_each(|database| database.truth.lost_power(site.number));
            }
            None => trace::say(|| format!("power loss {loss:?} of the primary")),
        }
        if attempt == 0 {
            self.strike_members(machine);
        }
        if attempt < IN_A_ROW && fate.harsh && self.rng.chance(30) {
            arm(machine, &mut self.rng, 25);
        }
    }

    /// Lets the device of a member fail while everything runs.
    pub(super) fn break_member(&mut self, rng: &mut Rng) {
        let site = self.pick_standby().map(|at| &self.standbys[at]);
        let machine = match site {
            Some(site) if rng.chance(40) && lock(&site.host).is_some() => site.machine.clone(),
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

    fn recover_standby(&mut self, at: usize, fate: Fate) -> Outcome<()> {
        if let Some(link) = &self.link {
            link.lose_standby(at);
        }
        // What it had acknowledged it must still hold.
        self.note_releases();
        *lock(&self.standbys[at].host) = None;
        let machine = self.standbys[at].machine.clone();
        for attempt in 0.. {
            self.lose_power(&machine, fate, attempt);
            let site = &self.standbys[at];
            site.segment.lose();
            match StandbyHost::open(&machine, &site.geometry, &site.segment) {
                Ok(standby) => {
                    trace::say(|| format!("standby {} is back: {}", site.number, standby.alerts()));
                    *lock(&site.host) = Some(standby);
                    break;
                }
                Err(_) if !machine.is_powered() => {}
                Err(error) => return Err(format!("standby {} does not come back: {error}", site.number)),
            }
        }
        self.check_standby(at)
    }

    /// Checks that no acknowledged redo is missing, and that every database is in a state that was once committed.
    fn check_standby(&mut self, at: usize) -> Outcome<()> {
        let site = &self.standbys[at];
        let Some((end, databases)) =
            lock(&site.host).as_ref().map(|standby| (standby.log().received_end(), standby.databases()))
        else {
            return Ok(());
        };
        if end < site.hardened_floor {
            let (number, floor) = (site.number, site.hardened_floor);
            self.report.lose(1, format!("standby {number} holds redo up to {end}, it acknowledged {floor}"));
        }
        for (name, path) in databases {
            let Some(database) = self.databases.iter().find(|database| database.truth.name == name) else {
                continue;
            };
            match inspect(&site.machine, &path, &mut self.report) {
                Ok(state) => database.truth.seen_on_standby(&state, &mut self.report),
                Err(_) if !site.machine.is_powered() => {}
                Err(error) => return Err(format!("standby {} {error}", site.number)),
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
        let needed = self.standbys.iter().map(|site| site.hardened_floor).min();
        host.keep_archives_from(needed.unwrap_or(Scn(u64::MAX)));
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

    /// Abandons the primary's machine and fails over to the standby `taker`, which the others follow unless they are
    /// abandoned as well.
    pub fn fail_over(&mut self, taker: usize, fate: Fate) -> Outcome<()> {
        self.kill_primary();
        self.report.failovers += 1;
        let number = self.standbys[taker].number;
        for at in (0..self.standbys.len()).rev() {
            if at != taker && self.rng.chance(30) {
                let gone = self.standbys.remove(at);
                self.databases.iter_mut().for_each(|database| database.truth.forget(gone.number));
            }
        }
        let Some(taker) = self.standbys.iter().position(|site| site.number == number) else { return Ok(()) };
        let machine = self.standbys[taker].machine.clone();
        if fate.harsh && self.rng.chance(50) {
            arm(&machine, &mut self.rng, 40);
        }
        let mut standby = lock(&self.standbys[taker].host).take();
        let confirmed = standby.as_ref().map_or(Scn::ZERO, |host| host.log().shared().confirmed());
        let mut attempt = 0;
        let host = loop {
            let opened = open_as_primary(&self.standbys[taker], standby.take());
            match opened {
                Ok(host) => break host,
                Err(_) if !machine.is_powered() => {}
                Err(error) => return Err(format!("failover: {error}")),
            }
            attempt += 1;
            self.lose_power(&machine, fate, attempt);
            self.standbys[taker].segment.lose();
        };
        let site = self.standbys.remove(taker);
        self.primary_segment = site.segment;
        self.primary_machine = machine;
        self.geometry = site.geometry;
        if self.shape.policy == Policy::Protect {
            self.shape.policy = Policy::Continue;
        }
        let control = host.environment.control();
        let Incarnation { number: incarnation, branch, .. } = control.incarnation();
        self.branch = branch;
        self.failovers.push((incarnation, confirmed.min(branch)));
        self.standbys.retain(|site| {
            let follows = site.has_entered_only(&control.incarnations);
            self.report.cannot_follow += u64::from(!follows);
            follows
        });
        for database in &mut self.databases {
            database.truth.keep_only(self.standbys.iter().map(|site| site.number).chain([number]));
        }
        let records = control.databases;
        self.primary = Some(host);
        let databases = std::mem::take(&mut self.databases);
        for mut database in databases {
            let Some(record) = records.iter().find(|record| record.id == database.truth.id) else {
                database.truth.missing(number, &mut self.report);
                continue;
            };
            database.path = record.path.clone();
            let state = match inspect(&self.primary_machine, &database.path, &mut self.report) {
                Ok(state) => state,
                Err(_) if !self.primary_machine.is_powered() => {
                    // The failover is complete and durable: the next recovery checks the database.
                    database.truth.failed_over_unseen(number);
                    self.databases.push(database);
                    continue;
                }
                Err(error) => return Err(format!("after failover: {error}")),
            };
            if database.truth.is_unborn(number, &state) {
                continue;
            }
            database.truth.failed_over(number, &state, &mut self.report);
            self.databases.push(database);
        }
        self.attach_link()
    }
}

/// Opens the standby of `site` as primary, from where an attempt before has come.
fn open_as_primary(site: &Site, standby: Option<StandbyHost>) -> Outcome<PrimaryHost> {
    let Site { machine, geometry, segment, .. } = site;
    let standby = match standby {
        Some(standby) => standby,
        None if standby::role(machine)? == Role::Primary => {
            return PrimaryHost::open(machine, geometry, segment);
        }
        None => StandbyHost::open(machine, geometry, segment)?,
    };
    let (environment, applier, received) = standby.into_parts()?;
    let done =
        take_over(&environment, applier, &received, false, false).map_err(|error| error.to_string())?;
    let host = PrimaryHost::open_in(machine, environment);
    drop(done.keepers);
    host
}
