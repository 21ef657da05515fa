//! A log file that is no longer what its path names is not written: a restart would not find what it holds.

#![allow(clippy::unwrap_used)]

mod common;

use common::Rig;
use standfast_log::{LogError, LogWriter, MemberKeeper, MemberNotice};
use standfast_types::Scn;
use std::path::PathBuf;
use std::sync::Arc;

struct Remembers;

impl MemberKeeper for Remembers {
    fn lost(&self, _: &[MemberNotice]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}

fn is_poisoned<T>(result: Result<T, LogError>) -> String {
    match result {
        Err(error @ LogError::Poisoned { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("nothing was noticed"),
    }
}

fn member(rig: &Rig, group: usize, member: usize) -> PathBuf {
    let name = format!("online_{group}{}.log", char::from(b'a' + member as u8));
    rig.config.member_directories[member].join(name)
}

fn write(rig: &mut Rig, writer: &mut LogWriter) {
    let batch = rig.batch(1, 700);
    assert_eq!(writer.write(&[&batch], Scn(3)).unwrap(), rig.end());
}

#[test]
fn log_switch_fails_when_the_directory_is_gone() {
    let mut rig = Rig::new("places-directory", 1, 4096);
    let (_log, mut writer) = rig.start();
    write(&mut rig, &mut writer);
    std::fs::remove_dir_all(&rig.config.member_directories[0]).unwrap();
    let why = is_poisoned(writer.switch(7));
    assert!(why.contains("removed while it was open"), "{why}");
    is_poisoned(writer.write(&[&rig.batch(2, 700)], Scn(3)));
}

#[test]
fn replaced_log_file_poisons_the_log_at_the_next_check() {
    let mut rig = Rig::new("places-replaced", 1, 4096);
    let (_log, mut writer) = rig.start();
    write(&mut rig, &mut writer);
    writer.check_places().unwrap();
    let path = member(&rig, 1, 0);
    let copy = path.with_extension("copy");
    std::fs::copy(&path, &copy).unwrap();
    std::fs::rename(&copy, &path).unwrap();
    let why = is_poisoned(writer.check_places());
    assert!(why.contains("another file has taken its place"), "{why}");
    is_poisoned(writer.write(&[&rig.batch(2, 700)], Scn(3)));
    assert!(writer.is_usable().is_err());
}

#[test]
fn missing_member_is_dropped_and_the_other_continues() {
    let mut rig = Rig::new("places-member", 2, 4096);
    let (log, mut writer) = rig.start();
    log.keep_members(Arc::new(Remembers));
    write(&mut rig, &mut writer);
    assert_eq!(log.places().iter().filter(|place| place.current).count(), 2);
    std::fs::remove_file(member(&rig, 1, 0)).unwrap();
    writer.check_places().unwrap();
    assert_eq!(log.dropped_members(), [member(&rig, 1, 0)]);
    write(&mut rig, &mut writer);
    drop((log, writer));
    rig.config.distrusted = vec![member(&rig, 1, 0)];
    let (log, _, recovered) = rig.reopen();
    assert_eq!(recovered.end, rig.end());
    rig.check_reads(&log, Scn::START);
}

#[test]
fn refused_log_accepts_no_more_redo() {
    let mut rig = Rig::new("places-refused", 1, 4096);
    let (_log, mut writer) = rig.start();
    write(&mut rig, &mut writer);
    writer.refuse("the lock file was removed");
    let why = is_poisoned(writer.write(&[&rig.batch(2, 700)], Scn(3)));
    assert!(why.contains("the lock file was removed"), "{why}");
}
