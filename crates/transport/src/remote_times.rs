//! The standby's times as acknowledgements show them: the network round trip without its writes, and which write
//! delayed frames that were sent meanwhile.

use crate::gap::Usual;
use standfast_instruments::RemoteAnswer;
use std::time::Duration;

/// Acknowledgements after which a longer round trip is trusted, as after a change of route.
const FORGET_AFTER: u32 = 1024;

/// Time that a standby needs between two writes when it already has the next one.
const BETWEEN_WRITES_NS: u64 = 300_000;

/// Pure; all times in nanoseconds.
#[derive(Debug)]
pub(crate) struct RemoteTimes {
    /// Shortest recent round trip; `newer_ns`: the shortest of the `counted` acknowledgements since.
    shortest_ns: u64,
    newer_ns: u64,
    counted: u32,
    /// When the acknowledgement of the newest write left the standby, and since when the standby had been writing
    /// without a pause. Both are expressed as the time at which something had to be sent here to arrive there then.
    busy: (u64, u64),
    pub(crate) usual: Usual,
}

impl RemoteTimes {
    /// For a connection whose greeting was answered in `greeted_in`: a standby that is busy from its first batch on
    /// never shows the network round trip. The time of the connect does not serve: it may have been to a tunnel on this
    /// host.
    pub(crate) fn new(greeted_in: Duration) -> RemoteTimes {
        let shortest_ns = u64::try_from(greeted_in.as_nanos()).unwrap_or(u64::MAX);
        RemoteTimes { shortest_ns, newer_ns: u64::MAX, counted: 0, busy: (0, 0), usual: Usual::default() }
    }

    /// Records an acknowledgement that arrived at `arrived_ns`, `round_trip_ns` after the frame that it answers was
    /// sent. `write_ns`: time of the standby's write, 0 for none.
    pub(crate) fn note(&mut self, arrived_ns: u64, round_trip_ns: u64, write_ns: u64) -> RemoteAnswer {
        let shortest_ns = self.note_way(round_trip_ns.saturating_sub(write_ns));
        let (busy_until_ns, busy_since_ns) = self.busy;
        if write_ns > 0 {
            let done_ns = arrived_ns.saturating_sub(shortest_ns);
            let begun_ns = done_ns.saturating_sub(write_ns);
            let resumes = begun_ns <= busy_until_ns + BETWEEN_WRITES_NS;
            self.busy = (done_ns, if resumes { busy_since_ns } else { begun_ns });
        }
        // The round trip may have become longer meanwhile.
        let busy_ns = busy_until_ns.saturating_sub(busy_since_ns);
        RemoteAnswer { arrived_ns, write_ns, busy_until_ns, busy_ns }
    }

    /// Shortest recent network round trip.
    pub(crate) fn shortest_ns(&self) -> u64 {
        self.shortest_ns
    }

    fn note_way(&mut self, way_ns: u64) -> u64 {
        if self.counted == FORGET_AFTER {
            (self.shortest_ns, self.newer_ns, self.counted) = (self.newer_ns, u64::MAX, 0);
        }
        self.counted += 1;
        self.newer_ns = self.newer_ns.min(way_ns);
        self.shortest_ns = self.shortest_ns.min(way_ns);
        self.shortest_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// The answer to the greeting says nothing.
    fn far() -> RemoteTimes {
        RemoteTimes::new(Duration::from_secs(1))
    }

    fn note(times: &mut RemoteTimes, arrived_us: u64, round_trip_us: u64, write_us: u64) -> RemoteAnswer {
        times.note(arrived_us * US, round_trip_us * US, write_us * US)
    }

    #[test]
    fn lone_batch_is_held_for_its_write_only() {
        let mut times = far();
        assert_eq!(note(&mut times, 11_300, 10_300, 300).held_ns(1_000 * US), 300 * US);
        let later = note(&mut times, 60_400, 10_400, 400);
        assert_eq!(later.held_ns(50_000 * US), 400 * US, "the one before was long over");
    }

    #[test]
    fn batch_arriving_during_a_write_waits_for_that_write() {
        let mut times = far();
        note(&mut times, 1_100, 1_100, 100);
        assert_eq!(times.shortest_ns(), 1_000 * US);
        // Sent at 10,000, there at 10,500, written until 15,500.
        assert_eq!(note(&mut times, 16_000, 6_000, 5_000).held_ns(10_000 * US), 5_000 * US);
        // Sent at 11,000, there at 11,500, waits until 15,500, written until 20,500.
        assert_eq!(note(&mut times, 21_000, 10_000, 5_000).held_ns(11_000 * US), 9_000 * US);
        // Sent at 11,100, there at 11,600, waits for both writes, written until 25,500 together with something that was
        // sent later.
        let answer = note(&mut times, 26_000, 14_900, 5_000);
        assert_eq!((answer.held_ns(11_100 * US), answer.held_ns(19_000 * US)), (13_900 * US, 6_000 * US));
        // A frame sent before all of that waited only for the writes recorded.
        assert_eq!(answer.held_ns(0), 15_000 * US);
    }

    #[test]
    fn idle_time_between_writes_is_not_counted_as_busy() {
        let mut times = far();
        note(&mut times, 1_100, 1_100, 100);
        note(&mut times, 16_000, 6_000, 5_000);
        // It was idle from 15,500 to 30,500.
        note(&mut times, 36_000, 6_000, 5_000);
        assert_eq!(note(&mut times, 41_000, 10_000, 5_000).held_ns(20_000 * US), 10_000 * US);
    }

    #[test]
    fn network_time_is_known_for_a_standby_that_is_never_idle() {
        let mut times = RemoteTimes::new(Duration::from_micros(1_000));
        // Each is sent 2,000 before the previous one is written.
        note(&mut times, 16_000, 6_000, 5_000);
        for n in 1..100 {
            let arrived = 16_000 + 5_000 * n;
            let held = note(&mut times, arrived, 8_000, 5_000).held_ns((arrived - 8_000) * US);
            assert_eq!(held, 7_000 * US);
        }
    }

    #[test]
    fn heartbeat_is_not_a_write_and_hides_no_write() {
        let mut times = far();
        note(&mut times, 1_000, 1_000, 0);
        note(&mut times, 16_000, 6_000, 5_000);
        note(&mut times, 16_100, 1_000, 0);
        assert_eq!(note(&mut times, 21_000, 10_000, 5_000).held_ns(11_000 * US), 9_000 * US);
    }

    #[test]
    fn longer_network_time_is_accepted_after_a_while() {
        let mut times = far();
        note(&mut times, 1_000, 1_000, 0);
        let mut now = 10_000;
        for _ in 0..2 * FORGET_AFTER {
            note(&mut times, now + 9_100, 9_100, 100);
            now += 20_000;
        }
        assert_eq!(times.shortest_ns(), 9_000 * US);
        let held = note(&mut times, now + 9_200, 9_100, 100).held_ns((now + 100) * US);
        assert_eq!(held, 100 * US, "the way is as long for all");
    }
}
