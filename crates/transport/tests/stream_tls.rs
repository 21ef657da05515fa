//! All stream tests over TLS.

#[path = "stream.rs"]
mod over_tls;
