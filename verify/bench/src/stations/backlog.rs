//! Backlogs for apply: a real SQLite history of the workload, captured as in an instance.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};
use standfast_apply::{Apply, ApplyConfig, ApplyError, ApplyReport, Limits, Pace, RedoInMemory, StartPoint};
use standfast_io::DirectDisk;
use standfast_sqlite_wal::capture::{Capture, CaptureError, CaptureOutcome, CommitMark, Epoch};
use standfast_sqlite_wal::guard::{Guard, GuardError, register_guard_vfs};
use standfast_sqlite_wal::{VfsFile, VfsFileKind};
use standfast_types::{DatabaseId, PageSize, Scn};

use super::{ApplyStation, Backlog};
use crate::error::During;
use crate::workload::{self, Accounts, create_databases};
use crate::{BenchError, Result, interrupt};

/// Redo per call of apply: the amount that a standby takes when it is behind.
const STRETCH_BYTES: usize = 16 << 20;
/// Transactions between two checks for an interrupt while a history is made.
const TRANSACTIONS_A_LOOK: u64 = 1000;
/// Transactions after which the WAL of the history is checkpointed and truncated: some 8,000 frames.
const TRANSACTIONS_A_GENERATION: u64 = 4000;

/// Makes a history once and reuses it for all runs with the same parameters.
#[derive(Default)]
pub(super) struct RealApply {
    history: RefCell<Option<Rc<History>>>,
}

/// Redo of identical databases that all have the same transactions.
struct History {
    transactions: u64,
    databases: usize,
    page_size: PageSize,
    /// Content of each database before the first transaction.
    seed: Vec<u8>,
    redo: Vec<u8>,
}

impl ApplyStation for RealApply {
    fn prepare(&self, directory: &Path, transactions: u64, databases: usize) -> Result<Box<dyn Backlog>> {
        let known = self.history.borrow().clone();
        let known = known.filter(|known| known.transactions == transactions && known.databases == databases);
        let history = match known {
            Some(history) => history,
            None => {
                self.history.replace(None);
                let primary = directory.join("primary");
                std::fs::create_dir(&primary).during(|| format!("create {}", primary.display()))?;
                let made = Rc::new(History::make(&primary, transactions, databases)?);
                self.history.replace(Some(made.clone()));
                made
            }
        };
        Ok(Box::new(Received::prepare(&directory.join("standby"), history)?))
    }
}

impl History {
    /// Runs the transactions in one database and captures each of them for all databases: their redo differs only in
    /// the number of the database.
    fn make(directory: &Path, transactions: u64, databases: usize) -> Result<History> {
        eprintln!("  making a history of {transactions} transactions in {databases} databases");
        let path = create_databases(directory, 1)?.remove(0);
        let during = || format!("make a history in {}", path.display());
        let seed = std::fs::read(&path).during(during)?;
        let page_size = page_size(&seed)?;
        let application = Connection::open(&path).during(during)?;
        application.execute_batch("PRAGMA synchronous=OFF; PRAGMA wal_autocheckpoint=0").during(during)?;
        let vfs = register_guard_vfs(None).map_err(guard_failed)?;
        let keeper = Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), vfs.as_str());
        let keeper = keeper.during(during)?;
        keeper
            .execute_batch("PRAGMA synchronous=OFF; PRAGMA wal_autocheckpoint=0; SELECT 1 FROM hist")
            .during(during)?;
        Guard::of(&keeper).and_then(|guard| guard.hold_checkpoint_lock()).map_err(guard_failed)?;
        let captures = (0..databases).map(|nth| open_capture(&path, &keeper, id_of(nth), page_size));
        let mut captures = captures.collect::<Result<Vec<_>>>()?;

        let (mut redo, mut marks, mut done) = (Vec::new(), Vec::new(), 0);
        let mut accounts = Accounts::of_client(0);
        let mut update = application.prepare(workload::UPDATE).during(during)?;
        let mut insert = application.prepare(workload::INSERT).during(during)?;
        for nth in 0.. {
            if done == transactions {
                break;
            }
            if nth % TRANSACTIONS_A_GENERATION == 0 && nth > 0 {
                checkpoint(&keeper).during(during)?;
            }
            if nth % TRANSACTIONS_A_LOOK == 0 {
                interrupt::check()?;
            }
            let account = accounts.next_account();
            application.execute_batch(workload::BEGIN).during(during)?;
            update.execute([account as i64]).during(during)?;
            insert.execute([0, nth as i64, account as i64]).during(during)?;
            application.execute_batch(workload::COMMIT).during(during)?;
            // The remainder of an uneven division goes to the first databases.
            let takers = (transactions - done).min(databases as u64);
            let raw_salts = published_salts(&keeper)?;
            for capture in &mut captures[..takers as usize] {
                capture_one(capture, raw_salts, &mut redo, &mut marks)?;
            }
            done += takers;
        }
        if marks.len() as u64 != transactions {
            let captured = marks.len();
            return Err(BenchError::Workload(format!("captured {captured} of {transactions} transactions")));
        }
        Ok(History { transactions, databases, page_size, seed, redo })
    }
}

fn guard_failed(error: GuardError) -> BenchError {
    BenchError::Workload(error.to_string())
}

fn id_of(nth: usize) -> DatabaseId {
    DatabaseId(nth as u16)
}

fn name_of(nth: usize) -> String {
    format!("db{nth}.db")
}

fn page_size(file: &[u8]) -> Result<PageSize> {
    let field = file.get(16..18).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let unknown = || BenchError::Workload("the database that was just made has no page size".into());
    field.and_then(PageSize::from_header_field).ok_or_else(unknown)
}

