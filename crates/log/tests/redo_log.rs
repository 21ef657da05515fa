//! The redo log on a real file system: write, switch, archive, read, truncate, recover.

#![allow(clippy::unwrap_used)]

mod common;

use common::{IDENTITY, Rig};
use standfast_format::{LogKind, StreamCrc};
use standfast_io::{DirectDisk, Disk};
use standfast_log::{
    LogError, LogIdentity, LogSwitch, RedoLog, SwitchBlocked, archive_group, remove_archived,
};
use standfast_types::{IncarnationId, Scn};
use std::sync::Arc;

#[test]
fn redo_is_read_back_across_switches_archiving_and_a_restart() {
    for (members, block_bytes) in [(1, 4096), (2, 512)] {
        let mut rig = Rig::new(&format!("round-{members}"), members, block_bytes);
        let (log, mut writer) = rig.start();
        let mut switches = 0;
        for i in 0..120u32 {
            let batch = rig.batch(i as u8, 1500);
            if writer.room() < batch.len() {
                log.set_checkpoint(writer.position());
                let switch = loop {
                    match writer.switch(7).unwrap() {
                        Ok(switch) => break switch,
                        Err(SwitchBlocked::ArchivingNeeded) => {
                            for (group, _) in log.to_archive() {
                                archive_group(&log, group, &mut || {}).unwrap().unwrap();
                            }
                        }
                        Err(SwitchBlocked::CheckpointIncomplete) => panic!("the checkpoint was set"),
                    }
                };
                switches += 1;
                assert_eq!((switch.sequence, switch.first_scn), (1 + switches, writer.position()));
            }
            let (head, tail) = batch.split_at(batch.len() / 3);
            assert_eq!(writer.write(&[head, tail], Scn(3)).unwrap(), rig.end());
        }
        assert!(switches >= 3);
        rig.check_reads(&log, Scn::START);
        assert_eq!(log.switches(Scn::START, rig.end()).len() as u64, switches);
        assert_eq!(log.log_containing(rig.end()).unwrap().sequence, 1 + switches);
        let crc = writer.stream_crc();
        drop((log, writer));
        let (log, writer, recovered) = rig.reopen();
        assert_eq!((recovered.end, recovered.confirmed, recovered.identity), (rig.end(), Scn(3), IDENTITY));
        assert_eq!((writer.stream_crc(), writer.sequence()), (crc, 1 + switches));
        rig.check_reads(&log, Scn::START);
        let removed = remove_archived(&log, 0, rig.end()).unwrap();
        assert_eq!(removed.len() as u64 + log.archived().len() as u64, removed.len() as u64);
        let read = || log.read(Scn::START, rig.end(), 10, &mut Vec::new());
        assert!(matches!(read(), Err(LogError::Missing { .. })), "recovery may need it");
        log.set_checkpoint(rig.end());
        assert!(matches!(read(), Err(LogError::TooOld { .. })));
    }
}

#[test]
fn large_write_is_split_and_read_back_from_every_member() {
    for members in [1, 2] {
        let mut rig = Rig::new(&format!("extents-{members}"), members, 4096);
        rig.config.group_bytes = 8 << 20;
        RedoLog::remove_files(&DirectDisk, &rig.config).unwrap();
        RedoLog::create_files(&DirectDisk, &rig.config).unwrap();
        let (_, mut writer) = rig.start();
        let mut writes = 0;
        for round in 0..2 {
            let batches: Vec<_> = (0..50).map(|seed| rig.batch(1 + round * 50 + seed, 65536)).collect();
            let slices: Vec<&[u8]> = batches.iter().map(Vec::as_slice).collect();
            assert_eq!(writer.write(&slices, Scn(7)).unwrap(), rig.end());
            let now = writer.counts().writes;
            assert!(now - writes >= 4, "3 MiB took {} writes", now - writes);
            writes = now;
        }
        assert_eq!(writer.counts().bytes, rig.stream.len() as u64);
        let position = (writer.position(), writer.stream_crc());
        let (log, writer, recovered) = rig.reopen();
        assert_eq!((recovered.end, recovered.confirmed), (rig.end(), Scn(7)));
        assert_eq!((writer.position(), writer.stream_crc()), position);
        rig.check_reads(&log, Scn::START);
        let paths = &log.groups()[0].members;
        let files: Vec<_> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
        assert!(files.iter().all(|file| *file == files[0]), "members differ");
    }
}

