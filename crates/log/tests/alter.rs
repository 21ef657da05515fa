//! Adds and drops groups and members while the log is written, with a power failure at any moment.

#![allow(clippy::unwrap_used)]

mod common;

use common::{IDENTITY, START};
use standfast_format::{LogKind, RecordBuilder, StreamCrc};
use standfast_io::Disk;
use standfast_log::{
    Layout, LogConfig, LogError, LogWriter, MemberKeeper, MemberNotice, RedoLog, Refusal, archive_group,
};
use standfast_testkit::{CrashPlace, Loss, Rng, SimDisk, SimMachine};
use standfast_types::{DatabaseId, Hint, Scn};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Layout and stale members, as a control file has them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Control {
    layout: Layout,
    stale: Vec<PathBuf>,
}

const CONTROL: &str = "/sim/control";

impl Control {
    fn load(disk: &dyn Disk) -> Control {
        Control::try_load(disk).unwrap()
    }

    fn try_load(disk: &dyn Disk) -> std::io::Result<Control> {
        let mut control = Control::default();
        for line in String::from_utf8(disk.read(Path::new(CONTROL))?).unwrap().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "group" => {
                    _ = control.layout.groups.insert(words[1].parse().unwrap(), words[2].parse().unwrap())
                }
                "member" => _ = control.layout.members.insert(words[1].parse().unwrap(), words[2].into()),
                _ => control.stale.push(words[1].into()),
            }
        }
        Ok(control)
    }

    fn store(&self, disk: &dyn Disk) -> std::io::Result<()> {
        let groups = self.layout.groups.iter().map(|(number, bytes)| format!("group {number} {bytes}\n"));
        let members =
            self.layout.members.iter().map(|(letter, path)| format!("member {letter} {}\n", path.display()));
        let stale = self.stale.iter().map(|path| format!("stale {}\n", path.display()));
        disk.replace(Path::new(CONTROL), groups.chain(members).chain(stale).collect::<String>().as_bytes())
    }
}

struct Keeper(SimDisk);

impl MemberKeeper for Keeper {
    fn lost(&self, members: &[MemberNotice]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut control = Control::try_load(&self.0)?;
        for notice in members {
            if let MemberNotice::Dropped { path, .. } = notice {
                control.stale.push(path.clone());
            }
        }
        Ok(control.store(&self.0)?)
    }
}

const GROUP: u64 = 64 << 10;

struct Site {
    machine: Arc<SimMachine>,
    rng: Rng,
    acknowledged: Scn,
}

struct Open {
    disk: SimDisk,
    log: Arc<RedoLog>,
    writer: LogWriter,
}

fn config(control: &Control) -> LogConfig {
    LogConfig {
        kind: LogKind::Online,
        member_directories: vec!["/sim/m0".into(), "/sim/m1".into()],
        groups: 3,
        group_bytes: GROUP,
        block_bytes: 512,
        archive_directory: "/sim/archive".into(),
        distrusted: control.stale.clone(),
        unnamed_groups: 0,
        layout: Some(control.layout.clone()),
        family: None,
    }
}

impl Site {
    fn new(seed: u64) -> Site {
        let machine = SimMachine::new(seed);
        let disk = Arc::new(machine.disk());
        let layout = LogConfig { layout: None, ..config(&Control::default()) }.layout();
        let control = Control { layout, stale: Vec::new() };
        control.store(disk.as_ref()).unwrap();
        RedoLog::create_files(disk.as_ref(), &config(&control)).unwrap();
        RedoLog::start(disk, config(&control), IDENTITY, START, StreamCrc(0)).unwrap();
        Site { machine, rng: Rng::new(seed), acknowledged: Scn::START }
    }

    fn open(&mut self) -> Open {
        let disk = self.machine.disk();
        let control = Control::load(&disk);
        let (log, writer, recovered) = RedoLog::open(Arc::new(disk.clone()), config(&control)).unwrap();
        assert!(recovered.end >= self.acknowledged, "{} < {}", recovered.end, self.acknowledged);
        self.acknowledged = recovered.end;
        Control { stale: log.dropped_members(), ..control }.store(&disk).unwrap();
        log.keep_members(Arc::new(Keeper(disk.clone())));
        Open { disk, log, writer }
    }

