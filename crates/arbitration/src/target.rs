//! The target's side: when a standby takes over.
//!
//! The record names it as the target, the primary has been silent for the threshold, to this standby and to the arbiter,
//! and this standby holds everything that the primary had acknowledged. Then it asks the arbiter for the primary's place.
//! The arbiter agrees only if the record is the one that this standby has seen, so a primary that reports in time stays.

use crate::Settings;
use crate::arbiter::{Answer, Ask, Replace};
use crate::record::{Incarnation, Kept, Record, Standing};
use standfast_types::Scn;
use std::time::Duration;

/// What the standby sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The incarnation that it follows.
    pub incarnation: Incarnation,
    /// When it last heard its source, on the caller's clock. A standby that has just started has heard it at its start.
    pub heard: Duration,
    /// End of the redo that it has hardened without a gap.
    pub end: Scn,
    /// Whether it could become primary: it may, its log is sound, and it is not changing its role already.
    pub is_able: bool,
    /// The primary has confirmed over the present stream that fast-start failover is enabled: it acknowledges nothing once the
    /// record says that it is replaced.
    pub is_enabled_there: bool,
    /// Number of the order that an operator has given to fail over; `None`: none holds. How long the primary has been silent does
    /// not matter then, unless it acknowledges alone: then the arbiter must not have heard it for the threshold, nor since the
    /// order.
    pub order: Option<u64>,
}

impl View {
    fn is_ordered(&self) -> bool {
        self.order.is_some()
    }
}

/// What the caller is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing; call again after this time.
    Wait(Duration),
    Ask(Ask),
    /// The arbiter has given this standby the primary's place. `has_all`: it has all that was acknowledged.
    TakeOver {
        has_all: bool,
    },
}

/// Why a standby does not take over now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// It is not ready itself.
    NotAble,
    /// The arbiter has not answered, or does not decide yet.
    NoArbiter,
    /// The record names another target, another incarnation, or none.
    NotTarget,
    /// The arbiter has heard the primary, or this standby has, within the threshold.
    PrimaryHeard,
    /// It holds less than the primary had acknowledged.
    LacksRedo,
}

#[derive(Clone, Debug)]
pub struct TargetRules {
    name: String,
    settings: Settings,
    kept: Option<Kept>,
    votes: bool,
    /// The arbiter has given the place to this process.
    has_got_the_place: bool,
    /// When the version was first seen that the arbiter has now.
    unchanged_since: Duration,
    asked: Option<Ask>,
    next_at: Duration,
    /// When the arbiter may be asked for the primary's place again.
    retry_at: Duration,
    /// The order that holds, and since when.
    order: Option<(u64, Duration)>,
}

impl TargetRules {
    pub fn new(name: &str, settings: Settings, now: Duration) -> TargetRules {
        TargetRules {
            name: name.to_owned(),
            settings,
            kept: None,
            votes: false,
            has_got_the_place: false,
            unchanged_since: now,
            asked: None,
            next_at: now,
            retry_at: now,
            order: None,
        }
    }

    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The arbiter's record as last seen.
    pub fn record(&self) -> Option<&Record> {
        self.kept.as_ref().map(|kept| &kept.record)
    }

    /// Returns what to do at `now`, the time since any fixed moment.
    pub fn decide(&mut self, now: Duration, view: &View) -> Order {
        let is_same = |(number, _): &(u64, Duration)| Some(*number) == view.order;
        self.order = self.order.filter(is_same).or(view.order.map(|number| (number, now)));
        if let Some(has_all) = self.has_the_place(now, view) {
            return Order::TakeOver { has_all };
        }
        if self.asked.is_some() {
            return Order::Wait(self.settings.ping_interval);
        }
        let ask = match self.takes_over(now, view) {
            Ok(replace) if now >= self.retry_at => {
                self.retry_at = now + self.settings.ping_interval;
                Ask::Replace(replace)
            }
            _ if now < self.next_at => return Order::Wait(self.until_next(now, view)),
            // It follows that incarnation although it may not be able to take over at the moment.
            _ => Ask::Read { follows: Some(view.incarnation) },
        };
        self.asked = Some(ask.clone());
        Order::Ask(ask)
    }

