//! The small file beside a protected database (`app.db-standfast`) by which a session finds its instance.
//!
//! ```text
//! standfast-marker 2
//! instance=0123456789abcdef0123456789abcdef
//! name=orders-a
//! directory=/var/lib/standfast
//! segment=/run/standfast/orders-a/standfast-0123456789abcdef0123456789abcdef
//! runtime=/run/standfast/orders-a
//! owner=995
//! database=3
//! path=/srv/app/app.db
//! device=2049
//! inode=1180437
//! ```
//! Lines of unknown keys are ignored. `protect` writes the marker, as does every start of the instance, and `unprotect`
//! removes it. The last three lines say for which file it was written: a marker that is copied together with the
//! database does not make the copy a protected database. Version 1 had no such lines. Without `runtime` the sockets are
//! in `directory`.

use crate::beside::beside;
use std::fmt;
use std::fs::{Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FIRST_LINE: &str = "standfast-marker 2";
const FIRST_LINE_OF_1: &str = "standfast-marker 1";
const MARKER_BYTES_MAX: u64 = 64 * 1024;

/// Where the instance of a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub instance: [u8; 16],
    /// Name of the instance, for messages.
    pub name: String,
    /// Directory of the instance. Where no socket tells whether the instance runs, the lock file in it does.
    pub directory: PathBuf,
    pub segment: PathBuf,
    /// Its runtime directory, with shared memory and sockets, if it has one.
    pub runtime: Option<PathBuf>,
    /// The user that owns the shared memory; earlier releases do not say.
    pub owner: Option<u32>,
    pub database: u16,
    /// Path of the file for which the marker was written; empty in version 1.
    pub path: PathBuf,
    pub file: Option<FileId>,
}

/// Identity of a file, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Identity of the file that `path` names; `None` when it cannot be determined.
    pub fn of(path: &Path) -> Option<FileId> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(FileId { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// A marker that was not written for the file beside which it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// It does not say for which file it was written.
    Unnamed,
    /// Another file has replaced that one, under the same path.
    Replaced,
    /// It was written for another path: this is a copy.
    Copy,
}

/// Why a marker cannot be used.
#[derive(Debug)]
pub enum MarkerError {
    Io(std::io::Error),
    /// It is not a marker, or of another version; what is wrong.
    Malformed(&'static str),
    /// It lies where every user may create files, and belongs to a user whose markers do not count there.
    Owner {
        uid: u32,
    },
}

impl fmt::Display for MarkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MarkerError::Io(error) => write!(f, "cannot read the marker file: {error}"),
            MarkerError::Malformed(why) => write!(f, "malformed marker file: {why}"),
            MarkerError::Owner { uid } => write!(
                f,
                "the marker file is of uid {uid}, in a directory where every user may put one: it counts there from root, the \
                 owner of the database or of the directory, or this user. Remove it, or move the database to a directory \
                 of its own"
            ),
        }
    }
}

impl std::error::Error for MarkerError {}

/// Whether the owner of a marker beside `database` may have been its instance. Users who may write to the directory can
/// replace the database itself, so there the writer of the marker does not matter. Where every user may write (`/tmp`,
/// with the sticky bit, where files of others cannot be replaced) the marker counts if its owner could replace the
/// database.
fn may_have_written(database: &Path, marker: &Metadata) -> bool {
    const EVERYBODY: u32 = 0o002;
    let directory = database.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(directory) = std::fs::metadata(directory.unwrap_or(Path::new("."))) else { return true };
    let of_database = std::fs::metadata(database).ok().map(|database| database.uid());
    // SAFETY: has no preconditions.
    let user = unsafe { libc::geteuid() };
    directory.mode() & EVERYBODY == 0
        || [0, user, directory.uid()].contains(&marker.uid())
        || of_database == Some(marker.uid())
}

/// Path of the marker of the database file at `database`.
pub fn marker_path(database: &Path) -> PathBuf {
    beside(database, "-standfast")
}

