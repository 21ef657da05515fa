//! The targets. In a target with several decoders, the first byte of an input selects one.

pub mod control_requests;
pub mod http;
pub mod instance_files;
pub mod log_files;
pub mod marker;
pub mod net;
pub mod redo;
pub mod segment;
pub mod transport;

/// Splits an input into its first byte and the rest.
fn choice(data: &[u8]) -> Option<(u8, &[u8])> {
    data.split_first().map(|(choice, rest)| (*choice, rest))
}

/// Runs the decoder that the first byte selects on the rest; returns `factor`, the number of bytes that may be
/// allocated per byte of input.
fn chosen(data: &[u8], factor: usize, decode: fn(u8, &[u8])) -> usize {
    if let Some((choice, rest)) = choice(data) {
        decode(choice, rest);
    }
    factor
}
