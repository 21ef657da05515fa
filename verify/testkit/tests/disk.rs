//! The contract of the `standfast-io` traits on the simulated disk.

use standfast_io::{AlignedBuf, Disk, LogFile};
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine, is_power_loss};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn log() -> &'static Path {
    Path::new("/redo/log")
}

fn control() -> &'static Path {
    Path::new("/redo/control")
}

fn block(fill: u8) -> AlignedBuf {
    let mut block = AlignedBuf::new(4096);
    block.fill(fill);
    block
}

fn machine_with_log(seed: u64) -> (Arc<SimMachine>, Arc<dyn LogFile>) {
    let machine = SimMachine::new(seed);
    let file = machine.disk().create(log(), 16384).expect("an empty disk");
    (machine, file)
}

#[test]
fn durable_writes_survive_and_unsynced_ones_may_vanish() {
    let mut vanished = 0;
    for seed in 0..50 {
        let (machine, file) = machine_with_log(seed);
        file.write_durable(&block(1), 4096).unwrap();
        file.write(&[2; 100], 9000).unwrap();
        machine.reboot();
        let bytes = machine.disk().read(log()).unwrap();
        assert_eq!(bytes.len(), 16384);
        assert_eq!(bytes[4096..8192], block(1)[..]);
        vanished += u32::from(bytes[9000..9100] == [0; 100]);
    }
    assert!((5..45).contains(&vanished), "{vanished} of 50 vanished");
}

#[test]
fn synced_writes_survive() {
    let (machine, file) = machine_with_log(1);
    file.write(&[2; 100], 9000).unwrap();
    file.sync().unwrap();
    machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
    assert_eq!(machine.contents(log()).unwrap()[9000..9100], [2; 100]);
}

#[test]
fn a_crash_during_a_durable_write_tears_it_at_sector_limits() {
    let mut sectors_written = BTreeSet::new();
    for seed in 0..100 {
        let (machine, file) = machine_with_log(seed);
        file.write_durable(&block(1), 0).unwrap();
        machine.crash_at(1, CrashPlace::During);
        let error = file.write_durable(&block(2), 0).unwrap_err();
        assert!(is_power_loss(&error));
        assert!(is_power_loss(&file.sync().unwrap_err()), "and so fails every later call");
        machine.reboot();
        let bytes = machine.contents(log()).unwrap();
        let sectors: Vec<u8> = bytes[..4096].chunks(512).map(|sector| sector[0]).collect();
        assert!(bytes[..4096].chunks(512).all(|sector| sector.iter().all(|b| *b == sector[0])));
        assert!(sectors.iter().all(|fill| [1, 2].contains(fill)), "{sectors:?}");
        sectors_written.insert(sectors);
    }
    assert!(sectors_written.len() > 20, "{} outcomes", sectors_written.len());
}

#[test]
fn crash_around_a_durable_write_leaves_it_undone_or_done() {
    for (place, expected) in [(CrashPlace::Before, 0), (CrashPlace::After, 2)] {
        let (machine, file) = machine_with_log(1);
        machine.crash_at(1, place);
        assert!(file.write_durable(&block(2), 0).is_err());
        machine.reboot();
        assert_eq!(machine.contents(log()).unwrap()[..4096], block(expected)[..]);
    }
}

#[test]
fn a_replaced_file_is_old_or_new_and_never_anything_else() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..100 {
        for place in CrashPlace::ALL {
            let machine = SimMachine::new(seed);
            machine.disk().replace(control(), &[1; 2000]).unwrap();
            machine.crash_at(1, place);
            assert!(machine.disk().replace(control(), &[2; 3000]).is_err());
            machine.reboot();
            let bytes = machine.disk().read(control()).unwrap();
            assert!(bytes == [1; 2000] || bytes == [2; 3000]);
            let others = machine.disk().list(Path::new("/redo")).unwrap().len() - 1;
            outcomes.insert((format!("{place:?}"), bytes[0], others));
            machine.disk().replace(control(), b"3").unwrap();
            assert_eq!(machine.disk().list(Path::new("/redo")).unwrap(), [control()], "a leftover is reused");
        }
    }
    let expected = [("After", 2, 0), ("Before", 1, 0), ("During", 1, 0), ("During", 1, 1), ("During", 2, 0)];
    assert_eq!(outcomes, expected.map(|(place, fill, others)| (place.to_string(), fill, others)).into());
}

