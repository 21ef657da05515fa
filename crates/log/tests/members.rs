//! Groups with several members: what one member has lost another one still has.

#![allow(clippy::unwrap_used)]

mod common;

use common::{IDENTITY, Rig, START};
use standfast_format::{BLOCK_HEADER_BYTES, StreamCrc};
use standfast_io::DirectDisk;
use standfast_log::{
    LogConfig, LogError, LogIdentity, MemberNotice, RedoLog, archive_group, archived_logs, remove_archived,
};
use standfast_types::{Hint, IncarnationId, InstanceId, Scn};
use std::path::PathBuf;
use std::sync::Arc;

const BLOCK: usize = 4096;

impl Rig {
    /// A started log with two members, in whose first group `batches` blocks are filled.
    fn filled(name: &str, batches: u8) -> Rig {
        let mut rig = Rig::new(name, 2, BLOCK);
        let (_, mut writer) = rig.start();
        for seed in 1..=batches {
            let batch = rig.batch(seed, 512);
            writer.write(&[&batch], Scn(3)).unwrap();
        }
        rig
    }

    fn member(&self, group: usize, member: usize) -> PathBuf {
        let name = format!("online_{group}{}.log", char::from(b'a' + member as u8));
        self.config.member_directories[member].join(name)
    }

    /// Damages the payload of a block.
    fn damage(&self, member: usize, block: usize) {
        self.change(member, block * BLOCK + BLOCK_HEADER_BYTES + 40, &[0xEE; 50]);
    }

    fn change(&self, member: usize, at: usize, with: &[u8]) {
        let path = self.member(1, member);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at..at + with.len()].copy_from_slice(with);
        std::fs::write(path, bytes).unwrap();
    }

    fn assert_equal_members(&self) {
        for group in 1..=3 {
            let [a, b] = [0, 1].map(|member| std::fs::read(self.member(group, member)).unwrap());
            assert!(a == b, "the members of group {group} differ");
        }
    }

    /// Opens the log, expects everything to be there, and continues writing.
    fn expect_everything(&mut self) -> Vec<MemberNotice> {
        let (log, mut writer, recovered) = self.reopen();
        assert_eq!(recovered.end, self.end());
        self.check_reads(&log, Scn::START);
        let batch = self.batch(77, 512);
        assert_eq!(writer.write(&[&batch], Scn(3)).unwrap(), self.end());
        self.check_reads(&log, Scn::START);
        log.notices().to_vec()
    }

    /// Passes the dropped members on, as an instance records them.
    fn distrust_dropped(&mut self, log: &RedoLog) {
        self.config.distrusted = log.dropped_members();
    }
}

fn repaired(notices: &[MemberNotice]) -> Vec<(String, u32, bool)> {
    let repaired = |notice: &MemberNotice| match notice {
        MemberNotice::Repaired { path, blocks, damaged } => {
            Some((path.file_name().unwrap().to_string_lossy().into_owned(), *blocks, *damaged))
        }
        MemberNotice::Dropped { .. } => None,
    };
    notices.iter().filter_map(repaired).collect()
}

#[test]
fn damaged_block_of_one_member_is_taken_from_the_other() {
    for member in [0, 1] {
        for block in 1..=8 {
            let mut rig = Rig::filled(&format!("one-{member}-{block}"), 8);
            rig.damage(member, block);
            let notices = rig.expect_everything();
            let name = ["online_1a.log", "online_1b.log"][member].to_owned();
            assert_eq!(repaired(&notices), [(name, 1, block < 8)]);
            rig.assert_equal_members();
        }
    }
}

#[test]
fn members_damaged_in_different_places_still_give_all_redo() {
    let mut rig = Rig::filled("both", 8);
    [(0, 2), (1, 3), (0, 5), (0, 6), (1, 8)]
        .into_iter()
        .for_each(|(member, block)| rig.damage(member, block));
    rig.change(0, 10, &[0xEE; 5]);
    let notices = rig.expect_everything();
    assert_eq!(repaired(&notices), [("online_1a.log".into(), 4, true), ("online_1b.log".into(), 2, true)]);
    rig.assert_equal_members();
}

