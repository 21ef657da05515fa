//! A standby log in memory.

use super::Watched;
use standfast_format::StreamCrc;
use standfast_transport::*;
use standfast_types::Scn;
use std::sync::{Arc, Mutex};
use std::time::Instant;

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
    /// Writes that have begun (`begun`) and ended (`writes`).
    pub begun: u64,
    pub writes: u64,
    /// Bytes of the largest write.
    pub largest_write: usize,
    /// Version and content of the stopped databases to report.
    pub stopped: (u64, Vec<StoppedDatabase>),
    /// Destinations that must also have the redo.
    pub cascade: Option<Arc<dyn CascadeLimit>>,
    /// Writes block while this is set.
    pub hold: bool,
    /// Writes fail while this is set.
    pub broken: bool,
    pub gap: Option<MemoryGap>,
    /// Last arguments of [`StandbyLog::heard`]: delivered, end of the source.
    pub heard: Option<(Scn, Scn)>,
    /// Archived logs that have arrived, over all gaps.
    pub archived: Vec<(ArchivedLogInfo, Vec<u8>)>,
    pub opened: u32,
    pub filled: u32,
    pub given_up: Vec<GivenUp>,
}

pub struct MemoryGap {
    pub gap: Gap,
    /// Redo that the stream has brought beyond the gap.
    pub beyond: Vec<u8>,
}

impl StandbyState {
    pub fn end(&self) -> Scn {
        match &self.gap {
            Some(open) => open.gap.to + open.beyond.len() as u64,
            None => self.first + self.bytes.len() as u64,
        }
    }

    /// End of the redo without a gap.
    pub fn contiguous(&self) -> Scn {
        let mut at = self.first + self.bytes.len() as u64;
        while let Some((log, _)) =
            self.archived.iter().find(|(log, _)| log.first_scn <= at && at < log.next_scn)
        {
            at = log.next_scn;
        }
        at
    }

    fn lead_on(&mut self) {
        loop {
            let at = self.first + self.bytes.len() as u64;
            let next = self.archived.iter().find(|(log, _)| log.first_scn <= at && at < log.next_scn);
            let Some((log, redo)) = next else { return };
            let redo = redo[at.bytes_since(log.first_scn) as usize..].to_vec();
            self.bytes.extend(redo);
        }
    }
}

struct MemoryStore(Standby, Gap);

struct MemoryPart(Standby, Gap, ArchivedLogInfo, Mutex<Vec<u8>>);

