//! A standby that is fed by another standby or a far sync receives what its source still has before it takes over:
//! commits may have been acknowledged because the source has them, without having been forwarded yet.
//!
//! The primary is gone by then, so the source's redo has an end, and every frame says where that end was when the frame
//! was sent. But frames that were sent earlier may still be in flight. So the failover ends the stream, and the source
//! begins another one: whatever arrives on that stream was sent after the failover began. Without a new stream there is
//! no proof, and the failover reports that.

use crate::role::running::{Mode, Running};
use standfast_standby::source_report::SourceReport;
use standfast_standby::standby_shared::StandbyShared;
use standfast_transport::Role;
use standfast_types::{Scn, hint};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a failover waits for its source by default.
pub const TIMEOUT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What is known at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub streaming: bool,
    /// What this stream, or the last one, has reported.
    pub report: SourceReport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Everything that the source had is here, up to this position.
    Complete(Scn),
    /// No stream began after the failover did, or it was lost.
    NoStream,
    /// The stream was live but incomplete at the timeout; this many bytes were missing.
    Behind(u64),
}

/// Decides whether the wait is over; `None`: not yet. `before`: streams that had begun when the failover ended the
/// newest of them.
pub fn judge(before: u64, now: &Seen, waited: Duration, timeout: Duration) -> Option<Drained> {
    let end = now.report.source_end.filter(|_| now.report.streams > before);
    if let Some(end) = end.filter(|end| now.report.delivered >= *end) {
        return Some(Drained::Complete(end));
    }
    if waited < timeout {
        return None;
    }
    Some(match end {
        Some(end) if now.streaming => Drained::Behind(end.0.saturating_sub(now.report.delivered.0)),
        _ => Drained::NoStream,
    })
}

/// Returns the message for the operator.
pub fn text(drained: Drained, source: &str, waited: Duration) -> String {
    let seconds = waited.as_secs_f64();
    match drained {
        Drained::Complete(end) => {
            format!("everything that its source, `{source}`, has is here, up to SCN {end}")
        }
        Drained::NoStream => hint::in_one_line(
            format_args!(
                "NOT KNOWN whether its source, `{source}`, has more redo: no stream from it for {seconds:.1} s. Commits that \
                 were acknowledged may be missing here"
            ),
            Some(&format!(
                "if `{source}` can be started again, look at `hardened` in its status and compare before applications \
                 continue here"
            )),
        ),
        Drained::Behind(bytes) => hint::in_one_line(
            format_args!(
                "NOT EVERYTHING that its source, `{source}`, has is here: {bytes} bytes were missing after {seconds:.1} s"
            ),
            Some(
                "is the primary really gone, or the link slow? Commits that were acknowledged may be missing here",
            ),
        ),
    }
}

impl Running {
    /// Waits until this standby has what its source has, at most `timeout`. Returns whether it has, and the message.
    /// `None` when its source is a primary, or was never heard of.
    pub(crate) fn drain(&self, timeout: Duration) -> Option<(bool, String)> {
        let upstream = self.environment.control().upstream.filter(|at| at.role != Role::Primary)?;
        let shared: Arc<StandbyShared> = match &*self.mode() {
            Mode::Standby(standby) => standby.standby.shared().clone(),
            _ => return None,
        };
        let began = Instant::now();
        let mut before = shared.report().streams;
        if let Some(receiver) = self.receiver().as_ref()
            && let Some(log) = receiver.detach()
        {
            // The previous stream delivers nothing any more.
            before = shared.report().streams;
            receiver.attach(log);
        }
        self.environment.alert.say(format!(
            "failover: waiting for what `{}` still has, at most {} s",
            upstream.name,
            timeout.as_secs()
        ));
        loop {
            let now = Seen { streaming: self.is_streaming(), report: *shared.report() };
            if let Some(drained) = judge(before, &now, began.elapsed(), timeout) {
                let text = text(drained, &upstream.name, began.elapsed());
                self.environment.alert.say(format!("failover: {text}"));
                return Some((matches!(drained, Drained::Complete(_)), text));
            }
            if shared.is_stopping() {
                return None;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn judge_at(
        seconds: u64,
        streaming: bool,
        streams: u64,
        delivered: u64,
        end: Option<u64>,
    ) -> Option<Drained> {
        let report = SourceReport { streams, source_end: end.map(Scn), delivered: Scn(delivered) };
        let now = Seen { streaming, report };
        judge(7, &now, Duration::from_secs(seconds), TIMEOUT)
    }

    #[test]
    fn only_a_stream_begun_after_failover_proves_complete_redo() {
        // What the previous stream reported may have been sent long ago.
        assert_eq!(judge_at(0, true, 7, 5000, Some(5000)), None);
        assert_eq!(judge_at(1, true, 8, 5000, None), None);
        assert_eq!(judge_at(1, true, 8, 5000, Some(5600)), None);
        assert_eq!(judge_at(2, true, 8, 5600, Some(5600)), Some(Drained::Complete(Scn(5600))));
        // The stream may end once it has reported the end.
        assert_eq!(judge_at(2, false, 8, 5600, Some(5600)), Some(Drained::Complete(Scn(5600))));
    }

    #[test]
    fn drain_timeout_reports_missing_stream_or_missing_redo() {
        assert_eq!(judge_at(30, false, 7, 5600, Some(5600)), Some(Drained::NoStream));
        assert_eq!(judge_at(30, true, 7, 5600, Some(5600)), Some(Drained::NoStream));
        assert_eq!(judge_at(30, false, 8, 5600, Some(6000)), Some(Drained::NoStream));
        assert_eq!(judge_at(30, true, 8, 5600, Some(6000)), Some(Drained::Behind(400)));
        for drained in [Drained::NoStream, Drained::Behind(400)] {
            let text = text(drained, "near", TIMEOUT);
            assert!(text.contains("NOT") && text.contains("`near`") && text.contains("hint: "), "{text}");
        }
    }
}
