//! Sums of pages: a copy for an instance that has most of the pages already leaves those out.
//!
//! ```text
//!  <── Data a=5 b=id c=n   asks for the sums from page n on
//!  ──> Data a=5 b=id c=n   16 bytes for each page from n on, at most 1,024; fewer: the database ends there
//! ```
//!
//! The copying end asks for the next sums before it compares the last ones, so both ends read their files at the same
//! time. It never has more than one answer outstanding: 16 KiB, which the buffers of the connection hold while the
//! other direction is full of pages. Two answers could block both ends.

use crate::error::{StageError, TransportError};
use crate::framing::{FrameReader, FrameWriter};
use crate::hello;
use ring::digest::{Context, SHA256};
use standfast_format::{FrameHeader, FrameKind, comparable_first_page};
use standfast_types::{DatabaseId, PageNo};
use std::io::{Read, Write};

/// `a` of the frames above.
pub(crate) const SUMS: u64 = 5;
/// Pages of one answer: 4 MiB of a database with pages of 4 KiB.
const SUMS_PER_ANSWER: u64 = 1024;
const SUM_BYTES: usize = 16;

type Sum = [u8; SUM_BYTES];

/// Returns the first half of the SHA-256 of a page: pages with equal sums count as equal.
fn sum_of(page_no: PageNo, page: &[u8]) -> Sum {
    let mut context = Context::new(&SHA256);
    match comparable_first_page(page_no, page) {
        Some((head, rest)) => {
            context.update(&head);
            context.update(rest);
        }
        None => context.update(page),
    }
    let mut sum = Sum::default();
    sum.copy_from_slice(&context.finish().as_ref()[..SUM_BYTES]);
    sum
}

/// Builds the answer to a request for the sums from page `first` on. `read` fills its buffer with a page; false: the
/// database ends before it.
///
/// # Errors
/// Those of `read`.
pub(crate) fn answer(
    first: u64,
    page_bytes: usize,
    mut read: impl FnMut(PageNo, &mut [u8]) -> Result<bool, StageError>,
) -> Result<Vec<u8>, StageError> {
    let (mut sums, mut page) = (Vec::new(), vec![0; page_bytes]);
    for page_no in first..first.saturating_add(SUMS_PER_ANSWER) {
        let Ok(page_no) = PageNo::try_from(page_no) else { break };
        if !read(page_no, &mut page)? {
            break;
        }
        sums.extend(sum_of(page_no, &page));
    }
    Ok(sums)
}

/// The sums of one database at the other end, fetched while its pages are read here.
pub(crate) struct TheirSums<'a, R> {
    reader: &'a mut FrameReader<R>,
    database: DatabaseId,
    /// Sums of the pages from `first` on.
    sums: Vec<u8>,
    first: u64,
    /// Where the requested answer begins; `None`: the database ends there with the sums that are here.
    asked: Option<u64>,
}

