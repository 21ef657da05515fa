//! The control socket: one JSON document in a line, and one back.

use crate::clock::wait_readable;
use crate::emulator::{Emulator, LinkName, Stats};
use crate::error::Doing;
use crate::event::Event;
use crate::settings::Change;
use crate::{Result, WanError, place};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Longest time for a request to come, and for an answer to be taken.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for an emulator to end the processes in its nodes and to clean up.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest request.
const MOST_BYTES: u64 = 64 << 10;

/// What can be asked of a running emulator. No directions mean all.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Change settings.
    Set {
        /// Directions.
        links: Vec<LinkName>,
        /// The settings.
        change: Change,
    },
    /// Lose everything.
    Cut {
        /// Directions.
        links: Vec<LinkName>,
    },
    /// Stop time.
    Stall {
        /// Directions.
        links: Vec<LinkName>,
    },
    /// End cuts and stalls.
    Heal {
        /// Directions.
        links: Vec<LinkName>,
    },
    /// Tell the statistics.
    Stats {
        /// The lateness begins anew.
        reset: bool,
    },
    /// End everything. The answer is the end of the connection, when all is removed.
    Stop,
}

/// What comes back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done,
    Stats(Box<Stats>),
    Refused(String),
}

/// The emulator's side.
pub struct Server {
    listener: UnixListener,
    /// Raised by somebody who wants the emulator to stop.
    pub stop_asked: Event,
    over: AtomicBool,
    wake: Event,
    /// Connections of those who wait for the end.
    waiting: Mutex<Vec<UnixStream>>,
}

impl Server {
    /// Listens at a path.
    pub fn bind(path: &std::path::Path) -> io::Result<Server> {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Server {
            listener,
            stop_asked: Event::new()?,
            over: AtomicBool::new(false),
            wake: Event::new()?,
            waiting: Mutex::default(),
        })
    }

    /// Serves until [`Server::end`].
    pub fn run(&self, emulator: &Emulator) {
        while !self.over.load(Ordering::Acquire) {
            // It fails only for want of kernel memory; looking again is then all that can be done.
            let _ = wait_readable(&[self.listener.as_fd(), self.wake.as_fd()], None);
            while let Ok((stream, _)) = self.listener.accept() {
                // Who breaks off has no further interest in the answer.
                let _ = self.serve(emulator, stream);
            }
        }
    }

    /// Ends [`Server::run`].
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.wake.raise();
    }

    fn serve(&self, emulator: &Emulator, mut stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut line = String::new();
        BufReader::new((&stream).take(MOST_BYTES)).read_line(&mut line)?;
        let done = match serde_json::from_str(&line) {
            Ok(Request::Stop) => {
                self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
                self.stop_asked.raise();
                return Ok(());
            }
            Ok(Request::Stats { reset }) => Ok(Answer::Stats(Box::new(emulator.stats(reset)))),
            Ok(Request::Set { links, change }) => emulator.set(&links, &change).map(|()| Answer::Done),
            Ok(Request::Cut { links }) => emulator.cut(&links).map(|()| Answer::Done),
            Ok(Request::Stall { links }) => emulator.stall(&links).map(|()| Answer::Done),
            Ok(Request::Heal { links }) => emulator.heal(&links).map(|()| Answer::Done),
            Err(error) => Ok(Answer::Refused(format!("no request of this version: {error}"))),
        };
        let answer = done.unwrap_or_else(|error| Answer::Refused(error.to_string()));
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        stream.write_all(&text)
    }
}

/// Asks a running emulator; statistics when these were asked for.
pub fn ask(emulator: &str, request: &Request) -> Result<Option<Stats>> {
    let (_, socket) = place::find(emulator)?;
    let doing = || format!("ask the emulator {emulator}");
    let mut stream = UnixStream::connect(&socket).doing(doing)?;
    let stopping = matches!(request, Request::Stop);
    let timeout = if stopping { STOP_TIMEOUT } else { TIMEOUT };
    stream.set_read_timeout(Some(timeout)).doing(doing)?;
    let mut text = serde_json::to_vec(request).map_err(io::Error::from).doing(doing)?;
    text.push(b'\n');
    stream.write_all(&text).doing(doing)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).doing(doing)?;
    if stopping && answer.is_empty() {
        return Ok(None);
    }
    match serde_json::from_str(&answer).map_err(io::Error::from).doing(doing)? {
        Answer::Done => Ok(None),
        Answer::Stats(stats) => Ok(Some(*stats)),
        Answer::Refused(reason) => Err(WanError::Answer(reason)),
    }
}
