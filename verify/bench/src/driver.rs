//! Runs the workload in application processes and adds up their reports.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{During, parsed};
use crate::process::Process;
use crate::processes::{ProcessGroup, Usage};
use crate::run::RunResult;
use crate::statistics::Latencies;
use crate::worker_protocol::{ClientReport, Order, Report, WorkerConfig};
use crate::workload::{Layout, processes_of};
use crate::{BenchError, Result, interrupt};

/// Name of a message to or from an application process, in error texts.
const MESSAGE: &str = "a message of an application process";

/// How this program starts a copy of itself as an application process.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    pub program: PathBuf,
    /// Arguments that come before `worker` or `echo`.
    pub arguments: Vec<String>,
    /// `program` is a wrapper that starts the worker as its child.
    pub wrapped: bool,
}

impl WorkerCommand {
    /// Builds the command that runs `role`, with pipes on standard input and output.
    pub(crate) fn role(&self, role: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(role).stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }
}

#[derive(Clone, Debug)]
pub struct DriveConfig {
    /// Name of the system in the result.
    pub system: String,
    pub layout: Layout,
    /// The database of each client; its length is the number of clients.
    pub databases: Vec<PathBuf>,
    /// The loadable extension; None for stock SQLite.
    pub extension: Option<PathBuf>,
    /// `PRAGMA synchronous`; None leaves the default.
    pub synchronous: Option<String>,
    /// Time before measuring, in which caches fill.
    pub warmup: Duration,
    pub measure: Duration,
}

/// Assigns `databases` to `clients` clients: one each, or the only one to all.
pub fn assign(databases: &[PathBuf], clients: usize) -> Vec<PathBuf> {
    databases.iter().cycle().take(clients).cloned().collect()
}

struct Worker {
    process: Process,
    orders: ChildStdin,
    reports: std::io::Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(command: &WorkerCommand, config: &WorkerConfig) -> Result<Worker> {
        let mut process = Process::start(command.role("worker"), None, libc::SIGKILL)?;
        let pipes = (process.child().stdin.take(), process.child().stdout.take());
        let (Some(orders), Some(reports)) = pipes else {
            return Err(process.failed("has no pipes"));
        };
        let mut worker = Worker { process, orders, reports: BufReader::new(reports).lines() };
        worker.send(config)?;
        Ok(worker)
    }

    fn send(&mut self, message: &impl serde::Serialize) -> Result<()> {
        let line = serde_json::to_string(message)
            .map_err(|error| BenchError::Unreadable { what: MESSAGE.into(), detail: error.to_string() })?;
        writeln!(self.orders, "{line}").during(|| "write to an application process".into())
    }

    fn report(&mut self) -> Result<Report> {
        let Some(line) = self.reports.next() else {
            interrupt::check()?;
            return Err(self.process.failed("ended without a report"));
        };
        let line = line.during(|| "read from an application process".into())?;
        match parsed(MESSAGE, &line)? {
            Report::Failed(why) => Err(BenchError::Workload(why)),
            report => Ok(report),
        }
    }

    fn counted(&mut self) -> Result<Vec<ClientReport>> {
        match self.report()? {
            Report::Counted(clients) => Ok(clients),
            other => Err(BenchError::Workload(format!("expected the clients' reports, got {other:?}"))),
        }
    }
}

/// Runs the workload once. `observed` are further processes whose usage is counted, such as the instance.
pub fn drive(command: &WorkerCommand, config: &DriveConfig, observed: &[ProcessGroup]) -> Result<RunResult> {
    let mut workers = start_workers(command, config)?;
    for worker in &mut workers {
        worker.report()?;
    }
    let application = ProcessGroup {
        name: "application",
        pids: workers.iter().map(|w| w.process.pid()).collect(),
        with_children: command.wrapped,
    };
    let groups: Vec<&ProcessGroup> = std::iter::once(&application).chain(observed).collect();

    tell_all(&mut workers, Order::Warm)?;
    interrupt::pause(config.warmup)?;
    let before: Vec<Usage> = groups.iter().map(|group| group.usage()).collect();
    tell_all(&mut workers, Order::Measure)?;
    let started = Instant::now();
    interrupt::pause(config.measure)?;
    let measured = started.elapsed();
    let after: Vec<Usage> = groups.iter().map(|group| group.usage()).collect();
    tell_all(&mut workers, Order::Stop)?;
    for worker in &mut workers {
        worker.report()?;
    }
    tell_all(&mut workers, Order::Count)?;
    let mut clients = Vec::new();
    for worker in &mut workers {
        clients.extend(worker.counted()?);
    }
    tell_all(&mut workers, Order::Close)?;
    for worker in workers {
        drop(worker.orders);
        // On close, a worker may checkpoint 40 databases.
        worker.process.wait(Duration::from_secs(60));
    }
    check(&clients)?;
    let mut result = summarise(config, &clients, measured);
    let readings = groups.iter().zip(before.iter().zip(&after));
    result.usage = readings.map(|(group, (b, a))| group.per_commit(*b, *a, result.commits)).collect();
    Ok(result)
}

