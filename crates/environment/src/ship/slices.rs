//! Redo and log switches in the types of the transport.

use standfast_log::{LogBuffer, RedoChunk};
use standfast_transport as transport;
use standfast_transport::RedoSlice;
use standfast_types::{BATCH_BYTES_MAX, Scn};
use std::sync::Arc;

/// Converts the beginning of a log to the transport's type.
pub fn log_switch(switch: standfast_log::LogSwitch) -> transport::LogSwitch {
    transport::LogSwitch {
        sequence: switch.sequence,
        first_scn: switch.first_scn,
        time_us: switch.time_us,
        first_record: switch.first_record,
    }
}

/// One chunk as the transport sends it.
pub fn slice_of(chunk: &Arc<RedoChunk>) -> RedoSlice {
    RedoSlice::new(chunk.first, chunk.clone())
}

/// Content of a log buffer from `from` on; `None` when that is no longer in it.
pub fn slices(buffer: &LogBuffer, from: Scn, bytes_max: usize) -> Option<Vec<RedoSlice>> {
    if from == buffer.captured() {
        return Some(Vec::new());
    }
    let start = buffer.chunk_start(from)?;
    let chunks = buffer.chunks(start, bytes_max.min(BATCH_BYTES_MAX))?;
    Some(chunks.iter().map(slice_of).collect())
}
