//! The thread of a node: takes what the node sends, gives it to the link towards its destination, and delivers what is
//! due. Everything that is decided is decided in [`Link`].

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

/// Packets taken before those that are due are looked at again, and the other way round.
const AT_ONCE: usize = 8;
/// The last part of a wait is not slept: waking up takes longer than that.
const SPIN: Nanos = 20_000;
/// With more packets under way nobody waits for a single one: that it is late by so little is not felt, and the processor
/// is for the programs.
const FEW: usize = 4;

/// One direction as the threads share it.
pub struct Direction {
    /// Index of the node that sends in it.
    pub from: usize,
    /// Index of the node that receives in it.
    pub to: usize,
    /// What is under way.
    pub link: Link<Buffer>,
    /// How late it was delivered.
    pub lateness: Lateness,
    /// Packets that the receiving node did not take.
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

    /// Changes or reads the directions; the thread looks at them afresh afterwards.
    pub fn with<T>(&self, work: impl FnOnce(&mut [Direction]) -> T) -> T {
        let done = work(&mut self.lock());
        self.changed.raise();
        done
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.changed.raise();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Direction>> {
        self.directions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread of a node remembers between packets.
#[derive(Default)]
struct Intake {
    pool: Pool,
    scratch: Option<Buffer>,
    probes: Probes,
    /// It slept until now.
    woken: bool,
    /// Somebody removed the namespace under us: there is nothing to take any more.
    gone: bool,
}

/// What the thread of a node works with.
pub struct Worker {
    /// The emulator's clock, the same for all threads.
    pub clock: Clock,
    /// Index of its node.
    pub node: usize,
    /// All nodes.
    pub nodes: Arc<[Node]>,
    /// The devices of all nodes.
    pub tuns: Arc<[Tun]>,
    /// The directions in which its node sends.
    pub outgoing: Arc<Outgoing>,
}

impl Worker {
    /// Works until [`Outgoing::end`].
    pub fn run(self) {
        sharpen_timeouts();
        // Without it the lateness tells how much it mattered.
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

    /// Takes some packets from the node; whether there are no more.
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
            // The packet that woke us was there before we were.
            let age = if std::mem::take(woken) { probes.age() } else { 0 };
            // What is not IPv4 or goes to nobody would find no receiver on a real link either.
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

    /// Delivers some of what is due; whether there is no more.
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

    /// Waits for a packet, a change, or what is due next, and does not sleep for less than `spin`; whether it slept.
    fn wait(&self, due: Option<Nanos>, spin: Nanos, gone: bool) -> bool {
        let timeout = due.map(|due| due.saturating_sub(self.clock.now()));
        if timeout.is_some_and(|timeout| timeout <= spin) {
            std::hint::spin_loop();
            return false;
        }
        let timeout = timeout.map(|timeout| timeout - spin);
        let descriptors = [self.outgoing.changed.as_fd(), self.tuns[self.node].as_fd()];
        // It fails only for want of kernel memory; looking again is then all that can be done.
        let _ = wait_readable(&descriptors[..2 - usize::from(gone)], timeout);
        self.outgoing.changed.take();
        true
    }
}
