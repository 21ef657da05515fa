//! A member fails while the log is written: it is dropped, recorded as stale, and not trusted when it returns.

#![allow(clippy::unwrap_used)]

mod common;

use common::{IDENTITY, Rig, START};
use standfast_format::{LogKind, RecordBuilder, StreamCrc};
use standfast_io::{DirectDisk, Disk, LogFile};
use standfast_log::{LogConfig, LogError, LogWriter, MemberKeeper, MemberNotice, RedoLog, archive_group};
use standfast_testkit::{CrashPlace, Loss, Rng, SimDisk, SimMachine};
use standfast_types::{DatabaseId, Scn};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

type Reported = std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// The real disk, with directories whose files cannot be written.
#[derive(Clone, Default)]
struct Devices {
    /// Path of the directory, and number of writes that still succeed.
    broken: Arc<Mutex<Vec<(PathBuf, u64)>>>,
    /// Writes to a device after a write to it had failed.
    afterwards: Arc<AtomicU64>,
}

struct File {
    file: Arc<dyn LogFile>,
    path: PathBuf,
    devices: Devices,
    failed: AtomicBool,
}

impl Devices {
    fn break_after(&self, directory: &Path, writes: u64) {
        self.broken.lock().unwrap().push((directory.to_owned(), writes));
    }

    fn write(&self, path: &Path) -> Result<()> {
        for (directory, left) in self.broken.lock().unwrap().iter_mut() {
            if path.starts_with(directory) {
                *left = left.checked_sub(1).ok_or_else(|| Error::from_raw_os_error(5))?;
            }
        }
        Ok(())
    }
}

impl LogFile for File {
    fn write_durable(&self, data: &[u8], offset: u64) -> Result<()> {
        if self.failed.load(SeqCst) {
            self.devices.afterwards.fetch_add(1, SeqCst);
        }
        self.devices.write(&self.path).inspect_err(|_| self.failed.store(true, SeqCst))?;
        self.file.write_durable(data, offset)
    }
    fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file.write(data, offset)
    }
    fn sync(&self) -> Result<()> {
        self.file.sync()
    }
    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(out, offset)
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
}

impl Disk for Devices {
    fn create(&self, path: &Path, bytes: u64) -> Result<Arc<dyn LogFile>> {
        DirectDisk.create(path, bytes)
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn LogFile>> {
        let (file, path) = (DirectDisk.open(path)?, path.to_owned());
        Ok(Arc::new(File { file, path, devices: self.clone(), failed: AtomicBool::new(false) }))
    }
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        DirectDisk.read(path)
    }
    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        DirectDisk.replace(path, bytes)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        DirectDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        DirectDisk.remove(path)
    }
    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        DirectDisk.list(directory)
    }
    fn free_bytes(&self, path: &Path) -> Result<u64> {
        DirectDisk.free_bytes(path)
    }
}

/// Records in memory, or fails to.
#[derive(Default)]
struct Memory {
    lost: Mutex<Vec<MemberNotice>>,
    fails: AtomicBool,
    /// Position of the log when each loss was reported.
    at: Mutex<Vec<Scn>>,
    position: Mutex<Scn>,
}

impl MemberKeeper for Memory {
    fn lost(&self, members: &[MemberNotice]) -> Reported {
        if self.fails.load(SeqCst) {
            return Err("the volume of the control file is full".into());
        }
        self.lost.lock().unwrap().extend_from_slice(members);
        self.at.lock().unwrap().push(*self.position.lock().unwrap());
        Ok(())
    }
}

impl Memory {
    fn paths(&self) -> Vec<PathBuf> {
        let path = |notice: &MemberNotice| match notice {
            MemberNotice::Dropped { path, .. } | MemberNotice::Repaired { path, .. } => path.clone(),
        };
        self.lost.lock().unwrap().iter().map(path).collect()
    }
}

fn open(rig: &Rig, devices: &Devices) -> (Arc<RedoLog>, LogWriter, Arc<Memory>) {
    let (log, writer, _) = RedoLog::open(Arc::new(devices.clone()), rig.config.clone()).unwrap();
    let memory = Arc::new(Memory::default());
    log.keep_members(memory.clone());
    (log, writer, memory)
}

fn member(rig: &Rig, group: usize, member: usize) -> PathBuf {
    let name = format!("online_{group}{}.log", char::from(b'a' + member as u8));
    rig.config.member_directories[member].join(name)
}

