//! A standby log that continues beyond a gap: archived logs fill the gap, or the redo beyond it is discarded, whenever
//! the power fails.

#![allow(clippy::unwrap_used)]

use standfast_format::{LogKind, StreamCrc};
use standfast_io::Disk;
use standfast_log::{
    ArchivedLog, Hole, LogConfig, LogError, LogIdentity, LogSwitch, LogWriter, RedoLog, SwitchBlocked,
    archive_group, archived_logs, keep_beginning, remove_archived, verify_archived,
};
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine};
use standfast_types::{Hint, IncarnationId, InstanceId, Scn};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const IDENTITY: LogIdentity =
    LogIdentity { instance: InstanceId([1; 16]), incarnation: 1, incarnation_id: IncarnationId([9; 8]) };
/// The incarnation after [`IDENTITY`].
const NEXT: LogIdentity =
    LogIdentity { instance: InstanceId([1; 16]), incarnation: 2, incarnation_id: IncarnationId([2; 8]) };
const START: LogSwitch = LogSwitch { sequence: 1, first_scn: Scn::START, time_us: 5, first_record: 0 };
const RECORD: &str = "/standby/hole";
/// Bytes of redo in a log of the primary.
const LOG_BYTES: usize = 9000;
const LOGS: usize = 8;

fn stream() -> Vec<u8> {
    (0..LOG_BYTES * LOGS).map(|at| (at.wrapping_mul(2_654_435_761) >> 9) as u8).collect()
}

fn slice(stream: &[u8], from: Scn, upto: Scn) -> &[u8] {
    &stream[from.bytes_since(Scn::START) as usize..upto.bytes_since(Scn::START) as usize]
}

fn crc_at(stream: &[u8], at: Scn) -> StreamCrc {
    StreamCrc::default().after(slice(stream, Scn::START, at))
}

fn begin_of(log: usize) -> Scn {
    Scn::START + (log * LOG_BYTES) as u64
}

fn switch_to(log: usize) -> LogSwitch {
    LogSwitch { sequence: 1 + log as u64, first_scn: begin_of(log), time_us: 5 + log as u64, first_record: 0 }
}

fn config(kind: LogKind, place: &str) -> LogConfig {
    LogConfig {
        kind,
        member_directories: vec![PathBuf::from(place)],
        groups: 4,
        group_bytes: 64 << 10,
        block_bytes: 512,
        archive_directory: PathBuf::from(place).join("archive"),
        distrusted: Vec::new(),
        unnamed_groups: 0,
        layout: None,
        family: None,
    }
}

/// Archived logs of a primary, in files of 512-byte blocks.
fn primarys_archive(disk: &Arc<dyn Disk>, stream: &[u8]) -> Vec<ArchivedLog> {
    let config = config(LogKind::Online, "/primary");
    RedoLog::create_files(disk.as_ref(), &config).unwrap();
    let (log, mut writer) = RedoLog::start(disk.clone(), config, IDENTITY, START, StreamCrc(0)).unwrap();
    for number in 0..LOGS {
        for chunk in slice(stream, begin_of(number), begin_of(number + 1)).chunks(3000) {
            writer.write(&[chunk], Scn::ZERO).unwrap();
        }
        log.set_checkpoint(writer.position());
        assert!(writer.switch(0).unwrap().is_ok());
        archive(&log).unwrap();
    }
    log.archived()
}

fn archive(log: &RedoLog) -> Result<(), LogError> {
    log.to_archive().into_iter().try_for_each(|(group, _)| archive_group(log, group, &mut || {}).map(drop))
}

fn hole_of(disk: &dyn Disk) -> Option<Hole> {
    let text = String::from_utf8(disk.read(Path::new(RECORD)).ok()?).unwrap();
    let (from, to) = text.split_once(' ')?;
    Some(Hole { from: Scn(from.parse().unwrap()), to: Scn(to.parse().unwrap()) })
}

