//! Compression of redo on the wire: LZ4 or Zstandard.
//!
//! A compressed payload is the length of the redo as u32, then the compressed bytes. Both ends keep the previous redo
//! of the connection, because a single commit is too short to compress well: LZ4 uses the last [`HISTORY_BYTES`] of
//! redo as a dictionary; Zstandard continues one stream, which is flushed at the end of every frame.

use serde::{Deserialize, Serialize};
use standfast_types::BATCH_BYTES_MAX;
use zstd::stream::raw::{self, DParameter, InBuffer, Operation, OutBuffer};

/// Redo that LZ4 refers back to. Both ends hash it for each frame, hence no more.
const HISTORY_BYTES: usize = 16 * 1024;
const ZSTD_LEVEL: i32 = 1;
/// Log2 of the window: the most bytes that a Zstandard stream may refer back to, whatever it declares.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
const LENGTH_BYTES: usize = 4;
/// Most bytes that one compressed byte of LZ4 can stand for: a run whose length is written in bytes of 255.
const LZ4_RATIO_MAX: usize = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    #[default]
    None,
    Lz4,
    Zstd,
}

const LZ4: u16 = 1;
const ZSTD: u16 = 2;

/// Why a payload could not be decompressed. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// The flags do not belong to the announced compression.
    #[error("a frame with flags {0:#x}, which the sender did not announce")]
    Flags(u16),
    /// The compressed bytes are damaged, or do not have the length that the payload declares.
    #[error("packed redo that cannot be unpacked")]
    Damaged,
}

/// The last redo that went over a connection.
#[derive(Default)]
struct History(Vec<u8>);

impl History {
    fn note(&mut self, redo: &[u8]) {
        let tail = &redo[redo.len().saturating_sub(HISTORY_BYTES)..];
        let excess = (self.0.len() + tail.len()).saturating_sub(HISTORY_BYTES);
        self.0.drain(..excess);
        self.0.extend_from_slice(tail);
    }
}

pub(crate) struct Packer {
    how: Sending,
    redo: Vec<u8>,
}

enum Sending {
    Lz4(History),
    Zstd(raw::Encoder<'static>),
}

impl Packer {
    /// Creates the state of one connection; `None` without compression.
    ///
    /// # Errors
    /// When memory is exhausted.
    pub fn new(compression: Compression) -> std::io::Result<Option<Packer>> {
        let how = match compression {
            Compression::None => return Ok(None),
            Compression::Lz4 => Sending::Lz4(History::default()),
            Compression::Zstd => Sending::Zstd(raw::Encoder::new(ZSTD_LEVEL)?),
        };
        Ok(Some(Packer { how, redo: Vec::new() }))
    }

    /// Returns the flags and payload for the redo in `slices`, which must be the next redo on this connection. `None`
    /// when it is sent uncompressed because compression does not make it shorter.
    ///
    /// # Errors
    /// When memory is exhausted; nothing more may be sent on this connection.
    pub fn pack<'s>(
        &mut self,
        slices: impl Iterator<Item = &'s [u8]>,
    ) -> std::io::Result<Option<(u16, Vec<u8>)>> {
        self.redo.clear();
        slices.for_each(|slice| self.redo.extend_from_slice(slice));
        match &mut self.how {
            Sending::Lz4(history) => {
                let mut out =
                    packed_begin(&self.redo, lz4_flex::block::get_maximum_output_size(self.redo.len()));
                out.resize(out.capacity(), 0);
                let packed = lz4_flex::block::compress_into_with_dict(
                    &self.redo,
                    &mut out[LENGTH_BYTES..],
                    &history.0,
                );
                history.note(&self.redo);
                // It can only fail for lack of room, and then it would not be shorter.
                let Ok(packed) = packed else { return Ok(None) };
                out.truncate(LENGTH_BYTES + packed);
                Ok((out.len() < self.redo.len()).then_some((LZ4, out)))
            }
            // The stream has consumed the redo: it can no longer be sent in another form.
            Sending::Zstd(encoder) => Ok(Some((ZSTD, zstd_pack(encoder, &self.redo)?))),
        }
    }
}

