//! Which peers get in over TLS, what each end learns when one does not, and that unauthenticated peers cannot exhaust
//! an instance.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

mod common;

use common::family::{self, NOW, Replaceable, authority, identity_at, member, with};
use common::*;
use standfast_tls::{Authority, Request, Token, hex, joining};
use standfast_transport::*;
use standfast_types::Scn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const YEAR: u64 = 366 * 86_400;
/// Longest silence of an instance that gets a request.
const WITHIN: Duration = Duration::from_secs(60);

struct Ends {
    source: Arc<MemorySource>,
    standby: Standby,
    service: Arc<Service>,
    receiver: Receiver,
}

fn listening(security: Security) -> Ends {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let (standby, service) = (empty_standby(), Service::standby("oslo", &[incarnation(1, 4096)]));
    let config = ReceiverConfig { listen: "127.0.0.1:0".into(), security, ..ReceiverConfig::default() };
    let receiver =
        Receiver::start(config, service.clone(), Some(Box::new(MemoryLog(standby.clone())))).unwrap();
    Ends { source, standby, service, receiver }
}

impl Ends {
    fn send(&self, security: Security, expected: Option<&str>) -> (Sender, Arc<Observer>) {
        sending(self.receiver.local_addr(), &self.source, security, expected)
    }

    fn refused(&self, code: RefuseCode) -> String {
        let event =
            self.service.wait_event(&format!("{code} is reported"), |event| event.refused() == Some(code));
        event.to_string()
    }
}

fn sending(
    address: SocketAddr,
    source: &Arc<MemorySource>,
    security: Security,
    expected: Option<&str>,
) -> (Sender, Arc<Observer>) {
    let observer = Arc::new(Observer::default());
    let config = sender_config(address, security, expected);
    (Sender::start(0, config, source.clone(), observer.clone()).unwrap(), observer)
}

fn disconnected(observer: &Observer) -> String {
    observer
        .wait_event("the sender says why", |event| matches!(event, SenderEvent::Disconnected { .. }))
        .to_string()
}

#[test]
fn members_exchange_redo_and_each_knows_the_other_by_name() {
    let ends = listening(member("oslo", true));
    let (sender, observer) = ends.send(member("paris", true), Some("oslo"));
    observer.wait_event("the stream begins", |event| matches!(event, SenderEvent::Connected { .. }));
    ends.source.commit(&sender, &redo(Scn::START, 100_000, 1));
    let end = ends.source.end();
    observer.wait_sender("it is acknowledged", &sender, |sender| sender.acknowledged() == end);
    assert!(ends.standby.read(|state| state.bytes == redo(Scn::START, 100_000, 1)));
}

#[test]
fn redo_does_not_cross_the_network_in_the_clear() {
    let ends = listening(member("oslo", true));
    let tap = TcpListener::bind("127.0.0.1:0").unwrap();
    let (tapped, port) = (tap.local_addr().unwrap(), ends.receiver.local_addr());
    let wire = Arc::new(Mutex::new(Vec::new()));
    let seen = wire.clone();
    std::thread::spawn(move || {
        let (near, far) = (tap.accept().unwrap().0, TcpStream::connect(port).unwrap());
        let (mut back, mut to_near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back, &mut to_near));
        let (mut from, mut to, mut bytes) = (near, far, [0; 65_536]);
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            seen.lock().unwrap().extend_from_slice(&bytes[..count]);
            to.write_all(&bytes[..count]).unwrap();
        }
    });
    let (sender, observer) = sending(tapped, &ends.source, member("paris", true), Some("oslo"));
    observer.wait_event("the stream begins", |event| matches!(event, SenderEvent::Connected { .. }));
    let secret = b"the account of Mrs. Hansen".repeat(100);
    ends.source.commit(&sender, &secret);
    let end = ends.source.end();
    observer.wait_sender("it is acknowledged", &sender, |sender| sender.acknowledged() == end);
    let wire = wire.lock().unwrap();
    assert!(wire.len() > secret.len());
    for clear in [&b"Hansen"[..], b"SFT1", b"paris"] {
        assert!(
            !wire.windows(clear.len()).any(|window| window == clear),
            "{}",
            String::from_utf8_lossy(clear)
        );
    }
}

