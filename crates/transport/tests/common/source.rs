//! A redo source in memory.

use super::{Watched, identity};
use standfast_format::StreamCrc;
use standfast_transport::*;
use standfast_types::{DatabaseId, PageNo, Scn};
use std::sync::{Arc, Weak};

pub struct SourceState {
    pub identity: PeerIdentity,
    pub bytes: Vec<u8>,
    pub durable: Scn,
    /// Redo before this is no longer in the log buffer.
    pub buffer_from: Scn,
    /// Redo before this is gone.
    pub oldest: Scn,
    pub logs: Vec<LogSwitch>,
    /// Everything may be sent, offered or not.
    pub forwards: bool,
    /// The logs cannot be read beyond this position for now.
    pub logged_upto: Scn,
    pub epoch: u64,
    pub databases: Vec<(DatabaseInfo, Vec<u8>, Scn)>,
    /// When set, all logs but the one being filled are archived.
    pub archiving: bool,
    /// Sequences of archived logs: removed; damaged on disk (`damaged`); changed in transit (`changed`).
    pub removed: Vec<u64>,
    pub damaged: Vec<u64>,
    pub changed: Vec<u64>,
    /// Reads of archived logs from this sequence on wait.
    pub hold_from: u64,
    /// Reads of archived logs, by sequence.
    pub reads: Vec<u64>,
}

pub struct MemorySource(pub Watched<SourceState>, Weak<MemorySource>);

struct MemoryArchive {
    source: Arc<MemorySource>,
    log: ArchivedLogInfo,
}

impl ArchivedFile for MemoryArchive {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StageError> {
        let log = self.log;
        self.source.0.change(|state| state.reads.push(log.sequence));
        self.source.0.wait("archived logs may be read", |state| log.sequence < state.hold_from);
        self.source.0.change(|state| {
            if state.damaged.contains(&log.sequence) {
                return Err(
                    format!("block 7 of log {} is damaged; restore it from a backup", log.sequence).into()
                );
            }
            let bytes = archived_bytes(state.slice(log.first_scn, log.next_scn));
            out.copy_from_slice(&bytes[offset as usize..offset as usize + out.len()]);
            if state.changed.contains(&log.sequence) && offset == 0 {
                out[600] ^= 1;
            }
            Ok(())
        })
    }
}

