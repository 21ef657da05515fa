//! An open stream over loopback.

mod common;

use common::*;
use standfast_format::{FrameHeader, FrameKind, encode_frame};
use standfast_instruments::Statistic;
use standfast_transport::hello::{self, ReceiverHello};
use standfast_transport::*;
use standfast_types::{APPLY_BEHIND_BYTES, BATCH_BYTES_MAX, Scn};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

#[test]
fn redo_of_any_size_arrives_in_order_with_its_log_switches() {
    let pair = Pair::connected(TransportMode::SyncAffirm);
    let mut seed = 1u64;
    for round in 0..400 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bytes = 1 + (seed >> 33) as usize % if round % 50 == 0 { 300_000 } else { 500 };
        pair.source.commit(&pair.sender, &redo(pair.source.end(), bytes, 1));
        if round % 37 == 36 {
            pair.source.switch();
        }
    }
    pair.caught_up();
    let logs = pair.source.0.read(|state| state.logs.clone());
    let end = pair.source.end();
    pair.standby.wait("all switches are known", |state| state.logs == logs);
    pair.observer.wait_sender("all is acknowledged", &pair.sender, |sender| sender.acknowledged() == end);
    let stats = pair.sender.stats();
    // The sender counts after sending, so the acknowledgement may come first; the counts are complete once it has
    // stopped.
    pair.sender.stop();
    assert_eq!(stats.redo_bytes.load(Relaxed), end.bytes_since(Scn::START));
    assert!(stats.round_trip.counts().count > 0 && stats.standby_write.counts().count > 0);
}

#[test]
fn log_writer_sends_directly_on_a_quiet_stream() {
    let pair = Pair::connected(TransportMode::SyncAffirm);
    let mut direct = 0;
    for _ in 0..50 {
        let offer = pair.source.commit(&pair.sender, &redo(pair.source.end(), 200, 1));
        direct += u32::from(offer == Offer::Sent);
        let end = pair.source.end();
        pair.observer.wait_sender("it is acknowledged", &pair.sender, |sender| sender.acknowledged() == end);
    }
    // At the very first offer the log is not announced; later offers may collide with the feeder's polls.
    assert!(direct >= 25, "only {direct} of 50");
}

#[test]
fn affirm_acknowledges_writes_and_fastsync_receipts() {
    for mode in [TransportMode::SyncAffirm, TransportMode::FastSync] {
        let pair = Pair::connected(mode);
        pair.standby.change(|state| state.hold = true);
        pair.source.commit(&pair.sender, &redo(Scn::START, 100, 1));
        let end = pair.source.end();
        if mode == TransportMode::FastSync {
            pair.observer.wait_sender("receipt counts", &pair.sender, |sender| sender.acknowledged() == end);
            assert_eq!(pair.sender.status().hardened, Scn::START);
        } else {
            // The write is held. A second commit shows that there was time for an acknowledgement.
            pair.source.commit(&pair.sender, &redo(end, 100, 1));
            assert_eq!(pair.sender.acknowledged(), Scn::START);
        }
        pair.standby.change(|state| state.hold = false);
        let end = pair.source.end();
        pair.observer.wait_sender("the write counts", &pair.sender, |sender| sender.acknowledged() == end);
        pair.caught_up();
        assert!(pair.sender.release_view().required);
    }
}

#[test]
fn waiting_batches_are_combined_into_one_write() {
    let pair = Pair::connected(TransportMode::SyncAffirm);
    pair.standby.change(|state| state.hold = true);
    pair.source.commit(&pair.sender, &redo(Scn::START, 100, 1));
    for _ in 0..200 {
        pair.source.commit(&pair.sender, &redo(pair.source.end(), 100, 1));
    }
    pair.standby.change(|state| state.hold = false);
    pair.caught_up();
    let writes = pair.standby.read(|state| state.writes);
    assert!(writes < 100, "{writes} writes for 201 batches");
}

