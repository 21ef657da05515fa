//! Local destinations (LOCATION): directories that receive a copy of every archived log, and the reuse limit that
//! depends on them.
//!
//! A copy is written under a temporary name, synced, verified block by block, and then renamed. A failed destination is
//! retried every `reopen_ms`; one that reaches its failure limit hands its work to its alternate.

use standfast_documents::status::LocalDestination;
use standfast_environment::config::destination_config::{DestinationConfig, State};
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_io::{DirectDisk, outside, sync_directory_of};
use standfast_log::{ArchivedLog, RedoLog, verify_archived};
use standfast_types::{Hint, Scn, hint};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

const BUFFER_BYTES: usize = 1 << 20;
/// Pause between chunks, which leaves the device to the log writer.
const PAUSE: Duration = Duration::from_millis(2);

/// A destination for the redo of full logs.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// No log is reused before this destination has its redo.
    pub mandatory: bool,
    /// This destination has all redo before this position.
    pub has: Scn,
}

/// Returns the position beyond which logs must not be reused. A log that ends after it is missing at a mandatory
/// destination, or fewer than `min_succeed` destinations have it, counting the instance's own archive
/// (LOG_ARCHIVE_MIN_SUCCEED_DEST). Pure.
pub fn reuse_limit(min_succeed: usize, places: &[Place]) -> Scn {
    let mandatory = places.iter().filter(|place| place.mandatory).map(|place| place.has).min();
    let mut has: Vec<Scn> = places.iter().map(|place| place.has).collect();
    has.sort_unstable();
    let enough = match min_succeed.saturating_sub(1) {
        0 => Scn(u64::MAX),
        others => has.len().checked_sub(others).map_or(Scn::ZERO, |at| has[at]),
    };
    mandatory.unwrap_or(Scn(u64::MAX)).min(enough)
}

#[derive(Clone, Debug, Default)]
struct Standing {
    /// The destination has all archived logs that end at or before this position.
    has: Scn,
    failures: u32,
    retry_at: Option<Instant>,
    error: Option<String>,
}

/// The instance whose archived logs are copied, as it is now.
pub struct Archiving<'a> {
    pub environment: &'a Environment,
    /// Every configured destination, not only the local ones.
    pub configured: &'a [DestinationConfig],
    pub log: &'a RedoLog,
    pub is_primary: bool,
    /// How far each other destination has redo on disk, by name.
    pub hardened: &'a [(String, Scn)],
    pub stopping: &'a dyn Fn() -> bool,
}

/// Copies archived logs to the local destinations.
#[derive(Default)]
pub struct LocalArchives {
    standings: HashMap<String, Standing>,
}

impl LocalArchives {
    /// Copies missing logs and sets the reuse limit of the redo log; returns the state of the local destinations. Call it
    /// about twice a second.
    pub fn look(&mut self, now: &Archiving<'_>) -> Vec<LocalDestination> {
        let Archiving { configured, log, is_primary, .. } = *now;
        let valid = |at: &&DestinationConfig| {
            let valid = if is_primary { at.valid_for.of_a_primary() } else { at.valid_for.of_a_standby() };
            at.is_local() && valid && at.state != State::Defer
        };
        let local: Vec<&DestinationConfig> = configured.iter().filter(valid).collect();
        self.standings.retain(|name, _| local.iter().any(|at| at.name == *name));
        let archived = if local.is_empty() { Vec::new() } else { log.archived() };
        for at in &local {
            if at.state == State::Enable || self.stands_in(at, &local) {
                self.serve(now, at, &archived);
            }
        }
        if is_primary {
            log.set_reuse_limit(self.limit(now, &local));
        }
        local.iter().map(|at| self.status(at, &local)).collect()
    }

