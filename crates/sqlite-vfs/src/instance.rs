//! From a marker to the instance: its shared memory, and whether its process lives.
//!
//! A mapping is kept for the life of the process and never unmapped, because sessions hold plain references into it.

use crate::report::shield_with;
use standfast_session::{Marker, Segment, SegmentError, liveness, marker_path};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, Once, PoisonError};

static SEGMENTS: Mutex<Vec<(PathBuf, [u8; 16], Segment)>> = Mutex::new(Vec::new());

/// Returns the shared memory of the instance named by `marker` beside the database `file`. Maps it again when a newer
/// one has replaced it or a process has truncated it.
pub(crate) fn segment(marker: &Marker, file: &Path) -> Result<Segment, SegmentError> {
    let mut segments = SEGMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let of_marker = |path: &Path, instance: &[u8; 16]| path == marker.segment && *instance == marker.instance;
    segments.retain(|(path, instance, segment)| {
        if !of_marker(path, instance) {
            return true;
        }
        segment.check_path(path);
        !segment.retired()
    });
    if let Some((_, _, segment)) = segments.iter().find(|(path, instance, _)| of_marker(path, instance)) {
        segment.restore_requests(&marker.segment)?;
        return Ok(*segment);
    }
    // In a user namespace the user number in the marker is not valid here; the owner of the marker file is.
    let written_by = std::fs::symlink_metadata(marker_path(file)).map(|metadata| metadata.uid());
    let owners: Vec<u32> = marker.owner.into_iter().chain(written_by.ok()).collect();
    let segment = Segment::open(&marker.segment, marker.instance, &owners)?;
    segments.push((marker.segment.clone(), marker.instance, segment));
    Ok(segment)
}

/// Returns whether the instance process lives, by its socket (see [`liveness`]) or, for an instance of an earlier
/// release, by an open-file-description lock on byte 0 of its lock file. Where neither can be checked (no permission),
/// the instance counts as alive; the shared memory still shows a clean shutdown.
///
/// Both are opened at each check, once a second on the commit path. A kept descriptor would not stay the same file: an
/// application that becomes a daemon closes all inherited descriptors and opens others under the same numbers.
pub(crate) fn alive(marker: &Marker) -> bool {
    let sockets = [marker.sockets(), &marker.directory];
    if let Some(alive) = sockets.into_iter().find_map(liveness::probe) {
        return alive;
    }
    match File::open(marker.directory.join("lock")) {
        Ok(file) => locked(&file),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

fn locked(file: &File) -> bool {
    let mut lock = libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open and lock is valid to read and write.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    rc != 0 || lock.l_type != libc::F_UNLCK as libc::c_short
}

/// Returns process number and start time in clock ticks, for display of sessions.
pub(crate) fn this_process() -> (u32, u64) {
    let started = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| start_time(&stat));
    (std::process::id(), started.unwrap_or(0))
}

/// Returns field 22 of `/proc/PID/stat`. The command name in field 2 may contain blanks and parentheses.
fn start_time(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn after_fork() {
    shield_with((), || {
        FORKS.fetch_add(1, SeqCst);
    });
}

/// Returns the number of forks between the first process and this one. A session belongs to the process that attached
/// it; comparing this number costs no system call, unlike getpid.
pub(crate) fn forks() -> u32 {
    FORKS.load(SeqCst)
}

pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only touches an atomic, and the library is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_parsed_after_a_hostile_process_name() {
        let stat = "71 (a) b (1) c) S 1 71 71 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 1";
        assert_eq!(start_time(stat), Some(987_654));
        assert!(this_process().1 > 0);
    }

    #[test]
    fn instance_is_alive_only_while_its_lock_is_held() {
        let directory = std::env::temp_dir().join(format!("standfast-alive-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let marker = Marker {
            instance: [1; 16],
            name: "n".into(),
            directory: directory.clone(),
            segment: "/nowhere".into(),
            runtime: None,
            owner: None,
            database: 0,
            path: "/nowhere.db".into(),
            file: None,
        };
        assert!(!alive(&marker), "no lock file");
        let file = File::create(directory.join("lock")).unwrap();
        assert!(!alive(&marker), "no process holds it");
        let mut lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: an open descriptor and a valid structure.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &mut lock) }, 0);
        assert!(alive(&marker));
        drop(file);
        assert!(!alive(&marker));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
