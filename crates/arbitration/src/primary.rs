//! The primary's side: which standbys each commit must reach before it returns.
//!
//! The primary keeps a set of members, durably, and acknowledges nothing that one of them lacks. The set is never smaller
//! than what the arbiter may assume:
//! - before the primary asks that a target may take over, the target is in the set;
//! - a member leaves the set only when the arbiter has replaced its record with one that does not name it. From then on
//!   no earlier request can be carried out any more: its version is gone.
//!
//! The arbiter's record never changes the set otherwise. What it says about this primary can be old, or forgotten.
//!
//! A target has everything that was acknowledged before it became the target; what was acknowledged since, it has because
//! it is in the set. What an earlier process of this primary has acknowledged is not known: all redo that was there when
//! it opened counts.
//!
//! After a start a primary acknowledges nothing before the arbiter has confirmed its place: an operator may have failed over
//! meanwhile. Only a member that is named in the record stands for that: while it is, no other one can have been given the
//! place, and each commit shows that this one has not taken it. And a primary acknowledges nothing any more once the record
//! says that it is replaced.

use crate::Settings;
use crate::arbiter::{Answer, Ask, Replace};
use crate::record::{Incarnation, Kept, Record, Standing};
use serde::{Deserialize, Serialize};
use standfast_types::Scn;
use std::collections::BTreeSet;
use std::time::Duration;

/// The members without which no commit returns, as the primary keeps them durably.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Required {
    pub members: BTreeSet<String>,
    /// The arbiter has confirmed a record that names one of them as the target, and nothing has been asked since after which
    /// it names none.
    pub is_named: bool,
}

impl Required {
    pub fn has(&self, name: &str) -> bool {
        self.members.contains(name)
    }

    pub fn is_default(&self) -> bool {
        *self == Required::default()
    }
}

/// A standby that may become the target, as the primary sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub name: String,
    /// Every commit waits for it, has waited since the last call, and will wait while it is in the set; and it keeps up.
    pub in_step: bool,
    /// Commits do not wait for it, or cannot any longer: it has kept one waiting for its net timeout, has left, or is
    /// away.
    pub late: bool,
    /// End of the redo that it has on disk, as it has acknowledged.
    pub hardened: Scn,
}

/// What the primary sees.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct View {
    /// In the order in which they are preferred.
    pub candidates: Vec<Candidate>,
    /// Members that may become primary.
    pub eligible: Vec<String>,
    /// All redo before it has been acknowledged to applications by this process.
    pub acknowledged: Scn,
    /// An operator changes the roles, or fast-start failover is being disabled: no member may take over.
    pub suspended: bool,
}

impl View {
    fn candidate(&self, name: &str) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.name == name)
    }

    fn can_be_waited_for(&self, name: &str) -> bool {
        self.candidate(name).is_some_and(|candidate| !candidate.late)
    }
}

/// What the caller is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing; call again after this time, or when something has changed.
    Wait(Duration),
    /// Make the set durable, put it in force, call [`PrimaryRules::requires`], and call `decide` again.
    Require(Required),
    Ask(Ask),
    /// Stop the instance: it has had neither of the others for the threshold.
    Stop,
}

/// What is known of the arbiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Not asked yet.
    Unknown,
    Yes,
    /// It answers, and does not decide yet.
    WithoutVote,
    No,
}

#[derive(Clone, Debug)]
pub struct PrimaryRules {
    name: String,
    incarnation: Incarnation,
    settings: Settings,
    required: Required,
    /// Redo before it may have been acknowledged.
    acknowledged: Scn,
    /// Whether its place is certain: it was promoted just now, the record names a member that it needs, or the arbiter has
    /// confirmed it.
    is_confirmed: bool,
    /// The set that the arbiter's last answer permits.
    permitted: Option<Required>,
    kept: Option<Kept>,
    asked: Option<Ask>,
    next_at: Duration,
    observed: Observed,
    /// The arbiter has not answered a request to replace its record, and has answered none since.
    is_unanswered: bool,
    /// The serial numbers of its records begin beyond this one.
    serials_from: u64,
    isolated_since: Option<Duration>,
}

