//! Redo records.
//!
//! ```text
//!  0  u32  CRC-32C of everything after this field
//!  4  u24  length of the whole record in bytes, this header included
//!  7  u8   kind
//!  8  ...  body, by kind (varints are LEB128, fixed integers little-endian)
//! ```
//!
//! A small transaction is one `Commit` record that contains its page vectors. A large one is any number of `Change`
//! records followed by its `Commit`; without the commit record none of it counts.

use crate::diff::encode_ranges;
use crate::{DecodeError, crc32c, le, malformed, varint};
use standfast_types::{
    DATABASES_MAX, DatabaseId, IncarnationId, IncarnationNo, PageNo, PageSize, RECORD_BYTES_MAX, Scn,
    WalPosition, WalSalts,
};

/// Bytes of checksum, length and kind, which precede the body of a record.
pub const RECORD_HEADER_BYTES: usize = 8;
const NAME_BYTES_MAX: usize = 1024;

/// Kind of a record; the byte at offset 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// Part of a transaction that is still open.
    Change = 1,
    /// The end of a transaction, with its last (usually only) page vectors.
    Commit = 2,
    /// The commits of this database that follow belong to this WAL generation.
    WalGeneration = 3,
    Attach = 4,
    /// A database is no longer protected.
    Detach = 5,
    /// The next transaction of this database is a full resync image; what was there before is void.
    Baseline = 6,
    /// The first record of an incarnation.
    Incarnation = 7,
    /// Clean end: the instance that wrote this record accepted no commit after it.
    EndOfRedo = 8,
    /// State of pages of a database at this position, for standbys to compare.
    Verification = 9,
}

impl RecordKind {
    fn from_byte(byte: u8) -> Option<RecordKind> {
        use RecordKind::*;
        [Change, Commit, WalGeneration, Attach, Detach, Baseline, Incarnation, EndOfRedo, Verification]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A database as announced to standbys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach<'a> {
    /// Number of the database in the stream.
    pub database: DatabaseId,
    /// Page size, which does not change while the database is protected.
    pub page_size: PageSize,
    /// File name on every instance, unique within the instance.
    pub name: &'a str,
}

/// One decoded record; vectors and names point into the input.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    Change {
        database: DatabaseId,
        vectors: Vectors<'a>,
    },
    Commit {
        database: DatabaseId,
        /// Time at which capture saw the commit, microseconds since the Unix epoch.
        time_us: u64,
        /// Size of the database after the commit, in pages.
        database_pages: u32,
        /// The commit frame in the current WAL generation; 0 for a full resync image.
        frame: u32,
        vectors: Vectors<'a>,
    },
    WalGeneration {
        database: DatabaseId,
        salts: WalSalts,
        /// Committed frames of that generation whose content is in the redo before this record.
        captured_frames: u32,
        /// Size of the database in pages after those frames.
        database_pages: u32,
        /// Capture restarts after those frames: parts of a transaction without its commit are void.
        restart: bool,
    },
    Attach(Attach<'a>),
    Detach {
        database: DatabaseId,
    },
    Baseline {
        database: DatabaseId,
        /// The image is known to hold all redo of the database before it. Otherwise (an operator has decided for a
        /// file, or the previous release wrote the record) it may discard something that its reader holds.
        complete: bool,
    },
    Incarnation {
        number: IncarnationNo,
        id: IncarnationId,
        /// SCN at which it left the incarnation before it.
        branch: Scn,
        /// When the incarnation began, microseconds since the Unix epoch.
        time_us: u64,
    },
    EndOfRedo {
        /// When the primary shut down, microseconds since the Unix epoch.
        time_us: u64,
    },
    /// See [`RecordKind::Verification`]. Changes nothing at a primary; changes a standby only with `repair`.
    Verification {
        database: DatabaseId,
        /// Identifies the run of `standfast verify`: its start, microseconds since the Unix epoch.
        run: u64,
        /// Size of the database at this position, in pages.
        database_pages: u32,
        /// The vectors hold whole pages, which replace those of the standby.
        repair: bool,
        /// Page numbers and checksums; no ranges unless `repair`.
        vectors: Vectors<'a>,
    },
}

