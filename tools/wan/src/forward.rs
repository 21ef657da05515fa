//! Passes a packet through a link: each segment passes or is dropped, and neighbours that pass travel as one segment
//! train. Pure.

use crate::link::{Fate, Link, Passage};
use crate::packet::{LARGEST, Shape};
use crate::settings::Nanos;

/// Wire time at which a segment train ends. It arrives when its last segment does, so its first segment is late by
/// about this much at most.
const TRAIN_TIME_MAX: Nanos = 100_000;
/// Size of a small buffer: a full packet of the usual size.
const SMALL: usize = 2 << 10;
/// Maximum free buffers of each size.
const KEPT: usize = 1 << 10;

/// A packet with its virtio header, in memory that is reused.
pub struct Buffer {
    room: Box<[u8]>,
    length: usize,
}

impl Buffer {
    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.length]
    }

    pub fn room(&mut self) -> &mut [u8] {
        &mut self.room
    }

    /// Declares the first `length` bytes of the memory to be the packet.
    pub fn filled(&mut self, length: usize) {
        self.length = length;
    }
}

/// Free buffers. Most packets are either small or as large as possible, and filling memory is expensive.
#[derive(Default)]
pub struct Pool {
    small: Vec<Buffer>,
    large: Vec<Buffer>,
}

impl Pool {
    /// Returns a buffer for that many bytes, at most [`LARGEST`].
    pub fn take(&mut self, bytes: usize) -> Buffer {
        let (free, size) = if bytes <= SMALL { (&mut self.small, SMALL) } else { (&mut self.large, LARGEST) };
        free.pop().unwrap_or_else(|| Buffer { room: vec![0; size].into(), length: 0 })
    }

    /// Returns a buffer to the pool.
    pub fn give(&mut self, buffer: Buffer) {
        let free = if buffer.room.len() <= SMALL { &mut self.small } else { &mut self.large };
        if free.len() < KEPT {
            free.push(buffer);
        }
    }
}

/// Offers the segments of a packet to a link. The content of `packet` is undefined afterwards.
pub fn forward(link: &mut Link<Buffer>, pool: &mut Pool, now: Nanos, shape: &Shape, packet: &mut Buffer) {
    let segments = shape.segments();
    let mut train: Option<(usize, Passage)> = None;
    for index in 0..segments {
        let fate = link.offer(now, shape.segment_bytes(index) as u64);
        let Fate::Passes(passage) = fate else {
            finish(link, pool, shape, packet, train.take(), index);
            continue;
        };
        if passage.overtaken {
            finish(link, pool, shape, packet, train.take(), index);
        }
        let (from, grown) = match train {
            None => (index, passage),
            Some((from, before)) => (from, before.with(&passage)),
        };
        train = Some((from, grown));
        if passage.overtaken || link.settings().wire_time(grown.bytes()) >= TRAIN_TIME_MAX {
            finish(link, pool, shape, packet, train.take(), index + 1);
        }
    }
    finish(link, pool, shape, packet, train, segments);
}

/// Lets the link hold the segment train that ends before segment `to`.
fn finish(
    link: &mut Link<Buffer>,
    pool: &mut Pool,
    shape: &Shape,
    packet: &mut Buffer,
    train: Option<(usize, Passage)>,
    to: usize,
) {
    let Some((from, passage)) = train else { return };
    let bytes = shape.train_bytes(from..to);
    let mut out = pool.take(bytes);
    // A complete large packet is not copied: the two buffers are swapped.
    if bytes == packet.length && bytes > SMALL {
        std::mem::swap(&mut out, packet);
    } else {
        shape.cut_out(packet.bytes(), from..to, &mut out.room);
        out.filled(bytes);
    }
    link.hold(passage, out);
}
