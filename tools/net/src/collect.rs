//! Turns the counters of connections into rows and into the figures of a whole test.

use crate::limit::{Shares, limit};
use crate::outcome::{Buffers, Event, Outcome};
use crate::plan::{Direction, Mode, Plan};
use crate::socket;
use crate::stats::{Far, Interval, Latencies, Sender, Tcp, Window};
use crate::stream::Stream;
use crate::wire::{Answer, HEADER_BYTES};
use std::time::Instant;

/// Polls the connections of one direction and makes intervals of the counts.
pub(crate) struct Collector<'a> {
    direction: Direction,
    plan: &'a Plan,
    streams: &'a [Stream],
    /// When counting began: after the omitted time.
    begin: Instant,
    omitting: bool,
    looked: Instant,
    /// When the last of the ended connections ended.
    end: Instant,
    open: usize,
    seen: Vec<Seen>,
    base: Vec<Seen>,
    intervals: Vec<Interval>,
    latencies: Latencies,
    counted: Vec<Window>,
}

/// Counters of a connection at a poll.
#[derive(Clone, Copy, Default)]
struct Seen {
    sender: Sender,
    far: Far,
}

impl<'a> Collector<'a> {
    pub fn new(plan: &'a Plan, direction: Direction, streams: &'a [Stream], start: Instant) -> Collector<'a> {
        let seen: Vec<Seen> = streams
            .iter()
            .map(|stream| Seen {
                sender: counters(stream, Sender::default()).unwrap_or_default(),
                far: Far::default(),
            })
            .collect();
        Collector {
            direction,
            plan,
            streams,
            begin: start + plan.omit,
            omitting: !plan.omit.is_zero(),
            looked: start,
            end: start,
            open: streams.len(),
            base: seen.clone(),
            seen,
            intervals: Vec::new(),
            latencies: Latencies::default(),
            counted: vec![Window::default(); streams.len()],
        }
    }

    /// Notes that a connection has ended.
    pub fn ended(&mut self, at: Instant) {
        self.end = self.end.max(at);
        self.open = self.open.saturating_sub(1);
    }

    /// Returns whether all connections have ended.
    pub fn is_over(&self) -> bool {
        self.open == 0
    }

    /// Returns when the next interval is over.
    pub fn next_look(&self) -> Instant {
        let rows = self.intervals.len() as u32 + 1;
        if self.omitting { self.begin } else { self.begin + self.plan.interval.saturating_mul(rows) }
    }

    /// Returns the interval that ends now; None for the omitted time.
    pub fn look(&mut self, now: Instant) -> Option<Interval> {
        let before = self.seen.clone();
        let mut latencies = Latencies::default();
        let mut counted = Vec::with_capacity(self.streams.len());
        for (stream, seen) in self.streams.iter().zip(&mut self.seen) {
            let mut window = stream.window();
            let (far, sender) = (window.far, window.sender);
            let taken = std::mem::replace(&mut *window, Window { far, sender, ..Window::default() });
            drop(window);
            *seen = Seen { sender: counters(stream, sender).unwrap_or(seen.sender), far };
            latencies.add(&taken.latency);
            counted.push(taken);
        }
        if std::mem::take(&mut self.omitting) {
            self.base = self.seen.clone();
            self.looked = now;
            // The first interval starts here, whenever the thread actually woke.
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

    /// Returns the rest at the end, unless it is too short for a row.
    pub fn last_look(&mut self) -> Option<Interval> {
        if self.omitting {
            // The test ended before the omitted time did.
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

    /// Reports an interval and keeps it.
    pub fn tell(&mut self, interval: Option<Interval>, watch: &mut dyn FnMut(Event<'_>)) {
        if let Some(interval) = interval {
            watch(Event::Row(self.direction, &interval));
            self.intervals.push(interval);
        }
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
                |of: fn(&Sender) -> u64| of(&after.sender).saturating_sub(of(&before.sender)) as f64 * 1e3;
            shares.busy += micros(|sender| sender.busy_us);
            shares.receiver_window += micros(|sender| sender.receiver_window_us);
            shares.send_buffer += micros(|sender| sender.send_buffer_us);
            shares.far_wait += after.far.wait_ns.saturating_sub(before.far.wait_ns) as f64;
            if self.plan.mode == Mode::Async {
                shares.disk += after.far.disk_ns.saturating_sub(before.far.disk_ns) as f64;
            }
            let sender = &after.sender;
            // The other side may report any value.
            let more = sender.acknowledged.saturating_sub(before.sender.acknowledged);
            acknowledged = u64::saturating_add(acknowledged, more);
            let again = sender.retransmissions.saturating_sub(before.sender.retransmissions);
            tcp.retransmissions += u64::from(again);
            tcp.congestion_window += u64::from(sender.congestion_window) / self.streams.len() as u64;
            let rtt = Some(f64::from(sender.min_rtt_us) / 1e6).filter(|rtt| *rtt > 0.0);
            tcp.min_rtt = [tcp.min_rtt, rtt].into_iter().flatten().reduce(f64::min);
            tcp.sack &= sender.sack;
        }
        let window: f64 = self.seen.iter().map(|seen| f64::from(seen.sender.offered_window)).sum();
        if let Some(rtt) = tcp.min_rtt.filter(|_| window > 0.0 && seconds > 0.0) {
            shares.filled = acknowledged as f64 / seconds * rtt / window;
        }
        let bytes = match (self.plan.mode, self.direction) {
            (Mode::Sync, _) | (_, Direction::FromServer) => counted.iter().map(|window| window.bytes).sum(),
            // Bytes that the other host has, not those that this host's send buffer took; headers do not count.
            (Mode::Async, Direction::ToServer) => {
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

    /// Returns the figures of the whole test; `complete` when every connection received the receiver's summary.
    pub fn outcome(self, complete: bool) -> Outcome {
        let mut total = self.interval(&self.base, &self.counted, &self.latencies, self.begin, self.end);
        // The receiver's summary is exact. Without it the acknowledged bytes stand.
        if self.plan.mode == Mode::Async && complete && self.plan.omit.is_zero() {
            total.bytes = self.seen.iter().fold(0, |sum, seen| sum.saturating_add(seen.far.received));
        }
        let of_stream = |number: usize| match self.plan.mode {
            Mode::Sync => self.counted[number].bytes,
            Mode::Async => self.seen[number].far.received,
        };
        Outcome {
            direction: self.direction,
            total,
            latencies: self.latencies.clone(),
            streams: (0..self.streams.len()).map(of_stream).collect(),
            buffers: self.buffers(),
            congestion: self.seen.first().and_then(|seen| seen.sender.congestion()),
            intervals: self.intervals,
            error: None,
            interrupted: false,
            round_trips: None,
            reverse: None,
        }
    }

    fn buffers(&self) -> Buffers {
        let count = self.streams.len().max(1) as u64;
        let mean = |of: &dyn Fn(usize) -> u32| {
            (0..self.streams.len()).map(|number| u64::from(of(number))).sum::<u64>() / count
        };
        let answer = self.streams.first().map(|stream| stream.answer);
        let over = |asked: u32, limit: Option<u64>| limit.is_some_and(|limit| u64::from(asked) > limit);
        let far = |of: fn(&Answer) -> u32| answer.as_ref().map(of).filter(|limit| *limit != 0).map(u64::from);
        let (near_buffer, far_buffer) = (self.plan.buffer, self.plan.far_buffer);
        let limits = match self.direction {
            Direction::ToServer => [
                (near_buffer, socket::sysctl("net.core.wmem_max"), "net.core.wmem_max of this host"),
                (far_buffer, far(|answer| answer.receive_limit), "net.core.rmem_max of the server"),
            ],
            Direction::FromServer => [
                (far_buffer, far(|answer| answer.send_limit), "net.core.wmem_max of the server"),
                (near_buffer, socket::sysctl("net.core.rmem_max"), "net.core.rmem_max of this host"),
            ],
        };
        let clamped = limits.iter().filter(|(asked, limit, _)| over(*asked, *limit));
        let clamped_by = clamped.map(|(_, _, name)| *name).collect();
        Buffers {
            requested: self.plan.buffer,
            requested_far: self.plan.far_buffer,
            send: mean(&|number| self.seen[number].sender.send_buffer),
            receive: mean(&|number| match self.seen[number].far.receive_buffer {
                // No report has carried the buffer yet.
                0 if self.direction == Direction::FromServer => {
                    socket::receive_buffer(&self.streams[number].socket)
                }
                0 => self.streams[number].answer.receive_buffer,
                bytes => bytes,
            }),
            clamped_by,
        }
    }
}

/// Returns the counters of the sender of a connection: those of this side, or those that the server `reported`.
fn counters(stream: &Stream, reported: Sender) -> Option<Sender> {
    match stream.direction {
        Direction::ToServer => socket::sender(&stream.socket),
        Direction::FromServer => Some(reported),
    }
}
