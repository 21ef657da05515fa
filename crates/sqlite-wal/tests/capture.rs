//! Real SQLite histories, captured and replayed onto a model of a standby: a list of pages.

#![allow(clippy::unwrap_used)]

use rusqlite::{Connection, OpenFlags};
use standfast_format::{Record, apply_ranges, decode_record, page_sum};
use standfast_sqlite_wal::capture::{Capture, CaptureOutcome, CommitMark, Epoch, check_index};
use standfast_sqlite_wal::guard::{Guard, register_guard_vfs};
use standfast_sqlite_wal::{VfsFile, VfsFileKind, cut_stale_frames, snapshot};
use standfast_types::{DatabaseId, PageSize, WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES, WalPosition};
use std::path::PathBuf;

struct Rig {
    path: PathBuf,
    keeper: Connection,
    app: Connection,
    capture: Capture,
    standby: Vec<Vec<u8>>,
    marks: Vec<CommitMark>,
    redo_bytes: usize,
    page_size: PageSize,
    limit: usize,
}

fn pages_of(connection: &Connection) -> Vec<Vec<u8>> {
    let mut pages = Vec::new();
    snapshot::read_pages::<rusqlite::Error>(connection, |_, image| {
        pages.push(image.to_vec());
        Ok(())
    })
    .unwrap();
    pages
}

impl Drop for Rig {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", self.path.display()));
        }
    }
}

impl Rig {
    fn new(name: &str, page_size: u32) -> Rig {
        let path = std::env::temp_dir().join(format!("standfast-capture-{name}-{}.db", std::process::id()));
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
        }
        let app = Connection::open(&path).unwrap();
        app.execute_batch(&format!(
            "PRAGMA page_size={page_size}; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL;
             PRAGMA wal_autocheckpoint=0; CREATE TABLE t(id INTEGER PRIMARY KEY, x BLOB)"
        ))
        .unwrap();
        let vfs = register_guard_vfs(None).unwrap();
        let keeper = Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), vfs.as_str()).unwrap();
        keeper.execute_batch("PRAGMA wal_autocheckpoint=0; SELECT count(*) FROM sqlite_schema").unwrap();
        let page_size = PageSize::new(page_size).unwrap();
        let (capture, standby) = {
            let guard = Guard::of(&keeper).unwrap();
            guard.hold_checkpoint_lock().unwrap();
            let header = guard.wal_header().unwrap();
            let capture =
                Self::open_capture(&path, &guard, page_size, header.position(), header.database_pages());
            (capture, pages_of(&keeper))
        };
        let mut rig = Rig {
            path,
            keeper,
            app,
            capture,
            standby,
            marks: vec![],
            redo_bytes: 0,
            page_size,
            limit: usize::MAX,
        };
        rig.catch_up();
        rig
    }

    fn open_capture(
        path: &std::path::Path,
        guard: &Guard,
        size: PageSize,
        at: WalPosition,
        pages: u32,
    ) -> Capture {
        let wal = VfsFile::open(None, path, VfsFileKind::Wal).unwrap();
        let file = VfsFile::open(None, path, VfsFileKind::Database).unwrap();
        Capture::new(DatabaseId(1), size, wal, file, guard.wal_index().unwrap(), at, pages).unwrap()
    }

    fn catch_up(&mut self) {
        let raw_salts = Guard::of(&self.keeper).unwrap().wal_header().unwrap().raw_salts();
        loop {
            let mut out = Vec::new();
            let epoch = Epoch { number: 1, raw_salts };
            let outcome = self.capture.capture(epoch, 7, self.limit, &mut out, &mut self.marks).unwrap();
            self.redo_bytes += out.len();
            self.replay(&out);
            match outcome {
                CaptureOutcome::More => {}
                outcome => return assert_eq!(outcome, CaptureOutcome::UpToDate),
            }
        }
    }

    fn replay(&mut self, redo: &[u8]) {
        let mut at = 0;
        while at < redo.len() {
            let (record, length) = decode_record(&redo[at..]).unwrap();
            at += length;
            let (vectors, pages) = match record {
                Record::Change { vectors, .. } => (vectors, None),
                Record::Commit { vectors, database_pages, .. } => (vectors, Some(database_pages)),
                _ => continue,
            };
            for vector in vectors {
                let vector = vector.unwrap();
                let index = vector.page_no as usize - 1;
                if self.standby.len() <= index {
                    self.standby.resize(index + 1, vec![0xAA; self.page_size.bytes()]);
                }
                let page = &mut self.standby[index];
                if vector.from_zeros {
                    page.fill(0);
                }
                apply_ranges(vector.ranges, page).unwrap();
                assert_eq!(page_sum(vector.page_no, page), vector.sum_after, "page {}", vector.page_no);
            }
            if let Some(pages) = pages {
                self.standby.truncate(pages as usize);
            }
        }
    }

    fn run(&mut self, sql: &str) {
        self.app.execute_batch(sql).unwrap();
        self.catch_up();
        self.compare();
    }

    fn compare(&self) {
        let primary = pages_of(&self.keeper);
        assert_eq!(primary.len(), self.standby.len(), "number of pages");
        for (index, (ours, theirs)) in primary.iter().zip(&self.standby).enumerate() {
            let page_no = index as u32 + 1;
            assert_eq!(page_sum(page_no, ours), page_sum(page_no, theirs), "page {page_no}");
        }
    }

    fn checkpoint(&self, mode: &str) -> (i64, i64) {
        self.keeper
            .query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
    }
}

