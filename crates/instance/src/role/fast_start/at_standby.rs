//! The standby's side.

use super::arbiter::arbiter_of;
use super::at_primary::described;
use super::state::{Place, Shown, incarnation_of};
use crate::role::running::{Mode, Running};
use standfast_arbitration::arbiter::Arbiter;
use standfast_arbitration::target::{NotNow, Order, TargetRules, View};
use standfast_documents::status::FastStartFailover;
use standfast_environment::config::fast_start_failover_config::FastStartFailoverConfig;
use standfast_environment::state::control::Role;
use standfast_types::{Hint, Scn};
use std::time::Duration;

/// How long a stream has been open when the configuration that it begins with has certainly been taken.
const SETTLED: Duration = Duration::from_secs(1);
/// Pause between attempts to open as the primary.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Orders that may follow one another at once.
const ORDERS_MAX: usize = 3;

pub(super) struct AtStandby {
    rules: TargetRules,
    arbiter: Box<dyn Arbiter>,
    observer: String,
    /// A value that changes with every frame of the source, and when it last did, on the caller's clock.
    heard: (u64, Duration),
    /// Since when the stream of the source has been open, on the caller's clock.
    streams_since: Option<Duration>,
    /// Not before this time another attempt to open as the primary.
    try_at: Duration,
}

impl AtStandby {
    pub fn new(running: &Running, config: &FastStartFailoverConfig, now: Duration) -> AtStandby {
        let name = &running.environment.config.instance.name;
        AtStandby {
            rules: TargetRules::new(name, config.settings(), now),
            arbiter: arbiter_of(running, config),
            observer: config.observer.clone(),
            heard: (0, now),
            streams_since: None,
            try_at: now,
        }
    }

    /// Whether it was made for this observer.
    pub fn is_for(&self, config: &FastStartFailoverConfig) -> bool {
        self.observer == config.observer
    }

    pub fn look(
        &mut self,
        running: &Running,
        config: &FastStartFailoverConfig,
        order: Option<u64>,
        clock: &dyn Fn() -> Duration,
    ) -> Shown {
        self.rules.set_settings(config.settings());
        let mut place = None;
        for _ in 0..ORDERS_MAX {
            let Some(view) = self.view(running, order, clock()) else { return Shown::default() };
            match self.rules.decide(clock(), &view) {
                Order::Wait(_) => break,
                Order::Ask(ask) => {
                    let answer = self.arbiter.ask(&ask);
                    self.rules.answered(clock(), answer);
                }
                Order::TakeOver { has_all } => {
                    place = Some(Place { has_all });
                    if order.is_none() && clock() >= self.try_at {
                        take_over(running, clock().saturating_sub(self.heard.1), has_all);
                        self.try_at = clock() + TRY_AGAIN;
                    }
                    break;
                }
            }
        }
        let document = self.view(running, order, clock()).map(|view| self.document(config, &view, clock()));
        Shown { document, place, ..Shown::default() }
    }

    fn view(&mut self, running: &Running, order: Option<u64>, now: Duration) -> Option<View> {
        let environment = &running.environment;
        let (end, frames, is_sound) = match &*running.mode() {
            Mode::Standby(standby) => {
                let shared = standby.standby.shared();
                (shared.hardened(), shared.last_heard_us(), shared.stopped().databases.is_empty())
            }
            _ => return None,
        };
        if frames != self.heard.0 {
            self.heard = (frames, now);
        }
        let (incarnation, is_direct) = environment.of_control(|control| {
            // What another instance forwards is not heard from the primary.
            let source = control.upstream.as_ref();
            let is_direct = source.is_some_and(|source| source.role == Role::Primary.of_peer());
            (incarnation_of(control), is_direct && control.superseded_by.is_none())
        });
        // A stream begins with the configuration of the primary.
        self.streams_since = running.is_streaming().then(|| self.streams_since.unwrap_or(now));
        let is_enabled_there = self.streams_since.is_some_and(|since| now.saturating_sub(since) >= SETTLED);
        let is_able = is_sound
            && is_direct
            && end > Scn::ZERO
            && running.gap().is_none()
            && !running.is_stopping()
            && running.check_right().is_ok();
        Some(View { incarnation, heard: self.heard.1, end, is_able, is_enabled_there, order })
    }

    fn document(&self, config: &FastStartFailoverConfig, view: &View, now: Duration) -> FastStartFailover {
        let record = self.rules.record();
        let target = record.and_then(|record| record.standing.target()).unwrap_or_default();
        let not_now = self.rules.takes_over(now, view).err();
        let is_observed = self.arbiter.error().is_none() && not_now != Some(NotNow::NoArbiter);
        let status = match &not_now {
            // The record that was seen last may have been replaced.
            _ if !is_observed => "UNOBSERVED",
            Some(NotNow::NotTarget) if target.is_empty() => "UNSYNCHRONIZED",
            Some(NotNow::NotTarget) => "BYSTANDER",
            Some(NotNow::NotAble) => "NOT READY",
            Some(NotNow::LacksRedo) => "LACKS REDO",
            Some(NotNow::NoArbiter | NotNow::PrimaryHeard) | None => "SYNCHRONIZED",
        };
        FastStartFailover {
            status: Some(status.into()),
            target: Some(target.to_owned()),
            ..described(config, is_observed, self.arbiter.error())
        }
    }
}

/// Opens this standby as the primary: the observer has given it the primary's place.
fn take_over(running: &Running, silent: Duration, has_all: bool) {
    let alert = &running.environment.alert;
    let why = match has_all {
        true => "it acknowledged only what this standby has",
        false => "an operator has ordered the failover, and it acknowledged alone",
    };
    alert.say(format!(
        "FAST-START FAILOVER: the primary has been silent for {:.1} s, to this standby and to the observer; {why}",
        silent.as_secs_f64()
    ));
    if !has_all {
        // Reports what it finds.
        running.known_complete();
    }
    match running.promote(false, false) {
        Ok(done) => alert.say(format!("fast-start failover complete: primary from SCN {}", done.branch)),
        Err(error) => alert.say(format!(
            "FAST-START FAILOVER FAILED, tried again every {} s: {}",
            TRY_AGAIN.as_secs(),
            error.in_one_line()
        )),
    }
}
