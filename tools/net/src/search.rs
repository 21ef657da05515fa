//! Chooses the settings that a sweep tries next. Pure: results in, the next candidate out.

use crate::outcome::Outcome;
use serde_json::{Value, json};

/// Factor by which a result must be better to count as a gain.
pub const GAIN: f64 = 1.03;
/// The first socket buffer to try after that of the system, bytes.
pub const FIRST_WINDOW: u32 = 2 << 20;
/// Consecutive settings without gain that end the search for connections.
const FLAT: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// Socket buffer, bytes; 0: left to the systems.
    pub window: u32,
    pub streams: u16,
    pub rate: f64,
    /// The system did not grant the buffer.
    pub clamped: bool,
}

#[derive(Default)]
pub struct Sweep {
    pub windows: Vec<Tried>,
    /// The best buffer with different numbers of connections; the first entry repeats the one in `windows`.
    pub streams: Vec<Tried>,
    /// The outcomes of both, in order.
    pub outcomes: Vec<Outcome>,
}

impl Sweep {
    /// Returns the fastest setting of one connection.
    pub fn best_window(&self) -> Option<Tried> {
        best(&self.windows)
    }

    /// Returns the fastest setting of all.
    pub fn best(&self) -> Option<Tried> {
        best(&self.streams).or(self.best_window())
    }

    /// Returns every run once: its setting and its outcome.
    pub fn runs(&self) -> impl Iterator<Item = (&Tried, &Outcome)> {
        self.windows.iter().chain(self.streams.iter().skip(1)).zip(&self.outcomes)
    }

    /// Returns the outcome of a setting.
    pub fn outcome(&self, tried: &Tried) -> Option<&Outcome> {
        self.runs().find(|(run, _)| *run == tried).map(|(_, outcome)| outcome)
    }

    pub fn document(&self) -> Value {
        let one = |tried: &Tried| {
            let run = self.outcome(tried).map(|outcome| &outcome.total);
            json!({
                "window": tried.window,
                "streams": tried.streams,
                "bytes_per_second": tried.rate,
                "clamped": tried.clamped,
                "retransmissions": run.map(|total| total.tcp.retransmissions),
                "limited_by": run.and_then(|total| total.limit).map(|limit| limit.code()),
            })
        };
        json!({
            "windows": self.windows.iter().map(one).collect::<Vec<_>>(),
            "streams": self.streams.iter().map(one).collect::<Vec<_>>(),
            "best": self.best().as_ref().map(one),
        })
    }

    /// Returns the buffer that is needed, bytes: three times the bandwidth-delay product at the fastest rate.
    pub fn wanted_window(&self, rtt: f64) -> Option<f64> {
        Some(3.0 * bandwidth_delay(self.best()?.rate, rtt))
    }
}

/// Returns the fastest run; of the runs within the noise the first, which asks for least.
pub fn best(tried: &[Tried]) -> Option<Tried> {
    let most = tried.iter().map(|run| run.rate).fold(0.0, f64::max);
    tried.iter().find(|run| run.rate * GAIN >= most).copied()
}

/// Returns the bandwidth-delay product in bytes.
pub fn bandwidth_delay(rate: f64, rtt: f64) -> f64 {
    rate * rtt
}

