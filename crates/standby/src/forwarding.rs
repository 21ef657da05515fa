//! A standby that forwards: it sends redo on to its own destinations as it receives it (real-time cascade).
//!
//! Hardened redo is sent on together with the position that the primary has confirmed: exactly the two positions that
//! this standby was given itself. So a commit that was acknowledged because this standby has it reaches the
//! destinations also when the primary is gone before it confirmed anything, and no destination applies redo that may
//! still be truncated. When the primary has redo truncated here, the streams to the destinations begin again and find
//! that out by comparing, as after a restart of a primary ([`StandbyShared::begin_epoch`]).
//!
//! Commits of the primary do not wait for these destinations, unless one is synchronous and for standbys alone
//! (VALID_FOR): then this standby acknowledges only what that destination has, too, until it degrades
//! ([`CascadeLimit`]).

use crate::standby_copy;
use crate::standby_shared::{Downstream, StandbyShared};
use standfast_environment::config::destination_config::State;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::DestinationConfig;
use standfast_environment::context::environment::Environment;
use standfast_environment::security::members::names_of;
use standfast_environment::ship::archive_source;
use standfast_environment::ship::destination_groups::{Group, Ships, Uses, judge, let_others_go};
use standfast_environment::ship::destination_lines::DestinationLines;
use standfast_environment::ship::identity::peer_identity;
use standfast_environment::ship::retention;
use standfast_environment::ship::sender_settings::{
    holder, note_synchronised, report_left_behind, sender_config,
};
use standfast_environment::ship::slices::{log_switch, slices};
use standfast_environment::ship::source_error::source_error;
use standfast_format::StreamCrc;
use standfast_instruments::RemoteAnswer;
use standfast_transport as transport;
use standfast_transport::selection::Use;
use standfast_transport::{
    ArchivedFile, ArchivedLogInfo, Archivers, CascadeLimit, DatabaseInfo, Hop, IssuerAt, LogGeometry,
    MemberRights, PeerIdentity, PositionCall, RedoSlice, RedoSource, Refusal, RefuseCode, Sender,
    SenderEvent, SenderObserver, SnapshotInfo, SourceError,
};
use standfast_types::{DatabaseId, PageNo, Scn};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

/// The received redo as senders read it.
pub struct ForwardingSource {
    environment: Arc<Environment>,
    shared: Arc<StandbyShared>,
}

impl RedoSource for ForwardingSource {
    fn identity(&self) -> PeerIdentity {
        peer_identity(&self.environment, self.environment.control().role.of_peer())
    }

    fn peers(&self) -> Vec<String> {
        names_of(&self.members())
    }

    fn members(&self) -> Vec<MemberRights> {
        self.environment.endorsed_for(true)
    }

    fn rights_version(&self) -> u64 {
        self.environment.keeper.rights_version()
    }

    fn configuration(&self) -> Option<serde_json::Value> {
        self.environment.shared_configuration.document()
    }

    fn configuration_version(&self) -> u64 {
        self.environment.shared_configuration.changes()
    }

    fn issuer(&self) -> Option<IssuerAt> {
        self.environment.issuer()
    }

    fn captured(&self) -> Scn {
        self.shared.hardened()
    }

    fn position_of_primary(&self, answer: PositionCall) {
        self.shared.ask_how_current(Some(answer));
    }

    /// What destinations may regard as confirmed.
    fn durable(&self) -> Scn {
        self.shared.confirmed()
    }

    fn sendable(&self) -> Scn {
        self.shared.hardened()
    }

    fn epoch(&self) -> u64 {
        self.shared.epoch()
    }

    fn objection(&self, destination: &str) -> Option<Refusal> {
        let control = self.environment.control();
        if let Some(newer) = &control.superseded_by {
            // The redo here may belong to the abandoned branch.
            let text = format!(
                "`{}` follows incarnation {}, which has not reached this {}, `{}`, yet; it will when the new primary ships to \
                 it",
                newer.peer,
                newer.number(),
                control.role,
                self.environment.config.instance.name
            );
            return Some(Refusal::new(RefuseCode::Behind, text));
        }
        if let Some(objection) = self.environment.objection(destination) {
            return Some(objection);
        }
        let upstream = control.upstream?;
        let way = upstream.via.iter().map(|hop| &hop.name).chain([&upstream.name]);
        let from = way.into_iter().find(|name| *name == destination)?;
        let text = format!("the redo received here comes from `{from}`: it is not sent back there");
        Some(Refusal::new(RefuseCode::Loop, text))
    }

    fn via(&self) -> Vec<Hop> {
        let Some(upstream) = self.environment.control().upstream else { return Vec::new() };
        let last = Hop { instance: upstream.instance, name: upstream.name };
        upstream.via.into_iter().chain([last]).collect()
    }

    fn logs(&self) -> Option<LogGeometry> {
        self.environment.control().upstream?.logs
    }

    fn oldest(&self) -> Scn {
        self.shared.log.oldest()
    }

