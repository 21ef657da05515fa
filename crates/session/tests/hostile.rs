//! What others can do to the shared memory, and what results: nothing is acknowledged, and no process ends.

#![allow(clippy::unwrap_used)]

use standfast_session::{
    DatabaseState, Segment, SegmentConfig, SegmentError, Session, Target, WaitOutcome, Waiters, monotonic_ns,
    own_user, published_path,
};
use std::ffi::CString;
use std::fs::{File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

const INSTANCE: [u8; 16] = [7; 16];
const CONFIG: SegmentConfig =
    SegmentConfig { commit_mode: 0, durable_visibility: false, write_wait_ms: 100, commit_wait_ms: 100 };
const SALTS: [u32; 2] = [11, 12];
/// A user id that no account has.
const OTHER_USER: u32 = 60_001;

/// Shared memory of a test; removed at the end.
struct Memory {
    path: PathBuf,
}

impl Memory {
    fn new(name: &str) -> Memory {
        let path = PathBuf::from(format!("/dev/shm/standfast-test-hostile-{name}-{}", std::process::id()));
        Segment::remove(&path);
        Memory { path }
    }

    fn instance(&self) -> Segment {
        let (segment, _) = Segment::create(&self.path, INSTANCE, 0o600).unwrap();
        segment.set_running(true, &CONFIG);
        segment.set_state(3, DatabaseState::Open);
        segment
    }

    /// Maps it as an application does.
    fn application(&self) -> Segment {
        Segment::open(&self.path, INSTANCE, &[own_user()]).unwrap()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        Segment::remove(&self.path);
    }
}

fn publish(segment: Segment, position: u64) {
    let mut waiters = Waiters::default();
    segment.publish_durable(3, position, &mut waiters, &mut |_, _| {});
    segment.wake(&mut waiters);
}

fn commit(session: Session, frame: u32) -> Target {
    let target = session.position_under_write_lock(SALTS, frame).unwrap();
    session.end_write(true);
    session.notice_commit(false, monotonic_ns(), Some(target));
    target
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    match *state >> 62 {
        0 => u64::MAX,
        1 => 0,
        _ => *state ^ (*state >> 31),
    }
}

/// Overwrites everything, as another process with the rights of an application could.
fn scribble(file: &File, state: &mut u64) {
    let bytes = file.metadata().unwrap().len();
    let words: Vec<u8> = (0..bytes / 8).flat_map(|_| next(state).to_ne_bytes()).collect();
    file.write_all_at(&words, 0).unwrap();
}

#[test]
fn garbage_in_the_requests_acknowledges_no_commit() {
    let memory = Memory::new("words");
    let instance = memory.instance();
    instance.announce_generation(3, SALTS);
    let application = memory.application();
    let file = File::options().write(true).open(&memory.path).unwrap();
    let (over, mut state) = (AtomicBool::new(false), 1);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..8)
            .map(|frame| {
                let (session, over) = (Session::attach(application, 3, 1, 1).unwrap(), &over);
                scope.spawn(move || {
                    let target = commit(session, 100 + frame);
                    let outcome = session.wait_commit(target, &|| true);
                    (over.load(SeqCst), outcome)
                })
            })
            .collect();
        for _ in 0..20 {
            scribble(&file, &mut state);
            // What the instance does meanwhile.
            instance.take_dirty();
            publish(instance, 1 << 32 | 99);
            instance.commit_waiters(3);
            instance.active_sessions();
            instance.reap_dead();
        }
        let all_wait = waiters.iter().all(|waiter| !waiter.is_finished());
        over.store(true, SeqCst);
        // Before any assertion: the scope ends when the waiters do.
        publish(instance, 1 << 32 | 200);
        assert!(all_wait, "acknowledged before it is durable");
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), (true, WaitOutcome::Durable));
        }
    });
}

