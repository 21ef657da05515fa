//! Turns measurements into a verdict per transport mode, with causes and settings. Pure.

use crate::limit::Limit;
use crate::outcome::Outcome;
use crate::plan::Direction;
use crate::search::{Sweep, Tried, bandwidth_delay};
use crate::stats::Latency;
use serde::Serialize;
use standfast_page::units::{megabits, readable_size};
use std::fmt;

/// Factor over the peak of the redo that a link must carry, so that there is room for a peak right after a peak.
pub const HEADROOM: f64 = 1.3;
/// Round trip above which SYNC is felt markedly by applications that commit row by row, seconds.
pub const FAR: f64 = 0.005;
/// Round trip above which SYNC is not suitable for them, seconds.
pub const TOO_FAR: f64 = 0.05;
/// Factor over idle round trips above which loaded round trips come from queues on the path: queues of twice the
/// bandwidth-delay product, where one suffices. They count only when they are also more than [`FAR`] longer.
pub const QUEUED: f64 = 3.0;
/// Bytes that any connection may have in flight: ten segments (RFC 6928). A round trip that waits behind so many bytes
/// waits for the rate of the link, not for its queues.
pub const WINDOW_OF_ANY: f64 = 14_600.0;
/// Share of retransmitted segments above which a path counts as lossy.
pub const LOSSY: f64 = 0.001;
/// Durable write of a standby above which its disk is slow, seconds.
pub const SLOW_DISK: f64 = 0.005;
/// Largest redo write that shall cross the network at once, bytes.
pub const LARGEST_WRITE: f64 = 1_048_576.0;
/// Shortest time between two log switches at the peak, seconds.
pub const SWITCH_SECONDS: f64 = 300.0;
/// Largest session data unit of Oracle Net, bytes.
const SESSION_DATA_UNIT: u32 = 65_535;
/// Lowest ceiling that sockets need on any link, bytes.
const LEAST_CEILING: u64 = 16 << 20;
/// Rate from which the queues of network devices matter, bytes per second: 1 Gbit/s less its headers.
const FAST_LINK: f64 = 110e6;

#[derive(Clone, Debug)]
pub struct Measured {
    /// Peak of the redo, bytes per second.
    pub peak: f64,
    pub redo_write: u32,
    /// Seconds; the median on the idle link.
    pub round_trip: f64,
    /// Round trips on the idle link.
    pub idle: Option<Latency>,
    /// Round trips while one connection filled the link.
    pub loaded: Option<Latency>,
    /// SYNC messages of one redo write, without the durable write; FASTSYNC.
    pub fastsync: Option<Latency>,
    /// SYNC messages of one redo write, with the durable write; SYNC AFFIRM.
    pub affirm: Option<Latency>,
    /// ASYNC, one connection, socket buffers left to the systems.
    pub automatic: Option<Tried>,
    pub automatic_limit: Option<Limit>,
    /// The fastest run of one connection.
    pub single: Option<Tried>,
    pub fastest: Option<Tried>,
    /// Share of retransmitted segments in the runs that do not fill the link.
    pub loss: f64,
    /// Both sides agreed on selective acknowledgements.
    pub sack_negotiated: bool,
    /// `net.ipv4.tcp_sack` of this host; None when unknown.
    pub sack_enabled: Option<bool>,
    /// Losses that this host recovered by selective acknowledgements during the measurement; None when unknown.
    pub sack_recoveries: Option<u64>,
    /// `net.core.wmem_max` of this host when it sends, else `rmem_max`, bytes.
    pub ceiling: Option<u64>,
    /// Largest automatic buffer of this host (`net.ipv4.tcp_wmem` or `tcp_rmem`, third number), bytes.
    pub automatic_ceiling: Option<u64>,
}

/// The tests of the procedure, as far as they ran.
#[derive(Default)]
pub struct Findings {
    /// Round trips on the idle link.
    pub idle: Option<Outcome>,
    /// SYNC messages of one redo write, without the durable write.
    pub fastsync: Option<Outcome>,
    /// SYNC messages of one redo write, with the durable write.
    pub affirm: Option<Outcome>,
    /// Socket buffers and numbers of connections.
    pub sweep: Sweep,
    /// A stream at the peak, or as close to it as the link allows.
    pub paced: Option<Outcome>,
    /// Round trips while one connection fills the link.
    pub loaded: Option<Outcome>,
}

