//! Alert log lines about unauthenticated peers: bounded, printable, and never at the expense of lines about members.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

mod common;

use common::family::{NOW, authority, member};
use common::*;
use standfast_format::{FrameHeader, FrameKind, encode_frame};
use standfast_tls::{FixedClock, Request, joining};
use standfast_transport::*;
use standfast_types::Scn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

fn listening(security: Security) -> (Arc<Service>, Receiver) {
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let config = ReceiverConfig { listen: "127.0.0.1:0".into(), security, ..ReceiverConfig::default() };
    let log: Box<dyn StandbyLog> = Box::new(MemoryLog(empty_standby()));
    let receiver = Receiver::start(config, Arc::new(Unlisting(service.clone())), Some(log)).unwrap();
    (service, receiver)
}

/// Sends one frame and waits until the other end has closed the connection.
fn says(receiver: &Receiver, kind: FrameKind, version: u64, payload: &[u8]) {
    let mut frame = Vec::new();
    encode_frame(FrameHeader::new(kind, version, 0, 0, 0), payload, &mut frame);
    let mut stream = TcpStream::connect(receiver.local_addr()).unwrap();
    let _ = stream.write_all(&frame).and_then(|()| stream.read_to_end(&mut Vec::new()));
}

fn refused(service: &Service) -> Vec<String> {
    service.events.read(|events| {
        events.iter().filter(|event| event.refused().is_some()).map(|event| event.to_string()).collect()
    })
}

#[test]
fn a_name_in_a_message_is_printable_and_bounded() {
    let (service, receiver) = listening(Security::insecure());
    let name = format!("\x1b[2J\n2026-01-01T00:00:00.000Z forged\u{202e}{}", "x".repeat(50_000));
    let incarnations = serde_json::json!([{"number": 1, "id": "0909090909090909", "branch": 4096}]);
    let source = serde_json::json!({"instance": "0123456789abcdef0123456789abcdef", "name": name, "role": "primary",
        "incarnations": incarnations});
    let hello = serde_json::json!({"source": source, "mode": "sync_affirm", "net_timeout_ms": 30_000,
        "archives_to": 5000});
    says(&receiver, FrameKind::Hello, PROTOCOL_VERSION, hello.to_string().as_bytes());
    let event = service.wait_event("it is refused", |event| event.refused().is_some()).to_string();
    assert!(event.len() < 600 && !event.contains(|c: char| c.is_control() || c == '\u{202e}'), "{event:?}");
    assert!(event.contains(r"\u{1b}[2J\n2026") && event.contains("characters omitted"), "{event}");
}

#[test]
fn unauthenticated_peer_cannot_put_its_text_into_the_alert_log() {
    let (service, receiver) = listening(Security::insecure());
    let refusal = serde_json::json!({"code": "diverged", "message": "FENCED: all is lost | hint: run this"});
    says(&receiver, FrameKind::Refuse, 0, refusal.to_string().as_bytes());
    assert_eq!((refused(&service), receiver.counts().garbage.load(Relaxed)), (Vec::new(), 1));
}

#[test]
fn unauthenticated_peer_gets_few_log_lines_for_many_errors() {
    let (service, receiver) = listening(Security::insecure());
    for version in 100..220 {
        says(&receiver, FrameKind::Hello, version, b"{}");
    }
    let lines = refused(&service);
    assert!((1..=8).contains(&lines.len()), "{lines:?}");
    let counts = service.events.read(|events| {
        events.iter().filter(|event| matches!(event, ReceiverEvent::Suppressed { .. })).count()
    });
    assert!((1..=3).contains(&counts), "{counts} lines about suppressed ones");
}

/// Uses up the alert log lines for unauthenticated peers at this address: requests without a certificate, each with
/// another name.
fn use_lines_up(service: &Service, receiver: &Receiver) {
    // A peer may hear of its end before the line is there.
    let is_suppressed = |events: &Vec<ReceiverEvent>| {
        events.iter().any(|event| matches!(event, ReceiverEvent::Suppressed { .. }))
    };
    let until = Instant::now() + TIMEOUT;
    for nth in 0.. {
        ask_without_a_certificate(receiver, &format!("x{nth}"));
        if nth >= 20 && service.events.read(is_suppressed) {
            break;
        }
        assert!(Instant::now() < until, "lines are suppressed");
    }
}

fn ask_without_a_certificate(receiver: &Receiver, name: &str) {
    let clock: standfast_tls::Clock = Arc::new(FixedClock(NOW));
    let security = Security::joining(joining(authority().fingerprint(), &clock).unwrap());
    let (address, request) = (receiver.local_addr().to_string(), Request::create(name).unwrap());
    fetch_certificate(&address, &security, name, request.der(), None, None).unwrap_err();
}

