//! Collects commits of one database from redo into one SQLite transaction.

use crate::ApplyError;
use crate::dirty_pages::{DirtyPages, PageMap, Slot};
use crate::standby_file::StandbyFile;
use standfast_format::{PageVector, Vectors, apply_ranges, page_sum};
use standfast_io::fault::{self, Fault};
use standfast_types::{PageNo, Scn};

/// Commits that are in the dirty-page map ([`DirtyPages`]), or already in the open SQLite transaction, but not committed
/// there.
///
/// The content of a page before its first vector here is read from the database, unless the database was truncated
/// below the page meanwhile: then it is zeros, like a new page of the primary.
///
/// The map passed in holds pages of this batch only, and loses them in between only to [`Batch::spill`].
#[derive(Default)]
pub struct Batch {
    /// Size of the database after the last commit of the batch, in pages.
    pages: u32,
    /// Smallest size since the batch began. Pages of the file beyond it are void.
    void_beyond: u32,
    highest: PageNo,
    commits: u64,
    last_commit: Scn,
    /// Pages written into the open transaction, with the checksum that they must have at its end and the last commit of
    /// each.
    spilled: PageMap<(u32, Scn)>,
    /// Page 1 when the map is emptied before the end: it must be written last.
    first: Option<(Vec<u8>, u32, Scn)>,
    replaced: bool,
}

impl Batch {
    /// Returns the number of commits in the batch.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Returns the SCN of the last commit in the batch.
    pub fn last_commit(&self) -> Scn {
        self.last_commit
    }

    /// Prepares for the vectors of another commit.
    ///
    /// # Errors
    /// When SQLite cannot open a transaction.
    pub fn begin_commit(
        &mut self,
        file: &mut StandbyFile,
        dirty_pages: &mut DirtyPages,
        replaces_all: bool,
    ) -> Result<(), ApplyError> {
        if self.commits == 0 {
            // The transaction that will write pages also reads them, so that it takes its locks once.
            file.begin()?;
            *self = Batch { pages: file.pages(), void_beyond: file.pages(), ..Batch::default() };
        }
        if replaces_all {
            dirty_pages.clear(file.page_size().bytes());
            self.spilled.clear();
            self.first = None;
            (self.void_beyond, self.highest, self.replaced) = (0, 0, true);
        }
        self.commits += 1;
        Ok(())
    }

    /// Applies vectors to the page images; `scn` is the end of their record.
    ///
    /// # Errors
    /// When a page cannot be read, or the vectors make no sense.
    pub fn take(
        &mut self,
        vectors: Vectors<'_>,
        scn: Scn,
        file: &StandbyFile,
        dirty_pages: &mut DirtyPages,
    ) -> Result<(), ApplyError> {
        for vector in vectors {
            let vector = vector.map_err(|source| ApplyError::Redo { scn, source })?;
            if vector.page_no != file.lock_page() {
                self.take_one(&vector, scn, file, dirty_pages)?;
            }
        }
        Ok(())
    }

    fn take_one(
        &mut self,
        vector: &PageVector<'_>,
        scn: Scn,
        file: &StandbyFile,
        dirty_pages: &mut DirtyPages,
    ) -> Result<(), ApplyError> {
        let page_no = vector.page_no;
        let image = match dirty_pages.touch(page_no, vector.sum_after, scn) {
            Ok(image) => {
                if vector.from_zeros {
                    image.fill(0);
                }
                image
            }
            Err(image) => {
                self.highest = self.highest.max(page_no);
                if vector.from_zeros || !self.read_before(page_no, file, image)? {
                    image.fill(0);
                }
                image
            }
        };
        apply_ranges(vector.ranges, image).map_err(|source| ApplyError::Redo { scn, source })
    }

    fn read_before(&self, page_no: PageNo, file: &StandbyFile, image: &mut [u8]) -> Result<bool, ApplyError> {
        if page_no == 1
            && let Some((first, ..)) = &self.first
        {
            image.copy_from_slice(first);
            return Ok(true);
        }
        if page_no <= self.void_beyond || self.spilled.contains_key(&page_no) {
            return file.read_page(page_no, image);
        }
        Ok(false)
    }

    /// Ends the commit at `scn`, which leaves the database `pages` long.
    pub fn end_commit(&mut self, pages: u32, scn: Scn, dirty_pages: &mut DirtyPages) {
        if pages < self.highest {
            dirty_pages.cut(pages);
            self.spilled.retain(|page_no, _| *page_no <= pages);
            self.highest = pages;
        }
        self.pages = pages;
        self.void_beyond = self.void_beyond.min(pages);
        self.last_commit = scn;
    }

