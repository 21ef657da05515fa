//! An instance under test: its directory, its process, and its command line.

use crate::process::{Finished, Process, await_condition, run, run_with_input};
use crate::programs::Programs;
use crate::status::Status;
use crate::{During, Result};
use standfast_instance::server::{control_client, request::Request};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Timeout for starting, catching up and the like. Long, because a busy machine is not a finding.
pub const TIMEOUT: Duration = Duration::from_secs(90);

/// Makes connections plain TCP, see [`Instance::init`].
pub const INSECURE: &str = "--insecure";

/// Returns an address of the loopback interface, reserved while this process runs.
///
/// # Errors
/// When there is none.
pub fn free_address() -> Result<String> {
    let port = standfast_testkit::reserved_port().during(|| "find a free port".into())?;
    Ok(format!("127.0.0.1:{port}"))
}

/// An instance directory and, while it runs, its process. Killed on drop.
pub struct Instance {
    programs: Programs,
    pub directory: PathBuf,
    pub address: String,
    pub environment: Vec<(&'static str, String)>,
    /// Fault points of its process, as the value of `STANDFAST_FAULT`.
    pub faults: Option<String>,
    process: Option<Process>,
    /// `instance` of its status, once read: the name of its shared memory.
    identity: Option<String>,
}

impl Instance {
    /// Creates a primary in `directory` with `standfast init` and the arguments `more`. It and its standbys use plain
    /// TCP (`insecure`), so that standbys need no tokens and a test can interfere with the bytes in transit. Tests of
    /// who may connect begin with [`Instance::init_with_tls`].
    ///
    /// # Errors
    /// When that fails.
    pub fn init(programs: &Programs, directory: &Path, name: &str, more: &[&str]) -> Result<Instance> {
        Instance::init_with_tls(programs, directory, name, &[&[INSECURE], more].concat())
    }

    /// Creates a primary like [`Instance::init`], but with encrypted connections, the default.
    ///
    /// # Errors
    /// When that fails.
    pub fn init_with_tls(
        programs: &Programs,
        directory: &Path,
        name: &str,
        more: &[&str],
    ) -> Result<Instance> {
        let instance = Instance::new(programs, directory, free_address()?);
        let words = ["init", "--name", name, "--listen", &instance.address];
        instance.must(&[&words, more].concat())?;
        Ok(instance)
    }

    /// Creates a standby of the running `primary`, which is insecure, in `directory`.
    ///
    /// # Errors
    /// When that fails.
    pub fn standby_of(primary: &Instance, directory: &Path, name: &str) -> Result<Instance> {
        Instance::standby_with(primary, directory, name, &[])
    }

    /// Creates a standby like [`Instance::standby_of`], with the arguments `more`.
    ///
    /// # Errors
    /// When that fails.
    pub fn standby_with(primary: &Instance, directory: &Path, name: &str, more: &[&str]) -> Result<Instance> {
        let standby = Instance::new(&primary.programs, directory, free_address()?);
        let from = ["standby", "create", "--from", &primary.address, "--name", name, "--listen"];
        standby.must(&[&from[..], &[&standby.address, INSECURE], more].concat())?;
        Ok(standby)
    }

    /// Creates a far sync of the running `primary` in `directory`.
    ///
    /// # Errors
    /// When that fails.
    pub fn far_sync_of(primary: &Instance, directory: &Path, name: &str) -> Result<Instance> {
        Instance::standby_with(primary, directory, name, &["--far-sync"])
    }

    fn new(programs: &Programs, directory: &Path, address: String) -> Instance {
        let programs = programs.clone();
        let environment = Vec::new();
        Instance {
            programs,
            directory: directory.into(),
            address,
            environment,
            faults: None,
            process: None,
            identity: None,
        }
    }

