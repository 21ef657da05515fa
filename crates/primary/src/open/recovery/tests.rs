//! A start on a disk in memory.

use super::*;
use standfast_environment::state::control::{OwedImage, Role, WholeFile};
use standfast_format::LogKind;
use standfast_io::Disk;
use standfast_simulation::databases::open_plain;
use standfast_simulation::primary::PrimaryHost;
use standfast_simulation::rig::{commit, rows, small_primary};
use standfast_simulation::site::SegmentFile;
use standfast_sqlite_wal::bare_salts;
use standfast_testkit::{Loss, Rng, SimMachine, TempDir};
use standfast_types::{InstanceId, PageSize};
use std::cell::Cell;
use std::path::Path;

const ID: DatabaseId = DatabaseId(1);
const PATH: &str = "/app/d1.db";
const WAL: &str = "/app/d1.db-wal";
const COMMITS: u32 = 3;

/// A database with commits after the processes of its primary were killed, and the redo about it.
struct Scene {
    machine: Arc<SimMachine>,
    environment: Arc<Environment>,
    log: Arc<RedoLog>,
    database: Database,
    scan: Scan,
    _segment: SegmentFile,
}

impl Scene {
    fn new() -> Scene {
        Scene::changed(|_, _| (), |_| ())
    }

    /// `then` is what the primary does after the commits. `change` is made to the files while no process has them
    /// open.
    fn changed(
        then: impl FnOnce(&Arc<SimMachine>, &mut PrimaryHost),
        change: impl FnOnce(&Arc<SimMachine>),
    ) -> Scene {
        let (machine, geometry, segment, mut host) = small_primary();
        for _ in 0..COMMITS {
            commit(&machine, &host, ID);
        }
        host.drain().unwrap();
        then(&machine, &mut host);
        host.leave();
        machine.power_loss(Loss::KeepUnsynced, &mut Rng::new(1));
        segment.lose();
        change(&machine);
        let environment = geometry.environment(&machine, &segment).unwrap();
        let config = environment.log_config(LogKind::Online);
        let (log, _, recovered) = RedoLog::open(environment.disk.clone(), config).unwrap();
        let control = environment.control();
        let earlier = reconcile::checksums_between(&log, Scn::START, control.checkpoint);
        let scan = reconcile::scan(&log, control.checkpoint, recovered.end, earlier).unwrap();
        let record = control.databases[0].clone();
        let database = Database::open(record, environment.vfs_base.as_deref()).unwrap();
        Scene { machine, environment, log, database, scan, _segment: segment }
    }

    /// Its WAL is gone; `is_backfilled`: the file holds all commits.
    fn without_wal(is_backfilled: bool) -> Scene {
        let backfill = |_: &_, host: &mut PrimaryHost| {
            if is_backfilled {
                host.checkpoint_everything().unwrap();
            }
        };
        Scene::changed(backfill, |machine| machine.disk().remove(Path::new(WAL)).unwrap())
    }

    fn recovery(&self) -> Recovery<'_> {
        Recovery::since_checkpoint(&self.environment, &self.log, &self.database, &self.scan, false)
    }

    fn with<T>(&self, work: impl FnOnce(&Connection, &WalIndexHeader, &Found) -> T) -> T {
        let connection = self.database.connection();
        let guard = Guard::of(&connection).unwrap();
        guard.hold_write_lock_within(WRITER_TIMEOUT).unwrap();
        let header = guard.wal_header().unwrap();
        let bare = bare_salts(&mut self.database.wal_file().unwrap(), &header).unwrap();
        let found = Found { position: header.position(), bare, seen_by_sessions: None };
        work(&connection, &header, &found)
    }

    fn plan(&self, recovery: &Recovery<'_>) -> Plan {
        let control = self.environment.control();
        self.with(|connection, header, found| recovery.plan(connection, &control, header, found).unwrap())
    }

    fn settle(
        &self,
        recovery: &Recovery<'_>,
    ) -> Result<(WalPosition, u32, Option<&'static str>), InstanceError> {
        self.with(|connection, header, found| recovery.settle(connection, header, found, "why"))
    }

    /// Records that the file alone holds everything before `scn`.
    fn note_whole(&self, scn: Scn) {
        let stamp = FileStamp::of(self.environment.disk.as_ref(), Path::new(PATH)).unwrap();
        let whole = WholeFile { database: ID, scn, stamp };
        self.environment
            .update_control(|control| {
                control.whole_files.clear();
                control.note_whole(whole);
            })
            .unwrap();
    }

    fn alerts(&self) -> String {
        self.environment.alert.last().join("\n")
    }

    /// Pages of the file.
    fn pages(&self) -> u32 {
        (self.machine.contents(PATH).unwrap().len() / self.database.record().page_size.bytes()) as u32
    }

    fn rows(&self) -> u32 {
        rows(&self.machine, Path::new(PATH))
    }
}

