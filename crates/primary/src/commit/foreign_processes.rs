//! Which processes have a protected database open without the VFS, as the kernel shows in `/proc`: best effort. A
//! process that has closed the file again is not found, and of another user's processes only those that hold a lock are
//! found.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// It has not loaded the extension.
    NoExtension,
    /// It has the extension, but no session of this database: the connection was opened before the extension was loaded
    /// or the database protected. It may also be one that only reads.
    NoSession,
    /// This user may not look at its files; it holds a lock on the database.
    Hidden,
}

/// A process that has the database open and has no session of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForeignProcess {
    pub pid: u32,
    /// Name of the process, at most 15 bytes of it.
    pub name: String,
    pub access: Access,
}

impl ForeignProcess {
    /// Returns the text for the alert log.
    pub fn shown(&self) -> String {
        let why = match self.access {
            Access::NoExtension => "without the extension",
            Access::NoSession => "opened before the extension was loaded or the database protected",
            Access::Hidden => "of another user, holds a lock",
        };
        format!("{} (pid {}, {why})", self.name, self.pid)
    }
}

/// A file as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelFile {
    device: u64,
    inode: u64,
}

impl KernelFile {
    /// Identifies the file at `path`; `None` when there is none.
    pub fn of(path: &Path) -> Option<KernelFile> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(KernelFile { device: metadata.dev(), inode: metadata.ino() })
    }
}

pub struct Wanted {
    pub file: KernelFile,
    /// Processes with a session of it, each by its number in its own PID namespace.
    pub sessions: BTreeSet<u32>,
}

/// Returns the processes that have each of the files open, in the order of `wanted`, without this process. `segment` is
/// the name of the shared memory, which every process with the extension has mapped.
pub fn find(wanted: &[Wanted], segment: &str) -> Vec<Vec<ForeignProcess>> {
    let own = std::process::id();
    let mut found = vec![Vec::new(); wanted.len()];
    let locked = locks(&std::fs::read_to_string("/proc/locks").unwrap_or_default());
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for pid in pids.filter(|pid: &u32| *pid != own) {
        let open = open_files(pid);
        // Read only for a process that has one of the files open.
        let mut extension = None;
        for (at, wanted) in wanted.iter().enumerate() {
            let access = match &open {
                Some(open) if !open.contains(&wanted.file) => continue,
                Some(_) => {
                    let loaded = *extension.get_or_insert_with(|| has_extension(pid, segment));
                    access(loaded, has_session(pid, &wanted.sessions))
                }
                None if locked.get(&pid).is_some_and(|files| files.contains(&wanted.file)) => {
                    (!has_session(pid, &wanted.sessions)).then_some(Access::Hidden)
                }
                None => continue,
            };
            if let Some(access) = access {
                found[at].push(ForeignProcess { pid, name: name_of(pid), access });
            }
        }
    }
    for processes in &mut found {
        processes.sort_by_key(|process| (process.access, process.pid));
    }
    found
}

/// Whether and why a process that has the file open is named. A process with a session is not: which of its connections
/// has none cannot be seen from outside.
fn access(has_extension: bool, has_session: bool) -> Option<Access> {
    match (has_extension, has_session) {
        (false, _) => Some(Access::NoExtension),
        (true, false) => Some(Access::NoSession),
        (true, true) => None,
    }
}

/// Whether one of the numbers of a process, which has one in each of its PID namespaces, is that of a session. Another
/// process in another namespace may have the same number: then a process that should be named is not.
fn has_session(pid: u32, sessions: &BTreeSet<u32>) -> bool {
    let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    sessions.contains(&pid) || own_number(&status()).is_some_and(|number| sessions.contains(&number))
}

/// Reads the number of a process in its own PID namespace from its status file. Pure.
fn own_number(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse().ok()
}

/// Returns the files that a process has open; `None`: this user may not look.
fn open_files(pid: u32) -> Option<BTreeSet<KernelFile>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let files = entries.flatten().filter_map(|entry| {
        // Sockets and the like are not files, and reading the properties of a file elsewhere may take long.
        let target = std::fs::read_link(entry.path()).ok().filter(|target| target.is_absolute())?;
        if target.starts_with("/dev") || target.starts_with("/proc") {
            return None;
        }
        KernelFile::of(&entry.path())
    });
    Some(files.collect())
}

fn has_extension(pid: u32, segment: &str) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps_extension(&maps, segment)
}

/// Whether this is the memory map of a process with the extension, however the extension was loaded. Pure.
fn maps_extension(maps: &str, segment: &str) -> bool {
    maps.lines().filter_map(|line| line.rsplit_once('/')).any(|(_, file)| {
        let file = file.strip_suffix(" (deleted)").unwrap_or(file);
        file.starts_with("libstandfast") || (!segment.is_empty() && file == segment)
    })
}

