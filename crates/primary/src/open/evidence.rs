//! What a range of redo proves about the files of a database.
//!
//! The files of a database should be the state after some commit, and the redo has the checksum of every page image
//! that a commit has left. So each page that the redo touches since some position is, in the files,
//! - *newest*: the image that the redo has last,
//! - *earlier*: an image that an earlier commit has left,
//! - *at the start*: the image before the first change of it, which is proven by applying that change: the result has
//!   the checksum of the redo; or the page does not exist yet,
//! - *overwritten*: none of these, but its first change gives the whole page, so that nothing can be concluded, or
//! - *foreign*: none of these. A process without the VFS has changed it, or the files are older than the range.
//!
//! One page that is newest or earlier proves that the files are not older than the range. Then, if no page is foreign
//! or overwritten, applying the range again ends in the newest state: vectors hold absolute bytes. This also requires
//! that the database file alone held everything at some point of the range. Otherwise pages that changed before it may
//! be in a WAL that is lost, while later changes of other pages are already in the file, because a checkpoint copies in
//! page order. SQLite resets a WAL only when all of it is backfilled, so the redo shows such points.
//!
//! A foreign commit changes pages on top of whatever state the files had. The pages of the last commit show whether
//! that state was the newest: pages that the foreign commit left alone are newest, and in the others the longest range
//! of bytes that the last commit wrote is still there.
//!
//! [`Comparison`] takes records and decides nothing; [`Evidence`] has the conclusions. No I/O but [`Pages`].

use standfast_environment::config::error::InstanceError;
use standfast_environment::state::control::DatabaseRecord;
use standfast_format::{DecodeError, PageVector, Ranges, Record, apply_ranges, decode_record, page_sum};
use standfast_sqlite_wal::state::{PageFound, StateReader};
use standfast_types::{DatabaseId, PageNo, Scn};
use std::collections::{HashMap, HashSet};

/// Fewer equal bytes than these prove nothing.
const RANGE_BYTES_MIN: usize = 4;
/// Pages of the last commit that are examined; a full resync image may have any number.
const LAST_CHANGES_MAX: usize = 4096;

/// The pages of a state of the files.
pub trait Pages {
    /// Reads page `page_no` into `image`, which has the size of a page.
    ///
    /// # Errors
    /// When a file cannot be read.
    fn read(&mut self, page_no: PageNo, image: &mut [u8]) -> std::io::Result<PageFound>;
}

impl Pages for StateReader {
    fn read(&mut self, page_no: PageNo, image: &mut [u8]) -> std::io::Result<PageFound> {
        StateReader::read(self, page_no, image)
    }
}

/// A page before its first change in the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The files hold that image, or the page did not exist and still does not.
    Held,
    /// The change gives the whole page.
    Overwritten,
    Foreign,
    /// A frame after the state holds the page: nothing can be concluded, and the page does not count.
    Unknown,
}

/// What is known of a page that the redo touches.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Checksum of what the files hold; `None` when they do not hold the page.
    content: Option<u32>,
    start: Start,
    /// The newest commit that left what the files hold.
    matched: Option<Scn>,
    newest: u32,
}

/// A page vector of the last commit, reduced to its longest range.
#[derive(Debug)]
struct LastChange {
    page_no: PageNo,
    /// Offset in the page and bytes.
    range: (usize, Vec<u8>),
}

/// A vector of a transaction whose commit has not been read.
struct Pending {
    page_no: PageNo,
    checksum: u32,
    /// Content and start, if no earlier transaction of the range has touched the page.
    first: Option<(Option<u32>, Start)>,
}