#[test]
fn block_damaged_in_both_members_is_reported_as_lost_redo() {
    let mut rig = Rig::filled("same", 8);
    let whole = rig.stream.len();
    [0, 1].into_iter().for_each(|member| rig.damage(member, 5));
    rig.stream.truncate(whole / 8 * 4);
    let (_, _, recovered) = rig.reopen();
    let lost = recovered.lost.map(|lost| (lost.from, lost.to));
    assert_eq!(lost, Some((rig.end(), Scn::START + whole as u64)));
    // An instance that continues all the same has what was before the damage, and equal members.
    rig.expect_everything();
    rig.assert_equal_members();
}

#[test]
fn write_that_reached_one_member_is_copied_to_the_other() {
    let mut rig = Rig::filled("tail", 3);
    let before = std::fs::read(rig.member(1, 0)).unwrap();
    let (_, mut writer, _) = rig.reopen();
    let batch = rig.batch(9, 8192);
    writer.write(&[&batch], Scn(3)).unwrap();
    drop(writer);
    std::fs::write(rig.member(1, 0), before).unwrap();
    let notices = rig.expect_everything();
    assert_eq!(repaired(&notices), [("online_1a.log".into(), 3, false)]);
    rig.assert_equal_members();
}

#[test]
fn open_log_reads_damaged_blocks_from_the_other_member() {
    let rig = Rig::filled("open", 8);
    let (log, mut writer, _) = rig.reopen();
    [(0, 2), (1, 4), (0, 8)].into_iter().for_each(|(member, block)| rig.damage(member, block));
    rig.check_reads(&log, Scn::START);
    // The archiver reads in the same way.
    log.set_checkpoint(rig.end());
    writer.switch(7).unwrap().unwrap();
    let archived = archive_group(&log, 0, &mut || {}).unwrap().unwrap();
    let copy = RedoLog::of_file(Arc::new(DirectDisk), &archived.path).unwrap();
    assert_eq!(copy.end_of_current().unwrap(), rig.end());
}

#[test]
fn standby_truncation_tolerates_a_damaged_block_of_one_member() {
    let mut rig = Rig::filled("cut", 8);
    let (log, mut writer, _) = rig.reopen();
    rig.damage(0, 3);
    let at = Scn::START + (rig.stream.len() / 8 * 6) as u64;
    writer.cut(at, Scn(3)).unwrap();
    rig.stream.truncate(rig.stream.len() / 8 * 6);
    assert_eq!(writer.position(), rig.end());
    rig.check_reads(&log, Scn::START);
}

#[test]
fn log_opens_without_a_lost_member_and_names_it() {
    for member in [0, 1] {
        for whole_directory in [false, true] {
            let mut rig = Rig::filled(&format!("lost-{member}-{whole_directory}"), 8);
            if whole_directory {
                std::fs::remove_dir_all(&rig.config.member_directories[member]).unwrap();
            } else {
                std::fs::remove_file(rig.member(1, member)).unwrap();
            }
            let (log, mut writer, recovered) = rig.reopen();
            assert_eq!(recovered.end, rig.end());
            let (lost, living) = (rig.member(1, member), rig.member(1, 1 - member));
            let names = |notice: &MemberNotice| {
                matches!(notice, MemberNotice::Dropped { path, living: other, cause }
                    if *path == lost && *other == living
                        && cause.contains(&*lost.to_string_lossy()) && !cause.contains("hint: "))
            };
            assert!(log.notices().iter().any(names), "{:?}", log.notices());
            assert_eq!(log.dropped_members().len(), if whole_directory { 3 } else { 1 });
            assert_eq!(log.groups()[0].members, [living]);
            // Write around all the groups, some of which may have both members.
            for seed in 0..120 {
                let batch = rig.batch(seed, 1500);
                if writer.room() < batch.len() {
                    for (group, _) in log.to_archive() {
                        archive_group(&log, group, &mut || {}).unwrap().unwrap();
                    }
                    log.set_checkpoint(writer.position());
                    writer.switch(7).unwrap().unwrap();
                }
                writer.write(&[&batch], Scn(3)).unwrap();
            }
            rig.check_reads(&log, Scn::START);
            let (_, _, recovered) = rig.reopen();
            assert_eq!(recovered.end, rig.end());
        }
    }
}

