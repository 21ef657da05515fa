//! The marker beside a database, by which an application finds the instance. Every user with write access to the
//! directory can write it.

use super::instance_files;

/// A marker is held as text and as values.
const FACTOR: usize = 64;

pub fn run(data: &[u8]) -> usize {
    instance_files::marker(data);
    FACTOR
}
