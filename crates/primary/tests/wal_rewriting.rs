//! The life of a WAL at a primary, with the setting `checkpoint.rewrite_wals` on and off, on a simulated machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use rusqlite::Connection;
use standfast_environment::config::settings::CheckpointConfig;
use standfast_primary::checkpoint::checkpointer::{CheckpointCounts, Checkpointer};
use standfast_primary::commit::primary::NoShipping;
use standfast_simulation::databases::open_plain;
use standfast_simulation::primary::PrimaryHost;
use standfast_simulation::rig::small_primary;
use standfast_simulation::site::{Geometry, SegmentFile};
use standfast_testkit::{Loss, Rng, SimMachine};
use standfast_types::{DatabaseId, Scn};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PATH: &str = "/app/d1.db";
const WAL: &str = "/app/d1.db-wal";
const CHANGES: u32 = 300;

/// A primary whose checkpoints the test runs.
struct Rig {
    machine: Arc<SimMachine>,
    geometry: Geometry,
    segment: SegmentFile,
    host: PrimaryHost,
    checkpointer: Checkpointer,
    application: Connection,
    changes: u32,
    longest: u32,
    /// Changes after which the WAL had a deferred suffix.
    deferred: u32,
}

impl Rig {
    fn new(rewrite_wals: bool) -> Rig {
        let (machine, geometry, segment, mut host) = small_primary();
        host.shared.ship_through(Arc::new(NoShipping));
        let config = CheckpointConfig {
            passive_frames: 20,
            reset_frames: 60,
            rewrite_wals,
            ..CheckpointConfig::default()
        };
        let mut checkpointer = Checkpointer::new(host.shared.clone(), config);
        checkpointer.gate_at_once();
        let application = open_plain(&machine, Path::new(PATH)).unwrap();
        application.execute_batch("INSERT INTO data VALUES(1, 0, zeroblob(100))").unwrap();
        host.drain().unwrap();
        Rig {
            machine,
            geometry,
            segment,
            host,
            checkpointer,
            application,
            changes: 0,
            longest: 0,
            deferred: 0,
        }
    }

    /// Changes the same page repeatedly, each time in a transaction and followed by a pass of the checkpointer.
    fn change(&mut self, times: u32) {
        for _ in 0..times {
            self.application.execute_batch("UPDATE data SET tag = tag + 1 WHERE id = 1").unwrap();
            self.changes += 1;
            self.host.drain().unwrap();
            let header = self.database().header().unwrap();
            self.host.shared.segment.announce_generation(1, header.raw_salts());
            self.checkpointer.pass();
            assert_eq!(self.checkpointer.take_events(), [""; 0]);
            self.host.drain().unwrap();
            let frames = self.database().header().unwrap().frames();
            self.longest = self.longest.max(frames);
            self.deferred += u32::from(self.database().is_deferred(header.raw_salts()));
        }
    }

    fn database(&self) -> Arc<standfast_primary::commit::database::Database> {
        self.host.shared.database(DatabaseId(1)).unwrap()
    }

    fn frames(&self) -> u32 {
        self.database().header().unwrap().frames()
    }

    fn counts(&self) -> CheckpointCounts {
        self.checkpointer.counts()
    }

    /// Returns how many changes are there after a power loss and a start.
    fn changes_after_power_loss(self) -> u32 {
        let Rig { machine, geometry, segment, host, checkpointer, application, .. } = self;
        machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
        drop((host, checkpointer, application));
        segment.lose();
        let host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
        assert!(!host.alerts().contains("full image"), "{}", host.alerts());
        drop(host);
        let found = open_plain(&machine, Path::new(PATH)).unwrap();
        found.query_row("SELECT tag FROM data", [], |row| row.get(0)).unwrap()
    }
}

#[test]
fn wal_is_reset_and_never_rewritten_with_the_setting_off() {
    for rewrite_wals in [true, false] {
        let mut rig = Rig::new(rewrite_wals);
        rig.change(CHANGES);
        assert!(rig.longest < 200, "{} frames", rig.longest);
        // A reader holds frames back, so that no writer restarts the WAL.
        let reader = open_plain(&rig.machine, Path::new(PATH)).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM data").unwrap();
        let before = rig.counts();
        rig.change(90);
        let held_back = rig.counts();
        assert!(held_back.gates > before.gates, "{held_back:?}");
        assert_eq!(
            (held_back.resets, held_back.rewrites),
            (before.resets, before.rewrites),
            "a connection reads"
        );
        drop(reader);
        rig.change(CHANGES);
        let counts = rig.counts();
        assert_eq!(counts.rewrites > 0, rewrite_wals, "{counts:?}");
        assert!(rewrite_wals || counts.resets > 0, "{counts:?}");
        assert_eq!(rig.deferred > 0, rewrite_wals);
        let changes = rig.changes;
        assert_eq!(rig.changes_after_power_loss(), changes, "rewrites: {rewrite_wals}");
    }
}

/// A reader keeps SQLite from backfilling everything, so that SQLite does not sync the file, and leaves out every page
/// that has a newer frame.
#[test]
fn suffix_is_deferred_behind_what_the_file_alone_durably_holds() {
    let mut rig = Rig::new(true);
    while rig.frames() != 15 {
        rig.change(1);
    }
    let tag = |from: &Connection| from.query_row("SELECT tag FROM data", [], |row| row.get::<_, u32>(0));
    let reader = open_plain(&rig.machine, Path::new(PATH)).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let (seen, scn) = (tag(&reader).unwrap(), rig.database().last_commit());
    while rig.deferred == 0 {
        rig.change(1);
    }
    assert!(rig.database().synced() <= scn, "the file holds no later commit");
    let alone = SimMachine::new(3);
    alone.install(Path::new(PATH), &rig.machine.durable_contents(PATH).unwrap());
    assert_eq!(tag(&open_plain(&alone, Path::new(PATH)).unwrap()).unwrap(), seen);
}

/// What recovery needs advances without a rewrite, too: the WAL is synced.
#[test]
fn recovery_advances_with_the_setting_off() {
    let mut rig = Rig::new(false);
    rig.change(30);
    let scn = rig.host.shared.buffer.durable();
    rig.checkpointer.sync_databases(scn).unwrap();
    assert!(rig.checkpointer.databases_hold(scn));
    let used = rig.database().header().unwrap().log_bytes().unwrap() as usize;
    let (durable, seen) = (rig.machine.durable_contents(WAL).unwrap(), rig.machine.contents(WAL).unwrap());
    assert!(durable.len() >= used && durable[..used] == seen[..used], "the WAL is synced");
    assert_eq!(rig.checkpointer.checkpoint_all(Duration::ZERO), []);
    assert_eq!(rig.counts().rewrites, 0);
    assert!(rig.checkpointer.databases_hold(Scn(u64::MAX)));
    let changes = rig.changes;
    assert_eq!(rig.changes_after_power_loss(), changes);
}
