//! Capture: turns new frames of a database's WAL into redo records.
//!
//! Frames `captured+1 ..= mxFrame` of the published wal-index are the input. Every one of them belongs to a committed
//! transaction, because mxFrame is always a commit frame. Each frame becomes a page vector against the page's image
//! before it: the newest captured frame of that page in this WAL generation, else the database file. That image is
//! still there, because
//! - frames are immutable until the WAL is reset, and
//! - only the instance backfills frames, and only captured ones (`guard`).
//!
//! A page that did not exist before is coded against zeros. When a commit makes the database larger without writing all
//! the new pages (SQLite skips free ones), capture also records what a reader would see there, so that a standby is
//! identical in every byte.
//!
//! [`Capture::capture`] reads the frames a chunk at a time: `generation` finds where the WAL stands, `frames` reads and
//! checks them, `index_check` checks what the index says of them, and `vectors` makes records of their pages.

mod frames;
mod generation;
mod index_check;
mod vectors;

pub use index_check::check_index;

use crate::first_pages::FirstPages;
use crate::page_map::PageMap;
use crate::recent_pages::RecentPages;
use crate::vfs_file::VfsFile;
use crate::wal_index::{WalIndexHeader, WalIndexView};
use crate::wal_layout::frame_offset;
use standfast_io::fault::{self, Fault};
use standfast_types::{
    DatabaseId, FULL_RECORD_BYTES, Hint, PageNo, PageSize, ReleasePosition, WalPosition, WalSalts,
};
use std::borrow::Cow;

/// Why a database can no longer be captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("cannot read the write-ahead log: {0}")]
    Io(#[from] std::io::Error),
    /// The WAL does not hold what its index says.
    #[error("frame {frame} of the write-ahead log does not belong to its generation")]
    ForeignFrame { frame: u32 },
    /// A number in the wal-index, or in a frame that it publishes, is impossible.
    #[error("the wal-index does not fit the write-ahead log: {what}")]
    BadIndex {
        /// Which number, and what it should be.
        what: String,
    },
}

impl Hint for CaptureError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            CaptureError::ForeignFrame { .. } => {
                "a process without Standfast has reset the log; the database will be resynced in full".into()
            }
            CaptureError::BadIndex { .. } => {
                "a process has written into the -shm file; end all processes that have the database open and \
                 restart the instance, so that the index is made from the log again"
                    .into()
            }
            CaptureError::Io(_) => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitMark {
    pub database: DatabaseId,
    /// End of its commit record, as an offset into the output buffer.
    pub end: usize,
    /// The position that sessions wait for.
    pub release: ReleasePosition,
}

/// What one call of [`Capture::capture`] achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureOutcome {
    UpToDate,
    /// The output reached its limit, or other databases come first; call again.
    More,
    /// A writer is between the two copies of the header, or died there.
    Torn,
    /// A new WAL generation whose epoch is not published yet.
    Unannounced,
}

/// The WAL generation that the current epoch stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The number of generations seen.
    pub number: u32,
    /// Salts in the byte order of the file.
    pub raw_salts: [u32; 2],
}

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
    /// Capture has entered a rewritten WAL.
    rewritten_entered: bool,
    /// First frame without a checksum since the last [`Capture::take_unsummed`].
    unsummed: Option<u32>,
    first_pages: FirstPages,
    pages: PageMap,
    database_pages: u32,
    /// False until the first capture after a start is complete: a process without Standfast may have backfilled frames
    /// that were not captured, so until then the file is no base for differences.
    file_is_base: bool,
    /// The last captured commit frame: `frame`, unless a transaction has been captured in part.
    committed_frame: u32,
    /// Pages beyond the database's old end written by the transaction being captured.
    new_pages: Vec<PageNo>,
    /// Of the pages that the transaction being captured adds without writing them, the first that is not in the redo;
    /// `None`: capture is not at its last frames.
    next_skipped: Option<PageNo>,
    chunk: Vec<u8>,
    recent: RecentPages,
    /// For each frame of the chunk, whether its page is likely to change again soon.
    is_hot: Vec<bool>,
    before: Vec<u8>,
    scratch: Vec<u8>,
}

