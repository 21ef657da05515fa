//! Numbered fault points in production code, off unless a test arms them through the environment variable
//! `STANDFAST_FAULT`: a comma-separated list of `point[:part]=action[@n]`, where action is an errno name (`EIO`,
//! `ENOSPC`), `kill` (the process kills itself with SIGKILL), `panic` (the thread dies) or `sleep:MS`, and `n` (default 1) is the call at
//! which it strikes. `@n+` strikes at the nth call and every later one. With a part, only calls count that concern
//! a log file whose path contains it: `log-write:/redo2/=EIO@20+` is a device of one member that goes.

use std::io::{Error, Result};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Places where a test can make the disk fail or the process die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Before a durable log write.
    LogWrite,
    /// After a durable log write, before anybody knows of it.
    LogWritten,
    /// Before a buffered write of a copy.
    Copy,
    /// Before a sync.
    Sync,
    /// Before a file is created.
    Create,
    /// Before a control file is replaced.
    Replace,
    /// Before redo is handed to a destination's socket.
    Send,
    /// Before a piece of an archived log is read to be sent to a standby that lacks it.
    ArchiveSend,
    /// After redo arrived at a standby, before it is written.
    Received,
    /// Before apply commits a batch to a standby database.
    ApplyCommit,
    /// After apply committed a batch, before its position is journalled.
    ApplyCommitted,
    /// During a checkpoint, before the log of a database is reset.
    CheckpointReset,
    /// While the log of a database is written anew: before its header, then before its frames, then before its index.
    LogRewrite,
    /// During recovery, before redo is applied to a database.
    RecoveryApply,
    /// Before new frames of a database are captured.
    Capture,
    /// Before the state is fixed of which a fresh copy of a database is made.
    FreshCopy,
    /// Before the write-ahead log of a database is synced.
    WalSync,
    /// Before a database file is synced.
    DatabaseSync,
    /// Before a page is written into a database file.
    DatabaseWrite,
    /// Before each step in which a database file gives its place to one that was made again.
    SetAside,
}

const POINTS: [(&str, Fault); 20] = [
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
    /// Only files whose path contains this; empty: all.
    of: String,
    action: Action,
    first: u64,
    onwards: bool,
    calls: AtomicU64,
}

fn armed() -> &'static [Armed] {
    static ARMED: OnceLock<Vec<Armed>> = OnceLock::new();
    ARMED.get_or_init(|| std::env::var("STANDFAST_FAULT").map_or_else(|_| Vec::new(), |text| parse(&text)))
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

/// Fails, sleeps or dies when a test has armed `fault`; one load when nothing is armed.
pub fn check(fault: Fault) -> Result<()> {
    check_file(fault, Path::new(""))
}

/// As [`check`], where the file at `path` is concerned.
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

/// The death of a thread, for tests of what becomes of the instance then.
#[expect(clippy::panic, reason = "armed by tests only")]
fn die(fault: Fault) {
    panic!("armed at {fault:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_faults_is_understood() {
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
