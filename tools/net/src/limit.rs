//! What limited a test. Pure.

use std::fmt;

/// The one thing that must change for the test to go faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The receiver's buffer: its window was full although it read what arrived.
    ReceiverWindow,
    SendBuffer,
    /// Bandwidth, distance, loss or congestion control between the hosts.
    Path,
    /// The programs or processors at the ends, or a requested rate or pause.
    Application,
    /// The durable writes of the receiver.
    Disk,
}

impl Limit {
    pub fn code(self) -> &'static str {
        match self {
            Limit::ReceiverWindow => "receiver_window",
            Limit::SendBuffer => "send_buffer",
            Limit::Path => "path",
            Limit::Application => "application",
            Limit::Disk => "disk",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Limit::ReceiverWindow => "receiver window",
            Limit::SendBuffer => "send buffer",
            Limit::Path => "path",
            Limit::Application => "application",
            Limit::Disk => "disk",
        })
    }
}

/// How the time of a connection was spent within a window. Nanoseconds; sums of several connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    /// Length of the window, times the connections.
    pub elapsed: f64,
    /// Time with data waiting or in flight.
    pub busy: f64,
    /// Time held back by the receiver's window.
    pub receiver_window: f64,
    /// Time held back by the send buffer.
    pub send_buffer: f64,
    /// Share of the receiver's window that the bytes in flight take if nothing is queued. A sender that paces itself
    /// never fills the window, and the kernel does not count it as held back.
    pub filled: f64,
    /// Time in which the receiver wrote durably.
    pub disk: f64,
    /// Time in which the receiver waited for bytes.
    pub far_wait: f64,
    /// Each message waited for its acknowledgement.
    pub synchronous: bool,
    /// Pauses or a rate were requested.
    pub paced: bool,
}

/// Returns the limit; None when the window is too short to tell.
pub fn limit(shares: &Shares) -> Option<Limit> {
    let share = |part: f64| part / shares.elapsed;
    if shares.elapsed <= 0.0 {
        return None;
    }
    if share(shares.disk) >= 0.5 {
        return Some(Limit::Disk);
    }
    // Between two SYNC messages nothing is in flight, so only the busy time counts: what held back at least half of it
    // is the limit.
    if shares.synchronous {
        let held = |part: f64| shares.busy > 0.0 && part / shares.busy >= 0.5;
        return Some(match () {
            _ if shares.paced && share(shares.busy) < 0.5 => Limit::Application,
            _ if held(shares.receiver_window) => Limit::ReceiverWindow,
            _ if held(shares.send_buffer) => Limit::SendBuffer,
            _ => Limit::Path,
        });
    }
    if share(shares.busy) < 0.7 {
        return Some(Limit::Application);
    }
    let (window, buffer) = (share(shares.receiver_window), share(shares.send_buffer));
    Some(match () {
        // The window is full because the receiver is busy with what it has, not because it is small.
        _ if window >= 0.3 && share(shares.far_wait) < 0.2 => Limit::Application,
        _ if window >= 0.3 && window >= buffer => Limit::ReceiverWindow,
        _ if buffer >= 0.3 => Limit::SendBuffer,
        _ if shares.filled >= 0.8 && window + buffer > 0.0 => match window >= buffer {
            true => Limit::ReceiverWindow,
            false => Limit::SendBuffer,
        },
        _ => Limit::Path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streaming() -> Shares {
        Shares { elapsed: 100.0, busy: 99.0, far_wait: 90.0, ..Shares::default() }
    }

    #[test]
    fn limit_is_derived_from_where_the_time_went() {
        assert_eq!(limit(&Shares::default()), None);
        assert_eq!(limit(&streaming()), Some(Limit::Path));
        assert_eq!(limit(&Shares { receiver_window: 80.0, ..streaming() }), Some(Limit::ReceiverWindow));
        assert_eq!(
            limit(&Shares { receiver_window: 80.0, far_wait: 5.0, ..streaming() }),
            Some(Limit::Application)
        );
        assert_eq!(limit(&Shares { send_buffer: 80.0, ..streaming() }), Some(Limit::SendBuffer));
        assert_eq!(limit(&Shares { busy: 30.0, ..streaming() }), Some(Limit::Application));
        // Paced by congestion control, within a window that is too small.
        let paced = Shares { receiver_window: 10.0, send_buffer: 5.0, filled: 0.9, ..streaming() };
        assert_eq!(limit(&paced), Some(Limit::ReceiverWindow));
        assert_eq!(limit(&Shares { send_buffer: 20.0, ..paced }), Some(Limit::SendBuffer));
        assert_eq!(limit(&Shares { filled: 0.5, ..paced }), Some(Limit::Path));
        assert_eq!(limit(&Shares { disk: 70.0, receiver_window: 80.0, ..streaming() }), Some(Limit::Disk));
    }

    #[test]
    fn sync_test_is_path_limited_unless_another_share_dominates() {
        let shares = Shares { elapsed: 100.0, busy: 60.0, synchronous: true, ..Shares::default() };
        assert_eq!(limit(&shares), Some(Limit::Path));
        assert_eq!(limit(&Shares { disk: 55.0, ..shares }), Some(Limit::Disk));
        assert_eq!(limit(&Shares { receiver_window: 40.0, ..shares }), Some(Limit::ReceiverWindow));
        assert_eq!(limit(&Shares { busy: 10.0, paced: true, ..shares }), Some(Limit::Application));
    }
}
