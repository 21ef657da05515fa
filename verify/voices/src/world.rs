//! One run: three members, an arbiter, links that fail, and a schedule of faults.

use crate::arbiters::{Kind, SimArbiter};
use crate::history::{Commit, History};
use crate::member::{Disk, Member, Role, State, incarnation};
use crate::{MEMBERS, Millis};
use standfast_arbitration::Settings;
use standfast_arbitration::arbiter::{Answer, Ask};
use standfast_arbitration::primary::Required;
use standfast_arbitration::record::Incarnation;
use standfast_arbitration::{primary, target};
use standfast_testkit::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

const ARBITER: usize = MEMBERS.len();
const NODES: usize = MEMBERS.len() + 1;
const TICK: Millis = 20;
const HEARTBEAT: Millis = 150;
/// How long a member waits for the arbiter.
const ANSWER: Duration = Duration::from_millis(400);
/// Faults happen until then; after that everything is repaired.
const FAULTS_UNTIL: Millis = 25_000;
/// Time to become whole again.
const REPAIR: Millis = 12_000;
/// At the end, how recent the last acknowledged commit must be.
const RECENT: Millis = 1_000;

enum Message {
    Redo {
        from: Incarnation,
        life: u64,
        redo: Rc<Vec<Commit>>,
    },
    Hardened {
        incarnation: Incarnation,
        life: u64,
        end: usize,
    },
    /// The sender knows of a newer incarnation; signed by the member that began it.
    Newer(Incarnation),
    Ask {
        number: u64,
        ask: Ask,
    },
    Answer {
        number: u64,
        answer: Answer,
    },
}

enum Event {
    Tick(usize),
    Arrives {
        to: usize,
        from: usize,
        life: u64,
        message: Box<Message>,
    },
    Fault,
    Starts(usize),
    /// An operator gives this member an order.
    Order(usize),
    ArbiterStarts {
        forgets: bool,
    },
}

/// What a run found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub at: Millis,
    pub what: String,
}

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub acknowledged: usize,
    pub promotions: u64,
    /// Longest time without an acknowledged commit, in milliseconds.
    pub longest_silence: Millis,
    pub events: u64,
}

pub struct World {
    rng: Rng,
    now: Millis,
    /// Events by time; their number keeps the order of equal times.
    queue: BinaryHeap<(Reverse<Millis>, Reverse<u64>)>,
    events: std::collections::HashMap<u64, Event>,
    scheduled: u64,
    members: Vec<Member>,
    arbiter: SimArbiter,
    arbiter_is_up: bool,
    arbiter_life: u64,
    open: [[bool; NODES]; NODES],
    /// When the last message of a link arrives: a link keeps the order.
    last: [[Millis; NODES]; NODES],
    /// What arrived at each member while its host was frozen: sender, life of the receiver, message.
    held: [VecDeque<(usize, u64, Message)>; MEMBERS.len()],
    is_slow: bool,
    history: History,
    next_commit: Commit,
    settings: Settings,
    report: Report,
    trace: bool,
}

/// Runs one seed.
///
/// # Errors
/// The first finding.
pub fn run(seed: u64, kind: Kind, trace: bool) -> Result<Report, Finding> {
    World::new(seed, kind, trace).run()
}

impl World {
    fn new(seed: u64, kind: Kind, trace: bool) -> World {
        let mut rng = Rng::new(seed.wrapping_mul(3).wrapping_add(kind as u64));
        let settings = Settings {
            threshold: Duration::from_millis(rng.between(300, 2_000)),
            ping_interval: Duration::from_millis(rng.between(30, 250)),
            primary_shutdown: rng.chance(60),
            observer_override: rng.chance(20),
        };
        let rate = |rng: &mut Rng| if rng.chance(50) { 1_000 } else { rng.between(700, 1_400) };
        let members = (0..MEMBERS.len())
            .map(|index| {
                let role = if index == 0 { Role::Primary } else { Role::Standby };
                Member::new(index, role, rate(&mut rng))
            })
            .collect();
        let arbiter = SimArbiter::new(kind, &mut rng);
        let mut world = World {
            rng,
            now: 0,
            queue: BinaryHeap::new(),
            events: std::collections::HashMap::new(),
            scheduled: 0,
            members,
            arbiter,
            arbiter_is_up: true,
            arbiter_life: 0,
            open: [[true; NODES]; NODES],
            last: [[0; NODES]; NODES],
            held: std::array::from_fn(|_| VecDeque::new()),
            is_slow: false,
            history: History::default(),
            next_commit: 0,
            settings,
            report: Report::default(),
            trace,
        };
        world.history.begin(1, 0);
        for member in &mut world.members {
            member.start(0, settings, true);
        }
        for index in 0..MEMBERS.len() {
            world.schedule(index as Millis, Event::Tick(index));
        }
        let first = world.rng.between(1_000, 4_000);
        world.schedule(first, Event::Fault);
        world
    }

