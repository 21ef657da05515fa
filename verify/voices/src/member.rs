//! A member: a host with redo, in one of two roles.

use crate::history::Commit;
use crate::{MEMBERS, Millis};
use standfast_arbitration::Settings;
use standfast_arbitration::primary::{Candidate, PrimaryRules, Required, View as PrimaryView};
use standfast_arbitration::record::Incarnation;
use standfast_arbitration::target::{TargetRules, View as TargetView};
use standfast_types::{IncarnationId, Scn};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// A destination keeps commits waiting this long, in the mode maximum availability.
pub const NET_TIMEOUT: Millis = 600;
/// Without an answer for this long a destination is away.
const AWAY: Millis = 600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Primary,
    Standby,
}

/// What a host keeps over a crash.
#[derive(Clone, Debug)]
pub struct Disk {
    pub role: Role,
    pub incarnation: Incarnation,
    pub redo: Vec<Commit>,
    /// How much of the redo is durable; the rest is lost in a crash.
    pub durable: usize,
    pub required: Required,
    /// Destinations that have been synchronised: a restarted primary waits for them from the start.
    pub synchronised: BTreeSet<usize>,
}

#[derive(Clone, Debug, Default)]
pub struct Destination {
    /// Commits wait for it.
    pub waits: bool,
    /// It has kept one waiting for the net timeout, and is required.
    pub stalls: bool,
    pub acknowledged: usize,
    pub heard: Option<Millis>,
}

pub struct Primary {
    pub rules: PrimaryRules,
    pub destinations: [Destination; 3],
    /// Commits whose applications wait: end of the commit in the redo, and since when.
    pub waiting: VecDeque<(usize, Millis)>,
    pub acknowledged: usize,
    pub next_commit_at: Millis,
    pub next_heartbeat_at: Millis,
    pub suspended_until: Millis,
}

pub struct Standby {
    pub rules: TargetRules,
    pub heard: Duration,
    /// The arbiter has given it the primary's place; it opens at this time.
    pub opens_at: Option<Millis>,
    /// It takes over with all that was acknowledged.
    pub has_all: bool,
    /// The primary whose redo it took last, and the life of that process.
    pub source: Option<(Incarnation, u64)>,
    /// Until then an operator orders a failover to it.
    pub ordered_until: Millis,
}

pub enum State {
    Down,
    Primary(Box<Primary>),
    Standby(Box<Standby>),
}

pub struct Member {
    pub index: usize,
    pub disk: Disk,
    pub state: State,
    /// Counts the starts: what was sent to or by an earlier one is void.
    pub life: u64,
    pub started_at: Millis,
    pub frozen_until: Millis,
    /// Speed of its clock, in thousandths.
    pub rate: u64,
    /// Number of its newest request to the arbiter, and when that was sent.
    pub requests: u64,
    pub asked_at: Option<Duration>,
}

/// Returns the identity of the incarnation `number` of `member`.
pub fn incarnation(number: u64, member: usize) -> Incarnation {
    let mut id = IncarnationId::default();
    id.0[0] = member as u8 + 1;
    id.0[1..5].copy_from_slice(&(number as u32).to_le_bytes());
    Incarnation { number: number as _, id }
}

impl Member {
    pub fn new(index: usize, role: Role, rate: u64) -> Member {
        let disk = Disk {
            role,
            incarnation: incarnation(1, 0),
            redo: Vec::new(),
            durable: 0,
            required: Required::default(),
            synchronised: BTreeSet::new(),
        };
        Member {
            index,
            disk,
            state: State::Down,
            life: 0,
            started_at: 0,
            frozen_until: 0,
            rate,
            requests: 0,
            asked_at: None,
        }
    }