/// Copies the archived log to the standby as a fetch does.
fn fetch(disk: &dyn Disk, log: &RedoLog, original: &ArchivedLog) -> Result<(), LogError> {
    let path = log.archive_path(1, original.header.incarnation_id, original.header.sequence);
    let io = |source| LogError::Io { doing: "fetch", path: PathBuf::new(), source };
    let part = path.with_extension("fetch");
    let bytes = disk.read(&original.path).map_err(io)?;
    disk.remove(&part).map_err(io)?;
    let file = disk.create_copy(&part, bytes.len() as u64).map_err(io)?;
    file.write(&bytes, 0).map_err(io)?;
    file.sync().map_err(io)?;
    disk.rename(&part, &path).map_err(io)?;
    log.add_archived(ArchivedLog { path, header: original.header, bytes: original.bytes });
    Ok(())
}

/// One run of the standby: it opens, misses logs, receives later ones live while the missing ones are fetched, and
/// continues. `acknowledged` is what it has reported to its primary as hardened.
fn live(disk: &Arc<dyn Disk>, stream: &[u8], acknowledged: &mut Scn) -> Result<(), LogError> {
    let io = |source| LogError::Io { doing: "remember", path: RECORD.into(), source };
    let config = config(LogKind::Standby, "/standby");
    let (log, mut writer, recovered) =
        RedoLog::open_after_hole(disk.clone(), config, hole_of(disk.as_ref()))?;
    writer.settle()?;
    // What was fetched in an earlier run continues the redo.
    let held = log.chain(recovered.end, Some(writer.stream_crc()), &|_| true);
    if held.end > recovered.end && held.end < begin_of(LOGS) {
        archive(&log)?;
        let hole = Hole { from: recovered.end, to: held.end };
        disk.replace(Path::new(RECORD), format!("{} {}", hole.from, hole.to).as_bytes()).map_err(io)?;
        let number = held.end.bytes_since(Scn::START) as usize / LOG_BYTES;
        assert!(writer.jump(&switch_to(number), IDENTITY, held.crc)?.is_ok());
        writer.fill_hole()?;
    }
    disk.remove(Path::new(RECORD)).map_err(io)?;
    assert!(recovered.confirmed.max(Scn::START) >= recovered.end, "the primary had all of it");
    let end = writer.position();
    assert!(end >= *acknowledged, "{end} of {acknowledged} left");
    *acknowledged = end;
    check(&log, stream, end);
    assert_eq!(writer.stream_crc(), crc_at(stream, end));

    let originals = archived_logs(disk.as_ref(), Path::new("/primary/archive"), None)?;
    receive(&log, &mut writer, stream, begin_of(2) + 4000, acknowledged)?;
    if writer.position() < begin_of(5) {
        let end = writer.position();
        let logs: Vec<_> = originals.iter().filter(|log| log.header.next_scn > Some(end)).collect();
        archive(&log)?;
        let hole = Hole { from: writer.position(), to: begin_of(5) };
        disk.replace(Path::new(RECORD), format!("{} {}", hole.from, hole.to).as_bytes()).map_err(io)?;
        assert_eq!(
            writer.jump(&switch_to(5), IDENTITY, crc_at(stream, begin_of(5)))?,
            Ok(switch_to(5)),
            "archived groups are free on a standby"
        );
        assert_eq!(log.hole(), Some(hole));
        let mut beyond = *acknowledged;
        receive(&log, &mut writer, stream, begin_of(5) + 3000, &mut beyond)?;
        // Fetch the second log first: the order does not matter.
        for index in [1, 0, 2] {
            let Some(original) = logs.get(index).filter(|log| log.header.first_scn < begin_of(5)) else {
                continue;
            };
            fetch(disk.as_ref(), &log, original)?;
            let end = log.end_before_hole().unwrap();
            *acknowledged = (*acknowledged).max(end);
            check(&log, stream, end);
            let more = writer.position() + 4000;
            receive(&log, &mut writer, stream, more, &mut beyond)?;
        }
        assert_eq!(log.end_before_hole(), Some(begin_of(5)));
        writer.fill_hole()?;
        *acknowledged = (*acknowledged).max(writer.position());
        disk.remove(Path::new(RECORD)).map_err(io)?;
        assert_eq!(log.hole(), None);
        check(&log, stream, writer.position());
    }
    receive(&log, &mut writer, stream, begin_of(LOGS), acknowledged)?;
    check(&log, stream, begin_of(LOGS));
    Ok(())
}

