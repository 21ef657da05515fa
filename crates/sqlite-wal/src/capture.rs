//! Capture: new frames of a database's WAL become redo records.
//!
//! Frames `captured+1 ..= mxFrame` of the published wal-index are the truth; every one of them belongs to a
//! committed transaction, because mxFrame is always a commit frame. Each frame becomes a page vector against
//! the page's image before it: the newest captured frame of that page in this WAL generation, else the
//! database file. That image is still there, because
//! - frames are immutable until the log is reset, and
//! - only the instance moves frames into the database file, and only those that are captured (`guard`).
//!
//! A page that did not exist before is coded against zeros. When a commit makes the database larger without
//! writing all the new pages (SQLite skips free ones), what a reader would see there is recorded too, so
//! that a standby is identical in every byte.

use crate::first_pages::FirstPages;
use crate::page_map::PageMap;
use crate::recent_pages::RecentPages;
use crate::vfs_file::VfsFile;
use crate::wal_index::{WalIndexHeader, WalIndexView};
use crate::wal_layout::{FrameHead, frame_offset, image_offset};
use standfast_format::{RecordBuilder, page_sum};
use standfast_io::fault::{self, Fault};
use standfast_types::{
    DatabaseId, PIECE_BYTES, PageNo, PageSize, ReleasePosition, WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES,
    WalHeader, WalPosition, WalSalts,
};

/// A page that has changed within so many frames is likely to change soon again.
const HOT_WITHIN: u32 = 256;

/// So many pages a commit may leave out of a database that it makes larger without its frame being looked at.
const SKIPPED_UNCHECKED: usize = 4096;

/// Why a database can no longer be captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file system failed.
    #[error("cannot read the write-ahead log: {0}")]
    Io(#[from] std::io::Error),
    /// The log does not hold what its index says.
    #[error(
        "frame {frame} of the write-ahead log does not belong to its generation\nhint: a process without Standfast has reset the log; the database will be copied afresh"
    )]
    ForeignFrame {
        /// The frame.
        frame: u32,
    },
    /// A number in the wal-index, or in a frame that it publishes, cannot be.
    #[error(
        "the wal-index does not fit the write-ahead log: {what}\nhint: a process has written into the -shm file; end all processes that have the database open and restart the instance, so that the index is made from the log again"
    )]
    BadIndex {
        /// Which number, and what it should be.
        what: String,
    },
}

/// A commit found by capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitMark {
    /// Database changed.
    pub database: DatabaseId,
    /// End of its commit record, as an offset into the output buffer.
    pub end: usize,
    /// What sessions wait for.
    pub release: ReleasePosition,
}

/// What one call of [`Capture::capture`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureOutcome {
    /// Everything published is captured.
    UpToDate,
    /// The output reached its limit; call again.
    More,
    /// A writer is between the two copies of the header, or died there.
    Torn,
    /// A new WAL generation that no session has announced yet.
    Unannounced,
}

/// The WAL generation that sessions stand for with their epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Generations seen.
    pub number: u32,
    /// Salts in the byte order of the file.
    pub raw_salts: [u32; 2],
}

/// Capture of one database.
pub struct Capture {
    database: DatabaseId,
    page_bytes: usize,
    wal: VfsFile,
    file: VfsFile,
    index: WalIndexView,
    salts: WalSalts,
    frame: u32,
    previous: Option<WalPosition>,
    generation_recorded: bool,
    /// A log was entered that the instance has written anew.
    rewritten_entered: bool,
    /// First frame without a checksum since the last [`Capture::take_unsummed`].
    unsummed: Option<u32>,
    first_pages: FirstPages,
    pages: PageMap,
    database_pages: u32,
    /// False until the first capture after a start is complete: a process without Standfast may have moved
    /// frames into the file that were not captured, so the file is no base for differences then.
    file_is_base: bool,
    /// The last captured commit frame: `frame`, unless a transaction has been captured in part.
    committed_frame: u32,
    /// Pages beyond the database's old end written by the transaction being captured.
    new_pages: Vec<PageNo>,
    chunk: Vec<u8>,
    recent: RecentPages,
    /// Of each frame of the chunk, whether its page is likely to change again soon.
    is_hot: Vec<bool>,
    before: Vec<u8>,
    scratch: Vec<u8>,
}

