//! A primary with many databases, its standby, and the processes that commit.

use super::load::{create_database, newest};
use super::volume::Volume;
use crate::acknowledgements::Acknowledgements;
use crate::instance::{Instance, TIMEOUT};
use crate::process::{Process, await_condition};
use crate::programs::Programs;
use crate::status::Status;
use crate::verify::{Findings, check_integrity, compare_pages};
use crate::{CampaignError, During, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const STANDBY: &str = "north";
/// Large groups, so that logs are switched rarely: a switch that falls into one window and not into another would look
/// like an effect of the fault.
const GROUP_BYTES: &str = "67108864";
/// Rows of 900 bytes, on which the faults work; the load does not touch them.
const BULK_ROWS: u32 = 200;

pub struct Database {
    /// Name at the instances, the same as its file name.
    pub name: String,
    pub path: PathBuf,
    /// It was created again during the campaign, so rows acknowledged before are not in it.
    recreated: bool,
}

/// Everything is killed on drop; the directory stays.
pub struct Stage {
    pub programs: Programs,
    pub directory: PathBuf,
    pub primary: Instance,
    pub standby: Instance,
    /// The databases; the first one is on [`Stage::volume`], if there is one.
    pub databases: Vec<Database>,
    /// Commits acknowledged to the load; the writer of each database has the number of the database.
    pub reported: Acknowledgements,
    /// A small volume with the first database.
    pub volume: Option<Volume>,
    /// Load on all databases but the victim.
    others: Option<Process>,
    victim: Option<Process>,
}

impl Stage {
    /// Sets up `count` databases, which the primary ships SYNC AFFIRM to its standby. With `volume`, the first database
    /// is on that small volume.
    ///
    /// # Errors
    /// When anything fails.
    pub fn set_up(
        programs: &Programs,
        directory: &Path,
        count: usize,
        volume: Option<Volume>,
    ) -> Result<Stage> {
        let data = directory.join("data");
        std::fs::create_dir_all(&data).during(|| format!("create {}", data.display()))?;
        let mut databases = Vec::new();
        for number in 0..count {
            let name = format!("db{number:02}.db");
            let below = if number == 0 && volume.is_some() { volume_path(directory) } else { data.clone() };
            let database = Database { path: below.join(&name), name, recreated: false };
            make(&database.path)?;
            databases.push(database);
        }
        let reported = Acknowledgements::create(&directory.join("acknowledged"), count)?;
        let more = ["--group-bytes", GROUP_BYTES];
        let mut primary = Instance::init(programs, &directory.join("primary"), "south", &more)?;
        primary.start()?;
        for database in &databases {
            primary.must(&["protect", &database.path.to_string_lossy()])?;
        }
        let mut standby = Instance::standby_of(&primary, &directory.join("standby"), STANDBY)?;
        standby.start()?;
        // Long, because a busy machine must not count as a lost standby.
        primary.must(&[
            "destination",
            "add",
            STANDBY,
            &standby.address,
            "--mode",
            "sync-affirm",
            "--net-timeout-ms",
            "20000",
        ])?;
        primary.await_status("the standby follows", |status| status.streams() && status.settled())?;
        let (programs, directory) = (programs.clone(), directory.to_owned());
        Ok(Stage {
            programs,
            directory,
            primary,
            standby,
            databases,
            reported,
            volume,
            others: None,
            victim: None,
        })
    }

    fn load(&self, databases: impl Iterator<Item = usize>, log: &str) -> Result<Process> {
        let mut command = Command::new(&self.programs.campaign);
        command.arg("load").arg("--extension").arg(&self.programs.extension);
        command.arg("--acknowledgements").arg(self.directory.join("acknowledged"));
        for number in databases {
            command.arg("--database").arg(&self.databases[number].path);
            command.arg("--writer").arg(number.to_string());
        }
        Process::start(command, &self.directory.join(log))
    }

    /// Starts the load on all databases but `victim`, and a separate process with the load on `victim`.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn start_load(&mut self, victim: usize) -> Result<()> {
        self.reported.order_stop(false);
        self.others =
            Some(self.load((0..self.databases.len()).filter(|number| *number != victim), "others.out")?);
        self.start_victim(victim)
    }

    /// Starts the load on `victim`, unless it runs.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_victim(&mut self, victim: usize) -> Result<()> {
        if self.victim.is_none() {
            self.victim = Some(self.load(std::iter::once(victim), "victim.out")?);
        }
        Ok(())
    }

    /// Kills the load on the victim.
    pub fn stop_victim(&mut self) {
        self.victim = None;
    }

    /// The load on the victim, while it runs.
    pub fn victim(&self) -> Option<&Process> {
        self.victim.as_ref()
    }

    /// Lets the load finish its transactions and waits for its end.
    ///
    /// # Errors
    /// When it hangs or has failed.
    pub fn stop_load(&mut self) -> Result<()> {
        self.stop_victim();
        self.reported.order_stop(true);
        let Some(others) = self.others.take() else { return Ok(()) };
        let failed = others.failed("failed");
        if others.wait_for_end(TIMEOUT)?.success() { Ok(()) } else { Err(failed) }
    }

    /// Returns the acknowledged commits of each database.
    pub fn commits(&self) -> Vec<u64> {
        (0..self.databases.len()).map(|number| self.reported.entry(number, 0).commits()).collect()
    }

    /// Waits until each of `databases` has had another commit acknowledged.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn await_progress(&self, databases: impl Fn(usize) -> bool) -> Result<()> {
        let before = self.commits();
        await_condition("every database takes commits", TIMEOUT, || {
            let now = self.commits();
            let stuck = (0..now.len()).find(|number| databases(*number) && now[*number] == before[*number]);
            Ok(stuck.map_or(Ok(()), |number| Err(format!("{} does not", self.databases[number].name))))
        })
    }

    /// Kills the primary and starts it again.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart_primary(&mut self) -> Result<()> {
        self.primary.kill();
        self.primary.start()
    }

    /// Returns the databases other than `victim` that are not open at the primary or stopped at the standby, each with
    /// its state.
    ///
    /// # Errors
    /// When the status cannot be read.
    pub fn changed(&self, victim: usize) -> Result<Vec<String>> {
        let status = self.primary.status()?;
        let stopped = stopped_at_standby(&status);
        let mut changed = Vec::new();
        for (number, database) in self.databases.iter().enumerate().filter(|(number, _)| *number != victim) {
            let state = status.database_state(&self.databases[number].name);
            if state != "open" {
                changed.push(format!("{} is {state}", database.name));
            }
            if stopped.iter().any(|text| text.contains(&database.name)) {
                changed.push(format!("{} is stopped at the standby", database.name));
            }
        }
        if self.standby.has_ended() {
            changed.push("the standby has ended".into());
        }
        Ok(changed)
    }

    /// Returns the state of `database` at the primary; empty when it is not protected.
    ///
    /// # Errors
    /// When the status cannot be read.
    pub fn state(&self, database: usize) -> Result<String> {
        Ok(self.primary.status()?.database_state(&self.databases[database].name).to_owned())
    }

    /// Restores `victim`: protected, and open at both ends. `scratch`: its files are created again from scratch.
    ///
    /// # Errors
    /// When the database does not recover.
    pub fn recover(&mut self, victim: usize, scratch: bool) -> Result<()> {
        self.stop_victim();
        let state = self.state(victim)?;
        let path = self.databases[victim].path.clone();
        if scratch || !matches!(state.as_str(), "open" | "") {
            if !state.is_empty() {
                self.primary.must(&["unprotect", &self.databases[victim].name])?;
            }
            for suffix in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
            }
            make(&path)?;
            self.databases[victim].recreated = true;
        }
        if self.state(victim)? != "open" {
            self.primary.must(&["protect", &path.to_string_lossy()])?;
        }
        let name = self.databases[victim].name.clone();
        self.primary.await_status("the database is back", |status| {
            status.database_state(&name) == "open"
                && status.streams()
                && stopped_at_standby(status).is_empty()
        })?;
        Ok(())
    }

    /// Waits until the standby has everything, then checks for lost rows and differing pages. The load must have
    /// stopped.
    ///
    /// # Errors
    /// When the standby does not catch up, or a check cannot be made.
    pub fn check(&self) -> Result<Findings> {
        self.primary.await_status("the standby has applied everything", Status::settled)?;
        let mut findings = Findings::default();
        for (number, database) in self.databases.iter().enumerate() {
            let copy = self.standby.standby_database(&database.name);
            for path in [&database.path, &copy] {
                findings.add(check_integrity(path)?);
                let (there, reported) = (newest(path)?, self.reported.entry(number, 0).acknowledged());
                if !database.recreated && there < reported {
                    findings.lost += reported - there;
                    findings.notes.push(format!("{}: {there} of {reported} acknowledged", path.display()));
                }
            }
            findings.add(compare_pages(&database.path, &copy)?.findings);
        }
        Ok(findings)
    }

    /// Size of the primary's alert log in bytes.
    pub fn alert_bytes(&self) -> usize {
        self.primary.alerts().len()
    }

    /// Returns the lines that the alert log has gained since it had `from` bytes and that report a failure, an
    /// exclusion or a full resync of a database other than `victim`.
    pub fn alerts_about_others(&self, from: usize, victim: usize) -> Vec<String> {
        const CHANGES: [&str; 4] = ["has failed", "offline", "excluded", "full image"];
        let alerts = self.primary.alerts();
        let about_another = |line: &str| {
            let others = self.databases.iter().enumerate().filter(|(number, _)| *number != victim);
            others.map(|(_, database)| &database.name).any(|name| line.contains(name.as_str()))
        };
        let new = alerts.get(from..).unwrap_or_default().lines();
        new.filter(|line| CHANGES.iter().any(|words| line.contains(words)) && about_another(line))
            .map(str::to_owned)
            .collect()
    }

    /// Formats an error with the last lines of both alert logs.
    pub fn explain(&self, error: &CampaignError) -> String {
        let (primary, standby) = (self.primary.last_words(), self.standby.last_words());
        format!("{error}\nprimary:{primary}\nstandby:{standby}")
    }

    /// Returns the process id of the primary from its status.
    ///
    /// # Errors
    /// When the status cannot be read.
    pub fn primary_pid(&self) -> Result<u64> {
        Ok(self.primary.status()?.number("/pid"))
    }
}

/// Mount point of the small volume.
pub fn volume_path(directory: &Path) -> PathBuf {
    directory.join("volume")
}

fn make(path: &Path) -> Result<()> {
    create_database(path)?;
    let during = || format!("fill {}", path.display());
    let connection = rusqlite::Connection::open(path).during(during)?;
    connection.busy_timeout(Duration::from_secs(10)).during(during)?;
    let fill = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {BULK_ROWS})
         INSERT INTO bulk SELECT i, randomblob(900) FROM n"
    );
    connection.execute_batch(&fill).during(during)
}

fn stopped_at_standby(status: &Status) -> Vec<String> {
    let stopped = status.json().pointer("/destinations/0/stopped_databases").and_then(Value::as_array);
    stopped.into_iter().flatten().map(Value::to_string).collect()
}
