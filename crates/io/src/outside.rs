//! Files in directories that other users may write: those of the applications' databases, `/tmp`, whatever `-o` names.
//!
//! Every user with write access to a directory can put a symbolic link, a FIFO or another user's file under any name in
//! it, also between two system calls of this process. So nothing here uses a path twice:
//! - A directory is opened once, component by component. A symbolic link on the way is followed only if root or this
//!   process's user made it. Everything after that uses the descriptor.
//! - A file is created with `O_EXCL | O_NOFOLLOW` and gets its owner and permissions by its descriptor, or it is opened
//!   with `O_NOFOLLOW | O_NONBLOCK` and must turn out to be a regular file.
//! - A file is replaced by renaming, which replaces a link and not what the link leads to.

use crate::FileIdentity;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Number of links followed, as in the kernel.
const LINKS_MAX: u32 = 40;
/// Number of names tried for a file that is renamed later.
const NAMES_MAX: u32 = 100;

/// An open directory: it stays the same one whatever is renamed.
#[derive(Debug)]
pub struct Folder {
    descriptor: OwnedFd,
}

impl Folder {
    /// Opens the directory that contains `path`, and returns it with the name in it.
    ///
    /// # Errors
    /// The error of the system call; `PermissionDenied` for a symbolic link that another user has made; `InvalidInput`
    /// for a path that does not end with a name.
    pub fn of(path: &Path) -> Result<(Folder, &OsStr)> {
        let name = path.file_name().ok_or_else(|| Error::from(ErrorKind::InvalidInput))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok((Folder::open(parent.unwrap_or(Path::new(".")))?, name))
    }

    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// As [`Folder::of`].
    pub fn open(path: &Path) -> Result<Folder> {
        let mut left: VecDeque<OsString> = parts_of(path);
        let mut at = begin(path)?;
        let mut links = 0;
        while let Some(part) = left.pop_front() {
            let name = c_text(&part)?;
            match open_at(&at, &name, libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0) {
                Ok(next) => at = next,
                Err(error) => {
                    let Some(target) = link_at(&at, &name)? else { return Err(error) };
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Error::from_raw_os_error(libc::ELOOP));
                    }
                    if target.is_absolute() {
                        at = begin(&target)?;
                    }
                    for part in parts_of(&target).into_iter().rev() {
                        left.push_front(part);
                    }
                }
            }
        }
        Ok(Folder { descriptor: at })
    }

    /// Creates the file `name`, which must not exist, with the permissions `mode` regardless of the umask.
    ///
    /// # Errors
    /// The error of the system call; `AlreadyExists` when anything has the name, including a dangling link.
    pub fn create_new(&self, name: &OsStr, mode: u32) -> Result<File> {
        const PRIVATE: u32 = 0o600;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let file = File::from(open_at(&self.descriptor, &c_text(name)?, flags, PRIVATE)?);
        if mode != PRIVATE {
            set_mode(&file, mode)?;
        }
        Ok(file)
    }

    /// Opens the regular file `name`, for writing as well if `write`. Never blocks, whatever has the name.
    ///
    /// # Errors
    /// The error of the system call; `InvalidInput` when it is no regular file.
    pub fn open_file(&self, name: &OsStr, write: bool) -> Result<File> {
        let access = if write { libc::O_RDWR } else { libc::O_RDONLY };
        let flags = access | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::from(open_at(&self.descriptor, &c_text(name)?, flags, 0).map_err(say_link)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(not_a_file()) }
    }

    /// Identity of the file with this name; `None` when there is none. A link has its own identity, not its target's.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn identity(&self, name: &OsStr) -> Result<Option<FileIdentity>> {
        let found = self.stat(&c_text(name)?)?;
        Ok(found.map(|found| FileIdentity { device: found.st_dev, inode: found.st_ino }))
    }

    /// Removes what has the name: a link, not its target.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn remove(&self, name: &OsStr) -> Result<()> {
        let name = c_text(name)?;
        // SAFETY: an open descriptor and a text that ends with NUL.
        check(unsafe { libc::unlinkat(self.descriptor.as_raw_fd(), name.as_ptr(), 0) })
    }

    /// Renames a file within the directory, replacing what has the name `to`.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> Result<()> {
        let (from, to, here) = (c_text(from)?, c_text(to)?, self.descriptor.as_raw_fd());
        // SAFETY: open descriptors and texts that end with NUL.
        check(unsafe { libc::renameat(here, from.as_ptr(), here, to.as_ptr()) })
    }

    /// Renames like [`Folder::rename`], but replaces nothing.
    ///
    /// # Errors
    /// The error of the system call; `AlreadyExists` when something has the name `to`.
    pub fn rename_new(&self, from: &OsStr, to: &OsStr) -> Result<()> {
        let (from_text, to_text, here) = (c_text(from)?, c_text(to)?, self.descriptor.as_raw_fd());
        let no_replace = libc::RENAME_NOREPLACE;
        // SAFETY: open descriptors and texts that end with NUL.
        let renamed =
            check(unsafe { libc::renameat2(here, from_text.as_ptr(), here, to_text.as_ptr(), no_replace) });
        match renamed {
            // The file system does not know the flag: whatever comes between the check and the renaming would be
            // replaced.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => match self.identity(to)? {
                Some(_) => Err(ErrorKind::AlreadyExists.into()),
                None => self.rename(from, to),
            },
            other => other,
        }
    }

    /// Replaces what has the name with a file with these bytes, atomically and durably.
    ///
    /// # Errors
    /// The error of the system call; the old content then stays.
    pub fn replace(&self, name: &OsStr, bytes: &[u8], mode: u32) -> Result<()> {
        let (fresh, mut file) = self.create_temporary(name, mode)?;
        let written = file
            .write_all(bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| self.rename(&fresh, name))
            .and_then(|()| self.sync());
        if written.is_err() {
            let _ = self.remove(&fresh);
        }
        written
    }

    /// Creates a file under a unique name that begins with `name`.
    fn create_temporary(&self, name: &OsStr, mode: u32) -> Result<(OsString, File)> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        for _ in 0..NAMES_MAX {
            let mut fresh = name.to_owned();
            fresh.push(format!(".{}-{}.new", std::process::id(), NUMBER.fetch_add(1, Relaxed)));
            match self.create_new(&fresh, mode) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                other => return other.map(|file| (fresh, file)),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Makes the directory's entries durable.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn sync(&self) -> Result<()> {
        File::from(open_at(&self.descriptor, c".", libc::O_RDONLY | libc::O_DIRECTORY, 0)?).sync_all()
    }

    fn stat(&self, name: &CStr) -> Result<Option<libc::stat>> {
        stat_at(&self.descriptor, name)
    }
}

