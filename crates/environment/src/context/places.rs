//! Checks that each open file is still the file that its path names. A file that was removed or replaced while open
//! still accepts reads and writes, but they are lost at the next start.
//!
//! Owners register their open files with the device and inode of the descriptor. [`Places::look`] compares once a
//! second, on its own thread, because a path may lie on a file system that does not answer. It reports a difference to
//! the owner once, and lists it in the status while it lasts. [`judge`], a pure function, compares.

use serde::Serialize;
use standfast_io::FileIdentity;
use standfast_session::{wal_index_path, wal_path};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub const EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The instance directory, or a directory in which the instance keeps files.
    Directory,
    /// The lock that limits the directory to one instance.
    Lock,
    Control,
    Segment,
    /// A member of a redo log group.
    LogMember,
    Database,
    Wal,
    WalIndex,
}

impl What {
    pub fn words(self) -> &'static str {
        match self {
            What::Directory => "directory",
            What::Lock => "lock file",
            What::Control => "control file",
            What::Segment => "shared memory",
            What::LogMember => "redo log member",
            What::Database => "database file",
            What::Wal => "write-ahead log",
            What::WalIndex => "shared memory of a database",
        }
    }
}

/// The file expected at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Is(FileIdentity),
    /// Any file: for files that each change replaces, like the control file.
    Exists,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub what: What,
    /// Name of the database that the file belongs to; empty if none.
    pub database: String,
    pub path: PathBuf,
    pub expected: Expected,
}

impl Place {
    /// Returns a place that belongs to no database.
    pub fn new(what: What, path: &Path, expected: Expected) -> Place {
        Place { what, database: String::new(), path: path.to_owned(), expected }
    }

    /// Expects the file that is at `path` now; for paths that nothing holds open.
    pub fn as_found(what: What, path: &Path) -> Place {
        let expected = identity_of(path).map_or(Expected::Exists, Expected::Is);
        Place::new(what, path, expected)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// The path names no file.
    Gone,
    Other,
    Unknown(String),
}

impl Finding {
    /// Whether the open file is certainly not the one that the path names.
    pub fn is_certain(&self) -> bool {
        !matches!(self, Finding::Unknown(_))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Gone => f.write_str("was removed while it was open"),
            Finding::Other => f.write_str("is another file than the one that is open"),
            Finding::Unknown(why) => write!(f, "cannot be looked at: {why}"),
        }
    }
}

/// A place that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    pub place: Place,
    pub finding: Finding,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.place.what.words(), self.place.path.display(), self.finding)
    }
}

/// Compares `found` at a path with what is expected; `None` if they agree.
pub fn judge(expected: Expected, found: Result<FileIdentity, Error>) -> Option<Finding> {
    match (expected, found) {
        (Expected::Exists, Ok(_)) => None,
        (Expected::Is(open), Ok(found)) if open == found => None,
        (Expected::Is(_), Ok(_)) => Some(Finding::Other),
        (_, Err(error)) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Some(Finding::Gone)
        }
        (_, Err(error)) => Some(Finding::Unknown(error.to_string())),
    }
}

/// Called with the new differences of an owner's places, on the thread that compares.
pub type Changed = Arc<dyn Fn(&[Moved]) + Send + Sync>;

struct Owner {
    /// Incremented by each registration; the result of a comparison for an older version is discarded.
    version: u64,
    places: Vec<Place>,
    changed: Changed,
    moved: Vec<Moved>,
}

#[derive(Default)]
pub struct Places {
    owners: Mutex<BTreeMap<String, Owner>>,
}

impl Places {
    fn owners(&self) -> MutexGuard<'_, BTreeMap<String, Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the places of `owner`. Differences already found in places that stay are not reported again.
    pub fn register(&self, owner: &str, places: Vec<Place>, changed: Changed) {
        let mut owners = self.owners();
        let (version, mut moved) =
            owners.remove(owner).map_or((0, Vec::new()), |known| (known.version + 1, known.moved));
        moved.retain(|moved| places.contains(&moved.place));
        owners.insert(owner.to_owned(), Owner { version, places, changed, moved });
    }

    /// Registers the places of `owner` if they differ from the registered ones. Differences already found in places
    /// that stay are not reported again.
    pub fn keep(&self, owner: &str, places: Vec<Place>, changed: impl FnOnce() -> Changed) {
        if self.owners().get(owner).is_none_or(|known| known.places != places) {
            self.register(owner, places, changed());
        }
    }