#[test]
fn failed_member_is_recorded_before_the_write_is_committed() {
    for (failing, members) in [(0, 2), (1, 2), (1, 3)] {
        let mut rig = Rig::new(&format!("drop-{failing}-{members}"), members, 4096);
        drop(rig.start());
        let devices = Devices::default();
        let (log, mut writer, memory) = open(&rig, &devices);
        devices.break_after(&rig.config.member_directories[failing], 3);
        for seed in 0..8 {
            let batch = rig.batch(seed, 700);
            assert_eq!(writer.write(&[&batch], Scn(3)).unwrap(), rig.end());
            *memory.position.lock().unwrap() = rig.end();
        }
        let lost = member(&rig, 1, failing);
        assert_eq!(memory.paths(), std::slice::from_ref(&lost));
        let reported_at = memory.at.lock().unwrap()[0];
        assert!(reported_at < rig.end(), "the write was reported before it was recorded");
        assert_eq!((log.dropped_members(), log.groups()[0].members.len()), (vec![lost], members - 1));
        // The next group has members of its own, and drops its own.
        writer.switch(7).unwrap().unwrap();
        let batch = rig.batch(50, 700);
        writer.write(&[&batch], Scn(3)).unwrap();
        assert_eq!(memory.paths(), [member(&rig, 1, failing), member(&rig, 2, failing)]);
        assert_eq!(devices.afterwards.load(SeqCst), 0, "a file to which a write failed was written again");
        rig.check_reads(&log, Scn::START);
        drop((log, writer));

        // At the next start the member that continued is gone, and the one that failed is back.
        rig.config.distrusted = memory.paths();
        let living = (0..members).filter(|index| *index != failing);
        let living: Vec<_> = living.map(|index| rig.config.member_directories[index].clone()).collect();
        for directory in &living {
            std::fs::rename(directory, directory.with_extension("away")).unwrap();
        }
        let refused = RedoLog::open(Arc::new(DirectDisk), rig.config.clone()).err().unwrap();
        assert!(matches!(refused, LogError::OnlyDistrusted { .. }), "{refused}");
        for directory in &living {
            std::fs::rename(directory.with_extension("away"), directory).unwrap();
        }
        let (log, _, recovered) = rig.reopen();
        assert_eq!((recovered.end, log.dropped_members()), (rig.end(), vec![]));
        rig.check_reads(&log, Scn::START);
    }
}

#[test]
fn log_is_poisoned_if_a_lost_member_is_unrecorded_or_the_last() {
    for all in [false, true] {
        let mut rig = Rig::new(&format!("poison-{all}"), 2, 4096);
        drop(rig.start());
        let devices = Devices::default();
        let (log, mut writer, memory) = open(&rig, &devices);
        memory.fails.store(!all, SeqCst);
        let failing = if all { 0..2 } else { 0..1 };
        failing.for_each(|index| devices.break_after(&rig.config.member_directories[index], 2));
        for seed in 0..2 {
            let batch = rig.batch(seed, 700);
            writer.write(&[&batch], Scn(3)).unwrap();
        }
        let before = rig.end();
        let batch = rig.batch(9, 700);
        for _ in 0..2 {
            let refused = writer.write(&[&batch], Scn(3)).unwrap_err();
            assert!(matches!(refused, LogError::Poisoned { at, .. } if at == before), "{refused}");
            let printed = refused.to_string();
            assert!(all || printed.contains("cannot be remembered: the volume of"), "{printed}");
        }
        assert_eq!((memory.paths(), log.dropped_members()), (vec![], vec![]));
        assert_eq!(devices.afterwards.load(SeqCst), 0);
        drop((log, writer));
        // A write that was never acknowledged may be there or not.
        let (_, _, recovered) = rig.reopen();
        assert!(recovered.end == before || recovered.end == rig.end(), "{}", recovered.end);
    }
}

