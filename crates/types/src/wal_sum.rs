//! SQLite's checksum of a WAL and of its wal-index, and frames without checksums. Layout: SQLite's "WAL-mode File
//! Format".
//!
//! Every SQLite before 3.50.2 can commit frames that have zeros in place of salts and checksum. Once a transaction has
//! overwritten a frame of its own, SQLite writes further frames without checksums and computes them at the commit, from
//! the overwritten frame on. `ROLLBACK TO`, or a statement that fails, discards frames but leaves the number of that
//! frame as it was: frames that are then written before it, in place of the discarded ones, are skipped. The wal-index
//! publishes them all the same, so every reader uses them until the wal-index is gone. SQLite's recovery then ends
//! before the first of them, and the transaction and all later ones are lost.

use crate::{WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES};

/// First word of a WAL. The lowest bit gives the byte order in which the checksums read the data: if set, big-endian.
pub const WAL_MAGIC: u32 = 0x377f_0682;
/// Bytes of a frame header that the frame's checksum covers.
pub const WAL_FRAME_SUMMED: usize = 8;

#[derive(Clone, Copy, Debug)]
pub struct WalSum {
    big_endian: bool,
    words: [u32; 2],
}

impl WalSum {
    pub fn new(big_endian: bool) -> WalSum {
        WalSum { big_endian, words: [0; 2] }
    }

    pub fn after(words: [u32; 2], big_endian: bool) -> WalSum {
        WalSum { big_endian, words }
    }

    pub fn words(&self) -> [u32; 2] {
        self.words
    }

    /// Adds `bytes`, a multiple of eight.
    pub fn add(&mut self, bytes: &[u8]) {
        self.words = if self.big_endian {
            added(self.words, bytes, u32::from_be_bytes)
        } else {
            added(self.words, bytes, u32::from_le_bytes)
        };
    }
}

fn added([mut first, mut second]: [u32; 2], bytes: &[u8], read: impl Fn([u8; 4]) -> u32) -> [u32; 2] {
    let (pairs, _) = bytes.as_chunks::<8>();
    for [a, b, c, d, e, f, g, h] in pairs {
        first = first.wrapping_add(read([*a, *b, *c, *d])).wrapping_add(second);
        second = second.wrapping_add(read([*e, *f, *g, *h])).wrapping_add(first);
    }
    [first, second]
}

/// Returns whether a frame header has zeros in place of salts and checksum.
pub fn is_unsummed(frame_header: &[u8; WAL_FRAME_HEADER_BYTES]) -> bool {
    frame_header[WAL_FRAME_SUMMED..] == [0; WAL_FRAME_HEADER_BYTES - WAL_FRAME_SUMMED]
}

/// A WAL file as the functions here use it.
pub trait WalFile {
    type Error;

    /// Fills `out` from `offset`.
    ///
    /// # Errors
    /// When the file fails, or ends too early.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Self::Error>;

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// When the file fails.
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Self::Error>;
}

#[derive(Clone, Copy, Debug)]
pub struct WalHeader {
    page_bytes: usize,
    salts: [u8; 8],
    sum: WalSum,
}

