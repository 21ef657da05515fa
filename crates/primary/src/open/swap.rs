//! Replaces the file of a database by a rebuilt one and keeps the old file beside it under another name.
//!
//! At whatever moment the process is killed or the power fails:
//! - The old file, its WAL and its rollback journal are together under one of the two names: copies of its companion
//!   files are under the new name before the file itself is renamed.
//! - No file has two names.
//! - The rebuilt file gets the name of the database only when no companion of the old file is beside that name: SQLite
//!   would take a WAL or journal found there as belonging to the rebuilt file.
//!
//! A [`FileSwap`] in the control file describes the swap, from before the first step until after the last. [`settle`]
//! completes an interrupted swap, at a start and before the next decision.

use crate::open::rebuild;
use standfast_apply::path_of_kept;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::control::{
    DatabaseRecord, FileStamp, FileSwap, KeptFile, LastingIdentity, WholeFile,
};
use standfast_environment::state::now::now_us;
use standfast_io::fault::{self, Fault};
use standfast_io::{outside, sync_directory_of};
use standfast_session::{journal_path, wal_index_path, wal_path};
use standfast_types::Scn;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Paths of the files that belong to a database file and must move with it.
const COMPANIONS: [fn(&Path) -> PathBuf; 2] = [wal_path, journal_path];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Nothing was begun, or nothing had been moved.
    Nothing,
    /// The rebuilt file is in place and recorded. Says, as text, where the old file is.
    Finished(String),
}

/// Records in the control file that `made`, which holds all of the database before `end`, is to replace its file.
/// `decided`: present end of the redo.
///
/// # Errors
/// When `made` cannot be examined, or the control file cannot be written; nothing has changed then.
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

/// Returns an unused name: files kept earlier stay.
fn free_name(path: &Path, scn: Scn) -> PathBuf {
    // A dangling symbolic link occupies a name too.
    let is_there = |name: &Path| name.symlink_metadata().is_ok();
    let is_taken = |name: &Path| is_there(name) || COMPANIONS.iter().any(|of| is_there(&of(name)));
    let mut scn = scn;
    while is_taken(&path_of_kept(path, scn)) {
        scn = scn + 1;
    }
    path_of_kept(path, scn)
}

/// Keeps the present file under the new name, and gives its name to `made`.
///
/// # Errors
/// When a step fails; then call [`settle`].
pub fn carry_out(record: &DatabaseRecord, made: &Path, swap: &FileSwap) -> Result<(), InstanceError> {
    let (path, kept) = (&record.path, &swap.kept.path);
    if is_there(path)? {
        for companion in COMPANIONS {
            copy(&companion(path), &companion(kept))?;
        }
        rename(path, kept)?;
    }
    // The originals replace their copies: an undetected process that has them open may still write to them.
    for companion in COMPANIONS {
        if is_there(&companion(path))? {
            rename(&companion(path), &companion(kept))?;
        }
    }
    put_in_place(record, made)
}

/// Renames the rebuilt file; no companion of another file is beside the name any more, except the wal-index.
fn put_in_place(record: &DatabaseRecord, made: &Path) -> Result<(), InstanceError> {
    remove(&wal_index_path(&record.path))?;
    rename(made, &record.path)
}

/// Records the rebuilt file as the file of the database.
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

/// Completes an interrupted swap of a database that is offline or not open yet. The rebuilt file takes its place if no
/// other file is there; otherwise the rebuilt file is removed, as is an incomplete one.
///
/// # Errors
/// When a file cannot be renamed, or the control file cannot be written. The next call continues.
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

/// Completes a swap when no file has the name of the database.
fn finish(record: &DatabaseRecord, made: &Path, swap: &FileSwap) -> Result<(), InstanceError> {
    let (path, kept) = (&record.path, &swap.kept.path);
    let is_whole = is_there(kept)?;
    for companion in COMPANIONS.iter().filter(|companion| companion(path).exists()) {
        if is_whole {
            // The kept file is complete with its copies; this one may belong to a file that came and went since.
            remove(&companion(path))?;
        } else {
            rename(&companion(path), &companion(kept))?;
        }
    }
    put_in_place(record, made)
}

/// Removes the copies when the file was not moved. A copy is removed only while its original exists.
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

fn end(control: &mut standfast_environment::state::control::Control, swap: &FileSwap) {
    control.file_swaps.retain(|other| other.database != swap.database);
    if is_kept(swap) {
        control.note_kept(swap.kept.clone());
    }
}

/// Whether the swap keeps any file.
pub fn is_kept(swap: &FileSwap) -> bool {
    let kept = &swap.kept.path;
    kept.exists() || COMPANIONS.iter().any(|companion| companion(kept).exists())
}

/// Where the old file is, for a message.
fn shown(swap: &FileSwap) -> String {
    match is_kept(swap) {
        true => format!("the file that was there is kept as {}", swap.kept.path.display()),
        false => "no file was set aside".to_owned(),
    }
}

/// Handles an `error` after [`begin`]: completes or undoes the swap, and says where the old file is.
pub fn interrupted(
    environment: &Environment,
    record: &DatabaseRecord,
    swap: &FileSwap,
    error: &InstanceError,
) -> InstanceError {
    let mut why = error.to_string();
    if let Err(later) = settle(environment, record) {
        why = format!("{why}; {later}");
    }
    InstanceError::NotTaken { name: record.name.clone(), why, kept: shown(swap) }
}

/// Makes a synced copy of the file at `from`, if there is one.
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
    // Removes a leftover of an interrupted attempt: the control file reserves the name for this file.
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
