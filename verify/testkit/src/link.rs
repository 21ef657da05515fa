use crate::rng::Rng;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Result, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An in-memory connection, like TCP: two ordered byte streams without message boundaries. Written bytes are split into
/// random chunks that arrive after random delays, counted in steps of [`MemoryLink::step`]; a cut loses a suffix of the
/// bytes in flight. The same seed and calls give the same arrivals.
#[derive(Clone, Debug)]
pub struct MemoryLink {
    state: Arc<Mutex<State>>,
}

/// One end of a [`MemoryLink`]; reads and writes never block.
#[derive(Debug)]
pub struct LinkEnd {
    state: Arc<Mutex<State>>,
    /// Index of the direction that this end reads from; it writes to the other one.
    reads: usize,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    delay_max: u64,
    now: u64,
    cut: bool,
    directions: [Direction; 2],
}

#[derive(Debug, Default)]
struct Direction {
    /// Chunks in flight: step of arrival, ascending, and bytes.
    in_flight: VecDeque<(u64, Vec<u8>)>,
    arrived: VecDeque<u8>,
    closed: bool,
    reader_gone: bool,
}

impl MemoryLink {
    /// Makes a link whose chunks take 0 to `delay_max` steps, and its two ends.
    pub fn pair(seed: u64, delay_max: u64) -> (MemoryLink, LinkEnd, LinkEnd) {
        let directions = Default::default();
        let state = State { rng: Rng::new(seed), delay_max, now: 0, cut: false, directions };
        let state = Arc::new(Mutex::new(state));
        let end = |reads| LinkEnd { state: Arc::clone(&state), reads };
        let (one, two) = (end(0), end(1));
        (MemoryLink { state }, one, two)
    }

    pub fn step(&self) {
        let mut state = lock(&self.state);
        state.now += 1;
        state.deliver();
    }

    /// Cuts the link permanently: a random prefix of the bytes in flight still arrives. Both ends read what arrived and
    /// then fail with `ConnectionReset`.
    pub fn cut(&self) {
        let state = &mut *lock(&self.state);
        state.cut = true;
        for direction in &mut state.directions {
            let rest: Vec<u8> = direction.in_flight.drain(..).flat_map(|(_, bytes)| bytes).collect();
            let survives = state.rng.below(rest.len() as u64 + 1) as usize;
            direction.arrived.extend(&rest[..survives]);
        }
    }

    /// Number of bytes in both directions that were written and have not arrived.
    pub fn in_flight(&self) -> usize {
        let state = lock(&self.state);
        state.directions.iter().flat_map(|direction| &direction.in_flight).map(|(_, bytes)| bytes.len()).sum()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn deliver(&mut self) {
        let now = self.now;
        for direction in &mut self.directions {
            while let Some((_, bytes)) = direction.in_flight.pop_front_if(|(at, _)| *at <= now) {
                direction.arrived.extend(bytes);
            }
        }
    }

    fn send(&mut self, direction: usize, data: &[u8]) {
        let mut rest = data;
        while !rest.is_empty() {
            let (chunk, tail) = rest.split_at(self.rng.between(1, rest.len() as u64) as usize);
            let earliest = self.directions[direction].in_flight.back().map_or(self.now, |(at, _)| *at);
            let at = earliest.max(self.now + self.rng.between(0, self.delay_max));
            self.directions[direction].in_flight.push_back((at, chunk.to_vec()));
            rest = tail;
        }
        self.deliver();
    }
}

impl LinkEnd {
    /// Number of bytes that can be read now.
    pub fn available(&self) -> usize {
        lock(&self.state).directions[self.reads].arrived.len()
    }
}

impl Read for LinkEnd {
    /// Fails with `WouldBlock` when no bytes have arrived, and with `ConnectionReset` after a cut; returns 0 when the
    /// other end is closed.
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut state = lock(&self.state);
        let cut = state.cut;
        let direction = &mut state.directions[self.reads];
        if direction.arrived.is_empty() && !out.is_empty() {
            return match () {
                () if cut => Err(ErrorKind::ConnectionReset.into()),
                () if direction.closed && direction.in_flight.is_empty() => Ok(0),
                () => Err(ErrorKind::WouldBlock.into()),
            };
        }
        direction.arrived.read(out)
    }
}

impl Write for LinkEnd {
    /// Accepts all bytes. Fails with `BrokenPipe` when the other end is gone, and with `ConnectionReset` after a cut.
    fn write(&mut self, data: &[u8]) -> Result<usize> {
        let mut state = lock(&self.state);
        let writes = 1 - self.reads;
        if state.cut {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if state.directions[writes].reader_gone {
            return Err(ErrorKind::BrokenPipe.into());
        }
        state.send(writes, data);
        Ok(data.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Drop for LinkEnd {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.directions[1 - self.reads].closed = true;
        state.directions[self.reads].reader_gone = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(end: &mut LinkEnd) -> (Vec<u8>, Option<ErrorKind>) {
        let (mut all, mut buffer) = (Vec::new(), [0; 7]);
        loop {
            match end.read(&mut buffer) {
                Ok(0) => return (all, None),
                Ok(count) => all.extend(&buffer[..count]),
                Err(error) => return (all, Some(error.kind())),
            }
        }
    }

    #[test]
    fn bytes_arrive_late_complete_and_in_order() {
        let (link, mut one, mut two) = MemoryLink::pair(1, 5);
        let sent = Rng::new(9).bytes(1000);
        one.write_all(&sent).unwrap();
        assert!(link.in_flight() > 0);
        let (mut received, end) = drain(&mut two);
        assert_eq!(end, Some(ErrorKind::WouldBlock));
        for _ in 0..5 {
            link.step();
            received.extend(drain(&mut two).0);
        }
        assert_eq!(received, sent);
        two.write_all(b"back").unwrap();
        drop(two);
        (0..5).for_each(|_| link.step());
        assert_eq!(drain(&mut one), (b"back".to_vec(), None));
        assert_eq!(one.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn cut_link_truncates_the_bytes_in_flight() {
        let mut lengths: Vec<usize> = (0..40)
            .map(|seed| {
                let (link, mut one, mut two) = MemoryLink::pair(seed, 3);
                one.write_all(&[1; 100]).unwrap();
                link.cut();
                assert_eq!(one.write(b"x").unwrap_err().kind(), ErrorKind::ConnectionReset);
                let (received, end) = drain(&mut two);
                assert_eq!(end, Some(ErrorKind::ConnectionReset));
                received.len()
            })
            .collect();
        lengths.sort_unstable();
        lengths.dedup();
        assert!(lengths.len() > 10, "cuts at different places: {lengths:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        let run = || {
            let (link, mut one, mut two) = MemoryLink::pair(5, 8);
            let mut arrivals = Vec::new();
            for round in 0..20 {
                one.write_all(&[round; 50]).unwrap();
                link.step();
                arrivals.push(drain(&mut two).0);
            }
            arrivals
        };
        assert_eq!(run(), run());
    }
}