impl Marker {
    /// Reads the marker beside `database`; `None` when the database is not protected. Never waits, and reads no more
    /// than a marker can have, whatever file has its name.
    ///
    /// # Errors
    /// When there is a marker that cannot be used. The caller must then refuse to write.
    pub fn read(database: &Path) -> Result<Option<Marker>, MarkerError> {
        let path = marker_path(database);
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = match options.open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            // The file system takes no name so long, so there is no marker.
            Err(error) if error.kind() == ErrorKind::InvalidFilename => return Ok(None),
            Err(error) => {
                return Err(match error.raw_os_error() {
                    Some(libc::ELOOP) => MarkerError::Malformed("it is a symbolic link"),
                    // A socket.
                    Some(libc::ENXIO) => MarkerError::Malformed("it is not a regular file"),
                    _ => MarkerError::Io(error),
                });
            }
            Ok(file) => file,
        };
        let metadata = file.metadata().map_err(MarkerError::Io)?;
        if !metadata.is_file() {
            return Err(MarkerError::Malformed("it is not a regular file"));
        }
        if metadata.len() > MARKER_BYTES_MAX {
            return Err(MarkerError::Malformed("too large"));
        }
        if !may_have_written(database, &metadata) {
            return Err(MarkerError::Owner { uid: metadata.uid() });
        }
        let mut text = String::new();
        file.take(MARKER_BYTES_MAX).read_to_string(&mut text).map_err(MarkerError::Io)?;
        Marker::parse(&text).map(Some)
    }

    /// Decodes the text of a marker.
    ///
    /// # Errors
    /// `Malformed` with what is missing.
    pub fn parse(text: &str) -> Result<Marker, MarkerError> {
        let mut lines = text.lines();
        if !lines.next().is_some_and(|line| [FIRST_LINE, FIRST_LINE_OF_1].contains(&line)) {
            return Err(MarkerError::Malformed("the first line is not `standfast-marker 2`"));
        }
        let (mut instance, mut name, mut directory, mut segment, mut database) =
            (None, None, None, None, None);
        let (mut path, mut device, mut inode) = (PathBuf::new(), None, None);
        let (mut owner, mut runtime) = (None, None);
        for (key, value) in lines.filter_map(|line| line.split_once('=')) {
            match key {
                "instance" => instance = parse_identity(value),
                "name" => name = Some(value.to_owned()),
                "directory" => directory = Some(PathBuf::from(value)),
                "segment" => segment = Some(PathBuf::from(value)),
                "runtime" => runtime = Some(PathBuf::from(value)),
                "owner" => owner = value.parse().ok(),
                "database" => database = value.parse().ok(),
                "path" => path = PathBuf::from(value),
                "device" => device = value.parse().ok(),
                "inode" => inode = value.parse().ok(),
                _ => {}
            }
        }
        Ok(Marker {
            instance: instance.ok_or(MarkerError::Malformed("no valid `instance`"))?,
            name: name.ok_or(MarkerError::Malformed("no `name`"))?,
            directory: directory.ok_or(MarkerError::Malformed("no `directory`"))?,
            segment: segment.ok_or(MarkerError::Malformed("no `segment`"))?,
            runtime,
            owner,
            database: database.ok_or(MarkerError::Malformed("no valid `database`"))?,
            path,
            file: device.zip(inode).map(|(device, inode)| FileId { device, inode }),
        })
    }

    pub fn sockets(&self) -> &Path {
        self.runtime.as_deref().unwrap_or(&self.directory)
    }

    /// Returns the marker as a process sees it that has runtime directories of instances at `mounted`. The directory
    /// with the shared memory counts. If the shared memory is in none of them, nor where the marker says, the first one
    /// counts, where it will be when the instance runs.
    pub fn seen_from(mut self, mounted: &[PathBuf]) -> Marker {
        let Some(name) = self.segment.file_name() else { return self };
        let has_it = |directory: &&PathBuf| directory.join(name).exists();
        let first = mounted.first().filter(|_| !self.segment.exists());
        if let Some(directory) = mounted.iter().find(has_it).or(first) {
            self.segment = directory.join(name);
            self.runtime = Some(directory.clone());
        }
        self
    }

    /// Checks that the marker was written for the database `file` at `path`.
    ///
    /// # Errors
    /// What it was written for instead.
    pub fn check(&self, path: &Path, file: FileId) -> Result<(), Foreign> {
        let same_path = path == self.path || path.canonicalize().is_ok_and(|path| path == self.path);
        match self.file {
            // A file that was moved, or is seen through a bind mount.
            Some(known) if known == file => Ok(()),
            // Device numbers may change when the machine starts; inode numbers do not.
            Some(known) if known.inode == file.inode && same_path => Ok(()),
            Some(_) if same_path => Err(Foreign::Replaced),
            Some(_) => Err(Foreign::Copy),
            None => Err(Foreign::Unnamed),
        }
    }

    /// Explains why the marker beside the database at `path` does not count, and what to do.
    pub fn explain(&self, path: &Path, foreign: &Foreign) -> String {
        let (shown, marker) = (path.display(), marker_path(path));
        let (marker, original) = (marker.display(), self.path.display());
        let (name, directory) = (&self.name, self.directory.display());
        match foreign {
            Foreign::Unnamed => format!(
                "its marker {marker} does not say for which file it was written, as those of older releases. Restart \
                 instance {name} ({directory}), which writes it again, or remove it if that does not protect {shown}"
            ),
            Foreign::Replaced => format!(
                "its marker {marker} was written for another file, in whose place this one was put. Restart instance \
                 {name} ({directory}), which then tells whether it can continue with this one"
            ),
            Foreign::Copy => format!(
                "its marker {marker} was written for {original}, and {shown} is a copy of that, which nothing \
                 protects. Remove the marker to write to the copy, or protect it by itself with `standfast protect \
                 {shown}`"
            ),
        }
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST_LINE}")?;
        write!(f, "instance=")?;
        self.instance.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        writeln!(f, "\nname={}", self.name)?;
        writeln!(f, "directory={}", self.directory.display())?;
        writeln!(f, "segment={}", self.segment.display())?;
        if let Some(runtime) = &self.runtime {
            writeln!(f, "runtime={}", runtime.display())?;
        }
        if let Some(owner) = self.owner {
            writeln!(f, "owner={owner}")?;
        }
        writeln!(f, "database={}", self.database)?;
        writeln!(f, "path={}", self.path.display())?;
        match self.file {
            Some(FileId { device, inode }) => writeln!(f, "device={device}\ninode={inode}"),
            None => Ok(()),
        }
    }
}

