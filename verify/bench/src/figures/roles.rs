//! Role changes as applications see them: how long writes are unavailable, and what a reinstatement copies.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use serde::{Deserialize, Serialize};

use crate::context::need;
use crate::error::During;
use crate::process::Scratch;
use crate::systems::standfast::{BUILD, rows};
use crate::systems::{Instance, Mode, Site, StandbyOptions};
use crate::worker::load_extension;
use crate::workload::create_databases;
use crate::{BenchError, Context, Result, interrupt};

const CLIENTS: usize = 8;
const MANY: usize = 100;
/// How long applications write before and after a change.
const SETTLE: Duration = Duration::from_secs(2);
/// Redo per second at a failover, in bytes.
const REDO_RATE: f64 = 20e6;
/// Bytes of a row written at that rate.
const ROW_BYTES: usize = 20_000;
/// Pages of 4 KiB of the database that is reinstated: 5 GB.
const LARGE_PAGES: u64 = 1_220_000;
/// Commits of the lost branch.
const LOST_COMMITS: u64 = 10_000;
/// Free space that the databases of a reinstatement and their redo need.
const LARGE_BYTES: u64 = 3 * LARGE_PAGES * 4096;
const BUSY: Duration = Duration::from_secs(30);
const AFTER_ERROR: Duration = Duration::from_millis(1);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RolesResult {
    /// Longest wait of a client for a write in each switchover, in seconds.
    pub switchover_one: Vec<f64>,
    /// The same with 100 databases.
    pub switchover_many: Vec<f64>,
    /// Acknowledged writes that were missing after the switchovers.
    pub lost: u64,
    /// From the command to the first write of the slowest client, in seconds: each failover.
    pub failover: Vec<f64>,
    /// From the kill of the primary to the first write of the slowest client, in seconds: each automatic failover, with the
    /// fastest settings of fast-start failover.
    #[serde(default)]
    pub automatic_fast: Vec<f64>,
    /// The same with the default settings, less the threshold.
    #[serde(default)]
    pub automatic_default: Vec<f64>,
    pub reinstated: Reinstated,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Reinstated {
    pub seconds: f64,
    /// Pages of the database, and how many of them were copied.
    pub pages: u64,
    pub fetched: u64,
    /// Whether both files have the same pages, but for page 1, which every SQLite writes for itself.
    pub is_identical: bool,
}

pub(super) fn roles(context: &Context, rounds: usize) -> Result<RolesResult> {
    let extension = need(&context.programs.extension, BUILD)?;
    // Stays loaded: connections of this process are sessions from then on.
    let _loaded = load_extension(extension)?;
    let (switchover_one, lost_one) = switchovers(context, 1, rounds)?;
    let (switchover_many, lost_many) = switchovers(context, MANY, rounds)?;
    let each = |by: By| (0..rounds).map(|_| failover(context, by)).collect::<Result<Vec<f64>>>();
    let failover = each(By::Command)?;
    let automatic_fast = each(By::Itself(&FAST))?;
    let automatic_default = each(By::Itself(&[]))?.into_iter().map(|s| s - THRESHOLD_S).collect();
    let reinstated = reinstatement(context)?;
    let lost = lost_one + lost_many;
    Ok(RolesResult {
        switchover_one,
        switchover_many,
        lost,
        failover,
        automatic_fast,
        automatic_default,
        reinstated,
    })
}

/// A primary and its standby, and the databases at both.
struct Pair {
    primary: Instance,
    standby: Instance,
    sides: [Vec<PathBuf>; 2],
}

fn pair(context: &Context, scratch: &Scratch, databases: Vec<PathBuf>, mode: Mode) -> Result<Pair> {
    let primary = Instance::start_with(&Site::here()?, context, scratch, "alpha", &GROUPS, None)?;
    primary.protect(&databases)?;
    let options = StandbyOptions { name: "beta", ..StandbyOptions::default() };
    let standby = primary.create_standby(&Site::here()?, context, scratch, options)?;
    primary.add_destination(&standby, mode, &[])?;
    primary.await_follower(&standby, mode)?;
    let copies = databases.iter().map(|path| standby.copy_of(path)).collect();
    Ok(Pair { primary, standby, sides: [databases, copies] })
}

/// Redo logs that are not switched all the time.
const GROUPS: [(&str, u64); 1] = [("group_bytes", 256 << 20)];

/// Applications that write to the databases of one instance, and to those of the other one where the first refuses
/// writers.
struct Clients<'a> {
    sides: &'a [Vec<PathBuf>; 2],
    stops: AtomicBool,
    acknowledged: AtomicU64,
    /// Longest time between two writes of a client.
    longest: Mutex<Duration>,
}