/// That the numbers in `header`, which was read under the write lock, fit the log: its last frame is there, and ends a
/// transaction that leaves as many pages as the index says.
///
/// # Errors
/// `BadIndex`, and when the log cannot be read.
pub fn check_index(
    header: &WalIndexHeader,
    wal: &mut VfsFile,
    page_size: PageSize,
) -> Result<(), CaptureError> {
    if header.frames() == 0 {
        return Ok(());
    }
    let bad = |what: String| Err(CaptureError::BadIndex { what });
    let (frame, pages) = (header.frames(), header.database_pages());
    if header.page_size() != Some(page_size) {
        return bad(format!("its page size is not that of the database, {} bytes", page_size.bytes()));
    }
    let mut head = [0; WAL_FRAME_HEADER_BYTES];
    if !wal.read_at(&mut head, frame_offset(frame, page_size.bytes()))? {
        return bad(format!("it ends at frame {frame}, and the log before"));
    }
    let head = FrameHead::of(&head);
    let known = head.salts == header.salts() || head.is_unsummed();
    if !known || head.commit_pages != pages {
        return bad(format!(
            "it says that the database has {pages} pages after frame {frame}, and that frame says {}",
            head.commit_pages
        ));
    }
    Ok(())
}

/// A transaction or a piece of one within the chunk.
struct Span {
    /// Index of its first frame in the chunk.
    first: usize,
    /// Frames.
    count: usize,
    /// Database size in pages when the last frame is a commit frame.
    commit_pages: Option<u32>,
}

impl Capture {
    /// Starts at `position`, which the redo already holds; `database_pages` is the database's size there.
    /// The files and the index belong to the same database, whose connection stays open.
    ///
    /// # Errors
    /// When the frames up to `position` cannot be read.
    pub fn new(
        database: DatabaseId,
        page_size: PageSize,
        wal: VfsFile,
        file: VfsFile,
        index: WalIndexView,
        position: WalPosition,
        database_pages: u32,
    ) -> Result<Capture, CaptureError> {
        let mut capture = Capture {
            database,
            page_bytes: page_size.bytes(),
            wal,
            file,
            index,
            salts: position.salts,
            frame: position.frame,
            previous: None,
            generation_recorded: false,
            rewritten_entered: false,
            unsummed: None,
            first_pages: FirstPages::default(),
            pages: PageMap::default(),
            database_pages,
            file_is_base: false,
            committed_frame: position.frame,
            new_pages: Vec::new(),
            chunk: Vec::new(),
            recent: RecentPages::new(page_size.bytes()),
            is_hot: Vec::new(),
            before: vec![0; page_size.bytes()],
            scratch: Vec::new(),
        };
        capture.load_pages()?;
        Ok(capture)
    }

    /// Who writes logs anew says in `first_pages` what they begin with.
    pub fn told_by(mut self, first_pages: FirstPages) -> Capture {
        self.first_pages = first_pages;
        self
    }

    /// Learns which pages the captured frames of this generation hold.
    ///
    /// The log may have been restarted meanwhile: a reader of a log that is in the database file as a whole does not keep
    /// a writer from it. Then all the captured frames are in the file, and the new generation has not been captured.
    fn load_pages(&mut self) -> Result<(), CaptureError> {
        let loaded = self.load_pages_of_generation();
        if matches!(loaded, Err(CaptureError::ForeignFrame { .. }))
            && self.index.settled_header().is_some_and(|header| header.salts() != self.salts)
        {
            self.pages.clear();
            self.unsummed = None;
            return Ok(());
        }
        loaded
    }

    fn load_pages_of_generation(&mut self) -> Result<(), CaptureError> {
        self.pages.clear();
        self.recent.clear();
        for frame in 1..=self.frame {
            let head = self.read_frame_head(frame)?;
            self.pages.insert(head.page_no, frame);
        }
        Ok(())
    }

