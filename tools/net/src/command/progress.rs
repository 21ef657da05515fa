//! A status line for users who wait: it stands on the terminal while nothing else is printed there. Rows and remarks
//! make it superfluous; a document that is printed at the end, a table that goes to a file, and long intervals do not.

use crate::plan::Direction;
use crate::stats::Interval;
use crate::terminal;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time without output after which the user is shown that the command still works.
const SILENCE: Duration = Duration::from_secs(2);
/// How often the line is renewed.
const EVERY: Duration = Duration::from_millis(500);
/// The line must not need a second line of the terminal, which would stay.
const WIDTH: usize = 79;

/// Shows how far a command is, until it is dropped. Without a terminal it does nothing.
pub struct Progress(Option<(Arc<Shared>, JoinHandle<()>)>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    doing: String,
    over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked left it consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    /// Starts the status line of a command that takes about `planned`, when that is known.
    pub fn begin(planned: Option<Duration>) -> Progress {
        let begun = Instant::now();
        Progress(terminal::is_watched().then(|| {
            let shared = Arc::new(Shared::default());
            let ours = Arc::clone(&shared);
            (shared, std::thread::spawn(move || keep_telling(&ours, begun, planned)))
        }))
    }

    /// Sets what is being done now.
    pub fn doing(&self, words: impl FnOnce() -> String) {
        if let Some((shared, _)) = &self.0 {
            let words = words();
            shared.state().doing = words;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((shared, thread)) = self.0.take() {
            shared.state().over = true;
            shared.ended.notify_all();
            // A panic of the status line is no reason for another one.
            let _ = thread.join();
            terminal::wipe();
        }
    }
}

fn keep_telling(shared: &Shared, begun: Instant, planned: Option<Duration>) {
    let mut state = shared.state();
    while !state.over {
        state = shared.ended.wait_timeout(state, EVERY).unwrap_or_else(PoisonError::into_inner).0;
        let now = Instant::now();
        if state.over || !is_due(begun, terminal::spoke(), now) {
            continue;
        }
        let line = line(now.saturating_duration_since(begun), planned, &state.doing);
        drop(state);
        terminal::status(&line);
        state = shared.state();
    }
}

/// Returns whether the terminal has been silent for long enough.
fn is_due(begun: Instant, spoke: Option<Instant>, now: Instant) -> bool {
    now.saturating_duration_since(spoke.map_or(begun, |spoke| spoke.max(begun))) >= SILENCE
}

fn line(elapsed: Duration, planned: Option<Duration>, doing: &str) -> String {
    let of = planned.map_or_else(String::new, |planned| format!(" of {:.0} s", planned.as_secs_f64()));
    let gap = if doing.is_empty() { "" } else { ", " };
    let line = format!("{:.0} s{of}{gap}{doing}", elapsed.as_secs_f64());
    line.chars().take(WIDTH).collect()
}

/// Returns the figure of an interval that shows whether a test goes well.
pub fn figure(direction: Direction, interval: &Interval) -> String {
    match &interval.latency {
        Some(latency) => format!("{}: {:.3} ms a message", direction.name(), latency.total.mean * 1e3),
        None => format!("{}: {:.1} MiB/s", direction.name(), interval.rate() / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_is_due_after_two_seconds_without_output() {
        let begun = Instant::now();
        let after = |millis| begun + Duration::from_millis(millis);
        assert!(!is_due(begun, None, after(1_999)));
        assert!(is_due(begun, None, after(2_000)));
        assert!(!is_due(begun, Some(after(1_500)), after(3_000)));
        assert!(is_due(begun, Some(after(1_500)), after(3_500)));
        // Output of an earlier command does not count.
        let earlier = after(5_000);
        assert!(!is_due(earlier, Some(begun), after(6_000)));
    }

    #[test]
    fn progress_line_shows_elapsed_time_and_fits_the_terminal() {
        let seconds = Duration::from_secs;
        assert_eq!(
            line(seconds(12), Some(seconds(60)), "to server: 8.0 MiB/s"),
            "12 s of 60 s, to server: 8.0 MiB/s"
        );
        assert_eq!(line(seconds(12), None, ""), "12 s");
        assert_eq!(line(seconds(12), None, &"é".repeat(200)).chars().count(), WIDTH);
    }
}
