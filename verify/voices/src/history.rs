//! What applications were told, and what must therefore hold.

use crate::Millis;
use std::collections::BTreeSet;

/// A commit; each has its own number.
pub type Commit = u32;

#[derive(Default)]
pub struct History {
    acknowledged: BTreeSet<Commit>,
    /// The newest incarnation that a member has begun, and which one.
    newest: (u64, usize),
    /// The redo that this member began it with.
    inherited: BTreeSet<Commit>,
    pub last_acknowledged_at: Millis,
    pub promotions: u64,
}

impl History {
    pub fn begin(&mut self, number: u64, member: usize) {
        self.newest = (number, member);
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// A member acknowledges a commit to its application. An acknowledgement may be late: the standby had the commit, became
    /// primary with it, and the old primary heard of that only now.
    ///
    /// # Errors
    /// When a newer primary exists that has not inherited the commit.
    pub fn acknowledge(
        &mut self,
        at: Millis,
        member: usize,
        number: u64,
        commit: Commit,
    ) -> Result<(), String> {
        self.acknowledged.insert(commit);
        self.last_acknowledged_at = at;
        if (number, member) == self.newest || self.inherited.contains(&commit) {
            return Ok(());
        }
        let (newer, by) = self.newest;
        Err(format!(
            "member {member} acknowledges commit {commit} in incarnation {number}; member {by} began {newer}"
        ))
    }

    /// An operator lets a member take over with this redo: what it lacks is lost by his decision.
    pub fn accept_loss(&mut self, redo: &[Commit]) {
        let redo: BTreeSet<Commit> = redo.iter().copied().collect();
        self.acknowledged.retain(|commit| redo.contains(commit));
    }

    /// A member becomes primary with this redo.
    ///
    /// # Errors
    /// When the redo lacks an acknowledged commit, or another member has this incarnation.
    pub fn promote(&mut self, member: usize, number: u64, redo: &[Commit]) -> Result<(), String> {
        self.promotions += 1;
        if number <= self.newest.0 {
            return Err(format!("member {member} begins incarnation {number} after {}", self.newest.0));
        }
        self.newest = (number, member);
        self.inherited = redo.iter().copied().collect();
        self.holds_all(member, redo)
    }

    /// Checks the redo of a primary.
    ///
    /// # Errors
    /// When it lacks an acknowledged commit.
    pub fn holds_all(&self, member: usize, redo: &[Commit]) -> Result<(), String> {
        let redo: BTreeSet<Commit> = redo.iter().copied().collect();
        match self.acknowledged.difference(&redo).next() {
            None => Ok(()),
            Some(commit) => Err(format!("member {member} is primary without acknowledged commit {commit}")),
        }
    }

    pub fn newest(&self) -> (u64, usize) {
        self.newest
    }
}
