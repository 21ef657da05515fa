//! Faults of a redo log with two members. While the power is off, a directory is lost, comes back as it was or is
//! copied from the other one, or blocks of both members are damaged in different places. While the power is on, the
//! device of a directory fails; after the next power loss it works again, with its former content.

use standfast_environment::state::control::{Control, Role};
use standfast_format::{FILE_HEADER_BYTES, LogKind};
use standfast_io::Disk;
use standfast_log::{LogError, RedoLog};
use standfast_simulation::Outcome;
use standfast_simulation::site::{Geometry, MEMBER_NAMES, SegmentFile, paths};
use standfast_simulation::trace;
use standfast_testkit::{Rng, SimMachine};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Distance between places that are damaged in different members: more than a block.
const DAMAGE_STEP: u64 = 8192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    Lost,
    /// A lost directory is back with its former content.
    Returned,
    /// A lost directory was copied from the other one, as the documentation tells operators.
    Copied,
    Damaged,
}

/// May do something to the members of the instance on `machine`, which was open until the power failed and has no open
/// files now.
pub fn strike(machine: &Arc<SimMachine>, geometry: &Geometry, rng: &mut Rng) -> Outcome<Option<Strike>> {
    let disk = machine.disk();
    let directories = MEMBER_NAMES.map(|name| paths().directory.join(name));
    let text = |error: std::io::Error| error.to_string();
    let control = Control::load(&disk, &paths().control).map_err(|error| error.to_string())?;
    for (index, directory) in directories.iter().enumerate() {
        let away = disk.list(&away(directory)).map_err(text)?;
        if away.is_empty() {
            continue;
        }
        let done = match rng.below(3) {
            0 => return Ok(None),
            1 => Strike::Returned,
            _ => Strike::Copied,
        };
        trace::say(|| format!("{} {done:?}", directory.display()));
        if done == Strike::Copied {
            copy_members(machine, &directories[1 - index], directory)?;
        }
        // Only files that are recorded as stale come back. An old file must not replace one that was created since:
        // docs/guarantees.md.
        let lacks_redo = |path: &Path| control.stale_members.iter().any(|stale| path.ends_with(stale));
        for path in away {
            let place = path.file_name().map(|name| directory.join(name));
            match place.filter(|place| done == Strike::Returned && lacks_redo(place)) {
                Some(place) => disk.rename(&path, &place).map_err(text)?,
                None => disk.remove(&path).map_err(text)?,
            }
        }
        refuses_what_lacks_redo(&machine.copy(rng.next_u64()), geometry, &directories[1 - index])?;
        return Ok(Some(done));
    }
    // While a member is stale, only the other one holds all redo and must not be touched.
    if let Some(stale) = control.stale_members.first() {
        let lacking = paths().directory.join(stale);
        if let Some(living) = directories.iter().find(|directory| !lacking.starts_with(directory)) {
            refuses_what_lacks_redo(&machine.copy(rng.next_u64()), geometry, living)?;
        }
        return Ok(None);
    }
    if disk.list(&directories[1]).map_err(text)?.is_empty() {
        return Ok(None);
    }
    if rng.chance(25) {
        let directory = &directories[rng.below(2) as usize];
        for path in disk.list(directory).map_err(text)? {
            if let Some(name) = path.file_name() {
                disk.rename(&path, &away(directory).join(name)).map_err(text)?;
            }
        }
        trace::say(|| format!("{} is lost", directory.display()));
        return Ok(Some(Strike::Lost));
    }
    if rng.chance(33) {
        damage(machine, &directories, rng)?;
        return Ok(Some(Strike::Damaged));
    }
    Ok(None)
}

