//! A gap: redo that a standby lacks in whole archived logs. It comes over separate connections, while the stream
//! continues beyond it. Pure.
//!
//! ```text
//!  standby's end              gap                  stream continues here
//!        │<──────────────────────────────────────────────────>│
//!  ───┬──┴──────┬───────────────┬───────────────┬─────────────┴──────
//!     │ log s   │ log s+1       │ ...           │ log t
//!     └── archived logs, fetched in units over several connections ──┘
//! ```

mod pace;
mod units;

pub use pace::{Pace, Usual};
pub use units::{Unit, Units, UnitsProgress};

use serde::{Deserialize, Serialize};
use standfast_types::{IncarnationId, IncarnationNo, Scn};

/// Most logs of one gap. The stream continues after them; redo that is still missing then is the next gap.
pub const GAP_LOGS_MAX: usize = 10_000;
pub const UNIT_BYTES_MIN: u64 = 64 * 1024;
pub const UNIT_BYTES_MAX: u64 = 1 << 30;

/// An archived log, as both ends identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedLogInfo {
    /// Number of its incarnation.
    pub incarnation: IncarnationNo,
    pub incarnation_id: IncarnationId,
    pub sequence: u64,
    /// Position of its first byte.
    pub first_scn: Scn,
    /// Position after its last byte.
    pub next_scn: Scn,
    /// Bytes of its file: the header and whole blocks.
    pub bytes: u64,
    /// Running checksum of the stream before its first byte.
    pub crc: u32,
}

/// A gap, from the end of the redo held to the first position of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// End of the redo that the standby holds.
    pub from: Scn,
    /// First position of the stream: the begin of a log.
    pub to: Scn,
    pub crc: u32,
    /// The archived logs that hold the missing redo, in order.
    pub logs: Vec<ArchivedLogInfo>,
    /// Bytes per request.
    pub unit_bytes: u64,
    /// Most connections that work on one log.
    pub per_log: u32,
    pub connections: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapSettings {
    /// Connections at a time for all logs (`archive_processes`); 0: gaps are left to the stream.
    pub connections: u32,
    /// Connections at a time for one log (`max_connections`).
    pub per_log: u32,
    pub unit_bytes: u64,
}

impl Default for GapSettings {
    fn default() -> Self {
        GapSettings { connections: 4, per_log: 1, unit_bytes: 10 << 20 }
    }
}

impl Gap {
    /// Returns the gap of a standby that holds redo up to `from`, if it is worth separate connections. `chain` are
    /// archived logs in order, the first of which contains `from`; `end_crc` is the running checksum after the last of
    /// them.
    ///
    /// A gap is worth them when at least two connections have work and the logs to transfer are at most twice the
    /// missing bytes plus one unit: the rest of a log that is mostly there comes sooner over the stream.
    pub fn find(from: Scn, chain: &[ArchivedLogInfo], end_crc: u32, settings: &GapSettings) -> Option<Gap> {
        let mut logs: Vec<_> = chain.iter().filter(|log| log.next_scn > from).copied().collect();
        let mut crc = end_crc;
        if logs.len() > GAP_LOGS_MAX {
            crc = logs[GAP_LOGS_MAX].crc;
            logs.truncate(GAP_LOGS_MAX);
        }
        let to = logs.last()?.next_scn;
        let units = |log: &ArchivedLogInfo| log.bytes.div_ceil(settings.unit_bytes);
        let usable: u64 = logs.iter().map(|log| units(log).min(u64::from(settings.per_log))).sum();
        let transferred: u64 = logs.iter().map(|log| log.bytes).sum();
        let missing = to.bytes_since(from);
        let connections = usable.min(u64::from(settings.connections)) as u32;
        if connections < 2 || transferred > 2 * missing + settings.unit_bytes {
            return None;
        }
        let GapSettings { unit_bytes, per_log, .. } = *settings;
        let gap = Gap { from, to, crc, logs, unit_bytes, per_log, connections };
        gap.check(from).is_ok().then_some(gap)
    }

