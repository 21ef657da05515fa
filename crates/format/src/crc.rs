use crc_fast::{CrcAlgorithm, Digest, checksum};
use standfast_types::PageNo;

/// CRC-32C (Castagnoli, as in iSCSI and ext4) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Returns, for a page 1, its first 100 bytes as they are equal on primary and standby, and the rest: the change counter
/// (bytes 24..28) and the version fields (92..100) count as zero, because every SQLite writes its own. `None` for other
/// pages, which are equal as they are.
pub fn comparable_first_page(page_no: PageNo, image: &[u8]) -> Option<([u8; 100], &[u8])> {
    let (head, rest) = image.split_first_chunk::<100>().filter(|_| page_no == 1)?;
    let mut head = *head;
    head[24..28].fill(0);
    head[92..100].fill(0);
    Some((head, rest))
}

/// Checksum of a page image that is equal on primary and standby, see [`comparable_first_page`].
pub fn page_sum(page_no: PageNo, image: &[u8]) -> u32 {
    let Some((head, rest)) = comparable_first_page(page_no, image) else { return crc32c(image) };
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&head);
    digest.update(rest);
    digest.finalize() as u32
}

/// Running CRC-32C of the redo stream from the start of its incarnation. If two ends have the same value at the same
/// position, they hold the same bytes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StreamCrc(pub u32);

impl StreamCrc {
    /// Returns the value after `bytes` more bytes of the stream.
    #[must_use]
    pub fn after(self, bytes: &[u8]) -> StreamCrc {
        if bytes.is_empty() {
            return self;
        }
        // Continuing from the state before the final complement is free; combining two finished checksums takes longer
        // than sending most batches.
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!self.0));
        digest.update(bytes);
        StreamCrc(digest.finalize() as u32)
    }
}

/// Effect of a given number of further bytes on the CRC-32C of the bytes before them. With it the checksum of two parts
/// follows from the checksums of each: `crc(a ++ b) = over.apply(crc(a)) ^ crc(b)`, where `over` is for the length of
/// `b`.
///
/// A CRC is a remainder modulo a polynomial, and further bytes multiply it by a power of x that depends on their number
/// alone. Multiplying by a constant is linear, so one table for each byte of the checksum suffices.
pub struct Shift([[u32; 256]; 4]);

impl Shift {
    /// Computes the tables for `bytes` further bytes.
    pub const fn over(bytes: usize) -> Shift {
        let factor = power_of_x(8 * bytes as u64);
        let mut tables = [[0; 256]; 4];
        let mut place = 0;
        while place < 4 {
            let mut value = 0;
            while value < 256 {
                tables[place][value] = product((value as u32) << (8 * place), factor);
                value += 1;
            }
            place += 1;
        }
        Shift(tables)
    }

    /// Returns what `crc`, the checksum of the bytes before, contributes to the checksum of the whole.
    pub fn apply(&self, crc: u32) -> u32 {
        let [a, b, c, d] = crc.to_le_bytes().map(usize::from);
        self.0[0][a] ^ self.0[1][b] ^ self.0[2][c] ^ self.0[3][d]
    }
}

/// The polynomial of CRC-32C; as in its checksums, the highest power has the lowest bit.
const POLYNOMIAL: u32 = 0x82F6_3B78;
const ONE: u32 = 1 << 31;

const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ if a & 1 == 1 { POLYNOMIAL } else { 0 }
}

const fn product(a: u32, mut b: u32) -> u32 {
    let (mut sum, mut power) = (0, ONE);
    while power != 0 {
        if a & power != 0 {
            sum ^= b;
        }
        b = times_x(b);
        power >>= 1;
    }
    sum
}

const fn power_of_x(mut exponent: u64) -> u32 {
    let (mut result, mut square) = (ONE, times_x(ONE));
    while exponent != 0 {
        if exponent & 1 == 1 {
            result = product(result, square);
        }
        square = product(square, square);
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_two_parts_follows_from_each_checksum() {
        let bytes: Vec<u8> = (0..5_000u32).map(|i| (i * 31 + i / 256) as u8).collect();
        for (first, second) in [(44, 4048), (44, 464), (1, 1), (0, 7), (900, 0)] {
            let (a, b) = (&bytes[..first], &bytes[first..first + second]);
            let whole = crc32c(&bytes[..first + second]);
            assert_eq!(Shift::over(second).apply(crc32c(a)) ^ crc32c(b), whole, "{first} and {second} bytes");
        }
    }

    #[test]
    fn check_value_is_that_of_crc32c() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn running_checksum_does_not_depend_on_chunk_sizes() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 7) as u8).collect();
        let whole = StreamCrc::default().after(&bytes);
        let mut cut = StreamCrc::default();
        for chunk in bytes.chunks(333) {
            cut = cut.after(chunk);
        }
        assert_eq!(whole, cut);
        assert_eq!(whole.0, crc32c(&bytes));
    }

    #[test]
    fn page_one_checksum_ignores_fields_local_to_each_sqlite() {
        let mut image = vec![3u8; 4096];
        let sum = page_sum(1, &image);
        image[25] = 9;
        image[99] = 1;
        assert_eq!(page_sum(1, &image), sum);
        image[28] = 9;
        assert_ne!(page_sum(1, &image), sum);
        assert_ne!(page_sum(2, &image), page_sum(1, &image));
    }
}
