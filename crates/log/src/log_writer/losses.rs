//! Members that fail: when the log goes on without them.

use super::LogWriter;
use crate::error::LogError;
use crate::groups::Member;
use crate::members::Failures;
use std::path::{Path, PathBuf};

impl LogWriter {
    /// A write to `written_to` has ended and some of these do not have it. Returns when the write counts.
    #[cold]
    pub(super) fn go_on_without(
        &mut self,
        written_to: &[Member],
        failures: Failures,
    ) -> Result<(), LogError> {
        let is_living = |path: &Path| self.targets.iter().any(|member| member.path == path);
        let has_it = |(index, member): (usize, &Member)| {
            is_living(&member.path) && failures.iter().all(|(failed, _)| *failed != index)
        };
        // A member that lacks the write before this one does not count, although it may have this one.
        if !written_to.iter().enumerate().any(has_it) {
            let cause = failures.first().map_or_else(String::new, |(_, error)| error.to_string());
            return Err(self.poison(cause));
        }
        let lost: Vec<(PathBuf, String)> = failures
            .into_iter()
            .map(|(index, error)| (written_to[index].path.clone(), error.to_string()))
            // What was under way behind the write that failed may have failed, too.
            .filter(|(path, _)| is_living(path))
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        match self.log.lose_members(self.group, &lost) {
            Ok(()) => {
                self.targets.retain(|member| lost.iter().all(|(path, _)| *path != member.path));
                Ok(())
            }
            Err(why) => Err(self.poison(format!(
                "{}: {}; the group could go on with another member, but that this one lacks redo cannot be \
                 remembered: {why}",
                lost[0].0.display(),
                lost[0].1
            ))),
        }
    }
}
