//! The file of a database gives its place to one that was made again, and is kept beside it under another name.
//!
//! Whatever moment the process is killed at, or the power fails:
//! - The file that was there, its WAL and its rollback journal are together under one of the two names: what belongs to it is
//!   under the new name, as a copy, before the file itself is renamed.
//! - No file has two names.
//! - The file that was made gets the name of the database when nothing of the other one is beside that name: SQLite would take a
//!   WAL or a journal that it finds there for one of the file.
//!
//! A [`FileSwap`] in the control file says what is being done, from before the first step until after the last. [`settle`] brings to
//! an end what was begun, at a start and before the next decision.

use crate::control::{DatabaseRecord, FileStamp, FileSwap, KeptFile, LastingIdentity, WholeFile};
use crate::environment::Environment;
use crate::error::InstanceError;
use crate::{now_us, rebuild};
use standfast_apply::path_of_kept;
use standfast_io::fault::{self, Fault};
use standfast_io::{outside, sync_directory_of};
use standfast_session::{journal_path, wal_index_path, wal_path};
use standfast_types::Scn;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where that is which belongs to a database file, and has to go where it goes.
const COMPANIONS: [fn(&Path) -> PathBuf; 2] = [wal_path, journal_path];

/// What [`settle`] has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Nothing, or nothing had been moved.
    Nothing,
    /// The file that was made is in its place, and known. Where the other one is, in words.
    Finished(String),
}

/// Writes into the control file that `made`, which holds all of the database before `end`, is to take the place of its file.
/// `decided`: the redo ends here.
///
/// # Errors
/// When `made` cannot be looked at, or the control file not written: nothing has changed then.
pub fn begin(
    environment: &Environment,
    record: &DatabaseRecord,
    made: &Path,
    end: Scn,
    decided: Scn,
) -> Result<FileSwap, InstanceError> {
    let path = &record.path;
    let identity = LastingIdentity::of(made).map_err(InstanceError::io("look at", made))?;
    let stamp = FileStamp::of(environment.disk.as_ref(), made);
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let kept = KeptFile {
        name: record.name.clone(),
        path: free_name(path, decided),
        scn: decided,
        bytes: bytes(path) + COMPANIONS.iter().map(|of| bytes(&of(path))).sum::<u64>(),
        kept_us: now_us(),
    };
    let whole = stamp.map(|stamp| WholeFile { database: record.id, scn: end, stamp });
    let swap = FileSwap { database: record.id, made: identity, whole, kept };
    environment.update_control(|control| control.begin_swap(swap.clone()))?;
    Ok(swap)
}

/// What was kept before stays.
fn free_name(path: &Path, scn: Scn) -> PathBuf {
    // A link that leads nowhere takes a name, too.
    let is_there = |name: &Path| name.symlink_metadata().is_ok();
    let is_taken = |name: &Path| is_there(name) || COMPANIONS.iter().any(|of| is_there(&of(name)));
    let mut scn = scn;
    while is_taken(&path_of_kept(path, scn)) {
        scn = scn + 1;
    }
    path_of_kept(path, scn)
}

/// Keeps the file that is there, and gives its name to `made`.
///
/// # Errors
/// When a step fails. [`settle`] is to be called then.
pub fn carry_out(record: &DatabaseRecord, made: &Path, swap: &FileSwap) -> Result<(), InstanceError> {
    let (path, kept) = (&record.path, &swap.kept.path);
    if is_there(path)? {
        for companion in COMPANIONS {
            copy(&companion(path), &companion(kept))?;
        }
        rename(path, kept)?;
    }
    // The originals instead of their copies: a process that has them open, and was not found, may still write to them.
    for companion in COMPANIONS {
        if is_there(&companion(path))? {
            rename(&companion(path), &companion(kept))?;
        }
    }
    put_in_place(record, made)
}

/// Nothing of another file is beside the name of the database any more, but for the wal-index.
fn put_in_place(record: &DatabaseRecord, made: &Path) -> Result<(), InstanceError> {
    remove(&wal_index_path(&record.path))?;
    rename(made, &record.path)
}

/// The file in the place of the database is the one that was made: that is what it is from now on.
///
/// # Errors
/// When the control file cannot be written.
pub fn adopt(environment: &Environment, swap: &FileSwap) -> Result<(), InstanceError> {
    step(&swap.kept.path)?;
    let id = swap.database;
    environment.update_control(|control| {
        control.know_file(id, Some(swap.made));
        control.replays.retain(|(other, _)| *other != id);
        control.owed_images.retain(|owed| owed.database != id);
        control.whole_files.retain(|whole| whole.database != id);
        if let Some(whole) = swap.whole {
            control.note_whole(whole);
        }
        end(control, swap);
    })
}

