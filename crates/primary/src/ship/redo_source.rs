//! The primary's redo as its senders read it, and copies of its databases.

use crate::commit::database::{Database, WRITER_TIMEOUT};
use crate::commit::primary::PrimaryShared;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::security::members::names_of;
use standfast_environment::ship::archive_source;
use standfast_environment::ship::identity::peer_identity;
use standfast_environment::ship::page_copy::copy_pages;
use standfast_environment::ship::retention::Copies;
use standfast_environment::ship::slices::{log_switch, slices};
use standfast_environment::ship::source_error::{failed, source_error};
use standfast_format::StreamCrc;
use standfast_log::RedoLog;
use standfast_sqlite_wal::WalIndexHeader;
use standfast_transport as transport;
use standfast_transport::{
    ArchivedFile, ArchivedLogInfo, DatabaseInfo, IssuerAt, MemberRights, PeerIdentity, PositionCall,
    RedoSlice, RedoSource, Refusal, SnapshotInfo, SourceError,
};
use standfast_types::{BATCH_BYTES_MAX, DatabaseId, PageNo, ReleasePosition, Scn};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Pause before a copy that met a waiting log switch is retried.
const SWITCH_PAUSE: Duration = Duration::from_millis(20);

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

    pub fn environment(&self) -> &Arc<Environment> {
        &self.environment
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

    fn configuration(&self) -> Option<serde_json::Value> {
        self.environment.shared_configuration.document()
    }

    fn configuration_version(&self) -> u64 {
        self.environment.shared_configuration.changes()
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

    /// Each commit is captured before it is acknowledged. While it is not known whether another member has taken over, that
    /// one may have acknowledged others.
    fn position_of_primary(&self, answer: PositionCall) {
        if !self.environment.commit_hold.is_held() {
            answer(self.captured());
        }
    }

    fn durable(&self) -> Scn {
        self.shared.buffer.durable()
    }

    fn oldest(&self) -> Scn {
        self.log.oldest()
    }

    fn buffered(&self, from: Scn, bytes_max: usize) -> Option<Vec<RedoSlice>> {
        slices(&self.shared.buffer, from, bytes_max)
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
        let Some(slices) = self.buffered(durable, BATCH_BYTES_MAX) else { return Ok(None) };
        for slice in slices {
            crc = crc.after(slice.clip(durable, at).bytes());
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
        let info = |database: Arc<crate::commit::database::Database>| {
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
        database: &crate::commit::database::Database,
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
