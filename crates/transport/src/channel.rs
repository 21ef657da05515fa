//! Certificates over an open stream. Either end requests one from the other, between redo and acknowledgements, so that
//! a member that cannot dial its issuer is renewed too.
//!
//! The Hello of an end says whether it answers (`renews`). The right to a certificate is the certificate with which the
//! stream began, for its name only.

use crate::certificate::{CertificateGrant, CertificateRequest};
use crate::error::{Refusal, RefuseCode, TransportError};
use crate::framing::HELLO_BYTES_MAX;
use crate::{hello, lock};
use serde::{Deserialize, Serialize};
use standfast_format::{FRAME_HEADER_BYTES, Frame, FrameHeader, FrameKind, encode_frame};
use std::io::ErrorKind;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum interval between two answers on one stream; requests in between are dropped.
const ANSWERS_APART: Duration = Duration::from_secs(1);
/// Minimum interval between two requests; longer, because a network may deliver frames in bursts.
const REQUESTS_APART: Duration = Duration::from_secs(2);

/// Sends a whole frame. Must not wait for the other end to read it for longer than the stream allows.
type Send = Box<dyn Fn(&[u8]) -> std::io::Result<()> + std::marker::Send + Sync>;
/// Decides about a request of the peer, which names the peer itself.
type Certify =
    Box<dyn Fn(&CertificateRequest) -> Result<CertificateGrant, Refusal> + std::marker::Send + Sync>;

/// The other end of an open stream over TLS, as issuer and as client of certificates.
pub struct CertificateChannel {
    peer: String,
    send: Send,
    certify: Certify,
    /// Time of the last request; locked while this end requests.
    turn: Mutex<Option<Instant>>,
    asked: Mutex<Asked>,
    changed: Condvar,
    answering: Mutex<Answering>,
}

#[derive(Default)]
struct Asked {
    number: u64,
    answer: Option<Answer>,
    closed: bool,
}

#[derive(Default)]
struct Answering {
    busy: bool,
    last: Option<Instant>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Granted(Box<CertificateGrant>),
    Refused(Refusal),
}

impl CertificateChannel {
    /// A channel over a stream whose other end has proved to be `peer`.
    pub(crate) fn open(peer: &str, send: Send, certify: Certify) -> OpenChannel {
        OpenChannel(Arc::new(CertificateChannel {
            peer: peer.to_owned(),
            send,
            certify,
            turn: Mutex::default(),
            asked: Mutex::default(),
            changed: Condvar::new(),
            answering: Mutex::default(),
        }))
    }

