//! Waiting without a timeout. A receive with a timeout sets and cancels a timer for every message, and that time would
//! count as the link's. Instead a test blocks, and a thread that has nothing else to do polls for receivers that wait
//! too long and wakes them by shutting their connection down.

use crate::arrivals::{Arrivals, receive_once};
use crate::socket::{SLICE, closed};
use crate::{NetError, Result};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const ALONE: u8 = 0;
const TOO_LONG: u8 = 1;
const INTERRUPTED: u8 = 2;

/// A connection whose receives are watched.
pub struct Watch {
    socket: Arc<TcpStream>,
    /// Odd while a receive waits; a different number means a different wait.
    turn: AtomicU64,
    /// Longest wait, nanoseconds; 0 waits for ever.
    timeout: AtomicU64,
    why: AtomicU8,
}

impl Watch {
    /// Watches a connection and makes it block without a timeout.
    pub fn new(socket: Arc<TcpStream>) -> io::Result<Watch> {
        socket.set_read_timeout(None)?;
        Ok(Watch { socket, turn: AtomicU64::new(0), timeout: AtomicU64::new(0), why: AtomicU8::new(ALONE) })
    }

    /// Waits for bytes, at most `timeout`, and takes those that are there. Zero: the other side has closed.
    pub fn receive(
        &self,
        out: &mut [u8],
        timeout: Option<Duration>,
        arrivals: Option<&Arrivals>,
        doing: &'static str,
    ) -> Result<usize> {
        let nanos = timeout.map_or(0, |timeout| timeout.as_nanos().clamp(1, u64::MAX.into()) as u64);
        self.timeout.store(nanos, Ordering::Relaxed);
        let turn = self.turn.load(Ordering::Relaxed);
        loop {
            self.turn.store(turn + 1, Ordering::Relaxed);
            let received = receive_once(&self.socket, out, arrivals);
            self.turn.store(turn + 2, Ordering::Relaxed);
            let error = match received {
                // The shutdown by the watching thread looks like the end of the stream.
                Ok(0) if self.why.load(Ordering::Acquire) == ALONE => return Ok(0),
                Ok(0) => closed(),
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            return Err(match (self.why.load(Ordering::Acquire), timeout) {
                (TOO_LONG, Some(timeout)) => NetError::Timeout { doing, seconds: timeout.as_secs_f64() },
                (INTERRUPTED, _) => NetError::Interrupted { doing },
                _ => NetError::Cut { doing, source: error },
            });
        }
    }

    fn wake(&self, why: u8) {
        self.why.store(why, Ordering::Release);
        // A receiver whose connection is already closed wakes by itself.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// State of a watched connection at the last poll. Pure.
#[derive(Clone, Copy, Debug)]
struct Seen {
    turn: u64,
    since: Instant,
}

impl Seen {
    /// Returns whether the same wait lasts for longer than `timeout`. Another wait starts again from zero.
    fn is_stuck(&mut self, turn: u64, now: Instant, timeout: Option<Duration>) -> bool {
        if turn != self.turn {
            *self = Seen { turn, since: now };
        }
        let waits = turn % 2 == 1;
        waits && timeout.is_some_and(|timeout| now.saturating_duration_since(self.since) >= timeout)
    }
}

#[derive(Default)]
pub struct Watches(Mutex<Vec<(Arc<Watch>, Seen)>>);

/// Guard that ends the watch over a connection when it is dropped.
pub struct Watched<'a> {
    watches: &'a Watches,
    pub watch: Arc<Watch>,
}

impl Watches {
    /// Watches over a connection until the guard is dropped.
    pub fn over(&self, socket: Arc<TcpStream>) -> io::Result<Watched<'_>> {
        let watch = Arc::new(Watch::new(socket)?);
        let seen = Seen { turn: 0, since: Instant::now() };
        self.with(|watched| watched.push((Arc::clone(&watch), seen)));
        Ok(Watched { watches: self, watch })
    }

    /// Returns whether no connection is watched.
    pub fn is_empty(&self) -> bool {
        self.with(|watched| watched.is_empty())
    }

    /// Wakes receivers that wait too long and, when `end` is set, receivers that get nothing within a slice. Must be
    /// called at least once per slice.
    pub fn look(&self, now: Instant, end: bool) {
        self.with(|watched| {
            for (watch, seen) in watched {
                let nanos = watch.timeout.load(Ordering::Relaxed);
                let timeout = (nanos != 0).then(|| Duration::from_nanos(nanos));
                let turn = watch.turn.load(Ordering::Relaxed);
                if seen.is_stuck(turn, now, timeout) {
                    watch.wake(TOO_LONG);
                } else if end && seen.is_stuck(turn, now, Some(SLICE)) {
                    watch.wake(INTERRUPTED);
                }
            }
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<(Arc<Watch>, Seen)>) -> T) -> T {
        // A thread that panicked left the list consistent.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.watches.with(|watched| watched.retain(|(watch, _)| !Arc::ptr_eq(watch, &self.watch)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, Arc<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        (near, Arc::new(far))
    }

    #[test]
    fn unchanged_wait_is_stuck_after_the_timeout() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let timeout = Some(Duration::from_secs(10));
        let mut seen = Seen { turn: 0, since: start };
        assert!(!seen.is_stuck(0, after(99), timeout), "it works, it does not wait");
        assert!(!seen.is_stuck(1, after(100), timeout));
        assert!(!seen.is_stuck(1, after(109), timeout));
        assert!(seen.is_stuck(1, after(110), timeout));
        assert!(!seen.is_stuck(1, after(999), None), "it may wait for ever");
        assert!(!seen.is_stuck(3, after(1000), timeout), "something came meanwhile");
    }

    /// Polls until the receiver has ended.
    fn watched(timeout: Option<Duration>, end: bool) -> Result<usize> {
        let (_near, far) = pair();
        let watches = Watches::default();
        std::thread::scope(|scope| {
            let guard = watches.over(far).unwrap();
            let waiting = scope.spawn(move || guard.watch.receive(&mut [0; 8], timeout, None, "waiting"));
            while !waiting.is_finished() {
                watches.look(Instant::now(), end);
                std::thread::yield_now();
            }
            waiting.join().unwrap()
        })
    }

    #[test]
    fn waiter_is_woken_with_the_reason_on_timeout_or_interrupt() {
        let timeout = watched(Some(Duration::from_millis(20)), false);
        assert!(matches!(timeout, Err(NetError::Timeout { doing: "waiting", .. })), "{timeout:?}");
        let interrupted = watched(None, true);
        assert!(matches!(interrupted, Err(NetError::Interrupted { .. })), "{interrupted:?}");
    }

    #[test]
    fn watched_receive_returns_bytes_and_end_of_stream() {
        let (mut near, far) = pair();
        let watches = Watches::default();
        let guard = watches.over(far).unwrap();
        near.write_all(b"abc").unwrap();
        let mut out = [0; 8];
        assert_eq!(guard.watch.receive(&mut out, None, None, "waiting").unwrap(), 3);
        drop(near);
        assert_eq!(guard.watch.receive(&mut out, None, None, "waiting").unwrap(), 0);
        assert!(!watches.is_empty());
        drop(guard);
        assert!(watches.is_empty());
    }
}
