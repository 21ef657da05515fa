//! What a start decides about a file, from what it finds there.

use super::*;
use standfast_format::{Attach, LogKind, RecordBuilder, StreamCrc};
use standfast_log::{LogConfig, LogIdentity, LogSwitch, LogWriter};
use standfast_testkit::SimMachine;
use standfast_types::{IncarnationId, InstanceId};

const A: WalSalts = WalSalts(1, 10);
const B: WalSalts = WalSalts(2, 20);
const ID: DatabaseId = DatabaseId(1);
const OTHER: DatabaseId = DatabaseId(2);
const BYTES: usize = 512;
const PAGES: u32 = 9;

/// Fills a page before its first change.
const BEFORE: u8 = 0xBE;

fn page(fill: u8) -> Vec<u8> {
    vec![fill; BYTES]
}

/// A redo log on a simulated disk, written record by record.
struct Redo {
    machine: Arc<SimMachine>,
    log: Arc<RedoLog>,
    writer: LogWriter,
}

impl Redo {
    fn new() -> Redo {
        let machine = SimMachine::new(1);
        let disk = Arc::new(machine.disk());
        let config = LogConfig {
            kind: LogKind::Online,
            member_directories: vec!["/redo".into()],
            groups: 8,
            unnamed_groups: 0,
            group_bytes: 64 << 10,
            block_bytes: 512,
            archive_directory: "/archive".into(),
            distrusted: Vec::new(),
            layout: None,
            family: None,
        };
        let identity = LogIdentity {
            instance: InstanceId([1; 16]),
            incarnation: 1,
            incarnation_id: IncarnationId([9; 8]),
        };
        let start = LogSwitch { sequence: 1, first_scn: Scn::START, time_us: 0, first_record: 0 };
        RedoLog::create_files(disk.as_ref(), &config).unwrap();
        let (log, writer) = RedoLog::start(disk, config, identity, start, StreamCrc::default()).unwrap();
        Redo { machine, log, writer }
    }

    fn end(&self) -> Scn {
        self.writer.position()
    }

    /// Writes one record. Returns the SCN after it.
    fn write(&mut self, build: impl FnOnce(&mut Vec<u8>)) -> Scn {
        let mut bytes = Vec::new();
        build(&mut bytes);
        self.writer.write(&[&bytes], Scn::ZERO).unwrap()
    }

    fn generation(&mut self, salts: WalSalts, frame: u32, restart: bool) -> Scn {
        let position = WalPosition { salts, frame };
        self.write(|out| {
            RecordBuilder::wal_generation(out, ID, position, PAGES, restart);
        })
    }

    fn change(&mut self, pages: &[(PageNo, u8)]) -> Scn {
        self.write(|out| vectors(RecordBuilder::change(out, ID), pages))
    }

    fn commit(&mut self, frame: u32, pages: &[(PageNo, u8)]) -> Scn {
        self.write(|out| vectors(RecordBuilder::commit(out, ID, 0, PAGES, frame), pages))
    }

    fn baseline(&mut self) -> Scn {
        self.write(|out| {
            RecordBuilder::baseline(out, ID, true);
        })
    }

    fn detach(&mut self) -> Scn {
        self.write(|out| {
            RecordBuilder::detach(out, ID);
        })
    }

    /// Begins the next log. Returns its first SCN.
    fn switch(&mut self) -> Scn {
        self.writer.switch(0).unwrap().unwrap().first_scn
    }

    fn scan(&self) -> Scan {
        scan(&self.log, Scn::START, self.end(), AllChecksums::new()).unwrap()
    }

    fn history(&self) -> History {
        self.scan().histories[&ID].clone()
    }

    fn checksums(&self) -> PageChecksums {
        self.scan().checksums[&ID].clone()
    }
}

fn vectors(mut record: RecordBuilder<'_>, pages: &[(PageNo, u8)]) {
    for (page_no, fill) in pages {
        let after = page(*fill);
        record.vector(*page_no, Some(&page(BEFORE)), &after, page_sum(*page_no, &after), &mut Vec::new());
    }
    record.finish();
}

/// Pages by number; `None`: it is not known what the files hold of the page.
#[derive(Clone, Default)]
struct Memory(BTreeMap<PageNo, Option<u8>>);

