//! Which instances may talk to which, and what follows.

mod common;

use common::*;
use standfast_format::{FrameHeader, FrameKind, encode_frame};
use standfast_transport::hello::{self, ReceiverHello};
use standfast_transport::*;
use standfast_types::Scn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

fn first() -> Vec<Incarnation> {
    vec![incarnation(1, 4096)]
}

fn second(branch: u64) -> Vec<Incarnation> {
    vec![incarnation(1, 4096), incarnation(2, branch)]
}

/// A primary with 1,000 bytes of redo and a standby that holds them, not connected.
fn apart(standby_history: &[Incarnation]) -> (Arc<MemorySource>, Standby, Arc<Service>) {
    let source = MemorySource::new("paris", &first());
    source.write(&redo(Scn::START, 1000, 1));
    let standby = empty_standby();
    standby.change(|state| state.bytes = redo(Scn::START, 1000, 1));
    (source, standby, Service::standby("oslo", standby_history))
}

#[test]
fn replaced_primary_is_fenced_by_its_standby() {
    let (source, standby, service) = apart(&second(4500));
    let receiver = listen(&service, &standby);
    let (sender, observer) = send_to(receiver.local_addr(), destination(TransportMode::Async), &source);
    let fenced = observer.wait_event("it is fenced", |event| matches!(event, SenderEvent::Fenced { .. }));
    assert_eq!(fenced, SenderEvent::Fenced { incarnation: incarnation(2, 4500), peer: "oslo".into() });
    let view = sender.release_view();
    assert!(view.required, "nothing may be released any more, also when the destination is asynchronous");
    assert_eq!(releasable(source.durable(), &[view]), Scn::ZERO);
    assert!(standby.read(|state| state.starts.is_empty()), "the log was touched");
}

#[test]
fn promoted_standby_also_fences_its_old_primary() {
    let (source, _, _) = apart(&first());
    let replaced_by = MemorySource::new("oslo", &second(4500));
    let service = Service::primary(&replaced_by);
    let receiver = Receiver::start(receiver_config("127.0.0.1:0"), service.clone(), None).unwrap();
    let (_sender, observer) = send_to(receiver.local_addr(), destination(TransportMode::SyncAffirm), &source);
    observer.wait_event("it is fenced", |event| matches!(event, SenderEvent::Fenced { .. }));
    service.wait_event("the successor sees it", |event| event.refused() == Some(RefuseCode::Fenced));
}

#[test]
fn old_primary_learns_of_the_successor_that_dials_it() {
    let (_, standby, service) = apart(&first());
    service.identity.change(|identity| identity.role = Role::Primary);
    let receiver = listen(&service, &standby);
    let successor = MemorySource::new("rome", &second(4500));
    let (_sender, observer) =
        send_to(receiver.local_addr(), destination(TransportMode::SyncAffirm), &successor);
    service.superseded.wait("it learns of it", |met| met.contains(&incarnation(2, 4500)));
    observer.wait_refused(RefuseCode::NotStandby);
    assert!(standby.read(|state| state.starts.is_empty()), "the log was touched");
}

#[test]
fn newer_source_ends_an_older_stream_even_when_refused() {
    let (source, standby, service) = apart(&first());
    let receiver = listen(&service, &standby);
    let (_sender, observer) = send_to(receiver.local_addr(), destination(TransportMode::SyncAffirm), &source);
    standby.wait("the stream is live", |state| !state.starts.is_empty());
    // The standby then holds redo that the newer source does not have.
    standby.change(|state| state.confirmed = Scn(5096));
    let newer = MemorySource::new("rome", &second(4500));
    newer.write(&redo(Scn::START, 500, 7));
    let (_newer, refused) = send_to(receiver.local_addr(), destination(TransportMode::SyncAffirm), &newer);
    refused.wait_refused(RefuseCode::Diverged);
    observer.wait_event("the old one is fenced", |event| matches!(event, SenderEvent::Fenced { .. }));
    assert_eq!(standby.read(|state| state.starts.len()), 1, "followed again");
}