/// Creates the file at `path`, which must not exist, see [`Folder::create_new`].
///
/// # Errors
/// As [`Folder::of`] and [`Folder::create_new`].
pub fn create_new(path: &Path, mode: u32) -> Result<File> {
    let (folder, name) = Folder::of(path)?;
    folder.create_new(name, mode)
}

/// Opens the regular file at `path` for reading, see [`Folder::open_file`].
///
/// # Errors
/// As [`Folder::of`] and [`Folder::open_file`].
pub fn open(path: &Path) -> Result<File> {
    let (folder, name) = Folder::of(path)?;
    folder.open_file(name, false)
}

/// Removes the file at `path`, if there is one.
///
/// # Errors
/// As [`Folder::of`], and the error of the system call.
pub fn remove(path: &Path) -> Result<()> {
    let removed = Folder::of(path).and_then(|(folder, name)| folder.remove(name));
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Renames within one directory, durably, and replaces nothing.
///
/// # Errors
/// As [`Folder::of`] and [`Folder::rename_new`]; `InvalidInput` for two directories.
pub fn rename_new(from: &Path, to: &Path) -> Result<()> {
    let (folder, from, to) = within_one(from, to)?;
    folder.rename_new(from, to)?;
    folder.sync()
}

/// Renames within one directory, durably, replacing what is at `to`.
///
/// # Errors
/// As [`Folder::of`] and [`Folder::rename`]; `InvalidInput` for two directories.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    let (folder, from, to) = within_one(from, to)?;
    folder.rename(from, to)?;
    folder.sync()
}