#[test]
fn returned_member_is_not_trusted_until_it_is_resynced() {
    for member in [0, 1] {
        let mut rig = Rig::filled(&format!("away-{member}"), 4);
        let directory = rig.config.member_directories[member].clone();
        let other = rig.config.member_directories[1 - member].clone();
        let away = directory.with_extension("away");
        std::fs::rename(&directory, &away).unwrap();
        let (log, mut writer, _) = rig.reopen();
        rig.distrust_dropped(&log);
        let batch = rig.batch(50, 512);
        writer.write(&[&batch], Scn(3)).unwrap();
        drop((log, writer));

        // The member is back, but the one that continued is gone: what the member holds is not all that was
        // acknowledged.
        std::fs::rename(&away, &directory).unwrap();
        std::fs::rename(&other, &away).unwrap();
        let refused = RedoLog::open(Arc::new(DirectDisk), rig.config.clone()).err().unwrap();
        assert!(matches!(refused, LogError::OnlyDistrusted { .. }), "{refused}");

        std::fs::rename(&away, &other).unwrap();
        let (looked, recovered) = RedoLog::look(Arc::new(DirectDisk), rig.config.clone()).unwrap();
        assert_eq!(recovered.end, rig.end());
        rig.check_reads(&looked, Scn::START);
        let (log, _, _) = rig.reopen();
        assert_eq!(log.dropped_members(), Vec::<PathBuf>::new());
        assert_eq!(repaired(log.notices()).len(), 1, "{:?}", log.notices());
        rig.config.distrusted.clear();
        rig.assert_equal_members();
        std::fs::remove_dir_all(&other).unwrap();
        rig.expect_everything();
    }
}

#[test]
fn stale_blocks_of_a_returned_member_do_not_mix_with_newer_ones() {
    // The member that is away holds a block that was never acknowledged, where the other one continues differently.
    let mut rig = Rig::filled("ghost", 4);
    let short = std::fs::read(rig.member(1, 1)).unwrap();
    let (_, mut writer, _) = rig.reopen();
    let ghost = rig.batch(200, 512);
    writer.write(&[&ghost], Scn(3)).unwrap();
    drop(writer);
    rig.stream.truncate(rig.stream.len() - ghost.len());
    std::fs::write(rig.member(1, 1), short).unwrap();
    let directory = rig.config.member_directories[0].clone();
    let away = directory.with_extension("away");
    std::fs::rename(&directory, &away).unwrap();
    let (log, mut writer, _) = rig.reopen();
    rig.distrust_dropped(&log);
    let batch = rig.batch(51, 512);
    writer.write(&[&batch], Scn(3)).unwrap();
    drop((log, writer));
    std::fs::rename(&away, &directory).unwrap();
    rig.expect_everything();
    rig.assert_equal_members();
}

#[test]
fn inspecting_the_log_writes_nothing() {
    let rig = Rig::filled("look", 8);
    rig.damage(0, 2);
    let before = std::fs::read(rig.member(1, 0)).unwrap();
    let (log, recovered) = RedoLog::look(Arc::new(DirectDisk), rig.config.clone()).unwrap();
    assert_eq!(recovered.end, rig.end());
    rig.check_reads(&log, Scn::START);
    assert!(std::fs::read(rig.member(1, 0)).unwrap() == before, "the file was changed");
}

#[test]
fn new_log_starts_without_a_member_that_cannot_be_created() {
    let rig = Rig::filled("replaced", 8);
    std::fs::remove_dir_all(&rig.config.member_directories[0]).unwrap();
    assert_eq!(RedoLog::create_living_files(&DirectDisk, &rig.config).len(), 3);
    let identity = LogIdentity { incarnation: 2, incarnation_id: IncarnationId([7; 8]), ..IDENTITY };
    let disk = Arc::new(DirectDisk);
    let (log, writer) =
        RedoLog::start(disk, rig.config.clone(), identity, START, StreamCrc::default()).unwrap();
    assert_eq!(log.dropped_members().len(), 3);
    drop((log, writer));
    let (_, _, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.identity), (Scn::START, identity));
}