impl Record<'_> {
    /// Returns the database that the record is about; `None` when it is about none.
    pub fn database(&self) -> Option<DatabaseId> {
        match self {
            Record::Change { database, .. }
            | Record::Commit { database, .. }
            | Record::WalGeneration { database, .. }
            | Record::Verification { database, .. }
            | Record::Baseline { database, .. }
            | Record::Detach { database } => Some(*database),
            Record::Attach(attach) => Some(attach.database),
            Record::Incarnation { .. } | Record::EndOfRedo { .. } => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageVector<'a> {
    pub page_no: PageNo,
    /// [`crate::page_sum`] of the page image after the change.
    pub sum_after: u32,
    /// The ranges are relative to a page of zeros, whatever was there before.
    pub from_zeros: bool,
    /// Changed byte ranges, in the encoding that [`crate::Ranges`] decodes.
    pub ranges: &'a [u8],
}

/// The page vectors of a record, decoded one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vectors<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Vectors<'a> {
    fn decode_next(&mut self) -> Result<PageVector<'a>, DecodeError> {
        let page_no = varint::take_u32(self.bytes, &mut self.at)?;
        let sum =
            self.bytes.get(self.at..self.at + 4).ok_or(malformed("page vector", "no room for its sum"))?;
        self.at += 4;
        let length_and_base = varint::take_u32(self.bytes, &mut self.at)?;
        let length = (length_and_base >> 1) as usize;
        let ranges = self
            .bytes
            .get(self.at..self.at + length)
            .ok_or(malformed("page vector", "ranges run past the record"))?;
        self.at += length;
        if page_no == 0 {
            return Err(malformed("page vector", "page 0"));
        }
        Ok(PageVector {
            page_no,
            sum_after: le::u32_at(sum, 0),
            from_zeros: length_and_base & 1 == 1,
            ranges,
        })
    }
}

impl<'a> Iterator for Vectors<'a> {
    type Item = Result<PageVector<'a>, DecodeError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let item = self.decode_next();
        if item.is_err() {
            self.at = self.bytes.len();
        }
        Some(item)
    }
}

/// Returns the length of the record at the start of `bytes`, from its header alone.
///
/// # Errors
/// `Incomplete` when the header is incomplete, `Malformed` for a length that no record can have.
pub fn peek_length(bytes: &[u8]) -> Result<usize, DecodeError> {
    if bytes.len() < RECORD_HEADER_BYTES {
        return Err(DecodeError::Incomplete { needed: RECORD_HEADER_BYTES });
    }
    let length = le::u32_at(bytes, 4) as usize & 0xff_ffff;
    if !(RECORD_HEADER_BYTES..=RECORD_BYTES_MAX).contains(&length) {
        return Err(malformed("redo record", "impossible length"));
    }
    Ok(length)
}

/// Returns the number of whole records in `bytes`; an incomplete last record is not counted.
pub fn count_records(mut bytes: &[u8]) -> u64 {
    let mut records = 0;
    while let Some(rest) = peek_length(bytes).ok().and_then(|length| bytes.get(length..)) {
        (records, bytes) = (records + 1, rest);
    }
    records
}

