//! Decides when to checkpoint a standby database. Pure.

use crate::standby_file::Checkpointed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Nothing,
    Passive,
    /// Backfill everything and restart the WAL.
    Reset,
}

/// Remembers the last attempts, so that a checkpoint that readers prevent is not tried at every batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckpointClock {
    /// Length of the WAL at the last check; 0 once a reset was due.
    frames: u32,
    tried_passive: u32,
    tried_reset: u32,
}

impl CheckpointClock {
    /// Returns the length of the WAL at the last check; 0 once a reset was due.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Returns the checkpoint that is due in this state of the WAL. A passive attempt comes every `every` frames. From
    /// `reset_at` frames on (a reader that never leaves) a reset is tried, and again after `every` further frames.
    pub fn due(&mut self, now: Checkpointed, every: u32, reset_at: u32) -> Due {
        if now.frames < self.tried_passive.max(self.tried_reset) {
            // The WAL was restarted.
            *self = CheckpointClock::default();
        }
        self.frames = now.frames;
        let since = |tried: u32| now.frames - tried;
        if now.frames >= reset_at && (self.tried_reset == 0 || since(self.tried_reset) >= every) {
            (self.tried_reset, self.tried_passive) = (now.frames, now.frames);
            self.frames = 0;
            return Due::Reset;
        }
        if since(now.backfilled.min(now.frames)) >= every && since(self.tried_passive) >= every {
            self.tried_passive = now.frames;
            return Due::Passive;
        }
        Due::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(clock: &mut CheckpointClock, frames: u32, backfilled: u32) -> Due {
        clock.due(Checkpointed { frames, backfilled }, 2000, 16_000)
    }

    #[test]
    fn passive_checkpoint_waits_for_enough_new_frames() {
        let mut clock = CheckpointClock::default();
        assert_eq!(due(&mut clock, 1999, 0), Due::Nothing);
        assert_eq!(due(&mut clock, 2000, 0), Due::Passive);
        assert_eq!(due(&mut clock, 2100, 0), Due::Nothing, "a reader holds it");
        assert_eq!(due(&mut clock, 4000, 0), Due::Passive);
        assert_eq!(due(&mut clock, 5000, 4000), Due::Nothing);
        assert_eq!(due(&mut clock, 10, 0), Due::Nothing, "a new WAL");
        assert_eq!(due(&mut clock, 2010, 0), Due::Passive);
    }

    #[test]
    fn long_wal_is_reset_without_a_retry_at_every_batch() {
        let mut clock = CheckpointClock::default();
        assert_eq!(due(&mut clock, 16_000, 2000), Due::Reset);
        assert_eq!(due(&mut clock, 16_100, 2000), Due::Nothing);
        assert_eq!(due(&mut clock, 18_000, 2000), Due::Reset);
    }
}
