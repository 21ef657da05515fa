//! What acknowledgements say of a standby's times: how long the way there and back is without its writes, and which write was
//! in the way of what was sent meanwhile.

use standfast_instruments::RemoteAnswer;

/// Acknowledgements after which a longer way is believed, as after a change of route.
const FORGET_AFTER: u32 = 1024;

/// Pure; all times in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct RemoteTimes {
    /// Shortest way there and back of late, and of the time since.
    shortest_ns: Option<u64>,
    newer_ns: Option<u64>,
    counted: u32,
    /// Arrival of the newest acknowledgement of a write, and how long that took.
    before: (u64, u64),
}

impl RemoteTimes {
    /// An acknowledgement arrived at `arrived_ns`, `round_trip_ns` after what it acknowledges had been sent; it was
    /// written in `write_ns`, 0 when it was no write.
    pub(crate) fn note(&mut self, arrived_ns: u64, round_trip_ns: u64, write_ns: u64) -> RemoteAnswer {
        let shortest_ns = self.note_way(round_trip_ns.saturating_sub(write_ns));
        let (before_ns, busy_ns) = self.before;
        if write_ns > 0 {
            self.before = (arrived_ns, write_ns);
        }
        let busy_until_ns = before_ns.saturating_sub(shortest_ns);
        RemoteAnswer { arrived_ns, write_ns, busy_until_ns, busy_ns }
    }

    /// Shortest way there and back of late.
    pub(crate) fn shortest_ns(&self) -> Option<u64> {
        self.shortest_ns
    }

    fn note_way(&mut self, way_ns: u64) -> u64 {
        if self.counted == FORGET_AFTER {
            (self.shortest_ns, self.newer_ns, self.counted) = (self.newer_ns, None, 0);
        }
        self.counted += 1;
        self.newer_ns = Some(self.newer_ns.map_or(way_ns, |newer| newer.min(way_ns)));
        let shortest = self.shortest_ns.map_or(way_ns, |shortest| shortest.min(way_ns));
        self.shortest_ns = Some(shortest);
        shortest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_alone_was_there_for_its_write() {
        let mut times = RemoteTimes::default();
        assert_eq!(times.note(11_300, 10_300, 300).held_ns(1_000), 300);
        assert_eq!(times.note(60_400, 10_400, 400).held_ns(50_000), 400, "the one before was long over");
    }

    #[test]
    fn a_batch_that_came_during_the_write_before_waited_for_it() {
        let mut times = RemoteTimes::default();
        times.note(1_100, 1_100, 100);
        assert_eq!(times.shortest_ns(), Some(1_000));
        // Sent at 10,000, there at 10,500, written until 15,500.
        assert_eq!(times.note(16_000, 6_000, 5_000).held_ns(10_000), 5_000);
        // Sent at 11,000, there at 11,500, waits until 15,500, written until 20,500.
        assert_eq!(times.note(21_000, 10_000, 5_000).held_ns(11_000), 9_000);
        // Something later that was written with it came when it was free for longer.
        let answer = times.note(26_000, 15_000, 5_000);
        assert_eq!((answer.held_ns(11_000), answer.held_ns(19_000)), (10_000, 6_000));
    }

    #[test]
    fn a_sign_of_life_is_no_write_in_the_way_and_hides_none() {
        let mut times = RemoteTimes::default();
        times.note(1_000, 1_000, 0);
        times.note(16_000, 6_000, 5_000);
        times.note(16_100, 1_000, 0);
        assert_eq!(times.note(21_000, 10_000, 5_000).held_ns(11_000), 9_000);
    }

    #[test]
    fn a_longer_way_is_believed_after_a_while() {
        let mut times = RemoteTimes::default();
        times.note(1_000, 1_000, 0);
        let mut now = 10_000;
        for _ in 0..2 * FORGET_AFTER {
            times.note(now + 9_100, 9_100, 100);
            now += 20_000;
        }
        assert_eq!(times.shortest_ns(), Some(9_000));
        assert_eq!(times.note(now + 9_200, 9_100, 100).held_ns(now + 100), 100, "the way is as long for all");
    }
}