fn packed_begin(redo: &[u8], room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(LENGTH_BYTES + room);
    out.extend_from_slice(&(redo.len() as u32).to_le_bytes());
    out
}

fn zstd_pack(encoder: &mut raw::Encoder<'_>, redo: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = packed_begin(redo, zstd::zstd_safe::compress_bound(redo.len()));
    let mut input = InBuffer::around(redo);
    loop {
        out.reserve(zstd::zstd_safe::CCtx::out_size());
        let at = out.len();
        let mut buffer = OutBuffer::around_pos(&mut out, at);
        let left = if input.pos() < redo.len() {
            encoder.run(&mut input, &mut buffer)?;
            1
        } else {
            encoder.flush(&mut buffer)?
        };
        if left == 0 {
            return Ok(out);
        }
    }
}

/// The receiving end of one connection.
pub struct Unpacker(Receiving);

enum Receiving {
    AsItIs,
    Lz4(History),
    Zstd(Option<raw::Decoder<'static>>),
}

impl Unpacker {
    /// Creates the state of a connection whose sender has announced `compression`.
    pub fn new(compression: Compression) -> Unpacker {
        Unpacker(match compression {
            Compression::None => Receiving::AsItIs,
            Compression::Lz4 => Receiving::Lz4(History::default()),
            Compression::Zstd => Receiving::Zstd(None),
        })
    }

    /// Returns the redo of a frame with these flags and payload; `None` when the payload is the redo. Must be called
    /// for every `Redo` frame, in order.
    ///
    /// # Errors
    /// See [`UnpackError`]. Allocates no more than the length that a frame may have.
    pub fn unpack(&mut self, flags: u16, payload: &[u8]) -> Result<Option<Vec<u8>>, UnpackError> {
        match (&mut self.0, flags) {
            (Receiving::AsItIs | Receiving::Zstd(_), 0) => Ok(None),
            // A frame that does not get shorter is sent uncompressed, and later frames still refer back to it.
            (Receiving::Lz4(history), 0) => {
                history.note(payload);
                Ok(None)
            }
            (Receiving::Lz4(history), LZ4) => {
                let (length, packed) = unpacked_length(payload)?;
                // A block never expands further: memory is not allocated for a length that it cannot have.
                if length > packed.len().saturating_mul(LZ4_RATIO_MAX) {
                    return Err(UnpackError::Damaged);
                }
                let mut redo = vec![0; length];
                let written = lz4_flex::block::decompress_into_with_dict(packed, &mut redo, &history.0);
                if !written.is_ok_and(|written| written == length) {
                    return Err(UnpackError::Damaged);
                }
                history.note(&redo);
                Ok(Some(redo))
            }
            (Receiving::Zstd(decoder), ZSTD) => unzstd(decoder, payload).map(Some),
            (_, other) => Err(UnpackError::Flags(other)),
        }
    }
}

fn unzstd(decoder: &mut Option<raw::Decoder<'static>>, payload: &[u8]) -> Result<Vec<u8>, UnpackError> {
    let (length, packed) = unpacked_length(payload)?;
    let damaged = |_: std::io::Error| UnpackError::Damaged;
    let decoder = match decoder {
        Some(decoder) => decoder,
        empty => {
            let mut decoder = raw::Decoder::new().map_err(damaged)?;
            decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX)).map_err(damaged)?;
            empty.insert(decoder)
        }
    };
    let mut redo = vec![0; length];
    let mut input = InBuffer::around(packed);
    let mut output = OutBuffer::around(&mut redo[..]);
    while input.pos() < packed.len() {
        let before = (input.pos(), output.pos());
        decoder.run(&mut input, &mut output).map_err(damaged)?;
        if (input.pos(), output.pos()) == before {
            return Err(UnpackError::Damaged);
        }
    }
    if output.pos() == length { Ok(redo) } else { Err(UnpackError::Damaged) }
}

