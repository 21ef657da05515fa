//! The connection between primary and standby. Both ends are the machines that the threads of a sender and a receiver
//! run ([`standfast_transport::machine`]), with the real frames and handshake; the bytes go over a pipe in memory, split
//! anywhere, late, and lost from any byte on when the connection breaks. Missing logs come over the stream: the separate
//! connections for archived logs are not simulated.
//!
//! ```text
//!  log writer ── offer ──> SenderEnd ══ pipe ══> ReceiverEnd ── append ──> StandbyLog
//!  commits <── releasable ── Destination <── Ack ════════┘
//! ```

mod pipe;
mod receiver_end;
mod sender_end;

use crate::standby::StandbyHost;
use crate::{Held, Outcome, lock};
use pipe::Time;
use receiver_end::ReceiverEnd;
use sender_end::{Progress, SenderEnd};
use standfast_environment::config::settings::{Compression, DestinationConfig, OnTimeout};
use standfast_environment::ship::pieces::piece;
use standfast_environment::ship::sender_settings::sender_config;
use standfast_instruments::Cause;
use standfast_log::RedoChunk;
use standfast_primary::commit::primary::{PrimaryShared, Shipping};
use standfast_primary::ship::redo_source::PrimarySource;
use standfast_testkit::{MemoryLink, Rng};
use standfast_transport::machine::SenderCore;
use standfast_transport::{Archivers, Batch, DestinationSet, RedoSource, SenderConfig};
use standfast_types::Scn;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NET_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time that passes between two calls while there is no connection.
const AWAY_MAX: Duration = Duration::from_millis(300);
/// Steps of the network after which a call returns.
const STEPS_MAX: u32 = 200;
/// A stream that is idle for longer has nothing to send.
const SHORT_WAIT: Duration = Duration::from_millis(20);

/// All destinations of the primary: one standby.
pub struct Link {
    source: Arc<PrimarySource>,
    shared: Arc<PrimaryShared>,
    standby: Held<StandbyHost>,
    name: String,
    /// The state of the destination, for releases; the same as in `network`.
    core: Arc<SenderCore>,
    network: Mutex<Network>,
}

struct Network {
    rng: Rng,
    time: Time,
    sender: SenderEnd,
    receiver: Option<ReceiverEnd>,
    pipe: Option<MemoryLink>,
    /// Whether an attempt to connect succeeds.
    is_up: bool,
    /// Per cent of chunks that reach the standby before they are written at the primary.
    eager: u64,
    /// In how many of 100,000 steps the connection breaks.
    breaks: u64,
    failure: Option<String>,
}

impl Link {
    /// Creates a link without connection. With `stall`, commits wait for the standby whether it is connected or not;
    /// otherwise they continue without it after the net timeout, until it has caught up.
    pub fn new(
        source: &Arc<PrimarySource>,
        shared: &Arc<PrimaryShared>,
        standby: &Held<StandbyHost>,
        stall: bool,
        mut rng: Rng,
    ) -> Arc<Link> {
        let eager = rng.pick(&[0, 10, 50, 100]).copied().unwrap_or(0);
        let breaks = rng.pick(&[0, 50, 400]).copied().unwrap_or(0);
        let config = settings(source, stall, &mut rng);
        let name = config.destination.name.clone();
        let time = Time::default();
        let sender = SenderEnd::new(config, source.clone(), &time);
        let core = sender.core().clone();
        let network = Network {
            rng,
            time,
            sender,
            receiver: None,
            pipe: None,
            is_up: false,
            eager,
            breaks,
            failure: None,
        };
        Arc::new(Link {
            source: source.clone(),
            shared: shared.clone(),
            standby: standby.clone(),
            name,
            core,
            network: Mutex::new(network),
        })
    }

    /// Whether the network is up: the sender connects by itself.
    pub fn is_connected(&self) -> bool {
        lock(&self.network).is_up
    }

    /// Whether commits wait for the standby.
    pub fn is_required(&self) -> bool {
        self.core.is_required()
    }

    /// End of the redo that the standby has acknowledged; zero before the first handshake.
    pub fn acknowledged(&self) -> Scn {
        self.core.acknowledged()
    }

    /// Takes the network down. What was sent arrives in part.
    pub fn disconnect(&self) {
        let mut network = lock(&self.network);
        network.is_up = false;
        network.cut();
        drop(network);
        self.shared.release(Cause::Decision);
    }

    /// The standby has died. The acknowledgements that it had sent arrive in part.
    pub fn lose_standby(&self) {
        let mut network = lock(&self.network);
        network.is_up = false;
        network.cut();
        network.receiver = None;
        while let Ok(Progress::Something | Progress::Idle(_)) = network.sender.step() {}
        drop(network);
        self.shared.release(Cause::Decision);
    }

