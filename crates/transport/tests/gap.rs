//! A standby that lacks whole logs gets them over separate connections while the stream continues beyond them.

mod common;

use common::*;
use standfast_format::FrameKind;
use standfast_transport::hello::{self, SenderHello};
use standfast_transport::*;
use standfast_types::Scn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const LOG_BYTES: usize = 300_000;

/// A primary that has archived `logs` logs and fills another one.
fn primary(logs: usize) -> Arc<MemorySource> {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    for _ in 0..logs {
        source.write(&redo(source.end(), LOG_BYTES, 1));
        source.switch();
    }
    source.0.change(|state| {
        state.archiving = true;
        state.buffer_from = state.end();
    });
    source
}

fn settings(connections: u32, per_log: u32) -> ArchiveTransport {
    let settings = GapSettings { connections, per_log, unit_bytes: 64 * 1024 };
    ArchiveTransport { settings, archivers: Archivers::new(connections), poll: Duration::from_secs(60) }
}

fn pair(source: Arc<MemorySource>, standby: Standby, archive: ArchiveTransport) -> Pair {
    pair_with(destination(TransportMode::SyncAffirm), source, standby, archive)
}

fn pair_with(
    config: DestinationConfig,
    source: Arc<MemorySource>,
    standby: Standby,
    archive: ArchiveTransport,
) -> Pair {
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let receiver = listen(&service, &standby);
    let (sender, observer) = send_with(receiver.local_addr(), config, &source, archive);
    Pair { source, sender, observer, service, standby, receiver }
}

fn resolved(pair: &Pair) {
    pair.observer.wait_event("the gap is resolved", |event| matches!(event, SenderEvent::GapResolved { .. }));
    pair.service.wait_event("there too", |event| matches!(event, ReceiverEvent::GapResolved { .. }));
}

#[test]
fn live_redo_continues_while_connections_fetch_missing_logs() {
    for (connections, per_log) in [(4, 1), (3, 3), (8, 5), (20, 20)] {
        let source = primary(6);
        // Archived logs are held back until live redo has arrived.
        source.0.change(|state| state.hold_from = 0);
        let pair = pair(source, empty_standby(), settings(connections, per_log));
        pair.observer.wait_event("the gap is found", |event| matches!(event, SenderEvent::GapFound(_)));
        let to = pair.source.end();
        for _ in 0..20 {
            pair.source.commit(&pair.sender, &redo(pair.source.end(), 1000, 1));
        }
        let end = pair.source.end();
        pair.standby.wait("live redo is there", |state| state.end() == end && state.gap.is_some());
        pair.standby.wait("its position has been reported", |state| state.heard.is_some());
        let delivered = pair.standby.read(|state| state.heard.unwrap().0);
        assert!(delivered < to, "a failover must not take {delivered} for all: {to} is behind the gap");
        let status = pair.sender.status();
        assert_eq!((status.hardened, status.received), (Scn::START, Scn::START), "counted over a hole");
        let gap = status.gap.unwrap();
        assert_eq!((gap.low_sequence, gap.high_sequence, gap.to), (1, 6, to));
        assert!(gap.bytes_left == gap.bytes && gap.bytes > 6 * LOG_BYTES as u64);
        pair.source.0.change(|state| state.hold_from = u64::MAX);
        resolved(&pair);
        pair.caught_up();
        pair.observer.wait_sender("all is acknowledged", &pair.sender, |sender| sender.acknowledged() == end);
        assert_eq!(pair.standby.read(|state| (state.opened, state.filled)), (1, 1));
        assert_eq!(pair.sender.stats().archived_bytes.load(Relaxed), gap.bytes, "each byte once");
        assert_eq!((pair.sender.status().gap, pair.receiver.gap()), (None, None));
    }
}

#[test]
fn damaged_archived_log_ends_the_gap_and_the_stream_resumes() {
    let source = primary(5);
    source.0.change(|state| state.damaged = vec![4]);
    // The damaged log ends the gap before it; the stream brings the rest from a source that is not damaged.
    let pair = pair(source, empty_standby(), settings(2, 1));
    pair.observer.wait_event("it is reported which", |event| {
        matches!(event, SenderEvent::ArchiveUnusable { sequence: 4, reason } if reason.contains("block 7"))
    });
    pair.caught_up();
    let end = pair.source.end();
    pair.observer.wait_sender("all is acknowledged", &pair.sender, |sender| sender.acknowledged() == end);
}

