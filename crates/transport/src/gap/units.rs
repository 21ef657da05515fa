//! Assigns the units of a gap to connections: archived logs in order, in units, each byte once. Pure.
//!
//! Logs are begun in order, so that apply can continue as soon as the first one is complete. At most `per_log`
//! connections work on one log; further ones begin the next. A unit whose connection is lost is assigned to another
//! one. A log that fails its check is fetched again from its start.

use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// Index of the log.
    pub log: usize,
    /// First byte in its file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitsProgress {
    /// Bytes of all logs.
    pub bytes: u64,
    /// Bytes that have arrived, or were held already.
    pub arrived: u64,
    /// Logs that are complete and checked.
    pub whole: usize,
}

/// Units of all logs of a gap.
#[derive(Clone, Debug)]
pub struct Units {
    unit_bytes: u64,
    per_log: u32,
    logs: Vec<Log>,
}

#[derive(Clone, Debug)]
struct Log {
    bytes: u64,
    /// First byte that no connection has been assigned yet.
    next: u64,
    /// Units that were lost and must be assigned again.
    back: BTreeSet<(u64, u64)>,
    in_flight: u32,
    arrived: u64,
    whole: bool,
    /// How often the log arrived and failed its check.
    spoiled: u32,
}

impl Log {
    /// Whether another connection may begin a unit.
    fn has_free(&self, per_log: u32) -> bool {
        self.in_flight < per_log && (self.next < self.bytes || !self.back.is_empty())
    }

    fn is_complete(&self) -> bool {
        self.arrived == self.bytes && !self.whole
    }
}

impl Units {
    /// Creates the units of logs of these sizes; logs that are held need not be fetched.
    pub fn new(logs: impl IntoIterator<Item = (u64, bool)>, unit_bytes: u64, per_log: u32) -> Units {
        let log = |(bytes, held): (u64, bool)| {
            let there = if held { bytes } else { 0 };
            let back = BTreeSet::new();
            Log { bytes, next: there, back, in_flight: 0, arrived: there, whole: held, spoiled: 0 }
        };
        Units { unit_bytes: unit_bytes.max(1), per_log, logs: logs.into_iter().map(log).collect() }
    }

    /// Assigns the next unit; `None` when all are assigned, or as many connections work as may.
    pub fn take(&mut self) -> Option<Unit> {
        let per_log = self.per_log;
        let (index, log) = self.logs.iter_mut().enumerate().find(|(_, log)| log.has_free(per_log))?;
        let (offset, bytes) = log.back.pop_first().unwrap_or_else(|| {
            let bytes = self.unit_bytes.min(log.bytes - log.next);
            log.next += bytes;
            (log.next - bytes, bytes)
        });
        log.in_flight += 1;
        Some(Unit { log: index, offset, bytes })
    }

    /// Whether [`Units::take`] would assign a unit.
    pub fn has_free(&self) -> bool {
        self.logs.iter().any(|log| log.has_free(self.per_log))
    }

    /// A unit has arrived. True when the whole log has: it must be checked now.
    pub fn arrived(&mut self, unit: &Unit) -> bool {
        let log = &mut self.logs[unit.log];
        log.in_flight -= 1;
        log.arrived += unit.bytes;
        log.is_complete()
    }

    /// A unit has not arrived: another connection fetches it.
    pub fn lost(&mut self, unit: &Unit) {
        let log = &mut self.logs[unit.log];
        log.in_flight -= 1;
        log.back.insert((unit.offset, unit.bytes));
    }

    /// Every block of the log has been checked.
    pub fn whole(&mut self, log: usize) {
        self.logs[log].whole = true;
    }

    /// The log has arrived and failed its check: it is fetched again. Returns how often that has happened.
    pub fn spoiled(&mut self, log: usize) -> u32 {
        let log = &mut self.logs[log];
        (log.next, log.arrived, log.whole) = (0, 0, false);
        log.spoiled += 1;
        log.spoiled
    }

