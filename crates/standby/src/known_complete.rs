//! Whether a standby that takes over has everything that its primary has acknowledged.
//!
//! Every frame says for how long, from the moment the frame was made, no commit is acknowledged without this standby.
//! When commits begin to wait for the standby, everything acknowledged before ends where the redo of the primary ends
//! in that frame. So a standby that has received up to there has everything until the time that the newest frame gives
//! is over. Whether the primary has continued alone after that, a standby that hears nothing cannot know, and it
//! reports that. Commits did not wait for a standby that was behind.
//!
//! Where the source is not a primary see [`standfast_instance::role::drain`].

use crate::source_report::SourceReport;
use standfast_transport::TransportMode;
use standfast_types::{Scn, hint};
use std::time::{Duration, Instant};

/// What the streams since the start of the instance have shown. A state machine without a clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Completeness {
    /// Transport mode of the newest stream.
    mode: Option<TransportMode>,
    /// End of what was acknowledged when commits began to wait for this standby, by this stream; `None`: they do not
    /// wait.
    acknowledged_alone: Option<Scn>,
    /// When everything acknowledged was last here.
    complete: Option<Instant>,
    /// Until then no commit is acknowledged without this standby.
    until: Option<Instant>,
}

impl Completeness {
    pub fn begin_stream(&mut self, mode: TransportMode) {
        (self.mode, self.acknowledged_alone) = (Some(mode), None);
    }

    pub fn heard(&mut self, delivered: Scn, source_end: Scn, waits_until: Option<Instant>, now: Instant) {
        if waits_until.is_none() {
            return self.refused();
        }
        if delivered >= *self.acknowledged_alone.get_or_insert(source_end) {
            (self.complete, self.until) = (Some(now), waits_until);
        }
    }

    /// Notes that the source need not wait for this standby.
    pub fn refused(&mut self) {
        (self.acknowledged_alone, self.complete, self.until) = (None, None, None);
    }

    pub fn at(&self, report: SourceReport, now: Instant) -> Heard {
        Heard {
            mode: self.mode,
            report,
            complete_ago: self.complete.map(|at| now.saturating_duration_since(at)),
            is_waited_for: self.until.is_some_and(|until| now < until),
        }
    }
}

/// What is known when a failover begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Transport mode of the newest stream since the start of the instance, if there was one.
    mode: Option<TransportMode>,
    /// What that stream has reported about its source.
    report: SourceReport,
    /// How long ago everything acknowledged was last here; `None`: unknown.
    complete_ago: Option<Duration>,
    /// No commit has been acknowledged without this standby since then.
    is_waited_for: bool,
}

/// Whether acknowledged redo may be missing, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Everything that was acknowledged is here.
    Complete,
    /// The primary ships asynchronously: redo that it had not sent is missing.
    Asynchronous,
    /// Nothing has come from the primary since this instance was started.
    NeverHeard,
    /// The standby had not caught up: this many bytes were missing when the primary was last heard; `None`: unknown.
    Behind(Option<u64>),
    /// All redo that the primary had reported was here, but its commits did not wait for this standby, or might stop
    /// waiting immediately.
    NotWaitedFor,
    /// The primary has been silent for longer than it waits for this standby.
    Silent(Duration),
}

pub fn judge(heard: &Heard) -> Known {
    match (heard.mode, heard.complete_ago) {
        (None, _) => Known::NeverHeard,
        (Some(TransportMode::Async), _) => Known::Asynchronous,
        (_, Some(_)) if heard.is_waited_for => Known::Complete,
        (_, Some(ago)) => Known::Silent(ago),
        (_, None) => match heard.report.source_end {
            Some(end) if end <= heard.report.delivered => Known::NotWaitedFor,
            end => Known::Behind(end.map(|end| end.0 - heard.report.delivered.0)),
        },
    }
}

impl Known {
    /// Whether a failover counts as complete. An asynchronous standby lacks by design what was in flight.
    pub fn is_complete(self) -> bool {
        matches!(self, Known::Complete | Known::Asynchronous)
    }

    /// Returns the message for the operator; `None` when everything is here.
    pub fn text(self, source: &str) -> Option<String> {
        let compare = "if the old primary can be reached, compare the end of its redo before applications continue here";
        let hint = (self != Known::Asynchronous).then_some(compare);
        Some(hint::in_one_line(self.what(source)?, hint))
    }

