//! The sending half of a stream: the redo sent so far, and the bytes that the socket has not taken yet. What takes the
//! bytes is an [`Outlet`], without a copy: a socket, or the pipe of a simulation.

use crate::framing::encode_header;
use crate::link::{Link, LinkEnd};
use crate::packing::Packer;
use crate::redo::{LogSwitch, RedoSlice};
use crate::sys::SLICES_MAX;
use crate::wait::with_wait;
use standfast_format::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use standfast_types::{BATCH_BYTES_MAX, Scn};
use std::collections::VecDeque;
use std::io::{IoSlice, Result};
use std::time::{Duration, Instant};

/// Takes bytes without waiting.
pub trait Outlet {
    /// Takes as many bytes of `slices` as it can without waiting, and returns how many. Bytes taken may still be on
    /// their way: see [`Outlet::flush_now`].
    ///
    /// # Errors
    /// The connection is lost.
    fn send_now(&self, slices: &[IoSlice<'_>]) -> Result<usize>;

    /// Hands over bytes taken earlier, as far as possible without waiting. Returns whether none are left.
    ///
    /// # Errors
    /// The connection is lost.
    fn flush_now(&self) -> Result<bool>;

    /// Whether it has handed over all bytes taken.
    fn is_flushed(&self) -> bool;
}

impl Outlet for LinkEnd {
    fn send_now(&self, slices: &[IoSlice<'_>]) -> Result<usize> {
        Link::send_now(self, slices)
    }

    fn flush_now(&self) -> Result<bool> {
        Link::flush_now(self)
    }

    fn is_flushed(&self) -> bool {
        Link::is_flushed(self)
    }
}

/// Values that every `Redo` and `Confirm` frame carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported {
    pub durable: Scn,
    pub captured: Scn,
    pub time_us: u64,
    /// The same moment on the clock of this process.
    pub at: Instant,
    /// For this long after `time_us`, no commit is acknowledged without this destination.
    pub wait: Duration,
}

impl Reported {
    fn header(&self, kind: FrameKind, at: Scn, packing: u16) -> FrameHeader {
        let header = FrameHeader::new(kind, at.0, self.durable.0, self.time_us, self.captured.0);
        FrameHeader { flags: with_wait(packing, self.wait), ..header }
    }
}

/// An open stream, guarded by one lock. The holder of the lock may send. Frames never mix, because a frame that the
/// socket took only in part stays first in `outbox`.
pub struct Wire<O = LinkEnd> {
    outlet: O,
    /// Bytes that must be sent before anything else.
    outbox: VecDeque<Chunk>,
    /// End of the redo handed to the socket or the outbox.
    pub(crate) sent: Scn,
    /// First position of the newest log announced.
    pub(crate) announced: Scn,
    /// [`crate::RedoSource::epoch`] when the stream was begun.
    pub(crate) epoch: u64,
    /// Newest position that the standby can treat as confirmed.
    pub(crate) reported_durable: Scn,
    pub(crate) last_sent: Instant,
    /// The sender's thread will soon check for a durable position to confirm.
    pub(crate) confirm_armed: bool,
    /// Largest payload of a frame before compression.
    pub(crate) payload_bytes_max: usize,
    packer: Option<Packer>,
}

struct Chunk {
    bytes: Bytes,
    done: usize,
}

enum Bytes {
    Header([u8; FRAME_HEADER_BYTES]),
    Redo(RedoSlice),
    Packed(Vec<u8>),
}

impl Chunk {
    fn rest(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Header(bytes) => &bytes[self.done..],
            Bytes::Redo(slice) => &slice.bytes()[self.done..],
            Bytes::Packed(bytes) => &bytes[self.done..],
        }
    }
}

impl<O: Outlet> Wire<O> {
    /// Creates a stream that begins at `from`; logs up to `announced` have been announced.
    pub(crate) fn new(outlet: O, from: Scn, announced: Scn, epoch: u64, now: Instant) -> Wire<O> {
        Wire {
            outlet,
            outbox: VecDeque::new(),
            sent: from,
            announced,
            epoch,
            reported_durable: Scn::ZERO,
            last_sent: now,
            confirm_armed: false,
            payload_bytes_max: BATCH_BYTES_MAX,
            packer: None,
        }
    }

