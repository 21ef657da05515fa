//! What the file of a database and a range of its redo each have that the other lacks, as far as page checksums show.
//!
//! For each page that the redo touches, the file holds the newest image, an older one (an image that an earlier commit
//! left, or the image before the first change in the range), or one that no redo of the range explains. So the file
//! lacks at least the commits since the first one whose image is missing in an older page, and at most the commits
//! since the first one that changed a page which is not the newest. A page that no redo of the range touches shows
//! nothing.
//!
//! [`Comparison`] takes records; no I/O but [`Pages`].

use crate::open::evidence::Pages;
use serde::{Deserialize, Serialize};
use standfast_format::{DecodeError, PageVector, Record, apply_ranges, decode_record, page_sum};
use standfast_sqlite_wal::state::PageFound;
use standfast_types::{DatabaseId, PageNo, PageSize, Scn};
use std::collections::{HashMap, HashSet};

/// Limit of page numbers listed; pages beyond it are only counted.
const NAMED_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitAt {
    pub scn: Scn,
    /// When it was made, microseconds since the Unix epoch.
    pub time_us: u64,
}

/// Commits at the end of the redo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commits {
    pub number: u64,
    pub first: Option<CommitAt>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Divergence {
    /// Where the compared range of redo begins.
    pub from: Scn,
    pub commits: Commits,
    /// The last commit of the range.
    pub last: Option<CommitAt>,
    /// Pages that hold the newest image of the redo.
    pub newest: u64,
    /// Pages that hold an older image that the redo knows.
    pub older: u64,
    /// Pages that no redo of the range explains.
    pub unexplained: u64,
    /// The first [`NAMED_MAX`] of the older pages.
    pub older_pages: Vec<PageNo>,
    /// The first [`NAMED_MAX`] of the unexplained pages.
    pub unexplained_pages: Vec<PageNo>,
    /// Commits that the file certainly lacks.
    pub lacks_at_least: Commits,
    /// Commits that the file may lack.
    pub lacks_at_most: Commits,
}

struct Seen {
    /// Checksum of what the file holds; `None`: it has no such page.
    content: Option<u32>,
    /// The file holds an image that the redo knows.
    is_known: bool,
    newest: u32,
    /// The first commit whose image is missing, after the image that the file holds.
    missing: Option<Scn>,
}

/// Compares a file with redo, record by record.
pub struct Comparison<P> {
    database: DatabaseId,
    pages: P,
    start_scn: Scn,
    seen: HashMap<PageNo, Seen>,
    pending: Vec<(PageNo, u32, Option<Seen>)>,
    pending_pages: HashSet<PageNo>,
    commits: Vec<CommitAt>,
    database_pages: PageNo,
    image: Vec<u8>,
}

impl<P: Pages> Comparison<P> {
    /// Compares the state that `pages` shows. Redo before `start_scn` is void.
    pub fn new(database: DatabaseId, page_size: PageSize, start_scn: Scn, pages: P) -> Comparison<P> {
        Comparison {
            database,
            pages,
            start_scn,
            seen: HashMap::new(),
            pending: Vec::new(),
            pending_pages: HashSet::new(),
            commits: Vec::new(),
            database_pages: 0,
            image: vec![0; page_size.bytes()],
        }
    }

    /// Takes the record that ends at `end`.
    ///
    /// # Errors
    /// When the record is damaged or the file cannot be read, in words.
    pub fn take(&mut self, bytes: &[u8], end: Scn) -> Result<(), String> {
        let damaged = |error: DecodeError| format!("redo record that ends at SCN {end}: {error}");
        let record = decode_record(bytes).map_err(damaged)?.0;
        if record.database() != Some(self.database) || end <= self.start_scn {
            return Ok(());
        }
        match record {
            Record::Baseline { .. } | Record::Attach(_) | Record::WalGeneration { restart: true, .. } => {
                self.pending.clear();
                self.pending_pages.clear();
            }
            Record::Change { vectors, .. } => {
                for vector in vectors {
                    self.take_vector(&vector.map_err(damaged)?)?;
                }
            }
            Record::Commit { database_pages, vectors, time_us, frame, .. } => {
                for vector in vectors {
                    self.take_vector(&vector.map_err(damaged)?)?;
                }
                if frame == 0 {
                    // A full resync image: nothing before it counts.
                    self.seen.clear();
                    self.commits.clear();
                }
                self.commit(CommitAt { scn: end, time_us }, database_pages);
            }
            _ => {}
        }
        Ok(())
    }