#[test]
fn commit_is_acknowledged_only_by_its_own_generation() {
    let memory = Memory::new("generations");
    let (instance, application) = (memory.instance(), memory.application());
    let session = Session::attach(application, 3, 1, 1).unwrap();
    instance.announce_generation(3, [1, 2]);
    // The session has reset the WAL, and the instance has captured nothing of that yet.
    let target = session.position_under_write_lock(SALTS, 5).unwrap();
    publish(instance, 1 << 32 | 9_000);
    assert_eq!(session.wait_durable(target, &|| false), WaitOutcome::Unknown);
    // The instance has other files open: the next generation that it finds there is not this one.
    instance.adopt_generation(3, instance.epoch(3), [8, 9]);
    publish(instance, 2 << 32 | 9_000);
    assert_eq!(session.wait_durable(target, &|| true), WaitOutcome::NotReported);
    // Now the next generation is this one.
    let target = session.position_under_write_lock(SALTS, 5).unwrap();
    instance.adopt_generation(3, instance.epoch(3), SALTS);
    publish(instance, 3 << 32 | 5);
    assert_eq!(session.wait_durable(target, &|| true), WaitOutcome::Durable);
}

#[test]
fn commit_with_a_garbage_position_does_not_wait_for_ever() {
    let memory = Memory::new("garbage-position");
    let (instance, application) = (memory.instance(), memory.application());
    let session = Session::attach(application, 3, 1, 1).unwrap();
    let begun = Instant::now();
    // A session that continues to wait ends like one whose instance is gone.
    let alive = || begun.elapsed() < Duration::from_secs(10);
    instance.announce_generation(3, SALTS);
    let path = published_path(&memory.path);
    let file = File::options().write(true).open(&path).unwrap();
    let right = std::fs::read(&path).unwrap();
    let salts: Vec<u8> = SALTS.iter().flat_map(|salt| salt.to_ne_bytes()).collect();
    let at = right.windows(salts.len()).position(|bytes| bytes == salts).unwrap();
    // Other salts stand there for a moment, so that its own generation seems to be the next one.
    file.write_all_at(&[9; 8], at as u64).unwrap();
    let next = session.position_under_write_lock(SALTS, 5).unwrap();
    file.write_all_at(&right, 0).unwrap();
    assert_eq!(session.wait_durable(next, &alive), WaitOutcome::NotReported);
    // A later epoch seems to be its own.
    for salts in [[1, 2], SALTS] {
        instance.announce_generation(3, salts);
    }
    let later = session.position_under_write_lock(SALTS, 5).unwrap();
    file.write_all_at(&right, 0).unwrap();
    assert_eq!(session.wait_durable(later, &alive), WaitOutcome::NotReported);
}

#[test]
fn outdated_wal_header_changes_no_epoch() {
    let memory = Memory::new("stale");
    let instance = memory.instance();
    instance.announce_generation(3, [1, 2]);
    let seen = instance.epoch(3);
    // Another thread resets the WAL before what was found is adopted.
    instance.announce_generation(3, [3, 4]);
    instance.adopt_generation(3, seen, SALTS);
    assert_eq!(instance.epoch(3), (2, [3, 4]));
}

#[test]
fn published_memory_cannot_be_written_by_applications() {
    let memory = Memory::new("read-only");
    let _instance = memory.instance();
    let path = published_path(&memory.path);
    let _application = memory.application();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let accesses: Vec<_> =
        maps.lines().filter(|line| line.ends_with(path.to_str().unwrap())).map(|line| &line[18..]).collect();
    assert!(
        maps.lines().any(|line| line.ends_with(path.to_str().unwrap()) && line.contains(" r--s ")),
        "{accesses:?}"
    );
    // Not even another process of the same user can.
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    let opened = as_user(OTHER_USER, &path, || {
        // SAFETY: a C string.
        unsafe { (libc::open(name.as_ptr(), libc::O_RDWR) >= 0, libc::truncate(name.as_ptr(), 0) == 0) }
    });
    assert_eq!(opened, (false, false));
}

/// Runs `work` in a child process of `user`, which owns the file `path` meanwhile. Returns the result.
fn as_user(user: u32, path: &Path, work: impl FnOnce() -> (bool, bool)) -> (bool, bool) {
    let owner = std::fs::metadata(path).unwrap().uid();
    if own_user() == 0 {
        chown(path, Some(user), None).unwrap();
    }
    // SAFETY: the child makes system calls only, and leaves by _exit.
    let status = unsafe {
        match libc::fork() {
            0 => {
                if libc::geteuid() == 0 && libc::setuid(user) != 0 {
                    libc::_exit(9);
                }
                let (first, second) = work();
                libc::_exit(i32::from(first) | i32::from(second) << 1)
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                status
            }
        }
    };
    if own_user() == 0 {
        chown(path, Some(owner), None).unwrap();
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) < 4, "{status}");
    (libc::WEXITSTATUS(status) & 1 != 0, libc::WEXITSTATUS(status) & 2 != 0)
}