impl Findings {
    /// Returns the median idle round trip, seconds; None when it was not measured.
    pub fn round_trip(&self) -> Option<f64> {
        let idle = self.idle.as_ref()?;
        let messages = self.fastsync.as_ref().and_then(Outcome::latency);
        Some(shortest_median(&[idle.latency(), messages]))
    }
}

/// Returns the shortest median. A message with payload is never faster than one without. When it seems so, something
/// disturbed the round trips, and the link is shorter than they showed.
fn shortest_median(tests: &[Option<Latency>]) -> f64 {
    tests.iter().flatten().map(|latency| latency.total.p50).reduce(f64::min).unwrap_or(0.0)
}

/// Result of the procedure in one direction.
pub struct Way {
    pub direction: Direction,
    pub findings: Findings,
    /// Figures and verdicts; None when the tests did not complete.
    pub judged: Option<(Measured, Advice)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Grade {
    Pass,
    /// Suitable, with something to know or to fix.
    Warn,
    Fail,
}

impl fmt::Display for Grade {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Grade::Pass => "PASS",
            Grade::Warn => "WARN",
            Grade::Fail => "FAIL",
        })
    }
}

/// Why a verdict is not better.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// `bandwidth`, `distance`, `loss`, `buffers`, `far_disk`, `queueing` or `unmeasured`.
    pub name: &'static str,
    /// The grade that this cause gives.
    pub grade: Grade,
    /// The numbers behind the cause, and the remedy.
    pub text: String,
}

/// The verdict on one transport mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub mode: &'static str,
    /// The worst grade of the causes.
    pub grade: Grade,
    /// Expected cost of a commit, seconds; None when commits do not wait, or when it was not measured.
    pub commit: Option<f64>,
    pub causes: Vec<Cause>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Rate that the link must carry, bytes per second.
    pub required: f64,
    /// Bytes in flight that fill the link: bandwidth times delay.
    pub bandwidth_delay: f64,
    /// Time of a commit that FASTSYNC saves compared with SYNC AFFIRM, seconds.
    pub fastsync_gain: Option<f64>,
    /// Size of a redo log that lasts five minutes at the peak, bytes.
    pub log_bytes: f64,
    /// One verdict for each transport mode.
    pub verdicts: Vec<Verdict>,
    /// Lines that the operator puts in force on both hosts; the command changes nothing.
    pub settings: Vec<String>,
    /// Facts that are neither good nor bad.
    pub notes: Vec<String>,
}

pub fn advise(measured: &Measured) -> Advice {
    let required = measured.peak * HEADROOM;
    let fastest = measured.fastest.map_or(0.0, |run| run.rate);
    let product = bandwidth_delay(fastest, measured.round_trip);
    let carried = throughput(measured, required);
    let verdicts = vec![
        verdict("ASYNC", None, carried.clone()),
        verdict(
            "FASTSYNC",
            measured.fastsync.map(|latency| latency.total.mean),
            [carried.clone(), waiting(measured, measured.fastsync.as_ref(), false)].concat(),
        ),
        verdict(
            "SYNC AFFIRM",
            measured.affirm.map(|latency| latency.total.mean),
            [carried, waiting(measured, measured.affirm.as_ref(), true)].concat(),
        ),
    ];
    Advice {
        required,
        bandwidth_delay: product,
        fastsync_gain: measured
            .affirm
            .zip(measured.fastsync)
            .map(|(affirm, fastsync)| (affirm.total.mean - fastsync.total.mean).max(0.0)),
        log_bytes: measured.peak * SWITCH_SECONDS,
        verdicts,
        settings: settings(measured, product),
        notes: notes(measured),
    }
}

fn verdict(mode: &'static str, commit: Option<f64>, mut causes: Vec<Cause>) -> Verdict {
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.grade));
    let grade = causes.first().map_or(Grade::Pass, |cause| cause.grade);
    Verdict { mode, grade, commit, causes }
}

