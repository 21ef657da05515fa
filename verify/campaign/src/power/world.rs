//! The machines of a primary and its standbys, their instances and the applications; runs one event at a time.

use super::application::AppDatabase;
use super::report::PowerReport;
use super::sites::{Policy, Shape, Site, name_of};
use super::truth::{Promise, State, inspect};
use standfast_environment::config::destination_config::TransportMode;
use standfast_environment::state::control::Control;
use standfast_primary::commit::primary::NoShipping;
use standfast_simulation::databases::create_database;
use standfast_simulation::databases::open_plain;
use standfast_simulation::link::Link;
use standfast_simulation::primary::PrimaryHost;
use standfast_simulation::site::{Geometry, SegmentFile};
use standfast_simulation::standby::{self, StandbyHost};
use standfast_simulation::{Held, Outcome, lock, trace};
use standfast_testkit::{Rng, SimMachine};
use standfast_transport::protection::ProtectionMode;
use standfast_transport::{RedoSource, RefuseCode, StandbyLog};
use standfast_types::{IncarnationNo, ReleasePosition, Scn};
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum number of databases of a history.
const DATABASES_MAX: usize = 3;
/// Iterations within which everything must be applied.
const ROUNDS_MAX: u32 = 10_000;

pub struct World {
    pub(super) rng: Rng,
    pub(super) shape: Shape,
    /// That of the primary.
    pub(super) geometry: Geometry,
    pub(super) report: PowerReport,
    pub(super) primary_machine: Arc<SimMachine>,
    pub(super) primary: Option<PrimaryHost>,
    /// In the order of the destinations of `link`.
    pub(super) standbys: Vec<Site>,
    pub(super) link: Option<Arc<Link>>,
    pub(super) databases: Vec<AppDatabase>,
    pub(super) primary_segment: SegmentFile,
    /// Where the redo of the newest incarnation begins.
    pub(super) branch: Scn,
    /// Of each failover the incarnation that began, and how far a standby may have been that must be able to follow: what
    /// the new primary knew to be confirmed. Beyond it, up to the branch, it may have redo that the old primary has
    /// replaced, and that the other standbys have applied otherwise; beyond the branch it has dropped a record.
    pub(super) failovers: Vec<(IncarnationNo, Scn)>,
    /// The history ended because a database correctly went offline.
    pub(super) ended_offline: bool,
    instances: u8,
    names: u32,
}

impl World {
    /// Creates a primary with one database, and its standbys.
    pub fn new(seed: u64) -> Outcome<World> {
        let mut rng = Rng::new(seed);
        let geometry = Geometry::draw(&mut rng).named(&name_of(1));
        let machine = SimMachine::new(rng.next_u64());
        geometry.init(&machine)?;
        let primary_segment = SegmentFile::unique();
        let primary = PrimaryHost::open(&machine, &geometry, &primary_segment)?;
        let shape = Shape::draw(seed, rng.chance(70));
        if shape.policy == Policy::Protect {
            let set = |control: &mut Control| control.protection_mode = ProtectionMode::MaximumProtection;
            primary.environment.update_control(set).map_err(|error| error.to_string())?;
        }
        let mut world = World {
            rng,
            shape,
            geometry,
            report: PowerReport { seed, ..PowerReport::default() },
            primary_machine: machine,
            primary: Some(primary),
            standbys: Vec::new(),
            link: None,
            databases: Vec::new(),
            primary_segment,
            branch: Scn::ZERO,
            failovers: Vec::new(),
            ended_offline: false,
            instances: 1,
            names: 0,
        };
        world.attach_link()?;
        // A standby that is created before the first database receives the whole database through the redo.
        let early = world.rng.chance(40);
        if early {
            world.make_standby()?;
        }
        world.protect()?;
        while world.lacks_standbys() {
            world.make_standby()?;
        }
        Ok(world)
    }

    pub(super) fn lacks_standbys(&self) -> bool {
        self.standbys.len() < self.shape.standbys
    }

    /// Returns the primary, which must be open.
    pub(super) fn host(&mut self) -> Outcome<&mut PrimaryHost> {
        self.primary.as_mut().ok_or_else(|| "there is no primary".to_owned())
    }