/// Compares the files of one database with a range of redo, record by record.
pub struct Comparison<P> {
    database: DatabaseId,
    pages: P,
    /// Pages of the database in the state of the files; the file may hold anything beyond them.
    pages_found: u32,
    /// The range may begin within a transaction of the database: it counts from the end of the first commit.
    awaits_commit: bool,
    /// A replay of the range has to begin here.
    from: Scn,
    from_birth: bool,
    start_scn: Scn,
    /// The file alone held everything at some point of the range.
    has_whole_file: bool,
    /// The range has a record of the database.
    is_known: bool,
    /// A commit was skipped, because the range may begin within it.
    is_commit_skipped: bool,
    /// Start of a full resync image that is not complete.
    image_from: Option<Scn>,
    seen: HashMap<PageNo, Seen>,
    pending: Vec<Pending>,
    pending_pages: HashSet<PageNo>,
    pending_changes: Vec<LastChange>,
    last_changes: Vec<LastChange>,
    commits: u64,
    database_pages: u32,
    image: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Committed transactions of the database in the range.
    pub commits: u64,
    /// Where a replay of the range has to begin.
    pub from: Scn,
    /// The range begins with the database itself, which has no earlier state.
    pub from_birth: bool,
    /// The file alone held everything at some point of the range.
    pub has_whole_file: bool,
    /// The range has no commit of the database at all.
    pub is_silent: bool,
    /// Counts of pages by what the files hold of them.
    pub newest: u32,
    pub earlier: u32,
    pub at_start: u32,
    pub overwritten: u32,
    pub foreign: u32,
    /// A page that is foreign or overwritten, for messages.
    pub example: Option<PageNo>,
    /// What the last commit wrote is in the files.
    pub last_commit_is_there: bool,
    /// The redo touches every page of the database.
    pub covers_all: bool,
}

impl<P: Pages> Comparison<P> {
    /// Compares the database of `record` with redo from `from` on, a record boundary. `at_boundary`: no transaction of
    /// the database is open there. `pages_found`: how many of `pages` belong to the state. `whole_at`: the database
    /// file once held everything before it, as known from elsewhere than the redo.
    pub fn new(
        record: &DatabaseRecord,
        pages: P,
        pages_found: u32,
        from: Scn,
        at_boundary: bool,
        whole_at: Option<Scn>,
    ) -> Comparison<P> {
        let (database, page_size) = (record.id, record.page_size);
        Comparison {
            database,
            pages,
            pages_found,
            awaits_commit: !at_boundary,
            from,
            from_birth: false,
            start_scn: record.start_scn,
            has_whole_file: whole_at.is_some_and(|scn| scn >= from),
            is_known: false,
            is_commit_skipped: false,
            image_from: None,
            seen: HashMap::new(),
            pending: Vec::new(),
            pending_pages: HashSet::new(),
            pending_changes: Vec::new(),
            last_changes: Vec::new(),
            commits: 0,
            database_pages: 0,
            image: vec![0; page_size.bytes()],
        }
    }

    /// Takes the record that ends at `end`.
    ///
    /// # Errors
    /// When the record is damaged or a file cannot be read.
    pub fn take(&mut self, bytes: &[u8], end: Scn) -> Result<(), InstanceError> {
        let damaged = |error: DecodeError| {
            InstanceError::Failed(format!("redo record that ends at SCN {end}: {error}"))
        };
        let record = decode_record(bytes).map_err(damaged)?.0;
        if record.database() != Some(self.database) || end <= self.start_scn {
            return Ok(());
        }
        let was_known = std::mem::replace(&mut self.is_known, true);
        match record {
            // A start that copies the database again introduces it again.
            Record::Attach(_) => {
                self.forget_pending();
                if !was_known && self.from <= self.start_scn {
                    self.begin_again(end);
                }
                if std::mem::take(&mut self.awaits_commit) {
                    self.from = end;
                }
            }
            Record::Baseline { .. } => {
                self.forget_pending();
                self.image_from = Some(Scn(end.0.saturating_sub(bytes.len() as u64)));
            }
            Record::WalGeneration { restart, salts, captured_frames, .. } => {
                if restart {
                    self.forget_pending();
                    self.image_from = None;
                }
                // A rewritten WAL begins with frames of the last one that are not backfilled.
                self.has_whole_file |= captured_frames == 0 && !salts.is_of_rewritten_log();
            }
            Record::Change { vectors, .. } if !self.awaits_commit || self.image_from.is_some() => {
                for vector in vectors {
                    self.take_vector(&vector.map_err(damaged)?).map_err(read_error)?;
                }
            }
            Record::Commit { database_pages, vectors, .. } => {
                if let Some(from) = self.image_from.take() {
                    self.begin_again(from);
                } else if self.awaits_commit {
                    (self.awaits_commit, self.from) = (false, end);
                    self.is_commit_skipped = true;
                    return Ok(());
                }
                for vector in vectors {
                    self.take_vector(&vector.map_err(damaged)?).map_err(read_error)?;
                }
                self.commit(end, database_pages);
            }
            _ => {}
        }
        Ok(())
    }

