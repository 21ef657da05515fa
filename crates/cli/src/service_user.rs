//! Refuses root in the instance directory of a service user.

use standfast_environment::InstanceError;
use standfast_environment::state::modes;
use std::path::Path;

/// Refuses root there, and names the typed command as that user would run it. With `is_start`, the command accepts
/// `--allow-root`.
///
/// # Errors
/// See [`modes::refuse_root`].
pub fn refuse_root(directory: &Path, is_start: bool) -> Result<(), InstanceError> {
    let arguments = std::env::args_os().skip(1);
    let typed: Vec<String> = arguments.map(|argument| quoted(&argument.to_string_lossy())).collect();
    modes::refuse_root(directory, &typed.join(" "), is_start)
}

/// Quotes an argument for a shell.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/=@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("--listen=127.0.0.1:0"), "--listen=127.0.0.1:0");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
