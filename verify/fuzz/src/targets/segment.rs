//! The header of shared memory that an application maps at the path in its marker. The first byte selects whether the
//! file is as large as a segment or ends after its header.

use super::instance_files;

/// No part of a file of shared memory is held elsewhere.
const FACTOR: usize = 16;

pub fn run(data: &[u8]) -> usize {
    instance_files::segment(data);
    FACTOR
}
