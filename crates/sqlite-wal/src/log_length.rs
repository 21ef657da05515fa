//! How long WALs may become: when there are many, they share the length that a few may have. See
//! `docs/decisions/0028-shared-length-of-logs.md`.

use standfast_io::memory::physical_bytes;
use std::sync::OnceLock;

/// No WAL is reset before it has as many frames as SQLite's own `wal_autocheckpoint` waits for.
pub const FRAMES_MIN: u32 = 1_000;

/// On any machine this many WALs may be as long as a single one; more of them share that total.
const AT_FULL_LENGTH_LEAST: u32 = 4;

/// The same number on a machine with much memory.
const AT_FULL_LENGTH_MOST: u32 = 16;

/// Memory of a machine per WAL at full length, bytes. Most of a WAL is not handed to the disk, but left in the page
/// cache. Linux begins to write that by itself, all of it immediately, when a tenth of the memory is dirty
/// (`vm.dirty_background_ratio`). A WAL of 24,000 frames of 4,096 bytes is a thirtieth of this.
const MEMORY_PER_LOG: u64 = 30 * 24_000 * 4_096;

/// Whether a WAL of `frames` counts as long: it takes its share, and can be made shorter.
pub fn is_long(frames: u32) -> bool {
    frames >= FRAMES_MIN
}

/// Frames that each of `long` WALs may have on this machine, when a single one may have `alone`.
pub fn share(alone: u32, long: usize) -> u32 {
    static AT_FULL_LENGTH: OnceLock<u32> = OnceLock::new();
    share_of(alone, long, *AT_FULL_LENGTH.get_or_init(|| at_full_length(physical_bytes())))
}

fn at_full_length(memory_bytes: u64) -> u32 {
    let logs = u32::try_from(memory_bytes / MEMORY_PER_LOG).unwrap_or(u32::MAX);
    logs.clamp(AT_FULL_LENGTH_LEAST, AT_FULL_LENGTH_MOST)
}

fn share_of(alone: u32, long: usize, at_full_length: u32) -> u32 {
    let long = u32::try_from(long).unwrap_or(u32::MAX).max(at_full_length);
    (alone.saturating_mul(at_full_length) / long).clamp(FRAMES_MIN.min(alone), alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_wals_share_the_total_length_down_to_a_minimum() {
        assert_eq!(
            [0, 1, 4, 8, 24, 96, 1000].map(|long| share_of(24_000, long, 4)),
            [24_000, 24_000, 24_000, 12_000, 4_000, 1_000, 1_000]
        );
        assert_eq!([4, 8, 16, 40].map(|long| share_of(24_000, long, 8)), [24_000, 24_000, 12_000, 4_800]);
        assert_eq!(share_of(120, 40, 8), 120, "who wants shorter ones has them");
        assert!(is_long(share(24_000, 1000)) && !is_long(999));
    }

    #[test]
    fn more_memory_allows_more_wals_of_full_length() {
        const GIB: u64 = 1 << 30;
        let logs = [0, 4, 8, 16, 24, 32, 48, 1 << 20].map(|gib| at_full_length(gib * GIB));
        assert_eq!(logs, [4, 4, 4, 5, 8, 11, 16, 16]);
        let [least, most] = [4, 16].map(|logs| share_of(24_000, 40, logs));
        assert!((least..=most).contains(&share(24_000, 40)));
    }
}