#[test]
fn files_of_another_geometry_are_refused_and_named() {
    for members in [1, 2] {
        let mut rig = Rig::new(&format!("geometry-{members}"), members, BLOCK);
        let (_, mut writer) = rig.start();
        let batch = rig.batch(1, 512);
        writer.write(&[&batch], Scn(3)).unwrap();
        drop(writer);
        let first = rig.member(1, 0);
        type Change = fn(&mut LogConfig);
        let changes: [(Change, &str, u64, u64); 5] = [
            (|config| config.group_bytes *= 2, "redo.group_bytes", 64 << 10, 128 << 10),
            (|config| config.group_bytes /= 2, "redo.group_bytes", 64 << 10, 32 << 10),
            (|config| config.block_bytes = 512, "redo.block_bytes", 4096, 512),
            (|config| config.groups = 2, "redo.groups", 3, 2),
            (|config| config.groups = 4, "redo.groups", 3, 4),
        ];
        for (change, name, was, is) in changes {
            let mut config = rig.config.clone();
            change(&mut config);
            let refused = RedoLog::open(Arc::new(DirectDisk), config).err().unwrap();
            let LogError::Geometry { path, setting, found, configured } = &refused else {
                panic!("{name}: {refused}");
            };
            assert_eq!((*setting, *found, *configured), (name, was, is));
            assert!(name == "redo.groups" || *path == first, "{}", path.display());
        }
        rig.expect_everything();
    }
}

#[test]
fn error_names_the_operation_the_file_and_a_remedy() {
    let rig = Rig::new("words", 1, BLOCK);
    std::fs::remove_dir_all(&rig.config.member_directories[0]).unwrap();
    let refused = RedoLog::open(Arc::new(DirectDisk), rig.config.clone()).err().unwrap().for_terminal();
    for words in
        ["cannot open the redo log", "online_1a.log", "No such file", "\nhint: check the path", "mounted"]
    {
        assert!(refused.contains(words), "no `{words}` in: {refused}");
    }
    std::fs::write(&rig.config.member_directories[0], "a file").unwrap();
    let refused = RedoLog::create_files(&DirectDisk, &rig.config).err().unwrap().for_terminal();
    for words in ["cannot create the redo log", "online_1a.log", "\nhint: ", "not a directory"] {
        assert!(refused.contains(words), "no `{words}` in: {refused}");
    }
}

/// A log of another instance, further ahead, with an archived log.
fn others(name: &str, group_bytes: u64) -> Rig {
    let mut rig = Rig::new(name, 2, BLOCK);
    RedoLog::remove_files(&DirectDisk, &rig.config).unwrap();
    rig.config.family = Some(OTHER.instance);
    rig.config.group_bytes = group_bytes;
    RedoLog::create_files(&DirectDisk, &rig.config).unwrap();
    let (disk, config) = (Arc::new(DirectDisk), rig.config.clone());
    let (log, mut writer) = RedoLog::start(disk, config, OTHER, START, StreamCrc(0)).unwrap();
    for seed in 1..=2 {
        let batch = rig.batch(seed, 512);
        writer.write(&[&batch], Scn(3)).unwrap();
        writer.switch(5).unwrap().unwrap();
    }
    archive_group(&log, 0, &mut || {}).unwrap().unwrap();
    rig
}

const OTHER: LogIdentity =
    LogIdentity { instance: InstanceId([2; 16]), incarnation: 1, incarnation_id: IncarnationId([8; 8]) };

/// Complete content of every file of both members.
fn content(rig: &Rig) -> Vec<Vec<u8>> {
    let members = (1..=3).flat_map(|group| [0, 1].map(|member| rig.member(group, member)));
    members.map(|path| std::fs::read(path).unwrap()).collect()
}

