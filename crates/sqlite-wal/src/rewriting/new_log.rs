//! A WAL in memory: the header and the frames of one transaction, with their checksums. Layout: SQLite's "WAL-mode File
//! Format".

use crate::wal_layout::SALTS;
use standfast_types::WalSum as Sum;
use standfast_types::{PageNo, PageSize, WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES, WalSalts};

/// Bytes of a WAL's header that hold its checkpoint sequence number, and the number of bytes before its checksum, which
/// it covers.
const SEQUENCE: std::ops::Range<usize> = 12..16;
const SUMMED: usize = 24;

pub(crate) struct NewLog {
    page_size: PageSize,
    head: [u8; WAL_HEADER_BYTES],
    raw_salts: [u32; 2],
    sum: Sum,
    /// The page of each frame. The last frame of a page counts.
    page_nos: Vec<PageNo>,
    bytes: Vec<u8>,
}

impl NewLog {
    /// Begins a WAL without frames. `old_head`: the header of the WAL that it follows; `frames`: the expected number of
    /// frames.
    pub fn begin(
        old_head: &[u8; WAL_HEADER_BYTES],
        salts: WalSalts,
        page_size: PageSize,
        frames: usize,
    ) -> NewLog {
        let WalSalts(first, second) = salts;
        let raw_salts = [first.to_be(), second.to_be()];
        let mut head = *old_head;
        let mut sequence = [0; 4];
        sequence.copy_from_slice(&head[SEQUENCE]);
        let sequence = u32::from_be_bytes(sequence).wrapping_add(1);
        head[SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
        head[SALTS].copy_from_slice(raw_salts.map(u32::to_ne_bytes).as_flattened());
        let mut sum = Sum::new(cfg!(target_endian = "big"));
        sum.add(&head[..SUMMED]);
        head[SUMMED..].copy_from_slice(sum.words().map(u32::to_be_bytes).as_flattened());
        let bytes = Vec::with_capacity(frames * (WAL_FRAME_HEADER_BYTES + page_size.bytes()));
        NewLog { page_size, head, raw_salts, sum, page_nos: Vec::with_capacity(frames), bytes }
    }

    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    pub fn head(&self) -> &[u8; WAL_HEADER_BYTES] {
        &self.head
    }

    /// The bytes behind the header.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// In the byte order of the file.
    pub fn raw_salts(&self) -> [u32; 2] {
        self.raw_salts
    }

    /// The checksum of the last frame.
    pub fn frame_checksum(&self) -> [u32; 2] {
        self.sum.words()
    }

    pub fn frames(&self) -> u32 {
        self.page_nos.len() as u32
    }

    pub fn page_nos(&self) -> &[PageNo] {
        &self.page_nos
    }

    /// The page of each frame.
    pub fn into_page_nos(self) -> Vec<PageNo> {
        self.page_nos
    }

    /// Adds a frame whose image `fill` writes. `commit`: pages of the database that it commits, 0 within a transaction.
    /// After an error the WAL is unusable.
    pub fn append<E>(
        &mut self,
        page_no: PageNo,
        commit: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let image = self.bytes.len() + WAL_FRAME_HEADER_BYTES;
        self.bytes.resize(image + self.page_size.bytes(), 0);
        fill(&mut self.bytes[image..])?;
        self.seal(page_no, commit);
        Ok(())
    }

    /// Takes the frames added since the last call.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Repeats the last frame as one that commits a database of `database_pages` pages.
    pub fn end(&mut self, database_pages: u32) {
        if let Some(page_no) = self.page_nos.last().copied() {
            let image = self.bytes.len() - self.page_size.bytes();
            self.bytes.extend_from_slice(&[0; WAL_FRAME_HEADER_BYTES]);
            self.bytes.extend_from_within(image..image + self.page_size.bytes());
            self.seal(page_no, database_pages);
        }
    }

    /// Writes the header of the last frame.
    fn seal(&mut self, page_no: PageNo, commit: u32) {
        let start = self.bytes.len() - WAL_FRAME_HEADER_BYTES - self.page_size.bytes();
        let (head, image) = self.bytes[start..].split_at_mut(WAL_FRAME_HEADER_BYTES);
        head[..4].copy_from_slice(&page_no.to_be_bytes());
        head[4..8].copy_from_slice(&commit.to_be_bytes());
        self.sum.add(&head[..8]);
        self.sum.add(image);
        head[8..16].copy_from_slice(self.raw_salts.map(u32::to_ne_bytes).as_flattened());
        head[16..].copy_from_slice(self.sum.words().map(u32::to_be_bytes).as_flattened());
        self.page_nos.push(page_no);
    }
}