    fn schedule(&mut self, after: Millis, event: Event) {
        self.scheduled += 1;
        self.queue.push((Reverse(self.now + after), Reverse(self.scheduled)));
        self.events.insert(self.scheduled, event);
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>6} {}", self.now, what());
        }
    }

    fn run(mut self) -> Result<Report, Finding> {
        let mut is_repaired = false;
        while let Some((Reverse(at), Reverse(number))) = self.queue.pop() {
            if at > FAULTS_UNTIL && !is_repaired {
                is_repaired = true;
                self.repair();
            }
            if at > FAULTS_UNTIL + REPAIR {
                break;
            }
            self.now = at;
            let Some(event) = self.events.remove(&number) else { continue };
            self.report.events += 1;
            let before = self.history.last_acknowledged_at;
            let done = self.happens(event);
            if self.history.last_acknowledged_at > before && before > 0 {
                self.report.longest_silence =
                    self.report.longest_silence.max(self.history.last_acknowledged_at - before);
            }
            done.map_err(|what| Finding { at, what })?;
        }
        self.check_end().map_err(|what| Finding { at: self.now, what })?;
        self.report.acknowledged = self.history.acknowledged();
        self.report.promotions = self.history.promotions;
        Ok(self.report)
    }

    fn happens(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Tick(index) => {
                self.schedule(TICK, Event::Tick(index));
                if self.members[index].frozen_until > self.now {
                    return Ok(());
                }
                self.takes_what_was_held(index)?;
                self.tick(index)
            }
            Event::Arrives { to, from, life, message } => self.arrives(to, from, life, *message),
            Event::Fault => {
                if self.now < FAULTS_UNTIL {
                    self.fault();
                    let next = self.rng.between(200, 3_000);
                    self.schedule(next, Event::Fault);
                }
                Ok(())
            }
            Event::Starts(index) => {
                if !self.members[index].is_up() {
                    self.say(|| format!("{} starts", MEMBERS[index]));
                    let (now, settings) = (self.now, self.settings);
                    self.members[index].start(now, settings, false);
                }
                Ok(())
            }
            Event::Order(member) => {
                self.order(member);
                Ok(())
            }
            Event::ArbiterStarts { forgets } => {
                if !self.arbiter_is_up {
                    self.say(|| format!("the arbiter starts, forgets: {forgets}"));
                    self.arbiter_is_up = true;
                    self.arbiter_life += 1;
                    self.arbiter.restart(forgets, &mut self.rng);
                }
                Ok(())
            }
        }
    }

    // Links.

    fn life(&self, node: usize) -> u64 {
        self.members.get(node).map_or(self.arbiter_life, |member| member.life)
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        if !self.open[from][to] {
            return;
        }
        let delay = match self.rng.below(100) {
            0 if self.now < FAULTS_UNTIL => self.rng.between(50, 3_000),
            _ if self.is_slow => self.rng.between(20, 500),
            _ => self.rng.between(1, 8),
        };
        let at = (self.now + delay).max(self.last[from][to]);
        self.last[from][to] = at;
        let life = self.life(to);
        let after = at - self.now;
        self.schedule(after, Event::Arrives { to, from, life, message: Box::new(message) });
    }

    fn arrives(&mut self, to: usize, from: usize, life: u64, message: Message) -> Result<(), String> {
        // A request may arrive long after its sender has given up: it was on its way.
        let is_request = to == ARBITER;
        if life != self.life(to) || !self.open[from][to] && !is_request {
            return Ok(());
        }
        if to == ARBITER {
            if let (true, Message::Ask { number, ask }) = (self.arbiter_is_up, message) {
                let answer = self.arbiter.ask(MEMBERS[from], &ask, &mut self.rng);
                if let (Ask::Replace(replace), Answer::Replaced { .. }) = (&ask, &answer) {
                    self.say(|| format!("{}: {:?}", MEMBERS[from], replace.record.standing));
                }
                self.send(ARBITER, from, Message::Answer { number, answer });
            }
            return Ok(());
        }
        if self.members[to].frozen_until > self.now {
            self.held[to].push_back((from, life, message));
            return Ok(());
        }
        self.takes_what_was_held(to)?;
        self.takes(to, from, life, message)
    }

    /// A link keeps the order, also over a time in which the host was frozen.
    fn takes_what_was_held(&mut self, to: usize) -> Result<(), String> {
        while let Some((from, life, message)) = self.held[to].pop_front() {
            self.takes(to, from, life, message)?;
        }
        Ok(())
    }

    fn takes(&mut self, to: usize, from: usize, life: u64, message: Message) -> Result<(), String> {
        if life != self.life(to) || !self.members[to].is_up() {
            return Ok(());
        }
        match message {
            Message::Redo { from: incarnation, life, redo } => {
                self.redo_comes(to, from, incarnation, life, &redo)
            }
            Message::Hardened { incarnation, life, end } => self.hardened(to, from, incarnation, life, end),
            Message::Newer(newer) => {
                self.is_replaced(to, newer);
                Ok(())
            }
            Message::Answer { number, answer } => {
                self.answered(to, number, answer);
                Ok(())
            }
            Message::Ask { .. } => Ok(()),
        }
    }

    // Redo.

    fn redo_comes(
        &mut self,
        to: usize,
        from: usize,
        incarnation: Incarnation,
        life: u64,
        redo: &Rc<Vec<Commit>>,
    ) -> Result<(), String> {
        let own = self.members[to].disk.incarnation;
        if incarnation.number < own.number {
            self.send(to, from, Message::Newer(own));
            return Ok(());
        }
        self.is_replaced(to, incarnation);
        let clock = self.members[to].clock(self.now);
        let State::Standby(standby) = &mut self.members[to].state else { return Ok(()) };
        if standby.opens_at.is_some() {
            return Ok(());
        }
        standby.heard = clock;
        let is_same = standby.source.replace((incarnation, life)) == Some((incarnation, life));
        if is_same && redo.len() < self.members[to].disk.redo.len() {
            return Err(format!("{} gets less redo of one process than before", MEMBERS[to]));
        }
        self.members[to].harden(incarnation, redo);
        let end = redo.len();
        self.send(to, from, Message::Hardened { incarnation, life, end });
        Ok(())
    }

    /// A primary that learns of a newer incarnation becomes a standby.
    fn is_replaced(&mut self, index: usize, newer: Incarnation) {
        let member = &mut self.members[index];
        if member.disk.role == Role::Primary && newer.number > member.disk.incarnation.number {
            member.disk.role = Role::Standby;
            member.disk.required = Required::default();
            member.disk.synchronised.clear();
            member.disk.durable = member.disk.redo.len();
            member.start(self.now, self.settings, false);
            self.say(|| format!("{} is replaced by incarnation {}", MEMBERS[index], newer.number));
        }
    }

    fn hardened(
        &mut self,
        to: usize,
        from: usize,
        incarnation: Incarnation,
        life: u64,
        end: usize,
    ) -> Result<(), String> {
        let now = self.now;
        let member = &mut self.members[to];
        let State::Primary(primary) = &mut member.state else { return Ok(()) };
        if incarnation != member.disk.incarnation || life != member.life {
            return Ok(());
        }
        let destination = &mut primary.destinations[from];
        destination.heard = Some(now);
        destination.acknowledged = destination.acknowledged.max(end);
        // It keeps up when it has what was the newest a moment ago.
        if !destination.waits && end + 2 >= member.disk.redo.len() {
            destination.waits = true;
            member.disk.synchronised.insert(from);
        }
        self.release(to)
    }

    fn release(&mut self, index: usize) -> Result<(), String> {
        let now = self.now;
        let member = &mut self.members[index];
        let State::Primary(primary) = &mut member.state else { return Ok(()) };
        primary.look(now);
        let (released, number) = (primary.released(member.disk.durable), member.disk.incarnation.number);
        while let Some((end, _)) = primary.waiting.front().copied().filter(|(end, _)| *end <= released) {
            primary.waiting.pop_front();
            primary.acknowledged = end;
            let commit = member.disk.redo[end - 1];
            self.history.acknowledge(now, index, u64::from(number), commit)?;
        }
        Ok(())
    }

    // Members.

    fn tick(&mut self, index: usize) -> Result<(), String> {
        let clock = self.members[index].clock(self.now);
        if self.members[index].asked_at.is_some_and(|asked| clock.saturating_sub(asked) >= ANSWER) {
            let number = self.members[index].requests;
            self.answered(index, number, Answer::Nothing);
            // It connects again: what it asks then may overtake what is still on its way.
            (self.last[index][ARBITER], self.last[ARBITER][index]) = (self.now, self.now);
        }
        match self.members[index].state {
            State::Down => Ok(()),
            State::Primary(_) => self.step_primary(index),
            State::Standby(_) => self.step_standby(index),
        }
    }

    fn step_primary(&mut self, index: usize) -> Result<(), String> {
        let now = self.now;
        let member = &mut self.members[index];
        member.disk.durable = member.disk.redo.len();
        let State::Primary(primary) = &mut member.state else { return Ok(()) };
        let mut sends = now >= primary.next_heartbeat_at;
        if now >= primary.next_commit_at && primary.waiting.len() < 6 {
            self.next_commit += 1;
            member.disk.redo.push(self.next_commit);
            primary.waiting.push_back((member.disk.redo.len(), now));
            primary.next_commit_at = now + self.rng.between(40, 200);
            sends = true;
        }
        if sends {
            primary.next_heartbeat_at = now + HEARTBEAT;
            let (redo, from, life) =
                (Rc::new(member.disk.redo.clone()), member.disk.incarnation, member.life);
            for other in (0..MEMBERS.len()).filter(|other| *other != index) {
                self.send(index, other, Message::Redo { from, life, redo: redo.clone() });
            }
        }
        self.release(index)?;
        self.primary_decides(index)?;
        self.release(index)
    }

    fn primary_decides(&mut self, index: usize) -> Result<(), String> {
        // Two orders may follow one another: to require a member, and to ask the arbiter.
        for _ in 0..3 {
            let member = &mut self.members[index];
            let clock = member.clock(self.now);
            let State::Primary(primary) = &mut member.state else { return Ok(()) };
            let view = primary.view(self.now, member.started_at, index);
            match primary.rules.decide(clock, &view) {
                primary::Order::Wait(_) => return Ok(()),
                primary::Order::Require(required) => {
                    primary.rules.requires(required.clone());
                    member.disk.required = required;
                }
                primary::Order::Ask(ask) => {
                    if let Ask::Replace(replace) = &ask
                        && let Some(target) = replace.record.standing.target()
                    {
                        let waited_for = |other: usize| primary.destinations[other].waits;
                        let other = MEMBERS.iter().position(|name| *name == target);
                        if !other.is_some_and(waited_for) || !primary.rules.required().has(target) {
                            return Err(format!("commits do not wait for the target {target}"));
                        }
                    }
                    self.ask(index, ask);
                    return Ok(());
                }
                primary::Order::Stop => {
                    self.say(|| format!("{} stops: isolated", MEMBERS[index]));
                    self.members[index].crash();
                    let after = self.rng.between(500, 4_000);
                    self.schedule(after, Event::Starts(index));
                    self.operator_may_fail_over(index);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn step_standby(&mut self, index: usize) -> Result<(), String> {
        let member = &mut self.members[index];
        let clock = member.clock(self.now);
        let State::Standby(standby) = &member.state else { return Ok(()) };
        if let Some(opens_at) = standby.opens_at {
            return if self.now >= opens_at { self.promote(index) } else { Ok(()) };
        }
        let view = member.target_view(self.now, standby);
        let State::Standby(standby) = &mut member.state else { return Ok(()) };
        match standby.rules.decide(clock, &view) {
            target::Order::Wait(_) => {}
            target::Order::Ask(ask) => self.ask(index, ask),
            target::Order::TakeOver { has_all } => {
                standby.has_all = has_all;
                standby.opens_at = Some(self.now + self.rng.between(0, 400));
                self.say(|| format!("{} takes over", MEMBERS[index]));
            }
        }
        Ok(())
    }

    fn promote(&mut self, index: usize) -> Result<(), String> {
        let member = &mut self.members[index];
        // Else an operator has ordered it: the primary acknowledged alone.
        if !matches!(&member.state, State::Standby(standby) if standby.has_all) {
            self.history.accept_loss(&member.disk.redo);
        }
        let number = u64::from(member.disk.incarnation.number) + 1;
        member.disk = Disk {
            role: Role::Primary,
            incarnation: incarnation(number, index),
            redo: std::mem::take(&mut member.disk.redo),
            durable: 0,
            required: Required::default(),
            synchronised: BTreeSet::new(),
        };
        member.disk.durable = member.disk.redo.len();
        member.start(self.now, self.settings, true);
        if let State::Primary(primary) = &mut member.state {
            primary.acknowledged = member.disk.redo.len();
        }
        self.say(|| format!("{} is primary of incarnation {number}", MEMBERS[index]));
        let redo = &self.members[index].disk.redo;
        self.history.promote(index, number, redo)
    }

    fn ask(&mut self, index: usize, ask: Ask) {
        let clock = self.members[index].clock(self.now);
        let member = &mut self.members[index];
        member.requests += 1;
        member.asked_at = Some(clock);
        let number = member.requests;
        self.send(index, ARBITER, Message::Ask { number, ask });
    }

    fn answered(&mut self, index: usize, number: u64, answer: Answer) {
        let member = &mut self.members[index];
        let clock = member.clock(self.now);
        if number != member.requests || member.asked_at.is_none() {
            return;
        }
        member.asked_at = None;
        match &mut member.state {
            State::Down => {}
            State::Primary(primary) => primary.rules.answered(clock, answer),
            State::Standby(standby) => standby.rules.answered(clock, answer),
        }
    }

    // Faults.

    fn fault(&mut self) {
        let (one, other) = (self.rng.below(NODES as u64) as usize, self.rng.below(NODES as u64) as usize);
        let member = self.rng.below(MEMBERS.len() as u64) as usize;
        match self.rng.below(12) {
            0 => self.cut(&[(one, other)]),
            1 => self.cut(&[(one, other), (other, one)]),
            2 | 3 => {
                let both = |node: usize| [(one, node), (node, one)];
                let ways: Vec<_> = (0..NODES).flat_map(both).collect();
                self.cut(&ways);
            }
            4 | 5 => {
                self.say(|| "all links are repaired".into());
                self.open = [[true; NODES]; NODES];
                self.is_slow = self.rng.chance(15);
            }
            6 | 7 => self.crash(member),
            8 => {
                self.members[member].frozen_until = self.now + self.rng.between(100, 5_000);
                self.say(|| format!("{} freezes", MEMBERS[member]));
            }
            9 | 10 => {
                self.say(|| "the arbiter fails".into());
                self.arbiter_is_up = false;
                let forgets = self.rng.chance(40);
                let after = self.rng.between(50, 4_000);
                self.schedule(after, Event::ArbiterStarts { forgets });
            }
            _ => self.order(member),
        }
    }

    /// An operator gives a primary the order that no member may take over, a standby that it fails over.
    fn order(&mut self, member: usize) {
        let until = self.now + self.rng.between(100, 3_000);
        let (_, newest) = self.history.newest();
        let is_gone = !self.members[newest].is_up();
        self.say(|| format!("an operator gives {} an order until {until}", MEMBERS[member]));
        match &mut self.members[member].state {
            State::Primary(primary) => primary.suspended_until = until,
            // As an operator must: only when the primary is known to be gone.
            State::Standby(standby) if is_gone => standby.ordered_until = until,
            _ => {}
        }
    }

    fn cut(&mut self, ways: &[(usize, usize)]) {
        for (from, to) in ways.iter().copied().filter(|(from, to)| from != to) {
            self.say(|| format!("link {from} to {to} is cut"));
            self.open[from][to] = false;
        }
    }

    fn crash(&mut self, member: usize) {
        if self.members[member].is_up() {
            self.say(|| format!("{} crashes", MEMBERS[member]));
            self.members[member].crash();
            let after = self.rng.between(100, 8_000);
            self.schedule(after, Event::Starts(member));
            self.operator_may_fail_over(member);
        }
    }

    /// Operators fail over when the primary is gone, to any standby.
    fn operator_may_fail_over(&mut self, gone: usize) {
        let (_, newest) = self.history.newest();
        if gone == newest && self.now < FAULTS_UNTIL && self.rng.chance(50) {
            let to = (gone + self.rng.between(1, MEMBERS.len() as u64 - 1) as usize) % MEMBERS.len();
            let after = self.rng.between(50, 2_500);
            self.schedule(after, Event::Order(to));
        }
    }

    fn repair(&mut self) {
        self.say(|| "everything is repaired".into());
        self.open = [[true; NODES]; NODES];
        self.is_slow = false;
        for index in 0..MEMBERS.len() {
            self.members[index].frozen_until = self.now;
            self.schedule(1, Event::Starts(index));
        }
        self.schedule(1, Event::ArbiterStarts { forgets: false });
    }

    fn check_end(&self) -> Result<(), String> {
        let (number, primary) = self.history.newest();
        let silence = self.now - self.history.last_acknowledged_at;
        if silence > RECENT {
            return Err(format!("no commit has been acknowledged for {silence} ms although all is repaired"));
        }
        let redo = &self.members[primary].disk.redo;
        self.history.holds_all(primary, redo)?;
        for member in &self.members {
            let disk = &member.disk;
            if disk.incarnation.number as u64 != number || disk.redo.len() + 20 < redo.len() {
                return Err(format!("{} does not follow the primary", member.name()));
            }
            let is_primary = disk.role == Role::Primary;
            if is_primary != (member.index == primary) {
                return Err(format!(
                    "{} is {:?}, {} is the primary",
                    member.name(),
                    disk.role,
                    MEMBERS[primary]
                ));
            }
        }
        Ok(())
    }
}
