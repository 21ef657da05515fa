//! The state of one destination, as a pure machine: events in, events for the alert log out. It knows no
//! socket, thread or clock; `now` is the time since any fixed moment.
//!
//! ```text
//!               connect_due            resolved                  logged / buffered
//!  Connecting ─────────────> Resolving ─────────> Streaming <─────────────────────> CatchingUp
//!     ^  ^─────────── lost ──────┴────────────────────┴───────────────────────────────┘
//!     └── after reopen ── Failed <── refused, max_failure
//! ```
//!
//! Apart from the phase stands whether commits wait for it (`Standing`). A synchronous destination is required from its
//! first synchronisation, which its primary remembers over restarts, until it has kept a commit waiting for the net
//! timeout or has announced that it stops; then, as configured, it is degraded until it has caught up, or commits stall.
//! Both are reported. What the instance does itself (it stops, changes its role, takes another configuration, cannot read
//! its own redo) is no failure of the destination.

use crate::error::{Refusal, RefusalKind, RefuseCode};
use crate::event::SenderEvent;
use crate::identity::Incarnation;
use crate::siblings::Others;
use crate::stopped::StoppedDatabases;
use crate::verified::VerifiedDatabases;
use serde::{Deserialize, Serialize};
use standfast_types::Scn;
use std::collections::VecDeque;
use std::time::Duration;

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// Different reasons why attempts fail that are reported while a destination stays away.
const REASONS_SAID_MAX: usize = 4;
/// The wait of a commit is known to the net timeout divided by this.
const MARKS_PER_TIMEOUT: u32 = 16;

/// When a destination counts as having redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportMode {
    /// When it is in the standby log on disk.
    SyncAffirm,
    /// When it is in the standby's memory.
    #[serde(rename = "fastsync")]
    FastSync,
    /// Commits never wait for it.
    Async,
}

/// What happens when a synchronous destination has kept a commit waiting for the net timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// Commits go on without it until it has caught up (as Oracle's maximum availability).
    Degrade,
    /// Commits wait as long as it takes.
    Stall,
    /// As `Degrade` while another destination protects them, else as `Stall` (maximum protection).
    StallIfLast,
}

/// The attributes of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationConfig {
    /// Its name in messages.
    pub name: String,
    /// When it counts as having redo.
    pub mode: TransportMode,
    /// Longest wait of a commit for it, and longest silence of a connection.
    pub net_timeout: Duration,
    /// Longest pause between two attempts to connect; they begin at 50 ms and double.
    pub reopen: Duration,
    /// Attempts in a row that may fail before it is given up; 0 = any number.
    pub max_failure: u32,
    /// Another one of its group takes over when it is given up: until then commits wait on, up to the net timeout.
    pub grouped: bool,
    /// When the net timeout passes.
    pub on_timeout: OnTimeout,
    /// Longest wait for it after another synchronous destination has acknowledged (DATA_GUARD_SYNC_LATENCY); zero: as
    /// long as the net timeout.
    pub sync_latency: Duration,
}

/// What is going on with the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for the next attempt, or in it.
    Connecting {
        /// Not before.
        retry_at: Duration,
    },
    /// Connected; both ends find out where to go on.
    Resolving,
    /// Fed from the log buffer.
    Streaming,
    /// Fed from the logs.
    CatchingUp,
    /// Refused or given up.
    Failed {
        /// Why; `None` when `max_failure` was reached.
        code: Option<RefuseCode>,
        /// Next attempt; `None` when only `enable` brings one.
        retry_at: Option<Duration>,
    },
}

impl Phase {
    /// One word for status output.
    pub fn word(&self) -> &'static str {
        match self {
            Phase::Connecting { .. } => "connecting",
            Phase::Resolving => "resolving",
            Phase::Streaming => "streaming",
            Phase::CatchingUp => "catching_up",
            Phase::Failed { .. } => "failed",
        }
    }
}

