use std::fmt::{Display, Formatter};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use serde::Serialize;
use serde_json::Value;
use standfast_instruments::Observation;

use crate::context::need;
use crate::driver::{DriveConfig, drive};
use crate::error::{During, parsed};
use crate::process::{Process, Scratch, run, run_accepting};
use crate::processes::ProcessGroup;
use crate::run::RunResult;
use crate::systems::contained::{self, Mounts};
use crate::systems::flood::{Flood, RATE};
use crate::systems::site::{Hosts, Site};
use crate::systems::{Case, System, drive_config, free_port};
use crate::workload::create_databases;
use crate::{BenchError, Context, Result, interrupt};

/// Limit for starting, copying a standby, or catching up.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Remedy when Standfast's own programs are missing.
pub(crate) const BUILD: &str =
    "Standfast is not built beside this program: run `cargo build --release --workspace`";
/// Name of the standby at the primary.
const STANDBY: &str = "bench_standby";

#[derive(Debug, Serialize)]
pub struct Found {
    /// The rule that made the finding.
    pub rule: String,
    pub title: String,
}

impl Display for Found {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.rule, self.title)
    }
}

/// When a commit is released, relative to the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// After the standby has written it to its log.
    SyncAffirm,
    /// After the standby received it in memory.
    Fastsync,
    /// Without waiting for what the standby does.
    Async,
}

impl Mode {
    /// Value of `standfast destination add --mode`.
    fn word(self) -> &'static str {
        match self {
            Mode::SyncAffirm => "sync-affirm",
            Mode::Fastsync => "fastsync",
            Mode::Async => "async",
        }
    }
}

/// Standfast, with or without a standby. Each instance is a separate process on this machine, or on two emulated hosts
/// when the link has a delay.
pub(super) struct Standfast {
    name: &'static str,
    standby: Option<Mode>,
    rtt_us: u64,
    tls: bool,
    contained: bool,
    flood: Option<Listener>,
    /// Settings of both instances.
    settings: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    Replication,
    /// The port of the dashboard and the metrics.
    Http,
    /// A listener of this process that closes what it accepts: measures the cost of the connections to the machine.
    OfNoInstance,
}

impl Standfast {
    pub(super) fn new(name: &'static str, standby: Option<Mode>, rtt_us: u64) -> Standfast {
        Standfast { name, standby, rtt_us, tls: false, contained: false, flood: None, settings: &[] }
    }

    /// With certificates and TLS between the instances.
    pub(super) fn encrypted(self) -> Standfast {
        Standfast { tls: true, ..self }
    }

    /// With hostile connections to a listener of the primary while commits are measured.
    pub(super) fn flooded(self, listener: Listener) -> Standfast {
        Standfast { flood: Some(listener), ..self }
    }

    pub(super) fn contained(self) -> Standfast {
        Standfast { contained: true, ..self }
    }

    pub(super) fn with_settings(self, settings: &'static [(&'static str, &'static str)]) -> Standfast {
        Standfast { settings, ..self }
    }
}

impl System for Standfast {
    fn name(&self) -> &str {
        self.name
    }

    fn prepare(&mut self, context: &Context) -> Result<()> {
        need(&context.programs.standfast, BUILD)?;
        need(&context.programs.extension, BUILD)?;
        if self.contained { contained::possible() } else { Ok(()) }
    }

