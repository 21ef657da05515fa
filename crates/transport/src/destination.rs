//! The state of one destination, as a pure machine: takes events, returns events for the alert log. It has no socket,
//! thread or clock; `now` is the time since any fixed moment.
//!
//! ```text
//!               connect_due            resolved                  logged / buffered
//!  Connecting ─────────────> Resolving ─────────> Streaming <─────────────────────> CatchingUp
//!     ^  ^─────────── lost ──────┴────────────────────┴───────────────────────────────┘
//!     └── after reopen ── Failed <── refused, max_failure
//! ```
//!
//! Whether commits wait for the destination (`Standing`) is independent of the phase. A synchronous destination is
//! required from its first synchronisation on, which the primary remembers across restarts. It stays required until it
//! has kept a commit waiting for the net timeout (or `sync_latency`), has been refused for good or abandoned, or has
//! announced its stop. Then, as configured, it is degraded until it has caught up, or commits stall; both are reported.
//! Actions of the instance itself (it stops, changes its role or configuration, or cannot read its own redo) are no
//! failure of the destination.

use crate::destination_config::{DestinationConfig, OnTimeout, TransportMode};
use crate::destination_set::Others;
use crate::error::{Refusal, RefusalKind, RefuseCode};
use crate::event::SenderEvent;
use crate::identity::Incarnation;
use crate::stopped::StoppedDatabases;
use crate::verified::VerifiedDatabases;
use serde::{Deserialize, Serialize};
use standfast_types::Scn;
use std::collections::VecDeque;
use std::time::Duration;

#[cfg(test)]
mod tests;

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// Number of different reasons for failed attempts that are reported while a destination stays away.
const REASONS_REPORTED_MAX: usize = 4;
/// How long a commit has waited is known with a resolution of the net timeout divided by this.
const MARKS_PER_TIMEOUT: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for the next attempt, or in it.
    Connecting {
        retry_at: Duration,
    },
    /// Connected; the two ends agree on where to continue.
    Resolving,
    Streaming,
    CatchingUp,
    Failed {
        /// The reason; `None` when `max_failure` was reached.
        code: Option<RefuseCode>,
        /// Time of the next attempt; `None`: only `enable` starts one.
        retry_at: Option<Duration>,
    },
}

impl Phase {
    /// Returns one word for status output.
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
    /// No: it is asynchronous.
    Optional,
    Required,
    /// Yes, and they have waited for longer than the net timeout.
    Stalled,
    /// Not yet: it has never been synchronised since it was configured. They wait for it once it has caught up.
    New,
    /// Not any more: it kept them waiting too long, failed or left. They wait for it again once it has caught up.
    Degraded,
    /// It follows another primary: no commit may return any more.
    Fenced,
}

/// State machine of one destination.
#[derive(Debug)]
pub struct Destination {
    config: DestinationConfig,
    phase: Phase,
    standing: Standing,
    received: Scn,
    hardened: Scn,
    applied: Scn,
    cascade_limit: Option<Scn>,
    /// As last reported, also over an earlier connection.
    stopped: StoppedDatabases,
    verified: VerifiedDatabases,
    captured: Scn,
    /// Positions not acknowledged, each with a time by which it was captured, oldest first, at least net_timeout /
    /// MARKS_PER_TIMEOUT apart.
    outstanding: VecDeque<(Scn, Duration)>,
    /// The other destinations, as read before the last decision that could degrade this one.
    others: Others,
    /// Since when another destination has acknowledged the oldest position of `outstanding`.
    others_had: Option<Duration>,
    /// While degraded or new: a captured position and its time. If it is acknowledged soon, the destination has caught
    /// up.
    catch_up: Option<(Scn, Duration)>,
    heard: Duration,
    backoff: Duration,
    failures: u32,
    last_refusal: Option<Refusal>,
    /// Why the instance itself last ended a stream; cleared by the next acknowledgement.
    own_error: Option<String>,
    /// Reported reasons of the attempts that failed since it last answered.
    reported: Vec<String>,
    /// The instance has ended this destination: it no longer affects any decision about commits.
    ended: bool,
    events: Vec<SenderEvent>,
}

