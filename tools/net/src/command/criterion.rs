//! The criteria of `--fail-if`, e.g. `p99>5ms`. Pure.

use crate::stats::Interval;
use standfast_page::units;
use std::fmt;
use std::str::FromStr;

const FORMS: &str = "NAME>VALUE or NAME<VALUE with mean, p50, p90, p99, p999, max, network or disk (times: 5ms), \
throughput (80MiB/s, 100mbit) or retransmissions: 'p99>5ms'";

/// A condition under which a test counts as failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Criterion {
    text: String,
    figure: Figure,
    above: bool,
    bound: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    Mean,
    P50,
    P90,
    P99,
    P999,
    Max,
    Network,
    Disk,
    Throughput,
    Retransmissions,
}

impl FromStr for Criterion {
    type Err = String;

    fn from_str(text: &str) -> Result<Criterion, String> {
        let parse = || {
            let at = text.find(['<', '>'])?;
            let (name, rest) = text.split_at(at);
            let value = rest[1..].trim();
            let figure = match name.trim().to_ascii_lowercase().as_str() {
                "mean" | "latency" => Figure::Mean,
                "p50" => Figure::P50,
                "p90" => Figure::P90,
                "p99" => Figure::P99,
                "p999" | "p99.9" => Figure::P999,
                "max" => Figure::Max,
                "network" => Figure::Network,
                "disk" => Figure::Disk,
                "throughput" => Figure::Throughput,
                "retransmissions" => Figure::Retransmissions,
                _ => return None,
            };
            let bound = match figure {
                Figure::Throughput => units::rate(value).ok()?,
                Figure::Retransmissions => f64::from(value.parse::<u32>().ok()?),
                _ => units::time(value, "ms").ok()?.as_secs_f64(),
            };
            Some(Criterion { text: text.to_owned(), figure, above: rest.starts_with('>'), bound })
        };
        parse().ok_or_else(|| format!("allowed: {FORMS}"))
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl Criterion {
    /// Returns the figure when the condition holds. A figure that was not measured meets every condition, so that its
    /// lack does not pass unnoticed.
    pub fn met(&self, total: &Interval) -> Option<String> {
        let latency = total.latency.as_ref();
        let found = match self.figure {
            Figure::Throughput => Some(total.rate()),
            Figure::Retransmissions => Some(total.tcp.retransmissions as f64),
            Figure::Mean => latency.map(|latency| latency.total.mean),
            Figure::P50 => latency.map(|latency| latency.total.p50),
            Figure::P90 => latency.map(|latency| latency.total.p90),
            Figure::P99 => latency.map(|latency| latency.total.p99),
            Figure::P999 => latency.map(|latency| latency.total.p999),
            Figure::Max => latency.map(|latency| latency.total.max),
            Figure::Network => latency.map(|latency| latency.network.mean),
            Figure::Disk => latency.map(|latency| latency.disk.mean),
        };
        let Some(found) = found else { return Some("not measured in this mode".into()) };
        let met = if self.above { found > self.bound } else { found < self.bound };
        met.then(|| match self.figure {
            Figure::Throughput => format!("found {}/s", units::readable_size(found)),
            Figure::Retransmissions => format!("found {found}"),
            _ => format!("found {:.3} ms", found * 1e3),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Latencies, Tcp};

    fn total() -> Interval {
        let mut latencies = Latencies::default();
        latencies.record(6_000_000, 1_000_000, 0);
        Interval {
            start: 0.0,
            seconds: 1.0,
            bytes: 1 << 20,
            messages: 1,
            latency: latencies.figures(),
            disk_share: 0.0,
            tcp: Tcp::default(),
            limit: None,
        }
    }

    fn met(text: &str) -> bool {
        text.parse::<Criterion>().unwrap().met(&total()).is_some()
    }

    #[test]
    fn a_criterion_is_met_on_its_side_of_the_bound() {
        assert!(met("p99>5ms") && !met("p99>7") && met("disk < 2ms") && met("throughput<2MiB/s"));
        assert!(!met("throughput<100kb") && !met("retransmissions>0"));
    }

    #[test]
    fn check_without_a_measurement_does_not_pass() {
        let criterion: Criterion = "p50>1h".parse().unwrap();
        assert!(criterion.met(&Interval { latency: None, ..total() }).is_some());
    }

    #[test]
    fn malformed_criterion_is_refused_with_an_example() {
        for wrong in ["p99", "p99=5", "p98>5ms", "p99>", "throughput<5ms", "p99>5kb", ">5ms"] {
            assert!(wrong.parse::<Criterion>().unwrap_err().contains("p99>5ms"), "{wrong}");
        }
    }
}
