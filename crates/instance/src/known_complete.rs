//! Whether a standby that takes over has everything that its primary has acknowledged.
//!
//! Every frame says where the redo of the primary ended when it was sent, and nothing beyond that was acknowledged then. So a
//! standby that has received up to there has everything as of that frame. From then on a synchronous destination is waited for:
//! the primary acknowledges nothing without it before its net timeout has passed. Whether it has gone on alone after that, a
//! standby that hears nothing cannot know, and it says so. A standby that was behind was not waited for.
//!
//! Where the source is no primary see [`crate::drain`].

use crate::control::Role;
use crate::drain::Told;
use crate::running::{Mode, Running};
use standfast_transport::TransportMode;
use std::time::Duration;

/// What a stream has shown about what commits waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How the primary ships.
    pub mode: TransportMode,
    /// A commit has waited for this standby for so long before the primary goes on alone.
    pub net_timeout: Duration,
}

/// What is known when a failover begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Of the newest stream since the instance was started, if there was one.
    pub terms: Option<Terms>,
    /// What that stream has said of its source.
    pub told: Told,
    /// How long ago everything that the source had was here; `None`: it never was since the start.
    pub complete_ago: Option<Duration>,
}

/// Whether redo may be missing that was acknowledged, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Everything that was acknowledged is here.
    Complete,
    /// The primary ships asynchronously: what it had not sent is missing.
    Asynchronous,
    /// Nothing has come from the primary since this instance was started.
    NeverHeard,
    /// It had not caught up: so many bytes were missing when the primary was last heard, or it is not known how many.
    Behind(Option<u64>),
    /// The primary has been silent for longer than it waits for this standby.
    Silent(Duration),
}

/// See the module.
pub fn judge(heard: &Heard) -> Known {
    let Some(terms) = heard.terms else { return Known::NeverHeard };
    if terms.mode == TransportMode::Async {
        return Known::Asynchronous;
    }
    match heard.complete_ago {
        Some(ago) if ago < terms.net_timeout => Known::Complete,
        Some(ago) if heard.told.source_end.is_some_and(|end| end <= heard.told.delivered) => {
            Known::Silent(ago)
        }
        _ => Known::Behind(heard.told.source_end.map(|end| end.0.saturating_sub(heard.told.delivered.0))),
    }
}

impl Known {
    /// Whether a failover is told as one that may lack something. An asynchronous standby lacks by design what was under way.
    pub fn is_complete(self) -> bool {
        matches!(self, Known::Complete | Known::Asynchronous)
    }

    /// What an operator is told; nothing when all is well.
    pub fn text(self, source: &str) -> Option<String> {
        let compare =
            "if the old primary can be looked at, compare the end of its redo before applications go on here";
        Some(match self {
            Known::Complete => return None,
            Known::Asynchronous => {
                format!(
                    "`{source}` ships asynchronously: commits that it had acknowledged and not sent are not here"
                )
            }
            Known::NeverHeard => format!(
                "NOT KNOWN whether everything is here: nothing has come from `{source}` since this instance was started. \
                 Commits that it acknowledged meanwhile are missing | hint: {compare}"
            ),
            Known::Behind(bytes) => format!(
                "NOT SYNCHRONISED: {} of the redo of `{source}` was missing here when it was last heard, and its commits did not \
                 wait for this standby | hint: {compare}",
                bytes.map_or("an unknown part".into(), |bytes| format!("{bytes} bytes"))
            ),
            Known::Silent(silent) => format!(
                "NOT KNOWN whether everything is here: `{source}` has been silent for {:.0} s, longer than its commits wait for \
                 this standby. Commits that it acknowledged alone since are missing | hint: {compare}",
                silent.as_secs_f64()
            ),
        })
    }
}

impl Running {
    /// What is known of the redo that the primary has acknowledged, before a failover ends the stream. Nothing where the source
    /// is no primary.
    pub(crate) fn known_complete(&self) -> Option<(bool, String)> {
        let upstream = self.environment.control().upstream;
        let is_primary = |role: standfast_transport::Role| role == Role::Primary.of_peer();
        if upstream.as_ref().is_some_and(|upstream| !is_primary(upstream.role)) {
            return None;
        }
        let heard = match &*self.mode() {
            Mode::Standby(standby) => standby.standby.shared().heard(),
            _ => return None,
        };
        let known = judge(&heard);
        let source = upstream.map_or("the primary".to_owned(), |upstream| upstream.name);
        let text = known.text(&source)?;
        self.environment.alert.say(format!("failover: {text}"));
        Some((known.is_complete(), text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::Scn;

    fn judged(mode: TransportMode, delivered: u64, end: u64, complete_s: Option<u64>) -> Known {
        judge(&Heard {
            terms: Some(Terms { mode, net_timeout: Duration::from_secs(30) }),
            told: Told { streams: 1, source_end: Some(Scn(end)), delivered: Scn(delivered) },
            complete_ago: complete_s.map(Duration::from_secs),
        })
    }

    #[test]
    fn a_standby_is_complete_for_as_long_as_commits_waited_for_it() {
        use TransportMode::{Async, FastSync, SyncAffirm};
        for mode in [SyncAffirm, FastSync] {
            assert_eq!(judged(mode, 500, 500, Some(0)), Known::Complete);
            // The primary died with redo under way: no commit of it was acknowledged.
            assert_eq!(judged(mode, 500, 600, Some(1)), Known::Complete);
            assert_eq!(judged(mode, 500, 500, Some(30)), Known::Silent(Duration::from_secs(30)));
            assert_eq!(judged(mode, 500, 600, Some(31)), Known::Behind(Some(100)));
            assert_eq!(judged(mode, 500, 600, None), Known::Behind(Some(100)));
        }
        assert_eq!(judged(Async, 500, 500, Some(0)), Known::Asynchronous);
        let never = Heard { terms: None, told: Told::default(), complete_ago: None };
        assert_eq!(judge(&never), Known::NeverHeard);
    }

    #[test]
    fn what_may_be_missing_is_said_with_a_remedy() {
        assert_eq!(Known::Complete.text("south"), None);
        for known in [Known::NeverHeard, Known::Behind(None), Known::Silent(Duration::from_secs(40))] {
            let text = known.text("south").unwrap();
            assert!(text.contains("NOT ") && text.contains("`south`") && text.contains("hint: "), "{text}");
            assert!(!known.is_complete());
        }
        assert!(Known::Asynchronous.is_complete() && Known::Asynchronous.text("south").is_some());
    }
}