    /// Moves the pages of the map into the open SQLite transaction, where no reader sees them before [`Batch::finish`].
    ///
    /// # Errors
    /// When SQLite cannot take the pages.
    pub fn spill(&mut self, file: &mut StandbyFile, dirty_pages: &mut DirtyPages) -> Result<(), ApplyError> {
        dirty_pages.sort();
        file.write_pages(later_pages(dirty_pages))?;
        for slot in dirty_pages.slots().iter().filter(|slot| slot.page_no > 1) {
            self.spilled.insert(slot.page_no, (slot.sum_after, slot.scn));
        }
        if let Some(slot) = dirty_pages.find(1) {
            self.first = Some((dirty_pages.image(slot).to_vec(), slot.sum_after, slot.scn));
        }
        dirty_pages.clear(file.page_size().bytes());
        file.see_pages(self.highest)
    }

    /// Verifies every page and commits; returns the number of pages written. The batch is empty afterwards.
    ///
    /// # Errors
    /// `Diverged` when a page differs from the primary's; nothing is committed then. Otherwise when SQLite fails.
    pub fn finish(
        &mut self,
        file: &mut StandbyFile,
        dirty_pages: &mut DirtyPages,
        name: &str,
    ) -> Result<u64, ApplyError> {
        if self.commits == 0 {
            return Ok(0);
        }
        dirty_pages.sort();
        let diverged = |slot: Slot, found| ApplyError::Diverged {
            name: name.to_owned(),
            page: slot.page_no,
            scn: slot.scn,
            expected: slot.sum_after,
            found,
        };
        for slot in dirty_pages.slots() {
            verify(slot.page_no, dirty_pages.image(*slot), slot.sum_after)
                .map_err(|found| diverged(*slot, found))?;
        }
        file.write_pages(later_pages(dirty_pages))?;
        self.write_zeros(file, dirty_pages)?;
        let mut page = vec![0; if self.spilled.is_empty() { 0 } else { file.page_size().bytes() }];
        for (page_no, (sum, scn)) in &self.spilled {
            if dirty_pages.find(*page_no).is_none() {
                file.read_page(*page_no, &mut page)?;
                verify(*page_no, &page, *sum)
                    .map_err(|found| self.diverged(name, *page_no, *scn, *sum, found))?;
            }
        }
        let first = match (dirty_pages.find(1), &self.first) {
            (Some(slot), _) => Some(dirty_pages.image(slot)),
            (None, Some((first, sum, scn))) => {
                verify(1, first, *sum).map_err(|found| self.diverged(name, 1, *scn, *sum, found))?;
                Some(first.as_slice())
            }
            (None, None) => None,
        };
        strike(Fault::ApplyCommit, name)?;
        file.commit(first, self.pages)?;
        let written = dirty_pages.slots().len() as u64 + self.spilled.len() as u64;
        let replaced = self.replaced;
        *self = Batch::default();
        dirty_pages.clear(file.page_size().bytes());
        strike(Fault::ApplyCommitted, name)?;
        if replaced {
            file.reopen()?;
        }
        Ok(written)
    }

    fn diverged(&self, name: &str, page: PageNo, scn: Scn, expected: u32, found: u32) -> ApplyError {
        ApplyError::Diverged { name: name.to_owned(), page, scn, expected, found }
    }

    /// Writes zeros to pages of the file that were truncated and came back without a vector, as on the primary, and to
    /// the last page of a database that grew without a vector for it.
    fn write_zeros(&self, file: &StandbyFile, dirty_pages: &DirtyPages) -> Result<(), ApplyError> {
        let zeros = vec![0; file.page_size().bytes()];
        let void = self.void_beyond + 1..=self.pages.min(file.seen_pages());
        let unwritten = |page_no: &PageNo| {
            *page_no > 1
                && *page_no != file.lock_page()
                && dirty_pages.find(*page_no).is_none()
                && !self.spilled.contains_key(page_no)
        };
        let last = (self.pages > file.seen_pages()).then_some(self.pages);
        file.write_pages(void.chain(last).filter(unwritten).map(|page_no| (page_no, zeros.as_slice())))
    }
}

fn later_pages(dirty_pages: &DirtyPages) -> impl Iterator<Item = (PageNo, &[u8])> {
    dirty_pages
        .slots()
        .iter()
        .filter(|slot| slot.page_no > 1)
        .map(|slot| (slot.page_no, dirty_pages.image(*slot)))
}

fn verify(page_no: PageNo, image: &[u8], expected: u32) -> Result<(), u32> {
    match page_sum(page_no, image) {
        found if found == expected => Ok(()),
        found => Err(found),
    }
}

/// Fails where a test has armed `fault`; see [`standfast_io::fault`].
fn strike(fault: Fault, name: &str) -> Result<(), ApplyError> {
    fault::check(fault).map_err(|source| ApplyError::Io {
        name: name.to_owned(),
        doing: "committing",
        source,
    })
}