fn rate(bytes: f64) -> String {
    format!("{}/s ({:.0} Mbit/s)", readable_size(bytes), megabits(bytes))
}

/// Returns why the link does not carry the redo, or carries it badly: the same for every mode.
fn throughput(measured: &Measured, required: f64) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (Some(automatic), Some(single), Some(fastest)) =
        (measured.automatic, measured.single, measured.fastest)
    else {
        return vec![Cause {
            name: "unmeasured",
            grade: Grade::Fail,
            text: "no streaming test was possible within --max-traffic; allow more".into(),
        }];
    };
    let lossy = measured.loss > LOSSY;
    if fastest.rate < required {
        let enough_for_the_peak = fastest.rate >= measured.peak;
        let (name, remedy) = match lossy {
            true => ("loss", "find where the path loses segments"),
            false => ("bandwidth", "more bandwidth, or less redo"),
        };
        causes.push(Cause {
            name,
            grade: if enough_for_the_peak { Grade::Warn } else { Grade::Fail },
            text: format!(
                "the link carried {} at most, of {} required (peak + 30 %): {remedy}",
                rate(fastest.rate),
                rate(required)
            ),
        });
    } else if automatic.rate < required {
        let by_buffer = single.rate >= required;
        let windows = matches!(measured.automatic_limit, Some(Limit::ReceiverWindow | Limit::SendBuffer));
        causes.push(Cause {
            name: if lossy && !windows { "loss" } else { "buffers" },
            grade: Grade::Warn,
            text: match by_buffer {
                true => format!(
                    "one connection carried {} with automatic buffers and {} with {}: raise the ceilings below",
                    rate(automatic.rate),
                    rate(single.rate),
                    readable_size(single.window.into())
                ),
                false => format!(
                    "one connection carried {} at most, {} together {}, of {} required: redo takes one connection; \
                     raise the ceilings below",
                    rate(single.rate),
                    fastest.streams,
                    rate(fastest.rate),
                    rate(required)
                ),
            },
        });
    }
    if lossy && !causes.iter().any(|cause| cause.name == "loss") {
        causes.push(Cause {
            name: "loss",
            grade: Grade::Warn,
            text: format!(
                "{:.2} % of the segments were sent again: look at cables, queues and policers on the path",
                measured.loss * 100.0
            ),
        });
    }
    causes
}

/// Returns what waiting for the standby means for commits.
fn waiting(measured: &Measured, latency: Option<&Latency>, disk: bool) -> Vec<Cause> {
    let Some(latency) = latency else {
        return vec![Cause {
            name: "unmeasured",
            grade: Grade::Fail,
            text: "the acknowledged test was not carried out".into(),
        }];
    };
    let mut causes = Vec::new();
    let millis = |seconds: f64| format!("{:.2} ms", seconds * 1e3);
    if measured.round_trip > FAR {
        causes.push(Cause {
            name: "distance",
            grade: if measured.round_trip > TOO_FAR { Grade::Fail } else { Grade::Warn },
            text: format!(
                "a round trip takes {}, and a commit at least that (more than {} is felt by applications that \
                 commit row by row; batches bear more)",
                millis(measured.round_trip),
                millis(FAR)
            ),
        });
    }
    if disk {
        let (write, share) = (latency.disk.mean, latency.disk.mean / latency.total.mean.max(1e-12));
        if write > SLOW_DISK || (share > 0.5 && write > FAR / 5.0) {
            causes.push(Cause {
                name: "far_disk",
                grade: Grade::Warn,
                text: format!(
                    "the standby's durable write takes {}, {:.0} % of the wait: a faster disk for its standby redo \
                     log, one member, or FASTSYNC",
                    millis(write),
                    share * 100.0
                ),
            });
        }
    }
    // Commits that wait together are written together: at the peak, a write holds what arrived during the previous one.
    let grouped = measured.peak * latency.total.mean;
    if grouped > LARGEST_WRITE {
        causes.push(Cause {
            name: if disk && latency.disk.mean > latency.network.mean { "far_disk" } else { "distance" },
            grade: Grade::Warn,
            text: format!(
                "at the peak {} of redo come in during one wait: writes grow from {} to that, and waits with them",
                readable_size(grouped),
                readable_size(measured.redo_write.into())
            ),
        });
    }
    causes.extend(queueing(measured));
    causes
}