const FILL: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<400)
                    INSERT INTO t(x) SELECT randomblob(100 + i) FROM n;";

fn history(rig: &mut Rig) {
    rig.run("INSERT INTO t(x) VALUES('one')");
    rig.run(FILL);
    rig.run("UPDATE t SET x = zeroblob(40) WHERE id % 3 = 0");
    rig.checkpoint("PASSIVE");
    rig.run("DELETE FROM t WHERE id % 2 = 0");
    rig.run("PRAGMA incremental_vacuum(20)");
    rig.run(FILL);
    rig.checkpoint("TRUNCATE");
    rig.run("CREATE INDEX by_x ON t(x)");
    rig.run("BEGIN; INSERT INTO t(x) VALUES('a'); SAVEPOINT s; INSERT INTO t(x) VALUES(randomblob(9000)); ROLLBACK TO s; COMMIT");
    rig.run("DELETE FROM t WHERE id > 100");
    rig.run("VACUUM");
    rig.run(FILL);
    rig.run("PRAGMA cache_size=5; BEGIN; UPDATE t SET x = randomblob(300); UPDATE t SET x = randomblob(200); COMMIT");
}

#[test]
fn a_standby_is_identical_after_every_transaction() {
    for page_size in [512, 4096, 65_536] {
        history(&mut Rig::new(&format!("history-{page_size}"), page_size));
    }
}

#[test]
fn a_small_output_limit_splits_large_transactions_without_harm() {
    let mut rig = Rig::new("records", 1024);
    rig.limit = 1;
    history(&mut rig);
}

#[test]
fn pages_skipped_by_a_growing_commit_are_recorded() {
    let mut rig = Rig::new("skipped", 1024);
    rig.run(FILL);
    rig.run("DELETE FROM t");
    rig.run("PRAGMA incremental_vacuum");
    // Allocated and freed again in one transaction: the new pages stay on the free list, most unwritten.
    rig.run(&format!("BEGIN; {FILL} DELETE FROM t; INSERT INTO t(x) VALUES('end'); COMMIT"));
    rig.run(FILL);
}

/// Another process has put a size into the index, and an application commits upon that: the pages then exist, as zeros.
#[test]
fn skipped_pages_are_recorded_in_bounded_chunks() {
    let mut rig = Rig::new("many-skipped", 1024);
    rig.run(FILL);
    let before = rig.capture.database_pages();
    write_index(&rig, 5, before + 20_000);
    rig.app.execute_batch("INSERT INTO t(x) VALUES('upon that')").unwrap();
    let raw_salts = Guard::of(&rig.keeper).unwrap().wal_header().unwrap().raw_salts();
    let (epoch, mut turns, mut marks) = (Epoch { number: 1, raw_salts }, 0, Vec::new());
    loop {
        let mut out = Vec::new();
        let outcome = rig.capture.capture(epoch, 7, usize::MAX, &mut out, &mut marks).unwrap();
        rig.replay(&out);
        if outcome == CaptureOutcome::UpToDate {
            break;
        }
        assert!(rig.capture.in_transaction() && marks.is_empty(), "its commit comes last");
        assert!(out.len() < 128 << 10, "{} bytes at once", out.len());
        turns += 1;
    }
    assert!(rig.capture.database_pages() >= before + 20_000 && turns >= 20_000 / 512, "{turns}");
    assert!(!rig.capture.in_transaction() && marks.len() == 1);
    // Page 1 still has the old size.
    let primary = pages_of(&rig.keeper);
    assert_eq!(rig.standby.len() as u32, rig.capture.database_pages());
    assert!(rig.standby[..primary.len()] == primary[..]);
    assert!(rig.standby[primary.len()..].iter().flatten().all(|byte| *byte == 0));
}

