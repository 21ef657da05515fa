//! Checks the identity and the rights of a peer.

use crate::certificate::CertificateRight;
use crate::error::{Refusal, RefuseCode};
use crate::hello::Request;
use crate::link::Link;
use crate::rights::Right;
use crate::standby::ReceiverService;
use standfast_tls::unhex;
use std::cell::Cell;

/// What a connection proves about its other end.
pub trait Proved {
    fn is_tls(&self) -> bool;

    /// The name in the certificate of the other end; `None` over plain TCP, and for a host that has no certificate yet.
    fn peer_name(&self) -> Option<&str>;
}

impl Proved for Link {
    fn is_tls(&self) -> bool {
        Link::is_tls(self)
    }

    fn peer_name(&self) -> Option<&str> {
        Link::peer_name(self)
    }
}

/// Checks that the claimed name is the one in the certificate. Plain TCP proves nothing: there every name is accepted.
pub(super) fn is_called(link: &dyn Proved, claimed: &str) -> Result<(), Refusal> {
    match link.peer_name() {
        _ if !link.is_tls() => Ok(()),
        Some(name) if name == claimed => Ok(()),
        Some(name) => Err(Refusal::new(
            RefuseCode::WrongPeer,
            format!("`{claimed}` has a certificate of `{name}`; join it again under its own name"),
        )),
        None => Err(Refusal::new(
            RefuseCode::NotAllowed,
            format!("`{claimed}` shows no certificate; get one with a token (`standfast cert join`)"),
        )),
    }
}

/// Checks that a sender, whose name is proved, may send redo here.
pub(super) fn may_send(
    link: &dyn Proved,
    service: &dyn ReceiverService,
    claimed: &str,
) -> Result<(), Refusal> {
    if link.is_tls() { service.authorise(claimed, Right::Send) } else { Ok(()) }
}

/// Checks that a request may be answered; returns the right to a certificate when it requests one.
pub(super) fn may_ask(
    link: &Link,
    service: &dyn ReceiverService,
    request: &Request,
) -> Result<Option<CertificateRight>, Refusal> {
    if let Request::Certificate(wish) = request {
        let Some(session) = link.exported() else {
            let text = "certificates are given over encrypted connections only";
            return Err(Refusal::new(RefuseCode::Tls, text));
        };
        let Some(token) = &wish.token else {
            is_called(link, &wish.name)?;
            return Ok(Some(CertificateRight::Certificate));
        };
        let malformed = || Refusal::new(RefuseCode::Protocol, "a proof that is none");
        let proof = unhex(&token.proof).ok_or_else(malformed)?;
        return Ok(Some(CertificateRight::Token { number: token.number.clone(), proof, session }));
    }
    if link.is_tls() {
        let name = link.peer_name().ok_or_else(|| {
            let text = "this needs a certificate; get one with a token (`standfast cert join`)";
            Refusal::new(RefuseCode::NotAllowed, text)
        })?;
        match request {
            Request::Snapshot { name, .. } => is_called(link, name)?,
            Request::TakeOver(wish) => is_called(link, &wish.source.name)?,
            Request::Follow(standby) => is_called(link, &standby.name)?,
            Request::Arbitrate { name } => is_called(link, name)?,
            Request::Status { .. } | Request::Certificate(_) => {}
        }
        service.authorise(name, needed(request))?;
    }
    Ok(None)
}

/// Repeats the check of a request that takes long to answer.
pub(crate) struct Again<'a> {
    link: &'a Link,
    service: &'a dyn ReceiverService,
    request: &'a Request,
    /// Version of the rights at the last check.
    version: Cell<u64>,
}

impl<'a> Again<'a> {
    /// The request was accepted; the first [`Again::check`] checks it again.
    pub fn new(link: &'a Link, service: &'a dyn ReceiverService, request: &'a Request) -> Again<'a> {
        // No service has this version: changes right before are found too.
        Again { link, service, request, version: Cell::new(u64::MAX) }
    }

    /// Checks the request again if rights have changed.
    pub fn check(&self) -> Result<(), Refusal> {
        let version = self.service.rights_version();
        if self.version.replace(version) == version {
            return Ok(());
        }
        may_ask(self.link, self.service, self.request).map(drop)
    }
}

/// Returns the right needed for a request that is not for a certificate.
fn needed(request: &Request) -> Right {
    match request {
        Request::Snapshot { without_databases: true, only: None, .. } => Right::Receive,
        Request::Snapshot { .. } => Right::Read,
        // Only an instance that may be the primary can hand that role over, or was one that is to follow.
        Request::TakeOver(_) | Request::Follow(_) => Right::Candidate,
        // What a member may decide depends on the record, not on this.
        Request::Status { .. } | Request::Certificate(_) | Request::Arbitrate { .. } => Right::Status,
    }
}