/// Returns a cause when round trips grow much while the link is full.
fn queueing(measured: &Measured) -> Option<Cause> {
    let (idle, loaded) = (measured.round_trip, measured.loaded?.total.p50);
    let of_any = measured.fastest.map_or(0.0, |run| WINDOW_OF_ANY / run.rate.max(1.0));
    (loaded > QUEUED * idle && loaded - idle > FAR + of_any).then(|| Cause {
        name: "queueing",
        grade: Grade::Warn,
        text: format!(
            "a round trip takes {:.2} ms while one connection fills the link, and {:.2} ms when it is idle: commits wait \
             behind the queues on the path whenever something fills them; shorter queues, or traffic classes",
            loaded * 1e3,
            idle * 1e3
        ),
    })
}

fn settings(measured: &Measured, product: f64) -> Vec<String> {
    let wanted = (3.0 * product) as u64;
    let ceiling = wanted.max(LEAST_CEILING).next_multiple_of(1 << 20);
    let low = |found: Option<u64>| found.is_none_or(|found| found < wanted);
    let mut settings = Vec::new();
    if low(measured.automatic_ceiling) || low(measured.ceiling) {
        settings.extend([
            format!("net.core.rmem_max = {ceiling}"),
            format!("net.core.wmem_max = {ceiling}"),
            format!("net.ipv4.tcp_rmem = 4096 131072 {ceiling}"),
            format!("net.ipv4.tcp_wmem = 4096 16384 {ceiling}"),
        ]);
    }
    if measured.sack_enabled == Some(false) || !measured.sack_negotiated {
        settings.push("net.ipv4.tcp_sack = 1".into());
    }
    if measured.fastest.is_some_and(|run| run.rate >= FAST_LINK) && measured.round_trip > 0.001 {
        settings.push("net.core.netdev_max_backlog = 10000".into());
        settings.push("# ip link set dev DEVICE txqueuelen 10000".into());
    }
    settings
}

fn notes(measured: &Measured) -> Vec<String> {
    let enabled = match measured.sack_enabled {
        Some(true) => "on",
        Some(false) => "off",
        None => "unknown",
    };
    let negotiated = if measured.sack_negotiated { "negotiated" } else { "not negotiated" };
    let used = match measured.sack_recoveries {
        Some(0) => "never needed here during the tests".into(),
        Some(times) => format!("used {times} times here during the tests"),
        None => "whether they were used is unknown".into(),
    };
    let mut notes = vec![
        format!("selective acknowledgements: {enabled} at this host, {negotiated}, {used}"),
        format!(
            "session data unit: {SESSION_DATA_UNIT} bytes (the most) where redo goes through a layer that has one; \
             Standfast sends whole redo writes"
        ),
        format!("segments sent again while the link was not full: {:.3} %", measured.loss * 100.0),
    ];
    if let Some((idle, loaded)) = measured.idle.zip(measured.loaded) {
        let millis = |latency: &Latency| {
            format!("p50 {:.3} ms, p99 {:.3} ms", latency.total.p50 * 1e3, latency.total.p99 * 1e3)
        };
        notes.push(format!(
            "round trips while one connection fills the link: {}; idle: {}",
            millis(&loaded),
            millis(&idle)
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Latencies;

    #[test]
    fn disturbed_round_trip_does_not_count_as_distance() {
        let test = |millis: u64| {
            let mut latencies = Latencies::default();
            latencies.record(millis * 1_000_000, 0, 0);
            latencies.figures()
        };
        let near = |found: f64, truth: f64| (found - truth).abs() < truth * 0.01;
        assert!(near(shortest_median(&[test(7), test(4)]), 0.004));
        assert!(near(shortest_median(&[test(4), test(5)]), 0.004));
        assert_eq!(shortest_median(&[None, None]), 0.0);
    }
}