    pub fn forget(&self, owner: &str) {
        self.owners().remove(owner);
    }

    /// Returns everything that was not as expected at the last comparison.
    pub fn moved(&self) -> Vec<Moved> {
        self.owners().values().flat_map(|owner| owner.moved.iter().cloned()).collect()
    }

    /// Compares all places and reports new differences to their owners. Holds no lock during file system calls and
    /// callbacks.
    pub fn look(&self) {
        let all: Vec<(String, u64, Vec<Place>)> = {
            let owners = self.owners();
            owners.iter().map(|(name, owner)| (name.clone(), owner.version, owner.places.clone())).collect()
        };
        for (name, version, places) in all {
            let moved: Vec<Moved> = places
                .into_iter()
                .filter_map(|place| {
                    let finding = judge(place.expected, found_at(&place.path))?;
                    Some(Moved { place, finding })
                })
                .collect();
            let (changes, changed) = {
                let mut owners = self.owners();
                let Some(owner) = owners.get_mut(&name).filter(|owner| owner.version == version) else {
                    continue;
                };
                let changes: Vec<Moved> =
                    moved.iter().filter(|moved| !owner.moved.contains(moved)).cloned().collect();
                owner.moved = moved;
                (changes, owner.changed.clone())
            };
            if !changes.is_empty() {
                changed(&changes);
            }
        }
    }
}

fn found_at(path: &Path) -> Result<FileIdentity, Error> {
    std::fs::metadata(path).map(|metadata| FileIdentity::of(&metadata))
}

/// Device and inode of the file that `path` names.
pub fn identity_of(path: &Path) -> Option<FileIdentity> {
    found_at(path).ok()
}

/// The files that this process has open, by path.
pub struct OpenFiles(HashMap<PathBuf, FileIdentity>);

impl OpenFiles {
    /// Takes the list from /proc; empty without /proc.
    pub fn now() -> OpenFiles {
        let open = |entry: std::fs::DirEntry| {
            let (path, is_removed) = opened_as(std::fs::read_link(entry.path()).ok()?);
            // Metadata of the descriptor, not of the file that the path names by now.
            let metadata = std::fs::metadata(entry.path()).ok()?;
            Some((is_removed, path, FileIdentity::of(&metadata)))
        };
        let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
        let mut found: Vec<_> = entries.flatten().filter_map(open).collect();
        // If two open files share a path, the removed one must win: it is inserted last.
        found.sort_by_key(|(is_removed, ..)| *is_removed);
        OpenFiles(found.into_iter().map(|(_, path, identity)| (path, identity)).collect())
    }

    /// Returns the place of a file that other code in this process (SQLite) opened by `path`. If no descriptor is found
    /// for it, expects the file that the path names now.
    pub fn place(&self, what: What, database: &str, path: &Path) -> Place {
        let resolved = path.parent().and_then(|parent| parent.canonicalize().ok());
        let resolved = resolved.zip(path.file_name()).map(|(parent, name)| parent.join(name));
        let known = resolved.and_then(|path| self.0.get(&path).copied()).or_else(|| identity_of(path));
        Place {
            what,
            database: database.to_owned(),
            path: path.to_owned(),
            expected: known.map_or(Expected::Exists, Expected::Is),
        }
    }

    /// Places of a database, its WAL and its wal-index.
    pub fn database(&self, name: &str, path: &Path) -> [Place; 3] {
        files_of(path).map(|(what, path)| self.place(what, name, &path))
    }
}

/// Places of a database, its WAL and its wal-index as their paths name them now. Call it directly after opening them.
pub fn database_as_found(name: &str, path: &Path) -> [Place; 3] {
    files_of(path).map(|(what, path)| Place { database: name.to_owned(), ..Place::as_found(what, &path) })
}

fn files_of(path: &Path) -> [(What, PathBuf); 3] {
    [(What::Database, path.to_owned()), (What::Wal, wal_path(path)), (What::WalIndex, wal_index_path(path))]
}

