//! Identity of this instance for the transport.

use crate::context::environment::Environment;
use crate::state::control::{Control, Incarnation};
use standfast_transport as transport;
use standfast_transport::PeerIdentity;

/// Identity of this instance for the transport, with the incarnations of its own stream.
pub fn peer_identity(environment: &Environment, role: transport::Role) -> PeerIdentity {
    let control = environment.control();
    identity_with(environment, &control, role, &control.incarnations)
}

/// Identity of this instance for the transport, with all incarnations that it knows.
pub fn knowing_identity(environment: &Environment, role: transport::Role) -> PeerIdentity {
    let control = environment.control();
    identity_with(environment, &control, role, control.known_incarnations())
}

fn identity_with(
    environment: &Environment,
    control: &Control,
    role: transport::Role,
    incarnations: &[Incarnation],
) -> PeerIdentity {
    let incarnation = |known: &Incarnation| transport::Incarnation {
        number: known.number,
        id: known.id,
        branch: known.branch,
    };
    PeerIdentity {
        instance: control.instance,
        family: Some(control.family),
        name: environment.config.instance.name.clone(),
        role,
        incarnations: incarnations.iter().map(incarnation).collect(),
        promotion: control
            .trust
            .promotion
            .clone()
            .filter(|record| incarnations.last().is_some_and(|newest| newest.id == record.incarnation.id)),
    }
}