fn open_capture(path: &Path, keeper: &Connection, id: DatabaseId, page_size: PageSize) -> Result<Capture> {
    let during = || format!("open the write-ahead log of {}", path.display());
    let guard = Guard::of(keeper).map_err(guard_failed)?;
    let header = guard.wal_header().map_err(guard_failed)?;
    let wal = VfsFile::open(None, path, VfsFileKind::Wal).during(during)?;
    let file = VfsFile::open(None, path, VfsFileKind::Database).during(during)?;
    let index = guard.wal_index().map_err(guard_failed)?;
    let capture = Capture::new(id, page_size, wal, file, index, header.position(), header.database_pages());
    capture.map_err(capture_failed)
}

fn capture_failed(error: CaptureError) -> BenchError {
    BenchError::Workload(format!("capture: {error}"))
}

fn published_salts(keeper: &Connection) -> Result<[u32; 2]> {
    let guard = Guard::of(keeper).map_err(guard_failed)?;
    guard.wal_header().map(|header| header.raw_salts()).map_err(guard_failed)
}

fn capture_one(
    capture: &mut Capture,
    raw_salts: [u32; 2],
    redo: &mut Vec<u8>,
    marks: &mut Vec<CommitMark>,
) -> Result<()> {
    let epoch = Epoch { number: 1, raw_salts };
    // Pages that a transaction adds without writing them may take several calls.
    let mut outcome = CaptureOutcome::More;
    while outcome == CaptureOutcome::More {
        outcome = capture.capture(epoch, 0, usize::MAX, redo, marks).map_err(capture_failed)?;
    }
    match outcome {
        CaptureOutcome::UpToDate => Ok(()),
        other => Err(BenchError::Workload(format!("capture of a finished commit says {other:?}"))),
    }
}

fn checkpoint(keeper: &Connection) -> rusqlite::Result<()> {
    keeper.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// A standby that has received all redo and applied none.
struct Received {
    history: Rc<History>,
    apply: Apply,
}

impl Received {
    fn prepare(directory: &Path, history: Rc<History>) -> Result<Received> {
        let during = || format!("make a standby in {}", directory.display());
        std::fs::create_dir(directory).during(during)?;
        let paths: Vec<PathBuf> = (0..history.databases).map(|nth| directory.join(name_of(nth))).collect();
        for path in &paths {
            std::fs::write(path, &history.seed).during(during)?;
        }
        let apply = open_apply(directory, &history).map_err(apply_failed)?;
        Ok(Received { history, apply })
    }
}

fn apply_failed(error: ApplyError) -> BenchError {
    BenchError::Workload(error.to_string())
}

fn open_apply(directory: &Path, history: &History) -> std::result::Result<Apply, ApplyError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let config = ApplyConfig {
        directory: directory.to_owned(),
        journal: directory.join("apply.journal"),
        disk: Arc::new(DirectDisk),
        vfs_base: None,
        workers: processors - 1,
        limits: Limits::default(),
    };
    let mut apply = Apply::open(config, Box::new(|_| Ok(())))?;
    for nth in 0..history.databases {
        let start = StartPoint::copy_at(Scn::START);
        apply.attach_existing(id_of(nth), &name_of(nth), history.page_size, start)?;
    }
    apply.recover(Scn::START, Scn::START, &mut RedoInMemory { first: Scn::START, bytes: &[] })?;
    Ok(apply)
}

impl Backlog for Received {
    fn apply(mut self: Box<Self>) -> std::result::Result<u64, String> {
        self.apply_all().map_err(|error| error.to_string())
    }
}

impl Received {
    fn apply_all(&mut self) -> std::result::Result<u64, ApplyError> {
        let redo = &self.history.redo;
        let upto = Scn::START + redo.len() as u64;
        let (mut from, mut report) = (Scn::START, ApplyReport::default());
        let mut transactions = 0;
        while from < upto {
            let at = from.bytes_since(Scn::START) as usize;
            let stretch = &redo[at..redo.len().min(at + STRETCH_BYTES)];
            let done = self.apply.apply(from, stretch, upto)?;
            transactions += done.transactions;
            report.errors.extend(done.errors);
            self.apply.checkpoint_if_due(&Pace::AtOnce, &mut report)?;
            if let Some((_, error)) = report.errors.pop() {
                return Err(error);
            }
            from = done.applied;
        }
        self.apply.sync(&mut report)?;
        report.errors.pop().map_or(Ok(transactions), |(_, error)| Err(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Scratch;

    #[test]
    fn backlog_is_spread_over_databases_and_applied_completely() {
        let scratch = Scratch::new(Path::new("/var/tmp")).unwrap();
        let station = RealApply::default();
        for run in ["first", "second"] {
            let directory = scratch.directory(run).unwrap();
            let backlog = station.prepare(&directory, 10_003, 2).unwrap();
            assert_eq!(backlog.apply().unwrap(), 10_003);
            for (nth, expected) in [(0, 5002), (1, 5001)] {
                let copy = Connection::open(directory.join("standby").join(name_of(nth))).unwrap();
                let rows: i64 = copy.query_row("SELECT count(*) FROM hist", [], |row| row.get(0)).unwrap();
                let sum: i64 = copy.query_row("SELECT sum(bal) FROM acct", [], |row| row.get(0)).unwrap();
                assert_eq!((rows, sum), (expected, expected), "database {nth} of the {run} run");
            }
        }
    }
}
