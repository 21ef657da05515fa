//! Errors of this instance as the transport reports them.

use crate::config::error::InstanceError;
use standfast_log::LogError;
use standfast_transport::{SourceError, stage_error};

/// Wraps an error for the transport.
pub fn failed(error: InstanceError) -> SourceError {
    SourceError::Failed(stage_error(error))
}

/// Converts an error of the redo log.
pub fn source_error(error: LogError) -> SourceError {
    match error {
        LogError::TooOld { at, oldest } => SourceError::Gone { wanted: at, oldest },
        other => SourceError::Failed(stage_error(other)),
    }
}