impl WalHeader {
    /// Returns `None` when `bytes` are no WAL header, or the checksum is wrong.
    pub fn of(bytes: &[u8; WAL_HEADER_BYTES]) -> Option<WalHeader> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let page_bytes = word(8) as usize;
        let mut sum = WalSum::new(word(0) & 1 == 1);
        sum.add(&bytes[..24]);
        let known = word(0) & !1 == WAL_MAGIC
            && (512..=65_536).contains(&page_bytes)
            && page_bytes.is_power_of_two()
            && sum.words() == [word(24), word(28)];
        let salts = *bytes[16..24].first_chunk::<8>()?;
        known.then_some(WalHeader { page_bytes, salts, sum })
    }

    /// Salts in the byte order of the file.
    pub fn salts(&self) -> [u8; 8] {
        self.salts
    }

    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Returns the offset at which a frame (1-based) begins.
    pub fn frame_offset(&self, frame: u32) -> u64 {
        WAL_HEADER_BYTES as u64 + u64::from(frame - 1) * self.frame_bytes()
    }

    /// Returns the frame (1-based) that begins at `offset`.
    pub fn frame_at(&self, offset: u64) -> Option<u32> {
        let behind = offset.checked_sub(WAL_HEADER_BYTES as u64)?;
        let whole = behind.is_multiple_of(self.frame_bytes());
        u32::try_from(behind / self.frame_bytes()).ok()?.checked_add(1).filter(|_| whole)
    }

    fn frame_bytes(&self) -> u64 {
        (WAL_FRAME_HEADER_BYTES + self.page_bytes) as u64
    }

    /// Computes the checksums that the frames from `first` to `last` should have, continuing the stored checksum of the
    /// frame before, which is not verified. Takes 8 bytes of memory per frame.
    ///
    /// # Errors
    /// The error of `file`.
    pub fn frame_sums<F: WalFile>(
        &self,
        file: &mut F,
        first: u32,
        last: u32,
    ) -> Result<Vec<[u32; 2]>, F::Error> {
        let mut sum = self.sum;
        if first > 1 {
            let mut before = [0; 8];
            file.read(self.frame_offset(first - 1) + 16, &mut before)?;
            let [a, b, c, d, e, f, g, h] = before;
            let words = [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])];
            sum = WalSum::after(words, self.sum.big_endian);
        }
        let mut sums = Vec::new();
        let mut frame = vec![0; WAL_FRAME_HEADER_BYTES + self.page_bytes];
        for number in first..=last {
            file.read(self.frame_offset(number), &mut frame)?;
            sum.add(&frame[..WAL_FRAME_SUMMED]);
            sum.add(&frame[WAL_FRAME_HEADER_BYTES..]);
            sums.push(sum.words());
        }
        Ok(sums)
    }

    /// Gives a frame the salts of this WAL and the checksum `sum`. Page number, database size and page stay unchanged.
    ///
    /// # Errors
    /// The error of `file`.
    pub fn write_frame_sum<F: WalFile>(
        &self,
        file: &mut F,
        frame: u32,
        sum: [u32; 2],
    ) -> Result<(), F::Error> {
        let mut bytes = [0; WAL_FRAME_HEADER_BYTES - WAL_FRAME_SUMMED];
        bytes[..8].copy_from_slice(&self.salts);
        bytes[8..].copy_from_slice(sum.map(u32::to_be_bytes).as_flattened());
        file.write(self.frame_offset(frame) + WAL_FRAME_SUMMED as u64, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl WalFile for Vec<u8> {
        type Error = &'static str;

        fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), &'static str> {
            let at = offset as usize;
            out.copy_from_slice(self.get(at..at + out.len()).ok_or("it ends before")?);
            Ok(())
        }

        fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), &'static str> {
            let at = offset as usize;
            self.get_mut(at..at + data.len()).ok_or("it ends before")?.copy_from_slice(data);
            Ok(())
        }
    }

    fn log(big_endian: bool, frames: u32) -> Vec<u8> {
        let mut log = (WAL_MAGIC | u32::from(big_endian)).to_be_bytes().to_vec();
        log.extend([3_007_000u32, 512, 0, 0x1234_5678, 0x9abc_def0].map(u32::to_be_bytes).as_flattened());
        let mut sum = WalSum::new(big_endian);
        sum.add(&log);
        log.extend(sum.words().map(u32::to_be_bytes).as_flattened());
        for frame in 1..=frames {
            let head = [frame.to_be_bytes(), u32::from(frame == frames).to_be_bytes()].concat();
            let page = [frame as u8; 512];
            sum.add(&head);
            sum.add(&page);
            log.extend(&head);
            log.extend(&log[16..24].to_vec());
            log.extend(sum.words().map(u32::to_be_bytes).as_flattened());
            log.extend(page);
        }
        log
    }

    #[test]
    fn missing_frame_checksums_are_computed_identically() {
        for big_endian in [false, true] {
            let whole = log(big_endian, 6);
            let header = WalHeader::of(whole.first_chunk().unwrap()).unwrap();
            for first in 1..=6 {
                let mut damaged = whole.clone();
                for frame in first..=6 {
                    let offset = header.frame_offset(frame) as usize;
                    assert_eq!(header.frame_at(offset as u64), Some(frame));
                    damaged[offset + 8..offset + 24].fill(0);
                    assert!(is_unsummed(damaged[offset..].first_chunk().unwrap()));
                    assert!(!is_unsummed(whole[offset..].first_chunk().unwrap()));
                }
                let sums = header.frame_sums(&mut damaged, first, 6).unwrap();
                for (frame, sum) in (first..).zip(&sums) {
                    header.write_frame_sum(&mut damaged, frame, *sum).unwrap();
                }
                assert!(damaged == whole, "from frame {first}");
            }
            assert_eq!(header.frame_sums(&mut whole.clone(), 6, 7), Err("it ends before"));
        }
    }

    #[test]
    fn damaged_wal_header_is_not_accepted() {
        let whole = log(false, 0);
        for byte in 0..WAL_HEADER_BYTES {
            let mut damaged = whole.clone();
            damaged[byte] ^= 0x40;
            assert!(WalHeader::of(damaged.first_chunk().unwrap()).is_none(), "byte {byte}");
        }
        let header = WalHeader::of(whole.first_chunk().unwrap()).unwrap();
        assert_eq!([header.frame_at(31), header.frame_at(33), header.frame_at(32)], [None, None, Some(1)]);
    }
}