#[test]
fn standby_follows_a_new_primary_and_truncates_past_the_branch() {
    let (old, standby, service) = apart(&first());
    standby.change(|state| state.confirmed = Scn(4800));
    let new = MemorySource::new("rome", &second(5000));
    new.write(&old.0.read(|state| state.slice(Scn::START, Scn(5000)).to_vec()));
    new.0.change(|state| {
        state.logs.push(LogSwitch { sequence: 1, first_scn: Scn(5000), time_us: 9, first_record: 0 });
    });
    new.write(&redo(Scn(5000), 700, 2));
    let receiver = listen(&service, &standby);
    let (_sender, _observer) = send_to(receiver.local_addr(), destination(TransportMode::SyncAffirm), &new);
    let standby = standby.when("it has followed", |state| state.end() == Scn(5700));
    assert_eq!(standby.cuts, [(Scn(5000), Scn(5096))]);
    assert_eq!(standby.starts[0].source.incarnations, second(5000));
    new.0.read(|new| assert!(new.bytes == standby.bytes));
    assert_eq!(standby.logs.last().unwrap().first_scn, Scn(5000));
}

#[test]
fn different_redo_that_may_be_applied_is_a_divergence() {
    let (source, standby, service) = apart(&first());
    standby.change(|state| {
        state.bytes = redo(Scn::START, 1000, 7);
        state.confirmed = Scn(4500);
    });
    let receiver = listen(&service, &standby);
    let (sender, observer) = send_to(receiver.local_addr(), destination(TransportMode::SyncAffirm), &source);
    observer.wait_refused(RefuseCode::Diverged);
    service.wait_event("the standby says it too", |event| event.refused() == Some(RefuseCode::Diverged));
    assert_eq!(sender.status().phase, "failed");
    assert!(standby.read(|state| state.cuts.is_empty() && state.starts.is_empty()));
}

#[test]
fn missing_redo_is_a_gap_refusal_with_a_remedy() {
    let (source, standby, service) = apart(&first());
    standby.change(|state| state.bytes.truncate(100));
    source.0.change(|state| state.oldest = Scn(4500));
    let receiver = listen(&service, &standby);
    let (_sender, observer) = send_to(receiver.local_addr(), destination(TransportMode::Async), &source);
    let SenderEvent::Refused(refusal) = observer.wait_refused(RefuseCode::Gap) else { panic!() };
    assert!(refusal.message.contains("standfast reinstate"), "{refusal}");
}

#[test]
fn unrelated_peers_are_refused_by_both_ends() {
    let (source, standby, service) = apart(&[Incarnation { id: Default::default(), ..incarnation(1, 4096) }]);
    let receiver = listen(&service, &standby);
    let (_sender, observer) = send_to(receiver.local_addr(), destination(TransportMode::Async), &source);
    observer.wait_refused(RefuseCode::WrongPeer);
    assert!(standby.read(|state| state.starts.is_empty()));
    drop(receiver);

    let (source, standby, service) = apart(&first());
    let receiver = listen(&service, &standby);
    let observer = Arc::new(Observer::default());
    let config = SenderConfig {
        destination: destination(TransportMode::Async),
        ..sender_config(receiver.local_addr(), Security::insecure(), Some("rome"))
    };
    let _sender = Sender::start(0, config, source, observer.clone()).unwrap();
    let SenderEvent::Refused(refusal) = observer.wait_refused(RefuseCode::WrongPeer) else { panic!() };
    assert!(refusal.message.contains("`oslo`") && refusal.message.contains("`rome`"), "{refusal}");
}

#[test]
fn another_protocol_version_is_refused_by_the_receiver() {
    let (_, standby, service) = apart(&first());
    let receiver = listen(&service, &standby);
    let mut peer = ByHand::connect(receiver.local_addr());
    // The content of a message of that version is unknown: only the header counts.
    peer.writer.write(FrameHeader::new(FrameKind::Hello, 99, 0, 0, 0), b"anything").unwrap();
    let refusal = peer.refusal();
    assert_eq!(refusal.code, RefuseCode::Version);
    assert!(refusal.message.contains("99") && refusal.message.contains("same release"), "{refusal}");
}

#[test]
fn another_protocol_version_is_refused_by_the_sender() {
    let (source, _, _) = apart(&first());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_sender, observer) =
        send_to(listener.local_addr().unwrap(), destination(TransportMode::Async), &source);
    let mut peer = ByHand::new(listener.accept().unwrap().0);
    hello::expect(&peer.reader.read().unwrap(), FrameKind::Hello).unwrap();
    peer.writer.write(FrameHeader::new(FrameKind::Hello, 99, 0, 0, 0), b"anything").unwrap();
    observer.wait_refused(RefuseCode::Version);
}