    fn write(&mut self, open: &mut Open, batches: u64) -> Result<(), Failed> {
        for _ in 0..batches {
            let mut batch = Vec::new();
            let mut builder = RecordBuilder::change(&mut batch, DatabaseId(1));
            builder.vector(1, None, &vec![self.rng.below(256) as u8; 8192], 0, &mut Vec::new());
            builder.finish();
            if open.writer.room() < batch.len() {
                switch(open)?;
            }
            self.acknowledged = open.writer.write(&[&batch], Scn(3))?;
        }
        Ok(())
    }

    /// Writes once around all groups, each of which must be usable.
    fn write_all_groups(&mut self, open: &mut Open) {
        let groups = open.log.groups().len() as u64;
        self.write(open, (groups + 1) * 10).unwrap();
        let used = open.log.groups().iter().filter(|group| group.header.is_some()).count() as u64;
        assert_eq!(used, groups, "{:?}", open.log.groups());
        let mut read = Vec::new();
        let from = Scn(self.acknowledged.0 - 30_000);
        while from + (read.len() as u64) < self.acknowledged {
            open.log.read(from + read.len() as u64, self.acknowledged, 1 << 20, &mut read).unwrap();
        }
    }

    /// Returns whether the log can be opened, complete, when this directory is away.
    fn survives_without(&self, directory: &str) -> bool {
        let trial = self.machine.copy(1);
        trial.break_directory(directory);
        let control = Control::load(&self.machine.disk());
        match RedoLog::open(Arc::new(trial.disk()), config(&control)) {
            Ok((_, _, recovered)) => {
                assert!(recovered.end >= self.acknowledged, "{} < {}", recovered.end, self.acknowledged);
                true
            }
            Err(_) => false,
        }
    }
}

fn switch(open: &mut Open) -> Result<(), Failed> {
    for (group, _) in open.log.to_archive() {
        archive_group(&open.log, group, &mut || {})?;
    }
    open.log.set_checkpoint(open.writer.position());
    assert!(open.writer.switch(7)?.is_ok());
    Ok(())
}

fn free_all_but_the_current(open: &mut Open) -> Result<(), Failed> {
    switch(open)?;
    for (group, _) in open.log.to_archive() {
        archive_group(&open.log, group, &mut || {})?;
    }
    open.log.set_checkpoint(open.writer.position());
    Ok(())
}

fn remember(disk: &SimDisk, layout: &Layout, not_stale: &[PathBuf]) -> Result<(), Failed> {
    let mut control = Control { layout: layout.clone(), ..Control::try_load(disk)? };
    control.stale.retain(|path| !not_stale.contains(path));
    Ok(control.store(disk)?)
}

type Change = fn(&mut Site, &mut Open) -> Result<(), Failed>;

fn add_group(site: &mut Site, open: &mut Open) -> Result<(), Failed> {
    let new = open.log.make_group(2 * GROUP)?;
    site.write(open, 3)?;
    let disk = open.disk.clone();
    open.writer.change_groups(None, Some(new), |layout, files| remember(&disk, layout, files)).map(drop)
}

fn drop_group(_: &mut Site, open: &mut Open) -> Result<(), Failed> {
    free_all_but_the_current(open)?;
    let current = open.log.groups().iter().position(|group| group.next_scn.is_none()).unwrap();
    let other = open.log.groups()[(current + 1) % 3].group;
    let disk = open.disk.clone();
    let files = open
        .writer
        .change_groups(Some(other), None, |layout, files| remember(&disk, layout, files))
        .inspect_err(|error| assert!(!matches!(error, Failed::Refused(_)), "{error}"))?;
    assert_eq!(files.len(), 2);
    files.iter().try_for_each(|path| Ok(open.disk.remove(path)?))
}

fn resize_group(_: &mut Site, open: &mut Open) -> Result<(), Failed> {
    free_all_but_the_current(open)?;
    let inactive = open.log.groups().into_iter().find(|group| group.next_scn.is_some()).unwrap();
    let new = open.log.make_group(2 * GROUP)?;
    let disk = open.disk.clone();
    let remembered = |layout: &Layout, files: &[PathBuf]| remember(&disk, layout, files);
    let files = open.writer.change_groups(Some(inactive.group), Some(new), remembered)?;
    files.iter().try_for_each(|path| Ok(open.disk.remove(path)?))
}