    fn read_frame_head(&mut self, frame: u32) -> Result<FrameHead, CaptureError> {
        let mut header = [0; WAL_FRAME_HEADER_BYTES];
        let offset = frame_offset(frame, self.page_bytes);
        let complete = self.wal.read_at(&mut header, offset)?;
        let head = FrameHead::of(&header);
        if !complete {
            return Err(CaptureError::ForeignFrame { frame });
        }
        self.accept(frame, &head)?;
        Ok(head)
    }

    /// That a frame below the published end belongs to this generation. One without a checksum does, as any other that
    /// the index publishes; that it lacks something is remembered.
    fn accept(&mut self, frame: u32, head: &FrameHead) -> Result<(), CaptureError> {
        if head.is_unsummed() {
            self.unsummed = Some(self.unsummed.map_or(frame, |first| first.min(frame)));
        } else if head.salts != self.salts || head.page_no == 0 {
            return Err(CaptureError::ForeignFrame { frame });
        }
        Ok(())
    }

    /// Database captured.
    pub fn database(&self) -> DatabaseId {
        self.database
    }

    /// What is captured.
    pub fn position(&self) -> WalPosition {
        WalPosition { salts: self.salts, frame: self.frame }
    }

    /// Size of the database in pages after the last captured commit.
    pub fn database_pages(&self) -> u32 {
        self.database_pages
    }

    /// The published header, when nobody is writing it.
    pub fn header(&self) -> Option<WalIndexHeader> {
        self.index.header()
    }

    /// Whether these, in the byte order of the file, are the salts of a generation that was captured here, or of none yet.
    pub fn knows(&self, raw_salts: [u32; 2]) -> bool {
        let [first, second] = raw_salts.map(u32::from_be);
        let salts = WalSalts(first, second);
        let before = self.previous.map(|previous| previous.salts);
        salts == WalSalts::default() || salts == self.salts || before == Some(salts)
    }

    /// Whether everything that `header` publishes is captured.
    pub fn holds(&self, header: &WalIndexHeader) -> bool {
        header.frames() == 0 || header.position() == self.position()
    }

    /// Everything up to `position` is in the redo by other means (recovery, a baseline). The next records
    /// say so with a WAL generation record.
    ///
    /// # Errors
    /// When the frames up to `position` cannot be read.
    pub fn adopt(&mut self, position: WalPosition, database_pages: u32) -> Result<(), CaptureError> {
        self.salts = position.salts;
        self.frame = position.frame;
        self.previous = None;
        self.generation_recorded = false;
        self.database_pages = database_pages;
        self.file_is_base = false;
        self.committed_frame = position.frame;
        self.new_pages.clear();
        self.load_pages()
    }

