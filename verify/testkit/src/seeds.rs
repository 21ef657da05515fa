//! The seeds that a test runs, and the command that replays one.

use std::ops::Range;

/// Returns the seeds for a test: `0..count`, or `0..$STANDFAST_SEEDS` for a longer or shorter campaign, or only
/// `$STANDFAST_SEED` to replay one.
pub fn seeds(count: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("STANDFAST_SEED"), number("STANDFAST_SEEDS")) {
        (Some(seed), _) => seed..seed.saturating_add(1),
        (None, Some(count)) => 0..count,
        (None, None) => 0..count,
    }
}

/// Returns a line for the message of a failure: the command that runs the same seed again.
pub fn crash_replay_line(seed: u64) -> String {
    let test = std::thread::current().name().unwrap_or("TEST").to_owned();
    format!("replay with: STANDFAST_SEED={seed} cargo test {test} -- --nocapture")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_how_to_replay_it() {
        let line = crash_replay_line(77);
        assert!(line.contains("STANDFAST_SEED=77"), "{line}");
        assert!(line.contains("a_failure_says_how_to_replay_it"), "{line}");
    }
}