#[test]
fn primary_promptly_confirms_only_its_durable_redo() {
    let pair = Pair::connected(TransportMode::SyncAffirm);
    pair.source.capture(&pair.sender, &redo(Scn::START, 500, 1));
    let end = pair.source.end();
    pair.observer.wait_sender("it is acknowledged", &pair.sender, |sender| sender.acknowledged() == end);
    assert_eq!(pair.standby.read(|state| state.confirmed), Scn::START, "applied before it was durable");
    pair.source.harden();
    pair.standby.wait("the confirmation comes without redo", |state| state.confirmed == end);
    pair.standby.wait("apply is notified", |state| state.notices >= 2);
}

#[test]
fn idle_stream_is_kept_alive_by_heartbeats() {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let quick =
        DestinationConfig { net_timeout: Duration::from_millis(1500), ..destination(TransportMode::Async) };
    let pair = Pair::connect(source, empty_standby(), quick);
    pair.standby.wait("three net timeouts of heartbeats", |state| state.notices >= 9);
    assert_eq!(pair.sender.stats().connects.load(Relaxed), 1);
}

#[test]
fn stream_resumes_where_it_was_after_a_standby_restart() {
    let mut pair = Pair::connected(TransportMode::SyncAffirm);
    for round in 0..5 {
        pair.source.commit(&pair.sender, &redo(pair.source.end(), 1000, 1));
        pair.caught_up();
        pair.observer.forget();
        let address = pair.receiver.local_addr().to_string();
        pair.receiver.stop();
        pair.source.commit(&pair.sender, &redo(pair.source.end(), 1000, 1));
        pair.receiver = listen_at(&address, &pair.service, &pair.standby);
        pair.observer
            .wait_event("it is connected again", |event| matches!(event, SenderEvent::Connected { .. }));
        pair.caught_up();
        assert!(pair.standby.read(|state| state.cuts.is_empty()), "round {round}");
    }
}

#[test]
fn async_destination_catches_up_from_logs_then_from_the_buffer() {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    for _ in 0..30 {
        source.write(&redo(source.end(), BATCH_BYTES_MAX / 10, 1));
        source.switch();
    }
    source.0.change(|state| state.buffer_from = state.end());
    let pair = Pair::connect(source, empty_standby(), destination(TransportMode::Async));
    pair.caught_up();
    let is_from_buffer = |event: &SenderEvent| matches!(event, SenderEvent::FromBuffer { .. });
    pair.observer.wait_event("it has caught up, though nothing follows", is_from_buffer);
    pair.source.commit(&pair.sender, &redo(pair.source.end(), 1000, 1));
    pair.caught_up();
    pair.observer.events.read(|events| {
        assert!(
            events
                .iter()
                .any(|event| matches!(event, SenderEvent::CatchingUp { from } if *from == Scn::START))
        );
    });
    let from_logs = pair.observer.instruments.statistic(Statistic::RedoReadForTransport);
    assert_eq!(from_logs, pair.source.0.read(|state| state.buffer_from.bytes_since(Scn::START)));
    assert_eq!(pair.sender.stats().frames_direct.load(Relaxed), 0);
    assert!(!pair.sender.release_view().required);
    let logs = pair.source.0.read(|state| state.logs.clone());
    pair.standby.wait("all switches are known", |state| state.logs == logs);
}

