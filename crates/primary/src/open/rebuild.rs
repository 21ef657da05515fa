//! Rebuilds the file of a database from a base and the redo since: the base is a full resync image in the redo, or a
//! standby's copy. At the end every page that the redo touches has been verified against its checksum.

use crate::open::reconcile;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use standfast_environment::config::destination_config::State;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::DestinationConfig;
use standfast_environment::context::environment::Environment;
use standfast_environment::context::kept::REBUILDING;
use standfast_environment::state::control::DatabaseRecord;
use standfast_format::{Record, StreamCrc, decode_record};
use standfast_io::{FileIdentity, outside};
use standfast_log::{RecordReader, RedoLog};
use standfast_session::{journal_path, wal_index_path, wal_path};
use standfast_sqlite_wal::guard::register_guard_vfs;
use standfast_sqlite_wal::journal::INTO_WAL_MODE;
use standfast_transport::{DatabaseInfo, Manifest, SnapshotInfo, SnapshotSink, StageError, fetch_database};
use standfast_types::{DatabaseId, PageNo, Scn};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Base from which a database can be rebuilt, with the redo since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// The full resync image in the redo that begins here.
    Image(Scn),
    /// The copy that a standby holds.
    Standby { name: String, address: String },
}

impl std::fmt::Display for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Base::Image(scn) => write!(f, "the full image in the redo at SCN {scn}, and the redo since"),
            Base::Standby { name, .. } => write!(f, "what standby {name} holds, and the redo since"),
        }
    }
}

/// Returns the available bases, cheapest first.
pub fn bases(
    log: &Arc<RedoLog>,
    record: &DatabaseRecord,
    end: Scn,
    destinations: &[DestinationConfig],
) -> Vec<Base> {
    let image = last_image(log, record, end).map(Base::Image);
    let standbys = destinations.iter().filter(|at| !at.is_local() && at.state == State::Enable);
    let standbys = standbys.map(|at| Base::Standby { name: at.name.clone(), address: at.address.clone() });
    image.into_iter().chain(standbys).collect()
}

/// Returns the beginning of the newest full resync image of the database that is complete in the available redo.
fn last_image(log: &Arc<RedoLog>, record: &DatabaseRecord, end: Scn) -> Option<Scn> {
    let boundaries = reconcile::boundaries_before(log, end);
    let (mut next, mut step) = (0, 1);
    while next < boundaries.len() {
        let index = (next + step - 1).min(boundaries.len() - 1);
        // Logs further back may be damaged, or removed meanwhile.
        if let Some(found) = image_since(log, record, boundaries[index], end).ok()? {
            return Some(found);
        }
        (next, step) = (index + 1, step * 2);
    }
    None
}

fn image_since(
    log: &Arc<RedoLog>,
    record: &DatabaseRecord,
    from: Scn,
    end: Scn,
) -> Result<Option<Scn>, InstanceError> {
    let mut reader = RecordReader::new(log.clone(), from, end);
    let (mut start, mut begun, mut complete) = (from, None, None);
    while let Some((bytes, scn)) = reader.next_record()? {
        // The reader has already decoded it.
        match decode_record(bytes).map(|(decoded, _)| decoded) {
            Ok(Record::Baseline { database, .. }) if database == record.id && start >= record.start_scn => {
                begun = Some(start);
            }
            Ok(Record::WalGeneration { database, restart: true, .. } | Record::Detach { database })
                if database == record.id =>
            {
                begun = None;
            }
            Ok(Record::Commit { database, frame: 0, .. }) if database == record.id => {
                complete = begun.take().or(complete);
            }
            _ => {}
        }
        start = scn;
    }
    Ok(complete)
}

/// Path at which the database is rebuilt.
pub fn path_of(record: &DatabaseRecord) -> PathBuf {
    let mut name = record.path.as_os_str().to_owned();
    name.push(REBUILDING);
    name.into()
}

/// Removes the files of a rebuild.
pub fn discard(path: &Path) {
    for file in [wal_path(path), wal_index_path(path), journal_path(path), path.to_owned()] {
        let _ = outside::remove(&file);
    }
}

/// Rebuilds the database as of `end`, at [`path_of`], as one synced file without a WAL. Redo applied to a standby's
/// copy begins at `from` at the latest.
///
/// # Errors
/// Why it cannot be rebuilt from `base`. No file is left then.
pub fn rebuild(
    environment: &Environment,
    log: &Arc<RedoLog>,
    record: &DatabaseRecord,
    base: &Base,
    (from, end): (Scn, Scn),
) -> Result<PathBuf, InstanceError> {
    let path = path_of(record);
    discard(&path);
    let made = make(environment, log, record, base, (from, end), &path);
    made.map(|()| path.clone()).inspect_err(|_| discard(&path))
}