#[test]
fn member_failing_during_a_large_write_does_not_block_the_rest() {
    for (failing, survives) in [(0, 1), (1, 1), (0, 2), (1, 3)] {
        let mut rig = Rig::new(&format!("extents-{failing}-{survives}"), 2, 4096);
        rig.config.group_bytes = 8 << 20;
        RedoLog::create_files(&DirectDisk, &rig.config).unwrap();
        drop(rig.start());
        let devices = Devices::default();
        let (log, mut writer, memory) = open(&rig, &devices);
        devices.break_after(&rig.config.member_directories[failing], survives);
        let batches: Vec<_> = (0..60).map(|seed| rig.batch(seed, 65_536)).collect();
        let slices: Vec<&[u8]> = batches.iter().map(Vec::as_slice).collect();
        assert_eq!(writer.write(&slices, Scn(7)).unwrap(), rig.end());
        assert!(writer.counts().writes > 3, "it was written in extents");
        assert_eq!(memory.paths(), [member(&rig, 1, failing)]);
        let batch = rig.batch(99, 65_536);
        writer.write(&[&batch], Scn(7)).unwrap();
        // One write may have been in flight beside the one that failed.
        assert!(devices.afterwards.load(SeqCst) <= 1);
        rig.check_reads(&log, Scn::START);
        drop((log, writer));
        rig.config.distrusted = memory.paths();
        let (log, _, recovered) = rig.reopen();
        assert_eq!(recovered.end, rig.end());
        rig.check_reads(&log, Scn::START);
    }
}

/// A log on a simulated machine, with the record of lost members in a file.
struct Site {
    machine: Arc<SimMachine>,
    config: LogConfig,
    /// Everything that was handed to the log.
    stream: Vec<u8>,
    /// Redo up to here was acknowledged.
    acknowledged: Scn,
}

const MEMORY: &str = "/sim/lost";

struct OnDisk(SimDisk);

fn remembered(disk: &dyn Disk) -> Vec<PathBuf> {
    let text = disk.read(Path::new(MEMORY)).unwrap_or_default();
    String::from_utf8(text).unwrap().lines().map(PathBuf::from).collect()
}

fn remember(disk: &dyn Disk, lost: &[PathBuf]) -> Result<()> {
    let text: String = lost.iter().map(|path| format!("{}\n", path.display())).collect();
    disk.replace(Path::new(MEMORY), text.as_bytes())
}

impl MemberKeeper for OnDisk {
    fn lost(&self, members: &[MemberNotice]) -> Reported {
        let mut lost = remembered(&self.0);
        for notice in members {
            if let MemberNotice::Dropped { path, .. } = notice {
                lost.push(path.clone());
            }
        }
        Ok(remember(&self.0, &lost)?)
    }
}

impl Site {
    fn new(seed: u64) -> Site {
        let machine = SimMachine::new(seed);
        let directory = Path::new("/sim");
        let config = LogConfig {
            kind: LogKind::Online,
            member_directories: vec![directory.join("m0"), directory.join("m1")],
            groups: 3,
            group_bytes: 64 << 10,
            block_bytes: 512,
            archive_directory: directory.join("archive"),
            distrusted: Vec::new(),
            unnamed_groups: 0,
            layout: None,
            family: None,
        };
        let disk = Arc::new(machine.disk());
        RedoLog::create_files(disk.as_ref(), &config).unwrap();
        RedoLog::start(disk, config.clone(), IDENTITY, START, StreamCrc(0)).unwrap();
        Site { machine, config, stream: Vec::new(), acknowledged: Scn::START }
    }

    /// Opens the log as an instance does at its start.
    fn open(&mut self) -> std::result::Result<(Arc<RedoLog>, LogWriter), LogError> {
        let disk = self.machine.disk();
        let config = LogConfig { distrusted: remembered(&disk), ..self.config.clone() };
        let (log, writer, recovered) = RedoLog::open(Arc::new(disk.clone()), config)?;
        assert!(recovered.end >= self.acknowledged, "{} < {}", recovered.end, self.acknowledged);
        self.stream.truncate(recovered.end.bytes_since(Scn::START) as usize);
        self.acknowledged = recovered.end;
        let at = Path::new(MEMORY);
        remember(&disk, &log.dropped_members()).map_err(|source| LogError::Io {
            doing: "remember in",
            path: at.to_owned(),
            source,
        })?;
        log.keep_members(Arc::new(OnDisk(disk)));
        Ok((log, writer))
    }

    /// Writes redo until the power fails, or enough is written.
    fn write(&mut self, log: &RedoLog, writer: &mut LogWriter, rng: &mut Rng) {
        let breaks_at = rng.between(0, 20);
        for round in 0..rng.between(1, 40) {
            if round == breaks_at {
                let directory = &self.config.member_directories[rng.below(2) as usize];
                self.machine.break_directory(directory);
            }
            let mut batch = Vec::new();
            let mut builder = RecordBuilder::change(&mut batch, DatabaseId(1));
            let image = vec![rng.below(256) as u8; 512 << rng.below(5)];
            builder.vector(1, None, &image, 0, &mut Vec::new());
            builder.finish();
            if writer.room() < batch.len() || rng.chance(10) {
                for (group, _) in log.to_archive() {
                    if archive_group(log, group, &mut || {}).is_err() {
                        return;
                    }
                }
                log.set_checkpoint(writer.position());
                if writer.switch(7).is_err() {
                    return;
                }
            }
            self.stream.extend_from_slice(&batch);
            match writer.write(&[&batch], Scn(3)) {
                Ok(durable) => self.acknowledged = durable,
                Err(_) => return,
            }
        }
    }
}