#[test]
fn applications_refuse_a_segment_of_another_user() {
    let memory = Memory::new("other process");
    let instance = memory.instance();
    let published = published_path(&memory.path);
    let open = || Segment::open(&memory.path, INSTANCE, &[own_user()]);
    assert!(open().is_ok());
    std::fs::set_permissions(&published, Permissions::from_mode(0o460)).unwrap();
    assert!(
        matches!(open(), Err(SegmentError::Untrusted { mode: 0o460, .. })),
        "others may have written to it"
    );
    std::fs::set_permissions(&published, Permissions::from_mode(0o440)).unwrap();
    assert!(open().is_ok());
    // It belongs to an instance of this user, and the application expects another one.
    if own_user() != 0 {
        return;
    }
    for path in [&published, &memory.path] {
        chown(path, Some(OTHER_USER), None).unwrap();
        assert!(matches!(open(), Err(SegmentError::Untrusted { .. })), "{}", path.display());
    }
    assert!(Segment::open(&memory.path, INSTANCE, &[OTHER_USER]).is_ok(), "their own instance");
    drop(std::fs::remove_file(&published));
    symlink(memory.path.with_extension("elsewhere"), &published).unwrap();
    assert!(open().is_err());
    let _ = instance;
}

#[test]
fn instance_reuses_only_a_published_file_of_its_own() {
    let memory = Memory::new("before");
    let published = published_path(&memory.path);
    let bytes = {
        let instance = memory.instance();
        publish(instance, u64::MAX);
        std::fs::read(&published).unwrap()
    };
    type Trap<'t> = (&'t str, &'t dyn Fn());
    let lay = || std::fs::write(&published, &bytes).unwrap();
    let traps: [Trap<'_>; 4] = [
        ("writable by others", &|| {
            lay();
            std::fs::set_permissions(&published, Permissions::from_mode(0o620)).unwrap();
        }),
        ("another user's", &|| {
            lay();
            chown(&published, Some(OTHER_USER), None).unwrap();
        }),
        ("with a second name", &|| {
            lay();
            let _ = std::fs::hard_link(&published, memory.path.with_extension("second"));
        }),
        ("a link", &|| {
            std::fs::write(memory.path.with_extension("second"), &bytes).unwrap();
            symlink(memory.path.with_extension("second"), &published).unwrap();
        }),
    ];
    for (what, lay_trap) in traps {
        if own_user() != 0 && what == "another user's" {
            continue;
        }
        let _ = std::fs::remove_file(&published);
        lay_trap();
        let (instance, is_new) = Segment::create(&memory.path, INSTANCE, 0o600).unwrap();
        assert!(is_new && instance.durable(3) == 0, "{what}");
        assert!(std::fs::symlink_metadata(&published).unwrap().is_file(), "{what}");
        let _ = std::fs::remove_file(memory.path.with_extension("second"));
    }
    let (_, is_new) = Segment::create(&memory.path, INSTANCE, 0o600).unwrap();
    assert!(!is_new, "its own it continues with");
}

