//! A whole test from the client: opens the connections, drives them, and looks at them at every interval.

use crate::limit::{Shares, limit};
use crate::plan::{Mode, Plan};
use crate::random::Random;
use crate::socket::{self, SLICE, TcpInfo};
use crate::stats::{Far, Interval, Latencies, Latency, Tcp, Window};
use crate::stream::{Shared, Stream, Target, drive, open, payload};
use crate::units::Extent;
use crate::wire::HEADER_BYTES;
use crate::{NetError, Result};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What a caller hears while a test runs.
pub enum Event<'a> {
    /// All connections are open.
    Ready,
    /// An interval is over.
    Row(&'a Interval),
}

/// Socket buffers, bytes as the systems count them, means of the connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buffers {
    /// Asked for at this side; 0: left to the system.
    pub requested: u32,
    /// Asked of the server; 0: left to it.
    pub requested_far: u32,
    /// Send buffer of this side at the end.
    pub send: u64,
    /// Receive buffer of the server at the end.
    pub receive: u64,
    /// Settings that cut the requests down.
    pub clamped_by: Vec<&'static str>,
}

/// A test that has ended, in one way or another.
pub struct Outcome {
    /// All intervals.
    pub intervals: Vec<Interval>,
    /// All of them as one.
    pub total: Interval,
    /// Latencies behind `total`.
    pub latencies: Latencies,
    /// Payload per connection, bytes.
    pub streams: Vec<u64>,
    /// Socket buffers.
    pub buffers: Buffers,
    /// Congestion control of this side.
    pub congestion: Option<String>,
    /// Why it ended early; what was measured until then is here.
    pub trouble: Option<NetError>,
    /// It was interrupted.
    pub interrupted: bool,
}

impl Outcome {
    /// Latencies of the whole test.
    pub fn latency(&self) -> Option<Latency> {
        self.total.latency
    }
}

