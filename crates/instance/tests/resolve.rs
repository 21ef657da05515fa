//! An operator decides between the file of an offline database and its redo, in this process, with real files.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod common;

use common::{Site, WAIT, captured, database, insert, refusal, rows};
use rusqlite::Connection;
use standfast_environment::InstanceError;
use standfast_instance::role::resolve::{Keep, Resolution};
use standfast_instance::role::running::Running;
use standfast_primary::open::{rebuild, swap};
use standfast_session::DatabaseState;
use standfast_testkit::{TempDir, wait_until};
use standfast_types::{DatabaseId, Hint, Scn};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

const NAME: &str = "app.db";
const ID: DatabaseId = DatabaseId(1);

/// A database with three commits, and a copy of its file after the first one.
struct Rig {
    place: TempDir,
    site: Site,
    path: PathBuf,
    older: PathBuf,
}

impl Rig {
    fn new(name: &str) -> Rig {
        let place = TempDir::new(name).unwrap();
        let (site, path) = (Site::init(&place, "north"), database(&place));
        let running = site.start().unwrap();
        running.protect(&path, None).unwrap();
        insert_and_wait(&running, &path);
        running.stop().unwrap();
        let rig = Rig { older: place.join("older.db"), place, site, path };
        copy(&rig.path, &rig.older);
        let running = rig.site.start().unwrap();
        insert_and_wait(&running, &rig.path);
        insert_and_wait(&running, &rig.path);
        running.stop().unwrap();
        rig
    }

    /// Puts another file in the place of the database, and starts.
    fn start_with(&self, file: &Path) -> Arc<Running> {
        std::fs::rename(&self.path, self.kept()).unwrap();
        copy(file, &self.path);
        let running = self.site.start().unwrap();
        assert_eq!(state(&running), DatabaseState::Offline);
        running
    }

    /// Where the file that was there is kept.
    fn kept(&self) -> PathBuf {
        self.place.join("kept.db")
    }

