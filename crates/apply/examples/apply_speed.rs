//! Measures how fast a backlog is applied: transactions that each change a random one of 400 pages and append to
//! another, as an UPDATE of a 100,000-row table with an INSERT into a growing one does.
//!
//! `cargo run --release -p standfast-apply --example apply_speed -- [DATABASES] [TRANSACTIONS] [WORKERS] [KIB]`
//! where KIB is the redo given in one call. The time ends when every database is synced.

use standfast_apply::{Apply, ApplyConfig, ApplyReport, Limits, Pace, RedoInMemory};
use standfast_format::{Attach, RecordBuilder, page_sum};
use standfast_io::DirectDisk;
use standfast_testkit::{Rng, TempDir};
use standfast_types::{DatabaseId, PageSize, Scn};
use std::sync::Arc;
use std::time::Instant;

const PAGE: usize = 4096;
const ACCOUNT_PAGES: u32 = 400;
const ROWS_A_PAGE: u64 = 55;
const ROW: usize = 70;

/// One database as the generator sees it: its account pages and the page it appends to.
struct Model {
    id: DatabaseId,
    accounts: Vec<Vec<u8>>,
    tail: Vec<u8>,
    first: Vec<u8>,
    pages: u32,
    rows: u64,
}

impl Model {
    fn new(id: u16, rng: &mut Rng, redo: &mut Vec<u8>) -> Model {
        let id = DatabaseId(id);
        let seed = rusqlite::Connection::open_in_memory().expect("SQLite opens");
        seed.execute_batch("PRAGMA page_size=4096; CREATE TABLE t(x)").expect("a table can be made");
        let mut first: Vec<u8> = seed
            .query_row("SELECT data FROM sqlite_dbpage('main') WHERE pgno=1", [], |row| row.get(0))
            .expect("page 1 is there");
        first[18..20].fill(2);
        let accounts = (0..ACCOUNT_PAGES).map(|_| rng.bytes(PAGE)).collect();
        let pages = ACCOUNT_PAGES + 2;
        first[28..32].copy_from_slice(&pages.to_be_bytes());
        let model = Model { id, accounts, tail: vec![0; PAGE], first, pages, rows: 0 };
        let attach = Attach {
            database: id,
            page_size: PageSize::new(4096).expect("valid"),
            name: &format!("{}.db", id.0),
        };
        RecordBuilder::attach(redo, &attach);
        RecordBuilder::baseline(redo, id, true);
        let mut scratch = Vec::new();
        let all = [&model.first].into_iter().chain(&model.accounts).chain([&model.tail]).enumerate();
        let all: Vec<_> = all.map(|(at, image)| (at as u32 + 1, image)).collect();
        for (chunk, pages) in all.chunks(50).enumerate() {
            let last = (chunk + 1) * 50 >= all.len();
            let mut builder = match last {
                true => RecordBuilder::commit(redo, id, 0, model.pages, 0),
                false => RecordBuilder::change(redo, id),
            };
            for (page, image) in pages {
                builder.vector(*page, None, image, page_sum(*page, image), &mut scratch);
            }
            builder.finish();
        }
        model
    }