#[test]
fn directory_where_others_can_replace_files_is_refused() {
    let directory = std::env::temp_dir().join(format!("standfast-open-directory-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let create = |mode| {
        std::fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
        Segment::create(&directory.join("segment"), INSTANCE, 0o600).map(|_| ())
    };
    assert!(matches!(create(0o777), Err(SegmentError::Directory { .. })));
    assert!(create(0o1777).is_ok() && create(0o755).is_ok());
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn truncated_segment_files_end_no_process_and_are_repaired() {
    let memory = Memory::new("truncated");
    let (instance, application) = (memory.instance(), memory.application());
    instance.announce_generation(3, SALTS);
    for (round, path) in [memory.path.clone(), published_path(&memory.path)].into_iter().enumerate() {
        let session = Session::attach(application, 3, 1, 1).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(0).unwrap();
        // Both sides access every page.
        assert!(application.durable(3) < 1 << 32 | 5);
        let target = session.position_under_write_lock(SALTS, 5);
        application.active_sessions();
        session.notice(false);
        instance.take_dirty();
        instance.set_state(3, DatabaseState::Open);
        publish(instance, 1 << 32 | 5);
        if round == 0 {
            assert!(application.is_request_lost() && !session.has_slot() && !application.retired());
            assert_eq!(
                session.wait_durable(target.unwrap(), &|| true),
                WaitOutcome::Durable,
                "it is published"
            );
            assert!(
                application.restore_requests(&memory.path).is_err(),
                "the instance has not made it whole"
            );
        } else {
            assert!(application.retired(), "nothing reports any more what is durable");
        }
        assert!(instance.repair().unwrap().truncated);
        assert!(!instance.repair().unwrap().truncated, "once");
        application.restore_requests(&memory.path).unwrap();
        let again = if round == 0 { application } else { memory.application() };
        let session = Session::attach(again, 3, 1, 1).unwrap();
        assert!(session.has_slot() && again.state(3) == DatabaseState::Open);
        let target = commit(session, 5);
        assert!(instance.has_commit_waiters(3), "the instance sees it");
        assert_eq!(session.wait_commit(target, &|| true), WaitOutcome::Durable);
    }
}

#[test]
fn foreign_changes_to_published_memory_are_repaired_not_trusted() {
    let memory = Memory::new("changed");
    let (instance, application) = (memory.instance(), memory.application());
    instance.announce_generation(3, SALTS);
    publish(instance, 1 << 32 | 5);
    assert_eq!(instance.repair().unwrap().changed_words, 0);
    let path = published_path(&memory.path);
    let file = File::options().write(true).open(&path).unwrap();
    scribble(&file, &mut 3);
    // Not even the header of a segment stays.
    scribble(&File::options().write(true).open(&memory.path).unwrap(), &mut 4);
    assert_eq!((instance.durable(3), instance.epoch(3)), (1 << 32 | 5, (1, SALTS)));
    assert!(instance.repair().unwrap().changed_words > 1_000);
    assert_eq!((application.durable(3), application.epoch(3)), (1 << 32 | 5, (1, SALTS)));
    assert_eq!(instance.repair().unwrap().changed_words, 0);
    // After a start it takes the values from the file, which only its owner can have written.
    assert_eq!(memory.instance().durable(3), 1 << 32 | 5);
}

/// Sessions wait on words that they cannot write.
#[test]
fn thread_can_sleep_on_a_read_only_mapped_word() {
    let path = std::env::temp_dir().join(format!("standfast-futex-{}", std::process::id()));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.set_len(4096).unwrap();
    std::fs::remove_file(&path).unwrap();
    let map = |access| {
        // SAFETY: a shared mapping of a file of that length, at an address that the kernel chooses.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(address, libc::MAP_FAILED);
        // SAFETY: page-aligned, and never unmapped.
        unsafe { &*address.cast::<AtomicU32>() }
    };
    let (read, written) = (map(libc::PROT_READ), map(libc::PROT_READ | libc::PROT_WRITE));
    let (tell, reported) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let time = libc::timespec { tv_sec: 60, tv_nsec: 0 };
            tell.send(()).unwrap();
            let mut woken = 0;
            while read.load(SeqCst) == 0 {
                // SAFETY: a word that is mapped, and a valid time.
                woken = unsafe { libc::syscall(libc::SYS_futex, read.as_ptr(), libc::FUTEX_WAIT, 0, &time) };
                let error = std::io::Error::last_os_error();
                assert!(woken == 0 || error.raw_os_error() == Some(libc::EAGAIN), "{error}");
            }
            woken
        });
        reported.recv().unwrap();
        let wake = || {
            // SAFETY: a word that is mapped.
            unsafe { libc::syscall(libc::SYS_futex, written.as_ptr(), libc::FUTEX_WAKE, 1) }
        };
        // The call returns 1 only when a thread sleeps there: the wake goes from one mapping to the other.
        let end = Instant::now() + Duration::from_secs(60);
        while wake() == 0 {
            assert!(Instant::now() < end, "no thread sleeps");
            std::thread::yield_now();
        }
        written.store(1, SeqCst);
        wake();
        waiter.join().unwrap();
    });
}
