//! What is sent next over an open stream: by the feeder, and by the log writer itself.

use super::batch::{Batch, Offer};
use super::failure::Ended;
use super::sender_core::SenderCore;
use crate::destination::Phase;
use crate::destination_config::TransportMode;
use crate::error::SourceError;
use crate::packing::Compression;
use crate::redo::RedoSlice;
use crate::wire::{Outlet, Reported, Wire};
use standfast_instruments::{Statistic, count};
use standfast_io::fault::{self, Fault};
use standfast_types::{BATCH_BYTES_MAX, Scn};
use std::io::Result as IoResult;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// A confirmation without redo is sent once no frame was sent for this long. Under load the next batch carries the
/// durable position; at rest, readers of the standby see the last commit this much later.
const CONFIRM_AFTER: Duration = Duration::from_millis(2);
/// Redo that stays unconfirmed for longer waits for a slow local write; the feeder then polls less often.
const CONFIRM_SLOWLY_AFTER: Duration = Duration::from_millis(100);
/// Bytes per read of a log.
const LOGGED_BYTES: usize = 1024 * 1024;

pub enum Step {
    /// Something was sent; there may be more.
    Sent,
    /// The outlet takes no more at the moment.
    Blocked,
    /// Nothing to do for this long, unless woken.
    Idle(Duration),
}

/// What became of a batch that the log writer offered.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    pub offer: Offer,
    /// The feeder has something to do.
    pub wake: bool,
}

impl SenderCore {
    /// The log writer is about to write `batch`. Returns whether it sends the batch itself, with
    /// [`SenderCore::offer`]: compression takes time, and asynchronous destinations may lag.
    pub fn note_offered(&self, batch: &Batch<'_>) -> bool {
        if let Some(last) = batch.slices.last() {
            self.offered.store(last.end().0, SeqCst);
        }
        self.config.shape.compression == Compression::None
            && self.config.destination.mode != TransportMode::Async
    }

