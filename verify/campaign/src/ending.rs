//! How a campaign with real processes ended: why early, and where its files were kept.

use serde::Serialize;
use std::fmt::{Formatter, Result};

/// Part of the report of each campaign with real processes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ending {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Directory in which everything was kept after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl Ending {
    /// Writes a line with the error, if there is one.
    pub(crate) fn write_error(&self, f: &mut Formatter<'_>) -> Result {
        self.error.iter().try_for_each(|error| writeln!(f, "ERROR {error}"))
    }

    /// Writes a last line with the directory in which everything was kept, if it was.
    pub(crate) fn write_kept(&self, f: &mut Formatter<'_>) -> Result {
        self.kept.iter().try_for_each(|kept| write!(f, "\nkept in {kept}"))
    }
}
