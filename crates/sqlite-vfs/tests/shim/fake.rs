//! A stand-in for the instance: shared memory, lock file and markers like those of a real one, and a thread that
//! reports as durable whatever the published wal-index shows. It captures nothing.

#![allow(dead_code, reason = "shared by the tests and an example, which use different parts")]
#![allow(clippy::unwrap_used, reason = "the example includes a file of the tests")]

use standfast_session::{
    DatabaseState, FileId, Marker, Segment, SegmentConfig, Waiters, marker_path, own_user,
};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub const CONFIG: SegmentConfig =
    SegmentConfig { commit_mode: 0, durable_visibility: false, write_wait_ms: 50, commit_wait_ms: 100 };

pub struct FakeInstance {
    pub directory: PathBuf,
    pub segment: Segment,
    shared: Arc<Shared>,
    id: [u8; 16],
    thread: Option<JoinHandle<()>>,
    lock: Option<File>,
}

/// How the shared memory was lost.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    Removed,
    OtherRelease,
}

struct Shared {
    segment: Segment,
    /// Notifications are taken but nothing is reported durable.
    hold: AtomicBool,
    stop: AtomicBool,
    /// Number of times that a position was published as durable.
    releases: AtomicU64,
    databases: Mutex<Vec<(u16, Arc<File>)>>,
}

impl FakeInstance {
    /// Starts a fake instance in `directory`, which also holds its shared memory.
    pub fn start(directory: &Path) -> FakeInstance {
        std::fs::create_dir_all(directory).unwrap();
        let id = directory.as_os_str().as_encoded_bytes().iter().rev().fold([7u8; 16], |mut id, byte| {
            id.rotate_left(3);
            id[0] = id[0].wrapping_mul(31).wrapping_add(*byte);
            id
        });
        let (segment, _) = Segment::create(&directory.join("segment"), id, 0o600).unwrap();
        let lock = File::create(directory.join("lock")).unwrap();
        lock_byte_0(&lock);
        segment.set_running(true, &CONFIG);
        let shared = Arc::new(Shared {
            segment,
            hold: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            releases: AtomicU64::new(0),
            databases: Mutex::new(Vec::new()),
        });
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || run(&shared)
        });
        let directory = directory.to_owned();
        FakeInstance { directory, segment, shared, id, thread: Some(thread), lock: Some(lock) }
    }

    /// Returns the marker of the database at `path`, which must exist.
    pub fn marker(&self, path: &Path, number: u16) -> Marker {
        Marker {
            instance: self.id,
            name: "fake".into(),
            directory: self.directory.clone(),
            segment: self.directory.join("segment"),
            runtime: None,
            owner: Some(own_user()),
            database: number,
            path: path.canonicalize().unwrap(),
            file: FileId::of(path),
        }
    }

    /// Protects a WAL database whose `-shm` file exists.
    pub fn protect(&self, path: &Path, number: u16) {
        let mut shm = path.as_os_str().to_owned();
        shm.push("-shm");
        // Never closed: closing any descriptor of the file would drop the locks of this process.
        let shm = Arc::new(File::open(shm).unwrap());
        std::mem::forget(Arc::clone(&shm));
        self.segment.reset_hints(number);
        if let Some((_, salts)) = log_point(&shm) {
            self.segment.announce_generation(number, salts);
        }
        self.shared.databases.lock().unwrap().push((number, shm));
        self.segment.set_state(number, DatabaseState::Open);
        std::fs::write(marker_path(path), self.marker(path, number).to_string()).unwrap();
        self.segment.mark_dirty(number);
        self.segment.ring();
    }

    pub fn hold(&self, hold: bool) {
        self.shared.hold.store(hold, SeqCst);
        for (number, _) in self.shared.databases.lock().unwrap().iter() {
            self.segment.mark_dirty(*number);
        }
        self.segment.ring();
    }

    pub fn releases(&self) -> u64 {
        self.shared.releases.load(SeqCst)
    }

    /// Stops without cleanup, as if killed.
    pub fn kill(&mut self) {
        self.lock = None;
        self.stop_thread();
    }

    /// Dies, and starts again with new shared memory because the old one is unusable.
    pub fn restart_with_new_memory(mut self, loss: Loss, path: &Path, number: u16) -> FakeInstance {
        let segment = self.directory.join("segment");
        let directory = self.directory.clone();
        self.kill();
        match loss {
            Loss::Removed => Segment::remove(&segment),
            Loss::OtherRelease => {
                let file = File::options().write(true).open(&segment).unwrap();
                file.write_all_at(&99u32.to_le_bytes(), 8).unwrap();
            }
        }
        // A killed instance writes nothing more to its shared memory.
        std::mem::forget(self);
        let instance = FakeInstance::start(&directory);
        instance.protect(path, number);
        instance
    }

    fn stop_thread(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.segment.ring();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for FakeInstance {
    fn drop(&mut self) {
        self.segment.set_running(false, &CONFIG);
        self.stop_thread();
    }
}

fn run(shared: &Shared) {
    let segment = shared.segment;
    while !shared.stop.load(SeqCst) {
        let dirty = segment.take_dirty();
        let databases = shared.databases.lock().unwrap().clone();
        for (number, shm) in databases.iter().filter(|(number, _)| dirty.iter().any(|dirty| dirty == *number))
        {
            let seen = segment.epoch(*number);
            if let Some((_, salts)) = log_point(shm).filter(|(frame, now)| *frame > 0 && *now != seen.1) {
                segment.adopt_generation(*number, seen, salts);
            }
        }
        if dirty.is_empty() || shared.hold.load(SeqCst) {
            segment.sleep(Duration::from_millis(if dirty.is_empty() { 1000 } else { 1 }));
            // Notifications taken while held are not lost: releasing the hold marks everything dirty.
            continue;
        }
        for (number, shm) in databases.iter().filter(|(number, _)| dirty.iter().any(|dirty| dirty == *number))
        {
            let (epoch, salts) = segment.epoch(*number);
            match log_point(shm) {
                Some((frame, now)) if now == salts => {
                    segment.set_scn(*number, u64::from(epoch) * 1_000_000 + u64::from(frame));
                    let (position, mut waiters) =
                        (u64::from(epoch) << 32 | u64::from(frame), Waiters::default());
                    segment.publish_durable(*number, position, &mut waiters, &mut |_, _| {});
                    segment.wake(&mut waiters);
                    shared.releases.fetch_add(1, SeqCst);
                }
                // A new generation has begun since: a notification will follow.
                _ => {}
            }
        }
    }
}

/// Last frame and salts of the published wal-index header, once both its copies agree.
fn log_point(shm: &File) -> Option<(u32, [u32; 2])> {
    for _ in 0..1000 {
        let mut header = [0u8; 96];
        shm.read_exact_at(&mut header, 0).ok()?;
        if header[..48] == header[48..] {
            let word =
                |index: usize| u32::from_ne_bytes(header[index * 4..index * 4 + 4].try_into().unwrap());
            return Some((word(4), [word(8), word(9)]));
        }
    }
    None
}

fn lock_byte_0(file: &File) {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: an open descriptor and a valid structure.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &mut lock) };
    assert_eq!(rc, 0, "another instance runs in this directory");
}
