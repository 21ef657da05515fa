//! Log switches of a primary, and what commits wait for meanwhile.

use super::{Primary, PrimaryShared, Then};
use crate::error::InstanceError;
use crate::now_us;
use standfast_instruments::{Event, Statistic, Waiting, waiting};
use standfast_log::{LogWriter, SwitchBlocked};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

/// Work on the log, in the order of the stream.
pub(super) type LogWork = Box<dyn FnOnce(&mut LogWriter) + Send>;

impl PrimaryShared {
    /// Hands work on the log itself to the log writer thread; it is done also while a log switch waits, which it may
    /// end.
    pub fn work_on_log(&self, work: impl FnOnce(&mut LogWriter) + Send + 'static) {
        self.log_work.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(Box::new(work));
        // Looked for where commands are.
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

    /// Switches the log now, if it holds anything.
    ///
    /// # Errors
    /// When the log cannot be written, or the helper gives up.
    pub fn switch_log(&mut self) -> Result<(), InstanceError> {
        if self.writer.group_is_empty() {
            return Ok(());
        }
        self.switch()?;
        self.write_out(Then::Wait)
    }

    /// Whether the current log holds more than the notes with which every log begins.
    pub fn log_holds_redo(&self) -> bool {
        !self.writer.group_is_empty() && self.shared.buffer.captured() > self.noted
    }

    /// As [`Primary::switch_log`], unless that had to wait; says whether it was done.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn try_switch_log(&mut self) -> Result<bool, InstanceError> {
        if self.writer.switch_blocked().is_some() {
            return Ok(false);
        }
        self.switch_log().map(|()| true)
    }

    /// Begins the next log; waits, under its name, while there is no group for it.
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

/// It is this that is waited for now.
pub(crate) fn wait_for(wait: &mut Option<Waiting>, event: Event) {
    match wait {
        Some(wait) => wait.become_one_for(event),
        None => *wait = Some(waiting(event)),
    }
}

/// The wait for a log that cannot be used yet.
pub(crate) fn event_of(why: SwitchBlocked) -> Event {
    match why {
        SwitchBlocked::CheckpointIncomplete => Event::SwitchCheckpointIncomplete,
        SwitchBlocked::ArchivingNeeded => Event::SwitchArchivingNeeded,
    }
}
