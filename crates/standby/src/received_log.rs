//! The standby redo log as the receiver writes it.

use crate::archive_store;
use crate::lost_redo;
use crate::sizing;
use crate::standby_shared::{BUFFER_BYTES, StandbyShared};
use crate::upstream::upstream;
use crate::verified::Verified;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::archiving::{archive_at_once, event_of, wait_for};
use standfast_environment::ship::members::note_members;
use standfast_environment::state::control::{GapRecord, Incarnation, Upstream};
use standfast_format::{LogKind, StreamCrc};
use standfast_instruments::Waiting;
use standfast_log::{LogBuffer, LogError, LogIdentity, LogWriter, RedoLog};
use standfast_transport as transport;
use standfast_transport::{
    CascadeLimit, Gap, GivenUp, OpenedGap, PositionRequests, Refusal, RefuseCode, SenderHello, StageError,
    StandbyLog, StoppedDatabase, StreamStart, VerifiedDatabase, stage_error,
};
use standfast_types::{Hint, Scn};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The standby redo log on the receiver's side.
pub struct ReceivedLog {
    pub(crate) environment: Arc<Environment>,
    pub(crate) shared: Arc<StandbyShared>,
    pub(crate) writer: LogWriter,
    /// While a gap is open: what the primary has confirmed beyond it.
    pub(crate) beyond_gap: Option<Scn>,
    /// What the newest stream brought beyond a gap that was not filled.
    pub(crate) given_up: Option<GivenUp>,
    pub(crate) archive: Arc<dyn Fn() + Send + Sync>,
    pub(crate) has_archiver: bool,
    /// The authenticated source of the stream that is about to begin.
    upstream: Option<Upstream>,
}