#[test]
fn database_at_the_end_of_its_redo_lacks_nothing() {
    let scene = Scene::new();
    let Plan::Capture(anchor) = scene.plan(&scene.recovery()) else { panic!("it is not there") };
    assert_eq!(anchor.position, scene.with(|_, header, _| header.position()));
    assert_eq!(scene.alerts(), "");
    let mut recovery = scene.recovery();
    recovery.history.anchors.push(Anchor { position: WalPosition::default(), ..anchor });
    assert_eq!(scene.plan(&recovery), Plan::Reapply(anchor), "there is later redo");
}

#[test]
fn wal_frame_that_is_not_the_captured_one_proves_no_position() {
    let scene = Scene::new();
    let mut recovery = scene.recovery();
    let last = recovery.history.anchors.last_mut().unwrap();
    let (page_no, sum) = last.frame_page.unwrap();
    last.frame_page = Some((page_no, sum ^ 1));
    assert!(matches!(scene.plan(&recovery), Plan::FindOut(why) if why.contains("its pages are not those")));
    assert!(scene.alerts().contains("is not the one that was captured"), "{}", scene.alerts());
    recovery.history.anchors.last_mut().unwrap().frame_page = Some((page_no + 1, sum));
    assert!(matches!(scene.plan(&recovery), Plan::FindOut(_)), "it is of another page");
}

/// Adds a commit in a new WAL, and flips bits in a page that only the earlier ones have changed, which is read from
/// the file. Returns the number of that page.
fn damaged_beneath_wal(bits: u8) -> (Scene, PageNo) {
    let page_no = Cell::new(0);
    let then = |machine: &Arc<SimMachine>, host: &mut PrimaryHost| {
        host.checkpoint_everything().unwrap();
        let application = open_plain(machine, Path::new(PATH)).unwrap();
        application.execute_batch("INSERT INTO data VALUES(1, 1, 'a')").unwrap();
        let sql = "SELECT rootpage FROM sqlite_schema WHERE name='ledger'";
        page_no.set(application.query_row(sql, [], |row| row.get(0)).unwrap());
        host.drain().unwrap();
    };
    let flip = |machine: &Arc<SimMachine>| {
        let mut bytes = machine.contents(PATH).unwrap();
        let end = page_no.get() as usize * page_bytes(&bytes);
        bytes[end - 1] ^= bits;
        machine.install(PATH, &bytes);
    };
    (Scene::changed(then, flip), page_no.get())
}

#[test]
fn page_that_is_not_what_the_redo_says_proves_no_position() {
    for damage in [0, 1] {
        let (scene, page_no) = damaged_beneath_wal(damage);
        let plan = scene.plan(&scene.recovery());
        let reported = format!("page {page_no} is not what the redo says");
        assert_eq!(matches!(plan, Plan::FindOut(_)), damage != 0, "{plan:?}");
        assert_eq!(scene.alerts().contains(&reported), damage != 0, "{}", scene.alerts());
    }
}

