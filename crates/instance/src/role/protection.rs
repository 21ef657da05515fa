//! Whether an instance may be a primary in a protection mode.
//!
//! The decisions about a running primary are in `standfast_transport::protection`; docs/guarantees.md says what each mode
//! can lose.

use standfast_environment::config::destination_config::{DestinationConfig, OnTimeout, State, TransportMode};
use standfast_environment::config::error::InstanceError;
use standfast_primary::ship::destinations::Destinations;
use standfast_transport::protection::ProtectionMode;

/// Checks that an instance may be a primary in `mode` with these destinations. Does not check whether they are
/// reachable.
///
/// # Errors
/// `Refused` with what is missing.
pub fn check(mode: ProtectionMode, destinations: &[DestinationConfig]) -> Result<(), InstanceError> {
    if mode != ProtectionMode::MaximumProtection {
        return Ok(());
    }
    let shipped = || destinations.iter().filter(|at| Destinations::are_shipped_to(at));
    if let Some(soft) = shipped().find(|at| at.is_sync() && at.on_timeout == Some(OnTimeout::Degrade)) {
        let what = format!(
            "destination {} has on_timeout = \"degrade\": maximum protection has no use for it",
            soft.name
        );
        return Err(InstanceError::refused(what, "leave on_timeout away, or say \"stall\""));
    }
    if shipped().any(|at| at.transport_mode() == TransportMode::SyncAffirm && at.state == State::Enable) {
        return Ok(());
    }
    Err(InstanceError::refused(
        "maximum protection needs a destination with SYNC AFFIRM that is enabled",
        "add one first, or choose another mode with `standfast protection-mode`",
    ))
}