impl ReceivedLog {
    /// Opens the standby log after a stop of any kind.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(environment: &Arc<Environment>) -> Result<ReceivedLog, InstanceError> {
        let config = environment.log_config(LogKind::Standby);
        let (disk, gap) = (environment.disk.clone(), environment.control().gap);
        let archive = &environment.paths.archive;
        let checkpoint = environment.control().checkpoint;
        archive_store::remove_unfinished(disk.as_ref(), archive)
            .map_err(InstanceError::io("remove unfinished archived logs in", archive))?;
        let hole = gap.as_ref().map(GapRecord::hole);
        let (log, mut writer, recovered) = RedoLog::open_after_hole(disk, config, hole)?;
        note_members(environment, &log)?;
        let lacks_redo = lost_redo::note(environment, recovered.lost, recovered.end)?;
        writer.settle()?;
        if let Some(gap) = gap {
            if recovered.end < gap.to {
                environment.alert.say(format!(
                    "logs {} to {} were missing at the stop: redo beyond {} is dropped and has to be sent again; none of it \
                     was acknowledged",
                    gap.low_sequence, gap.high_sequence, gap.to
                ));
            }
            environment.update_control(|control| control.gap = None)?;
        }
        // Redo in synced databases counts as confirmed: it was confirmed before it was applied.
        let confirmed = recovered.confirmed.max(checkpoint).min(recovered.end);
        log.set_checkpoint(checkpoint);
        let verified = Verified::new(&environment.control().differing);
        let shared = Arc::new(StandbyShared::new(log, recovered.end, confirmed, verified));
        shared.lacks_redo.store(lacks_redo, SeqCst);
        let upstream = environment.control().upstream;
        shared.note_upstream(upstream.as_ref());
        environment.tell_standby_primary(upstream.as_ref());
        let mut received = ReceivedLog {
            environment: environment.clone(),
            shared,
            writer,
            beyond_gap: None,
            given_up: None,
            archive: Arc::new(|| {}),
            has_archiver: false,
            upstream: None,
        };
        received.forget_foreign_logs()?;
        received.lead_on()?;
        Ok(received)
    }

    /// Sets the function that is called when a log is full, and repeatedly while the next group cannot be used yet.
    pub fn when_full(&mut self, archive: Arc<dyn Fn() + Send + Sync>) {
        self.archive = archive;
        self.has_archiver = true;
    }

    pub fn writer(&mut self) -> &mut LogWriter {
        &mut self.writer
    }

    pub fn shared(&self) -> &Arc<StandbyShared> {
        &self.shared
    }

    /// Durably counts all received redo as confirmed: no source decides about it any more.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn confirm_everything(&mut self) -> Result<(), InstanceError> {
        // The threads of the standby have ended. Usually the gap was already discarded when the stream ended.
        self.has_archiver = false;
        self.give_up()?;
        let end = self.writer.position();
        if end > self.shared.confirmed() {
            self.writer.write_confirmed(end)?;
            self.note_end(end);
        }
        Ok(())
    }

    /// Ends the log at `end`, the end of the last complete record, and archives all of it. Returns the running checksum
    /// at `end`.
    ///
    /// # Errors
    /// When the log cannot be written or archived.
    pub fn close_at(&mut self, end: Scn) -> Result<StreamCrc, InstanceError> {
        self.writer.cut(end, end)?;
        // From now on these belong to an abandoned branch.
        self.remove_archived_beyond(end)?;
        let crc = self.writer.stream_crc();
        let log = self.shared.log.clone();
        self.archive_what_can_be_read()?;
        // Everything is applied and synced: any group may be reused.
        log.set_checkpoint(end);
        if !self.writer.group_is_empty()
            && self.writer.switch(standfast_environment::state::now::now_us())?.is_ok()
        {
            self.archive_what_can_be_read()?;
        }
        Ok(crc)
    }

    /// Archives the logs that can be read, for a failover: all redo is in the databases, so only a standby that lacks
    /// it needs the logs.
    fn archive_what_can_be_read(&self) -> Result<(), InstanceError> {
        match archive_at_once(&self.shared.log) {
            Err(error @ LogError::Lost { .. }) => {
                self.environment
                    .alert
                    .say(format!("failover: a log is not archived: {}", error.in_one_line()));
                Ok(())
            }
            result => Ok(result?),
        }
    }

    fn note_end(&mut self, confirmed: Scn) {
        match &mut self.beyond_gap {
            Some(beyond) => {
                *beyond = confirmed.max(*beyond);
                self.shared.confirmed_beyond.fetch_max(confirmed.0, SeqCst);
            }
            None => {
                self.shared.set_hardened(self.writer.position());
                self.shared.confirmed.fetch_max(confirmed.0, SeqCst);
            }
        }
        self.shared.last_heard_us.store(standfast_environment::state::now::now_us(), SeqCst);
        self.look_for_lost_redo(None);
    }

    /// Checks whether lost redo has arrived again.
    fn look_for_lost_redo(&self, source_end: Option<Scn>) {
        if !self.shared.lacks_redo.load(SeqCst) {
            return;
        }
        let end = self.contiguous_end();
        match lost_redo::is_still_missing(&self.environment, end, source_end) {
            Ok(missing) => self.shared.lacks_redo.store(missing, SeqCst),
            // Checked again when more redo arrives.
            Err(error) => self.environment.alert.say(error.in_one_line()),
        }
    }

    /// Writes a batch into the current group. This log switches only when the primary does, so groups here are at least
    /// as large as the primary's.
    fn write(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, StageError> {
        // Recovery trusts the confirmed position in the newest block.
        let confirmed = confirmed.max(StandbyLog::confirmed(self));
        let end = self.writer.write(slices, confirmed).map_err(stage_error)?;
        let bytes = slices.concat();
        let buffer = self.shared.buffer().clone();
        buffer.append(bytes);
        buffer.set_durable(end);
        self.note_end(confirmed);
        Ok(end)
    }
}

impl StandbyLog for ReceivedLog {
    fn received_end(&self) -> Scn {
        self.writer.position()
    }

    fn confirmed(&self) -> Scn {
        self.beyond_gap.unwrap_or_else(|| self.shared.confirmed())
    }