fn within_one<'a>(from: &'a Path, to: &'a Path) -> Result<(Folder, &'a OsStr, &'a OsStr)> {
    if from.parent() != to.parent() {
        return Err(ErrorKind::InvalidInput.into());
    }
    let (folder, from) = Folder::of(from)?;
    let to = to.file_name().ok_or_else(|| Error::from(ErrorKind::InvalidInput))?;
    Ok((folder, from, to))
}

/// Replaces what is at `path` with a file with these bytes, see [`Folder::replace`].
///
/// # Errors
/// As [`Folder::of`] and [`Folder::replace`].
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let (folder, name) = Folder::of(path)?;
    folder.replace(name, bytes, mode)
}

/// Checks that `path` leads to a regular file through no link that another user made, and returns the file's identity.
/// A caller that then opens the file by its path must compare the identity: the path may have changed meanwhile.
///
/// # Errors
/// As [`Folder::of`]; `PermissionDenied` when the name itself is a link; `InvalidInput` when it is no regular file.
pub fn look(path: &Path) -> Result<FileIdentity> {
    let (folder, name) = Folder::of(path)?;
    let name = c_text(name)?;
    let found = folder.stat(&name)?.ok_or_else(|| Error::from(ErrorKind::NotFound))?;
    match found.st_mode & libc::S_IFMT {
        libc::S_IFREG => Ok(FileIdentity { device: found.st_dev, inode: found.st_ino }),
        libc::S_IFLNK => Err(link_of(found.st_uid)),
        _ => Err(not_a_file()),
    }
}