impl<'a> Clients<'a> {
    fn of(sides: &'a [Vec<PathBuf>; 2]) -> Clients<'a> {
        Clients {
            sides,
            stops: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            longest: Mutex::default(),
        }
    }

    fn write(&self, client: usize) -> Result<()> {
        let at = client % self.sides[0].len();
        let (mut side, mut connection) = (0, None);
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        while !self.stops.load(SeqCst) {
            let open = match connection.take() {
                Some(open) => open,
                None => connect(&self.sides[side][at])?,
            };
            match open.execute("INSERT INTO hist(conn) VALUES(?1)", [client as i64]) {
                Ok(_) => {
                    let now = Instant::now();
                    longest = longest.max(now - last);
                    last = now;
                    self.acknowledged.fetch_add(1, SeqCst);
                    connection = Some(open);
                }
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) => side = 1 - side,
                Err(_) => std::thread::sleep(AFTER_ERROR),
            }
        }
        let mut all = self.longest.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *all = longest.max(*all);
        Ok(())
    }
}

fn connect(path: &Path) -> Result<Connection> {
    let during = || format!("open {}", path.display());
    let connection = Connection::open(path).during(during)?;
    connection.busy_timeout(BUSY).during(during)?;
    Ok(connection)
}

/// Switches over under load, `rounds` times there and back. Returns the longest waits, and how many acknowledged writes
/// are missing at the end.
fn switchovers(context: &Context, databases: usize, rounds: usize) -> Result<(Vec<f64>, u64)> {
    eprintln!("switchover, {CLIENTS} clients, databases: {databases}");
    let scratch = Scratch::new(&context.base)?;
    let databases = create_databases(scratch.path(), databases)?;
    let Pair { primary, standby, sides } = pair(context, &scratch, databases, Mode::SyncAffirm)?;
    let (mut waits, mut acknowledged) = (Vec::new(), 0);
    for round in 0..2 * rounds {
        let clients = Clients::of(&sides);
        let (from, to) = if round % 2 == 0 { (&primary, &standby) } else { (&standby, &primary) };
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    scope.spawn({
                        let clients = &clients;
                        move || clients.write(client)
                    })
                })
                .collect();
            let changed = interrupt::pause(SETTLE)
                .and_then(|()| from.switchover(to))
                .and_then(|()| interrupt::pause(SETTLE));
            clients.stops.store(true, SeqCst);
            let written = writers.into_iter().map(|writer| writer.join().unwrap_or_else(|_| Err(ended())));
            changed.and(written.collect::<Result<()>>())
        })?;
        acknowledged += clients.acknowledged.load(SeqCst);
        waits.push(
            clients.longest.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).as_secs_f64(),
        );
        to.await_follower(from, Mode::SyncAffirm)?;
    }
    let found = sides[0].iter().map(|path| rows(path, "hist")).sum::<Result<u64>>()?;
    standby.stop().and(primary.stop())?;
    eprintln!("  longest waits, s: {waits:.2?}; {acknowledged} writes acknowledged, {found} found");
    Ok((waits, acknowledged.saturating_sub(found)))
}

fn ended() -> BenchError {
    BenchError::Workload("a client thread ended by itself".into())
}

/// How a standby becomes the primary.
#[derive(Clone, Copy)]
enum By {
    Command,
    /// Fast-start failover, with these properties.
    Itself(&'static [(&'static str, &'static str)]),
}

/// Ten looks at the observer, as close as they may be.
const FAST: [(&str, &str); 2] = [("ObserverPingInterval", "100"), ("ObserverPingRetry", "10")];
/// FastStartFailoverThreshold, if it is not set.
const THRESHOLD_S: f64 = 30.0;

/// Kills the primary of 100 databases at 20 MB/s of redo, and fails over or waits until the standby does. Returns the time
/// from the kill, right after which the command is given, until the slowest client has written to the new primary.
fn failover(context: &Context, by: By) -> Result<f64> {
    let how = if matches!(by, By::Command) { "by command" } else { "by itself" };
    eprintln!("failover {how}, {CLIENTS} clients, databases: {MANY}, {:.0} MB/s", REDO_RATE / 1e6);
    let scratch = Scratch::new(&context.base)?;
    let databases = create_databases(scratch.path(), MANY)?;
    let Pair { mut primary, standby, sides } = pair(context, &scratch, databases, Mode::SyncAffirm)?;
    let _observer = match by {
        By::Command => None,
        By::Itself(properties) => Some(primary.enable_fast_start(&standby, &scratch, properties)?),
    };
    let stops = AtomicBool::new(false);
    let pace = Duration::from_secs_f64((CLIENTS * ROW_BYTES) as f64 / REDO_RATE);
    let load = |client: usize| -> Result<()> {
        let open = sides[0].iter().skip(client).step_by(CLIENTS).map(|path| connect(path));
        let connections = open.collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        for (nth, connection) in connections.iter().cycle().enumerate() {
            let insert = "INSERT INTO hist(note) VALUES(randomblob(?1))";
            // Ends with the primary.
            if stops.load(SeqCst) || connection.execute(insert, [ROW_BYTES as i64]).is_err() {
                break;
            }
            std::thread::sleep((began + pace * nth as u32).saturating_duration_since(Instant::now()));
        }
        Ok(())
    };
    let first_write = |client: usize| -> Result<()> {
        while !stops.load(SeqCst) {
            let insert = "INSERT INTO hist(conn) VALUES(?1)";
            if connect(&sides[1][client])?.execute(insert, [client as i64]).is_ok() {
                return Ok(());
            }
            std::thread::sleep(AFTER_ERROR);
        }
        Err(BenchError::Workload("no client can write after a failover".into()))
    };
    let seconds = std::thread::scope(|scope| {
        let load = &load;
        let loads: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || load(client))).collect();
        let paused = interrupt::pause(2 * SETTLE);
        primary.kill();
        let began = Instant::now();
        let first_write = &first_write;
        let writers: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || first_write(client))).collect();
        let failed_over = paused.and_then(|()| match by {
            By::Command => standby.failover(),
            By::Itself(_) => standby.await_primary(),
        });
        if failed_over.is_err() {
            stops.store(true, SeqCst);
        }
        let written = writers.into_iter().map(|writer| writer.join().unwrap_or_else(|_| Err(ended())));
        let written = written.collect::<Result<()>>();
        let seconds = began.elapsed().as_secs_f64();
        stops.store(true, SeqCst);
        let loaded = loads.into_iter().map(|load| load.join().unwrap_or_else(|_| Err(ended())));
        failed_over.and(written).and(loaded.collect::<Result<()>>()).map(|()| seconds)
    })?;
    standby.stop()?;
    eprintln!("  first writes of all clients after {seconds:.2} s");
    Ok(seconds)
}