#[test]
fn host_without_a_certificate_is_refused_with_a_remedy() {
    let ends = listening(member("oslo", true));
    let (_sender, observer) = ends.send(Security::insecure(), None);
    let refused = observer.wait_refused(RefuseCode::Tls).to_string();
    assert!(refused.contains("standfast standby token"), "{refused}");
    assert!(ends.refused(RefuseCode::Tls).contains("127.0.0.1"));
    assert!(ends.standby.read(|state| state.starts.is_empty()));
}

#[test]
fn member_reports_a_plain_tcp_peer_and_sends_nothing() {
    let ends = listening(Security::insecure());
    let (_sender, observer) = ends.send(member("paris", true), Some("oslo"));
    let why = disconnected(&observer);
    assert!(why.contains("plain TCP"), "{why}");
    assert!(ends.refused(RefuseCode::Tls).contains("no certificate"));
    assert!(ends.standby.read(|state| state.starts.is_empty()));
}

/// An instance whose certificate is gone or cannot be read.
struct Certificateless;

impl Identities for Certificateless {
    fn current(&self) -> Result<Arc<standfast_tls::Identity>, String> {
        Err("/srv/sf/tls: no certificate".into())
    }
}

#[test]
fn missing_certificate_is_reported_at_both_ends() {
    let ends = listening(Security::with_certificates(Arc::new(Certificateless), true));
    let (_sender, observer) = ends.send(member("paris", true), Some("oslo"));
    let why = disconnected(&observer);
    assert!(why.contains("plain TCP") && why.contains("standfast cert join"), "{why}");
    assert!(ends.refused(RefuseCode::Tls).contains("/srv/sf/tls: no certificate"));
    // The text for the operator is not shown to unauthenticated peers.
    let mut foreign = TcpStream::connect(ends.receiver.local_addr()).unwrap();
    foreign.write_all(&[22, 3, 1]).unwrap();
    let mut stated = Vec::new();
    let _ = foreign.read_to_end(&mut stated);
    let stated = String::from_utf8_lossy(&stated);
    assert!(stated.contains("no certificate that it can show") && !stated.contains("/srv"), "{stated}");
}

#[test]
fn another_family_is_refused_at_both_ends() {
    let other = Authority::create("others", NOW).unwrap();
    let ends = listening(member("oslo", true));
    let (_sender, observer) = ends.send(with(identity_at(&other, "paris", NOW), true), None);
    let why = disconnected(&observer);
    assert!(why.contains("not of this family"), "{why}");
    let stated = ends.refused(RefuseCode::Tls);
    assert!(stated.contains("UnknownCA") || stated.contains("not of its family"), "{stated}");
    assert!(ends.standby.read(|state| state.starts.is_empty()));
}

#[test]
fn expired_certificate_is_reported_at_both_ends() {
    // Each end checks the other's certificate with its own clock.
    let ends = listening(with(identity_at(authority(), "oslo", NOW + YEAR), true));
    let (_sender, observer) = ends.send(with(identity_at(authority(), "paris", NOW), true), None);
    let stated = ends.refused(RefuseCode::Tls);
    assert!(stated.contains("has expired") && stated.contains("cert renew"), "{stated}");
    let why = disconnected(&observer);
    assert!(why.contains("refuses this instance's certificate: expired"), "{why}");

    let ends = listening(with(identity_at(authority(), "oslo", NOW), true));
    let (_sender, observer) = ends.send(with(identity_at(authority(), "paris", NOW + YEAR), true), None);
    let why = disconnected(&observer);
    assert!(why.contains("the other end has expired"), "{why}");
    assert!(ends.standby.read(|state| state.starts.is_empty()));
}