    /// `db_unique_name` of the other end, from its certificate.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    pub fn is_closed(&self) -> bool {
        lock(&self.asked).closed
    }

    /// Requests a certificate from the other end. Waits at most `timeout` for it, after waiting for the minimum
    /// interval between requests.
    ///
    /// # Errors
    /// `Refused` by the other end. Otherwise there was no answer: the stream ended or the timeout passed.
    pub fn ask(
        &self,
        wish: &CertificateRequest,
        timeout: Duration,
    ) -> Result<CertificateGrant, TransportError> {
        let asking = TransportError::io("asking for a certificate over the stream");
        let mut turn = lock(&self.turn);
        if let Some(left) = turn.and_then(|last| REQUESTS_APART.checked_sub(last.elapsed())) {
            let waited = self.changed.wait_timeout_while(lock(&self.asked), left, |asked| !asked.closed);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
        *turn = Some(Instant::now());
        let number = {
            let mut asked = lock(&self.asked);
            (asked.number, asked.answer) = (asked.number + 1, None);
            asked.number
        };
        let frame = encode(FrameKind::CertificateRequest, number, wish)
            .ok_or_else(|| TransportError::Protocol("a request for a certificate that is too long".into()))?;
        (self.send)(&frame).map_err(&asking)?;
        let waited = self
            .changed
            .wait_timeout_while(lock(&self.asked), timeout, |asked| asked.answer.is_none() && !asked.closed);
        let mut asked = waited.unwrap_or_else(PoisonError::into_inner).0;
        match asked.answer.take() {
            Some(Answer::Granted(grant)) => Ok(*grant),
            Some(Answer::Refused(refusal)) => Err(TransportError::Refused(refusal)),
            None if asked.closed => Err(asking(ErrorKind::ConnectionAborted.into())),
            None => Err(asking(ErrorKind::TimedOut.into())),
        }
    }

    /// Takes a `CertificateAnswer`. Drops one that this end does not wait for.
    ///
    /// # Errors
    /// `Protocol` when it is malformed.
    pub(crate) fn take_answer(&self, frame: &Frame<'_>) -> Result<(), TransportError> {
        let answer = hello::decode(frame)?;
        let mut asked = lock(&self.asked);
        if asked.number == frame.header.a {
            asked.answer = Some(answer);
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Takes a `CertificateRequest` and answers it from a separate thread: neither signing nor reading the files of the
    /// member list blocks the stream.
    ///
    /// # Errors
    /// `Protocol` when it is malformed.
    pub(crate) fn take_request(self: &Arc<Self>, frame: &Frame<'_>) -> Result<(), TransportError> {
        let wish: CertificateRequest = hello::decode(frame)?;
        let number = frame.header.a;
        {
            let mut answering = lock(&self.answering);
            // Dropped: answers to a peer that does not read them would accumulate.
            if answering.busy || answering.last.is_some_and(|last| last.elapsed() < ANSWERS_APART) {
                return Ok(());
            }
            *answering = Answering { busy: true, last: Some(Instant::now()) };
        }
        let me = self.clone();
        let spawned = std::thread::Builder::new().name("certify".into()).spawn(move || {
            me.answer(number, &wish);
            lock(&me.answering).busy = false;
        });
        // Without a thread there is no answer; the other end repeats its request.
        if spawned.is_err() {
            lock(&self.answering).busy = false;
        }
        Ok(())
    }

    fn answer(&self, number: u64, wish: &CertificateRequest) {
        let answer = match self.decide(wish) {
            Ok(grant) => Answer::Granted(Box::new(grant)),
            Err(refusal) => Answer::Refused(refusal),
        };
        let frame = encode(FrameKind::CertificateAnswer, number, &answer).or_else(|| {
            let text = "the answer does not fit into a frame: too many authorities or members are known here";
            let refusal = Answer::Refused(Refusal::new(RefuseCode::Source, text));
            encode(FrameKind::CertificateAnswer, number, &refusal)
        });
        if let Some(frame) = frame {
            // If it cannot be sent, the stream is dead, and its own threads find that out.
            let _ = (self.send)(&frame);
        }
    }

    fn decide(&self, wish: &CertificateRequest) -> Result<CertificateGrant, Refusal> {
        if wish.token.is_some() {
            return Err(Refusal::new(RefuseCode::Protocol, "a token is of no use over a stream"));
        }
        if wish.name != self.peer {
            let text = format!("`{}` has a certificate of `{}`", wish.name, self.peer);
            return Err(Refusal::new(RefuseCode::WrongPeer, text));
        }
        (self.certify)(wish)
    }

    fn close(&self) {
        lock(&self.asked).closed = true;
        self.changed.notify_all();
    }
}

/// Held by the thread that reads the stream; dropping it closes the channel.
pub struct OpenChannel(Arc<CertificateChannel>);

impl Deref for OpenChannel {
    type Target = Arc<CertificateChannel>;

    fn deref(&self) -> &Arc<CertificateChannel> {
        &self.0
    }
}

impl Drop for OpenChannel {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Returns a whole frame; `None` when it is larger than a sender accepts from the acknowledging end.
pub(crate) fn encode(kind: FrameKind, number: u64, message: &impl Serialize) -> Option<Vec<u8>> {
    let payload = serde_json::to_vec(message).ok().filter(|payload| payload.len() <= HELLO_BYTES_MAX)?;
    let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + payload.len());
    encode_frame(FrameHeader::new(kind, number, 0, 0, 0), &payload, &mut frame);
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    const WITHIN: Duration = Duration::from_secs(20);

    fn grant(authorities: &str) -> CertificateGrant {
        CertificateGrant {
            certificate: "c".into(),
            authorities: authorities.into(),
            issuer: "paris".into(),
            peers: Vec::new(),
            members: Vec::new(),
            endorsements: Vec::new(),
        }
    }

    fn wish(name: &str) -> CertificateRequest {
        CertificateRequest { name: name.into(), request: "00".into(), token: None, time: None }
    }

    /// Two ends of a stream that delivers each frame immediately: oslo requests from paris, whose answers `certify`
    /// gives.
    struct Ends {
        oslo: OpenChannel,
        paris: Arc<OnceLock<OpenChannel>>,
    }

    fn ends(
        certify: impl Fn() -> Result<CertificateGrant, Refusal> + std::marker::Send + Sync + 'static,
    ) -> Ends {
        let paris: Arc<OnceLock<OpenChannel>> = Arc::default();
        let there = paris.clone();
        let deliver = move |bytes: &[u8]| {
            let frame = Frame::decode(bytes).unwrap().0;
            there.get().unwrap().take_request(&frame).unwrap();
            Ok(())
        };
        let nothing = |_: &CertificateRequest| Err(Refusal::new(RefuseCode::NotAllowed, "not an issuer"));
        let oslo = CertificateChannel::open("paris", Box::new(deliver), Box::new(nothing));
        let back = Arc::downgrade(&oslo);
        let deliver = move |bytes: &[u8]| {
            let frame = Frame::decode(bytes).unwrap().0;
            back.upgrade().map_or(Ok(()), |oslo| oslo.take_answer(&frame)).map_err(std::io::Error::other)
        };
        let answers = CertificateChannel::open("oslo", Box::new(deliver), Box::new(move |_| certify()));
        assert!(paris.set(answers).is_ok());
        Ends { oslo, paris }
    }

    #[test]
    fn stream_issues_certificates_only_for_the_peers_own_name() {
        let ends = ends(|| Ok(grant("a")));
        assert_eq!(ends.oslo.ask(&wish("oslo"), WITHIN).unwrap(), grant("a"));
        // Called directly, because requests right after each other are dropped.
        let refused = |wish: &CertificateRequest| {
            ends.paris.get().unwrap().decide(wish).err().map(|refusal| refusal.code)
        };
        assert_eq!(refused(&wish("bergen")), Some(RefuseCode::WrongPeer));
        let token = crate::TokenProof { number: "1".into(), proof: "2".into() };
        let with_token = CertificateRequest { token: Some(token), ..wish("oslo") };
        assert_eq!(refused(&with_token), Some(RefuseCode::Protocol));
        assert_eq!(refused(&wish("oslo")), None);
    }

    #[test]
    fn certificate_requests_are_limited_to_one_a_second() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = made.clone();
        let ends = ends(move || {
            count.fetch_add(1, SeqCst);
            Ok(grant("a"))
        });
        assert!(ends.oslo.ask(&wish("oslo"), WITHIN).is_ok());
        let flood = encode(FrameKind::CertificateRequest, 9, &wish("oslo")).unwrap();
        let frame = Frame::decode(&flood).unwrap().0;
        let began = Instant::now();
        for _ in 0..1000 {
            ends.paris.get().unwrap().take_request(&frame).unwrap();
        }
        let seconds = began.elapsed().as_secs() as usize;
        assert!(made.load(SeqCst) <= 2 + seconds, "{} answers", made.load(SeqCst));
    }

    #[test]
    fn the_end_of_the_stream_ends_the_wait_for_a_certificate() {
        let silent = CertificateChannel::open(
            "paris",
            Box::new(|_| Ok(())),
            Box::new(|_| Err(Refusal::new(RefuseCode::NotAllowed, "no"))),
        );
        let channel = silent.clone();
        let waiting = std::thread::spawn(move || channel.ask(&wish("oslo"), WITHIN));
        drop(silent);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(!matches!(error, TransportError::Refused(_)), "{error}");
    }

    #[test]
    fn oversized_certificate_answer_becomes_a_refusal() {
        let ends = ends(|| Ok(grant(&"x".repeat(HELLO_BYTES_MAX))));
        let error = ends.oslo.ask(&wish("oslo"), WITHIN).unwrap_err();
        assert!(matches!(error, TransportError::Refused(_)), "{error}");
        assert!(
            ends.oslo
                .take_answer(&Frame {
                    header: FrameHeader::new(FrameKind::CertificateAnswer, 1, 0, 0, 0),
                    payload: b"{"
                })
                .is_err()
        );
    }
}
