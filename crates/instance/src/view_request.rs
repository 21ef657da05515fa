//! The rows of a V$ view over the control socket: `{"op":"view","name":"v$log"}` is answered with the line
//! `{"ok":"rows"}`; the rows follow as `standfast_views::codec` encodes them, to the end of the stream. So an
//! application needs no JSON to read them.

use crate::error::InstanceError;
use crate::observe::observe;
use crate::running::Running;
use crate::server::{self, Request};
use standfast_views::Table;
use std::io::Read;
use std::path::Path;

/// Limit of row bytes accepted.
const ROWS_BYTES_MAX: u64 = 256 << 20;

/// Rows of a view, here and at all standbys, encoded.
///
/// # Errors
/// `Refused` when there is no such view.
pub fn rows(running: &Running, name: &str) -> Result<Vec<u8>, InstanceError> {
    let Some(view) = standfast_views::view(name) else {
        return Err(InstanceError::refused(
            format!("there is no view {name}"),
            "docs/reference/views.md lists the views; this instance may be of an older release than the program that asks",
        ));
    };
    let observation = observe(running, view.needs_history, true);
    Ok(crate::views::rows(view, &observation).encode())
}

/// Fetches the rows of a view from the instance in `directory`.
///
/// # Errors
/// `NotRunning`, or the error that the instance answered.
pub fn ask(directory: &Path, name: &str) -> Result<Table, InstanceError> {
    let (_, rest) = server::ask_and_continue(directory, &Request::View { name: name.to_owned() })?;
    let mut bytes = Vec::new();
    let broken = |why: String| {
        InstanceError::Failed(format!("the rows of {name} did not come whole: {why}\nhint: try again"))
    };
    rest.take(ROWS_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| broken(error.to_string()))?;
    Table::decode(bytes).map_err(|error| broken(error.to_string()))
}