    /// Makes sync of the WAL available to whoever moves the checkpoint position.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn sync_wal(&mut self) -> Result<(), CaptureError> {
        Ok(self.wal.sync()?)
    }

    /// Appends the records of what is published and not captured to `out` and a mark per commit to `marks`,
    /// until `out` holds `limit` bytes or more. A transaction may be split over calls; nothing else of this
    /// database is appended in between.
    ///
    /// # Errors
    /// See [`CaptureError`]; the database must then be copied afresh.
    pub fn capture(
        &mut self,
        epoch: Epoch,
        now_us: u64,
        limit: usize,
        out: &mut Vec<u8>,
        marks: &mut Vec<CommitMark>,
    ) -> Result<CaptureOutcome, CaptureError> {
        let Some(header) = self.index.header() else { return Ok(CaptureOutcome::Torn) };
        if header.salts() != self.salts {
            if header.frames() == 0 {
                // Reset, and nothing written since: all that was in the old generation is captured.
                return Ok(CaptureOutcome::UpToDate);
            }
            if header.raw_salts() != epoch.raw_salts {
                return Ok(CaptureOutcome::Unannounced);
            }
            self.enter_generation(&header)?;
        } else if header.frames() > self.frame && header.raw_salts() != epoch.raw_salts {
            return Ok(CaptureOutcome::Unannounced);
        }
        let last = header.frames();
        if header.salts() == self.salts && last < self.frame {
            let what = format!("it ends at frame {last}, and the frames up to {} were committed", self.frame);
            return Err(CaptureError::BadIndex { what });
        }
        while self.frame < last {
            if out.len() >= limit {
                return Ok(CaptureOutcome::More);
            }
            if !self.generation_recorded {
                self.anchor(out);
            }
            self.capture_chunk(last, epoch, now_us, out, marks)?;
        }
        if self.in_transaction() {
            let what = format!("frame {last}, the last one that it publishes, ends no transaction");
            return Err(CaptureError::BadIndex { what });
        }
        self.file_is_base = true;
        if self.rewritten_entered && !self.generation_recorded {
            self.anchor(out);
        }
        Ok(CaptureOutcome::UpToDate)
    }

    /// Whether a log was entered since the last call that begins with what is captured already.
    pub fn take_rewritten_entered(&mut self) -> bool {
        std::mem::take(&mut self.rewritten_entered)
    }

    /// The first frame seen since the last call that was committed without salts and checksum. Before anybody relies on
    /// the log without its index it has to be completed, see [`Guard::complete_frames`](crate::guard::Guard::complete_frames).
    pub fn take_unsummed(&mut self) -> Option<u32> {
        self.unsummed.take()
    }

    fn enter_generation(&mut self, header: &WalIndexHeader) -> Result<(), CaptureError> {
        let left = WalPosition { salts: self.salts, frame: self.frame };
        // A crash between the reset and the first new header: recovery brings the old generation back, all
        // of which is captured and in the database file.
        let captured =
            self.previous.filter(|previous| previous.salts == header.salts()).map_or(0, |p| p.frame);
        self.previous = Some(left);
        self.salts = header.salts();
        self.frame = captured;
        self.committed_frame = captured;
        self.generation_recorded = false;
        self.pages.clear();
        self.recent.clear();
        self.unsummed = None;
        if captured == 0 && self.salts.is_rewritten_of(left.salts) {
            self.enter_rewritten_log(header.raw_salts())?;
        }
        Ok(())
    }

    /// The instance has written the log anew after everything was captured: its first transaction is no news.
    fn enter_rewritten_log(&mut self, raw_salts: [u32; 2]) -> Result<(), CaptureError> {
        match self.first_pages.take(raw_salts) {
            Some(page_nos) => {
                self.frame = page_nos.len() as u32;
                self.pages.extend(page_nos.into_iter().zip(1..));
            }
            None => loop {
                let frame = self.frame + 1;
                let head = self.read_frame_head(frame)?;
                self.pages.insert(head.page_no, frame);
                self.frame = frame;
                if head.commit_pages != 0 {
                    break;
                }
            },
        }
        self.committed_frame = self.frame;
        self.rewritten_entered = true;
        Ok(())
    }

    /// Appends a record that says where capture stands, for recovery to start from.
    pub fn anchor(&mut self, out: &mut Vec<u8>) {
        let restart = !self.generation_recorded;
        self.generation_recorded = true;
        let captured = WalPosition { salts: self.salts, frame: self.committed_frame };
        RecordBuilder::wal_generation(out, self.database, captured, self.database_pages, restart);
    }

    /// Whether a transaction has been captured in part.
    pub fn in_transaction(&self) -> bool {
        self.frame != self.committed_frame
    }

    fn frame_bytes(&self) -> usize {
        WAL_FRAME_HEADER_BYTES + self.page_bytes
    }

    /// Reads as many frames as fit a record and captures the whole transactions among them, or one piece of
    /// a transaction that does not fit.
    fn capture_chunk(
        &mut self,
        last: u32,
        epoch: Epoch,
        now_us: u64,
        out: &mut Vec<u8>,
        marks: &mut Vec<CommitMark>,
    ) -> Result<(), CaptureError> {
        fault::check(Fault::Capture)?;
        let first = self.frame + 1;
        let frames = ((PIECE_BYTES / self.frame_bytes()).max(1)).min((last - self.frame) as usize);
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.resize(frames * self.frame_bytes(), 0);
        let offset = frame_offset(first, self.page_bytes);
        let complete = self.wal.read_at(&mut chunk, offset)?;
        if !complete {
            self.chunk = chunk;
            return Err(CaptureError::ForeignFrame { frame: first });
        }
        self.is_hot.clear();
        let mut at = 0;
        while at < frames {
            let span = self.next_span(&chunk, first, at, frames)?;
            let ends_transaction = span.commit_pages.is_some();
            if !ends_transaction && at > 0 {
                break;
            }
            self.capture_span(&chunk, first, &span, epoch, now_us, out, marks)?;
            at += span.count;
        }
        self.keep_newest(&chunk, first, at);
        self.chunk = chunk;
        Ok(())
    }

    /// Keeps the newest image of every hot page in the first `count` frames of the chunk.
    fn keep_newest(&mut self, chunk: &[u8], first: u32, count: usize) {
        let frames = chunk.chunks_exact(self.frame_bytes()).take(count);
        for ((frame, bytes), is_hot) in (first..).zip(frames).zip(&self.is_hot) {
            let page_no = page_no_of(bytes);
            if *is_hot && self.pages.get(&page_no) == Some(&frame) {
                self.recent.keep(page_no, frame, &bytes[WAL_FRAME_HEADER_BYTES..]);
            }
        }
    }

    /// Frames from `at` up to and including the next commit frame, or all of the chunk.
    fn next_span(
        &mut self,
        chunk: &[u8],
        first: u32,
        at: usize,
        frames: usize,
    ) -> Result<Span, CaptureError> {
        for index in at..frames {
            let header = self.frame_header(chunk, first, index)?;
            if header.commit_pages != 0 {
                return Ok(Span {
                    first: at,
                    count: index + 1 - at,
                    commit_pages: Some(header.commit_pages),
                });
            }
        }
        Ok(Span { first: at, count: frames - at, commit_pages: None })
    }

    /// `first`: the frame with which the chunk begins.
    fn frame_header(&mut self, chunk: &[u8], first: u32, index: usize) -> Result<FrameHead, CaptureError> {
        let head = FrameHead::of(&chunk[index * self.frame_bytes()..]);
        self.accept(first + index as u32, &head)?;
        Ok(head)
    }

    #[allow(clippy::too_many_arguments)]
    fn capture_span(
        &mut self,
        chunk: &[u8],
        chunk_first: u32,
        span: &Span,
        epoch: Epoch,
        now_us: u64,
        out: &mut Vec<u8>,
        marks: &mut Vec<CommitMark>,
    ) -> Result<(), CaptureError> {
        let end_frame = chunk_first + (span.first + span.count) as u32 - 1;
        for index in span.first..span.first + span.count {
            let page_no = page_no_of(&chunk[index * self.frame_bytes()..]);
            if page_no > self.database_pages {
                self.new_pages.push(page_no);
            }
        }
        if let Some(pages) = span.commit_pages {
            self.check_growth(chunk, chunk_first, span, pages)?;
            self.capture_skipped_pages(pages, out)?;
        }
        let mut builder = match span.commit_pages {
            Some(pages) => RecordBuilder::commit(out, self.database, now_us, pages, end_frame),
            None => RecordBuilder::change(out, self.database),
        };
        let frame_bytes = self.frame_bytes();
        for index in span.first..span.first + span.count {
            let start = index * frame_bytes;
            let frame = &chunk[start..start + frame_bytes];
            let page_no = page_no_of(frame);
            let after = &frame[WAL_FRAME_HEADER_BYTES..];
            let base = self.base_of(page_no, chunk_first);
            self.is_hot.push(match base {
                Base::Zeros | Base::Chunk(_) => true,
                Base::Wal(frame) => chunk_first + index as u32 - frame <= HOT_WITHIN,
                Base::File => false,
            });
            let before = match base {
                Base::Zeros => None,
                Base::Chunk(index) => {
                    let start = index * frame_bytes + WAL_FRAME_HEADER_BYTES;
                    Some(&chunk[start..start + self.page_bytes])
                }
                Base::Wal(frame) => match self.recent.get(page_no, frame) {
                    Some(image) => Some(image),
                    None => {
                        let offset = image_offset(frame, self.page_bytes);
                        self.wal.read_at(&mut self.before, offset)?;
                        Some(self.before.as_slice())
                    }
                },
                Base::File => {
                    let offset = u64::from(page_no - 1) * self.page_bytes as u64;
                    let whole = self.file.read_at(&mut self.before, offset)?;
                    whole.then_some(self.before.as_slice())
                }
            };
            builder.vector(page_no, before, after, page_sum(page_no, after), &mut self.scratch);
            self.pages.insert(page_no, chunk_first + index as u32);
        }
        builder.finish();
        self.frame = end_frame;
        if let Some(pages) = span.commit_pages {
            self.committed_frame = end_frame;
            self.database_pages = pages;
            self.new_pages.clear();
            let release = ReleasePosition::new(epoch.number, end_frame);
            marks.push(CommitMark { database: self.database, end: out.len(), release });
        }
        Ok(())
    }

    fn base_of(&self, page_no: PageNo, chunk_first: u32) -> Base {
        // Beyond the old end a standby has no page to start from, whatever older frames hold.
        if page_no > self.database_pages {
            return Base::Zeros;
        }
        match self.pages.get(&page_no) {
            Some(frame) if *frame >= chunk_first => Base::Chunk((*frame - chunk_first) as usize),
            Some(frame) => Base::Wal(*frame),
            None if self.file_is_base => Base::File,
            None => Base::Zeros,
        }
    }

    /// A size that leaves out very many pages is believed only of a frame that is what was written: each of those pages
    /// becomes redo.
    fn check_growth(
        &mut self,
        chunk: &[u8],
        chunk_first: u32,
        span: &Span,
        pages: u32,
    ) -> Result<(), CaptureError> {
        let grown = pages.saturating_sub(self.database_pages) as usize;
        if grown.saturating_sub(self.new_pages.len()) <= SKIPPED_UNCHECKED {
            return Ok(());
        }
        let index = span.first + span.count - 1;
        let frame = chunk_first + index as u32;
        let bytes = &chunk[index * self.frame_bytes()..(index + 1) * self.frame_bytes()];
        let head = FrameHead::of(bytes);
        let mut start = [0; WAL_HEADER_BYTES];
        let log = if self.wal.read_at(&mut start, 0)? { WalHeader::of(&start) } else { None };
        let sums = log.map(|log| log.frame_sums(&mut self.wal, frame, frame)).transpose()?;
        // One without a checksum is bounded by what the index says, which was written with it.
        let size = self.index.settled_header().map(|header| header.database_pages());
        let is_what_was_written = if head.is_unsummed() {
            size == Some(pages)
        } else {
            sums.is_some_and(|sums| sums == [head.sum])
        };
        if is_what_was_written {
            return Ok(());
        }
        let what =
            format!("frame {frame} says that the database has {pages} pages, and its checksum is wrong");
        Err(CaptureError::BadIndex { what })
    }

    /// Pages between the old and the new end that the transaction did not write.
    fn capture_skipped_pages(&mut self, commit_pages: u32, out: &mut Vec<u8>) -> Result<(), CaptureError> {
        if commit_pages <= self.database_pages {
            return Ok(());
        }
        self.new_pages.sort_unstable();
        self.new_pages.dedup();
        let written = self.new_pages.iter().filter(|page| **page <= commit_pages).count();
        if written == (commit_pages - self.database_pages) as usize {
            return Ok(());
        }
        let mut image = vec![0; self.page_bytes];
        let written = std::mem::take(&mut self.new_pages);
        for page_no in self.database_pages + 1..=commit_pages {
            if written.binary_search(&page_no).is_ok() {
                continue;
            }
            self.read_page(page_no, &mut image)?;
            let mut builder = RecordBuilder::change(out, self.database);
            builder.vector(page_no, None, &image, page_sum(page_no, &image), &mut self.scratch);
            builder.finish();
        }
        Ok(())
    }

    /// A page as a reader sees it at the captured position.
    fn read_page(&mut self, page_no: PageNo, image: &mut [u8]) -> Result<(), CaptureError> {
        match self.pages.get(&page_no).copied() {
            Some(frame) => {
                let offset = image_offset(frame, self.page_bytes);
                self.wal.read_at(image, offset)?;
            }
            None => {
                let offset = u64::from(page_no - 1) * self.page_bytes as u64;
                self.file.read_at(image, offset)?;
            }
        }
        Ok(())
    }
}