    /// Sets the largest payload of a frame and the compression.
    pub(crate) fn with(mut self, payload_bytes_max: usize, packer: Option<Packer>) -> Wire<O> {
        // Compression makes incompressible redo a little longer; it must still fit into a frame.
        let room = if packer.is_some() { BATCH_BYTES_MAX / 2 } else { BATCH_BYTES_MAX };
        self.payload_bytes_max = payload_bytes_max.min(room);
        self.packer = packer;
        self
    }

    /// End of the redo that it has taken.
    pub fn sent(&self) -> Scn {
        self.sent
    }

    pub(crate) fn outlet(&self) -> &O {
        &self.outlet
    }

    /// Whether the socket has taken everything so far.
    pub(crate) fn is_clear(&self) -> bool {
        self.outbox.is_empty() && self.outlet.is_flushed()
    }

    /// Number of parts that wait for the socket.
    pub(crate) fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Sends one `Redo` frame with `redo`, which begins at `sent`; the outbox must be empty. Returns the bytes of
    /// payload, and whether the socket took the whole frame; the outbox holds the rest and shares the memory of the
    /// chunks.
    pub(crate) fn send_redo(&mut self, redo: &[RedoSlice], reported: Reported) -> Result<(usize, bool)> {
        let length: usize = redo.iter().map(|slice| slice.bytes().len()).sum();
        if let Some(packer) = &mut self.packer
            && let Some((flags, packed)) = packer.pack(redo.iter().map(RedoSlice::bytes))?
        {
            return self.send_packed(length, flags, packed, reported);
        }
        debug_assert!(self.is_clear());
        debug_assert!(
            length <= BATCH_BYTES_MAX && redo.first().is_some_and(|slice| slice.first() == self.sent)
        );
        let header = reported.header(FrameKind::Redo, self.sent, 0);
        let header = encode_header(header, redo.iter().map(RedoSlice::bytes));
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        slices[0] = IoSlice::new(&header);
        let in_one_call = redo.len().min(SLICES_MAX - 1);
        for (target, slice) in slices[1..].iter_mut().zip(redo) {
            *target = IoSlice::new(slice.bytes());
        }
        let mut taken = self.outlet.send_now(&slices[..=in_one_call])?;
        let whole = taken == FRAME_HEADER_BYTES + length;
        let took_all_given = taken == slices[..=in_one_call].iter().map(|slice| slice.len()).sum::<usize>();
        if !whole {
            let chunks = std::iter::once(Bytes::Header(header)).chain(redo.iter().cloned().map(Bytes::Redo));
            for bytes in chunks {
                let mut chunk = Chunk { bytes, done: 0 };
                chunk.done = taken.min(chunk.rest().len());
                taken -= chunk.done;
                if !chunk.rest().is_empty() {
                    self.outbox.push_back(chunk);
                }
            }
        }
        self.sent = self.sent + length as u64;
        self.note_reported(reported);
        // The chunks may exceed the limit of one call; send the rest without waiting.
        Ok((length, if took_all_given { self.flush()? } else { false }))
    }

    fn send_packed(
        &mut self,
        length: usize,
        flags: u16,
        packed: Vec<u8>,
        reported: Reported,
    ) -> Result<(usize, bool)> {
        let header = reported.header(FrameKind::Redo, self.sent, flags).encode(&packed, &[]);
        let bytes = packed.len();
        self.outbox.push_back(Chunk { bytes: Bytes::Header(header), done: 0 });
        self.outbox.push_back(Chunk { bytes: Bytes::Packed(packed), done: 0 });
        self.sent = self.sent + length as u64;
        self.note_reported(reported);
        Ok((bytes, self.flush()?))
    }

    /// Sends the durable position without redo.
    pub(crate) fn send_confirm(&mut self, reported: Reported) -> Result<()> {
        let header = reported.header(FrameKind::Confirm, self.sent, 0);
        self.note_reported(reported);
        self.send_header(header, reported.at)
    }

