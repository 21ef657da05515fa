//! When the next scheduled run is due.

/// Whether a scheduled run is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// No date is set, or it is not plausible.
    Unknown,
    Later,
    Due,
}

/// Compares the date with the clock. A date more than one interval away comes from a longer interval or a wrong clock
/// and counts as unknown.
pub(super) fn next_run(due_us: Option<u64>, now_us: u64, every_us: u64) -> Schedule {
    match due_us {
        None => Schedule::Unknown,
        Some(due) if due > now_us + every_us => Schedule::Unknown,
        Some(due) if due > now_us => Schedule::Later,
        Some(_) => Schedule::Due,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verification_begins_one_interval_after_the_first_check() {
        const HOUR: u64 = 3_600_000_000;
        assert_eq!(next_run(None, 1000, HOUR), Schedule::Unknown);
        assert_eq!(next_run(Some(1000 + HOUR), 1000, HOUR), Schedule::Later);
        assert_eq!(next_run(Some(1000), 1000, HOUR), Schedule::Due);
        assert_eq!(next_run(Some(1001 + HOUR), 1000, HOUR), Schedule::Unknown, "the interval was shortened");
    }
}
