//! One direction of a link: which segments are dropped, and when the others arrive. Pure: the caller passes the time.
//!
//! A segment waits for the transmitter (rate, queue), is transmitted, and is then in flight (delay, jitter). The link
//! holds what passes, with its payload, until it is due.

use crate::chance::Chance;
use crate::settings::{Nanos, Settings};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Limit of the bytes that a direction holds, whatever its settings; more is dropped as by a full queue.
const MOST_HELD: u64 = 512 << 20;

/// The fate of an offered segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is transmitted. Pass it to [`Link::hold`], alone or with its neighbours.
    Passes(Passage),
    Dropped,
}

/// A transmitted segment, or several in one segment train. Times are on the link's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    departs: Nanos,
    due: Nanos,
    bytes: u64,
    segments: u64,
    /// It arrives so late that others overtake it; it must be a segment train of its own.
    pub overtaken: bool,
}

impl Passage {
    /// Joins the next segment to this one: both arrive together, when the last one does.
    pub fn with(&self, next: &Passage) -> Passage {
        Passage { bytes: self.bytes + next.bytes, segments: self.segments + next.segments, ..*next }
    }

    /// Returns the bytes that all segments take on the wire.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Segments and bytes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub segments: u64,
    /// Bytes of the IP packets that came from the sending node.
    pub bytes: u64,
    pub delivered_segments: u64,
    pub delivered_bytes: u64,
    pub lost: u64,
    /// Segments that found the queue full.
    pub queue_full: u64,
    /// Segments that were in flight at a cut, or came during one.
    pub cut: u64,
    /// Segments held back so that others overtake them.
    pub overtaken: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Up,
    Cut,
    /// The link's clock stands still: nothing arrives, and only what exceeds the queue is lost.
    Stalled,
}

struct Held<P> {
    passage: Passage,
    payload: P,
}

/// One direction with its packets in flight.
pub struct Link<P> {
    settings: Settings,
    chance: Chance,
    /// Until then the transmitter is busy.
    busy_until: Nanos,
    /// Latest due time of the segments that keep their order.
    latest: Nanos,
    held: VecDeque<Held<P>>,
    held_bytes: u64,
    cut: bool,
    /// When the link's clock was stopped, on the caller's clock.
    stopped: Option<Nanos>,
    /// How much the link's clock is behind the caller's.
    behind: Nanos,
    counts: Counts,
}

impl<P> Link<P> {
    pub fn new(settings: Settings, chance: Chance) -> Link<P> {
        Link {
            settings,
            chance,
            busy_until: 0,
            latest: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            cut: false,
            stopped: None,
            behind: 0,
            counts: Counts::default(),
        }
    }

    /// Offers a segment of that many bytes.
    pub fn offer(&mut self, now: Nanos, bytes: u64) -> Fate {
        let number = self.counts.segments;
        self.counts.segments += 1;
        self.counts.bytes += bytes;
        if self.cut {
            self.counts.cut += 1;
            return Fate::Dropped;
        }
        if self.chance.loses(number, self.settings.loss) {
            self.counts.lost += 1;
            return Fate::Dropped;
        }
        let arrived = self.clock(now);
        let backlog = match self.settings.rate {
            Some(_) => self.settings.carried_in(self.busy_until.saturating_sub(arrived)),
            None => 0,
        };
        if backlog + bytes > self.settings.queue_bytes() || self.held_bytes + bytes > MOST_HELD {
            self.counts.queue_full += 1;
            return Fate::Dropped;
        }
        let overtaken = self.chance.reorders(number, self.settings.reorder);
        self.counts.overtaken += u64::from(overtaken);
        Fate::Passes(self.transmit(arrived, Passage { departs: 0, due: 0, bytes, segments: 1, overtaken }))
    }

    /// Transmits after everything sent before, and not before `arrived`.
    fn transmit(&mut self, arrived: Nanos, passage: Passage) -> Passage {
        let departs = self.busy_until.max(arrived) + self.settings.wire_time(passage.bytes);
        self.busy_until = departs;
        let due = departs + self.chance.delay(departs, self.settings.delay, self.settings.jitter);
        let due = match passage.overtaken {
            true => due + self.settings.reorder_by,
            false => due.max(self.latest),
        };
        if !passage.overtaken {
            self.latest = due;
        }
        Passage { departs, due, ..passage }
    }

    /// Takes the payload of a passage, until it is due.
    pub fn hold(&mut self, passage: Passage, payload: P) {
        self.held_bytes += passage.bytes;
        // In-order segment trains belong at the end; only a few overtaken ones may be due later.
        let later = self.held.iter().rev().take_while(|held| held.passage.due > passage.due).count();
        self.held.insert(self.held.len() - later, Held { passage, payload });
    }

    /// Returns the next due payload and its lateness.
    pub fn release(&mut self, now: Nanos) -> Option<(P, Nanos)> {
        if self.stopped.is_some() {
            return None;
        }
        let now = self.clock(now);
        let held = self.held.pop_front_if(|held| held.passage.due <= now)?;
        self.held_bytes -= held.passage.bytes;
        self.counts.delivered_segments += held.passage.segments;
        self.counts.delivered_bytes += held.passage.bytes;
        Some((held.payload, now - held.passage.due))
    }

    /// When the next payload is due, on the caller's clock; None when there is nothing to wait for.
    pub fn next_due(&self) -> Option<Nanos> {
        let first = self.held.front().filter(|_| self.stopped.is_none())?;
        Some(first.passage.due + self.behind)
    }

    /// Changes the settings. What is transmitted arrives as planned; what waits for the transmitter is planned again.
    pub fn set(&mut self, now: Nanos, settings: Settings) {
        self.settings = settings;
        let clock = self.clock(now);
        let gone = |held: &Held<P>| held.passage.departs <= clock;
        let (gone, mut waiting): (Vec<_>, Vec<_>) = self.held.drain(..).partition(gone);
        let in_order = gone.iter().filter(|held| !held.passage.overtaken);
        self.latest = in_order.map(|held| held.passage.due).max().unwrap_or(0);
        self.busy_until = clock;
        self.held_bytes = gone.iter().map(|held| held.passage.bytes).sum();
        self.held.extend(gone);
        waiting.sort_by_key(|held| held.passage.departs);
        for held in waiting {
            let passage = self.transmit(clock, held.passage);
            self.hold(passage, held.payload);
        }
    }

    /// Drops what is in flight and all that comes.
    pub fn cut(&mut self) {
        self.cut = true;
        self.counts.cut += self.held.drain(..).map(|held| held.passage.segments).sum::<u64>();
        self.held_bytes = 0;
        self.busy_until = 0;
        self.latest = 0;
    }

    pub fn stall(&mut self, now: Nanos) {
        self.stopped.get_or_insert(now);
    }

    /// Ends a cut and a stall. After a stall the link's clock resumes where it stopped.
    pub fn heal(&mut self, now: Nanos) {
        self.cut = false;
        if let Some(stopped) = self.stopped.take() {
            self.behind += now - stopped;
        }
    }

    fn clock(&self, now: Nanos) -> Nanos {
        // The time of a packet may lie a little before the link was healed.
        self.stopped.unwrap_or(now).saturating_sub(self.behind)
    }

    pub fn state(&self) -> State {
        match (self.cut, self.stopped) {
            (true, _) => State::Cut,
            (false, Some(_)) => State::Stalled,
            (false, None) => State::Up,
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn held_packets(&self) -> usize {
        self.held.len()
    }

    /// Returns the bytes in the queue or on the way.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}