    /// Announces a log that begins at `sent`.
    pub(crate) fn send_switch(&mut self, log: &LogSwitch, now: Instant) -> Result<()> {
        debug_assert!(log.first_scn == self.sent);
        self.announced = log.first_scn;
        let (at, first_record) = (log.first_scn.0, u64::from(log.first_record));
        self.send_header(
            FrameHeader::new(FrameKind::Switch, at, log.sequence, log.time_us, first_record),
            now,
        )
    }

    /// Sends a whole frame that is not part of the redo.
    pub(crate) fn send_frame(&mut self, frame: &[u8]) -> Result<()> {
        self.outbox.push_back(Chunk { bytes: Bytes::Packed(frame.to_vec()), done: 0 });
        self.flush().map(drop)
    }

    /// Sends the outbox. Returns whether the socket took all of it.
    pub(crate) fn flush(&mut self) -> Result<bool> {
        while !self.outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            for (slice, chunk) in slices.iter_mut().zip(&self.outbox) {
                *slice = IoSlice::new(chunk.rest());
            }
            let count = self.outbox.len().min(SLICES_MAX);
            let mut taken = self.outlet.send_now(&slices[..count])?;
            if taken == 0 {
                return Ok(false);
            }
            while let Some(chunk) = self.outbox.front_mut() {
                let step = taken.min(chunk.rest().len());
                chunk.done += step;
                taken -= step;
                if !chunk.rest().is_empty() {
                    break;
                }
                self.outbox.pop_front();
            }
        }
        self.outlet.flush_now()
    }

    fn send_header(&mut self, header: FrameHeader, now: Instant) -> Result<()> {
        let bytes = Bytes::Header(header.encode(&[], &[]));
        self.outbox.push_back(Chunk { bytes, done: 0 });
        self.last_sent = now;
        self.flush().map(drop)
    }

    fn note_reported(&mut self, reported: Reported) {
        // The standby confirms no more than it has received.
        self.reported_durable = self.reported_durable.max(reported.durable.min(self.sent));
        self.last_sent = reported.at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::FrameReader;
    use crate::link::Link;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    #[test]
    fn partially_sent_frame_arrives_complete_before_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = Link::plain(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let mut reader = FrameReader::new(listener.accept().unwrap().0);
        reader.allow_redo();
        let slice_bytes = BATCH_BYTES_MAX / 100;
        let slices = |from: Scn| -> Vec<RedoSlice> {
            let slice =
                |n: u64| RedoSlice::new(from + n * slice_bytes as u64, Arc::new(vec![n as u8; slice_bytes]));
            (0..100).map(slice).collect()
        };
        let at = Instant::now();
        let reported = Reported { durable: Scn(5), captured: Scn(6), time_us: 7, at, wait: Duration::ZERO };
        let mut wire = Wire::new(stream.clone(), Scn(4096), Scn(4096), 0, at);
        let mut frames = 0;
        // Nothing reads: after some frames the socket is full.
        while wire.send_redo(&slices(wire.sent), reported).unwrap().1 {
            frames += 1;
        }
        frames += 1;
        let (sent, reads) = (wire.sent, frames);
        let reading = std::thread::spawn(move || {
            let mut at = 4096;
            for _ in 0..reads {
                let frame = reader.read().unwrap();
                assert_eq!((frame.header.kind, frame.header.a, frame.header.b), (FrameKind::Redo, at, 5));
                assert!(
                    frame
                        .payload
                        .chunks(slice_bytes)
                        .zip(0u8..)
                        .all(|(chunk, n)| chunk == vec![n; slice_bytes])
                );
                at += frame.payload.len() as u64;
            }
            assert_eq!(reader.read().unwrap().header.kind, FrameKind::Confirm);
            at
        });
        wire.send_confirm(reported).unwrap();
        while !wire.flush().unwrap() {
            stream.wait_writable(Duration::from_secs(10)).unwrap();
        }
        assert_eq!(reading.join().unwrap(), sent.0);
    }
}
