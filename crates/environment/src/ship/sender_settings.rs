//! Settings of senders, and what an instance reports and records about them.

use crate::config::settings::{Compression, DestinationConfig, OnTimeout, TransportMode};
use crate::context::environment::Environment;
use crate::ship::retention::{self, Holder, LeftBehind};
use crate::state::control::Control;
use standfast_transport as transport;
use standfast_transport::protection::ProtectionMode;
use standfast_transport::{
    ArchiveTransport, Archivers, DestinationSet, GapSettings, Sender, SenderConfig, SenderEvent, StreamShape,
};
use standfast_types::{Hint, Scn, hint};
use std::sync::Arc;
use std::time::Duration;

/// Reports destinations that lack removed redo, each once until it connects again.
pub fn report_left_behind(
    environment: &Environment,
    senders: &[Arc<Sender>],
    oldest_then: Scn,
    oldest: Scn,
    reported: &mut [bool],
) {
    for (sender, reported) in senders.iter().zip(reported) {
        let judged = retention::left_behind(holder(sender), oldest_then, oldest);
        let lacks = match judged {
            LeftBehind::No => None,
            LeftBehind::Perhaps => Some("what it has is not known".to_owned()),
            LeftBehind::Yes { needs } => Some(format!("it needs redo from {needs} on")),
        };
        if let (Some(lacks), false) = (&lacks, *reported) {
            let what = format!(
                "destination {}: LEFT BEHIND: archived logs before {oldest} are removed (archive_bytes_max), and {lacks}",
                sender.status().name
            );
            let remedy = "put the removed logs back from a backup, or stop the standby and run `standfast reinstate` there";
            environment.alert.say(hint::in_one_line(what, Some(remedy)));
        }
        *reported = lacks.is_some();
    }
}

/// What a sender knows about the redo that its destination has.
pub fn holder(sender: &Sender) -> Holder {
    let hardened = Some(sender.status().hardened).filter(|scn| *scn > Scn::ZERO);
    Holder { required: sender.is_required(), hardened }
}

/// Returns the settings of the sender to a destination.
pub fn sender_config(
    destination: &DestinationConfig,
    environment: &Environment,
    destination_set: &Arc<DestinationSet>,
    archivers: &Arc<Archivers>,
) -> SenderConfig {
    let (on_timeout, sync_latency) = policy(destination, environment.control().protection_mode, environment);
    SenderConfig {
        destination: transport::DestinationConfig {
            name: destination.name.clone(),
            mode: transport_mode(destination),
            net_timeout: Duration::from_millis(destination.net_timeout_ms),
            reopen: Duration::from_millis(destination.reopen_ms),
            max_failure: destination.failures_allowed(),
            grouped: destination.group > 0,
            on_timeout,
            sync_latency,
        },
        address: destination.address.clone(),
        expected_name: Some(destination.name.clone()),
        security: environment.security(),
        shape: StreamShape {
            compression: match destination.compression {
                Compression::None => transport::Compression::None,
                Compression::Lz4 => transport::Compression::Lz4,
                Compression::Zstd => transport::Compression::Zstd,
            },
            sdu_bytes: destination.sdu_bytes,
            send_buffer_bytes: destination.send_buffer_bytes,
            receive_buffer_bytes: destination.receive_buffer_bytes,
        },
        delay: (destination.delay_min > 0)
            .then(|| Duration::from_secs(60 * u64::from(destination.delay_min))),
        counts: environment.of_control(|control| counts(control, destination, &[])),
        destination_set: destination_set.clone(),
        archive: ArchiveTransport {
            settings: GapSettings {
                connections: environment.config.redo.archive_processes,
                per_log: u32::from(destination.max_connections),
                unit_bytes: environment.config.redo.archive_unit_bytes,
            },
            archivers: archivers.clone(),
            ..ArchiveTransport::default()
        },
    }
}

/// Whether commits wait for a destination from the start, before it has connected: yes if it has been synchronised
/// before. Members of a group always count: one may take over from another for which commits waited. In maximum
/// protection every destination of `shipped` counts as long as none of them is known to have been synchronised: in that
/// mode no commit returns with local durability only.
pub fn counts(control: &Control, destination: &DestinationConfig, shipped: &[DestinationConfig]) -> bool {
    let known = |at: &DestinationConfig| control.synchronised.as_ref().is_none_or(|of| of.contains(&at.name));
    let nothing_else = || {
        control.protection_mode == ProtectionMode::MaximumProtection
            && !shipped.iter().any(|at| at.transport_mode() == TransportMode::SyncAffirm && known(at))
    };
    let is_required = control.required.has(&destination.name);
    destination.group > 0 || known(destination) || is_required || nothing_else()
}

/// Records durably, when `event` is a synchronisation, that commits wait for the destination after a restart.
pub fn note_synchronised(environment: &Environment, name: &str, event: &SenderEvent) {
    let synchronised = matches!(event, SenderEvent::Synchronised { .. } | SenderEvent::Resynchronised { .. });
    if synchronised && let Err(error) = environment.update_control(|control| control.note_synchronised(name))
    {
        environment.alert.say(format!(
            "destination {name}: that it has been synchronised cannot be recorded: after a restart commits wait for it \
             only when it has caught up: {}",
            error.in_one_line()
        ));
    }
}

/// Returns the mode as the transport names it.
pub fn transport_mode(destination: &DestinationConfig) -> transport::TransportMode {
    match destination.transport_mode() {
        TransportMode::SyncAffirm => transport::TransportMode::SyncAffirm,
        TransportMode::Fastsync => transport::TransportMode::FastSync,
        TransportMode::Async => transport::TransportMode::Async,
    }
}

/// Policy for a destination that delays commits, in a protection mode.
pub fn policy(
    destination: &DestinationConfig,
    mode: ProtectionMode,
    environment: &Environment,
) -> (transport::OnTimeout, Duration) {
    let is_required = environment.of_control(|control| control.required.has(&destination.name));
    let on_timeout = match destination.on_timeout {
        _ if is_required => transport::OnTimeout::Stall,
        Some(OnTimeout::Stall) => transport::OnTimeout::Stall,
        Some(OnTimeout::Degrade) => transport::OnTimeout::Degrade,
        None => mode.on_timeout(transport_mode(destination)),
    };
    (on_timeout, Duration::from_secs(environment.config.protection.sync_latency_s))
}