/// Returns the files on which each process holds a record lock. Pure.
fn locks(text: &str) -> BTreeMap<u32, BTreeSet<KernelFile>> {
    let mut held: BTreeMap<u32, BTreeSet<KernelFile>> = BTreeMap::new();
    for line in text.lines() {
        // 1: POSIX  ADVISORY  READ  1234 08:01:131 1073741826 1073742335; a waiter has `->` after the number.
        let mut words = line.split_whitespace().skip(1);
        if words.next() != Some("POSIX") {
            continue;
        }
        let (Some(pid), Some(file)) = (words.nth(2), words.next()) else { continue };
        let mut parts = file.split(':');
        let hex = |part: Option<&str>| u32::from_str_radix(part?, 16).ok();
        let (Some(major), Some(minor)) = (hex(parts.next()), hex(parts.next())) else { continue };
        let (Ok(pid), Some(Ok(inode))) = (pid.parse(), parts.next().map(str::parse)) else { continue };
        let device = libc::makedev(major, minor);
        held.entry(pid).or_default().insert(KernelFile { device, inode });
    }
    held
}

fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    // A process may call itself anything.
    let name = standfast_types::printable(name.trim_end(), standfast_types::FOREIGN_NAME_MAX);
    if name.is_empty() { "?".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posix_locks_are_parsed_by_process_and_other_lines_ignored() {
        let text = "1: POSIX  ADVISORY  READ  1234 08:01:131 1073741826 1073742335\n\
            2: FLOCK  ADVISORY  WRITE 99 08:01:131 0 EOF\n\
            2: -> POSIX  ADVISORY  WRITE 77 08:01:131 0 EOF\n\
            3: POSIX  ADVISORY  WRITE 1234 fd:0a:7 120 120\n\
            4: POSIX  ADVISORY  READ  -1 00:1b:9 0 EOF\n5: POSIX\n";
        let held = locks(text);
        let file = |major, minor, inode| KernelFile { device: libc::makedev(major, minor), inode };
        assert_eq!(held.keys().copied().collect::<Vec<_>>(), [1234]);
        assert_eq!(held[&1234], BTreeSet::from([file(8, 1, 131), file(0xfd, 10, 7)]));
    }

    #[test]
    fn memory_map_shows_the_extension_however_it_was_loaded() {
        let line = |file: &str| format!("7f00-7f01 r-xp 00000000 08:01 12   {file}\n");
        assert!(maps_extension(&line("/usr/local/lib/standfast/libstandfast.so"), "seg"));
        assert!(maps_extension(&line("/opt/libstandfast_preload.so (deleted)"), "seg"));
        assert!(maps_extension(&line("/dev/shm/seg"), "seg"));
        assert!(!maps_extension(&line("/usr/lib/libsqlite3.so.0"), "seg"));
        assert!(!maps_extension(&line("/srv/libstandfast/app"), ""));
    }

    #[test]
    fn containerised_process_is_identified_by_its_inner_pid() {
        assert_eq!(own_number("Name:\tapp\nPid:\t4242\nNSpid:\t4242\t17\t1\nNSpgid:\t4242\n"), Some(1));
        assert_eq!(own_number("Name:\tapp\nPid:\t4242\nNSpid:\t4242\n"), Some(4242));
        assert_eq!(own_number("Name:\tapp\n"), None);
        let own = std::process::id();
        assert!(has_session(own, &BTreeSet::from([own])) && !has_session(own, &BTreeSet::from([own + 1])));
    }

    #[test]
    fn process_with_a_session_is_not_reported_as_foreign() {
        assert_eq!(access(true, true), None);
        assert_eq!(access(true, false), Some(Access::NoSession));
        assert_eq!(access(false, false), Some(Access::NoExtension));
    }

    #[test]
    fn process_with_the_file_open_is_found_with_its_name() {
        let file = tempfile("foreign-process");
        let wanted = Wanted { file: KernelFile::of(&file).unwrap(), sessions: BTreeSet::new() };
        let open = std::fs::File::open(&file).unwrap();
        let mut child = { std::process::Command::new("sleep").arg("60").stdin(open).spawn().unwrap() };
        let found = find(&[wanted], "seg");
        child.kill().unwrap();
        child.wait().unwrap();
        std::fs::remove_file(&file).unwrap();
        // Before its exec the child has the name of the test.
        let found = found[0].iter().find(|process| process.pid == child.id()).unwrap();
        assert_eq!(found.access, Access::NoExtension);
        assert!(!found.name.is_empty());
    }

    fn tempfile(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("standfast-{name}-{}", std::process::id()));
        std::fs::write(&path, b"x").unwrap();
        path
    }
}