#[test]
fn pages_in_the_wal_are_those_of_the_state_if_the_state_has_their_frames() {
    let scene = Scene::new();
    let mut recovery = scene.recovery();
    let [.., earlier, last] = recovery.history.anchors[..] else { panic!("there are commits") };
    let is_state = |recovery: &Recovery<'_>, anchor| {
        scene.with(|_, header, _| recovery.is_state_at(header, anchor).unwrap())
    };
    assert!(is_state(&recovery, &last) && is_state(&recovery, &earlier));
    let scan = reconcile::scan(&scene.log, recovery.begin, earlier.scn, Default::default()).unwrap();
    recovery.checksums = scan.checksums[&ID].clone();
    assert!(is_state(&recovery, &earlier));
    assert!(!is_state(&recovery, &last), "the WAL has later images");
    let of_other_wal = WalPosition { salts: WalSalts(1, 1), ..last.position };
    let before = Anchor { position: of_other_wal, ..last };
    assert!(is_state(&recovery, &before), "the state has no frame of this WAL");
}

#[test]
fn damage_beneath_a_wal_of_the_redo_is_repaired_and_not_copied() {
    let (scene, _) = damaged_beneath_wal(1);
    let position = scene.with(|_, header, _| header.position());
    // The redo at hand has all changes of the page.
    let scan = reconcile::scan(&scene.log, Scn::START, scene.scan.end, Default::default()).unwrap();
    let recovery =
        || Recovery::since_checkpoint(&scene.environment, &scene.log, &scene.database, &scan, true);
    let mut owing = recovery();
    owing.history.unfinished_baseline = true;
    let (found, _, image) = scene.settle(&owing).unwrap();
    assert_eq!((found, image), (position, Some("why")), "the reason for the image may be a foreign write");
    let (found, _, image) = scene.settle(&recovery()).unwrap();
    assert!(found != position && image.is_none(), "{found:?}, {image:?}");
    assert_eq!(scene.rows(), COMMITS);
}

#[test]
fn frames_that_the_redo_knows_are_no_foreign_ones() {
    let scene = Scene::new();
    scene.note_whole(scene.scan.end);
    let position = scene.with(|_, header, _| header.position());
    let (found, _, image) = scene.settle(&scene.recovery()).unwrap();
    assert_eq!((found, image), (position, None), "nothing was written to the file");
    let mut unknown = scene.recovery();
    unknown.history.anchors.iter_mut().for_each(|anchor| anchor.position.salts = WalSalts(1, 1));
    assert_eq!(scene.settle(&unknown).unwrap().2, Some("why"));
}

#[test]
fn file_beneath_the_wal_of_another_process_counts_if_it_is_the_newest() {
    for is_backfilled in [true, false] {
        let backfill = |_: &_, host: &mut PrimaryHost| {
            if is_backfilled {
                host.checkpoint_everything().unwrap();
            }
        };
        let write = |machine: &Arc<SimMachine>| {
            machine.disk().remove(Path::new(WAL)).unwrap();
            let other = open_plain(machine, Path::new(PATH)).unwrap();
            let sql = "PRAGMA secure_delete=ON; INSERT INTO ledger VALUES(9, 9); DELETE FROM ledger";
            other.execute_batch(sql).unwrap();
            // It is killed, too.
            machine.power_loss(Loss::KeepUnsynced, &mut Rng::new(1));
        };
        let scene = Scene::changed(backfill, write);
        scene.environment.update_control(|control| control.whole_files.clear()).unwrap();
        let position = scene.with(|_, header, _| header.position());
        assert!(position.frame > 0);
        match scene.settle(&scene.recovery()) {
            Ok((found, _, image)) => {
                assert!(is_backfilled, "the file lacks commits");
                assert_eq!((found, image), (position, Some("why")));
            }
            Err(error) => assert!(!is_backfilled, "{error}"),
        }
    }
}

/// The page size in the header of a database.
fn page_bytes(file: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([file[16], file[17]]))
}

