//! Rules about the network between primary and standby.

use super::case::Case;
use super::finding::{ASIDE, Finding, PART_MIN, Severity, Unit};
use crate::replication::StandbyFigures;
use standfast_instruments::{CommitPart, Event, Statistic};

/// R8: network time over the round trip of the link. Our own choice: histograms have powers of two.
const BEYOND: f64 = 3.0;
/// R8: smallest difference of the two, microseconds.
const BEYOND_US: f64 = 1_000.0;
/// R8: from this number on retransmitted segments are not accidental. Our own choice.
const RESENT: u64 = 10;
/// R8: share of retransmissions that commits notice. Our own choice: one segment in a hundred waits 200 ms for its
/// retransmission.
const RESENT_SHARE: f64 = 0.01;
/// R12: the round trip from which synchronous transport hurts OLTP markedly, microseconds (S1: 5 ms).
const LONG_US: f64 = 5_000.0;
/// R14, R15: smallest lag that is reported, bytes.
const LAG_BYTES: f64 = 8_388_608.0;
/// R14: smallest lag, in seconds of generated redo. Our own choice.
const LAG_S: f64 = 5.0;
/// R14: a link should carry the peak times this factor (S1).
const HEADROOM: f64 = 1.3;
/// R14: socket buffers should hold this many times bandwidth x delay (S0).
const BUFFER_DELAYS: f64 = 3.0;
/// R15: share of the redo that a sender had to read from files. Our own choice.
const FROM_FILES: f64 = 0.1;
/// R15: with less read from files, bytes, it has only just begun.
const FROM_FILES_BYTES: f64 = 4_194_304.0;
/// R20: from this number on timeouts in an interval are not accidental.
const TIMEOUTS: u64 = 2;
/// R20: a shorter net timeout is too short, milliseconds (S0: 8 to 10 s at least).
const NET_TIMEOUT_MS: f64 = 10_000.0;
/// R23: broken connections in an interval that point to a network fault. Our own choice.
const BREAKS: u64 = 3;

pub(super) fn all(case: &Case<'_>) -> Vec<Finding> {
    let sync = [beyond_the_round_trip, long_link, timeouts];
    let any = [bandwidth, broken];
    let of_sync = case.sync_standbys().flat_map(|standby| sync.iter().filter_map(|rule| rule(case, standby)));
    let of_any =
        case.interval.standbys.iter().flat_map(|standby| any.iter().filter_map(|rule| rule(case, standby)));
    of_sync.chain(of_any).chain(from_files(case)).collect()
}

/// Round trip of the unloaded link: from the connection, or else the shortest tenth of the network waits of commits.
fn distance_us(case: &Case<'_>, standby: &StandbyFigures) -> Option<f64> {
    let network = case.counters.part(CommitPart::Network)?;
    let mean = network.mean_us?;
    standby.network_round_trip_us.or_else(|| {
        let shortest = network.percentile_above_zero_us(0.1)?;
        // If the two differ by no more than buckets resolve, the mean is more precise.
        Some(if mean < BEYOND * shortest { mean } else { shortest })
    })
}

