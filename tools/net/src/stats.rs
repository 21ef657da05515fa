//! Counts of one time window, and the figures computed from them. Pure.

use crate::limit::Limit;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Counts of a connection since the last poll.
#[derive(Clone, Default)]
pub struct Window {
    /// Payload sent (ASYNC), acknowledged (SYNC) or received (from the server), bytes.
    pub bytes: u64,
    pub messages: u64,
    pub latency: Latencies,
    /// The receiver's counters since the connection began, as last seen.
    pub far: Far,
    /// A sending server's counters since the connection began, as it last reported them.
    pub sender: Sender,
}

/// The kernel's counters of the sending side of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// Time with data waiting or in flight, microseconds.
    pub busy_us: u64,
    /// Part of `busy_us` in which the receiver's window held the sender back.
    pub receiver_window_us: u64,
    /// Part of `busy_us` in which the send buffer held the sender back.
    pub send_buffer_us: u64,
    /// Bytes that the receiver has acknowledged, headers included.
    pub acknowledged: u64,
    pub congestion_window: u32,
    pub retransmissions: u32,
    /// Shortest round trip, microseconds; 0 before the first.
    pub min_rtt_us: u32,
    /// Bytes that the receiver has room for beyond the last acknowledged one. 0 when unknown: before Linux 5.4, and for
    /// a sender on the other host.
    pub offered_window: u32,
    /// Send buffer, bytes as the system counts them.
    pub send_buffer: u32,
    /// Both sides agreed on selective acknowledgements.
    pub sack: bool,
    /// Name of the congestion control, padded with zeros.
    pub congestion: [u8; 15],
}

impl Sender {
    /// Returns the name of the congestion control; None when it is empty.
    pub fn congestion(&self) -> Option<String> {
        let name = self.congestion.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(name).into_owned()).filter(|name| !name.is_empty())
    }
}

/// The receiver's counters of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Far {
    /// Bytes of payload that have arrived.
    pub received: u64,
    /// Nanoseconds in durable writes.
    pub disk_ns: u64,
    /// Nanoseconds without a byte to read.
    pub wait_ns: u64,
    /// Bytes as the system counts them.
    pub receive_buffer: u32,
}

/// Latencies in nanoseconds, each split into the receiver's durable write, waking (arrived data that the programs had
/// not yet seen), and the network. Allocates nothing before the first latency.
#[derive(Clone, Default)]
pub struct Latencies {
    histograms: Option<Box<[Histogram<u64>; 4]>>,
    count: u64,
    total_ns: f64,
    disk_ns: f64,
    waking_ns: f64,
}

/// Longest latency that is distinguished, nanoseconds: an hour.
const MOST_NS: u64 = 3_600_000_000_000;

fn histogram() -> Histogram<u64> {
    // Three digits are finer than the noise of any link. These bounds are valid.
    Histogram::new_with_max(MOST_NS, 3).unwrap_or_else(|_| unreachable!("bounds are constant and valid"))
}

impl Latencies {
    /// Records one message. `total` runs from the start of its send to its acknowledgement; `disk` is the durable
    /// write. `waking` is how long arrived data waited until a program saw it. It must be shorter than `total` without
    /// `disk`; otherwise a clock or the other side is wrong, and it counts as 0.
    pub fn record(&mut self, total: u64, disk: u64, waking: u64) {
        let [all, network, write, woke] =
            &mut **self.histograms.get_or_insert_with(|| Box::new(std::array::from_fn(|_| histogram())));
        let others = total.saturating_sub(disk);
        let waking = if waking < others { waking } else { 0 };
        all.saturating_record(total);
        network.saturating_record(others - waking);
        write.saturating_record(disk);
        woke.saturating_record(waking);
        self.waking_ns += waking as f64;
        self.count += 1;
        self.total_ns += total as f64;
        self.disk_ns += disk.min(total) as f64;
    }

    /// Adds the latencies of another window.
    pub fn add(&mut self, other: &Latencies) {
        let Some(others) = &other.histograms else { return };
        match &mut self.histograms {
            None => self.histograms = other.histograms.clone(),
            Some(own) => {
                for (own, other) in own.iter_mut().zip(others.iter()) {
                    // Both sides have the same bounds, so adding cannot fail.
                    let _ = own.add(other);
                }
            }
        }
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.disk_ns += other.disk_ns;
        self.waking_ns += other.waking_ns;
    }

    /// Returns the total time of durable writes, nanoseconds.
    pub fn disk_ns(&self) -> f64 {
        self.disk_ns
    }