    fn buffered(&self, from: Scn, bytes_max: usize) -> Option<Vec<RedoSlice>> {
        slices(&self.shared.buffer().clone(), from, bytes_max)
    }

    fn logged(&self, from: Scn, bytes_max: usize) -> Result<Vec<u8>, SourceError> {
        let epoch = self.shared.epoch();
        let mut out = Vec::new();
        match self.shared.log.read(from, self.shared.hardened(), bytes_max, &mut out) {
            Err(error) if self.shared.epoch() == epoch && epoch.is_multiple_of(2) => Err(source_error(error)),
            // The redo to be read is being truncated: the stream will find that out.
            _ => Ok(out),
        }
    }

    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, SourceError> {
        if at > self.shared.hardened() {
            return Ok(None);
        }
        let sum = self.shared.log.stream_crc(at).map_err(source_error)?;
        if sum.is_some() || at < self.oldest() {
            return Ok(sum);
        }
        // The receiver has reused the group while it was read; its archived log is there.
        self.shared.log.stream_crc(at).map_err(source_error)
    }

    fn switches(&self, after: Scn, upto: Scn) -> Vec<transport::LogSwitch> {
        self.shared.log.switches(after, upto).into_iter().map(log_switch).collect()
    }

    fn log_containing(&self, at: Scn) -> Option<transport::LogSwitch> {
        self.shared.log.log_containing(at).map(log_switch)
    }

    fn archived_from(&self, from: Scn) -> Result<Option<(Vec<ArchivedLogInfo>, StreamCrc)>, SourceError> {
        let history = self.environment.control().incarnations;
        archive_source::archived_from(&self.shared.log, &history, from, self.shared.confirmed())
    }

    fn open_archived(&self, log: &ArchivedLogInfo) -> Result<Box<dyn ArchivedFile>, SourceError> {
        archive_source::open(self.environment.disk.as_ref(), &self.shared.log, log)
    }

    fn databases(&self) -> Result<Vec<DatabaseInfo>, SourceError> {
        Ok(standby_copy::databases(&self.environment))
    }

    fn snapshot(
        &self,
        id: DatabaseId,
        sink: &mut dyn FnMut(PageNo, &[u8]) -> std::io::Result<()>,
    ) -> Result<SnapshotInfo, SourceError> {
        standby_copy::copy(&self.environment, &self.shared, id, sink)
    }
}

/// Called when a destination turns out to know a newer incarnation than this instance.
pub type SupersededCall = Arc<dyn Fn(&PeerIdentity, &transport::Incarnation) + Send + Sync>;

pub struct Forwarding {
    environment: Arc<Environment>,
    source: Arc<ForwardingSource>,
    /// Start of the oldest log when the first senders were started.
    oldest_then: Scn,
    senders: Mutex<Senders>,
    /// Called when a destination has acknowledged more, or is no longer waited for.
    moved: Arc<Moved>,
    archivers: Arc<Archivers>,
    superseded: SupersededCall,
}

#[derive(Default)]
struct Moved(Mutex<Option<Arc<dyn Fn() + Send + Sync>>>);

impl Moved {
    fn call(&self) {
        let call = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        if let Some(call) = call {
            call();
        }
    }
}

#[derive(Clone, Default)]
struct Senders {
    /// Configuration that each of the senders was started with.
    configured: Vec<DestinationConfig>,
    running: Vec<Arc<Sender>>,
    /// Which of the senders have been reported as left behind.
    left_behind: Vec<bool>,
    uses: Uses,
}

impl Senders {
    fn group(&self) -> Group<'_> {
        Group { configured: &self.configured, senders: &self.running }
    }
}

