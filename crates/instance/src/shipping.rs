//! The primary's redo as its senders read it, and the senders as the commit path uses them.

use crate::archive_source;
use crate::config::{Compression, DestinationConfig, OnTimeout, TransportMode};
use crate::control::{Control, FencedBy, Incarnation};
use crate::database::{Database, WRITER_TIMEOUT};
use crate::destination_config::State;
use crate::destination_groups::{Group, Ships, Uses, judge, let_others_go};
use crate::destination_lines::DestinationLines;
use crate::environment::Environment;
use crate::error::InstanceError;
use crate::page_copy::{copy_pages, failed};
use crate::primary::{PrimaryShared, Shipping};
use crate::retention::{self, Copies, Holder, Known, LeftBehind};
use crate::security::members::names_of;
use standfast_format::StreamCrc;
use standfast_instruments::{Cause, RemoteAnswer};
use standfast_log::{LogBuffer, LogError, RedoChunk, RedoLog};
use standfast_sqlite_wal::WalIndexHeader;
use standfast_transport as transport;
use standfast_transport::protection::{Member, ProtectionMode};
use standfast_transport::selection::Use;
use standfast_transport::{
    ArchiveTransport, ArchivedFile, ArchivedLogInfo, Archivers, Batch, DatabaseInfo, DestinationSet,
    DestinationStatus, GapSettings, IssuerAt, MemberRights, PeerIdentity, Piece, RedoSource, Refusal, Sender,
    SenderConfig, SenderEvent, SenderObserver, SnapshotInfo, SourceError, Standing, StreamShape,
};
use standfast_types::{BATCH_BYTES_MAX, DatabaseId, PageNo, ReleasePosition, Scn};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// Pause before a copy that met a waiting log switch is retried.
const SWITCH_PAUSE: Duration = Duration::from_millis(20);

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

/// Redo of a primary, for its senders and for copies.
pub struct PrimarySource {
    environment: Arc<Environment>,
    shared: Arc<PrimaryShared>,
    log: Arc<RedoLog>,
    copies: Mutex<Copies>,
    membership: Mutex<()>,
}

impl PrimarySource {
    pub fn new(
        environment: Arc<Environment>,
        shared: Arc<PrimaryShared>,
        log: Arc<RedoLog>,
    ) -> PrimarySource {
        PrimarySource { environment, shared, log, copies: Mutex::default(), membership: Mutex::default() }
    }

    /// Prevents copies from beginning while the guard is held: a database that is protected meanwhile is in the next
    /// copy, or in the redo after the copies already given out.
    pub fn hold_copies(&self) -> MutexGuard<'_, ()> {
        self.membership.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn redo_log(&self) -> &Arc<RedoLog> {
        &self.log
    }