impl Capture {
    /// Starts at `position`, which the redo already holds; `database_pages` is the database's size there. The files and
    /// the index belong to the same database, whose connection stays open.
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
            next_skipped: None,
            chunk: Vec::new(),
            recent: RecentPages::new(page_size.bytes()),
            is_hot: Vec::new(),
            before: vec![0; page_size.bytes()],
            scratch: Vec::new(),
        };
        capture.load_pages()?;
        Ok(capture)
    }

    /// Sets where the pages of rewritten WALs are handed over.
    pub fn reported_by(mut self, first_pages: FirstPages) -> Capture {
        self.first_pages = first_pages;
        self
    }

    pub fn database(&self) -> DatabaseId {
        self.database
    }

    /// The position up to which the WAL is captured.
    pub fn position(&self) -> WalPosition {
        WalPosition { salts: self.salts, frame: self.frame }
    }

    /// Size of the database in pages after the last captured commit.
    pub fn database_pages(&self) -> u32 {
        self.database_pages
    }

    /// The published header; `None` while a writer is writing it.
    pub fn header(&self) -> Option<WalIndexHeader> {
        self.index.header()
    }

    /// Whether everything that `header` publishes is captured.
    pub fn holds(&self, header: &WalIndexHeader) -> bool {
        header.frames() == 0 || header.position() == self.position()
    }

    /// Syncs the WAL, for the caller that moves the checkpoint position.
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
    /// See [`CaptureError`]; the database then needs a full resync.
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
                // Reset, and nothing written since: everything in the old generation is captured.
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
            let done = self.capture_chunk(last, epoch, now_us, out, marks)?;
            debug_assert!(self.frame <= last, "captured beyond frame {last}, the last one that is published");
            if !done {
                return Ok(CaptureOutcome::More);
            }
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

    /// Whether capture has entered a rewritten WAL since the last call. Its first transaction is captured already.
    pub fn take_rewritten_entered(&mut self) -> bool {
        std::mem::take(&mut self.rewritten_entered)
    }

    /// Returns the first frame seen since the last call that was committed without salts and checksum. The WAL has to
    /// be completed before it is used without its index, see
    /// [`Guard::complete_frames`](crate::guard::Guard::complete_frames).
    pub fn take_unsummed(&mut self) -> Option<u32> {
        self.unsummed.take()
    }

    /// Whether a transaction has been captured in part.
    pub fn in_transaction(&self) -> bool {
        self.frame != self.committed_frame || self.next_skipped.is_some()
    }

    /// Reads as many frames as fit a record and captures the complete transactions among them, or one part of a
    /// transaction that does not fit. False when a transaction adds more pages without writing them than are captured
    /// at once.
    fn capture_chunk(
        &mut self,
        last: u32,
        epoch: Epoch,
        now_us: u64,
        out: &mut Vec<u8>,
        marks: &mut Vec<CommitMark>,
    ) -> Result<bool, CaptureError> {
        fault::check(Fault::Capture)?;
        let first = self.frame + 1;
        let frames = ((FULL_RECORD_BYTES / self.frame_bytes()).max(1)).min((last - self.frame) as usize);
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.resize(frames * self.frame_bytes(), 0);
        let offset = frame_offset(first, self.page_bytes);
        let complete = self.wal.read_at(&mut chunk, offset)?;
        if !complete {
            self.chunk = chunk;
            return Err(CaptureError::ForeignFrame { frame: first });
        }
        self.is_hot.clear();
        let (mut at, mut done) = (0, true);
        while at < frames {
            let span = self.next_span(&chunk, first, at, frames)?;
            let ends_transaction = span.commit_pages.is_some();
            if !ends_transaction && at > 0 {
                break;
            }
            if let Some(pages) = span.commit_pages
                && !self.capture_skipped_pages(&chunk, first, &span, pages, out)?
            {
                done = false;
                break;
            }
            self.capture_span(&chunk, first, &span, epoch, now_us, out, marks)?;
            at += span.count;
        }
        self.keep_newest(&chunk, first, at);
        self.chunk = chunk;
        Ok(done)
    }
}