#[test]
fn garbage_on_the_port_is_closed_and_counted() {
    let (_, standby, service) = apart(&first());
    let receiver = listen(&service, &standby);
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 100], b"SFT2 and so on and so on and so on and so on and so on"]
    {
        let mut stream = TcpStream::connect(receiver.local_addr()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(garbage).unwrap();
        assert!(matches!(stream.read(&mut [0; 100]), Ok(0) | Err(_)));
    }
    let mut peer = ByHand::connect(receiver.local_addr());
    peer.writer.write(FrameHeader::new(FrameKind::Redo, 1, 0, 0, 0), b"no hello").unwrap();
    peer.assert_closed();
    let mut peer = ByHand::connect(receiver.local_addr());
    peer.writer
        .write(FrameHeader::new(FrameKind::Hello, PROTOCOL_VERSION, 0, 0, 0), b"{\"not\":\"a hello\"}")
        .unwrap();
    peer.assert_closed();
    receiver.stop();
    assert_eq!(receiver.counts().garbage.load(Relaxed), 5);
}

#[test]
fn trickled_hello_is_closed_at_the_handshake_timeout() {
    let (_, standby, service) = apart(&first());
    let config =
        ReceiverConfig { handshake_timeout: Duration::from_millis(200), ..receiver_config("127.0.0.1:0") };
    let receiver = Receiver::start(config, service, Some(Box::new(MemoryLog(standby)))).unwrap();
    let mut stream = TcpStream::connect(receiver.local_addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let began = Instant::now();
    // A valid but incomplete frame: only the timeout is a reason to close.
    let mut frame = Vec::new();
    encode_frame(FrameHeader::new(FrameKind::Hello, PROTOCOL_VERSION, 0, 0, 0), &[b' '; 1000], &mut frame);
    let closed = frame.iter().any(|byte| {
        let written = stream.write_all(&[*byte]);
        written.is_err() || matches!(stream.read(&mut [0; 1]), Ok(0))
    });
    assert!(closed && began.elapsed() < Duration::from_secs(5), "after {:?}", began.elapsed());
}

#[test]
fn excess_connections_are_refused_until_others_close() {
    let (source, standby, service) = apart(&first());
    let config = ReceiverConfig { connections_max: 2, ..receiver_config("127.0.0.1:0") };
    let receiver = Receiver::start(config, service, Some(Box::new(MemoryLog(standby.clone())))).unwrap();
    let silent: Vec<_> = (0..2).map(|_| TcpStream::connect(receiver.local_addr()).unwrap()).collect();
    let mut third = TcpStream::connect(receiver.local_addr()).unwrap();
    third.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert!(matches!(third.read(&mut [0; 1]), Ok(0) | Err(_)));
    assert_eq!(receiver.counts().turned_away.load(Relaxed), 1);
    drop(silent);
    let (_sender, _observer) = send_to(receiver.local_addr(), destination(TransportMode::Async), &source);
    standby.wait("there is room", |state| !state.starts.is_empty());
}

#[test]
fn half_open_stream_yields_to_a_new_one_of_the_same_primary() {
    let (source, standby, service) = apart(&first());
    let receiver = listen(&service, &standby);
    let mut half_open = ByHand::begin(receiver.local_addr(), &source);
    standby.wait("the first stream is live", |state| state.starts.len() == 1);
    let (sender, observer) = send_to(receiver.local_addr(), destination(TransportMode::SyncAffirm), &source);
    standby.wait("the second took over", |state| state.starts.len() == 2);
    half_open.assert_closed();
    source.commit(&sender, &redo(source.end(), 100, 1));
    let end = source.end();
    observer.wait_sender("it is acknowledged", &sender, |sender| sender.acknowledged() == end);
}

#[test]
fn second_primary_is_refused_while_the_first_is_live() {
    let (source, standby, service) = apart(&first());
    let receiver = listen(&service, &standby);
    let (sender, _observer) = send_to(receiver.local_addr(), destination(TransportMode::SyncAffirm), &source);
    standby.wait("the stream is live", |state| !state.starts.is_empty());
    let mut clone = ByHand::connect(receiver.local_addr());
    clone.hello(identity("clone", Role::Primary, &first()));
    let refusal = clone.refusal();
    assert_eq!(refusal.code, RefuseCode::Busy);
    assert!(refusal.message.contains("`paris`"), "{refusal}");
    source.commit(&sender, &redo(source.end(), 100, 1));
    let end = source.end();
    standby.wait("the first one continues", |state| state.end() == end);
}

#[test]
fn redo_that_does_not_continue_the_stream_is_refused() {
    let (source, standby, service) = apart(&first());
    let receiver = listen(&service, &standby);
    let mut peer = ByHand::begin(receiver.local_addr(), &source);
    peer.writer.write(FrameHeader::new(FrameKind::Redo, 9999, 0, 0, 0), b"from nowhere").unwrap();
    assert_eq!(peer.refusal().code, RefuseCode::OutOfOrder);
    assert_eq!(standby.read(StandbyState::end), Scn(5096));
}

#[test]
fn a_start_that_would_undo_apply_is_refused() {
    let (source, standby, service) = apart(&first());
    standby.change(|state| state.confirmed = Scn(5000));
    let receiver = listen(&service, &standby);
    for (from, keep) in [(4999, 5096), (5097, 5097), (5000, 4999), (5096, 5200)] {
        let mut peer = ByHand::connect(receiver.local_addr());
        peer.hello(source.identity());
        let _: ReceiverHello = hello::decode(&peer.reader.read().unwrap()).unwrap();
        let log = source.log_containing(Scn(5000)).unwrap();
        let start =
            StreamStart { source: source.identity(), from: Scn(from), keep: Scn(keep), log, gap: None };
        peer.writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &start).unwrap();
        assert_eq!(peer.refusal().code, RefuseCode::Protocol, "from {from} keeping {keep}");
    }
    assert!(standby.read(|state| state.starts.is_empty() && state.cuts.is_empty()));
}

