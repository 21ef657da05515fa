//! An instance in memory: a redo source, a standby log and what they saw. Everything that can be waited for is
//! waited for with a condition, at most `PATIENCE`.
#![allow(dead_code)] // Each test file uses a part of it.
#![allow(clippy::unwrap_used)] // Not in functions marked as tests, but tests all the same.

use standfast_format::{FrameKind, StreamCrc};
use standfast_transport::framing::{FrameReader, FrameWriter};
use standfast_transport::hello::{self, ReceiverHello, SenderHello};
use standfast_transport::*;
use standfast_types::{DatabaseId, IncarnationId, InstanceId, PageNo, PageSize, Scn};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(20);

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

    /// As `wait`, and then nothing changes while the value is looked at.
    pub fn when(&self, what: &str, mut ready: impl FnMut(&mut T) -> bool) -> MutexGuard<'_, T> {
        let (guard, timeout) = self
            .changed
            .wait_timeout_while(self.value.lock().unwrap(), PATIENCE, |value| !ready(value))
            .unwrap();
        assert!(!timeout.timed_out(), "waited in vain until {what}");
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
        role,
        incarnations: incarnations.to_vec(),
    }
}

/// Redo that is different at every position and by `salt`.
pub fn redo(at: Scn, bytes: usize, salt: u8) -> Vec<u8> {
    (at.0..at.0 + bytes as u64).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8 ^ salt).collect()
}

pub struct SourceState {
    pub identity: PeerIdentity,
    /// The stream from `Scn::START` on.
    pub bytes: Vec<u8>,
    pub durable: Scn,
    /// What lies before is no longer in the log buffer.
    pub buffer_from: Scn,
    /// What lies before is gone.
    pub oldest: Scn,
    pub logs: Vec<LogSwitch>,
    pub databases: Vec<(DatabaseInfo, Vec<u8>, Scn)>,
}

pub struct MemorySource(pub Watched<SourceState>);

impl MemorySource {
    pub fn new(name: &str, incarnations: &[Incarnation]) -> Arc<MemorySource> {
        Arc::new(MemorySource(Watched::new(SourceState {
            identity: identity(name, Role::Primary, incarnations),
            bytes: Vec::new(),
            durable: Scn::START,
            buffer_from: Scn::START,
            oldest: Scn::START,
            logs: vec![LogSwitch { sequence: 1, first_scn: Scn::START, time_us: 1, first_record: 0 }],
            databases: Vec::new(),
        })))
    }

    pub fn end(&self) -> Scn {
        self.0.read(SourceState::end)
    }

    /// Captures `bytes`, and makes them durable.
    pub fn write(&self, bytes: &[u8]) {
        self.0.change(|state| {
            state.bytes.extend_from_slice(bytes);
            state.durable = state.end();
        });
    }

    /// As a log writer: captures, offers, makes durable.
    pub fn commit(&self, sender: &Sender, bytes: &[u8]) -> Offer {
        let offer = self.capture(sender, bytes);
        self.harden();
        offer
    }

    pub fn capture(&self, sender: &Sender, bytes: &[u8]) -> Offer {
        let (piece, log_first, durable, captured) = self.0.change(|state| {
            let first = state.end();
            state.bytes.extend_from_slice(bytes);
            let log_first = state.logs.last().unwrap().first_scn;
            (Piece::new(first, Arc::new(bytes.to_vec())), log_first, state.durable, state.end())
        });
        sender.offer(&Batch { pieces: &[piece], log_first, durable, captured })
    }

    pub fn harden(&self) {
        self.0.change(|state| state.durable = state.end());
    }

    pub fn switch(&self) {
        self.0.change(|state| {
            let last = state.logs.last().unwrap();
            let next = LogSwitch {
                sequence: last.sequence + 1,
                first_scn: state.end(),
                time_us: last.time_us + 1,
                first_record: 3,
            };
            state.logs.push(next);
        });
    }
}

impl SourceState {
    pub fn end(&self) -> Scn {
        Scn::START + self.bytes.len() as u64
    }

