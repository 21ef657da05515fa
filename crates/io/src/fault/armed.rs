//! Fault points that a test arms through the environment variable `STANDFAST_FAULT`, a comma-separated list of
//! `point[:part]=action[@n]`. The action is an errno name (`EIO`, `ENOSPC`), `kill` (the process kills itself with
//! SIGKILL), `panic` (the thread dies) or `sleep:MS`; `n` (default 1) is the call at which it strikes. `@n+` strikes at
//! the nth call and every later one. With a part, only calls that concern a log file whose path contains it count:
//! `log-write:/redo2/=EIO@20+` emulates the failing device of one member.

use super::Fault;
use std::io::{Error, Result};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The variable that arms fault points; `None` in a build without them.
pub const VARIABLE: Option<&str> = Some(NAME);
const NAME: &str = "STANDFAST_FAULT";
/// The variable that delays acknowledgements; `None` in a build that ignores it.
pub const DELAY_VARIABLE: Option<&str> = Some(DELAY_NAME);
const DELAY_NAME: &str = "STANDFAST_ACK_DELAY_US";

/// Returns the text that has armed fault points in this process.
pub fn armed_by() -> Option<String> {
    std::env::var(NAME).ok().filter(|text| !text.is_empty())
}

/// Delay of this process's acknowledgements: emulates a distant standby on one machine.
pub fn acknowledgement_delay() -> Duration {
    let text = std::env::var(DELAY_NAME).ok();
    Duration::from_micros(text.and_then(|text| text.parse().ok()).unwrap_or(0))
}

const POINTS: [(&str, Fault); 22] = [
    ("log-write", Fault::LogWrite),
    ("log-written", Fault::LogWritten),
    ("copy", Fault::Copy),
    ("sync", Fault::Sync),
    ("create", Fault::Create),
    ("replace", Fault::Replace),
    ("send", Fault::Send),
    ("archive-send", Fault::ArchiveSend),
    ("received", Fault::Received),
    ("apply-commit", Fault::ApplyCommit),
    ("apply-committed", Fault::ApplyCommitted),
    ("checkpoint-reset", Fault::CheckpointReset),
    ("log-rewrite", Fault::LogRewrite),
    ("recovery-apply", Fault::RecoveryApply),
    ("capture", Fault::Capture),
    ("fresh-copy", Fault::FreshCopy),
    ("wal-sync", Fault::WalSync),
    ("database-sync", Fault::DatabaseSync),
    ("database-write", Fault::DatabaseWrite),
    ("set-aside", Fault::SetAside),
    ("reinstate", Fault::Reinstate),
    ("convert", Fault::Convert),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Errno(i32),
    Kill,
    Panic,
    Sleep(u64),
}

#[derive(Debug)]
struct Armed {
    fault: Fault,
    /// Only files whose path contains this; all if empty.
    of: String,
    action: Action,
    first: u64,
    onwards: bool,
    calls: AtomicU64,
}

fn armed() -> &'static [Armed] {
    static ARMED: OnceLock<Vec<Armed>> = OnceLock::new();
    ARMED.get_or_init(|| armed_by().map_or_else(Vec::new, |text| parse(&text)))
}

fn parse(text: &str) -> Vec<Armed> {
    text.split(',').filter_map(parse_one).collect()
}

fn parse_one(item: &str) -> Option<Armed> {
    let (point, rest) = item.trim().split_once('=')?;
    let (action, count) = rest.split_once('@').unwrap_or((rest, "1"));
    let (point, of) = point.split_once(':').unwrap_or((point, ""));
    let fault = POINTS.iter().find(|(name, _)| *name == point)?.1;
    let action = match action {
        "EIO" => Action::Errno(libc::EIO),
        "ENOSPC" => Action::Errno(libc::ENOSPC),
        "kill" => Action::Kill,
        "panic" => Action::Panic,
        other => Action::Sleep(other.strip_prefix("sleep:")?.parse().ok()?),
    };
    let onwards = count.ends_with('+');
    Some(Armed {
        fault,
        of: of.to_owned(),
        action,
        first: count.trim_end_matches('+').parse().ok()?,
        onwards,
        calls: AtomicU64::new(0),
    })
}

/// Fails, sleeps or dies when a test has armed `fault`; costs one load when nothing is armed.
///
/// # Errors
/// The armed one.
pub fn check(fault: Fault) -> Result<()> {
    check_file(fault, Path::new(""))
}

/// Does what [`check`] does, for a call that concerns the file at `path`.
///
/// # Errors
/// The armed one.
pub fn check_file(fault: Fault, path: &Path) -> Result<()> {
    let strikes = |armed: &&Armed| {
        armed.fault == fault && (armed.of.is_empty() || path.to_string_lossy().contains(&armed.of))
    };
    for armed in armed().iter().filter(strikes) {
        let call = armed.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if call == armed.first || armed.onwards && call > armed.first {
            match armed.action {
                Action::Errno(errno) => return Err(Error::from_raw_os_error(errno)),
                Action::Panic => die(fault),
                Action::Sleep(ms) => std::thread::sleep(Duration::from_millis(ms)),
                // SAFETY: raise has no memory preconditions.
                Action::Kill => unsafe {
                    libc::raise(libc::SIGKILL);
                },
            }
        }
    }
    Ok(())
}

/// Kills the thread, for tests of what the instance does then.
#[expect(clippy::panic, reason = "armed by tests only")]
fn die(fault: Fault) {
    panic!("armed at {fault:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_list_skips_entries_it_cannot_parse() {
        let armed = parse("log-write=EIO@3,copy:/redo2/=sleep:5@2+,nonsense,send=kill,sync=what");
        let seen: Vec<_> = armed.iter().map(|a| (a.fault, &*a.of, a.action, a.first, a.onwards)).collect();
        assert_eq!(
            seen,
            [
                (Fault::LogWrite, "", Action::Errno(libc::EIO), 3, false),
                (Fault::Copy, "/redo2/", Action::Sleep(5), 2, true),
                (Fault::Send, "", Action::Kill, 1, false),
            ]
        );
    }
}
