//! Everything that holds for a stream holds for an encrypted one.

#[path = "stream.rs"]
mod over_tls;