impl Forwarding {
    /// Starts a sender for each of `configured`.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        environment: &Arc<Environment>,
        shared: &Arc<StandbyShared>,
        configured: &[DestinationConfig],
        superseded: SupersededCall,
    ) -> Result<Arc<Forwarding>, InstanceError> {
        let source = ForwardingSource { environment: environment.clone(), shared: shared.clone() };
        let forwarding = Arc::new(Forwarding {
            environment: environment.clone(),
            source: Arc::new(source),
            oldest_then: shared.log.oldest(),
            senders: Mutex::default(),
            moved: Arc::default(),
            archivers: Archivers::new(environment.config.redo.archive_processes),
            superseded,
        });
        forwarding.configure(configured)?;
        let downstream: Weak<Forwarding> = Arc::downgrade(&forwarding);
        shared.forward_through(downstream);
        Ok(forwarding)
    }

    fn in_force(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Puts these destinations in force; of those in groups the best reachable ones are in use. A sender continues when
    /// its destination is configured as before.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn configure(&self, configured: &[DestinationConfig]) -> Result<(), InstanceError> {
        let before = self.in_force().clone();
        let forwarded: Vec<_> = configured.iter().filter(|at| is_forwarded_to(at)).cloned().collect();
        let (_, uses) = judge(&forwarded, &self.status());
        let mut fresh = Senders { uses, ..Senders::default() };
        for destination in &forwarded {
            if fresh.uses.get(&destination.name) == Some(&Use::Rests) {
                continue;
            }
            let known =
                before.configured.iter().zip(&before.running).find(|(config, _)| *config == destination);
            let sender = match known {
                Some((_, sender)) => sender.clone(),
                None => self.start_sender(destination)?,
            };
            fresh.configured.push(destination.clone());
            fresh.running.push(sender);
            fresh.left_behind.push(false);
        }
        let ended = |sender: &&Arc<Sender>| !fresh.running.iter().any(|other| Arc::ptr_eq(other, sender));
        let ended: Vec<_> = before.running.iter().filter(ended).cloned().collect();
        *self.in_force() = fresh.clone();
        let_others_go(&fresh.uses, fresh.group(), before.group());
        ended.iter().for_each(|sender| sender.stop());
        // Commits may wait for other destinations now.
        self.moved.call();
        Ok(())
    }

    /// Returns the source of the received redo and of copies of databases.
    pub fn source(&self) -> Arc<ForwardingSource> {
        self.source.clone()
    }

    fn start_sender(&self, destination: &DestinationConfig) -> Result<Arc<Sender>, InstanceError> {
        let mut config = sender_config(destination, &self.environment, &Arc::default(), &self.archivers);
        if !is_waited_for(destination) {
            config.destination.mode = transport::TransportMode::Async;
        }
        let (environment, moved) = (self.environment.clone(), self.moved.clone());
        let superseded = self.superseded.clone();
        let observer = Observer {
            environment,
            name: destination.name.clone(),
            lines: DestinationLines::default(),
            moved,
            superseded,
        };
        let sender = Sender::start(0, config, self.source.clone(), Arc::new(observer));
        sender.map(Arc::new).map_err(|error| InstanceError::Failed(error.to_string()))
    }

    pub fn stop(&self) {
        let running = std::mem::take(&mut *self.in_force()).running;
        for sender in running {
            sender.stop();
        }
    }
}

/// Whether commits of the primary wait for it, too: only when it is synchronous and for standbys alone. Most
/// synchronous destinations of a standby are meant for the time when it is a primary.
fn is_waited_for(destination: &DestinationConfig) -> bool {
    destination.is_sync() && !destination.valid_for.of_a_primary()
}

/// Whether a standby has a sender for the destination.
fn is_forwarded_to(destination: &DestinationConfig) -> bool {
    destination.state == State::Enable && !destination.is_local() && destination.valid_for.of_a_standby()
}

impl Ships for Forwarding {
    fn is_shipped_to(&self, destination: &DestinationConfig) -> bool {
        is_forwarded_to(destination)
    }

    fn uses(&self) -> Uses {
        self.in_force().uses.clone()
    }

    fn senders(&self) -> Vec<Arc<Sender>> {
        self.in_force().running.clone()
    }
}

impl Downstream for Forwarding {
    /// Wakes the senders: there is more to send, or redo was truncated.
    fn wake(&self) {
        for sender in &self.in_force().running {
            sender.wake();
        }
    }

    /// Returns the position from which archived logs are needed: logs that end after it are kept, whatever their
    /// volume, as at a primary. Reports destinations that the removal of other logs has left behind.
    fn needed_from(&self) -> Scn {
        let mut senders = self.in_force();
        let Senders { running, left_behind, .. } = &mut *senders;
        let oldest = self.source.oldest();
        report_left_behind(&self.environment, running, self.oldest_then, oldest, left_behind);
        retention::needed_from(running.iter().map(|sender| holder(sender)))
    }
}

impl CascadeLimit for Forwarding {
    fn limit(&self, position: Scn) -> Scn {
        let senders = self.in_force();
        let required = senders.running.iter().filter(|sender| sender.is_required());
        required.map(|sender| sender.acknowledged_now()).fold(position, Scn::min)
    }

    fn watch(&self, moved: Option<Arc<dyn Fn() + Send + Sync>>) {
        *self.moved.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = moved;
    }
}

struct Observer {
    environment: Arc<Environment>,
    name: String,
    lines: DestinationLines,
    moved: Arc<Moved>,
    superseded: SupersededCall,
}

impl SenderObserver for Observer {
    fn acknowledged(&self, _: usize, _: Option<RemoteAnswer>) {
        self.moved.call();
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

    fn superseded(&self, peer: &PeerIdentity, newer: &transport::Incarnation) {
        (self.superseded)(peer, newer);
    }

    fn certificate_channel(&self, channel: &Arc<transport::CertificateChannel>) {
        self.environment.keeper.note_channel(channel);
    }

    fn certify(&self, wish: &transport::CertificateRequest) -> Result<transport::CertificateGrant, Refusal> {
        self.environment.certify(wish, &transport::CertificateRight::Certificate)
    }

    fn event(&self, _: usize, event: &SenderEvent) {
        let line = self.lines.line(Instant::now(), &self.name, event);
        line.into_iter().for_each(|line| self.environment.alert.say(line));
        note_synchronised(&self.environment, &self.name, event);
    }
}