#[test]
fn reset_wal_starts_a_generation_once_it_is_announced() {
    let mut rig = Rig::new("reset", 4096);
    rig.run(FILL);
    assert_eq!(rig.checkpoint("TRUNCATE").0, 0);
    rig.app.execute_batch("INSERT INTO t(x) VALUES('new generation')").unwrap();
    let mut out = Vec::new();
    let stale = Epoch { number: 1, raw_salts: [1, 2] };
    let outcome = rig.capture.capture(stale, 7, usize::MAX, &mut out, &mut rig.marks).unwrap();
    assert_eq!((outcome, out.len()), (CaptureOutcome::Unannounced, 0));
    rig.catch_up();
    rig.compare();
    assert_eq!(rig.marks.last().unwrap().release.frame(), rig.capture.position().frame);
}

#[test]
fn restarted_capture_resumes_where_the_redo_ends() {
    let mut rig = Rig::new("restart", 4096);
    rig.run(FILL);
    let (position, pages) = (rig.capture.position(), rig.standby.len() as u32);
    rig.app.execute_batch("INSERT INTO t(x) VALUES('while the instance was away')").unwrap();
    // A process without Standfast backfills frames before they are captured.
    let guard = Guard::of(&rig.keeper).unwrap();
    guard.release_checkpoint_lock();
    rig.app.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(0)).unwrap();
    guard.hold_checkpoint_lock().unwrap();
    rig.capture = Rig::open_capture(&rig.path, &guard, rig.page_size, position, pages);
    rig.catch_up();
    rig.compare();
    rig.run("UPDATE t SET x = 'again' WHERE id < 20");
}

/// The WAL lacks these pages below the captured position, and the database file has them as they are above it.
#[test]
fn page_of_a_file_newer_than_the_redo_is_no_base_for_changes() {
    for adopts in [false, true] {
        let mut rig = Rig::new(&format!("newer-file-{adopts}"), 4096);
        rig.run(FILL);
        rig.keeper.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
        rig.run("UPDATE t SET x = 'in a new generation' WHERE id = 1");
        let (position, pages) = (rig.capture.position(), rig.standby.len() as u32);
        rig.app.execute_batch("UPDATE t SET x = 'while the instance was away' WHERE id > 9").unwrap();
        let guard = Guard::of(&rig.keeper).unwrap();
        guard.release_checkpoint_lock();
        rig.app.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(0)).unwrap();
        guard.hold_checkpoint_lock().unwrap();
        match adopts {
            true => rig.capture.adopt(position, pages).unwrap(),
            false => rig.capture = Rig::open_capture(&rig.path, &guard, rig.page_size, position, pages),
        }
        rig.catch_up();
        rig.compare();
    }
}

/// A reader of a fully backfilled WAL does not keep a writer from resetting it.
#[test]
fn wal_restarted_before_capture_is_captured_from_its_start() {
    let mut rig = Rig::new("restarted", 4096);
    rig.run(FILL);
    let (position, pages) = (rig.capture.position(), rig.standby.len() as u32);
    rig.keeper.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    rig.app.execute_batch("UPDATE t SET x = 'in a new generation' WHERE id < 3").unwrap();
    let guard = Guard::of(&rig.keeper).unwrap();
    assert_ne!(guard.wal_header().unwrap().salts(), position.salts);
    rig.capture = Rig::open_capture(&rig.path, &guard, rig.page_size, position, pages);
    rig.catch_up();
    rig.compare();
    rig.run("UPDATE t SET x = 'again' WHERE id < 20");
    // The same after a full resync image that was made meanwhile.
    let (position, pages) = (rig.capture.position(), rig.standby.len() as u32);
    rig.keeper.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    rig.app.execute_batch("DELETE FROM t WHERE id = 5").unwrap();
    rig.capture.adopt(position, pages).unwrap();
    rig.catch_up();
    rig.compare();
}

