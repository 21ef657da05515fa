//! The durable record of stale members, and what changes in the catalog when a member becomes stale.

use crate::groups::{MemberNotice, RedoLog};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub trait MemberKeeper: Send + Sync {
    /// Records that a write to these members failed and that their group continues without them. Returns once it
    /// survives a power loss that they are stale: they have to be among [`crate::LogConfig::distrusted`] at the next
    /// start. The log writer waits for this, and its write is committed only then.
    ///
    /// # Errors
    /// When this cannot be recorded: the log is poisoned.
    fn lost(&self, members: &[MemberNotice]) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

impl RedoLog {
    /// Sets the keeper. From now on a member that fails while another one of its group lives is dropped, and `keeper`
    /// records it. Before, any failure poisons the log.
    pub fn keep_members(&self, keeper: Arc<dyn MemberKeeper>) {
        *self.keeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(keeper);
    }

    /// Drops these members, each with its cause; the group continues with the others.
    ///
    /// # Errors
    /// When this cannot be recorded; then nothing has changed.
    pub(crate) fn lose_members(&self, group: usize, lost: &[(PathBuf, String)]) -> Result<(), String> {
        let keeper = self.keeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let keeper = keeper.ok_or("no thread has taken the task yet")?;
        let is_lost = |path: &Path| lost.iter().any(|(other, _)| other == path);
        let members = self.catalog().groups[group].members.clone();
        let living = members.iter().find(|member| !is_lost(&member.path));
        let living = living.map(|member| member.path.clone()).unwrap_or_default();
        let notice = |(path, cause): &(PathBuf, String)| MemberNotice::Dropped {
            path: path.clone(),
            cause: cause.clone(),
            living: living.clone(),
        };
        let notices: Vec<_> = lost.iter().map(notice).collect();
        keeper.lost(&notices).map_err(|error| error.to_string())?;
        let mut catalog = self.catalog();
        let group = &mut catalog.groups[group];
        group.members.retain(|member| !is_lost(&member.path));
        group.dropped.extend(lost.iter().map(|(path, _)| path.clone()));
        Ok(())
    }
}
