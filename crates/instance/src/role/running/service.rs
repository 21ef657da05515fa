//! The instance as seen by its receiver.

use super::{Mode, Running};
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::identity::{knowing_identity, peer_identity};
use standfast_environment::ship::refusals::Refusals;
use standfast_standby::upstream::upstream;
use standfast_transport as transport;
use standfast_transport::{
    CertificateGrant, CertificateRequest, CertificateRight, MemberRights, Receiver, ReceiverConfig,
    ReceiverEvent, ReceiverService, RedoSource, Refusal, RefuseCode, Right,
};
use standfast_types::hint;
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
        upstream(&self.environment.control(), hello).map(drop)
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
        self.running.upgrade().map_or_else(|| "{}".into(), |running| (running.observe)(&running, history))
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

    fn configured(
        &self,
        source: &transport::PeerIdentity,
        configuration: serde_json::Value,
        from: Option<&str>,
    ) {
        self.environment.keep_configuration(source, configuration, from.and_then(|at| at.parse().ok()));
    }

    fn certificate_channel(&self, channel: &Arc<transport::CertificateChannel>) {
        self.environment.keeper.note_channel(channel);
    }

    fn take_over(
        &self,
        wish: &transport::TakeOver,
        from: Option<SocketAddr>,
    ) -> Result<transport::TakeOverAnswer, Refusal> {
        let Some(running) = self.running.upgrade() else {
            return Err(Refusal::new(RefuseCode::Stopping, "this instance is stopping"));
        };
        running.take_over_from(wish, from)
    }

    fn follow(&self, standby: &transport::NewStandby, from: Option<SocketAddr>) -> Result<(), Refusal> {
        let Some(running) = self.running.upgrade() else {
            return Err(Refusal::new(RefuseCode::Stopping, "this instance is stopping"));
        };
        running.ship_to(standby, from)
    }

    fn certify(
        &self,
        wish: &CertificateRequest,
        right: &CertificateRight,
    ) -> Result<CertificateGrant, Refusal> {
        self.environment.certify(wish, right)
    }
}

impl Running {
    /// Listens for peers, if an address is configured.
    pub(super) fn listen(&self) -> Result<(), InstanceError> {
        let instance = &self.environment.config.instance;
        if instance.listen.is_empty() {
            return Ok(());
        }
        let config = ReceiverConfig {
            listen: instance.listen.clone(),
            security: self.environment.security(),
            ack_delay: standfast_io::fault::acknowledgement_delay(),
            sdu_bytes: self.environment.config.standby.sdu_bytes,
            ..ReceiverConfig::default()
        };
        let service = Arc::new(Service {
            running: self.me.clone(),
            environment: self.environment.clone(),
            refusals: Refusals::default(),
        });
        let receiver = Receiver::start(config, service, None).map_err(|error| {
            let text = error.to_string();
            let (what, hint) = hint::split(&text);
            InstanceError::refused(what, hint.unwrap_or("check [instance] listen in standfast.toml"))
        })?;
        *self.receiver() = Some(receiver);
        Ok(())
    }
}