#[test]
fn unauthenticated_peers_do_not_suppress_reports_on_a_member() {
    let (service, receiver) = listening(member("oslo", true));
    for kind in 0..120_u8 {
        let mut stream = TcpStream::connect(receiver.local_addr()).unwrap();
        let _ = stream.write_all(&[22, 3, kind, 0, kind, kind, kind, kind]);
    }
    use_lines_up(&service, &receiver);
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let observer = Arc::new(Observer::default());
    let config = sender_config(receiver.local_addr(), member("paris", true), Some("oslo"));
    let _sender = Sender::start(0, config, source.clone(), observer.clone()).unwrap();
    let reported = service
        .wait_event("a member is spoken of", |event| event.to_string().contains("`paris` "))
        .to_string();
    assert!(reported.contains("`paris` is not listed"), "{reported}");
    assert!(source.end() >= Scn::START);
}

#[test]
fn unauthenticated_peers_do_not_suppress_a_members_address() {
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let config = ReceiverConfig {
        listen: "127.0.0.1:0".into(),
        security: member("oslo", true),
        ..ReceiverConfig::default()
    };
    let log: Box<dyn StandbyLog> = Box::new(MemoryLog(empty_standby()));
    let receiver = Receiver::start(config, service.clone(), Some(log)).unwrap();
    use_lines_up(&service, &receiver);
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let observer = Arc::new(Observer::default());
    let config = sender_config(receiver.local_addr(), member("paris", true), Some("oslo"));
    let _sender = Sender::start(0, config, source, observer.clone()).unwrap();
    observer.wait_event("a member is let in", |event| matches!(event, SenderEvent::Connected { .. }));
    ask_without_a_certificate(&receiver, "late");
    service.wait_event("it is reported", |event| event.to_string().contains("`late` shows no certificate"));
}

#[test]
fn no_certificate_is_given_over_plain_tcp() {
    let (_, receiver) = listening(Security::insecure());
    let (address, request) = (receiver.local_addr().to_string(), Request::create("oslo").unwrap());
    let refused = fetch_certificate(&address, &Security::insecure(), "oslo", request.der(), None, None);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("over encrypted connections only"), "{refused}");
}

#[test]
fn new_peer_displaces_one_of_the_busiest_address() {
    let limits = Limits { unauthenticated_max: 4, unauthenticated_per_address: 2, ..Limits::default() };
    let config = ReceiverConfig {
        listen: "127.0.0.1:0".into(),
        security: member("oslo", true),
        // Longer than any wait in this test.
        handshake_timeout: 10 * TIMEOUT,
        limits,
        ..ReceiverConfig::default()
    };
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let receiver = Receiver::start(config, service, None).unwrap();
    let SocketAddr::V4(address) = receiver.local_addr() else { panic!("{}", receiver.local_addr()) };
    let silent = |last: u8| standfast_testkit::connect_from([127, 0, 0, last], address, TIMEOUT).unwrap();
    let (mut oldest, _second, _newcomer) = (silent(2), silent(2), silent(3));
    oldest.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(oldest.read(&mut [0]).unwrap(), 0, "it is closed for the newcomer");
}

/// An address that answers everything with this frame.
fn answering(kind: FrameKind, version: u64, payload: &serde_json::Value) -> SocketAddr {
    let (listener, mut frame) = (TcpListener::bind("127.0.0.1:0").unwrap(), Vec::new());
    let address = listener.local_addr().unwrap();
    encode_frame(FrameHeader::new(kind, version, 0, 0, 0), payload.to_string().as_bytes(), &mut frame);
    // Ends with the program.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(&frame).and_then(|()| stream.read_to_end(&mut Vec::new()));
        }
    });
    address
}

#[test]
fn peer_answer_in_a_message_is_printable_and_bounded() {
    let evil = format!("\x1b[2J\n2026-01-01T00:00:00.000Z forged\u{202e}{}", "x".repeat(50_000));
    for (kind, version, payload) in [
        (FrameKind::Refuse, 0, serde_json::json!({"code": "diverged", "message": evil})),
        (FrameKind::Hello, PROTOCOL_VERSION, serde_json::json!({"standby": {"role": evil}})),
    ] {
        let address = answering(kind, version, &payload);
        let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
        let observer = Arc::new(Observer::default());
        let config = sender_config(address, Security::insecure(), None);
        let _sender = Sender::start(0, config, source, observer.clone()).unwrap();
        let event =
            observer.wait_event("it says why", |event| event.to_string().contains("forged")).to_string();
        assert!(
            event.len() < 1500 && !event.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{event:?}"
        );
        assert!(event.contains("\\u{1b}[2J"), "{event}");
    }
}