/// Breaks the device of one member of the instance that is open on `machine`, if both members are present and trusted.
pub fn break_device(machine: &Arc<SimMachine>, rng: &mut Rng) -> Outcome<bool> {
    let (disk, text) = (machine.disk(), |error: std::io::Error| error.to_string());
    if machine.has_broken_directories() {
        return Ok(false);
    }
    let control = Control::load(&disk, &paths().control).map_err(|error| error.to_string())?;
    let directories = MEMBER_NAMES.map(|name| paths().directory.join(name));
    let mut whole = control.stale_members.is_empty();
    for directory in &directories {
        whole &= !disk.list(directory).map_err(text)?.is_empty();
        whole &= disk.list(&away(directory)).map_err(text)?.is_empty();
    }
    if let Some(directory) = rng.pick(&directories).filter(|_| whole) {
        trace::say(|| format!("the device of {} fails", directory.display()));
        machine.break_directory(directory);
    }
    Ok(whole)
}

/// Checks, on a copy of the machine, that a start without the directory `without` refuses a stale member.
fn refuses_what_lacks_redo(trial: &Arc<SimMachine>, geometry: &Geometry, without: &Path) -> Outcome<()> {
    let environment = geometry.environment(trial, &SegmentFile::unique())?;
    let control = environment.control();
    let kind = if control.role == Role::Primary { LogKind::Online } else { LogKind::Standby };
    let config = environment.log_config(kind);
    let prefix = if kind == LogKind::Online { "online_" } else { "standby_" };
    let lacks =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    if !control.stale_members.iter().any(lacks) {
        return Ok(());
    }
    // A file that could not be created while its device had failed, or whose creation the power loss interrupted.
    let unmade = |path: &PathBuf| {
        let contents = trial.contents(paths().directory.join(path));
        contents.is_none_or(|bytes| bytes.len() < FILE_HEADER_BYTES)
    };
    let missing = control.stale_members.iter().any(unmade);
    let disk = trial.disk();
    for path in disk.list(without).map_err(|error| error.to_string())? {
        disk.remove(&path).map_err(|error| error.to_string())?;
    }
    match RedoLog::open(Arc::new(disk), config) {
        Err(LogError::OnlyDistrusted { .. }) => Ok(()),
        Err(LogError::Io { .. }) if missing => Ok(()),
        Err(error) => Err(format!("a log that lacks redo is refused for another reason: {error}")),
        Ok(_) => Err("a log that lacks redo was trusted".into()),
    }
}

fn away(directory: &Path) -> PathBuf {
    directory.with_extension("away")
}

/// Copies the files that `to` lacks from `from`.
fn copy_members(machine: &Arc<SimMachine>, from: &Path, to: &Path) -> Outcome<()> {
    for path in members_of(machine, from)? {
        let Some(twin) = twin(&path, to) else { continue };
        if let (None, Some(bytes)) = (machine.contents(&twin), machine.contents(&path)) {
            machine.install(twin, &bytes);
        }
    }
    Ok(())
}

fn members_of(machine: &Arc<SimMachine>, directory: &Path) -> Outcome<Vec<PathBuf>> {
    machine.disk().list(directory).map_err(|error| error.to_string())
}

/// Path of the other member of the same group, in `directory`.
fn twin(path: &Path, directory: &Path) -> Option<PathBuf> {
    let stem = path.file_stem()?.to_str()?;
    let (group, letter) = stem.split_at(stem.len().checked_sub(1)?);
    let other = if letter == "a" { "b" } else { "a" };
    Some(directory.join(format!("{group}{other}.log")))
}

/// Damages places of each group, each place in one of its members only.
fn damage(machine: &Arc<SimMachine>, directories: &[PathBuf; 2], rng: &mut Rng) -> Outcome<()> {
    for path in members_of(machine, &directories[0])? {
        let Some(other) = twin(&path, &directories[1]) else { continue };
        let (Some(a), Some(b)) = (machine.contents(&path), machine.contents(&other)) else { continue };
        let mut files = [a, b];
        let steps = files[0].len().min(files[1].len()) as u64 / DAMAGE_STEP;
        for step in 0..steps {
            // Mostly the headers and the first blocks: most groups are not full.
            if rng.below(4 + step) == 0 {
                let at = (step * DAMAGE_STEP + rng.below(4096)) as usize;
                files[rng.below(2) as usize][at] ^= 1 << rng.below(8);
            }
        }
        let [a, b] = files;
        machine.install(&path, &a);
        machine.install(&other, &b);
    }
    trace::say(|| "members damaged".to_owned());
    Ok(())
}