/// R8: the network takes much longer than its round trip, or loses segments.
fn beyond_the_round_trip(case: &Case<'_>, standby: &StandbyFigures) -> Option<Finding> {
    let share = case.counters.share_of(CommitPart::Network).filter(|share| *share >= PART_MIN)?;
    let network = case.counters.part(CommitPart::Network)?;
    let (mean, distance) = (network.mean_us?, distance_us(case, standby)?);
    let resent = standby.retransmitted_share();
    let loses = standby.retransmitted.is_some_and(|resent| resent >= RESENT)
        && resent.is_some_and(|share| share >= RESENT_SHARE);
    let is_long = mean - distance >= BEYOND_US;
    (is_long && (loses || mean >= BEYOND * distance)).then(|| {
        let what = if loses { "loses what is sent" } else { "takes much longer than a round trip" };
        let buffer = case.interval.destination_parameter(&standby.name, "send_buffer_bytes");
        let buffer = buffer.filter(|bytes| *bytes > 0.0);
        Finding::new(
            "R8",
            Severity::Warning,
            share,
            format!("the network to standby {} {what}", standby.name),
        )
        .with("TCP segments sent again", resent, Unit::Share)
        .with("network, mean of commits", Some(mean), Unit::Micros)
        .with("network, p99 of commits", network.p99_us, Unit::Micros)
        .with("round trip of the link", Some(distance), Unit::Micros)
        .with("share of the commits' waiting", Some(share), Unit::Share)
        .with("redo of a write, mean", case.counters.write_bytes(), Unit::Bytes)
        .with("send buffer, as configured", buffer, Unit::Bytes)
        .remedy("look for loss and queues: `ss -ti` (retrans, cwnd), interface errors, other traffic on the link, a firewall in between; let the buffers be automatic (send_buffer_bytes = 0) or three times bandwidth x delay; `standfast net advise` names the limit")
        .unless("`standfast net client --loaded` with round trips as long as that: then it is distance, R12")
    })
}

/// R12: the link is long for synchronous transport.
fn long_link(case: &Case<'_>, standby: &StandbyFigures) -> Option<Finding> {
    let share = case.counters.share_of(CommitPart::Network).filter(|share| *share >= PART_MIN)?;
    let distance = distance_us(case, standby).filter(|distance| *distance > LONG_US)?;
    Some(
        Finding::new(
            "R12",
            Severity::Warning,
            share * (1.0 - 1e-3),
            format!("the link to standby {} is long for synchronous transport", standby.name),
        )
        .with("round trip of the link", Some(distance), Unit::Micros)
        .with("log file sync, mean", case.counters.mean_us(Event::LogFileSync), Unit::Micros)
        .with("share of the commits' waiting", Some(share), Unit::Share)
        .remedy("more sessions at once share a round trip and batches tolerate it; else a far sync near the primary, or asynchronous transport")
        .unless("commits for each second that stay as they were without this destination (R9)"),
    )
}

/// R14: the link does not carry the redo.
fn bandwidth(case: &Case<'_>, standby: &StandbyFigures) -> Option<Finding> {
    let seconds = case.interval.seconds;
    let generated = case.counters.per_second(Statistic::RedoSize)?;
    let sent = standby.sent_per_second(seconds).filter(|_| standby.is_streaming())?;
    let lag = standby.transport_lag_end? as f64;
    let grows = standby.transport_lag_begin.is_none_or(|begin| lag > begin as f64);
    if lag < LAG_BYTES || lag < LAG_S * generated || !grows || sent >= generated {
        return None;
    }
    let round_trip = standby.network_round_trip_us.or(standby.round_trip_us);
    let product = round_trip.map(|us| HEADROOM * generated * us / 1e6);
    let setting =
        |name| case.interval.destination_parameter(&standby.name, name).filter(|bytes| *bytes > 0.0);
    let buffer = [setting("send_buffer_bytes"), setting("receive_buffer_bytes")]
        .into_iter()
        .flatten()
        .reduce(f64::min);
    let is_small = buffer.zip(product).is_some_and(|(buffer, product)| buffer < BUFFER_DELAYS * product);
    let (what, remedy) = match is_small {
        true => (
            "socket buffers are too small for the redo",
            "let the system choose the buffers (send_buffer_bytes = 0, receive_buffer_bytes = 0), or make them three times bandwidth x delay at both ends; raise net.core.wmem_max and rmem_max first",
        ),
        false => (
            "the link does not carry the redo",
            "find the limit with `standfast net advise --peak-redo`; COMPRESSION if processors are idle, larger buffers if one connection is slower than several, else more bandwidth",
        ),
    };
    Some(
        Finding::new("R14", Severity::Warning, 3.0 * ASIDE, format!("standby {}: {what}", standby.name))
            .with("redo generated", Some(generated), Unit::BytesPerSecond)
            .with("redo sent", Some(sent), Unit::BytesPerSecond)
            .with("required, the rate and 30 %", Some(HEADROOM * generated), Unit::BytesPerSecond)
            .with("transport lag at the end", Some(lag), Unit::Bytes)
            .with("smaller of the buffers, as configured", buffer, Unit::Bytes)
            .with("bandwidth x delay at the required rate", product, Unit::Bytes)
            .remedy(remedy)
            .unless("a test of the link with one connection above the required rate"),
    )
}

