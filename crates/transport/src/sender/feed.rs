//! The feeder: connects, and sends the redo that the log writer could not send itself.

use super::feeding::Step;
use super::shared::Shared;
use super::{connect, gap};
use crate::lock;
use standfast_instruments::{Event, waiting};
use std::time::Duration;

/// Longest wait for a full socket before the feeder checks everything else.
const WRITABLE_POLL: Duration = Duration::from_millis(500);

pub(super) fn run(shared: &Shared) {
    let _ = shared.feeder.set(std::thread::current());
    while !shared.stopping() {
        match shared.connect_due() {
            Some(Duration::ZERO) => {}
            // `enable` and `stop` wake this thread.
            wait => {
                std::thread::park_timeout(wait.unwrap_or(Duration::from_secs(3600)));
                continue;
            }
        }
        let attach = waiting(Event::TransportAttach);
        let established = connect::establish(shared);
        drop(attach);
        match established {
            Ok(gap) => gap::beside(shared, gap, || feed(shared)),
            Err(_) if shared.stopping() => {}
            Err(failure) => shared.failed(failure),
        }
    }
}

/// Sends until the connection is over.
fn feed(shared: &Shared) {
    while !shared.stopping() {
        let (step, full) = {
            let mut wire = lock(&shared.wire);
            // The ack reader has dropped the connection.
            let Some(wire) = wire.as_mut() else { break };
            let step = shared.feed(wire);
            let full = matches!(step, Ok(Step::Blocked)).then(|| wire.outlet().clone());
            (step, full)
        };
        match step {
            Ok(Step::Sent) => {}
            Ok(Step::Blocked) => {
                // The result does not matter: the next step finds out.
                let _ = full.map(|stream| stream.wait_writable(WRITABLE_POLL));
            }
            Ok(Step::Idle(wait)) => std::thread::park_timeout(wait),
            Err(ended) => {
                shared.close(ended);
                *lock(&shared.wire) = None;
            }
        }
    }
    while !shared.is_down() {
        std::thread::park_timeout(Duration::from_millis(100));
    }
}
