//! Writes that are in flight together: they are committed in order, whichever the device completes first.

#![allow(clippy::unwrap_used)]

mod common;

use common::{IDENTITY, Rig, START};
use standfast_format::{RecordBuilder, StreamCrc};
use standfast_io::{DirectDisk, Disk, LogFile};
use standfast_log::{LogError, LogWriter, MemberKeeper, MemberNotice, RedoLog};
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine};
use standfast_types::{DatabaseId, Scn};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const BLOCK: u64 = 4096;
/// A wait takes this long only if what it waits for never comes.
const NEVER: Duration = Duration::from_secs(60);

/// What happens to a write at an offset of the files in a directory.
#[derive(Clone, PartialEq)]
enum Plan {
    /// The write ends when one behind it has ended.
    Late,
    /// The write ends as late as with `Late`, and fails.
    LateAndFails,
    Fails,
}

/// The real disk, where some writes behave differently.
#[derive(Clone, Default)]
struct Device {
    plans: Arc<Mutex<Vec<(PathBuf, u64, Plan)>>>,
    ended: Arc<Ended>,
}

#[derive(Default)]
struct Ended {
    writes: Mutex<Vec<(PathBuf, u64)>>,
    changed: Condvar,
}

struct File {
    file: Arc<dyn LogFile>,
    path: PathBuf,
    device: Device,
}

impl Device {
    fn plan(&self, directory: &Path, offset: u64, plan: Plan) {
        self.plans.lock().unwrap().push((directory.to_owned(), offset, plan));
    }

    fn plan_of(&self, path: &Path, at: u64) -> Option<Plan> {
        let plans = self.plans.lock().unwrap();
        plans
            .iter()
            .find(|(directory, offset, _)| path.starts_with(directory) && *offset == at)
            .map(|p| p.2.clone())
    }

    fn await_one_behind(&self, path: &Path, at: u64) -> Result<()> {
        let Ended { writes, changed } = &*self.ended;
        let none_yet =
            |ended: &mut Vec<(PathBuf, u64)>| !ended.iter().any(|(of, offset)| of == path && *offset > at);
        let (_ended, timeout) = changed.wait_timeout_while(writes.lock().unwrap(), NEVER, none_yet).unwrap();
        if timeout.timed_out() { Err(Error::other("nothing was written meanwhile")) } else { Ok(()) }
    }
}

