//! An application that generates redo at a given rate. Transactions arrive at regular intervals, any free session takes
//! the next one, and each inserts incompressible bytes or an order. When there are too few sessions, or commits take
//! too long, fewer transactions are done than have arrived.
//!
//! It runs as a separate process. It reads a [`Config`] and then one word per phase from standard input; it writes one
//! word when all sessions are connected, and a [`Report`] at the end, to standard output.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};

use crate::driver::WorkerCommand;
use crate::error::{During, parsed};
use crate::process::Process;
use crate::statistics::{Latencies, LatencyCounts, LatencySummary};
use crate::worker::load_extension;
use crate::{BenchError, Result, interrupt};

const BUSY_TIMEOUT: Duration = Duration::from_secs(60);
const READY: &str = "ready";
const MEASURE: &str = "measure";
const STOP: &str = "stop";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    pub extension: PathBuf,
    /// The database, which [`create_database`] has made before.
    pub database: PathBuf,
    /// Number of connections; each has a thread.
    pub sessions: usize,
    /// Bytes of the row that each transaction inserts.
    pub bytes: usize,
    /// Bytes per second; None for as many as possible.
    pub rate: Option<f64>,
    pub content: Content,
    /// When set, one more session writes nothing and repeatedly holds the write lock for this many milliseconds.
    pub lock_held_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Random bytes, which do not compress.
    Noise,
    /// An order as web applications store it: a document with lines of articles, quantities and prices.
    Order,
}

/// Transactions between the phases `measure` and `stop`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Report {
    seconds: f64,
    commits: u64,
    latencies: LatencyCounts,
}

#[derive(Clone, Debug, Serialize)]
pub struct LoadResult {
    pub commits_per_second: f64,
    /// From BEGIN to the return of COMMIT.
    pub latency: LatencySummary,
}

/// Creates a database for this load.
pub fn create_database(path: &Path) -> Result<()> {
    let during = || format!("create database {}", path.display());
    let connection = Connection::open(path).during(during)?;
    let schema = "PRAGMA journal_mode=WAL; CREATE TABLE body(id INTEGER PRIMARY KEY, bytes BLOB NOT NULL)";
    connection.execute_batch(schema).during(during)?;
    connection.close().map_err(|(_, error)| error).during(during)
}

pub struct Load {
    process: Process,
    orders: ChildStdin,
    reports: BufReader<ChildStdout>,
}

impl Load {
    /// Starts the application, which writes from now on.
    pub fn start(command: &WorkerCommand, config: &Config) -> Result<Load> {
        let mut process = Process::start(command.role("redo-load"), None, libc::SIGKILL)?;
        let pipes = (process.child().stdin.take(), process.child().stdout.take());
        let (Some(orders), Some(reports)) = pipes else { return Err(process.failed("has no pipes")) };
        let mut load = Load { process, orders, reports: BufReader::new(reports) };
        let line = serde_json::to_string(config).map_err(std::io::Error::from);
        load.say(&line.during(|| "write a configuration".into())?)?;
        match load.hear()?.trim() {
            READY => Ok(load),
            other => Err(load.process.failed(&format!("is not ready: {other}"))),
        }
    }

    /// Stops the application with SIGSTOP, or continues it.
    pub fn stand_still(&self, stands: bool) {
        self.process.signal(if stands { libc::SIGSTOP } else { libc::SIGCONT });
    }

    pub fn measure(&mut self) -> Result<()> {
        self.say(MEASURE)
    }

    /// Ends the application and returns its result.
    pub fn stop(mut self) -> Result<LoadResult> {
        self.say(STOP)?;
        let line = self.hear()?;
        let report: Report = parsed("the report of an application", &line)?;
        let mut latencies = Latencies::default();
        latencies.merge(&report.latencies);
        let commits_per_second = report.commits as f64 / report.seconds;
        drop(self.orders);
        // It closes its connections; the last one to close may checkpoint.
        self.process.wait(BUSY_TIMEOUT);
        Ok(LoadResult { commits_per_second, latency: latencies.summary() })
    }

    fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.orders, "{line}").during(|| "write to an application".into())
    }

    fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        self.reports.read_line(&mut line).during(|| "read from an application".into())?;
        interrupt::check()?;
        match line.is_empty() {
            true => Err(self.process.failed("ended without a report")),
            false => Ok(line),
        }
    }
}

pub fn main() -> Result<()> {
    let mut input = std::io::stdin().lines();
    let mut next = || input.next().transpose().during(|| "read an order".into());
    let Some(line) = next()? else { return Ok(()) };
    let config: Config = parsed("the configuration of an application", &line)?;
    let _loaded = load_extension(&config.extension)?;
    let connections: Vec<Connection> =
        (0..config.sessions).map(|_| open(&config.database)).collect::<Result<_>>()?;
    let holder = match config.lock_held_ms {
        Some(ms) => Some((open(&config.database)?, Duration::from_millis(ms))),
        None => None,
    };
    let phase = Phase { stopping: AtomicBool::new(false), measuring: AtomicBool::new(false) };
    let arrivals = Arrivals { next: AtomicU64::new(0), begun: Instant::now(), every: config.every() };
    let connected = Barrier::new(config.sessions + 1);
    std::thread::scope(|scope| {
        let sessions: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(nth, connection)| {
                let (phase, arrivals, connected, config) = (&phase, &arrivals, &connected, &config);
                scope.spawn(move || {
                    connected.wait();
                    write(&connection, nth as u64, config, arrivals, phase)
                })
            })
            .collect();
        if let Some((connection, held)) = holder {
            let phase = &phase;
            scope.spawn(move || hold_lock(&connection, held, phase));
        }
        connected.wait();
        println!("{READY}");
        let mut begun = Instant::now();
        while let Some(order) = next()? {
            if order == STOP {
                break;
            }
            begun = Instant::now();
            phase.measuring.store(true, SeqCst);
        }
        phase.stopping.store(true, SeqCst);
        let seconds = begun.elapsed().as_secs_f64();
        let mut latencies = Latencies::default();
        for session in sessions {
            let done = session.join().map_err(|_| BenchError::Workload("a session died".into()))??;
            latencies.merge(&done.counts());
        }
        let report = Report { seconds, commits: latencies.count(), latencies: latencies.counts() };
        let line = serde_json::to_string(&report).map_err(std::io::Error::from);
        println!("{}", line.during(|| "write a report".into())?);
        Ok(())
    })
}