/// Writes a file that a user has named for the result of a command. Writes to a link, a device or a pipe if root or
/// this user made the path to it (`/dev/stdout`), but not to a regular file of another user.
///
/// # Errors
/// As [`Folder::of`]; `AlreadyExists` for a file that belongs to another user.
pub fn write_result(path: &Path, bytes: &[u8]) -> Result<()> {
    // The umask applies: it is the user's own file.
    const RESULT: u32 = 0o666;
    let (folder, name) = Folder::of(path)?;
    let text = c_text(name)?;
    let flags = libc::O_WRONLY | libc::O_NOCTTY;
    let opened = match folder.stat(&text)? {
        None => open_at(&folder.descriptor, &text, flags | libc::O_CREAT | libc::O_EXCL, RESULT)?,
        Some(found) if found.st_mode & libc::S_IFMT == libc::S_IFLNK => {
            if !is_trusted(found.st_uid) {
                return Err(link_of(found.st_uid));
            }
            open_at(&folder.descriptor, &text, flags, 0)?
        }
        Some(_) => open_at(&folder.descriptor, &text, flags | libc::O_NOFOLLOW, 0).map_err(say_link)?,
    };
    let mut file = File::from(opened);
    let metadata = file.metadata()?;
    if metadata.is_file() {
        if !is_trusted(metadata.uid()) {
            let text = format!("the file belongs to uid {}", metadata.uid());
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        file.set_len(0)?;
    }
    file.write_all(bytes)
}

/// Gives an open file the permissions `mode`.
///
/// # Errors
/// The error of the system call.
pub fn set_mode(file: &File, mode: u32) -> Result<()> {
    // SAFETY: an open descriptor.
    check(unsafe { libc::fchmod(file.as_raw_fd(), mode) })
}

/// Gives an open file to the owner and group of `original`, as far as this process may: only a privileged process may
/// give files away, and any other created the file for itself. Permissions must be set afterwards.
pub fn give_as(file: &File, original: &std::fs::Metadata) {
    // SAFETY: an open descriptor.
    unsafe { libc::fchown(file.as_raw_fd(), original.uid(), original.gid()) };
}

/// Returns whether links of this user are followed.
fn is_trusted(uid: u32) -> bool {
    // SAFETY: has no preconditions.
    uid == 0 || uid == unsafe { libc::geteuid() }
}

fn begin(path: &Path) -> Result<OwnedFd> {
    let start = if path.is_absolute() { c"/" } else { c"." };
    // SAFETY: a text that ends with NUL; a result that is not negative is a new descriptor that nothing else owns.
    unsafe {
        let descriptor = libc::open(start.as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC);
        check(descriptor)?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

fn parts_of(path: &Path) -> VecDeque<OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

/// Returns the target of the link; `None` when it is no link.
fn link_at(at: &OwnedFd, name: &CStr) -> Result<Option<std::path::PathBuf>> {
    // Open the link itself, so that its owner and its target are those of the same link.
    let Ok(link) = open_at(at, name, libc::O_PATH | libc::O_NOFOLLOW, 0) else { return Ok(None) };
    let found = stat_at(&link, c"")?.ok_or_else(|| Error::from(ErrorKind::NotFound))?;
    if found.st_mode & libc::S_IFMT != libc::S_IFLNK {
        return Ok(None);
    }
    if !is_trusted(found.st_uid) {
        return Err(link_of(found.st_uid));
    }
    let mut target = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: an open descriptor, an empty text, and a buffer of the length that is passed.
    let bytes =
        unsafe { libc::readlinkat(link.as_raw_fd(), c"".as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    let bytes = usize::try_from(bytes).map_err(|_| Error::last_os_error())?;
    target.truncate(bytes);
    Ok(Some(OsString::from_vec(target).into()))
}

fn open_at(at: &OwnedFd, name: &CStr, flags: libc::c_int, mode: u32) -> Result<OwnedFd> {
    loop {
        // SAFETY: an open descriptor and a text that ends with NUL; a result that is not negative is a new descriptor
        // that nothing else owns.
        let opened = unsafe {
            let descriptor = libc::openat(at.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC, mode);
            check(descriptor).map(|()| OwnedFd::from_raw_fd(descriptor))
        };
        match opened {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Status of a link itself, or of the descriptor for an empty name; `None` when nothing has the name.
fn stat_at(at: &OwnedFd, name: &CStr) -> Result<Option<libc::stat>> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    // SAFETY: an open descriptor, a text that ends with NUL, and room for the result.
    let rc = unsafe { libc::fstatat(at.as_raw_fd(), name.as_ptr(), found.as_mut_ptr(), flags) };
    match check(rc) {
        // SAFETY: the call succeeded and filled it.
        Ok(()) => Ok(Some(unsafe { found.assume_init() })),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn c_text(name: &OsStr) -> Result<CString> {
    Ok(CString::new(name.as_bytes())?)
}

fn check(result: libc::c_int) -> Result<()> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

fn link_of(uid: u32) -> Error {
    let text = format!("a symbolic link of uid {uid} is in the way, which is not followed");
    Error::new(ErrorKind::PermissionDenied, text)
}

fn not_a_file() -> Error {
    Error::new(ErrorKind::InvalidInput, "it is not a regular file")
}

/// Replaces `ELOOP`, whose text does not say what is wrong here.
fn say_link(error: Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ELOOP) => {
            Error::new(ErrorKind::PermissionDenied, "it is a symbolic link, which is not followed")
        }
        // A socket gives this error.
        Some(libc::ENXIO) => not_a_file(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    /// A user that is neither root nor the one of the tests.
    const OTHER_USER: u32 = 60_001;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path = std::env::temp_dir().join(format!("standfast-outside-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(path.join("app")).unwrap();
            std::fs::write(path.join("secret"), "secret").unwrap();
            Place(path)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn is_untouched(&self) {
            assert_eq!(std::fs::read_to_string(self.at("secret")).unwrap(), "secret");
            assert_eq!(std::fs::metadata(self.at("secret")).unwrap().mode() & 0o777, 0o640);
        }

        /// Creates a link to `secret` that belongs to another user; returns false where that takes root.
        fn with_link(&self, name: &str) -> bool {
            std::fs::set_permissions(self.at("secret"), PermissionsExt::from_mode(0o640)).unwrap();
            symlink(self.at("secret"), self.at(name)).unwrap();
            let given = std::os::unix::fs::lchown(self.at(name), Some(OTHER_USER), None);
            if given.is_err() {
                eprintln!("skipped: links of other users take root");
            }
            given.is_ok()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn symlink_in_place_of_a_file_is_never_written_through() {
        let place = Place::new("final");
        for name in ["app/new", "app/read", "app/result", "app/replaced"] {
            if !place.with_link(name) {
                return;
            }
        }
        let denied = |error: Error| assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        let exists = create_new(&place.at("app/new"), 0o644).unwrap_err();
        assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
        denied(open(&place.at("app/read")).unwrap_err());
        denied(look(&place.at("app/read")).unwrap_err());
        denied(write_result(&place.at("app/result"), b"x").unwrap_err());
        replace(&place.at("app/replaced"), b"marker", 0o644).unwrap();
        let made = std::fs::symlink_metadata(place.at("app/replaced")).unwrap();
        assert!(made.is_file() && made.mode() & 0o777 == 0o644, "the link is gone, the file is there");
        remove(&place.at("app/read")).unwrap();
        place.is_untouched();
    }

    #[test]
    fn directory_symlink_of_another_user_is_refused() {
        let place = Place::new("folder");
        std::fs::create_dir(place.at("elsewhere")).unwrap();
        for (name, is_his) in [("his", true), ("ours", false)] {
            symlink(place.at("elsewhere"), place.at(name)).unwrap();
            if is_his && std::os::unix::fs::lchown(place.at(name), Some(OTHER_USER), None).is_err() {
                eprintln!("skipped: links of other users take root");
                return;
            }
        }
        for outcome in [
            replace(&place.at("his/marker"), b"x", 0o644),
            create_new(&place.at("his/marker"), 0o600).map(drop),
            remove(&place.at("his/marker")),
            write_result(&place.at("his/marker"), b"x"),
        ] {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        replace(&place.at("ours/../ours/./marker"), b"x", 0o644).unwrap();
        assert_eq!(std::fs::read(place.at("elsewhere/marker")).unwrap(), b"x");
    }

    #[test]
    fn opened_directory_stays_the_same_after_a_rename() {
        let place = Place::new("renamed");
        let path = place.at("app/x");
        let (folder, name) = Folder::of(&path).unwrap();
        std::fs::rename(place.at("app"), place.at("away")).unwrap();
        std::fs::create_dir(place.at("app")).unwrap();
        folder.replace(name, b"x", 0o600).unwrap();
        assert!(place.at("away/x").exists() && !path.exists());
    }

    #[test]
    fn nonregular_file_is_refused_without_blocking() {
        let place = Place::new("kinds");
        let fifo = CString::new(place.at("app/fifo").as_os_str().as_bytes()).unwrap();
        // SAFETY: a text that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o666) }, 0);
        let _socket = std::os::unix::net::UnixListener::bind(place.at("app/socket")).unwrap();
        std::fs::create_dir(place.at("app/directory")).unwrap();
        for name in ["app/fifo", "app/socket", "app/directory"] {
            let error = open(&place.at(name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}: {error}");
            assert_eq!(look(&place.at(name)).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        }
    }

    #[test]
    fn rename_does_not_replace_an_existing_name() {
        let place = Place::new("names");
        std::fs::write(place.at("app/a"), "a").unwrap();
        symlink(place.at("nowhere"), place.at("app/dangling")).unwrap();
        let taken = rename_new(&place.at("app/a"), &place.at("app/dangling")).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        rename_new(&place.at("app/a"), &place.at("app/b")).unwrap();
        assert_eq!(std::fs::read(place.at("app/b")).unwrap(), b"a");
        assert!(!place.at("nowhere").exists());
    }

    #[test]
    fn result_is_written_through_the_users_own_symlinks() {
        let place = Place::new("result");
        symlink(place.at("secret"), place.at("app/own")).unwrap();
        write_result(&place.at("app/own"), b"result").unwrap();
        assert_eq!(std::fs::read(place.at("secret")).unwrap(), b"result");
        write_result(&place.at("app/own"), b"new").unwrap();
        assert_eq!(std::fs::read(place.at("secret")).unwrap(), b"new");
        write_result(Path::new("/dev/null"), b"nothing").unwrap();
        write_result(&place.at("app/fresh"), b"fresh").unwrap();
        if std::os::unix::fs::chown(place.at("app/fresh"), Some(OTHER_USER), None).is_ok() {
            let error = write_result(&place.at("app/fresh"), b"x").unwrap_err();
            assert!(error.to_string().contains("belongs to uid 60001"), "{error}");
        }
    }
}
