//! Finds the messages in a stream of bytes whose payload nobody wants to keep. Pure.

use crate::wire::{HEADER_BYTES, Header, WireError};

/// Counts messages and payload, wherever the reads happened to cut the stream.
#[derive(Debug)]
pub struct Framer {
    most: u32,
    header: [u8; HEADER_BYTES],
    have: usize,
    left: usize,
    /// Complete headers seen, without the last one that finishes.
    pub messages: u64,
    /// Payload seen, bytes.
    pub payload: u64,
    /// The message that ends the test was seen.
    pub finished: bool,
}

impl Framer {
    /// At the begin of a stream whose payloads have at most `most` bytes.
    pub fn new(most: u32) -> Framer {
        Framer { most, header: [0; HEADER_BYTES], have: 0, left: 0, messages: 0, payload: 0, finished: false }
    }

    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), WireError> {
        while !bytes.is_empty() {
            if self.finished {
                return Err(WireError::Field("bytes after the end"));
            }
            if self.left > 0 {
                let piece = self.left.min(bytes.len());
                self.left -= piece;
                self.payload += piece as u64;
                bytes = &bytes[piece..];
                continue;
            }
            let piece = (HEADER_BYTES - self.have).min(bytes.len());
            self.header[self.have..self.have + piece].copy_from_slice(&bytes[..piece]);
            self.have += piece;
            bytes = &bytes[piece..];
            if self.have == HEADER_BYTES {
                let header = Header::decode(&self.header, self.most)?;
                self.have = 0;
                self.left = header.length as usize;
                self.finished = header.finish;
                self.messages += u64::from(!header.finish);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(lengths: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        for (sequence, length) in lengths.iter().enumerate() {
            out.extend(Header { finish: false, length: *length, sequence: sequence as u64 }.encode());
            out.extend(vec![0xaa; *length as usize]);
        }
        out.extend(Header { finish: true, length: 0, sequence: lengths.len() as u64 }.encode());
        out
    }

    proptest! {
        #[test]
        fn messages_are_found_however_the_stream_is_cut(
            lengths in prop::collection::vec(0_u32..200, 0..8),
            piece in 1_usize..70,
        ) {
            let mut framer = Framer::new(200);
            for bytes in stream(&lengths).chunks(piece) {
                framer.feed(bytes).unwrap();
            }
            prop_assert!(framer.finished);
            prop_assert_eq!(framer.messages, lengths.len() as u64);
            prop_assert_eq!(framer.payload, lengths.iter().map(|length| u64::from(*length)).sum::<u64>());
        }

        #[test]
        fn any_bytes_are_counted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Framer::new(100).feed(&bytes);
        }
    }
}
