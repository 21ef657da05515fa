//! How current the data of a standby are. The instance publishes for each database a moment at which the primary had
//! acknowledged no commit that is not applied here. Sessions ask for a later moment, and wait for it.
//!
//! Moments are of CLOCK_BOOTTIME, which also counts the time that the machine was suspended. A time namespace shifts that
//! clock, and a start of the machine begins it again: moments of another clock count as unknown.

use crate::futex;
use crate::layout::{PRIMARY_WORDS, Published};
use crate::segment::Segment;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Nanoseconds since the machine was started, suspended time included.
pub fn boot_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time is a valid timespec to write to; CLOCK_BOOTTIME exists in every Linux since 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Identifies the clock of [`boot_ns`]: the time namespace of this process, and the start of the machine. Never 0.
pub(crate) fn clock() -> u64 {
    static FOUND: OnceLock<u64> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        // Where the system has no time namespaces, or does not say, all processes find the same.
        std::fs::metadata("/proc/self/ns/time").map_or(0, |found| found.ino()).hash(&mut hasher);
        std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default().hash(&mut hasher);
        hasher.finish().max(1)
    })
}

/// Stores `name` with zeros after it; a longer one is truncated.
pub(crate) fn store_name(words: &[AtomicU64; PRIMARY_WORDS], name: &str) {
    let mut bytes = [0; PRIMARY_WORDS * 8];
    let length = name.len().min(bytes.len());
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    for (word, bytes) in words.iter().zip(bytes.as_chunks::<8>().0) {
        word.store(u64::from_le_bytes(*bytes), SeqCst);
    }
}

fn name_in(words: &[AtomicU64; PRIMARY_WORDS]) -> Option<String> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(SeqCst).to_le_bytes()).collect();
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    // While it changes, a mixture of two names may be read; only messages contain it.
    let name = String::from_utf8_lossy(name);
    let is_plain = !name.is_empty() && !name.chars().any(char::is_control);
    is_plain.then(|| name.into_owned())
}

/// For the instance.
impl Segment {
    /// Publishes that these databases hold all that the primary had acknowledged at `as_of_ns`, and wakes the sessions that
    /// wait for that.
    pub fn set_current(&self, databases: impl Iterator<Item = u16>, as_of_ns: u64) {
        for database in databases {
            self.publish(|published| {
                published.of(database).current_as_of_ns.fetch_max(as_of_ns, SeqCst);
            });
        }
        let answers = &self.published.settings.answers;
        answers.fetch_add(1, SeqCst);
        futex::wake_all(answers);
    }

    /// Publishes that it is not known how current a database is.
    pub fn forget_current(&self, database: u16) {
        self.publish(|published| published.of(database).current_as_of_ns.store(0, SeqCst));
    }

    /// Publishes the name of the primary that a standby follows; `None`: this is the primary, or it is not known.
    pub fn set_primary(&self, name: Option<&str>) {
        self.publish(|Published { settings, .. }| store_name(&settings.primary, name.unwrap_or_default()));
    }

    /// Publishes whether it is known that no other instance is the primary.
    pub fn set_unconfirmed(&self, unconfirmed: bool) {
        self.publish(|Published { settings, .. }| settings.unconfirmed.store(unconfirmed.into(), SeqCst));
    }

    /// Number of questions so far.
    pub fn questions(&self) -> u32 {
        self.requests.questions.asked.load(SeqCst)
    }

    /// Sleeps until a session has asked how current the data are since this returned `seen`, or
    /// [`Segment::stop_questions`] is called, at most `timeout`. Returns the new count.
    pub fn await_question(&self, seen: u32, timeout: Duration) -> u32 {
        let asked = &self.requests.questions.asked;
        if asked.load(SeqCst) == seen {
            futex::wait(asked, seen, timeout);
        }
        asked.load(SeqCst)
    }

    /// Ends a sleep in [`Segment::await_question`].
    pub fn stop_questions(&self) {
        self.ask_how_current();
    }
}

/// For sessions.
impl Segment {
    /// A moment at which the database held all that the primary had acknowledged, by [`boot_ns`]; `None` when that is not
    /// known, or was measured by another clock.
    pub fn current_as_of(&self, database: u16) -> Option<u64> {
        if !self.shares_clock() {
            return None;
        }
        let as_of_ns = self.truth().of(database).current_as_of_ns.load(SeqCst);
        // Garbage may lie in the future.
        (as_of_ns > 0 && as_of_ns <= boot_ns()).then_some(as_of_ns)
    }

    /// Whether the instance has measured time as this process does.
    pub fn shares_clock(&self) -> bool {
        self.truth().settings.clock.load(SeqCst) == clock()
    }

    /// Whether it is not known that no other instance is the primary.
    pub fn is_unconfirmed(&self) -> bool {
        self.truth().settings.unconfirmed.load(SeqCst) != 0
    }

    /// Asks the instance to find out how current the data are.
    pub fn ask_how_current(&self) {
        let asked = &self.requests.questions.asked;
        asked.fetch_add(1, SeqCst);
        futex::wake_all(asked);
    }

    /// Asks how current the database is until it holds all that was acknowledged at `wanted_ns`, at most until `until_ns`;
    /// both by [`boot_ns`]. Returns whether it does.
    pub fn await_current(&self, database: u16, wanted_ns: u64, until_ns: u64) -> bool {
        let answers = &self.published.settings.answers;
        loop {
            let seen = answers.load(SeqCst);
            if self.current_as_of(database).is_some_and(|as_of_ns| as_of_ns >= wanted_ns) {
                return true;
            }
            let left_ns = until_ns.saturating_sub(boot_ns());
            if left_ns == 0 || self.retired() {
                return false;
            }
            self.ask_how_current();
            futex::wait(answers, seen, Duration::from_nanos(left_ns).min(ASK_AGAIN));
        }
    }

    /// Name of the primary, as a standby knows it.
    pub fn primary(&self) -> Option<String> {
        name_in(&self.truth().settings.primary)
    }
}

/// A question may find the connection to the source lost; the next one may not.
const ASK_AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use std::array;

    #[test]
    fn name_of_the_primary_is_read_as_it_was_stored() {
        let words: [AtomicU64; PRIMARY_WORDS] = array::from_fn(|_| AtomicU64::new(u64::MAX));
        for name in ["p", "paris-07", &"n".repeat(PRIMARY_WORDS * 8)] {
            store_name(&words, name);
            assert_eq!(name_in(&words).as_deref(), Some(name));
        }
        store_name(&words, "");
        assert_eq!(name_in(&words), None);
        store_name(&words, "a\x1b[2J");
        assert_eq!(name_in(&words), None, "control characters");
        words.iter().for_each(|word| word.store(u64::MAX, SeqCst));
        assert!(name_in(&words).is_none_or(|name| !name.contains('\0')), "garbage");
    }
}
