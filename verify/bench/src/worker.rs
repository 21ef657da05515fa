//! The application of the workload, as a separate process: one connection per thread, prepared statements and SQLite's
//! default busy handler.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, Statement};

use crate::error::During;
use crate::statistics::Latencies;
use crate::worker_protocol::{ClientReport, Order, Report, WorkerConfig};
use crate::workload::{Accounts, BEGIN, COMMIT, INSERT, UPDATE};
use crate::{BenchError, Result};

/// Longest wait for the write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);
/// A client gives up after this many failures: the database is broken, not busy.
const ERRORS_MAX: u64 = 100;

/// Phases of a run, in the order in which the driver announces them.
const CONNECTED: u8 = 0;
const WARM: u8 = 1;
const MEASURE: u8 = 2;
const STOP: u8 = 3;

/// Runs the worker process on its standard input and output until the driver closes the pipe.
pub fn main() -> Result<()> {
    let mut input = std::io::stdin().lines();
    let config = match input.next() {
        Some(line) => {
            let line = line.during(|| "read the configuration".into())?;
            serde_json::from_str::<WorkerConfig>(&line).map_err(|error| BenchError::Unreadable {
                what: "the worker's configuration".into(),
                detail: error.to_string(),
            })?
        }
        None => return Ok(()),
    };
    let orders = input.map_while(|line| serde_json::from_str::<Order>(&line.ok()?).ok());
    let result = serve(&config, orders);
    if let Err(error) = &result {
        tell(&Report::Failed(error.to_string()));
    }
    result
}

fn tell(report: &Report) {
    // A driver that has ended needs no report; the closed pipe then ends this process.
    let _ = serde_json::to_string(report).map(|line| println!("{line}"));
}

fn serve(config: &WorkerConfig, orders: impl Iterator<Item = Order>) -> Result<()> {
    // Loading registers the VFS as default for the whole process: every connection opened later uses it.
    let _loaded = config.extension.as_deref().map(load_extension).transpose()?;
    let opened: Result<Vec<Connection>> = config.databases.iter().map(|path| open(path, config)).collect();
    let phase = AtomicU8::new(CONNECTED);
    std::thread::scope(|scope| {
        let mut clients = Clients::default();
        let (stopped, have_stopped) = mpsc::channel();
        let (reports, reported) = mpsc::channel();
        for (nth, connection) in opened?.into_iter().enumerate() {
            let client = config.first_client + nth;
            // Read before Ready is sent, so that no client of any process has committed yet.
            let redo_before = redo_position(&connection);
            let (reports, phase) = (reports.clone(), &phase);
            let (begin, begun) = mpsc::channel::<()>();
            let (count, to_count) = mpsc::channel::<()>();
            let (close, closed) = mpsc::channel::<()>();
            let stopped = stopped.clone();
            let work = move || {
                let prepared = Transaction::prepare(&connection);
                // An error from the channel: the worker gave up before the client started.
                if begun.recv().is_ok() {
                    let report = prepared.and_then(|sql| run_client(&connection, sql, client, phase));
                    // Drop both senders as well: `have_stopped` and `reported` then end even if a client panics.
                    let _ = stopped.send(());
                    drop(stopped);
                    let _ = to_count.recv();
                    let report = report.and_then(|report| counted(&connection, report));
                    let _ = reports.send(report.map(|report| report.with_redo_since(redo_before)));
                    drop(reports);
                    let _ = closed.recv();
                }
            };
            let thread = std::thread::Builder::new().name(format!("client-{client}"));
            thread.spawn_scoped(scope, work).during(|| "start a thread".into())?;
            clients.begin.push(begin);
            clients.count.push(count);
            clients.close.push(close);
        }
        // Only the clients now hold senders: when all clients are gone, waiting for reports ends.
        drop((stopped, reports));
        tell(&Report::Ready);
        let result = obey(orders, &phase, &mut clients, &have_stopped, &reported);
        phase.store(STOP, Ordering::Release);
        result
    })
}

/// Channel ends that start and release the clients; dropping an end releases its client.
#[derive(Default)]
struct Clients {
    begin: Vec<mpsc::Sender<()>>,
    count: Vec<mpsc::Sender<()>>,
    close: Vec<mpsc::Sender<()>>,
}

fn obey(
    orders: impl Iterator<Item = Order>,
    phase: &AtomicU8,
    clients: &mut Clients,
    have_stopped: &mpsc::Receiver<()>,
    reported: &mpsc::Receiver<Result<ClientReport>>,
) -> Result<()> {
    for order in orders {
        match order {
            Order::Warm => phase.store(WARM, Ordering::Release),
            Order::Measure => phase.store(MEASURE, Ordering::Release),
            Order::Stop => phase.store(STOP, Ordering::Release),
            Order::Count => clients.count.clear(),
            Order::Close => break,
        }
        for begin in clients.begin.drain(..) {
            // A client that ended early gives the reason in its report.
            let _ = begin.send(());
        }
        if order == Order::Stop {
            // A client that ended early sends nothing here; its reason comes with the counts.
            have_stopped.iter().take(clients.close.len()).for_each(drop);
            tell(&Report::Stopped);
        }
        if order == Order::Count {
            let all: Vec<ClientReport> = reported.iter().take(clients.close.len()).collect::<Result<_>>()?;
            if all.len() < clients.close.len() {
                return Err(BenchError::Workload("a client thread ended without a report".into()));
            }
            tell(&Report::Counted(all));
        }
    }
    Ok(())
}