    fn transaction(&mut self, rng: &mut Rng, redo: &mut Vec<u8>, scratch: &mut Vec<u8>) {
        let account = rng.below(u64::from(ACCOUNT_PAGES)) as usize;
        let before = self.accounts[account].clone();
        let at = rng.below(PAGE as u64 - 8) as usize;
        rng.fill(&mut self.accounts[account][at..at + 3]);
        let tail_before = self.tail.clone();
        let slot = self.rows % ROWS_A_PAGE;
        let new_page = slot == 0 && self.rows > 0;
        if new_page {
            self.pages += 1;
            self.tail.fill(0);
        }
        let end = PAGE - slot as usize * ROW;
        rng.fill(&mut self.tail[end - ROW..end]);
        self.tail[3..5].copy_from_slice(&(slot as u16 + 1).to_be_bytes());
        self.tail[8 + slot as usize * 2..][..2].copy_from_slice(&((end - ROW) as u16).to_be_bytes());
        self.rows += 1;
        let mut builder = RecordBuilder::commit(redo, self.id, 0, self.pages, 0);
        if new_page {
            let before = self.first.clone();
            self.first[28..32].copy_from_slice(&self.pages.to_be_bytes());
            builder.vector(1, Some(&before), &self.first, page_sum(1, &self.first), scratch);
        }
        let (page, after) = (account as u32 + 2, &self.accounts[account]);
        builder.vector(page, Some(&before), after, page_sum(page, after), scratch);
        let tail_base = (!new_page).then_some(tail_before.as_slice());
        builder.vector(self.pages, tail_base, &self.tail, page_sum(self.pages, &self.tail), scratch);
        builder.finish();
    }
}

fn main() {
    let argument = |at: usize, default: u64| {
        std::env::args().nth(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let (databases, transactions) = (argument(1, 1), argument(2, 1_000_000));
    let (workers, call_bytes) = (argument(3, 1) as usize, argument(4, 16 << 10) << 10);
    let mut rng = Rng::new(1);
    let mut redo = Vec::new();
    let mut models: Vec<_> = (0..databases as u16).map(|id| Model::new(id, &mut rng, &mut redo)).collect();
    let setup = Scn::START + redo.len() as u64;
    let mut scratch = Vec::new();
    for _ in 0..transactions {
        let model = rng.below(databases) as usize;
        models[model].transaction(&mut rng, &mut redo, &mut scratch);
    }
    let upto = Scn::START + redo.len() as u64;
    println!(
        "{} MiB of redo, {} bytes a transaction",
        redo.len() >> 20,
        upto.bytes_since(setup) / transactions
    );

    let standby = TempDir::new("apply-speed").expect("a directory");
    let config = ApplyConfig {
        directory: standby.path().to_owned(),
        journal: standby.join("apply.journal"),
        disk: Arc::new(DirectDisk),
        vfs_base: None,
        workers,
        limits: Limits::default(),
    };
    let mut apply = Apply::open(config, Box::new(|_| Ok(()))).expect("apply opens");
    apply
        .recover(Scn::START, Scn::START, &mut RedoInMemory { first: Scn::START, bytes: &[] })
        .expect("nothing to do");
    let all = |apply: &mut Apply, upto: Scn| {
        let mut total = ApplyReport::default();
        while apply.applied().max(Scn::START) < upto {
            let from = apply.applied().max(Scn::START);
            let start = from.bytes_since(Scn::START) as usize;
            let record = standfast_format::peek_length(&redo[start..]).expect("whole records");
            let end = redo.len().min(start + record.max(call_bytes as usize));
            let report = apply.apply(from, &redo[start..end], upto).expect("redo applies");
            total.transactions += report.transactions;
            total.pages += report.pages;
            total.errors.extend(report.errors);
            apply.checkpoint_if_due(&Pace::AtOnce, &mut total).expect("checkpoints work");
        }
        assert!(total.errors.is_empty(), "{:?}", total.errors);
        total
    };
    all(&mut apply, setup);
    apply.sync(&mut ApplyReport::default()).expect("synced");
    let start = Instant::now();
    let total = all(&mut apply, upto);
    let applied = start.elapsed();
    let durable = apply.sync(&mut ApplyReport::default()).expect("synced");
    let synced = start.elapsed();
    assert_eq!(durable, upto);
    println!(
        "{databases} databases, {workers} workers: {} transactions, {} pages written; applied in {:.2} s, synced in {:.2} s: {:.0} tx/s",
        total.transactions,
        total.pages,
        applied.as_secs_f64(),
        synced.as_secs_f64(),
        total.transactions as f64 / synced.as_secs_f64()
    );
}