impl Memory {
    fn of(pages: &[(PageNo, u8)]) -> Memory {
        Memory(pages.iter().map(|(page_no, fill)| (*page_no, Some(*fill))).collect())
    }
}

impl Pages for Memory {
    fn read(&mut self, page_no: PageNo, image: &mut [u8]) -> std::io::Result<PageFound> {
        Ok(match self.0.get(&page_no) {
            Some(Some(fill)) => {
                image.fill(*fill);
                PageFound::There
            }
            Some(None) => PageFound::Unknown,
            None => PageFound::Absent,
        })
    }
}

fn record(start_scn: Scn) -> DatabaseRecord {
    DatabaseRecord {
        id: ID,
        name: "d.db".into(),
        path: "/d.db".into(),
        page_size: PageSize::new(BYTES as u32).unwrap(),
        start_scn,
        redo_from: Scn::ZERO,
        begun_empty: false,
    }
}

fn anchor(salts: WalSalts, frame: u32, scn: u64) -> Anchor {
    Anchor {
        position: WalPosition { salts, frame },
        scn: Scn(scn),
        redo_from: Scn(scn),
        database_pages: 9,
        frame_page: None,
    }
}

fn history(anchors: &[Anchor]) -> History {
    History { anchors: anchors.to_vec(), ..History::default() }
}

fn found(salts: WalSalts, frame: u32) -> Found {
    Found { position: WalPosition { salts, frame }, bare: None, seen_by_sessions: None }
}

#[test]
fn a_database_at_the_end_of_the_redo_is_captured_from_there() {
    let history = history(&[anchor(A, 2, 100), anchor(A, 4, 200)]);
    assert_eq!(decide(&history, &found(A, 4), Scn(50)), Plan::Capture(anchor(A, 4, 200)));
    assert_eq!(
        decide(&history, &found(A, 9), Scn(50)),
        Plan::Capture(anchor(A, 4, 200)),
        "the frames beyond are captured"
    );
}

#[test]
fn database_behind_the_redo_gets_missing_redo_reapplied() {
    let history = history(&[anchor(A, 2, 100), anchor(A, 4, 200), anchor(B, 0, 210), anchor(B, 3, 300)]);
    assert_eq!(decide(&history, &found(A, 2), Scn(50)), Plan::Reapply(anchor(A, 2, 100)));
    assert_eq!(
        decide(&history, &found(A, 4), Scn(50)),
        Plan::Reapply(anchor(A, 4, 200)),
        "the reset was lost"
    );
    assert_eq!(decide(&history, &found(B, 0), Scn(50)), Plan::Reapply(anchor(B, 0, 210)));
}

#[test]
fn latest_redo_position_of_a_wal_frame_wins() {
    let twice = [anchor(A, 80, 100), anchor(A, 100, 200), anchor(A, 85, 210), anchor(A, 100, 300)];
    assert_eq!(decide(&history(&twice), &found(A, 100), Scn(50)), Plan::Capture(anchor(A, 100, 300)));
    assert_eq!(decide(&history(&twice), &found(A, 85), Scn(50)), Plan::Reapply(anchor(A, 85, 210)));
}

#[test]
fn state_inside_a_transaction_needs_redo_from_its_first_chunk() {
    let mut bytes = Vec::new();
    let id = DatabaseId(1);
    let mut ends = Vec::new();
    let position = WalPosition { salts: A, frame: 4 };
    standfast_format::RecordBuilder::wal_generation(&mut bytes, id, position, 9, true);
    ends.push(bytes.len() as u64);
    standfast_format::RecordBuilder::change(&mut bytes, id).finish();
    ends.push(bytes.len() as u64);
    standfast_format::RecordBuilder::wal_generation(&mut bytes, id, position, 9, false);
    ends.push(bytes.len() as u64);
    let mut histories = BTreeMap::new();
    let mut start = 0;
    for end in ends.iter().copied() {
        let (record, _) = decode_record(&bytes[start as usize..]).unwrap();
        note(&mut histories, &record, Scn(start), Scn(end));
        start = end;
    }
    let Plan::Capture(last) = decide(&histories[&id], &found(A, 4), Scn(50)) else {
        panic!("nothing is missing")
    };
    assert_eq!((last.scn, last.redo_from), (Scn(ends[2]), Scn(ends[0])));
    assert_eq!(histories[&id].stands_at, Some(Scn(ends[1])));
}

