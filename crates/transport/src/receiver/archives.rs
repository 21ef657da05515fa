//! The threads that receive the archived logs of a gap: each runs the machine of a connection ([`FetchStream`]).
//!
//! The primary connects, so that it needs no address of its own. The standby requests, because it knows which units it
//! lacks:
//!
//! ```text
//!  primary's archiver                       standby
//!    │ ── Hello {archives_to} ──────────────> │  the gap is open, and of the same primary: else Refuse
//!    │ <───────────────────────── Hello ───── │
//!    │ <── Fetch log, offset, bytes ───────── │ ┐
//!    │ ── Unit ... Unit, UnitEnd crc ───────> │ ┘ as long as something is missing
//!    │ <── Done ───────────────────────────── │
//! ```

use super::fetch::Fetch;
use super::fetch_stream::{FetchStep, FetchStream, archiver_answer};
use super::shared::Shared;
use crate::error::{PROTOCOL_VERSION, Refusal, RefuseCode, TransportError};
use crate::framing::{FrameReader, FrameWriter};
use crate::hello::SenderHello;
use crate::link::LinkEnd;
use crate::lock;
use standfast_format::FrameKind;
use standfast_io::behind::run_behind;
use std::time::Duration;

/// Serves a connection for archived logs until the gap is filled or the connection is lost.
pub(super) fn serve(
    shared: &Shared,
    link: &LinkEnd,
    reader: &mut FrameReader<LinkEnd>,
    writer: &mut FrameWriter<LinkEnd>,
    hello: &SenderHello,
) -> Result<(), TransportError> {
    let fetch = lock(&shared.fetch).clone();
    let fetch = fetch.filter(|fetch| hello.archives_to.is_some_and(|to| fetch.takes(&hello.source, to)));
    let entered = fetch.and_then(|fetch| Some((fetch.enter(link)?, fetch)));
    let Some((id, fetch)) = entered else {
        // Not for the alert log: an archiver may connect before the gap is opened, or too late, and connects again.
        let text =
            "no such gap is open here: it is about to be, or what it held has come, or its stream has ended";
        let refusal = Refusal::new(RefuseCode::Busy, text);
        return writer
            .write_json(FrameKind::Refuse, 0, &refusal)
            .map_err(TransportError::io("refusing an archiver"));
    };
    // The stream has priority over this thread.
    run_behind();
    let answer = archiver_answer(&*shared.service, shared.config.sdu_bytes);
    let fetched = writer
        .write_json(FrameKind::Hello, PROTOCOL_VERSION, &answer)
        .map_err(TransportError::io("greeting the archiver"))
        .and_then(|()| {
            let silence = hello.net_timeout().max(Duration::from_millis(100));
            link.prepare(silence).map_err(TransportError::io("preparing the connection"))?;
            link.set_read_timeout(Some(silence)).map_err(TransportError::io("preparing the connection"))?;
            reader.allow_redo();
            fetch_units(&fetch, reader, writer)
        });
    fetch.leave(id);
    match fetched {
        // The stream's thread finds this refusal and ends the stream with it.
        Err(TransportError::Refused(_)) => Ok(()),
        other => other,
    }
}

fn fetch_units(
    fetch: &Fetch,
    reader: &mut FrameReader<LinkEnd>,
    writer: &mut FrameWriter<LinkEnd>,
) -> Result<(), TransportError> {
    let mut machine = FetchStream::default();
    loop {
        match machine.step(fetch, reader, writer)? {
            FetchStep::Taken => {}
            FetchStep::Done => return Ok(()),
            FetchStep::AwaitsWork => fetch.wait_for_work(),
            FetchStep::AwaitsBytes => {
                if let Err(error) = reader.fill() {
                    return Err(machine.lost(fetch, error.into()));
                }
            }
        }
    }
}