/// Receives the stream up to `upto`, with the switches of the primary.
fn receive(
    log: &RedoLog,
    writer: &mut LogWriter,
    stream: &[u8],
    upto: Scn,
    acknowledged: &mut Scn,
) -> Result<(), LogError> {
    let upto = upto.min(begin_of(LOGS));
    while writer.position() < upto {
        let at = writer.position();
        let number = (at.bytes_since(Scn::START) as usize) / LOG_BYTES;
        if at == begin_of(number) && writer.sequence() != 1 + number as u64 {
            match writer.switch_to(&switch_to(number), IDENTITY)? {
                Ok(_) => {}
                Err(SwitchBlocked::ArchivingNeeded) => panic!("everything is archived"),
                Err(SwitchBlocked::CheckpointIncomplete) => panic!("apply does not hold up a standby"),
            }
            archive(log)?;
        }
        let end = begin_of(number + 1).min(upto).min(at + 3000);
        writer.write(&[slice(stream, at, end)], end)?;
        if log.hole().is_none() {
            *acknowledged = (*acknowledged).max(end);
        }
    }
    Ok(())
}

fn check(log: &RedoLog, stream: &[u8], end: Scn) {
    let mut read = Vec::new();
    while Scn::START + (read.len() as u64) < end {
        let from = Scn::START + read.len() as u64;
        log.read(from, end, 5000, &mut read).unwrap();
        assert!(Scn::START + (read.len() as u64) > from, "no progress at {from}");
    }
    assert!(read == slice(stream, Scn::START, end), "other redo before {end}");
    let middle = Scn((Scn::START.0 + end.0) / 2);
    assert_eq!(log.stream_crc(middle).unwrap(), Some(crc_at(stream, middle)));
}

fn machine(seed: u64, stream: &[u8]) -> Arc<SimMachine> {
    let machine = SimMachine::new(seed);
    let disk: Arc<dyn Disk> = Arc::new(machine.disk());
    primarys_archive(&disk, stream);
    let config = config(LogKind::Standby, "/standby");
    RedoLog::create_files(disk.as_ref(), &config).unwrap();
    RedoLog::start(disk, config, IDENTITY, START, StreamCrc(0)).unwrap();
    machine
}

#[test]
fn redo_beyond_a_gap_counts_once_archived_logs_fill_it() {
    let stream = stream();
    let machine = machine(1, &stream);
    let disk: Arc<dyn Disk> = Arc::new(machine.disk());
    let mut acknowledged = Scn::START;
    live(&disk, &stream, &mut acknowledged).unwrap();
    assert_eq!(acknowledged, begin_of(LOGS));
    live(&disk, &stream, &mut acknowledged).unwrap();
}

#[test]
fn power_loss_around_a_gap_leaves_redo_without_a_gap() {
    let stream = stream();
    let original = machine(2, &stream);
    let mut crashes = 0;
    for place in CrashPlace::ALL {
        for nth in 1.. {
            let machine = original.copy(nth);
            let mut rng = Rng::new(nth);
            let mut acknowledged = Scn::START;
            machine.crash_at(nth, place);
            let disk: Arc<dyn Disk> = Arc::new(machine.disk());
            if live(&disk, &stream, &mut acknowledged).is_ok() {
                break;
            }
            crashes += 1;
            machine.power_loss(Loss::Random, &mut rng);
            // A second power failure may come during the start.
            machine.crash_at(rng.between(1, 12), place);
            let disk: Arc<dyn Disk> = Arc::new(machine.disk());
            if live(&disk, &stream, &mut acknowledged).is_err() {
                machine.power_loss(Loss::Random, &mut rng);
            }
            machine.cancel_crash();
            let disk: Arc<dyn Disk> = Arc::new(machine.disk());
            live(&disk, &stream, &mut acknowledged).unwrap();
            assert_eq!(acknowledged, begin_of(LOGS), "after a crash {place:?} boundary {nth}");
        }
    }
    assert!(crashes > 100, "only {crashes} crashes");
}