    fn protect(&mut self) -> Outcome<()> {
        if self.databases.len() >= DATABASES_MAX {
            return Ok(());
        }
        self.names += 1;
        let name = format!("d{}.db", self.names);
        let path = PathBuf::from(format!("/app/{name}"));
        let mut rng = self.rng.fork();
        let machine = self.primary_machine.clone();
        let page_size = create_database(&machine, &path, &mut rng)?;
        let copy = !self.standbys.is_empty();
        let id = self.host()?.protect(&name, path.clone(), page_size, copy)?;
        self.databases.push(AppDatabase::new(&machine, id, &name, path)?);
        Ok(())
    }

    /// Makes a new machine a standby.
    pub(super) fn make_standby(&mut self) -> Outcome<()> {
        let machine = SimMachine::new(self.rng.next_u64());
        self.instances = self.instances.wrapping_add(1);
        let number = self.instances;
        let geometry = self.geometry.named(&name_of(number));
        let config = self.shape.destination(number, self.standbys.is_empty());
        let skew = self.shape.skew();
        self.begin_copies()?;
        let host = self.host()?;
        host.drain()?;
        standby::create(&machine, &geometry, host, number)?;
        let segment = SegmentFile::unique();
        let opened = StandbyHost::open(&machine, &geometry, &segment)?;
        let host = Held::default();
        *lock(&host) = Some(opened);
        let hardened_floor = Scn::ZERO;
        self.standbys.push(Site { number, machine, geometry, segment, host, config, skew, hardened_floor });
        self.attach_link()
    }

    /// Ends a standby for good.
    pub(super) fn remove_standby(&mut self, at: usize) -> Outcome<()> {
        let gone = self.standbys.remove(at);
        self.databases.iter_mut().for_each(|database| database.truth.forget(gone.number));
        self.attach_link()
    }

    /// Attaches the primary's destinations as configured; the present ones continue.
    pub(super) fn attach_link(&mut self) -> Outcome<()> {
        let before = self.link.take();
        if self.standbys.is_empty() {
            self.host()?.shared.ship_through(Arc::new(NoShipping));
            return Ok(());
        }
        let destinations = self.standbys.iter().map(|site| site.destination(self.rng.fork())).collect();
        let host = self.host()?;
        let link = Link::new(&host.source, &host.shared, destinations, before.as_deref());
        host.shared.ship_through(link.clone());
        self.link = Some(link);
        self.connect()
    }

    /// Brings the network to all standbys up that are there.
    pub(super) fn connect(&mut self) -> Outcome<()> {
        (0..self.standbys.len()).for_each(|at| self.connect_to(at));
        Ok(())
    }

    fn connect_to(&mut self, at: usize) {
        let Some(link) = &self.link else { return };
        let site = &mut self.standbys[at];
        if !link.is_connected(at) && lock(&site.host).is_some() {
            site.hardened_floor = Scn::ZERO;
            link.connect(at);
        }
    }

    /// Draws a standby if there are several.
    pub(super) fn pick_standby(&mut self) -> Option<usize> {
        match self.standbys.len() {
            0 => None,
            1 => Some(0),
            several => Some(self.rng.below(several as u64) as usize),
        }
    }

    /// Kills the processes of the primary's machine; its disk stays as it is.
    pub(super) fn kill_primary(&mut self) {
        self.databases.iter_mut().for_each(AppDatabase::die);
        self.end_link();
        if let Some(host) = self.primary.take() {
            self.report.resynchronisations += host.resynchronisations();
            host.leave();
        }
    }

    fn end_link(&mut self) {
        if let Some(link) = self.link.take() {
            link.die();
        }
    }

    pub fn event(&mut self) -> Outcome<()> {
        let dice = self.rng.below(1000);
        trace::say(|| format!("event {dice}: {}", self.described()));
        match dice {
            0..=449 => self.turn(),
            450..=569 => self.host()?.step().map(drop),
            570..=709 => match self.pick_standby() {
                Some(at) => self.deliver(at, 1 + dice % 4),
                None => Ok(()),
            },
            710..=769 => self.with_standby(|standby| standby.apply().map(drop)),
            770..=789 => self.with_standby(StandbyHost::sync),
            790..=859 => self.checkpoint(),
            860..=889 => self.host()?.archive(),
            890..=909 => self.with_standby(StandbyHost::archive),
            910..=929 => self.host()?.switch_log(),
            930..=949 => self.toggle_reader(),
            950..=969 => {
                let host = self.host()?;
                host.primary.poll();
                host.step().map(drop)
            }
            970..=974 => self.protect_when_quiescent(),
            975..=979 => self.checkpoint_everything(),
            980..=984 => {
                let at = self.pick_standby();
                if let (Some(link), Some(at)) = (&self.link, at) {
                    link.disconnect(at);
                }
                Ok(())
            }
            985..=989 => self.restart_primary(),
            _ => {
                let at = self.pick_standby();
                at.into_iter().for_each(|at| self.connect_to(at));
                Ok(())
            }
        }
    }