#[test]
fn role_change_detaches_and_reattaches_the_log_of_a_live_stream() {
    let (source, standby, service) = apart(&first());
    let receiver = listen(&service, &standby);
    let (sender, observer) = send_to(receiver.local_addr(), destination(TransportMode::SyncAffirm), &source);
    standby.wait("the stream is live", |state| !state.starts.is_empty());
    let log = receiver.detach().expect("the log");
    assert!(!receiver.is_streaming());
    service.wait_event("a new stream is refused", |event| event.refused() == Some(RefuseCode::Starting));
    receiver.attach(log);
    standby.wait("the stream is live again", |state| state.starts.len() == 2);
    let degraded =
        |event: &SenderEvent| matches!(event, SenderEvent::Degraded { .. } | SenderEvent::Refused(_));
    assert!(observer.events.read(|events| !events.iter().any(degraded)), "{:?}", sender.status());
}

/// A restarting standby listens before it has read its log.
#[test]
fn starting_standby_stays_a_required_destination() {
    let (source, standby, service) = apart(&first());
    let receiver = Receiver::start(receiver_config("127.0.0.1:0"), service.clone(), None).unwrap();
    // Only a refusal can degrade it here.
    let patient =
        DestinationConfig { net_timeout: Duration::from_secs(600), ..destination(TransportMode::SyncAffirm) };
    let (sender, observer) = send_to(receiver.local_addr(), patient, &source);
    let refused = |events: &Vec<ReceiverEvent>| {
        events.iter().filter(|event| event.refused() == Some(RefuseCode::Starting)).count()
    };
    service.events.wait("it is refused more than once", |events| refused(events) > 2);
    assert!(sender.is_required(), "{:?}", sender.status());
    receiver.attach(Box::new(MemoryLog(standby.clone())));
    standby.wait("the stream is live", |state| state.starts.len() == 1);
    assert!(sender.is_required(), "{:?}", sender.status());
    let degraded = |event: &SenderEvent| matches!(event, SenderEvent::Degraded { .. });
    assert!(observer.events.read(|events| !events.iter().any(degraded)));
}

#[test]
fn stop_does_not_wait_for_peers() {
    let (source, standby, service) = apart(&first());
    let receiver = listen(&service, &standby);
    // A silent connection, and a sender whose peer is silent.
    let _silent = TcpStream::connect(receiver.local_addr()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (sender, observer) =
        send_to(listener.local_addr().unwrap(), destination(TransportMode::Async), &source);
    let _accepted = listener.accept().unwrap();
    let (live, _observer) = send_to(receiver.local_addr(), destination(TransportMode::Async), &source);
    standby.wait("a stream is live", |state| !state.starts.is_empty());
    let began = Instant::now();
    sender.stop();
    live.stop();
    receiver.stop();
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    assert!(observer.events.read(|events| events.is_empty()), "a stop is no error");
}

#[test]
fn plain_tcp_listener_must_be_configured_even_on_loopback() {
    let service = Service::standby("oslo", &first());
    for address in ["0.0.0.0:0", "127.0.0.1:0"] {
        let config = ReceiverConfig { listen: address.into(), ..ReceiverConfig::default() };
        let refused = Receiver::start(config, service.clone(), None);
        assert!(matches!(refused, Err(TransportError::Insecure { .. })), "{address}");
        let config = ReceiverConfig { security: Security::insecure(), ..receiver_config(address) };
        assert!(Receiver::start(config, service.clone(), None).is_ok(), "{address}");
    }
}
