//! How long a standby had the redo: its write, and what was in the way before.
//!
//! A standby writes one batch after the other. What arrives there while it writes waits, and that is its time, not the
//! link's. It can be told without comparing clocks: the acknowledgement of the batch before left there half a round
//! trip before it arrived here, and this batch arrived there half a round trip after it was sent.

/// Acknowledgements after which a longer way is believed, as after a change of route.
const FORGET_AFTER: u32 = 1024;

/// Pure; all times in microseconds of one clock.
#[derive(Debug, Default)]
pub(crate) struct RemoteTimes {
    /// Shortest way there and back of late, and of the time since.
    shortest_us: Option<u64>,
    newer_us: Option<u64>,
    counted: u32,
    /// Arrival of the acknowledgement before, and the write that it told of.
    before: Option<(u64, u64)>,
}

impl RemoteTimes {
    /// An acknowledgement arrived at `arrived_us` of what was sent at `sent_us`, and written in `write_us`. Returns for how
    /// long the standby had it.
    pub(crate) fn note(&mut self, sent_us: u64, arrived_us: u64, write_us: u64) -> u64 {
        let whole = arrived_us.saturating_sub(sent_us);
        let way = whole.saturating_sub(write_us);
        let shortest = self.note_way(way);
        let queued = self.before.map_or(0, |(before_us, before_write_us)| {
            before_us.saturating_sub(sent_us).saturating_sub(shortest).min(before_write_us)
        });
        self.before = Some((arrived_us, write_us));
        (write_us + queued).min(whole)
    }

    /// Shortest way there and back of late.
    pub(crate) fn shortest_us(&self) -> Option<u64> {
        self.shortest_us
    }

    fn note_way(&mut self, way_us: u64) -> u64 {
        if self.counted == FORGET_AFTER {
            (self.shortest_us, self.newer_us, self.counted) = (self.newer_us, None, 0);
        }
        self.counted += 1;
        self.newer_us = Some(self.newer_us.map_or(way_us, |newer| newer.min(way_us)));
        let shortest = self.shortest_us.map_or(way_us, |shortest| shortest.min(way_us));
        self.shortest_us = Some(shortest);
        shortest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_alone_was_there_for_its_write() {
        let mut times = RemoteTimes::default();
        assert_eq!(times.note(1_000, 11_300, 300), 300);
        assert_eq!(times.note(50_000, 60_400, 400), 400, "the one before was long over");
    }

    #[test]
    fn a_batch_that_came_during_the_write_before_waited_for_it() {
        let mut times = RemoteTimes::default();
        times.note(0, 1_100, 100);
        assert_eq!(times.shortest_us(), Some(1_000));
        // Sent at 10,000, there at 10,500, written until 15,500.
        assert_eq!(times.note(10_000, 16_000, 5_000), 5_000);
        // Sent at 11,000, there at 11,500, waits until 15,500, written until 20,500.
        assert_eq!(times.note(11_000, 21_000, 5_000), 9_000);
        // No wait is longer than the write that was in the way.
        assert_eq!(times.note(11_000, 26_000, 5_000), 10_000);
    }

    #[test]
    fn a_longer_way_is_believed_after_a_while() {
        let mut times = RemoteTimes::default();
        times.note(0, 1_000, 0);
        let mut now = 10_000;
        for _ in 0..2 * FORGET_AFTER {
            times.note(now, now + 9_100, 100);
            now += 20_000;
        }
        assert_eq!(times.note(now, now + 9_100, 100), 100);
        assert_eq!(times.note(now + 100, now + 9_200, 100), 100, "the way is as long for all");
    }

    #[test]
    fn a_clock_that_steps_back_makes_no_time() {
        let mut times = RemoteTimes::default();
        times.note(5_000, 6_000, 10);
        assert_eq!(times.note(9_000, 8_000, 500), 0);
    }
}
