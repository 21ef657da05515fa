//! The files of an instance, of its databases and of its shared memory, with every operation.

use super::{ACTORS, ARCHIVE, Actor, BACKUP, Host, Table, Tried};
use crate::local_users::{as_user, is_root, row_of};
use crate::support::{beside, segment_of};
use standfast_session::published_path;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// Whether the kernel restricts hard links to files that the user may write.
fn links_are_protected() -> bool {
    fs::read_to_string("/proc/sys/fs/protected_hardlinks").is_ok_and(|text| text.trim() == "1")
}

/// Returns what `actor` can do with a file, in letters: read, write, truncate, unlink, rename (`n`), hard link to it
/// (`h`), put a symbolic link in its place (`s`); `-` for nothing. Every operation is tried and, where it succeeds,
/// undone immediately.
fn operations(path: &Path, kind: fs::FileType, spare: &Path, link: &Path) -> String {
    let open = |write: bool| {
        let mut options = OpenOptions::new();
        options.read(!write).write(write).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path).is_ok()
    };
    let (is_directory, is_file) = (kind.is_dir(), kind.is_file());
    let mut able = String::new();
    let mut add = |letter: char, can: bool| able.extend(can.then_some(letter));
    add('r', if is_directory { fs::read_dir(path).is_ok() } else { open(false) });
    let new = path.join("matrix");
    let makes = || fs::write(&new, "").is_ok() && fs::remove_file(&new).is_ok();
    add('w', if is_directory { makes() } else { open(true) });
    if is_file {
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        let length = fs::metadata(path).map_or(0, |found| found.len());
        // SAFETY: the path is null-terminated. The length stays the same, so no data is lost where it is allowed.
        add('t', unsafe { libc::truncate(name.as_ptr(), length as i64) } == 0);
    }
    let renamed = path.with_extension("matrix");
    let renames = fs::rename(path, &renamed).is_ok();
    if renames {
        fs::rename(&renamed, path).unwrap();
    }
    // Unlinking needs the same permission on the directory as renaming: where a rename succeeded, the file is not
    // removed.
    let unlink = || if is_directory { fs::remove_dir(path) } else { fs::remove_file(path) };
    add('u', renames || unlink().is_ok());
    add('n', renames);
    if !is_directory {
        add('h', fs::hard_link(path, link).is_ok());
    }
    let replaces = || {
        let made = symlink("/etc/passwd", spare).and_then(|()| fs::rename(spare, path)).is_ok();
        let _ = fs::remove_file(spare);
        made
    };
    add('s', renames || replaces());
    if able.is_empty() { "-".to_owned() } else { able }
}

/// Collects everything below a directory, as root sees it.
fn all_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().is_ok_and(|at| at.is_dir()) {
            all_below(&path, found);
        }
        found.push(path);
    }
}

/// Returns all files of the instance with their rows.
fn files(host: &Host) -> Vec<(String, PathBuf)> {
    let directory = &host.south.directory;
    let mut below = Vec::new();
    all_below(directory, &mut below);
    let mut files = vec![(".".to_owned(), directory.clone())];
    // Temporary files: those that are renamed into place, and those of SQLite beside the repository.
    below.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !name.ends_with(".new") && !name.starts_with("repository.db-")
    });
    files.extend(below.into_iter().map(|path| (row_of(path.strip_prefix(directory).unwrap()), path)));
    for suffix in ["", "-wal", "-shm", "-standfast"] {
        files.push((format!("NAME{suffix}"), beside(&host.database, suffix)));
    }
    let segment = segment_of(&host.database);
    files.push(("segment.published".to_owned(), published_path(&segment)));
    let mut in_memory = Vec::new();
    for entry in fs::read_dir("/dev/shm").unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().starts_with(&*segment.to_string_lossy()) {
            in_memory.push(path);
        }
    }
    in_memory.sort();
    assert_eq!(in_memory, [segment.clone(), published_path(&segment)]);
    files.push(("segment".to_owned(), segment));
    files
}

/// The holder of a copy can use its content, and nothing else.
fn in_copy(host: &Host, actor: Actor, path: &Path) -> &'static str {
    let Ok(relative) = path.strip_prefix(&host.south.directory) else { return "-" };
    let (own, relative) = match actor {
        ARCHIVE => match relative.strip_prefix("archive") {
            Ok(below) => (host.directory(actor), below),
            Err(_) => return "-",
        },
        _ => (host.directory(actor), relative),
    };
    let copied = own.join(relative);
    let is_there = copied.symlink_metadata().is_ok_and(|found| !found.file_type().is_socket());
    if is_there { "copy" } else { "-" }
}

#[test]
fn every_file_allows_the_operations_in_the_matrix() {
    if !is_root() {
        return;
    }
    let host = Host::new("matrix-files");
    // An application has the files of SQLite open.
    let mut application = host.place.application(&host.database);
    application.run(crate::support::INSERT);
    let (files, mut tried) = (files(&host), Tried::default());
    for (row, path) in &files {
        // A temporary file such as `control.new` may be gone by now.
        let Ok(found) = path.symlink_metadata() else { continue };
        let kind = found.file_type();
        for actor in ACTORS {
            let found = match actor {
                BACKUP | ARCHIVE => in_copy(&host, actor, path).to_owned(),
                _ => {
                    // On the same file system, in a directory that every user can write.
                    let in_memory = path.starts_with("/dev/shm");
                    let own = if in_memory { PathBuf::from("/dev/shm") } else { host.home(actor) };
                    let names = ["spare", "link"]
                        .map(|name| own.join(format!("matrix-{name}-{}", std::process::id())));
                    let able = as_user(actor.uid, actor.gid, || operations(path, kind, &names[0], &names[1]));
                    // In a directory with the sticky bit, not even the user who made a link to another user's file can
                    // remove it.
                    let _ = fs::remove_file(&names[1]);
                    // The kernel decides that, not the instance.
                    if links_are_protected() { able } else { able.replace('h', "") }
                }
            };
            tried.note(row, actor, found);
        }
    }
    Table::read("files").compare(&tried);
    application.close();
    assert_eq!(host.south.status().unwrap().text("/state"), "open");
}