    pub fn slice(&self, from: Scn, upto: Scn) -> &[u8] {
        &self.bytes[from.bytes_since(Scn::START) as usize..upto.bytes_since(Scn::START) as usize]
    }
}

impl RedoSource for MemorySource {
    fn identity(&self) -> PeerIdentity {
        self.0.read(|state| state.identity.clone())
    }
    fn captured(&self) -> Scn {
        self.end()
    }
    fn durable(&self) -> Scn {
        self.0.read(|state| state.durable)
    }
    fn oldest(&self) -> Scn {
        self.0.read(|state| state.oldest)
    }
    fn buffered(&self, from: Scn, bytes_max: usize) -> Option<Vec<Piece>> {
        self.0.read(|state| {
            let upto = state.end().min(from + bytes_max as u64);
            if from < state.buffer_from || from > upto {
                return None;
            }
            // Pieces of 100 bytes, the first of which may begin before `from`.
            let mut first = Scn(from.0 - (from.0 - state.buffer_from.0) % 100);
            let mut pieces = Vec::new();
            while first < upto {
                let end = (first + 100).min(upto);
                pieces.push(Piece::new(first, Arc::new(state.slice(first, end).to_vec())));
                first = end;
            }
            Some(pieces)
        })
    }
    fn logged(&self, from: Scn, bytes_max: usize) -> Result<Vec<u8>, SourceError> {
        self.0.read(|state| {
            if from < state.oldest {
                return Err(SourceError::Gone { wanted: from, oldest: state.oldest });
            }
            Ok(state.slice(from, state.durable.min(from + bytes_max as u64).max(from)).to_vec())
        })
    }
    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, SourceError> {
        Ok(self.0.read(|state| {
            let known = state.oldest <= at && at <= state.end();
            known.then(|| StreamCrc::default().after(state.slice(Scn::START, at)))
        }))
    }
    fn switches(&self, after: Scn, upto: Scn) -> Vec<LogSwitch> {
        self.0.read(|state| {
            state.logs.iter().filter(|log| after < log.first_scn && log.first_scn <= upto).copied().collect()
        })
    }
    fn log_containing(&self, at: Scn) -> Option<LogSwitch> {
        self.0.read(|state| state.logs.iter().rev().find(|log| log.first_scn <= at).copied())
    }
    fn databases(&self) -> Vec<DatabaseInfo> {
        self.0.read(|state| state.databases.iter().map(|(info, _, _)| info.clone()).collect())
    }
    fn snapshot(
        &self,
        database: DatabaseId,
        sink: &mut dyn FnMut(PageNo, &[u8]) -> std::io::Result<()>,
    ) -> Result<SnapshotInfo, SourceError> {
        let (info, bytes, scn) = self
            .0
            .read(|state| state.databases.iter().find(|(info, _, _)| info.id == database).cloned())
            .unwrap();
        let page_bytes = info.page_size.bytes();
        sink(1, &bytes[..page_bytes]).map_err(SourceError::Sink)?;
        sink(2, &bytes[page_bytes..]).map_err(SourceError::Sink)?;
        Ok(SnapshotInfo { database, scn, pages: (bytes.len() / page_bytes) as u32 })
    }
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
pub struct StandbyState {
    /// Position of the first byte of `bytes`.
    pub first: Scn,
    pub bytes: Vec<u8>,
    pub confirmed: Scn,
    pub applied: Scn,
    pub logs: Vec<LogSwitch>,
    pub cuts: Vec<(Scn, Scn)>,
    pub starts: Vec<StreamStart>,
    pub notices: u64,
    pub writes: u64,
    /// Writes block while this is set.
    pub hold: bool,
    /// Writes fail while this is set.
    pub broken: bool,
}

impl StandbyState {
    pub fn end(&self) -> Scn {
        self.first + self.bytes.len() as u64
    }
}

pub type Standby = Arc<Watched<StandbyState>>;

pub fn empty_standby() -> Standby {
    Arc::new(Watched::new(StandbyState { first: Scn::START, confirmed: Scn::START, ..Default::default() }))
}

pub struct MemoryLog(pub Standby);

impl StandbyLog for MemoryLog {
    fn received_end(&self) -> Scn {
        self.0.read(StandbyState::end)
    }
    fn confirmed(&self) -> Scn {
        self.0.read(|state| state.confirmed)
    }
    fn applied(&self) -> Scn {
        self.0.read(|state| state.applied)
    }
    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, StationError> {
        Ok(self.0.read(|state| {
            let bytes = state.bytes.get(..at.bytes_since(state.first) as usize)?;
            Some(StreamCrc::default().after(bytes))
        }))
    }
    fn read(&self, from: Scn, bytes: usize) -> Result<Vec<u8>, StationError> {
        Ok(self.0.read(|state| {
            let at = from.bytes_since(state.first) as usize;
            state.bytes[at..at + bytes].to_vec()
        }))
    }
    fn log_containing(&self, at: Scn) -> Option<LogSwitch> {
        self.0.read(|state| state.logs.iter().rev().find(|log| log.first_scn <= at).copied())
    }
    fn cut(&mut self, at: Scn) -> Result<(), StationError> {
        self.0.change(|state| {
            assert!(state.confirmed <= at && at < state.end(), "cut at {at}");
            state.cuts.push((at, state.end()));
            state.bytes.truncate(at.bytes_since(state.first) as usize);
            state.logs.retain(|log| log.first_scn < at);
        });
        Ok(())
    }
    fn begin(&mut self, start: &StreamStart) -> Result<(), StationError> {
        self.0.change(|state| state.starts.push(start.clone()));
        Ok(())
    }
    fn append(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, StationError> {
        self.0.wait("writes may go on", |state| !state.hold);
        self.0.change(|state| {
            if state.broken {
                return Err("the disk is gone; replace it".into());
            }
            slices.iter().for_each(|slice| state.bytes.extend_from_slice(slice));
            state.writes += 1;
            state.set_confirmed(confirmed);
            Ok(state.end())
        })
    }
    fn switch(&mut self, log: &LogSwitch) -> Result<(), StationError> {
        self.0.change(|state| {
            assert_eq!(log.first_scn, state.end());
            if state.logs.last() != Some(log) {
                state.logs.push(*log);
            }
        });
        Ok(())
    }
    fn confirm(&mut self, confirmed: Scn) -> Result<(), StationError> {
        self.0.change(|state| state.set_confirmed(confirmed));
        Ok(())
    }
    fn hardened_notice(&self) {
        self.0.change(|state| state.notices += 1);
    }
}

impl StandbyState {
    fn set_confirmed(&mut self, confirmed: Scn) {
        assert!(
            self.confirmed <= confirmed && confirmed <= self.end(),
            "confirmed {confirmed}, end {}",
            self.end()
        );
        self.confirmed = confirmed;
    }
}

/// What a sender reported.
#[derive(Default)]
pub struct Observer {
    pub events: Watched<Vec<SenderEvent>>,
    pub acknowledgements: Watched<u64>,
}

impl SenderObserver for Observer {
    fn acknowledged(&self, _: usize) {
        self.acknowledgements.change(|count| *count += 1);
    }
    fn event(&self, _: usize, event: &SenderEvent) {
        self.events.change(|events| events.push(event.clone()));
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

    /// Waits until the sender has published something that `ready` likes.
    pub fn wait_sender(&self, what: &str, sender: &Sender, ready: impl Fn(&Sender) -> bool) {
        self.acknowledgements.wait(what, |_| ready(sender));
    }
}

/// The instance behind a receiver.
pub struct Service {
    pub identity: Watched<PeerIdentity>,
    pub source: Option<Arc<MemorySource>>,
    pub events: Watched<Vec<ReceiverEvent>>,
}

impl Service {
    pub fn standby(name: &str, incarnations: &[Incarnation]) -> Arc<Service> {
        let identity = Watched::new(identity(name, Role::Standby, incarnations));
        Arc::new(Service { identity, source: None, events: Watched::default() })
    }

