//! The connection to one destination: both ends and the pipe between them.

use super::Destination;
use super::archives::{ArchiveConnection, FarSite};
use super::pipe::{self, Skew, Time};
use super::receiver_end::ReceiverEnd;
use super::sender_end::{Progress, SenderEnd};
use crate::standby::StandbyHost;
use crate::{Held, Outcome, lock};
use standfast_environment::config::settings::{DestinationConfig, OnTimeout};
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::sender_settings::{counts, sender_config};
use standfast_primary::ship::redo_source::PrimarySource;
use standfast_testkit::{MemoryLink, Rng};
use standfast_transport::gap::UNIT_BYTES_MIN;
use standfast_transport::machine::SenderCore;
use standfast_transport::{Archivers, Batch, DestinationSet, GapSettings, RefuseCode, SenderConfig};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest time that passes between two calls while there is no connection.
const AWAY_MAX: Duration = Duration::from_millis(300);
/// Steps of the network after which a call returns.
const STEPS_MAX: u32 = 200;
/// A stream that is idle for longer has nothing to send.
const SHORT_WAIT: Duration = Duration::from_millis(20);

pub(super) struct Line {
    standby: Held<StandbyHost>,
    name: String,
    /// The state of the destination, for releases; the same as in `network`.
    core: Arc<SenderCore>,
    network: Mutex<Network>,
}

struct Network {
    rng: Rng,
    time: Time,
    skew: Skew,
    sender: SenderEnd,
    receiver: Option<ReceiverEnd>,
    pipe: Option<MemoryLink>,
    /// Beside the stream, while a gap is open.
    archives: Vec<ArchiveConnection>,
    /// Whether an attempt to connect succeeds.
    is_up: bool,
    /// Per cent of chunks that reach the standby before they are written at the primary.
    eager: u64,
    /// In how many of 100,000 steps the connection breaks.
    breaks: u64,
    /// In how many of 2,000 steps it is checked whether archived logs would be faster than the stream.
    polls: u64,
    failure: Option<String>,
}

impl Line {
    /// Creates the sender for `destination`, one of `configured`, without connection.
    pub fn new(
        source: &Arc<PrimarySource>,
        destination: Destination,
        configured: &[DestinationConfig],
        set: &Arc<DestinationSet>,
        time: &Time,
    ) -> Line {
        let Destination { config, standby, skew, mut rng } = destination;
        let eager = rng.pick(&[0, 10, 50, 100]).copied().unwrap_or(0);
        let breaks = rng.pick(&[0, 50, 400]).copied().unwrap_or(0);
        let polls = rng.pick(&[0, 5, 50]).copied().unwrap_or(0);
        let name = config.name.clone();
        let settings = settings(source.environment(), config, configured, set, &mut rng);
        let sender = SenderEnd::new(settings, source.clone(), time);
        let core = sender.core().clone();
        let network = Network {
            rng,
            time: time.clone(),
            skew,
            sender,
            receiver: None,
            pipe: None,
            archives: Vec::new(),
            is_up: false,
            eager,
            breaks,
            polls,
            failure: None,
        };
        Line { standby, name, core, network: Mutex::new(network) }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn core(&self) -> &SenderCore {
        &self.core
    }

    pub fn is_up(&self) -> bool {
        lock(&self.network).is_up
    }

    pub fn disconnect(&self) {
        let mut network = lock(&self.network);
        network.is_up = false;
        network.cut();
    }

    pub fn lose_standby(&self) {
        let mut network = lock(&self.network);
        network.is_up = false;
        network.cut();
        network.archives.clear();
        network.receiver = None;
        while let Ok(Progress::Something | Progress::Idle(_)) = network.sender.step() {}
    }

    pub fn lose_primary(&self) {
        let mut network = lock(&self.network);
        network.is_up = false;
        network.cut();
        while let Ok(Progress::Something) = network.receive(&self.standby) {}
        network.end_receiver(&self.standby);
    }

    pub fn connect(&self) {
        lock(&self.network).is_up = true;
        self.core.enable();
    }

    pub fn take_failure(&self) -> Option<String> {
        lock(&self.network).failure.take()
    }

    pub fn take_gaps(&self) -> u64 {
        lock(&self.network).sender.take_gaps()
    }

    pub fn take_refusal(&self) -> Option<RefuseCode> {
        lock(&self.network).sender.take_refusal()
    }

    /// Lets both ends and the network do some steps. Returns whether there may be more to do.
    pub fn deliver(&self, environment: &Environment) -> Outcome<bool> {
        let mut network = lock(&self.network);
        let delivered = network.run(&self.standby).inspect_err(|_| network.cut());
        network.sender.note_events(environment, &self.name);
        delivered
    }

    /// Offers a batch as the log writer does.
    pub fn offer(&self, batch: &Batch<'_>) {
        let network = &mut *lock(&self.network);
        let offered = network.sender.offer(batch).and_then(|()| {
            let eager = network.eager;
            if !network.rng.chance(eager) {
                return Ok(());
            }
            for _ in 0..STEPS_MAX {
                if !network.sender.is_streaming() || network.step(&self.standby)? != Progress::Something {
                    break;
                }
            }
            Ok(())
        });
        if let Err(error) = offered {
            network.cut();
            network.failure = Some(error);
        }
    }
}

/// Settings of the sender: those of an instance, often with small frames.
fn settings(
    environment: &Environment,
    mut destination: DestinationConfig,
    configured: &[DestinationConfig],
    set: &Arc<DestinationSet>,
    rng: &mut Rng,
) -> SenderConfig {
    destination.sdu_bytes = rng.pick(&[0, 0, 700, 5000]).copied().unwrap_or(0);
    let mut config = sender_config(&destination, environment, set, &Archivers::new(0));
    config.counts = environment.of_control(|control| counts(control, &destination, configured));
    config.counts |= destination.on_timeout == Some(OnTimeout::Stall);
    let (connections, per_log) = (rng.pick(&[0, 2, 3, 4]).copied(), rng.between(1, 3) as u32);
    config.archive.settings =
        GapSettings { connections: connections.unwrap_or(0), per_log, unit_bytes: UNIT_BYTES_MIN };
    config
}

impl Network {
    /// Breaks the connection: each direction still delivers a part of what was sent.
    fn cut(&mut self) {
        if let Some(pipe) = &self.pipe {
            pipe.cut();
        }
        self.archives.iter().for_each(ArchiveConnection::cut);
    }