#[test]
fn only_an_sqlite_reset_makes_one_wal_follow_another() {
    assert!(may_follow(A, WalSalts(2, 77)) && !may_follow(A, WalSalts(1 + RESETS_MAX + 1, 77)));
    assert!(!may_follow(A, A.of_rewritten_log(0)), "rewritten, with what the file lacks");
}

#[test]
fn unknown_wal_is_captured_only_if_sessions_endorse_it() {
    let history = history(&[anchor(A, 4, 200)]);
    let seen = Found { seen_by_sessions: Some(B), ..found(B, 7) };
    assert_eq!(decide(&history, &seen, Scn(50)), Plan::Capture(anchor(B, 0, 200)));
    assert!(matches!(decide(&history, &found(B, 7), Scn(50)), Plan::FindOut(_)));
    let other = Found { seen_by_sessions: Some(A), ..found(B, 7) };
    assert!(matches!(decide(&history, &other, Scn(50)), Plan::FindOut(_)));
}

#[test]
fn bare_wal_header_resolves_to_its_last_position_in_redo() {
    let none = WalSalts::default();
    let bare = Found { bare: Some(B), ..found(none, 0) };
    let begun = [anchor(A, 4, 200), anchor(B, 0, 210), anchor(B, 3, 300)];
    assert_eq!(decide(&history(&begun), &bare, Scn(50)), Plan::Reapply(anchor(B, 0, 210)));
    let taken_up = [anchor(A, 4, 200), anchor(B, 0, 210), anchor(none, 0, 220)];
    assert_eq!(decide(&history(&taken_up), &bare, Scn(50)), Plan::Capture(anchor(none, 0, 220)));
    assert_eq!(
        decide(&history(&taken_up[2..]), &bare, Scn(50)),
        Plan::Capture(anchor(none, 0, 220)),
        "all the redo has"
    );
    let new = [anchor(none, 0, 100), anchor(B, 0, 210), anchor(B, 3, 300)];
    assert_eq!(
        decide(&history(&new), &bare, Scn(50)),
        Plan::Reapply(anchor(B, 0, 210)),
        "it had no log before"
    );
    let seen = Found { seen_by_sessions: Some(none), ..bare };
    assert!(matches!(decide(&history(&[anchor(A, 4, 200)]), &seen, Scn(50)), Plan::FindOut(_)));
}

#[test]
fn interrupted_wal_rewrite_may_have_left_nothing_or_all() {
    let new = A.of_rewritten_log(7);
    let known = history(&[anchor(A, 4, 200), anchor(new, 30, 210), anchor(new, 32, 300)]);
    let from_begin = Anchor { redo_from: Scn(50), ..anchor(new, 0, 50) };
    assert_eq!(decide(&known, &found(new, 0), Scn(50)), Plan::Reapply(from_begin));
    assert_eq!(decide(&known, &found(new, 30), Scn(50)), Plan::Reapply(anchor(new, 30, 210)));
    assert_eq!(decide(&known, &found(A, 4), Scn(50)), Plan::Reapply(anchor(A, 4, 200)), "not begun");
    let unknown = history(&[anchor(A, 4, 200)]);
    assert_eq!(decide(&unknown, &found(new, 0), Scn(50)), Plan::Reapply(from_begin));
    assert_eq!(decide(&unknown, &found(new, 30), Scn(50)), Plan::Capture(anchor(new, 0, 200)));
    let later = history(&[anchor(WalSalts(new.0 + 1, 5), 0, 400)]);
    let old = decide(&later, &found(new, 30), Scn(50));
    assert!(matches!(old, Plan::FindOut(_)), "it was reset, and that was lost: {old:?}");
}

#[test]
fn last_frame_of_the_redo_identifies_no_frame_of_a_newer_wal() {
    let last = Anchor { frame_page: Some((7, 70)), ..anchor(A, 4, 200) };
    let known = history(&[last]);
    let new = A.of_rewritten_log(7);
    for newer in [found(new, 0), found(new, 30), Found { seen_by_sessions: Some(B), ..found(B, 7) }] {
        let plan = decide(&known, &newer, Scn(50));
        let (Plan::Capture(anchor) | Plan::Reapply(anchor)) = plan else { panic!("{plan:?}") };
        assert_eq!((anchor.frame_page, anchor.database_pages), (None, 9), "{newer:?}");
    }
    assert_eq!(decide(&known, &found(A, 9), Scn(50)), Plan::Capture(last));
}

