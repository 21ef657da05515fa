//! How current a standby is: it asks its source for a position that no commit acknowledged so far is beyond. When it has
//! applied the redo up to there, its data are as current as they were at the primary when it asked. No clock of the primary
//! has a part in that, and an answer that was long on its way makes the data older, not newer.

use standfast_format::{FRAME_HEADER_BYTES, Frame, FrameHeader, FrameKind, encode_frame};
use standfast_types::Scn;
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

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

/// Requests of one stream that may wait for their answers; more are dropped. A standby sends the next one after the answer, or
/// when it has waited long for that.
const OPEN_MAX: usize = 8;

/// The source's end: answers over an open stream.
pub struct PositionAnswers {
    send: Arc<SendFrame>,
    /// Number of requests that wait for their answers.
    open: Arc<AtomicUsize>,
}

impl PositionAnswers {
    pub(crate) fn new(send: impl Fn(&[u8]) -> Result<()> + Send + Sync + 'static) -> PositionAnswers {
        PositionAnswers { send: Arc::new(send), open: Arc::default() }
    }

    /// Takes a request; `ask` passes a call to the source of the redo, which may drop it.
    pub(crate) fn take(&self, request: u64, ask: impl FnOnce(PositionCall)) {
        let open = Open::one_more(&self.open);
        if self.open.load(SeqCst) > OPEN_MAX {
            return;
        }
        let send = self.send.clone();
        ask(Box::new(move |position| {
            drop(open);
            // If it cannot be sent, the stream is dead, and its own threads find that out.
            let _ = send(&encode(FrameKind::Position, request, position));
        }));
    }
}

/// An open request; dropped with the call that would answer it.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn one_more(count: &Arc<AtomicUsize>) -> Open {
        count.fetch_add(1, SeqCst);
        Open(count.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
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
    fn a_few_requests_wait_for_their_answers_and_a_dropped_one_is_over() {
        let sent: Arc<Mutex<Vec<(u64, Scn)>>> = Arc::default();
        let log = sent.clone();
        let answers = PositionAnswers::new(move |bytes: &[u8]| {
            let (frame, _) = Frame::decode(bytes).map_err(std::io::Error::other)?;
            log.lock().unwrap().push(decode(&frame));
            Ok(())
        });
        let mut calls: Vec<PositionCall> = Vec::new();
        for request in 1..=OPEN_MAX as u64 {
            answers.take(request, |call| calls.push(call));
        }
        answers.take(50, |_| panic!("enough requests wait"));
        assert!(sent.lock().unwrap().is_empty());
        calls.remove(0)(Scn(70));
        answers.take(51, drop);
        answers.take(52, |call| call(Scn(80)));
        assert_eq!(*sent.lock().unwrap(), [(1, Scn(70)), (52, Scn(80))]);
        calls.clear();
        answers.take(53, |call| call(Scn(90)));
        assert_eq!(sent.lock().unwrap().len(), 3);
    }
}
