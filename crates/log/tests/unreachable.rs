//! Damage in the log that is being filled is distinguished from its end.

#![allow(clippy::unwrap_used)]

mod common;

use common::{IDENTITY, Rig};
use standfast_log::{LogSwitch, LostRedo, archive_group};
use standfast_types::Scn;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

impl Rig {
    fn file(&self, group: usize) -> PathBuf {
        self.config.member_directories[0].join(format!("online_{group}a.log"))
    }

    /// Damages bytes of a block of the group's only file.
    fn damage(&self, group: usize, block: u32) {
        let file = std::fs::OpenOptions::new().write(true).open(self.file(group)).unwrap();
        let at = u64::from(block) * self.config.block_bytes as u64;
        file.write_all_at(&[0xA5; 100], at + 20).unwrap();
    }

    /// Writes a batch; returns where the next one begins.
    fn write_two_blocks(&mut self, writer: &mut standfast_log::LogWriter, seed: u8) -> Scn {
        let batch = self.batch(seed + 1, 512);
        assert_eq!(batch.len().div_ceil(self.config.block_bytes - 48), 2);
        writer.write(&[&batch], Scn::ZERO).unwrap()
    }
}

#[test]
fn damaged_block_proven_durable_is_reported_as_lost_redo() {
    let mut rig = Rig::new("lost", 1, 512);
    let (_, mut writer) = rig.start();
    let ends: Vec<Scn> = (0..3).map(|seed| rig.write_two_blocks(&mut writer, seed)).collect();
    drop(writer);
    rig.damage(1, 3);
    let (_, _, recovered) = rig.reopen();
    let lost = LostRedo { path: rig.file(1), from: ends[0], to: ends[2] };
    assert_eq!(
        (recovered.end, recovered.lost),
        (ends[0], Some(lost.clone())),
        "the last write proves the one before"
    );
    // Nothing was written: recovery finds the same again.
    let (log, mut writer, recovered) = rig.reopen();
    assert_eq!(recovered.lost, Some(lost));

    // The redo is sent again in other batches; from then on what lay beyond the damage is void.
    let from = ends[0].bytes_since(Scn::START) as usize;
    let again = rig.stream[from..from + 100].to_vec();
    writer.write(&[&again], Scn::ZERO).unwrap();
    drop((log, writer));
    let (_, mut writer, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.lost), (ends[0] + 100, None));
    writer.write(&[&rig.stream[from + 100..]], Scn::ZERO).unwrap();
    let (log, _, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.lost), (ends[2], None));
    rig.check_reads(&log, Scn::START);
}

#[test]
fn torn_last_write_is_the_end_of_the_redo() {
    let mut rig = Rig::new("torn", 1, 512);
    let (_, mut writer) = rig.start();
    let first = rig.write_two_blocks(&mut writer, 0);
    let batch = rig.batch(1, 16384);
    writer.write(&[&batch], Scn::ZERO).unwrap();
    drop(writer);
    // Its first block, and one in the middle, did not reach the disk.
    rig.damage(1, 3);
    rig.damage(1, 9);
    let (_, mut writer, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.lost), (first, None));
    // The later blocks stay, and say nothing about what is written now.
    rig.stream.truncate(first.bytes_since(Scn::START) as usize);
    let end = rig.write_two_blocks(&mut writer, 2);
    let (log, _, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.lost), (end, None));
    rig.check_reads(&log, Scn::START);
}

#[test]
fn damage_of_blocks_without_redo_loses_nothing() {
    let mut rig = Rig::new("empty", 1, 512);
    let (_, mut writer) = rig.start();
    let first = rig.write_two_blocks(&mut writer, 0);
    writer.write_confirmed(first).unwrap();
    writer.write_confirmed(first).unwrap();
    let end = rig.write_two_blocks(&mut writer, 1);
    // A write that is truncated away is void, damaged or not.
    writer.write(&[&[7; 300]], Scn::ZERO).unwrap();
    writer.cut(end, Scn::ZERO).unwrap();
    let end = rig.write_two_blocks(&mut writer, 2);
    drop(writer);
    for block in [3, 4, 7] {
        rig.damage(1, block);
    }
    let (log, _, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.lost), (end, None));
    rig.check_reads(&log, Scn::START);
}