#[test]
fn interrupted_recovery_is_continued_from_where_it_began() {
    let scene = Scene::new();
    mark_replay(&scene.environment, DatabaseId(2), Scn(5000)).unwrap();
    assert!(matches!(scene.plan(&scene.recovery()), Plan::Capture(_)), "it is of another database");
    mark_replay(&scene.environment, ID, Scn(6000)).unwrap();
    mark_replay(&scene.environment, ID, Scn(7000)).unwrap();
    let control = scene.environment.control();
    assert_eq!(control.replays, [(DatabaseId(2), Scn(5000)), (ID, Scn(6000))]);
    let position = scene.with(|_, header, _| header.position());
    let reapply = |position| Plan::Reapply(Anchor { position, redo_from: Scn(6000), ..Anchor::default() });
    assert_eq!(scene.plan(&scene.recovery()), reapply(position));
    let offline = Recovery { offline: true, ..scene.recovery() };
    assert_eq!(scene.plan(&offline), reapply(position));
    let scene = Scene::without_wal(true);
    mark_replay(&scene.environment, ID, Scn(6000)).unwrap();
    assert_eq!(scene.plan(&scene.recovery()), reapply(WalPosition::default()));
    let offline = Recovery { offline: true, ..scene.recovery() };
    assert_eq!(scene.plan(&offline), Plan::FindOut("it has no write-ahead log"), "any file may be there");
}

#[test]
fn file_without_wal_stands_at_the_end_if_it_is_as_it_was_recorded() {
    let scene = Scene::without_wal(true);
    let recovery = scene.recovery();
    let Plan::Capture(anchor) = scene.plan(&recovery) else { panic!("it is as it was") };
    let expected = (WalPosition::default(), recovery.end, scene.pages());
    assert_eq!((anchor.position, anchor.scn, anchor.database_pages), expected);
    let mut owing = scene.recovery();
    owing.history.unfinished_baseline = true;
    assert!(matches!(scene.plan(&owing), Plan::FindOut(_)), "the standbys wait for an image");
    scene.environment.update_control(|control| control.whole_files.clear()).unwrap();
    assert!(matches!(scene.plan(&recovery), Plan::FindOut(_)), "it is not recorded");
    let scene = Scene::new();
    scene.note_whole(scene.scan.end);
    let Plan::Capture(anchor) = scene.plan(&scene.recovery()) else { panic!("its WAL says where it stands") };
    assert!(anchor.position.frame > 0);
}

#[test]
fn record_of_the_file_counts_until_the_file_or_the_redo_changes() {
    let scene = Scene::new();
    let last_commit = scene.recovery().history.last_commit.unwrap();
    let mut recovery = scene.recovery();
    let mut is_as_noted = |scn, begin| {
        scene.note_whole(scn);
        recovery.begin = begin;
        recovery.is_as_noted()
    };
    assert!(is_as_noted(last_commit, last_commit));
    assert!(is_as_noted(last_commit + 1, last_commit));
    assert!(!is_as_noted(last_commit, last_commit + 1), "it is older than the redo at hand");
    assert!(!is_as_noted(Scn(last_commit.0 - 1), Scn::ZERO), "a commit came later");
    recovery.history.last_commit = None;
    scene.note_whole(recovery.begin);
    assert!(recovery.is_as_noted());
    let mut bytes = scene.machine.contents(PATH).unwrap();
    bytes.push(0);
    scene.machine.install(PATH, &bytes);
    assert!(!recovery.is_as_noted(), "the file was written to");
    scene.environment.update_control(|control| control.whole_files.clear()).unwrap();
    assert!(!recovery.is_as_noted());
}

#[test]
fn image_is_owed_unless_complete_redo_says_where_the_database_stands() {
    let scene = Scene::new();
    let mut recovery = scene.recovery();
    assert!(!recovery.owes_image());
    recovery.history.unfinished_baseline = true;
    assert!(recovery.owes_image());
    recovery.history = History::default();
    assert!(recovery.owes_image());
}

