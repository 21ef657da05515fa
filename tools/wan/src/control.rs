//! The control socket: one line of JSON as the request, one as the answer.

use crate::clock::wait_readable;
use crate::emulator::{Emulator, LinkName, Stats};
use crate::error::Doing;
use crate::event::Event;
use crate::settings::Change;
use crate::{Result, WanError, place};
use serde::{Deserialize, Serialize};
use standfast_types::Hint;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Timeout for receiving a request and for sending or receiving an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for an emulator to end the processes in its nodes and to clean up.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of the bytes of a request.
const MOST_BYTES: u64 = 64 << 10;

/// A request to a running emulator. An empty list of directions means all.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Set {
        links: Vec<LinkName>,
        change: Change,
    },
    /// Drops everything, in flight as well.
    Cut {
        links: Vec<LinkName>,
    },
    /// Stops the clock of the links.
    Stall {
        links: Vec<LinkName>,
    },
    Heal {
        links: Vec<LinkName>,
    },
    Stats {
        reset: bool,
    },
    /// Ends the emulator. The answer is the end of the connection, after everything is removed.
    Stop,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done,
    Stats(Box<Stats>),
    Refused(String),
}

/// The emulator's side of the control socket.
pub struct Server {
    listener: UnixListener,
    /// Raised by a client that asks the emulator to stop.
    pub stop_asked: Event,
    over: AtomicBool,
    wake: Event,
    /// Connections of clients that wait for the end.
    waiting: Mutex<Vec<UnixStream>>,
}

impl Server {
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

    pub fn run(&self, emulator: &Emulator) {
        while !self.over.load(Ordering::Acquire) {
            // Fails only without kernel memory; the loop can only poll again.
            let _ = wait_readable(&[self.listener.as_fd(), self.wake.as_fd()], None);
            while let Ok((stream, _)) = self.listener.accept() {
                // An error means that the client has gone and does not need the answer.
                let _ = self.serve(emulator, stream);
            }
        }
    }

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
        let answer = done.unwrap_or_else(|error| Answer::Refused(error.for_terminal()));
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        stream.write_all(&text)
    }
}

/// Sends a request to a running emulator; returns statistics if these were requested.
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