    /// Sends a batch if it continues exactly what the wire has taken.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn offer<O: Outlet>(&self, wire: &mut Wire<O>, batch: &Batch<'_>) -> IoResult<Offered> {
        let sent = Offered { offer: Offer::Sent, wake: false };
        let (Some(first), Some(last)) = (batch.slices.first(), batch.slices.last()) else {
            return Ok(sent);
        };
        if last.end() <= wire.sent {
            return Ok(sent);
        }
        let bytes = last.end().bytes_since(first.first());
        let continues = wire.sent == first.first()
            && wire.announced == batch.log_first
            && wire.epoch == self.source.epoch()
            && wire.is_clear();
        if !continues || bytes > wire.payload_bytes_max as u64 {
            return Ok(Offered { offer: Offer::Deferred, wake: true });
        }
        fault::check(Fault::Send)?;
        let reported = Reported {
            durable: batch.durable,
            captured: batch.captured,
            time_us: self.clock.unix_us(),
            at: self.clock.now(),
            wait: self.wait(),
        };
        let (payload, whole) = wire.send_redo(batch.slices, reported)?;
        self.stats.wire_bytes.fetch_add(payload as u64, Relaxed);
        self.stats.frames_direct.fetch_add(1, Relaxed);
        self.stats.redo_bytes.fetch_add(bytes, Relaxed);
        count(Statistic::RedoReadMemoryForTransport, bytes);
        // The feeder sends the rest, or has this redo confirmed later. A feeder with an armed confirmation polls by
        // itself.
        let armed = std::mem::replace(&mut wire.confirm_armed, true);
        if whole {
            return Ok(Offered { wake: !armed, ..sent });
        }
        self.stats.frames_partial.fetch_add(1, Relaxed);
        Ok(Offered { offer: Offer::Deferred, wake: true })
    }

    /// Takes the next step of an open stream.
    ///
    /// # Errors
    /// Why the connection must be closed.
    pub fn feed<O: Outlet>(&self, wire: &mut Wire<O>) -> Result<Step, Ended> {
        let sending = |error: std::io::Error| Ended::Lost(format!("sending failed: {error}"));
        // This is no failure of the destination; the next handshake finds out what it means.
        let reading = |error: SourceError| Ended::Restart(format!("reading own redo failed: {error}"));
        if !wire.flush().map_err(sending)? {
            return Ok(Step::Blocked);
        }
        // Read before the redo: redo that is offered later may begin another log.
        let mut upto = Scn(self.offered.load(SeqCst)).max(self.source.sendable());
        let (slices, read) = self.next_redo(wire.sent, upto).map_err(reading)?;
        for log in self.source.switches(wire.announced, upto) {
            if log.first_scn > wire.sent {
                upto = log.first_scn;
                break;
            }
            if log.first_scn < wire.sent {
                let place = format!("log {} begins at {}, behind what was sent", log.sequence, log.first_scn);
                return Err(Ended::Restart(place));
            }
            let reported = self.reported(wire)?;
            wire.send_switch(&log, reported.at).map_err(sending)?;
            if !wire.is_clear() {
                return Ok(Step::Blocked);
            }
        }
        let slices = clip(slices, wire.sent, upto.min(wire.sent + wire.payload_bytes_max as u64));
        if slices.is_empty() {
            let reported = self.reported(wire)?;
            return self.idle(wire, reported).map_err(sending);
        }
        let reported = self.reported(wire)?;
        fault::check(Fault::Send).map_err(sending)?;
        let before = wire.sent;
        let (sent, whole) = wire.send_redo(&slices, reported).map_err(sending)?;
        self.stats.wire_bytes.fetch_add(sent as u64, Relaxed);
        wire.confirm_armed = true;
        self.stats.frames_deferred.fetch_add(1, Relaxed);
        let bytes = wire.sent.bytes_since(before);
        self.stats.redo_bytes.fetch_add(bytes, Relaxed);
        count(read, bytes);
        if !whole {
            self.stats.frames_partial.fetch_add(1, Relaxed);
        }
        Ok(Step::Sent)
    }

    /// Returns redo from `from` on, from the log buffer or else from the logs, and which of the two; empty when there is
    /// none before `upto`.
    fn next_redo(&self, from: Scn, upto: Scn) -> Result<(Vec<RedoSlice>, Statistic), SourceError> {
        let (memory, logs) = (Statistic::RedoReadMemoryForTransport, Statistic::RedoReadForTransport);
        if upto <= from {
            // The destination has caught up, even if no redo follows for hours.
            self.note_feeding(false, from);
            return Ok((Vec::new(), memory));
        }
        let from_logs = match self.source.buffered(from, BATCH_BYTES_MAX) {
            Some(slices) => {
                self.note_feeding(false, from);
                return Ok((slices, memory));
            }
            None => self.source.logged(from, LOGGED_BYTES)?,
        };
        if from_logs.is_empty() {
            return Ok((Vec::new(), logs));
        }
        self.note_feeding(true, from);
        Ok((vec![RedoSlice::new(from, Arc::new(from_logs))], logs))
    }

    fn note_feeding(&self, from_logs: bool, at: Scn) {
        let catching_up = matches!(self.phase(), Phase::CatchingUp);
        if catching_up != from_logs {
            self.with_destination(|destination, _| destination.feeding(from_logs, at));
        }
    }

    /// Returns the positions that the next frame carries. Fails if the epoch has changed since the stream began: everything
    /// read from the source until now then may not belong to this stream. A durable position of another epoch could confirm
    /// redo that the destination holds of this one, and redo of another epoch could be taken for redo of this one.
    pub(super) fn reported<O: Outlet>(&self, wire: &Wire<O>) -> Result<Reported, Ended> {
        let reported = Reported {
            durable: self.source.durable(),
            captured: self.source.captured(),
            time_us: self.clock.unix_us(),
            at: self.clock.now(),
            wait: self.wait(),
        };
        let epoch = self.source.epoch();
        if epoch == wire.epoch && epoch.is_multiple_of(2) {
            Ok(reported)
        } else {
            Err(Ended::Restart("what this instance receives has changed: the stream begins again".into()))
        }
    }

    /// Handles an idle stream: sends the durable position when it is due, else returns how long to wait.
    fn idle<O: Outlet>(&self, wire: &mut Wire<O>, reported: Reported) -> IoResult<Step> {
        let quiet = reported.at.saturating_duration_since(wire.last_sent);
        let changes = reported.durable.min(wire.sent) > wire.reported_durable;
        if changes && quiet >= CONFIRM_AFTER || quiet >= self.heartbeat() {
            wire.send_confirm(reported)?;
            self.stats.confirms.fetch_add(1, Relaxed);
            return Ok(Step::Sent);
        }
        wire.confirm_armed = wire.sent > wire.reported_durable;
        let wait = if !wire.confirm_armed {
            self.heartbeat().saturating_sub(quiet)
        } else if quiet < CONFIRM_SLOWLY_AFTER {
            CONFIRM_AFTER
        } else {
            CONFIRM_AFTER * 10
        };
        Ok(Step::Idle(wait))
    }
}

/// Returns the part of `slices` between `from` and `upto`.
fn clip(mut slices: Vec<RedoSlice>, from: Scn, upto: Scn) -> Vec<RedoSlice> {
    if slices.first().is_some_and(|slice| slice.first() < from)
        || slices.last().is_some_and(|slice| slice.end() > upto)
    {
        slices.iter_mut().for_each(|slice| *slice = slice.clip(from, upto));
    }
    slices.retain(|slice| !slice.bytes().is_empty());
    slices
}