/// Carries out a test. An error is returned when it did not begin; once it has, see [`Outcome::trouble`].
pub fn run(
    target: &Target,
    plan: &Plan,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome> {
    let test = Random::fresh_seed();
    let payload = payload(plan);
    let streams =
        (0..plan.streams).map(|number| open(target, plan, number, test, stop)).collect::<Result<Vec<_>>>()?;
    watch(Event::Ready);

    let start = Instant::now();
    let abort = AtomicBool::new(false);
    let shared = Shared {
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
        abort: &abort,
    };
    let mut collector = Collector::new(plan, &streams, start);
    let (done, finished) = mpsc::channel::<(Instant, Result<()>)>();
    let mut trouble = None;
    std::thread::scope(|scope| {
        for (number, stream) in streams.iter().enumerate() {
            let (done, shared) = (done.clone(), &shared);
            scope.spawn(move || {
                let result = drive(stream, plan, shared, test.wrapping_add(number as u64));
                let _ = done.send((Instant::now(), result));
            });
        }
        drop(done);
        loop {
            let now = Instant::now();
            if stop.load(Ordering::Relaxed) {
                abort.store(true, Ordering::Relaxed);
            }
            if now >= collector.next_look() {
                if let Some(interval) = collector.look(now) {
                    watch(Event::Row(&interval));
                    collector.keep(interval);
                }
                continue;
            }
            let pause = collector.next_look().saturating_duration_since(now).min(SLICE);
            match finished.recv_timeout(pause) {
                Ok((at, result)) => {
                    collector.end = collector.end.max(at);
                    if let Err(error) = result {
                        // One connection that fails ends the test; the others only hear that it is over.
                        abort.store(true, Ordering::Relaxed);
                        trouble.get_or_insert(error);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    let interrupted = stop.load(Ordering::Relaxed);
    if interrupted {
        for stream in &streams {
            // Where it fails the rest is sent, which only takes longer.
            let _ = socket::discard_at_close(&stream.socket);
        }
    }
    let trouble = trouble.filter(|error| !(interrupted && matches!(error, NetError::Interrupted { .. })));
    if let Some(interval) = collector.last_look() {
        watch(Event::Row(&interval));
        collector.keep(interval);
    }
    Ok(collector.outcome(trouble, interrupted))
}

/// Looks at the connections and makes intervals of what it finds.
struct Collector<'a> {
    plan: &'a Plan,
    streams: &'a [Stream],
    /// When counting began: after the omitted time.
    begin: Instant,
    omitting: bool,
    looked: Instant,
    /// Last sign of life of a connection.
    end: Instant,
    seen: Vec<Seen>,
    /// Counters when counting began.
    base: Vec<Seen>,
    intervals: Vec<Interval>,
    latencies: Latencies,
    counted: Vec<Window>,
}

/// Counters of a connection at a look.
#[derive(Clone, Copy, Default)]
struct Seen {
    tcp: TcpInfo,
    far: Far,
}

impl<'a> Collector<'a> {
    fn new(plan: &'a Plan, streams: &'a [Stream], start: Instant) -> Collector<'a> {
        let seen: Vec<Seen> = streams
            .iter()
            .map(|stream| Seen {
                tcp: socket::tcp_info(&stream.socket).unwrap_or_default(),
                far: Far::default(),
            })
            .collect();
        Collector {
            plan,
            streams,
            begin: start + plan.omit,
            omitting: !plan.omit.is_zero(),
            looked: start,
            end: start,
            base: seen.clone(),
            seen,
            intervals: Vec::new(),
            latencies: Latencies::default(),
            counted: vec![Window::default(); streams.len()],
        }
    }

    fn next_look(&self) -> Instant {
        let rows = self.intervals.len() as u32 + 1;
        if self.omitting { self.begin } else { self.begin + self.plan.interval.saturating_mul(rows) }
    }

    /// The interval that ends now; None when it was the omitted time.
    fn look(&mut self, now: Instant) -> Option<Interval> {
        let before = self.seen.clone();
        let mut latencies = Latencies::default();
        let mut counted = Vec::with_capacity(self.streams.len());
        for (stream, seen) in self.streams.iter().zip(&mut self.seen) {
            let mut window = stream.window.lock().unwrap_or_else(PoisonError::into_inner);
            let far = window.far;
            let taken = std::mem::replace(&mut *window, Window { far, ..Window::default() });
            drop(window);
            *seen = Seen { tcp: socket::tcp_info(&stream.socket).unwrap_or(seen.tcp), far };
            latencies.add(&taken.latency);
            counted.push(taken);
        }
        if std::mem::take(&mut self.omitting) {
            self.base = self.seen.clone();
            self.looked = now;
            // The interval is counted from here, whenever the thread really woke.
            self.begin = now;
            return None;
        }
        let from = std::mem::replace(&mut self.looked, now);
        let mut interval = self.interval(&before, &counted, &latencies, from, now);
        interval.start = from.saturating_duration_since(self.begin).as_secs_f64();
        self.latencies.add(&latencies);
        for (sum, window) in self.counted.iter_mut().zip(&counted) {
            sum.bytes += window.bytes;
            sum.messages += window.messages;
        }
        Some(interval)
    }

    /// What is left at the end, unless it is hardly anything.
    fn last_look(&mut self) -> Option<Interval> {
        if self.omitting {
            // Ended before anything was to be counted.
            self.look(self.end);
        }
        let end = self.end.max(self.looked);
        let left = end.saturating_duration_since(self.looked);
        let (from, interval) = (self.looked, self.look(end)?);
        let worth_a_row = left >= self.plan.interval.mul_f64(0.05) || self.intervals.is_empty();
        if !worth_a_row {
            self.looked = from;
        }
        worth_a_row.then_some(interval)
    }

    fn keep(&mut self, interval: Interval) {
        self.intervals.push(interval);
    }

    fn interval(
        &self,
        before: &[Seen],
        counted: &[Window],
        latencies: &Latencies,
        from: Instant,
        now: Instant,
    ) -> Interval {
        let seconds = now.saturating_duration_since(from).as_secs_f64();
        let mut shares = Shares {
            elapsed: seconds * 1e9 * self.streams.len() as f64,
            disk: latencies.disk_ns(),
            synchronous: self.plan.mode == Mode::Sync,
            paced: self.plan.rate.is_some() || !self.plan.delay.is_zero(),
            ..Shares::default()
        };
        let mut tcp = Tcp { sack: true, ..Tcp::default() };
        let mut acknowledged = 0;
        for (before, after) in before.iter().zip(&self.seen) {
            let micros =
                |of: fn(&TcpInfo) -> u64| of(&after.tcp).saturating_sub(of(&before.tcp)) as f64 * 1e3;
            shares.busy += micros(|tcp| tcp.busy_us);
            shares.receiver_window += micros(|tcp| tcp.receiver_window_us);
            shares.send_buffer += micros(|tcp| tcp.send_buffer_us);
            shares.far_wait += after.far.wait_ns.saturating_sub(before.far.wait_ns) as f64;
            if self.plan.mode == Mode::Async {
                shares.disk += after.far.disk_ns.saturating_sub(before.far.disk_ns) as f64;
            }
            acknowledged += after.tcp.bytes_acknowledged.saturating_sub(before.tcp.bytes_acknowledged);
            let again = after.tcp.retransmissions.saturating_sub(before.tcp.retransmissions);
            tcp.retransmissions += u64::from(again);
            tcp.congestion_window += after.tcp.congestion_window() / self.streams.len() as u64;
            let rtt = after.tcp.min_rtt().map(|rtt| rtt.as_secs_f64());
            tcp.min_rtt = [tcp.min_rtt, rtt].into_iter().flatten().reduce(f64::min);
            tcp.sack &= after.tcp.sack_negotiated();
        }
        let bytes = match self.plan.mode {
            Mode::Sync => counted.iter().map(|window| window.bytes).sum(),
            // What the other host has, not what the own send buffer swallowed; headers do not count.
            Mode::Async => {
                let length = self.plan.mean_length();
                (acknowledged as f64 * length / (length + HEADER_BYTES as f64)) as u64
            }
        };
        Interval {
            start: 0.0,
            seconds,
            bytes,
            messages: counted.iter().map(|window| window.messages).sum(),
            latency: latencies.figures(),
            disk_share: if shares.elapsed > 0.0 { shares.disk / shares.elapsed } else { 0.0 },
            tcp,
            limit: limit(&shares),
        }
    }

    fn outcome(self, trouble: Option<NetError>, interrupted: bool) -> Outcome {
        let mut total = self.interval(&self.base, &self.counted, &self.latencies, self.begin, self.end);
        // The last word of the server is exact. Without it the acknowledged bytes stand.
        if self.plan.mode == Mode::Async && trouble.is_none() && !interrupted && self.plan.omit.is_zero() {
            total.bytes = self.seen.iter().map(|seen| seen.far.received).sum();
        }
        let of_stream = |number: usize| match self.plan.mode {
            Mode::Sync => self.counted[number].bytes,
            Mode::Async => self.seen[number].far.received,
        };
        Outcome {
            total,
            latencies: self.latencies.clone(),
            streams: (0..self.streams.len()).map(of_stream).collect(),
            buffers: self.buffers(),
            congestion: self.streams.first().and_then(|stream| socket::congestion(&stream.socket)),
            intervals: self.intervals,
            trouble,
            interrupted,
        }
    }

    fn buffers(&self) -> Buffers {
        let count = self.streams.len().max(1) as u64;
        let mean = |of: &dyn Fn(usize) -> u32| {
            (0..self.streams.len()).map(|number| u64::from(of(number))).sum::<u64>() / count
        };
        let limit = socket::sysctl("net.core.wmem_max");
        let far_limit = self.streams.first().map_or(0, |stream| stream.answer.receive_limit);
        let mut clamped_by = Vec::new();
        if limit.is_some_and(|limit| u64::from(self.plan.buffer) > limit) {
            clamped_by.push("net.core.wmem_max of this host");
        }
        if far_limit != 0 && self.plan.far_buffer > far_limit {
            clamped_by.push("net.core.rmem_max of the server");
        }
        Buffers {
            requested: self.plan.buffer,
            requested_far: self.plan.far_buffer,
            send: mean(&|number| socket::send_buffer(&self.streams[number].socket)),
            receive: mean(&|number| match self.seen[number].far.receive_buffer {
                0 => self.streams[number].answer.receive_buffer,
                bytes => bytes,
            }),
            clamped_by,
        }
    }
}

/// How long a plan runs; None when only the amount of data or nothing bounds it.
pub fn planned_time(plan: &Plan) -> Option<Duration> {
    match plan.duration {
        Extent::Time(time) => Some(plan.omit + time),
        _ => None,
    }
}
