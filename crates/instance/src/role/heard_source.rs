//! A failover is refused while the primary is heard: it may acknowledge commits that this standby would never have.
//!
//! A stream that is silent for longer than its heartbeats is no obstacle, nor is a primary that does not answer. What
//! comes right after the command may have been in flight when the primary died; what comes later was sent by a primary
//! that is alive.

use crate::role::fence::{Other, judge};
use crate::role::running::{Mode, Running};
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::shared_configuration::SharedConfiguration;
use standfast_transport::{Role, fetch_status};
use std::time::{Duration, Instant};

/// Longer than the time between two heartbeats of a stream, which is at most one second.
const SILENCE: Duration = Duration::from_millis(1_500);
/// What comes earlier after the command may have waited in a buffer.
const BUFFERED: Duration = Duration::from_millis(1_200);
/// How long a primary from which no redo comes may take to answer.
const ANSWER: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a standby hears of its source from the moment on that a failover is ordered. A state machine without a clock.
struct Listening {
    /// Changes with every frame.
    last: u64,
    /// When that was first seen.
    last_at: Duration,
}

impl Listening {
    fn begin(last: u64) -> Listening {
        Listening { last, last_at: Duration::ZERO }
    }

    /// Takes what is seen `at` this time after the command: whether the stream is open, and a value that changes with
    /// every frame. Returns whether the source is alive; `None`: not known yet.
    fn look(&mut self, at: Duration, streaming: bool, last: u64) -> Option<bool> {
        if !streaming {
            return Some(false);
        }
        if last != self.last {
            *self = Listening { last, last_at: at };
            return (at >= BUFFERED).then_some(true);
        }
        (at.saturating_sub(self.last_at) >= SILENCE).then_some(false)
    }
}

impl Running {
    /// Waits until it is known whether the primary still sends to this standby. If nothing comes, the primary is asked, at
    /// the address that the shared configuration has.
    ///
    /// # Errors
    /// `Refused` when the primary is alive.
    pub(crate) fn refuse_while_heard(&self) -> Result<(), InstanceError> {
        // What comes through another instance does not come from a primary that is alive.
        let is_direct = self.environment.of_control(|control| {
            control.upstream.as_ref().is_some_and(|upstream| upstream.role == Role::Primary)
        });
        let shared = match &*self.mode() {
            Mode::Standby(standby) => standby.standby.shared().clone(),
            _ => return Ok(()),
        };
        let began = Instant::now();
        let mut listening = Listening::begin(shared.last_heard_us());
        let is_heard = is_direct
            && loop {
                match listening.look(began.elapsed(), self.is_streaming(), shared.last_heard_us()) {
                    Some(is_heard) => break is_heard,
                    None if shared.is_stopping() => return Ok(()),
                    None => std::thread::park_timeout(LOOK_EVERY),
                }
            };
        // A stream is silent also while the disk here keeps its redo waiting.
        let kept = self.current_configuration();
        if !is_heard && !kept.as_ref().is_some_and(|kept| self.answers_as_primary(kept)) {
            return Ok(());
        }
        let primary = kept.map_or_else(|| "the primary".to_owned(), |kept| format!("`{}`", kept.primary));
        let own = &self.environment.config.instance.name;
        Err(InstanceError::refused(
            format!("the primary, {primary}, is alive"),
            format!(
                "change the roles without loss: `standfast switchover {own}` at {primary}; if that is impossible, stop \
                 {primary} and run `standfast failover` again; `standfast failover --force` takes over nevertheless, and \
                 what {primary} acknowledges meanwhile is lost"
            ),
        ))
    }

    fn answers_as_primary(&self, kept: &SharedConfiguration) -> bool {
        let security = self.environment.security().only([kept.primary.clone()]);
        let answer = fetch_status(&kept.address, &security, false, ANSWER).map_err(|error| error.to_string());
        matches!(judge(answer), Other::Primary(incarnation) if incarnation >= kept.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames at these milliseconds after the command; the stream ends at `ends`. Returns the verdict, and when.
    fn verdict(frames: &[u64], ends: Option<u64>) -> (bool, u64) {
        let mut listening = Listening::begin(7);
        (0..10_000)
            .find_map(|ms| {
                let seen = 7 + frames.iter().filter(|at| **at <= ms).count() as u64;
                let streaming = ends.is_none_or(|end| ms < end);
                listening.look(Duration::from_millis(ms), streaming, seen).map(|alive| (alive, ms))
            })
            .unwrap()
    }

    #[test]
    fn heartbeats_show_that_the_primary_is_alive() {
        let every_second: Vec<u64> = (0..10).map(|second| 400 + 1_000 * second).collect();
        assert_eq!(verdict(&every_second, None), (true, 1_400));
        let busy: Vec<u64> = (0..3_000).collect();
        assert_eq!(verdict(&busy, None), (true, 1_200));
    }

    #[test]
    fn silence_or_the_end_of_the_stream_shows_nothing_of_a_primary() {
        assert_eq!(verdict(&[], Some(0)), (false, 0));
        assert_eq!(verdict(&[], None), (false, 1_500));
        assert_eq!(verdict(&[100, 300], Some(310)), (false, 310));
    }

    #[test]
    fn what_was_in_flight_when_the_primary_died_does_not_count() {
        assert_eq!(verdict(&[0, 500, 1_100], None), (false, 2_600));
    }
}