#[test]
fn removed_archived_log_ends_the_gap_with_a_refusal() {
    let source = primary(5);
    source.0.change(|state| {
        state.hold_from = 0;
        state.archiving = true;
    });
    let pair = pair(source, empty_standby(), settings(2, 1));
    pair.source.0.wait("archivers read", |state| state.reads.len() >= 2);
    pair.source.0.change(|state| {
        state.removed = vec![3];
        state.oldest = Scn::START + 3 * LOG_BYTES as u64;
        state.hold_from = u64::MAX;
    });
    pair.observer.wait_refused(RefuseCode::Gap);
    let given_up = pair.standby.read(|state| state.given_up.clone());
    assert!(!given_up.is_empty(), "the hole is closed");
    pair.standby.read(|state| {
        assert!(state.gap.is_none());
        assert!(state.end() <= Scn::START + 2 * LOG_BYTES as u64, "nothing beyond the hole is kept");
        assert_eq!(state.bytes, redo(Scn::START, state.bytes.len(), 1));
    });
}

#[test]
fn archived_log_is_abandoned_after_three_bad_fetches() {
    let source = primary(4);
    source.0.change(|state| state.changed = vec![2]);
    let pair = pair(source, empty_standby(), settings(2, 2));
    pair.observer
        .wait_event("the standby says so", |event| event.to_string().contains("log 2 was fetched 3 times"));
    pair.source.0.change(|state| state.changed.clear());
    resolved(&pair);
    pair.caught_up();
}

#[test]
fn lost_connection_costs_only_its_unit_of_the_gap() {
    let source = primary(6);
    let standby = empty_standby();
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let receiver = listen(&service, &standby);
    let relay = Relay::cutting(receiver.local_addr(), 100_000, 6);
    let config = destination(TransportMode::SyncAffirm);
    let (sender, observer) = send_with(relay.address(), config, &source, settings(4, 2));
    let pair = Pair { source, sender, observer, service, standby, receiver };
    resolved(&pair);
    pair.caught_up();
    assert_eq!(pair.standby.read(|state| (state.opened, state.filled)), (1, 1), "one gap, one stream");
    assert!(relay.cut() > 0, "no connection was cut");
    let sent = pair.sender.stats().archived_bytes.load(Relaxed);
    let archived: u64 = pair.standby.read(|state| state.archived.iter().map(|(log, _)| log.bytes).sum());
    assert!(
        sent > archived && sent <= archived + relay.cut() * 64 * 1024,
        "{sent} bytes sent for {archived}"
    );
}

#[test]
fn restart_of_either_end_fetches_no_complete_log_again() {
    for primary_restarts in [false, true] {
        let source = primary(8);
        source.0.change(|state| state.hold_from = 4);
        let mut pair = pair(source.clone(), empty_standby(), settings(2, 1));
        // Some logs have arrived, and live redo beyond them.
        pair.standby.wait("logs come", |state| state.archived.len() == 3);
        pair.source.commit(&pair.sender, &redo(pair.source.end(), 1000, 1));
        let end = pair.source.end();
        pair.standby.wait("live redo comes", |state| state.end() == end);
        pair.observer.forget();
        let resume = || source.0.change(|state| state.hold_from = u64::MAX);
        if primary_restarts {
            std::thread::scope(|scope| {
                scope.spawn(|| pair.sender.stop());
                pair.standby.wait("its stream is over", |state| state.gap.is_none());
                resume();
            });
            let address = pair.receiver.local_addr();
            let config = destination(TransportMode::SyncAffirm);
            (pair.sender, pair.observer) = send_with(address, config, &source, settings(4, 1));
        } else {
            let address = pair.receiver.local_addr().to_string();
            pair.receiver.stop();
            resume();
            pair.receiver = listen_at(&address, &pair.service, &pair.standby);
        }
        pair.caught_up();
        let end = pair.source.end();
        pair.observer.wait_sender("acknowledged", &pair.sender, |sender| sender.acknowledged() == end);
        pair.standby.read(|state| {
            assert_eq!(state.given_up.len(), 1);
            let mut sequences: Vec<_> = state.archived.iter().map(|(log, _)| log.sequence).collect();
            sequences.sort_unstable();
            sequences.dedup();
            assert_eq!(sequences.len(), state.archived.len(), "a log was fetched twice");
        });
    }
}