    pub(super) fn pick_database(&mut self) -> Option<usize> {
        let count = self.databases.len() as u64;
        (count > 0).then(|| self.rng.below(count) as usize)
    }

    fn turn(&mut self) -> Outcome<()> {
        let Some(index) = self.pick_database() else { return Ok(()) };
        let host = self.primary.as_ref().ok_or("there is no primary")?;
        self.databases[index].turn(host, &mut self.rng)
    }

    fn toggle_reader(&mut self) -> Outcome<()> {
        let Some(index) = self.pick_database() else { return Ok(()) };
        self.databases[index].toggle_reader(&self.primary_machine)
    }

    fn deliver(&mut self, at: usize, messages: u64) -> Outcome<()> {
        let Some(link) = self.link.clone() else { return Ok(()) };
        for _ in 0..messages {
            if !link.deliver(at)? {
                break;
            }
        }
        if let Some(host) = &self.primary {
            // Before the first acknowledgement it is unknown what a standby needs.
            let needed = (0..self.standbys.len()).map(|at| link.hardened(at)).min();
            host.keep_archives_from(needed.unwrap_or(Scn(u64::MAX)));
        }
        match link.take_refusal(at) {
            Some(code) => self.replace(at, code),
            None => Ok(()),
        }
    }

    /// Ends a standby that cannot follow the primary. Only the failover to another one can be the cause: this one has
    /// applied redo that the other had not, or lacks redo that the other had no more. Or it has confirmed a part of the
    /// transaction that the failover has dropped, because its commit record came to no standby.
    fn replace(&mut self, at: usize, code: RefuseCode) -> Outcome<()> {
        let oldest = self.host()?.source.oldest();
        let held = lock(&self.standbys[at].host).as_ref().map(|host| {
            let (log, entered) = (host.log(), host.environment.control().incarnation().number);
            // Each failover since the one that the standby has followed may have left it behind.
            let since = self.failovers.iter().filter(|(number, _)| *number > entered);
            (log.confirmed(), log.received_end(), since.map(|(_, certain)| *certain).min())
        });
        let is_due = held.is_some_and(|(confirmed, end, certain)| match code {
            RefuseCode::Diverged => certain.is_some_and(|certain| confirmed > certain),
            // What is not confirmed has to be compared from there on.
            _ => confirmed.min(end) < oldest && oldest <= self.branch,
        });
        if !is_due {
            return Err(format!("standby {at}, {held:?}, is refused: {code:?}"));
        }
        trace::say(|| format!("standby {at} cannot follow beyond {}: {code:?}", self.branch));
        self.report.cannot_follow += 1;
        self.remove_standby(at)
    }

    fn with_standby(&mut self, work: impl FnOnce(&StandbyHost) -> Outcome<()>) -> Outcome<()> {
        let Some(at) = self.pick_standby() else { return Ok(()) };
        let site = &self.standbys[at];
        let done = lock(&site.host).as_ref().map_or(Ok(()), work);
        done.map_err(|error| format!("standby {}: {error}", site.number))
    }

    /// Whether no writer is in the middle of a transaction: a checkpoint gate would wait for one in real time.
    fn is_quiescent(&self) -> bool {
        !self.databases.iter().any(AppDatabase::is_written)
    }

    /// Usually after the log writer: only frames that are durable in the redo are backfilled, and the simulation cannot
    /// wait.
    fn checkpoint(&mut self) -> Outcome<()> {
        let first = self.rng.chance(80);
        let host = self.host()?;
        if first {
            host.primary.poll();
            host.step()?;
        }
        host.checkpoint()
    }

    fn checkpoint_everything(&mut self) -> Outcome<()> {
        self.host()?.checkpoint_everything()
    }

    fn protect_when_quiescent(&mut self) -> Outcome<()> {
        if !self.is_quiescent() {
            return Ok(());
        }
        self.begin_copies()?;
        self.protect()
    }