    fn what(self, source: &str) -> Option<String> {
        Some(match self {
            Known::Complete => return None,
            Known::Asynchronous => {
                format!(
                    "`{source}` ships asynchronously: commits that it had acknowledged and not sent are not here"
                )
            }
            Known::NeverHeard => format!(
                "NOT KNOWN whether everything is here: nothing has come from `{source}` since this instance was started. \
                 Commits that it acknowledged meanwhile are missing"
            ),
            Known::Behind(bytes) => format!(
                "NOT SYNCHRONISED: {} of the redo of `{source}` was missing here when it was last heard, and its commits did not \
                 wait for this standby",
                bytes.map_or("an unknown part".into(), |bytes| format!("{bytes} bytes"))
            ),
            Known::NotWaitedFor => format!(
                "NOT KNOWN whether everything is here: commits of `{source}` did not wait for this standby when it was last heard, \
                 or continue without it as soon as the connection is lost (max_failure, a group). Those that it acknowledged alone \
                 since are missing"
            ),
            Known::Silent(silent) => format!(
                "NOT KNOWN whether everything is here: `{source}` has been silent for {:.0} s, longer than its commits wait for \
                 this standby. Commits that it acknowledged alone since are missing",
                silent.as_secs_f64()
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TransportMode::{Async, FastSync, SyncAffirm};

    const WAIT: Duration = Duration::from_secs(30);

    /// A standby that hears frames, and what a failover at each moment would report.
    struct Standby {
        completeness: Completeness,
        report: SourceReport,
        began: Instant,
    }

    impl Standby {
        fn new(mode: TransportMode) -> Standby {
            let mut completeness = Completeness::default();
            completeness.begin_stream(mode);
            Standby { completeness, report: SourceReport::default(), began: Instant::now() }
        }

        /// At this second a frame arrives that was made `age` earlier; commits wait for `wait` from then on.
        fn hears(&mut self, second: u64, delivered: u64, end: u64, wait: Option<(Duration, Duration)>) {
            let now = self.began + Duration::from_secs(second);
            self.report = SourceReport { streams: 1, source_end: Some(Scn(end)), delivered: Scn(delivered) };
            let until = wait.map(|(wait, age)| now - age + wait);
            self.completeness.heard(Scn(delivered), Scn(end), until, now);
        }

        fn fails_over(&self, second: u64) -> Known {
            judge(&self.completeness.at(self.report, self.began + Duration::from_secs(second)))
        }
    }

    const AT_ONCE: Option<(Duration, Duration)> = Some((WAIT, Duration::ZERO));

    #[test]
    fn standby_is_known_complete_while_commits_wait_for_it() {
        for mode in [SyncAffirm, FastSync] {
            let mut standby = Standby::new(mode);
            standby.hears(1, 500, 500, AT_ONCE);
            assert_eq!(standby.fails_over(30), Known::Complete);
            assert_eq!(standby.fails_over(31), Known::Silent(WAIT));
            // Redo in flight was not acknowledged.
            standby.hears(20, 500, 600, AT_ONCE);
            assert_eq!(standby.fails_over(49), Known::Complete);
            // The frame was in flight for ten seconds.
            standby.hears(40, 700, 800, Some((WAIT, Duration::from_secs(10))));
            assert_eq!(standby.fails_over(59), Known::Complete);
            assert_eq!(standby.fails_over(60), Known::Silent(Duration::from_secs(20)));
        }
        let mut standby = Standby::new(Async);
        standby.hears(1, 500, 500, None);
        assert_eq!(standby.fails_over(1), Known::Asynchronous);
        assert_eq!(
            judge(&Completeness::default().at(SourceReport::default(), Instant::now())),
            Known::NeverHeard
        );
    }

    #[test]
    fn standby_lacks_commits_acknowledged_before_they_waited_for_it() {
        let mut standby = Standby::new(SyncAffirm);
        standby.hears(1, 500, 600, AT_ONCE);
        assert_eq!(standby.fails_over(1), Known::Behind(Some(100)));
        standby.hears(2, 599, 900, AT_ONCE);
        assert_eq!(standby.fails_over(2), Known::Behind(Some(301)));
        standby.hears(3, 600, 900, AT_ONCE);
        assert_eq!(standby.fails_over(3), Known::Complete);
    }

    #[test]
    fn standby_no_longer_waited_for_is_not_known_complete() {
        let mut standby = Standby::new(SyncAffirm);
        standby.hears(1, 500, 500, AT_ONCE);
        standby.hears(2, 500, 500, None);
        assert_eq!(standby.fails_over(2), Known::NotWaitedFor);
        standby.hears(3, 600, 700, AT_ONCE);
        assert_eq!(standby.fails_over(3), Known::Behind(Some(100)), "some were acknowledged alone");
        standby.hears(4, 700, 700, AT_ONCE);
        standby.completeness.refused();
        assert_eq!(standby.fails_over(4), Known::NotWaitedFor);
    }

    #[test]
    fn new_stream_neither_revokes_nor_proves_completeness() {
        let mut standby = Standby::new(SyncAffirm);
        standby.hears(1, 500, 500, Some((Duration::from_secs(2), Duration::ZERO)));
        standby.completeness.begin_stream(SyncAffirm);
        assert_eq!(standby.fails_over(2), Known::Complete);
        // The wait is longer now, but the standby is behind.
        standby.hears(5, 500, 600, AT_ONCE);
        assert_eq!(standby.fails_over(5), Known::Silent(Duration::from_secs(4)));
    }

    #[test]
    fn possible_data_loss_is_reported_with_a_remedy() {
        assert_eq!(Known::Complete.text("south"), None);
        let silent = Known::Silent(Duration::from_secs(40));
        for known in [Known::NeverHeard, Known::Behind(None), Known::NotWaitedFor, silent] {
            let text = known.text("south").unwrap();
            assert!(text.contains("NOT ") && text.contains("`south`") && text.contains("hint: "), "{text}");
            assert!(!known.is_complete());
        }
        assert!(Known::Asynchronous.is_complete() && Known::Asynchronous.text("south").is_some());
    }
}