#[test]
fn standby_keeps_the_equal_prefix_of_redo_the_primary_lost() {
    let pair = Pair::connected(TransportMode::SyncAffirm);
    pair.source.commit(&pair.sender, &redo(Scn::START, 1000, 1));
    let confirmed = pair.source.end();
    pair.standby.wait("the first part is confirmed", |state| state.confirmed == confirmed);
    // 400 bytes are durable on both sides without the standby knowing it; 600 more never become durable here.
    pair.source.capture(&pair.sender, &redo(confirmed, 1000, 1));
    pair.caught_up();
    let address = pair.receiver.local_addr();
    pair.sender.stop();
    pair.service.wait_event("the standby is alone", |event| matches!(event, ReceiverEvent::Ended { .. }));
    let restarted = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let durable = confirmed + 400;
    restarted.write(&pair.source.0.read(|state| state.slice(Scn::START, durable).to_vec()));
    let (sender, observer) = send_to(address, destination(TransportMode::SyncAffirm), &restarted);
    let connected =
        observer.wait_event("it is connected", |event| matches!(event, SenderEvent::Connected { .. }));
    assert_eq!(connected, SenderEvent::Connected { from: confirmed, held_end: Some(confirmed + 1000) });
    observer.wait_sender("the common part counts", &sender, |sender| sender.acknowledged() == durable);
    assert_eq!(
        pair.standby.read(StandbyState::end),
        confirmed + 1000,
        "nothing differs yet: nothing is dropped"
    );
    pair.standby.wait("what is durable is confirmed", |state| state.confirmed == durable);
    // The restarted primary writes something else.
    restarted.commit(&sender, &redo(durable, 300, 2));
    let end = restarted.end();
    let standby = pair.standby.when("the standby follows", |state| state.end() == end);
    assert_eq!(standby.cuts, [(durable, confirmed + 1000)]);
    restarted.0.read(|state| assert!(state.bytes == standby.bytes));
    drop(standby);
    observer.wait_sender("it is acknowledged", &sender, |sender| sender.acknowledged() == end);
    pair.service.wait_event("the cut is reported", |event| matches!(event, ReceiverEvent::Cut { .. }));
}

#[test]
fn redo_beyond_a_differing_log_switch_is_truncated() {
    let pair = Pair::connected(TransportMode::SyncAffirm);
    pair.source.commit(&pair.sender, &redo(Scn::START, 1000, 1));
    let confirmed = pair.source.end();
    pair.standby.wait("the first part is confirmed", |state| state.confirmed == confirmed);
    pair.source.capture(&pair.sender, &redo(confirmed, 1000, 1));
    pair.caught_up();
    let address = pair.receiver.local_addr();
    pair.sender.stop();
    // The restarted primary captures the same bytes again, but has begun another log in between.
    let restarted = MemorySource::new("paris", &[incarnation(1, 4096)]);
    restarted.write(&redo(Scn::START, 1000, 1));
    restarted.write(&redo(confirmed, 500, 1));
    restarted.switch();
    restarted.write(&redo(confirmed + 500, 600, 1));
    let (_sender, _observer) = send_to(address, destination(TransportMode::SyncAffirm), &restarted);
    let end = restarted.end();
    let logs = restarted.0.read(|state| state.logs.clone());
    let standby = pair.standby.when("the standby follows", |state| state.end() == end);
    assert_eq!(standby.cuts, [(confirmed + 500, confirmed + 1000)]);
    assert_eq!(standby.logs, logs);
}

#[test]
fn destinations_of_different_modes_do_not_affect_each_other() {
    let near = Pair::connected(TransportMode::SyncAffirm);
    let service = Service::standby("far", &[incarnation(1, 4096)]);
    let standby = empty_standby();
    let receiver = listen(&service, &standby);
    let (far, _observer) = send_to(receiver.local_addr(), destination(TransportMode::Async), &near.source);
    standby.change(|state| state.hold = true);
    for _ in 0..100 {
        near.source.commit(&near.sender, &redo(near.source.end(), 500, 1));
        far.enable();
    }
    let end = near.source.end();
    near.observer.wait_sender("the near one is done", &near.sender, |sender| sender.acknowledged() == end);
    let views = [near.sender.release_view(), far.release_view()];
    assert_eq!(releasable(end, &views), end, "{views:?}");
    standby.change(|state| state.hold = false);
    standby.wait("the far one gets all of it", |state| state.end() == end);
}

#[test]
fn emulated_network_distance_delays_only_acknowledgements() {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let standby = empty_standby();
    let delay = Duration::from_millis(30);
    let config = ReceiverConfig { ack_delay: delay, ..receiver_config("127.0.0.1:0") };
    let receiver = Receiver::start(config, service, Some(Box::new(MemoryLog(standby.clone())))).unwrap();
    let (sender, observer) = send_to(receiver.local_addr(), destination(TransportMode::SyncAffirm), &source);
    standby.wait("it is connected", |state| !state.starts.is_empty());
    for _ in 0..20 {
        source.commit(&sender, &redo(source.end(), 100, 1));
    }
    let end = source.end();
    standby.wait("all has arrived", |state| state.end() == end);
    observer.wait_sender("all is acknowledged", &sender, |sender| sender.acknowledged() == end);
    let mean = sender.stats().round_trip.counts().mean_us().unwrap();
    assert!(mean >= delay.as_secs_f64() * 1e6, "{mean} us");
}

