//! The connection between primary and standby: does what sender and receiver do, one message at a time.

use crate::standby::StandbyHost;
use crate::{Held, Outcome, lock};
use standfast_environment::ship::identity::peer_identity;
use standfast_instruments::Cause;
use standfast_log::RedoChunk;
use standfast_primary::commit::primary::{PrimaryShared, Shipping};
use standfast_primary::ship::redo_source::PrimarySource;
use standfast_testkit::Rng;
use standfast_transport::hello::{PositionSum, ReceiverHello, StandbyPositions};
use standfast_transport::{
    LogSwitch, Piece, RedoSource, Role, StageError, StandbyLog, StreamStart, Verdict, View, resolve,
};
use standfast_types::Scn;
use std::sync::{Arc, Mutex};

const MESSAGE_BYTES: usize = 64 << 10;

struct Wire {
    position: Scn,
    /// First position of the newest log that was announced.
    announced: Scn,
}

struct Inner {
    wire: Option<Wire>,
    required: bool,
    /// Commits wait even without a connection.
    stall: bool,
    acknowledged: Scn,
    rng: Rng,
    /// Per cent of chunks that reach the standby before they are written at the primary.
    eager: u64,
    failure: Option<String>,
}

/// All destinations of the primary: one standby.
pub struct Link {
    source: Arc<PrimarySource>,
    shared: Arc<PrimaryShared>,
    standby: Held<StandbyHost>,
    inner: Mutex<Inner>,
}

impl Link {
    /// Creates an unconnected link. With `stall`, commits wait for the standby whether it is connected or not.
    pub fn new(
        source: &Arc<PrimarySource>,
        shared: &Arc<PrimaryShared>,
        standby: &Held<StandbyHost>,
        stall: bool,
        mut rng: Rng,
    ) -> Arc<Link> {
        let eager = rng.pick(&[0, 10, 50, 100]).copied().unwrap_or(0);
        let inner =
            Inner { wire: None, required: stall, stall, acknowledged: Scn::ZERO, rng, eager, failure: None };
        Arc::new(Link {
            source: source.clone(),
            shared: shared.clone(),
            standby: standby.clone(),
            inner: Mutex::new(inner),
        })
    }

    pub fn is_connected(&self) -> bool {
        lock(&self.inner).wire.is_some()
    }

    pub fn is_required(&self) -> bool {
        lock(&self.inner).required
    }

    /// End of the redo that the standby has acknowledged; zero before the first acknowledgement.
    pub fn acknowledged(&self) -> Scn {
        lock(&self.inner).acknowledged
    }

    pub fn disconnect(&self) {
        let mut inner = lock(&self.inner);
        inner.wire = None;
        inner.required = inner.stall;
        drop(inner);
        self.shared.release(Cause::Decision);
    }

    /// Takes the error that occurred inside the log writer.
    pub fn take_failure(&self) -> Option<String> {
        lock(&self.inner).failure.take()
    }

    /// Agrees with the standby on the position from which the stream continues.
    pub fn connect(&self) -> Outcome<()> {
        let standby = lock(&self.standby);
        let Some(standby) = standby.as_ref() else { return Ok(()) };
        let mut log = standby.log();
        let start = self.agree(standby, &mut *log)?;
        let announced =
            if start.log.first_scn == start.from { Scn(start.from.0 - 1) } else { start.log.first_scn };
        lock(&self.inner).wire = Some(Wire { position: start.from, announced });
        Ok(())
    }

    fn agree(&self, standby: &StandbyHost, log: &mut dyn StandbyLog) -> Outcome<StreamStart> {
        let source = &*self.source;
        let held = positions(log).map_err(|error| error.to_string())?;
        let known = |at: Scn| source.stream_crc(at).map_err(|error| error.to_string());
        let view = View {
            source: source.identity(),
            expected_name: None,
            durable: source.durable(),
            oldest: source.oldest(),
            crc_at_end: known(held.end.scn)?,
            log_at_end: source.log_containing(held.end.scn),
            crc_at_confirmed: known(held.confirmed.scn)?,
        };
        let peer = ReceiverHello {
            lists: false,
            standby: peer_identity(&standby.environment, Role::Standby),
            positions: Some(held),
            sdu_bytes: 0,
            renews: false,
        };
        let (from, keep) = match resolve(&view, &peer) {
            Verdict::Start { from, keep } => (from, keep),
            other => {
                return Err(format!("no way to continue with the standby: {other:?}; it holds {held:?}"));
            }
        };
        let begins = source.log_containing(from).ok_or_else(|| format!("no log contains {from}"))?;
        if from < held.confirmed.scn || from > keep || keep > held.end.scn {
            return Err(format!("a stream from {from} keeping {keep} does not continue {held:?}"));
        }
        if keep < held.end.scn {
            log.cut(keep).map_err(|error| error.to_string())?;
        }
        let start = StreamStart { source: view.source, from, keep, log: begins, gap: None };
        log.begin(&start).map_err(|error| error.to_string())?;
        Ok(start)
    }

    /// Delivers the next message, if there is one, with its acknowledgement.
    ///
    /// # Errors
    /// Errors of the standby's log or of reading the redo; they break the connection.
    pub fn deliver(&self) -> Outcome<bool> {
        let delivered = self.deliver_before(self.source.captured());
        if delivered.is_err() {
            self.disconnect();
        }
        self.shared.release(Cause::Decision);
        delivered
    }

