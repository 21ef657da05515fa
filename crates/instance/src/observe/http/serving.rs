//! Connections of the HTTP server. One thread reads requests and writes answers and never waits for a client, so a slow
//! or silent client costs a slot and a descriptor but no thread; [`Slots`] decides which connections stay. A limited
//! number of worker threads make the answers, and only for requests that are allowed.

use super::request::{Answer, Decision, HEAD_BYTES_MAX, Parsed, Request, parse};
use super::site::Site;
use standfast_types::{SlotLimits, Slots};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Connection slots. A browser uses six connections at a time.
pub const LIMITS: SlotLimits = SlotLimits { unauthenticated: 128, per_address: 32, authenticated: 64 };
/// Time limit for a request to arrive, and for the client to read its answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest number of answers made at the same time.
const WORKERS_MAX: usize = 8;
/// Largest number of observations among them. An observation queries the standbys, which takes a while.
const OBSERVATIONS_MAX: usize = 4;
/// Connections accepted before open connections are polled again.
const ACCEPTED_AT_ONCE: usize = 64;
const OBSERVATION: &str = "/api/observation";

struct Connection {
    id: u64,
    stream: TcpStream,
    deadline: Instant,
    state: State,
}

enum State {
    Reading(Vec<u8>),
    /// The request is allowed and waits for a worker thread.
    Asked(Request),
    Working,
    Writing {
        bytes: Vec<u8>,
        written: usize,
    },
}

/// A finished answer. `bytes` is `None` when its thread failed.
struct Made {
    id: u64,
    observation: bool,
    bytes: Option<Vec<u8>>,
}

/// Reports a worker's answer when the worker ends, by return or by panic.
struct Report {
    made: Option<Made>,
    answers: Sender<Made>,
    wake: Arc<UnixStream>,
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(made) = self.made.take() {
            // Both may fail harmlessly: the server has ended, or the socket is full and the server is awake already.
            let _ = self.answers.send(made);
            let _ = (&*self.wake).write(&[0]);
        }
    }
}

/// Serves until `ending` is set and one more connection arrives.
///
/// # Errors
/// When a socket cannot be set up or polled.
pub fn serve(listener: &TcpListener, site: &Arc<Site>, ending: &AtomicBool) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let (answers, made) = channel();
    let mut server = Server {
        site,
        slots: Slots::new(LIMITS),
        connections: Vec::new(),
        next: 0,
        workers: 0,
        observations: 0,
        answers,
        made,
        wake: Arc::new(wake),
    };
    loop {
        let ready = wait(&server.watched(listener.as_raw_fd(), woken.as_raw_fd()), server.timeout())?;
        if ending.load(SeqCst) {
            return Ok(());
        }
        let _ = (&woken).read(&mut [0; 256]);
        server.take_answers();
        server.proceed(&ready[2..]);
        if ready[0] {
            server.accept(listener);
        }
        server.expire(Instant::now());
        server.make_answers();
    }
}

struct Server<'a> {
    site: &'a Arc<Site>,
    slots: Slots,
    /// Oldest first.
    connections: Vec<Connection>,
    next: u64,
    workers: usize,
    observations: usize,
    answers: Sender<Made>,
    made: Receiver<Made>,
    wake: Arc<UnixStream>,
}

