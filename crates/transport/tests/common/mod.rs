//! An instance in memory: a redo source, a standby log and what they recorded. Tests wait for conditions, each at most
//! `TIMEOUT`.
#![allow(dead_code)] // Each test file uses a part of it.
#![allow(clippy::unwrap_used)] // Not in functions marked as tests, but tests all the same.

pub mod family;
mod relay;
mod source;
mod standby;

#[allow(unused_imports)]
pub use relay::Relay;
#[allow(unused_imports)]
pub use source::{MemorySource, SourceState};
#[allow(unused_imports)]
pub use standby::{MemoryLog, Standby, StandbyState, empty_standby};
use standfast_format::FrameKind;
use standfast_instruments::{Instruments, RemoteAnswer};
use standfast_transport::framing::{FrameReader, FrameWriter};
use standfast_transport::hello::{self, ReceiverHello, SenderHello};
use standfast_transport::*;
use standfast_types::{DatabaseId, IncarnationId, InstanceId, PageSize, Scn};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A value that threads change and tests wait for.
#[derive(Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    pub fn new(value: T) -> Self {
        Watched { value: Mutex::new(value), changed: Condvar::new() }
    }

    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.value.lock().unwrap())
    }

    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.value.lock().unwrap());
        self.changed.notify_all();
        result
    }

    pub fn wait(&self, what: &str, ready: impl FnMut(&mut T) -> bool) {
        drop(self.when(what, ready));
    }

    /// Waits until `ready`, then keeps the value locked while the caller reads it.
    pub fn when(&self, what: &str, mut ready: impl FnMut(&mut T) -> bool) -> MutexGuard<'_, T> {
        let (guard, timeout) = self
            .changed
            .wait_timeout_while(self.value.lock().unwrap(), TIMEOUT, |value| !ready(value))
            .unwrap();
        if timeout.timed_out() {
            // Other threads that use the value continue, so that the test fails instead of waiting for them.
            drop(guard);
            panic!("not so within {TIMEOUT:?}: {what}");
        }
        guard
    }
}

pub fn incarnation(number: u32, branch: u64) -> Incarnation {
    Incarnation { number, id: IncarnationId([number as u8; 8]), branch: Scn(branch) }
}

pub fn identity(name: &str, role: Role, incarnations: &[Incarnation]) -> PeerIdentity {
    let mut instance = [0; 16];
    instance[..name.len()].copy_from_slice(name.as_bytes());
    PeerIdentity {
        instance: InstanceId(instance),
        name: name.into(),
        family: None,
        role,
        incarnations: incarnations.to_vec(),
        promotion: None,
    }
}

/// Redo that is different at every position and for every `salt`.
pub fn redo(at: Scn, bytes: usize, salt: u8) -> Vec<u8> {
    (at.0..at.0 + bytes as u64).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8 ^ salt).collect()
}

pub fn database(id: u16, pages: usize, scn: Scn) -> (DatabaseInfo, Vec<u8>, Scn) {
    let page_size = PageSize::new(512).unwrap();
    let info = DatabaseInfo {
        id: DatabaseId(id),
        name: format!("{id}.db"),
        page_size,
        path: format!("data/{id}.db"),
    };
    (info, redo(Scn(u64::from(id)), pages * 512, 9), scn)
}

#[derive(Default)]
pub struct Observer {
    pub events: Watched<Vec<SenderEvent>>,
    pub acknowledgements: Watched<u64>,
    pub superseded: Watched<Vec<Incarnation>>,
    pub instruments: Arc<Instruments>,
}

impl SenderObserver for Observer {
    fn acknowledged(&self, _: usize, _: Option<RemoteAnswer>) {
        self.acknowledgements.change(|count| *count += 1);
    }
    fn superseded(&self, _: &PeerIdentity, newer: &Incarnation) {
        self.superseded.change(|met| met.push(*newer));
    }
    fn event(&self, _: usize, event: &SenderEvent) {
        self.events.change(|events| events.push(event.clone()));
    }
    fn enter_thread(&self, name: &str) {
        self.instruments.enter_thread(name);
    }
}

impl Observer {
    pub fn wait_event(&self, what: &str, is_it: impl Fn(&SenderEvent) -> bool) -> SenderEvent {
        let events = self.events.when(what, |events| events.iter().any(&is_it));
        events.iter().rev().find(|event| is_it(event)).unwrap().clone()
    }

    pub fn wait_refused(&self, code: RefuseCode) -> SenderEvent {
        self.wait_event(
            &format!("{code} is reported"),
            |event| matches!(event, SenderEvent::Refused(refusal) if refusal.code == code),
        )
    }

    pub fn forget(&self) {
        self.events.change(Vec::clear);
    }

    /// Waits until the sender has published a state that satisfies `ready`.
    pub fn wait_sender(&self, what: &str, sender: &Sender, ready: impl Fn(&Sender) -> bool) {
        self.acknowledgements.wait(what, |_| ready(sender));
    }
}

pub struct Service {
    pub identity: Watched<PeerIdentity>,
    pub source: Option<Arc<MemorySource>>,
    pub events: Watched<Vec<ReceiverEvent>>,
    pub superseded: Watched<Vec<Incarnation>>,
}