fn parse_identity(text: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[i * 2..i * 2 + 2], 16).ok()?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_roundtrips_as_text_and_names_missing_fields() {
        let marker = Marker {
            instance: [0xa5; 16],
            name: "orders-a".into(),
            directory: "/srv/standfast".into(),
            segment: "/run/sf/standfast-x".into(),
            runtime: Some("/run/sf".into()),
            owner: Some(995),
            database: 3,
            path: "/srv/app.db".into(),
            file: Some(FileId { device: 3, inode: 9 }),
        };
        assert_eq!(Marker::parse(&marker.to_string()).unwrap(), marker);
        let cut = marker.to_string().replace("segment=", "seg=");
        assert!(matches!(Marker::parse(&cut), Err(MarkerError::Malformed("no `segment`"))));
        assert!(Marker::parse("SQLite format 3").is_err());
        let path = Path::new("/srv/app.db");
        let old = marker.to_string().replace("marker 2", "marker 1").replace("inode=9\n", "");
        let old = Marker::parse(&old).unwrap();
        assert_eq!(old.check(path, FileId { device: 3, inode: 9 }), Err(Foreign::Unnamed));
        assert!(old.explain(path, &Foreign::Unnamed).contains("Restart instance orders-a"));
    }

    #[test]
    fn an_instance_is_found_where_its_runtime_directory_is_mounted() {
        let directory = std::env::temp_dir().join(format!("standfast-mounted-{}", std::process::id()));
        let (here, there) = (directory.join("here"), directory.join("there"));
        std::fs::create_dir_all(&here).unwrap();
        std::fs::create_dir_all(&there).unwrap();
        let marker = Marker { segment: directory.join("host/standfast-x"), ..marker() };
        let seen = |mounted: &[&PathBuf]| {
            let mounted: Vec<PathBuf> = mounted.iter().map(|path| (*path).clone()).collect();
            marker.clone().seen_from(&mounted)
        };
        assert_eq!(seen(&[]), marker, "nothing is mounted elsewhere");
        assert_eq!(marker.sockets(), Path::new("/i"));
        assert_eq!(seen(&[&here, &there]).sockets(), here, "it does not run yet");
        std::fs::write(there.join("standfast-x"), "").unwrap();
        let found = seen(&[&here, &there]);
        assert_eq!((found.sockets(), &found.segment), (there.as_path(), &there.join("standfast-x")));
        std::fs::create_dir_all(directory.join("host")).unwrap();
        std::fs::write(&marker.segment, "").unwrap();
        assert_eq!(seen(&[&here]), marker, "another instance is mounted there");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn too_long_marker_name_means_no_marker() {
        let directory = std::env::temp_dir().join(format!("standfast-long-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let long = directory.join("n".repeat(246));
        std::fs::write(&long, "").unwrap();
        assert!(matches!(Marker::read(&long), Ok(None)));
        let path_too_long = Path::new("/").join("directory/".repeat(500)).join("app.db");
        assert!(matches!(Marker::read(&path_too_long), Ok(None)));
        std::fs::remove_dir_all(directory).unwrap();
    }

    fn marker() -> Marker {
        Marker {
            instance: [1; 16],
            name: "n".into(),
            directory: "/i".into(),
            segment: "/s".into(),
            runtime: None,
            owner: Some(995),
            database: 3,
            path: "/srv/app.db".into(),
            file: Some(FileId { device: 3, inode: 9 }),
        }
    }

    #[test]
    fn file_that_is_not_a_marker_is_refused_without_hanging() {
        let directory = std::env::temp_dir().join(format!("standfast-kinds-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let at = |name: &str| directory.join(name);
        let marker_of = |name: &str| marker_path(&at(name));
        let fifo = std::ffi::CString::new(marker_of("fifo").into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: the name is NUL-terminated.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o666) }, 0);
        let _socket = std::os::unix::net::UnixListener::bind(marker_of("socket")).unwrap();
        std::fs::create_dir(marker_of("directory")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", marker_of("zero")).unwrap();
        std::fs::write(at("another"), marker().to_string()).unwrap();
        std::os::unix::fs::symlink(at("another"), marker_of("link")).unwrap();
        std::os::unix::fs::symlink(at("nowhere"), marker_of("dangling")).unwrap();
        std::fs::File::create(marker_of("huge")).unwrap().set_len(1 << 40).unwrap();
        for name in ["fifo", "socket", "directory", "zero", "link", "dangling", "huge"] {
            let ((reported, heard), path) = (std::sync::mpsc::channel(), at(name));
            std::thread::spawn(move || {
                let _ = reported.send(Marker::read(&path));
            });
            let read = heard.recv_timeout(std::time::Duration::from_secs(60));
            assert!(matches!(read, Ok(Err(MarkerError::Malformed(_)))), "{name}: {read:?}");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn other_users_marker_counts_only_if_they_can_replace_the_file() {
        let directory = std::env::temp_dir().join(format!("standfast-owner-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let database = directory.join("app.db");
        std::fs::write(&database, "").unwrap();
        std::fs::write(marker_path(&database), marker().to_string()).unwrap();
        let set_mode = |mode| {
            std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        set_mode(0o1777);
        assert_eq!(Marker::read(&database).unwrap(), Some(marker()), "of this user");
        let give = |path: &Path, uid| std::os::unix::fs::chown(path, Some(uid), None);
        if give(&marker_path(&database), 60_001).is_err() {
            eprintln!("skipped: files of other users take root");
        } else {
            assert!(matches!(Marker::read(&database), Err(MarkerError::Owner { uid: 60_001 })));
            set_mode(0o770);
            assert_eq!(Marker::read(&database).unwrap(), Some(marker()), "of a service user in the group");
            set_mode(0o1777);
            give(&database, 60_001).unwrap();
            assert_eq!(Marker::read(&database).unwrap(), Some(marker()), "of the database's owner");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn marker_counts_for_its_own_file_at_any_path() {
        let marker = Marker {
            instance: [1; 16],
            name: "n".into(),
            directory: "/i".into(),
            segment: "/s".into(),
            runtime: None,
            owner: None,
            database: 3,
            path: "/srv/app.db".into(),
            file: Some(FileId { device: 3, inode: 9 }),
        };
        let check = |path: &str, device, inode| marker.check(Path::new(path), FileId { device, inode });
        assert_eq!(check("/srv/app.db", 3, 9), Ok(()));
        assert_eq!(check("/moved/app.db", 3, 9), Ok(()), "a directory was renamed, or mounted elsewhere too");
        assert_eq!(check("/srv/app.db", 4, 9), Ok(()), "the machine was restarted");
        assert_eq!(check("/srv/app.db", 3, 8), Err(Foreign::Replaced));
        assert_eq!(check("/copy/app.db", 3, 8), Err(Foreign::Copy));
        assert_eq!(check("/copy/app.db", 4, 9), Err(Foreign::Copy), "on another file system");
    }
}
