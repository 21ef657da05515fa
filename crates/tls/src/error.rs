//! Errors of certificates and tokens. No text repeats a secret.

use standfast_types::Hint;
use std::borrow::Cow;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// A text that is not a token.
    #[error("this is not a join token")]
    Token,
    /// A file or message with certificates or a key that cannot be used.
    #[error("{what} cannot be used: {why}")]
    Unusable { what: &'static str, why: String },
    /// A certificate or request could not be made.
    #[error("a certificate cannot be made: {0}")]
    Making(String),
    /// An invalid request for a certificate.
    #[error("the request for a certificate is refused: {0}")]
    Request(String),
}

impl Hint for TlsError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            TlsError::Token => "use the whole line that `standfast standby token` printed".into(),
            TlsError::Unusable { .. } => "see docs/security.md, \"A lost or damaged key\"".into(),
            _ => return None,
        })
    }
}

impl TlsError {
    pub(crate) fn unusable(what: &'static str, why: impl std::fmt::Display) -> TlsError {
        TlsError::Unusable { what, why: why.to_string() }
    }
}
