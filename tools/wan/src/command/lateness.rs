//! Whether a run is to be discarded, because packets were released late.

use super::show;
use crate::emulator::Stats;
use crate::settings::Nanos;

/// The exit code for the lateness.
pub fn late(stats: &Stats, most: Option<Nanos>) -> u8 {
    match most {
        Some(most) if stats.late.p99 > most as f64 / 1e9 => {
            let found = show::time(stats.late.p99);
            eprintln!("wan: 1 % of the packets was released {found} late or later; discard this run");
            3
        }
        _ => 0,
    }
}