/// Whether commits wait for the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is asynchronous: never.
    Optional,
    /// They do.
    Required,
    /// They do, and have for longer than the net timeout.
    Stalled,
    /// They do not yet: it has not been synchronised since it was configured. They will when it has caught up.
    New,
    /// They did, until it kept them waiting too long. They will again when it has caught up.
    Degraded,
    /// It follows another primary: no commit may return any more.
    Fenced,
}

/// See the module.
#[derive(Debug)]
pub struct Destination {
    config: DestinationConfig,
    phase: Phase,
    standing: Standing,
    received: Scn,
    hardened: Scn,
    applied: Scn,
    passed: Option<Scn>,
    /// As last heard, also of a connection before.
    stopped: StoppedDatabases,
    verified: VerifiedDatabases,
    captured: Scn,
    /// Positions not acknowledged with the time by which they were captured, oldest first, at least
    /// net_timeout / MARKS_PER_TIMEOUT apart.
    outstanding: VecDeque<(Scn, Duration)>,
    /// As last seen, before any decision to go on without this one.
    others: Others,
    /// Since when another one has what the oldest of `outstanding` waits for.
    others_had: Option<Duration>,
    /// While degraded: a captured position and when; its quick acknowledgement shows that it has caught up.
    catch_up: Option<(Scn, Duration)>,
    heard: Duration,
    backoff: Duration,
    failures: u32,
    last_refusal: Option<Refusal>,
    /// Why the instance itself last ended a stream, until the next acknowledgement.
    own_trouble: Option<String>,
    /// Why attempts have failed since it last answered, as far as that was reported.
    said: Vec<String>,
    /// The instance has ended this destination: nothing decides about commits any more.
    ended: bool,
    events: Vec<SenderEvent>,
}

impl Destination {
    /// A destination that may be connected at once. A synchronous one that `counts` is required from the start, so that a
    /// primary that restarts beside an unreachable standby does not acknowledge anything unprotected before the net
    /// timeout has passed. One that has never been synchronised does not count: nothing is protected by waiting for it.
    pub fn new(config: DestinationConfig, counts: bool, now: Duration) -> Destination {
        let standing = match config.mode {
            TransportMode::Async => Standing::Optional,
            _ if counts => Standing::Required,
            _ => Standing::New,
        };
        Destination {
            config,
            phase: Phase::Connecting { retry_at: now },
            standing,
            received: Scn::ZERO,
            hardened: Scn::ZERO,
            passed: None,
            applied: Scn::ZERO,
            stopped: StoppedDatabases::default(),
            verified: VerifiedDatabases::default(),
            captured: Scn::ZERO,
            outstanding: VecDeque::new(),
            others: Others::default(),
            others_had: None,
            catch_up: None,
            heard: now,
            backoff: FIRST_BACKOFF,
            failures: 0,
            last_refusal: None,
            own_trouble: None,
            said: Vec::new(),
            ended: false,
            events: Vec::new(),
        }
    }

    /// The attributes.
    pub fn config(&self) -> &DestinationConfig {
        &self.config
    }

    /// What is going on with the connection.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Whether commits wait for it, and why or why not.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Whether commits wait for it.
    pub fn is_required(&self) -> bool {
        matches!(self.standing, Standing::Required | Standing::Stalled | Standing::Fenced)
    }

    /// The primary goes on without it no sooner than this after a commit has begun to wait, unless an operator at the primary
    /// says so, or the standby itself has refused redo. Zero: at once, or it does so already.
    pub fn shortest_wait(&self) -> Duration {
        let DestinationConfig { net_timeout, sync_latency, max_failure, grouped, .. } = self.config;
        // A connection that is lost may be enough for a destination with MAX_FAILURE, or one of a group.
        if self.standing != Standing::Required || self.ended || grouped || max_failure > 0 {
            return Duration::ZERO;
        }
        if sync_latency.is_zero() { net_timeout } else { net_timeout.min(sync_latency) }
    }