    pub fn name(&self) -> &'static str {
        MEMBERS[self.index]
    }

    /// The time on this host's own clock.
    pub fn clock(&self, now: Millis) -> Duration {
        Duration::from_millis((now - self.started_at) * self.rate / 1_000)
    }

    /// `is_promoted`: this process was its standby a moment ago.
    pub fn start(&mut self, now: Millis, settings: Settings, is_promoted: bool) {
        self.life += 1;
        (self.started_at, self.asked_at) = (now, None);
        self.state = match self.disk.role {
            Role::Primary => {
                let disk = &self.disk;
                let counts =
                    |other: usize| disk.synchronised.contains(&other) || disk.required.has(MEMBERS[other]);
                let destination = |other| Destination { waits: counts(other), ..Destination::default() };
                State::Primary(Box::new(Primary {
                    rules: PrimaryRules::new(
                        self.name(),
                        disk.incarnation,
                        settings,
                        disk.required.clone(),
                        Scn(disk.redo.len() as u64),
                        !is_promoted,
                    ),
                    destinations: std::array::from_fn(destination),
                    waiting: VecDeque::new(),
                    acknowledged: 0,
                    next_commit_at: now,
                    next_heartbeat_at: now,
                    suspended_until: 0,
                }))
            }
            Role::Standby => State::Standby(Box::new(Standby {
                rules: TargetRules::new(self.name(), settings, Duration::ZERO),
                heard: Duration::ZERO,
                opens_at: None,
                has_all: false,
                source: None,
                ordered_until: 0,
            })),
        };
    }

    pub fn crash(&mut self) {
        self.state = State::Down;
        if self.disk.role == Role::Primary {
            let durable = self.disk.durable;
            self.disk.redo.truncate(durable);
        }
        self.disk.durable = self.disk.redo.len();
    }

    pub fn is_up(&self) -> bool {
        !matches!(self.state, State::Down)
    }

    /// Takes redo of the primary of `from`.
    pub fn harden(&mut self, from: Incarnation, redo: &Rc<Vec<Commit>>) {
        self.disk.incarnation = from;
        self.disk.redo.clear();
        self.disk.redo.extend_from_slice(redo);
        self.disk.durable = redo.len();
    }

    pub fn target_view(&self, now: Millis, standby: &Standby) -> TargetView {
        TargetView {
            incarnation: self.disk.incarnation,
            heard: standby.heard,
            end: Scn(self.disk.redo.len() as u64),
            is_able: standby.opens_at.is_none(),
            is_enabled_there: standby.source.is_some(),
            order: (now < standby.ordered_until).then_some(standby.ordered_until),
        }
    }
}

impl Primary {
    /// Looks at the destinations as the sender's state machine does: one that keeps commits waiting for its net timeout
    /// is let go, or stalls them if it is required.
    pub fn look(&mut self, now: Millis) {
        let required = self.rules.required();
        for (other, destination) in self.destinations.iter_mut().enumerate() {
            let oldest = self.waiting.iter().find(|(end, _)| *end > destination.acknowledged);
            let is_late = oldest.is_some_and(|(_, since)| now - since >= NET_TIMEOUT);
            let is_required = required.has(MEMBERS[other]);
            destination.stalls = destination.waits && is_late && is_required;
            destination.waits &= is_required || !is_late;
        }
    }

    /// How far commits may return.
    pub fn released(&self, durable: usize) -> usize {
        if !self.rules.may_acknowledge() {
            return 0;
        }
        let waited_for = self.destinations.iter().filter(|destination| destination.waits);
        waited_for.map(|destination| destination.acknowledged).fold(durable, usize::min)
    }

    pub fn view(&self, now: Millis, started_at: Millis, me: usize) -> PrimaryView {
        let candidates = (0..MEMBERS.len()).filter(|other| *other != me).map(|other| {
            let at = &self.destinations[other];
            let is_away = now - at.heard.unwrap_or(started_at) >= AWAY;
            Candidate {
                name: MEMBERS[other].to_owned(),
                in_step: at.waits && !at.stalls && at.heard.is_some() && !is_away,
                late: !at.waits || at.stalls || is_away,
                hardened: Scn(at.acknowledged as u64),
            }
        });
        PrimaryView {
            candidates: candidates.collect(),
            eligible: MEMBERS.map(str::to_owned).to_vec(),
            acknowledged: Scn(self.acknowledged as u64),
            suspended: now < self.suspended_until,
        }
    }
}