/// Brings to an end what was begun for a database that is offline or not open yet: a file that was made takes its place if nothing
/// else is there; else it goes, and so does one that was not complete.
///
/// # Errors
/// When a file cannot be renamed, or the control file not written. The next call goes on.
pub fn settle(environment: &Environment, record: &DatabaseRecord) -> Result<Settled, InstanceError> {
    let (path, made) = (&record.path, rebuild::path_of(record));
    let Some(swap) = environment.of_control(|control| control.file_swap(record.id)) else {
        rebuild::discard(&made);
        return Ok(Settled::Nothing);
    };
    let is_made = |path: &Path| LastingIdentity::of(path).is_ok_and(|found| swap.made.may_be(&found));
    if is_made(&made) && !is_there(path)? {
        finish(record, &made, &swap)?;
    }
    if !is_made(path) {
        drop_copies(record, &swap)?;
        rebuild::discard(&made);
        environment.update_control(|control| end(control, &swap))?;
        return Ok(Settled::Nothing);
    }
    adopt(environment, &swap)?;
    let kept = shown(&swap);
    environment.alert.say(format!(
        "database {}: an operator has decided that the redo counts, and the file that was made of it is in its place now; {kept}",
        record.name
    ));
    Ok(Settled::Finished(kept))
}

/// The place of the database is empty.
fn finish(record: &DatabaseRecord, made: &Path, swap: &FileSwap) -> Result<(), InstanceError> {
    let (path, kept) = (&record.path, &swap.kept.path);
    let is_whole = is_there(kept)?;
    for companion in COMPANIONS.iter().filter(|companion| companion(path).exists()) {
        if is_whole {
            // What was there is whole by its copies; this may be of a file that came and went since.
            remove(&companion(path))?;
        } else {
            rename(&companion(path), &companion(kept))?;
        }
    }
    put_in_place(record, made)
}

/// The file has not been moved. A copy goes while the original is there.
fn drop_copies(record: &DatabaseRecord, swap: &FileSwap) -> Result<(), InstanceError> {
    let (path, kept) = (&record.path, &swap.kept.path);
    if is_there(kept)? {
        return Ok(());
    }
    for companion in COMPANIONS.iter().filter(|companion| companion(path).exists()) {
        remove(&companion(kept))?;
    }
    Ok(())
}

fn end(control: &mut crate::control::Control, swap: &FileSwap) {
    control.file_swaps.retain(|other| other.database != swap.database);
    if is_kept(swap) {
        control.note_kept(swap.kept.clone());
    }
}

/// Whether anything is kept by this.
pub fn is_kept(swap: &FileSwap) -> bool {
    let kept = &swap.kept.path;
    kept.exists() || COMPANIONS.iter().any(|companion| companion(kept).exists())
}

/// Where the file is that was there, for a message.
fn shown(swap: &FileSwap) -> String {
    match is_kept(swap) {
        true => format!("the file that was there is kept as {}", swap.kept.path.display()),
        false => "no file was set aside".to_owned(),
    }
}

/// `error` came after [`begin`]: brings to an end what was begun, and says where the file is that was there.
pub fn interrupted(
    environment: &Environment,
    record: &DatabaseRecord,
    swap: &FileSwap,
    error: &InstanceError,
) -> InstanceError {
    let mut why = error.without_hint();
    if let Err(later) = settle(environment, record) {
        why = format!("{why}; {}", later.without_hint());
    }
    InstanceError::NotTaken { name: record.name.clone(), why, kept: shown(swap) }
}

/// A copy on the disk of the file at `from`, if there is one.
fn copy(from: &Path, to: &Path) -> Result<(), InstanceError> {
    let mut original = match outside::open(from) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(InstanceError::io("open", from))?,
    };
    step(from)?;
    write_copy(&mut original, to).map_err(InstanceError::io("copy", from))?;
    sync_directory_of(to).map_err(InstanceError::io("sync", to))
}

fn write_copy(original: &mut File, to: &Path) -> std::io::Result<()> {
    let metadata = original.metadata()?;
    // What an interrupted attempt has left: the control file says that the name is for this.
    outside::remove(to)?;
    let mut copy = outside::create_new(to, 0o600)?;
    std::io::copy(original, &mut copy)?;
    outside::give_as(&copy, &metadata);
    outside::set_mode(&copy, metadata.mode() & 0o666)?;
    copy.sync_all()
}

fn rename(from: &Path, to: &Path) -> Result<(), InstanceError> {
    step(from)?;
    outside::rename(from, to).map_err(InstanceError::io("rename", from))
}

fn remove(path: &Path) -> Result<(), InstanceError> {
    outside::remove(path).and_then(|()| sync_directory_of(path)).map_err(InstanceError::io("remove", path))
}

fn is_there(path: &Path) -> Result<bool, InstanceError> {
    path.try_exists().map_err(InstanceError::io("look at", path))
}

fn step(path: &Path) -> Result<(), InstanceError> {
    fault::check_file(Fault::SetAside, path).map_err(InstanceError::io("set aside", path))
}