    /// The primary has died. The redo that it had sent arrives in part; what comes of it at the standby is found later.
    pub fn die(&self) {
        let mut network = lock(&self.network);
        network.is_up = false;
        network.cut();
        while let Ok(Progress::Something) = network.receive(&self.standby) {}
        network.receiver = None;
    }

    /// Brings the network up.
    pub fn connect(&self) {
        lock(&self.network).is_up = true;
        self.core.enable();
    }

    /// Takes the error that occurred inside the log writer.
    pub fn take_failure(&self) -> Option<String> {
        lock(&self.network).failure.take()
    }

    /// Lets both ends and the network do some steps. Returns whether there may be more to do.
    ///
    /// # Errors
    /// Why a stream ended, unless the connection was lost.
    pub fn deliver(&self) -> Outcome<bool> {
        let mut network = lock(&self.network);
        let delivered = network.run(&self.standby).inspect_err(|_| network.cut());
        network.sender.note_events(self.source.environment(), &self.name);
        drop(network);
        self.shared.release(Cause::Decision);
        delivered
    }
}

/// Settings of the sender: those of an instance, often with small frames.
fn settings(source: &PrimarySource, stall: bool, rng: &mut Rng) -> SenderConfig {
    let environment = source.environment();
    let on_timeout = if stall { OnTimeout::Stall } else { OnTimeout::Degrade };
    let destination = DestinationConfig {
        on_timeout: Some(on_timeout),
        net_timeout_ms: NET_TIMEOUT.as_millis() as u64,
        // How long compressed redo is depends on the times in it, and a seed must always give the same run.
        compression: Compression::None,
        sdu_bytes: rng.pick(&[0, 0, 700, 5000]).copied().unwrap_or(0),
        ..DestinationConfig::new(&environment.config.instance.name, "simulated:1")
    };
    let set = Arc::new(DestinationSet::default());
    let mut config = sender_config(&destination, environment, &set, &Archivers::new(0));
    config.counts |= stall;
    // Missing logs come over the stream.
    config.archive.settings.connections = 0;
    config
}

impl Network {
    /// Breaks the connection: each direction still delivers a part of what was sent.
    fn cut(&mut self) {
        if let Some(pipe) = &self.pipe {
            pipe.cut();
        }
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
                    if !self.is_up || lock(standby).is_none() {
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
        self.connect_if_due(standby);
        let sent = self.sender.step()?;
        let received = self.receive(standby)?;
        let in_flight = self.pipe.as_ref().map_or(0, MemoryLink::in_flight);
        Ok(match (sent, received) {
            (Progress::Down, _) => Progress::Down,
            (Progress::Something, _) | (_, Progress::Something) => Progress::Something,
            _ if in_flight > 0 => Progress::Something,
            (idle, _) => idle,
        })
    }

    fn connect_if_due(&mut self, standby: &Held<StandbyHost>) {
        if !self.sender.is_down() || self.sender.core().connect_due() != Some(Duration::ZERO) {
            return;
        }
        let standby = lock(standby);
        let Some(host) = standby.as_ref().filter(|_| self.is_up) else { return self.sender.unreachable() };
        let (pipe, near, far) = pipe::connection(&mut self.rng);
        self.pipe = Some(pipe);
        // An older stream of the same primary ends.
        self.receiver = Some(ReceiverEnd::accept(host, far, &self.time));
        self.sender.connect(near);
    }

    fn receive(&mut self, standby: &Held<StandbyHost>) -> Outcome<Progress> {
        let standby = lock(standby);
        let host = standby.as_ref().filter(|host| self.receiver.as_ref().is_some_and(|end| end.is_of(host)));
        let (Some(receiver), Some(host)) = (&mut self.receiver, host) else {
            self.receiver = None;
            return Ok(Progress::Down);
        };
        let stepped = receiver.step(&mut *host.log());
        if !matches!(stepped, Ok(Progress::Something | Progress::Idle(_))) {
            self.receiver = None;
        }
        stepped
    }
}

impl Shipping for Link {
    fn offer(&self, chunk: &Arc<RedoChunk>, durable: Scn) {
        let network = &mut *lock(&self.network);
        let pieces = [piece(chunk)];
        let log_first = self.source.redo_log().current_first();
        let batch = Batch { pieces: &pieces, log_first, durable, captured: self.source.captured() };
        let offered = network.sender.offer(&batch).and_then(|()| {
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

    fn releasable(&self, local: Scn) -> Scn {
        if self.core.is_required() { local.min(self.core.acknowledged()) } else { local }
    }
}
