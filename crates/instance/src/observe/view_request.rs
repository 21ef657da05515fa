//! The rows of a V$ view over the control socket: `{"op":"view","name":"v$log"}` is answered with the line
//! `{"ok":"rows"}`; the rows follow as `standfast_views::codec` encodes them, to the end of the stream. So an
//! application needs no JSON to read them.

use crate::observe::observation::observe;
use crate::role::running::Running;
use standfast_environment::config::error::InstanceError;

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
    Ok(standfast_live::views::rows(view, &observation).encode())
}
