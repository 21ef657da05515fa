//! `net advise` on emulated links.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use standfast_wan::emulator::LinkName;
use standfast_wan::settings::Change;

use super::lab::{FAR, Labs, NEAR, emulated};
use super::links::{LINKS, Link};
use super::slow_disk::SlowDisk;
use super::tool::verdict;
use super::{Outcome, Value as Figure};
use crate::Result;
use crate::figures::measured::outcome;
use crate::suite::Missing;

/// Duration of each test of an advice.
const TEST: &str = "500ms";
/// Allowed lateness of the emulator, in seconds: every round trip in the table is further than that from a bound of a
/// verdict.
const LATE: f64 = 1e-3;
/// A congestion control that reacts to loss, because one that ignores it makes a lossy link look good. Every kernel has
/// this one, and every namespace may select it.
const CONGESTION: &str = "reno";
/// Place of the far disk's file when the verdict does not depend on the disk: the disk of this machine may be busy.
const MEMORY: &str = "/dev/shm";

#[derive(Debug, Serialize)]
pub struct Judged {
    /// Name of the link in the table.
    pub name: &'static str,
    /// Why the expected verdict is right.
    pub why: &'static str,
    /// Difference from the expected verdict; None when there is none.
    pub wrong: Outcome<Option<String>>,
    /// Runs that were discarded because the emulator was late.
    pub discarded: u32,
    pub advice: Value,
}

/// Runs `net advise` on all links of the table.
pub(super) fn advise(labs: &Labs<'_>) -> Result<Vec<Judged>> {
    LINKS.iter().map(|link| judged(labs, link)).collect()
}

fn judged(labs: &Labs<'_>, link: &Link) -> Result<Judged> {
    let found = outcome(ask(labs, link))?;
    let (wrong, discarded, advice) = match found {
        Ok((advice, discarded)) => (Ok(link.judge(&advice).err()), discarded, advice),
        Err(missing) => (Err(missing), 0, Value::Null),
    };
    let printed = match &wrong {
        Ok(None) => "right".to_owned(),
        Ok(Some(differences)) => format!("wrong: {differences}"),
        Err(missing) => missing.reason().to_owned(),
    };
    eprintln!("advice, link `{}`: {printed}", link.name);
    Ok(Judged { name: link.name, why: link.why, wrong, discarded, advice })
}

fn ask(labs: &Labs<'_>, link: &Link) -> Result<(Value, u32)> {
    let (settings, back) = link.settings();
    let lab = labs.open(settings)?;
    if back != Change::default() {
        let way_back = LinkName { from: FAR.into(), to: NEAR.into() };
        emulated(lab.wan().control().set(&[way_back], &back))?;
    }
    lab.set(NEAR, "tcp_congestion_control", CONGESTION)?;
    if let Some(bytes) = link.send_ceiling {
        lab.set_ceiling(NEAR, "tcp_wmem", bytes)?;
    }
    if let Some(bytes) = link.receive_ceiling {
        lab.set_ceiling(FAR, "tcp_rmem", bytes)?;
    }
    // Declared before the server, so that it is dropped after it.
    let slow = link.slow_disk.then(|| SlowDisk::of(&labs.context.base)).transpose()?;
    let memory = memory_file().filter(|_| !link.slow_disk);
    let server = match &memory {
        Some(file) => lab.server_at(file)?,
        None => lab.server()?,
    };
    if let Some(slow) = &slow {
        slow.take(server.pid())?;
    }
    let found = lab.on_time(LATE, || {
        let mut command = lab.net_first("advise")?;
        command.args(["--peak-redo", &format!("{}MiB/s", link.peak), "--duration", TEST]);
        verdict(&mut command)
    })?;
    Ok((found.value, found.discarded))
}

/// A file in memory, if the kernel allows direct writes to it.
fn memory_file() -> Option<PathBuf> {
    let directory = Path::new(MEMORY);
    let probe = directory.join(format!("standfast-bench-probe-{}", std::process::id()));
    let mut options = OpenOptions::new();
    let direct = options.write(true).create_new(true).custom_flags(libc::O_DIRECT).open(&probe).is_ok();
    // The file may not have been created.
    let _ = std::fs::remove_file(&probe);
    // A constant name: the next server reuses what a killed server leaves behind.
    direct.then(|| directory.join("standfast-bench-net.tmp"))
}

/// Number of right verdicts; a wrong one is a failure that names the difference.
pub(super) fn right(judged: &[Judged]) -> Figure {
    let wrong = judged.iter().filter_map(|one| match &one.wrong {
        Ok(None) | Err(Missing::Skipped(_)) => None,
        Ok(Some(differences)) => Some(format!("{}: {differences}", one.name)),
        Err(Missing::Failed(reason)) => Some(format!("{}: {reason}", one.name)),
    });
    let wrong: Vec<String> = wrong.collect();
    if !wrong.is_empty() {
        return Err(Missing::Failed(format!(
            "{} of {} wrong: {}",
            wrong.len(),
            judged.len(),
            wrong.join("; ")
        )));
    }
    let skipped = judged.iter().find_map(|one| one.wrong.as_ref().err());
    match (judged.iter().filter(|one| one.wrong.is_ok()).count(), skipped) {
        (0, Some(missing)) => Err(missing.clone()),
        (count, _) => Ok(count as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(wrong: Outcome<Option<String>>) -> Judged {
        Judged { name: "far", why: "", wrong, discarded: 0, advice: Value::Null }
    }

    #[test]
    fn wrong_verdict_fails_and_a_skipped_link_is_not_counted() {
        let skipped = || of(Err(Missing::Skipped("no root".into())));
        assert_eq!(right(&[of(Ok(None)), skipped(), of(Ok(None))]), Ok(2.0));
        assert_eq!(right(&[skipped()]), Err(Missing::Skipped("no root".into())));
        let wrong = right(&[of(Ok(None)), of(Ok(Some("ASYNC FAIL instead of PASS".into())))]).unwrap_err();
        assert_eq!(wrong, Missing::Failed("1 of 2 wrong: far: ASYNC FAIL instead of PASS".into()));
        let broken = right(&[of(Ok(None)), of(Err(Missing::Failed("gone".into())))]).unwrap_err();
        assert_eq!(broken, Missing::Failed("1 of 2 wrong: far: gone".into()));
    }
}