impl ArchivePart for MemoryPart {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), StageError> {
        let at = offset as usize;
        let mut file = self.3.lock().unwrap();
        assert!(file[at..at + bytes.len()].iter().all(|byte| *byte == 0xEE), "written twice");
        file[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn complete(&self) -> Result<bool, StageError> {
        let MemoryPart(standby, gap, log, file) = self;
        let redo = file.lock().unwrap()[512..][..log.next_scn.bytes_since(log.first_scn) as usize].to_vec();
        let next = gap.logs.iter().find(|other| other.first_scn == log.next_scn);
        let whole = StreamCrc(log.crc).after(&redo).0 == next.map_or(gap.crc, |next| next.crc);
        if whole {
            standby.change(|state| state.archived.push((*log, redo)));
        }
        Ok(whole)
    }
}

impl ArchiveStore for MemoryStore {
    fn create(&self, log: &ArchivedLogInfo) -> Result<Arc<dyn ArchivePart>, StageError> {
        let file = Mutex::new(vec![0xEE; log.bytes as usize]);
        Ok(Arc::new(MemoryPart(self.0.clone(), self.1.clone(), *log, file)))
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
    fn stopped(&self, known: u64) -> Option<(u64, Vec<StoppedDatabase>)> {
        self.0.read(|state| (state.stopped.0 != known).then(|| state.stopped.clone()))
    }
    fn cascade_limit(&self) -> Option<Arc<dyn CascadeLimit>> {
        self.0.read(|state| state.cascade.clone())
    }
    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, StageError> {
        Ok(self.0.read(|state| {
            let bytes = state.bytes.get(..at.bytes_since(state.first) as usize)?;
            Some(StreamCrc::default().after(bytes))
        }))
    }
    fn read(&self, from: Scn, bytes: usize) -> Result<Vec<u8>, StageError> {
        Ok(self.0.read(|state| {
            let at = from.bytes_since(state.first) as usize;
            state.bytes[at..at + bytes].to_vec()
        }))
    }
    fn log_containing(&self, at: Scn) -> Option<LogSwitch> {
        self.0.read(|state| state.logs.iter().rev().find(|log| log.first_scn <= at).copied())
    }
    fn cut(&mut self, at: Scn) -> Result<(), StageError> {
        self.0.change(|state| {
            assert!(state.confirmed <= at && at < state.end(), "cut at {at}");
            state.cuts.push((at, state.end()));
            state.bytes.truncate(at.bytes_since(state.first) as usize);
            state.logs.retain(|log| log.first_scn < at);
        });
        Ok(())
    }
    fn begin(&mut self, start: &StreamStart) -> Result<(), StageError> {
        self.0.change(|state| state.starts.push(start.clone()));
        Ok(())
    }
    fn append(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, StageError> {
        self.0.change(|state| state.begun += 1);
        self.0.wait("writes may continue", |state| !state.hold);
        self.0.change(|state| {
            if state.broken {
                return Err("the disk is gone; replace it".into());
            }
            let target = match &mut state.gap {
                Some(open) => &mut open.beyond,
                None => &mut state.bytes,
            };
            slices.iter().for_each(|slice| target.extend_from_slice(slice));
            state.writes += 1;
            state.largest_write = state.largest_write.max(slices.iter().map(|slice| slice.len()).sum());
            state.set_confirmed(confirmed);
            Ok(state.end())
        })
    }
    fn switch(&mut self, log: &LogSwitch) -> Result<(), StageError> {
        self.0.change(|state| {
            assert_eq!(log.first_scn, state.end());
            if state.logs.last() != Some(log) {
                state.logs.push(*log);
            }
        });
        Ok(())
    }
    fn confirm(&mut self, confirmed: Scn) -> Result<(), StageError> {
        self.0.change(|state| state.set_confirmed(confirmed));
        Ok(())
    }
    fn heard(&self, delivered: Scn, source_end: Scn, _waits_until: Option<Instant>) {
        self.0.change(|state| state.heard = Some((delivered, source_end)));
    }
    fn contiguous_end(&self) -> Scn {
        self.0.read(StandbyState::contiguous)
    }
    fn open_gap(&mut self, gap: &Gap, log: &LogSwitch) -> Result<OpenedGap, StageError> {
        let held = self.0.change(|state| {
            assert_eq!((gap.from, gap.to), (state.end(), log.first_scn));
            state.gap = Some(MemoryGap { gap: gap.clone(), beyond: Vec::new() });
            state.logs.push(*log);
            state.opened += 1;
            gap.logs.iter().map(|log| state.archived.iter().any(|(held, _)| held == log)).collect()
        });
        Ok(OpenedGap { store: Arc::new(MemoryStore(self.0.clone(), gap.clone())), held })
    }
    fn fill_gap(&mut self) -> Result<(), StageError> {
        self.0.change(|state| {
            let open = state.gap.take().unwrap();
            state.lead_on();
            assert_eq!(state.end(), open.gap.to, "filled");
            state.bytes.extend(open.beyond);
            state.filled += 1;
        });
        Ok(())
    }
    fn give_up_gap(&mut self) -> Result<Option<GivenUp>, StageError> {
        Ok(self.0.change(|state| {
            let open = state.gap.take()?;
            let received = open.gap.to + open.beyond.len() as u64;
            state.lead_on();
            state.logs.retain(|log| log.first_scn < open.gap.to);
            let given_up = GivenUp { end: state.end(), to: open.gap.to, received };
            state.confirmed = state.confirmed.min(state.end());
            state.given_up.push(given_up);
            Some(given_up)
        }))
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