    /// Changes one setting of the configuration file, which takes effect at the next start.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn configure(&self, section: &str, setting: &str, value: impl Into<toml::Value>) -> Result<()> {
        let path = self.directory.join("standfast.toml");
        let text = std::fs::read_to_string(&path).during(|| format!("read {}", path.display()))?;
        let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            crate::CampaignError::Unreadable { what: path.display().to_string(), detail: error.to_string() }
        })?;
        let section = table.entry(section).or_insert_with(|| toml::Table::new().into());
        if let Some(section) = section.as_table_mut() {
            section.insert(setting.into(), value.into());
        }
        std::fs::write(&path, table.to_string()).during(|| format!("write {}", path.display()))
    }

    /// Starts the process without waiting for anything.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&mut self) -> Result<()> {
        let ready = self.directory.join("ready");
        if let Err(error) = std::fs::remove_file(&ready)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error).during(|| format!("remove {}", ready.display()));
        }
        if self.faults.is_some() {
            self.programs.check_fault_points()?;
        }
        let mut command = self.command(&["start"]);
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        command.envs(self.faults.iter().map(|faults| ("STANDFAST_FAULT", faults)));
        self.process = Some(Process::start(command, &self.output_path())?);
        Ok(())
    }

    /// Waits until the started process serves.
    ///
    /// # Errors
    /// When it ends instead, or takes longer than [`TIMEOUT`].
    pub fn await_ready(&mut self) -> Result<()> {
        let what = format!("the instance in {} serves", self.directory.display());
        await_condition(&what, TIMEOUT, || {
            if let Some(process) =
                self.process.as_ref().filter(|process| process.ended_within(Duration::ZERO))
            {
                return Err(process.failed("ended by itself"));
            }
            let ready = self.directory.join("ready").exists();
            Ok(if ready { Ok(()) } else { Err("no file `ready`".into()) })
        })?;
        self.note_identity()
    }

    fn note_identity(&mut self) -> Result<()> {
        if self.identity.is_none() {
            self.identity = Some(self.status()?.text("/instance").to_owned());
        }
        Ok(())
    }

    /// Whether its process has ended without a request.
    pub fn has_ended(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.ended_within(Duration::ZERO))
    }

    pub fn is_ready(&self) -> bool {
        self.process.is_some() && !self.has_ended() && self.directory.join("ready").exists()
    }

    /// Starts the process and waits until it serves.
    ///
    /// # Errors
    /// See [`Instance::await_ready`].
    pub fn start(&mut self) -> Result<()> {
        self.spawn()?;
        self.await_ready()
    }

    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Takes the process out, so that the caller can wait for its end.
    pub fn take_process(&mut self) -> Option<Process> {
        self.process.take()
    }

    /// Sends SIGKILL; returns when the process is gone.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Shuts it down cleanly, with SIGTERM.
    ///
    /// # Errors
    /// When it does not end in time, or not with exit code 0.
    pub fn stop(&mut self) -> Result<()> {
        let Some(process) = self.process.take() else { return Ok(()) };
        let status = process.terminate()?;
        if status.success() {
            return Ok(());
        }
        Err(crate::CampaignError::Program {
            program: format!("standfast start -D {}", self.directory.display()),
            problem: format!("{status} after SIGTERM"),
            output: self.last_words(),
        })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.programs.standfast);
        command.args(words).arg("-D").arg(&self.directory).env_remove("STANDFAST_FAULT");
        command
    }

    /// Runs `standfast WORDS -D DIRECTORY` to its end.
    ///
    /// # Errors
    /// When it cannot be started or hangs.
    pub fn run(&self, words: &[&str]) -> Result<Finished> {
        run(self.command(words))
    }

    /// Runs `standfast WORDS -D DIRECTORY` with the content of this file as its standard input.
    ///
    /// # Errors
    /// When it cannot be started or hangs, or the file cannot be read.
    pub fn run_with_input(&self, words: &[&str], input: &Path) -> Result<Finished> {
        let file = std::fs::File::open(input).during(|| format!("open {}", input.display()))?;
        run_with_input(self.command(words), file.into())
    }

    /// Runs `standfast WORDS -D DIRECTORY` with armed fault points, as the value of `STANDFAST_FAULT`.
    ///
    /// # Errors
    /// When it cannot be started or hangs, or the program has no fault points.
    pub fn run_with_faults(&self, words: &[&str], faults: &str) -> Result<Finished> {
        self.programs.check_fault_points()?;
        let mut command = self.command(words);
        command.env("STANDFAST_FAULT", faults);
        run(command)
    }

    /// Starts `standfast WORDS -D DIRECTORY` without waiting for its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn begin(&self, words: &[&str]) -> Result<Process> {
        Process::start(self.command(words), &self.output_path())
    }

    /// Runs `standfast WORDS`, which name the directory, to its end.
    ///
    /// # Errors
    /// When it cannot be started or hangs.
    pub fn run_as_given(&self, words: &[&str]) -> Result<Finished> {
        let mut command = Command::new(&self.programs.standfast);
        command.args(words).env_remove("STANDFAST_FAULT");
        run(command)
    }

    /// Starts `standfast WORDS`, which name the directory, without waiting for its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn begin_as_given(&self, words: &[String]) -> Result<Process> {
        let mut command = Command::new(&self.programs.standfast);
        command.args(words).env_remove("STANDFAST_FAULT");
        Process::start(command, &self.output_path())
    }

    /// Runs `standfast WORDS -D DIRECTORY`, which must succeed, and returns its output. A failover may exit with code 6
    /// because it does not know what its primary acknowledged afterwards: the test that destroyed the primary knows
    /// that.
    ///
    /// # Errors
    /// When the command fails.
    pub fn must(&self, words: &[&str]) -> Result<String> {
        let mut finished = self.run(words)?;
        let is_unknown = words.first() == Some(&"failover") && finished.code == 6;
        if is_unknown && !["OFFLINE", "PAGES DIFFER"].iter().any(|lack| finished.stderr.contains(lack)) {
            finished.code = 0;
        }
        finished.ok()
    }

    /// Returns the document that `standfast status --json` prints. Asks the instance itself where that works, because
    /// conditions are polled with it and a process costs twenty times as much.
    ///
    /// # Errors
    /// When the command fails.
    pub fn status(&self) -> Result<Status> {
        if let Ok(status) = control_client::ask(&self.directory, &Request::Status) {
            return Ok(Status::of(status));
        }
        let finished = self.run(&["status", "--json"])?;
        // Exit code 1 reports that the instance has failed, which is what the caller asks.
        if finished.code == 1 && finished.stdout.starts_with('{') {
            return Status::parse(&finished.stdout);
        }
        Status::parse(&finished.ok()?)
    }

    /// Waits until `condition` holds for the status.
    ///
    /// # Errors
    /// When the process ends, or the condition does not hold within [`TIMEOUT`].
    pub fn await_status(&self, what: &str, mut condition: impl FnMut(&Status) -> bool) -> Result<Status> {
        let mut last = None;
        await_condition(what, TIMEOUT, || {
            if let Some(process) =
                self.process.as_ref().filter(|process| process.ended_within(Duration::ZERO))
            {
                return Err(process.failed("ended by itself"));
            }
            let status = self.status()?;
            let (holds, brief) = (condition(&status), status.brief());
            last = Some(status);
            Ok(if holds { Ok(()) } else { Err(brief) })
        })?;
        last.map_or_else(|| self.status(), Ok)
    }

    /// Path of the database `name` at a standby.
    pub fn standby_database(&self, name: &str) -> PathBuf {
        self.directory.join("db").join(name)
    }

    pub fn alerts(&self) -> String {
        std::fs::read_to_string(self.directory.join("alert.log")).unwrap_or_default()
    }

    /// The last lines of the alert log, for messages.
    pub fn last_words(&self) -> String {
        crate::error::last_lines(&self.alerts())
    }

    /// Removes the shared memory of an instance that does not run, as a restart of the machine does.
    pub fn forget_shared_memory(&self) {
        if let Some(identity) = self.identity.as_deref().filter(|identity| !identity.is_empty()) {
            standfast_session::Segment::remove(Path::new(&format!("/dev/shm/standfast-{identity}")));
        }
    }

    /// File that holds the output of its process.
    pub fn output_path(&self) -> PathBuf {
        let mut name = self.directory.clone().into_os_string();
        name.push(".out");
        name.into()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.kill();
        // A killed instance leaves its shared memory to the next start, and there is none.
        self.forget_shared_memory();
    }
}