#[test]
fn database_is_new_if_its_protection_began_in_the_redo_and_nothing_more_is_known() {
    let scene = Scene::new();
    let start = scene.database.record().start_scn;
    let is_new = |known: bool, offline, begin| {
        let mut recovery = Recovery { offline, begin, ..scene.recovery() };
        if !known {
            recovery.history = History::default();
        }
        recovery.is_new()
    };
    assert!(is_new(false, false, start));
    assert!(!is_new(true, false, start));
    assert!(!is_new(false, true, start), "an earlier start has seen it");
    assert!(!is_new(false, false, start + 1), "it began before");
}

#[test]
fn files_are_as_when_an_image_began_if_they_hold_its_position_and_nothing_followed() {
    let scene = Scene::new();
    let position = scene.with(|_, header, _| header.position());
    let last_commit = scene.scan.histories[&ID].last_commit.unwrap();
    let stamp = FileStamp::of(scene.environment.disk.as_ref(), Path::new(PATH));
    let owed = OwedImage { database: ID, scn: last_commit, position, stamp, may_lack: false };
    let is = |owed: OwedImage, change: &dyn Fn(&mut Recovery<'_>)| {
        scene.environment.update_control(|control| control.owe_image(owed)).unwrap();
        let mut recovery = scene.recovery();
        change(&mut recovery);
        scene.with(|_, header, _| recovery.is_as_when_image_began(header))
    };
    let same = |_: &mut Recovery<'_>| ();
    let at = |position| OwedImage { position, ..owed };
    assert!(is(owed, &same));
    assert!(is(owed, &|recovery| recovery.begin = last_commit));
    assert!(!is(owed, &|recovery| recovery.begin = last_commit + 1), "it began before the redo at hand");
    assert!(!is(owed, &|recovery| recovery.offline = true));
    assert!(!is(OwedImage { scn: Scn(last_commit.0 - 1), ..owed }, &|recovery| recovery.begin = Scn::ZERO));
    assert!(is(owed, &|recovery| recovery.history.last_commit = None));
    assert!(is(at(WalPosition { frame: position.frame - 1, ..position }), &same), "it continues");
    assert!(!is(at(WalPosition { frame: position.frame + 1, ..position }), &same), "frames are gone");
    assert!(!is(at(WalPosition { salts: WalSalts(1, 1), ..position }), &same));
    // Where it had no frames, its file must be untouched.
    let bare = at(WalPosition { frame: 0, ..position });
    assert!(is(bare, &same));
    let written = stamp.map(|stamp| FileStamp { bytes: stamp.bytes + 1, ..stamp });
    assert!(!is(OwedImage { stamp: written, ..bare }, &same));
    assert!(!is(OwedImage { stamp: None, ..bare }, &same));
    scene.environment.update_control(|control| control.owed_images.clear()).unwrap();
    assert!(!scene.with(|_, header, _| scene.recovery().is_as_when_image_began(header)));
}

#[test]
fn wal_that_follows_the_last_one_proves_that_the_file_was_whole() {
    let scene = Scene::new();
    let mut recovery = scene.recovery();
    let last = recovery.history.anchors.last().unwrap().position.salts;
    let next = WalSalts(last.0.wrapping_add(1), 77);
    let found =
        |salts, bare| Found { position: WalPosition { salts, frame: 0 }, bare, seen_by_sessions: None };
    assert!(recovery.follows(&found(next, None)));
    assert!(recovery.follows(&found(WalSalts::default(), Some(next))), "only its header is there");
    assert!(!recovery.follows(&found(last, None)) && !recovery.follows(&found(next, Some(last))));
    let begin = recovery.begin;
    let whole_at = |recovery: &Recovery<'_>, salts| recovery.whole_at(&found(salts, None));
    scene.environment.update_control(|control| control.whole_files.clear()).unwrap();
    assert_eq!((whole_at(&recovery, next), whole_at(&recovery, last)), (Some(begin), None));
    recovery.offline = true;
    assert_eq!(whole_at(&recovery, next), None, "what the last WAL held is not in the redo at hand");
    recovery.offline = false;
    scene.note_whole(begin + 9);
    assert_eq!((whole_at(&recovery, next), whole_at(&recovery, last)), (Some(begin + 9), Some(begin + 9)));
    scene.note_whole(Scn(5));
    assert_eq!(whole_at(&recovery, next), Some(begin));
    recovery.history.anchors.clear();
    assert!(!recovery.follows(&found(next, None)));
}

