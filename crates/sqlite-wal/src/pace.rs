//! How a checkpoint shares the disk with the log writer.
//!
//! The sync of a checkpoint hands thousands of scattered pages to the disk in one go, and the log writer's next write
//! waits behind them. A throttled checkpoint writes its pages in portions: each is synced by itself and followed by a
//! pause as long as the sync took. A long WAL leaves no time for pauses; its portions are larger. A WAL that is synced
//! without a rewrite is throttled in the same way.

use standfast_io::part::PartlySynced;
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Pages of a portion of a throttled checkpoint.
pub const PORTION_PAGES: u32 = 64;
/// Pages of a portion without a pause.
pub const STEADY_PORTION_PAGES: u32 = 256;
/// Longest pause between two portions.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(10);
/// Bytes of a portion of a WAL.
const LOG_PORTION_BYTES: u64 = 256 << 10;
/// A write that took less had nothing to write.
const PAUSE_MIN: Duration = Duration::from_micros(50);

/// How much of the disk a checkpoint takes.
#[derive(Clone, Debug, Default)]
pub enum Pace {
    /// All of it, without portions.
    #[default]
    AtOnce,
    /// Portion after portion, until the flag is set: from then on without portions.
    PacedUntil(Arc<AtomicBool>),
    /// Half of the time, until the flag is set: from then on without portions.
    ThrottledUntil(Arc<AtomicBool>),
}

impl Pace {
    /// Makes the first `bytes` of a WAL survive a power loss.
    ///
    /// # Errors
    /// The system's error; nothing may then be assumed about what survives.
    pub(crate) fn sync_log(&self, log: &PartlySynced, bytes: u64) -> Result<()> {
        if let Pace::ThrottledUntil(hurry) = self {
            log.write_first(bytes, LOG_PORTION_BYTES, |took| {
                if took >= PAUSE_MIN && !hurry.load(SeqCst) {
                    // There is no notification of the log writer's next write.
                    std::thread::sleep(took.min(PAUSE_MAX));
                }
            })?;
        }
        log.sync_first(bytes)
    }
}

/// The checkpoint of a connection: its pace, and what it has written.
#[derive(Debug, Default)]
pub(crate) struct Portions {
    pace: Pace,
    /// Pages written of the current portion.
    pages: u32,
}

/// What follows the sync of a portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterPortion {
    NextOne,
    Pause,
}

impl Portions {
    /// Starts the count for a checkpoint at `pace`.
    pub fn begin(&mut self, pace: Pace) {
        *self = Portions { pace, pages: 0 };
    }

    /// Counts a written page. Returns what to do next when it is the last one of a portion.
    pub fn page_written(&mut self) -> Option<AfterPortion> {
        let (hurry, portion, after) = match &self.pace {
            Pace::AtOnce => return None,
            Pace::PacedUntil(hurry) => (hurry, STEADY_PORTION_PAGES, AfterPortion::NextOne),
            Pace::ThrottledUntil(hurry) => (hurry, PORTION_PAGES, AfterPortion::Pause),
        };
        if hurry.load(SeqCst) {
            return None;
        }
        self.pages += 1;
        if self.pages < portion {
            return None;
        }
        self.pages = 0;
        Some(after)
    }
}