    fn run(&mut self, context: &Context, case: Case) -> Result<RunResult> {
        let extension = need(&context.programs.extension, BUILD)?.to_owned();
        let scratch = Scratch::new(&context.base)?;
        let databases = create_databases(scratch.path(), case.layout.databases(case.clients))?;
        let hosts = Hosts::new(self.rtt_us)?;
        let http = match self.flood {
            Some(Listener::Http) => Some(format!("127.0.0.1:{}", free_port()?)),
            _ => None,
        };
        let mounts = self.contained.then(|| Mounts::new(scratch.path())).transpose()?;
        let mut site =
            hosts.primary()?.encrypted(self.tls).with_http(http.clone()).with_settings(self.settings);
        if let Some(mounts) = &mounts {
            contained::share(&databases)?;
            site = site.with_environment(&mounts.environment(&scratch.path().join("primary")));
        }
        let primary = Instance::start_at(&site, context, &scratch, "primary")?;
        primary.protect(&databases)?;
        let standby = match self.standby {
            Some(mode) => {
                let site = hosts.standby()?.encrypted(self.tls).with_settings(self.settings);
                Some(primary.add_standby(&site, context, &scratch, mode)?)
            }
            None => None,
        };

        let mut observed = vec![primary.group("instance")];
        observed.extend(standby.as_ref().map(|standby| standby.group("standby")));
        let config = drive_config(context, self, case, &databases);
        let worker = match &mounts {
            Some(mounts) => mounts.worker(&context.worker, &scratch.path().join("primary")),
            None => context.worker.clone(),
        };
        let flood = match self.flood {
            Some(Listener::OfNoInstance) => Some(
                Flood::on_no_instance()
                    .map_err(|source| BenchError::Io { what: "open a listener".into(), source })?,
            ),
            Some(Listener::Replication | Listener::Http) => {
                let target = http.as_ref().unwrap_or(&primary.listen);
                Some(Flood::on(target.parse().map_err(|error| BenchError::Unreadable {
                    what: "the address of a listener".into(),
                    detail: format!("{error}"),
                })?))
            }
            None => None,
        };
        let result = drive(&worker, &DriveConfig { extension: Some(extension), ..config }, &observed)?;
        if let Some(flood) = flood.filter(|flood| !flood.was_full()) {
            return Err(BenchError::Workload(format!(
                "only {:.0} of {RATE} hostile connections a second were made",
                flood.rate()
            )));
        }
        if let (Some(standby), Some(mode)) = (&standby, self.standby) {
            if !follows(&primary.status()?, STANDBY, mode) {
                return Err(BenchError::Workload(
                    "commits stopped waiting for the standby during the run".into(),
                ));
            }
            await_copy(&databases, standby, &result)?;
        }
        hosts.check();
        // Stop the standby first, so that the end of the primary does not wait for it.
        let standby_stopped = standby.map_or(Ok(()), Instance::stop);
        primary.stop().and(standby_stopped)?;
        Ok(result)
    }
}

pub struct Instance {
    // Before `_memory`: fields are dropped in this order.
    process: Process,
    _memory: SharedMemory,
    program: PathBuf,
    directory: PathBuf,
    name: String,
    listen: String,
}

/// Shared memory of an instance with its applications. The instance leaves its removal to its next start, which never
/// comes here.
struct SharedMemory(PathBuf);

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let published = format!("{}.published", self.0.display());
        for path in [self.0.as_path(), Path::new(&published)] {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    eprintln!("note: cannot remove {}: {error}", path.display());
                }
                _ => {}
            }
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct StandbyOptions<'a> {
    /// Name of the standby and of its directory.
    pub(crate) name: &'a str,
    /// Fault points, as the value of `STANDFAST_FAULT`.
    pub(crate) faults: Option<&'a str>,
    pub(crate) behind: bool,
}

impl Default for StandbyOptions<'_> {
    fn default() -> Self {
        StandbyOptions { name: STANDBY, faults: None, behind: false }
    }
}

impl Instance {
    /// Initialises a directory and starts an instance on it, listening on a free port of the loopback.
    pub fn start(context: &Context, scratch: &Scratch, name: &str) -> Result<Instance> {
        Instance::start_at(&Site::here()?, context, scratch, name)
    }

    fn start_at(site: &Site<'_>, context: &Context, scratch: &Scratch, name: &str) -> Result<Instance> {
        Instance::start_with(site, context, scratch, name, &[], None)
    }

    /// Initialises and starts an instance with some settings changed, and with `faults` as the value of
    /// `STANDFAST_FAULT`.
    pub(crate) fn start_with(
        site: &Site<'_>,
        context: &Context,
        scratch: &Scratch,
        name: &str,
        settings: &[(&str, u64)],
        faults: Option<&str>,
    ) -> Result<Instance> {
        let program = need(&context.programs.standfast, BUILD)?;
        let directory = scratch.path().join(name);
        let mut init = Command::new(program);
        init.arg("init").arg("-D").arg(&directory).args(["--name", name]).args(site.options());
        // `init` creates the files of the log immediately.
        for (setting, value) in settings.iter().filter(|(setting, _)| *setting == "group_bytes") {
            init.arg(format!("--{}", setting.replace('_', "-"))).arg(value.to_string());
        }
        run(&mut init)?;
        change_settings(&directory.join("standfast.toml"), settings)?;
        if let Some(address) = &site.http {
            serve_http(&directory, address)?;
        }
        Instance::launch(site, program, scratch, directory, faults)
    }