#[test]
fn damaged_or_truncated_archived_log_fails_verification() {
    let stream = stream();
    let machine = machine(3, &stream);
    let disk = machine.disk();
    let log = archived_logs(&disk, Path::new("/primary/archive"), None).unwrap().swap_remove(2);
    let whole = verify_archived(&disk, &log.path, begin_of(2) + 100).unwrap();
    assert_eq!(whole.end_crc, crc_at(&stream, begin_of(3)));
    assert_eq!(whole.crc_at, Some(crc_at(&stream, begin_of(2) + 100)));
    // A file may be padded after its last block.
    let bytes = disk.read(&log.path).unwrap()[..log.header.file_bytes as usize].to_vec();
    for at in (0..bytes.len()).step_by(37).filter(|at| *at < 104 || *at >= 512) {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x10;
        machine.install("/primary/wrong", &wrong);
        assert!(verify_archived(&disk, Path::new("/primary/wrong"), Scn::ZERO).is_err(), "byte {at}");
    }
    for blocks in 0..bytes.len() / 512 - 1 {
        machine.install("/primary/wrong", &bytes[..512 * (1 + blocks)]);
        let error = verify_archived(&disk, Path::new("/primary/wrong"), Scn::ZERO).unwrap_err();
        assert!(error.for_terminal().contains("copy it again"), "{error}");
    }
}

/// The archived logs are applied as they arrive, and there are more of them than the archive volume may hold.
#[test]
fn archived_logs_of_a_gap_stay_until_it_is_filled() {
    let stream = stream();
    for filled in [true, false] {
        let machine = machine(5, &stream);
        let disk: Arc<dyn Disk> = Arc::new(machine.disk());
        let (log, mut writer, _) = RedoLog::open(disk.clone(), config(LogKind::Standby, "/standby")).unwrap();
        let mut acknowledged = Scn::START;
        receive(&log, &mut writer, &stream, begin_of(1) + 4000, &mut acknowledged).unwrap();
        let from = writer.position();
        writer.jump(&switch_to(4), IDENTITY, crc_at(&stream, begin_of(4))).unwrap().unwrap();
        let originals = archived_logs(disk.as_ref(), Path::new("/primary/archive"), None).unwrap();
        for original in &originals[1..if filled { 4 } else { 3 }] {
            fetch(disk.as_ref(), &log, original).unwrap();
            let applied = log.end_before_hole().unwrap();
            remove_archived(&log, 0, applied).unwrap();
        }
        let oldest = || log.archived().first().map(|log| log.header.first_scn);
        assert_eq!(oldest(), Some(begin_of(1)), "only what lies before the hole is spare");
        if filled {
            writer.fill_hole().unwrap();
            remove_archived(&log, 0, begin_of(4)).unwrap();
            assert_eq!(oldest(), None, "they are as spare as any now");
        } else {
            writer.give_up_beyond_hole().unwrap();
            remove_archived(&log, 0, begin_of(3)).unwrap();
            assert_eq!(writer.position(), from);
            let led = log.chain(from, Some(writer.stream_crc()), &|_| true);
            assert_eq!(led.end, begin_of(3));
        }
    }
}

/// All logs of the gap had arrived when it was given up, and the machine failed before the archived logs beyond it were
/// removed. Without the groups beyond the gap, the group before it is what remains.
#[test]
fn gap_given_up_at_the_last_moment_leaves_the_log_before_it() {
    let stream = stream();
    let machine = machine(6, &stream);
    let disk: Arc<dyn Disk> = Arc::new(machine.disk());
    let standby = || config(LogKind::Standby, "/standby");
    let (log, mut writer, _) = RedoLog::open(disk.clone(), standby()).unwrap();
    let mut acknowledged = Scn::START;
    receive(&log, &mut writer, &stream, begin_of(1) + 4000, &mut acknowledged).unwrap();
    archive(&log).unwrap();
    let hole = Hole { from: writer.position(), to: begin_of(4) };
    writer.jump(&switch_to(4), IDENTITY, crc_at(&stream, hole.to)).unwrap().unwrap();
    receive(&log, &mut writer, &stream, begin_of(5) + 100, &mut acknowledged).unwrap();
    let originals = archived_logs(disk.as_ref(), Path::new("/primary/archive"), None).unwrap();
    originals[1..4].iter().for_each(|original| fetch(disk.as_ref(), &log, original).unwrap());
    assert!(log.archived().iter().any(|log| log.header.first_scn == hole.to), "beyond the gap");
    writer.give_up_beyond_hole().unwrap();
    drop((log, writer));
    let (log, mut writer, recovered) = RedoLog::open_after_hole(disk, standby(), Some(hole)).unwrap();
    writer.settle().unwrap();
    assert_eq!(recovered.end, hole.from);
    assert!(log.archived().iter().all(|log| log.header.first_scn < hole.to), "they belong to redo given up");
    assert_eq!(log.chain(hole.from, Some(writer.stream_crc()), &|_| true).end, hole.to);
}

