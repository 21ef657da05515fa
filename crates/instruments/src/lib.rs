//! Where time goes: wait events with microsecond histograms, statistics, and the parts of a commit.
//!
//! Counts only grow, from the start of the process on; rates and averages are differences of two [`Sample`]s. Nothing
//! here decides anything, and no thread waits here for another.

mod anatomy;
mod event;
mod histogram;
mod observation;
mod recorder;
mod sample;
mod statistic;

pub use anatomy::{BatchTimes, Cause, CommitPart, Parts, RecentBatches, RemoteAnswer};
pub use event::{Event, WaitClass};
pub use histogram::{BUCKETS, Histogram, HistogramCounts, bucket_of, bucket_upper_us};
pub use observation::{Activity, History, LagCount, Metric, Observation, Remote, lag_unit_s};
pub use recorder::{Instruments, Waiting, count, is_process_asleep, monotonic_ns, record, waiting};
pub use sample::{EventTotals, PartTotals, Sample, StatisticValue, ThreadSample};
pub use statistic::Statistic;