impl Config {
    fn every(&self) -> Option<Duration> {
        self.rate.map(|rate| Duration::from_secs_f64(self.bytes as f64 / rate))
    }
}

struct Phase {
    stopping: AtomicBool,
    measuring: AtomicBool,
}

struct Arrivals {
    next: AtomicU64,
    begun: Instant,
    every: Option<Duration>,
}

impl Arrivals {
    /// Waits for the next arrival that no session has taken.
    fn take(&self) {
        let Some(every) = self.every else { return };
        let due = every.mul_f64(self.next.fetch_add(1, SeqCst) as f64);
        std::thread::sleep(due.saturating_sub(self.begun.elapsed()));
    }
}

fn open(path: &Path) -> Result<Connection> {
    let during = || format!("open {}", path.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).during(during)?;
    connection.busy_timeout(BUSY_TIMEOUT).during(during)?;
    Ok(connection)
}

/// Runs the transactions of one session; returns the latencies of those that began and ended within the measured time.
fn write(
    connection: &Connection,
    session: u64,
    config: &Config,
    arrivals: &Arrivals,
    phase: &Phase,
) -> Result<Latencies> {
    let during = || "write a transaction".to_owned();
    let mut insert = connection.prepare("INSERT INTO body(bytes) VALUES(?)").during(during)?;
    let mut latencies = Latencies::default();
    let (mut body, mut state) = (vec![0; config.bytes], session.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    loop {
        arrivals.take();
        if phase.stopping.load(SeqCst) {
            return Ok(latencies);
        }
        let counts = phase.measuring.load(SeqCst);
        match config.content {
            Content::Noise => fill(&mut body, &mut state),
            Content::Order => order(&mut body, config.bytes, &mut state),
        }
        let begun = Instant::now();
        insert.execute([&body]).during(during)?;
        if counts && !phase.stopping.load(SeqCst) {
            latencies.record(begun.elapsed().as_nanos() as u64);
        }
    }
}

/// Repeatedly takes and releases the write lock, in competition with the writers. A failure to take it is ignored: it
/// harms no other session and shows as a missing delay.
fn hold_lock(connection: &Connection, held: Duration, phase: &Phase) {
    while !phase.stopping.load(SeqCst) {
        if connection.execute_batch("BEGIN IMMEDIATE").is_ok() {
            std::thread::sleep(held);
            let _ = connection.execute_batch("ROLLBACK");
        }
    }
}

fn fill(body: &mut [u8], state: &mut u64) {
    for chunk in body.chunks_mut(8) {
        chunk.copy_from_slice(&next(state).to_le_bytes()[..chunk.len()]);
    }
}

/// Returns the next random number (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Makes an order of about `bytes` bytes.
fn order(body: &mut Vec<u8>, bytes: usize, state: &mut u64) {
    let mut below = |limit: u64| next(state) % limit;
    let (number, customer, second) = (below(100_000_000), below(500_000), below(86_400));
    let mut text = format!(
        r#"{{"order":{number},"customer":{customer},"placed":"2026-11-21T{:02}:{:02}:{:02}Z","currency":"EUR","lines":["#,
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    loop {
        let (article, quantity, cents) = (below(20_000), 1 + below(9), 100 + below(20_000));
        text.push_str(&format!(
            r#"{{"sku":"A-{article:05}","quantity":{quantity},"price":{}.{:02}}}"#,
            cents / 100,
            cents % 100
        ));
        if text.len() + 20 >= bytes {
            break;
        }
        text.push(',');
    }
    text.push_str(r#"],"state":"paid"}"#);
    *body = text.into_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_arrive_as_often_as_the_rate_says() {
        let config = Config {
            extension: PathBuf::new(),
            database: PathBuf::new(),
            sessions: 1,
            bytes: 2000,
            rate: Some(4e6),
            content: Content::Noise,
            lock_held_ms: None,
        };
        assert_eq!(config.every(), Some(Duration::from_micros(500)));
        let arrivals = Arrivals { next: AtomicU64::new(0), begun: Instant::now(), every: config.every() };
        (0..20).for_each(|_| arrivals.take());
        assert!(arrivals.begun.elapsed() >= Duration::from_micros(19 * 500));
        assert_eq!(Config { rate: None, ..config }.every(), None);
    }

    #[test]
    fn order_is_a_document_of_the_requested_size() {
        let (mut body, mut state) = (Vec::new(), 1);
        for _ in 0..100 {
            order(&mut body, 400, &mut state);
            let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert!(document["lines"].as_array().unwrap().len() > 2 && (380..470).contains(&body.len()));
        }
    }

    #[test]
    fn bytes_differ_between_transactions_and_between_sessions() {
        let (mut one, mut other) = (vec![0; 100], vec![0; 100]);
        let (mut first, mut second) = (1, 2);
        fill(&mut one, &mut first);
        fill(&mut other, &mut second);
        assert_ne!(one, other);
        let before = one.clone();
        fill(&mut one, &mut first);
        assert_ne!(one, before);
    }
}