    /// Starts the instance; `faults` is the value of `STANDFAST_FAULT`.
    fn launch(
        site: &Site<'_>,
        program: &Path,
        scratch: &Scratch,
        directory: PathBuf,
        faults: Option<&str>,
    ) -> Result<Instance> {
        change_settings(&directory.join("standfast.toml"), site.settings)?;
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = scratch.path().join(format!("{name}.out"));
        let mut command = site.command(program)?;
        command.arg("start").arg("-D").arg(&directory).env_remove("NOTIFY_SOCKET");
        command.envs(standfast_io::fault::VARIABLE.zip(faults));
        let process = Process::start(command, Some(&log), libc::SIGTERM)?;
        let ready = directory.join("ready");
        process.await_ready("the instance's file `ready`", TIMEOUT, || Ok(ready.exists()))?;
        let _memory = shared_memory(program, &directory)?;
        let listen = site.listen.clone();
        Ok(Instance { process, _memory, program: program.to_owned(), directory, name, listen })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).arg("-D").arg(&self.directory);
        command
    }

    pub fn protect(&self, databases: &[PathBuf]) -> Result<()> {
        databases.iter().try_for_each(|database| {
            let name = database.file_name().unwrap_or_default();
            run(self.command(&["protect"]).arg(database).arg("--name").arg(name)).map(|_| ())
        })
    }

    /// Creates a standby, starts it, adds it as a destination and waits until it receives live redo.
    fn add_standby(
        &self,
        site: &Site<'_>,
        context: &Context,
        scratch: &Scratch,
        mode: Mode,
    ) -> Result<Instance> {
        let standby = self.create_standby(site, context, scratch, StandbyOptions::default())?;
        self.add_destination(&standby, mode, &[])?;
        self.await_follower(&standby, mode)?;
        Ok(standby)
    }

    /// Creates a standby and starts it.
    pub(crate) fn create_standby(
        &self,
        site: &Site<'_>,
        context: &Context,
        scratch: &Scratch,
        options: StandbyOptions<'_>,
    ) -> Result<Instance> {
        let program = need(&context.programs.standfast, BUILD)?;
        let StandbyOptions { name, faults, .. } = options;
        let directory = scratch.path().join(name);
        let mut create = site.command(program)?;
        create.args(["standby", "create"]).arg("-D").arg(&directory);
        create.args(["--from", &self.listen, "--name", name]).args(site.options());
        if !site.insecure {
            let token = run(self.command(&["standby", "token"]).args(["--name", name]))?;
            create.env("STANDFAST_TOKEN", token.trim());
        }
        run(&mut create)?;
        Instance::launch(site, program, scratch, directory, faults)
    }

    /// Adds the standby as a destination, with `more` options of `standfast destination add`.
    pub(crate) fn add_destination(&self, standby: &Instance, mode: Mode, more: &[&str]) -> Result<()> {
        let mut add = self.command(&["destination", "add"]);
        run(add.args([&standby.name, &standby.listen, "--mode", mode.word()]).args(more)).map(|_| ())
    }

    /// Sets the standby as the first destination, with more `attributes` in the notation of LOG_ARCHIVE_DEST_n.
    pub(crate) fn set_destination(&self, standby: &Instance, mode: Mode, attributes: &str) -> Result<()> {
        let mode = match mode {
            Mode::SyncAffirm => "SYNC AFFIRM",
            Mode::Fastsync => "SYNC NOAFFIRM",
            Mode::Async => "ASYNC",
        };
        let Instance { name, listen, .. } = standby;
        let all = format!("SERVICE={listen} {mode} {attributes} DB_UNIQUE_NAME={name}");
        run(&mut self.command(&["destination", "set", "1", &all])).map(|_| ())
    }

    /// Waits until the standby receives live redo.
    pub(crate) fn await_follower(&self, standby: &Instance, mode: Mode) -> Result<()> {
        let follows = || Ok(follows(&self.status()?, &standby.name, mode));
        self.process.await_ready("the standby synchronised", TIMEOUT, follows)
    }

    /// Status of the standby as a destination of this instance.
    pub(crate) fn destination(&self, standby: &Instance) -> Result<Value> {
        let status = self.status()?;
        let mut all = status["destinations"].as_array().into_iter().flatten();
        let found = all.find(|destination| destination["name"] == standby.name.as_str());
        found.cloned().ok_or_else(|| BenchError::Unreadable {
            what: "the output of `standfast status --json`".into(),
            detail: format!("no destination `{}`", standby.name),
        })
    }

    pub fn status(&self) -> Result<Value> {
        status(&self.program, &self.directory)
    }

    pub(crate) fn observe(&self) -> Result<Observation> {
        let text = run(&mut self.command(&["observe"]))?;
        parsed("the output of `standfast observe`", &text)
    }

    /// Runs `standfast diagnose` over the next `seconds` seconds; returns the findings in order.
    pub(crate) fn diagnose(&self, seconds: u64) -> Result<Vec<Found>> {
        let mut command = self.command(&["diagnose", "--json", "--seconds", &seconds.to_string()]);
        // Exit code 3 means that there are findings.
        let text = run_accepting(&mut command, &[0, 3])?;
        let judged: Value = parsed("the output of `standfast diagnose --json`", &text)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let findings = judged["findings"].as_array().into_iter().flatten();
        Ok(findings.map(|it| Found { rule: text(&it["rule"]), title: text(&it["title"]) }).collect())
    }

    pub(crate) fn add_log_member(&self, directory: &str) -> Result<()> {
        run(&mut self.command(&["log", "member", "add", directory])).map(|_| ())
    }

    pub(crate) fn drop_log_member(&self, directory: &str) -> Result<()> {
        run(&mut self.command(&["log", "member", "drop", directory])).map(|_| ())
    }

    /// Runs `standfast snapshot`; returns the number of the snapshot.
    pub(crate) fn snapshot(&self) -> Result<i64> {
        let text = run(&mut self.command(&["snapshot"]))?;
        text.trim().parse().map_err(|_| BenchError::Unreadable {
            what: "the output of `standfast snapshot`".into(),
            detail: text,
        })
    }

    /// Runs `standfast report --compare` on the intervals between these snapshots; returns its JSON.
    pub(crate) fn compare(&self, before: [i64; 2], after: [i64; 2]) -> Result<Value> {
        let snapshots = [before, after].concat().into_iter().map(|id| id.to_string());
        let mut command = self.command(&["report", "--compare", "--format", "json"]);
        let text = run(command.args(snapshots))?;
        parsed("the output of `standfast report --compare --format json`", &text)
    }

    pub(crate) fn stop_apply(&self) -> Result<()> {
        run(&mut self.command(&["apply", "stop"])).map(|_| ())
    }

    pub(crate) fn checkpoint(&self) -> Result<()> {
        run(&mut self.command(&["checkpoint"])).map(|_| ())
    }

    pub(crate) fn start_apply(&self) -> Result<()> {
        run(&mut self.command(&["apply", "start"])).map(|_| ())
    }

    /// Exit code 6: it is not known what the primary acknowledged at the end.
    pub(crate) fn failover(&self) -> Result<()> {
        run_accepting(&mut self.command(&["failover"]), &[0, 6]).map(|_| ())
    }

    /// Makes and starts an observer, and enables fast-start failover at this primary with these properties. Returns the
    /// observer's process once the standby knows that it may take over.
    pub(crate) fn enable_fast_start(
        &self,
        standby: &Instance,
        scratch: &Scratch,
        properties: &[(&str, &str)],
    ) -> Result<Process> {
        let (site, directory) = (Site::here()?, scratch.path().join("tokyo"));
        let mut create = Command::new(&self.program);
        create
            .args(["observer", "create", "--from", &self.listen, "--name", "tokyo"])
            .arg("-D")
            .arg(&directory);
        run(create.args(site.options()))?;
        let mut start = Command::new(&self.program);
        start.arg("start").arg("-D").arg(&directory).env_remove("NOTIFY_SOCKET");
        let observer = Process::start(start, Some(&scratch.path().join("tokyo.out")), libc::SIGTERM)?;
        let ready = directory.join("ready");
        observer.await_ready("the observer's file `ready`", TIMEOUT, || Ok(ready.exists()))?;
        let address = format!("tokyo@{}", site.listen);
        for (name, value) in properties.iter().chain([&("FastStartFailoverObserver", address.as_str())]) {
            let words = ["dg", "edit", "configuration", "set", "property", name, "=", value];
            run(&mut self.command(&words))?;
        }
        run(&mut self.command(&["dg", "enable", "fast_start", "failover"]))?;
        let knows = || Ok(standby.status()?["fast_start_failover"]["status"] == "SYNCHRONIZED");
        self.process.await_ready("the target synchronised", TIMEOUT, knows)?;
        Ok(observer)
    }

    /// Waits until this standby has become the primary by itself.
    pub(crate) fn await_primary(&self) -> Result<()> {
        let is_open = || {
            let status = self.status()?;
            Ok(status["role"] == "primary" && status["state"] == "open")
        };
        self.process.await_ready("the standby opened as the primary", TIMEOUT, is_open)
    }

    pub(crate) fn switchover(&self, to: &Instance) -> Result<()> {
        run(&mut self.command(&["switchover", &to.name])).map(|_| ())
    }

    /// Makes this instance, which does not run, a standby of `primary`. Returns the number of pages of its databases, and
    /// how many of them were copied.
    pub(crate) fn reinstate(&self, primary: &Instance) -> Result<(u64, u64)> {
        let mut command = self.command(&["reinstate", "--yes", "--json", "--from", &primary.listen]);
        let what = "the output of `standfast reinstate --json`";
        let done: Value = parsed(what, &run(&mut command)?)?;
        done["pages"]
            .as_u64()
            .zip(done["fetched"].as_u64())
            .ok_or_else(|| BenchError::Unreadable { what: what.into(), detail: "no numbers of pages".into() })
    }

    /// Starts the instance, which was killed, again.
    pub(crate) fn start_again(self, scratch: &Scratch) -> Result<Instance> {
        let ready = self.directory.join("ready");
        std::fs::remove_file(&ready).during(|| format!("remove {}", ready.display()))?;
        let site = Site::listening_at(self.listen.clone());
        Instance::launch(&site, &self.program, scratch, self.directory.clone(), None)
    }

    /// Path of the standby's copy of a database.
    pub(crate) fn copy_of(&self, database: &Path) -> PathBuf {
        self.directory.join("db").join(database.file_name().unwrap_or_default())
    }

    /// Kills the instance immediately, as a power loss of its host would.
    pub(crate) fn kill(&mut self) {
        // An error means that it has already ended, which is the goal.
        let _ = self.process.child().kill();
    }

    pub(crate) fn switch_log(&self) -> Result<()> {
        run(&mut self.command(&["switch-logfile"])).map(|_| ())
    }

    /// The instance as a group whose usage is counted.
    pub fn group(&self, name: &'static str) -> ProcessGroup {
        ProcessGroup { name, pids: vec![self.process.pid()], with_children: false }
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops the instance cleanly. Fails when it does not end.
    pub fn stop(self) -> Result<()> {
        self.process.stop()
    }
}

