//! Where the time of commits goes.

use crate::figure::{Figure, UNKNOWN};
use crate::look::Looks;
use serde::{Deserialize, Serialize};
use standfast_documents::Status;
use standfast_instruments::{CommitPart, Event, HistogramCounts, Sample};

/// Figures of the window over which rates are computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommitTime {
    /// Commits per second.
    pub commits: Figure,
    pub p50: Figure,
    /// 99th percentile of the waits of commits.
    pub p99: Figure,
    /// What commits waited for: the local write, or the way to the standby. Both run at the same time.
    pub critical_path: String,
    /// The parts, in the order in which they happen.
    pub parts: Vec<PartTime>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartTime {
    pub part: CommitPart,
    pub name: String,
    /// Mean over all commits; those without the part count as zero.
    pub mean: Figure,
    pub p99: Figure,
    /// Share of the time of all parts.
    pub share: Figure,
    /// Whether the part overlaps with others; such a part counts only while commits waited for it.
    pub overlaps: bool,
}

/// Parts that run at the same time as the local write.
const REMOTE: [CommitPart; 2] = [CommitPart::Network, CommitPart::RemoteWrite];

fn seconds(us: Option<f64>) -> Figure {
    Figure::seconds(us.map(|us| us / 1e6))
}

fn time_ns(sample: &Sample, part: CommitPart) -> u64 {
    sample.part(part).map_or(0, |counts| counts.time_ns)
}

impl CommitTime {
    /// Computes the figures of the window.
    pub fn of(status: &Status, looks: &Looks) -> CommitTime {
        let interval = looks.interval().filter(|_| status.is_primary());
        let waits = interval.as_ref().and_then(|interval| interval.event(Event::LogFileSync));
        let of_waits = |share| seconds(waits.and_then(|counts| counts.percentile_us(share)));
        CommitTime {
            commits: Figure::rate(looks.rate(|status| status.commits)),
            p50: of_waits(0.5),
            p99: of_waits(0.99),
            critical_path: interval.as_ref().map_or(UNKNOWN, critical_path).into(),
            parts: CommitPart::ALL.map(|part| part_time(part, interval.as_ref())).to_vec(),
        }
    }
}

fn part_time(part: CommitPart, interval: Option<&Sample>) -> PartTime {
    let counts = interval.and_then(|interval| interval.part(part));
    let all: u64 =
        interval.map_or(0, |interval| CommitPart::ALL.map(|part| time_ns(interval, part)).iter().sum());
    let share = counts.filter(|_| all > 0).map(|counts| counts.time_ns as f64 / all as f64);
    PartTime {
        part,
        name: part.name().into(),
        mean: seconds(counts.and_then(HistogramCounts::mean_us)),
        p99: seconds(counts.and_then(|counts| counts.percentile_us(0.99))),
        share: Figure::share(share),
        overlaps: part == CommitPart::LocalWrite || REMOTE.contains(&part),
    }
}

/// A commit's wait counts for whichever ended later, so the side with more time is the critical path.
fn critical_path(interval: &Sample) -> &'static str {
    let local = time_ns(interval, CommitPart::LocalWrite);
    let remote: u64 = REMOTE.map(|part| time_ns(interval, part)).iter().sum();
    match (local, remote) {
        (0, 0) => UNKNOWN,
        _ if remote > local => "the way to the standby and its write",
        _ => "the local write",
    }
}
