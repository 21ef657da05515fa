//! The standfast binary.

fn main() {}
