//! The receiving side of a connection: the server, or the client in a reverse test.

use crate::arrivals::Arrivals;
use crate::file::{MAX_WRITE, Ring};
use crate::framer::Framer;
use crate::link::{Link, Waiting};
use crate::plan::Mode;
use crate::socket::{closed, receive_buffer, receive_now};
use crate::stats::Sender;
use crate::wire::{Answered, HEADER_BYTES, Header, Kind, Report, ReportKind, STATE_BYTES, WireError};
use crate::{NetError, Result};
use standfast_io::{ALIGNMENT, AlignedBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often the receiver reports the progress of an ASYNC test.
const PROGRESS: Duration = Duration::from_millis(50);
/// Bytes received per call when they are discarded: few enough to stay in the processor's cache.
const DISCARD_BYTES: usize = 128 << 10;
/// How long the receiver of a stream polls for more data before it sleeps.
const LOOK: Duration = Duration::from_micros(50);
const DOING: &str = "receiving a message";

/// Callbacks of a receiver; it also decides when the receiver has enough.
pub trait Observer {
    /// Returns whether the sender shall finish.
    fn has_enough(&self) -> bool {
        false
    }
    /// Called with newly received payload and messages; the report holds the totals.
    fn received(&self, _bytes: u64, _messages: u64, _report: &Report) {}
    /// Called with the latency that the sender measured for the previous message; the report is that of its
    /// acknowledgement.
    fn answered(&self, _answered: &Answered, _report: &Report) {}
    /// Called with the kernel's counters that the sender reported.
    fn sender(&self, _sender: &Sender) {}
}

/// A receiving server records nothing; the client does.
impl Observer for () {}

struct Session<'a> {
    link: &'a Link<'a>,
    mode: Mode,
    length: u32,
    observer: &'a dyn Observer,
    report: Report,
    reported: Instant,
    /// The sender was asked to finish.
    ended: bool,
}

/// Receives the messages of a test, of at most `length` bytes each, until it is finished.
pub fn serve(
    link: &Link<'_>,
    (mode, length): (Mode, u32),
    ring: Option<Arc<Ring>>,
    observer: &dyn Observer,
) -> Result<()> {
    let report = Report {
        kind: ReportKind::Progress,
        errno: 0,
        sequence: 0,
        write_ns: 0,
        received: 0,
        disk_ns: 0,
        wait_ns: 0,
        receive_buffer: 0,
        writes: 0,
        waking_ns: 0,
    };
    let arrivals = Arrivals::default();
    let link = &match mode {
        Mode::Sync => Link { arrivals: Some(&arrivals), ..*link },
        Mode::Async => Link { ..*link },
    };
    let mut session =
        Session { link, mode, length, observer, report, reported: Instant::now(), ended: false };
    match (mode, ring) {
        (Mode::Async, None) => session.count()?,
        (_, ring) => session.keep(ring.as_deref())?,
    }
    session.send(ReportKind::Summary)?;
    session.observer.received(0, 0, &session.report);
    Ok(())
}

