//! Commits acknowledged to applications: a small file, mapped by every application and by the campaign.
//!
//! A store into a shared mapping is immediately in the page cache, so what a thread has recorded survives a `kill -9`
//! of its process at the next instruction. It does not survive a power loss; the simulator covers those
//! ([`crate::power`]).
//!
//! ```text
//! word 0: order (0 run, 1 stop)      words 1..7: unused
//! then 8 words for each (writer, database): acknowledged, attempted, commits, refusals, lost, longest COMMIT in us
//! ```

use crate::{During, Result};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const WORDS_PER_ENTRY: usize = 8;
/// Databases that a writer can write to.
pub const DATABASES_MAX: usize = 4;

pub struct Acknowledgements {
    words: NonNull<AtomicU64>,
    count: usize,
    writers: usize,
}

// SAFETY: only atomics are reached through the pointer, and the mapping lives as long as the value.
unsafe impl Send for Acknowledgements {}
// SAFETY: only atomics are reached through the pointer, and the mapping lives as long as the value.
unsafe impl Sync for Acknowledgements {}

/// What was acknowledged to one writer in one database.
#[derive(Clone, Copy)]
pub struct Entry<'a>(&'a [AtomicU64]);

impl Acknowledgements {
    /// Creates the file at `path` for `writers` writers, with all counters at 0.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path, writers: usize) -> Result<Acknowledgements> {
        let bytes = 8 * WORDS_PER_ENTRY * (1 + writers * DATABASES_MAX);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let sized = file.and_then(|file| file.set_len(bytes as u64));
        sized.during(|| format!("create {}", path.display()))?;
        Acknowledgements::open(path)
    }

    /// Maps the file at `path`.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub fn open(path: &Path) -> Result<Acknowledgements> {
        let during = || format!("map {}", path.display());
        let file = OpenOptions::new().read(true).write(true).open(path).during(during)?;
        let bytes = file.metadata().during(during)?.len() as usize;
        // SAFETY: a new mapping of an open file; the kernel chooses the address.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).during(during);
        }
        let count = bytes / 8;
        let writers = (count / WORDS_PER_ENTRY).saturating_sub(1) / DATABASES_MAX;
        match NonNull::new(address.cast::<AtomicU64>()) {
            Some(words) => Ok(Acknowledgements { words, count, writers }),
            None => Err(std::io::Error::from_raw_os_error(libc::EINVAL)).during(during),
        }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds `count` words, is page-aligned, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }

    pub fn writers(&self) -> usize {
        self.writers
    }

    /// Orders all applications to end after their current transaction, or (`false`) lets them run.
    pub fn order_stop(&self, stop: bool) {
        self.words()[0].store(u64::from(stop), SeqCst);
    }

    /// Whether applications are ordered to end.
    pub fn stop_ordered(&self) -> bool {
        self.words()[0].load(SeqCst) != 0
    }

    /// Returns what was acknowledged to `writer` in `database`.
    ///
    /// # Panics
    /// When there is no such writer or database.
    pub fn entry(&self, writer: usize, database: usize) -> Entry<'_> {
        assert!(writer < self.writers && database < DATABASES_MAX);
        let first = WORDS_PER_ENTRY * (1 + writer * DATABASES_MAX + database);
        Entry(&self.words()[first..first + WORDS_PER_ENTRY])
    }

    /// Commits acknowledged to the writers `from..upto`, in all databases.
    pub fn commits(&self, writers: std::ops::Range<usize>) -> u64 {
        let entries = writers.flat_map(|writer| (0..DATABASES_MAX).map(move |database| (writer, database)));
        entries.map(|(writer, database)| self.entry(writer, database).commits()).sum()
    }
}

impl Drop for Acknowledgements {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `open`; no reference into it can exist any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.count * 8) };
    }
}

impl Entry<'_> {
    /// Records that COMMIT is about to be called for everything up to `sequence`.
    pub fn attempt(self, sequence: u64) {
        self.0[1].fetch_max(sequence, SeqCst);
    }

    /// Records that COMMIT has returned OK for everything up to `sequence`.
    pub fn acknowledge(self, sequence: u64) {
        self.0[0].store(sequence, SeqCst);
        self.0[2].fetch_add(1, SeqCst);
    }

    /// Records that a statement or COMMIT has failed.
    pub fn refuse(self) {
        self.0[3].fetch_add(1, SeqCst);
    }

    /// Records that the writer's newest row is `rows` rows older than its last acknowledged row.
    pub fn report_lost(self, rows: u64) {
        self.0[4].fetch_max(rows, SeqCst);
    }

    /// Records the duration of a COMMIT, whatever its result.
    pub fn waited(self, time: Duration) {
        self.0[5].fetch_max(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), SeqCst);
    }

    pub fn longest_wait(self) -> Duration {
        Duration::from_micros(self.0[5].load(SeqCst))
    }

    pub fn forget_waits(self) {
        self.0[5].store(0, SeqCst);
    }

    /// The newest row whose commit was acknowledged.
    pub fn acknowledged(self) -> u64 {
        self.0[0].load(SeqCst)
    }

    /// The newest row that can be in the database.
    pub fn attempted(self) -> u64 {
        self.0[1].load(SeqCst)
    }

    pub fn commits(self) -> u64 {
        self.0[2].load(SeqCst)
    }

    pub fn refusals(self) -> u64 {
        self.0[3].load(SeqCst)
    }

    /// Rows that the writer itself found missing.
    pub fn lost(self) -> u64 {
        self.0[4].load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_the_file_share_their_entries() {
        let directory = standfast_testkit::TempDir::new("acknowledgements").unwrap();
        let path = directory.join("file");
        let ours = Acknowledgements::create(&path, 3).unwrap();
        let theirs = Acknowledgements::open(&path).unwrap();
        theirs.entry(2, DATABASES_MAX - 1).attempt(8);
        theirs.entry(2, DATABASES_MAX - 1).acknowledge(7);
        let entry = ours.entry(2, DATABASES_MAX - 1);
        assert_eq!((entry.acknowledged(), entry.attempted(), ours.writers()), (7, 8, 3));
        assert_eq!((ours.commits(0..2), ours.commits(0..3)), (0, 1));
        ours.order_stop(true);
        assert!(theirs.stop_ordered());
        theirs.entry(1, 0).waited(Duration::from_millis(3));
        theirs.entry(1, 0).waited(Duration::from_millis(2));
        assert_eq!(ours.entry(1, 0).longest_wait(), Duration::from_millis(3));
        ours.entry(1, 0).forget_waits();
        assert_eq!(theirs.entry(1, 0).longest_wait(), Duration::ZERO);
        assert!(Acknowledgements::create(&path, 3).is_err(), "an old file must not be taken for a new one");
    }
}
