//! A redo source in memory.

use super::{Watched, identity};
use standfast_format::StreamCrc;
use standfast_transport::*;
use standfast_types::{DatabaseId, PageNo, Scn};
use std::sync::Arc;

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
    /// Everything may be sent, offered or not.
    pub forwards: bool,
    pub epoch: u64,
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
            forwards: false,
            epoch: 0,
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
    fn sendable(&self) -> Scn {
        self.0.read(|state| if state.forwards { state.end() } else { state.durable })
    }
    fn epoch(&self) -> u64 {
        self.0.read(|state| state.epoch)
    }
    fn oldest(&self) -> Scn {
        self.0.read(|state| state.oldest)
    }
    fn buffered(&self, from: Scn, bytes_max: usize) -> Option<Vec<Piece>> {
        self.0.read(|state| {
            let upto = state.end().min(from + bytes_max as u64);
            if from < state.buffer_from || from > state.end() {
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
            let there = if state.forwards { state.end() } else { state.durable };
            Ok(state.slice(from, there.min(from + bytes_max as u64).max(from)).to_vec())
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
    fn databases(&self) -> Result<Vec<DatabaseInfo>, SourceError> {
        Ok(self.0.read(|state| state.databases.iter().map(|(info, _, _)| info.clone()).collect()))
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
