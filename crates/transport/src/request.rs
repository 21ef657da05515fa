//! Requests on new connections, from the side that asks.

use crate::error::{PROTOCOL_VERSION, TransportError};
use crate::framing::{FrameReader, FrameWriter};
use crate::hello::Request;
use crate::link::{self, LinkEnd, Security};
use standfast_format::FrameKind;
use std::time::{Duration, Instant};

/// Sends a request over a new connection; returns the reader of the answers. Gives up after a silence of `silence`.
pub(crate) fn ask(
    address: &str,
    security: &Security,
    wish: &Request,
    silence: Duration,
) -> Result<FrameReader<LinkEnd>, TransportError> {
    request(connect(address, security, silence)?, wish)
}

/// Connects in order to ask something.
pub(crate) fn connect(
    address: &str,
    security: &Security,
    silence: Duration,
) -> Result<LinkEnd, TransportError> {
    let preparing = TransportError::io("asking the other instance");
    let began = Instant::now();
    let stream = link::connect(address, security, None, silence, &|| began.elapsed() > silence)?;
    stream.prepare(silence).map_err(&preparing)?;
    stream.set_read_timeout(Some(silence)).map_err(&preparing)?;
    stream.set_write_timeout(Some(silence)).map_err(&preparing)?;
    Ok(stream)
}

/// Sends the request over this connection.
pub(crate) fn request(stream: LinkEnd, wish: &Request) -> Result<FrameReader<LinkEnd>, TransportError> {
    FrameWriter::new(stream.clone())
        .write_json(FrameKind::Request, PROTOCOL_VERSION, wish)
        .map_err(TransportError::io("asking the other instance"))?;
    Ok(FrameReader::new(stream))
}
