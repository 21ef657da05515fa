//! Whole records of the stream in order, read from the logs.

use crate::error::LogError;
use crate::redo_log::RedoLog;
use standfast_format::{DecodeError, decode_record, peek_length};
use standfast_types::Scn;
use std::sync::Arc;

const READ_BYTES: usize = 1 << 20;

/// Reads the records from a record boundary on.
pub struct RecordReader {
    log: Arc<RedoLog>,
    buffer: Vec<u8>,
    at: usize,
    position: Scn,
    upto: Scn,
}

impl RecordReader {
    /// Creates a reader from `from`, where a record starts, up to `upto`.
    pub fn new(log: Arc<RedoLog>, from: Scn, upto: Scn) -> RecordReader {
        RecordReader { log, buffer: Vec::new(), at: 0, position: from, upto }
    }

    pub fn position(&self) -> Scn {
        self.position
    }

    /// Returns the next complete and valid record with the SCN after it; `None` where the stream ends, possibly within
    /// a record: [`RecordReader::position`] is then the end of the last complete record.
    ///
    /// # Errors
    /// When the log cannot be read, or a record within it is damaged.
    pub fn next_record(&mut self) -> Result<Option<(&[u8], Scn)>, LogError> {
        let length = loop {
            match peek_length(&self.buffer[self.at..]) {
                Ok(length) if self.buffer.len() - self.at >= length => break length,
                Ok(_) | Err(DecodeError::Incomplete { .. }) => {
                    if !self.fill()? {
                        return Ok(None);
                    }
                }
                Err(source) => return Err(self.damaged(source)),
            }
        };
        let record = &self.buffer[self.at..self.at + length];
        if let Err(source) = decode_record(record) {
            return Err(self.damaged(source));
        }
        self.at += length;
        self.position = self.position + length as u64;
        Ok(Some((&self.buffer[self.at - length..self.at], self.position)))
    }

    fn fill(&mut self) -> Result<bool, LogError> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let from = self.position + self.buffer.len() as u64;
        let before = self.buffer.len();
        self.log.read(from, self.upto, READ_BYTES, &mut self.buffer)?;
        Ok(self.buffer.len() > before)
    }

    fn damaged(&self, source: DecodeError) -> LogError {
        LogError::Damaged { path: format!("record at SCN {}", self.position).into(), source }
    }
}
