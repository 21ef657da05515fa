//! The senders of a primary as the commit path uses them.

use crate::commit::primary::{PrimaryShared, Shipping};
use crate::ship::redo_source::PrimarySource;
use standfast_environment::config::destination_config::State;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::DestinationConfig;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::destination_groups::{Group, Ships, Uses, judge, let_others_go};
use standfast_environment::ship::destination_lines::DestinationLines;
use standfast_environment::ship::retention::{self, Known};
use standfast_environment::ship::sender_settings::{
    counts, holder, note_synchronised, policy, report_left_behind, sender_config,
};
use standfast_environment::ship::slices::slice_of;
use standfast_environment::state::control::FencedBy;
use standfast_instruments::{Cause, RemoteAnswer};
use standfast_log::{RedoChunk, RedoLog};
use standfast_transport as transport;
use standfast_transport::protection::{Member, ProtectionMode};
use standfast_transport::selection::Use;
use standfast_transport::{
    Archivers, Batch, DestinationSet, DestinationStatus, PeerIdentity, Refusal, Sender, SenderEvent,
    SenderObserver, Standing,
};
use standfast_types::Scn;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

pub struct Destinations {
    environment: Arc<Environment>,
    senders: Vec<Arc<Sender>>,
    destination_set: Arc<DestinationSet>,
    archivers: Arc<Archivers>,
    /// The destination each sender was started for.
    configured: Vec<DestinationConfig>,
    /// Which destinations are in use, of all that the primary may ship to.
    uses: Uses,
    /// Which destinations have been reported as left behind.
    left_behind: Mutex<Vec<bool>>,
    /// Start of the oldest log when the first of the senders was started.
    oldest_then: Scn,
    buffer: Arc<standfast_log::LogBuffer>,
    log: Arc<RedoLog>,
}

impl Destinations {
    /// Starts a sender for each configured destination. A sender of `before` continues if the configuration of its
    /// destination is unchanged: changing another destination does not interrupt it.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        environment: &Arc<Environment>,
        shared: &Arc<PrimaryShared>,
        source: &Arc<PrimarySource>,
        configured: &[DestinationConfig],
        before: Option<&Destinations>,
        fenced: &FencedCall,
    ) -> Result<Arc<Destinations>, InstanceError> {
        let mut senders = Vec::new();
        let destination_set = before.map_or_else(Arc::default, |before| before.destination_set.clone());
        let shipped =
            configured.iter().filter(|at| Destinations::are_shipped_to(at)).cloned().collect::<Vec<_>>();
        let (_, uses) = judge(&shipped, &before.map_or_else(Vec::new, Ships::status));
        let rests = |at: &&DestinationConfig| uses.get(&at.name) == Some(&Use::Rests);
        let in_use: Vec<&DestinationConfig> = shipped.iter().filter(|at| !rests(at)).collect();
        let archivers = before.map_or_else(
            || Archivers::new(environment.config.redo.archive_processes),
            |before| before.archivers.clone(),
        );
        for destination in &in_use {
            if let Some(sender) = before.and_then(|before| before.sender_for(destination)) {
                senders.push(sender.clone());
                continue;
            }
            let observer = Observer {
                environment: environment.clone(),
                shared: Arc::downgrade(shared),
                name: destination.name.clone(),
                lines: DestinationLines::default(),
                fenced: fenced.clone(),
            };
            let mut config = sender_config(destination, environment, &destination_set, &archivers);
            config.counts = environment.of_control(|control| counts(control, destination, &shipped));
            let sender = Sender::start(0, config, source.clone(), Arc::new(observer))
                .map_err(|error| InstanceError::Failed(error.to_string()))?;
            senders.push(Arc::new(sender));
        }
        let log = source.redo_log().clone();
        Ok(Arc::new(Destinations {
            environment: environment.clone(),
            left_behind: Mutex::new(vec![false; senders.len()]),
            oldest_then: before.map_or_else(|| log.oldest(), |before| before.oldest_then),
            senders,
            destination_set,
            archivers,
            configured: in_use.into_iter().cloned().collect(),
            uses,
            buffer: shared.buffer.clone(),
            log,
        }))
    }

    fn sender_for(&self, destination: &DestinationConfig) -> Option<&Arc<Sender>> {
        let known = self.configured.iter().zip(&self.senders).find(|(config, _)| *config == destination);
        known.map(|(_, sender)| sender)
    }

    /// Ends the senders that `others` does not continue, and informs their standbys that commits do not wait for them.
    pub fn stop_without(&self, others: &Destinations) {
        let ended = |sender: &&Arc<Sender>| !others.senders.iter().any(|other| Arc::ptr_eq(other, sender));
        self.senders.iter().filter(ended).for_each(|sender| sender.stop_waiting_for());
    }

    pub fn let_others_go(&self, before: &Destinations) {
        let_others_go(&self.uses, self.group(), before.group());
    }

    fn group(&self) -> Group<'_> {
        Group { configured: &self.configured, senders: &self.senders }
    }

    /// Whether a primary has a sender for the destination.
    pub fn are_shipped_to(destination: &DestinationConfig) -> bool {
        destination.state == State::Enable && !destination.is_local() && destination.valid_for.of_a_primary()
    }

    /// Applies the policies of a protection mode.
    pub fn set_policies(&self, mode: ProtectionMode) {
        for (sender, destination) in self.senders.iter().zip(&self.configured) {
            let (on_timeout, sync_latency) = policy(destination, mode, &self.environment);
            sender.set_policy(on_timeout, sync_latency);
        }
    }

    /// State of the destinations for decisions about protection.
    pub fn members(&self) -> Vec<Member> {
        self.senders.iter().map(|sender| sender.member()).collect()
    }

    /// Returns the position beyond which archived logs are kept, regardless of their size; see [`retention`]. Names
    /// destinations left behind by removed logs in the alert log, each once until it connects again.
    pub fn needed_from(&self) -> Scn {
        self.report_left_behind();
        retention::needed_from(self.senders.iter().map(|sender| holder(sender)))
    }

    fn report_left_behind(&self) {
        let mut reported = self.left_behind.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        report_left_behind(
            &self.environment,
            &self.senders,
            self.oldest_then,
            self.log.oldest(),
            &mut reported,
        );
    }

    pub fn stop(&self) {
        for sender in &self.senders {
            sender.stop();
        }
    }
}