fn unpacked_length(payload: &[u8]) -> Result<(usize, &[u8]), UnpackError> {
    let (length, packed) = payload.split_first_chunk::<LENGTH_BYTES>().ok_or(UnpackError::Damaged)?;
    let length = u32::from_le_bytes(*length) as usize;
    if length == 0 || length > BATCH_BYTES_MAX { Err(UnpackError::Damaged) } else { Ok((length, packed)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Typical redo: records that resemble each other.
    fn redo(number: usize) -> Vec<u8> {
        format!("record {number:08}: page {:04} offset 0096 <order {}>", number % 7, number * 31).into_bytes()
    }

    fn carried(compression: Compression, frames: &[Vec<u8>]) -> usize {
        let mut packer = Packer::new(compression).unwrap().unwrap();
        let mut unpacker = Unpacker::new(compression);
        let mut bytes = 0;
        for frame in frames {
            let half = frame.len() / 2;
            let packed = packer.pack([&frame[..half], &frame[half..]].into_iter()).unwrap();
            let (flags, payload) = packed.unwrap_or((0, frame.clone()));
            bytes += payload.len();
            let unpacked = unpacker.unpack(flags, &payload).unwrap().unwrap_or(payload);
            assert!(unpacked == *frame);
        }
        bytes
    }

    #[test]
    fn short_frames_are_compressed_using_earlier_frames() {
        let frames: Vec<Vec<u8>> = (0..2000).map(redo).collect();
        let raw: usize = frames.iter().map(Vec::len).sum();
        for compression in [Compression::Lz4, Compression::Zstd] {
            let packed = carried(compression, &frames);
            assert!(packed * 2 < raw, "{compression:?}: {packed} of {raw} bytes");
        }
    }

    #[test]
    fn incompressible_and_large_frames_arrive_unchanged() {
        let mut seed = 1u64;
        let mut noise = |bytes: usize| -> Vec<u8> {
            std::iter::repeat_with(|| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            })
            .take(bytes)
            .collect()
        };
        let frames = [noise(100), redo(1), noise(70_000), redo(2), noise(BATCH_BYTES_MAX), redo(3), noise(1)];
        carried(Compression::Lz4, &frames);
        carried(Compression::Zstd, &frames);
        carried(Compression::Zstd, &[vec![7; BATCH_BYTES_MAX], redo(9)]);
    }

    #[test]
    fn lost_or_damaged_frame_is_not_taken_for_redo() {
        for compression in [Compression::Lz4, Compression::Zstd] {
            let mut packer = Packer::new(compression).unwrap().unwrap();
            let mut pack = |frame: &[u8]| packer.pack(std::iter::once(frame)).unwrap();
            let first = pack(&redo(1).repeat(50)).unwrap();
            let second = pack(&redo(2).repeat(50)).unwrap();
            // Without the first frame: an error, or bytes that the checksum of the stream finds at the next handshake.
            let fresh = || Unpacker::new(compression);
            let without = fresh().unpack(second.0, &second.1);
            assert!(without.is_err() || without.unwrap().unwrap() != redo(2).repeat(50), "{compression:?}");
            let mut shorter = first.1.clone();
            shorter[0] ^= 1;
            assert_eq!(fresh().unpack(first.0, &shorter), Err(UnpackError::Damaged));
            let huge = [&u32::MAX.to_le_bytes()[..], &first.1[4..]].concat();
            assert_eq!(fresh().unpack(first.0, &huge), Err(UnpackError::Damaged));
        }
        for (compression, flags) in
            [(Compression::None, LZ4), (Compression::Lz4, ZSTD), (Compression::Zstd, 4)]
        {
            assert_eq!(Unpacker::new(compression).unpack(flags, b"0123"), Err(UnpackError::Flags(flags)));
        }
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_and_never_a_panic(flags in 1u16..4, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let compression = if flags == LZ4 { Compression::Lz4 } else { Compression::Zstd };
            let mut unpacker = Unpacker::new(compression);
            let mut payload = bytes.clone();
            // A length that is allowed, so that the compressed bytes are decoded.
            if payload.len() > 4 {
                payload[1..4].fill(0);
            }
            let _ = unpacker.unpack(flags, &payload);
            let _ = unpacker.unpack(flags, &bytes);
        }
    }
}