    /// Since when the oldest commit has waited for it that does, by the caller's clock.
    pub fn waited_for_since(&self) -> Option<Duration> {
        self.outstanding.front().map(|(_, since)| *since)
    }

    /// Newest position that it has, in the sense of its mode. It falls when a standby comes back with less.
    pub fn acknowledged(&self) -> Scn {
        match (self.standing, self.config.mode) {
            (Standing::Fenced, _) => Scn::ZERO,
            (_, TransportMode::FastSync) => self.received,
            _ => self.hardened,
        }
    }

    /// Databases there of which `applied` does not speak, as last heard.
    pub fn stopped_databases(&self) -> &StoppedDatabases {
        &self.stopped
    }

    /// When it was last heard, by the clock of the caller; `None`: never in this connection or one before.
    pub fn last_heard(&self) -> Option<Duration> {
        (self.received > Scn::ZERO).then_some(self.heard)
    }

    /// Received, hardened and applied there, as last heard.
    pub fn positions(&self) -> (Scn, Scn, Scn) {
        (self.received, self.hardened, self.applied)
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<SenderEvent> {
        std::mem::take(&mut self.events)
    }

    /// Whether an attempt to connect is due, else when to ask again; `None`: not before `enable`.
    pub fn connect_due(&self, now: Duration) -> Option<Duration> {
        let (Phase::Connecting { retry_at } | Phase::Failed { retry_at: Some(retry_at), .. }) = self.phase
        else {
            return None;
        };
        Some(retry_at.saturating_sub(now))
    }

    /// A connection stands; the handshake begins.
    pub fn connected(&mut self, now: Duration) {
        self.phase = Phase::Resolving;
        self.heard = now;
    }

    /// What the standby has is acknowledged only up to `passed`: it forwards synchronously. To be called before `resolved`.
    pub fn passes_on(&mut self, passed: Option<Scn>) {
        self.passed = passed;
    }

    /// The handshake is done. What the standby held beyond `from` counts again only when it has compared it.
    pub fn resolved(&mut self, now: Duration, from: Scn, held_end: Scn, applied: Scn, captured: Scn) {
        self.captured = self.captured.max(captured);
        self.phase = Phase::Streaming;
        self.heard = now;
        self.last_refusal = None;
        let counts = self.passed.map_or(from, |passed| passed.min(from));
        (self.received, self.hardened, self.applied) = (counts, counts, applied);
        self.events.push(SenderEvent::Connected { from, held_end: (held_end > from).then_some(held_end) });
        self.progress(now);
    }

    /// The next bytes come from the logs (`true`) or from the log buffer.
    pub fn feeding(&mut self, from_logs: bool, at: Scn) {
        match (&self.phase, from_logs) {
            (Phase::Streaming, true) => {
                self.phase = Phase::CatchingUp;
                self.events.push(SenderEvent::CatchingUp { from: at });
            }
            (Phase::CatchingUp, false) => {
                self.phase = Phase::Streaming;
                self.events.push(SenderEvent::FromBuffer { from: at });
            }
            _ => {}
        }
    }

    /// An acknowledgement arrived.
    pub fn acked(&mut self, now: Duration, received: Scn, hardened: Scn, applied: Scn, captured: Scn) {
        if !self.is_connected() {
            return;
        }
        self.heard = now;
        self.failures = 0;
        self.own_trouble = None;
        self.backoff = FIRST_BACKOFF;
        self.captured = self.captured.max(captured);
        self.received = self.received.max(received);
        self.hardened = self.hardened.max(hardened);
        self.applied = self.applied.max(applied);
        self.progress(now);
    }

    /// The standby has said which databases redo is not applied to. Each is reported when it stops and when it
    /// goes on, not when it is only told again.
    pub fn stopped(&mut self, now: StoppedDatabases) {
        self.events.extend(now.news_since(&self.stopped));
        self.stopped = now;
    }

    /// The standby has said what verification has found of its databases. Reported as [`Destination::stopped`] is.
    pub fn verified(&mut self, now: VerifiedDatabases) {
        self.events.extend(now.news_since(&self.verified));
        self.verified = now;
    }

    /// What verification has found of the databases of the standby, as it was last told.
    pub fn verified_databases(&self) -> &VerifiedDatabases {
        &self.verified
    }

    /// The instance ends this destination: it stops, changes its role, or ships in another way from now on. That is no
    /// failure, and what commits wait for does not change by anything that follows: only an acknowledgement that was on
    /// its way can still release some.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether nothing is decided about this destination any more.
    fn is_settled(&self) -> bool {
        self.ended || self.standing == Standing::Fenced
    }

    /// The connection is lost, or an attempt failed.
    pub fn lost(&mut self, now: Duration, reason: impl Into<String>) {
        if self.ended && self.is_connected() {
            self.events.push(SenderEvent::Disconnected { reason: reason.into() });
            self.phase = Phase::Connecting { retry_at: now };
            return;
        }
        if self.is_settled() {
            return;
        }
        let was_connected = self.is_connected() || self.phase == Phase::Resolving;
        let reason = reason.into();
        if was_connected || self.failures == 0 {
            self.said.clear();
        }
        // A destination that stays away is reported once for each reason, not at every attempt. That there is no listener says
        // nothing of what it will refuse later.
        let is_news = self.said.len() < REASONS_SAID_MAX && !self.said.contains(&reason);
        if is_news {
            self.said.push(reason.clone());
        }
        self.lose(now, reason, is_news);
    }

    /// The connection has ended because another stream is needed from here on, or because this instance could not go on
    /// with it: no failure of the destination.
    pub fn begins_anew(&mut self, now: Duration, reason: impl Into<String>) {
        if self.is_settled() {
            return;
        }
        let reason = reason.into();
        // A stream that had begun is reported every time, as its begin was.
        if self.is_connected() || self.own_trouble.as_ref() != Some(&reason) {
            self.events.push(SenderEvent::Disconnected { reason: reason.clone() });
            self.own_trouble = Some(reason);
        }
        self.catch_up = None;
        // REOPEN=0 asks for one attempt after a failure; this is none, and what ends the stream may last a moment.
        self.phase = Phase::Connecting { retry_at: now + self.next_pause().max(FIRST_BACKOFF) };
    }

    fn lose(&mut self, now: Duration, reason: String, report: bool) {
        if report {
            self.events.push(SenderEvent::Disconnected { reason });
        }
        self.failures += 1;
        self.catch_up = None;
        if self.config.max_failure > 0 && self.failures >= self.config.max_failure {
            self.phase = Phase::Failed { code: None, retry_at: None };
            self.events.push(SenderEvent::GaveUp { failures: self.failures });
            if !self.config.grouped {
                self.degrade("it was given up after max_failure attempts");
            }
            return;
        }
        self.phase = Phase::Connecting { retry_at: now + self.next_pause() };
    }

    /// One end refused to go on.
    pub fn refused(&mut self, now: Duration, refusal: Refusal) {
        if self.is_settled() {
            return;
        }
        let kind = refusal.code.kind();
        let news = self.last_refusal.as_ref() != Some(&refusal);
        if kind == RefusalKind::Leaving {
            return self.leaves(now, refusal);
        }
        if kind == RefusalKind::NoAnswerYet {
            let reason = refusal.to_string();
            self.last_refusal = Some(refusal);
            return self.lose(now, reason, news);
        }
        self.failures += 1;
        self.catch_up = None;
        let pause = match kind {
            RefusalKind::ForGood => self.config.reopen,
            _ => self.next_pause(),
        };
        self.phase = Phase::Failed { code: Some(refusal.code), retry_at: Some(now + pause) };
        if news {
            self.events.push(SenderEvent::Refused(refusal.clone()));
            self.last_refusal = Some(refusal);
        }
        if kind == RefusalKind::ForGood {
            self.degrade("it was refused");
        }
    }

    /// The standby has announced that it stops in good order: no failure, and nothing to wait for.
    fn leaves(&mut self, now: Duration, refusal: Refusal) {
        self.events.push(SenderEvent::Disconnected { reason: refusal.to_string() });
        self.catch_up = None;
        self.phase = Phase::Connecting { retry_at: now + self.next_pause().max(FIRST_BACKOFF) };
        // In a group another one takes over: until then commits wait on.
        if !self.config.grouped {
            self.degrade("it is being stopped");
        }
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.backoff.min(self.config.reopen);
        self.backoff = (self.backoff * 2).min(self.config.reopen);
        pause
    }

    /// The peer knows a newer incarnation: from now on nothing is acknowledged, whatever the policy.
    pub fn fenced(&mut self, incarnation: Incarnation, peer: impl Into<String>) {
        self.phase = Phase::Failed { code: Some(RefuseCode::Fenced), retry_at: None };
        self.standing = Standing::Fenced;
        self.events.push(SenderEvent::Fenced { incarnation, peer: peer.into() });
    }

    /// To be told under the lock of all siblings before `tick`, `lost` and `refused`: these may let this one go.
    pub fn see(&mut self, others: Others) {
        self.others = others;
    }

    /// Other rules from now on; a destination for which commits do not wait at the moment stays so.
    pub fn set_policy(&mut self, on_timeout: OnTimeout, sync_latency: Duration) {
        self.config.on_timeout = on_timeout;
        self.config.sync_latency = sync_latency;
    }

    /// Another one of its group does its work: commits do not wait for it before it has caught up.
    pub fn let_go(&mut self) {
        if !self.ended && matches!(self.standing, Standing::Required | Standing::Stalled) {
            self.standing = Standing::Degraded;
            self.outstanding.clear();
            let (acknowledged, captured) = (self.acknowledged(), self.captured);
            let reason = "another destination of its group is in use".into();
            self.events.push(SenderEvent::Degraded { reason, acknowledged, captured });
        }
    }

    /// Whether commits wait for it and it keeps up. One that this instance has ended is nothing to count on.
    pub fn is_synchronised(&self) -> bool {
        self.standing == Standing::Required && !self.ended
    }

    /// An operator wants another attempt now.
    pub fn enable(&mut self, now: Duration) {
        if matches!(self.phase, Phase::Failed { .. } | Phase::Connecting { .. })
            && self.standing != Standing::Fenced
        {
            self.failures = 0;
            self.backoff = FIRST_BACKOFF;
            self.phase = Phase::Connecting { retry_at: now };
        }
    }

    /// To be called every net_timeout / 16 or so. Returns why the connection is to be closed, when it is.
    pub fn tick(&mut self, now: Duration, captured: Scn) -> Option<String> {
        self.captured = self.captured.max(captured);
        if self.ended {
            return None;
        }
        self.mark_outstanding(now);
        let waited = self.outstanding.front().map_or(Duration::ZERO, |(_, since)| now.saturating_sub(*since));
        if self.standing == Standing::Required && waited >= self.config.net_timeout {
            self.timed_out(waited);
        } else if self.standing == Standing::Required && self.is_later_than_others(now) {
            let latency = self.config.sync_latency.as_secs_f64();
            self.degrade(&format!(
                "another destination had acknowledged {latency:.1} s before (sync_latency)"
            ));
        } else if self.standing == Standing::Stalled {
            self.degrade("another destination protects commits");
        }
        let silent = now.saturating_sub(self.heard);
        let silent_too_long = self.is_connected() && silent >= self.config.net_timeout;
        silent_too_long.then(|| format!("no answer for {:.1} s (net_timeout)", silent.as_secs_f64()))
    }

    fn timed_out(&mut self, waited: Duration) {
        match self.config.on_timeout {
            OnTimeout::Degrade => {
                let reason =
                    format!("it kept a commit waiting for {:.1} s (net_timeout)", waited.as_secs_f64());
                self.degrade(&reason);
            }
            OnTimeout::StallIfLast if self.others.synchronised => {
                let reason = format!(
                    "it kept a commit waiting for {:.1} s (net_timeout), and another destination protects commits",
                    waited.as_secs_f64()
                );
                self.degrade(&reason);
            }
            OnTimeout::Stall | OnTimeout::StallIfLast => {
                self.standing = Standing::Stalled;
                let (acknowledged, captured) = (self.acknowledged(), self.captured);
                self.events.push(SenderEvent::Stalled { acknowledged, captured, waited });
            }
        }
    }

    /// Whether what the oldest commit waits for has been elsewhere for longer than the latency that is allowed.
    fn is_later_than_others(&mut self, now: Duration) -> bool {
        let oldest = self.outstanding.front().map(|(scn, _)| *scn);
        let had = oldest.is_some_and(|scn| self.others.acknowledged >= scn);
        let since = had.then(|| self.others_had.unwrap_or(now));
        self.others_had = since;
        let latency = self.config.sync_latency;
        !latency.is_zero() && since.is_some_and(|since| now.saturating_sub(since) >= latency)
    }

    /// Whether commits may go on without it.
    fn may_be_let_go(&self) -> bool {
        match (self.standing, self.config.on_timeout) {
            (Standing::Required, OnTimeout::Degrade) => true,
            (Standing::Required | Standing::Stalled, OnTimeout::StallIfLast) => self.others.synchronised,
            _ => false,
        }
    }

    fn degrade(&mut self, reason: &str) {
        if self.may_be_let_go() {
            self.standing = Standing::Degraded;
            self.outstanding.clear();
            self.others_had = None;
            let (acknowledged, captured) = (self.acknowledged(), self.captured);
            self.events.push(SenderEvent::Degraded { reason: reason.into(), acknowledged, captured });
        }
    }

    fn is_connected(&self) -> bool {
        matches!(self.phase, Phase::Streaming | Phase::CatchingUp)
    }

    fn mark_outstanding(&mut self, now: Duration) {
        if !matches!(self.standing, Standing::Required | Standing::Stalled) {
            return;
        }
        let apart = self.config.net_timeout / MARKS_PER_TIMEOUT;
        let (scn, since) = self.outstanding.back().copied().unwrap_or((self.acknowledged(), Duration::ZERO));
        if self.captured > scn && (self.outstanding.is_empty() || now.saturating_sub(since) >= apart) {
            self.outstanding.push_back((self.captured, now));
        }
    }

    /// Draws the conclusions from a new acknowledged position.
    fn progress(&mut self, now: Duration) {
        let acknowledged = self.acknowledged();
        while self.outstanding.front().is_some_and(|(scn, _)| *scn <= acknowledged) {
            self.outstanding.pop_front();
            self.others_had = None;
        }
        let waits_long = self
            .outstanding
            .front()
            .is_some_and(|(_, since)| now.saturating_sub(*since) >= self.config.net_timeout);
        if self.standing == Standing::Stalled && !waits_long {
            self.standing = Standing::Required;
            self.events.push(SenderEvent::StallEnded { acknowledged });
        }
        if matches!(self.standing, Standing::Degraded | Standing::New) && !self.ended {
            self.check_catch_up(now, acknowledged);
        }
    }

    /// Under load the newest position is never acknowledged yet; it has caught up when a position that was the
    /// newest is acknowledged soon after.
    fn check_catch_up(&mut self, now: Duration, acknowledged: Scn) {
        let soon = (self.config.net_timeout / 4).clamp(Duration::from_millis(50), Duration::from_secs(1));
        let (scn, since) = *self.catch_up.get_or_insert((self.captured, now));
        if acknowledged < scn {
            return;
        }
        self.catch_up = None;
        if now.saturating_sub(since) <= soon {
            let event = match self.standing {
                Standing::New => SenderEvent::Synchronised { acknowledged },
                _ => SenderEvent::Resynchronised { acknowledged },
            };
            self.standing = Standing::Required;
            self.events.push(event);
        } else {
            self.catch_up = Some((self.captured, now));
        }
    }
}
