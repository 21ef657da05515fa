//! Which sessions live, by their locks: across processes, forks and namespaces, and whatever the shared memory holds.

#![allow(clippy::unwrap_used)]

use standfast_session::{AttachError, SESSIONS_MAX, Segment, Session, own_user};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const INSTANCE: [u8; 16] = [7; 16];
/// Tells this program, started again, that it is an application, and the path of the shared memory.
const APPLICATION: &str = "STANDFAST_TEST_APPLICATION";
const READY: &str = "the application is ready";
/// Offset of the locks of slots.
const LOCKS_AT: i64 = 1 << 40;

/// Shared memory of a test; removed at the end.
struct Memory {
    path: PathBuf,
    instance: Segment,
}

impl Memory {
    fn new(name: &str) -> Memory {
        let path = PathBuf::from(format!("/dev/shm/standfast-test-alive-{name}-{}", std::process::id()));
        Segment::remove(&path);
        let (instance, _) = Segment::create(&path, INSTANCE, 0o600).unwrap();
        Memory { path, instance }
    }

    fn sessions(&self) -> usize {
        self.instance.sessions().count()
    }

    /// Starts this program again, in the test of this name, where it plays an application. `wrapper` starts it.
    fn application(&self, test: &str, wrapper: &[&str]) -> Application {
        let program = std::env::current_exe().unwrap();
        let words = wrapper.iter().map(|word| (*word).to_owned()).chain([program.display().to_string()]);
        let mut words = words.collect::<Vec<_>>().into_iter();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).args(["--exact", test, "--nocapture"]).env(APPLICATION, &self.path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = printed.any(|line| line.unwrap().ends_with(READY));
        Application(child, is_ready)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        Segment::remove(&self.path);
    }
}

/// A process with a session, and whether it reported that it has one.
struct Application(Child, bool);

impl Application {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(path: &Path) -> Segment {
    // In another user namespace the user numbers differ.
    let owners = [own_user(), std::fs::metadata(path).unwrap().uid()];
    Segment::open(path, INSTANCE, &owners).unwrap()
}

/// If this program is the application of a test: takes a session, and keeps it until its standard input ends.
fn be_application(also: impl FnOnce()) {
    let Some(path) = std::env::var_os(APPLICATION) else { return };
    let session = Session::attach(open(Path::new(&path)), 3, std::process::id(), 1).unwrap();
    also();
    println!("{READY}");
    await_end();
    assert!(session.has_slot());
    std::process::exit(0);
}

fn await_end() {
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_session_counts_until_its_process_ends_whatever_is_written() {
    be_application(|| {});
    let memory = Memory::new("written");
    let test = "a_session_counts_until_its_process_ends_whatever_is_written";
    let mut applications = [(); 2].map(|()| memory.application(test, &[]));
    assert!(applications.iter().all(|application| application.1));
    let numbers: Vec<u32> = memory.instance.sessions().map(|session| session.1).collect();
    assert_eq!(numbers, [applications[0].0.id(), applications[1].0.id()]);
    assert_eq!(memory.instance.reap_dead(), 0);
    // Neither the number of no process nor a missing one is a death.
    let file = File::options().write(true).open(&memory.path).unwrap();
    for garbage in [0xff, 0x00] {
        let length = file.metadata().unwrap().size() as usize;
        file.write_all_at(&vec![garbage; length], 0).unwrap();
        // Which slots were ever taken is a hint too; a session that takes a slot writes it again.
        let other = Session::attach(memory.instance, 3, 1, 1).unwrap();
        assert_eq!(memory.sessions(), 3);
        memory.instance.reap_dead();
        assert_eq!(memory.sessions(), 3);
        other.detach();
    }
    applications[0].kill();
    let other = Session::attach(memory.instance, 3, 1, 1).unwrap();
    assert_eq!(memory.sessions(), 2, "one has died, one is new");
    other.detach();
}

#[test]
fn a_session_dies_with_its_process_though_a_child_lives() {
    be_application(|| {
        let (mut lives, child_lives) = std::io::pipe().unwrap();
        // SAFETY: the child only writes and waits.
        if unsafe { libc::fork() } == 0 {
            (&child_lives).write_all(b".").unwrap();
            await_end();
            std::process::exit(0);
        }
        // The child closes what it inherited once it runs. Until then the session counts.
        lives.read_exact(&mut [0]).unwrap();
    });
    let memory = Memory::new("child");
    let mut application = memory.application("a_session_dies_with_its_process_though_a_child_lives", &[]);
    assert!(application.1);
    assert_eq!(memory.sessions(), 1);
    // The child has the other end of the pipe as well, and lives.
    let input = application.0.stdin.take();
    application.kill();
    assert_eq!(memory.sessions(), 0);
    assert_eq!(memory.instance.reap_dead(), 1);
    drop(input);
}

#[test]
fn sessions_of_other_namespaces_count_until_they_end() {
    be_application(|| {});
    let memory = Memory::new("namespaces");
    let test = "sessions_of_other_namespaces_count_until_they_end";
    let wrapper =
        ["unshare", "--user", "--map-root-user", "--pid", "--mount", "--net", "--fork", "--kill-child"];
    if own_user() != 0
        || !Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").status().is_ok_and(|it| it.success())
    {
        eprintln!("skipped: namespaces take root, and a kernel that allows them");
        return;
    }
    let mut applications = [(); 2].map(|()| memory.application(test, &wrapper));
    assert!(applications.iter().all(|application| application.1));
    let numbers: Vec<u32> = memory.instance.sessions().map(|session| session.1).collect();
    assert_eq!(numbers, [1, 1], "each is the first process of its namespace");
    assert_eq!(memory.instance.reap_dead(), 0);
    // It ends by itself, and its process number is in use here: by init.
    drop(applications[0].0.stdin.take());
    applications[0].0.wait().unwrap();
    assert_eq!((memory.sessions(), memory.instance.reap_dead()), (1, 1));
    drop(applications[1].0.stdin.take());
    applications[1].0.wait().unwrap();
    assert_eq!((memory.sessions(), memory.instance.reap_dead()), (0, 1));
}

/// Takes all locks that it can, as an application may, or releases them.
fn lock_all(file: &File, kind: libc::c_int) -> usize {
    let lock = |slot: i64| {
        let lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: LOCKS_AT + slot,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: an open file and a valid structure.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) == 0 }
    };
    (0..SESSIONS_MAX as i64).filter(|slot| lock(*slot)).count()
}