#[test]
fn failed_standby_log_refuses_redo_with_the_reason() {
    let pair = Pair::connected(TransportMode::SyncAffirm);
    pair.standby.change(|state| state.broken = true);
    pair.source.commit(&pair.sender, &redo(Scn::START, 100, 1));
    let SenderEvent::Refused(refusal) = pair.observer.wait_refused(RefuseCode::StandbyLog) else { panic!() };
    assert!(refusal.message.contains("replace it"), "{refusal}");
    pair.standby.change(|state| state.broken = false);
    pair.caught_up();
    // Redo that was not written was not acknowledged: no commit continued because of the refusal.
    let degraded = |event: &SenderEvent| matches!(event, SenderEvent::Degraded { reason, .. } if reason.contains("refused"));
    assert!(pair.observer.events.read(|events| !events.iter().any(degraded)));
}

#[test]
fn stopped_databases_are_reported_to_the_primary_once() {
    let stopped = |name: &str| StoppedDatabase {
        database: name.into(),
        applied: Some(Scn(4100)),
        reason: "page 3 differs".into(),
    };
    let pair = Pair::connected(TransportMode::SyncAffirm);
    let stated = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        pair.observer.events.wait(&format!("{names:?} are stopped"), |_| {
            let stopped = pair.sender.status().stopped;
            stopped.total == names.len() as u64
                && stopped.databases.iter().map(|at| &at.database).eq(names.iter())
        });
    };
    // The status changes before the event is reported.
    let printed = |stops: usize, resumes: usize| {
        pair.observer.events.wait(
            &format!("{stops} stops and {resumes} ends of them are reported"),
            |events| {
                let count =
                    |what: fn(&SenderEvent) -> bool| events.iter().filter(|event| what(event)).count();
                let found = (
                    count(|event| matches!(event, SenderEvent::ApplyStopped(_))),
                    count(|event| matches!(event, SenderEvent::ApplyResumes { .. })),
                );
                assert!(found.0 <= stops && found.1 <= resumes, "{found:?}");
                found == (stops, resumes)
            },
        );
    };

    // Heartbeats suffice: nothing is written meanwhile.
    pair.standby.change(|state| state.stopped = (1, vec![stopped("a.db")]));
    stated(&["a.db"]);
    assert_eq!(pair.sender.status().stopped.databases, [stopped("a.db")]);
    pair.standby.change(|state| state.stopped = (2, vec![stopped("a.db"), stopped("b.db")]));
    stated(&["a.db", "b.db"]);
    printed(2, 0);

    // A new connection reports everything again, without new events.
    pair.receiver.stop();
    let address = pair.receiver.local_addr().to_string();
    let again = listen_at(&address, &pair.service, &pair.standby);
    pair.standby.wait("it streams again", |state| state.starts.len() == 2);
    pair.standby.change(|state| state.stopped = (3, vec![stopped("b.db")]));
    stated(&["b.db"]);
    printed(2, 1);
    pair.standby.change(|state| state.stopped = (4, vec![]));
    stated(&[]);
    printed(2, 2);
    drop(again);
}

/// Small pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound) as usize
    }
}

/// `bytes` as redo frames of any size that begin at `from`; each carries `durable`.
fn frames(numbers: &mut Numbers, from: Scn, durable: Scn, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let size = (1 + numbers.below(200)).min(bytes.len() - at);
        let header = FrameHeader::new(FrameKind::Redo, from.0 + at as u64, durable.0, 1, 1);
        encode_frame(header, &bytes[at..at + size], &mut out);
        at += size;
    }
    out
}

