//! A whole test on the client: opens the connections, runs them, and polls them at every interval.

use crate::collect::Collector;
use crate::file::{Ring, TestFile};
use crate::link::Link;
use crate::outcome::{Event, Outcome};
use crate::plan::{Direction, Plan};
use crate::random::Random;
use crate::sender::{Ledger, Orders, drive, payload};
use crate::session::{Observer, serve};
use crate::socket::{self, SLICE};
use crate::stats::{Far, Sender};
use crate::stream::{Place, Stream, Target, open};
use crate::watch::Watches;
use crate::wire::{Answered, Report};
use crate::{NetError, Result};
use standfast_page::units::Extent;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// State that the connections of a test share.
struct Shared<'a> {
    plan: &'a Plan,
    payload: Arc<[u8]>,
    start: Instant,
    deadline: Option<Instant>,
    /// Payload that this side may still send, bytes.
    budget: Option<AtomicU64>,
    /// File for the durable writes of this side.
    ring: Option<Arc<Ring>>,
    abort: AtomicBool,
    watches: Watches,
}

/// Runs a test. Returns an error when the test did not begin; later errors are in [`Outcome::error`].
pub fn run(
    target: &Target,
    plan: &Plan,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome> {
    let test = Random::fresh_seed();
    // Dropped, and thus removed, when the test is over.
    let file =
        (plan.write && plan.directions.has_reverse()).then(|| TestFile::new(&plan.file)).transpose()?;
    let ring = file.as_ref().map(TestFile::ring).transpose()?;
    let payload = payload(plan);
    let mut flows = Vec::new();
    for direction in plan.directions.all() {
        let place = |stream| Place { direction: *direction, stream, test };
        let streams = (0..plan.streams)
            .map(|stream| open(target, plan, place(stream), stop))
            .collect::<Result<Vec<_>>>()?;
        flows.push((*direction, streams));
    }
    watch(Event::Ready);

    let start = Instant::now();
    let shared = Shared {
        plan,
        payload,
        start,
        deadline: match plan.duration {
            Extent::Time(time) => start.checked_add(plan.omit + time),
            _ => None,
        },
        budget: match plan.duration {
            Extent::Bytes(bytes) => Some(AtomicU64::new(bytes)),
            _ => None,
        },
        ring,
        abort: AtomicBool::new(false),
        watches: Watches::default(),
    };
    let mut collectors: Vec<Collector<'_>> =
        flows.iter().map(|(direction, streams)| Collector::new(plan, *direction, streams, start)).collect();
    let mut failure = None;
    std::thread::scope(|scope| {
        let (done, finished) = mpsc::channel::<(usize, Instant, Result<()>)>();
        for (flow, (_, streams)) in flows.iter().enumerate() {
            for (number, stream) in streams.iter().enumerate() {
                let (done, shared) = (done.clone(), &shared);
                let seed = test.wrapping_add(number as u64);
                scope.spawn(move || {
                    let result = carry(stream, shared, seed);
                    let _ = done.send((flow, Instant::now(), result));
                });
            }
        }
        drop(done);
        loop {
            let now = Instant::now();
            if stop.load(Ordering::Relaxed) {
                shared.abort.store(true, Ordering::Relaxed);
            }
            shared.watches.look(now, shared.abort.load(Ordering::Relaxed));
            let mut looked = false;
            let running = collectors.iter_mut().filter(|collector| !collector.is_over());
            for collector in running.filter(|collector| now >= collector.next_look()) {
                let interval = collector.look(now);
                collector.tell(interval, watch);
                looked = true;
            }
            if looked {
                continue;
            }
            let running = collectors.iter().filter(|collector| !collector.is_over());
            let next = running.map(Collector::next_look).min();
            let pause = next.map_or(SLICE, |next| next.saturating_duration_since(now).min(SLICE));
            match finished.recv_timeout(pause) {
                Ok((flow, at, result)) => {
                    if let Err(error) = result {
                        // A connection that fails ends the test; the other connections are only aborted.
                        shared.abort.store(true, Ordering::Relaxed);
                        failure.get_or_insert(error);
                    }
                    let collector = &mut collectors[flow];
                    collector.ended(at);
                    if collector.is_over() {
                        let interval = collector.last_look();
                        collector.tell(interval, watch);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    let interrupted = stop.load(Ordering::Relaxed);
    if interrupted {
        for stream in flows.iter().flat_map(|(_, streams)| streams) {
            // Errors are ignored: unsent data is then still sent, which only takes longer.
            let _ = socket::discard_at_close(&stream.socket);
        }
    }
    let failure = failure.filter(|error| !(interrupted && matches!(error, NetError::Interrupted { .. })));
    let complete = failure.is_none() && !interrupted;
    let mut outcomes = collectors.into_iter().map(|collector| collector.outcome(complete));
    // Every plan has at least one direction.
    let first = outcomes.next().ok_or_else(|| NetError::Usage("a test without a direction".into()))?;
    Ok(Outcome { error: failure, interrupted, reverse: outcomes.next().map(Box::new), ..first })
}

/// Runs one connection, from its first message to its last report.
fn carry(stream: &Stream, shared: &Shared<'_>, seed: u64) -> Result<()> {
    let plan = shared.plan;
    let link = Link {
        socket: &stream.socket,
        watch: None,
        abort: &shared.abort,
        timeout: plan.timeout,
        arrivals: None,
    };
    match stream.direction {
        Direction::ToServer => {
            let orders = Orders {
                pace: plan.pace(),
                payload: Arc::clone(&shared.payload),
                start: shared.start,
                deadline: shared.deadline,
                budget: shared.budget.as_ref(),
                tells: false,
                seed,
            };
            let watched = shared.watches.over(Arc::clone(&stream.socket));
            let watched =
                watched.map_err(|source| NetError::system("cannot set up the connection", source))?;
            drive(Link { watch: Some(&watched.watch), ..link }, &orders, stream)
        }
        Direction::FromServer => {
            // A planned pause is not a standstill.
            let timeout = plan.timeout.map(|timeout| timeout + plan.pace().longest_pause());
            let books = Received { stream, deadline: shared.deadline };
            serve(&Link { timeout, ..link }, (plan.mode, plan.length), shared.ring.clone(), &books)
        }
    }
}

impl Ledger for Stream {
    fn sent(&self, length: u32) {
        let mut window = self.window();
        window.bytes += u64::from(length);
        window.messages += 1;
    }

    fn acknowledged(&self, length: u32, latency_ns: u64, waking_ns: u64, report: &Report) {
        let mut window = self.window();
        window.latency.record(latency_ns, report.write_ns, waking_ns.saturating_add(report.waking_ns));
        window.bytes += u64::from(length);
        window.messages += 1;
        window.far = far(report);
    }

    fn heard(&self, report: &Report) {
        self.window().far = far(report);
    }
}

/// Records the counts of a connection on which the server sends.
struct Received<'a> {
    stream: &'a Stream,
    deadline: Option<Instant>,
}

impl Observer for Received<'_> {
    fn has_enough(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn received(&self, bytes: u64, messages: u64, report: &Report) {
        let mut window = self.stream.window();
        window.bytes += bytes;
        window.messages += messages;
        window.far = far(report);
    }

    fn answered(&self, answered: &Answered, report: &Report) {
        let waking_ns = answered.waking_ns.saturating_add(report.waking_ns);
        self.stream.window().latency.record(answered.latency_ns, report.write_ns, waking_ns);
    }

    fn sender(&self, sender: &Sender) {
        self.stream.window().sender = *sender;
    }
}

fn far(report: &Report) -> Far {
    Far {
        received: report.received,
        disk_ns: report.disk_ns,
        wait_ns: report.wait_ns,
        receive_buffer: report.receive_buffer,
    }
}

/// Returns how long a plan runs; None when an amount of data or nothing bounds it.
pub fn planned_time(plan: &Plan) -> Option<Duration> {
    match plan.duration {
        Extent::Time(time) => Some(plan.omit + time),
        _ => None,
    }
}