    fn contiguous_end(&self) -> Scn {
        self.shared.log.end_before_hole().unwrap_or_else(|| self.writer.position())
    }

    fn open_gap(&mut self, gap: &Gap, log: &transport::LogSwitch) -> Result<OpenedGap, StageError> {
        let identity = self.identity_of(log);
        self.open_gap_to(gap, &switch_of(log), identity).map_err(stage_error)
    }

    fn fill_gap(&mut self) -> Result<(), StageError> {
        self.fill().map_err(stage_error)
    }

    fn give_up_gap(&mut self) -> Result<Option<GivenUp>, StageError> {
        self.give_up().map_err(stage_error)
    }

    fn applied(&self) -> Scn {
        self.shared.applied()
    }

    fn stopped(&self, known: u64) -> Option<(u64, Vec<StoppedDatabase>)> {
        self.shared.stopped.since(known)
    }

    fn verified(&self, known: u64) -> Option<(u64, Vec<VerifiedDatabase>)> {
        self.shared.verified.since(known, |id| self.environment.database_name(id))
    }

    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, StageError> {
        if at == self.writer.position() {
            return Ok(Some(self.writer.stream_crc()));
        }
        self.shared.log.stream_crc(at).map_err(stage_error)
    }

    fn read(&self, from: Scn, bytes: usize) -> Result<Vec<u8>, StageError> {
        let mut out = Vec::new();
        while out.len() < bytes {
            let before = out.len();
            let (log, end) = (&self.shared.log, self.writer.position());
            log.read(from + before as u64, end, bytes - before, &mut out).map_err(stage_error)?;
            if out.len() == before {
                return Err(format!("the standby log ends before SCN {}", from + bytes as u64).into());
            }
        }
        Ok(out)
    }

    fn log_containing(&self, at: Scn) -> Option<transport::LogSwitch> {
        self.shared.log.log_containing(at).map(standfast_environment::ship::slices::log_switch)
    }

    fn cut(&mut self, at: Scn) -> Result<(), StageError> {
        let (shared, confirmed) = (self.shared.clone(), self.shared.confirmed());
        // The receiver has compared it with the confirmed position already: databases may hold what is confirmed.
        if at < confirmed {
            return Err(format!(
                "redo is not cut at SCN {at}: the primary has confirmed it up to {confirmed}"
            )
            .into());
        }
        debug_assert!(shared.applied() <= at, "redo that is applied is withdrawn");
        let _streams_begin_again = shared.begin_epoch();
        self.writer.cut(at, confirmed)?;
        *self.shared.buffer() = Arc::new(LogBuffer::new(at, BUFFER_BYTES));
        self.note_end(Scn::ZERO);
        Ok(())
    }

    fn admit(&mut self, hello: &SenderHello) -> Result<(), Refusal> {
        self.is_sound().map_err(|error| {
            Refusal::new(RefuseCode::StandbyLog, format!("the standby log failed: {error}"))
        })?;
        let upstream = upstream(&self.environment.control(), hello)?;
        if let Some(online) = &hello.logs {
            // The actual sizes, not the configured ones.
            let sizes = self.shared.log.layout().groups;
            let smallest = sizes.values().min().copied().unwrap_or(0);
            let name = &self.environment.config.instance.name;
            let warning = sizing::check(online, sizes.len(), smallest, name)?;
            if self.shared.note_sizing_warning(warning.clone()) {
                self.environment.alert.say(format!("standby redo logs: {}", warning.unwrap_or_default()));
            }
        }
        self.upstream = Some(upstream);
        self.shared.completeness().begin_stream(hello.mode);
        Ok(())
    }

    fn cascade_limit(&self) -> Option<Arc<dyn CascadeLimit>> {
        self.shared.downstream().map(|downstream| downstream as Arc<dyn CascadeLimit>)
    }

    fn heard(&self, delivered: Scn, source_end: Scn, waits_until: Option<Instant>) {
        self.shared.last_heard_us.store(standfast_environment::state::now::now_us(), SeqCst);
        let mut report = self.shared.report();
        (report.delivered, report.source_end) = (delivered, Some(source_end));
        drop(report);
        self.shared.completeness().heard(delivered, source_end, waits_until, Instant::now());
        self.look_for_lost_redo(Some(source_end));
    }

