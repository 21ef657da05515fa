//! The thread of a node: reads what the node sends, passes it to the link towards its destination, and delivers what is
//! due. [`Link`] makes all decisions.

use crate::clock::{Clock, run_first, sharpen_timeouts, wait_readable};
use crate::event::Event;
use crate::forward::{Buffer, Pool, forward};
use crate::late::Lateness;
use crate::link::Link;
use crate::packet::{LARGEST, Shape};
use crate::place::Node;
use crate::probe::{self, Probes};
use crate::settings::Nanos;
use crate::tun::Tun;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Packets to read before due packets are delivered, and the other way round.
const AT_ONCE: usize = 8;
/// The last part of a wait is spent spinning: waking up takes longer than that.
const SPIN: Nanos = 20_000;
/// With more packets in flight the thread does not spin: a single packet that is a few microseconds late makes no
/// difference then, and the processor stays free for programs.
const FEW: usize = 4;

/// One direction, shared by the threads.
pub struct Direction {
    /// Index of the sending node in [`Worker::nodes`].
    pub from: usize,
    /// Index of the receiving node in [`Worker::nodes`].
    pub to: usize,
    /// The link with its packets in flight.
    pub link: Link<Buffer>,
    pub lateness: Lateness,
    /// Packets that the receiving node did not accept.
    pub refused: u64,
}

/// All directions in which one node sends.
pub struct Outgoing {
    directions: Mutex<Vec<Direction>>,
    changed: Event,
    over: AtomicBool,
}

impl Outgoing {
    /// Shared by the thread of the node and the control socket.
    pub fn new(directions: Vec<Direction>, changed: Event) -> Outgoing {
        Outgoing { directions: Mutex::new(directions), changed, over: AtomicBool::new(false) }
    }

    /// Changes or reads the directions, then wakes the thread to check them again.
    pub fn with<T>(&self, work: impl FnOnce(&mut [Direction]) -> T) -> T {
        let done = work(&mut self.lock());
        self.changed.raise();
        done
    }

    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.changed.raise();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Direction>> {
        self.directions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State that the thread of a node keeps between packets.
#[derive(Default)]
struct Intake {
    pool: Pool,
    scratch: Option<Buffer>,
    probes: Probes,
    woken: bool,
    /// The namespace was removed by another process, so there is nothing to read any more.
    gone: bool,
}

/// The thread of a node with what it works on.
pub struct Worker {
    /// The emulator's clock, the same for all threads.
    pub clock: Clock,
    /// Index, in `nodes`, of the node that this thread serves.
    pub node: usize,
    pub nodes: Arc<[Node]>,
    pub tuns: Arc<[Tun]>,
    /// The directions in which its node sends.
    pub outgoing: Arc<Outgoing>,
}

impl Worker {
    pub fn run(self) {
        sharpen_timeouts();
        // If refused, the lateness shows the effect.
        let _ = run_first();
        let mut intake = Intake::default();
        while !self.outgoing.over.load(Ordering::Acquire) {
            let mut directions = self.outgoing.lock();
            let took_all = self.take(&mut directions, &mut intake);
            let delivered_all = self.deliver(&mut directions, &mut intake.pool);
            let due = directions.iter().filter_map(|direction| direction.link.next_due()).min();
            let held: usize = directions.iter().map(|direction| direction.link.held_packets()).sum();
            drop(directions);
            let spin = if held > FEW { 0 } else { SPIN };
            intake.woken = took_all && delivered_all && self.wait(due, spin, intake.gone);
        }
    }

    /// Reads some packets from the node; returns whether there are no more.
    fn take(&self, directions: &mut [Direction], intake: &mut Intake) -> bool {
        let Intake { pool, scratch, probes, woken, gone } = intake;
        let scratch = scratch.get_or_insert_with(|| pool.take(LARGEST));
        for _ in 0..AT_ONCE {
            if *gone {
                return true;
            }
            match self.tuns[self.node].receive(scratch.room()) {
                Ok(Some(bytes)) => scratch.filled(bytes),
                Ok(None) => return true,
                Err(_) => {
                    *gone = true;
                    return true;
                }
            }
            let read = self.clock.now();
            // The packet that woke this thread was there before the thread ran.
            let age = if std::mem::take(woken) { probes.age() } else { 0 };
            // A packet that is not IPv4 or has no destination here would find no receiver on a real link either.
            let Some(shape) = Shape::of(scratch.bytes()) else { continue };
            if shape.destination == probe::ADDRESS {
                probes.saw(read, scratch.bytes());
                continue;
            }
            let to = self.nodes.iter().position(|node| node.address == shape.destination);
            let direction = directions.iter_mut().find(|direction| Some(direction.to) == to);
            if let Some(direction) = direction {
                forward(&mut direction.link, pool, read.saturating_sub(age), &shape, scratch);
            }
        }
        false
    }

    /// Delivers some due packets; returns whether there are no more.
    fn deliver(&self, directions: &mut [Direction], pool: &mut Pool) -> bool {
        let mut all = true;
        for direction in directions {
            let mut left = AT_ONCE;
            while left > 0
                && let Some((packet, late)) = direction.link.release(self.clock.now())
            {
                direction.lateness.record(late);
                if self.tuns[direction.to].deliver(packet.bytes()).is_err() {
                    direction.refused += 1;
                }
                pool.give(packet);
                left -= 1;
            }
            all &= left > 0;
        }
        all
    }

    /// Waits for a packet, a change, or the next due packet; spins instead of sleeping for less than `spin`. Returns
    /// whether it slept.
    fn wait(&self, due: Option<Nanos>, spin: Nanos, gone: bool) -> bool {
        let timeout = due.map(|due| due.saturating_sub(self.clock.now()));
        if timeout.is_some_and(|timeout| timeout <= spin) {
            std::hint::spin_loop();
            return false;
        }
        let timeout = timeout.map(|timeout| timeout - spin);
        let descriptors = [self.outgoing.changed.as_fd(), self.tuns[self.node].as_fd()];
        // Fails only without kernel memory; the loop can only poll again.
        let _ = wait_readable(&descriptors[..2 - usize::from(gone)], timeout);
        self.outgoing.changed.take();
        true
    }
}