fn status(program: &Path, directory: &Path) -> Result<Value> {
    let text = run(Command::new(program).args(["status", "--json", "-D"]).arg(directory))?;
    parsed("the output of `standfast status --json`", &text)
}

fn shared_memory(program: &Path, directory: &Path) -> Result<SharedMemory> {
    match status(program, directory)?["instance"].as_str() {
        Some(id) if !id.is_empty() => Ok(SharedMemory(format!("/dev/shm/standfast-{id}").into())),
        _ => Err(BenchError::Unreadable {
            what: "the output of `standfast status --json`".into(),
            detail: "no `instance`".into(),
        }),
    }
}

/// Whether the standby receives live redo and, unless it is asynchronous, commits wait for it.
fn follows(status: &Value, standby: &str, mode: Mode) -> bool {
    let destinations = status["destinations"].as_array().into_iter().flatten();
    let ours = destinations.filter(|destination| destination["name"] == standby);
    let awaited = |destination: &Value| mode == Mode::Async || destination["required"] == true;
    ours.filter(|destination| destination["state"] == "streaming").any(awaited)
}

/// Changes settings in place: in a new configuration, each setting has its own line, and its name occurs once.
fn change_settings<V: Display>(path: &Path, settings: &[(&str, V)]) -> Result<()> {
    if settings.is_empty() {
        return Ok(());
    }
    let during = || format!("change {}", path.display());
    let text = std::fs::read_to_string(path).during(during)?;
    let is_there =
        |name: &str| text.lines().any(|line| line.split_once(" = ").is_some_and(|(found, _)| found == name));
    if let Some((unknown, _)) = settings.iter().find(|(name, _)| !is_there(name)) {
        return Err(BenchError::Unreadable {
            what: path.display().to_string(),
            detail: format!("no setting `{unknown}` in it"),
        });
    }
    let line = |line: &str| {
        let name = line.split_once(" = ").map(|(name, _)| name);
        match settings.iter().find(|(setting, _)| Some(*setting) == name) {
            Some((setting, value)) => format!("{setting} = {value}\n"),
            None => format!("{line}\n"),
        }
    };
    std::fs::write(path, text.lines().map(line).collect::<String>()).during(during)
}