#[test]
fn primary_notices_a_standby_that_falls_behind_its_logs() {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let archive = ArchiveTransport { poll: Duration::from_millis(50), ..settings(4, 1) };
    // Restarting the stream beside the archivers is no failure of the destination.
    let config = DestinationConfig { max_failure: 1, ..destination(TransportMode::SyncAffirm) };
    let pair = pair_with(config, source, empty_standby(), archive);
    pair.observer.wait_event("the stream begins", |event| matches!(event, SenderEvent::Connected { .. }));
    // In one step: the sender may read the source at any time, and must find it either without the redo or far ahead of
    // the standby.
    pair.source.0.change(|state| {
        for _ in 0..10 {
            state.bytes.extend(redo(state.end(), LOG_BYTES, 1));
            state.begin_log();
        }
        state.durable = state.end();
        state.archiving = true;
        state.buffer_from = state.end();
        // The stream gets no further than this.
        state.logged_upto = Scn::START + LOG_BYTES as u64;
    });
    pair.source.commit(&pair.sender, &redo(pair.source.end(), 100, 1));
    pair.observer.wait_event(
        "the primary looks",
        |event| matches!(event, SenderEvent::Disconnected { reason } if reason.contains("are missing there")),
    );
    pair.source.0.change(|state| state.logged_upto = Scn(u64::MAX));
    resolved(&pair);
    pair.caught_up();
}

#[test]
fn archiver_of_no_gap_or_another_primary_is_refused() {
    let source = primary(3);
    source.0.change(|state| state.hold_from = 0);
    let pair = pair(source, empty_standby(), settings(2, 1));
    pair.standby.wait("the gap is open", |state| state.gap.is_some());
    let to = pair.source.end();
    let ask = |source: PeerIdentity, to: Scn| {
        let mut peer = ByHand::connect(pair.receiver.local_addr());
        let mode = TransportMode::Async;
        let hello = SenderHello {
            source,
            mode,
            net_timeout_ms: 60_000,
            via: Vec::new(),
            delay_ms: None,
            logs: None,
            receive_buffer_bytes: 0,
            peers: Vec::new(),
            members: Vec::new(),
            issuer: None,
            renews: false,
            reports_position: false,
            compression: Compression::None,
            archives_to: Some(to),
        };
        peer.writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &hello).unwrap();
        hello::expect(&peer.reader.read().unwrap(), FrameKind::Hello)
    };
    let code = |answer: Result<(), TransportError>| match answer {
        Err(TransportError::Refused(refusal)) => Some(refusal.code),
        _ => None,
    };
    assert_eq!(code(ask(pair.source.identity(), to + 1)), Some(RefuseCode::Busy), "another gap");
    let other = identity("rome", Role::Primary, &[incarnation(1, 4096)]);
    assert_eq!(code(ask(other, to)), Some(RefuseCode::Busy), "not whose stream it is");
    let foreign = identity("rome", Role::Primary, &[incarnation(7, 4096)]);
    assert_eq!(code(ask(foreign, to)), Some(RefuseCode::NotStandby), "another family");
    pair.source.0.change(|state| state.hold_from = u64::MAX);
    resolved(&pair);
    assert_eq!(code(ask(pair.source.identity(), to)), Some(RefuseCode::Busy), "it is over");
}

#[test]
fn inconsistent_gap_is_refused_without_any_change() {
    let source = primary(3);
    let standby = empty_standby();
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let receiver = listen(&service, &standby);
    let (logs, crc) = source.archived_from(Scn::START).unwrap().unwrap();
    let sound = Gap {
        from: Scn::START,
        to: source.end(),
        crc: crc.0,
        logs,
        unit_bytes: 64 * 1024,
        per_log: 1,
        connections: 3,
    };
    let log = source.log_containing(source.end()).unwrap();
    let begin = |gap: Gap, from: Scn, log: LogSwitch| {
        let mut peer = ByHand::connect(receiver.local_addr());
        peer.hello(source.identity());
        assert_eq!(peer.reader.read().unwrap().header.kind, FrameKind::Hello);
        let start = StreamStart { source: source.identity(), from, keep: from, log, gap: Some(gap) };
        peer.writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &start).unwrap();
        let refusal = peer.refusal();
        assert_eq!(refusal.code, RefuseCode::Protocol, "{refusal}");
    };
    begin(Gap { from: Scn::START + 1, ..sound.clone() }, Scn::START, log);
    begin(Gap { to: sound.to + 1, ..sound.clone() }, Scn::START, log);
    begin(sound.clone(), Scn::START, LogSwitch { first_scn: log.first_scn + 1, ..log });
    begin(Gap { logs: sound.logs[1..].to_vec(), ..sound }, Scn::START, log);
    assert_eq!(standby.read(|state| (state.opened, state.starts.len())), (0, 0));
}
