//! How current a standby is: it asks its source for a position that no commit acknowledged so far is beyond. When it has
//! applied the redo up to there, its data are as current as they were at the primary when it asked. No clock of the primary
//! has a part in that, and an answer that was long on its way makes the data older, not newer.

use standfast_format::{FRAME_HEADER_BYTES, Frame, FrameHeader, FrameKind, encode_frame};
use standfast_types::Scn;
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Receives the answer to one request.
pub type PositionCall = Box<dyn FnOnce(Scn) + Send>;
/// Sends a whole frame beside the stream.
type SendFrame = dyn Fn(&[u8]) -> Result<()> + Send + Sync;

/// The standby's end: requests over an open stream.
pub struct PositionRequests(Box<SendFrame>);

impl PositionRequests {
    pub(crate) fn new(send: impl Fn(&[u8]) -> Result<()> + Send + Sync + 'static) -> PositionRequests {
        PositionRequests(Box::new(send))
    }

    /// Sends a request. If it cannot be sent, the stream is dead, and its own threads find that out.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn send(&self, request: u64) -> Result<()> {
        (self.0)(&encode(FrameKind::PositionRequest, request, Scn::ZERO))
    }
}

/// The source's end: answers over an open stream.
pub struct PositionAnswers {
    send: Arc<SendFrame>,
    /// A request waits for its answer. Others are dropped meanwhile: a standby sends the next one after the answer, or again
    /// when it has waited too long.
    is_asked: Arc<AtomicBool>,
}

impl PositionAnswers {
    pub(crate) fn new(send: impl Fn(&[u8]) -> Result<()> + Send + Sync + 'static) -> PositionAnswers {
        PositionAnswers { send: Arc::new(send), is_asked: Arc::default() }
    }

    /// Takes a request; `ask` passes a call to the source of the redo, which may drop it.
    pub(crate) fn take(&self, request: u64, ask: impl FnOnce(PositionCall)) {
        if self.is_asked.swap(true, SeqCst) {
            return;
        }
        let (send, asked) = (self.send.clone(), Asked(self.is_asked.clone()));
        ask(Box::new(move |position| {
            drop(asked);
            // If it cannot be sent, the stream is dead, and its own threads find that out.
            let _ = send(&encode(FrameKind::Position, request, position));
        }));
    }
}

/// An open request; dropped with the call that would answer it.
struct Asked(Arc<AtomicBool>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

/// Returns request and position of an answer.
pub(crate) fn decode(frame: &Frame<'_>) -> (u64, Scn) {
    (frame.header.a, Scn(frame.header.b))
}

fn encode(kind: FrameKind, request: u64, position: Scn) -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES);
    encode_frame(FrameHeader::new(kind, request, position.0, 0, 0), &[], &mut frame);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn one_request_is_open_at_a_time_and_a_dropped_one_is_over() {
        let sent: Arc<Mutex<Vec<(u64, Scn)>>> = Arc::default();
        let log = sent.clone();
        let answers = PositionAnswers::new(move |bytes: &[u8]| {
            let (frame, _) = Frame::decode(bytes).map_err(std::io::Error::other)?;
            log.lock().unwrap().push(decode(&frame));
            Ok(())
        });
        let mut calls: Vec<PositionCall> = Vec::new();
        answers.take(1, |call| calls.push(call));
        answers.take(2, |_| panic!("a request is open"));
        assert!(sent.lock().unwrap().is_empty());
        calls.pop().unwrap()(Scn(70));
        answers.take(3, drop);
        answers.take(4, |call| call(Scn(80)));
        assert_eq!(*sent.lock().unwrap(), [(1, Scn(70)), (4, Scn(80))]);
    }
}