    /// Time until the next look, or until the primary has been silent for the threshold, if that is earlier.
    fn until_next(&self, now: Duration, view: &View) -> Duration {
        let next = self.next_at - now;
        let silent_from = if self.settings.observer_override {
            self.unchanged_since
        } else {
            self.unchanged_since.max(view.heard)
        };
        let silent = (silent_from + self.settings.threshold).saturating_sub(now);
        if silent.is_zero() { next } else { next.min(silent) }
    }

    /// Returns whether it has all that was acknowledged, if the place is its own; `None`: it is not.
    ///
    /// Also after a restart, or when the answer got lost: the record says so. But then it may say so for long, and an operator
    /// may have let the primary continue without fast-start failover: the primary must be silent, or say that it is enabled;
    /// and nothing may be missing.
    fn has_the_place(&self, now: Duration, view: &View) -> Option<bool> {
        let record = self.record().filter(|record| record.incarnation == view.incarnation)?;
        let Standing::FailedOver { by, has_all } = &record.standing else { return None };
        let is_silent = now.saturating_sub(view.heard) >= self.settings.threshold;
        let is_still_right =
            view.is_able && (is_silent || view.is_enabled_there) && view.end >= record.acknowledged;
        let may = self.has_got_the_place || view.is_ordered() || is_still_right;
        (*by == self.name && may).then_some(*has_all)
    }

    /// Returns the request for the primary's place.
    ///
    /// # Errors
    /// Why it is not to be sent now.
    pub fn takes_over(&self, now: Duration, view: &View) -> Result<Replace, NotNow> {
        let silent = |since: Duration| now.saturating_sub(since) >= self.settings.threshold;
        let Kept { version, record } = self.kept.as_ref().ok_or(NotNow::NoArbiter)?;
        let is_target = record.standing.target() == Some(&self.name);
        let is_silent =
            silent(self.unchanged_since) && (self.settings.observer_override || silent(view.heard));
        if !view.is_able {
            return Err(NotNow::NotAble);
        }
        if !self.votes {
            return Err(NotNow::NoArbiter);
        }
        // An order counts where there is no target: another member that has everything is not passed over.
        let may_be_ordered = record.standing == Standing::Unsynchronized && view.is_ordered();
        if record.incarnation != view.incarnation || !(is_target || may_be_ordered) {
            return Err(NotNow::NotTarget);
        }
        // A primary that acknowledges alone and has reported since the order is not gone, as the operator had found it to be.
        let has_reported = self.order.is_some_and(|(_, since)| self.unchanged_since > since);
        let may_be_heard = view.is_ordered() && (is_target || silent(self.unchanged_since));
        if !is_silent && !may_be_heard || has_reported && !is_target {
            return Err(NotNow::PrimaryHeard);
        }
        let lacks_redo = view.end < record.acknowledged;
        if lacks_redo && !view.is_ordered() {
            return Err(NotNow::LacksRedo);
        }
        let has_all = is_target && !lacks_redo;
        let record = Record {
            serial: record.serial + 1,
            standing: Standing::FailedOver { by: self.name.clone(), has_all },
            ..record.clone()
        };
        Ok(Replace {
            expected: Some(version.clone()),
            record,
            required: Vec::new(),
            gives_up: Vec::new(),
            confirms: false,
        })
    }

    /// Takes the answer to the last request.
    pub fn answered(&mut self, now: Duration, answer: Answer) {
        let Some(asked) = self.asked.take() else { return };
        self.next_at = now + self.settings.ping_interval;
        match answer {
            Answer::Replaced { version } => {
                if let Ask::Replace(Replace { record, .. }) = asked {
                    self.has_got_the_place = true;
                    self.kept = Some(Kept { version, record });
                }
            }
            Answer::Is { kept, votes } => {
                let version = |kept: &Option<Kept>| kept.as_ref().map(|kept| kept.version.clone());
                if version(&kept) != version(&self.kept) {
                    self.unchanged_since = now;
                }
                (self.kept, self.votes) = (kept, votes);
            }
            // What it says next decides; a version seen before counts from when it was first seen.
            Answer::Nothing => {}
        }
    }
}
