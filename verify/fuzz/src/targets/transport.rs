//! What a peer of an instance sends: frames, and the messages in them.

use super::chosen;
use crate::seal;
use standfast_format::{Frame, FrameKind, StreamCrc};
use standfast_transport::framing::FrameReader;
use standfast_transport::hello::{self, ReceiverHello, Request, SenderHello};
use standfast_transport::{
    AckTimes, Compression, DatabaseInfo, Manifest, PeerIdentity, Refusal, SnapshotInfo, SnapshotStart,
    StoppedDatabases, StreamStart, Unpacker, View, resolve,
};
use standfast_types::{BATCH_BYTES_MAX, Scn};
use std::io::Read;

/// Read buffers grow fourfold; a message is held as bytes, as values and as text of an error.
const FACTOR: usize = 32;

pub fn run(data: &[u8]) -> usize {
    let packed = data.first().is_some_and(|choice| compression(*choice) != Compression::None);
    // A compressed frame states how much redo it holds, up to a batch, and gets that much memory, one frame at a time.
    let room = if packed { BATCH_BYTES_MAX.div_ceil(data.len()) } else { 0 };
    chosen(data, FACTOR + room, decode)
}

fn compression(choice: u8) -> Compression {
    [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Lz4][usize::from(choice >> 4 & 3)]
}

fn decode(choice: u8, rest: &[u8]) {
    let mut bytes = rest.to_vec();
    if choice & 1 == 1 {
        seal::frames(&mut bytes);
    }
    // Deliver a few bytes at a time, as a network does.
    let step = [1, 7, 4096, usize::MAX][usize::from(choice >> 1 & 3)];
    let mut reader = FrameReader::new(Trickle { bytes: &bytes, step });
    if choice & 8 != 0 {
        reader.allow_redo();
    }
    let mut unpacker = Unpacker::new(compression(choice));
    while let Ok(frame) = reader.read() {
        if frame.header.kind == FrameKind::Redo {
            match unpacker.unpack(frame.header.flags, frame.payload) {
                Ok(redo) => assert!(redo.is_none_or(|redo| redo.len() <= BATCH_BYTES_MAX)),
                // Here the connection is closed.
                Err(_) => return,
            }
        }
        message(&frame);
    }
}

struct Trickle<'a> {
    bytes: &'a [u8],
    step: usize,
}

impl Read for Trickle<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut chunk = &self.bytes[..self.step.min(self.bytes.len())];
        let count = chunk.read(out)?;
        self.bytes = &self.bytes[count..];
        Ok(count)
    }
}

/// Decodes a frame as every message that it can be at any point of a conversation.
fn message(frame: &Frame<'_>) {
    match frame.header.kind {
        FrameKind::Hello => {
            let _ = hello::expect(frame, FrameKind::Hello);
            let _ = hello::decode::<SenderHello>(frame);
            if let Ok(StreamStart { from, gap: Some(gap), .. }) = hello::decode(frame) {
                let sound = gap.check(from).is_ok();
                assert!(!sound || gap.bytes() >= gap.to.bytes_since(gap.from));
            }
            if let Ok(answer) = hello::decode::<ReceiverHello>(frame) {
                decide(&answer);
            }
        }
        FrameKind::Request => {
            let _ = hello::expect(frame, FrameKind::Request);
            let _ = hello::decode::<Request>(frame);
        }
        FrameKind::Refuse => {
            let _ = hello::decode::<Refusal>(frame).map(|refusal| refusal.to_string().len());
        }
        FrameKind::Data => {
            let _ = hello::decode::<Manifest>(frame);
            let _ = hello::decode::<DatabaseInfo>(frame);
            let _ = hello::decode::<SnapshotInfo>(frame);
        }
        FrameKind::Done => {
            let _ = hello::decode::<SnapshotStart>(frame);
        }
        FrameKind::Ack => {
            if let Some(times) = AckTimes::decode(frame.payload) {
                assert_eq!(times.encode(), frame.payload);
            }
        }
        FrameKind::Stopped => {
            if let Ok(stopped) = StoppedDatabases::decode(frame) {
                assert!(stopped.total >= stopped.databases.len() as u64);
                let _ = stopped.least(Scn(frame.header.c));
            }
        }
        _ => {}
    }
}

/// Runs the decisions of a primary about a standby's answer: positions and histories of a peer are untrusted too.
fn decide(answer: &ReceiverHello) {
    let positions = answer.positions.as_ref();
    let source = PeerIdentity { name: "primary".into(), ..answer.standby.clone() };
    let view = View {
        source,
        expected_name: None,
        durable: Scn(1 << 20),
        oldest: Scn::START,
        crc_at_end: positions.map(|held| StreamCrc(held.end.crc)),
        log_at_end: positions.and_then(|held| held.log),
        crc_at_confirmed: positions.map(|held| StreamCrc(held.confirmed.crc ^ 1)),
    };
    let _ = resolve(&view, answer);
    let crc_at_confirmed = positions.map(|held| StreamCrc(held.confirmed.crc));
    let _ = resolve(&View { crc_at_end: None, crc_at_confirmed, ..view }, answer);
}
