//! What the source of a standby reports about itself.

use standfast_types::Scn;

/// What the source of a standby has reported about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceReport {
    /// Streams that have begun since the instance was opened.
    pub streams: u64,
    /// End of the source's redo, by the newest frame of the present stream; `None` before the first frame.
    pub source_end: Option<Scn>,
    /// Up to here the held redo is the source's.
    pub delivered: Scn,
}

impl SourceReport {
    pub fn begin_stream(&mut self) {
        *self = SourceReport { streams: self.streams + 1, ..SourceReport::default() };
    }
}