    pub fn primary(source: &Arc<MemorySource>) -> Arc<Service> {
        let identity = Watched::new(source.identity());
        Arc::new(Service { identity, source: Some(source.clone()), events: Watched::default() })
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
    fn source(&self) -> Option<Arc<dyn RedoSource>> {
        self.source.clone().map(|source| source as Arc<dyn RedoSource>)
    }
    fn status(&self) -> String {
        r#"{"state":"fine"}"#.into()
    }
    fn event(&self, event: &ReceiverEvent) {
        self.events.change(|events| events.push(event.clone()));
    }
}

pub fn receiver_config(listen: &str) -> ReceiverConfig {
    ReceiverConfig { listen: listen.into(), ..ReceiverConfig::default() }
}

/// A standby that listens on any port.
pub fn listen(service: &Arc<Service>, standby: &Standby) -> Receiver {
    listen_at("127.0.0.1:0", service, standby)
}

pub fn listen_at(address: &str, service: &Arc<Service>, standby: &Standby) -> Receiver {
    Receiver::start(receiver_config(address), service.clone(), Some(Box::new(MemoryLog(standby.clone()))))
        .unwrap()
}

pub fn destination(mode: TransportMode) -> DestinationConfig {
    DestinationConfig {
        name: "oslo".into(),
        mode,
        net_timeout: Duration::from_secs(10),
        reopen: Duration::from_millis(100),
        max_failure: 0,
        on_timeout: OnTimeout::Degrade,
    }
}

pub fn send_to(
    address: SocketAddr,
    destination: DestinationConfig,
    source: &Arc<MemorySource>,
) -> (Sender, Arc<Observer>) {
    let observer = Arc::new(Observer::default());
    let config =
        SenderConfig { destination, address: address.to_string(), expected_name: None, insecure: false };
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
        let (sender, observer) = send_to(receiver.local_addr(), destination, &source);
        observer.wait_event("the stream begins", |event| matches!(event, SenderEvent::Connected { .. }));
        standby.wait("the standby knows it", |state| !state.starts.is_empty());
        Pair { source, sender, observer, service, standby, receiver }
    }