/// An archived log as a file: 512 bytes, then its redo, in whole blocks.
pub fn archived_bytes(redo: &[u8]) -> Vec<u8> {
    let mut bytes = vec![7; 512];
    bytes.extend_from_slice(redo);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

impl MemorySource {
    pub fn new(name: &str, incarnations: &[Incarnation]) -> Arc<MemorySource> {
        Arc::new_cyclic(|me| {
            MemorySource(
                Watched::new(SourceState {
                    identity: identity(name, Role::Primary, incarnations),
                    bytes: Vec::new(),
                    durable: Scn::START,
                    buffer_from: Scn::START,
                    oldest: Scn::START,
                    logs: vec![LogSwitch { sequence: 1, first_scn: Scn::START, time_us: 1, first_record: 0 }],
                    forwards: false,
                    logged_upto: Scn(u64::MAX),
                    epoch: 0,
                    databases: Vec::new(),
                    archiving: false,
                    removed: Vec::new(),
                    damaged: Vec::new(),
                    changed: Vec::new(),
                    hold_from: u64::MAX,
                    reads: Vec::new(),
                }),
                me.clone(),
            )
        })
    }

    pub fn end(&self) -> Scn {
        self.0.read(SourceState::end)
    }

    /// Captures `bytes` and makes them durable.
    pub fn write(&self, bytes: &[u8]) {
        self.0.change(|state| {
            state.bytes.extend_from_slice(bytes);
            state.durable = state.end();
        });
    }

    /// Acts as the log writer: captures, offers, makes durable.
    pub fn commit(&self, sender: &Sender, bytes: &[u8]) -> Offer {
        let offer = self.capture(sender, bytes);
        self.harden();
        offer
    }

    pub fn capture(&self, sender: &Sender, bytes: &[u8]) -> Offer {
        let (slice, log_first, durable, captured) = self.0.change(|state| {
            let first = state.end();
            state.bytes.extend_from_slice(bytes);
            let log_first = state.logs.last().unwrap().first_scn;
            (RedoSlice::new(first, Arc::new(bytes.to_vec())), log_first, state.durable, state.end())
        });
        sender.offer(&Batch { slices: &[slice], log_first, durable, captured })
    }

    pub fn harden(&self) {
        self.0.change(|state| state.durable = state.end());
    }

    pub fn switch(&self) {
        self.0.change(SourceState::begin_log);
    }
}

impl SourceState {
    fn archived(&self) -> Vec<ArchivedLogInfo> {
        let current = self.identity.incarnations.last().unwrap();
        let mut crc = StreamCrc::default();
        let info = |pair: &[LogSwitch]| {
            let redo = self.slice(pair[0].first_scn, pair[1].first_scn);
            let before = crc;
            crc = crc.after(redo);
            ArchivedLogInfo {
                incarnation: current.number,
                incarnation_id: current.id,
                sequence: pair[0].sequence,
                first_scn: pair[0].first_scn,
                next_scn: pair[1].first_scn,
                bytes: 512 + (redo.len() as u64).next_multiple_of(512),
                crc: before.0,
            }
        };
        self.logs.windows(2).map(info).collect()
    }

    pub fn begin_log(&mut self) {
        let last = self.logs.last().unwrap();
        let next = LogSwitch {
            sequence: last.sequence + 1,
            first_scn: self.end(),
            time_us: last.time_us + 1,
            first_record: 3,
        };
        self.logs.push(next);
    }

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
    fn buffered(&self, from: Scn, bytes_max: usize) -> Option<Vec<RedoSlice>> {
        self.0.read(|state| {
            let upto = state.end().min(from + bytes_max as u64);
            if from < state.buffer_from || from > state.end() {
                return None;
            }
            // Chunks of 100 bytes, the first of which may begin before `from`.
            let mut first = Scn(from.0 - (from.0 - state.buffer_from.0) % 100);
            let mut slices = Vec::new();
            while first < upto {
                let end = (first + 100).min(upto);
                slices.push(RedoSlice::new(first, Arc::new(state.slice(first, end).to_vec())));
                first = end;
            }
            Some(slices)
        })
    }
    fn logged(&self, from: Scn, bytes_max: usize) -> Result<Vec<u8>, SourceError> {
        self.0.read(|state| {
            if from < state.oldest {
                return Err(SourceError::Gone { wanted: from, oldest: state.oldest });
            }
            let there = if state.forwards { state.end() } else { state.durable };
            let upto = there.min(from + bytes_max as u64).min(state.logged_upto);
            Ok(state.slice(from, upto.max(from)).to_vec())
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
    fn archived_from(&self, from: Scn) -> Result<Option<(Vec<ArchivedLogInfo>, StreamCrc)>, SourceError> {
        Ok(self.0.read(|state| {
            let archived = state.archived();
            let chain: Vec<_> = archived.into_iter().filter(|log| log.next_scn > from).collect();
            let gone = chain.iter().any(|log| state.removed.contains(&log.sequence));
            let end = chain.last().filter(|_| state.archiving && !gone)?.next_scn;
            Some((chain, StreamCrc::default().after(state.slice(Scn::START, end))))
        }))
    }
    fn open_archived(&self, log: &ArchivedLogInfo) -> Result<Box<dyn ArchivedFile>, SourceError> {
        self.0.read(|state| match state.removed.contains(&log.sequence) {
            true => Err(SourceError::Gone { wanted: log.first_scn, oldest: log.next_scn }),
            false => Ok(()),
        })?;
        Ok(Box::new(MemoryArchive { source: self.1.upgrade().unwrap(), log: *log }))
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
