//! The primary's side.

use super::arbiter::arbiter_of;
use super::state::{Shown, UNCONFIRMED, incarnation_of};
use crate::role::running::{Running, RunningPrimary};
use standfast_arbitration::arbiter::Arbiter;
use standfast_arbitration::primary::{Candidate, Observed, Order, PrimaryRules, View};
use standfast_documents::status::FastStartFailover;
use standfast_environment::config::destination_config::{DestinationConfig, TransportMode};
use standfast_environment::config::fast_start_failover_config::FastStartFailoverConfig;
use standfast_environment::ship::destination_groups::Ships;
use standfast_environment::state::now::now_us;
use standfast_primary::ship::destinations::Destinations;
use standfast_transport::{DestinationStatus, Right, Standing};
use standfast_types::{Hint, Scn};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Orders that may follow one another at once: to require a member, to ask, to require no longer.
const ORDERS_MAX: usize = 6;

pub(super) struct AtPrimary {
    rules: PrimaryRules,
    arbiter: Box<dyn Arbiter>,
    /// One that was opened again has not reported meanwhile.
    primary: Weak<RunningPrimary>,
    observer: String,
    /// Whether the observer is the one that was asked since fast-start failover was enabled: what that one has decided another
    /// one does not know.
    is_the_observer: bool,
    /// Destinations that have not been heard since their senders were started, and since when, on the caller's clock.
    unheard: BTreeMap<String, Duration>,
}

/// Whether this member could take over without loss, and is the preferred one if there is one.
fn is_candidate(at: &DestinationConfig, config: &FastStartFailoverConfig) -> bool {
    let is_wanted = config.target.is_empty() || config.target == at.name;
    at.transport_mode() == TransportMode::SyncAffirm && at.group == 0 && is_wanted
}

/// Whether there is a member that could take over without loss.
pub(super) fn has_candidate(running: &Running, config: &FastStartFailoverConfig) -> bool {
    eligible_of(running).iter().any(|at| is_candidate(at, config))
}

/// The members that redo is shipped to and that may become primary. Over plain TCP no member is listed, and all may.
fn eligible_of(running: &Running) -> Vec<DestinationConfig> {
    let Ok(members) = running.environment.keeper.members() else { return Vec::new() };
    let may = |name: &str| members.listed_rights(name).is_none_or(|rights| rights.has(Right::Candidate));
    let mut configured = running.configured();
    configured.retain(|at| Destinations::are_shipped_to(at) && may(&at.name));
    configured
}

/// Names of the members that may become primary, this one last.
pub(super) fn names_of_eligible(running: &Running) -> Vec<String> {
    names_with_own(running, &eligible_of(running))
}

fn names_with_own(running: &Running, eligible: &[DestinationConfig]) -> Vec<String> {
    let own = running.environment.config.instance.name.clone();
    eligible.iter().map(|at| at.name.clone()).chain([own]).collect()
}

impl AtPrimary {
    pub fn new(
        running: &Running,
        primary: &Arc<RunningPrimary>,
        config: &FastStartFailoverConfig,
    ) -> AtPrimary {
        let end = primary.threads.shared().buffer.durable();
        let environment = &running.environment;
        let (incarnation, required, observer) = environment.of_control(|control| {
            (incarnation_of(control), control.required.clone(), control.observer.clone())
        });
        let name = &environment.config.instance.name;
        // The opening holds them, unless this instance was promoted.
        let has_started = environment.commit_hold.is_held();
        AtPrimary {
            rules: PrimaryRules::new(name, incarnation, config.settings(), required, end, has_started),
            arbiter: arbiter_of(running, config),
            primary: Arc::downgrade(primary),
            observer: config.observer.clone(),
            is_the_observer: observer.is_empty() || observer == config.observer,
            unheard: BTreeMap::new(),
        }
    }

    /// Whether it was made for this primary and observer.
    pub fn is_for(&self, primary: &Arc<RunningPrimary>, config: &FastStartFailoverConfig) -> bool {
        self.primary.ptr_eq(&Arc::downgrade(primary)) && self.observer == config.observer
    }

    pub fn look(
        &mut self,
        running: &Running,
        primary: &RunningPrimary,
        config: &FastStartFailoverConfig,
        is_suspended: bool,
        clock: &dyn Fn() -> Duration,
    ) -> Shown {
        if !self.is_the_observer {
            running.hold_commits(primary, Some("the observer is another one than before"));
            let before = running.environment.of_control(|control| control.observer.clone());
            let error = format!(
                "it was changed from {before} while fast-start failover was enabled: set it back in standfast.toml, or disable \
                 fast-start failover with `force`"
            );
            let document = described(config, false, Some(&error));
            let document = FastStartFailover { status: Some("STALLED".into()), ..document };
            return Shown { document: Some(document), ..Shown::default() };
        }
        self.rules.set_settings(config.settings());
        let mut orders = 0;
        let view = loop {
            let destinations = primary.destinations().status();
            let view = self.view(running, primary, config, &destinations, is_suspended, clock());
            running.hold_commits(primary, self.why_held(&destinations).as_deref());
            orders += 1;
            if orders > ORDERS_MAX {
                break view;
            }
            match self.rules.decide(clock(), &view) {
                Order::Wait(_) => break view,
                Order::Require(required) => {
                    // A command that changes destinations has the lock: later.
                    let Some(_one) = running.try_one_command() else { break view };
                    // It may have disabled fast-start failover.
                    if !running.role_change().fast_start_failover.is_enabled() {
                        break view;
                    }
                    if let Err(error) = running.put_in_force(&required, &config.observer) {
                        let text = error.in_one_line();
                        running.environment.alert.say(format!("fast-start failover: {text}"));
                        break view;
                    }
                    self.rules.requires(required);
                }
                Order::Ask(ask) => {
                    let answer = self.arbiter.ask(&ask);
                    self.rules.answered(clock(), answer);
                }
                Order::Stop => {
                    running.stop_isolated();
                    break view;
                }
            }
        };
        Shown {
            document: Some(self.document(config, &view)),
            is_alone: is_suspended && self.rules.is_alone(&view),
            ..Shown::default()
        }
    }

