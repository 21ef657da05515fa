//! Setup for tests of WALs that are partly backfilled and rewritten.

use crate::guard::{Guard, register_guard_vfs};
use crate::pace::Pace;
use crate::rewriting::{Prepared, RewrittenLog, Suffix, WalSnapshot};
use crate::{VfsFile, VfsFileKind};
use rusqlite::{Connection, OpenFlags};
use standfast_testkit::TempDir;
use standfast_types::{PageSize, Scn};
use std::path::PathBuf;
use std::time::Duration;

pub const TIMEOUT: Duration = Duration::ZERO;

/// A database with 50 rows of a page each, a WAL with a backfilled prefix, and the checkpoint lock of the instance.
pub struct Scene {
    pub directory: TempDir,
    pub instance: Connection,
    pub wal: VfsFile,
}

pub fn size() -> PageSize {
    PageSize::from_header_field(4096).unwrap()
}

impl Scene {
    pub fn path(&self) -> PathBuf {
        self.directory.join("app.db")
    }

    pub fn guard(&self) -> Guard<'_> {
        Guard::of(&self.instance).unwrap()
    }

    pub fn application(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.execute_batch("PRAGMA wal_autocheckpoint=0").unwrap();
        connection
    }

    /// `times`: number of changes of each row in the backfilled prefix, one frame each.
    pub fn backfilled(times: u32) -> Scene {
        let directory = TempDir::new("rewrite").unwrap();
        let vfs = register_guard_vfs(None).unwrap();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let path = directory.join("app.db");
        let instance = Connection::open_with_flags_and_vfs(&path, flags, vfs.as_str()).unwrap();
        instance
            .execute_batch(
                "PRAGMA page_size=4096; PRAGMA journal_mode=OFF; PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;
                 CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, pad BLOB);
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50)
                 INSERT INTO t SELECT i, 0, zeroblob(3000) FROM n",
            )
            .unwrap();
        Guard::of(&instance).unwrap().hold_checkpoint_lock().unwrap();
        instance.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        let wal = VfsFile::open(None, &path, VfsFileKind::Wal).unwrap();
        let mut scene = Scene { directory, instance, wal };
        scene.change_all(&scene.application(), times);
        assert_eq!(scene.backfill().is_some(), times > 0);
        scene
    }

    /// Changes every row `times` times, each time in a transaction of its own.
    pub fn change_all(&self, connection: &Connection, times: u32) {
        for _ in 0..times {
            (1..=50).for_each(|id| {
                connection.execute("UPDATE t SET n = n + 1 WHERE id = ?1", [id]).unwrap();
            });
        }
    }

    pub fn prepare(&mut self) -> Option<Prepared> {
        let guard = Guard::of(&self.instance).unwrap();
        guard.prepare_rewrite(&mut self.wal, size()).unwrap()
    }

    pub fn write(&mut self, prepared: Prepared) -> Option<RewrittenLog> {
        let guard = Guard::of(&self.instance).unwrap();
        guard.hold_write_lock().unwrap();
        let log = guard.rewrite_log(&mut self.wal, prepared, TIMEOUT, || ()).unwrap();
        guard.release_write_lock();
        log
    }

    pub fn rewrite(&mut self) -> Option<RewrittenLog> {
        self.prepare().and_then(|prepared| self.write(prepared))
    }

    pub fn snapshot(&self) -> WalSnapshot {
        WalSnapshot { header: self.guard().wal_header().unwrap(), scn: Scn(7) }
    }

    pub fn backfill(&mut self) -> Option<Suffix> {
        self.backfill_upto(self.snapshot())
    }

    pub fn backfill_upto(&mut self, snapshot: WalSnapshot) -> Option<Suffix> {
        let guard = Guard::of(&self.instance).unwrap();
        let passive = || self.instance.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        guard.at_pace(&Pace::AtOnce, passive).unwrap();
        let is_state = guard.complete_backfill(&mut self.wal, size()).unwrap();
        guard.sync_backfilled().unwrap();
        is_state.then(|| Suffix::behind(&guard, &[snapshot], 1000)).flatten()
    }

    pub fn frames(&self) -> u32 {
        self.guard().wal_header().unwrap().frames()
    }

    /// Returns what a process reads that recovers the WAL from these files alone, as after a power loss that left them.
    pub fn recovered(&self, files: &[(&str, Vec<u8>)]) -> (i64, String) {
        let other = TempDir::new("rewrite-lost").unwrap();
        for (suffix, bytes) in files {
            std::fs::write(other.join(format!("app.db{suffix}")), bytes).unwrap();
        }
        let connection = Connection::open(other.join("app.db")).unwrap();
        let sum = total(&connection);
        (sum, connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap())
    }

    pub fn file(&self, suffix: &str) -> Vec<u8> {
        std::fs::read(self.directory.join(format!("app.db{suffix}"))).unwrap()
    }
}

pub fn total(connection: &Connection) -> i64 {
    connection.query_row("SELECT sum(n) FROM t", [], |row| row.get(0)).unwrap()
}

pub fn ok(sum: i64) -> (i64, String) {
    (sum, "ok".to_owned())
}
