//! Whether an instance may be a primary in a protection mode.
//!
//! The decisions about a running primary are in `standfast_transport::protection`; docs/guarantees.md says what each mode
//! can lose.

use standfast_environment::config::destination_config::{DestinationConfig, OnTimeout, State, TransportMode};
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::role_change_config::RoleChangeConfig;
use standfast_primary::ship::destinations::Destinations;
use standfast_transport::protection::ProtectionMode;
use std::collections::BTreeSet;

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

/// Checks that the members without which no commit returns are still shipped to, and waited for.
///
/// # Errors
/// `Refused` with the first that is not.
pub fn check_required(
    required: &BTreeSet<String>,
    destinations: &[DestinationConfig],
) -> Result<(), InstanceError> {
    let is_waited_for = |name: &&String| {
        destinations.iter().any(|at| {
            at.name == **name
                && Destinations::are_shipped_to(at)
                && at.transport_mode() == TransportMode::SyncAffirm
                && at.group == 0
        })
    };
    match required.iter().find(|name| !is_waited_for(name)) {
        None => Ok(()),
        Some(name) => Err(InstanceError::refused(
            format!("`{name}` is the target of fast-start failover: no commit may return without it"),
            "`standfast dg disable fast_start failover` first",
        )),
    }
}

/// Checks that the observer stays the same while fast-start failover is enabled: what one of them has decided the other does
/// not know.
///
/// # Errors
/// `Refused` when it is another one.
pub fn check_observer(before: &RoleChangeConfig, after: &RoleChangeConfig) -> Result<(), InstanceError> {
    let (before, after) = (&before.fast_start_failover, &after.fast_start_failover);
    if !before.is_enabled() || !after.is_enabled() || before.observer == after.observer {
        return Ok(());
    }
    Err(InstanceError::refused(
        format!("the observer is {} while fast-start failover is enabled", before.observer),
        "`standfast dg disable fast_start failover` first, and enable it again afterwards",
    ))
}