impl Ships for Destinations {
    fn is_shipped_to(&self, destination: &DestinationConfig) -> bool {
        Destinations::are_shipped_to(destination)
    }

    fn uses(&self) -> Uses {
        self.uses.clone()
    }

    fn senders(&self) -> Vec<Arc<Sender>> {
        self.senders.clone()
    }
}

impl Shipping for Destinations {
    fn offer(&self, chunk: &Arc<RedoChunk>, durable: Scn) {
        if self.senders.is_empty() {
            return;
        }
        let slices = [slice_of(chunk)];
        let log_first = self.log.current_first();
        let batch = Batch { slices: &slices, log_first, durable, captured: self.buffer.captured() };
        for sender in &self.senders {
            sender.offer(&batch);
        }
    }

    fn releasable(&self, local: Scn) -> Scn {
        if self.environment.commit_hold.is_held() {
            return Scn::ZERO;
        }
        transport::releasable_with(local, self.senders.iter().map(|sender| sender.waited_for()))
    }

    fn unanswered(&self, local: Scn) -> Option<String> {
        if let Some(why) = self.environment.commit_hold.why() {
            return Some(format!("fast-start failover ({why})"));
        }
        let behind = self.senders.iter().filter(|at| at.is_required() && at.acknowledged() < local);
        let waits: Vec<String> = behind.filter_map(|at| wait_name(&at.status())).collect();
        (!waits.is_empty()).then(|| waits.join(", "))
    }

    fn destinations(&self) -> Vec<Known> {
        let known = |sender: &Arc<Sender>| {
            let at = sender.status();
            let connected = matches!(at.phase, "streaming" | "catching_up");
            Known { name: at.name, hardened: at.hardened, connected }
        };
        self.senders.iter().map(known).collect()
    }
}

/// Name of the wait for this destination; `None` while it answers.
fn wait_name(destination: &DestinationStatus) -> Option<String> {
    let why = match (destination.standing, destination.phase) {
        (Standing::Stalled, _) => "stalled",
        (Standing::Fenced, _) => "fenced",
        (_, "streaming" | "catching_up") => return None,
        (_, phase) => phase,
    };
    Some(format!("SYNC destination {} ({why})", destination.name))
}

/// Called when a destination turns out to have been opened as primary.
pub type FencedCall = Arc<dyn Fn(String, FencedBy) + Send + Sync>;

struct Observer {
    environment: Arc<Environment>,
    shared: Weak<PrimaryShared>,
    name: String,
    lines: DestinationLines,
    fenced: FencedCall,
}

impl SenderObserver for Observer {
    fn acknowledged(&self, _: usize, by: Option<RemoteAnswer>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.release(by.map_or(Cause::Decision, Cause::Remote));
        }
    }

    fn enter_thread(&self, name: &str) {
        self.environment.instruments.enter_thread(name);
    }

    fn may_claim(
        &self,
        peer: &PeerIdentity,
        newer: &transport::Incarnation,
        proven: bool,
    ) -> Result<(), Refusal> {
        self.environment.may_claim(peer, newer, proven)
    }

    fn certificate_channel(&self, channel: &Arc<transport::CertificateChannel>) {
        self.environment.keeper.note_channel(channel);
    }

    fn certify(&self, wish: &transport::CertificateRequest) -> Result<transport::CertificateGrant, Refusal> {
        self.environment.certify(wish, &transport::CertificateRight::Certificate)
    }

    fn event(&self, _: usize, event: &SenderEvent) {
        let name = &self.name;
        self.lines
            .line(Instant::now(), name, event)
            .into_iter()
            .for_each(|line| self.environment.alert.say(line));
        note_synchronised(&self.environment, name, event);
        if let SenderEvent::Fenced { incarnation, peer } = event {
            let by = FencedBy { peer: peer.clone(), incarnation: *incarnation };
            (self.fenced)(format!("{name}: {event}"), by);
        }
    }
}