    /// Oldest position that a copy, or a standby just copied, still needs.
    pub fn held_from(&self) -> Scn {
        let destinations = self.shared.shipping().destinations();
        self.copies().needed_from(&destinations, Instant::now())
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

pub(crate) fn source_error(error: LogError) -> SourceError {
    match error {
        LogError::TooOld { at, oldest } => SourceError::Gone { wanted: at, oldest },
        other => SourceError::Failed(Box::new(other)),
    }
}

/// Converts the beginning of a log to the transport's type.
pub fn log_switch(switch: standfast_log::LogSwitch) -> transport::LogSwitch {
    transport::LogSwitch {
        sequence: switch.sequence,
        first_scn: switch.first_scn,
        time_us: switch.time_us,
        first_record: switch.first_record,
    }
}

fn piece(chunk: &Arc<RedoChunk>) -> Piece {
    Piece::new(chunk.first, chunk.clone())
}

/// Content of a log buffer from `from` on; `None` when that is no longer in it.
pub(crate) fn pieces(buffer: &LogBuffer, from: Scn, bytes_max: usize) -> Option<Vec<Piece>> {
    if from == buffer.captured() {
        return Some(Vec::new());
    }
    let start = buffer.chunk_start(from)?;
    let chunks = buffer.chunks(start, bytes_max.min(BATCH_BYTES_MAX))?;
    Some(chunks.iter().map(piece).collect())
}

impl RedoSource for PrimarySource {
    fn identity(&self) -> PeerIdentity {
        peer_identity(&self.environment, transport::Role::Primary)
    }

    fn peers(&self) -> Vec<String> {
        names_of(&self.members())
    }

    fn members(&self) -> Vec<MemberRights> {
        self.environment.endorsed_for(false)
    }

    fn rights_version(&self) -> u64 {
        self.environment.keeper.rights_version()
    }

    fn issuer(&self) -> Option<IssuerAt> {
        self.environment.issuer()
    }

    fn objection(&self, destination: &str) -> Option<Refusal> {
        self.environment.objection(destination)
    }

    fn captured(&self) -> Scn {
        self.shared.buffer.captured()
    }

    fn durable(&self) -> Scn {
        self.shared.buffer.durable()
    }

    fn oldest(&self) -> Scn {
        self.log.oldest()
    }

    fn buffered(&self, from: Scn, bytes_max: usize) -> Option<Vec<Piece>> {
        pieces(&self.shared.buffer, from, bytes_max)
    }

    fn logged(&self, from: Scn, bytes_max: usize) -> Result<Vec<u8>, SourceError> {
        let mut out = Vec::new();
        self.log.read(from, self.durable(), bytes_max, &mut out).map_err(source_error)?;
        Ok(out)
    }

    fn stream_crc(&self, at: Scn) -> Result<Option<standfast_format::StreamCrc>, SourceError> {
        if at <= self.durable() {
            return self.log.stream_crc(at).map_err(source_error);
        }
        let durable = self.durable();
        let Some(mut crc) = self.log.stream_crc(durable).map_err(source_error)? else { return Ok(None) };
        let Some(pieces) = self.buffered(durable, BATCH_BYTES_MAX) else { return Ok(None) };
        for piece in pieces {
            crc = crc.after(piece.clip(durable, at).bytes());
        }
        Ok((at <= self.captured()).then_some(crc))
    }

    fn switches(&self, after: Scn, upto: Scn) -> Vec<transport::LogSwitch> {
        self.log.switches(after, upto).into_iter().map(log_switch).collect()
    }

    fn log_containing(&self, at: Scn) -> Option<transport::LogSwitch> {
        self.log.log_containing(at).map(log_switch)
    }

    fn logs(&self) -> Option<transport::LogGeometry> {
        let (layout, block_bytes) = (self.log.layout(), self.log.config().block_bytes);
        let group_bytes = layout.groups.values().max().copied()?;
        Some(transport::LogGeometry { groups: layout.groups.len(), group_bytes, block_bytes })
    }

    fn archived_from(&self, from: Scn) -> Result<Option<(Vec<ArchivedLogInfo>, StreamCrc)>, SourceError> {
        let history = self.environment.control().incarnations;
        archive_source::archived_from(&self.log, &history, from, self.durable())
    }

    fn open_archived(&self, log: &ArchivedLogInfo) -> Result<Box<dyn ArchivedFile>, SourceError> {
        archive_source::open(self.environment.disk.as_ref(), &self.log, log)
    }

    fn databases(&self) -> Result<Vec<DatabaseInfo>, SourceError> {
        let _membership = self.hold_copies();
        // Durable before a copy is given out.
        if !self.environment.control().copied {
            self.environment.update_control(|control| control.copied = true).map_err(failed)?;
        }
        let info = |database: Arc<crate::database::Database>| {
            let record = database.record();
            DatabaseInfo {
                id: record.id,
                name: record.name.clone(),
                page_size: record.page_size,
                path: record.path.display().to_string(),
            }
        };
        Ok(self.shared.all_databases().into_iter().map(info).collect())
    }

    fn snapshot(
        &self,
        id: DatabaseId,
        sink: &mut dyn FnMut(PageNo, &[u8]) -> std::io::Result<()>,
    ) -> Result<SnapshotInfo, SourceError> {
        let gone = || failed(InstanceError::Failed(format!("database {id} is not protected")));
        let database = self.shared.database(id).ok_or_else(gone)?;
        // Held first, so that the redo from the copy's SCN on is available when the standby connects.
        let from = self.durable();
        let destinations = self.shared.shipping().destinations();
        self.copies().begin(from, destinations);
        let copied = self.copy_database(id, &database, sink);
        self.copies().end(from, Instant::now());
        copied
    }
}

impl PrimarySource {
    fn copy_database(
        &self,
        id: DatabaseId,
        database: &Database,
        sink: &mut dyn FnMut(PageNo, &[u8]) -> std::io::Result<()>,
    ) -> Result<SnapshotInfo, SourceError> {
        let end = Instant::now() + WRITER_TIMEOUT;
        let (reader, scn) = loop {
            match database.snapshot_and(|_, header| self.commit_of(database, header)) {
                Err(_) if self.shared.log_switch_waits() && Instant::now() < end => {
                    std::thread::sleep(SWITCH_PAUSE);
                }
                other => break other.map_err(failed)?,
            }
        };
        Ok(SnapshotInfo { database: id, scn, pages: copy_pages(&reader, sink)? })
    }

    /// Returns the SCN of the newest commit, the one that `header` shows, once it is captured and durable. The caller
    /// holds the write lock, so no commit follows meanwhile.
    fn commit_of(
        &self,
        database: &crate::database::Database,
        header: &WalIndexHeader,
    ) -> Result<Scn, InstanceError> {
        let id = database.id().0;
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let durable = self.shared.buffer.durable();
            let (epoch, salts) = self.shared.segment.epoch(id);
            let captured = database.captured();
            let is_newest =
                salts == header.raw_salts() && captured == ReleasePosition::new(epoch, header.frames());
            // An empty WAL was reset after everything before it had been captured.
            if is_newest || header.frames() == 0 {
                // There is no commit of this database between its last one and the durable position. The latter is an
                // equally valid position for the copy, and needs no old redo even if the database has not changed for
                // long.
                return Ok(database.last_commit().max(durable));
            }
            // The checkpointer, for which the switch may be waiting, needs the connection that is held here.
            if Instant::now() > deadline || self.shared.log_switch_waits() {
                let why = format!("database {} was not captured in time for a copy", database.record().name);
                return Err(InstanceError::Failed(why));
            }
            self.shared.segment.mark_dirty(id);
            self.shared.segment.ring();
            self.shared.buffer.wait(Scn(u64::MAX), durable, Duration::from_millis(10));
        }
    }
}

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