    fn take_vector(&mut self, vector: &PageVector<'_>) -> Result<(), String> {
        let page_no = vector.page_no;
        // A full resync image voids all that was seen before.
        let is_new = vector.from_zeros || !self.seen.contains_key(&page_no);
        let is_first = self.pending_pages.insert(page_no) && is_new;
        let first = if is_first { Some(self.look_at(vector)?) } else { None };
        self.pending.push((page_no, vector.sum_after, first));
        Ok(())
    }

    /// Returns what the file holds of a page, and whether that is the image before its first change.
    fn look_at(&mut self, vector: &PageVector<'_>) -> Result<Seen, String> {
        let failed = |error| format!("page {} cannot be read: {error}", vector.page_no);
        let (content, is_known) = match self.pages.read(vector.page_no, &mut self.image).map_err(failed)? {
            PageFound::There => {
                let content = page_sum(vector.page_no, &self.image);
                let is_start = !vector.from_zeros
                    && apply_ranges(vector.ranges, &mut self.image).is_ok()
                    && page_sum(vector.page_no, &self.image) == vector.sum_after;
                (Some(content), is_start)
            }
            PageFound::Absent | PageFound::Unknown => (None, vector.from_zeros),
        };
        Ok(Seen { content, is_known, newest: vector.sum_after, missing: None })
    }

    fn commit(&mut self, at: CommitAt, database_pages: PageNo) {
        for (page_no, checksum, first) in self.pending.drain(..) {
            let found = self.seen.entry(page_no);
            let seen = match first {
                Some(first) => found.or_insert(first),
                None => match found {
                    std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
                    std::collections::hash_map::Entry::Vacant(_) => continue,
                },
            };
            seen.newest = checksum;
            if seen.content == Some(checksum) {
                (seen.is_known, seen.missing) = (true, None);
            } else {
                seen.missing.get_or_insert(at.scn);
            }
        }
        self.pending_pages.clear();
        self.commits.push(at);
        self.database_pages = database_pages;
    }

