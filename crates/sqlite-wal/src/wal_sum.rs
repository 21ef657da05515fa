//! SQLite's checksum of a WAL and of its index.

/// First word of a WAL. The lowest bit says in which byte order the checksums read the data: set, the highest byte first.
pub(crate) const MAGIC: u32 = 0x377f_0682;

/// A sum that goes on from what was added before.
#[derive(Clone, Copy)]
pub(crate) struct Sum {
    big_endian: bool,
    words: [u32; 2],
}

impl Sum {
    /// Of nothing yet.
    pub fn new(big_endian: bool) -> Sum {
        Sum { big_endian, words: [0; 2] }
    }

    /// What `words` are the sum of, so far.
    pub fn after(words: [u32; 2], big_endian: bool) -> Sum {
        Sum { big_endian, words }
    }

    /// The sum so far.
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