    /// See [`let_others_go`].
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
        let mut told = self.left_behind.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        report_left_behind(&self.environment, &self.senders, self.oldest_then, self.log.oldest(), &mut told);
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

/// Reports destinations that lack removed redo, each once until it connects again.
pub(crate) fn report_left_behind(
    environment: &Environment,
    senders: &[Arc<Sender>],
    oldest_then: Scn,
    oldest: Scn,
    told: &mut [bool],
) {
    for (sender, told) in senders.iter().zip(told) {
        let judged = retention::left_behind(holder(sender), oldest_then, oldest);
        let lacks = match judged {
            LeftBehind::No => None,
            LeftBehind::Perhaps => Some("what it has is not known".to_owned()),
            LeftBehind::Yes { needs } => Some(format!("it needs redo from {needs} on")),
        };
        if let (Some(lacks), false) = (&lacks, *told) {
            environment.alert.say(format!(
                "destination {}: LEFT BEHIND: archived logs before {oldest} are removed (archive_bytes_max), and \
                 {lacks} | hint: put the removed logs back from a backup, or create the standby again with \
                 `standfast standby create`",
                sender.status().name
            ));
        }
        *told = lacks.is_some();
    }
}

pub(crate) fn holder(sender: &Sender) -> Holder {
    let hardened = Some(sender.status().hardened).filter(|scn| *scn > Scn::ZERO);
    Holder { required: sender.is_required(), hardened }
}

pub(crate) fn sender_config(
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
fn counts(control: &Control, destination: &DestinationConfig, shipped: &[DestinationConfig]) -> bool {
    let known = |at: &DestinationConfig| control.synchronised.as_ref().is_none_or(|of| of.contains(&at.name));
    let nothing_else = || {
        control.protection_mode == ProtectionMode::MaximumProtection
            && !shipped.iter().any(|at| at.transport_mode() == TransportMode::SyncAffirm && known(at))
    };
    destination.group > 0 || known(destination) || nothing_else()
}

/// Durably records, on such an event, that commits wait for the destination after a restart.
pub(crate) fn note_synchronised(environment: &Environment, name: &str, event: &SenderEvent) {
    let synchronised = matches!(event, SenderEvent::Synchronised { .. } | SenderEvent::Resynchronised { .. });
    if synchronised && let Err(error) = environment.update_control(|control| control.note_synchronised(name))
    {
        environment.alert.say(format!(
            "destination {name}: that it has been synchronised cannot be recorded: after a restart commits wait for it \
             only when it has caught up: {error}"
        ));
    }
}

fn transport_mode(destination: &DestinationConfig) -> transport::TransportMode {
    match destination.transport_mode() {
        TransportMode::SyncAffirm => transport::TransportMode::SyncAffirm,
        TransportMode::Fastsync => transport::TransportMode::FastSync,
        TransportMode::Async => transport::TransportMode::Async,
    }
}

/// Policy for a destination that delays commits, in a protection mode.
fn policy(
    destination: &DestinationConfig,
    mode: ProtectionMode,
    environment: &Environment,
) -> (transport::OnTimeout, Duration) {
    let on_timeout = match destination.on_timeout {
        Some(OnTimeout::Stall) => transport::OnTimeout::Stall,
        Some(OnTimeout::Degrade) => transport::OnTimeout::Degrade,
        None => mode.on_timeout(transport_mode(destination)),
    };
    (on_timeout, Duration::from_secs(environment.config.protection.sync_latency_s))
}

impl Shipping for Destinations {
    fn offer(&self, chunk: &Arc<RedoChunk>, durable: Scn) {
        if self.senders.is_empty() {
            return;
        }
        let pieces = [piece(chunk)];
        let log_first = self.log.current_first();
        let batch = Batch { pieces: &pieces, log_first, durable, captured: self.buffer.captured() };
        for sender in &self.senders {
            sender.offer(&batch);
        }
    }

    fn releasable(&self, local: Scn) -> Scn {
        let required = self.senders.iter().filter(|sender| sender.is_required());
        required.map(|sender| sender.acknowledged()).fold(local, Scn::min)
    }

    fn unanswered(&self, local: Scn) -> Option<String> {
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
