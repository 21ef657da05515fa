//! Two machines, their instances and the applications; runs one event at a time.

use super::application::AppDatabase;
use super::report::PowerReport;
use super::truth::{State, inspect};
use standfast_primary::commit::primary::NoShipping;
use standfast_simulation::databases::create_database;
use standfast_simulation::databases::open_plain;
use standfast_simulation::link::Link;
use standfast_simulation::primary::PrimaryHost;
use standfast_simulation::site::{Geometry, SegmentFile};
use standfast_simulation::standby::{self, StandbyHost};
use standfast_simulation::{Held, Outcome, lock, trace};
use standfast_testkit::{Rng, SimMachine};
use standfast_transport::StandbyLog;
use standfast_types::{ReleasePosition, Scn};
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum number of databases of a history.
const DATABASES_MAX: usize = 3;
/// Iterations within which everything must be applied.
const ROUNDS_MAX: u32 = 10_000;

pub struct World {
    pub(super) rng: Rng,
    pub(super) geometry: Geometry,
    pub(super) report: PowerReport,
    pub(super) primary_machine: Arc<SimMachine>,
    pub(super) standby_machine: Option<Arc<SimMachine>>,
    pub(super) primary: Option<PrimaryHost>,
    pub(super) standby: Held<StandbyHost>,
    pub(super) link: Option<Arc<Link>>,
    pub(super) databases: Vec<AppDatabase>,
    pub(super) primary_segment: SegmentFile,
    pub(super) standby_segment: SegmentFile,
    /// The present standby has acknowledged the redo up to here.
    pub(super) hardened_floor: Scn,
    /// Commits wait for the standby even while it is absent.
    pub(super) stall: bool,
    /// The history ended because a database correctly went offline.
    pub(super) ended_offline: bool,
    instances: u8,
    names: u32,
}

