//! The record in the hands of an observer.
//!
//! A file may be lost, or come back older from a backup of the machine. So an observer trusts its file only as far as
//! others confirm it. After a start it decides nothing until the primary has reported, and every member that the primary
//! needs has reported that it follows that primary: only they can have been given the primary's place before.

use crate::arbiter::{Answer, Ask, Replace};
use crate::record::{Incarnation, Kept, Record, Standing, Version};

/// Members that are remembered; a family has fewer. Those that ask least often are forgotten first.
const FOLLOWERS_MAX: usize = 64;

/// State machine of an observer.
#[derive(Clone, Debug)]
pub struct Register {
    /// Differs at each start.
    start: u64,
    replaced: u64,
    record: Option<Record>,
    /// The members that the primary needs, as it has reported since the start; `None`: it has not.
    required: Option<Vec<String>>,
    /// The incarnation whose primary was certain of its place when it last wrote the record, since the start.
    confirmed: Option<Incarnation>,
    /// Members that have read since the start, and which incarnation each follows.
    followers: Vec<(String, Option<Incarnation>)>,
}

/// An answer, and whether the record must be durable before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub answer: Answer,
    pub store: bool,
}

impl Register {
    /// `record`: from the file; `None`: there is none. `start`: random, so that no version of an earlier start comes back.
    pub fn new(start: u64, record: Option<Record>) -> Register {
        Register { start, replaced: 0, record, required: None, confirmed: None, followers: Vec::new() }
    }

    pub fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// Whether it decides; see the module.
    pub fn votes(&self) -> bool {
        let (Some(record), Some(required)) = (&self.record, &self.required) else { return false };
        required.iter().all(|name| self.follows(name, record.incarnation))
    }

    fn follows(&self, name: &str, incarnation: Incarnation) -> bool {
        self.followers.iter().any(|(other, follows)| other == name && *follows == Some(incarnation))
    }

    /// Answers the member `from`, whose name is proved.
    pub fn answer(&mut self, from: &str, ask: &Ask) -> Answered {
        match ask {
            Ask::Read { follows } => {
                self.followers.retain(|(name, _)| name != from);
                self.followers.push((from.to_owned(), *follows));
                if self.followers.len() > FOLLOWERS_MAX {
                    self.followers.remove(0);
                }
                self.as_it_is()
            }
            Ask::Replace(replace) if self.accepts(from, replace) => self.replace(replace),
            Ask::Replace(_) => self.as_it_is(),
        }
    }

    fn accepts(&self, from: &str, replace: &Replace) -> bool {
        let Replace { expected, record, required, gives_up, confirms } = replace;
        if *confirms && !self.may_confirm(record) {
            return false;
        }
        let may_decide = match &record.standing {
            standing if standing.is_given() => self.votes(),
            _ => gives_up.is_empty() || required.iter().all(|name| self.follows(name, record.incarnation)),
        };
        may_decide && *expected == self.version() && self.may_write(from, record)
    }

    /// Whether no member can have been given the place of this primary: it was certain of it in this run, or every other
    /// candidate follows it. An operator may have had it given to any of them.
    fn may_confirm(&self, new: &Record) -> bool {
        let known = self.record.iter().flat_map(|old| &old.candidates);
        let mut others = known.chain(&new.candidates).filter(|name| **name != new.primary);
        self.confirmed == Some(new.incarnation) || others.all(|name| self.follows(name, new.incarnation))
    }

    /// A primary writes about itself. A member takes over for itself, if it is the target or there is none. A member that
    /// takes the primary's place is on the list that the primary left, and an incarnation never goes back.
    fn may_write(&self, from: &str, new: &Record) -> bool {
        let is_candidate = |old: &Record| old.candidates.iter().any(|name| name == from);
        let is_same_primary = |old: &Record| {
            new.incarnation == old.incarnation && new.primary == old.primary && !old.standing.is_given()
        };
        match (&new.standing, &self.record) {
            (Standing::FailedOver { .. }, None) => false,
            (Standing::FailedOver { by, has_all }, Some(old)) => {
                let is_target = old.standing.target() == Some(from);
                let is_free = is_target || old.standing == Standing::Unsynchronized;
                by == from && (is_target || !has_all) && is_free && is_same_primary(old) && is_candidate(old)
            }
            (_, None) => new.primary == from,
            (_, Some(old)) => {
                let is_newer = new.incarnation.number > old.incarnation.number && is_candidate(old);
                new.primary == from && (is_same_primary(old) || is_newer)
            }
        }
    }

    fn replace(&mut self, replace: &Replace) -> Answered {
        let Replace { record, required, gives_up, .. } = replace;
        let is_same = |old: &Record| {
            (&old.primary, old.incarnation, &old.standing, &old.candidates)
                == (&record.primary, record.incarnation, &record.standing, &record.candidates)
        };
        // A report that changes nothing is not worth a sync: versions of an earlier start are void.
        let store = !self.record.as_ref().is_some_and(is_same);
        self.record = Some(record.clone());
        self.replaced += 1;
        if !record.standing.is_given() {
            let stays = |name: &&String| !gives_up.contains(name);
            self.required = Some(required.iter().filter(stays).cloned().collect());
            self.confirmed = Some(record.incarnation);
        }
        let version = self.version_now();
        Answered { answer: Answer::Replaced { version }, store }
    }

    fn as_it_is(&self) -> Answered {
        let kept = self.record.clone().map(|record| Kept { version: self.version_now(), record });
        Answered { answer: Answer::Is { kept, votes: self.votes() }, store: false }
    }

    fn version(&self) -> Option<Version> {
        self.record.as_ref().map(|_| self.version_now())
    }

    fn version_now(&self) -> Version {
        Version(format!("{:016x}-{}", self.start, self.replaced))
    }
}
