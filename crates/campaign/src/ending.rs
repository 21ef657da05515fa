//! How a campaign with real processes ended: early, and with what is left of it.

use serde::Serialize;
use std::fmt::{Formatter, Result};

/// See the module; part of the report of each of these campaigns.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ending {
    /// Why the campaign ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Where everything was kept, after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl Ending {
    /// The line of the error, if there is one.
    pub(crate) fn write_error(&self, f: &mut Formatter<'_>) -> Result {
        self.error.iter().try_for_each(|error| writeln!(f, "ERROR {error}"))
    }

    /// A last line that says where everything was kept, if it was.
    pub(crate) fn write_kept(&self, f: &mut Formatter<'_>) -> Result {
        self.kept.iter().try_for_each(|kept| write!(f, "\nkept in {kept}"))
    }
}
