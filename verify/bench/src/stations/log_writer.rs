//! The real log buffer and log writer over new files, fed with records as large as those of busy commits.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use standfast_format::{LogKind, RecordBuilder, StreamCrc};
use standfast_io::{DirectDisk, Disk};
use standfast_log::{LogBuffer, LogConfig, LogError, LogIdentity, LogSwitch, LogWriter, RedoChunk, RedoLog};
use standfast_types::{DatabaseId, IncarnationId, InstanceId, Scn};

use super::{LogStation, LogUnderTest};
use crate::{BenchError, Result};

/// Redo that may wait for the log writer; a producer that finds more waits itself. Small enough to stay in the
/// processor's cache.
const BUFFER_BYTES: usize = 8 << 20;
/// When pending redo falls to this, there is room for one write, and one waiting producer is woken: it continues until
/// the buffer is full. All producers together would take the processors from the log writer.
const ROOM_BYTES: usize = BUFFER_BYTES - GATHER_BYTES;
/// When pending redo falls to this, all waiting producers are woken.
const REFILL_BYTES: usize = BUFFER_BYTES / 4;
/// Redo per write, when that much is pending: one batch of an instance's log writer.
const GATHER_BYTES: usize = 1 << 20;
/// The groups are reused in turn. Together they are as large as the file of the plain writes.
const GROUPS: usize = 2;
const GROUP_BYTES: u64 = 128 << 20;
const BLOCK_BYTES: usize = 4096;
/// Number of different records, from 1 KB to 10 KB.
const RECORDS: usize = 16;
/// How long the log writer sleeps before it checks whether the bench is over.
const IDLE: Duration = Duration::from_millis(100);

pub(super) struct RealLog;

impl LogStation for RealLog {
    fn open(&self, directory: &Path) -> Result<Box<dyn LogUnderTest>> {
        Ok(Box::new(RunningLog::open(directory, GROUP_BYTES)?))
    }
}

impl RunningLog {
    fn open(directory: &Path, group_bytes: u64) -> Result<RunningLog> {
        let failed = |error: LogError| BenchError::Workload(error.to_string());
        let config = LogConfig {
            kind: LogKind::Online,
            member_directories: vec![directory.to_owned()],
            groups: GROUPS,
            group_bytes,
            block_bytes: BLOCK_BYTES,
            archive_directory: directory.to_owned(),
            distrusted: Vec::new(),
            unnamed_groups: 0,
            layout: None,
            family: None,
        };
        RedoLog::create_files(&DirectDisk, &config).map_err(failed)?;
        let rounds = Rounds::start(config).map_err(failed)?;
        RunningLog::start(rounds)
    }
}

/// A log writer that starts a new log when the groups are full, because no thread archives them.
struct Rounds {
    disk: Arc<dyn Disk>,
    config: LogConfig,
    writer: LogWriter,
}

const IDENTITY: LogIdentity =
    LogIdentity { instance: InstanceId([1; 16]), incarnation: 1, incarnation_id: IncarnationId([1; 8]) };

impl Rounds {
    fn start(config: LogConfig) -> std::result::Result<Rounds, LogError> {
        let disk: Arc<dyn Disk> = Arc::new(DirectDisk);
        let first = LogSwitch { sequence: 1, first_scn: Scn::START, time_us: 0, first_record: 0 };
        let (_, writer) =
            RedoLog::start(disk.clone(), config.clone(), IDENTITY, first, StreamCrc::default())?;
        Ok(Rounds { disk, config, writer })
    }

    /// Begins the write and returns for the next one, as the commit path does when there is more redo. Returns how far
    /// redo is durable.
    fn write(&mut self, chunks: &[Arc<RedoChunk>]) -> std::result::Result<Scn, LogError> {
        if chunks.is_empty() {
            self.writer.end_oldest()?;
            return Ok(self.writer.position());
        }
        if self.writer.room() < GATHER_BYTES {
            self.writer.end_all()?;
            self.next_group()?;
        }
        let slices: Vec<&[u8]> = chunks.iter().map(|chunk| &*chunk.bytes).collect();
        self.writer.begin_write(&slices, Scn::ZERO)?;
        Ok(self.writer.position())
    }

    fn next_group(&mut self) -> std::result::Result<(), LogError> {
        self.writer.log().set_checkpoint(self.writer.position());
        if self.writer.switch(0)?.is_err() {
            // Every write ends with a complete record, so the next record starts where the new log does.
            let next = LogSwitch {
                sequence: self.writer.sequence() + 1,
                first_scn: self.writer.position(),
                time_us: 0,
                first_record: 0,
            };
            let sum = self.writer.stream_crc();
            let log = RedoLog::start(self.disk.clone(), self.config.clone(), IDENTITY, next, sum)?;
            self.writer = log.1;
        }
        Ok(())
    }
}

/// State shared by the producers and the log writer.
struct Shared {
    buffer: LogBuffer,
    ended: AtomicBool,
    failed: Mutex<Option<String>>,
    room: Condvar,
    waiting: AtomicUsize,
}

