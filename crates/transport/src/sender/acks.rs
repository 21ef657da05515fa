//! The ack reader: reads acknowledgements and checks the timeouts.

use super::current::AckSide;
use super::failure::Ended;
use super::gap;
use super::listing::{Listing, SentConfiguration};
use super::shared::Shared;
use crate::framing::FramingError;
use standfast_instruments::{Event, waiting};
use std::time::{Duration, Instant};

pub(super) fn run(shared: &Shared) {
    let mut clock = Ticks::new(shared);
    while !shared.stopping() {
        if let Some(acks) = shared.take_reader(clock.next) {
            let ended = read_acks(shared, acks, &mut clock);
            // A connection that this end has closed looks lost from here.
            let ended = match (ended, shared.let_go()) {
                (Ended::Lost(_), Some(own)) => own,
                (ended, _) => ended,
            };
            shared.ended(ended);
            shared.reopen_link();
        }
        if let Some(ended) = clock.tick(shared) {
            shared.close(ended);
        }
    }
    shared.let_go();
    shared.reopen_link();
}

/// Timer for [`crate::Destination::tick`], every sixteenth of the net timeout (of `sync_latency` if that is shorter),
/// within 20 ms and 1 s; and for the check for gaps.
struct Ticks {
    next: Instant,
    apart: Duration,
    next_poll: Instant,
}

impl Ticks {
    fn new(shared: &Shared) -> Ticks {
        let config = &shared.config.destination;
        let latency = Some(config.sync_latency).filter(|latency| !latency.is_zero());
        let apart = config.net_timeout.min(latency.unwrap_or(Duration::MAX)) / 16;
        let next_poll = Instant::now() + shared.config.archive.poll;
        let apart = apart.clamp(Duration::from_millis(20), Duration::from_secs(1));
        Ticks { next: Instant::now(), apart, next_poll }
    }

    /// Returns why the connection must be closed, if so.
    fn tick(&mut self, shared: &Shared) -> Option<Ended> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        self.next = now + self.apart;
        if now >= self.next_poll {
            self.next_poll = now + shared.config.archive.poll;
            if let Some(behind) = gap::poll(shared) {
                return Some(behind);
            }
        }
        shared.tick()
    }
}

fn read_acks(shared: &Shared, acks: AckSide, clock: &mut Ticks) -> Ended {
    // The channel for certificates closes when this function returns.
    let AckSide { mut reader, mut acks, listed, takes_lists, takes_configuration } = acks;
    let mut listing = Listing::new(reader.inner().clone(), listed, takes_lists);
    let mut configuration = takes_configuration.then(|| SentConfiguration::new(reader.inner().clone()));
    // Reads end with every tick. If the timeout cannot be set, the socket is dead and the read reports it.
    let _ = reader.inner().set_read_timeout(Some(clock.apart));
    loop {
        let idle = waiting(Event::RdbmsIpcMessage);
        let filled = reader.fill();
        drop(idle);
        match filled {
            Ok(()) => {
                if let Err(ended) = acks.take(shared, &mut reader) {
                    return ended;
                }
            }
            Err(FramingError::TimedOut) => {}
            Err(error) => return Ended::Lost(error.to_string()),
        }
        if shared.stopping() {
            return Ended::Lost("the sender is stopped".into());
        }
        if let Some(configuration) = &mut configuration {
            configuration.look(shared);
        }
        if let Some(ended) = clock.tick(shared).or_else(|| listing.look(shared)) {
            return ended;
        }
    }
}