pub(crate) fn load_extension(path: &std::path::Path) -> Result<Connection> {
    let during = || format!("load {}", path.display());
    let connection = Connection::open_in_memory().during(during)?;
    // SAFETY: the user of the harness names the library, which is built for SQLite; it stays loaded.
    unsafe {
        connection.load_extension_enable().during(during)?;
        connection.load_extension(path, Some("sqlite3_extension_init")).during(during)?;
    }
    connection.load_extension_disable().during(during)?;
    Ok(connection)
}

fn open(database: &std::path::Path, config: &WorkerConfig) -> Result<Connection> {
    let during = || format!("open {}", database.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).during(during)?;
    connection.busy_timeout(BUSY_TIMEOUT).during(during)?;
    connection.execute_batch("PRAGMA cache_size=-4000").during(during)?;
    if let Some(synchronous) = &config.synchronous {
        connection.execute_batch(&format!("PRAGMA synchronous={synchronous}")).during(during)?;
    }
    Ok(connection)
}

fn run_client(
    connection: &Connection,
    mut transaction: Transaction<'_>,
    client: usize,
    phase: &AtomicU8,
) -> Result<(ClientReport, Latencies)> {
    let mut report = ClientReport { client, ..ClientReport::default() };
    let (mut latencies, mut accounts) = (Latencies::default(), Accounts::of_client(client));
    let phase = || phase.load(Ordering::Acquire);
    loop {
        let begun_in = phase();
        if begun_in == STOP {
            break;
        }
        let begun = Instant::now();
        let sequence = report.commits_in_all + report.errors + 1;
        match transaction.run(client, sequence, accounts.next_account()) {
            Ok(()) => {
                report.commits_in_all += 1;
                if begun_in == MEASURE {
                    latencies.record(begun.elapsed().as_nanos() as u64);
                }
                report.commits += u64::from(phase() == MEASURE);
            }
            Err(error) => {
                report.errors += 1;
                report.first_error.get_or_insert_with(|| error.to_string());
                if !connection.is_autocommit() {
                    connection.execute_batch("ROLLBACK").during(|| "roll back".into())?;
                }
                if report.errors >= ERRORS_MAX {
                    break;
                }
            }
        }
    }
    Ok((report, latencies))
}

/// Computes the totals and counts the rows in the database, which takes processor time. Called when no client of any
/// process commits any more.
fn counted(
    connection: &Connection,
    (mut report, latencies): (ClientReport, Latencies),
) -> Result<ClientReport> {
    report.latencies = latencies.counts();
    report.redo = redo_position(connection).map(|end| (end, end));
    let client = [report.client as i64];
    report.rows = connection
        .query_row("SELECT count(*) FROM hist WHERE conn=?", client, |row| row.get::<_, i64>(0))
        .map(|rows| rows as u64)
        .during(|| "count the rows of a client".into())?;
    Ok(report)
}

/// None on stock SQLite, which has no such function.
fn redo_position(connection: &Connection) -> Option<u64> {
    let position = connection.query_row("SELECT standfast_scn()", [], |row| row.get::<_, Option<i64>>(0));
    position.ok().flatten().and_then(|scn| u64::try_from(scn).ok())
}

struct Transaction<'c> {
    begin: Statement<'c>,
    update: Statement<'c>,
    insert: Statement<'c>,
    commit: Statement<'c>,
}

impl<'c> Transaction<'c> {
    fn prepare(connection: &'c Connection) -> Result<Transaction<'c>> {
        let prepare = |text| connection.prepare(text).during(|| format!("prepare {text}"));
        Ok(Transaction {
            begin: prepare(BEGIN)?,
            update: prepare(UPDATE)?,
            insert: prepare(INSERT)?,
            commit: prepare(COMMIT)?,
        })
    }

    fn run(&mut self, client: usize, sequence: u64, account: u64) -> rusqlite::Result<()> {
        self.begin.execute([])?;
        self.update.execute([account as i64])?;
        self.insert.execute((client as i64, sequence as i64, account as i64))?;
        self.commit.execute([])?;
        Ok(())
    }
}

/// The other end of the TCP ping-pong: echoes messages of `bytes` bytes, in a separate process. Writes its port to
/// standard output, serves one connection and ends with it.
pub fn echo(bytes: usize) -> Result<()> {
    use std::io::{Read, Write};
    let during = || "echo over TCP".to_owned();
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).during(during)?;
    println!("{}", listener.local_addr().during(during)?.port());
    let (mut peer, _) = listener.accept().during(during)?;
    peer.set_nodelay(true).during(during)?;
    let mut message = vec![0; bytes];
    // The loop ends when the driver closes the connection.
    while peer.read_exact(&mut message).is_ok() {
        peer.write_all(&message).during(during)?;
    }
    Ok(())
}
