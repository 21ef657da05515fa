//! What can be wrong with certificates and tokens. No text repeats a secret.

/// Errors of this crate, with their remedy.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// A text that is no token.
    #[error("this is not a join token\nhint: use the whole line that `standfast standby token` printed")]
    Token,
    /// A file of certificates that cannot be used.
    #[error("{what} cannot be used: {why}\nhint: see docs/security.md, \"A lost or damaged key\"")]
    Unusable {
        /// Which file or message.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A certificate or request could not be made.
    #[error("a certificate cannot be made: {0}")]
    Making(String),
    /// A request for a certificate that is not in order.
    #[error("the request for a certificate is refused: {0}")]
    Request(String),
}

impl TlsError {
    pub(crate) fn unusable(what: &'static str, why: impl std::fmt::Display) -> TlsError {
        TlsError::Unusable { what, why: why.to_string() }
    }
}