/// The page of a frame whose header has been checked.
fn page_no_of(frame: &[u8]) -> PageNo {
    u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]])
}

/// Where the image of a page before a frame comes from.
enum Base {
    /// It did not exist, or cannot be trusted: code against zeros.
    Zeros,
    /// The frame with this index in the chunk.
    Chunk(usize),
    /// This frame of the WAL.
    Wal(u32),
    /// The database file.
    File,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::VfsFileKind;
    use crate::scene::{Scene, size};

    #[test]
    fn images_of_pages_that_change_often_are_kept_and_no_others() {
        let scene = Scene::moved(1);
        let application = scene.application();
        application.execute_batch("CREATE TABLE hot(n); INSERT INTO hot VALUES(0)").unwrap();
        let header = scene.guard().wal_header().unwrap();
        let epoch = Epoch { number: 1, raw_salts: header.raw_salts() };
        let open = |kind| VfsFile::open(None, &scene.path(), kind).unwrap();
        let (position, pages) = (header.position(), header.database_pages());
        let (wal, file) = (open(VfsFileKind::Wal), open(VfsFileKind::Database));
        let index = scene.guard().wal_index().unwrap();
        let mut capture = Capture::new(DatabaseId(1), size(), wal, file, index, position, pages).unwrap();
        // Whether the image of the page in the last frame is kept.
        let mut change = |sql: &str| {
            application.execute_batch(sql).unwrap();
            let outcome = capture.capture(epoch, 0, usize::MAX, &mut Vec::new(), &mut Vec::new());
            assert_eq!(outcome.unwrap(), CaptureOutcome::UpToDate);
            let last = capture.position().frame;
            let page_no =
                capture.pages.iter().find(|(_, frame)| **frame == last).map(|(page_no, _)| *page_no);
            capture.recent.get(page_no.unwrap(), last).is_some()
        };
        for _ in 0..=HOT_WITHIN {
            assert!(change("UPDATE hot SET n = n + 1"));
        }
        assert!(!change("UPDATE t SET n = n + 1 WHERE id = 1"), "it changed long ago");
        assert!(change("UPDATE t SET n = n + 1 WHERE id = 1"), "and changes again");
    }