#[test]
fn clock_that_is_days_behind_is_reported_at_both_ends() {
    let behind = NOW - 3 * 86_400;
    let certificate = || identity_at(authority(), "paris", NOW);
    // Certificates are valid from a day before they are made; each end checks the other's with its own clock.
    let ends = listening(with(identity_at(authority(), "oslo", behind), true));
    let (_sender, observer) = ends.send(with(certificate(), true), None);
    let stated = ends.refused(RefuseCode::Tls);
    assert!(stated.contains("not valid yet") && stated.contains("compare the clocks"), "{stated}");
    let why = disconnected(&observer);
    assert!(why.contains("not valid yet") && why.contains("compare the clocks"), "{why}");
    assert!(ends.standby.read(|state| state.starts.is_empty()));
}

#[test]
fn certificate_with_another_name_is_refused_as_destination() {
    let ends = listening(member("oslo", true));
    let (_sender, observer) = ends.send(member("paris", true), Some("bergen"));
    let refused = observer.wait_refused(RefuseCode::WrongPeer).to_string();
    assert!(refused.contains("`oslo`") && refused.contains("`bergen`"), "{refused}");
    assert!(ends.standby.read(|state| state.starts.is_empty()));
}

#[test]
fn peer_name_must_match_its_certificate() {
    let ends = listening(member("oslo", true));
    // The source calls itself paris.
    let (_sender, observer) = ends.send(member("bergen", true), None);
    let refused = observer.wait_refused(RefuseCode::WrongPeer).to_string();
    assert!(refused.contains("`bergen`"), "{refused}");
    assert!(ends.standby.read(|state| state.starts.is_empty()));

    // A standby that calls itself oslo with a certificate of another instance.
    let ends = listening(member("bergen", true));
    let (_sender, observer) = ends.send(member("paris", true), None);
    let refused = observer.wait_refused(RefuseCode::WrongPeer).to_string();
    assert!(refused.contains("`oslo`") && refused.contains("`bergen`"), "{refused}");
    assert!(ends.standby.read(|state| state.starts.is_empty()));
}

#[test]
fn new_certificate_is_used_only_by_new_connections() {
    let own = Arc::new(Replaceable(Mutex::new(identity_at(authority(), "oslo", NOW))));
    let ends = listening(Security::with_certificates(own.clone(), false));
    let (sender, observer) = ends.send(member("paris", true), Some("oslo"));
    observer.wait_event("the stream begins", |event| matches!(event, SenderEvent::Connected { .. }));
    // Under load. A certificate that is not accepted shows which connections use it.
    *own.0.lock().unwrap() = identity_at(authority(), "someone-else", NOW);
    for _ in 0..100 {
        ends.source.commit(&sender, &redo(ends.source.end(), 1000, 1));
    }
    let end = ends.source.end();
    observer.wait_sender("the stream continues", &sender, |sender| sender.acknowledged() == end);
    assert_eq!(sender.stats().connects.load(Relaxed), 1);
    let (_second, observer) = ends.send(member("paris", true), Some("oslo"));
    observer.wait_refused(RefuseCode::WrongPeer);
}

#[test]
fn connection_lost_inside_a_tls_record_delivers_nothing_of_it() {
    let ends = listening(member("oslo", true));
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let (through, port) = (proxy.local_addr().unwrap(), ends.receiver.local_addr());
    std::thread::spawn(move || {
        // The first connection is cut after this many bytes, the second one lives.
        for (bytes_max, near) in [40_000, usize::MAX].into_iter().zip(proxy.incoming()) {
            let (near, far) = (near.unwrap(), TcpStream::connect(port).unwrap());
            let (mut back, mut to_near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back, &mut to_near));
            let copied = std::io::copy(&mut (&near).take(bytes_max as u64), &mut &far);
            let _ = (copied, near.shutdown(std::net::Shutdown::Both), far.shutdown(std::net::Shutdown::Both));
        }
    });
    let (sender, observer) = sending(through, &ends.source, member("paris", true), Some("oslo"));
    observer.wait_event("the stream begins", |event| matches!(event, SenderEvent::Connected { .. }));
    ends.source.commit(&sender, &redo(Scn::START, 100_000, 1));
    let end = ends.source.end();
    observer.wait_sender("it arrives after all", &sender, |sender| sender.acknowledged() == end);
    assert!(sender.stats().connects.load(Relaxed) >= 2, "it was not cut");
    assert!(ends.standby.read(|state| state.bytes == redo(Scn::START, 100_000, 1)));
}

