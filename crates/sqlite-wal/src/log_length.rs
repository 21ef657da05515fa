//! How long write-ahead logs may become: what four databases may have is shared when there are more. See
//! `docs/decisions/0028-shared-length-of-logs.md`.

/// No log is reset before it has as many frames as SQLite's own `wal_autocheckpoint` waits for.
pub const FRAMES_MIN: u32 = 1_000;

/// So many logs may be as long as one alone; more share what these may have.
const AT_FULL_LENGTH: u32 = 4;

/// Whether a log of `frames` counts as long: it takes its share, and can be made shorter.
pub fn is_long(frames: u32) -> bool {
    frames >= FRAMES_MIN
}

/// Frames of each of `long` logs, of which one may have `alone`.
pub fn share(alone: u32, long: usize) -> u32 {
    let long = u32::try_from(long).unwrap_or(u32::MAX).max(AT_FULL_LENGTH);
    (alone.saturating_mul(AT_FULL_LENGTH) / long).clamp(FRAMES_MIN.min(alone), alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_logs_share_what_four_may_have_down_to_the_least() {
        assert_eq!(
            [0, 1, 4, 8, 24, 96, 1000].map(|long| share(24_000, long)),
            [24_000, 24_000, 24_000, 12_000, 4_000, 1_000, 1_000]
        );
        assert_eq!(share(120, 40), 120, "who wants shorter ones has them");
        assert!(is_long(share(24_000, 1000)) && !is_long(999));
    }
}
