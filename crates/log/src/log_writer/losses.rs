//! Members that fail, and when the log continues without them.

use super::LogWriter;
use crate::error::LogError;
use crate::groups::Member;
use crate::members::Failures;
use std::path::{Path, PathBuf};

impl LogWriter {
    /// Handles the end of a write to `written_to` that some of these members lack. Returns once the write is committed.
    #[cold]
    pub(super) fn continue_without(
        &mut self,
        written_to: &[Member],
        failures: Failures,
    ) -> Result<(), LogError> {
        let is_living = |path: &Path| self.targets.iter().any(|member| member.path == path);
        let has_it = |(index, member): (usize, &Member)| {
            is_living(&member.path) && failures.iter().all(|(failed, _)| *failed != index)
        };
        // A member that lacks the write before this one does not count, even if it has this one.
        if !written_to.iter().enumerate().any(has_it) {
            let cause = failures.first().map_or_else(String::new, |(_, error)| error.to_string());
            return Err(self.poison(cause));
        }
        let lost: Vec<(PathBuf, String)> = failures
            .into_iter()
            .map(|(index, error)| (written_to[index].path.clone(), error.to_string()))
            // Skip members that are dropped already: the writes in flight behind the failed one may have failed too.
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
                "{}: {}; the group could continue with another member, but that this one lacks redo cannot be \
                 remembered: {why}",
                lost[0].0.display(),
                lost[0].1
            ))),
        }
    }
}
