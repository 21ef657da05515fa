//! The rule for standby redo logs: each as large as the primary's largest online log, and one group more than it has.
//! Pure.
//!
//! - Smaller log files are refused: a log of the primary does not fit one of the standby.
//! - Too few groups only make the primary wait for the archiver of the standby when logs are switched fast. They are
//!   accepted and named.

use standfast_transport::{LogGeometry, Refusal, RefuseCode};

/// Compares the standby redo logs of `name`, `groups` of `group_bytes`, with the `online` logs of the primary whose redo
/// is received. Returns what is unwise.
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
            "standby redo logs of `{name}` have {group_bytes} bytes, and the largest online log of the primary has {}: each \
             has to be as large; create the standby anew with `standfast standby create`, which sizes them",
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

#[cfg(test)]
mod tests {
    use super::*;

    const ONLINE: LogGeometry = LogGeometry { groups: 3, group_bytes: 64 << 20, block_bytes: 4096 };

    #[test]
    fn standby_logs_that_follow_the_rule_are_nothing_to_speak_of() {
        assert_eq!(check(&ONLINE, 4, 64 << 20, "oslo"), Ok(None));
        assert_eq!(check(&ONLINE, 9, 128 << 20, "oslo"), Ok(None));
    }

    #[test]
    fn smaller_log_files_are_refused_and_too_few_groups_are_named() {
        let refusal = check(&ONLINE, 4, (64 << 20) - 1, "oslo").unwrap_err();
        assert_eq!(refusal.code, RefuseCode::StandbyLog);
        assert!(refusal.message.contains("67108863") && refusal.message.contains("67108864"), "{refusal}");
        let unwise = check(&ONLINE, 3, 64 << 20, "oslo").unwrap().unwrap();
        assert!(unwise.contains("rule is 4"), "{unwise}");
    }
}