impl LogFile for File {
    fn write_durable(&self, data: &[u8], offset: u64) -> Result<()> {
        let plan = self.device.plan_of(&self.path, offset);
        if matches!(plan, Some(Plan::Late | Plan::LateAndFails)) {
            self.device.await_one_behind(&self.path, offset)?;
        }
        if matches!(plan, Some(Plan::Fails | Plan::LateAndFails)) {
            return Err(Error::from_raw_os_error(5));
        }
        self.file.write_durable(data, offset)?;
        self.device.ended.writes.lock().unwrap().push((self.path.clone(), offset));
        self.device.ended.changed.notify_all();
        Ok(())
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

impl Disk for Device {
    fn create(&self, path: &Path, bytes: u64) -> Result<Arc<dyn LogFile>> {
        DirectDisk.create(path, bytes)
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn LogFile>> {
        Ok(Arc::new(File { file: DirectDisk.open(path)?, path: path.to_owned(), device: self.clone() }))
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

struct Careless;

impl MemberKeeper for Careless {
    fn lost(&self, _: &[MemberNotice]) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}

/// A log on `device` with one block of redo.
fn begun(name: &str, members: usize, device: &Device) -> (Rig, LogWriter) {
    let mut rig = Rig::new(name, members, BLOCK as usize);
    drop(rig.start());
    let (log, mut writer, _) = RedoLog::open(Arc::new(device.clone()), rig.config.clone()).unwrap();
    log.keep_members(Arc::new(Careless));
    let batch = rig.batch(1, 512);
    writer.write(&[&batch], Scn(3)).unwrap();
    (rig, writer)
}

fn begin(rig: &mut Rig, writer: &mut LogWriter, seed: u8) -> Scn {
    let batch = rig.batch(seed, 512);
    writer.begin_write(&[&batch], Scn(3)).unwrap();
    rig.end()
}

#[test]
fn two_concurrent_writes_are_committed_in_order() {
    let device = Device::default();
    let (mut rig, mut writer) = begun("two-at-a-time", 2, &device);
    for member in rig.config.member_directories.clone() {
        device.plan(&member, 2 * BLOCK, Plan::Late);
    }
    let (before, room) = (writer.position(), writer.room());
    let first = begin(&mut rig, &mut writer, 2);
    let second = begin(&mut rig, &mut writer, 3);
    writer.end_those_done().unwrap();
    assert!(writer.is_in_flight());
    assert!(writer.room() < room && writer.position() <= first);
    assert!([before, first].contains(&writer.position()), "the second one does not count before the first");
    writer.end_all().unwrap();
    assert_eq!((writer.position(), writer.is_in_flight()), (second, false));
    drop(writer);
    let (log, _, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.lost), (rig.end(), None));
    rig.check_reads(&log, Scn::START);
}

#[test]
fn block_after_a_failed_write_is_neither_redo_nor_damage() {
    let device = Device::default();
    let (mut rig, mut writer) = begun("failed-first", 1, &device);
    device.plan(&rig.config.member_directories[0], 2 * BLOCK, Plan::LateAndFails);
    let (end, held) = (rig.end(), rig.stream.len());
    begin(&mut rig, &mut writer, 2);
    begin(&mut rig, &mut writer, 3);
    assert!(matches!(writer.end_all(), Err(LogError::Poisoned { .. })));
    assert_eq!((writer.position(), writer.is_in_flight()), (end, false));
    assert!(matches!(writer.begin_write(&[&[0; 9]], Scn(3)), Err(LogError::Poisoned { .. })));
    drop(writer);
    rig.stream.truncate(held);
    // The block of the second write is there, behind one that is not.
    for seed in [4, 5] {
        let (log, mut writer, recovered) = rig.reopen();
        assert_eq!((recovered.end, recovered.lost), (rig.end(), None));
        rig.check_reads(&log, Scn::START);
        let batch = rig.batch(seed, 512);
        assert_eq!(writer.write(&[&batch], Scn(3)).unwrap(), rig.end());
    }
}

#[test]
fn member_lacking_the_previous_write_commits_no_later_write() {
    let device = Device::default();
    let (mut rig, mut writer) = begun("each-lacks-one", 2, &device);
    let [a, b] = [0, 1].map(|member| rig.config.member_directories[member].clone());
    device.plan(&a, 2 * BLOCK, Plan::LateAndFails);
    device.plan(&b, 3 * BLOCK, Plan::Fails);
    let first = begin(&mut rig, &mut writer, 2);
    let held = rig.stream.len();
    begin(&mut rig, &mut writer, 3);
    writer.end_oldest().unwrap();
    assert_eq!(writer.position(), first);
    assert!(matches!(writer.end_oldest(), Err(LogError::Poisoned { .. })));
    assert_eq!(writer.position(), first);
    drop(writer);
    rig.stream.truncate(held);
    rig.config.distrusted = vec![a.join("online_1a.log")];
    let (_, _, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.lost), (first, None));
}

#[test]
fn log_switch_waits_for_writes_in_flight() {
    let device = Device::default();
    let (mut rig, mut writer) = begun("switch", 1, &device);
    device.plan(&rig.config.member_directories[0], 2 * BLOCK, Plan::Late);
    begin(&mut rig, &mut writer, 2);
    let end = begin(&mut rig, &mut writer, 3);
    let switch = writer.switch(7).unwrap().unwrap();
    assert_eq!((switch.first_scn, switch.sequence), (end, 2));
    let end = begin(&mut rig, &mut writer, 4);
    // Not awaited: once the writer is gone, nothing writes any more.
    drop(writer);
    let (log, _, recovered) = rig.reopen();
    assert_eq!((recovered.end, recovered.sequence, recovered.lost), (end, 2, None));
    rig.check_reads(&log, Scn::START);
}

fn record(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    let image = vec![rng.between(0, 255) as u8; 512 << rng.between(0, 3)];
    let mut builder = RecordBuilder::change(&mut out, DatabaseId(1));
    builder.vector(1, None, &image, 0, &mut Vec::new());
    builder.finish();
    out
}

/// Opens the log, expects what was acknowledged and nothing that was never handed over, and continues writing, up to
/// three writes at a time.
fn live(
    machine: &Arc<SimMachine>,
    rig: &mut Rig,
    acknowledged: &mut Scn,
    rng: &mut Rng,
) -> std::result::Result<(), LogError> {
    let (log, mut writer, recovered) = RedoLog::open(Arc::new(machine.disk()), rig.config.clone())?;
    assert_eq!(recovered.lost, None, "nothing is damaged");
    assert!(recovered.end >= *acknowledged && recovered.end <= rig.end());
    rig.stream.truncate(recovered.end.bytes_since(Scn::START) as usize);
    if recovered.end > Scn::START {
        rig.check_reads(&log, Scn::START);
    }
    for _ in 0..7 {
        let record = record(rng);
        rig.stream.extend_from_slice(&record);
        writer.begin_write(&[&record], Scn(3))?;
        if rng.between(0, 3) == 0 {
            writer.end_oldest()?;
        }
        *acknowledged = writer.position();
    }
    writer.end_all()?;
    *acknowledged = writer.position();
    assert_eq!(*acknowledged, rig.end());
    Ok(())
}

#[test]
fn power_loss_at_any_moment_keeps_awaited_writes() {
    let mut crashes = 0;
    for members in [1, 2] {
        let template = Rig::new(&format!("power-{members}"), members, 512);
        let original = SimMachine::new(members as u64);
        RedoLog::create_files(&original.disk(), &template.config).unwrap();
        let disk = Arc::new(original.disk());
        RedoLog::start(disk, template.config.clone(), IDENTITY, START, StreamCrc(0)).unwrap();
        for place in CrashPlace::ALL {
            for nth in 1..=40 {
                let machine = original.copy(nth);
                let mut rng = Rng::new(nth);
                let mut rig =
                    Rig { directory: PathBuf::new(), config: template.config.clone(), stream: Vec::new() };
                let mut acknowledged = Scn::START;
                for boundary in [nth, rng.between(1, 20)] {
                    machine.crash_at(boundary, place);
                    if live(&machine, &mut rig, &mut acknowledged, &mut rng).is_err() {
                        crashes += 1;
                        machine.power_loss(Loss::Random, &mut rng);
                    }
                }
                machine.cancel_crash();
                live(&machine, &mut rig, &mut acknowledged, &mut rng).unwrap();
            }
        }
    }
    assert!(crashes > 200, "only {crashes} crashes");
}