#[test]
fn unknown_database_state_has_to_be_found_out() {
    assert!(matches!(decide(&history(&[]), &found(A, 1), Scn(50)), Plan::FindOut(_)));
    let unfinished = History { unfinished_baseline: true, ..history(&[anchor(A, 4, 200)]) };
    assert!(matches!(decide(&unfinished, &found(A, 4), Scn(50)), Plan::FindOut(_)));
    let lost = history(&[anchor(A, 4, 200), anchor(A, 6, 300)]);
    for seen_by_sessions in [None, Some(A)] {
        let older = Found { seen_by_sessions, ..found(A, 3) };
        let Plan::FindOut(why) = decide(&lost, &older, Scn(50)) else { panic!("no state is known before") };
        assert!(why.contains("ends before what the redo has of it"), "{why}");
    }
}

#[test]
fn every_commit_and_generation_record_is_a_state_of_the_database() {
    let mut redo = Redo::new();
    let begun = redo.generation(A, 4, true);
    let first = redo.commit(6, &[(2, 1), (3, 1)]);
    redo.change(&[(4, 2)]);
    redo.change(&[(5, 2)]);
    let second = redo.commit(9, &[(6, 2)]);
    let names = redo.generation(B, 0, false);
    let sum = |page_no, fill| Some((page_no, page_sum(page_no, &page(fill))));
    let history = redo.history();
    assert_eq!(
        history.anchors,
        [
            anchor(A, 4, begun.0),
            Anchor { frame_page: sum(3, 1), ..anchor(A, 6, first.0) },
            Anchor { frame_page: sum(6, 2), ..anchor(A, 9, second.0) },
            anchor(B, 0, names.0),
        ],
        "a part of a transaction is no state"
    );
    assert_eq!((history.last_commit, history.stands_at), (Some(second), Some(second)));
    assert!(!history.unfinished_baseline);
}

#[test]
fn record_that_repeats_a_position_keeps_the_page_of_its_frame() {
    let mut redo = Redo::new();
    redo.generation(A, 0, true);
    redo.commit(2, &[(7, 1)]);
    redo.generation(A, 2, false);
    redo.generation(A, 3, false);
    let pages: Vec<_> = redo.history().anchors.iter().map(|anchor| anchor.frame_page).collect();
    let known = Some((7, page_sum(7, &page(1))));
    assert_eq!(pages, [None, known, known, None]);
}

#[test]
fn capture_that_restarts_leaves_no_transaction_open() {
    let mut redo = Redo::new();
    let begun = redo.generation(A, 0, true);
    redo.change(&[(2, 1)]);
    redo.change(&[(3, 1)]);
    redo.generation(A, 0, false);
    assert_eq!(redo.history().anchors.last().unwrap().redo_from, begun, "a transaction is open");
    let restarted = redo.generation(A, 0, true);
    assert_eq!(redo.history().anchors.last().unwrap().redo_from, restarted);
    redo.change(&[(4, 1)]);
    redo.baseline();
    let imaged = redo.generation(A, 0, false);
    assert_eq!(redo.history().anchors.last().unwrap().redo_from, imaged);
    redo.change(&[(4, 1)]);
    redo.commit(1, &[(5, 1)]);
    let named = redo.generation(A, 1, false);
    assert_eq!(redo.history().anchors.last().unwrap().redo_from, named, "it was committed");
}

#[test]
fn full_image_makes_earlier_states_void_once_it_is_complete() {
    let mut redo = Redo::new();
    redo.generation(A, 0, true);
    redo.commit(2, &[(2, 1)]);
    redo.baseline();
    redo.change(&[(1, 1)]);
    let history = redo.history();
    assert_eq!((history.unfinished_baseline, history.anchors.len()), (true, 2));
    let image = redo.commit(0, &[(2, 1)]);
    let history = redo.history();
    assert_eq!((history.unfinished_baseline, history.anchors.len()), (false, 0));
    assert_eq!(history.last_commit, Some(image));
    let named = redo.generation(A, 2, true);
    assert_eq!(redo.history().anchors, [anchor(A, 2, named.0)]);
}

