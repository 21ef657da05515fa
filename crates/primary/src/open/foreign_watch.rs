//! The thread `fmon`: commits without the VFS. Capture counts such commits on the log writer's thread; searching for
//! the processes takes the time of reading `/proc`, and the alert log may be slow, so both are done here. Where such
//! processes are refused, this thread keeps them out.

use crate::commit::database::{Database, Door};
use crate::commit::foreign_processes::{self, ForeignProcess, KernelFile, Wanted};
use crate::commit::primary::PrimaryShared;
use crate::open::protect;
use standfast_environment::config::settings::ForeignWriters;
use standfast_environment::context::environment::Environment;
use standfast_session::{DatabaseState, OtherWriters, Segment};
use standfast_types::{DatabaseId, hint};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between checks of the counts.
pub const EVERY: Duration = Duration::from_secs(1);
/// Shortest interval between searches for the processes.
const SCAN_EVERY: Duration = Duration::from_secs(10);
/// Interval between searches of protected directories for unprotected databases.
const SEARCH_EVERY: Duration = Duration::from_secs(15);
/// Shortest interval between alerts for one database.
const ALERT_EVERY: Duration = Duration::from_secs(600);
const NAMED_MAX: usize = 8;

/// What was reported about a database.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Reported {
    /// Commits when the processes were last searched for.
    scanned: u64,
    alerted: u64,
    at: Option<Instant>,
}

impl Reported {
    /// Returns how many commits an alert has to report now, if one is due. Pure.
    fn due(&self, commits: u64, now: Instant) -> Option<u64> {
        let fresh = commits.checked_sub(self.alerted).filter(|fresh| *fresh > 0)?;
        self.at.is_none_or(|at| now.saturating_duration_since(at) >= ALERT_EVERY).then_some(fresh)
    }
}

pub struct ForeignWatch {
    environment: Arc<Environment>,
    shared: Arc<PrimaryShared>,
    reported: BTreeMap<DatabaseId, Reported>,
    scanned: Option<Instant>,
    searched: Option<Instant>,
}

impl ForeignWatch {
    /// Watches the databases of a primary.
    pub fn new(environment: Arc<Environment>, shared: Arc<PrimaryShared>) -> ForeignWatch {
        ForeignWatch { environment, shared, reported: BTreeMap::new(), scanned: None, searched: None }
    }

    pub fn pass(&mut self) {
        let databases = self.shared.all_databases();
        self.reported.retain(|id, _| databases.iter().any(|database| database.id() == *id));
        for database in &databases {
            keep_door(&self.environment, &self.shared.segment, database);
        }
        let now = Instant::now();
        if self.scanned.is_none_or(|at| now.saturating_duration_since(at) >= SCAN_EVERY) {
            self.scan(&databases, now);
        }
        if self.searched.is_none_or(|at| now.saturating_duration_since(at) >= SEARCH_EVERY) {
            self.search(now);
        }
        for database in &databases {
            let reported = self.reported.entry(database.id()).or_default();
            // Only once the processes were searched for since the last alert.
            if reported.scanned > reported.alerted
                && let Some(fresh) = reported.due(reported.scanned, now)
            {
                (reported.alerted, reported.at) = (reported.scanned, Some(now));
                let text = alert(&database.record().name, fresh, &database.foreign_processes());
                self.environment.alert.say(text);
            }
        }
    }

    /// Searches protected directories for unprotected databases, and reports new ones.
    fn search(&mut self, now: Instant) {
        let environment = &self.environment;
        let control = environment.control();
        let found = match control.directories.is_empty() {
            true => Vec::new(),
            false => match protect::unprotected_in(control.instance.0, &control.directories, &|| {
                environment.control().databases
            }) {
                Some(found) => found,
                // A database is being taken under protection.
                None => return,
            },
        };
        self.searched = Some(now);
        let known = self.shared.set_unprotected(found.clone());
        let fresh: Vec<_> = found.iter().filter(|path| !known.contains(path)).collect();
        if let Some(first) = fresh.first() {
            let more = if fresh.len() > 1 { format!(" and {} more", fresh.len() - 1) } else { String::new() };
            environment.alert.say(hint::in_one_line(
                format_args!(
                    "NOT PROTECTED: {}{more}, a database in a directory that is protected",
                    first.display()
                ),
                Some(
                    "run `standfast protect` for the file or the directory, or `standfast unprotect` for the directory",
                ),
            ));
        }
    }