    /// Why no commit may return; `None`: those may that every required member has. Also only while commits wait for each
    /// of them: what is configured may have been changed while this instance did not run.
    fn why_held(&self, destinations: &[(DestinationStatus, bool)]) -> Option<String> {
        let is_waited_for = |name: &&String| {
            destinations.iter().any(|(at, _)| {
                let waits = matches!(at.standing, Standing::Required | Standing::Stalled | Standing::Fenced);
                at.name == **name && at.mode == standfast_transport::TransportMode::SyncAffirm && waits
            })
        };
        if let Some(record) = self.rules.replaced_by() {
            return Some(format!("`{}` takes over, or has", record.successor()));
        }
        if !self.rules.may_acknowledge() {
            return Some(UNCONFIRMED.into());
        }
        let missing = self.rules.required().members.iter().find(|name| !is_waited_for(name))?;
        Some(format!("commits do not wait for `{missing}`, which may take over"))
    }

    fn view(
        &mut self,
        running: &Running,
        primary: &RunningPrimary,
        config: &FastStartFailoverConfig,
        destinations: &[(DestinationStatus, bool)],
        is_suspended: bool,
        now: Duration,
    ) -> View {
        let eligible = eligible_of(running);
        let candidates = eligible.iter().filter(|at| is_candidate(at, config)).filter_map(|at| {
            let (status, _) = destinations.iter().find(|(status, _)| status.name == at.name)?;
            let away = match status.last_heard_us {
                Some(heard) => {
                    self.unheard.remove(&at.name);
                    Duration::from_micros(now_us().saturating_sub(heard))
                }
                None => now.saturating_sub(*self.unheard.entry(at.name.clone()).or_insert(now)),
            };
            // A far sync has no databases, whatever it may do.
            if status.role == Some(standfast_transport::Role::FarSync) {
                return None;
            }
            Some(candidate(status, away >= Duration::from_millis(at.net_timeout_ms)))
        });
        View {
            candidates: candidates.collect(),
            eligible: names_with_own(running, &eligible),
            acknowledged: primary.threads.shared().released(),
            suspended: is_suspended,
        }
    }

    fn document(&self, config: &FastStartFailoverConfig, view: &View) -> FastStartFailover {
        let rules = &self.rules;
        let is_observed = rules.observed() == Observed::Yes;
        let has_target = rules
            .required()
            .members
            .iter()
            .all(|name| view.candidates.iter().any(|at| at.name == *name && !at.late));
        let status = match rules.target() {
            _ if rules.replaced_by().is_some() => "REINSTATE REQUIRED",
            _ if !has_target && !is_observed => "STALLED",
            _ if !is_observed => "PRIMARY UNOBSERVED",
            _ if view.suspended => "SUSPENDED",
            Some(_) if has_target => "SYNCHRONIZED",
            _ => "UNSYNCHRONIZED",
        };
        FastStartFailover {
            status: Some(status.into()),
            target: Some(rules.target().unwrap_or_default().to_owned()),
            ..described(config, is_observed, self.arbiter.error())
        }
    }
}

/// What every member says about the observer.
pub(super) fn described(
    config: &FastStartFailoverConfig,
    is_observed: bool,
    error: Option<&str>,
) -> FastStartFailover {
    let not_yet = "it does not decide yet: primary and target have to tell it first where they stand";
    let error = match (is_observed, error) {
        (true, _) => "",
        (false, Some(error)) => error,
        (false, None) => not_yet,
    };
    FastStartFailover {
        observer: Some(config.observer.clone()),
        observed: Some(is_observed),
        observer_error: Some(error.to_owned()),
        threshold_ms: Some(config.settings().threshold.as_millis() as u64),
        ..FastStartFailover::default()
    }
}

/// `is_away`: nothing has been heard of it for its net timeout.
fn candidate(status: &DestinationStatus, is_away: bool) -> Candidate {
    let is_connected = matches!(status.phase, "streaming" | "catching_up");
    let is_lost = status.has_left || status.phase == "failed" || is_away && !is_connected;
    judged(&status.name, status.standing, is_connected, is_lost, status.hardened)
}

fn judged(name: &str, standing: Standing, is_connected: bool, is_lost: bool, hardened: Scn) -> Candidate {
    let is_waited_for = standing == Standing::Required;
    Candidate {
        name: name.to_owned(),
        in_step: is_waited_for && is_connected && !is_lost,
        late: !is_waited_for || is_lost,
        hardened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_destination_that_commits_wait_for_can_be_the_target() {
        for standing in
            [Standing::Optional, Standing::New, Standing::Degraded, Standing::Stalled, Standing::Fenced]
        {
            let at = judged("beta", standing, true, false, Scn(7));
            assert!(!at.in_step && at.late, "{standing:?}");
        }
        let good = judged("beta", Standing::Required, true, false, Scn(7));
        assert!(good.in_step && !good.late);
        let reconnecting = judged("beta", Standing::Required, false, false, Scn(7));
        assert!(!reconnecting.in_step && !reconnecting.late, "a short cut changes nothing");
        assert!(judged("beta", Standing::Required, false, true, Scn(7)).late);
    }
}