    /// Whether the destination is the alternate of an abandoned one.
    fn stands_in(&self, alternate: &DestinationConfig, local: &[&DestinationConfig]) -> bool {
        let given_up =
            |at: &&&DestinationConfig| at.alternate.as_ref() == Some(&alternate.name) && self.is_given_up(at);
        local.iter().any(|at| given_up(&at))
    }

    fn is_given_up(&self, at: &DestinationConfig) -> bool {
        let failures = self.standings.get(&at.name).map_or(0, |standing| standing.failures);
        at.failures_allowed() > 0 && failures >= at.failures_allowed()
    }

    fn serve(&mut self, now: &Archiving<'_>, at: &DestinationConfig, archived: &[ArchivedLog]) {
        let has_alternate = at.alternate.is_some();
        let given_up = self.is_given_up(at);
        let Some(directory) = &at.location else { return };
        let standing = self.standings.entry(at.name.clone()).or_default();
        let early = standing.retry_at.is_some_and(|retry_at| Instant::now() < retry_at);
        // An abandoned destination without an alternate waits for `destination enable`.
        if early || given_up && !has_alternate {
            return;
        }
        match copy_missing(directory, archived, standing, now.stopping) {
            Ok(()) => {
                if standing.failures > 0 {
                    now.environment.alert.say(format!("destination {}: archiving continues", at.name));
                }
                (standing.failures, standing.retry_at) = (0, None);
            }
            Err(error) => {
                standing.failures += 1;
                standing.retry_at = Some(Instant::now() + Duration::from_millis(at.reopen_ms));
                let text = Some(error.for_terminal());
                let changes = standing.error != text || standing.failures == 1;
                standing.error = text;
                let last = at.failures_allowed() > 0 && standing.failures == at.failures_allowed();
                if changes || last {
                    let next = match (last, &at.alternate) {
                        (false, _) => "it is tried again".to_owned(),
                        (true, Some(alternate)) => format!("destination {alternate} stands in for it"),
                        (true, None) => {
                            "it was given up: enable it again with `standfast destination enable`".into()
                        }
                    };
                    let alert = &now.environment.alert;
                    let what = format!("destination {}: archiving failed: {error}; {next}", at.name);
                    alert.say(hint::in_one_line(what, error.hint().as_deref()));
                }
            }
        }
    }

    /// Resets the failures of a destination, so that it is retried immediately.
    pub fn enable(&mut self, name: &str) {
        if let Some(standing) = self.standings.get_mut(name) {
            (standing.failures, standing.retry_at) = (0, None);
        }
    }

    fn has(&self, at: &DestinationConfig) -> Scn {
        self.standings.get(&at.name).map_or(Scn::ZERO, |standing| standing.has)
    }

    fn limit(&self, now: &Archiving<'_>, local: &[&DestinationConfig]) -> Scn {
        let min_succeed = now.environment.config.redo.archive_min_succeed;
        let here = local.iter().filter(|at| at.state == State::Enable).map(|at| {
            let stand_in = local.iter().find(|other| at.alternate.as_ref() == Some(&other.name));
            let has = self.has(at).max(stand_in.map_or(Scn::ZERO, |other| self.has(other)));
            Place { mandatory: at.mandatory, has }
        });
        let there =
            now.configured.iter().filter(|at| !at.is_local() && at.state == State::Enable && at.id <= 10);
        let there = there.filter(|at| at.valid_for.of_a_primary()).map(|at| {
            let has =
                now.hardened.iter().find(|(name, _)| *name == at.name).map_or(Scn::ZERO, |(_, scn)| *scn);
            Place { mandatory: at.mandatory, has }
        });
        reuse_limit(min_succeed, &here.chain(there).collect::<Vec<_>>())
    }

