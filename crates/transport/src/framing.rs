//! Frames on a byte stream: whole frames from reads of any size, and whole frames in one write.

use standfast_format::{
    DecodeError, FRAME_HEADER_BYTES, Frame, FrameHeader, FrameKind, StreamCrc, crc32c, encode_frame,
};
use standfast_types::BATCH_BYTES_MAX;
use std::io::{ErrorKind, Read, Write};

/// Largest payload accepted from an unauthenticated peer.
pub const HELLO_BYTES_MAX: usize = 64 * 1024;
const FIRST_BUFFER_BYTES: usize = 4 * 1024;

/// Why no frame could be read.
#[derive(Debug, thiserror::Error)]
pub enum FramingError {
    /// The other end closed the connection between two frames or inside one.
    #[error("the other end closed the connection")]
    Closed,
    /// The timeout of the socket passed without a byte.
    #[error("no answer in time")]
    TimedOut,
    #[error("connection failed: {0}")]
    Io(std::io::Error),
    /// The bytes are not a frame of this protocol.
    #[error("{0}; a program that does not speak the Standfast protocol, or damage on the way")]
    Malformed(#[from] DecodeError),
    /// A frame larger than allowed at this point of the conversation.
    #[error("a frame of {bytes} bytes where at most {limit} are allowed")]
    Oversized {
        /// Bytes of the whole frame.
        bytes: usize,
        /// Bytes allowed for the whole frame.
        limit: usize,
    },
}

/// Reads frames into one reusable buffer that never grows beyond one frame of the largest size allowed.
pub struct FrameReader<R> {
    inner: R,
    buffer: Vec<u8>,
    /// Unconsumed bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    frame_bytes_max: usize,
}

impl<R: Read> FrameReader<R> {
    /// A reader for the handshake: payloads of at most [`HELLO_BYTES_MAX`].
    pub fn new(inner: R) -> Self {
        let frame_bytes_max = HELLO_BYTES_MAX + FRAME_HEADER_BYTES;
        FrameReader { inner, buffer: vec![0; FIRST_BUFFER_BYTES], start: 0, end: 0, frame_bytes_max }
    }

    /// Allows frames as large as redo may be, and reads as large as the socket has bytes. For use after the handshake.
    pub fn allow_redo(&mut self) {
        self.frame_bytes_max = BATCH_BYTES_MAX + FRAME_HEADER_BYTES;
    }

    pub fn inner(&self) -> &R {
        &self.inner
    }

