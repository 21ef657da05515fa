//! The stations of this build for `standfast bench`.

use standfast_bench::stations::Stations;

/// All of them.
pub fn stations() -> Stations {
    Stations::default()
}