    fn deliver_before(&self, upto: Scn) -> Outcome<bool> {
        let standby = lock(&self.standby);
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        let (Some(standby), Some(wire)) = (standby.as_ref(), inner.wire.as_mut()) else { return Ok(false) };
        let mut log = standby.log();
        let bytes = 1 + inner.rng.below(MESSAGE_BYTES as u64) as usize;
        let delivered =
            deliver(&self.source, wire, &mut *log, upto, bytes).map_err(|error| error.to_string())?;
        inner.acknowledged = inner.acknowledged.max(wire.position);
        if wire.position >= self.source.captured() {
            inner.required = true;
        }
        Ok(delivered)
    }
}

impl Shipping for Link {
    fn offer(&self, chunk: &Arc<RedoChunk>, _: Scn) {
        let eager = {
            let mut inner = lock(&self.inner);
            let eager = inner.eager;
            inner.wire.is_some() && inner.rng.chance(eager)
        };
        if !eager {
            return;
        }
        loop {
            match self.deliver_before(chunk.end()) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    let mut inner = lock(&self.inner);
                    inner.wire = None;
                    inner.required = inner.stall;
                    inner.failure = Some(error);
                    break;
                }
            }
        }
    }

    fn releasable(&self, local: Scn) -> Scn {
        let inner = lock(&self.inner);
        if inner.required { local.min(inner.acknowledged) } else { local }
    }
}

fn positions(log: &dyn StandbyLog) -> Result<StandbyPositions, StageError> {
    let sum = |scn: Scn| -> Result<PositionSum, StageError> {
        let crc =
            log.stream_crc(scn)?.ok_or_else(|| format!("the sum of the stream at {scn} is not known"))?;
        Ok(PositionSum { scn, crc: crc.0 })
    };
    let end = log.received_end();
    Ok(StandbyPositions {
        end: sum(end)?,
        confirmed: sum(log.confirmed())?,
        applied: log.applied(),
        passed: None,
        log: log.log_containing(end),
    })
}

/// Delivers what a sender would send next to the standby's log. Returns false when there was nothing.
fn deliver(
    source: &PrimarySource,
    wire: &mut Wire,
    log: &mut dyn StandbyLog,
    upto: Scn,
    bytes_max: usize,
) -> Result<bool, StageError> {
    let mut upto = upto;
    for next in source.switches(wire.announced, upto) {
        if next.first_scn > wire.position {
            upto = next.first_scn;
            break;
        }
        if next.first_scn < wire.position {
            return Err(
                format!("log {} begins at {}, behind what was sent", next.sequence, next.first_scn).into()
            );
        }
        wire.announced = next.first_scn;
        switch(wire, log, &next)?;
    }
    // The confirmed position travels with the redo, so it is read before the redo.
    let durable = source.durable();
    let redo = next_redo(source, wire.position, upto, bytes_max)?;
    let end = wire.position + redo.len() as u64;
    if !redo.is_empty() {
        let confirmed = durable.min(end).max(log.confirmed());
        let fresh = skip_held(wire.position, log, &redo)?;
        if !fresh.is_empty() {
            log.append(&[fresh], confirmed)?;
        }
        wire.position = end;
        log.hardened_notice();
        return Ok(true);
    }
    let confirmed = durable.min(wire.position).max(log.confirmed());
    if confirmed > log.confirmed() {
        log.confirm(confirmed)?;
        log.hardened_notice();
        return Ok(log.confirmed() == confirmed);
    }
    Ok(false)
}

/// Redo of the primary from `from` on, up to `upto` and `bytes_max` bytes.
///
/// # Errors
/// When the log cannot be read.
pub fn next_redo(
    source: &PrimarySource,
    from: Scn,
    upto: Scn,
    bytes_max: usize,
) -> Result<Vec<u8>, StageError> {
    if upto <= from {
        return Ok(Vec::new());
    }
    let upto = upto.min(from + bytes_max as u64);
    let pieces = match source.buffered(from, bytes_max) {
        Some(pieces) => pieces,
        None => vec![Piece::new(from, Arc::new(source.logged(from, bytes_max)?))],
    };
    Ok(pieces.iter().flat_map(|piece| piece.clip(from, upto).bytes().to_vec()).collect())
}

/// Compares redo with what the log already holds: returns the new part, and truncates the log where it differs.
fn skip_held<'r>(at: Scn, log: &mut dyn StandbyLog, redo: &'r [u8]) -> Result<&'r [u8], StageError> {
    let held_end = log.received_end();
    let compared = (held_end.bytes_since(at) as usize).min(redo.len());
    let held = log.read(at, compared)?;
    let same = held.iter().zip(redo).take_while(|(held, new)| held == new).count();
    if same < compared {
        log.cut(at + same as u64)?;
    }
    Ok(&redo[same..])
}

fn switch(wire: &Wire, log: &mut dyn StandbyLog, next: &LogSwitch) -> Result<(), StageError> {
    if log.received_end() > wire.position {
        let held = log.log_containing(wire.position);
        if held.is_some_and(|held| held.first_scn == next.first_scn && held.sequence == next.sequence) {
            return Ok(());
        }
        log.cut(wire.position)?;
    }
    log.switch(next)
}
