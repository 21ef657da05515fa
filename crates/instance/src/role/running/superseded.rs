//! A peer knows a newer incarnation than this instance: another instance has become primary.
//!
//! Whichever end of the connection detects it, a primary is fenced. A standby or far sync records it durably and from
//! then on takes, acknowledges and forwards nothing of an older incarnation; it reports the newer incarnation to an old
//! primary that connects.

use super::{Mode, Running};
use standfast_environment::state::control::{FencedBy, Incarnation, Role, Superseding};
use standfast_standby::forwarding::SupersededCall;
use standfast_transport as transport;
use standfast_transport::{PeerIdentity, ReceiverEvent};
use standfast_types::Hint;
use std::sync::Arc;

impl Running {
    /// Callback for the senders of a standby.
    pub(crate) fn superseded_call(&self) -> SupersededCall {
        let me = self.me.clone();
        Arc::new(move |peer: &PeerIdentity, newer: &transport::Incarnation| {
            if let Some(running) = me.upgrade() {
                running.superseded(peer, newer);
                if let Some(receiver) = running.receiver().as_ref() {
                    receiver.end_older(newer.number);
                }
            }
        })
    }

    /// Reacts to a `peer` that knows the newer incarnation `newer`. The caller ends the stream of an older source.
    pub(super) fn superseded(&self, peer: &PeerIdentity, newer: &transport::Incarnation) {
        let environment = &self.environment;
        let event = ReceiverEvent::Superseded { peer: peer.name.clone(), incarnation: *newer };
        if environment.of_control(|control| control.role == Role::Primary) {
            let (me, why) = (self.me.clone(), event.to_string());
            let by = FencedBy { peer: peer.name.clone(), incarnation: *newer };
            // Not on the thread of the connection, which must answer.
            let _ = std::thread::Builder::new().name("fence".into()).spawn(move || {
                if let Some(running) = me.upgrade() {
                    running.fence(&why, by);
                }
            });
            return;
        }
        let superseding = Superseding {
            incarnations: peer.incarnations.iter().map(Incarnation::from).collect(),
            peer: peer.name.clone(),
        };
        let mut is_new = false;
        let stored = environment.update_control(|control| {
            let known = control.known_incarnations().last().map_or(0, |incarnation| incarnation.number);
            is_new = superseding.number() > known;
            if is_new {
                control.superseded_by = Some(superseding);
            }
        });
        if let Err(error) = stored {
            environment.alert.say(format!("a newer incarnation cannot be recorded: {}", error.in_one_line()));
        }
        if !is_new {
            return;
        }
        environment.note_promotion(peer, newer);
        environment.alert.say(event.to_string());
        match &*self.mode() {
            Mode::Standby(standby) => standby.standby.shared().next_epoch(),
            Mode::FarSync(far_sync) => far_sync.shared().next_epoch(),
            _ => {}
        }
    }
}
