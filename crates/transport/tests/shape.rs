//! Form of the redo on the wire: compression and frame size.

mod common;

use common::*;
use standfast_format::{FrameHeader, FrameKind};
use standfast_transport::*;
use standfast_types::{BATCH_BYTES_MAX, Scn};
use std::sync::atomic::Ordering::Relaxed;

/// A pair whose standby accepts frames of at most `wanted` bytes.
fn shaped(mode: TransportMode, shape: StreamShape, wanted: u32) -> Pair {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let standby = empty_standby();
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let receiver = listen_with(
        ReceiverConfig { sdu_bytes: wanted, ..receiver_config("127.0.0.1:0") },
        &service,
        &standby,
    );
    Pair::over(source, standby, service, receiver, destination(mode), shape)
}

#[test]
fn compressed_redo_arrives_unchanged_in_fewer_bytes() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        for mode in [TransportMode::SyncAffirm, TransportMode::FastSync, TransportMode::Async] {
            let pair = shaped(mode, StreamShape { compression, ..StreamShape::default() }, 0);
            for round in 0..300 {
                let bytes = if round == 100 { BATCH_BYTES_MAX } else { 150 };
                assert_ne!(pair.source.commit(&pair.sender, &redo(pair.source.end(), bytes, 1)), Offer::Sent);
                if round % 50 == 49 {
                    pair.source.switch();
                }
            }
            pair.caught_up();
            pair.sender.stop();
            let stats = pair.sender.stats();
            let (redo, wire) = (stats.redo_bytes.load(Relaxed), stats.wire_bytes.load(Relaxed));
            assert_eq!(redo, pair.source.end().bytes_since(Scn::START));
            assert!(wire < redo, "{compression:?} {mode:?}: {wire} bytes for {redo}");
        }
    }
}

/// While the standby writes, gigabytes may arrive in a few packets.
#[test]
fn highly_compressed_redo_is_written_in_bounded_batches() {
    const FRAMES: u64 = 24;
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let standby = empty_standby();
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let receiver = listen(&service, &standby);
    let mut peer = ByHand::begin_packed(receiver.local_addr(), &source, Compression::Lz4);
    standby.wait("the stream is live", |state| state.starts.len() == 1);
    standby.change(|state| state.hold = true);
    // LZ4, as in protocol.md.
    let flags = 1;
    let zeros = vec![0; BATCH_BYTES_MAX];
    let packed = [&(zeros.len() as u32).to_le_bytes()[..], &lz4_flex::block::compress(&zeros)].concat();
    for frame in 0..FRAMES {
        let at = Scn::START.0 + frame * zeros.len() as u64;
        let header = FrameHeader { flags, ..FrameHeader::new(FrameKind::Redo, at, 0, 0, 0) };
        peer.writer.write(header, &packed).unwrap();
    }
    standby.change(|state| state.hold = false);
    let end = Scn::START + FRAMES * zeros.len() as u64;
    let held = standby.when("all has arrived", |state| state.end() == end);
    assert!(held.largest_write <= 2 * BATCH_BYTES_MAX, "a write of {} bytes", held.largest_write);
}

#[test]
fn compression_restarts_at_both_ends_after_a_lost_connection() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let shape = StreamShape { compression, ..StreamShape::default() };
        let mut pair = shaped(TransportMode::Async, shape, 0);
        for _ in 0..3 {
            pair.source.commit(&pair.sender, &redo(pair.source.end(), 2000, 1));
            pair.caught_up();
            let address = pair.receiver.local_addr().to_string();
            pair.receiver.stop();
            pair.source.commit(&pair.sender, &redo(pair.source.end(), 2000, 1));
            pair.receiver = listen_at(&address, &pair.service, &pair.standby);
            pair.caught_up();
        }
    }
}

/// Frames that the log writer sends are bounded too.
#[test]
fn the_smaller_session_data_unit_bounds_every_frame() {
    for (ours, theirs) in [(1000, 0), (0, 1000), (1000, 5000), (5000, 1000)] {
        let shape = StreamShape { sdu_bytes: ours, ..StreamShape::default() };
        let pair = shaped(TransportMode::SyncAffirm, shape, theirs);
        pair.source.commit(&pair.sender, &redo(pair.source.end(), 64_000, 1));
        pair.caught_up();
        pair.sender.stop();
        let stats = pair.sender.stats();
        let frames = stats.frames_direct.load(Relaxed) + stats.frames_deferred.load(Relaxed);
        assert!(frames >= 64, "{frames} frames for 64000 bytes with {ours} and {theirs}");
    }
}

#[test]
fn sockets_with_small_buffers_carry_everything() {
    let shape = StreamShape { send_buffer_bytes: 4096, receive_buffer_bytes: 4096, ..StreamShape::default() };
    let pair = shaped(TransportMode::Async, shape, 0);
    let partial = || pair.sender.stats().frames_partial.load(Relaxed);
    // A receiver as fast as the sender may leave room for whole frames.
    for _ in 0..10 {
        pair.source.commit(&pair.sender, &redo(pair.source.end(), 100_000, 1));
        pair.caught_up();
        if partial() > 0 {
            break;
        }
    }
    pair.sender.stop();
    assert!(partial() > 0, "the buffers were not small");
}