fn add_member(site: &mut Site, open: &mut Open) -> Result<(), Failed> {
    let mut new = open.log.make_member::<Failed>(Path::new("/sim/m2"))?;
    open.log.fill(&mut new)?;
    // Meanwhile the log continues, into groups that were copied already.
    site.write(open, 9)?;
    let disk = open.disk.clone();
    open.writer.admit_member(new, |layout, files| remember(&disk, layout, files))?;
    site.write(open, 2)
}

fn drop_member(site: &mut Site, open: &mut Open) -> Result<(), Failed> {
    let disk = open.disk.clone();
    let remembered = |layout: &Layout, files: &[PathBuf]| remember(&disk, layout, files);
    let files = open.writer.drop_member(Path::new("/sim/m0"), remembered)?;
    site.write(open, 3)?;
    files.iter().try_for_each(|path| Ok(open.disk.remove(path)?))
}

#[test]
fn power_loss_during_a_change_leaves_one_layout_and_all_redo() {
    let changes: [(&str, Change); 5] = [
        ("add group", add_group),
        ("drop group", drop_group),
        ("resize group", resize_group),
        ("add member", add_member),
        ("drop member", drop_member),
    ];
    for (name, change) in changes {
        let mut seen = [0, 0];
        for place in CrashPlace::ALL {
            for boundary in 1.. {
                let at = format!("{name}, boundary {boundary}, {place:?}");
                let mut site = Site::new(boundary);
                let mut open = site.open();
                site.write(&mut open, 12).unwrap();
                let old = open.log.layout();
                site.machine.crash_at(boundary, place);
                let done = change(&mut site, &mut open);
                let finished = site.machine.is_powered();
                if finished {
                    done.unwrap_or_else(|error| panic!("{at}: {error}"));
                    site.machine.cancel_crash();
                    let new = open.log.layout();
                    assert_ne!(old, new, "{at}");
                    site.write_all_groups(&mut open);
                    assert_eq!(Control::load(&open.disk).layout, new, "{at}");
                }
                drop(open);
                let mut rng = Rng::new(boundary);
                site.machine.power_loss(Loss::Random, &mut rng);
                let layout = Control::load(&site.machine.disk()).layout;
                seen[usize::from(layout != old)] += 1;
                for directory in layout.members.values() {
                    let directory = directory.to_str().unwrap();
                    let others = layout.members.len() > 1;
                    assert!(site.survives_without(directory) == others, "{at}: without {directory}");
                }
                let mut open = site.open();
                assert_eq!(open.log.dropped_members(), Vec::<PathBuf>::new(), "{at}");
                site.write_all_groups(&mut open);
                if finished {
                    break;
                }
            }
        }
        assert!(seen[0] > 1 && seen[1] > 1, "{name}: {seen:?}");
    }
}

#[test]
fn failed_member_is_restored_while_the_log_is_written() {
    for seed in 1..20 {
        let mut site = Site::new(seed);
        let mut open = site.open();
        site.write(&mut open, seed).unwrap();
        site.machine.break_directory("/sim/m1");
        site.write(&mut open, 10).unwrap();
        assert!(!open.log.dropped_members().is_empty());
        assert!(!site.survives_without("/sim/m0"), "what is left lacks redo");
        site.machine.repair_directories();
        let mut new = open.log.make_member::<Failed>(Path::new("/sim/m1")).unwrap();
        open.log.fill(&mut new).unwrap();
        site.write(&mut open, seed % 8).unwrap();
        let disk = open.disk.clone();
        open.writer
            .admit_member(new, |layout, files| remember(&disk, layout, files))
            .unwrap_or_else(|error: Failed| panic!("seed {seed}: {error}"));
        assert_eq!((open.log.dropped_members(), Control::load(&disk).stale), (vec![], vec![]));
        site.write(&mut open, 1 + seed % 3).unwrap();
        for directory in ["/sim/m0", "/sim/m1"] {
            assert!(site.survives_without(directory), "seed {seed}: without {directory}");
        }
        site.write_all_groups(&mut open);
    }
}