/// Reinstates the primary of a 5 GB database after a lost branch of 10,000 commits.
fn reinstatement(context: &Context) -> Result<Reinstated> {
    eprintln!("reinstatement, {LOST_COMMITS} lost commits, {} MiB", (LARGE_PAGES * 4096) >> 20);
    let scratch = Scratch::new(&context.base)?;
    let free = standfast_io::Disk::free_bytes(&standfast_io::DirectDisk, scratch.path());
    if free.during(|| "ask for free space".into())? < LARGE_BYTES {
        return Err(BenchError::Unavailable(format!("less than {} MiB are free", LARGE_BYTES >> 20)));
    }
    let database = scratch.path().join("large.db");
    create_large(&database)?;
    let Pair { mut primary, mut standby, sides } =
        pair(context, &scratch, vec![database.clone()], Mode::Async)?;
    standby.kill();
    write_lost(&database)?;
    primary.kill();
    let standby = standby.start_again(&scratch)?;
    standby.failover()?;
    let began = Instant::now();
    let (pages, fetched) = primary.reinstate(&standby)?;
    let seconds = began.elapsed().as_secs_f64();
    let primary = primary.start_again(&scratch)?;
    standby.await_follower(&primary, Mode::Async)?;
    primary.stop().and(standby.stop())?;
    let is_identical = same_pages(&sides[0][0], &sides[1][0])?;
    Ok(Reinstated { seconds, pages, fetched, is_identical })
}

/// Creates a database with a row on each page.
fn create_large(path: &Path) -> Result<()> {
    let connection = Connection::open(path).during(|| format!("create {}", path.display()))?;
    let fill = format!(
        "PRAGMA synchronous=OFF; PRAGMA journal_mode=WAL; CREATE TABLE hist(id INTEGER PRIMARY KEY, note BLOB); BEGIN;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{LARGE_PAGES})
         INSERT INTO hist SELECT i, randomblob(3900) FROM n; COMMIT; PRAGMA wal_checkpoint(TRUNCATE)"
    );
    connection.execute_batch(&fill).during(|| format!("fill {}", path.display()))?;
    connection.close().map_err(|(_, error)| error).during(|| format!("close {}", path.display()))
}

/// Commits changes of rows all over the database.
fn write_lost(path: &Path) -> Result<()> {
    let connection = connect(path)?;
    let mut update = connection
        .prepare("UPDATE hist SET note=randomblob(3900) WHERE id=?1")
        .during(|| format!("write to {}", path.display()))?;
    for commit in 0..LOST_COMMITS {
        let row = 1 + commit.wrapping_mul(0x9E37_79B9_7F4A_7C15) % LARGE_PAGES;
        update.execute([row as i64]).during(|| format!("write to {}", path.display()))?;
    }
    Ok(())
}

fn same_pages(here: &Path, there: &Path) -> Result<bool> {
    use std::io::{BufReader, Read};
    let open = |path: &Path| {
        let opened = std::fs::File::open(path).during(|| format!("open {}", path.display()))?;
        Ok(BufReader::with_capacity(1 << 20, opened))
    };
    let (mut one, mut other) = (open(here)?, open(there)?);
    let (mut left, mut right) = (vec![0; 4096], vec![0; 4096]);
    for page in 1u64.. {
        let read = |file: &mut BufReader<std::fs::File>, page: &mut [u8]| match file.read_exact(page) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error).during(|| "compare two databases".into()),
        };
        match (read(&mut one, &mut left)?, read(&mut other, &mut right)?) {
            (true, true) if page == 1 || left == right => {}
            (false, false) => return Ok(true),
            _ => return Ok(false),
        }
    }
    Ok(true)
}
