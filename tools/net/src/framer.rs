//! Finds the messages in a byte stream whose payload is discarded. Pure.

use crate::stats::Sender;
use crate::wire::{HEADER_BYTES, Header, Kind, STATE_BYTES, WireError};

/// Counts messages and payload, wherever the reads split the stream.
#[derive(Debug)]
pub struct Framer {
    most: u32,
    header: [u8; HEADER_BYTES],
    have: usize,
    left: usize,
    /// Kind of the message that the remaining bytes belong to.
    kind: Kind,
    state: [u8; STATE_BYTES],
    /// The counters that a sending server reported last.
    pub sender: Option<Sender>,
    /// Messages with payload whose header is complete.
    pub messages: u64,
    /// Bytes of payload seen so far.
    pub payload: u64,
    /// The message that ends the test was received.
    pub finished: bool,
}

impl Framer {
    /// Starts at the beginning of a stream whose payloads have at most `most` bytes.
    pub fn new(most: u32) -> Framer {
        Framer {
            most,
            header: [0; HEADER_BYTES],
            have: 0,
            left: 0,
            kind: Kind::Data,
            state: [0; STATE_BYTES],
            sender: None,
            messages: 0,
            payload: 0,
            finished: false,
        }
    }

    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), WireError> {
        while !bytes.is_empty() {
            if self.finished {
                return Err(WireError::Field("bytes after the end"));
            }
            if self.left > 0 {
                let count = self.left.min(bytes.len());
                self.take(&bytes[..count]);
                bytes = &bytes[count..];
                continue;
            }
            let count = (HEADER_BYTES - self.have).min(bytes.len());
            self.header[self.have..self.have + count].copy_from_slice(&bytes[..count]);
            self.have += count;
            bytes = &bytes[count..];
            if self.have == HEADER_BYTES {
                let header = Header::decode(&self.header, self.most)?;
                self.have = 0;
                self.left = header.length as usize;
                self.kind = header.kind;
                self.finished = header.kind == Kind::Finish;
                self.messages += u64::from(header.kind == Kind::Data);
            }
        }
        Ok(())
    }

    /// Takes a chunk of the bytes after a header, at most as many as are left of them.
    fn take(&mut self, chunk: &[u8]) {
        if self.kind == Kind::State {
            let at = STATE_BYTES - self.left;
            self.state[at..at + chunk.len()].copy_from_slice(chunk);
        } else {
            self.payload += chunk.len() as u64;
        }
        self.left -= chunk.len();
        if self.kind == Kind::State && self.left == 0 {
            self.sender = Some(Sender::decode(&self.state));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Answered;
    use proptest::prelude::*;

    fn header(kind: Kind, length: u32) -> [u8; HEADER_BYTES] {
        Header { kind, length, sequence: 0, answered: Answered::default() }.encode()
    }

    fn stream(lengths: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        for (sequence, length) in lengths.iter().enumerate() {
            out.extend(header(Kind::State, STATE_BYTES as u32));
            out.extend(Sender { acknowledged: sequence as u64, ..Sender::default() }.encode());
            out.extend(header(Kind::Data, *length));
            out.extend(vec![0xaa; *length as usize]);
        }
        out.extend(header(Kind::Finish, 0));
        out
    }

    proptest! {
        #[test]
        fn messages_are_found_however_the_stream_is_split(
            lengths in prop::collection::vec(0_u32..200, 0..8),
            chunk_bytes in 1_usize..70,
        ) {
            let mut framer = Framer::new(200);
            for bytes in stream(&lengths).chunks(chunk_bytes) {
                framer.feed(bytes).unwrap();
            }
            prop_assert!(framer.finished);
            prop_assert_eq!(framer.messages, lengths.len() as u64);
            prop_assert_eq!(
                framer.sender.map(|sender| sender.acknowledged + 1).unwrap_or(0),
                lengths.len() as u64
            );
            prop_assert_eq!(framer.payload, lengths.iter().map(|length| u64::from(*length)).sum::<u64>());
        }

        #[test]
        fn any_bytes_are_counted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Framer::new(100).feed(&bytes);
        }
    }
}
