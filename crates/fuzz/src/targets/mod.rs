//! The targets. In those with several decoders the first byte of an input says which one it is for.

pub mod control_requests;
pub mod http;
pub mod instance_files;
pub mod log_files;
pub mod marker;
pub mod net;
pub mod redo;
pub mod segment;
pub mod transport;

/// The first byte, and the rest.
fn choice(data: &[u8]) -> Option<(u8, &[u8])> {
    data.split_first().map(|(choice, rest)| (*choice, rest))
}

/// Lets a decoder have the rest; returns how many times the size of an input it may allocate.
fn chosen(data: &[u8], factor: usize, decode: fn(u8, &[u8])) -> usize {
    if let Some((choice, rest)) = choice(data) {
        decode(choice, rest);
    }
    factor
}
