//! A standby as the source of a stream: what it may send, and what becomes of its streams when redo is taken back.

mod common;

use common::*;
use standfast_transport::*;
use standfast_types::Scn;
use std::sync::Arc;

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
fn what_is_hardened_is_forwarded_and_confirmed_as_far_as_the_primary_has_confirmed_it() {
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
fn when_redo_is_taken_back_the_stream_begins_anew_and_the_destination_follows() {
    let pair = Pair::connect(forwarding(Role::Standby), empty_standby(), destination(TransportMode::Async));
    for round in 1..=30_u8 {
        receive(&pair.source, 2000, round);
        pair.sender.wake();
        let taken_back = pair.source.end().0 - 1000;
        if round % 2 == 0 {
            pair.caught_up();
        }
        // As the receiving thread of a standby does it; other redo follows at once, and is confirmed.
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
fn while_the_source_changes_nothing_is_sent() {
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