    /// Discards everything before: the database, or a full resync image of it, begins here.
    fn begin_again(&mut self, from: Scn) {
        self.seen.clear();
        self.last_changes.clear();
        self.commits = 0;
        (self.from, self.from_birth, self.awaits_commit) = (from, true, false);
        self.has_whole_file = true;
    }

    fn forget_pending(&mut self) {
        self.pending.clear();
        self.pending_pages.clear();
        self.pending_changes.clear();
    }

    fn take_vector(&mut self, vector: &PageVector<'_>) -> std::io::Result<()> {
        let PageVector { page_no, sum_after: checksum, .. } = *vector;
        let is_seen = self.seen.contains_key(&page_no) && self.image_from.is_none();
        let is_first = !is_seen && self.pending_pages.insert(page_no);
        let first = if is_first { Some(self.look_at(vector)?) } else { None };
        self.pending.push(Pending { page_no, checksum, first });
        let longest = Ranges::new(vector.ranges)
            .filter_map(Result::ok)
            .max_by_key(|(_, bytes)| bytes.len())
            .map(|(offset, bytes)| (offset, bytes.to_vec()));
        if let Some(range) = longest.filter(|_| self.pending_changes.len() < LAST_CHANGES_MAX) {
            self.pending_changes.push(LastChange { page_no, range });
        }
        Ok(())
    }

    /// Returns what the files hold of a page, and whether `vector`, the first change of the page, was made against
    /// that.
    fn look_at(&mut self, vector: &PageVector<'_>) -> std::io::Result<(Option<u32>, Start)> {
        let page_no = vector.page_no;
        let found = match page_no <= self.pages_found {
            true => self.pages.read(page_no, &mut self.image)?,
            false => PageFound::Absent,
        };
        Ok(match found {
            PageFound::Unknown => (None, Start::Unknown),
            PageFound::Absent => (None, if vector.from_zeros { Start::Held } else { Start::Foreign }),
            PageFound::There => {
                let content = page_sum(page_no, &self.image);
                let start = if vector.from_zeros {
                    Start::Overwritten
                } else if apply_ranges(vector.ranges, &mut self.image).is_ok()
                    && page_sum(page_no, &self.image) == vector.sum_after
                {
                    Start::Held
                } else {
                    Start::Foreign
                };
                (Some(content), start)
            }
        })
    }

    fn commit(&mut self, end: Scn, database_pages: u32) {
        for Pending { page_no, checksum, first } in self.pending.drain(..) {
            let (content, start) = first.unwrap_or((None, Start::Foreign));
            let seen =
                self.seen.entry(page_no).or_insert(Seen { content, start, matched: None, newest: checksum });
            seen.newest = checksum;
            if seen.content == Some(checksum) {
                seen.matched = Some(end);
            }
        }
        self.pending_pages.clear();
        self.last_changes = std::mem::take(&mut self.pending_changes);
        self.database_pages = database_pages;
        self.commits += 1;
    }

    /// Returns the conclusions, once the whole range was taken.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn finish(mut self) -> Result<Evidence, InstanceError> {
        let mut evidence = Evidence {
            commits: self.commits,
            from: self.from,
            from_birth: self.from_birth,
            has_whole_file: self.has_whole_file,
            is_silent: self.commits == 0 && !self.is_commit_skipped,
            ..Evidence::default()
        };
        for (page_no, seen) in &self.seen {
            let is_cut_off = *page_no > self.database_pages;
            if is_cut_off || seen.start == Start::Unknown {
                continue;
            }
            let count = match (seen.content == Some(seen.newest), seen.matched, seen.start) {
                (true, _, _) => &mut evidence.newest,
                (_, Some(_), _) => &mut evidence.earlier,
                (_, _, Start::Held) => &mut evidence.at_start,
                (_, _, Start::Overwritten) => &mut evidence.overwritten,
                (_, _, Start::Foreign | Start::Unknown) => &mut evidence.foreign,
            };
            *count += 1;
            if seen.content != Some(seen.newest) && seen.matched.is_none() && seen.start != Start::Held {
                evidence.example = evidence.example.max(Some(*page_no));
            }
        }
        evidence.covers_all = self.commits > 0 && evidence.pages() == self.database_pages;
        evidence.last_commit_is_there = self.last_commit_is_there().map_err(read_error)?;
        Ok(evidence)
    }

    fn last_commit_is_there(&mut self) -> std::io::Result<bool> {
        for change in &self.last_changes {
            let is_newest =
                self.seen.get(&change.page_no).is_some_and(|seen| seen.content == Some(seen.newest));
            let (offset, bytes) = &change.range;
            let is_there = is_newest
                || (change.page_no <= self.pages_found
                    && bytes.len() >= RANGE_BYTES_MIN
                    && self.pages.read(change.page_no, &mut self.image)? == PageFound::There
                    && self.image.get(*offset..offset + bytes.len()) == Some(bytes.as_slice()));
            if !is_there {
                return Ok(false);
            }
        }
        Ok(!self.last_changes.is_empty())
    }
}