/// The source has joined the stream within the log in which the redo here ends, so its copy begins later.
#[test]
fn beginning_of_a_log_stays_when_a_copy_that_begins_later_takes_its_place() {
    let stream = stream();
    let machine = machine(9, &stream);
    let disk: Arc<dyn Disk> = Arc::new(machine.disk());
    let standby = || config(LogKind::Standby, "/standby");
    let (log, mut writer, _) = RedoLog::open(disk.clone(), standby()).unwrap();
    let mut acknowledged = Scn::START;
    receive(&log, &mut writer, &stream, Scn::START + 4000, &mut acknowledged).unwrap();
    let hole = Hole { from: writer.position(), to: begin_of(1) };
    keep_beginning(&log, hole.from).unwrap();
    writer.jump(&switch_to(1), IDENTITY, crc_at(&stream, hole.to)).unwrap().unwrap();
    let joined = Scn::START + 1000;
    let source = joined_at(&disk, &stream, joined);
    fetch(disk.as_ref(), &log, &source).unwrap();
    writer.fill_hole().unwrap();
    check(&log, &stream, hole.to);
    drop((log, writer));
    let (log, _, _) = RedoLog::open(disk, standby()).unwrap();
    assert_eq!(log.oldest(), Scn::START);
    check(&log, &stream, hole.to);
}

/// Returns the archived first log of a standby that joined the stream at `joined`.
fn joined_at(disk: &Arc<dyn Disk>, stream: &[u8], joined: Scn) -> ArchivedLog {
    let config = config(LogKind::Standby, "/joined");
    RedoLog::create_files(disk.as_ref(), &config).unwrap();
    let start = LogSwitch { first_scn: joined, ..START };
    let crc = crc_at(stream, joined);
    let (log, mut writer) = RedoLog::start(disk.clone(), config, IDENTITY, start, crc).unwrap();
    writer.write(&[slice(stream, joined, begin_of(1))], begin_of(1)).unwrap();
    writer.switch_to(&switch_to(1), IDENTITY).unwrap().unwrap();
    archive(&log).unwrap();
    log.archived().swap_remove(0)
}

/// An empty log of the incarnation before begins at the same position, in a later group. Its group is free; the other one
/// holds the redo before the gap.
#[test]
fn group_of_an_empty_log_before_a_gap_is_free() {
    let stream = stream();
    let machine = SimMachine::new(8);
    let disk: Arc<dyn Disk> = Arc::new(machine.disk());
    let standby = LogConfig { groups: 3, ..config(LogKind::Standby, "/standby") };
    RedoLog::create_files(disk.as_ref(), &standby).unwrap();
    let (log, mut writer) = RedoLog::start(disk, standby, IDENTITY, START, StreamCrc(0)).unwrap();
    let mut acknowledged = Scn::START;
    receive(&log, &mut writer, &stream, begin_of(2), &mut acknowledged).unwrap();
    writer.switch_to(&switch_to(2), IDENTITY).unwrap().unwrap();
    archive(&log).unwrap();
    writer.switch_to(&LogSwitch { sequence: 1, ..switch_to(2) }, NEXT).unwrap().unwrap();
    archive(&log).unwrap();
    let end = begin_of(2) + 4000;
    writer.write(&[slice(&stream, begin_of(2), end)], end).unwrap();
    writer.jump(&switch_to(4), NEXT, crc_at(&stream, begin_of(4))).unwrap().unwrap();
    writer.write(&[slice(&stream, begin_of(4), begin_of(5))], end).unwrap();
    writer.switch_to(&switch_to(5), NEXT).unwrap().unwrap();
    writer.give_up_beyond_hole().unwrap();
    assert_eq!((writer.position(), writer.identity()), (end, NEXT));
}