    /// Checks a gap that a primary has announced to a standby that holds redo up to `end`.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self, end: Scn) -> Result<(), &'static str> {
        if self.from != end || self.to <= self.from {
            return Err("it does not begin where the redo ends that is held");
        }
        if self.logs.len() > GAP_LOGS_MAX || self.per_log == 0 {
            return Err("more logs, or fewer connections, than there may be");
        }
        if !(UNIT_BYTES_MIN..=UNIT_BYTES_MAX).contains(&self.unit_bytes)
            || !self.unit_bytes.is_multiple_of(4096)
        {
            return Err("units of a size that there may not be");
        }
        let mut at = self.from;
        for (index, log) in self.logs.iter().enumerate() {
            let begins = if index == 0 { log.first_scn <= at } else { log.first_scn == at };
            if !begins || log.next_scn <= at {
                return Err("its logs do not follow each other");
            }
            let payload = log.next_scn.bytes_since(log.first_scn);
            // A block has 512 bytes, 48 of them header; one more block holds the file header.
            if log.bytes <= payload || log.bytes > payload / 4 * 5 + (1 << 16) || log.bytes % 512 != 0 {
                return Err("a log with more or fewer bytes than its redo can have");
            }
            at = log.next_scn;
        }
        (at == self.to).then_some(()).ok_or("its logs do not lead to where the stream continues")
    }

    /// Sequence of the first missing log.
    pub fn low_sequence(&self) -> u64 {
        self.logs.first().map_or(0, |log| log.sequence)
    }

    /// Sequence of the last missing log.
    pub fn high_sequence(&self) -> u64 {
        self.logs.last().map_or(0, |log| log.sequence)
    }

    /// Bytes of the files of all its logs.
    pub fn bytes(&self) -> u64 {
        self.logs.iter().map(|log| log.bytes).sum()
    }
}

/// A gap while it is resolved, for status output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapStatus {
    /// Sequence of the first missing log.
    pub low_sequence: u64,
    /// Sequence of the last missing log.
    pub high_sequence: u64,
    /// End of the redo held when the gap was found.
    pub from: Scn,
    /// First position of the stream beyond the gap.
    pub to: Scn,
    /// Bytes of its archived logs.
    pub bytes: u64,
    /// Bytes not transferred yet.
    pub bytes_left: u64,
    pub connections: u32,
}