    /// Waits until the standby holds the primary's whole stream, and compares.
    pub fn caught_up(&self) {
        let end = self.source.end();
        let standby = self.standby.when("the standby has everything", |state| state.end() == end);
        self.source
            .0
            .read(|source| assert!(source.slice(standby.first, end) == standby.bytes, "other bytes"));
    }
}

/// A peer made by hand.
pub struct ByHand {
    pub reader: FrameReader<TcpStream>,
    pub writer: FrameWriter<TcpStream>,
}

impl ByHand {
    pub fn new(stream: TcpStream) -> ByHand {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        ByHand { reader: FrameReader::new(stream.try_clone().unwrap()), writer: FrameWriter::new(stream) }
    }

    pub fn connect(address: SocketAddr) -> ByHand {
        ByHand::new(TcpStream::connect(address).unwrap())
    }

    pub fn hello(&mut self, source: PeerIdentity) {
        let hello = SenderHello { source, mode: TransportMode::Async, net_timeout_ms: 60_000 };
        self.writer.write_json(FrameKind::Hello, 1, &hello).unwrap();
    }

    pub fn refusal(&mut self) -> Refusal {
        match hello::expect(&self.reader.read().unwrap(), FrameKind::Hello) {
            Err(TransportError::Refused(refusal)) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Goes through a whole handshake as `source`.
    pub fn begin(address: SocketAddr, source: &MemorySource) -> ByHand {
        let mut peer = ByHand::connect(address);
        peer.hello(source.identity());
        let answer: ReceiverHello = hello::decode(&peer.reader.read().unwrap()).unwrap();
        let from = answer.positions.unwrap().end.scn;
        let log = source.log_containing(from).unwrap();
        let start = StreamStart { source: source.identity(), from, keep: from, log };
        peer.writer.write_json(FrameKind::Hello, 1, &start).unwrap();
        peer
    }

    pub fn assert_closed(&mut self) {
        assert!(matches!(
            self.reader.read(),
            Err(framing::FramingError::Closed | framing::FramingError::Io(_))
        ));
    }
}