impl<'a, R: Read> TheirSums<'a, R> {
    /// Asks for the first sums.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn of<W: Write>(
        database: DatabaseId,
        reader: &'a mut FrameReader<R>,
        writer: &mut FrameWriter<W>,
    ) -> std::io::Result<Self> {
        let mut sums = TheirSums { reader, database, sums: Vec::new(), first: 1, asked: None };
        sums.ask(1, writer)?;
        Ok(sums)
    }

    fn ask<W: Write>(&mut self, first: u64, writer: &mut FrameWriter<W>) -> std::io::Result<()> {
        let id = u64::from(self.database.0);
        writer.write(FrameHeader::new(FrameKind::Data, SUMS, id, first, 0), &[])?;
        self.asked = Some(first);
        Ok(())
    }

    /// Whether the other end has this page, with this content. Pages must come in ascending order.
    ///
    /// # Errors
    /// Those of the connection, or that an answer is malformed.
    pub fn have<W: Write>(
        &mut self,
        page_no: PageNo,
        page: &[u8],
        writer: &mut FrameWriter<W>,
    ) -> Result<bool, TransportError> {
        let number = u64::from(page_no);
        while let Some(asked) = self.asked.filter(|asked| number >= *asked) {
            self.take(asked)?;
            let known = (self.sums.len() / SUM_BYTES) as u64;
            if known == SUMS_PER_ANSWER {
                self.ask(asked + known, writer).map_err(TransportError::io("asking for sums of pages"))?;
            }
        }
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok()).unwrap_or(usize::MAX);
        let theirs = self.sums.chunks_exact(SUM_BYTES).nth(at);
        Ok(theirs.is_some_and(|theirs| theirs == sum_of(page_no, page)))
    }

    fn take(&mut self, asked: u64) -> Result<(), TransportError> {
        self.asked = None;
        let frame = self.reader.read()?;
        hello::expect(&frame, FrameKind::Data)?;
        let header = frame.header;
        let is_asked = (header.a, header.b, header.c) == (SUMS, u64::from(self.database.0), asked);
        let sums = frame.payload;
        if !is_asked || sums.len() % SUM_BYTES != 0 || sums.len() as u64 > SUMS_PER_ANSWER * SUM_BYTES as u64
        {
            return Err(TransportError::Protocol("sums of other pages than were asked for".into()));
        }
        (self.first, self.sums) = (asked, sums.to_vec());
        Ok(())
    }

    /// Takes the answer that is outstanding, so that the next frame belongs to the next database.
    ///
    /// # Errors
    /// Those of the connection, or that the answer is malformed.
    pub fn end(mut self) -> Result<(), TransportError> {
        self.asked.map_or(Ok(()), |asked| self.take(asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    const PAGE_BYTES: usize = 512;

    fn page(number: u64) -> Vec<u8> {
        number.to_le_bytes().repeat(PAGE_BYTES / 8)
    }

    /// The other end: answers from `pages` pages of which page 3 differs. Counts answers that were not read in time.
    #[derive(Clone)]
    struct Other {
        pages: u64,
        wire: Arc<Mutex<VecDeque<u8>>>,
        outstanding: Arc<Mutex<usize>>,
    }

    impl Write for Other {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let (frame, length) = standfast_format::Frame::decode(bytes).map_err(std::io::Error::other)?;
            let first = frame.header.c;
            let sums = answer(first, PAGE_BYTES, |page_no, out| {
                let number = u64::from(page_no);
                out.copy_from_slice(&page(if number == 3 { 0 } else { number }));
                Ok(number <= self.pages)
            })
            .unwrap();
            let mut framed = Vec::new();
            let header = FrameHeader::new(FrameKind::Data, SUMS, frame.header.b, first, 0);
            standfast_format::encode_frame(header, &sums, &mut framed);
            let mut wire = self.wire.lock().unwrap();
            let mut outstanding = self.outstanding.lock().unwrap();
            *outstanding = (*outstanding).max(usize::from(!wire.is_empty()) + 1);
            wire.extend(framed);
            Ok(length)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Read for Other {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            self.wire.lock().unwrap().read(out)
        }
    }

    fn differing(pages_here: u64, pages_there: u64) -> (Vec<u64>, Other) {
        let other = Other { pages: pages_there, wire: Arc::default(), outstanding: Arc::default() };
        let (mut reader, mut writer) = (FrameReader::new(other.clone()), FrameWriter::new(other.clone()));
        let mut sums = TheirSums::of(DatabaseId(7), &mut reader, &mut writer).unwrap();
        let mut found = Vec::new();
        for number in 1..=pages_here {
            if !sums.have(number as PageNo, &page(number), &mut writer).unwrap() {
                found.push(number);
            }
        }
        sums.end().unwrap();
        assert!(other.wire.lock().unwrap().is_empty(), "an answer was left for the next database");
        (found, other)
    }

    #[test]
    fn only_pages_that_differ_or_are_missing_are_found() {
        assert_eq!(differing(10, 10).0, [3]);
        assert_eq!(differing(5, 2000).0, [3], "the database here is shorter");
        assert_eq!(differing(6, 4).0, [3, 5, 6], "the database there is shorter");
        assert_eq!(differing(2, 0).0, [1, 2], "there is none there");
        for pages in [1023, 1024, 1025, 2048, 2049] {
            assert_eq!(differing(pages, pages).0, [3], "{pages} pages");
        }
        assert_eq!(differing(1026, 1024).0, [3, 1025, 1026]);
    }

    #[test]
    fn one_answer_at_most_is_outstanding() {
        let (_, other) = differing(5000, 5000);
        assert_eq!(*other.outstanding.lock().unwrap(), 1);
    }

    #[test]
    fn sums_of_other_pages_are_refused() {
        for (a, id, first, bytes) in
            [(4, 7, 1, 16), (5, 8, 1, 16), (5, 7, 2, 16), (5, 7, 1, 15), (5, 7, 1, 1025 * 16)]
        {
            let mut framed = Vec::new();
            let header = FrameHeader::new(FrameKind::Data, a, id, first, 0);
            standfast_format::encode_frame(header, &vec![0; bytes], &mut framed);
            let mut reader = FrameReader::new(&framed[..]);
            let mut writer = FrameWriter::new(Vec::new());
            let mut sums = TheirSums::of(DatabaseId(7), &mut reader, &mut writer).unwrap();
            let taken = sums.have(1, &page(1), &mut writer);
            assert!(matches!(taken, Err(TransportError::Protocol(_))), "{a} {id} {first} {bytes}");
        }
    }
}
