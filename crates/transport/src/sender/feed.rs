//! The feeder: connects, and sends the redo that the log writer could not send itself.

use super::connect;
use super::current::Ended;
use super::failure::Failure;
use super::gap;
use super::shared::Shared;
use crate::error::SourceError;
use crate::link::LinkEnd;
use crate::redo::Piece;
use crate::wire::{Told, Wire};
use crate::{lock, now_us};
use standfast_instruments::{Event, Statistic, count, waiting};
use standfast_io::fault::{self, Fault};
use standfast_types::{BATCH_BYTES_MAX, Scn};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// A confirmation without redo is sent once no frame was sent for this long. Under load the next batch carries the
/// durable position; at rest, readers of the standby see the last commit this much later.
const CONFIRM_AFTER: Duration = Duration::from_millis(2);
/// Redo that stays unconfirmed for longer waits for a slow local write; the feeder then polls less often.
const CONFIRM_SLOWLY_AFTER: Duration = Duration::from_millis(100);
/// Bytes per read of a log.
const LOGGED_BYTES: usize = 1024 * 1024;
/// Longest wait for a full socket before the feeder checks everything else.
const WRITABLE_POLL: Duration = Duration::from_millis(500);

pub(super) fn run(shared: &Shared) {
    let _ = shared.feeder.set(std::thread::current());
    while !shared.stopping() {
        let due = shared.with_destination(|destination, now| destination.connect_due(now));
        match due {
            Some(Duration::ZERO) => {}
            // `enable` and `stop` wake this thread.
            wait => {
                std::thread::park_timeout(wait.unwrap_or(Duration::from_secs(3600)));
                continue;
            }
        }
        let attach = waiting(Event::TransportAttach);
        let established = connect::establish(shared);
        drop(attach);
        match established {
            Ok(gap) => gap::beside(shared, gap, || feed(shared)),
            Err(_) if shared.stopping() => {}
            Err(Failure::Own(reason)) => shared.deciding(|at, now| at.restarts_stream(now, reason)),
            Err(Failure::Lost(reason)) => shared.deciding(|at, now| at.lost(now, reason)),
            Err(Failure::Refused(refusal)) => shared.deciding(|at, now| at.refused(now, refusal)),
            Err(Failure::Fenced { incarnation, peer }) => {
                shared.with_destination(|at, _| at.fenced(incarnation, peer));
            }
        }
    }
}

enum Step {
    /// Something was sent; there may be more.
    Sent,
    Blocked(LinkEnd),
    /// Nothing to do for this long, unless woken.
    Idle(Duration),
    /// The ack reader has dropped the connection.
    Down,
}

