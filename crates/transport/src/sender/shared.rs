//! What a sender and its threads share: the machine ([`SenderCore`]) and the connection.

use super::current::{AckSide, Current};
use super::failure::Ended;
use super::sender_core::SenderCore;
use crate::link::LinkEnd;
use crate::lock;
use crate::wire::Wire;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::Instant;

/// Parts of frames that may wait for the socket before an answer beside the redo is dropped: more than those of one frame of
/// redo.
const FRAMES_BESIDE: usize = 4096;

pub(super) struct Shared {
    pub(super) me: Weak<Shared>,
    core: SenderCore,
    /// `None` while there is no stream.
    pub(super) wire: Mutex<Option<Wire>>,
    pub(super) link: Mutex<Current>,
    pub(super) link_changed: Condvar,
    pub(super) feeder: OnceLock<Thread>,
    pub(super) stopping: AtomicBool,
}

impl Deref for Shared {
    type Target = SenderCore;

    fn deref(&self) -> &SenderCore {
        &self.core
    }
}

impl Shared {
    pub fn new(core: SenderCore) -> Arc<Shared> {
        Arc::new_cyclic(|me| Shared {
            me: me.clone(),
            core,
            wire: Mutex::new(None),
            link: Mutex::default(),
            link_changed: Condvar::new(),
            feeder: OnceLock::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Sends a whole frame beside the redo of `stream`, if `stream` is still the current one.
    pub fn send_beside(&self, stream: &LinkEnd, frame: &[u8]) -> std::io::Result<()> {
        match lock(&self.wire).as_mut() {
            Some(wire) if wire.outlet().is(stream) => wire.send_frame(frame)?,
            _ => return Err(std::io::ErrorKind::NotConnected.into()),
        }
        // The feeder flushes the bytes that the socket did not take.
        self.wake_feeder();
        Ok(())
    }

    /// Whether the socket of `stream` takes what is sent, or few frames wait for it.
    pub fn has_room_beside(&self, stream: &LinkEnd) -> bool {
        lock(&self.wire)
            .as_ref()
            .is_some_and(|wire| wire.outlet().is(stream) && wire.waiting() < FRAMES_BESIDE)
    }

    pub fn stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    pub fn wake_feeder(&self) {
        if let Some(feeder) = self.feeder.get() {
            feeder.unpark();
        }
    }

    /// Ends the connection. The ack reader sees that and reports the first `reason` given.
    pub fn close(&self, reason: Ended) {
        let mut link = lock(&self.link);
        if let Some(stream) = &link.stream {
            stream.shutdown();
            link.reason.get_or_insert(reason);
        }
    }

    /// Whether the current connection is over and the next one may be made.
    pub fn is_down(&self) -> bool {
        lock(&self.link).stream.is_none()
    }

    /// Waits for the reading half of a new connection, at most until `until`.
    pub fn take_reader(&self, until: Instant) -> Option<AckSide> {
        let mut link = lock(&self.link);
        while link.reader.is_none() && !self.stopping() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            link = self.link_changed.wait_timeout(link, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        link.reader.take()
    }

    /// Drops the connection for both threads. Returns the reason if this end closed it.
    pub fn let_go(&self) -> Option<Ended> {
        *lock(&self.wire) = None;
        let mut link = lock(&self.link);
        link.reader = None;
        link.reason.take()
    }

    /// Lets the feeder connect again, after `let_go`.
    pub fn reopen_link(&self) {
        lock(&self.link).end();
        self.wake_feeder();
    }
}
