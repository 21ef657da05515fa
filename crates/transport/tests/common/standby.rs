//! A standby log in memory.

use super::Watched;
use standfast_format::StreamCrc;
use standfast_transport::*;
use standfast_types::Scn;
use std::sync::Arc;

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
    /// Bytes of the largest one.
    pub largest_write: usize,
    /// Version and content of what is told of stopped databases.
    pub stopped: (u64, Vec<StoppedDatabase>),
    /// Who else has to have redo.
    pub passing: Option<Arc<dyn Passing>>,
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
    fn stopped(&self, known: u64) -> Option<(u64, Vec<StoppedDatabase>)> {
        self.0.read(|state| (state.stopped.0 != known).then(|| state.stopped.clone()))
    }
    fn passing(&self) -> Option<Arc<dyn Passing>> {
        self.0.read(|state| state.passing.clone())
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
            state.largest_write = state.largest_write.max(slices.iter().map(|slice| slice.len()).sum());
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