#[test]
fn stream_does_not_depend_on_network_segmentation() {
    let mut numbers = Numbers(1);
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let standby = empty_standby();
    let receiver = listen(&Service::standby("oslo", &[incarnation(1, 4096)]), &standby);
    let mut peer = ByHand::begin(receiver.local_addr(), &source);
    let mut stream: TcpStream = peer.reader.inner().try_clone().unwrap();
    stream.set_nodelay(true).unwrap();
    let bytes = redo(Scn::START, 30_000, 1);
    let mut rest = &frames(&mut numbers, Scn::START, Scn::START, &bytes)[..];
    while !rest.is_empty() {
        let (now, later) = rest.split_at((1 + numbers.below(300)).min(rest.len()));
        stream.write_all(now).unwrap();
        rest = later;
    }
    let end = Scn::START + bytes.len() as u64;
    let held = standby.when("all has arrived", |state| state.end() == end);
    assert!(held.bytes == bytes);
    drop(held);
    while peer.reader.read().unwrap().header.a < end.0 {}
}

#[test]
fn held_redo_is_kept_up_to_the_first_differing_byte() {
    let mut numbers = Numbers(2);
    for case in 0..40 {
        let common = 1 + numbers.below(2_000) as u64;
        let divergent = 1 + numbers.below(2_000);
        let confirmed = Scn::START + numbers.below(common) as u64;
        let differs = Scn::START + common;
        let standby = empty_standby();
        standby.change(|state| {
            state.bytes = redo(Scn::START, common as usize, 1);
            state.bytes.extend(redo(differs, divergent, 2));
            state.confirmed = confirmed;
        });
        let held_end = standby.read(StandbyState::end);
        let service = Service::standby("oslo", &[incarnation(1, 4096)]);
        let receiver = listen(&service, &standby);
        let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
        source.write(&redo(Scn::START, common as usize, 1));
        source.write(&redo(differs, 1 + numbers.below(3_000), 3));
        let end = source.end();
        let mut peer = ByHand::connect(receiver.local_addr());
        peer.hello(source.identity());
        let answer: ReceiverHello = hello::decode(&peer.reader.read().unwrap()).unwrap();
        assert_eq!(answer.positions.unwrap().end.scn, held_end);
        let log = source.log_containing(confirmed).unwrap();
        let start =
            StreamStart { source: source.identity(), from: confirmed, keep: held_end, log, gap: None };
        peer.writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &start).unwrap();
        let bytes = source.0.read(|state| state.slice(confirmed, end).to_vec());
        let mut stream = peer.reader.inner().try_clone().unwrap();
        stream.write_all(&frames(&mut numbers, confirmed, end, &bytes)).unwrap();
        let held = standby.when("the streams agree", |state| state.end() == end && state.confirmed == end);
        assert_eq!(held.cuts, [(differs, held_end)], "case {case}");
        source.0.read(|source| assert!(source.bytes == held.bytes, "case {case}"));
    }
}

#[test]
fn acknowledgement_answers_redo_and_not_a_later_confirmation() {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let (standby, service) = (empty_standby(), Service::standby("oslo", &[incarnation(1, 4096)]));
    let receiver = listen(&service, &standby);
    let mut peer = ByHand::begin(receiver.local_addr(), &source);
    standby.wait("the stream is live", |state| !state.starts.is_empty());
    standby.change(|state| state.hold = true);
    let frame = |kind, at: u64, sent_us| FrameHeader::new(kind, at, 0, sent_us, at);
    let first = Scn::START.0;
    peer.writer.write(frame(FrameKind::Redo, first, 7), &redo(Scn::START, 10, 1)).unwrap();
    // While the first is being written two more arrive; one read takes both.
    standby.wait("the first is being written", |state| state.begun == 1);
    peer.writer.write(frame(FrameKind::Redo, first + 10, 8), &redo(Scn(first + 10), 10, 1)).unwrap();
    peer.writer.write(frame(FrameKind::Confirm, first + 20, 9), &[]).unwrap();
    standby.change(|state| state.hold = false);
    let mut answered = Vec::new();
    while answered.last().is_none_or(|(end, _)| *end < first + 20) {
        let header = peer.reader.read().unwrap().header;
        answered.push((header.a, header.d));
    }
    assert!(answered.iter().all(|(_, sent_us)| *sent_us < 9), "{answered:?}");
    assert_eq!(answered.last(), Some(&(first + 20, 8)), "{answered:?}");
}