/// Decodes and verifies the record at the start of `bytes`; returns it with its length.
///
/// # Errors
/// See [`DecodeError`]. Page vectors are checked only while they are iterated.
pub fn decode_record(bytes: &[u8]) -> Result<(Record<'_>, usize), DecodeError> {
    let length = peek_length(bytes)?;
    let Some(record) = bytes.get(..length) else {
        return Err(DecodeError::Incomplete { needed: length });
    };
    if crc32c(&record[4..]) != le::u32_at(record, 0) {
        return Err(DecodeError::Checksum { item: "redo record" });
    }
    let kind = RecordKind::from_byte(record[7]).ok_or(malformed("redo record", "unknown kind"))?;
    let mut body = Body { bytes: record, at: RECORD_HEADER_BYTES };
    let decoded = match kind {
        RecordKind::Change => Record::Change { database: body.database()?, vectors: body.vectors() },
        RecordKind::Commit => Record::Commit {
            database: body.database()?,
            time_us: body.u64()?,
            database_pages: body.varint_u32()?,
            frame: body.varint_u32()?,
            vectors: body.vectors(),
        },
        RecordKind::WalGeneration => Record::WalGeneration {
            database: body.database()?,
            salts: WalSalts(body.u32()?, body.u32()?),
            captured_frames: body.varint_u32()?,
            database_pages: body.varint_u32()?,
            restart: body.flag(malformed("WAL generation record", "restart is neither 0 nor 1"))?,
        },
        RecordKind::Attach => Record::Attach(Attach {
            database: body.database()?,
            page_size: PageSize::new(body.varint_u32()?).ok_or(malformed("attach record", "page size"))?,
            name: body.name()?,
        }),
        RecordKind::Detach => Record::Detach { database: body.database()? },
        RecordKind::Baseline => Record::Baseline {
            database: body.database()?,
            complete: match body.is_at_end() {
                true => false,
                false => body.flag(malformed("baseline record", "complete is neither 0 nor 1"))?,
            },
        },
        RecordKind::Incarnation => Record::Incarnation {
            number: body.u32()?,
            id: IncarnationId(body.u64()?.to_le_bytes()),
            branch: Scn(body.u64()?),
            time_us: body.u64()?,
        },
        RecordKind::EndOfRedo => Record::EndOfRedo { time_us: body.u64()? },
        RecordKind::Verification => Record::Verification {
            database: body.database()?,
            run: body.u64()?,
            database_pages: body.varint_u32()?,
            repair: body.flag(malformed("verification record", "repair is neither 0 nor 1"))?,
            vectors: body.vectors(),
        },
    };
    Ok((decoded, length))
}

struct Body<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Body<'a> {
    fn fixed(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let bytes =
            self.bytes.get(self.at..self.at + length).ok_or(malformed("redo record", "body too short"))?;
        self.at += length;
        Ok(bytes)
    }
    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.fixed(4).map(|bytes| le::u32_at(bytes, 0))
    }
    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.fixed(8).map(|bytes| le::u64_at(bytes, 0))
    }
    fn varint_u32(&mut self) -> Result<u32, DecodeError> {
        varint::take_u32(self.bytes, &mut self.at)
    }
    fn flag(&mut self, otherwise: DecodeError) -> Result<bool, DecodeError> {
        match self.fixed(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(otherwise),
        }
    }
    fn database(&mut self) -> Result<DatabaseId, DecodeError> {
        let number = self.varint_u32()?;
        match u16::try_from(number) {
            Ok(id) if usize::from(id) < DATABASES_MAX => Ok(DatabaseId(id)),
            _ => Err(malformed("redo record", "database number out of range")),
        }
    }
    fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }
    fn name(&mut self) -> Result<&'a str, DecodeError> {
        let length = self.varint_u32()? as usize;
        if length > NAME_BYTES_MAX {
            return Err(malformed("attach record", "name too long"));
        }
        std::str::from_utf8(self.fixed(length)?).map_err(|_| malformed("attach record", "name is not UTF-8"))
    }
    fn vectors(&self) -> Vectors<'a> {
        Vectors { bytes: self.bytes, at: self.at }
    }
}