#[test]
fn pages_may_be_half_written_if_the_power_failed_before_the_file_was_whole() {
    let scene = Scene::new();
    let mut recovery = scene.recovery();
    let last_commit = recovery.history.last_commit.unwrap();
    scene.note_whole(Scn(last_commit.0 - 1));
    assert!(recovery.may_be_half_written());
    recovery.is_power_kept = true;
    assert!(!recovery.may_be_half_written());
    recovery.is_power_kept = false;
    scene.note_whole(last_commit);
    assert!(!recovery.may_be_half_written());
    recovery.history.last_commit = None;
    scene.note_whole(recovery.begin);
    assert!(!recovery.may_be_half_written(), "the redo at hand has no commit");
}

#[test]
fn files_without_their_wal_get_all_redo_again() {
    let scene = Scene::without_wal(false);
    let recovery = scene.recovery();
    assert_eq!(scene.rows(), 0);
    assert!(matches!(scene.plan(&recovery), Plan::FindOut(_)));
    let (position, pages, image) = scene.settle(&recovery).unwrap();
    assert_eq!(scene.rows(), COMMITS);
    assert!(position.frame > 0 && pages > 0);
    assert!(image.is_some(), "another process may have written pages that no redo touches");
    assert!(matches!(scene.environment.control().replays[..], [(ID, _)]), "until it is served");
    let reported = format!("database d1.db: {COMMITS} transactions of the redo");
    assert!(scene.alerts().contains(&reported), "{}", scene.alerts());
}

#[test]
fn file_that_holds_everything_is_served() {
    let scene = Scene::without_wal(true);
    let recovery = Recovery { is_power_kept: true, ..scene.recovery() };
    let pages = scene.pages();
    let settled = |image| (WalPosition::default(), pages, image);
    assert_eq!(scene.settle(&recovery).unwrap(), settled(None), "no process has written to it since");
    let reported = "database d1.db: why; by the redo its files hold the newest state";
    assert!(scene.alerts().contains(reported), "{}", scene.alerts());
    scene.environment.update_control(|control| control.whole_files[0].stamp.bytes += 1).unwrap();
    assert_eq!(scene.settle(&recovery).unwrap(), settled(Some("why")), "there may be foreign writes");
    assert_eq!(scene.environment.control().replays, []);
}

#[test]
fn file_as_when_its_image_began_is_copied_again_without_a_comparison() {
    let scene = Scene::new();
    let position = scene.with(|_, header, _| header.position());
    let owed = OwedImage { database: ID, scn: scene.scan.end, position, stamp: None, may_lack: false };
    scene.environment.update_control(|control| control.owe_image(owed)).unwrap();
    let (found, _, image) = scene.settle(&scene.recovery()).unwrap();
    assert_eq!((found, image, scene.alerts()), (position, Some("why"), String::new()));
}

#[test]
fn unknown_pages_are_taken_for_foreign_writes_unless_a_power_loss_may_have_left_them() {
    let overwrite = |machine: &Arc<SimMachine>| {
        machine.disk().remove(Path::new(WAL)).unwrap();
        let mut bytes = machine.contents(PATH).unwrap();
        let page_bytes = page_bytes(&bytes);
        bytes.chunks_mut(page_bytes).for_each(|page| page[60] ^= 1);
        machine.install(PATH, &bytes);
    };
    let scene = Scene::changed(|_, host| host.checkpoint_everything().unwrap(), overwrite);
    let kept = || Recovery { is_power_kept: true, ..scene.recovery() };
    let (position, _, image) = scene.settle(&kept()).unwrap();
    assert_eq!((position, image), (WalPosition::default(), Some("why")));
    let error = scene.settle(&Recovery { offline: true, ..kept() }).unwrap_err().for_terminal();
    for words in ["does not stand where the redo says (why): it may lack commits", "fail over to a standby"] {
        assert!(error.contains(words), "no `{words}` in {error}");
    }
    assert_eq!(scene.environment.control().replays, [], "nothing was applied");
    scene.note_whole(Scn(scene.scan.begin.0 - 1));
    let (position, ..) = scene.settle(&scene.recovery()).unwrap();
    assert!(position.frame > 0, "the redo overwrites them");
    let integrity = "PRAGMA integrity_check";
    let connection = open_plain(&scene.machine, Path::new(PATH)).unwrap();
    let verdict: String = connection.query_row(integrity, [], |row| row.get(0)).unwrap();
    assert_eq!((verdict.as_str(), scene.rows()), ("ok", COMMITS));
}