/// R15: a sender has fallen behind the log buffer and reads files.
fn from_files(case: &Case<'_>) -> Option<Finding> {
    let files = case.counters.statistic(Statistic::RedoReadForTransport)? as f64 * 1024.0;
    let memory = case.counters.statistic(Statistic::RedoReadMemoryForTransport)? as f64 * 1024.0;
    let behind = |standby: &&StandbyFigures| {
        standby.state.as_deref() == Some("catching_up")
            || standby.transport_lag_end.is_some_and(|lag| lag as f64 >= LAG_BYTES)
    };
    let standby = case.interval.standbys.iter().find(behind)?;
    let share = files / (files + memory).max(1.0);
    (share >= FROM_FILES && files >= FROM_FILES_BYTES).then(|| {
        let read = case.counters.mean_us(Event::LogFileSequentialRead);
        Finding::new(
            "R15",
            Severity::Warning,
            2.0 * ASIDE,
            format!("the sender to standby {} is behind and reads log files instead of the log buffer", standby.name),
        )
        .with("redo read from files", Some(files), Unit::Bytes)
        .with("of all redo sent", Some(share), Unit::Share)
        .with("log file sequential read, mean", read, Unit::Micros)
        .with("transport lag at the end", standby.transport_lag_end.map(|lag| lag as f64), Unit::Bytes)
        .with("log buffer, as configured", case.interval.parameter("redo.buffer_bytes"), Unit::Bytes)
        .remedy("if reads are slow, the device of the log is the limit: separate it; if not, the link (R14); a larger redo.buffer_bytes carries longer peaks")
        .unless("a lag that shrinks by itself when the load does")
    })
}

/// R20: a destination is degraded or stalled repeatedly because it does not answer in time.
fn timeouts(case: &Case<'_>, standby: &StandbyFigures) -> Option<Finding> {
    let timeout = case.interval.destination_parameter(&standby.name, "net_timeout_ms");
    let is_short = timeout.is_some_and(|timeout| timeout < NET_TIMEOUT_MS);
    let timeouts = standby.timeouts?;
    (timeouts >= TIMEOUTS || (timeouts > 0 && is_short)).then(|| {
        Finding::new(
            "R20",
            Severity::Warning,
            1.0 + ASIDE,
            format!("standby {} did not answer in time again and again", standby.name),
        )
        .with("times that commits were let go or stalled", Some(timeouts as f64), Unit::Count)
        .with("net timeout", timeout.map(|ms| ms * 1e3), Unit::Micros)
        .saying(standby.last_trouble.clone().unwrap_or_else(|| "it answers at the moment".into()))
        .remedy("see what keeps the standby or the link for so long; a net_timeout_ms shorter than a usual brownout (below 8 to 10 s) gives up too early")
        .unless("an alert log of the standby that shows it stopped or restarted at these times")
    })
}

fn broken(_: &Case<'_>, standby: &StandbyFigures) -> Option<Finding> {
    let disconnects = standby.disconnects.filter(|lost| *lost >= BREAKS)?;
    Some({
        Finding::new(
            "R23",
            Severity::Warning,
            2.0 * ASIDE,
            format!("connections to standby {} break", standby.name),
        )
        .with("connections lost in the interval", Some(disconnects as f64), Unit::Count)
        .saying(standby.last_trouble.clone().unwrap_or_else(|| "it is connected at the moment".into()))
        .remedy("look at processors and memory of both hosts, errors of their interfaces, a packet trace, and the alert logs at both ends; `standfast net client` over the same way for as long")
        .unless("restarts of the standby at these times")
    })
}
