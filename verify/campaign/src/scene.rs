//! A primary, a standby, their databases and their applications, in a directory of their own.

use crate::acknowledgements::Acknowledgements;
use crate::instance::{Instance, TIMEOUT};
use crate::process::{Process, await_condition};
use crate::programs::Programs;
use crate::schema::create_database;
use crate::verify::{Findings, check_integrity, check_ledger, compare_pages};
use crate::{During, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const STANDBY: &str = "north";
/// Databases with their page sizes; the second one returns free pages.
const DATABASES: [(&str, u32, bool); 2] = [("orders.db", 4096, false), ("stock.db", 1024, true)];
/// The smallest group size that is allowed, so that logs are switched and archived continually.
const GROUP_BYTES: &str = "8388608";

#[derive(Clone, Copy, Debug)]
pub struct ScenePlan {
    pub processes: usize,
    pub threads: usize,
    /// The last database is protected only after the standby was created.
    pub late: bool,
    /// Commits wait until the standby has them in memory, not on its disk.
    pub fastsync: bool,
    /// The control experiment: commits do not wait for the standby, which is slow. A campaign that finds no loss here
    /// cannot find any.
    pub unprotected: bool,
    /// Both instances refuse processes without the extension.
    pub refuse: bool,
}

/// Everything is killed on drop; the directory stays unless [`Scene::discard`]ed.
pub struct Scene {
    programs: Programs,
    pub directory: PathBuf,
    pub primary: Instance,
    pub standby: Instance,
    pub databases: Vec<PathBuf>,
    pub reported: Acknowledgements,
    pub applications: Vec<Option<Process>>,
    plan: ScenePlan,
}

impl Scene {
    /// Sets up a primary that ships to a standby as the plan says, and waits until it does. Commits never stop waiting
    /// for the standby, except in the control experiment.
    ///
    /// # Errors
    /// When anything fails.
    pub fn set_up(programs: &Programs, directory: &Path, plan: ScenePlan) -> Result<Scene> {
        let data = directory.join("data");
        std::fs::create_dir_all(&data).during(|| format!("create {}", data.display()))?;
        let mut databases = Vec::new();
        for (name, page_size, shrinking) in DATABASES {
            databases.push(data.join(name));
            create_database(&data.join(name), page_size, shrinking)?;
        }
        let reported =
            Acknowledgements::create(&directory.join("acknowledged"), plan.processes * plan.threads)?;
        let mut primary =
            Instance::init(programs, &directory.join("primary"), "south", &["--group-bytes", GROUP_BYTES])?;
        let refuse = |instance: &Instance| {
            if plan.refuse { instance.configure("instance", "foreign_writers", "refuse") } else { Ok(()) }
        };
        refuse(&primary)?;
        primary.start()?;
        let early = databases.len() - usize::from(plan.late);
        for database in &databases[..early] {
            primary.must(&["protect", &database.to_string_lossy()])?;
        }
        let mut standby = Instance::standby_of(&primary, &directory.join("standby"), STANDBY)?;
        refuse(&standby)?;
        if plan.unprotected {
            standby.faults = Some("received=sleep:40@1+".into());
        }
        standby.start()?;
        let mode = match plan {
            ScenePlan { unprotected: true, .. } => "async",
            ScenePlan { fastsync: true, .. } => "fastsync",
            _ => "sync-affirm",
        };
        let destination = ["destination", "add", STANDBY, &standby.address, "--mode", mode];
        primary
            .must(&[&destination[..], &["--on-timeout", "stall", "--net-timeout-ms", "20000"]].concat())?;
        for database in &databases[early..] {
            primary.must(&["protect", &database.to_string_lossy()])?;
        }
        primary.await_status("the standby follows", |status| status.streams() && status.settled())?;
        let (programs, directory) = (programs.clone(), directory.to_owned());
        let applications = (0..plan.processes).map(|_| None).collect();
        Ok(Scene { programs, directory, primary, standby, databases, reported, applications, plan })
    }

    pub fn plan(&self) -> ScenePlan {
        self.plan
    }

    /// Starts the application `number` on `databases`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_application(&mut self, number: usize, seed: u64, databases: &[PathBuf]) -> Result<()> {
        let mut command = Command::new(&self.programs.campaign);
        command.arg("app").arg("--extension").arg(&self.programs.extension);
        databases.iter().for_each(|path| {
            command.arg("--database").arg(path);
        });
        command.arg("--acknowledgements").arg(self.directory.join("acknowledged"));
        command.arg("--first-writer").arg((number * self.plan.threads).to_string());
        command.arg("--threads").arg(self.plan.threads.to_string()).arg("--seed").arg(seed.to_string());
        let log = self.directory.join(format!("application-{number}.out"));
        self.applications[number] = Some(Process::start(command, &log)?);
        Ok(())
    }

    /// Commits acknowledged to the application `number`.
    pub fn commits_of(&self, number: usize) -> u64 {
        self.reported.commits(number * self.plan.threads..(number + 1) * self.plan.threads)
    }

    pub fn commits(&self) -> u64 {
        self.reported.commits(0..self.reported.writers())
    }

    /// Transactions that failed, in all applications.
    pub fn refusals(&self) -> u64 {
        (0..self.reported.writers()).map(|writer| self.reported.entry(writer, 0).refusals()).sum()
    }

    /// Commits acknowledged to each application, for [`Scene::runs_since`].
    pub fn progress(&self) -> Vec<u64> {
        (0..self.applications.len()).map(|number| self.commits_of(number)).collect()
    }

    /// Whether both instances serve, the standby follows, and every running application has had a commit acknowledged
    /// since `before`; else the reason.
    ///
    /// # Errors
    /// When an application has ended by itself.
    pub fn runs_since(&self, before: &[u64]) -> Result<std::result::Result<(), String>> {
        for (who, instance) in [("primary", &self.primary), ("standby", &self.standby)] {
            if !instance.is_ready() {
                return Ok(Err(format!("the {who} does not serve")));
            }
        }
        match self.primary.status() {
            Ok(status) if status.streams() => {}
            Ok(status) => return Ok(Err(format!("the standby does not follow: {}", status.brief()))),
            Err(error) => return Ok(Err(error.to_string())),
        }
        self.applications_run(before)
    }

    fn applications_run(&self, before: &[u64]) -> Result<std::result::Result<(), String>> {
        for (number, application) in self.applications.iter().enumerate() {
            let Some(application) = application else { continue };
            if application.ended_within(Duration::ZERO) {
                return Err(application.failed("ended by itself"));
            }
            if self.commits_of(number) == before[number] {
                return Ok(Err(format!("application {number} does not commit")));
            }
        }
        Ok(Ok(()))
    }

    /// Waits until every running application has had another commit acknowledged.
    ///
    /// # Errors
    /// When one ends by itself, or that takes too long.
    pub fn await_progress(&self) -> Result<()> {
        let before = self.progress();
        await_condition("every application commits", TIMEOUT, || self.applications_run(&before))
    }

    /// Lets the applications finish their transactions and waits for their end.
    ///
    /// # Errors
    /// When one hangs or fails.
    pub fn stop_applications(&mut self) -> Result<()> {
        self.reported.order_stop(true);
        for application in self.applications.iter_mut().filter_map(Option::take) {
            let name = application.failed("");
            let status = application.wait_for_end(TIMEOUT)?;
            if !status.success() {
                let problem = status.to_string();
                return Err(match name {
                    crate::CampaignError::Program { program, output, .. } => {
                        crate::CampaignError::Program { program, problem, output }
                    }
                    other => other,
                });
            }
        }
        self.reported.order_stop(false);
        Ok(())
    }

    /// Waits until the standby has everything, then checks both sides and compares them. No process may be writing.
    ///
    /// # Errors
    /// When the standby does not catch up, or a check cannot be made.
    pub fn check_both(&self) -> Result<Findings> {
        self.primary.await_status("the standby has applied everything", |status| status.settled())?;
        let mut findings = Findings::default();
        for (number, (database, (name, ..))) in self.databases.iter().zip(DATABASES).enumerate() {
            let copy = self.standby.standby_database(name);
            for path in [database, &copy] {
                findings.add(check_integrity(path)?);
                findings.add(check_ledger(path, number, &self.reported)?);
            }
            findings.add(compare_pages(database, &copy)?.findings);
        }
        Ok(findings)
    }

    pub fn standby_databases(&self) -> Vec<PathBuf> {
        DATABASES.iter().map(|(name, ..)| self.standby.standby_database(name)).collect()
    }

    /// Checks the databases of the standby alone, after a failover to it.
    ///
    /// # Errors
    /// When a check cannot be made.
    pub fn check_standby(&self) -> Result<Findings> {
        let mut findings = Findings::default();
        for (number, path) in self.standby_databases().iter().enumerate() {
            findings.add(check_integrity(path)?);
            findings.add(check_ledger(path, number, &self.reported)?);
        }
        Ok(findings)
    }

    /// Kills everything and removes the directory.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn discard(self) -> Result<()> {
        let directory = self.directory.clone();
        drop(self);
        std::fs::remove_dir_all(&directory).during(|| format!("remove {}", directory.display()))
    }
}
