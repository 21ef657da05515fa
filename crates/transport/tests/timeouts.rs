//! Commits while a destination does not answer.

mod common;

use common::*;
use standfast_format::{FrameHeader, FrameKind};
use standfast_transport::*;
use standfast_types::Scn;
use std::time::Duration;

fn quick(on_timeout: OnTimeout) -> DestinationConfig {
    DestinationConfig {
        net_timeout: Duration::from_millis(400),
        on_timeout,
        ..destination(TransportMode::SyncAffirm)
    }
}

fn pair(on_timeout: OnTimeout) -> Pair {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    Pair::connect(source, empty_standby(), quick(on_timeout))
}

#[test]
fn hung_standby_is_degraded_until_it_has_caught_up() {
    let pair = pair(OnTimeout::Degrade);
    pair.standby.change(|state| state.hold = true);
    pair.source.commit(&pair.sender, &redo(Scn::START, 100, 1));
    assert!(pair.sender.is_required());
    assert_eq!(releasable(pair.source.durable(), &[pair.sender.release_view()]), Scn::START);
    pair.observer.wait_event("it is degraded", |event| matches!(event, SenderEvent::Degraded { .. }));
    assert_eq!(releasable(pair.source.durable(), &[pair.sender.release_view()]), pair.source.end());
    pair.source.commit(&pair.sender, &redo(pair.source.end(), 100, 1));
    pair.standby.change(|state| state.hold = false);
    pair.observer.wait_event("it is back", |event| matches!(event, SenderEvent::Resynchronised { .. }));
    assert!(pair.sender.is_required() && pair.sender.acknowledged() == pair.source.end());
    pair.caught_up();
}

#[test]
fn commit_stall_is_reported_under_maximum_protection() {
    let pair = pair(OnTimeout::Stall);
    pair.standby.change(|state| state.hold = true);
    pair.source.commit(&pair.sender, &redo(Scn::START, 100, 1));
    pair.observer.wait_event("the stall is reported", |event| matches!(event, SenderEvent::Stalled { .. }));
    assert_eq!(pair.sender.status().timeouts, 1);
    let view = [pair.sender.release_view()];
    assert_eq!(releasable(pair.source.durable(), &view), Scn::START);
    assert_eq!(withheld_by(pair.source.end(), pair.source.durable(), &view), ["oslo"]);
    pair.standby.change(|state| state.hold = false);
    pair.observer.wait_event("the stall ends", |event| matches!(event, SenderEvent::StallEnded { .. }));
    assert_eq!(releasable(pair.source.durable(), &[pair.sender.release_view()]), pair.source.end());
}

#[test]
fn absent_standby_delays_commits_only_for_the_net_timeout() {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let no_instance = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (sender, observer) = send_to(no_instance, quick(OnTimeout::Degrade), &source);
    assert!(sender.is_required());
    source.commit(&sender, &redo(Scn::START, 100, 1));
    let SenderEvent::Degraded { reason, .. } =
        observer.wait_event("it is degraded", |event| matches!(event, SenderEvent::Degraded { .. }))
    else {
        panic!()
    };
    assert!(reason.contains("net_timeout"), "{reason}");
    let connecting = observer.events.read(|events| {
        events.iter().filter(|event| matches!(event, SenderEvent::Disconnected { .. })).count()
    });
    assert_eq!(connecting, 1, "one report for many attempts");
    let status = sender.status();
    assert_eq!((status.disconnects, status.timeouts), (1, 1));
    assert!(status.last_error.is_some());
}

#[test]
fn silent_peer_is_disconnected_even_when_no_commit_waits() {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let silent = DestinationConfig { mode: TransportMode::Async, ..quick(OnTimeout::Degrade) };
    let pair = Pair::connect(source, empty_standby(), silent);
    pair.standby.change(|state| state.hold = true);
    pair.source.commit(&pair.sender, &redo(Scn::START, 100, 1));
    let reason = pair
        .observer
        .wait_event("it is disconnected", |event| matches!(event, SenderEvent::Disconnected { .. }));
    assert!(reason.to_string().contains("no answer"), "{reason}");
    pair.standby.change(|state| state.hold = false);
    pair.caught_up();
}

#[test]
fn standby_ends_the_stream_of_a_silent_primary() {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let receiver = listen(&service, &empty_standby());
    let mut silent = ByHand::begin_with(receiver.local_addr(), &source, 200);
    let ended = service.wait_event("the stream ends", |event| matches!(event, ReceiverEvent::Ended { .. }));
    assert!(ended.to_string().contains("nothing heard"), "{ended}");
    silent.assert_closed();
    assert!(receiver.detach().is_some());
}

#[test]
fn lagging_standby_reports_apply_and_notices_a_silent_primary() {
    const FAR: usize = 2 << 20;
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let (standby, service) = (empty_standby(), Service::standby("oslo", &[incarnation(1, 4096)]));
    let receiver = listen(&service, &standby);
    let first = Scn::START;
    standby.change(|state| state.applied = first);
    let mut silent = ByHand::begin_with(receiver.local_addr(), &source, 2_000);
    silent
        .writer
        .write(FrameHeader::new(FrameKind::Redo, first.0, 0, 7, first.0), &redo(first, FAR, 1))
        .unwrap();
    let mut next = || silent.reader.read().unwrap().header;
    let mut header = next();
    // The frame is large: while it arrives, the standby may report once what it has applied.
    if header.d == 0 {
        assert_eq!(header.c, first.0);
        header = next();
    }
    assert_eq!(header.d, 7);
    standby.change(|state| state.applied = first + 1000);
    let header = next();
    assert_eq!((header.c, header.d), (first.0 + 1000, 0), "nothing was sent that this would answer");
    let ended = service.wait_event("the stream ends", |event| matches!(event, ReceiverEvent::Ended { .. }));
    assert!(ended.to_string().contains("nothing heard"), "{ended}");
}