#[test]
fn dropped_or_resized_group_forgets_its_stale_members() {
    for change in [drop_group as Change, resize_group] {
        let mut site = Site::new(1);
        let mut open = site.open();
        site.write(&mut open, 3).unwrap();
        site.machine.break_directory("/sim/m1");
        while Control::load(&open.disk).stale.len() < 3 {
            site.write(&mut open, 1).unwrap();
        }
        site.machine.repair_directories();
        change(&mut site, &mut open).unwrap();
        let stale = Control::load(&open.disk).stale;
        assert_eq!(stale.len(), 2);
        let members = open.log.members();
        assert!(stale.iter().all(|path| members.contains(path)), "{stale:?} of {members:?}");
    }
}

#[test]
fn unsafe_layout_change_is_refused_with_a_remedy() {
    let mut site = Site::new(1);
    let mut open = site.open();
    site.write(&mut open, 12).unwrap();
    let refused = |open: &mut Open, number: usize| -> String {
        let done =
            open.writer.change_groups::<Failed>(Some(number), None, |_, _| panic!("it was remembered"));
        match done.unwrap_err() {
            Failed::Refused(refusal) => refusal.for_terminal(),
            other => other.to_string(),
        }
    };
    for (number, words) in
        [(2, "current one"), (2, "switch-logfile"), (1, "not archived"), (7, "there is no log group 7")]
    {
        let printed = refused(&mut open, number);
        assert!(printed.contains(words) && printed.contains("hint: "), "{printed}");
    }
    // This log begins without a checkpoint, unlike the one before.
    open.writer.switch(7).unwrap().unwrap();
    archive_group(&open.log, 0, &mut || {}).unwrap();
    archive_group(&open.log, 1, &mut || {}).unwrap();
    let printed = refused(&mut open, 2);
    assert!(printed.contains("needed for recovery") && printed.contains("standfast checkpoint"), "{printed}");
    open.log.set_checkpoint(open.writer.position());
    open.writer.change_groups::<Failed>(Some(1), None, |_, _| Ok(())).unwrap();
    let printed = refused(&mut open, 2);
    assert!(printed.contains("at least two groups"), "{printed}");

    let remembered = |_: &Layout, _: &[PathBuf]| -> Result<(), Failed> { Ok(()) };
    open.writer.drop_member(Path::new("/sim/m1"), remembered).unwrap();
    let printed = open.writer.drop_member(Path::new("/sim/m0"), remembered).unwrap_err().to_string();
    assert!(printed.contains("no living member but that in /sim/m0"), "{printed}");
    let printed = open.log.make_member::<Failed>(Path::new("/sim/m0")).err().unwrap().to_string();
    assert!(printed.contains("living member in /sim/m0 already"), "{printed}");
}

#[test]
fn layout_older_than_the_log_is_refused_but_leftovers_are_not() {
    let mut site = Site::new(1);
    let mut open = site.open();
    let before = Control::load(&open.disk);
    add_group(&mut site, &mut open).unwrap();
    // Group 4 holds nothing yet: without it the log is complete.
    let (log, _) = RedoLog::look(Arc::new(open.disk.clone()), config(&before)).unwrap();
    assert_eq!(log.groups().len(), 3);
    while open.log.groups()[3].header.is_none() {
        site.write(&mut open, 1).unwrap();
    }
    let refused = RedoLog::look(Arc::new(open.disk.clone()), config(&before)).err().unwrap();
    assert!(matches!(&refused, LogError::Unlisted { path } if path.ends_with("online_4a.log")), "{refused}");
}

/// With two groups the stream could not switch beyond a gap, and so never fill it.
#[test]
fn standby_log_keeps_three_groups() {
    let machine = SimMachine::new(9);
    let disk: Arc<dyn Disk> = Arc::new(machine.disk());
    let standby =
        LogConfig { kind: LogKind::Standby, groups: 4, layout: None, ..config(&Control::default()) };
    RedoLog::create_files(disk.as_ref(), &standby).unwrap();
    let (_, mut writer) = RedoLog::start(disk, standby, IDENTITY, START, StreamCrc(0)).unwrap();
    writer.change_groups::<Failed>(Some(4), None, |_, _| Ok(())).unwrap();
    let refused = writer.change_groups::<Failed>(Some(3), None, |_, _| Ok(())).err().unwrap();
    assert!(format!("{refused:?}").contains("at least three groups"), "{refused:?}");
}