impl Service {
    pub fn standby(name: &str, incarnations: &[Incarnation]) -> Arc<Service> {
        let identity = Watched::new(identity(name, Role::Standby, incarnations));
        Arc::new(Service {
            identity,
            source: None,
            events: Watched::default(),
            superseded: Watched::default(),
        })
    }

    pub fn primary(source: &Arc<MemorySource>) -> Arc<Service> {
        let identity = Watched::new(source.identity());
        Arc::new(Service {
            identity,
            source: Some(source.clone()),
            events: Watched::default(),
            superseded: Watched::default(),
        })
    }

    pub fn wait_event(&self, what: &str, is_it: impl Fn(&ReceiverEvent) -> bool) -> ReceiverEvent {
        let events = self.events.when(what, |events| events.iter().any(&is_it));
        events.iter().rev().find(|event| is_it(event)).unwrap().clone()
    }
}

impl ReceiverService for Service {
    fn identity(&self) -> PeerIdentity {
        self.identity.read(PeerIdentity::clone)
    }
    fn superseded(&self, peer: &PeerIdentity, newer: &Incarnation) {
        self.identity.change(|identity| identity.incarnations = peer.incarnations.clone());
        self.superseded.change(|met| met.push(*newer));
    }
    fn source(&self) -> Option<Arc<dyn RedoSource>> {
        self.source.clone().map(|source| source as Arc<dyn RedoSource>)
    }
    fn status(&self, history: bool) -> String {
        format!(r#"{{"state":"fine","history":{history}}}"#)
    }
    fn event(&self, event: &ReceiverEvent) {
        self.events.change(|events| events.push(event.clone()));
    }
}

/// Whether the tests around this module run over TLS: they are then in a module of that name.
fn over_tls() -> bool {
    module_path!().contains("over_tls")
}

/// Security of a sender called `name`.
pub fn sender_security(name: &str) -> Security {
    if over_tls() { family::member(name, true) } else { Security::insecure() }
}

pub fn receiver_config(listen: &str) -> ReceiverConfig {
    // Handmade peers speak plain TCP.
    let security = if over_tls() { family::member("oslo", false) } else { Security::insecure() };
    ReceiverConfig { listen: listen.into(), security, ..ReceiverConfig::default() }
}

/// Starts a standby that listens on any port.
pub fn listen(service: &Arc<Service>, standby: &Standby) -> Receiver {
    listen_at("127.0.0.1:0", service, standby)
}

pub fn listen_at(address: &str, service: &Arc<Service>, standby: &Standby) -> Receiver {
    let mut config = receiver_config(address);
    if over_tls() {
        config.security = family::member(&service.identity().name, false);
    }
    listen_with(config, service, standby)
}

pub fn listen_with(config: ReceiverConfig, service: &Arc<Service>, standby: &Standby) -> Receiver {
    Receiver::start(config, service.clone(), Some(Box::new(MemoryLog(standby.clone())))).unwrap()
}

pub fn destination(mode: TransportMode) -> DestinationConfig {
    DestinationConfig {
        name: "oslo".into(),
        mode,
        net_timeout: Duration::from_secs(10),
        reopen: Duration::from_millis(100),
        max_failure: 0,
        grouped: false,
        on_timeout: OnTimeout::Degrade,
        sync_latency: Duration::ZERO,
    }
}

pub fn send_to(
    address: SocketAddr,
    destination: DestinationConfig,
    source: &Arc<MemorySource>,
) -> (Sender, Arc<Observer>) {
    send_shaped(address, destination, StreamShape::default(), source)
}

pub fn send_shaped(
    address: SocketAddr,
    destination: DestinationConfig,
    shape: StreamShape,
    source: &Arc<MemorySource>,
) -> (Sender, Arc<Observer>) {
    send_as(address, destination, shape, source, ArchiveTransport::default())
}

pub fn send_with(
    address: SocketAddr,
    destination: DestinationConfig,
    source: &Arc<MemorySource>,
    archive: ArchiveTransport,
) -> (Sender, Arc<Observer>) {
    send_as(address, destination, StreamShape::default(), source, archive)
}

/// SYNC AFFIRM to the instance `expected` at `address`.
pub fn sender_config(address: SocketAddr, security: Security, expected: Option<&str>) -> SenderConfig {
    SenderConfig {
        destination: destination(TransportMode::SyncAffirm),
        address: address.to_string(),
        expected_name: expected.map(str::to_owned),
        security,
        shape: StreamShape::default(),
        delay: None,
        counts: true,
        destination_set: Arc::default(),
        archive: ArchiveTransport::default(),
    }
}

fn send_as(
    address: SocketAddr,
    destination: DestinationConfig,
    shape: StreamShape,
    source: &Arc<MemorySource>,
    archive: ArchiveTransport,
) -> (Sender, Arc<Observer>) {
    let observer = Arc::new(Observer::default());
    let config = SenderConfig {
        destination,
        shape,
        archive,
        ..sender_config(address, sender_security(&source.identity().name), None)
    };
    (Sender::start(3, config, source.clone(), observer.clone()).unwrap(), observer)
}

/// A primary and a standby of the first incarnation, connected.
pub struct Pair {
    pub source: Arc<MemorySource>,
    pub sender: Sender,
    pub observer: Arc<Observer>,
    pub service: Arc<Service>,
    pub standby: Standby,
    pub receiver: Receiver,
}

impl Pair {
    pub fn connected(mode: TransportMode) -> Pair {
        let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
        Pair::connect(source, empty_standby(), destination(mode))
    }