fn write_at(path: &std::path::Path, suffix: &str, offset: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let path = format!("{}{suffix}", path.display());
    // Kept open: closing it would drop the locks of this process.
    let file = std::mem::ManuallyDrop::new(std::fs::File::options().write(true).open(path).unwrap());
    file.write_all_at(bytes, offset).unwrap();
}

/// Writes both copies of the header with `value` in a word, and a checksum that fits.
fn write_index(rig: &Rig, word: usize, value: u32) {
    let bytes = std::fs::read(format!("{}-shm", rig.path.display())).unwrap();
    let mut words: Vec<u32> =
        bytes[..48].as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    words[word] = value;
    let mut sum = [0u32; 2];
    for pair in words[..10].as_chunks::<2>().0 {
        sum[0] = sum[0].wrapping_add(pair[0]).wrapping_add(sum[1]);
        sum[1] = sum[1].wrapping_add(pair[1]).wrapping_add(sum[0]);
    }
    words[10..].copy_from_slice(&sum);
    let header: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    write_at(&rig.path, "-shm", 0, &[&header[..], &header[..]].concat());
}

#[test]
fn impossible_wal_index_values_are_database_errors() {
    for (word, value) in [(4, 1), (4, u32::MAX), (4, 200_000), (5, u32::MAX - 1)] {
        let mut rig = Rig::new(&format!("index-{word}-{value}"), 4096);
        rig.run("INSERT INTO t(x) VALUES(randomblob(30000))");
        write_index(&rig, word, value);
        let header = Guard::of(&rig.keeper).unwrap().wal_header().unwrap();
        let wal = &mut VfsFile::open(None, &rig.path, VfsFileKind::Wal).unwrap();
        let checked = check_index(&header, wal, rig.page_size);
        assert!(checked.is_err(), "{word} {value}");
        let epoch = Epoch { number: 1, raw_salts: header.raw_salts() };
        let mut out = Vec::new();
        let captured = rig.capture.capture(epoch, 7, usize::MAX, &mut out, &mut rig.marks);
        assert!(captured.is_err() || word == 5, "{word} {value}");
        assert!(out.len() < 1 << 20);
    }
    let rig = Rig::new("index-garbage", 4096);
    write_at(&rig.path, "-shm", 16, &[9]);
    write_at(&rig.path, "-shm", 64, &[9]);
    assert!(Guard::of(&rig.keeper).unwrap().wal_header().is_err(), "equal copies with a wrong checksum");
}

#[test]
fn commit_with_an_unwritten_database_size_becomes_no_redo() {
    let mut rig = Rig::new("size-bad", 4096);
    rig.app.execute_batch("INSERT INTO t(x) VALUES('x')").unwrap();
    let header = Guard::of(&rig.keeper).unwrap().wal_header().unwrap();
    let frame = WAL_HEADER_BYTES + (header.frames() as usize - 1) * (WAL_FRAME_HEADER_BYTES + 4096);
    write_at(&rig.path, "-wal", frame as u64 + 4, &0x7fff_ffffu32.to_be_bytes());
    let (epoch, mut out) = (Epoch { number: 1, raw_salts: header.raw_salts() }, Vec::new());
    assert!(rig.capture.capture(epoch, 7, usize::MAX, &mut out, &mut rig.marks).is_err());
    assert!(out.len() < 1 << 20);
}

