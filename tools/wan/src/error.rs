//! Errors, with the exit code of each.

use standfast_types::{Hint, hint};
use std::borrow::Cow;
use std::io;
use thiserror::Error;

/// An error of the emulator or its command line. The text names the cause.
#[derive(Debug, Error)]
pub enum WanError {
    #[error("{what} cannot be emulated")]
    Settings { what: String, hint: String },
    /// Names or options that cannot be used as given.
    #[error("{what}")]
    Usage { what: String, hint: String },
    /// The system does not allow it, or an emulator of this name runs or does not run.
    #[error("{what}")]
    Refused { what: String, hint: String },
    /// The text of an error of the emulator, with its hint.
    #[error("the emulator refused: {}", hint::split(.0).0)]
    Answer(String),
    #[error("cannot {what}: {source}")]
    System { what: String, source: io::Error },
}

impl Hint for WanError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            WanError::Settings { hint, .. }
            | WanError::Usage { hint, .. }
            | WanError::Refused { hint, .. } => Some(hint.into()),
            WanError::Answer(text) => hint::split(text).1.map(Cow::Borrowed),
            WanError::System { .. } => None,
        }
    }
}

impl WanError {
    /// Exit code of a command that ends with this error: 1 failed, 2 usage, 4 refused.
    pub fn exit_code(&self) -> u8 {
        match self {
            WanError::Settings { .. } | WanError::Usage { .. } | WanError::Answer(_) => 2,
            WanError::Refused { .. } => 4,
            WanError::System { .. } => 1,
        }
    }

    pub(crate) fn usage(what: impl Into<String>, hint: impl Into<String>) -> WanError {
        WanError::Usage { what: what.into(), hint: hint.into() }
    }

    pub(crate) fn refused(what: impl Into<String>, hint: impl Into<String>) -> WanError {
        WanError::Refused { what: what.into(), hint: hint.into() }
    }
}

pub type Result<T> = std::result::Result<T, WanError>;

/// Adds to a failed system call what was tried.
pub(crate) trait Doing<T> {
    /// `what` completes the sentence "cannot ...".
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| WanError::System { what: what(), source })
    }
}
