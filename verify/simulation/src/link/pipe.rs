//! A byte pipe in memory in place of a TCP connection, and a clock that only a history moves.

use crate::lock;
use standfast_testkit::{LinkEnd, MemoryLink, Rng, SimClock};
use standfast_transport::machine::{Clock, FrameSink, Outlet, Proved};
use std::io::{IoSlice, Read, Result, Write};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// A connection, and its two ends.
pub(super) fn connection(rng: &mut Rng) -> (MemoryLink, PipeEnd, PipeEnd) {
    let delay_max = rng.pick(&[0, 1, 4, 20]).copied().unwrap_or(0);
    let partial = rng.pick(&[0, 0, 20, 60]).copied().unwrap_or(0);
    let (pipe, near, far) = MemoryLink::pair(rng.next_u64(), delay_max);
    let mut end = |end| PipeEnd(Arc::new(Mutex::new(Socket { end, partial, rng: rng.fork() })));
    let (near, far) = (end(near), end(far));
    (pipe, near, far)
}

/// One end of a connection; clones are the same end.
#[derive(Clone)]
pub(super) struct PipeEnd(Arc<Mutex<Socket>>);

struct Socket {
    end: LinkEnd,
    /// Per cent of the calls that take only a part of what they are given.
    partial: u64,
    rng: Rng,
}

impl Read for PipeEnd {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        lock(&self.0).end.read(out)
    }
}

impl Write for PipeEnd {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        lock(&self.0).end.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Outlet for PipeEnd {
    fn send_now(&self, slices: &[IoSlice<'_>]) -> Result<usize> {
        let socket = &mut *lock(&self.0);
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        let room = match socket.rng.chance(socket.partial) {
            true => socket.rng.below(bytes as u64) as usize,
            false => bytes,
        };
        let mut left = room;
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            socket.end.write_all(part)?;
            left -= part.len();
        }
        Ok(room)
    }

    fn flush_now(&self) -> Result<bool> {
        Ok(true)
    }

    fn is_flushed(&self) -> bool {
        true
    }
}

impl FrameSink for PipeEnd {
    fn send(&mut self, frame: &[u8]) -> Result<()> {
        self.write_all(frame)
    }
}

/// Connections are plain: no name is proved.
pub(super) struct Plain;

impl Proved for Plain {
    fn is_tls(&self) -> bool {
        false
    }

    fn peer_name(&self) -> Option<&str> {
        None
    }
}

/// How the clock of a machine differs from that of the primary's.
#[derive(Clone, Copy, Debug)]
pub struct Skew {
    /// Microseconds by which its time of day is ahead.
    pub ahead_us: i64,
    /// How far it goes while that of the primary goes 100.
    pub per_cent: u32,
}

impl Skew {
    pub const NONE: Skew = Skew { ahead_us: 0, per_cent: 100 };

    pub fn draw(rng: &mut Rng) -> Skew {
        let ahead_us = rng.below(2 * SKEW_MAX_US) as i64 - SKEW_MAX_US as i64;
        Skew { ahead_us, per_cent: rng.between(95, 105) as u32 }
    }
}

/// Two hours.
const SKEW_MAX_US: u64 = 7_200_000_000;

/// The time that all ends share, as one of them sees it.
#[derive(Clone)]
pub(super) struct Time {
    clock: SimClock,
    skew: Skew,
}

impl Default for Time {
    fn default() -> Time {
        Time { clock: SimClock::default(), skew: Skew::NONE }
    }
}

impl Time {
    pub fn pass(&self, time: Duration) {
        self.clock.advance(time.as_micros() as u64);
    }

    /// The same time on a clock with that skew.
    pub fn with(&self, skew: Skew) -> Time {
        Time { clock: self.clock.clone(), skew }
    }

    /// Microseconds since the begin of all histories.
    fn elapsed_us(&self) -> u64 {
        let began_us = SimClock::default().now_us();
        (self.clock.now_us() - began_us) * u64::from(self.skew.per_cent) / 100
    }
}

impl Clock for Time {
    fn now(&self) -> Instant {
        // All ends only compare instants, so that any one serves as the begin.
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        *BEGAN.get_or_init(Instant::now) + Duration::from_micros(self.elapsed_us())
    }

    fn unix_us(&self) -> u64 {
        let unix_us = SimClock::default().now_us() + self.elapsed_us();
        unix_us.saturating_add_signed(self.skew.ahead_us)
    }

    fn monotonic_ns(&self) -> u64 {
        (SimClock::default().now_us() + self.elapsed_us()) * 1000
    }
}