    fn may_request_positions(&self, requests: Option<PositionRequests>) {
        self.shared.may_request_positions(requests);
    }

    fn position_came(&self, request: u64, position: Scn) {
        self.shared.position_came(request, position);
        self.shared.publish_freshness(&self.environment);
    }

    fn refuses(&self) {
        self.shared.completeness().refused();
    }

    fn begin(&mut self, start: &StreamStart) -> Result<(), StageError> {
        self.shared.report().begin_stream();
        self.given_up = None;
        let incarnations: Vec<Incarnation> =
            start.source.incarnations.iter().map(Incarnation::from).collect();
        let control = self.environment.control();
        let same = |a: &Incarnation, b: &Incarnation| a.id == b.id && a.branch == b.branch;
        let newest = incarnations.last().map_or(0, |incarnation| incarnation.number);
        let follows = control.superseded_by.as_ref().is_some_and(|newer| newer.number() <= newest);
        let equal = control.incarnations.len() == incarnations.len()
            && control.incarnations.iter().zip(&incarnations).all(|(a, b)| same(a, b));
        let upstream = self.upstream.take().or_else(|| control.upstream.clone());
        self.shared.note_upstream(upstream.as_ref());
        self.environment.tell_standby_primary(upstream.as_ref());
        if equal && upstream == control.upstream && !follows {
            return Ok(());
        }
        let shared = self.shared.clone();
        let _streams_begin_again = shared.begin_epoch();
        let stored = self.environment.update_control(|control| {
            if !equal {
                control.incarnations = incarnations;
            }
            control.upstream = upstream;
            if follows {
                control.superseded_by = None;
            }
        });
        stored.and_then(|()| self.forget_foreign_logs()).map_err(stage_error)
    }

    fn append(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, StageError> {
        standfast_io::fault::check(standfast_io::fault::Fault::Received)?;
        self.write(slices, confirmed)
    }

    fn switch(&mut self, log: &transport::LogSwitch) -> Result<(), StageError> {
        let identity = self.identity_of(log);
        if log.sequence == self.writer.sequence() && identity == self.writer.identity() {
            return Ok(());
        }
        let switch = switch_of(log);
        let mut wait: Option<Waiting> = None;
        loop {
            match self.writer.switch_to(&switch, identity).map_err(stage_error)? {
                Ok(_) => break,
                Err(_) if self.shared.is_stopping() => {
                    return Err("stopped while waiting for a standby log".into());
                }
                Err(why) => {
                    wait_for(&mut wait, event_of(why));
                    (self.archive)();
                    self.shared.wake();
                    std::thread::park_timeout(Duration::from_millis(2));
                }
            }
        }
        drop(wait);
        (self.archive)();
        Ok(())
    }

    fn confirm(&mut self, confirmed: Scn) -> Result<(), StageError> {
        self.writer.write_confirmed(confirmed).map_err(stage_error)?;
        self.note_end(confirmed);
        Ok(())
    }

    fn is_sound(&self) -> Result<(), StageError> {
        self.writer.is_usable().map_err(stage_error)
    }

    fn hardened_notice(&self) {
        self.shared.wake();
        self.shared.wake_senders();
    }
}

impl ReceivedLog {
    fn identity_of(&self, log: &transport::LogSwitch) -> LogIdentity {
        let control = self.environment.control();
        let entered = |incarnation: &&Incarnation| {
            incarnation.branch < log.first_scn || (incarnation.branch == log.first_scn && log.sequence == 1)
        };
        let found = control.incarnations.iter().rev().find(entered).or(control.incarnations.first());
        match found {
            Some(incarnation) => LogIdentity {
                instance: control.family,
                incarnation: incarnation.number,
                incarnation_id: incarnation.id,
            },
            None => self.writer.identity(),
        }
    }
}

fn switch_of(log: &transport::LogSwitch) -> standfast_log::LogSwitch {
    standfast_log::LogSwitch {
        sequence: log.sequence,
        first_scn: log.first_scn,
        time_us: log.time_us,
        first_record: log.first_record,
    }
}

/// The log as the receiver holds it; the instance keeps the other reference for a failover.
pub struct LentLog(pub Arc<Mutex<ReceivedLog>>);

impl LentLog {
    /// See [`ReceivedLog::confirm_everything`].
    ///
    /// # Errors
    /// See there.
    pub fn confirm_everything(&self) -> Result<(), InstanceError> {
        self.log().confirm_everything()
    }