impl Destination {
    /// Creates a destination that may be connected immediately. A synchronous destination with `counts` is required
    /// from the start: a primary that restarts while the standby is unreachable then acknowledges nothing unprotected
    /// before the net timeout has passed. A destination that has never been synchronised does not count: waiting for it
    /// protects nothing.
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
            cascade_limit: None,
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
            own_error: None,
            reported: Vec::new(),
            ended: false,
            events: Vec::new(),
        }
    }

    pub fn config(&self) -> &DestinationConfig {
        &self.config
    }

    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Whether commits wait for it, and why or why not.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    pub fn is_required(&self) -> bool {
        matches!(self.standing, Standing::Required | Standing::Stalled | Standing::Fenced)
    }

    /// Shortest time from the begin of a commit's wait until the primary continues without this destination, unless an
    /// operator at the primary decides otherwise or the standby itself has refused redo. Zero: the primary may continue
    /// immediately, or already does.
    pub fn shortest_wait(&self) -> Duration {
        let DestinationConfig { net_timeout, sync_latency, max_failure, grouped, .. } = self.config;
        // With MAX_FAILURE or in a group, a lost connection may be enough.
        if self.standing != Standing::Required || self.ended || grouped || max_failure > 0 {
            return Duration::ZERO;
        }
        if sync_latency.is_zero() { net_timeout } else { net_timeout.min(sync_latency) }
    }

    /// Since when the oldest commit that waits for it has waited, on the caller's clock.
    pub fn waited_for_since(&self) -> Option<Duration> {
        self.outstanding.front().map(|(_, since)| *since)
    }

    /// Newest position that it has, received or hardened depending on the mode. Falls when a standby comes back with
    /// less.
    pub fn acknowledged(&self) -> Scn {
        match (self.standing, self.config.mode) {
            (Standing::Fenced, _) => Scn::ZERO,
            (_, TransportMode::FastSync) => self.received,
            _ => self.hardened,
        }
    }

    /// Whether it has announced its stop and has not come back.
    pub fn has_left(&self) -> bool {
        self.last_refusal.as_ref().is_some_and(|refusal| refusal.code.kind() == RefusalKind::Leaving)
    }

    /// Databases there for which `applied` does not hold, as last reported.
    pub fn stopped_databases(&self) -> &StoppedDatabases {
        &self.stopped
    }

    /// When it last answered, on the caller's clock; `None`: never, over any connection.
    pub fn last_heard(&self) -> Option<Duration> {
        (self.received > Scn::ZERO).then_some(self.heard)
    }

    /// Received, hardened and applied there, as last reported.
    pub fn positions(&self) -> (Scn, Scn, Scn) {
        (self.received, self.hardened, self.applied)
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Takes the events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<SenderEvent> {
        std::mem::take(&mut self.events)
    }

    /// Time until the next attempt to connect, zero when it is due; `None`: none before `enable`, or it is connected.
    pub fn connect_due(&self, now: Duration) -> Option<Duration> {
        let (Phase::Connecting { retry_at } | Phase::Failed { retry_at: Some(retry_at), .. }) = self.phase
        else {
            return None;
        };
        Some(retry_at.saturating_sub(now))
    }

    /// A connection is open; the handshake begins.
    pub fn connected(&mut self, now: Duration) {
        self.phase = Phase::Resolving;
        self.heard = now;
    }

    /// Limits the acknowledged part of the redo that the standby holds to `limit`, because the standby forwards
    /// synchronously. Must be called before `resolved`.
    pub fn set_cascade_limit(&mut self, limit: Option<Scn>) {
        self.cascade_limit = limit;
    }

    /// The handshake is complete. Redo that the standby holds beyond `from` counts only after the standby has compared
    /// it.
    pub fn resolved(&mut self, now: Duration, from: Scn, held_end: Scn, applied: Scn, captured: Scn) {
        self.captured = self.captured.max(captured);
        self.phase = Phase::Streaming;
        self.heard = now;
        self.last_refusal = None;
        let counts = self.cascade_limit.map_or(from, |limit| limit.min(from));
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

    pub fn acked(&mut self, now: Duration, received: Scn, hardened: Scn, applied: Scn, captured: Scn) {
        if !self.is_connected() {
            return;
        }
        self.heard = now;
        self.failures = 0;
        self.own_error = None;
        self.backoff = FIRST_BACKOFF;
        self.captured = self.captured.max(captured);
        self.received = self.received.max(received);
        self.hardened = self.hardened.max(hardened);
        self.applied = self.applied.max(applied);
        self.progress(now);
    }

    /// The standby has reported the databases to which redo is not applied. Each one is an event when it stops and when
    /// it continues, not when it is only reported again.
    pub fn stopped(&mut self, now: StoppedDatabases) {
        self.events.extend(SenderEvent::of_stopped(&now, &self.stopped));
        self.stopped = now;
    }

    /// The standby has reported its verification findings. Events as for [`Destination::stopped`].
    pub fn verified(&mut self, now: VerifiedDatabases) {
        self.events.extend(SenderEvent::of_verified(&now, &self.verified));
        self.verified = now;
    }

    /// The standby's verification findings, as last reported.
    pub fn verified_databases(&self) -> &VerifiedDatabases {
        &self.verified
    }

    /// The instance ends this destination: the instance stops, changes its role, or ships redo in another way from now
    /// on. This is no failure. Nothing that follows changes whether commits wait for the destination; only an
    /// acknowledgement already on its way can still release commits.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether nothing more is decided about this destination.
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
            self.reported.clear();
        }
        // While a destination stays away, each reason is reported once, not at every attempt. The reasons differ: first
        // nothing listens, later it may refuse.
        let is_new = self.reported.len() < REASONS_REPORTED_MAX && !self.reported.contains(&reason);
        if is_new {
            self.reported.push(reason.clone());
        }
        self.lose(now, reason, is_new);
    }

    /// The connection ended because another stream is needed, or because this instance could not continue the stream.
    /// No failure of the destination.
    pub fn restarts_stream(&mut self, now: Duration, reason: impl Into<String>) {
        if self.is_settled() {
            return;
        }
        self.forget_memory();
        let reason = reason.into();
        // The end of a stream is reported every time, as its begin was.
        if self.is_connected() || self.own_error.as_ref() != Some(&reason) {
            self.events.push(SenderEvent::Disconnected { reason: reason.clone() });
            self.own_error = Some(reason);
        }
        self.catch_up = None;
        // REOPEN=0 asks for one attempt after a failure. This is no failure, and its cause may last a moment.
        self.phase = Phase::Connecting { retry_at: now + self.next_pause().max(FIRST_BACKOFF) };
    }

    /// Without a connection it is not known whether the standby still has what was only in its memory.
    fn forget_memory(&mut self) {
        self.received = self.received.min(self.hardened);
    }

    fn lose(&mut self, now: Duration, reason: String, report: bool) {
        self.forget_memory();
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

    pub fn refused(&mut self, now: Duration, refusal: Refusal) {
        if self.is_settled() {
            return;
        }
        self.forget_memory();
        let kind = refusal.code.kind();
        let changes = self.last_refusal.as_ref() != Some(&refusal);
        if kind == RefusalKind::Leaving {
            return self.leaves(now, refusal);
        }
        if kind == RefusalKind::NoAnswerYet {
            let reason = refusal.to_string();
            self.last_refusal = Some(refusal);
            return self.lose(now, reason, changes);
        }
        self.failures += 1;
        self.catch_up = None;
        let pause = match kind {
            RefusalKind::ForGood => self.config.reopen,
            _ => self.next_pause(),
        };
        self.phase = Phase::Failed { code: Some(refusal.code), retry_at: Some(now + pause) };
        if changes {
            self.events.push(SenderEvent::Refused(refusal.clone()));
            self.last_refusal = Some(refusal);
        }
        if kind == RefusalKind::ForGood {
            self.degrade("it was refused");
        }
    }

    /// The standby has announced a clean shutdown: no failure, and no reason to wait for it.
    fn leaves(&mut self, now: Duration, refusal: Refusal) {
        self.events.push(SenderEvent::Disconnected { reason: refusal.to_string() });
        self.last_refusal = Some(refusal);
        self.catch_up = None;
        self.phase = Phase::Connecting { retry_at: now + self.next_pause().max(FIRST_BACKOFF) };
        // In a group another destination takes over; until then commits keep waiting.
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

    /// Records the other destinations. Must be called under the lock of the destination set before `tick`, `lost` and
    /// `refused`, which may degrade this one.
    pub fn see(&mut self, others: Others) {
        self.others = others;
    }

    /// Changes the rules from now on. A destination that commits do not wait for at the moment stays so.
    pub fn set_policy(&mut self, on_timeout: OnTimeout, sync_latency: Duration) {
        self.config.on_timeout = on_timeout;
        self.config.sync_latency = sync_latency;
    }

    /// Another destination of its group is in use: commits wait for this one only after it has caught up.
    pub fn let_go(&mut self) {
        if !self.ended && matches!(self.standing, Standing::Required | Standing::Stalled) {
            self.standing = Standing::Degraded;
            self.outstanding.clear();
            let (acknowledged, captured) = (self.acknowledged(), self.captured);
            let reason = "another destination of its group is in use".into();
            self.events.push(SenderEvent::Degraded { reason, acknowledged, captured });
        }
    }

    /// Whether commits wait for it and it keeps up. False for a destination that this instance has ended.
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

    /// Checks the timeouts; must be called about every net_timeout / 16. Returns why the connection must be closed, if
    /// so.
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
            self.degrade(match self.config.on_timeout {
                OnTimeout::Degrade => "commits need not wait for it any more",
                OnTimeout::Stall | OnTimeout::StallIfLast => "another destination protects commits",
            });
        } else if self.standing == Standing::Required && self.has_left() && !self.config.grouped {
            // The policy did not allow it when it left.
            self.degrade("it is being stopped");
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

    /// Whether another destination has had the oldest outstanding position for longer than `sync_latency`.
    fn is_later_than_others(&mut self, now: Duration) -> bool {
        let oldest = self.outstanding.front().map(|(scn, _)| *scn);
        let had = oldest.is_some_and(|scn| self.others.acknowledged >= scn);
        let since = had.then(|| self.others_had.unwrap_or(now));
        self.others_had = since;
        let latency = self.config.sync_latency;
        !latency.is_zero() && since.is_some_and(|since| now.saturating_sub(since) >= latency)
    }

    /// Whether commits may continue without it.
    fn may_be_let_go(&self) -> bool {
        match (self.standing, self.config.on_timeout) {
            (Standing::Required | Standing::Stalled, OnTimeout::Degrade) => true,
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

    /// Updates the state for a new acknowledged position.
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

    /// Under load the newest position is never acknowledged yet. The destination has caught up when a position that was
    /// the newest is acknowledged soon after.
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
