//! Whether every file that is open is still the one that its path names. A file that was removed while it was open, or in
//! whose place another one stands, takes reads and writes as before; nothing of that is there after the next start.
//!
//! Owners register what they have open, with device and inode of the descriptor; [`Places::look`] compares once a second,
//! on a thread of its own, because a path may lie on a file system that does not answer. What differs is told to the owner,
//! once, and stays in the list that status shows for as long as it differs. The comparison is [`judge`], a pure function.

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

/// How often the places are looked at.
pub const EVERY: Duration = Duration::from_secs(1);

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The directory of the instance, or one that it keeps files in.
    Directory,
    /// The lock by which the directory has one instance only.
    Lock,
    /// The control file.
    Control,
    /// The shared memory of sessions.
    Segment,
    /// A member of a redo log group.
    LogMember,
    /// A database.
    Database,
    /// The write-ahead log of a database.
    Wal,
    /// The shared memory of a database.
    WalIndex,
}

impl What {
    /// As in messages.
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

/// What has to be at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The file that is open.
    Is(FileIdentity),
    /// Any file: one that is replaced by each change, as the control file is.
    Exists,
}

/// One path that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What the file is for.
    pub what: What,
    /// Name of the database that it belongs to; empty when to none.
    pub database: String,
    /// The path.
    pub path: PathBuf,
    /// What has to be there.
    pub expected: Expected,
}

impl Place {
    /// A file of the instance.
    pub fn new(what: What, path: &Path, expected: Expected) -> Place {
        Place { what, database: String::new(), path: path.to_owned(), expected }
    }

    /// What stands at `path` now; to be used where nothing is held open.
    pub fn as_found(what: What, path: &Path) -> Place {
        let expected = identity_of(path).map_or(Expected::Exists, Expected::Is);
        Place::new(what, path, expected)
    }
}

/// What is found instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Nothing.
    Gone,
    /// Another file.
    Other,
    /// It cannot be said.
    Unknown(String),
}

impl Finding {
    /// Whether it is certain that the open file is not the one that the path names.
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

/// A place that is not as it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Which.
    pub place: Place,
    /// What is there.
    pub finding: Finding,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.place.what.words(), self.place.path.display(), self.finding)
    }
}

/// What `found` at a path means; `None`: all is as it has to be.
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

/// Called with what has changed of an owner's places; on the thread that looks.
pub type Changed = Arc<dyn Fn(&[Moved]) + Send + Sync>;

struct Owner {
    /// Grows with every registration: what was looked at for an earlier one says nothing.
    version: u64,
    places: Vec<Place>,
    changed: Changed,
    moved: Vec<Moved>,
}

/// See the module.
#[derive(Default)]
pub struct Places {
    owners: Mutex<BTreeMap<String, Owner>>,
}

impl Places {
    fn owners(&self) -> MutexGuard<'_, BTreeMap<String, Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `owner` has these places, and no others. What was found of those that it had before is not told again.
    pub fn register(&self, owner: &str, places: Vec<Place>, changed: Changed) {
        let mut owners = self.owners();
        let (version, mut moved) =
            owners.remove(owner).map_or((0, Vec::new()), |known| (known.version + 1, known.moved));
        moved.retain(|moved| places.contains(&moved.place));
        owners.insert(owner.to_owned(), Owner { version, places, changed, moved });
    }

    /// As [`Places::register`], when they are others than before: what was found of the same ones is not told again.
    pub fn keep(&self, owner: &str, places: Vec<Place>, changed: impl FnOnce() -> Changed) {
        if self.owners().get(owner).is_none_or(|known| known.places != places) {
            self.register(owner, places, changed());
        }
    }

    /// `owner` has none any more.
    pub fn forget(&self, owner: &str) {
        self.owners().remove(owner);
    }

    /// Everything that was not as it has to be at the last look.
    pub fn moved(&self) -> Vec<Moved> {
        self.owners().values().flat_map(|owner| owner.moved.iter().cloned()).collect()
    }

    /// Compares all, and tells each owner what is new. Holds no lock while it asks the file systems or calls anybody.
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
            let (news, changed) = {
                let mut owners = self.owners();
                let Some(owner) = owners.get_mut(&name).filter(|owner| owner.version == version) else {
                    continue;
                };
                let news: Vec<Moved> =
                    moved.iter().filter(|moved| !owner.moved.contains(moved)).cloned().collect();
                owner.moved = moved;
                (news, owner.changed.clone())
            };
            if !news.is_empty() {
                changed(&news);
            }
        }
    }
}

fn found_at(path: &Path) -> Result<FileIdentity, Error> {
    std::fs::metadata(path).map(|metadata| FileIdentity::of(&metadata))
}

/// Device and inode of what `path` names.
pub fn identity_of(path: &Path) -> Option<FileIdentity> {
    found_at(path).ok()
}

