//! The state of a gap that is being resolved, at the primary's end.

use crate::event::SenderEvent;
use crate::gap::{ArchivedLogInfo, Gap, GapStatus};
use crate::link::LinkEnd;
use crate::lock;
use standfast_types::Scn;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A gap that is being resolved.
pub struct OpenGap {
    gap: Gap,
    found: GapStatus,
    began: Instant,
    sent: AtomicU64,
    over: AtomicBool,
    links: Mutex<Links>,
    changed: Condvar,
}

#[derive(Default)]
struct Links {
    next: u64,
    live: HashMap<u64, LinkEnd>,
}

impl OpenGap {
    pub(super) fn new(gap: Gap, now: Instant) -> Arc<OpenGap> {
        let bytes = gap.bytes();
        let found = GapStatus {
            low_sequence: gap.low_sequence(),
            high_sequence: gap.high_sequence(),
            from: gap.from,
            to: gap.to,
            bytes,
            bytes_left: bytes,
            connections: gap.connections,
        };
        Arc::new(OpenGap {
            gap,
            found,
            began: now,
            sent: AtomicU64::new(0),
            over: AtomicBool::new(false),
            links: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    pub(super) fn found(&self) -> SenderEvent {
        SenderEvent::GapFound(self.found)
    }

    /// Returns the event when the standby has all logs of the gap.
    pub(super) fn resolved(&self, now: Instant) -> SenderEvent {
        let gap = GapStatus { bytes_left: self.sent(), ..self.found };
        SenderEvent::GapResolved { gap, took: now.saturating_duration_since(self.began) }
    }

    /// First position of the stream beyond the gap.
    pub fn to(&self) -> Scn {
        self.gap.to
    }

    /// Connections that were planned for it.
    pub fn connections(&self) -> u32 {
        self.found.connections
    }

    /// Bytes of archived logs sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(SeqCst)
    }

    pub(super) fn add_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, SeqCst);
    }

    pub(super) fn status(&self) -> GapStatus {
        let bytes_left = self.found.bytes.saturating_sub(self.sent());
        GapStatus { bytes_left, connections: lock(&self.links).live.len() as u32, ..self.found }
    }

    /// Whether the gap or the stream beside it is over.
    pub fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    pub(super) fn end(&self) {
        let links = lock(&self.links);
        self.over.store(true, SeqCst);
        self.changed.notify_all();
        drop(links);
    }

    pub(super) fn cut(&self) {
        self.end();
        lock(&self.links).live.values().for_each(|link| link.shutdown());
    }

    pub(super) fn pause(&self, time: Duration) {
        let links = lock(&self.links);
        drop(self.changed.wait_timeout_while(links, time, |_| !self.is_over()));
    }

    pub(super) fn enter(&self, link: &LinkEnd) -> Option<u64> {
        let mut links = lock(&self.links);
        if self.is_over() {
            return None;
        }
        let id = links.next;
        links.next += 1;
        links.live.insert(id, link.clone());
        Some(id)
    }

    pub(super) fn leave(&self, id: u64) {
        lock(&self.links).live.remove(&id);
    }

    pub(super) fn log(&self, sequence: u64, id: u64) -> Option<&ArchivedLogInfo> {
        let is_it = |log: &&ArchivedLogInfo| {
            log.sequence == sequence && u64::from_le_bytes(log.incarnation_id.0) == id
        };
        self.gap.logs.iter().find(is_it)
    }
}