#[test]
fn database_that_is_no_longer_protected_has_no_history() {
    let mut redo = Redo::new();
    redo.generation(A, 0, true);
    redo.commit(2, &[(2, 1)]);
    redo.detach();
    assert!(!redo.scan().histories.contains_key(&ID));
    assert_eq!(redo.checksums(), PageChecksums::default());
}

#[test]
fn scan_says_where_the_redo_ends_and_whether_cleanly() {
    let mut redo = Redo::new();
    let begin = redo.commit(1, &[(2, 1)]);
    let commit = redo.commit(2, &[(3, 1)]);
    let from_begin = |redo: &Redo| scan(&redo.log, begin, redo.end(), AllChecksums::new()).unwrap();
    let found = from_begin(&redo);
    assert_eq!((found.begin, found.end, found.ended_cleanly), (begin, commit, false));
    assert_eq!(found.histories[&ID].anchors.len(), 1, "what is before is not read");
    let stopped = redo.write(|out| {
        RecordBuilder::end_of_redo(out, 0);
    });
    let found = from_begin(&redo);
    assert_eq!((found.end, found.ended_cleanly), (stopped, true));
    redo.commit(3, &[(3, 2)]);
    assert!(!from_begin(&redo).ended_cleanly, "it went on");
    // A batch torn by a power loss.
    let torn = scan(&redo.log, begin, Scn(redo.end().0 - 1), AllChecksums::new()).unwrap();
    assert_eq!((torn.end, torn.ended_cleanly), (stopped, true));
}

fn difference(checksums: &PageChecksums, pages: &Memory, scn: Scn) -> Option<PageNo> {
    checksums.first_difference(&mut pages.clone(), record(Scn::ZERO).page_size, scn).unwrap()
}

#[test]
fn page_that_is_not_what_its_last_commit_left_is_a_difference() {
    let mut redo = Redo::new();
    redo.change(&[(2, 1)]);
    redo.commit(3, &[(3, 1), (5, 1)]);
    let end = redo.commit(4, &[(2, 2)]);
    let checksums = redo.checksums();
    let files = [(2, 2), (3, 1), (5, 1)];
    assert_eq!(difference(&checksums, &Memory::of(&files), end), None);
    assert_eq!(difference(&checksums, &Memory::of(&[(2, 1), (3, 1), (5, 1)]), end), Some(2), "older");
    assert_eq!(difference(&checksums, &Memory::of(&files[..2]), end), Some(5), "the file ends before it");
    assert_eq!(difference(&checksums, &Memory::of(&[(2, 7), (3, 7), (5, 7)]), end), Some(2), "newest first");
    assert_eq!(difference(&checksums, &Memory::of(&[(2, 2), (3, 7), (5, 7)]), end), Some(3));
    let mut unknown = Memory::of(&files);
    unknown.0.insert(5, None);
    assert_eq!(difference(&checksums, &unknown, end), None, "a later frame holds it");
}

#[test]
fn only_pages_of_the_state_are_compared() {
    let mut redo = Redo::new();
    let state = redo.commit(3, &[(2, 1), (PAGES, 1), (PAGES + 1, 1)]);
    redo.commit(4, &[(3, 1)]);
    redo.change(&[(2, 9), (4, 9)]);
    let checksums = redo.checksums();
    let files = Memory::of(&[(2, 1), (PAGES, 1)]);
    assert_eq!(difference(&checksums, &files, state), None, "page 3 is of a later commit");
    assert_eq!(difference(&checksums, &Memory::of(&[(2, 1)]), state), Some(PAGES));
    assert_eq!(difference(&checksums, &files, redo.end()), Some(3));
}