    /// A file that has nothing to do with the database.
    fn other(&self, sql: &str) -> PathBuf {
        let path = self.place.join("other.db");
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        path
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap();
}

fn insert_and_wait(running: &Running, path: &Path) {
    let before = captured(running);
    insert(path);
    wait_until("the commit is in the redo", WAIT, || captured(running) > before);
}

fn state(running: &Running) -> DatabaseState {
    running.primary().unwrap().threads.shared().segment.state(ID.0)
}

fn is_served(running: &Running) -> bool {
    let control = running.environment.control();
    control.offline_from(ID).is_none() && control.replays.is_empty() && state(running) == DatabaseState::Open
}

fn modified_us(metadata: &std::fs::Metadata) -> u64 {
    metadata.mtime() as u64 * 1_000_000 + metadata.mtime_nsec() as u64 / 1000
}

/// Contents of the file and its stamp.
fn untouched(path: &Path) -> (Vec<u8>, i64, i64) {
    let metadata = std::fs::metadata(path).unwrap();
    (std::fs::read(path).unwrap(), metadata.mtime(), metadata.mtime_nsec())
}

fn try_to_resolve(running: &Running, keep: Option<Keep>) -> Result<Resolution, InstanceError> {
    /// A process resolves one database at a time.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    running.resolve(NAME, keep)
}

fn resolve(running: &Running, keep: Option<Keep>) -> Resolution {
    try_to_resolve(running, keep).unwrap()
}

#[test]
fn resolution_shows_what_the_file_lacks_and_changes_nothing() {
    let rig = Rig::new("resolve-shown");
    let running = rig.start_with(&rig.older);
    let shown = resolve(&running, None);
    assert_eq!((shown.database.as_str(), &shown.path), (NAME, &rig.path));
    assert!(shown.why.as_ref().unwrap().contains("another file is at"), "{:?}", shown.why);
    assert!(shown.redo_needed_from < shown.redo_end && shown.redo_end <= captured(&running));
    let metadata = std::fs::metadata(&rig.path).unwrap();
    let found = &shown.file;
    assert_eq!((found.exists, found.is_known, found.bytes), (true, Some(false), metadata.len()));
    assert_eq!((found.modified_us, found.wal_bytes), (modified_us(&metadata), 0));
    assert_eq!((found.is_not_in_wal_mode, found.unusable.as_ref()), (false, None));
    let (noted, kept) = (found.noted.unwrap(), std::fs::metadata(rig.kept()).unwrap());
    assert_eq!((noted.bytes, noted.modified_us), (kept.len(), modified_us(&kept)));
    let compared = shown.compared.unwrap();
    assert_eq!((compared.lacks_at_least.number, compared.lacks_at_most.number), (2, 2));
    assert_eq!(compared.unexplained, 0);
    assert_eq!((shown.resolved, shown.by, shown.kept), (None, None, None));
    assert_eq!(shown.redo_possible_by, [""; 0]);
    assert_eq!(state(&running), DatabaseState::Offline);
    assert_eq!(rows(&rig.path), 1);
    running.stop().unwrap();
}

#[test]
fn file_that_is_kept_counts_and_goes_into_the_redo_whole() {
    let rig = Rig::new("resolve-file");
    let running = rig.start_with(&rig.older);
    let resolved = resolve(&running, Some(Keep::File));
    assert_eq!((resolved.resolved, resolved.by, resolved.kept), (Some(Keep::File), None, None));
    let control = running.environment.control();
    assert!(is_served(&running) && control.owed_image(ID).is_none_or(|owed| owed.may_lack));
    assert_eq!(control.databases[0].start_scn, resolved.redo_end, "the redo before is not its own");
    let alerts = running.environment.alert.last().join("\n");
    for words in ["its file lacks 2 to 2 of 3 commits", "counts as it is", "counts from SCN"] {
        assert!(alerts.contains(words), "no `{words}` in {alerts}");
    }
    assert_eq!(rows(&rig.path), 1);
    insert_and_wait(&running, &rig.path);
    assert!(refusal(try_to_resolve(&running, None)).contains("is not offline"));
    running.stop().unwrap();
    let running = rig.site.start().unwrap();
    assert!(is_served(&running), "{:?}", running.environment.alert.last());
    running.stop().unwrap();
    assert_eq!(rows(&rig.path), 2);
}

#[test]
fn redo_that_is_kept_makes_the_file_again_out_of_a_full_image() {
    let rig = Rig::new("resolve-redo");
    let running = rig.start_with(&rig.older);
    resolve(&running, Some(Keep::File));
    insert_and_wait(&running, &rig.path);
    let is_complete =
        || running.environment.alert.last().join("\n").contains("the full resync is in the redo");
    wait_until("the image is complete", WAIT, is_complete);
    running.stop().unwrap();
    let running = rig.start_with(&rig.older);
    let shown = resolve(&running, None);
    assert!(
        shown.redo_possible_by.len() == 1 && shown.redo_possible_by[0].contains("full image"),
        "{shown:?}"
    );
    let resolved = resolve(&running, Some(Keep::Redo));
    assert_eq!((resolved.resolved, &resolved.by.unwrap()), (Some(Keep::Redo), &shown.redo_possible_by[0]));
    assert!(is_served(&running), "{:?}", running.environment.alert.last());
    assert_eq!(rows(&rig.path), 2);
    assert_eq!(rows(&resolved.kept.unwrap()), 1);
    insert_and_wait(&running, &rig.path);
    running.stop().unwrap();
    let running = rig.site.start().unwrap();
    assert!(is_served(&running), "{:?}", running.environment.alert.last());
    running.stop().unwrap();
    assert_eq!(rows(&rig.path), 3);
}

#[test]
fn copy_of_the_file_in_its_recorded_state_is_opened_for_the_redo() {
    let rig = Rig::new("resolve-copy");
    // As a backup program restores it: the same content and times in a new file.
    let restored = rig.place.join("restored.db");
    let status = Command::new("cp").arg("-p").arg(&rig.path).arg(&restored).status().unwrap();
    assert!(status.success());
    std::fs::rename(&rig.path, rig.kept()).unwrap();
    std::fs::rename(&restored, &rig.path).unwrap();
    let running = rig.site.start().unwrap();
    assert_eq!(state(&running), DatabaseState::Offline);
    let resolved = resolve(&running, Some(Keep::Redo));
    assert!(resolved.by.unwrap().contains("the file that is there"));
    assert_eq!(resolved.kept, None);
    assert!(is_served(&running));
    insert_and_wait(&running, &rig.path);
    running.stop().unwrap();
    assert_eq!(rows(&rig.path), 4);
}

#[test]
fn redo_cannot_be_kept_without_anything_to_make_the_file_of() {
    let rig = Rig::new("resolve-no-base");
    let running = rig.start_with(&rig.older);
    let before = untouched(&rig.path);
    let refused = refusal(try_to_resolve(&running, Some(Keep::Redo)));
    for words in ["cannot be made again out of the redo", "there is no full image of it"] {
        assert!(refused.contains(words), "no `{words}` in {refused}");
    }
    assert!(!refused.contains("does not lead to the redo"), "an older file is not tried: {refused}");
    assert_eq!(state(&running), DatabaseState::Offline);
    assert!(untouched(&rig.path) == before);
    running.stop().unwrap();
}

#[test]
fn database_that_is_served_or_unknown_is_not_decided_about() {
    let rig = Rig::new("resolve-served");
    let running = rig.site.start().unwrap();
    for keep in [None, Some(Keep::File), Some(Keep::Redo)] {
        assert!(
            refusal(try_to_resolve(&running, keep)).contains("is not offline: there is nothing to decide")
        );
    }
    assert!(is_served(&running));
    let failed = running.primary().unwrap().threads.shared().database(ID).unwrap();
    failed.fail("its disk has gone".into());
    let refused = refusal(try_to_resolve(&running, None));
    assert!(refused.contains("has failed") && refused.contains("its disk has gone"), "{refused}");
    drop(failed);
    assert!(running.stop().is_err(), "a stop reports it, too");
}

#[test]
fn file_that_is_no_database_of_this_page_size_cannot_count() {
    let rig = Rig::new("resolve-unusable");
    let text = rig.place.join("text");
    std::fs::write(&text, "x".repeat(10_000)).unwrap();
    let small = rig.other("PRAGMA page_size=512; PRAGMA journal_mode=WAL; CREATE TABLE t(x)");
    for (file, why) in
        [(&text, "has page size"), (&small, "its page size is 512, and that of the database 4096")]
    {
        let running = rig.start_with(file);
        let shown = resolve(&running, None);
        let unusable = shown.file.unusable.unwrap();
        assert!(unusable.contains(why), "{unusable}");
        assert_eq!((shown.compared, shown.not_compared), (None, Some(unusable.clone())));
        let refused = refusal(try_to_resolve(&running, Some(Keep::File)));
        assert!(refused.contains(&format!("cannot count: {unusable}")), "{refused}");
        assert_eq!(state(&running), DatabaseState::Offline);
        running.stop().unwrap();
        std::fs::rename(rig.kept(), &rig.path).unwrap();
    }
}

#[test]
fn missing_file_is_shown_as_such() {
    let rig = Rig::new("resolve-missing");
    std::fs::rename(&rig.path, rig.kept()).unwrap();
    let running = rig.site.start().unwrap();
    let shown = resolve(&running, None);
    assert_eq!((shown.file.exists, shown.file.bytes, shown.file.modified_us), (false, 0, 0));
    assert!(shown.file.unusable.unwrap().contains("No such file"));
    assert!(refusal(try_to_resolve(&running, Some(Keep::File))).contains("cannot count"));
    let refused = refusal(try_to_resolve(&running, Some(Keep::Redo)));
    assert!(!refused.contains("what is there"), "{refused}");
    running.stop().unwrap();
}

#[test]
fn file_that_was_there_before_is_tried_first_for_the_redo() {
    let rig = Rig::new("resolve-in-place");
    let mut bytes = std::fs::read(&rig.path).unwrap();
    bytes[4096..].fill(0xEE);
    // In place, so that it is the file that the instance knows.
    std::fs::write(&rig.path, bytes).unwrap();
    let running = rig.site.start().unwrap();
    assert_eq!(state(&running), DatabaseState::Offline);
    assert_eq!(resolve(&running, None).file.is_known, Some(true));
    let refused = refusal(try_to_resolve(&running, Some(Keep::Redo)));
    assert!(refused.contains("what is there does not lead to the redo"), "{refused}");
    assert_eq!(state(&running), DatabaseState::Offline);
    running.stop().unwrap();
}

#[test]
fn decision_about_one_database_leaves_another_offline() {
    let rig = Rig::new("resolve-two");
    let second = rig.other("PRAGMA journal_mode=WAL; CREATE TABLE t(x)");
    let running = rig.site.start().unwrap();
    running.protect(&second, None).unwrap();
    running.stop().unwrap();
    std::fs::rename(&second, rig.place.join("moved.db")).unwrap();
    let running = rig.start_with(&rig.older);
    // Redo was being applied to both.
    let replays = vec![(ID, Scn::START), (DatabaseId(2), Scn::START)];
    running.environment.update_control(|control| control.replays = replays).unwrap();
    let before = running.environment.control();
    assert_eq!(before.offline.len(), 2);
    resolve(&running, Some(Keep::File));
    let after = running.environment.control();
    assert_eq!((&after.offline[..], &after.replays[..]), (&before.offline[1..], &before.replays[1..]));
    assert_eq!(after.databases[1], before.databases[1]);
    assert_eq!(after.known_file(DatabaseId(2)), before.known_file(DatabaseId(2)));
    running.stop().unwrap();
}

#[test]
fn decision_that_was_cut_short_is_carried_out_before_the_next() {
    for keep in [Keep::File, Keep::Redo] {
        let rig = Rig::new("resolve-cut-short");
        let running = rig.start_with(&rig.older);
        let record = running.environment.control().databases[0].clone();
        let made = rebuild::path_of(&record);
        copy(&rig.kept(), &made);
        let end = captured(&running);
        let swap = swap::begin(&running.environment, &record, &made, end, end).unwrap();
        // It ended between its two renames.
        std::fs::rename(&rig.path, &swap.kept.path).unwrap();
        let decided = try_to_resolve(&running, Some(keep));
        assert_eq!(rows(&swap.kept.path), 1);
        if keep == Keep::File {
            let refused = refusal(decided);
            assert!(refused.contains("was cut short and has been carried out now"), "{refused}");
            resolve(&running, Some(Keep::Redo));
        } else {
            assert!(decided.unwrap().by.unwrap().contains("the file that is there"));
        }
        assert!(is_served(&running));
        running.stop().unwrap();
        assert_eq!(rows(&rig.path), 3);
    }
}

/// What becomes of a decision for the file while another process writes to it: `meanwhile` happens before the
/// transaction ends.
fn decided_while_written_to(
    rig: &Rig,
    running: &Arc<Running>,
    meanwhile: impl FnOnce(),
) -> Result<(), String> {
    let writer = Connection::open(&rig.path).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let decision = scope.spawn(|| try_to_resolve(running, Some(Keep::File)));
        let is_waiting = || running.environment.alert.last().join("\n").contains("counts as it is");
        wait_until("the decision waits for the writer", WAIT, is_waiting);
        meanwhile();
        writer.execute_batch("ROLLBACK").unwrap();
        decision.join().unwrap().map(drop).map_err(|error| error.for_terminal())
    })
}

