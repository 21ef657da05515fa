//! Hostile connections at a steady rate while commits are measured.

use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::VecDeque;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections per second: 50,000 in 10 s.
pub(super) const RATE: u64 = 5_000;
/// A measurement is invalid when less than this share of [`RATE`] was made.
const LEAST: f64 = 0.9;
/// Connections that each thread keeps open, so that they occupy connection slots as well.
const HELD: usize = 50;
/// Number of local source addresses, starting at 127.1.0.1.
const ADDRESSES: u64 = 64;
/// Backlog of the listener, as at the listeners of an instance.
const QUEUE: i32 = 4096;
/// Applies when the queue of the listener is full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of threads that connect, interleaved. Several, because real attackers have processors of their own and do not
/// wait for those of this machine.
const THREADS: u64 = 4;

/// Connects again and again until it is dropped.
pub(super) struct Flood {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicU64>,
    began: Instant,
    threads: Vec<JoinHandle<()>>,
    /// The listener and the thread that accepts, when the target is no instance.
    listener: Option<(Arc<TcpListener>, JoinHandle<()>)>,
}

impl Flood {
    pub(super) fn on(target: SocketAddr) -> Flood {
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let began = Instant::now();
        let threads = (0..THREADS).map(|thread| {
            let (stop, made) = (stop.clone(), made.clone());
            std::thread::spawn(move || {
                run_first();
                connect_at_rate(target, began, thread, &stop, &made);
            })
        });
        Flood { began, threads: threads.collect(), stop, made, listener: None }
    }

    /// Starts the flood against a listener of its own that closes every connection immediately.
    pub(super) fn on_no_instance() -> std::io::Result<Flood> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))?;
        socket.listen(QUEUE)?;
        let listener = Arc::new(TcpListener::from(socket));
        let target = listener.local_addr()?;
        let theirs = listener.clone();
        // Ends when the listener is shut down.
        let accepting = std::thread::spawn(move || while theirs.accept().is_ok() {});
        let mut flood = Flood::on(target);
        flood.listener = Some((listener, accepting));
        Ok(flood)
    }

    /// Average connections per second so far.
    pub(super) fn rate(&self) -> f64 {
        self.made.load(Relaxed) as f64 / self.began.elapsed().as_secs_f64()
    }

    /// Whether enough connections were made for a valid measurement.
    pub(super) fn was_full(&self) -> bool {
        self.rate() >= LEAST * RATE as f64
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some((listener, accepting)) = self.listener.take() {
            // SAFETY: the descriptor is open; on Linux, shutdown ends an `accept` that waits (shutdown(2)).
            unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RD) };
            let _ = accepting.join();
        }
    }
}

/// Raises the priority of this thread above the measured processes, where permitted; without it, too few connections
/// are made, and the run reports that.
fn run_first() {
    // SAFETY: changes the priority of this thread only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) };
}

fn connect_at_rate(target: SocketAddr, began: Instant, first: u64, stop: &AtomicBool, made: &AtomicU64) {
    let mut held = VecDeque::new();
    for nth in (first..).step_by(THREADS as usize) {
        let due = began + Duration::from_secs(nth) / RATE as u32;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if stop.load(Relaxed) {
            return;
        }
        if let Some(stream) = say_nonsense(target, nth) {
            held.push_back(stream);
            made.fetch_add(1, Relaxed);
        }
        if held.len() > HELD {
            held.pop_front();
        }
    }
}

/// Connects and sends garbage; None when the listener did not accept.
fn say_nonsense(target: SocketAddr, nth: u64) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    let from = Ipv4Addr::new(127, 1, 0, (nth % ADDRESSES + 1) as u8);
    socket.bind(&SockAddr::from(SocketAddr::from((from, 0)))).ok()?;
    socket.connect_timeout(&SockAddr::from(target), CONNECT_TIMEOUT).ok()?;
    let mut stream = TcpStream::from(socket);
    // A listener that has already closed the connection is no failure of the flood.
    let _ = match nth % 3 {
        0 => Ok(()),
        1 => stream.write_all(&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3]),
        _ => stream.write_all(b"GET /?token=\x1b[2J HTTP/1.1\r\nHost: evil\r\n\r\n"),
    };
    Some(stream)
}