#[test]
fn page_images_that_never_count_are_not_compared() {
    let attach = Attach { database: ID, page_size: record(Scn::ZERO).page_size, name: "d.db" };
    for void in 0..4 {
        let mut redo = Redo::new();
        redo.commit(1, &[(2, 1)]);
        redo.change(&[(2, 7), (3, 7)]);
        match void {
            0 => redo.generation(A, 1, true),
            1 => redo.baseline(),
            2 => redo.write(|out| {
                RecordBuilder::attach(out, &attach);
            }),
            _ => redo.generation(A, 1, false),
        };
        redo.commit(2, &[(4, 1)]);
        let found = difference(&redo.checksums(), &Memory::of(&[(2, 1), (4, 1)]), redo.end());
        assert_eq!(found, if void < 3 { None } else { Some(2) }, "{void}");
    }
    let mut redo = Redo::new();
    redo.commit(1, &[(2, 1), (3, 1)]);
    redo.baseline();
    let image = redo.commit(0, &[(2, 5)]);
    assert_eq!(difference(&redo.checksums(), &Memory::of(&[(2, 5)]), image), None, "the image is all");
}

#[test]
fn earlier_checksums_are_carried_on_by_the_scan() {
    let mut redo = Redo::new();
    let checkpoint = redo.commit(1, &[(2, 1), (3, 1)]);
    redo.commit(2, &[(3, 2)]);
    let earlier = checksums_between(&redo.log, Scn::START, checkpoint);
    assert_eq!(earlier[&ID].newest.len(), 2);
    let found = scan(&redo.log, checkpoint, redo.end(), earlier).unwrap();
    assert_eq!(found.checksums, redo.scan().checksums);
}

#[test]
fn checksums_count_only_if_the_redo_is_read_to_its_end() {
    let mut redo = Redo::new();
    let end = redo.commit(1, &[(2, 1)]);
    assert_eq!(checksums_between(&redo.log, Scn::START, end).len(), 1);
    assert_eq!(checksums_between(&redo.log, Scn::START, Scn(end.0 - 1)), AllChecksums::new());
}

#[test]
fn boundaries_are_where_logs_have_their_first_record() {
    let mut redo = Redo::new();
    redo.commit(1, &[(2, 1)]);
    let second = redo.switch();
    assert_eq!(log_before(&redo.log, second), Some(Scn::START), "there is no earlier one");
    // A record that begins in the second log and ends in the third.
    let mut bytes = Vec::new();
    vectors(RecordBuilder::commit(&mut bytes, ID, 0, PAGES, 2), &[(3, 1)]);
    redo.writer.write(&[&bytes[..10]], Scn::ZERO).unwrap();
    let third = redo.switch();
    redo.writer.write(&[&bytes[10..]], Scn::ZERO).unwrap();
    let boundary = redo.end();
    assert_eq!(boundary, third + (bytes.len() as u64 - 10));
    redo.commit(3, &[(3, 2)]);
    let before = |from| boundaries_before(&redo.log, from);
    assert_eq!(before(redo.end()), [boundary, second, Scn::START]);
    assert_eq!(before(boundary + 1), [boundary, second, Scn::START]);
    assert_eq!(before(boundary), [second, Scn::START], "the record before ends there");
    assert_eq!(before(Scn::START), []);
    assert_eq!(log_before(&redo.log, redo.end()), Some(second));
    assert_eq!(log_before(&redo.log, Scn::START), None);
}

#[test]
fn generation_is_named_if_any_redo_of_the_database_has_it() {
    let mut redo = Redo::new();
    redo.generation(A, 0, true);
    redo.switch();
    let second = redo.commit(1, &[(2, 1)]);
    redo.switch();
    redo.generation(B, 0, true);
    redo.write(|out| {
        let position = WalPosition { salts: WalSalts(3, 30), frame: 0 };
        RecordBuilder::wal_generation(out, OTHER, position, PAGES, true);
    });
    let end = redo.commit(2, &[(2, 1)]);
    let named = |salts, start_scn, end| names_generation(&redo.log, &record(start_scn), salts, end).unwrap();
    assert!(named(B, Scn::ZERO, end), "by the newest log");
    assert!(named(A, Scn::ZERO, end), "by the oldest log");
    assert!(!named(WalSalts(1, 20), Scn::ZERO, end), "both salts count");
    assert!(!named(WalSalts(3, 30), Scn::ZERO, end), "it is of another database");
    assert!(!named(B, Scn::ZERO, second), "that is after the range");
    assert!(named(B, second, end));
    assert!(!named(A, second, end), "the database had not begun");
}