#[test]
fn damaged_truncation_record_is_not_overlooked() {
    let mut rig = Rig::new("cut", 1, 512);
    let (_, mut writer) = rig.start();
    let first = rig.write_two_blocks(&mut writer, 0);
    rig.write_two_blocks(&mut writer, 1);
    writer.cut(first, Scn::ZERO).unwrap();
    rig.write_two_blocks(&mut writer, 2);
    rig.write_two_blocks(&mut writer, 3);
    drop(writer);
    rig.damage(1, 5);
    let (_, _, recovered) = rig.reopen();
    assert_eq!(recovered.lost.map(|lost| lost.from), Some(first), "what was cut away is void");
}

#[test]
fn a_log_with_a_damaged_header_is_not_overlooked() {
    let mut rig = Rig::new("header", 1, 512);
    let (_, mut writer) = rig.start();
    let first = rig.write_two_blocks(&mut writer, 0);
    assert!(writer.switch(7).unwrap().is_ok());
    let second = rig.write_two_blocks(&mut writer, 1);
    drop(writer);
    rig.damage(2, 0);
    let (_, mut writer, recovered) = rig.reopen();
    let lost = LostRedo { path: rig.file(2), from: first, to: second };
    assert_eq!((recovered.end, recovered.sequence, recovered.lost), (first, 1, Some(lost)));
    let again = rig.stream[first.bytes_since(Scn::START) as usize..].to_vec();
    writer.write(&[&again], Scn::ZERO).unwrap();
    drop(writer);
    let (log, _, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.sequence, recovered.lost), (second, 1, None));
    rig.check_reads(&log, Scn::START);
}

#[test]
fn restarted_log_ignores_blocks_of_the_discarded_one() {
    let mut rig = Rig::new("turn", 1, 512);
    let (_, mut writer) = rig.start();
    let first = rig.write_two_blocks(&mut writer, 0);
    let again = LogSwitch { sequence: 2, first_scn: first, time_us: 7, first_record: 0 };
    assert!(writer.switch_to(&again, IDENTITY).unwrap().is_ok());
    for _ in 0..6 {
        writer.write(&[&[9; 300]], Scn::ZERO).unwrap();
    }
    // The primary never had that redo, nor the last of the log before, and begins the same log once more.
    let before = Scn(first.0 - 100);
    writer.cut(before, Scn::ZERO).unwrap();
    drop(writer);
    let (_, mut writer, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.lost), (before, None));
    let tail = rig.stream[before.bytes_since(Scn::START) as usize..].to_vec();
    writer.write(&[&tail], Scn::ZERO).unwrap();
    drop(writer);
    let (_, mut writer, recovered) = rig.reopen();
    assert_eq!(
        (recovered.end, recovered.lost),
        (first, None),
        "a log that was given up is not a damaged one"
    );
    assert!(writer.switch_to(&again, IDENTITY).unwrap().is_ok());
    drop(writer);
    let (_, mut writer, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.sequence, recovered.lost), (first, 2, None));
    let end = rig.write_two_blocks(&mut writer, 1);
    let (log, _, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.lost), (end, None));
    rig.check_reads(&log, Scn::START);
}

#[test]
fn damaged_group_does_not_replace_its_archived_log() {
    let mut rig = Rig::new("beside", 1, 512);
    let (log, mut writer) = rig.start();
    for seed in 0..3 {
        rig.write_two_blocks(&mut writer, 2 * seed);
        rig.write_two_blocks(&mut writer, 2 * seed + 1);
        if seed < 2 {
            log.set_checkpoint(writer.position());
            assert!(writer.switch(7).unwrap().is_ok());
            log.to_archive()
                .into_iter()
                .for_each(|(group, _)| drop(archive_group(&log, group, &mut || {}).unwrap()));
        }
    }
    let archived = log.archived();
    drop((log, writer));
    let mut layout = rig.config.layout();
    layout.groups.remove(&2);
    rig.config.layout = Some(layout);
    rig.damage(1, 3);
    let (log, _, recovered) = rig.reopen();
    assert_eq!((recovered.sequence, recovered.lost), (3, None));
    assert_eq!((log.to_archive(), log.archived()), (Vec::new(), archived));
    rig.check_reads(&log, Scn::START);
}
