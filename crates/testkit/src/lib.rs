//! Development only: a disk that loses power, seeded randomness.
