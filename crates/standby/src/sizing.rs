//! The sizing rule for standby redo logs: each as large as the primary's largest online log, and one group more than
//! the primary has. Pure.
//!
//! - Smaller log files are refused: a log of the primary would not fit into one of the standby.
//! - Too few groups only make the primary wait for the standby's archiver when logs are switched fast. They are
//!   accepted with a warning.

use standfast_environment::config::error::InstanceError;
use standfast_transport::{LogGeometry, Refusal, RefuseCode};

/// Compares the standby redo logs of `name` (`groups` groups, the smallest of `group_bytes`) with the `online` logs of
/// the primary whose redo is received. Returns a warning, if any.
///
/// # Errors
/// What cannot work.
pub fn check(
    online: &LogGeometry,
    groups: usize,
    group_bytes: u64,
    name: &str,
) -> Result<Option<String>, Refusal> {
    if group_bytes < online.group_bytes {
        let text = format!(
            "the smallest standby redo log of `{name}` has {group_bytes} bytes, and the largest online log of the primary \
             has {0}: each has to be as large. At `{name}`, while it runs: `standfast log group list`, then for each smaller \
             group `standfast log group resize GROUP --bytes {0}`; for the current one `standfast log group add --bytes {0}`, \
             and resize it when it is not current any more",
            online.group_bytes
        );
        return Err(Refusal::new(RefuseCode::StandbyLog, text));
    }
    let wanted = online.groups + 1;
    Ok((groups < wanted).then(|| {
        format!(
            "{groups} standby redo log groups, and the rule is {wanted}, one more than the {} online log groups of the \
             primary: when logs are switched fast, its commits wait for the archiver here",
            online.groups
        )
    }))
}

/// Checks, before the primary gets online logs of `bytes`, that its standbys can take such a log. `standbys`: name and
/// smallest standby redo log, bytes.
///
/// # Errors
/// Which standbys cannot, and what to do there first.
pub fn check_standbys(bytes: u64, standbys: &[(String, u64)]) -> Result<(), InstanceError> {
    let small: Vec<String> = standbys
        .iter()
        .filter(|(_, smallest)| *smallest < bytes)
        .map(|(name, smallest)| format!("`{name}` ({smallest} bytes)"))
        .collect();
    if small.is_empty() {
        return Ok(());
    }
    let what = format!(
        "standby redo logs of {} are smaller than {bytes} bytes: such a log of the primary would not fit, and the standby \
         would be refused",
        small.join(", ")
    );
    let hint = format!(
        "first, there: `standfast log group list`, then `standfast log group resize GROUP --bytes {bytes}` for each smaller \
         group"
    );
    Err(InstanceError::refused(what, hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::Hint;

    const ONLINE: LogGeometry = LogGeometry { groups: 3, group_bytes: 64 << 20, block_bytes: 4096 };

    #[test]
    fn standby_logs_that_follow_the_rule_cause_no_warning() {
        assert_eq!(check(&ONLINE, 4, 64 << 20, "oslo"), Ok(None));
        assert_eq!(check(&ONLINE, 9, 128 << 20, "oslo"), Ok(None));
    }

    #[test]
    fn smaller_standby_logs_are_refused_and_too_few_groups_reported() {
        let refusal = check(&ONLINE, 4, (64 << 20) - 1, "oslo").unwrap_err();
        assert_eq!(refusal.code, RefuseCode::StandbyLog);
        assert!(refusal.message.contains("67108863") && refusal.message.contains("67108864"), "{refusal}");
        assert!(refusal.message.contains("`standfast log group resize GROUP --bytes 67108864`"), "{refusal}");
        let warning = check(&ONLINE, 3, 64 << 20, "oslo").unwrap().unwrap();
        assert!(warning.contains("rule is 4"), "{warning}");
    }

    #[test]
    fn logs_too_large_for_a_standby_are_refused_before_creation() {
        let standbys = [("oslo".to_owned(), 64 << 20), ("rome".to_owned(), 128 << 20)];
        assert!(check_standbys(64 << 20, &standbys).is_ok());
        let refused = check_standbys(65 << 20, &standbys).unwrap_err().for_terminal();
        assert!(refused.contains("`oslo` (67108864 bytes)") && !refused.contains("rome"), "{refused}");
        assert!(refused.contains("resize GROUP --bytes 68157440"), "{refused}");
    }
}