fn make(
    environment: &Environment,
    log: &Arc<RedoLog>,
    record: &DatabaseRecord,
    base: &Base,
    (from, end): (Scn, Scn),
    path: &Path,
) -> Result<(), InstanceError> {
    let file = create(record, path)?;
    let made = file.metadata().map_err(InstanceError::io("look at", path))?;
    let made = FileIdentity::of(&made);
    let from = match base {
        Base::Image(scn) => {
            let connection = open(path)?;
            let bytes = record.page_size.bytes();
            connection.execute_batch(&format!("PRAGMA page_size={bytes}; {INTO_WAL_MODE}"))?;
            *scn
        }
        Base::Standby { name, address } => fetch(environment, log, record, (name, address), file)?.min(from),
    };
    is_still(made, path)?;
    let copy = DatabaseRecord { path: path.to_owned(), ..record.clone() };
    reconcile::reapply(log, &copy, environment.vfs_base.as_deref(), from, end).map_err(
        |error| match error {
            InstanceError::Refused { what, .. } => {
                InstanceError::Failed(format!("the redo does not lead on: {what}"))
            }
            other => other,
        },
    )?;
    consolidate(path)?;
    is_still(made, path)
}

/// Checks that the path still names the file being rebuilt: users who may write the directory may have replaced it.
fn is_still(made: FileIdentity, path: &Path) -> Result<(), InstanceError> {
    match outside::look(path).map_err(InstanceError::io("look at", path))? {
        found if found == made => Ok(()),
        _ => Err(InstanceError::Failed(format!("another file was put at {}", path.display()))),
    }
}

/// Opens a database with the guard's VFS; refuses a symbolic link.
fn open(path: &Path) -> Result<Connection, InstanceError> {
    outside::look(path).map_err(InstanceError::io("look at", path))?;
    Ok(Connection::open_with_flags_and_vfs(path, OpenFlags::default(), register_guard_vfs(None)?.as_str())?)
}

/// Backfills the WAL; leaves one synced file.
fn consolidate(path: &Path) -> Result<(), InstanceError> {
    let connection = open(path)?;
    // A schema that needs a newer SQLite does not matter here.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    drop(connection);
    let is_whole = busy == 0 && std::fs::metadata(wal_path(path)).map_or(true, |wal| wal.len() == 0);
    if !is_whole {
        return Err(InstanceError::Failed(format!("another process has opened {}", path.display())));
    }
    outside::open(path)
        .and_then(|file| file.sync_all())
        .map_err(InstanceError::io("sync the rebuilt database", path))
}

/// Creates an empty file with the owner and the permissions of the database.
fn create(record: &DatabaseRecord, path: &Path) -> Result<File, InstanceError> {
    let file = outside::create_new(path, 0o600).map_err(InstanceError::io("create", path))?;
    // If the path is a symbolic link, its target is not the database's file.
    let original = std::fs::symlink_metadata(&record.path).ok().filter(|found| found.is_file());
    if let Some(original) = original {
        outside::give_as(&file, &original);
        let _ = outside::set_mode(&file, original.mode() & 0o666);
    }
    Ok(file)
}

/// Copies the database from a standby to `file`; returns the SCN before which the copy holds all commits.
fn fetch(
    environment: &Environment,
    log: &Arc<RedoLog>,
    record: &DatabaseRecord,
    (name, address): (&str, &str),
    file: File,
) -> Result<Scn, InstanceError> {
    let mut copy = Copy { record, manifest: None, file: BufWriter::with_capacity(1 << 20, file), info: None };
    let own = &environment.config.instance.name;
    // Accepts only this member: another one at that address has other redo, or other data.
    let security = environment.security().only([name.to_owned()]);
    let start = fetch_database(address, &security, own, record.id, &mut copy)
        .map_err(|error| InstanceError::Failed(format!("standby {name} gives no copy: {error}")))?;
    let (Some(manifest), Some(info)) = (copy.manifest, copy.info) else {
        return Err(InstanceError::Failed(format!("standby {name} does not have the database")));
    };
    let family = environment.of_control(|control| control.family);
    if manifest.source.family.is_some_and(|other| other != family) {
        return Err(InstanceError::Failed(format!("{name} is a standby of other instances")));
    }
    let known = log.stream_crc(info.scn)?;
    if start.start != info.scn || known != Some(StreamCrc(start.crc)) {
        let what = match known {
            None => format!(
                "the redo from SCN {} on, where the copy of standby {name} begins, is not here",
                info.scn
            ),
            Some(_) => format!("standby {name} has other redo before SCN {} than this instance", info.scn),
        };
        return Err(InstanceError::Failed(what));
    }
    Ok(info.scn)
}

/// Receives the copy of one database.
struct Copy<'a> {
    record: &'a DatabaseRecord,
    manifest: Option<Manifest>,
    file: BufWriter<File>,
    info: Option<SnapshotInfo>,
}

impl SnapshotSink for Copy<'_> {
    fn manifest(&mut self, manifest: &Manifest) -> Result<(), StageError> {
        self.manifest = Some(manifest.clone());
        Ok(())
    }

    fn begin(&mut self, database: &DatabaseInfo) -> Result<(), StageError> {
        let record = self.record;
        let is_it = database.id == record.id
            && database.name == record.name
            && database.page_size == record.page_size
            && self.info.is_none();
        if is_it { Ok(()) } else { Err(format!("it has another database of number {}", database.id).into()) }
    }

    fn pages(&mut self, _: DatabaseId, _: PageNo, bytes: &[u8]) -> Result<(), StageError> {
        Ok(self.file.write_all(bytes)?)
    }

    fn end(&mut self, info: &SnapshotInfo) -> Result<(), StageError> {
        self.file.flush()?;
        self.info = Some(*info);
        Ok(())
    }
}