    /// Whether all logs are complete and checked.
    pub fn is_done(&self) -> bool {
        self.logs.iter().all(|log| log.whole)
    }

    pub fn progress(&self) -> UnitsProgress {
        UnitsProgress {
            bytes: self.logs.iter().map(|log| log.bytes).sum(),
            arrived: self.logs.iter().map(|log| log.arrived).sum(),
            whole: self.logs.iter().filter(|log| log.whole).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn connections_share_a_log_up_to_the_limit_before_the_next() {
        let mut units = Units::new([(25, false), (10, true), (30, false)], 10, 2);
        let taken: Vec<_> = std::iter::from_fn(|| units.take()).collect();
        let unit = |log, offset, bytes| Unit { log, offset, bytes };
        assert_eq!(taken, [unit(0, 0, 10), unit(0, 10, 10), unit(2, 0, 10), unit(2, 10, 10)]);
        assert!(!units.arrived(&taken[0]));
        assert_eq!(
            units.take(),
            Some(unit(0, 20, 5)),
            "what is left of the first log comes before the third"
        );
        units.lost(&taken[1]);
        assert_eq!(units.take(), Some(taken[1]), "what was lost is fetched again");
        assert!(!units.arrived(&taken[1]));
        assert!(units.arrived(&unit(0, 20, 5)));
        assert_eq!(units.progress(), UnitsProgress { bytes: 65, arrived: 35, whole: 1 });
    }

    #[test]
    fn log_that_fails_its_check_is_fetched_from_its_start() {
        let mut units = Units::new([(15, false)], 10, 1);
        for round in 1..3 {
            let first = units.take().unwrap();
            assert_eq!(units.take(), None, "one connection a log");
            assert!(!units.arrived(&first));
            let second = units.take().unwrap();
            assert!(units.arrived(&second));
            assert!(!units.is_done());
            assert_eq!(units.spoiled(0), round);
        }
    }

    proptest! {
        /// Whatever arrives in whatever order, is lost or fails its check: in the end every byte of every log has
        /// arrived once since the log was last begun, and never more connections than allowed have worked on one log.
        #[test]
        fn every_byte_of_every_log_arrives_once(
            sizes in proptest::collection::vec((1u64..200, any::<bool>()), 1..8),
            unit_bytes in 1u64..50,
            per_log in 1u32..5,
            connections in 1usize..8,
            fates in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..10), 1..2000),
        ) {
            let mut units = Units::new(sizes.clone(), unit_bytes, per_log);
            let mut there: Vec<Vec<u32>> =
                sizes.iter().map(|(bytes, held)| vec![u32::from(*held); *bytes as usize]).collect();
            let mut working: Vec<Unit> = Vec::new();
            let mut fates = fates.into_iter();
            while !units.is_done() {
                while working.len() < connections && let Some(unit) = units.take() {
                    working.push(unit);
                    let same = working.iter().filter(|other| other.log == unit.log).count();
                    prop_assert!(same <= per_log as usize);
                }
                prop_assert!(!working.is_empty(), "no connection works, and it is not done");
                // Once the fates are used up, every unit arrives.
                let (which, fate) = fates.next().map_or((0, 9), |(at, fate)| (at.index(working.len()), fate));
                let unit = working.swap_remove(which);
                if fate == 0 {
                    units.lost(&unit);
                    continue;
                }
                for byte in unit.offset..unit.offset + unit.bytes {
                    there[unit.log][byte as usize] += 1;
                }
                if units.arrived(&unit) {
                    prop_assert!(there[unit.log].iter().all(|count| *count == 1));
                    if fate == 1 {
                        units.spoiled(unit.log);
                        there[unit.log].fill(0);
                    } else {
                        units.whole(unit.log);
                    }
                }
            }
            prop_assert!(working.is_empty() && units.take().is_none());
            prop_assert!(there.iter().flatten().all(|count| *count == 1));
            let progress = units.progress();
            prop_assert_eq!((progress.arrived, progress.whole), (progress.bytes, sizes.len()));
        }
    }
}