    /// Redo that had arrived beyond a gap that was not filled; it is lost with its source.
    pub fn given_up(&self) -> Option<GivenUp> {
        self.log().given_up
    }

    /// See [`ReceivedLog::close_at`].
    ///
    /// # Errors
    /// See there.
    pub fn close_at(&self, end: Scn) -> Result<StreamCrc, InstanceError> {
        self.log().close_at(end)
    }

    fn log(&self) -> MutexGuard<'_, ReceivedLog> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl StandbyLog for LentLog {
    fn received_end(&self) -> Scn {
        self.log().received_end()
    }
    fn confirmed(&self) -> Scn {
        self.log().confirmed()
    }
    fn applied(&self) -> Scn {
        self.log().applied()
    }
    fn stopped(&self, known: u64) -> Option<(u64, Vec<StoppedDatabase>)> {
        self.log().stopped(known)
    }
    fn verified(&self, known: u64) -> Option<(u64, Vec<VerifiedDatabase>)> {
        self.log().verified(known)
    }
    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, StageError> {
        self.log().stream_crc(at)
    }
    fn read(&self, from: Scn, bytes: usize) -> Result<Vec<u8>, StageError> {
        self.log().read(from, bytes)
    }
    fn log_containing(&self, at: Scn) -> Option<transport::LogSwitch> {
        self.log().log_containing(at)
    }
    fn cut(&mut self, at: Scn) -> Result<(), StageError> {
        self.log().cut(at)
    }
    fn admit(&mut self, hello: &SenderHello) -> Result<(), Refusal> {
        self.log().admit(hello)
    }
    fn cascade_limit(&self) -> Option<Arc<dyn CascadeLimit>> {
        self.log().cascade_limit()
    }
    fn heard(&self, delivered: Scn, source_end: Scn, waits_until: Option<Instant>) {
        self.log().heard(delivered, source_end, waits_until);
    }
    fn may_request_positions(&self, requests: Option<PositionRequests>) {
        self.log().may_request_positions(requests)
    }
    fn position_came(&self, request: u64, position: Scn) {
        self.log().position_came(request, position)
    }
    fn refuses(&self) {
        self.log().refuses();
    }
    fn begin(&mut self, start: &StreamStart) -> Result<(), StageError> {
        self.log().begin(start)
    }
    fn append(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, StageError> {
        self.log().append(slices, confirmed)
    }
    fn switch(&mut self, log: &transport::LogSwitch) -> Result<(), StageError> {
        self.log().switch(log)
    }
    fn confirm(&mut self, confirmed: Scn) -> Result<(), StageError> {
        self.log().confirm(confirmed)
    }
    fn contiguous_end(&self) -> Scn {
        self.log().contiguous_end()
    }
    fn open_gap(&mut self, gap: &Gap, log: &transport::LogSwitch) -> Result<OpenedGap, StageError> {
        self.log().open_gap(gap, log)
    }
    fn fill_gap(&mut self) -> Result<(), StageError> {
        self.log().fill_gap()
    }
    fn give_up_gap(&mut self) -> Result<Option<GivenUp>, StageError> {
        self.log().give_up_gap()
    }
    fn is_sound(&self) -> Result<(), StageError> {
        self.log().is_sound()
    }
    fn hardened_notice(&self) {
        self.log().hardened_notice();
    }
}