/// The HTTP section that `standfast init` writes.
const NO_HTTP: &str = "[http]\nlisten = \"\"\ntoken_file = \"\"\n";

/// Configures the instance to serve its dashboard and metrics at `address`, to clients with the token.
fn serve_http(directory: &Path, address: &str) -> Result<()> {
    let (token, config) = (directory.join("http-token"), directory.join("standfast.toml"));
    let during = || format!("configure HTTP of {}", directory.display());
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(token).during(during)?;
    file.write_all(b"a-token-without-a-reader").during(during)?;
    let text = std::fs::read_to_string(&config).during(during)?;
    let served = format!("[http]\nlisten = \"{address}\"\ntoken_file = \"http-token\"\n");
    let (before, after) = text.split_once(NO_HTTP).ok_or_else(|| BenchError::Unreadable {
        what: config.display().to_string(),
        detail: format!("no `{}` in it", NO_HTTP.replace('\n', " ")),
    })?;
    std::fs::write(&config, [before, &served, after].concat()).during(during)
}

/// Waits until the standby's databases hold every row of the run; a copy that never catches up fails the run.
fn await_copy(databases: &[PathBuf], standby: &Instance, result: &RunResult) -> Result<()> {
    let copies: Vec<PathBuf> = databases.iter().map(|path| standby.copy_of(path)).collect();
    let mut found = 0;
    let waited = interrupt::await_other("rows on the standby", TIMEOUT, || {
        found = copies.iter().map(|copy| rows(copy, "hist")).sum::<Result<u64>>()?;
        Ok(found >= result.commits_in_all)
    });
    waited.map_err(|error| match error {
        BenchError::Program { .. } => BenchError::Workload(format!(
            "the standby holds {found} rows after {} acknowledged commits and {} s",
            result.commits_in_all,
            TIMEOUT.as_secs()
        )),
        other => other,
    })
}

/// Number of rows of a table; other processes may be writing to the database.
pub(crate) fn rows(database: &Path, table: &str) -> Result<u64> {
    let during = || format!("read {}", database.display());
    let connection =
        Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY).during(during)?;
    connection.busy_timeout(TIMEOUT).during(during)?;
    let rows = connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0));
    rows.map(|rows| rows as u64).during(during)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standby_that_commits_do_not_wait_for_is_not_synchronous() {
        let of = |name: &str, state: &str, required: bool| serde_json::json!({"destinations": [{"name": name, "state": state, "required": required}]});
        assert!(follows(&of(STANDBY, "streaming", true), STANDBY, Mode::SyncAffirm));
        assert!(!follows(&of(STANDBY, "streaming", false), STANDBY, Mode::SyncAffirm), "degraded");
        assert!(follows(&of(STANDBY, "streaming", false), STANDBY, Mode::Async));
        assert!(!follows(&of(STANDBY, "catching_up", true), STANDBY, Mode::Fastsync));
        assert!(!follows(&of("other", "streaming", true), STANDBY, Mode::Fastsync));
        assert!(!follows(&serde_json::json!({}), STANDBY, Mode::Async));
    }
}
