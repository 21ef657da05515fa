//! How each fault begins and ends.

use super::application::Application;
use super::fault::Fault;
use super::stage::Stage;
use super::wal_index::{Number, path_of, publish};
use crate::application::client::Answer;
use crate::instance::TIMEOUT;
use crate::process::{Process, await_condition, run};
use crate::{CampaignError, During, Result};
use rusqlite::Connection;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Delay between two actions of an agent: short enough for a lasting fault, long enough that the agent's own load on
/// the machine does not matter.
const PACE: Duration = Duration::from_millis(250);
/// Delay of writers that are to restart a WAL or let it grow.
const QUICK_PACE: Duration = Duration::from_millis(10);
/// Values that fill a volume, and values that let a WAL grow.
const FILLING: &str = "randomblob(200000)";
const GROWING: &str = "randomblob(20000)";
/// Space left on the volume that is filled: less than the WAL needs.
const ROOM: u64 = 256 << 10;
/// Size of a frame of these databases.
const FRAME_BYTES: u64 = 4096 + 24;
/// The first SQLite that gives frames their checksums after ROLLBACK TO.
const FIXED_IN: [u32; 3] = [3, 50, 2];

/// Frames are overwritten, rolled back, and written again before the first one that was overwritten; a SQLite before
/// 3.50.2 leaves these without salts and checksums. `END s` is a placeholder.
const ZEROED: &str = "PRAGMA busy_timeout=30000; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=5; \
    BEGIN; SAVEPOINT s; \
    UPDATE bulk SET x = randomblob(900) WHERE id BETWEEN 100 AND 200; \
    UPDATE bulk SET x = randomblob(900) WHERE id BETWEEN 195 AND 200; \
    UPDATE bulk SET x = randomblob(900) WHERE id > 150; \
    END s; \
    UPDATE bulk SET x = randomblob(899) WHERE id <= 20; \
    COMMIT;";

/// Spills its pages, then reads and changes them again.
const SPILLS: &str = "PRAGMA cache_size=5; BEGIN; \
    UPDATE bulk SET x = randomblob(900); UPDATE bulk SET x = zeroblob(900) WHERE id % 2; COMMIT";

