//! Fetches a certificate from another instance, over a connection of its own.

use crate::certificate::{CertificateGrant, CertificateRequest, TokenProof};
use crate::error::{PROTOCOL_VERSION, TransportError};
use crate::framing::{FrameReader, FrameWriter};
use crate::hello::{self, Request};
use crate::link::{self, LinkEnd, Security};
use standfast_format::FrameKind;
use standfast_tls::{Token, hex};
use std::time::{Duration, Instant};

/// Silence after which a request is abandoned.
const SILENCE: Duration = Duration::from_secs(10);

/// Requests a certificate for the name `name` from the instance at `address`, with a token or by the right of the
/// current certificate. `request` is PKCS#10. `expected`: the name that the instance there must have.
///
/// # Errors
/// When it cannot be reached or refuses.
pub fn fetch_certificate(
    address: &str,
    security: &Security,
    name: &str,
    request: &[u8],
    token: Option<&Token>,
    expected: Option<&str>,
) -> Result<CertificateGrant, TransportError> {
    let asking = TransportError::io("asking for a certificate");
    let began = Instant::now();
    let stream = link::connect(address, security, expected, SILENCE, &|| began.elapsed() > SILENCE)?;
    stream.prepare(SILENCE).map_err(&asking)?;
    stream.set_read_timeout(Some(SILENCE)).map_err(&asking)?;
    stream.set_write_timeout(Some(SILENCE)).map_err(&asking)?;
    let token = token.map(|token| prove(&stream, token, name, request)).transpose()?;
    let wish = CertificateRequest { token, ..CertificateRequest::renewal(name, request) };
    let mut writer = FrameWriter::new(stream.clone());
    writer.write_json(FrameKind::Request, PROTOCOL_VERSION, &Request::Certificate(wish)).map_err(&asking)?;
    let mut reader = FrameReader::new(stream);
    let frame = reader.read()?;
    hello::expect(&frame, FrameKind::Done)?;
    hello::decode(&frame)
}

fn prove(stream: &LinkEnd, token: &Token, name: &str, request: &[u8]) -> Result<TokenProof, TransportError> {
    let session = stream.exported().ok_or_else(|| {
        TransportError::Protocol("a token is of use on an encrypted connection only".into())
    })?;
    let proof = token.prove(&session, name, request);
    let proof = proof.map_err(|error| TransportError::Certificate(error.to_string()))?;
    Ok(TokenProof { number: hex(&token.number), proof: hex(&proof) })
}