/// Also when the standby notices the end by an acknowledgement that cannot be sent.
#[test]
fn standby_reports_why_the_primary_ended_the_stream() {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let (standby, service) = (empty_standby(), Service::standby("oslo", &[incarnation(1, 4096)]));
    let receiver = listen(&service, &standby);
    let mut peer = ByHand::begin(receiver.local_addr(), &source);
    let frame = |at: u64| FrameHeader::new(FrameKind::Redo, at, 0, 7, at);
    let first = Scn::START.0;
    peer.writer.write(frame(first), &redo(Scn::START, 10, 1)).unwrap();
    standby.wait("the first is written", |state| state.writes == 1);
    // With an unread answer, the close is a reset that the other end sees immediately.
    peer.reader.inner().peek(&mut [0]).unwrap();
    standby.change(|state| state.hold = true);
    peer.writer.write(frame(first + 10), &redo(Scn(first + 10), 10, 1)).unwrap();
    standby.wait("the second is being written", |state| state.begun == 2);
    let refusal = Refusal::new(RefuseCode::NotAllowed, "not any more");
    peer.writer.write_json(FrameKind::Refuse, 0, &refusal).unwrap();
    drop(peer);
    standby.change(|state| state.hold = false);
    let ended = service.wait_event("its end", |event| matches!(event, ReceiverEvent::Ended { .. }));
    assert!(ended.to_string().contains("not any more"), "{ended}");
}

#[test]
fn apply_progress_is_reported_while_a_large_frame_arrives() {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let (standby, service) = (empty_standby(), Service::standby("oslo", &[incarnation(1, 4096)]));
    let receiver = listen(&service, &standby);
    let mut stream = TcpStream::connect(receiver.local_addr()).unwrap();
    let mut peer = ByHand::new(stream.try_clone().unwrap()).agree(&source, 60_000);
    let first = Scn::START;
    peer.writer
        .write(FrameHeader::new(FrameKind::Redo, first.0, 0, 7, first.0), &redo(first, 10, 1))
        .unwrap();
    let header = peer.reader.read().unwrap().header;
    assert_eq!((header.a, header.c, header.d), (first.0 + 10, 0, 7));
    standby.change(|state| state.applied = first + 10);
    let mut frame = Vec::new();
    let next = FrameHeader::new(FrameKind::Redo, first.0 + 10, 0, 8, first.0);
    encode_frame(next, &redo(first + 10, 5000, 1), &mut frame);
    // The frame arrives byte by byte, as over a slow link.
    stream.set_nodelay(true).unwrap();
    let reader = std::thread::spawn(move || {
        let header = peer.reader.read().unwrap().header;
        (header, peer)
    });
    let mut bytes = frame[..frame.len() - 1].chunks(1);
    standfast_testkit::wait_until("the primary is notified", Duration::from_secs(20), || {
        bytes.next().into_iter().for_each(|byte| stream.write_all(byte).unwrap());
        reader.is_finished()
    });
    let (header, _peer) = reader.join().unwrap();
    assert_eq!((header.a, header.c, header.d), (first.0 + 10, first.0 + 10, 0));
}

#[test]
fn silence_times_out_even_while_apply_progress_is_reported() {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let (standby, service) = (empty_standby(), Service::standby("oslo", &[incarnation(1, 4096)]));
    let receiver = listen(&service, &standby);
    let stream = TcpStream::connect(receiver.local_addr()).unwrap();
    let mut peer = ByHand::new(stream).agree(&source, 3_000);
    let (first, bytes) = (Scn::START, 2 * APPLY_BEHIND_BYTES);
    standby.change(|state| state.applied = first);
    peer.writer
        .write(FrameHeader::new(FrameKind::Redo, first.0, 0, 7, first.0), &redo(first, bytes as usize, 1))
        .unwrap();
    let silent_since = Instant::now();
    while silent_since.elapsed() < Duration::from_secs(2) {
        peer.reader.read().unwrap();
        standby.change(|state| state.applied = state.applied + 10);
    }
    standby.change(|state| state.applied = first + bytes);
    while peer.reader.read().is_ok() {}
    let ended = silent_since.elapsed();
    assert!(ended < Duration::from_millis(4_500), "{ended:?}");
}