    #[test]
    fn who_is_told_what_a_log_begins_with_knows_what_others_read() {
        let mut scene = Scene::moved(2);
        let application = scene.application();
        let first_pages = FirstPages::default();
        let open = |scene: &Scene| {
            let open = |kind| VfsFile::open(None, &scene.path(), kind).unwrap();
            let (wal, file) = (open(VfsFileKind::Wal), open(VfsFileKind::Database));
            let header = scene.guard().wal_header().unwrap();
            let (position, pages) = (header.position(), header.database_pages());
            let index = scene.guard().wal_index().unwrap();
            Capture::new(DatabaseId(1), size(), wal, file, index, position, pages).unwrap()
        };
        let mut told = open(&scene).told_by(first_pages.clone());
        let mut reads = open(&scene);
        for round in 1..=2 {
            let mut out = [Vec::new(), Vec::new()];
            let mut capture_both = |scene: &Scene| {
                let raw_salts = scene.guard().wal_header().unwrap().raw_salts();
                let epoch = Epoch { number: round, raw_salts };
                for (capture, out) in [&mut told, &mut reads].into_iter().zip(&mut out) {
                    let outcome = capture.capture(epoch, 0, usize::MAX, out, &mut Vec::new());
                    assert_eq!(outcome.unwrap(), CaptureOutcome::UpToDate);
                }
            };
            scene.change_all(&application, 3);
            capture_both(&scene);
            let log = scene.rewrite().unwrap();
            first_pages.put(log.raw_salts, log.page_nos.clone());
            scene.change_all(&application, 1);
            capture_both(&scene);
            assert_eq!(told.pages, reads.pages);
            assert!(told.pages.len() >= 50, "{}", told.pages.len());
            assert_eq!((told.frame, told.committed_frame), (reads.frame, reads.committed_frame));
            assert!(!out[0].is_empty() && out[0] == out[1]);
            assert_eq!(first_pages.take(log.raw_salts), None, "it was used");
            scene.move_frames().unwrap();
        }
        assert!(told.take_rewritten_entered() && reads.take_rewritten_entered());
    }
}