impl Session<'_> {
    /// Returns an error when the test was aborted, so that a sender that never pauses does not keep this side from
    /// ending.
    fn resume(&self) -> Result<()> {
        match self.link.abort.load(Ordering::Relaxed) {
            true => Err(NetError::Interrupted { doing: "receiving a test" }),
            false => Ok(()),
        }
    }

    fn send(&mut self, kind: ReportKind) -> Result<()> {
        self.report.kind = kind;
        if kind != ReportKind::Acknowledgement {
            self.report.receive_buffer = receive_buffer(self.link.socket);
        }
        self.link.send(&self.report.encode(), &[], "reporting to the sender")
    }

    fn send_progress(&mut self) -> Result<()> {
        let now = Instant::now();
        if now - self.reported < PROGRESS {
            return Ok(());
        }
        self.reported = now;
        self.send(ReportKind::Progress)
    }

    /// Asks the sender to finish, once, when the observer has enough.
    fn end_in_time(&mut self) -> Result<()> {
        if self.ended || !self.observer.has_enough() {
            return Ok(());
        }
        self.ended = true;
        self.send(ReportKind::Enough)
    }

    /// Counts and discards payloads: ASYNC without a disk.
    fn count(&mut self) -> Result<()> {
        let mut buffer = vec![0; DISCARD_BYTES];
        let mut framer = Framer::new(self.length);
        while !framer.finished {
            self.resume()?;
            let bytes = self.receive_timed(&mut buffer)?;
            let (payload, messages) = (framer.payload, framer.messages);
            framer.feed(&buffer[..bytes]).map_err(garbled)?;
            self.report.received = framer.payload;
            self.report.sequence = framer.messages.saturating_sub(1);
            self.observer.received(framer.payload - payload, framer.messages - messages, &self.report);
            if let Some(sender) = framer.sender.take() {
                self.observer.sender(&sender);
            }
            self.send_progress()?;
        }
        Ok(())
    }

    /// Receives like [`Link::receive`], and adds the time in which no data was there to the report. Only that time
    /// counts as waiting: copying data that is there is work.
    fn receive_timed(&mut self, out: &mut [u8]) -> Result<usize> {
        self.end_in_time()?;
        if let Some(bytes) = self.receive_now(out)? {
            return Ok(bytes);
        }
        let began = Instant::now();
        let bytes = match self.look(began, out)? {
            Some(bytes) => bytes,
            None => self.wait(out)?,
        };
        self.report.wait_ns += began.elapsed().as_nanos() as u64;
        Ok(bytes)
    }

    fn receive_now(&self, out: &mut [u8]) -> Result<Option<usize>> {
        match receive_now(self.link.socket, out) {
            Ok(Some(0)) => Err(NetError::Cut { doing: DOING, source: closed() }),
            Ok(received) => Ok(received),
            Err(source) => Err(NetError::Cut { doing: DOING, source }),
        }
    }

    /// Polls for [`LOOK`] before the receiver sleeps, and yields the processor meanwhile: waking a receiver costs the
    /// sender of a fast stream more than the sending.
    fn look(&self, began: Instant, out: &mut [u8]) -> Result<Option<usize>> {
        while began.elapsed() < LOOK {
            std::thread::yield_now();
            if let Some(bytes) = self.receive_now(out)? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    fn receive(&mut self, out: &mut [u8]) -> Result<usize> {
        match self.mode {
            Mode::Async => self.receive_timed(out),
            Mode::Sync => self.wait(out),
        }
    }

    fn wait(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut waiting = Waiting::default();
        loop {
            self.end_in_time()?;
            if let Some(bytes) = self.link.receive_for_a_slice(out, &mut waiting, DOING)? {
                return Ok(bytes);
            }
        }
    }

    /// Keeps payloads aligned in memory, in chunks of one durable write: SYNC, or with a disk.
    fn keep(&mut self, ring: Option<&Ring>) -> Result<()> {
        // The header is received directly in front of an aligned block, so that one call can receive both.
        const START: usize = ALIGNMENT - HEADER_BYTES;
        let room = (self.length as usize).clamp(STATE_BYTES, MAX_WRITE);
        let mut buffer = AlignedBuf::new(ALIGNMENT + room);
        // SYNC: nothing follows a message before it is acknowledged. ASYNC: the receive takes no bytes of the next
        // message.
        let most = match self.mode {
            Mode::Sync => ALIGNMENT + room,
            Mode::Async => ALIGNMENT,
        };
        let mut end = START;
        loop {
            self.resume()?;
            while end < ALIGNMENT {
                end += self.receive(&mut buffer[end..most])?;
            }
            let mut header = [0; HEADER_BYTES];
            header.copy_from_slice(&buffer[START..ALIGNMENT]);
            let header = Header::decode(&header, self.length).map_err(garbled)?;
            if header.answered.latency_ns > 0 {
                self.observer.answered(&header.answered, &self.report);
                if let Some(arrivals) = self.link.arrivals {
                    arrivals.took(self.link.socket, header.answered.latency_ns);
                }
            }
            let mut have = end - ALIGNMENT;
            if header.kind == Kind::State {
                while have < STATE_BYTES {
                    have += self.receive(&mut buffer[ALIGNMENT + have..ALIGNMENT + STATE_BYTES])?;
                }
                let mut state = [0; STATE_BYTES];
                state.copy_from_slice(&buffer[ALIGNMENT..ALIGNMENT + STATE_BYTES]);
                self.observer.sender(&Sender::decode(&state));
                // The next message may have arrived with it: move it to its place.
                buffer.copy_within(ALIGNMENT + STATE_BYTES..ALIGNMENT + have, START);
                end = START + have - STATE_BYTES;
                continue;
            }
            if have > header.length as usize {
                return Err(garbled(WireError::Field("bytes after a message")));
            }
            if header.kind == Kind::Finish {
                return Ok(());
            }
            (self.report.write_ns, self.report.waking_ns) = (0, 0);
            let mut left = header.length as usize;
            while left > 0 {
                let count = left.min(room);
                while have < count {
                    have += self.receive(&mut buffer[ALIGNMENT + have..ALIGNMENT + count])?;
                }
                if let Some(ring) = ring {
                    let whole = count.next_multiple_of(ALIGNMENT);
                    self.write(ring, &buffer[ALIGNMENT..ALIGNMENT + whole])?;
                }
                left -= count;
                have = 0;
            }
            // Data that arrived while an earlier chunk was written did not wait for a wake-up: this side was at work.
            if ring.is_none() || header.length as usize <= room {
                self.report.waking_ns = self.link.arrivals.map_or(0, Arrivals::take);
            }
            self.report.received += u64::from(header.length);
            self.report.sequence = header.sequence;
            match self.mode {
                Mode::Sync => self.send(ReportKind::Acknowledgement)?,
                Mode::Async => self.send_progress()?,
            }
            self.observer.received(header.length.into(), 1, &self.report);
            end = START;
        }
    }

    /// Writes durably. A failed write ends the test, and the cause is reported to the sender.
    fn write(&mut self, ring: &Ring, data: &[u8]) -> Result<()> {
        match ring.write(data) {
            Ok(time) => {
                let nanos = time.as_nanos() as u64;
                self.report.write_ns += nanos;
                self.report.disk_ns += nanos;
                self.report.writes = self.report.writes.wrapping_add(1);
                Ok(())
            }
            Err(error) => {
                self.report.errno = error.raw_os_error().unwrap_or(libc::EIO) as u32;
                self.send(ReportKind::Acknowledgement)?;
                Err(NetError::system("cannot write to the test file", error))
            }
        }
    }
}

fn garbled(error: WireError) -> NetError {
    NetError::Protocol(match error {
        WireError::Field(field) => format!("a message that makes no sense ({field})"),
        _ => "bytes that are no message".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::sender::{Ledger, Orders, drive};
    use standfast_io::LogFile;
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, AtomicU64};

    /// Accepts some writes, then has no space left.
    struct Filling(AtomicU64);

    impl LogFile for Filling {
        fn write_durable(&self, _data: &[u8], _offset: u64) -> std::io::Result<()> {
            match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
                Ok(_) => Ok(()),
                Err(_) => Err(std::io::Error::from_raw_os_error(libc::ENOSPC)),
            }
        }
        fn write(&self, data: &[u8], offset: u64) -> std::io::Result<()> {
            self.write_durable(data, offset)
        }
        fn sync(&self) -> std::io::Result<()> {
            Ok(())
        }
        fn read_at(&self, _out: &mut [u8], _offset: u64) -> std::io::Result<()> {
            Ok(())
        }
        fn len(&self) -> std::io::Result<u64> {
            Ok(crate::file::FILE_BYTES)
        }
    }

    struct Count(AtomicU64);

    impl Ledger for Count {
        fn acknowledged(&self, _length: u32, _latency_ns: u64, _waking_ns: u64, _report: &Report) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn full_disk_ends_the_test_and_the_sender_learns_why() {
        for mode in [Mode::Sync, Mode::Async] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            [&near, &far].into_iter().for_each(|socket| crate::socket::prepare(socket).unwrap());
            static ABORT: AtomicBool = AtomicBool::new(false);
            let timeout = Some(Duration::from_secs(20));
            let orders = Orders {
                pace: Plan { mode, length: 5000, ..Plan::default() }.pace(),
                payload: vec![7; 5000].into(),
                start: Instant::now(),
                deadline: None,
                budget: None,
                tells: false,
                seed: 1,
            };
            let acknowledged = Count(AtomicU64::new(0));
            let (sent, served) = std::thread::scope(|scope| {
                let ring = Arc::new(Ring::over(Arc::new(Filling(AtomicU64::new(3)))));
                // Closed at the end, with unread data.
                let serving = scope.spawn(move || {
                    let link = Link { socket: &far, watch: None, abort: &ABORT, timeout, arrivals: None };
                    serve(&link, (mode, 5000), Some(ring), &())
                });
                let link = Link { socket: &near, watch: None, abort: &ABORT, timeout, arrivals: None };
                (drive(link, &orders, &acknowledged), serving.join().unwrap())
            });
            assert!(matches!(served, Err(NetError::System { .. })), "{served:?}");
            match sent {
                Err(NetError::FarDisk(error)) => assert_eq!(error.raw_os_error(), Some(libc::ENOSPC)),
                other => panic!("{mode:?}: {other:?}"),
            }
            let written = acknowledged.0.load(Ordering::Relaxed);
            assert_eq!(written, if mode == Mode::Sync { 3 } else { 0 });
        }
    }
}
