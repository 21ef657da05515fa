//! Lines on their way to a file or a terminal. A separate thread writes them, so that a reader that is stuck or gone,
//! or a full volume, does not hold up a thread that reports something.

use crate::state::modes::ALERT;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Memory limit of waiting lines; lines beyond it are dropped and counted.
const BYTES_MAX: usize = 1 << 20;

/// Lines that wait for the writer thread.
#[derive(Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines dropped since the writer last took the queue.
    dropped: u64,
    /// The writer has taken lines and not yet written them all.
    busy: bool,
    closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    Queued,
    /// The line was dropped, the first since the writer last took the queue.
    FirstDropped,
    /// The line was dropped, and an earlier one as well.
    Dropped,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    /// Oldest first.
    pub lines: VecDeque<String>,
    /// Lines that came after these and were dropped.
    pub dropped: u64,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Queues a line for the writer. Never waits.
    pub fn put(&self, line: String) -> Put {
        let mut waiting = self.lock();
        // After a dropped line all further lines are dropped too; otherwise the count would stand at the wrong place.
        if waiting.dropped > 0 || waiting.bytes + line.len() > BYTES_MAX {
            waiting.dropped += 1;
            return if waiting.dropped == 1 { Put::FirstDropped } else { Put::Dropped };
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line);
        drop(waiting);
        self.changed.notify_all();
        Put::Queued
    }

    /// Waits for lines and takes all of them; `None` once the queue is closed and empty.
    pub fn take(&self) -> Option<Batch> {
        let mut waiting = self.lock();
        waiting.busy = false;
        self.changed.notify_all();
        while waiting.lines.is_empty() && waiting.dropped == 0 {
            if waiting.closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        waiting.busy = true;
        waiting.bytes = 0;
        Some(Batch {
            lines: std::mem::take(&mut waiting.lines),
            dropped: std::mem::take(&mut waiting.dropped),
        })
    }

    /// Ends the queue: no line follows.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits until everything is written, at most for `limit`; returns whether it is.
    pub fn flush(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut waiting = self.lock();
        while waiting.busy || !waiting.lines.is_empty() || waiting.dropped > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            (waiting, _) =
                self.changed.wait_timeout(waiting, left).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        true
    }
}

/// Writes lines until the queue is closed. `lines_lost` formats the number of lost lines as a line. `on_error` gets an
/// error once, and the next one only after a successful write.
pub fn run(
    queue: &Queue,
    mut write: impl FnMut(&str) -> Result<()>,
    lines_lost: impl Fn(u64) -> String,
    on_error: impl Fn(&Error),
) {
    let mut lost = 0;
    while let Some(Batch { lines, dropped }) = queue.take() {
        for line in lines {
            let written = match lost {
                0 => Ok(()),
                lost => write(&lines_lost(lost)),
            };
            let written = written.and_then(|()| {
                lost = 0;
                write(&line)
            });
            if let Err(error) = written {
                if lost == 0 {
                    on_error(&error);
                }
                lost += 1;
            }
        }
        lost += dropped;
        if dropped > 0 && write(&lines_lost(lost)).is_ok() {
            lost = 0;
        }
    }
}

/// Appends to the file at `path`. Opens it for every line: after the file is moved away the next line creates a new
/// one.
pub fn append_to(path: PathBuf) -> impl FnMut(&str) -> Result<()> {
    move |line| {
        let mut file = OpenOptions::new().create(true).append(true).mode(ALERT).open(&path)?;
        file.write_all(format!("{line}\n").as_bytes())
    }
}

/// Writes to `file`, a duplicate of the descriptor of stderr: [`std::io::Stderr`] would hold its lock for as long as
/// its reader does not read.
pub fn write_to(mut file: File) -> impl FnMut(&str) -> Result<()> {
    move |line| {
        let text = format!("{line}\n");
        let mut left = text.as_bytes();
        while !left.is_empty() {
            match file.write(left) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Another process that shares the open file has made it non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => await_room(&file),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn await_room(file: &File) {
    let mut poll = libc::pollfd { fd: file.as_fd().as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid pollfd, whose descriptor is open for the call.
    unsafe { libc::poll(&mut poll, 1, -1) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::os::unix::net::UnixStream;

    fn lines_lost(lost: u64) -> String {
        format!("{lost} lost")
    }

    #[test]
    fn alert_lines_beyond_the_queue_limit_are_dropped_and_counted() {
        let queue = Queue::default();
        let line = "x".repeat(BYTES_MAX / 4);
        let put: Vec<Put> = (0..6).map(|_| queue.put(line.clone())).collect();
        assert_eq!(put[..4], [Put::Queued; 4]);
        assert_eq!(put[4..], [Put::FirstDropped, Put::Dropped]);
        // A short line would fit, but would stand before the count.
        assert_eq!(queue.put("short".into()), Put::Dropped);
        assert!(!queue.flush(Duration::ZERO));
        queue.close();
        let written = RefCell::new(Vec::new());
        let write = |line: &str| {
            written.borrow_mut().push(line.to_owned());
            Ok(())
        };
        run(&queue, write, lines_lost, |_| panic!("no error"));
        let written = written.into_inner();
        assert_eq!((written.len(), written[4].as_str()), (5, "3 lost"));
        assert!(queue.flush(Duration::ZERO));
    }

    #[test]
    fn failed_writes_are_counted_once_a_line_can_be_written() {
        let queue = Queue::default();
        for line in ["one", "two", "three", "four"] {
            queue.put(line.into());
        }
        queue.close();
        let (calls, errors, written) = (Cell::new(0), Cell::new(0), RefCell::new(Vec::new()));
        let write = |line: &str| {
            calls.set(calls.get() + 1);
            if calls.get() <= 2 {
                return Err(Error::from_raw_os_error(libc::ENOSPC));
            }
            written.borrow_mut().push(line.to_owned());
            Ok(())
        };
        run(&queue, write, lines_lost, |_| errors.set(errors.get() + 1));
        assert_eq!(written.into_inner(), ["2 lost", "three", "four"]);
        assert_eq!(errors.get(), 1);
    }

    #[test]
    fn write_fails_when_a_stalled_reader_closes_the_stream() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(ours));
        let writer = std::thread::spawn(move || write_to(file)(&"x".repeat(8 << 20)));
        let mut first = [0; 1];
        std::io::Read::read_exact(&mut &theirs, &mut first).unwrap();
        drop(theirs);
        // EPIPE: the Rust runtime ignores SIGPIPE in tests.
        assert!(writer.join().unwrap().is_err());
    }
}
