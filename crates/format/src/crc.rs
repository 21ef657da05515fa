use crc_fast::{CrcAlgorithm, Digest, checksum};
use standfast_types::PageNo;

/// CRC-32C (Castagnoli, as in iSCSI and ext4) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Checksum of a page image that is the same on primary and standby: on page 1 the change counter (bytes
/// 24..28) and the version fields (92..100), which every SQLite writes for itself, count as zero.
pub fn page_sum(page_no: PageNo, image: &[u8]) -> u32 {
    if page_no != 1 || image.len() < 100 {
        return crc32c(image);
    }
    let mut head = [0u8; 100];
    head.copy_from_slice(&image[..100]);
    head[24..28].fill(0);
    head[92..100].fill(0);
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&head);
    digest.update(&image[100..]);
    digest.finalize() as u32
}

/// Running CRC-32C of the redo stream from the start of its incarnation. Two ends that hold the same value
/// at the same position hold the same bytes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StreamCrc(pub u32);

impl StreamCrc {
    /// The value after `bytes` more bytes of stream.
    #[must_use]
    pub fn after(self, bytes: &[u8]) -> StreamCrc {
        if bytes.is_empty() {
            return self;
        }
        // Continuing from the state before the final complement costs nothing; combining two finished sums costs
        // more than most batches take to send.
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!self.0));
        digest.update(bytes);
        StreamCrc(digest.finalize() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_is_that_of_crc32c() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn a_running_sum_does_not_depend_on_how_the_stream_was_cut() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 7) as u8).collect();
        let whole = StreamCrc::default().after(&bytes);
        let mut cut = StreamCrc::default();
        for piece in bytes.chunks(333) {
            cut = cut.after(piece);
        }
        assert_eq!(whole, cut);
        assert_eq!(whole.0, crc32c(&bytes));
    }

    #[test]
    fn page_one_ignores_what_each_sqlite_writes_for_itself() {
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