/// Sends until the connection is over.
fn feed(shared: &Shared) {
    while !shared.stopping() {
        let step = match lock(&shared.wire).as_mut() {
            Some(wire) => advance(shared, wire),
            None => Ok(Step::Down),
        };
        match step {
            Ok(Step::Sent) => {}
            Ok(Step::Blocked(stream)) => {
                // The result does not matter: the next step finds out.
                let _ = stream.wait_writable(WRITABLE_POLL);
            }
            Ok(Step::Idle(wait)) => std::thread::park_timeout(wait),
            Ok(Step::Down) => break,
            Err(ended) => {
                shared.close(ended);
                *lock(&shared.wire) = None;
            }
        }
    }
    while !shared.is_down() {
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// Takes the next step. An error says why the connection must be closed.
fn advance(shared: &Shared, wire: &mut Wire) -> Result<Step, Ended> {
    let sending = |error: std::io::Error| Ended::Lost(format!("sending failed: {error}"));
    // This is no failure of the destination; the next handshake finds out what it means.
    let reading = |error: SourceError| Ended::Restart(format!("reading own redo failed: {error}"));
    if !wire.flush().map_err(sending)? {
        return Ok(Step::Blocked(wire.stream().clone()));
    }
    // Read before the redo: redo that is offered later may begin another log.
    let mut upto = Scn(shared.offered.load(SeqCst)).max(shared.source.sendable());
    let (pieces, read) = next_redo(shared, wire.sent, upto).map_err(reading)?;
    for log in shared.source.switches(wire.announced, upto) {
        if log.first_scn > wire.sent {
            upto = log.first_scn;
            break;
        }
        if log.first_scn < wire.sent {
            let place = format!("log {} begins at {}, behind what was sent", log.sequence, log.first_scn);
            return Err(Ended::Restart(place));
        }
        told(shared, wire)?;
        wire.send_switch(&log).map_err(sending)?;
        if !wire.is_clear() {
            return Ok(Step::Blocked(wire.stream().clone()));
        }
    }
    let pieces = clip(pieces, wire.sent, upto.min(wire.sent + wire.payload_bytes_max as u64));
    if pieces.is_empty() {
        let told = told(shared, wire)?;
        return idle(shared, wire, told).map_err(sending);
    }
    let told = told(shared, wire)?;
    fault::check(Fault::Send).map_err(sending)?;
    let before = wire.sent;
    let (sent, whole) = wire.send_redo(&pieces, told).map_err(sending)?;
    shared.stats.wire_bytes.fetch_add(sent as u64, Relaxed);
    wire.confirm_armed = true;
    shared.stats.frames_deferred.fetch_add(1, Relaxed);
    let bytes = wire.sent.bytes_since(before);
    shared.stats.redo_bytes.fetch_add(bytes, Relaxed);
    count(read, bytes);
    if !whole {
        shared.stats.frames_partial.fetch_add(1, Relaxed);
    }
    Ok(Step::Sent)
}

/// Returns redo from `from` on, from the log buffer or else from the logs, and which of the two; empty when there is
/// none before `upto`.
fn next_redo(shared: &Shared, from: Scn, upto: Scn) -> Result<(Vec<Piece>, Statistic), SourceError> {
    let (memory, logs) = (Statistic::RedoReadMemoryForTransport, Statistic::RedoReadForTransport);
    if upto <= from {
        // The destination has caught up, even if no redo follows for hours.
        note_feeding(shared, false, from);
        return Ok((Vec::new(), memory));
    }
    let from_logs = match shared.source.buffered(from, BATCH_BYTES_MAX) {
        Some(pieces) => {
            note_feeding(shared, false, from);
            return Ok((pieces, memory));
        }
        None => shared.source.logged(from, LOGGED_BYTES)?,
    };
    if from_logs.is_empty() {
        return Ok((Vec::new(), logs));
    }
    note_feeding(shared, true, from);
    Ok((vec![Piece::new(from, Arc::new(from_logs))], logs))
}

fn note_feeding(shared: &Shared, from_logs: bool, at: Scn) {
    let catching_up = matches!(shared.phase(), crate::Phase::CatchingUp);
    if catching_up != from_logs {
        shared.with_destination(|destination, _| destination.feeding(from_logs, at));
    }
}

/// Returns the part of `pieces` between `from` and `upto`.
fn clip(mut pieces: Vec<Piece>, from: Scn, upto: Scn) -> Vec<Piece> {
    if pieces.first().is_some_and(|piece| piece.first() < from)
        || pieces.last().is_some_and(|piece| piece.end() > upto)
    {
        pieces.iter_mut().for_each(|piece| *piece = piece.clip(from, upto));
    }
    pieces.retain(|piece| !piece.bytes().is_empty());
    pieces
}

/// Returns the positions that the next frame carries. Fails if the epoch has changed since the stream began: everything
/// read from the source until now then may not belong to this stream. A durable position of another epoch could confirm
/// redo that the destination holds of this one, and redo of another epoch could be taken for redo of this one.
pub(super) fn told(shared: &Shared, wire: &Wire) -> Result<Told, Ended> {
    let told = Told {
        durable: shared.source.durable(),
        captured: shared.source.captured(),
        time_us: now_us(),
        wait: shared.wait(),
    };
    let epoch = shared.source.epoch();
    if epoch == wire.epoch && epoch.is_multiple_of(2) {
        Ok(told)
    } else {
        Err(Ended::Restart("what this instance receives has changed: the stream begins again".into()))
    }
}

/// Handles an idle stream: sends the durable position when it is due, else returns how long to wait.
fn idle(shared: &Shared, wire: &mut Wire, told: Told) -> std::io::Result<Step> {
    let quiet = Instant::now().saturating_duration_since(wire.last_sent);
    let news = told.durable.min(wire.sent) > wire.reported_durable;
    if news && quiet >= CONFIRM_AFTER || quiet >= shared.heartbeat() {
        wire.send_confirm(told)?;
        shared.stats.confirms.fetch_add(1, Relaxed);
        return Ok(Step::Sent);
    }
    wire.confirm_armed = wire.sent > wire.reported_durable;
    let wait = if !wire.confirm_armed {
        shared.heartbeat().saturating_sub(quiet)
    } else if quiet < CONFIRM_SLOWLY_AFTER {
        CONFIRM_AFTER
    } else {
        CONFIRM_AFTER * 10
    };
    Ok(Step::Idle(wait))
}