/// The files that this process has open, by path. One that was removed since has none.
pub struct OpenFiles(HashMap<PathBuf, FileIdentity>);

impl OpenFiles {
    /// As of now; empty where /proc is not there.
    pub fn now() -> OpenFiles {
        let open = |entry: std::fs::DirEntry| {
            let (path, is_removed) = opened_as(std::fs::read_link(entry.path()).ok()?);
            // Of the descriptor, not of what the path names by now.
            let metadata = std::fs::metadata(entry.path()).ok()?;
            Some((is_removed, path, FileIdentity::of(&metadata)))
        };
        let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
        let mut found: Vec<_> = entries.flatten().filter_map(open).collect();
        // Of two files that were opened by one path the removed one is to be found.
        found.sort_by_key(|(is_removed, ..)| *is_removed);
        OpenFiles(found.into_iter().map(|(_, path, identity)| (path, identity)).collect())
    }

    /// The place of a file that was opened by `path`, by others in this process (SQLite). Where no descriptor can be
    /// found for it, what the path names now.
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

    /// A database with its WAL and its shared memory.
    pub fn database(&self, name: &str, path: &Path) -> [Place; 3] {
        files_of(path).map(|(what, path)| self.place(what, name, &path))
    }
}

/// A database with its WAL and its shared memory, as their paths name them now. To be called when they have just been opened.
pub fn database_as_found(name: &str, path: &Path) -> [Place; 3] {
    files_of(path).map(|(what, path)| Place { database: name.to_owned(), ..Place::as_found(what, &path) })
}

fn files_of(path: &Path) -> [(What, PathBuf); 3] {
    [(What::Database, path.to_owned()), (What::Wal, wal_path(path)), (What::WalIndex, wal_index_path(path))]
}

/// The path by which a descriptor was opened, of which /proc/self/fd has `link`, and whether the file was removed since.
fn opened_as(link: PathBuf) -> (PathBuf, bool) {
    match link.as_os_str().as_encoded_bytes().strip_suffix(b" (deleted)") {
        Some(bytes) => (PathBuf::from(std::ffi::OsStr::from_bytes(bytes)), true),
        None => (link, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of a test, removed at its end.
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
        assert!(!unknown.is_certain(), "nothing is taken out of service for what cannot be said");
        assert_eq!(judge(Expected::Exists, Ok(ONE)), None);
        assert_eq!(judge(Expected::Exists, Err(ErrorKind::NotFound.into())), Some(Finding::Gone));
    }

    fn told() -> (Changed, Arc<Mutex<Vec<String>>>) {
        let told = Arc::<Mutex<Vec<String>>>::default();
        let into = told.clone();
        let changed = move |news: &[Moved]| {
            into.lock().unwrap().extend(news.iter().map(|moved| format!("{:?}", moved.finding)));
        };
        (Arc::new(changed), told)
    }

    #[test]
    fn a_change_is_told_once_and_listed_while_it_lasts() {
        let directory = TempDir::new("places");
        let path = directory.join("app.db");
        std::fs::write(&path, "one").unwrap();
        let (places, (changed, told)) = (Places::default(), told());
        let place = Place::as_found(What::Database, &path);
        places.register("databases", vec![place.clone()], changed.clone());
        places.look();
        assert!(told.lock().unwrap().is_empty() && places.moved().is_empty());

        let away = directory.join("away.db");
        std::fs::rename(&path, &away).unwrap();
        places.look();
        places.look();
        assert_eq!(*told.lock().unwrap(), ["Gone"]);
        assert_eq!(places.moved().len(), 1);
        let another = Place::as_found(What::Database, &away);
        places.register("databases", vec![another, place.clone()], changed.clone());
        assert_eq!(places.moved().len(), 1, "it is still gone");
        places.look();
        assert_eq!(*told.lock().unwrap(), ["Gone"], "and not told again");
        places.register("databases", vec![place.clone()], changed.clone());
        // Another one, with the same content.
        std::fs::copy(&away, &path).unwrap();
        places.look();
        assert_eq!(*told.lock().unwrap(), ["Gone", "Other"]);
        std::fs::rename(&away, &path).unwrap();
        places.look();
        assert!(places.moved().is_empty(), "it is back");

        std::fs::remove_file(&path).unwrap();
        places.register("databases", Vec::new(), changed);
        places.look();
        assert_eq!(told.lock().unwrap().len(), 2, "what is not registered any more is not watched");
    }

    #[test]
    fn a_file_that_others_opened_is_known_by_its_descriptor() {
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
        // Already replaced when it is first looked at.
        assert_eq!(OpenFiles::now().place(What::Database, "app.db", &path).expected, Expected::Is(open));
        let [database, wal, _] = files.database("app.db", &path);
        assert_eq!((database.expected, wal.expected), (Expected::Is(open), Expected::Exists));
    }
}