#[test]
fn small_transaction_makes_little_redo() {
    let mut rig = Rig::new("size", 4096);
    rig.run(
        "CREATE TABLE acct(id INTEGER PRIMARY KEY, bal INTEGER, pad TEXT);
         CREATE TABLE hist(id INTEGER PRIMARY KEY, conn INT, seq INT, acct INT, note TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1000)
         INSERT INTO acct SELECT i, 0, printf('%.60c', 'x') FROM n;",
    );
    let before = rig.redo_bytes;
    for i in 0..100 {
        rig.run(&format!(
            "BEGIN IMMEDIATE; UPDATE acct SET bal=bal+1 WHERE id={};
             INSERT INTO hist(conn,seq,acct,note) VALUES(1,{i},5,'0123456789012345678901234567890123456789'); COMMIT",
            1 + i * 7
        ));
    }
    let per_transaction = (rig.redo_bytes - before) / 100;
    assert!(per_transaction < 200, "{per_transaction} bytes");
    println!("{per_transaction} bytes of redo a transaction");
}

#[test]
fn stale_frames_are_truncated_and_a_reset_wal_is_kept() {
    let rig = Rig::new("stale", 1024);
    rig.app.execute_batch("INSERT INTO t VALUES(1, randomblob(3000))").unwrap();
    let wal_path = PathBuf::from(format!("{}-wal", rig.path.display()));
    let mut wal = VfsFile::open(None, &rig.path, VfsFileKind::Wal).unwrap();
    let guard = Guard::of(&rig.keeper).unwrap();
    guard.hold_write_lock().unwrap();
    let header = guard.wal_header().unwrap();
    let end = WAL_HEADER_BYTES + header.frames() as usize * (WAL_FRAME_HEADER_BYTES + 1024);
    let bytes = std::fs::read(&wal_path).unwrap();
    assert_eq!(bytes.len(), end);
    let with_stale = [&bytes[..], &bytes[WAL_HEADER_BYTES..]].concat();
    std::fs::write(&wal_path, &with_stale).unwrap();
    cut_stale_frames(&mut wal, &header, rig.page_size).unwrap();
    assert_eq!(std::fs::read(&wal_path).unwrap(), bytes);

    guard.release_write_lock();
    rig.keeper.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let header = guard.wal_header().unwrap();
    assert_eq!(header.frames(), 0);
    cut_stale_frames(&mut wal, &header, rig.page_size).unwrap();
    assert_eq!(std::fs::read(&wal_path).unwrap(), bytes);
}

#[test]
fn wal_truncated_to_no_frames_keeps_its_generation_at_recovery() {
    let name =
        |part: &str| std::env::temp_dir().join(format!("standfast-cut-{part}-{}.db", std::process::id()));
    let with = |path: &PathBuf, suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
    let remove = |path: &PathBuf| {
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(with(path, suffix));
        }
    };
    let copy = |from: &PathBuf, to: &PathBuf| {
        remove(to);
        for suffix in ["", "-wal"] {
            std::fs::copy(with(from, suffix), with(to, suffix)).unwrap();
        }
    };
    let open = |path: &PathBuf| {
        let vfs = register_guard_vfs(None).unwrap();
        let connection =
            Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs.as_str()).unwrap();
        connection.execute_batch("PRAGMA wal_autocheckpoint=0; SELECT count(*) FROM sqlite_schema").unwrap();
        connection
    };
    let header = |connection: &Connection| Guard::of(connection).unwrap().wal_header().unwrap();
    let (live, crashed, again) = (name("live"), name("crashed"), name("again"));
    remove(&live);
    let app = Connection::open(&live).unwrap();
    app.execute_batch(
        "PRAGMA page_size=1024; CREATE TABLE t(x); PRAGMA journal_mode=WAL; PRAGMA cache_size=5;
         BEGIN; INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<200)
         SELECT randomblob(300) FROM n",
    )
    .unwrap();
    // The machine stops in the middle of the transaction, which has spilled: there are frames, and no commit.
    copy(&live, &crashed);
    let recovered = open(&crashed);
    let found = header(&recovered);
    assert_eq!(found.frames(), 0);
    assert_ne!(found.raw_salts(), [0, 0]);
    let mut wal = VfsFile::open(None, &crashed, VfsFileKind::Wal).unwrap();
    assert!(wal.bytes().unwrap() > 1024);
    cut_stale_frames(&mut wal, &found, PageSize::new(1024).unwrap()).unwrap();
    assert!(wal.bytes().unwrap() < 1024);
    copy(&crashed, &again);
    assert_eq!(header(&open(&again)).raw_salts(), found.raw_salts());
    [live, crashed, again].iter().for_each(remove);
}
