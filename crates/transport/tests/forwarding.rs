//! A standby as the source of a stream: which redo it may send, and how its streams continue when redo is discarded.

#![allow(clippy::unwrap_used)] // Not in functions marked as tests, but tests all the same.

mod common;

use common::*;
use standfast_format::FrameHeader;
use standfast_format::FrameKind;
use standfast_transport::*;
use standfast_types::Scn;
use std::sync::{Arc, Mutex};

/// A standby in memory that forwards.
fn forwarding(role: Role) -> Arc<MemorySource> {
    let source = MemorySource::new("madrid", &[incarnation(1, 4096)]);
    source.0.change(|state| {
        state.forwards = true;
        state.identity.role = role;
    });
    source
}

fn receive(source: &MemorySource, bytes: usize, salt: u8) {
    let redo = redo(source.end(), bytes, salt);
    source.0.change(|state| state.bytes.extend(redo));
}

#[test]
fn forwarded_redo_is_confirmed_only_as_far_as_the_primary_did() {
    for role in [Role::Standby, Role::FarSync] {
        let pair = Pair::connect(forwarding(role), empty_standby(), destination(TransportMode::Async));
        receive(&pair.source, 3000, 1);
        pair.source.0.change(|state| state.durable = Scn(5000));
        pair.sender.wake();
        pair.caught_up();
        pair.standby.wait("the confirmed position came along", |state| state.confirmed == Scn(5000));
        pair.source.0.change(|state| state.durable = Scn(6000));
        pair.sender.wake();
        pair.standby.wait("so does the next one", |state| state.confirmed == Scn(6000));
        assert_eq!(pair.standby.read(StandbyState::end), Scn(7096), "not confirmed, but there");
    }
}

#[test]
fn destination_follows_when_its_source_truncates_redo() {
    let pair = Pair::connect(forwarding(Role::Standby), empty_standby(), destination(TransportMode::Async));
    for round in 1..=30_u8 {
        receive(&pair.source, 2000, round);
        pair.sender.wake();
        let taken_back = pair.source.end().0 - 1000;
        if round % 2 == 0 {
            pair.caught_up();
        }
        // As the receiving thread of a standby does it. Other redo follows immediately and is confirmed.
        pair.source.0.change(|state| state.epoch += 1);
        pair.source.0.change(|state| state.bytes.truncate((taken_back - Scn::START.0) as usize));
        receive(&pair.source, 3000, round ^ 0x80);
        pair.source.0.change(|state| {
            state.durable = state.end();
            state.epoch += 1;
        });
        pair.sender.wake();
        pair.caught_up();
        let end = pair.source.end();
        pair.standby.wait("all of it is confirmed", |state| state.confirmed == end);
    }
    let cuts = pair.standby.read(|state| state.cuts.len());
    assert!(cuts >= 15, "only {cuts} cuts: what was taken back was hardly ever there");
}

#[test]
fn forwarding_standby_learns_of_a_newer_incarnation() {
    for role in [Role::Standby, Role::FarSync] {
        let newer = [incarnation(1, 4096), incarnation(2, 4500)];
        let (standby, service) = (empty_standby(), Service::standby("oslo", &newer));
        let receiver = listen(&service, &standby);
        let (_sender, observer) =
            send_to(receiver.local_addr(), destination(TransportMode::Async), &forwarding(role));
        observer.superseded.wait("it is reported", |met| met.contains(&newer[1]));
        observer.wait_refused(RefuseCode::Behind);
    }
}

#[test]
fn nothing_is_sent_while_the_source_changes() {
    let pair = Pair::connect(forwarding(Role::Standby), empty_standby(), destination(TransportMode::Async));
    pair.source.0.change(|state| state.epoch = 1);
    receive(&pair.source, 1000, 1);
    pair.sender.wake();
    pair.observer.wait_event("the stream ends", |event| matches!(event, SenderEvent::Disconnected { .. }));
    let starts = pair.standby.read(|state| state.starts.len());
    pair.standby.wait("it is tried again", |state| state.starts.len() > starts + 1);
    assert_eq!(pair.standby.read(StandbyState::end), Scn::START);
    pair.source.0.change(|state| state.epoch = 2);
    pair.caught_up();
}

#[test]
fn a_standby_is_fed_by_one_source_at_a_time() {
    let pair = Pair::connected(TransportMode::SyncAffirm);
    let second = forwarding(Role::FarSync);
    let (_sender, observer) = send_to(pair.receiver.local_addr(), destination(TransportMode::Async), &second);
    let event =
        observer.wait_event("it is refused", |event| matches!(event, SenderEvent::Disconnected { .. }));
    let SenderEvent::Disconnected { reason } = event else { unreachable!() };
    assert!(reason.contains("one source at a time") && reason.contains("paris"), "{reason}");
    pair.source.commit(&pair.sender, &redo(pair.source.end(), 100, 1));
    pair.caught_up();
}

/// Destinations of a standby, which have acknowledged up to a position.
#[derive(Default)]
struct Further {
    acknowledged: Mutex<Scn>,
    moved: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

impl Further {
    fn acknowledge(&self, upto: Scn) {
        *self.acknowledged.lock().unwrap() = upto;
        let moved = self.moved.lock().unwrap().clone();
        moved.expect("a sender watches")();
    }
}

impl CascadeLimit for Further {
    fn limit(&self, position: Scn) -> Scn {
        position.min(*self.acknowledged.lock().unwrap())
    }
    fn watch(&self, moved: Option<Arc<dyn Fn() + Send + Sync>>) {
        *self.moved.lock().unwrap() = moved;
    }
}

#[test]
fn sync_forwarder_acknowledges_what_its_destinations_hold() {
    let further = Arc::new(Further::default());
    let standby = empty_standby();
    standby.change(|state| state.cascade = Some(further.clone()));
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let receiver = listen(&service, &standby);
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let mut peer = ByHand::begin(receiver.local_addr(), &source);
    let bytes = redo(Scn::START, 1000, 1);
    peer.writer.write(FrameHeader::new(FrameKind::Redo, 4096, 4096, 7, 5096), &bytes).unwrap();
    let mut answer = || {
        let frame = peer.reader.read().unwrap();
        assert_eq!(frame.header.kind, FrameKind::Ack);
        (frame.header.a, frame.header.b, frame.header.d)
    };
    // The first answer carries the times of the write, and acknowledges nothing.
    assert_eq!(answer(), (0, 0, 7));
    assert_eq!(standby.read(StandbyState::end), Scn(5096));
    further.acknowledge(Scn(4600));
    assert_eq!(answer(), (4600, 4600, 7));
    further.acknowledge(Scn(4600));
    further.acknowledge(Scn(9999));
    assert_eq!(answer(), (5096, 5096, 7));
    drop(receiver);
    assert!(further.moved.lock().unwrap().is_none(), "no sender watches when the stream is over");
}