const LOGS: u32 = 7;

/// A log for each of seven commits; commit n changes page n + 1 only. Returns the ends of the commits, and where the
/// last log begins.
fn commit_per_log() -> (Redo, Vec<Scn>, Scn) {
    let mut redo = Redo::new();
    let mut last = Scn::START;
    let commits = (1..=LOGS).map(|commit| {
        if commit > 1 {
            last = redo.switch();
        }
        redo.commit(commit, &[(commit + 1, 1)])
    });
    let commits = commits.collect();
    (redo, commits, last)
}

/// What the files hold after the first `commits` commits.
fn files_after(commits: u32) -> Memory {
    let fill = |page_no| if page_no > 1 && page_no <= commits + 1 { 1 } else { BEFORE };
    Memory((1..=PAGES).map(|page_no| (page_no, Some(fill(page_no)))).collect())
}

/// Returns the conclusion, and how many times the files were compared.
fn searched(redo: &Redo, range: (Scn, Scn), files: &Memory) -> (Result<Conclusion, InstanceError>, u32) {
    let mut times = 0;
    let found = find_out(&redo.log, &record(Scn::ZERO), range, Foreign::Excluded, Some(redo.end()), || {
        times += 1;
        Ok((files.clone(), PAGES))
    });
    (found, times)
}

#[test]
fn files_are_compared_with_ever_older_logs_until_their_state_is_found() {
    let (redo, ends, last) = commit_per_log();
    let search = |commits| {
        let (found, times) = searched(&redo, (last, redo.end()), &files_after(commits));
        (found.unwrap(), times)
    };
    let behind = |from| Conclusion::Behind { from, whole: false, certain: true };
    assert_eq!(search(7), (Conclusion::Newest { whole: false }, 1));
    // One log further back, then two, then four: a range may begin within its first transaction, which is not
    // counted.
    assert_eq!(search(6), (behind(ends[3]), 3));
    assert_eq!(search(5), (behind(ends[3]), 3));
    assert_eq!(search(4), (behind(ends[0]), 4));
    assert_eq!(search(2), (behind(ends[0]), 4));
    assert_eq!(search(0), (Conclusion::Unproven(None), 4), "no commit of the range is in them");
}

#[test]
fn older_logs_that_cannot_be_read_end_the_search() {
    let (redo, _, last) = commit_per_log();
    let range = (last, redo.end());
    let damage = |group: u32| {
        let path = std::path::PathBuf::from(format!("/redo/online_{group}a.log"));
        let disk = redo.machine.disk();
        let file = standfast_io::Disk::open(&disk, &path).unwrap();
        file.write(&[0xEE; 100], 512).unwrap();
    };
    damage(4);
    let (found, times) = searched(&redo, range, &files_after(4));
    assert_eq!((found.unwrap(), times), (Conclusion::Unproven(None), 3), "the last comparison counts");
    let (found, _) = searched(&redo, range, &files_after(7));
    assert_eq!(found.unwrap(), Conclusion::Newest { whole: false });
    damage(7);
    let (found, times) = searched(&redo, range, &files_after(7));
    assert!(found.is_err(), "{found:?}");
    assert_eq!(times, 1, "without the newest redo nothing follows");
}

#[test]
fn redo_that_ends_early_proves_nothing() {
    let (redo, _, last) = commit_per_log();
    let (found, _) = searched(&redo, (last, Scn(redo.end().0 - 1)), &files_after(7));
    let error = found.unwrap_err().to_string();
    assert!(error.contains(&format!("ends at {last}, before")), "{error}");
}

#[test]
fn database_without_a_commit_in_any_log_has_nothing_to_compare() {
    let mut redo = Redo::new();
    redo.generation(A, 0, true);
    let begin = redo.switch();
    redo.generation(B, 0, true);
    let (found, times) = searched(&redo, (begin, redo.end()), &files_after(0));
    assert_eq!((found.unwrap(), times), (Conclusion::NothingToCompare, 2));
    redo.commit(1, &[(2, 1)]);
    let begin = redo.switch();
    redo.generation(B, 0, true);
    let (found, _) = searched(&redo, (begin, redo.end()), &files_after(0));
    assert_eq!(found.unwrap(), Conclusion::Unproven(None), "an older log has a commit");
}