impl Shared {
    fn failed(&self) -> MutexGuard<'_, Option<String>> {
        self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits for room; the wait event of an instance is `log buffer space`.
    fn await_room(&self) -> std::result::Result<(), String> {
        if self.buffer.pending_bytes() < BUFFER_BYTES {
            return Ok(());
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut failed = self.failed();
        while failed.is_none() && self.buffer.pending_bytes() >= BUFFER_BYTES {
            failed = self.room.wait(failed).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        failed.clone().map_or(Ok(()), Err)
    }

    fn let_in(&self) {
        let pending = self.buffer.pending_bytes();
        if pending > ROOM_BYTES || self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        drop(self.failed());
        match pending <= REFILL_BYTES {
            true => self.room.notify_all(),
            false => self.room.notify_one(),
        }
    }

    /// Body of the log writer's thread.
    fn write_all(&self, mut rounds: Rounds) {
        let mut taken = rounds.writer.position();
        while !self.ended.load(Ordering::SeqCst) {
            let chunks = self.buffer.chunks(taken, GATHER_BYTES).unwrap_or_default();
            if chunks.is_empty() && !rounds.writer.is_in_flight() {
                self.buffer.wait(taken, Scn(u64::MAX), IDLE);
                continue;
            }
            match rounds.write(&chunks) {
                Ok(durable) => self.buffer.set_durable(durable),
                Err(error) => {
                    *self.failed() = Some(error.to_string());
                    return self.room.notify_all();
                }
            }
            taken = chunks.last().map_or(taken, |chunk| chunk.end());
            self.let_in();
        }
    }
}

struct RunningLog {
    shared: Arc<Shared>,
    records: Vec<Vec<u8>>,
    appended: Vec<AtomicUsize>,
    writer: Option<JoinHandle<()>>,
}

/// Number of counters; with more producers than this, producers share them.
const COUNTERS: usize = 64;

impl RunningLog {
    fn start(rounds: Rounds) -> Result<RunningLog> {
        let shared = Arc::new(Shared {
            buffer: LogBuffer::new(rounds.writer.position(), GATHER_BYTES),
            ended: AtomicBool::new(false),
            failed: Mutex::new(None),
            room: Condvar::new(),
            waiting: AtomicUsize::new(0),
        });
        let its = shared.clone();
        let writer = std::thread::Builder::new().name("lgwr".into()).spawn(move || its.write_all(rounds));
        let writer =
            writer.map_err(|error| BenchError::Workload(format!("cannot start a thread: {error}")))?;
        Ok(RunningLog {
            shared,
            records: (0..RECORDS).map(|nth| record((1 << 10) + nth * 600)).collect(),
            appended: (0..COUNTERS).map(|_| AtomicUsize::new(0)).collect(),
            writer: Some(writer),
        })
    }
}

impl LogUnderTest for RunningLog {
    fn append(&self, producer: usize) -> std::result::Result<u64, String> {
        self.shared.await_room()?;
        let nth = producer + self.appended[producer % COUNTERS].fetch_add(1, Ordering::Relaxed);
        let record = self.records[nth % RECORDS].clone();
        let bytes = record.len() as u64;
        self.shared.buffer.append(record);
        self.shared.buffer.notify();
        Ok(bytes)
    }

    fn durable_bytes(&self) -> u64 {
        self.shared.buffer.durable().0
    }
}

impl Drop for RunningLog {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.buffer.notify();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Makes a change record of about `bytes` incompressible bytes.
fn record(bytes: usize) -> Vec<u8> {
    let image: Vec<u8> = (0..bytes).map(|nth| (nth * 31 % 255) as u8 + 1).collect();
    let (mut out, mut scratch) = (Vec::new(), Vec::new());
    let mut builder = RecordBuilder::change(&mut out, DatabaseId(1));
    for (nth, chunk) in image.chunks(4096).enumerate() {
        builder.vector(nth as u32 + 1, None, chunk, 0, &mut scratch);
    }
    builder.finish();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Scratch;

    #[test]
    fn appended_redo_becomes_durable_and_the_log_wraps_around() {
        let scratch = Scratch::new(Path::new("/var/tmp")).unwrap();
        let group_bytes = 8 << 20;
        let log = RunningLog::open(scratch.path(), group_bytes).unwrap();
        let start = log.durable_bytes();
        // More than all groups hold.
        let enough = GROUPS as u64 * group_bytes + (BUFFER_BYTES as u64) * 2;
        std::thread::scope(|scope| {
            for producer in 0..2 {
                let log = &log;
                scope.spawn(move || {
                    let mut appended = 0;
                    while appended < enough / 2 {
                        appended += log.append(producer).unwrap();
                    }
                });
            }
        });
        assert!(log.durable_bytes() - start >= enough - BUFFER_BYTES as u64 - 64 * 1024);
    }

    #[test]
    fn records_are_between_one_and_ten_kilobytes() {
        for (nth, bytes) in (0..RECORDS).map(|nth| record((1 << 10) + nth * 600).len()).enumerate() {
            assert!((1000..=10_500).contains(&bytes), "record {nth} has {bytes} bytes");
        }
    }
}