impl PrimaryRules {
    /// `required`: the set as it is on record. `end`: of the redo at the opening. `has_started`: this process has found
    /// itself a primary, and was not promoted.
    pub fn new(
        name: &str,
        incarnation: Incarnation,
        settings: Settings,
        required: Required,
        end: Scn,
        has_started: bool,
    ) -> PrimaryRules {
        PrimaryRules {
            name: name.to_owned(),
            incarnation,
            settings,
            acknowledged: end,
            is_confirmed: !has_started || required.is_named && !required.members.is_empty(),
            required,
            permitted: None,
            kept: None,
            asked: None,
            next_at: Duration::ZERO,
            observed: Observed::Unknown,
            is_unanswered: false,
            serials_from: 0,
            isolated_since: None,
        }
    }

    /// Begins the serial numbers of its records beyond `serial`, so that an arbiter that was emptied is not taken for one that has
    /// gone back ([`crate::seen`]).
    #[must_use]
    pub fn with_serials_beyond(self, serial: u64) -> PrimaryRules {
        PrimaryRules { serials_from: serial, ..self }
    }

    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The members without which no commit returns.
    pub fn required(&self) -> &Required {
        &self.required
    }

    /// Whether commits may return that every member of the set has.
    pub fn may_acknowledge(&self) -> bool {
        self.is_confirmed && self.replaced_by().is_none()
    }

    /// The set is durable and in force.
    pub fn requires(&mut self, required: Required) {
        self.required = required;
    }

    /// An arbiter that can be read and not written is no help: it permits nothing.
    pub fn observed(&self) -> Observed {
        match self.observed {
            Observed::Yes if self.is_unanswered => Observed::No,
            observed => observed,
        }
    }

    /// Whether the arbiter says that no member may take over from this primary, and knows who may be its successor.
    pub fn is_alone(&self, view: &View) -> bool {
        let is_it = |record: &Record| {
            record.standing == Standing::Unsynchronized && record.candidates == view.eligible
        };
        self.required.members.is_empty() && self.mine().is_some_and(is_it)
    }

    /// The member that may take over, as the arbiter last confirmed.
    pub fn target(&self) -> Option<&str> {
        self.mine().and_then(|record| record.standing.target())
    }

    /// The arbiter's record when it is not about this primary any more: another one has taken over, or does.
    pub fn replaced_by(&self) -> Option<&Record> {
        self.kept.as_ref().map(|kept| &kept.record).filter(|record| self.is_replaced_by(record))
    }

    fn mine(&self) -> Option<&Record> {
        let record = &self.kept.as_ref()?.record;
        (record.incarnation == self.incarnation && record.primary == self.name).then_some(record)
    }

    fn is_replaced_by(&self, record: &Record) -> bool {
        let is_over = matches!(record.standing, Standing::FailedOver { .. });
        record.incarnation.number > self.incarnation.number
            || record.incarnation.number == self.incarnation.number
                && (record.incarnation.id != self.incarnation.id || is_over)
    }

    /// Returns what to do at `now`, the time since any fixed moment.
    pub fn decide(&mut self, now: Duration, view: &View) -> Order {
        self.acknowledged = self.acknowledged.max(view.acknowledged);
        // Once: the set may grow before the next answer.
        if let Some(permitted) = self.permitted.take().filter(|permitted| *permitted != self.required) {
            return Order::Require(permitted);
        }
        if self.is_isolated_too_long(now, view) {
            return Order::Stop;
        }
        if self.asked.is_some() {
            return Order::Wait(self.settings.ping_interval);
        }
        let standing = match (self.wanted(view), self.observed) {
            (wanted, Observed::WithoutVote) => self.reported(wanted),
            (wanted, _) => wanted,
        };
        let standing = match standing.target().filter(|target| !self.required.has(target)) {
            None => standing,
            // A set that grows must not look confirmed to the next start.
            Some(_) if !self.is_confirmed => Standing::Unsynchronized,
            Some(target) => {
                let mut required = self.required.clone();
                required.members.insert(target.to_owned());
                return Order::Require(required);
            }
        };
        let is_known = matches!(self.observed, Observed::Yes | Observed::WithoutVote);
        let may_write = is_known && self.replaced_by().is_none();
        let is_urgent = may_write && self.observed == Observed::Yes && self.says_otherwise(&standing);
        if now < self.next_at && !is_urgent {
            return Order::Wait(self.next_at - now);
        }
        if !may_write {
            return self.ask(Ask::Read { follows: None });
        }
        if standing == Standing::Unsynchronized && self.required.is_named {
            return Order::Require(Required { is_named: false, ..self.required.clone() });
        }
        self.ask(Ask::Replace(self.report(standing, view)))
    }