    /// Returns the result; `from`: where the redo that was taken begins.
    pub fn finish(self, from: Scn) -> Divergence {
        let (mut found, mut at_least, mut at_most) =
            (Divergence { from, ..Divergence::default() }, None, None);
        let mut pages: Vec<_> =
            self.seen.iter().filter(|(page_no, _)| **page_no <= self.database_pages).collect();
        pages.sort_unstable_by_key(|(page_no, _)| **page_no);
        let earlier = |known: Option<Scn>, scn: Option<Scn>| match (known, scn) {
            (Some(known), Some(scn)) => Some(known.min(scn)),
            (known, scn) => known.or(scn),
        };
        for (page_no, seen) in pages {
            let (count, named) = match (seen.content == Some(seen.newest), seen.is_known) {
                (true, _) => {
                    found.newest += 1;
                    continue;
                }
                (false, true) => {
                    at_least = earlier(at_least, seen.missing);
                    (&mut found.older, &mut found.older_pages)
                }
                (false, false) => (&mut found.unexplained, &mut found.unexplained_pages),
            };
            at_most = earlier(at_most, seen.missing);
            *count += 1;
            if named.len() < NAMED_MAX {
                named.push(*page_no);
            }
        }
        let since = |scn: Option<Scn>| {
            let lacking: Vec<_> =
                self.commits.iter().filter(|at| scn.is_some_and(|scn| at.scn >= scn)).collect();
            Commits { number: lacking.len() as u64, first: lacking.first().map(|at| **at) }
        };
        found.commits = Commits { number: self.commits.len() as u64, first: self.commits.first().copied() };
        found.last = self.commits.last().copied();
        (found.lacks_at_least, found.lacks_at_most) = (since(at_least), since(at_most));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_format::RecordBuilder;

    const ID: DatabaseId = DatabaseId(1);
    const BYTES: usize = 512;
    type Content = HashMap<PageNo, Vec<u8>>;

    struct Memory(Content);

    impl Pages for Memory {
        fn read(&mut self, page_no: PageNo, image: &mut [u8]) -> std::io::Result<PageFound> {
            Ok(self.0.get(&page_no).map_or(PageFound::Absent, |page| {
                image.copy_from_slice(page);
                PageFound::There
            }))
        }
    }

    /// Commits 1 to 4, each of page 1 and one more page, and the states before and after each commit.
    fn model() -> (Vec<Vec<u8>>, Vec<Content>) {
        let page = |number: u32| vec![number as u8; BYTES];
        let mut states: Vec<Content> = vec![(1..=6).map(|number| (number, page(number))).collect()];
        let mut redo = Vec::new();
        for commit in 1..=4u32 {
            let mut state = states[states.len() - 1].clone();
            let mut bytes = Vec::new();
            let mut record = RecordBuilder::commit(&mut bytes, ID, u64::from(commit) * 10, 6, commit);
            for page_no in [1, commit + 1] {
                let before = state[&page_no].clone();
                let mut after = before.clone();
                after[commit as usize * 8..][..4].copy_from_slice(&(commit * 7).to_le_bytes());
                record.vector(page_no, Some(&before), &after, page_sum(page_no, &after), &mut Vec::new());
                state.insert(page_no, after);
            }
            record.finish();
            redo.push(bytes);
            states.push(state);
        }
        (redo, states)
    }

    fn compared(content: &Content) -> Divergence {
        let (redo, _) = model();
        let pages = Memory(content.clone());
        let mut comparison = Comparison::new(ID, PageSize::new(BYTES as u32).unwrap(), Scn::ZERO, pages);
        for (index, record) in redo.iter().enumerate() {
            comparison.take(record, Scn(index as u64 + 1)).unwrap();
        }
        comparison.finish(Scn(1))
    }

    fn numbers(found: &Divergence) -> (u64, u64) {
        (found.lacks_at_least.number, found.lacks_at_most.number)
    }

    #[test]
    fn an_earlier_state_lacks_the_commits_since_then() {
        let (_, states) = model();
        for (held, state) in states.iter().enumerate() {
            let found = compared(state);
            assert_eq!(numbers(&found), (4 - held as u64, 4 - held as u64), "{held} commits are in the file");
            assert_eq!(found.unexplained, 0);
        }
        let first = compared(&states[2]).lacks_at_least.first;
        assert_eq!(first, Some(CommitAt { scn: Scn(3), time_us: 30 }));
    }

    #[test]
    fn unexplained_page_leaves_the_missing_commits_uncertain() {
        let (_, states) = model();
        let mut state = states[4].clone();
        state.insert(3, vec![0xEE; BYTES]);
        let found = compared(&state);
        // Commit 2 was the only one that changed page 3.
        assert_eq!(numbers(&found), (0, 3));
        assert_eq!((found.unexplained_pages, found.newest), (vec![3], 4));
    }

    #[test]
    fn unrelated_database_may_lack_every_commit() {
        let found = compared(&(1..=6).map(|number| (number, vec![0xAA; BYTES])).collect());
        assert_eq!(numbers(&found), (0, 4));
        assert_eq!((found.newest, found.unexplained), (0, 5));
    }
}
