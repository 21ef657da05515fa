//! The instance as seen by its receiver.

use super::{Mode, Running};
use crate::environment::Environment;
use crate::forwarding;
use crate::refusals::Refusals;
use crate::shipping::{knowing_identity, peer_identity};
use standfast_transport as transport;
use standfast_transport::{
    CertificateGrant, CertificateRequest, CertificateRight, MemberRights, ReceiverEvent, ReceiverService,
    RedoSource, Refusal, Right,
};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

pub(super) struct Service {
    pub running: Weak<Running>,
    pub environment: Arc<Environment>,
    pub refusals: Refusals,
}

impl ReceiverService for Service {
    fn identity(&self) -> transport::PeerIdentity {
        knowing_identity(&self.environment, self.environment.control().role.of_peer())
    }

    fn followed(&self) -> transport::PeerIdentity {
        peer_identity(&self.environment, self.environment.control().role.of_peer())
    }

    fn may_claim(
        &self,
        peer: &transport::PeerIdentity,
        newer: &transport::Incarnation,
        proven: bool,
    ) -> Result<(), Refusal> {
        self.environment.may_claim(peer, newer, proven)
    }

    fn superseded(&self, peer: &transport::PeerIdentity, newer: &transport::Incarnation) {
        if let Some(running) = self.running.upgrade() {
            running.superseded(peer, newer);
        }
    }

    fn admit(&self, hello: &transport::SenderHello) -> Result<(), transport::Refusal> {
        forwarding::upstream(&self.environment.control(), hello).map(drop)
    }

    fn source(&self) -> Option<Arc<dyn RedoSource>> {
        let running = self.running.upgrade()?;
        match &*running.mode() {
            Mode::Primary(primary) => Some(primary.source.clone()),
            _ => None,
        }
    }

    fn copies(&self) -> Option<Arc<dyn RedoSource>> {
        let running = self.running.upgrade()?;
        match &*running.mode() {
            Mode::Standby(standby) => Some(standby.forwarding.source()),
            _ => None,
        }
    }

    fn status(&self, history: bool) -> String {
        self.running
            .upgrade()
            .map(|running| crate::observe::for_others(&running, history))
            .and_then(|observation| serde_json::to_string(&observation).ok())
            .unwrap_or_else(|| "{}".into())
    }

    fn enter_thread(&self, name: &str) {
        self.environment.instruments.enter_thread(name);
    }

    fn event(&self, event: &ReceiverEvent) {
        if self.refusals.is_new(event) {
            self.environment.alert.say(format!("receiver: {event}"));
        }
    }

    fn authorise(&self, peer: &str, wish: Right) -> Result<(), Refusal> {
        self.environment.authorise(peer, wish)
    }

    fn endorsed(&self, hello: &transport::SenderHello, from: Option<SocketAddr>) {
        self.environment.note_endorsed(hello, from);
    }

    fn rights_version(&self) -> u64 {
        self.environment.keeper.rights_version()
    }

    fn endorsed_again(&self, source: &str, members: &[MemberRights]) {
        self.environment.note_members(source, members);
    }

    fn certificate_channel(&self, channel: &Arc<transport::CertificateChannel>) {
        self.environment.keeper.note_channel(channel);
    }

    fn certify(
        &self,
        wish: &CertificateRequest,
        right: &CertificateRight,
    ) -> Result<CertificateGrant, Refusal> {
        self.environment.certify(wish, right)
    }
}
