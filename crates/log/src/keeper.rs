//! The durable record of stale members.

use crate::groups::MemberNotice;

pub trait MemberKeeper: Send + Sync {
    /// Records that a write to these members failed and that their group continues without them. Returns once it
    /// survives a power loss that they are stale: they have to be among [`crate::LogConfig::distrusted`] at the next
    /// start. The log writer waits for this, and its write is committed only then.
    ///
    /// # Errors
    /// When this cannot be recorded: the log is poisoned.
    fn lost(&self, members: &[MemberNotice]) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}