/// Returns the next socket buffer: first the systems' choice, then 2 MiB and doublings while they gain, last three
/// times the bandwidth-delay product at the fastest rate seen. None when nothing is left to try.
pub fn next_window(tried: &[Tried], rtt: f64, most: u32) -> Option<u32> {
    let Some(last) = tried.last() else { return Some(0) };
    let seen = |window: u32| tried.iter().any(|run| run.window == window);
    let three = || {
        let fastest = tried.iter().map(|run| run.rate).fold(0.0, f64::max);
        // A multiple of 64 KiB, and at least 64 KiB: a smaller buffer never matters.
        let window = ((3.0 * bandwidth_delay(fastest, rtt)) as u64).next_multiple_of(64 << 10);
        let window = u32::try_from(window.max(64 << 10)).ok()?;
        let near = tried.iter().any(|run| run.window != 0 && run.window.abs_diff(window) < window / 16);
        // The candidate's own run may have raised the fastest rate a little; that makes no new candidate.
        let done = tried.iter().any(|run| run.window != 0 && !is_doubling(run.window));
        (!seen(window) && !near && !done && window <= most).then_some(window)
    };
    match last.window {
        0 if FIRST_WINDOW <= most => Some(FIRST_WINDOW),
        0 => three(),
        // A fixed buffer below the systems' choice may start slower and still gain by doubling.
        window if is_doubling(window) && !last.clamped && gains(tried) => {
            window.checked_mul(2).filter(|next| *next <= most).or_else(three)
        }
        _ => three(),
    }
}

fn is_doubling(window: u32) -> bool {
    window >= FIRST_WINDOW && window.is_power_of_two()
}

/// Returns whether the last doubling gained over the previous one; the first always does.
fn gains(tried: &[Tried]) -> bool {
    let mut doubled = tried.iter().rev().filter(|run| is_doubling(run.window));
    match (doubled.next(), doubled.next()) {
        (Some(last), Some(before)) => last.rate > before.rate * GAIN,
        _ => true,
    }
}

/// Returns the next number of connections: 1, 2, 4, 6 and so on, until three in a row brought no gain.
pub fn next_streams(tried: &[Tried], most: u16) -> Option<u16> {
    let Some(last) = tried.last() else { return Some(1) };
    let mut top = 0.0;
    let mut flat = 0;
    for run in tried {
        flat = if run.rate > top * GAIN { 0 } else { flat + 1 };
        top = f64::max(top, run.rate);
    }
    let next = if last.streams == 1 { 2 } else { last.streams + 2 };
    (flat < FLAT && next <= most).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(rate_of: impl Fn(u32) -> f64, rtt: f64, most: u32) -> Vec<u32> {
        let mut tried: Vec<Tried> = Vec::new();
        while let Some(window) = next_window(&tried, rtt, most) {
            tried.push(Tried { window, streams: 1, rate: rate_of(window), clamped: false });
            assert!(tried.len() < 40, "{tried:?}");
        }
        tried.iter().map(|run| run.window).collect()
    }

    #[test]
    fn buffer_search_doubles_while_it_gains_and_ends_at_triple_bdp() {
        // 1 Gbit/s at 25 ms: a buffer carries window / rtt until the link is full.
        let link = 125e6;
        let rate = |window: u32| if window == 0 { 0.5 * link } else { (f64::from(window) / 0.025).min(link) };
        assert_eq!(windows(rate, 0.025, 64 << 20), [0, 2 << 20, 4 << 20, 8 << 20, 9_437_184]);
        assert_eq!(windows(rate, 0.025, 4 << 20), [0, 2 << 20, 4 << 20]);
    }

    #[test]
    fn buffer_search_on_a_short_link_ends_after_two_doublings() {
        assert_eq!(windows(|_| 1e9, 50e-6, 64 << 20), [0, 2 << 20, 4 << 20, 196_608]);
    }

    #[test]
    fn connection_search_ends_after_three_flat_runs() {
        let mut tried: Vec<Tried> = Vec::new();
        while let Some(streams) = next_streams(&tried, 64) {
            let rate = f64::from(streams.min(12)) * 1e6;
            tried.push(Tried { window: 0, streams, rate, clamped: false });
        }
        let streams: Vec<u16> = tried.iter().map(|run| run.streams).collect();
        assert_eq!(streams, [1, 2, 4, 6, 8, 10, 12, 14, 16, 18]);
        assert_eq!(best(&tried).unwrap().streams, 12);
        assert_eq!(next_streams(&tried[..2], 3), None);
    }
}