    pub fn connect(source: Arc<MemorySource>, standby: Standby, destination: DestinationConfig) -> Pair {
        let service = Service::standby("oslo", &[incarnation(1, 4096)]);
        let receiver = listen(&service, &standby);
        Pair::over(source, standby, service, receiver, destination, StreamShape::default())
    }

    pub fn over(
        source: Arc<MemorySource>,
        standby: Standby,
        service: Arc<Service>,
        receiver: Receiver,
        destination: DestinationConfig,
        shape: StreamShape,
    ) -> Pair {
        let (sender, observer) = send_shaped(receiver.local_addr(), destination, shape, &source);
        observer.wait_event("the stream begins", |event| matches!(event, SenderEvent::Connected { .. }));
        standby.wait("the standby knows it", |state| !state.starts.is_empty());
        Pair { source, sender, observer, service, standby, receiver }
    }

    /// Waits until the standby holds the primary's whole stream, and compares the two.
    pub fn caught_up(&self) {
        let end = self.source.end();
        let standby = self
            .standby
            .when("the standby has everything", |state| state.end() == end && state.gap.is_none());
        self.source
            .0
            .read(|source| assert!(source.slice(standby.first, end) == standby.bytes, "other bytes"));
    }
}

/// A handmade peer, which sends its frames itself.
pub struct ByHand {
    pub reader: FrameReader<TcpStream>,
    pub writer: FrameWriter<TcpStream>,
    pub compression: Compression,
}

impl ByHand {
    pub fn new(stream: TcpStream) -> ByHand {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = FrameReader::new(stream.try_clone().unwrap());
        ByHand { reader, writer: FrameWriter::new(stream), compression: Compression::None }
    }

    pub fn connect(address: SocketAddr) -> ByHand {
        ByHand::new(TcpStream::connect(address).unwrap())
    }

    pub fn hello(&mut self, source: PeerIdentity) {
        self.hello_with(source, 60_000);
    }

    pub fn hello_with(&mut self, source: PeerIdentity, net_timeout_ms: u64) {
        let mode = TransportMode::Async;
        let hello = SenderHello {
            source,
            mode,
            net_timeout_ms,
            receive_buffer_bytes: 0,
            via: Vec::new(),
            delay_ms: None,
            logs: None,
            peers: Vec::new(),
            members: Vec::new(),
            issuer: None,
            renews: false,
            reports_position: false,
            compression: self.compression,
            archives_to: None,
        };
        self.writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &hello).unwrap();
    }

    pub fn refusal(&mut self) -> Refusal {
        match hello::expect(&self.reader.read().unwrap(), FrameKind::Hello) {
            Err(TransportError::Refused(refusal)) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Performs a whole handshake as `source`.
    pub fn begin(address: SocketAddr, source: &MemorySource) -> ByHand {
        ByHand::begin_with(address, source, 60_000)
    }

    pub fn begin_with(address: SocketAddr, source: &MemorySource, net_timeout_ms: u64) -> ByHand {
        ByHand::connect(address).agree(source, net_timeout_ms)
    }

    pub fn begin_packed(address: SocketAddr, source: &MemorySource, compression: Compression) -> ByHand {
        ByHand { compression, ..ByHand::connect(address) }.agree(source, 60_000)
    }

    pub fn agree(mut self, source: &MemorySource, net_timeout_ms: u64) -> ByHand {
        let peer = &mut self;
        peer.hello_with(source.identity(), net_timeout_ms);
        let answer: ReceiverHello = hello::decode(&peer.reader.read().unwrap()).unwrap();
        let from = answer.positions.unwrap().end.scn;
        let log = source.log_containing(from).unwrap();
        let start = StreamStart { source: source.identity(), from, keep: from, log, gap: None };
        peer.writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &start).unwrap();
        self
    }

    pub fn assert_closed(&mut self) {
        assert!(matches!(
            self.reader.read(),
            Err(framing::FramingError::Closed | framing::FramingError::Io(_))
        ));
    }
}

/// An instance with no peer on its allow-list.
pub struct Unlisting(pub Arc<Service>);

impl ReceiverService for Unlisting {
    fn identity(&self) -> PeerIdentity {
        self.0.identity()
    }
    fn source(&self) -> Option<Arc<dyn RedoSource>> {
        self.0.source()
    }
    fn status(&self, history: bool) -> String {
        self.0.status(history)
    }
    fn event(&self, event: &ReceiverEvent) {
        self.0.event(event);
    }
    fn authorise(&self, peer: &str, wish: Right) -> Result<(), Refusal> {
        Err(Refusal::new(RefuseCode::NotAllowed, format!("`{peer}` is not listed: {}", wish.words())))
    }
}