fn start_workers(command: &WorkerCommand, config: &DriveConfig) -> Result<Vec<Worker>> {
    let mut first_client = 0;
    let mut workers = Vec::new();
    for threads in processes_of(config.databases.len()) {
        let worker = WorkerConfig {
            extension: config.extension.clone(),
            synchronous: config.synchronous.clone(),
            first_client,
            databases: config.databases[first_client..first_client + threads].to_vec(),
        };
        workers.push(Worker::start(command, &worker)?);
        first_client += threads;
    }
    Ok(workers)
}

fn tell_all(workers: &mut [Worker], order: Order) -> Result<()> {
    workers.iter_mut().try_for_each(|worker| worker.send(&order))
}

/// Fails a run in which an acknowledged row is missing.
fn check(clients: &[ClientReport]) -> Result<()> {
    for client in clients {
        let most = client.commits_in_all + client.errors;
        if client.rows < client.commits_in_all || client.rows > most {
            return Err(BenchError::Workload(format!(
                "client {} has {} rows after {} acknowledged and {} failed transactions",
                client.client, client.rows, client.commits_in_all, client.errors
            )));
        }
    }
    match clients.iter().find(|client| client.commits_in_all == 0) {
        Some(ClientReport { client, first_error: Some(error), .. }) => {
            Err(BenchError::Workload(format!("client {client} committed nothing: {error}")))
        }
        _ => Ok(()),
    }
}

fn summarise(config: &DriveConfig, clients: &[ClientReport], measured: Duration) -> RunResult {
    let mut latencies = Latencies::default();
    clients.iter().for_each(|client| latencies.merge(&client.latencies));
    let commits = clients.iter().map(|client| client.commits).sum();
    RunResult {
        system: config.system.clone(),
        clients: clients.len(),
        layout: config.layout,
        seconds: measured.as_secs_f64(),
        commits,
        commits_in_all: clients.iter().map(|client| client.commits_in_all).sum(),
        commits_per_second: commits as f64 / measured.as_secs_f64(),
        latency: latencies.summary(),
        latencies,
        commits_of_clients: clients.iter().map(|client| client.commits).collect(),
        errors: clients.iter().map(|client| client.errors).sum(),
        first_error: clients.iter().find_map(|client| client.first_error.clone()),
        redo_bytes_per_commit: redo_per_commit(clients),
        usage: Vec::new(),
    }
}

/// Redo per commit. The SCN counts bytes of all databases of an instance, so its progress is divided by the commits of
/// all clients.
fn redo_per_commit(clients: &[ClientReport]) -> Option<f64> {
    let start = clients.iter().filter_map(|client| client.redo).map(|(start, _)| start).max()?;
    let end = clients.iter().filter_map(|client| client.redo).map(|(_, end)| end).max()?;
    let commits: u64 = clients.iter().map(|client| client.commits_in_all).sum();
    (commits > 0).then(|| end.saturating_sub(start) as f64 / commits as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(commits: u64, rows: u64, errors: u64) -> ClientReport {
        ClientReport { commits, commits_in_all: commits, rows, errors, ..ClientReport::default() }
    }

    #[test]
    fn a_lost_commit_fails_the_run() {
        assert!(check(&[client(5, 5, 0)]).is_ok());
        assert!(check(&[client(5, 6, 1)]).is_ok(), "a failed COMMIT may have happened");
        assert!(check(&[client(5, 5, 0), client(5, 4, 0)]).is_err());
        assert!(check(&[client(5, 7, 1)]).is_err(), "a row from nowhere");
    }

    #[test]
    fn client_without_a_commit_fails_the_run_with_its_error() {
        let broken =
            ClientReport { errors: 100, first_error: Some("disk I/O error".into()), ..client(0, 0, 0) };
        assert!(check(&[broken]).unwrap_err().to_string().contains("disk I/O error"));
    }

    #[test]
    fn redo_is_counted_over_the_commits_of_all_clients() {
        let with = |redo| ClientReport { redo: Some(redo), ..client(10, 10, 0) };
        assert_eq!(redo_per_commit(&[with((1000, 2900)), with((1000, 3000))]), Some(100.0));
        assert_eq!(redo_per_commit(&[client(10, 10, 0)]), None);
    }

    #[test]
    fn clients_share_one_database_or_get_one_each() {
        let names: Vec<PathBuf> = ["a", "b"].map(PathBuf::from).to_vec();
        assert_eq!(assign(&names[..1], 2), [PathBuf::from("a"), "a".into()]);
        assert_eq!(assign(&names, 2), names);
    }
}