#[test]
fn write_of_another_process_during_recovery_needs_an_image() {
    let scene = Scene::new();
    let applied = scene.with(|_, header, _| header.position());
    let meanwhile = |applied| {
        let connection = scene.database.connection();
        scene.recovery().foreign_meanwhile(&Guard::of(&connection).unwrap(), applied).unwrap()
    };
    assert_eq!(meanwhile(applied), None);
    let why = meanwhile(WalPosition { frame: applied.frame - 1, ..applied }).unwrap();
    assert!(why.contains("during recovery"), "{why}");
}

/// An instance that knows a database with a file in a directory of its own.
fn with_file() -> (TempDir, Control, DatabaseRecord) {
    let directory = TempDir::new("recovery").unwrap();
    let path = directory.join("d.db");
    std::fs::write(&path, "").unwrap();
    let id = InstanceId([7; 16]);
    let mut control = Control::new(id, id, Role::Primary, Vec::new(), Scn::START);
    control.know_file(ID, LastingIdentity::of(&path).ok());
    let record = DatabaseRecord {
        id: ID,
        name: "d.db".into(),
        path,
        page_size: PageSize::new(4096).unwrap(),
        start_scn: Scn::START,
        redo_from: Scn::START,
        begun_empty: false,
    };
    (directory, control, record)
}

#[test]
fn only_the_file_that_the_instance_had_open_is_recovered() {
    let (directory, mut control, record) = with_file();
    assert!(check_identity(&control, &record).is_ok());
    let kept = directory.join("kept.db");
    std::fs::rename(&record.path, &kept).unwrap();
    assert!(check_identity(&control, &record).is_ok(), "opening it says that there is none");
    std::fs::write(&record.path, "").unwrap();
    let error = check_identity(&control, &record).unwrap_err().for_terminal();
    for words in ["another file is at", "fail over to a standby", "standfast database resolve d.db"] {
        assert!(error.contains(words), "no `{words}` in {error}");
    }
    control.know_file(ID, None);
    assert!(check_identity(&control, &record).is_ok(), "nothing is known of it");
}

#[test]
fn marker_counts_only_beside_the_file_for_which_this_instance_wrote_it() {
    let (directory, control, record) = with_file();
    let marker = |instance: InstanceId, path: &Path| Marker {
        instance: instance.0,
        name: "a".into(),
        directory: directory.path().to_owned(),
        segment: directory.join("segment"),
        runtime: None,
        owner: None,
        database: ID.0,
        path: path.to_owned(),
        file: FileId::of(path),
    };
    let write = |marker: Marker| {
        let text = marker.to_string();
        std::fs::write(standfast_session::marker_path(&record.path), text).unwrap();
    };
    assert!(!is_marked(&control, &record), "there is none");
    write(marker(control.instance, &record.path));
    assert!(is_marked(&control, &record));
    write(marker(InstanceId([8; 16]), &record.path));
    assert!(!is_marked(&control, &record), "it is of another instance");
    let other = directory.join("other.db");
    std::fs::write(&other, "").unwrap();
    write(marker(control.instance, &other));
    assert!(!is_marked(&control, &record), "it is of another file");
}
