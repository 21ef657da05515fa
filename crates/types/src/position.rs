use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Add;

/// System change number: a byte position in the redo stream of an instance. The SCN of a commit is the position just
/// after its commit record. SCNs are ordered, and comparable across machines within an incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scn(pub u64);

impl Scn {
    /// The first position of every redo stream. Not 0, so that 0 never looks like a valid position.
    pub const START: Scn = Scn(4096);
    /// No stream gets this far: at 1 GB/s that takes 146 years. Decoders refuse later positions, so that sums of
    /// positions and lengths stay within 64 bits.
    pub const LIMIT: Scn = Scn(1 << 62);
    /// Before every position of a stream: streams begin at [`Scn::START`].
    pub const ZERO: Scn = Scn(0);

    /// Returns the bytes from `earlier` to `self`; 0 when `earlier` is not earlier.
    pub fn bytes_since(self, earlier: Scn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Scn {
    type Output = Scn;
    fn add(self, bytes: u64) -> Scn {
        Scn(self.0 + bytes)
    }
}

impl fmt::Display for Scn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The two salts of a WAL header as SQLite stores them in the file, read as big-endian integers. They name a WAL
/// generation; they never order two generations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WalSalts(pub u32, pub u32);

impl WalSalts {
    /// Returns the salts of a WAL that the instance rewrites from the generation `self`. `random` distinguishes two
    /// attempts. As with SQLite's own salts, the first one is larger than before.
    pub fn of_rewritten_log(self, random: u16) -> WalSalts {
        let first = self.0.wrapping_add(1).wrapping_add(u32::from(random));
        WalSalts(first, WalSalts::mark(first))
    }

    /// Returns whether a WAL with these salts was written with [`WalSalts::of_rewritten_log`]. Of the generations that
    /// SQLite has begun, whose second salt is random, one in 2^32 looks so, too.
    pub fn is_of_rewritten_log(self) -> bool {
        self.1 == WalSalts::mark(self.0)
    }

    /// Returns whether a WAL with these salts is what the instance wrote in place of the generation `old`, and not an
    /// earlier one.
    pub fn is_rewritten_of(self, old: WalSalts) -> bool {
        self.is_of_rewritten_log() && (1..=1 + u32::from(u16::MAX)).contains(&self.0.wrapping_sub(old.0))
    }

    /// Bits of the first salt, mixed (the finalizer of MurmurHash3).
    fn mark(first: u32) -> u32 {
        let mut bits = first ^ 0x5354_4446;
        bits = (bits ^ (bits >> 16)).wrapping_mul(0x85eb_ca6b);
        bits = (bits ^ (bits >> 13)).wrapping_mul(0xc2b2_ae35);
        bits ^ (bits >> 16)
    }
}

/// A state of a SQLite database in WAL mode: everything backfilled from earlier generations plus the first `frame`
/// frames of generation `salts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WalPosition {
    pub salts: WalSalts,
    /// Number of frames, the last of which is a commit frame; 0 for an empty WAL.
    pub frame: u32,
}

/// Frames `first..=last` (1-based) of one WAL generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRange {
    pub first: u32,
    pub last: u32,
}

/// What a waiting session compares: (epoch, frame). The epoch counts WAL generations as the instance publishes them, so
/// positions of one database are totally ordered; salts are random and are never compared for order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReleasePosition(pub u64);

impl ReleasePosition {
    /// Packs epoch and frame; the epoch is the more significant half.
    pub fn new(epoch: u32, frame: u32) -> Self {
        ReleasePosition(u64::from(epoch) << 32 | u64::from(frame))
    }
    pub fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }
    pub fn frame(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_generation_orders_after_any_frame_of_an_earlier_one() {
        assert!(ReleasePosition::new(2, 1) > ReleasePosition::new(1, u32::MAX));
        assert_eq!(ReleasePosition::new(7, 9).epoch(), 7);
        assert_eq!(ReleasePosition::new(7, 9).frame(), 9);
    }
}