#[test]
fn returned_member_loses_nothing_and_is_not_trusted_alone() {
    let (mut refused, mut repaired, mut dropped) = (0, 0, 0);
    for seed in 1..61 {
        let mut rng = Rng::new(seed);
        let mut site = Site::new(rng.next_u64());
        for _ in 0..4 {
            let Ok((log, mut writer)) = site.open() else { panic!("seed {seed}: it does not open") };
            repaired += log.notices().len();
            if rng.chance(70) {
                let place = *rng.pick(&CrashPlace::ALL).unwrap();
                site.machine.crash_at(rng.between(1, 60), place);
            }
            site.write(&log, &mut writer, &mut rng);
            dropped += log.dropped_members().len();
            drop((log, writer));
            site.machine.power_loss(Loss::Random, &mut rng);
            site.machine.repair_directories();
            // Check what is left of the log when one of the directories is away.
            for directory in &site.config.member_directories {
                let trial = site.machine.copy(rng.next_u64());
                trial.break_directory(directory);
                let config = LogConfig { distrusted: remembered(&trial.disk()), ..site.config.clone() };
                match RedoLog::open(Arc::new(trial.disk()), config) {
                    Ok((_, _, recovered)) => assert!(
                        recovered.end >= site.acknowledged,
                        "seed {seed}: without {} there is redo up to {}, acknowledged was {}",
                        directory.display(),
                        recovered.end,
                        site.acknowledged
                    ),
                    Err(LogError::OnlyDistrusted { .. }) => refused += 1,
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
        }
        let (log, _) = site.open().unwrap();
        let mut read = Vec::new();
        while read.len() < site.stream.len() {
            let from = Scn::START + read.len() as u64;
            let before = read.len();
            log.read(from, site.acknowledged, 1 << 20, &mut read).unwrap();
            assert!(read.len() > before, "seed {seed}: no redo at {from}");
        }
        assert!(read == site.stream, "seed {seed}: other bytes");
    }
    assert!(refused > 30 && repaired > 30 && dropped > 30, "{refused} {repaired} {dropped}");
}

fn record(byte: u8) -> Vec<u8> {
    let mut record = Vec::new();
    let mut builder = RecordBuilder::change(&mut record, DatabaseId(1));
    builder.vector(1, None, &[byte; 4096], 0, &mut Vec::new());
    builder.finish();
    record
}

#[test]
fn redo_held_only_by_a_returned_member_is_voided() {
    let mut site = Site::new(1);
    let second = site.config.member_directories[1].join("online_1b.log");
    let (log, mut writer) = site.open().unwrap();
    let first = writer.write(&[&record(1)], Scn::ZERO).unwrap();
    // The power fails when the next write has reached one member: this is what that looks like.
    let trial = site.machine.copy(2);
    let torn = {
        let (_, mut writer, _) = RedoLog::open(Arc::new(trial.disk()), site.config.clone()).unwrap();
        writer.write(&[&record(2), &record(3)], Scn::ZERO).unwrap();
        trial.contents(&second).unwrap()
    };
    drop((log, writer));
    site.machine.disk().remove(&second).unwrap();
    let (log, writer) = site.open().unwrap();
    assert_eq!(writer.position(), first);
    drop((log, writer));
    site.machine.install(&second, &torn);
    let (log, mut writer) = site.open().unwrap();
    assert_eq!(writer.position(), first, "the log does not continue behind what one member has alone");
    assert!(log.dropped_members().is_empty());
    // The same bytes come again, as from a primary.
    writer.write(&[&record(2)], Scn::ZERO).unwrap();
    let last = writer.write(&[&record(4)], Scn::ZERO).unwrap();
    drop((log, writer));
    site.machine.disk().remove(&second).unwrap();
    let (_, writer) = site.open().unwrap();
    assert_eq!(writer.position(), last, "the other member holds it all");
}