#[test]
fn a_process_that_locks_all_slots_ends_no_session() {
    let memory = Memory::new("wasted");
    let session = Session::attach(open(&memory.path), 3, 1, 1).unwrap();
    let hostile = File::options().read(true).write(true).open(&memory.path).unwrap();
    assert_eq!(lock_all(&hostile, libc::F_WRLCK), SESSIONS_MAX - 1, "but that of the session");
    assert!(matches!(Session::attach(memory.instance, 3, 1, 1), Err(AttachError::Full)));
    assert!(session.has_slot());
    assert_eq!(memory.instance.reap_dead(), 0);
    // Not by closing the file: a process that another test starts has it open, too, until it runs its program.
    lock_all(&hostile, libc::F_UNLCK);
    assert_eq!(memory.sessions(), 1);
    assert!(Session::attach(memory.instance, 3, 1, 1).is_ok());
}

#[test]
fn session_that_lost_its_descriptor_takes_another_slot() {
    if std::env::var_os(APPLICATION).is_none() {
        let memory = Memory::new("descriptor");
        let test = "session_that_lost_its_descriptor_takes_another_slot";
        let mut application = memory.application(test, &[]);
        assert!(application.1);
        assert_eq!(memory.sessions(), 1, "the new one");
        application.kill();
        assert_eq!(memory.sessions(), 0);
        return;
    }
    let path = PathBuf::from(std::env::var_os(APPLICATION).unwrap());
    let segment = open(&path);
    let session = Session::attach(segment, 3, 1, 1).unwrap();
    // SAFETY: closes descriptors by number; nothing here uses those of the test harness any more.
    unsafe { (3..100).for_each(|descriptor| _ = libc::close(descriptor)) };
    let others: Vec<_> = (0..50).map(|_| File::open("/dev/null").unwrap()).collect();
    segment.check_path(&path);
    assert!(!session.has_slot());
    session.detach();
    let again = Session::attach(segment, 3, 1, 1).unwrap();
    assert!(again.has_slot() && others.iter().all(|other| other.metadata().is_ok()), "none was closed");
    println!("{READY}");
    await_end();
}
