//! Log switches of a primary, and what commits wait for meanwhile.

use super::Primary;
use crate::error::InstanceError;
use crate::now_us;
use crate::waits::WaitEvent;

impl Primary {
    /// Switches the log now, if it holds anything.
    ///
    /// # Errors
    /// When the log cannot be written, or the helper gives up.
    pub fn switch_log(&mut self) -> Result<(), InstanceError> {
        if self.writer.group_is_empty() {
            return Ok(());
        }
        self.switch()?;
        self.write_out()
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
        loop {
            if let Some(why) = self.writer.switch_blocked() {
                self.shared.waits.enter(why.into());
                self.helper.blocked(why)?;
                continue;
            }
            self.shared.waits.enter(WaitEvent::SwitchCompletion);
            let switched = self.writer.switch(now_us());
            self.shared.waits.leave();
            if let Ok(switch) = switched? {
                self.helper.switched(&switch);
                self.anchors_due = true;
                return Ok(());
            }
        }
    }
}