#[test]
fn recovery_stops_at_a_torn_block_and_writing_resumes_there() {
    let mut rig = Rig::new("torn", 1, 4096);
    let (_, mut writer) = rig.start();
    let first = rig.batch(1, 512);
    writer.write(&[&first], Scn(0)).unwrap();
    let kept = rig.end();
    let second = rig.batch(2, 8192);
    writer.write(&[&second], Scn(0)).unwrap();
    let path = rig.config.member_directories[0].join("online_1a.log");
    let file = DirectDisk.open(&path).unwrap();
    file.write(&[0xEE; 100], 2 * 4096 + 1000).unwrap();
    file.sync().unwrap();
    let (log, mut writer, recovered) = rig.reopen();
    assert_eq!(recovered.end, kept);
    rig.stream.truncate(first.len());
    let third = rig.batch(3, 512);
    assert_eq!(writer.write(&[&third], Scn(0)).unwrap(), rig.end());
    rig.check_reads(&log, Scn::START);
}

#[test]
fn a_group_is_not_reused_before_it_is_archived_and_checkpointed() {
    let mut rig = Rig::new("reuse", 1, 4096);
    let (log, mut writer) = rig.start();
    for i in 0..2 {
        let batch = rig.batch(i, 512);
        writer.write(&[&batch], Scn(0)).unwrap();
        assert!(!log.archiver_is_behind(), "{i} of 3 groups wait");
        assert!(writer.switch(1).unwrap().is_ok());
    }
    assert!(log.archiver_is_behind(), "2 of 3 groups wait");
    let batch = rig.batch(9, 512);
    writer.write(&[&batch], Scn(0)).unwrap();
    assert_eq!(writer.switch(1).unwrap(), Err(SwitchBlocked::ArchivingNeeded));
    let (group, next) = log.to_archive()[0];
    archive_group(&log, group, &mut || {}).unwrap().unwrap();
    assert!(!log.archiver_is_behind());
    assert_eq!(writer.switch(1).unwrap(), Err(SwitchBlocked::CheckpointIncomplete));
    log.set_checkpoint(next);
    assert!(writer.switch(1).unwrap().is_ok());
}

/// Reads everything written so far from archived logs, with new online logs: as after log 1 was archived.
fn check_reads_from_archives(rig: &Rig) {
    RedoLog::remove_files(&DirectDisk, &rig.config).unwrap();
    RedoLog::create_files(&DirectDisk, &rig.config).unwrap();
    let start = LogSwitch { sequence: 2, first_scn: rig.end(), time_us: 1, first_record: 0 };
    let crc = StreamCrc::default().after(&rig.stream);
    let (log, _) = RedoLog::start(Arc::new(DirectDisk), rig.config.clone(), IDENTITY, start, crc).unwrap();
    rig.check_reads(&log, Scn::START);
}

/// In a log of small batches, nearly everything read for the archived copy is padding.
#[test]
fn archiver_may_pause_after_each_256_kib_read_or_written() {
    for (batch_bytes, batches, extents) in [(100, 511, 8), (65_536, 30, 8 + 8)] {
        let name = format!("paced-{batch_bytes}");
        let mut rig = Rig::with_groups_of(2 << 20, &name, 1, 4096);
        let (log, mut writer) = rig.start();
        for i in 0..batches {
            let batch = rig.batch(i as u8, batch_bytes);
            writer.write(&[&batch], Scn(0)).unwrap();
        }
        writer.switch(2).unwrap().unwrap();
        let mut pauses = 0;
        archive_group(&log, log.to_archive()[0].0, &mut || pauses += 1).unwrap().unwrap();
        assert!(
            (extents - 3..=extents + 3).contains(&pauses),
            "{pauses} pauses with batches of {batch_bytes} bytes"
        );
        drop((log, writer));
        check_reads_from_archives(&rig);
    }
}