    fn run(&mut self, standby: &Held<StandbyHost>) -> Outcome<bool> {
        let mut more = false;
        for _ in 0..self.rng.between(2, 30) {
            match self.step(standby)? {
                Progress::Something => more = true,
                Progress::Idle(wait) if wait <= SHORT_WAIT => self.time.pass(wait),
                Progress::Idle(_) => return Ok(more),
                Progress::Down => {
                    let away = self.rng.below(AWAY_MAX.as_millis() as u64);
                    self.time.pass(Duration::from_millis(away));
                    if !self.is_up || lock(standby).is_none() || self.sender.is_refused() {
                        return Ok(false);
                    }
                    more = true;
                }
            }
        }
        Ok(more)
    }

    fn step(&mut self, standby: &Held<StandbyHost>) -> Outcome<Progress> {
        self.time.pass(Duration::from_micros(self.rng.between(1, 300)));
        if let Some(pipe) = &self.pipe {
            pipe.step();
            if self.rng.below(100_000) < self.breaks {
                pipe.cut();
            }
        }
        if self.rng.below(2000) < self.polls {
            self.sender.poll_gap();
        }
        self.connect_if_due(standby);
        let sent = self.sender.step()?;
        let fetched = self.fetch(standby)?;
        let received = self.receive(standby)?;
        let in_flight = self.pipe.as_ref().map_or(0, MemoryLink::in_flight);
        Ok(match (sent, received) {
            (Progress::Down, _) => Progress::Down,
            (Progress::Something, _) | (_, Progress::Something) => Progress::Something,
            _ if in_flight > 0 || fetched == Progress::Something => Progress::Something,
            (idle, _) => idle,
        })
    }

    fn connect_if_due(&mut self, standby: &Held<StandbyHost>) {
        if !self.sender.is_down() || self.sender.core().connect_due() != Some(Duration::ZERO) {
            return;
        }
        if !self.is_up || lock(standby).is_none() {
            return self.sender.unreachable();
        }
        // An older stream of the same primary ends.
        self.end_receiver(standby);
        let standby = lock(standby);
        let Some(host) = standby.as_ref() else { return };
        let (pipe, near, far) = pipe::connection(&mut self.rng);
        self.pipe = Some(pipe);
        self.receiver = Some(ReceiverEnd::accept(host, far, &self.time.with(self.skew)));
        self.sender.connect(near);
    }

    fn receive(&mut self, standby: &Held<StandbyHost>) -> Outcome<Progress> {
        let held = lock(standby);
        let host = held.as_ref().filter(|host| self.receiver.as_ref().is_some_and(|end| end.is_of(host)));
        let (Some(receiver), Some(host)) = (&mut self.receiver, host) else {
            self.receiver = None;
            return Ok(Progress::Down);
        };
        let stepped = receiver.step(&mut *host.log());
        drop(held);
        if !matches!(stepped, Ok(Progress::Something | Progress::Idle(_))) {
            self.end_receiver(standby);
        }
        stepped
    }

    /// The stream has ended at the standby, which then gives up a gap.
    fn end_receiver(&mut self, standby: &Held<StandbyHost>) {
        self.archives.clear();
        let held = lock(standby);
        if let (Some(receiver), Some(host)) = (self.receiver.take(), held.as_ref())
            && receiver.is_of(host)
        {
            receiver.end(&mut *host.log());
        }
    }

    /// Lets the archivers of an open gap and the connections at the standby's end do a step each.
    fn fetch(&mut self, standby: &Held<StandbyHost>) -> Outcome<Progress> {
        let core = self.sender.core().clone();
        let open = core.open_gap().filter(|_| self.sender.is_streaming());
        let Some(open) = open else {
            self.archives.clear();
            return Ok(Progress::Down);
        };
        let held = lock(standby);
        let receiver = self.receiver.as_ref().filter(|end| held.as_ref().is_some_and(|host| end.is_of(host)));
        let Some(receiver) = receiver else { return Ok(Progress::Down) };
        let wanted = (self.archives.len() as u32) < open.connections();
        if wanted && !open.is_over() && self.rng.chance(30) {
            self.archives.extend(ArchiveConnection::open(&core, &open, &mut self.rng));
        }
        let site = FarSite { service: receiver.service(), fetch: receiver.fetch() };
        let mut progress = Progress::Idle(SHORT_WAIT);
        let mut connections = std::mem::take(&mut self.archives);
        for mut connection in connections.drain(..) {
            if self.rng.below(100_000) < self.breaks {
                connection.cut();
            }
            match connection.step(&core, &open, &site)? {
                Progress::Down => continue,
                Progress::Something => progress = Progress::Something,
                Progress::Idle(_) => {}
            }
            self.archives.push(connection);
        }
        Ok(progress)
    }
}