/// Builds records one after another into a buffer that the caller owns and reuses.
pub struct RecordBuilder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> RecordBuilder<'a> {
    fn begin(out: &'a mut Vec<u8>, kind: RecordKind) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, kind as u8]);
        RecordBuilder { out, start }
    }

    fn begin_for(out: &'a mut Vec<u8>, kind: RecordKind, database: DatabaseId) -> Self {
        let builder = Self::begin(out, kind);
        varint::put(builder.out, u64::from(database.0));
        builder
    }

    /// Begins a part of a large transaction; add vectors, then [`finish`](Self::finish).
    pub fn change(out: &'a mut Vec<u8>, database: DatabaseId) -> Self {
        Self::begin_for(out, RecordKind::Change, database)
    }

    /// Begins the end of a transaction; add its last vectors, then [`finish`](Self::finish).
    pub fn commit(
        out: &'a mut Vec<u8>,
        database: DatabaseId,
        time_us: u64,
        database_pages: u32,
        frame: u32,
    ) -> Self {
        let builder = Self::begin_for(out, RecordKind::Commit, database);
        builder.out.extend_from_slice(&time_us.to_le_bytes());
        varint::put(builder.out, u64::from(database_pages));
        varint::put(builder.out, u64::from(frame));
        builder
    }

    /// Begins a verification of pages, for standbys to compare: add their checksums with [`page`](Self::page), or for a
    /// repair their images with [`vector`](Self::vector) from zeros, then [`finish`](Self::finish).
    pub fn verification(
        out: &'a mut Vec<u8>,
        database: DatabaseId,
        run: u64,
        database_pages: u32,
        repair: bool,
    ) -> Self {
        let builder = Self::begin_for(out, RecordKind::Verification, database);
        builder.out.extend_from_slice(&run.to_le_bytes());
        varint::put(builder.out, u64::from(database_pages));
        builder.out.push(u8::from(repair));
        builder
    }

    /// Adds a page with its checksum and no change.
    pub fn page(&mut self, page_no: PageNo, sum: u32) {
        varint::put(self.out, u64::from(page_no));
        self.out.extend_from_slice(&sum.to_le_bytes());
        varint::put(self.out, 0);
    }

    /// Bytes of this record so far.
    pub fn bytes(&self) -> usize {
        self.out.len() - self.start
    }

    /// Adds the change of one page from `before` (`None`: a page of zeros) to `after`, whose checksum is given.
    pub fn vector(
        &mut self,
        page_no: PageNo,
        before: Option<&[u8]>,
        after: &[u8],
        sum_after: u32,
        scratch: &mut Vec<u8>,
    ) {
        static ZEROS: [u8; 65_536] = [0; 65_536];
        scratch.clear();
        encode_ranges(before.unwrap_or(&ZEROS[..after.len()]), after, scratch);
        varint::put(self.out, u64::from(page_no));
        self.out.extend_from_slice(&sum_after.to_le_bytes());
        varint::put(self.out, (scratch.len() as u64) << 1 | u64::from(before.is_none()));
        self.out.extend_from_slice(scratch);
    }

    /// Fills in length and checksum; returns the record's length in bytes.
    pub fn finish(self) -> usize {
        let length = self.out.len() - self.start;
        debug_assert!(length <= RECORD_BYTES_MAX);
        let record = &mut self.out[self.start..];
        record[4..7].copy_from_slice(&(length as u32).to_le_bytes()[..3]);
        let crc = crc32c(&record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        length
    }

    /// Appends a complete [`Record::WalGeneration`]; returns its length in bytes.
    pub fn wal_generation(
        out: &'a mut Vec<u8>,
        database: DatabaseId,
        captured: WalPosition,
        database_pages: u32,
        restart: bool,
    ) -> usize {
        let builder = Self::begin_for(out, RecordKind::WalGeneration, database);
        builder.out.extend_from_slice(&captured.salts.0.to_le_bytes());
        builder.out.extend_from_slice(&captured.salts.1.to_le_bytes());
        varint::put(builder.out, u64::from(captured.frame));
        varint::put(builder.out, u64::from(database_pages));
        builder.out.push(u8::from(restart));
        builder.finish()
    }

    /// Appends a whole [`Record::Attach`]. The caller has refused names longer than 1,024 bytes.
    pub fn attach(out: &'a mut Vec<u8>, attach: &Attach<'_>) -> usize {
        let builder = Self::begin_for(out, RecordKind::Attach, attach.database);
        varint::put(builder.out, attach.page_size.bytes() as u64);
        varint::put(builder.out, attach.name.len() as u64);
        builder.out.extend_from_slice(attach.name.as_bytes());
        builder.finish()
    }

    /// Appends a complete [`Record::Detach`]; returns its length in bytes.
    pub fn detach(out: &'a mut Vec<u8>, database: DatabaseId) -> usize {
        Self::begin_for(out, RecordKind::Detach, database).finish()
    }

    /// Appends a complete [`Record::Baseline`]; returns its length in bytes.
    pub fn baseline(out: &'a mut Vec<u8>, database: DatabaseId, complete: bool) -> usize {
        let builder = Self::begin_for(out, RecordKind::Baseline, database);
        builder.out.push(u8::from(complete));
        builder.finish()
    }

    /// Appends a complete [`Record::Incarnation`]; returns its length in bytes.
    pub fn incarnation(
        out: &'a mut Vec<u8>,
        number: IncarnationNo,
        id: IncarnationId,
        branch: Scn,
        time_us: u64,
    ) -> usize {
        let builder = Self::begin(out, RecordKind::Incarnation);
        builder.out.extend_from_slice(&number.to_le_bytes());
        builder.out.extend_from_slice(&id.0);
        builder.out.extend_from_slice(&branch.0.to_le_bytes());
        builder.out.extend_from_slice(&time_us.to_le_bytes());
        builder.finish()
    }

    /// Appends a complete [`Record::EndOfRedo`]; returns its length in bytes.
    pub fn end_of_redo(out: &'a mut Vec<u8>, time_us: u64) -> usize {
        let builder = Self::begin(out, RecordKind::EndOfRedo);
        builder.out.extend_from_slice(&time_us.to_le_bytes());
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{apply_ranges, page_sum};
    use proptest::prelude::*;

    const DB: DatabaseId = DatabaseId(5);

    #[test]
    fn only_complete_records_are_counted() {
        let mut redo = Vec::new();
        assert_eq!(count_records(&redo), 0);
        for number in 0..5 {
            RecordBuilder::commit(&mut redo, DB, number, 12, 34).finish();
        }
        let whole = redo.len();
        RecordBuilder::change(&mut redo, DB).finish();
        assert_eq!((count_records(&redo[..whole]), count_records(&redo)), (5, 6));
        assert_eq!(count_records(&redo[..redo.len() - 1]), 5);
        assert_eq!(count_records(&redo[..whole + 1]), 5, "less than a header");
    }

    #[test]
    fn commit_record_roundtrips_with_its_pages() {
        let before = vec![1u8; 1024];
        let mut after = before.clone();
        after[100..110].fill(9);
        let mut out = vec![0xEE; 3];
        let mut builder = RecordBuilder::commit(&mut out, DB, 77, 12, 34);
        let mut scratch = Vec::new();
        builder.vector(2, Some(&before), &after, page_sum(2, &after), &mut scratch);
        builder.vector(3, None, &after, page_sum(3, &after), &mut scratch);
        let length = builder.finish();
        let (record, used) = decode_record(&out[3..]).unwrap();
        assert_eq!(used, length);
        let Record::Commit { database, time_us, database_pages, frame, vectors } = record else { panic!() };
        assert_eq!((database, time_us, database_pages, frame), (DB, 77, 12, 34));
        let vectors: Vec<_> = vectors.map(|v| v.unwrap()).collect();
        assert_eq!(vectors.len(), 2);
        assert!(!vectors[0].from_zeros && vectors[1].from_zeros);
        for (vector, base) in vectors.iter().zip([before, vec![0; 1024]]) {
            let mut page = base;
            apply_ranges(vector.ranges, &mut page).unwrap();
            assert_eq!(page, after);
            assert_eq!(page_sum(vector.page_no, &page), vector.sum_after);
        }
    }

    #[test]
    fn every_other_record_kind_roundtrips() {
        let mut out = Vec::new();
        let attach = Attach { database: DB, page_size: PageSize::new(65_536).unwrap(), name: "app.db" };
        let id = IncarnationId([1, 2, 3, 4, 5, 6, 7, 8]);
        RecordBuilder::wal_generation(
            &mut out,
            DB,
            WalPosition { salts: WalSalts(1, 2), frame: 9 },
            44,
            true,
        );
        RecordBuilder::attach(&mut out, &attach);
        RecordBuilder::detach(&mut out, DB);
        RecordBuilder::baseline(&mut out, DB, true);
        RecordBuilder::incarnation(&mut out, 3, id, Scn(99), 7);
        RecordBuilder::end_of_redo(&mut out, 8);
        let mut at = 0;
        let mut records = Vec::new();
        while at < out.len() {
            let (record, length) = decode_record(&out[at..]).unwrap();
            records.push(record);
            at += length;
        }
        assert_eq!(
            records,
            [
                Record::WalGeneration {
                    database: DB,
                    salts: WalSalts(1, 2),
                    captured_frames: 9,
                    database_pages: 44,
                    restart: true,
                },
                Record::Attach(attach),
                Record::Detach { database: DB },
                Record::Baseline { database: DB, complete: true },
                Record::Incarnation { number: 3, id, branch: Scn(99), time_us: 7 },
                Record::EndOfRedo { time_us: 8 },
            ]
        );
    }

    #[test]
    fn baseline_record_of_an_earlier_release_is_not_complete() {
        let mut out = Vec::new();
        RecordBuilder::begin_for(&mut out, RecordKind::Baseline, DB).finish();
        assert_eq!(decode_record(&out).unwrap().0, Record::Baseline { database: DB, complete: false });
    }

    #[test]
    fn verification_roundtrips_with_checksums_or_full_pages() {
        let mut out = Vec::new();
        let mut compare = RecordBuilder::verification(&mut out, DB, 99, 12, false);
        compare.page(4, 0xABCD);
        compare.page(11, 7);
        compare.finish();
        let image = vec![3u8; 512];
        let mut repair = RecordBuilder::verification(&mut out, DB, 99, 12, true);
        repair.vector(4, None, &image, page_sum(4, &image), &mut Vec::new());
        repair.finish();
        let (record, used) = decode_record(&out).unwrap();
        let Record::Verification { database, run, database_pages, repair: false, vectors } = record else {
            panic!("{record:?}")
        };
        assert_eq!((database, run, database_pages), (DB, 99, 12));
        let pages: Vec<_> = vectors.map(|vector| vector.unwrap()).collect();
        assert_eq!(
            pages.iter().map(|at| (at.page_no, at.sum_after)).collect::<Vec<_>>(),
            [(4, 0xABCD), (11, 7)]
        );
        assert!(pages.iter().all(|at| at.ranges.is_empty() && !at.from_zeros));
        let (record, _) = decode_record(&out[used..]).unwrap();
        let Record::Verification { repair: true, mut vectors, .. } = record else { panic!("{record:?}") };
        let vector = vectors.next().unwrap().unwrap();
        let mut page = vec![0; 512];
        apply_ranges(vector.ranges, &mut page).unwrap();
        assert!(vector.from_zeros && page == image);
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let mut out = Vec::new();
        RecordBuilder::end_of_redo(&mut out, 8);
        for bit in 0..out.len() * 8 {
            let mut copy = out.clone();
            copy[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_record(&copy).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn garbage_with_a_valid_checksum_never_panics(kind in 0u8..12, body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut out = vec![0; 8];
            out.extend_from_slice(&body);
            let length = out.len() as u32;
            out[4..7].copy_from_slice(&length.to_le_bytes()[..3]);
            out[7] = kind;
            let crc = crc32c(&out[4..]);
            out[..4].copy_from_slice(&crc.to_le_bytes());
            if let Ok((Record::Commit { vectors, .. } | Record::Change { vectors, .. }, _)) = decode_record(&out) {
                for vector in vectors.flatten() {
                    let _ = apply_ranges(vector.ranges, &mut [0u8; 512]);
                }
            }
        }
    }
}