/// Returns the path by which a descriptor was opened, from its `link` in /proc/self/fd, and whether the file was
/// removed since.
fn opened_as(link: PathBuf) -> (PathBuf, bool) {
    match link.as_os_str().as_encoded_bytes().strip_suffix(b" (deleted)") {
        Some(bytes) => (PathBuf::from(std::ffi::OsStr::from_bytes(bytes)), true),
        None => (link, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test directory, removed when dropped.
    struct TempDir(PathBuf);

    impl TempDir {
        fn new(name: &str) -> TempDir {
            let path = std::env::temp_dir().join(format!("standfast-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            TempDir(path)
        }

        fn join(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const ONE: FileIdentity = FileIdentity { device: 1, inode: 10 };

    #[test]
    fn only_the_same_device_and_inode_is_the_same_file() {
        let is = |found| judge(Expected::Is(ONE), found);
        assert_eq!(is(Ok(ONE)), None);
        assert_eq!(is(Ok(FileIdentity { device: 2, ..ONE })), Some(Finding::Other));
        assert_eq!(is(Ok(FileIdentity { inode: 11, ..ONE })), Some(Finding::Other));
        assert_eq!(is(Err(ErrorKind::NotFound.into())), Some(Finding::Gone));
        assert_eq!(is(Err(ErrorKind::NotADirectory.into())), Some(Finding::Gone));
        let unknown = is(Err(ErrorKind::PermissionDenied.into())).unwrap();
        assert!(!unknown.is_certain(), "nothing is taken out of service for what is not known");
        assert_eq!(judge(Expected::Exists, Ok(ONE)), None);
        assert_eq!(judge(Expected::Exists, Err(ErrorKind::NotFound.into())), Some(Finding::Gone));
    }

    fn reported() -> (Changed, Arc<Mutex<Vec<String>>>) {
        let reported = Arc::<Mutex<Vec<String>>>::default();
        let into = reported.clone();
        let changed = move |changes: &[Moved]| {
            into.lock().unwrap().extend(changes.iter().map(|moved| format!("{:?}", moved.finding)));
        };
        (Arc::new(changed), reported)
    }

    #[test]
    fn file_change_is_reported_once_and_listed_while_it_lasts() {
        let directory = TempDir::new("places");
        let path = directory.join("app.db");
        std::fs::write(&path, "one").unwrap();
        let (places, (changed, reported)) = (Places::default(), reported());
        let place = Place::as_found(What::Database, &path);
        places.register("databases", vec![place.clone()], changed.clone());
        places.look();
        assert!(reported.lock().unwrap().is_empty() && places.moved().is_empty());

        let away = directory.join("away.db");
        std::fs::rename(&path, &away).unwrap();
        places.look();
        places.look();
        assert_eq!(*reported.lock().unwrap(), ["Gone"]);
        assert_eq!(places.moved().len(), 1);
        let another = Place::as_found(What::Database, &away);
        places.register("databases", vec![another, place.clone()], changed.clone());
        assert_eq!(places.moved().len(), 1, "it is still gone");
        places.look();
        assert_eq!(*reported.lock().unwrap(), ["Gone"], "and not reported again");
        places.register("databases", vec![place.clone()], changed.clone());
        // Another file, with the same content.
        std::fs::copy(&away, &path).unwrap();
        places.look();
        assert_eq!(*reported.lock().unwrap(), ["Gone", "Other"]);
        std::fs::rename(&away, &path).unwrap();
        places.look();
        assert!(places.moved().is_empty(), "it is back");

        std::fs::remove_file(&path).unwrap();
        places.register("databases", Vec::new(), changed);
        places.look();
        assert_eq!(reported.lock().unwrap().len(), 2, "what is not registered any more is not watched");
    }

    #[test]
    fn open_file_is_identified_by_its_descriptor_not_its_path() {
        let directory = TempDir::new("places-open");
        let path = directory.join("app.db");
        let file = std::fs::File::create(&path).unwrap();
        let open = FileIdentity::of(&file.metadata().unwrap());
        let files = OpenFiles::now();
        // Replaced between the opening and the registration: the path alone would not show it.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(directory.join("other"), "x").unwrap();
        std::fs::rename(directory.join("other"), &path).unwrap();
        assert_eq!(files.place(What::Database, "app.db", &path).expected, Expected::Is(open));
        // Already replaced when the descriptors are listed.
        assert_eq!(OpenFiles::now().place(What::Database, "app.db", &path).expected, Expected::Is(open));
        let [database, wal, _] = files.database("app.db", &path);
        assert_eq!((database.expected, wal.expected), (Expected::Is(open), Expected::Exists));
    }
}