    /// Restarts the instance while its machine and the applications continue.
    fn restart_primary(&mut self) -> Outcome<()> {
        if !self.is_quiescent() {
            return Ok(());
        }
        self.end_link();
        if let Some(host) = self.primary.take() {
            self.report.resynchronisations += host.resynchronisations();
            host.leave();
        }
        let host = PrimaryHost::open(&self.primary_machine, &self.geometry, &self.primary_segment)?;
        self.primary = Some(host);
        self.attach_link()
    }

    /// Releases the commits that may return to the applications now.
    pub(super) fn note_releases(&mut self) {
        let Some(host) = &self.primary else { return };
        let durable = host.shared.buffer.durable();
        let link = self.link.as_deref();
        let promise = |(at, site): (usize, &Site)| link.map(|link| site.promise(link, at, durable));
        let promises: Vec<Promise> = self.standbys.iter().enumerate().filter_map(promise).collect();
        let protection = host.environment.of_control(|control| control.protection_mode);
        let is_protected = protection != ProtectionMode::MaximumProtection
            || !self.standbys.iter().any(|site| site.mode() == TransportMode::SyncAffirm)
            || promises.iter().any(|promise| promise.hardened || promise.holds_all);
        for database in &mut self.databases {
            let id = database.truth.id.0;
            let (epoch, raw_salts) = host.shared.segment.epoch(id);
            database.truth.announced(epoch, raw_salts);
            let durable = ReleasePosition(host.shared.segment.durable(id));
            let count = database.truth.released(durable, &promises);
            self.report.acknowledged += count;
            if count > 0 {
                trace::say(|| database.truth.described());
                if !is_protected {
                    let note = format!("{count} commits returned without a standby in maximum protection");
                    self.report.fail(note);
                }
            }
        }
        if let Some(link) = link {
            self.report.gaps += link.take_gaps();
            for (at, site) in self.standbys.iter_mut().enumerate() {
                site.hardened_floor = site.hardened_floor.max(link.hardened(at));
            }
        }
    }

    /// Begins full resyncs, after rolling back open write transactions, for which the resyncs would wait in real time.
    fn begin_copies(&mut self) -> Outcome<()> {
        self.databases.iter_mut().for_each(AppDatabase::give_up_writing);
        self.host()?.begin_copies()
    }

    /// Delivers and applies everything that is in flight; then primary and standby must be equal.
    pub fn catch_up(&mut self) -> Outcome<()> {
        self.begin_copies()?;
        self.host()?.drain()?;
        if self.standbys.is_empty() {
            self.make_standby()?;
        }
        self.connect()?;
        let mut rounds = 0;
        loop {
            self.host()?.drain()?;
            // A standby that has left the stream is removed meanwhile.
            (0..self.standbys.len()).rev().try_for_each(|at| self.deliver(at, u64::MAX))?;
            let end = self.host()?.shared.buffer.captured();
            let mut applied = end;
            for site in &self.standbys {
                if let Some(standby) = lock(&site.host).as_ref() {
                    standby.apply()?;
                    applied = applied.min(standby.log().applied());
                }
            }
            if applied == end {
                break;
            }
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Err(format!("the standby stays at {applied}, the primary is at {end}"));
            }
        }
        self.note_releases();
        self.compare()
    }

    /// Compares the primary with all standbys, page by page.
    fn compare(&mut self) -> Outcome<()> {
        let read = |database: &AppDatabase| State::read(&open_plain(&self.primary_machine, &database.path)?);
        let here: rusqlite::Result<Vec<State>> = self.databases.iter().map(read).collect();
        let here = here.map_err(|error| error.to_string())?;
        for site in &self.standbys {
            let there = lock(&site.host).as_ref().map(StandbyHost::databases).unwrap_or_default();
            for (database, here) in self.databases.iter_mut().zip(&here) {
                let (name, number) = (&database.truth.name, site.number);
                let Some((_, path)) = there.iter().find(|(other, _)| other == name) else {
                    let note = format!("{name} is not on standby {number}");
                    self.report.differ(here.pages() as u64, note);
                    continue;
                };
                let copy = inspect(&site.machine, path, &mut self.report)?;
                if *here != copy {
                    let pages = here.differences(&copy);
                    let note =
                        format!("{name}: {pages} of {} pages differ on standby {number}", here.pages());
                    self.report.differ(pages, note);
                }
                if database.truth.waits() {
                    self.report.fail(format!("{name}: a commit is everywhere and was not released"));
                }
                database.truth.caught_up(number);
            }
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill_primary();
        self.standbys.iter().for_each(|site| *lock(&site.host) = None);
    }
}
