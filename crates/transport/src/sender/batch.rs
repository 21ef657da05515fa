//! Redo as the log writer offers it to a sender.

use crate::redo::RedoSlice;
use standfast_types::Scn;

/// The redo that the log writer is about to write.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub slices: &'a [RedoSlice],
    /// First position of the log that receives the whole batch. [`crate::RedoSource::switches`] already lists the begin of
    /// that log.
    pub log_first: Scn,
    /// The local durable position before the write.
    pub durable: Scn,
    /// End of the redo in the log buffer.
    pub captured: Scn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    Sent,
    Deferred,
    /// There is no connection; the redo is sent after the next one is made.
    Disconnected,
}