/// The archiver was late, so the group of the next log, of a later incarnation, was filled again before this one:
/// nothing but its own blocks says where this log ends.
#[test]
fn log_whose_successor_is_gone_ends_where_its_blocks_end() {
    let stream = stream();
    let machine = machine(7, &stream);
    let disk: Arc<dyn Disk> = Arc::new(machine.disk());
    let standby = || config(LogKind::Standby, "/standby");
    let (log, mut writer, _) = RedoLog::open(disk.clone(), standby()).unwrap();
    for number in 0..5 {
        if number > 0 {
            let switch = LogSwitch { sequence: number as u64, ..switch_to(number) };
            writer.switch_to(&switch, NEXT).unwrap().unwrap();
        }
        let end = begin_of(number + 1);
        writer.write(&[slice(&stream, begin_of(number), end)], end).unwrap();
        for (group, _) in log.to_archive().into_iter().filter(|(group, _)| *group > 0) {
            archive_group(&log, group, &mut || {}).unwrap();
        }
    }
    remove_archived(&log, 0, begin_of(4)).unwrap();
    drop((log, writer));
    let (log, _, _) = RedoLog::open(disk, standby()).unwrap();
    archive(&log).unwrap();
    let copy = log.archived().into_iter().find(|log| log.header.first_scn == Scn::START).unwrap();
    assert_eq!(copy.header.next_scn, Some(begin_of(1)));
}

/// An archive of the empty log would replace the one that was fetched, if the log were begun again.
#[test]
fn log_before_a_gap_keeps_its_incarnation_when_the_gap_is_given_up() {
    let stream = stream();
    let machine = machine(5, &stream);
    let disk: Arc<dyn Disk> = Arc::new(machine.disk());
    let (log, mut writer, _) = RedoLog::open(disk, config(LogKind::Standby, "/standby")).unwrap();
    let mut acknowledged = Scn::START;
    receive(&log, &mut writer, &stream, begin_of(1) + 4000, &mut acknowledged).unwrap();
    let before = (writer.sequence(), writer.identity());
    let begins = LogSwitch { sequence: 1, ..switch_to(4) };
    writer.jump(&begins, NEXT, crc_at(&stream, begin_of(4))).unwrap().unwrap();
    assert_eq!(writer.identity(), NEXT);
    writer.give_up_beyond_hole().unwrap();
    assert_eq!((writer.sequence(), writer.identity()), before);
}

#[test]
fn archived_logs_are_chained_only_if_running_checksums_match() {
    let stream = stream();
    let machine = machine(4, &stream);
    let disk: Arc<dyn Disk> = Arc::new(machine.disk());
    let (log, writer, _) = RedoLog::open(disk.clone(), config(LogKind::Standby, "/standby")).unwrap();
    assert_eq!(writer.position(), Scn::START);
    for original in archived_logs(disk.as_ref(), Path::new("/primary/archive"), None).unwrap() {
        if original.header.sequence != 4 && original.header.sequence <= LOGS as u64 {
            fetch(disk.as_ref(), &log, &original).unwrap();
        }
    }
    let all = |_: &_| true;
    assert_eq!(log.chain(Scn::START, Some(StreamCrc(0)), &all).end, begin_of(3), "log 4 is missing");
    assert_eq!(log.chain(Scn::START, Some(StreamCrc(1)), &all).end, Scn::START, "other redo before");
    let middle = begin_of(4) + 5000;
    assert_eq!(log.chain(middle, Some(crc_at(&stream, middle)), &all).end, begin_of(LOGS));
    assert_eq!(log.chain(middle, Some(StreamCrc(1)), &all).end, middle);
    assert_eq!(log.chain(Scn::START, Some(StreamCrc(0)), &|header| header.sequence < 2).end, begin_of(1));
}