/// Redo that a standby has discarded because the gap before it was not filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// End of the redo that is held without a gap.
    pub end: Scn,
    pub to: Scn,
    /// End of the redo that was held beyond the gap.
    pub received: Scn,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(count: u64, payload: u64) -> Vec<ArchivedLogInfo> {
        let log = |index: u64| ArchivedLogInfo {
            incarnation: 1,
            incarnation_id: IncarnationId([1; 8]),
            sequence: 10 + index,
            first_scn: Scn(4096 + index * payload),
            next_scn: Scn(4096 + (index + 1) * payload),
            bytes: (payload + payload / 50).next_multiple_of(4096) + 4096,
            crc: index as u32,
        };
        (0..count).map(log).collect()
    }

    const LOG: u64 = 64 << 20;

    fn found(from: u64, count: u64, connections: u32, per_log: u32) -> Option<Gap> {
        let settings = GapSettings { connections, per_log, unit_bytes: 10 << 20 };
        Gap::find(Scn(from), &logs(count, LOG), 77, &settings)
    }

    #[test]
    fn gap_gets_its_own_connections_when_two_of_them_have_work() {
        let gap = found(5000, 3, 4, 1).unwrap();
        assert_eq!((gap.from, gap.to, gap.crc), (Scn(5000), Scn(4096 + 3 * LOG), 77));
        assert_eq!((gap.low_sequence(), gap.high_sequence(), gap.connections), (10, 12, 3));
        assert_eq!(gap.bytes(), 3 * gap.logs[0].bytes, "whole files");
        assert_eq!(found(5000, 0, 4, 1), None, "nothing is missing in archived logs");
        assert_eq!(found(5000, 1, 4, 1), None, "one connection is what the stream is");
        assert_eq!(found(5000, 2, 4, 1).unwrap().connections, 2, "two are enough");
        assert_eq!(found(5000, 9, 2, 1).unwrap().connections, 2);
        assert_eq!(found(5000, 1, 4, 5).unwrap().connections, 4, "several connections for one log");
        assert_eq!(found(5000, 9, 1, 5), None);
        assert_eq!(found(5000, 9, 0, 1), None, "turned off");
    }

    #[test]
    fn nearly_complete_log_is_left_to_the_stream() {
        assert_eq!(found(4096 + LOG - 1000, 1, 4, 5), None);
        assert!(found(4096 + LOG / 4 * 3, 1, 4, 5).is_none(), "more than two bytes for one");
        assert!(found(4096 + LOG / 3, 1, 4, 5).is_some());
        assert_eq!(found(4096 + LOG - 1000, 2, 4, 2).unwrap().logs.len(), 2);
        let next = found(4096 + LOG, 3, 4, 2).unwrap();
        assert_eq!(
            (next.logs.len(), next.low_sequence()),
            (2, 11),
            "a log that is held to its end is not missing"
        );
    }

    #[test]
    fn gap_may_cost_twice_its_bytes_and_one_unit_but_no_byte_more() {
        let settings = GapSettings { connections: 2, per_log: 2, unit_bytes: 64 << 10 };
        // A log whose file has four units.
        let log = ArchivedLogInfo { bytes: 4 * (64 << 10), ..logs(1, 250_000)[0] };
        let missing = 3 * (64 << 10) / 2;
        let from = |missing: u64| Scn(log.next_scn.0 - missing);
        assert!(Gap::find(from(missing), &[log], 77, &settings).is_some());
        assert!(Gap::find(from(missing - 1), &[log], 77, &settings).is_none());
    }

    #[test]
    fn standby_refuses_an_impossible_gap() {
        let sound = found(5000, 4, 4, 2).unwrap();
        assert_eq!(sound.check(Scn(5000)), Ok(()));
        assert!(sound.check(Scn(5001)).is_err(), "not our end");
        let wrong = |change: &dyn Fn(&mut Gap)| {
            let mut gap = sound.clone();
            change(&mut gap);
            gap.check(Scn(5000)).is_err()
        };
        assert!(wrong(&|gap| gap.logs.retain(|log| log.sequence != 11)), "a hole");
        assert!(wrong(&|gap| gap.logs.truncate(3)), "not up to its end");
        assert!(wrong(&|gap| gap.logs.swap(0, 1)));
        assert!(wrong(&|gap| gap.logs[2].bytes = 1 << 40), "room for a log that cannot be so large");
        assert!(wrong(&|gap| gap.logs[2].bytes = 512));
        assert!(wrong(&|gap| gap.unit_bytes = 1));
        assert!(wrong(&|gap| gap.per_log = 0));
        assert!(wrong(&|gap| gap.to = gap.from));
    }

    #[test]
    fn gap_has_as_many_logs_as_it_may_have_and_no_more() {
        let most = GAP_LOGS_MAX as u64;
        for (count, has) in [(most - 1, most - 1), (most, most), (most + 1, most)] {
            let gap = found(4096, count, 4, 1).unwrap();
            assert_eq!((gap.logs.len() as u64, gap.to), (has, Scn(4096 + has * LOG)), "{count}");
            assert_eq!(gap.crc, if count > most { most as u32 } else { 77 }, "where the stream continues");
            assert_eq!(gap.check(Scn(4096)), Ok(()));
        }
        let mut gap = found(4096, most, 4, 1).unwrap();
        let next = logs(most + 1, LOG)[GAP_LOGS_MAX];
        gap.logs.push(next);
        gap.to = next.next_scn;
        assert!(gap.check(Scn(4096)).is_err());
    }

    #[test]
    fn unit_has_64_kib_to_1_gib_in_whole_4_kib() {
        let sound = found(5000, 4, 4, 2).unwrap();
        for (unit_bytes, may_be) in [
            (64 << 10, true),
            (60 << 10, false),
            (1 << 30, true),
            ((1 << 30) + 4096, false),
            ((64 << 10) + 512, false),
            ((64 << 10) + 4096, true),
        ] {
            assert_eq!(Gap { unit_bytes, ..sound.clone() }.check(Scn(5000)).is_ok(), may_be, "{unit_bytes}");
        }
    }

    #[test]
    fn log_has_the_bytes_that_blocks_make_of_its_redo() {
        // Little redo, whose header and blocks are more than the redo itself.
        let gap = |bytes: u64| Gap {
            from: Scn(4096),
            to: Scn(4096 + 2048),
            crc: 0,
            logs: vec![ArchivedLogInfo { bytes, ..logs(1, 2048)[0] }],
            unit_bytes: 1 << 20,
            per_log: 1,
            connections: 1,
        };
        for (bytes, is_possible) in
            [(8192, true), (2560, true), (68_096, true), (2048, false), (8193, false), (68_608, false)]
        {
            assert_eq!(gap(bytes).check(Scn(4096)).is_ok(), is_possible, "{bytes}");
        }
    }
}
