//! One connection of a test, on the server.

use crate::file::{MAX_WRITE, Ring};
use crate::framer::Framer;
use crate::link::{Link, closed};
use crate::plan::Mode;
use crate::socket::{receive_buffer, receive_now};
use crate::wire::{HEADER_BYTES, Header, Hello, Report, ReportKind, WireError};
use crate::{NetError, Result};
use standfast_io::{ALIGNMENT, AlignedBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// An ASYNC client hears so often where its test stands.
const PROGRESS: Duration = Duration::from_millis(50);
/// Bytes taken at once when nobody keeps them: few enough to stay in the processor's cache.
const PIECE: usize = 256 << 10;

/// Positions and times of this connection.
struct Session<'a> {
    link: &'a Link<'a>,
    hello: &'a Hello,
    report: Report,
    reported: Instant,
}

/// Takes the messages of a test until it is finished.
pub fn serve(link: &Link<'_>, hello: &Hello, ring: Option<Arc<Ring>>) -> Result<()> {
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
    };
    let mut session = Session { link, hello, report, reported: Instant::now() };
    match (hello.mode, ring) {
        (Mode::Async, None) => session.count()?,
        (_, ring) => session.keep(ring.as_deref())?,
    }
    session.send(ReportKind::Summary)
}

impl Session<'_> {
    /// A client that never pauses does not keep the server from ending.
    fn go_on(&self) -> Result<()> {
        match self.link.abort.load(Ordering::Relaxed) {
            true => Err(NetError::Interrupted { doing: "serving a test" }),
            false => Ok(()),
        }
    }

    fn send(&mut self, kind: ReportKind) -> Result<()> {
        self.report.kind = kind;
        if kind != ReportKind::Acknowledgement {
            self.report.receive_buffer = receive_buffer(self.link.socket);
        }
        self.link.send(&self.report.encode(), &[], "reporting to the client")
    }

    fn send_progress(&mut self) -> Result<()> {
        let now = Instant::now();
        if now - self.reported < PROGRESS {
            return Ok(());
        }
        self.reported = now;
        self.send(ReportKind::Progress)
    }

    /// ASYNC without a disk: payloads are counted and dropped.
    fn count(&mut self) -> Result<()> {
        let mut buffer = vec![0; PIECE];
        let mut framer = Framer::new(self.hello.length);
        while !framer.finished {
            self.go_on()?;
            let bytes = self.receive_timed(&mut buffer)?;
            framer.feed(&buffer[..bytes]).map_err(garbled)?;
            self.report.received = framer.payload;
            self.report.sequence = framer.messages.saturating_sub(1);
            self.send_progress()?;
        }
        Ok(())
    }

    /// As [`Link::receive`], and adds the time in which nothing was there to the report. Only that time is waiting:
    /// copying what is there is work.
    fn receive_timed(&mut self, out: &mut [u8]) -> Result<usize> {
        const DOING: &str = "receiving a message";
        match receive_now(self.link.socket, out) {
            Ok(Some(0)) => return Err(NetError::Cut { doing: DOING, source: closed() }),
            Ok(Some(bytes)) => return Ok(bytes),
            Ok(None) => {}
            Err(source) => return Err(NetError::Cut { doing: DOING, source }),
        }
        let began = Instant::now();
        let bytes = self.link.receive(out, DOING)?;
        self.report.wait_ns += began.elapsed().as_nanos() as u64;
        Ok(bytes)
    }

    fn receive(&mut self, out: &mut [u8]) -> Result<usize> {
        match self.hello.mode {
            Mode::Async => self.receive_timed(out),
            Mode::Sync => self.link.receive(out, "receiving a message"),
        }
    }

    /// SYNC, or with a disk: payloads lie aligned in memory, in pieces of one durable write.
    fn keep(&mut self, ring: Option<&Ring>) -> Result<()> {
        // The header is received right in front of an aligned block, so that one call can take both.
        const START: usize = ALIGNMENT - HEADER_BYTES;
        let room = (self.hello.length as usize).clamp(1, MAX_WRITE);
        let mut buffer = AlignedBuf::new(ALIGNMENT + room);
        loop {
            self.go_on()?;
            // SYNC: nothing follows a message before it is acknowledged. ASYNC: the next one is left alone.
            let most = match self.hello.mode {
                Mode::Sync => ALIGNMENT + room,
                Mode::Async => ALIGNMENT,
            };
            let mut end = START;
            while end < ALIGNMENT {
                end += self.receive(&mut buffer[end..most])?;
            }
            let mut header = [0; HEADER_BYTES];
            header.copy_from_slice(&buffer[START..ALIGNMENT]);
            let header = Header::decode(&header, self.hello.length).map_err(garbled)?;
            let mut have = end - ALIGNMENT;
            if have > header.length as usize {
                return Err(garbled(WireError::Field("bytes after a message")));
            }
            if header.finish {
                return Ok(());
            }
            self.report.write_ns = 0;
            let mut left = header.length as usize;
            while left > 0 {
                let piece = left.min(room);
                while have < piece {
                    have += self.receive(&mut buffer[ALIGNMENT + have..ALIGNMENT + piece])?;
                }
                if let Some(ring) = ring {
                    let whole = piece.next_multiple_of(ALIGNMENT);
                    self.write(ring, &buffer[ALIGNMENT..ALIGNMENT + whole])?;
                }
                left -= piece;
                have = 0;
            }
            self.report.received += u64::from(header.length);
            self.report.sequence = header.sequence;
            match self.hello.mode {
                Mode::Sync => self.send(ReportKind::Acknowledgement)?,
                Mode::Async => self.send_progress()?,
            }
        }
    }

    /// A failed write ends the test: the client hears why.
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
