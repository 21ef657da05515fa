//! The receiving end of a handshake, as a machine: who the sender is, what this standby holds, where the stream begins.
//!
//! ```text
//!  sender                                this end
//!    │ ── Hello ───────────────────────> │ meets, may_take; then Agreement::open with the log
//!    │ <────────────── Hello (answer) ── │
//!    │ ── Hello (start) ───────────────> │ Agreement::start: the log is truncated and begins the stream
//! ```

use super::claims::{self, Proved};
use crate::error::{Refusal, RefuseCode, StageError, TransportError};
use crate::event::ReceiverEvent;
use crate::gap::Gap;
use crate::hello::{self, PositionSum, ReceiverHello, SenderHello, StandbyPositions};
use crate::identity::{Incarnation, Meeting, PeerIdentity, Role, meet};
use crate::standby::{ReceiverService, StandbyLog, StreamStart};
use standfast_format::{Frame, FrameKind};
use standfast_types::Scn;
use std::sync::Arc;

/// Checks who greets and which end knows the newer incarnation, before anything else. Returns the incarnation if the
/// sender's is newer: streams of older ones end.
///
/// # Errors
/// `Refused`.
pub fn meets(
    service: &dyn ReceiverService,
    proved: &dyn Proved,
    hello: &SenderHello,
) -> Result<Option<Incarnation>, Refusal> {
    claims::is_called(proved, &hello.source.name)?;
    // The first question about a sender: which end knows the newer incarnation.
    let meeting = meet(&service.identity(), &hello.source);
    // A primary that was replaced must learn it even if it is not on the allow-list: it gets the identity of this
    // instance, no more.
    if meeting != Meeting::Older {
        claims::may_send(proved, service, &hello.source.name)?;
    }
    let Meeting::Newer(newer) = meeting else { return Ok(None) };
    service.may_claim(&hello.source, &newer, proved.is_tls())?;
    // Whatever becomes of this connection, nothing of an older incarnation is acknowledged from here on.
    service.superseded(&hello.source, &newer);
    Ok(Some(newer))
}

/// Whether the sender may use the log at all. The sender decides the rest, with both histories.
pub fn may_take(mine: &PeerIdentity, source: &PeerIdentity) -> bool {
    mine.role != Role::Primary
        && matches!(meet(mine, source), Meeting::Same | Meeting::Newer(_))
        && mine.instance != source.instance
}

/// What both ends have to agree about.
pub struct Agreement {
    service: Arc<dyn ReceiverService>,
    hello: SenderHello,
    positions: StandbyPositions,
}

impl Agreement {
    /// Admits the sender to the log.
    ///
    /// # Errors
    /// `Refused`.
    pub fn open(
        service: &Arc<dyn ReceiverService>,
        hello: &SenderHello,
        log: &mut dyn StandbyLog,
    ) -> Result<Agreement, TransportError> {
        // A newer incarnation may have become known since the greeting began. If one becomes known later, it ends this
        // stream.
        let now = service.identity();
        if !may_take(&now, &hello.source) {
            return Err(TransportError::Refused(not_from_you(&now, &hello.source)));
        }
        log.admit(hello).inspect_err(|_| log.refuses()).map_err(TransportError::Refused)?;
        // For a stream that ended while its gap was open; normally that stream has done this itself.
        give_up_gap(&**service, log)?;
        let positions = positions(log).map_err(|error| standby_log(&*error))?;
        Ok(Agreement { service: service.clone(), hello: hello.clone(), positions })
    }

    /// Returns the answer to the greeting. `lists`: the connection is encrypted, and carries certificates and member
    /// lists.
    pub fn answer(&self, sdu_bytes: u32, lists: bool) -> ReceiverHello {
        let answer = ReceiverHello::new(self.service.followed(), Some(self.positions), sdu_bytes);
        ReceiverHello { renews: lists, lists, configures: true, ..answer }
    }

    /// Takes the sender's decision, the frame after the answer: truncates the log and begins the stream.
    ///
    /// # Errors
    /// `Refused`, also by the sender; `Protocol`.
    pub fn start(&self, frame: &Frame<'_>, log: &mut dyn StandbyLog) -> Result<StreamStart, TransportError> {
        hello::expect(frame, FrameKind::Hello)?;
        let start: StreamStart = hello::decode(frame)?;
        accept_start(&self.positions, &self.hello, &start)?;
        let end = self.positions.end.scn;
        if start.keep < end {
            log.cut(start.keep).map_err(|error| standby_log(&*error))?;
            self.service.event(&ReceiverEvent::Cut { at: start.keep, end });
        }
        log.begin(&start).map_err(|error| standby_log(&*error))?;
        Ok(start)
    }
}

/// Closes a gap whose stream has ended.
///
/// # Errors
/// `Refused`.
pub(super) fn give_up_gap(
    service: &dyn ReceiverService,
    log: &mut dyn StandbyLog,
) -> Result<(), TransportError> {
    if let Some(given_up) = log.give_up_gap().map_err(|error| standby_log(&*error))? {
        service.event(&ReceiverEvent::GapGivenUp(given_up));
    }
    Ok(())
}

pub(super) fn not_from_you(mine: &PeerIdentity, source: &PeerIdentity) -> Refusal {
    let text = format!(
        "`{}` takes no redo from `{}`: it is a {} of incarnation {}",
        mine.name,
        source.name,
        mine.role,
        mine.current().map_or(0, |incarnation| incarnation.number)
    );
    Refusal::new(RefuseCode::NotStandby, text)
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
        passed: log.cascade_limit().map(|cascade| cascade.limit(end)),
        log: log.log_containing(end),
    })
}

/// Checks that the sender's decision neither undoes apply nor leaves a gap that is not announced.
fn accept_start(
    held: &StandbyPositions,
    hello: &SenderHello,
    start: &StreamStart,
) -> Result<(), TransportError> {
    let sound = start.source == hello.source
        && start.from >= held.confirmed.scn
        && start.from <= start.keep
        && start.keep <= held.end.scn;
    if let Some(gap) = &start.gap {
        accept_gap(held, start, gap)?;
    }
    if sound {
        return Ok(());
    }
    let text = format!(
        "a stream from {} (keeping up to {}) does not continue what is held: confirmed {}, end {}",
        start.from, start.keep, held.confirmed.scn, held.end.scn
    );
    Err(TransportError::Refused(Refusal::new(RefuseCode::Protocol, text)))
}

/// Checks that a gap begins exactly where the held redo ends, and that none of the held redo is suspect.
fn accept_gap(held: &StandbyPositions, start: &StreamStart, gap: &Gap) -> Result<(), TransportError> {
    let in_place = start.from == held.end.scn && start.keep == held.end.scn && start.log.first_scn == gap.to;
    let checked =
        gap.check(held.end.scn).and(in_place.then_some(()).ok_or("the stream does not continue at its end"));
    checked.map_err(|why| {
        let text = format!("a gap {}..{} that cannot be: {why}", gap.from, gap.to);
        TransportError::Refused(Refusal::new(RefuseCode::Protocol, text))
    })
}

pub(super) fn standby_log(error: &(dyn std::error::Error + Send + Sync)) -> TransportError {
    TransportError::Refused(Refusal::new(RefuseCode::StandbyLog, format!("the standby log failed: {error}")))
}