#[test]
fn byte_changed_in_transit_ends_the_connection() {
    let ends = listening(member("oslo", true));
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let (through, port) = (proxy.local_addr().unwrap(), ends.receiver.local_addr());
    std::thread::spawn(move || {
        for (at, near) in [20_000, u64::MAX].into_iter().zip(proxy.incoming()) {
            let (near, far) = (near.unwrap(), TcpStream::connect(port).unwrap());
            let (mut back, mut to_near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back, &mut to_near));
            let _ = std::io::copy(&mut (&near).take(at), &mut &far);
            let mut byte = [0];
            if (&near).read_exact(&mut byte).is_ok() {
                let _ = (&far).write_all(&[byte[0] ^ 1]);
                let _ = std::io::copy(&mut &near, &mut &far);
            }
        }
    });
    let (sender, observer) = sending(through, &ends.source, member("paris", true), Some("oslo"));
    ends.source.commit(&sender, &redo(Scn::START, 100_000, 1));
    let end = ends.source.end();
    observer.wait_sender("it arrives unchanged", &sender, |sender| sender.acknowledged() == end);
    assert!(ends.standby.read(|state| state.bytes == redo(Scn::START, 100_000, 1)));
    assert!(ends.receiver.counts().streams.load(Relaxed) >= 2);
}

