//! The identity of an instance towards others: certificates, the authority that signs them, and join tokens.
//!
//! ```text
//!  Authority (one a family) ── signs ──> certificate of `oslo` ── with its key: Identity ──> TLS 1.3 configurations
//!       ^                                      ^
//!       └── Token: shown once, public key kept ┘  proves the right to the first certificate
//! ```
//!
//! Everything here is text and bytes: files, sockets and threads are elsewhere. Times are seconds since the Unix epoch,
//! given by the caller. No type that holds a secret shows it in `Debug`, and no error repeats one.

mod authority;
mod certificate;
mod error;
mod identity;
mod signed;
mod token;

pub use authority::{Authority, Request, VALID_DAYS};
pub use certificate::{CertificateInfo, fingerprint, first_certificate};
pub use error::TlsError;
pub use identity::{ALPN, Clock, FixedClock, Identity, SystemClock, joining};
pub use signed::{Endorsement, Signature, endorse, grown, sign, signer};
pub use token::{Fingerprint, Token, TokenKey, hex, unhex};

/// The TLS library; its types are part of this crate's interface.
pub use rustls;