    fn status(&self, at: &DestinationConfig, local: &[&DestinationConfig]) -> LocalDestination {
        let standing = self.standings.get(&at.name).cloned().unwrap_or_default();
        let status = match at.state {
            State::Defer => "DEFERRED",
            State::Alternate if !self.stands_in(at, local) => "ALTERNATE",
            _ if self.is_given_up(at) => "DISABLED",
            _ if standing.failures > 0 => "ERROR",
            _ => "VALID",
        };
        LocalDestination {
            name: Some(at.name.clone()),
            location: at.location.as_ref().map(|path| path.to_string_lossy().into_owned()),
            // As V$ARCHIVE_DEST.STATUS; DISABLED: abandoned after too many failures, ALTERNATE: not needed.
            status: Some(status.into()),
            mandatory: Some(at.mandatory),
            has: Some(standing.has.0).filter(|scn| *scn > 0),
            failures: Some(standing.failures.into()),
            trouble: standing.error,
        }
    }
}

/// Copies the archived logs that `directory` lacks, oldest first. Stops at the first error.
fn copy_missing(
    directory: &Path,
    archived: &[ArchivedLog],
    standing: &mut Standing,
    stopping: &dyn Fn() -> bool,
) -> Result<(), InstanceError> {
    for log in archived {
        let (Some(name), Some(end)) = (log.path.file_name(), log.header.next_scn) else { continue };
        if end <= standing.has {
            continue;
        }
        let target = directory.join(name);
        let there = std::fs::metadata(&target).is_ok_and(|there| there.len() == bytes_of(&log.path));
        if !there {
            copy(&log.path, &target, log.header.first_scn, stopping)?;
        }
        standing.has = end;
    }
    Ok(())
}

fn bytes_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(u64::MAX, |file| file.len())
}

fn copy(source: &Path, target: &Path, first: Scn, stopping: &dyn Fn() -> bool) -> Result<(), InstanceError> {
    let part = target.with_extension("part");
    let copied = write_copy(source, &part, stopping).and_then(|()| {
        verify_archived(&DirectDisk, &part, first)?;
        std::fs::rename(&part, target).map_err(InstanceError::io("name the archived log", target))
    });
    if copied.is_err() {
        // The next attempt removes what is left.
        let _ = outside::remove(&part);
    }
    copied?;
    sync_directory_of(target).map_err(InstanceError::io("sync the directory of", target))
}

fn write_copy(source: &Path, part: &Path, stopping: &dyn Fn() -> bool) -> Result<(), InstanceError> {
    let mut from = File::open(source).map_err(InstanceError::io("open the archived log", source))?;
    // Removes what the previous attempt left.
    let mut to = outside::remove(part)
        .and_then(|()| outside::create_new(part, 0o600))
        .map_err(InstanceError::io("create the archived log", part))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let bytes = from.read(&mut buffer).map_err(InstanceError::io("read the archived log", source))?;
        if bytes == 0 {
            break;
        }
        if stopping() {
            return Err(InstanceError::Failed("the instance is stopping".into()));
        }
        to.write_all(&buffer[..bytes]).map_err(InstanceError::io("write the archived log", part))?;
        std::thread::sleep(PAUSE);
    }
    to.sync_all().map_err(InstanceError::io("sync the archived log", part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(mandatory: bool, has: u64) -> Place {
        Place { mandatory, has: Scn(has) }
    }

    #[test]
    fn logs_are_reused_once_mandatory_and_enough_archives_have_them() {
        let all = [place(false, 100), place(false, 300), place(true, 200)];
        assert_eq!(reuse_limit(1, &all), Scn(200), "the mandatory one");
        assert_eq!(reuse_limit(1, &all[..2]), Scn(u64::MAX), "the own archive is enough");
        assert_eq!(reuse_limit(2, &all[..2]), Scn(300), "one more");
        assert_eq!(reuse_limit(3, &all[..2]), Scn(100), "two more");
        assert_eq!(reuse_limit(4, &all), Scn(100));
        assert_eq!(reuse_limit(5, &all), Scn::ZERO, "there are not as many");
        assert_eq!(reuse_limit(1, &[]), Scn(u64::MAX));
    }
}