    /// Reads once and keeps the bytes. Blocks as the stream does.
    ///
    /// # Errors
    /// `Closed`, `TimedOut`, `Io`.
    pub fn fill(&mut self) -> Result<(), FramingError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.buffer.len() - self.end < self.buffer.len() / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            let bytes = (self.buffer.len() * 4).min(self.frame_bytes_max.max(self.end + 1));
            self.buffer.resize(bytes, 0);
        }
        loop {
            match self.inner.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(FramingError::Closed),
                Ok(bytes) => {
                    self.end += bytes;
                    // A read that filled the buffer probably left bytes behind: make room for a larger one.
                    if self.end == self.buffer.len() && self.buffer.len() < self.frame_bytes_max {
                        self.buffer.resize((self.buffer.len() * 4).min(self.frame_bytes_max), 0);
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(FramingError::TimedOut);
                }
                Err(error) => return Err(FramingError::Io(error)),
            }
        }
    }

    /// Returns the frame that starts `at` bytes after the first unconsumed one, with its length, when it is complete.
    ///
    /// # Errors
    /// `Malformed`, `Oversized`: the connection must be closed.
    pub fn peek(&self, at: usize) -> Result<Option<(Frame<'_>, usize)>, FramingError> {
        let bytes = &self.buffer[self.start + at..self.end];
        match Frame::decode(bytes) {
            Ok((_, length)) if length > self.frame_bytes_max => Err(self.oversized(length)),
            Ok((frame, length)) => Ok(Some((frame, length))),
            Err(DecodeError::Incomplete { needed }) if needed > self.frame_bytes_max => {
                Err(self.oversized(needed))
            }
            Err(DecodeError::Incomplete { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Drops the first `bytes` unconsumed bytes.
    pub fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
    }

    /// Whether every byte read has been consumed.
    pub fn is_drained(&self) -> bool {
        self.start == self.end
    }

    /// Returns and consumes the next whole frame; waits for it as the stream does.
    ///
    /// # Errors
    /// As [`FrameReader::fill`] and [`FrameReader::peek`].
    pub fn read(&mut self) -> Result<Frame<'_>, FramingError> {
        let length = loop {
            if let Some((_, length)) = self.peek(0)? {
                break length;
            }
            self.fill()?;
        };
        let frame = self.start..self.start + length;
        self.start += length;
        Ok(Frame::decode(&self.buffer[frame])?.0)
    }

    fn oversized(&self, bytes: usize) -> FramingError {
        FramingError::Oversized { bytes, limit: self.frame_bytes_max }
    }
}

/// Writes frames, each with one write call.
pub struct FrameWriter<W> {
    inner: W,
    buffer: Vec<u8>,
}

impl<W: Write> FrameWriter<W> {
    pub fn new(inner: W) -> Self {
        FrameWriter { inner, buffer: Vec::new() }
    }

    /// Writes one whole frame.
    ///
    /// # Errors
    /// The error of the stream; the connection must then be closed.
    pub fn write(&mut self, header: FrameHeader, payload: &[u8]) -> std::io::Result<()> {
        self.buffer.clear();
        encode_frame(header, payload, &mut self.buffer);
        self.inner.write_all(&self.buffer)
    }

    /// Writes a frame whose payload is `message` as JSON.
    ///
    /// # Errors
    /// As `write`.
    pub fn write_json(
        &mut self,
        kind: FrameKind,
        a: u64,
        message: &impl serde::Serialize,
    ) -> std::io::Result<()> {
        let payload = serde_json::to_vec(message)?;
        self.write(FrameHeader::new(kind, a, 0, 0, 0), &payload)
    }
}

/// Returns the encoded header of a frame whose payload is in several slices, without copying them together.
pub fn encode_header<'a>(
    header: FrameHeader,
    payload: impl Iterator<Item = &'a [u8]> + Clone,
) -> [u8; FRAME_HEADER_BYTES] {
    let length: usize = payload.clone().map(<[u8]>::len).sum();
    debug_assert!(length <= BATCH_BYTES_MAX);
    let mut bytes = header.encode(&[], &[]);
    bytes[8..12].copy_from_slice(&(length as u32).to_le_bytes());
    let sum = payload.fold(StreamCrc(crc32c(&bytes[8..])), |sum, slice| sum.after(slice));
    bytes[4..8].copy_from_slice(&sum.0.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns at most `step` bytes per read.
    struct Trickle<'a> {
        bytes: &'a [u8],
        step: usize,
    }

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let bytes = self.step.min(out.len()).min(self.bytes.len());
            out[..bytes].copy_from_slice(&self.bytes[..bytes]);
            self.bytes = &self.bytes[bytes..];
            Ok(bytes)
        }
    }

    fn redo(a: u64) -> FrameHeader {
        FrameHeader::new(FrameKind::Redo, a, 1, 2, 3)
    }

    #[test]
    fn header_of_slices_equals_header_of_their_concatenation() {
        let slices: [&[u8]; 4] = [b"re", b"", b"do by", b"tes"];
        assert_eq!(encode_header(redo(9), slices.into_iter()), redo(9).encode(b"redo bytes", &[]));
        assert_eq!(encode_header(redo(9), std::iter::empty()), redo(9).encode(&[], &[]));
    }

    #[test]
    fn oversized_handshake_frame_is_refused_before_it_is_read() {
        let mut bytes = Vec::new();
        encode_frame(redo(1), &vec![1; HELLO_BYTES_MAX + 1], &mut bytes);
        let mut reader = FrameReader::new(&bytes[..FRAME_HEADER_BYTES]);
        assert!(matches!(reader.read(), Err(FramingError::Oversized { .. })));
        let mut reader = FrameReader::new(&bytes[..]);
        reader.allow_redo();
        assert_eq!(reader.read().unwrap().payload.len(), HELLO_BYTES_MAX + 1);
    }

    #[test]
    fn garbage_is_refused_at_its_first_bytes() {
        let mut reader = FrameReader::new(&b"GET / HTTP/1.1\r\n"[..]);
        assert!(matches!(reader.read(), Err(FramingError::Malformed(_))));
    }

    #[test]
    fn end_inside_a_frame_is_reported_as_closed() {
        let mut bytes = Vec::new();
        encode_frame(redo(1), b"abc", &mut bytes);
        let mut reader = FrameReader::new(&bytes[..bytes.len() - 1]);
        assert!(matches!(reader.read(), Err(FramingError::Closed)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn frames_do_not_depend_on_read_sizes(
            sizes in proptest::collection::vec(0usize..40_000, 1..8), step in 1usize..50_000,
        ) {
            let mut bytes = Vec::new();
            for (at, size) in sizes.iter().enumerate() {
                encode_frame(redo(at as u64), &vec![at as u8; *size], &mut bytes);
            }
            let mut reader = FrameReader::new(Trickle { bytes: &bytes, step });
            for (at, size) in sizes.iter().enumerate() {
                let frame = reader.read().unwrap();
                prop_assert_eq!(frame.header.a, at as u64);
                prop_assert_eq!(frame.payload.len(), *size);
                prop_assert!(frame.payload.iter().all(|byte| *byte == at as u8));
            }
            prop_assert!(reader.is_drained());
        }
    }
}