    fn ask(&mut self, ask: Ask) -> Order {
        self.asked = Some(ask.clone());
        Order::Ask(ask)
    }

    fn says_otherwise(&self, standing: &Standing) -> bool {
        self.mine().is_none_or(|record| record.standing != *standing)
    }

    fn report(&self, standing: Standing, view: &View) -> Replace {
        let kept = self.kept.as_ref();
        let target: BTreeSet<String> = standing.target().map(str::to_owned).into_iter().collect();
        Replace {
            expected: kept.map(|kept| kept.version.clone()),
            record: Record {
                serial: kept.map_or(0, |kept| kept.record.serial).max(self.serials_from) + 1,
                primary: self.name.clone(),
                incarnation: self.incarnation,
                standing,
                candidates: view.eligible.clone(),
                acknowledged: self.acknowledged,
            },
            required: self.required.members.iter().cloned().collect(),
            confirms: !self.is_confirmed,
            gives_up: match self.observed {
                Observed::WithoutVote => Vec::new(),
                _ => self.required.members.difference(&target).cloned().collect(),
            },
        }
    }

    /// What to tell an arbiter that does not decide yet: where this primary stands. The members that it needs stay; the
    /// record names one of them.
    fn reported(&self, wanted: Standing) -> Standing {
        let named = wanted.target().filter(|target| self.required.has(target));
        match named.or(self.required.members.first().map(String::as_str)) {
            Some(target) => Standing::Synchronized { target: target.to_owned() },
            None => wanted,
        }
    }

    /// Returns the standing that is best for the commits: a target in step, without change if possible.
    fn wanted(&self, view: &View) -> Standing {
        if view.suspended {
            return Standing::Unsynchronized;
        }
        let kept = self.target().filter(|target| self.required.has(target));
        let waited_for = kept.or(self.required.members.first().map(String::as_str));
        let has_all = |candidate: &&Candidate| candidate.in_step && candidate.hardened >= self.acknowledged;
        let in_step = || view.candidates.iter().find(has_all);
        match waited_for.filter(|target| view.can_be_waited_for(target)) {
            Some(target) => Standing::Synchronized { target: target.to_owned() },
            None => match in_step() {
                Some(candidate) => Standing::Synchronized { target: candidate.name.clone() },
                None => Standing::Unsynchronized,
            },
        }
    }

    fn is_isolated_too_long(&mut self, now: Duration, view: &View) -> bool {
        let has_target = self.required.members.iter().all(|name| view.can_be_waited_for(name));
        if has_target || matches!(self.observed(), Observed::Yes | Observed::Unknown) {
            self.isolated_since = None;
            return false;
        }
        let since = *self.isolated_since.get_or_insert(now);
        self.settings.primary_shutdown && now.saturating_sub(since) >= self.settings.threshold
    }

    /// Takes the answer to the last request.
    pub fn answered(&mut self, now: Duration, answer: Answer) {
        let Some(asked) = self.asked.take() else { return };
        self.next_at = now + self.settings.ping_interval;
        if matches!(asked, Ask::Replace(_)) {
            self.is_unanswered = answer == Answer::Nothing;
        }
        match answer {
            Answer::Replaced { version } => {
                let Ask::Replace(Replace { record, gives_up, .. }) = asked else { return };
                let mut members = self.required.members.clone();
                members.retain(|name| !gives_up.contains(name));
                let is_named = record.standing.target().is_some_and(|target| members.contains(target));
                self.permitted = Some(Required { members, is_named });
                self.kept = Some(Kept { version, record });
                self.observed = Observed::Yes;
                self.is_confirmed = true;
            }
            Answer::Is { kept, votes } => {
                self.kept = kept;
                self.observed = if votes { Observed::Yes } else { Observed::WithoutVote };
                // The record as it is was the question; the answer may be used at once.
                if matches!(asked, Ask::Read { .. }) && self.replaced_by().is_none() {
                    self.next_at = now;
                }
            }
            Answer::Nothing => self.observed = Observed::No,
        }
    }
}