fn floods(from: [u8; 4], to: SocketAddr, what: &[u8]) -> Vec<TcpStream> {
    (0..500)
        .filter_map(|_| {
            let SocketAddr::V4(to) = to else { return None };
            let mut stream = standfast_testkit::connect_from(from, to, TIMEOUT).ok()?;
            // An error means that it is closed already.
            let _ = stream.write_all(what);
            Some(stream)
        })
        .collect()
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn unauthenticated_flood_is_bounded_and_a_member_still_connects() {
    let ends = listening(member("oslo", true));
    let address = ends.receiver.local_addr();
    let before = resident_bytes();
    // Silence, the begin of a handshake that never ends, garbage, and the largest message allowed.
    let hello = [22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3];
    let large = [&[22, 3, 1, 0x40, 0][..], &[1; 0x4000]].concat();
    let kinds: [&[u8]; 4] = [&[], &hello, &[0xff; 1000], &large];
    let mut held = Vec::new();
    for (last, what) in (2..).zip(kinds) {
        for third in 0..2 {
            held.extend(floods([127, 0, third, last], address, what));
        }
    }
    assert!(held.len() > 3000);
    let (sender, observer) = ends.send(member("paris", true), Some("oslo"));
    observer.wait_event("a member gets in", |event| matches!(event, SenderEvent::Connected { .. }));
    ends.source.commit(&sender, &redo(Scn::START, 1000, 1));
    let end = ends.source.end();
    observer.wait_sender("it is served", &sender, |sender| sender.acknowledged() == end);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for {} connections", held.len());
    assert!(ends.receiver.counts().turned_away.load(Relaxed) > 2000);
    let reported =
        ends.service.events.read(|events| events.iter().filter(|event| event.refused().is_some()).count());
    assert!(reported < 100, "{reported} lines in the alert log");
}

/// An instance that knows one token.
struct Issuer {
    inner: Arc<Service>,
    token: Token,
    used: Mutex<bool>,
    allowed: Mutex<Vec<String>>,
}

impl ReceiverService for Issuer {
    fn identity(&self) -> PeerIdentity {
        self.inner.identity()
    }
    fn source(&self) -> Option<Arc<dyn RedoSource>> {
        self.inner.source()
    }
    fn status(&self, history: bool) -> String {
        self.inner.status(history)
    }
    fn event(&self, event: &ReceiverEvent) {
        self.inner.event(event);
    }
    fn authorise(&self, peer: &str, _: Right) -> Result<(), Refusal> {
        if self.allowed.lock().unwrap().iter().any(|name| name == peer) {
            return Ok(());
        }
        Err(Refusal::new(RefuseCode::NotAllowed, format!("`{peer}` is not listed")))
    }
    fn certify(
        &self,
        wish: &CertificateRequest,
        right: &CertificateRight,
    ) -> Result<CertificateGrant, Refusal> {
        let request = standfast_tls::unhex(&wish.request).unwrap();
        if let CertificateRight::Token { number, proof, session } = right {
            let mut used = self.used.lock().unwrap();
            let good = *number == hex(&self.token.number)
                && self.token.key().unwrap().accepts(proof, session, &wish.name, &request);
            if !good || std::mem::replace(&mut *used, true) {
                return Err(Refusal::new(RefuseCode::NotAllowed, "no such token"));
            }
        }
        Ok(CertificateGrant {
            certificate: authority().sign(&wish.name, &request, NOW).unwrap(),
            authorities: authority().certificate_pem().into(),
            issuer: "paris".into(),
            peers: Vec::new(),
            members: Vec::new(),
            endorsements: Vec::new(),
        })
    }
}

fn issuer() -> (Arc<Issuer>, Receiver, String) {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let service = Arc::new(Issuer {
        inner: Service::primary(&source),
        token: Token::generate(authority().fingerprint()).unwrap(),
        used: Mutex::new(false),
        allowed: Mutex::default(),
    });
    let config = ReceiverConfig {
        listen: "127.0.0.1:0".into(),
        security: member("paris", true),
        ..ReceiverConfig::default()
    };
    let receiver = Receiver::start(config, service.clone(), None).unwrap();
    let address = receiver.local_addr().to_string();
    (service, receiver, address)
}

fn at_now() -> standfast_tls::Clock {
    Arc::new(standfast_tls::FixedClock(NOW))
}

#[test]
fn token_yields_one_certificate_that_still_needs_the_allow_list() {
    let (service, receiver, address) = issuer();
    let joining = Security::joining(joining(service.token.authority, &at_now()).unwrap());
    let request = Request::create("oslo").unwrap();
    let ask = |token: &Token| fetch_certificate(&address, &joining, "oslo", request.der(), Some(token), None);
    let wrong = Token::generate(service.token.authority).unwrap();
    let refused = |result: Result<CertificateGrant, TransportError>| match result {
        Err(TransportError::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(ask(&wrong)), RefuseCode::NotAllowed);
    let grant = ask(&service.token).unwrap();
    let pem = request.identity_pem(&grant.certificate, "oslo").unwrap();
    assert_eq!(refused(ask(&service.token)), RefuseCode::NotAllowed, "used");
    assert_eq!(receiver.counts().bad_tokens.load(Relaxed), 2);

    let identity = standfast_tls::Identity::from_pem(&pem, &grant.authorities, &at_now()).unwrap();
    let oslo = family::with(Arc::new(identity), true);
    let not_listed = fetch_status(&address, &oslo, false, WITHIN).unwrap_err();
    assert!(not_listed.to_string().contains("`oslo` is not listed"), "{not_listed}");
    service.allowed.lock().unwrap().push("oslo".into());
    let state = fetch_status(&address, &oslo, false, WITHIN).unwrap();
    assert_eq!(state, r#"{"state":"fine","history":false}"#);
    // With a certificate, the next one needs no token, and is for the same name only.
    let next = Request::create("oslo").unwrap();
    assert!(fetch_certificate(&address, &oslo, "oslo", next.der(), None, None).is_ok());
    assert_eq!(
        refused(fetch_certificate(&address, &oslo, "paris", next.der(), None, None)),
        RefuseCode::WrongPeer
    );
}

#[test]
fn peer_that_guesses_tokens_is_soon_ignored() {
    let (service, receiver, address) = issuer();
    let joining = Security::joining(joining(service.token.authority, &at_now()).unwrap());
    let request = Request::create("oslo").unwrap();
    for _ in 0..50 {
        let wrong = Token::generate(service.token.authority).unwrap();
        fetch_certificate(&address, &joining, "oslo", request.der(), Some(&wrong), None).unwrap_err();
    }
    let counts = receiver.counts();
    assert!(counts.bad_tokens.load(Relaxed) < 10, "{}", counts.bad_tokens.load(Relaxed));
    assert!(counts.turned_away.load(Relaxed) > 40);
}

#[test]
fn peer_without_a_certificate_can_only_request_one() {
    let (service, _receiver, address) = issuer();
    let joining = Security::joining(joining(service.token.authority, &at_now()).unwrap());
    let error = fetch_status(&address, &joining, false, WITHIN).unwrap_err();
    assert!(error.to_string().contains("needs a certificate"), "{error}");
    // A client that trusts another authority does not even send its request.
    let other = Authority::create("others", NOW).unwrap();
    let misled = Security::joining(standfast_tls::joining(other.fingerprint(), &at_now()).unwrap());
    let request = Request::create("oslo").unwrap();
    let error =
        fetch_certificate(&address, &misled, "oslo", request.der(), Some(&service.token), None).unwrap_err();
    assert!(error.to_string().contains("not of this family"), "{error}");
    assert!(!*service.used.lock().unwrap());
}

#[test]
fn trickled_tls_handshake_ends_at_its_deadline() {
    let ends = {
        let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
        let (standby, service) = (empty_standby(), Service::standby("oslo", &[incarnation(1, 4096)]));
        let config = ReceiverConfig {
            listen: "127.0.0.1:0".into(),
            security: member("oslo", true),
            handshake_timeout: Duration::from_millis(200),
            ..ReceiverConfig::default()
        };
        let receiver =
            Receiver::start(config, service.clone(), Some(Box::new(MemoryLog(standby.clone())))).unwrap();
        Ends { source, standby, service, receiver }
    };
    let mut stream = TcpStream::connect(ends.receiver.local_addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let head = [22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3];
    let closed = head
        .iter()
        .chain(&[7; 2000])
        .any(|byte| stream.write_all(&[*byte]).is_err() || matches!(stream.read(&mut [0; 64]), Ok(0)));
    assert!(closed, "it was waited for as long as bytes came");
}

#[test]
fn unlisted_source_sends_nothing_but_learns_it_was_replaced() {
    for (incarnations, is_replaced) in
        [(vec![incarnation(1, 4096)], false), (vec![incarnation(1, 4096), incarnation(2, 5000)], true)]
    {
        let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
        let (standby, service) = (empty_standby(), Service::standby("oslo", &incarnations));
        let config = ReceiverConfig {
            listen: "127.0.0.1:0".into(),
            security: member("oslo", true),
            ..ReceiverConfig::default()
        };
        let log = Box::new(MemoryLog(standby.clone()));
        let receiver = Receiver::start(config, Arc::new(Unlisting(service.clone())), Some(log)).unwrap();
        let (_sender, observer) = sending(receiver.local_addr(), &source, member("paris", true), None);
        if is_replaced {
            observer.wait_event("it is fenced", |event| matches!(event, SenderEvent::Fenced { .. }));
        } else {
            assert!(observer.wait_refused(RefuseCode::NotAllowed).to_string().contains("not listed"));
        }
        assert!(standby.read(|state| state.starts.is_empty()));
    }
}

/// Either end of a stream: issues certificates, and remembers the channel over which it can request one.
struct Renewing {
    inner: Arc<Service>,
    channel: Watched<Option<Arc<CertificateChannel>>>,
}

impl Renewing {
    fn new(name: &str) -> Arc<Renewing> {
        let inner = Service::standby(name, &[incarnation(1, 4096)]);
        Arc::new(Renewing { inner, channel: Watched::default() })
    }

    fn sign(wish: &CertificateRequest) -> CertificateGrant {
        let request = standfast_tls::unhex(&wish.request).unwrap();
        CertificateGrant {
            certificate: authority().sign(&wish.name, &request, NOW).unwrap(),
            authorities: authority().certificate_pem().into(),
            issuer: "issuer".into(),
            peers: Vec::new(),
            members: Vec::new(),
            endorsements: Vec::new(),
        }
    }

    /// Requests a certificate for `name` from the other end.
    fn renew(&self, name: &str) -> Result<String, TransportError> {
        self.channel.wait("there is a stream", |channel| channel.is_some());
        let request = Request::create(name).unwrap();
        let wish = CertificateRequest::renewal(name, request.der());
        let grant = self.channel.read(|channel| channel.clone().unwrap().ask(&wish, TIMEOUT))?;
        Ok(request.identity_pem(&grant.certificate, name).unwrap())
    }
}

impl ReceiverService for Renewing {
    fn identity(&self) -> PeerIdentity {
        self.inner.identity()
    }
    fn source(&self) -> Option<Arc<dyn RedoSource>> {
        None
    }
    fn status(&self, history: bool) -> String {
        self.inner.status(history)
    }
    fn event(&self, event: &ReceiverEvent) {
        self.inner.event(event);
    }
    fn certificate_channel(&self, channel: &Arc<CertificateChannel>) {
        self.channel.change(|at| *at = Some(channel.clone()));
    }
    fn certify(&self, wish: &CertificateRequest, _: &CertificateRight) -> Result<CertificateGrant, Refusal> {
        Ok(Renewing::sign(wish))
    }
}

impl SenderObserver for Renewing {
    fn acknowledged(&self, _: usize, _: Option<standfast_instruments::RemoteAnswer>) {}
    fn event(&self, _: usize, _: &SenderEvent) {}
    fn certificate_channel(&self, channel: &Arc<CertificateChannel>) {
        ReceiverService::certificate_channel(self, channel);
    }
    fn certify(&self, wish: &CertificateRequest) -> Result<CertificateGrant, Refusal> {
        Ok(Renewing::sign(wish))
    }
}

#[test]
fn certificates_are_renewed_over_the_stream_in_both_directions() {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let (standby, oslo, paris) = (empty_standby(), Renewing::new("oslo"), Renewing::new("paris"));
    let config = ReceiverConfig {
        listen: "127.0.0.1:0".into(),
        security: member("oslo", true),
        ..ReceiverConfig::default()
    };
    let receiver = Receiver::start(config, oslo.clone(), Some(Box::new(MemoryLog(standby.clone())))).unwrap();
    let config = sender_config(receiver.local_addr(), member("paris", true), Some("oslo"));
    let sender = Sender::start(0, config, source.clone(), paris.clone()).unwrap();
    // Redo continues meanwhile.
    source.commit(&sender, &redo(Scn::START, 100_000, 1));
    assert!(oslo.renew("oslo").unwrap().contains("PRIVATE KEY"), "of the source");
    // At the begin of a stream the sender's half may not exist yet.
    let end = source.end();
    standby.wait("the redo is there", |state| state.end() == end);
    assert!(paris.renew("paris").unwrap().contains("PRIVATE KEY"), "of the destination");
    source.commit(&sender, &redo(end, 100_000, 2));
    let end = source.end();
    standby.wait("redo after that is there", |state| state.end() == end);
    assert_eq!(receiver.counts().streams.load(Relaxed), 1, "the stream was not interrupted");
    let channel = oslo.channel.read(|channel| channel.clone().unwrap());
    drop(sender);
    oslo.inner.wait_event("the stream ends", |event| matches!(event, ReceiverEvent::Ended { .. }));
    assert!(channel.is_closed() && channel.peer() == "paris");
}
