//! The targets. The first byte of an input says which decoder it is for.

pub mod instance_files;
pub mod log_files;
pub mod net;
pub mod redo;
pub mod transport;

/// The first byte, and the rest.
fn choice(data: &[u8]) -> Option<(u8, &[u8])> {
    data.split_first().map(|(choice, rest)| (*choice, rest))
}