fn is_foreign(error: &LogError) -> bool {
    matches!(error, LogError::Foreign { found, family, .. } if (*found, *family) == (OTHER.instance, IDENTITY.instance))
}

#[test]
fn log_of_another_instance_is_refused_without_any_change() {
    let mut rig = Rig::filled("mounted-wrongly", 5);
    let others = others("mounted-wrongly-other", 64 << 10);
    let ours = std::fs::read(rig.member(1, 1)).unwrap();
    std::fs::copy(others.member(1, 1), rig.member(1, 1)).unwrap();
    let before = content(&rig);
    for distrusted in [Vec::new(), vec![rig.member(1, 1)]] {
        let config = LogConfig { distrusted, ..rig.config.clone() };
        let refused = RedoLog::open(Arc::new(DirectDisk), config).err().unwrap();
        assert!(is_foreign(&refused), "{refused}");
        assert!(refused.to_string().contains("online_1b.log"), "{refused}");
        assert!(content(&rig) == before, "something was written");
    }
    std::fs::write(rig.member(1, 1), ours).unwrap();
    assert!(rig.expect_everything().is_empty());
}

#[test]
fn new_log_leaves_files_of_another_instance_alone() {
    let rig = Rig::new("begins-beside", 2, BLOCK);
    // Shorter files, which would be recreated if they belonged to this instance.
    let others = others("begins-beside-other", 32 << 10);
    for group in 1..=2 {
        std::fs::copy(others.member(group, 1), rig.member(group, 1)).unwrap();
    }
    let before = content(&rig);
    let failed = RedoLog::create_living_files(&DirectDisk, &rig.config);
    assert!(failed.len() == 2 && failed.iter().all(is_foreign), "{failed:?}");
    assert!(content(&rig) == before);
    let (log, _writer) = rig.start();
    assert_eq!(log.dropped_members(), [rig.member(1, 1), rig.member(2, 1)]);
    for group in 1..=2 {
        let at = (group - 1) * 2 + 1;
        assert!(std::fs::read(rig.member(group, 1)).unwrap() == before[at], "group {group} was written to");
    }
}

#[test]
fn archived_logs_of_another_instance_are_ignored_and_kept() {
    let rig = Rig::filled("archived-beside", 5);
    let others = others("archived-beside-other", 64 << 10);
    let [theirs] = &archived_logs(&DirectDisk, &others.config.archive_directory, None).unwrap()[..] else {
        panic!("one archived log")
    };
    let copy = rig.config.archive_directory.join(theirs.path.file_name().unwrap());
    std::fs::copy(&theirs.path, &copy).unwrap();
    let (log, mut writer, _) = rig.reopen();
    writer.switch(5).unwrap().unwrap();
    archive_group(&log, 0, &mut || {}).unwrap().unwrap();
    drop((log, writer));
    let (log, _writer, _) = rig.reopen();
    assert_eq!(remove_archived(&log, 0, rig.end()).unwrap().len(), 1);
    let left = archived_logs(&DirectDisk, &rig.config.archive_directory, None).unwrap();
    assert_eq!(left.iter().map(|log| &log.path).collect::<Vec<_>>(), [&copy]);
    rig.check_reads(&log, Scn::START);
}

#[test]
fn new_group_does_not_replace_a_file_of_another_instance() {
    let rig = Rig::filled("replaced", 5);
    let others = others("replaced-other", 64 << 10);
    let (log, _writer, _) = rig.reopen();
    let fourth = rig.config.member_directories[0].join("online_4a.log");
    std::fs::copy(others.member(1, 0), &fourth).unwrap();
    let refused = log.make_group(64 << 10).err().unwrap();
    assert!(is_foreign(&refused), "{refused}");
    assert!(std::fs::read(&fourth).unwrap() == std::fs::read(others.member(1, 0)).unwrap());
    drop((log, _writer));
    let refused = RedoLog::open(Arc::new(DirectDisk), rig.config.clone()).err().unwrap();
    assert!(is_foreign(&refused), "{refused}");
}