    /// Searches for the processes behind commits that came since the last search.
    fn scan(&mut self, databases: &[Arc<Database>], now: Instant) {
        let reported = &self.reported;
        let scanned =
            |database: &Database| reported.get(&database.id()).map_or(0, |reported| reported.scanned);
        let fresh = databases.iter().filter(|database| database.foreign_commits() > scanned(database));
        let fresh: Vec<_> = fresh.map(|database| (database, database.foreign_commits())).collect();
        if fresh.is_empty() {
            return;
        }
        self.scanned = Some(now);
        let sessions: Vec<_> = self.shared.segment.sessions_of_databases().collect();
        let wanted = fresh.iter().filter_map(|(database, commits)| {
            let file = KernelFile::of(&database.record().path)?;
            let own = sessions.iter().filter(|(of, _)| *of == database.id().0).map(|(_, pid)| *pid);
            Some((*database, *commits, Wanted { file, sessions: own.collect() }))
        });
        let (wanted, files): (Vec<_>, Vec<_>) =
            wanted.map(|(database, commits, wanted)| ((database, commits), wanted)).unzip();
        let segment = self.environment.segment_path.file_name().unwrap_or_default().to_string_lossy();
        let found = foreign_processes::find(&files, &segment);
        for ((database, commits), processes) in wanted.into_iter().zip(found) {
            database.set_foreign_processes(processes);
            self.reported.entry(database.id()).or_default().scanned = commits;
        }
    }
}

/// Serves a database from now on: sessions may write. Keeps processes without the VFS out first, if they are refused.
pub fn let_sessions_in(environment: &Environment, segment: &Segment, database: &Database) {
    keep_door(environment, segment, database);
    segment.set_state(database.id().0, DatabaseState::Open);
}

/// Keeps processes without the VFS out of a database that refuses them. The shared memory says so first: sessions that
/// take the lock in the earlier way would find it busy. Called again until it is settled.
fn keep_door(environment: &Environment, segment: &Segment, database: &Database) {
    if database.door() != Door::Unknown {
        return;
    }
    let (name, id) = (&database.record().name, database.id().0);
    match environment.config.instance.foreign_writers(name) {
        ForeignWriters::Refuse => {
            segment.set_other_writers(id, OtherWriters::Refused);
            // Otherwise such a process is writing at the moment, or the connection is in use.
            if database.refuse_others() == Some(true) {
                database.set_door(Door::Closed);
                environment.alert.say(format!(
                    "database {name}: processes without Standfast find it locked when they write"
                ));
            }
        }
        ForeignWriters::Count => {
            if segment.other_writers(id) != OtherWriters::Counted {
                segment.set_other_writers(id, OtherWriters::CountedAgain);
            }
            // Connections from before a change of the setting may hold it shared for as long as they are idle.
            if database.is_write_lock_shared() == Some(false) {
                segment.set_other_writers(id, OtherWriters::Counted);
                database.set_door(Door::Open);
            }
        }
    }
}

fn alert(name: &str, commits: u64, processes: &[ForeignProcess]) -> String {
    let named: Vec<_> = processes.iter().take(NAMED_MAX).map(ForeignProcess::shown).collect();
    let more = processes.len().saturating_sub(NAMED_MAX);
    let who = match (named.is_empty(), more) {
        (true, _) => "no process has the file open without the VFS now: it has closed it, or another of its connections uses the VFS".into(),
        (false, 0) => format!("the file is open in {}", named.join(", ")),
        (false, more) => format!("the file is open in {} and {more} more", named.join(", ")),
    };
    let commits = if commits == 1 { "1 commit".into() } else { format!("{commits} commits") };
    hint::in_one_line(
        format_args!(
            "database {name}: COMMITS WITHOUT STANDFAST: {commits} captured that no session announced. They are in the redo, \
             but waited for no standby; {who}"
        ),
        Some("load the extension in that application before it opens the database"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::foreign_processes::Access;

    #[test]
    fn foreign_commit_alerts_cover_new_commits_and_are_rate_limited() {
        let now = Instant::now();
        let mut reported = Reported::default();
        assert_eq!(reported.due(0, now), None);
        assert_eq!(reported.due(3, now), Some(3));
        (reported.alerted, reported.at) = (3, Some(now));
        assert_eq!(reported.due(5, now), None);
        assert_eq!(reported.due(5, now + ALERT_EVERY), Some(2));
        assert_eq!(reported.due(3, now + ALERT_EVERY), None, "nothing came since");
    }

    #[test]
    fn foreign_commit_alert_lists_processes_and_counts_the_rest() {
        let process = |pid| ForeignProcess { pid, name: "python3".into(), access: Access::NoExtension };
        let text = alert("app.db", 2, &[process(7)]);
        assert!(
            text.contains("2 commits") && text.contains("python3 (pid 7, without the extension)"),
            "{text}"
        );
        let many: Vec<_> = (1..=10).map(process).collect();
        assert!(alert("app.db", 1, &many).contains("and 2 more"));
        assert!(alert("app.db", 1, &[]).contains("no process has the file open"));
    }
}
