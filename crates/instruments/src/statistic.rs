//! Counters of V$SYSSTAT.

macro_rules! statistics {
    ($($(#[doc = $doc:literal])* $statistic:ident, $name:literal;)*) => {
        /// A counter. The documentation of each says what is counted, and in what unit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Statistic { $($(#[doc = $doc])* $statistic,)* }

        impl Statistic {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Statistic] = &[$(Statistic::$statistic),*];

            pub fn name(self) -> &'static str {
                match self { $(Statistic::$statistic => $name,)* }
            }

            pub fn description(self) -> &'static str {
                match self { $(Statistic::$statistic => concat!($($doc),*),)* }
            }
        }
    };
}

statistics! {
    /// Bytes of redo records.
    RedoSize, "redo size";
    /// Redo records: change vectors, what closes a transaction, and what logs begin with.
    RedoEntries, "redo entries";
    /// Writes of the log writer.
    RedoWrites, "redo writes";
    /// Blocks of log files written, one member counted.
    RedoBlocksWritten, "redo blocks written";
    /// Bytes that fill blocks which redo did not.
    RedoWastage, "redo wastage";
    /// Microseconds from the first capture of a batch to the end of its write: gather, issue and I/O.
    RedoWriteTime, "redo write time (usec)";
    /// Microseconds of capture: reading new frames, comparing pages, building records.
    RedoWriteGatherTime, "redo write gather time";
    /// Microseconds between the end of a write and the end of its batch: release of commits, notices.
    RedoWriteFinishTime, "redo write finish time";
    /// Microseconds of whole batches of the log writer.
    RedoWriteTotalTime, "redo write total time";
    /// Commits captured.
    UserCommits, "user commits";
    /// Commits that waited for durability.
    RedoSynchWrites, "redo synch writes";
    /// Microseconds that commits waited for durability.
    RedoSynchTime, "redo synch time (usec)";
    /// Microseconds between the release of commits and the moment that their sessions ran again.
    RedoSynchTimeOverhead, "redo synch time overhead (usec)";
    /// Waits for durability of 131 ms and more (2^17 microseconds, a bound of the histogram).
    RedoSynchLongWaits, "redo synch long waits";
    /// Commits whose session found the answer while it looked, without sleeping.
    RedoSynchPolls, "redo synch polls";
    /// Log switches.
    LogSwitches, "log switches";
    /// Batches that found no room in the current group and had to wait for the next one.
    RedoLogSpaceRequests, "redo log space requests";
    /// Microseconds of those waits.
    RedoLogSpaceWaitTime, "redo log space wait time";
    /// KB of redo sent to destinations out of the log buffer.
    RedoReadMemoryForTransport, "redo KB read (memory) for transport";
    /// KB of redo sent to destinations out of log files.
    RedoReadForTransport, "redo KB read for transport";
    /// Wake-ups of the log writer by a notice.
    BackgroundWakes, "messages received";
    /// Bytes of redo applied, at a standby.
    RedoApplied, "redo applied";
    /// Transactions applied, at a standby.
    TransactionsApplied, "transactions applied";
}

impl Statistic {
    pub fn index(self) -> usize {
        self as usize
    }

    pub fn named(name: &str) -> Option<Statistic> {
        Statistic::ALL.iter().copied().find(|statistic| statistic.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statistic_has_a_unique_number_and_name() {
        for (number, statistic) in Statistic::ALL.iter().enumerate() {
            assert_eq!(statistic.index(), number);
            assert_eq!(Statistic::named(statistic.name()), Some(*statistic), "{} twice", statistic.name());
            assert!(!statistic.description().trim().is_empty());
        }
    }
}