/// Ends all agents, including those that wait.
#[derive(Default)]
struct Stop {
    ordered: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn order(&self) {
        *self.ordered.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Whether the order comes within `time`.
    fn comes_within(&self, time: Duration) -> bool {
        let ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        *self
            .changed
            .wait_timeout_while(ordered, time, |ordered| !*ordered)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

pub struct Strike {
    fault: Fault,
    victim: usize,
    stop: Arc<Stop>,
    /// Set when the fault begins: the agents' actions are the fault from then on.
    begun: Arc<AtomicBool>,
    /// How often the fault has struck.
    acts: Arc<AtomicU64>,
    agents: Vec<JoinHandle<Result<()>>>,
    applications: Vec<Application>,
    /// Connections without the VFS, with open transactions.
    connections: Vec<Connection>,
    commands: Vec<Process>,
}

/// Returns the reason why this machine cannot run a fault; `None` when it can.
pub fn skipped(fault: Fault, has_volume: bool) -> Option<String> {
    match fault {
        Fault::FullVolume if !has_volume => Some("a small volume cannot be mounted here".into()),
        Fault::ZeroedFrames => match old_sqlite() {
            Ok(version) if version < FIXED_IN => None,
            Ok([major, minor, patch]) => {
                Some(format!("the sqlite3 here is {major}.{minor}.{patch}, which has not that fault"))
            }
            Err(error) => Some(format!("no sqlite3 of before 3.50.2: {error}")),
        },
        _ => None,
    }
}

/// Returns the version of the machine's `sqlite3`.
fn old_sqlite() -> Result<[u32; 3]> {
    let mut command = Command::new("sqlite3");
    command.arg("--version");
    let text = run(command)?.ok()?;
    let mut numbers = text.split([' ', '.']).map_while(|part| part.parse().ok());
    let mut next = || numbers.next().unwrap_or(0);
    Ok([next(), next(), next()])
}

impl Strike {
    /// Prepares `fault` in `victim`: starts the processes that will cause it. Until the fault begins they cost the
    /// machine the same without being a fault.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn prepare(stage: &mut Stage, victim: usize, fault: Fault) -> Result<Strike> {
        let mut strike = Strike {
            fault,
            victim,
            stop: Arc::default(),
            begun: Arc::default(),
            acts: Arc::default(),
            agents: Vec::new(),
            applications: Vec::new(),
            connections: Vec::new(),
            commands: Vec::new(),
        };
        let path = stage.databases[victim].path.clone();
        match fault {
            Fault::ZeroedFrames => strike.zeroed_frames(stage, path),
            Fault::SpillError => strike.spill_error(stage, path)?,
            Fault::ProtectBackfilled => strike.protect_backfilled(stage, path)?,
            Fault::FullVolume => strike.bulk(stage, &path, FILLING, PACE, false)?,
            Fault::LongReader => strike.bulk(stage, &path, GROWING, QUICK_PACE, true)?,
            // No other process may write there. The load would follow a wild number in its own process.
            Fault::BadFrameCount | Fault::BadSize | Fault::OpenOverRestart | Fault::LockedProtect => {
                stage.stop_victim();
            }
            Fault::TruncatedIndex | Fault::StuckApplication | Fault::FrozenPrimary => {}
        }
        Ok(strike)
    }

    /// Begins the fault in the victim.
    ///
    /// # Errors
    /// When that fails.
    pub fn begin(&mut self, stage: &mut Stage) -> Result<()> {
        let path = stage.databases[self.victim].path.clone();
        match self.fault {
            Fault::ZeroedFrames | Fault::SpillError | Fault::ProtectBackfilled => {}
            Fault::TruncatedIndex => {
                let index = path_of(&path);
                let file = std::fs::OpenOptions::new().write(true).open(&index);
                let cut = file.and_then(|file| file.set_len(0));
                cut.during(|| format!("truncate {}", index.display()))?;
                self.acted();
            }
            Fault::BadFrameCount | Fault::BadSize => {
                let is_size = self.fault == Fault::BadSize;
                publish(&path, if is_size { Number::Pages(1 << 31) } else { Number::Frames(1 << 20) })?;
                self.acted();
            }
            Fault::FullVolume => {
                if let Some(volume) = &stage.volume {
                    volume.fill(ROOM)?;
                }
                // Otherwise the WAL would be reset, and its present size would be enough.
                self.connections.push(open_transaction(&path, "BEGIN; SELECT count(*) FROM t")?);
            }
            Fault::LongReader => {
                self.connections.push(open_transaction(&path, "BEGIN; SELECT count(*) FROM t")?);
            }
            Fault::OpenOverRestart => {
                let mut application = self.application(stage, &path)?;
                application.must("BEGIN IMMEDIATE; UPDATE bulk SET x = 'open' WHERE id = 1", TIMEOUT)?;
                self.applications.push(application);
                stage.restart_primary()?;
                self.acted();
            }
            Fault::LockedProtect => {
                stage.primary.must(&["unprotect", &stage.databases[self.victim].name])?;
                self.connections.push(open_transaction(&path, "BEGIN IMMEDIATE")?);
                self.commands.push(stage.primary.begin(&["protect", &path.to_string_lossy()])?);
                self.acted();
            }
            Fault::StuckApplication => {
                let mut application = self.application(stage, &path)?;
                application.must("BEGIN IMMEDIATE; UPDATE bulk SET x = 'stuck' WHERE id = 1", TIMEOUT)?;
                application.freeze();
                self.applications.push(application);
                if let Some(load) = stage.victim() {
                    load.freeze(true);
                }
                self.acted();
            }
            Fault::FrozenPrimary => {
                if let Some(primary) = stage.primary.process() {
                    primary.freeze(true);
                }
                self.acted();
            }
        }
        self.begun.store(true, SeqCst);
        Ok(())
    }

    /// Waits until the fault has struck once, or an agent has ended.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn await_act(&self) -> Result<()> {
        await_condition(&format!("{} takes place", self.fault.name()), TIMEOUT, || {
            let waits = self.acts.load(SeqCst) == 0 && !self.agents.iter().any(JoinHandle::is_finished);
            Ok(if waits { Err(String::new()) } else { Ok(()) })
        })
    }

    /// Ends a fault that keeps the instance from answering.
    pub fn thaw(&self, stage: &Stage) {
        if self.fault == Fault::FrozenPrimary
            && let Some(primary) = stage.primary.process()
        {
            primary.freeze(false);
        }
    }

    fn acted(&self) {
        self.acts.fetch_add(1, SeqCst);
    }

    fn application(&self, stage: &Stage, path: &Path) -> Result<Application> {
        Application::start(&stage.programs, path, &stage.directory.join("application.out"))
    }

    /// Repeats `act` until the stop. Its argument: whether the fault has begun. Its result: whether it has acted.
    fn agent(&mut self, pace: Duration, mut act: impl FnMut(bool) -> Result<bool> + Send + 'static) {
        let (stop, acts, begun) = (self.stop.clone(), self.acts.clone(), self.begun.clone());
        self.agents.push(std::thread::spawn(move || {
            while !stop.comes_within(pace) {
                let begun = begun.load(SeqCst);
                if act(begun)? && begun {
                    acts.fetch_add(1, SeqCst);
                }
            }
            Ok(())
        }));
    }

    fn zeroed_frames(&mut self, stage: &mut Stage, path: PathBuf) {
        // A process that takes the lock without the queue would starve next to a process that commits continuously.
        stage.stop_victim();
        let load = format!(".load {}\n.open {}", stage.programs.extension.display(), path.display());
        let mut plain = false;
        self.agent(PACE, move |begun| {
            plain = !plain;
            let end = if begun { "ROLLBACK TO s" } else { "RELEASE s" };
            sqlite3(if plain { None } else { Some(&load) }, &ZEROED.replace("END s", end), &path)?;
            Ok(true)
        });
    }

    fn spill_error(&mut self, stage: &mut Stage, path: PathBuf) -> Result<()> {
        let mut application = self.application(stage, &path)?;
        let mut number = 0;
        self.agent(PACE, move |begun| {
            number += 1;
            // Sets the limit at one frame after another; every fifth time there is none.
            let room = (number % 40) * FRAME_BYTES;
            let used = wal_bytes(&path)?;
            application.limit_files((begun && number % 5 != 0).then_some(used + room));
            application.send(SPILLS)?;
            let failed = matches!(application.answer(TIMEOUT), Some(Answer::Failed { .. }));
            application.limit_files(None);
            if failed {
                application.send("ROLLBACK")?;
                let _ = application.answer(TIMEOUT);
            }
            Ok(failed)
        });
        Ok(())
    }

    fn protect_backfilled(&mut self, stage: &mut Stage, path: PathBuf) -> Result<()> {
        stage.stop_victim();
        let connection = plain(&path)?;
        connection.execute_batch("PRAGMA synchronous=OFF").during(|| "write without syncs".into())?;
        self.agent(QUICK_PACE, move |_| {
            // The result does not matter: while the database is protected, these statements are sometimes refused.
            let _ = connection.execute_batch(
                "UPDATE bulk SET x = randomblob(900) WHERE id = 1; PRAGMA wal_checkpoint(PASSIVE)",
            );
            Ok(false)
        });
        let (standfast, directory) = (stage.programs.standfast.clone(), stage.primary.directory.clone());
        self.agent(PACE, move |begun| {
            // Before the fault, commands that cost the machine the same.
            for word in if begun { ["unprotect", "protect"] } else { ["status", "status"] } {
                let mut command = Command::new(&standfast);
                command.arg(word).arg("-D").arg(&directory);
                if begun {
                    command.arg(&path);
                }
                // A refusal is a valid answer: the campaign judges the other databases.
                run(command)?;
            }
            Ok(true)
        });
        Ok(())
    }

    /// Overwrites 20 rows in turn with the value `row`. `counts`: every write is an act, not only one that fails.
    fn bulk(
        &mut self,
        stage: &mut Stage,
        path: &Path,
        row: &'static str,
        pace: Duration,
        counts: bool,
    ) -> Result<()> {
        let mut application = self.application(stage, path)?;
        let mut number = 0;
        self.agent(pace, move |_| {
            number = (number + 1) % 20;
            application.send(&format!("INSERT OR REPLACE INTO bulk VALUES ({}, {row})", 1000 + number))?;
            let answer = application.answer(TIMEOUT);
            Ok(counts || matches!(answer, Some(Answer::Failed { .. })))
        });
        Ok(())
    }

    /// Ends the fault, as far as possible. Returns how often it struck.
    ///
    /// # Errors
    /// When an agent or a process of the fault has failed.
    pub fn end(mut self, stage: &mut Stage) -> Result<u64> {
        self.stop.order();
        for agent in self.agents.drain(..) {
            agent.join().map_err(|_| CampaignError::Unreadable {
                what: format!("what became of {}", self.fault.name()),
                detail: "its thread died".into(),
            })??;
        }
        for connection in self.connections.drain(..) {
            // COMMIT also ends the transaction of a reader.
            connection.execute_batch("COMMIT").during(|| "end a transaction".into())?;
        }
        if self.fault == Fault::OpenOverRestart {
            for application in &mut self.applications {
                // Its outcome may be unknown: the instance was down while the transaction was open.
                application.send("COMMIT")?;
                let _ = application.answer(TIMEOUT);
            }
        }
        self.applications.clear();
        for command in self.commands.drain(..) {
            command.wait_for_end(TIMEOUT)?;
        }
        match self.fault {
            Fault::FullVolume => {
                if let Some(volume) = &stage.volume {
                    volume.empty();
                }
            }
            Fault::StuckApplication => {
                if let Some(load) = stage.victim() {
                    load.freeze(false);
                }
            }
            _ => {}
        }
        if !self.fault.spoils_files() && self.fault != Fault::TruncatedIndex {
            stage.start_victim(self.victim)?;
        }
        Ok(self.acts.load(SeqCst))
    }
}

impl Drop for Strike {
    fn drop(&mut self) {
        self.stop.order();
    }
}

/// Runs `sql` in the machine's `sqlite3`; through the VFS, with the commands in `load`, or without.
fn sqlite3(load: Option<&str>, sql: &str, path: &Path) -> Result<()> {
    let during = || "run sqlite3".to_owned();
    let mut command = Command::new("sqlite3");
    command.arg("-bail").arg(if load.is_some() { Path::new(":memory:") } else { path });
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn().during(during)?;
    if let Some(mut input) = process.stdin.take() {
        let text = format!("{}\n{sql}\n", load.unwrap_or_default());
        input.write_all(text.as_bytes()).during(during)?;
    }
    let output = process.wait_with_output().during(during)?;
    if output.status.success() {
        return Ok(());
    }
    Err(CampaignError::Program {
        program: "sqlite3".into(),
        problem: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Opens a database in this process, which does not have Standfast's VFS.
fn plain(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path).during(|| format!("open {}", path.display()))?;
    connection.busy_timeout(Duration::from_secs(5)).during(|| "set the busy timeout".into())?;
    Ok(connection)
}

fn open_transaction(path: &Path, sql: &str) -> Result<Connection> {
    let connection = plain(path)?;
    connection.execute_batch(sql).during(|| format!("{sql} in {}", path.display()))?;
    Ok(connection)
}

/// Returns the size of the WAL up to mxFrame of the wal-index, in bytes.
fn wal_bytes(database: &Path) -> Result<u64> {
    use std::os::unix::fs::FileExt;
    let index = path_of(database);
    let mut frames = [0; 4];
    let read = std::fs::File::open(&index).and_then(|file| file.read_exact_at(&mut frames, 16));
    read.during(|| format!("read {}", index.display()))?;
    Ok(32 + u64::from(u32::from_ne_bytes(frames)) * FRAME_BYTES)
}
