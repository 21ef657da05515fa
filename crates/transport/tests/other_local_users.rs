//! Other local users, and peers that come through a tunnel or proxy on this machine, have all its addresses; that gives
//! them no rights. Each attack is refused on every path to the port. Each also works where plain TCP is allowed, which
//! proves that it is an attack.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

mod common;

use common::family::{self, NOW, authority, identity_at, member};
use common::*;
use standfast_tls::{Authority, FixedClock, joining};
use standfast_transport::*;
use standfast_types::Scn;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);

/// An address that stands for all addresses of this machine, of both families where both exist.
fn everywhere() -> String {
    let both = TcpListener::bind("[::]:0").is_ok();
    (if both { "[::]:0" } else { "0.0.0.0:0" }).into()
}

/// The address by which other hosts know this machine, if any.
fn lan_address() -> Option<std::net::Ipv4Addr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // A documentation address: nothing is sent, only the route is looked up.
    socket.connect("192.0.2.1:9").ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(own) if !own.ip().is_loopback() => Some(*own.ip()),
        _ => None,
    }
}

/// Paths to the port for a peer on this machine: its addresses, and a relay that another user may have put here.
fn ways(receiver: &Receiver) -> Vec<SocketAddr> {
    let port = receiver.local_addr().port();
    let mut hosts = vec!["127.0.0.1".to_owned(), "127.0.0.2".into()];
    if receiver.local_addr().is_ipv6() {
        hosts.extend(["[::1]".into(), "[::ffff:127.0.0.1]".into()]);
    }
    hosts.extend(lan_address().map(|address| address.to_string()));
    let mut ways: Vec<SocketAddr> =
        hosts.iter().map(|host| format!("{host}:{port}").parse().unwrap()).collect();
    ways.push(Relay::cutting(ways[0], u64::MAX, 0).address());
    ways
}

fn primary(security: Security) -> (Arc<Service>, Receiver) {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    source.write(&redo(Scn::START, 1000, 1));
    source.0.change(|state| state.databases = vec![database(0, 3, Scn(4500))]);
    let service = Service::primary(&source);
    let config = ReceiverConfig { listen: everywhere(), security, ..ReceiverConfig::default() };
    (service.clone(), Receiver::start(config, service, None).unwrap())
}

fn code(error: &TransportError) -> Option<RefuseCode> {
    match error {
        TransportError::Refused(refusal) => Some(refusal.code),
        _ => None,
    }
}

#[test]
fn unauthenticated_local_peer_gets_no_copy_and_no_status() {
    let (service, receiver) = primary(member("paris", true));
    let clock: standfast_tls::Clock = Arc::new(FixedClock(NOW));
    // The authority's certificate is public, and a certificate of another family costs nothing.
    let nameless = Security::joining(joining(authority().fingerprint(), &clock).unwrap());
    let other = Authority::create("others", NOW).unwrap();
    let foreign = family::with(identity_at(&other, "oslo", NOW), true);
    for way in ways(&receiver).iter().map(ToString::to_string) {
        for (security, expected) in [
            (Security::insecure(), Some(RefuseCode::Tls)),
            (nameless.clone(), Some(RefuseCode::NotAllowed)),
            (foreign.clone(), None),
        ] {
            let mut taken = Discarded::new(true);
            let copy = fetch_snapshot(&way, &security, "oslo", &mut taken).unwrap_err();
            assert!(code(&copy) == expected && taken.manifest.is_none(), "{way}: {copy}");
            let state = fetch_status(&way, &security, false, WITHIN).unwrap_err();
            assert_eq!(code(&state), expected, "{way}: {state}");
        }
    }
    assert!(service.events.read(|events| events.iter().all(|event| event.refused().is_some())));

    let (_, receiver) = primary(Security::insecure());
    for way in ways(&receiver).iter().map(ToString::to_string) {
        let mut taken = Discarded::new(true);
        fetch_snapshot(&way, &Security::insecure(), "oslo", &mut taken).unwrap();
        assert!(taken.manifest.is_some(), "{way}");
    }
}

fn standby(security: Security) -> (Standby, Arc<Service>, Receiver) {
    let (standby, service) = (empty_standby(), Service::standby("oslo", &[incarnation(1, 4096)]));
    let config = ReceiverConfig { listen: everywhere(), security, ..ReceiverConfig::default() };
    let receiver =
        Receiver::start(config, service.clone(), Some(Box::new(MemoryLog(standby.clone())))).unwrap();
    (standby, service, receiver)
}

/// The identity that an attacker claims to replace the primary: primary of a newer incarnation.
fn usurper() -> PeerIdentity {
    identity("paris", Role::Primary, &[incarnation(1, 4096), incarnation(2, 4096)])
}

#[test]
fn unauthenticated_local_peer_sends_no_redo_and_fences_nothing() {
    let (log, service, receiver) = standby(member("oslo", true));
    for way in ways(&receiver) {
        let mut peer = ByHand::connect(way);
        peer.hello(usurper());
        let refusal = peer.refusal();
        assert!(
            refusal.code == RefuseCode::Tls && refusal.message.contains("standby token"),
            "{way}: {refusal}"
        );
    }
    // From a loopback address to the network address, as the former exception for loopback allowed.
    if let Some(lan) = lan_address() {
        for from in [[127, 0, 0, 1], [127, 0, 0, 2]] {
            let to = SocketAddrV4::new(lan, receiver.local_addr().port());
            let mut peer = ByHand::new(standfast_testkit::connect_from(from, to, TIMEOUT).unwrap());
            peer.hello(usurper());
            assert_eq!(peer.refusal().code, RefuseCode::Tls, "{from:?}");
        }
    }
    assert!(service.superseded.read(Vec::is_empty) && log.read(|state| state.starts.is_empty()));

    for at in 0..ways(&receiver).len() {
        let (_log, service, receiver) = standby(Security::insecure());
        let mut peer = ByHand::connect(ways(&receiver)[at]);
        peer.hello(usurper());
        service.superseded.wait("it is trusted", |superseded| !superseded.is_empty());
    }
}

#[test]
fn plain_tcp_needs_permission_of_both_ends() {
    for (receives, sends) in [(false, false), (false, true), (true, false), (true, true)] {
        let (_, _, receiver) = standby(member("oslo", !receives));
        let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
        let observer = Arc::new(Observer::default());
        let config = sender_config(
            ([127, 0, 0, 1], receiver.local_addr().port()).into(),
            member("paris", !sends),
            None,
        );
        let _sender = Sender::start(0, config, source, observer.clone()).unwrap();
        if sends && !receives {
            let refusal = observer.wait_refused(RefuseCode::Tls).to_string();
            assert!(refusal.contains("no plain TCP") && refusal.contains("`insecure = true`"), "{refusal}");
        } else {
            observer.wait_event("the stream begins", |event| matches!(event, SenderEvent::Connected { .. }));
        }
    }
}