#[test]
fn created_renamed_and_removed_files_are_durable_on_return() {
    let machine = SimMachine::new(1);
    let disk = machine.disk();
    let paths = ["a", "b", "c"].map(|name| PathBuf::from("/redo").join(name));
    paths.iter().for_each(|path| drop(disk.create(path, 4096).unwrap()));
    disk.rename(&paths[1], &paths[2]).unwrap();
    disk.remove(&paths[0]).unwrap();
    disk.remove(&paths[0]).unwrap();
    machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
    assert_eq!(machine.disk().list(Path::new("/redo")).unwrap(), [paths[2].clone()]);
    assert_eq!(machine.contents(&paths[2]).unwrap(), [0; 4096]);
}

#[test]
fn crash_during_create_leaves_no_file_or_a_removable_one() {
    let mut existed = BTreeSet::new();
    for seed in 0..50 {
        let machine = SimMachine::new(seed);
        machine.crash_at(1, CrashPlace::During);
        assert!(machine.disk().create(log(), 4096).is_err());
        machine.reboot();
        existed.insert(machine.contents(log()).map(|bytes| bytes.len()));
        machine.disk().remove(log()).unwrap();
        machine.disk().create(log(), 4096).unwrap();
    }
    assert_eq!(existed, BTreeSet::from([None, Some(0), Some(4096)]));
}

#[test]
fn errors_are_those_of_the_real_disk() {
    let (machine, file) = machine_with_log(1);
    let disk = machine.disk();
    let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(disk.create(log(), 4096).map(drop)), ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.open(Path::new("/none")).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(disk.read(Path::new("/none")).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(disk.rename(Path::new("/none"), log())), ErrorKind::NotFound);
    assert_eq!(kind(file.read_at(&mut [0; 10], 16380)), ErrorKind::UnexpectedEof);
    let misaligned = &block(1)[8..520];
    assert_eq!(kind(file.write_durable(misaligned, 0)), ErrorKind::InvalidInput);
    assert_eq!(kind(file.write_durable(&block(1), 100)), ErrorKind::InvalidInput);
    machine.set_capacity(20_000);
    assert_eq!(disk.free_bytes(log()).unwrap(), 20_000 - 16384);
    assert_eq!(kind(disk.create(control(), 8192).map(drop)), ErrorKind::StorageFull);
}

#[test]
fn failed_write_is_reported_once_and_its_bytes_are_undefined() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..50 {
        let (machine, file) = machine_with_log(seed);
        machine.fail_at(2);
        file.write_durable(&block(1), 0).unwrap();
        assert_eq!(file.write_durable(&block(2), 4096).unwrap_err().raw_os_error(), Some(5));
        file.write_durable(&block(3), 8192).unwrap();
        machine.reboot();
        let bytes = machine.contents(log()).unwrap();
        assert_eq!((bytes[0], bytes[8192]), (1, 3));
        outcomes.insert(bytes[4096]);
    }
    assert_eq!(outcomes, BTreeSet::from([0, 2]));
}

#[test]
fn handles_and_disks_from_before_a_power_loss_are_dead() {
    let (machine, file) = machine_with_log(1);
    let disk = machine.disk();
    machine.reboot();
    assert!(is_power_loss(&file.write(b"zombie", 0).unwrap_err()));
    assert!(is_power_loss(&disk.replace(control(), b"zombie").unwrap_err()));
    machine.disk().open(log()).unwrap().write(b"alive", 0).unwrap();
    drop(file);
}

#[test]
fn a_lying_disk_loses_durable_writes() {
    let (machine, file) = machine_with_log(1);
    machine.set_lying(true);
    file.write_durable(&block(1), 0).unwrap();
    file.sync().unwrap();
    machine.disk().replace(control(), b"x").unwrap();
    assert_eq!(machine.disk().read(control()).unwrap(), b"x", "nothing shows it while the power is on");
    machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
    assert_eq!(machine.contents(log()).unwrap()[..4096], block(0)[..]);
    assert_eq!(machine.contents(control()), None);
}

#[test]
fn boundaries_are_counted_and_the_planned_one_strikes() {
    let (machine, file) = machine_with_log(1);
    let start = machine.boundaries();
    file.write(b"no boundary", 0).unwrap();
    file.sync().unwrap();
    file.write_durable(&block(1), 0).unwrap();
    machine.disk().replace(control(), b"x").unwrap();
    assert_eq!(machine.boundaries() - start, 3);
    machine.crash_at(2, CrashPlace::Before);
    file.sync().unwrap();
    assert!(file.sync().is_err() && !machine.is_powered());
    machine.reboot();
    assert!(machine.is_powered());
}