    /// Returns the figures; None without a message.
    pub fn figures(&self) -> Option<Latency> {
        let [all, network, disk, waking] = &**self.histograms.as_ref()?;
        let count = self.count as f64;
        let seconds = |nanos: f64| nanos / 1e9;
        Some(Latency {
            count: self.count,
            total: Spread::of(all, seconds(self.total_ns / count)),
            network: Spread::of(network, seconds((self.total_ns - self.disk_ns - self.waking_ns) / count)),
            disk: Spread::of(disk, seconds(self.disk_ns / count)),
            waking: Spread::of(waking, seconds(self.waking_ns / count)),
        })
    }

    /// Returns points of the distributions, from the fastest message to the slowest.
    pub fn quantiles(&self) -> Vec<Quantile> {
        let Some(histograms) = &self.histograms else { return Vec::new() };
        let steps = [
            0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999,
            99.9999, 100.0,
        ];
        let one = |step: f64| {
            let at = |histogram: &Histogram<u64>| histogram.value_at_percentile(step) as f64 / 1e9;
            let [total, network, disk] = [0, 1, 2].map(|part| at(&histograms[part]));
            Quantile { share: step / 100.0, total, network, disk }
        };
        steps.map(one).to_vec()
    }
}

/// Times within which a share of the messages was acknowledged, seconds. Each part is sorted by itself: the slowest
/// write need not belong to the slowest message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// Share of the messages, 0 to 1.
    pub share: f64,
    /// Time from the start of the send to the acknowledgement.
    pub total: f64,
    /// Without the receiver's durable write, and without the time in which arrived data was not yet seen.
    pub network: f64,
    /// The part that the receiver's durable write took.
    pub disk: f64,
}

/// In seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Spread {
    fn of(histogram: &Histogram<u64>, mean: f64) -> Spread {
        let at = |percentile| histogram.value_at_percentile(percentile) as f64 / 1e9;
        Spread {
            mean,
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
            max: histogram.max() as f64 / 1e9,
        }
    }
}

/// Latencies in seconds, of the messages that were acknowledged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    pub count: u64,
    /// Time from the start of the send to the acknowledgement.
    pub total: Spread,
    /// Without the receiver's durable write, and without the time in which arrived data was not yet seen.
    pub network: Spread,
    /// The receiver's durable write; zero without one.
    pub disk: Spread,
    /// Time in which arrived data waited until the program at either end saw it; zero where the kernel does not say.
    pub waking: Spread,
}

/// Figures from the kernel's TCP counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tcp {
    pub retransmissions: u64,
    /// Congestion window, bytes, mean of the connections.
    pub congestion_window: u64,
    /// Shortest round trip, seconds; None before the first.
    pub min_rtt: Option<f64>,
    /// Both sides agreed on selective acknowledgements.
    pub sack: bool,
}

/// Figures of one interval, or of a whole test.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Start, seconds since the test began to count.
    pub start: f64,
    pub seconds: f64,
    /// Payload that the receiver has, bytes.
    pub bytes: u64,
    pub messages: u64,
    /// `None` in tests that are not SYNC.
    pub latency: Option<Latency>,
    /// Share of the time in which the receiver wrote durably; mean of the connections.
    pub disk_share: f64,
    pub tcp: Tcp,
    /// What limited the throughput; None when the interval is too short to tell.
    pub limit: Option<Limit>,
}

impl Interval {
    /// Returns the payload bytes per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_mean_is_exact_and_parts_add_up() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.figures(), None);
        latencies.record(1_000_000, 250_000, 50_000);
        latencies.record(3_000_001, 750_000, 0);
        let figures = latencies.figures().unwrap();
        assert_eq!(figures.count, 2);
        assert!((figures.total.mean - 0.002_000_000_5).abs() < 1e-15);
        assert!((figures.waking.mean - 0.000_025).abs() < 1e-15);
        let parts = figures.network.mean + figures.disk.mean + figures.waking.mean;
        assert!((parts - figures.total.mean).abs() < 1e-15);
        assert!((figures.total.max - 0.003).abs() < 0.000_003);
    }

    #[test]
    fn impossible_waking_time_counts_as_zero() {
        let mut latencies = Latencies::default();
        for waking in [750_000, 3_600_000_000_000, u64::MAX] {
            latencies.record(1_000_000, 250_000, waking);
        }
        let figures = latencies.figures().unwrap();
        assert_eq!(figures.waking.max, 0.0);
        assert!((figures.network.mean - 0.000_75).abs() < 1e-15);
    }

    #[test]
    fn latency_windows_add_up_to_the_total() {
        let (mut sum, mut one, mut all) = (Latencies::default(), Latencies::default(), Latencies::default());
        for value in 1..1000 {
            all.record(value * 1000, value, value / 2);
            one.record(value * 1000, value, value / 2);
            if value % 100 == 0 {
                sum.add(&std::mem::take(&mut one));
            }
        }
        sum.add(&one);
        assert_eq!(sum.figures(), all.figures());
        assert_eq!(sum.quantiles(), all.quantiles());
    }
}
