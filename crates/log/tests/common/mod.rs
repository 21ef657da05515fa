//! Shared by the tests of the redo log.

#![allow(dead_code, clippy::unwrap_used)]

use standfast_format::{LogKind, RecordBuilder, StreamCrc, crc32c};
use standfast_io::DirectDisk;
use standfast_log::{LogConfig, LogIdentity, LogSwitch, LogWriter, RedoLog};
use standfast_types::{DatabaseId, IncarnationId, InstanceId, Scn};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub const IDENTITY: LogIdentity =
    LogIdentity { instance: InstanceId([1; 16]), incarnation: 1, incarnation_id: IncarnationId([9; 8]) };
pub const START: LogSwitch = LogSwitch { sequence: 1, first_scn: Scn::START, time_us: 5, first_record: 0 };

/// A log in its own directory, and the stream that was written to it.
pub struct Rig {
    pub directory: PathBuf,
    pub config: LogConfig,
    pub stream: Vec<u8>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Rig {
    pub fn new(name: &str, members: usize, block_bytes: usize) -> Rig {
        Rig::with_groups_of(64 << 10, name, members, block_bytes)
    }

    pub fn with_groups_of(group_bytes: u64, name: &str, members: usize, block_bytes: usize) -> Rig {
        // Two tests may have the same name for it.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("standfast-log-{name}-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        let member_directories: Vec<_> = (0..members).map(|i| directory.join(format!("m{i}"))).collect();
        let archive_directory = directory.join("archive");
        for path in member_directories.iter().chain([&archive_directory]) {
            std::fs::create_dir_all(path).unwrap();
        }
        let config = LogConfig {
            kind: LogKind::Online,
            member_directories,
            groups: 3,
            group_bytes,
            block_bytes,
            archive_directory,
            distrusted: Vec::new(),
            unnamed_groups: 0,
            layout: None,
            family: Some(IDENTITY.instance),
        };
        RedoLog::create_files(&DirectDisk, &config).unwrap();
        Rig { directory, config, stream: Vec::new() }
    }

    pub fn start(&self) -> (Arc<RedoLog>, LogWriter) {
        RedoLog::start(Arc::new(DirectDisk), self.config.clone(), IDENTITY, START, StreamCrc(0)).unwrap()
    }

    pub fn reopen(&self) -> (Arc<RedoLog>, LogWriter, standfast_log::Recovered) {
        RedoLog::open(Arc::new(DirectDisk), self.config.clone()).unwrap()
    }

    pub fn batch(&mut self, seed: u8, bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut builder = RecordBuilder::change(&mut out, DatabaseId(1));
        builder.vector(1, None, &vec![seed; bytes.next_power_of_two().clamp(512, 65536)], 0, &mut Vec::new());
        builder.finish();
        self.stream.extend_from_slice(&out);
        out
    }

    pub fn end(&self) -> Scn {
        Scn::START + self.stream.len() as u64
    }

    pub fn check_reads(&self, log: &RedoLog, oldest: Scn) {
        for from in [oldest, oldest + 1, Scn((oldest.0 + self.end().0) / 2), Scn(self.end().0 - 1)] {
            let mut read = Vec::new();
            while from + (read.len() as u64) < self.end() {
                let before = read.len();
                log.read(from + before as u64, self.end(), 10_000, &mut read).unwrap();
                assert!(read.len() > before, "no progress at {from}");
            }
            let expected = &self.stream[from.bytes_since(Scn::START) as usize..];
            assert_eq!(crc32c(&read), crc32c(expected), "from {from}");
        }
        for at in [oldest, Scn((oldest.0 + self.end().0) / 2), self.end()] {
            let prefix = &self.stream[..at.bytes_since(Scn::START) as usize];
            assert_eq!(log.stream_crc(at).unwrap(), Some(StreamCrc::default().after(prefix)), "sum at {at}");
        }
    }
}