#[test]
fn truncation_voids_divergent_redo_within_and_across_groups() {
    for across in [false, true] {
        let mut rig = Rig::new(&format!("cut-{across}"), 1, 4096);
        let (log, mut writer) = rig.start();
        for i in 0..4 {
            let batch = rig.batch(i, 3000);
            writer.write(&[&batch], Scn(0)).unwrap();
        }
        let cut = Scn(rig.end().0 - 700);
        if across {
            writer.switch(2).unwrap().unwrap();
        }
        let divergent = rig.batch(77, 3000);
        writer.write(&[&divergent], Scn(0)).unwrap();
        writer.cut(cut, Scn(1)).unwrap();
        rig.stream.truncate(cut.bytes_since(Scn::START) as usize);
        let other = rig.batch(99, 4000);
        writer.write(&[&other], Scn(0)).unwrap();
        rig.check_reads(&log, Scn::START);
        assert_eq!(writer.sequence(), 1);
        drop((log, writer));
        let (log, mut writer, recovered) = rig.reopen();
        assert_eq!(recovered.end, rig.end());
        rig.check_reads(&log, Scn::START);
        writer.switch(3).unwrap().unwrap();
        let (group, _) = log.to_archive()[0];
        let archived = archive_group(&log, group, &mut || {}).unwrap().unwrap();
        assert_eq!(archived.header.next_scn, Some(rig.end()));
        drop((log, writer));
        // The group still exists beside its archived copy, and reads use the group.
        let (log, writer, _) = rig.reopen();
        rig.check_reads(&log, Scn::START);
        drop((log, writer));
        check_reads_from_archives(&rig);
    }
}

/// If a group is damaged before a truncation, what the truncation voids is unknown: the archived log knows it.
#[test]
fn truncation_after_a_damaged_block_is_not_overlooked() {
    let mut rig = Rig::new("hidden-cut", 1, 4096);
    let (log, mut writer) = rig.start();
    for i in 0..4 {
        let batch = rig.batch(i, 3000);
        writer.write(&[&batch], Scn(0)).unwrap();
    }
    let cut = Scn(rig.end().0 - 700);
    let divergent = rig.batch(77, 3000);
    writer.write(&[&divergent], Scn(0)).unwrap();
    writer.cut(cut, Scn(1)).unwrap();
    rig.stream.truncate(cut.bytes_since(Scn::START) as usize);
    let other = rig.batch(99, 4000);
    writer.write(&[&other], Scn(0)).unwrap();
    writer.switch(3).unwrap().unwrap();
    let (group, _) = log.to_archive()[0];
    let archived = archive_group(&log, group, &mut || {}).unwrap().unwrap();
    drop((log, writer));
    let file = rig.config.member_directories[0].join("online_1a.log");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4096..8192].fill(0xA5);
    std::fs::write(&file, bytes).unwrap();

    // After the damage, before the truncation.
    let from = Scn(cut.0 - 5000);
    let (log, writer, _) = rig.reopen();
    rig.check_reads(&log, from);
    drop((log, writer));
    std::fs::remove_file(&archived.path).unwrap();
    let (log, _, _) = rig.reopen();
    let mut read = Vec::new();
    assert!(
        matches!(log.read(from, rig.end(), 100_000, &mut read), Err(LogError::Lost { .. })),
        "{}",
        read.len()
    );
}

#[test]
fn new_incarnation_starts_at_sequence_one_and_is_recovered() {
    let mut rig = Rig::new("incarnation", 1, 4096);
    let (log, mut writer) = rig.start();
    let batch = rig.batch(1, 512);
    writer.write(&[&batch], Scn(0)).unwrap();
    let second = LogIdentity { incarnation: 2, incarnation_id: IncarnationId([5; 8]), ..IDENTITY };
    let switch = LogSwitch { sequence: 1, first_scn: rig.end(), time_us: 8, first_record: 0 };
    writer.switch_to(&switch, second).unwrap().unwrap();
    let batch = rig.batch(2, 512);
    writer.write(&[&batch], Scn(0)).unwrap();
    rig.check_reads(&log, Scn::START);
    drop((log, writer));
    let (_, writer, recovered) = rig.reopen();
    assert_eq!((recovered.identity, writer.sequence(), recovered.end), (second, 1, rig.end()));
}