impl Server<'_> {
    fn watched(&self, listener: RawFd, woken: RawFd) -> Vec<libc::pollfd> {
        let watch = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let each = self.connections.iter().map(|connection| match connection.state {
            State::Reading(_) => watch(connection.stream.as_raw_fd(), libc::POLLIN),
            State::Writing { .. } => watch(connection.stream.as_raw_fd(), libc::POLLOUT),
            // Not polled: a client that hangs up meanwhile is detected when its answer is written.
            State::Asked(_) | State::Working => watch(-1, 0),
        });
        [watch(listener, libc::POLLIN), watch(woken, libc::POLLIN)].into_iter().chain(each).collect()
    }

    /// Time until the first connection times out.
    fn timeout(&self) -> Duration {
        let timed = self.connections.iter().filter(|connection| connection.state.is_timed());
        let first = timed.map(|connection| connection.deadline).min();
        first.map_or(TIMEOUT, |deadline| deadline.saturating_duration_since(Instant::now()))
    }

    fn accept(&mut self, listener: &TcpListener) {
        for _ in 0..ACCEPTED_AT_ONCE {
            match listener.accept() {
                Ok((stream, from)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    let id = self.next;
                    self.next += 1;
                    let displaced = self.slots.enter(id, from.ip());
                    self.close(displaced);
                    let (deadline, state) = (Instant::now() + TIMEOUT, State::Reading(Vec::new()));
                    self.connections.push(Connection { id, stream, deadline, state });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    let displaced = self.slots.give_up_oldest();
                    self.close(displaced);
                    return;
                }
                // An error of one connection does not concern the next one.
                Err(_) => {}
            }
        }
    }

    /// Closes a connection that lost its slot.
    fn close(&mut self, displaced: Option<u64>) {
        if let Some(id) = displaced {
            self.connections.retain(|connection| connection.id != id);
        }
    }

    /// Continues the connections that are `ready`, in the order of [`Server::watched`].
    fn proceed(&mut self, ready: &[bool]) {
        let ids = self.connections.iter().map(|connection| connection.id);
        let ready: Vec<u64> = ids.zip(ready).filter(|(_, ready)| **ready).map(|(id, _)| id).collect();
        for id in ready {
            let site = self.site.clone();
            let Some(connection) = self.connections.iter_mut().find(|connection| connection.id == id) else {
                continue;
            };
            // The client is unauthenticated and its bytes untrusted: a panic while they are parsed ends only its
            // connection.
            let step = catch_unwind(AssertUnwindSafe(|| connection.proceed(&site)));
            match step.unwrap_or(Step::Done) {
                Step::Waits => {}
                Step::Allowed => {
                    let displaced = self.slots.authenticated(id);
                    self.close(displaced);
                }
                Step::Done => {
                    self.slots.leave(id);
                    self.close(Some(id));
                }
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        let slots = &mut self.slots;
        self.connections.retain(|connection| {
            let stays = !connection.state.is_timed() || now < connection.deadline;
            if !stays {
                slots.leave(connection.id);
            }
            stays
        });
    }

    /// Starts answers, oldest connection first, as long as worker threads are available.
    fn make_answers(&mut self) {
        for connection in &mut self.connections {
            let State::Asked(request) = &connection.state else { continue };
            let observation = request.path == OBSERVATION;
            if self.workers >= WORKERS_MAX {
                return;
            }
            if observation && self.observations >= OBSERVATIONS_MAX {
                continue;
            }
            let (id, site, request) = (connection.id, self.site.clone(), request.clone());
            let (answers, wake) = (self.answers.clone(), self.wake.clone());
            let work = move || {
                let mut report = Report { made: Some(Made { id, observation, bytes: None }), answers, wake };
                let bytes = site.page(&request.path).bytes(request.method != "HEAD");
                report.made = Some(Made { id, observation, bytes: Some(bytes) });
            };
            connection.state = State::Working;
            self.workers += 1;
            self.observations += usize::from(observation);
            if Builder::new().name("http-get".into()).spawn(work).is_err() {
                let _ = self.answers.send(Made { id, observation, bytes: None });
            }
        }
    }

    fn take_answers(&mut self) {
        while let Ok(Made { id, observation, bytes }) = self.made.try_recv() {
            self.workers -= 1;
            self.observations -= usize::from(observation);
            // The connection may have lost its slot meanwhile.
            let Some(connection) = self.connections.iter_mut().find(|connection| connection.id == id) else {
                continue;
            };
            let failed = || Answer::text("500 Internal Server Error", "see the alert log").bytes(true);
            connection.write(bytes.unwrap_or_else(failed));
        }
    }
}

/// Result of one step of a connection.
enum Step {
    Waits,
    /// It made a request that is allowed.
    Allowed,
    Done,
}

impl State {
    fn is_timed(&self) -> bool {
        matches!(self, State::Reading(_) | State::Writing { .. })
    }
}

impl Connection {
    fn proceed(&mut self, site: &Site) -> Step {
        match &mut self.state {
            State::Reading(head) => match read_head(&mut self.stream, head) {
                Ok(Parsed::Partial) => Step::Waits,
                Ok(Parsed::Malformed) => {
                    self.write(Answer::text("400 Bad Request", "this is no HTTP request").bytes(true));
                    Step::Waits
                }
                Ok(Parsed::Whole(request)) => {
                    let (decision, answer) = site.decide(&request);
                    match answer {
                        Some(answer) => self.write(answer.bytes(request.method != "HEAD")),
                        None => self.state = State::Asked(request),
                    }
                    if matches!(decision, Decision::Allow | Decision::Remember) {
                        Step::Allowed
                    } else {
                        Step::Waits
                    }
                }
                Err(_) => Step::Done,
            },
            State::Writing { bytes, written } => loop {
                match self.stream.write(&bytes[*written..]) {
                    Ok(0) => return Step::Done,
                    Ok(more) => *written += more,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Step::Waits,
                    Err(_) => return Step::Done,
                }
                if *written == bytes.len() {
                    return Step::Done;
                }
            },
            State::Asked(_) | State::Working => Step::Waits,
        }
    }

    fn write(&mut self, bytes: Vec<u8>) {
        self.deadline = Instant::now() + TIMEOUT;
        self.state = State::Writing { bytes, written: 0 };
    }
}

/// Reads the available bytes of a request head and parses them.
fn read_head(stream: &mut TcpStream, head: &mut Vec<u8>) -> std::io::Result<Parsed> {
    let mut part = [0; 1024];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => head.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Parsed::Partial),
            Err(error) => return Err(error),
        }
        match parse(head) {
            Parsed::Partial if head.len() >= HEAD_BYTES_MAX => return Ok(Parsed::Malformed),
            Parsed::Partial => {}
            other => return Ok(other),
        }
    }
}

/// Waits until a descriptor is ready or `timeout` has passed. Returns which are ready.
fn wait(watched: &[libc::pollfd], timeout: Duration) -> std::io::Result<Vec<bool>> {
    let mut polled = watched.to_vec();
    // Rounded up; otherwise the last fraction of a millisecond would be a busy loop.
    let ms = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX).saturating_add(1);
    // SAFETY: a valid array, passed with its length; `poll` only reports a descriptor that is closed.
    let done = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, ms) };
    if done < 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
        return Ok(vec![false; watched.len()]);
    }
    Ok(polled.iter().map(|polled| polled.revents != 0).collect())
}
