//! Log switches of a primary, and what commits wait for meanwhile.

use super::in_flight::Then;
use super::{Primary, PrimaryShared};
use standfast_environment::config::error::InstanceError;
use standfast_environment::ship::archiving::{event_of, wait_for};
use standfast_environment::state::now::now_us;
use standfast_instruments::{Event, Statistic, Waiting};
use standfast_log::LogWriter;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

impl PrimaryShared {
    /// Queues work on the log for the log writer thread. It also runs while a log switch waits, which it may end.
    pub fn work_on_log(&self, work: impl FnOnce(&mut LogWriter) + Send + 'static) {
        self.log_work.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(Box::new(work));
        // The log writer looks for this work when it takes commands.
        self.command(Box::new(|_| Ok(())));
    }
}

impl Primary {
    pub(super) fn do_log_work(&mut self) {
        let mut waiting = self.shared.log_work.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let taken = std::mem::take(&mut *waiting);
        drop(waiting);
        taken.into_iter().for_each(|work| work(&mut self.writer));
    }

    /// Switches the log now, if the current log is not empty.
    ///
    /// # Errors
    /// When the log cannot be written, or the helper abandons the wait.
    pub fn switch_log(&mut self) -> Result<(), InstanceError> {
        if self.writer.group_is_empty() {
            return Ok(());
        }
        self.switch()?;
        self.write_out(Then::Wait)
    }

    /// Whether the current log holds more than the anchors at its beginning.
    pub fn log_holds_redo(&self) -> bool {
        !self.writer.group_is_empty() && self.shared.buffer.captured() > self.noted
    }

    /// Switches the log if it can do so without waiting; returns whether it did.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn try_switch_log(&mut self) -> Result<bool, InstanceError> {
        if self.writer.switch_blocked().is_some() {
            return Ok(false);
        }
        self.switch_log().map(|()| true)
    }

    /// Begins the next log. While no group is free, it waits, and counts the wait under the reason's wait event.
    pub(super) fn switch(&mut self) -> Result<(), InstanceError> {
        self.end_writes()?;
        let begun = Instant::now();
        let mut wait: Option<Waiting> = None;
        let mut blocked = false;
        loop {
            if let Some(why) = self.writer.switch_blocked() {
                wait_for(&mut wait, event_of(why));
                blocked = true;
                self.shared.switch_waits.store(true, SeqCst);
                self.helper.blocked(why)?;
                self.do_log_work();
                continue;
            }
            wait_for(&mut wait, Event::SwitchCompletion);
            if let Ok(switch) = self.writer.switch(now_us())? {
                drop(wait);
                self.shared.switch_waits.store(false, SeqCst);
                self.helper.switched(&switch);
                self.anchors_due = true;
                if blocked {
                    self.note_blocked(begun);
                }
                return Ok(());
            }
        }
    }

    fn note_blocked(&self, begun: Instant) {
        let instruments = &self.shared.instruments;
        instruments.add(Statistic::RedoLogSpaceRequests, 1);
        instruments.add(Statistic::RedoLogSpaceWaitTime, begun.elapsed().as_micros() as u64);
    }
}