#[test]
fn decision_for_the_file_waits_for_a_writer() {
    let rig = Rig::new("resolve-writer");
    let running = rig.start_with(&rig.older);
    let refused_meanwhile = || {
        let refused = refusal(running.resolve(NAME, None));
        assert!(refused.contains("another database is being resolved"), "{refused}");
        // Other commands run between two attempts: the second one follows an attempt.
        running.switch_logfile().unwrap();
        running.switch_logfile().unwrap();
    };
    decided_while_written_to(&rig, &running, refused_meanwhile).unwrap();
    assert!(is_served(&running));
    running.stop().unwrap();
}

#[test]
fn file_that_changes_after_the_comparison_does_not_count() {
    let rig = Rig::new("resolve-changed");
    let running = rig.start_with(&rig.older);
    let touch = || {
        let file = std::fs::File::options().write(true).open(&rig.path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    };
    let refused = decided_while_written_to(&rig, &running, touch).unwrap_err();
    assert!(refused.contains("has been written to since it was looked at"), "{refused}");
    assert_eq!(state(&running), DatabaseState::Offline);
    running.stop().unwrap();
}

#[test]
fn damaged_file_does_not_replace_the_copies_of_standbys() {
    let rig = Rig::new("resolve-damaged");
    let damaged = rig.place.join("damaged.db");
    let mut bytes = std::fs::read(&rig.older).unwrap();
    // The root page of the table is no page of a b-tree any more.
    bytes[4096..4200].fill(0xEE);
    std::fs::write(&damaged, bytes).unwrap();
    let running = rig.start_with(&damaged);
    let refused = refusal(try_to_resolve(&running, Some(Keep::File)));
    assert!(refused.contains("is damaged") && refused.contains("--keep redo"), "{refused}");
    assert_eq!(state(&running), DatabaseState::Offline);
    running.stop().unwrap();
}

#[test]
fn file_outside_wal_mode_is_compared_without_being_changed() {
    let rig = Rig::new("resolve-mode");
    let copied = rig.place.join("vacuumed.db");
    let sql = format!("VACUUM INTO '{}'", copied.display());
    Connection::open(&rig.path).unwrap().execute_batch(&sql).unwrap();
    let running = rig.start_with(&copied);
    let before = untouched(&rig.path);
    let shown = resolve(&running, None);
    assert!(shown.file.is_not_in_wal_mode && shown.compared.is_some(), "{shown:?}");
    assert!(untouched(&rig.path) == before);
    assert!(refusal(try_to_resolve(&running, Some(Keep::File))).contains("journal mode delete, not WAL"));
    assert_eq!(state(&running), DatabaseState::Offline);
    running.stop().unwrap();
}

#[test]
fn wal_of_the_file_is_part_of_it() {
    let rig = Rig::new("resolve-wal");
    let running = rig.start_with(&rig.older);
    let application = Connection::open(rig.place.join("written.db")).unwrap();
    application.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES(7)").unwrap();
    running.stop().unwrap();
    // A copy of a database in use, with its WAL.
    copy(&rig.place.join("written.db"), &rig.path);
    let (wal, copied) = (rig.place.join("written.db-wal"), rig.place.join("app.db-wal"));
    copy(&wal, &copied);
    let running = rig.site.start().unwrap();
    let shown = resolve(&running, None);
    let metadata = std::fs::metadata(&copied).unwrap();
    let modified_us = modified_us(&metadata);
    assert_eq!((shown.file.wal_bytes, shown.file.wal_modified_us), (metadata.len(), Some(modified_us)));
    assert!(metadata.len() > 0 && shown.compared.unwrap().unexplained > 0);
    running.stop().unwrap();
}

#[test]
fn file_that_a_program_has_open_is_not_set_aside() {
    let rig = Rig::new("resolve-open");
    let running = rig.start_with(&rig.older);
    let file = std::fs::File::options().read(true).write(true).open(&rig.path).unwrap();
    let mut program = Command::new("sleep").arg("100").stdin(Stdio::from(file)).spawn().unwrap();
    let refused = refusal(try_to_resolve(&running, Some(Keep::Redo)));
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(refused.contains(&format!("is open in sleep (pid {})", program.id())), "{refused}");
    assert!(refusal(try_to_resolve(&running, Some(Keep::Redo))).contains("cannot be made again"));
    assert!(running.environment.control().offline_from(ID) > Some(Scn::ZERO));
    running.stop().unwrap();
}