impl Evidence {
    /// The files hold the newest state, and nothing foreign that the redo could show.
    pub fn is_newest(&self) -> bool {
        self.has_whole_file && self.newest > 0 && self.pages() == self.newest
    }

    /// The files hold a state of the range, perhaps the newest: applying the range ends in the newest state.
    pub fn is_state_of_stretch(&self) -> bool {
        self.has_whole_file && self.foreign + self.overwritten == 0 && self.newest + self.earlier > 0
    }

    /// The files hold a state of a range that begins with the database: pages at the start or overwritten cannot be of
    /// an older state.
    pub fn is_state_since_birth(&self) -> bool {
        self.from_birth && self.foreign == 0 && self.pages() > 0
    }

    /// A process without the VFS has changed the newest state, provided that no power loss interrupted a checkpoint:
    /// that leaves pages that are half written, or older than the range, beside those of the last commit.
    pub fn is_foreign_on_newest(&self) -> bool {
        self.has_whole_file && self.last_commit_is_there && self.earlier + self.at_start == 0
    }

    /// Returns the number of pages in all classes together.
    pub fn pages(&self) -> u32 {
        self.newest + self.earlier + self.at_start + self.overwritten + self.foreign
    }
}

fn read_error(error: std::io::Error) -> InstanceError {
    InstanceError::Failed(format!("the files cannot be compared with the redo: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_format::{Attach, RecordBuilder};
    use standfast_types::{DatabaseId, PageSize, WalPosition, WalSalts};

    const ID: DatabaseId = DatabaseId(1);
    const BYTES: usize = 512;

    struct Memory(HashMap<PageNo, Vec<u8>>);

    impl Pages for Memory {
        fn read(&mut self, page_no: PageNo, image: &mut [u8]) -> std::io::Result<PageFound> {
            Ok(match self.0.get(&page_no) {
                Some(page) => {
                    image.copy_from_slice(page);
                    PageFound::There
                }
                None => PageFound::Absent,
            })
        }
    }

    /// A database whose every committed state is kept, and its redo.
    struct Model {
        states: Vec<HashMap<PageNo, Vec<u8>>>,
        redo: Vec<Vec<u8>>,
        whole_at: Option<Scn>,
        start_scn: Scn,
    }

    impl Model {
        /// Pages 1 to 4, different from each other.
        fn new() -> Model {
            let page = |page_no: u32| vec![page_no as u8; BYTES];
            Model {
                states: vec![(1..=4).map(|page_no| (page_no, page(page_no))).collect()],
                redo: Vec::new(),
                whole_at: Some(Scn(1000)),
                start_scn: Scn::ZERO,
            }
        }

        fn commit(&mut self, changes: &[(PageNo, usize, &[u8])]) {
            let mut state = self.states.last().unwrap().clone();
            let mut bytes = Vec::new();
            let mut record = RecordBuilder::commit(&mut bytes, ID, 0, 9, self.redo.len() as u32 + 1);
            for (page_no, offset, data) in changes {
                let before = state.get(page_no).cloned();
                let mut after = before.clone().unwrap_or_else(|| vec![0; BYTES]);
                after[*offset..offset + data.len()].copy_from_slice(data);
                let checksum = page_sum(*page_no, &after);
                record.vector(*page_no, before.as_deref(), &after, checksum, &mut Vec::new());
                state.insert(*page_no, after);
            }
            record.finish();
            self.redo.push(bytes);
            self.states.push(state);
        }

        /// Returns the evidence of the redo from commit `from` on about `files`.
        fn evidence(&self, files: &HashMap<PageNo, Vec<u8>>, from: usize, at_boundary: bool) -> Evidence {
            let found = files.keys().copied().max().unwrap_or(0);
            let record = DatabaseRecord {
                id: ID,
                name: String::new(),
                path: std::path::PathBuf::new(),
                page_size: PageSize::new(BYTES as u32).unwrap(),
                start_scn: self.start_scn,
                redo_from: Scn::ZERO,
                begun_empty: false,
            };
            let pages = Memory(files.clone());
            let mut comparison =
                Comparison::new(&record, pages, found, Scn(from as u64), at_boundary, self.whole_at);
            for (index, record) in self.redo.iter().enumerate().skip(from) {
                comparison.take(record, Scn(index as u64 + 1)).unwrap();
            }
            comparison.finish().unwrap()
        }
    }

    /// Four commits: one page, two pages, a new page, the first page again.
    fn four_commits() -> Model {
        let mut model = Model::new();
        model.commit(&[(2, 10, b"first commit")]);
        model.commit(&[(2, 40, b"second commit"), (3, 10, b"second commit")]);
        model.commit(&[(5, 10, b"third commit")]);
        model.commit(&[(2, 90, b"fourth commit")]);
        model
    }

    #[test]
    fn every_state_in_the_redo_range_is_recognised() {
        let model = four_commits();
        assert!(model.evidence(&model.states[4], 0, true).is_newest());
        for state in 1..4 {
            let evidence = model.evidence(&model.states[state], 0, true);
            assert!(evidence.is_state_of_stretch() && !evidence.is_newest(), "{state}: {evidence:?}");
            assert!(!evidence.last_commit_is_there, "{state}");
        }
    }

    #[test]
    fn state_before_the_redo_range_is_not_part_of_it() {
        let model = four_commits();
        let evidence = model.evidence(&model.states[0], 0, true);
        assert!(!evidence.is_state_of_stretch(), "nothing proves that it is not older: {evidence:?}");
        assert_eq!((evidence.foreign, evidence.at_start), (0, 3));
        // Page 2 was changed between the state and the stretch.
        let evidence = model.evidence(&model.states[1], 2, true);
        assert!(evidence.foreign > 0 && !evidence.is_state_of_stretch(), "{evidence:?}");
    }

    #[test]
    fn foreign_commits_on_newest_and_older_states_are_distinguished() {
        let model = four_commits();
        for (state, on_newest) in [(4, true), (3, false), (2, false)] {
            let mut files = model.states[state].clone();
            files.get_mut(&2).unwrap()[200..207].copy_from_slice(b"foreign");
            let evidence = model.evidence(&files, 0, true);
            assert_eq!(evidence.foreign, 1, "{state}");
            assert!(!evidence.is_state_of_stretch(), "{state}");
            assert_eq!(evidence.is_foreign_on_newest(), on_newest, "{state}: {evidence:?}");
        }
    }

    #[test]
    fn foreign_commit_in_place_of_a_lost_one_is_not_on_newest_state() {
        let mut model = Model::new();
        model.commit(&[(2, 10, b"row 1")]);
        model.commit(&[(2, 20, b"row 2 of ours")]);
        let mut files = model.states[1].clone();
        files.get_mut(&2).unwrap()[20..33].copy_from_slice(b"row 2 foreign");
        let evidence = model.evidence(&files, 0, true);
        assert!(!evidence.is_foreign_on_newest() && !evidence.is_state_of_stretch(), "{evidence:?}");
    }

    #[test]
    fn mix_of_two_states_is_in_the_range_but_not_the_newest() {
        let model = four_commits();
        // The file was restored to an older state, while page 5 is in the WAL.
        let mut files = model.states[1].clone();
        files.insert(4, vec![0; BYTES]);
        files.insert(5, model.states[4][&5].clone());
        let evidence = model.evidence(&files, 0, true);
        assert!(evidence.is_state_of_stretch() && !evidence.is_newest());
    }

    #[test]
    fn range_begun_inside_a_transaction_counts_from_first_commit() {
        let model = four_commits();
        let evidence = model.evidence(&model.states[3], 1, false);
        assert_eq!((evidence.commits, evidence.from), (2, Scn(2)));
        assert!(evidence.is_state_of_stretch());
    }

    #[test]
    fn full_page_image_hides_earlier_content() {
        let mut model = Model::new();
        let mut bytes = Vec::new();
        let after = vec![7; BYTES];
        let mut record = RecordBuilder::commit(&mut bytes, ID, 0, 9, 1);
        record.vector(2, None, &after, page_sum(2, &after), &mut Vec::new());
        record.finish();
        model.redo.push(bytes);
        let evidence = model.evidence(&model.states[0], 0, true);
        assert_eq!((evidence.overwritten, evidence.foreign), (1, 0));
        assert!(!evidence.is_state_of_stretch() && !evidence.is_foreign_on_newest());
    }

    #[test]
    fn redo_range_proves_nothing_about_earlier_pages_in_a_lost_wal() {
        let mut model = four_commits();
        model.whole_at = None;
        // An interrupted checkpoint has copied page 2, and not page 3 or 5.
        let mut files = model.states[1].clone();
        files.insert(2, model.states[4][&2].clone());
        let evidence = model.evidence(&files, 3, true);
        assert_eq!((evidence.newest, evidence.pages()), (1, 1));
        assert!(!evidence.is_newest() && !evidence.is_state_of_stretch() && !evidence.is_foreign_on_newest());
        // The file held everything before the second commit.
        model.whole_at = Some(Scn(1));
        assert!(!model.evidence(&files, 3, true).is_newest(), "that was before the stretch");
        let evidence = model.evidence(&files, 1, true);
        assert!(evidence.is_state_of_stretch() && !evidence.is_newest(), "{evidence:?}");
    }

    #[test]
    fn empty_wal_generation_proves_that_the_file_was_complete() {
        for (frames, expected) in [(0, true), (3, false)] {
            let mut model = four_commits();
            model.whole_at = None;
            let mut bytes = Vec::new();
            RecordBuilder::wal_generation(
                &mut bytes,
                ID,
                WalPosition { salts: WalSalts(7, 7), frame: frames },
                5,
                true,
            );
            model.redo.insert(2, bytes);
            model.states.insert(2, model.states[2].clone());
            let newest = model.states[5].clone();
            assert_eq!(model.evidence(&newest, 2, true).is_newest(), expected, "{frames} frames");
            assert!(!model.evidence(&newest, 3, true).is_newest(), "the record is before the stretch");
        }
    }

    #[test]
    fn reattached_database_is_not_treated_as_new() {
        let attach = || {
            let mut bytes = Vec::new();
            let attach =
                Attach { database: ID, page_size: PageSize::new(BYTES as u32).unwrap(), name: "a.db" };
            RecordBuilder::attach(&mut bytes, &attach);
            bytes
        };
        let mut model = four_commits();
        model.redo.push(attach());
        let evidence = model.evidence(&model.states[0], 0, true);
        assert_eq!((evidence.commits, evidence.from_birth), (4, false), "{evidence:?}");
        let evidence = model.evidence(&model.states[0], 4, true);
        assert!(
            !evidence.from_birth && evidence.is_silent,
            "what was before is not in the stretch: {evidence:?}"
        );
        // Its protection began there.
        model.start_scn = Scn(4);
        assert!(model.evidence(&model.states[0], 4, true).from_birth);
    }

    #[test]
    fn commit_that_may_precede_the_range_is_not_counted_or_denied() {
        let evidence = four_commits().evidence(&Model::new().states[0], 3, false);
        assert_eq!((evidence.commits, evidence.is_silent), (0, false));
    }

    #[test]
    fn commits_before_a_full_image_do_not_count() {
        let mut model = four_commits();
        let mut bytes = Vec::new();
        RecordBuilder::baseline(&mut bytes, ID, true);
        model.redo.push(bytes.clone());
        bytes.clear();
        let mut record = RecordBuilder::commit(&mut bytes, ID, 0, 5, 0);
        for (page_no, image) in &model.states[4] {
            record.vector(*page_no, None, image, page_sum(*page_no, image), &mut Vec::new());
        }
        record.finish();
        model.redo.push(bytes);
        let evidence = model.evidence(&model.states[4], 0, true);
        assert!(evidence.is_newest() && evidence.from_birth);
        assert_eq!((evidence.commits, evidence.newest), (1, 5));
    }
}