#[test]
fn confirmed_position_survives_switches_without_further_redo() {
    for switches in [1, 2] {
        let mut rig = Rig::new(&format!("confirmed-{switches}"), 1, 512);
        rig.config.kind = LogKind::Standby;
        RedoLog::create_files(&DirectDisk, &rig.config).unwrap();
        let (log, mut writer) = rig.start();
        let batch = rig.batch(1, 700);
        let end = writer.write(&[&batch], Scn::START).unwrap();
        writer.write_confirmed(end).unwrap();
        for _ in 0..switches {
            writer.switch(7).unwrap().unwrap();
        }
        drop((log, writer));
        let (log, writer, recovered) = rig.reopen();
        assert_eq!((recovered.end, recovered.confirmed), (end, end));
        drop((log, writer));
    }
}

#[test]
fn full_group_still_accepts_a_confirmation() {
    let mut rig = Rig::new("full-confirmed", 2, 512);
    rig.config.kind = LogKind::Standby;
    RedoLog::create_files(&DirectDisk, &rig.config).unwrap();
    let (log, mut writer) = rig.start();
    while writer.room() > 0 {
        let batch = rig.batch(3, 400);
        writer.write(&[&batch], Scn::START).unwrap();
    }
    let end = rig.end();
    for _ in 0..5 {
        writer.write_confirmed(end).unwrap();
    }
    drop((log, writer));
    let (log, writer, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.confirmed), (end, end));
    rig.check_reads(&log, Scn::START);
    drop((log, writer));
}

#[test]
fn short_group_file_after_a_power_loss_is_recreated() {
    let rig = Rig::new("short", 1, 512);
    let path = rig.config.member_directories[0].join("online_2a.log");
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(512).unwrap();
    RedoLog::create_files(&DirectDisk, &rig.config).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), rig.config.group_bytes);
    let (log, writer) = rig.start();
    drop((log, writer));
}

/// A standby that is created just before a switch has an empty log, and may continue in a group with a lower number.
#[test]
fn empty_log_is_not_mistaken_for_its_successor_at_the_same_scn() {
    let mut rig = Rig::new("empty", 1, 512);
    let (log, mut writer) = rig.start();
    for seed in 0..2 {
        let batch = rig.batch(seed, 512);
        writer.write(&[&batch], Scn(0)).unwrap();
        assert!(writer.switch(1).unwrap().is_ok());
    }
    let (first, before) = (rig.end(), rig.stream.len());
    for (group, _) in log.to_archive() {
        archive_group(&log, group, &mut || {}).unwrap().unwrap();
    }
    log.set_checkpoint(first);
    assert_eq!(writer.switch(1).unwrap().unwrap().sequence, 4, "the third one stays empty");
    for (group, _) in log.to_archive() {
        archive_group(&log, group, &mut || {}).unwrap().unwrap();
    }
    let batch = rig.batch(7, 512);
    writer.write(&[&batch], Scn(0)).unwrap();
    let there = |log: &RedoLog| {
        (log.log_containing(rig.end()).unwrap().sequence, log.switches(Scn(first.0 - 1), first))
    };
    let (sequence, switches) = there(&log);
    assert_eq!((sequence, switches.len(), switches[0].sequence), (4, 1, 4));
    writer.cut(first + 10, Scn(0)).unwrap();
    writer.cut(first, Scn(0)).unwrap();
    drop((log, writer));
    let (log, mut writer, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.sequence, there(&log).0), (first, 4, 4));
    rig.stream.truncate(before);
    let batch = rig.batch(8, 512);
    assert_eq!(writer.write(&[&batch], Scn(0)).unwrap(), rig.end());
    rig.check_reads(&log, Scn::START);
}
