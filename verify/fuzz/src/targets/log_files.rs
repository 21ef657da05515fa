//! Online, standby and archived logs: files of any content, read by position and by record.

use super::chosen;
use crate::memory_disk::MemoryDisk;
use crate::seal;
use standfast_format::LogKind;
use standfast_log::{LogConfig, RecordReader, RedoLog};
use standfast_types::Scn;
use std::path::Path;
use std::sync::Arc;

/// Bytes of each file of a group; the rest of an input is the archived log.
const GROUP_BYTES: usize = 4096;
const GROUPS: usize = 2;
const MEMBERS: [&str; 2] = ["/m1", "/m2"];

/// A log is read in chunks of at most 1 MiB and at most the size of the file.
const FACTOR: usize = 32;

pub fn run(data: &[u8]) -> usize {
    chosen(data, FACTOR, decode)
}

fn decode(choice: u8, rest: &[u8]) {
    match choice % 4 {
        0 => one_file(rest.to_vec(), |_| {}),
        1 => one_file(rest.to_vec(), seal::log_file),
        2 => groups(rest, 1),
        _ => groups(rest, MEMBERS.len()),
    }
}

fn one_file(mut bytes: Vec<u8>, seal: fn(&mut [u8])) {
    seal(&mut bytes);
    let disk = Arc::new(MemoryDisk::default());
    disk.put("/a/1_00000001_0000000000000000.arc", &bytes);
    drop(bytes);
    let path = Path::new("/a/1_00000001_0000000000000000.arc");
    if let Ok(log) = RedoLog::of_file(disk, path) {
        read_all(&log);
    }
}

/// A log of two groups and an archived log, each file sealed separately.
fn groups(bytes: &[u8], members: usize) {
    let disk = Arc::new(MemoryDisk::default());
    let mut files = bytes.chunks(GROUP_BYTES);
    for (index, directory) in MEMBERS[..members].iter().enumerate() {
        for group in 1..=GROUPS {
            let mut file = files.next().unwrap_or_default().to_vec();
            file.resize(GROUP_BYTES, 0);
            file[88..96].copy_from_slice(&(GROUP_BYTES as u64).to_le_bytes());
            seal::log_file(&mut file);
            let member = ['a', 'b'][index];
            disk.put(&format!("{directory}/online_{group}{member}.log"), &file);
        }
    }
    let mut archived: Vec<u8> = files.flatten().copied().collect();
    seal::log_file(&mut archived);
    disk.put("/a/1_00000001_0000000000000000.arc", &archived);
    let config = LogConfig {
        kind: LogKind::Online,
        member_directories: MEMBERS[..members].iter().map(|directory| (*directory).into()).collect(),
        groups: GROUPS,
        unnamed_groups: 0,
        layout: None,
        family: None,
        group_bytes: GROUP_BYTES as u64,
        block_bytes: 512,
        archive_directory: "/a".into(),
        distrusted: Vec::new(),
    };
    if let Ok((log, recovered)) = RedoLog::look(disk, config) {
        let _ = log.stream_crc(recovered.end);
        read_all(&log);
    }
}

/// Reads records from every position where one may begin, checksums at every position, and the log switches.
fn read_all(log: &Arc<RedoLog>) {
    let (oldest, end) = (log.oldest(), log.end_of_current().unwrap_or(Scn(u64::MAX)));
    for from in [Some(oldest), log.log_containing(end).map(|log| log.first_scn)].into_iter().flatten() {
        let mut reader = RecordReader::new(log.clone(), from, end);
        while let Ok(Some((_, after))) = reader.next_record() {
            assert!(after <= end, "no record goes beyond the end");
        }
        let _ = log.stream_crc(from);
        let mut some = Vec::new();
        let _ = log.read(Scn(from.0 / 2 + end.0 / 2), end, 1000, &mut some);
        assert!(some.len() <= 1000);
    }
    let _ = log.switches(oldest, end).len();
}