impl World {
    /// Creates a primary with one database, and a standby.
    pub fn new(seed: u64) -> Outcome<World> {
        let mut rng = Rng::new(seed);
        let geometry = Geometry::draw(&mut rng);
        let machine = SimMachine::new(rng.next_u64());
        geometry.init(&machine)?;
        let primary_segment = SegmentFile::unique();
        let primary = PrimaryHost::open(&machine, &geometry, &primary_segment)?;
        let stall = rng.chance(70);
        let mut world = World {
            rng,
            geometry,
            report: PowerReport { seed, ..PowerReport::default() },
            primary_machine: machine,
            standby_machine: None,
            primary: Some(primary),
            standby: Held::default(),
            link: None,
            databases: Vec::new(),
            primary_segment,
            standby_segment: SegmentFile::unique(),
            hardened_floor: Scn::ZERO,
            stall,
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
        if !early {
            world.make_standby()?;
        }
        Ok(world)
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
        let copy = self.standby_machine.is_some();
        let id = self.host()?.protect(&name, path.clone(), page_size, copy)?;
        self.databases.push(AppDatabase::new(&machine, id, &name, path)?);
        Ok(())
    }

    /// Makes a new machine the standby.
    pub(super) fn make_standby(&mut self) -> Outcome<()> {
        let machine = SimMachine::new(self.rng.next_u64());
        let geometry = self.geometry.clone();
        self.instances = self.instances.wrapping_add(1);
        let instance = self.instances;
        self.begin_copies()?;
        let host = self.host()?;
        host.drain()?;
        standby::create(&machine, &geometry, host, instance)?;
        self.standby_segment = SegmentFile::unique();
        let opened = StandbyHost::open(&machine, &geometry, &self.standby_segment)?;
        *lock(&self.standby) = Some(opened);
        self.standby_machine = Some(machine);
        self.hardened_floor = Scn::ZERO;
        self.attach_link()
    }

    /// Attaches the primary's destinations as configured.
    pub(super) fn attach_link(&mut self) -> Outcome<()> {
        if self.standby_machine.is_none() {
            self.host()?.shared.ship_through(Arc::new(NoShipping));
            return Ok(());
        }
        let (stall, rng) = (self.stall, self.rng.fork());
        let standby = self.standby.clone();
        let host = self.host()?;
        let link = Link::new(&host.source, &host.shared, &standby, stall, rng);
        host.shared.ship_through(link.clone());
        self.link = Some(link);
        self.connect()
    }

    pub(super) fn connect(&mut self) -> Outcome<()> {
        let Some(link) = self.link.clone() else { return Ok(()) };
        if !link.is_connected() && lock(&self.standby).is_some() {
            self.hardened_floor = Scn::ZERO;
            link.connect();
        }
        Ok(())
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
            570..=709 => self.deliver(1 + dice % 4),
            710..=769 => self.apply(),
            770..=789 => self.sync_standby(),
            790..=859 => self.checkpoint(),
            860..=889 => self.host()?.archive(),
            890..=909 => self.archive_standby(),
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
                if let Some(link) = &self.link {
                    link.disconnect();
                }
                Ok(())
            }
            985..=989 => self.restart_primary(),
            _ => self.connect(),
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

    fn deliver(&mut self, messages: u64) -> Outcome<()> {
        let Some(link) = self.link.clone() else { return Ok(()) };
        for _ in 0..messages {
            if !link.deliver()? {
                break;
            }
        }
        if let Some(host) = &self.primary {
            // Before the first acknowledgement it is unknown what the standby needs.
            host.keep_archives_from(link.acknowledged());
        }
        Ok(())
    }

    fn apply(&mut self) -> Outcome<()> {
        if let Some(standby) = lock(&self.standby).as_ref() {
            standby.apply()?;
        }
        Ok(())
    }

    fn sync_standby(&mut self) -> Outcome<()> {
        lock(&self.standby).as_ref().map_or(Ok(()), StandbyHost::sync)
    }

    fn archive_standby(&mut self) -> Outcome<()> {
        lock(&self.standby).as_ref().map_or(Ok(()), StandbyHost::archive)
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
        let required = self.link.as_ref().is_some_and(|link| link.is_required());
        for database in &mut self.databases {
            let id = database.truth.id.0;
            let (epoch, raw_salts) = host.shared.segment.epoch(id);
            database.truth.announced(epoch, raw_salts);
            let durable = ReleasePosition(host.shared.segment.durable(id));
            let count = database.truth.released(durable, required);
            self.report.acknowledged += count;
            if count > 0 {
                trace::say(|| format!("{}; required {required}", database.truth.described()));
            }
        }
        if let Some(link) = &self.link {
            self.hardened_floor = self.hardened_floor.max(link.acknowledged());
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
        if self.standby_machine.is_none() {
            self.make_standby()?;
        }
        self.connect()?;
        let mut rounds = 0;
        loop {
            self.host()?.drain()?;
            self.deliver(u64::MAX)?;
            self.apply()?;
            let end = self.host()?.shared.buffer.captured();
            let applied = lock(&self.standby).as_ref().map_or(end, |standby| standby.log().applied());
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

    fn compare(&mut self) -> Outcome<()> {
        let Some(machine) = self.standby_machine.clone() else { return Ok(()) };
        let there = lock(&self.standby).as_ref().map(StandbyHost::databases).unwrap_or_default();
        for database in &mut self.databases {
            let read = || State::read(&open_plain(&self.primary_machine, &database.path)?);
            let here = read().map_err(|error| error.to_string())?;
            let name = &database.truth.name;
            let Some((_, path)) = there.iter().find(|(other, _)| other == name) else {
                self.report.differ(here.pages() as u64, format!("{name} is not on the standby"));
                continue;
            };
            let copy = inspect(&machine, path, &mut self.report)?;
            if here != copy {
                let pages = here.differences(&copy);
                self.report.differ(pages, format!("{name}: {pages} of {} pages differ", here.pages()));
            }
            if database.truth.waits() {
                self.report.fail(format!("{name}: a commit is everywhere and was not released"));
            }
            database.truth.caught_up();
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill_primary();
        *lock(&self.standby) = None;
    }
}
