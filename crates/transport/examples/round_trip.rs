//! Measures the time that transport alone adds to a commit on this machine: the offer, and offer to acknowledgement,
//! with a standby log that writes nothing. `cargo run --release --example round_trip [COMMITS] [BYTES]`.

#[path = "../tests/common/mod.rs"]
mod common;

use common::*;
use standfast_transport::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let commits = arguments.next().unwrap_or(5_000);
    let bytes = arguments.next().unwrap_or(200);
    let pair = Pair::connected(TransportMode::SyncAffirm);
    let mut offers = Vec::with_capacity(commits);
    let mut whole = Vec::with_capacity(commits);
    let block = Arc::new(redo(pair.source.end(), bytes, 1));
    for _ in 0..commits {
        let first = pair.source.end();
        pair.source.write(&block);
        let (end, log_first) = (pair.source.end(), standfast_types::Scn::START);
        let batch = [RedoSlice::new(first, block.clone())];
        let began = Instant::now();
        pair.sender.offer(&Batch { slices: &batch, log_first, durable: end, captured: end });
        offers.push(began.elapsed());
        pair.observer.wait_sender("it is acknowledged", &pair.sender, |sender| sender.acknowledged() == end);
        whole.push(began.elapsed());
    }
    print("offer", &mut offers);
    print("offer to acknowledgement", &mut whole);
    let stats = pair.sender.stats();
    println!("direct {} deferred {}", stats.frames_direct.load(Relaxed), stats.frames_deferred.load(Relaxed));
}

fn print(what: &str, times: &mut [Duration]) {
    times.sort();
    let at = |part: usize| times[times.len() * part / 100];
    println!("{what}: median {:?}, p99 {:?}, worst {:?}", at(50), at(99), times[times.len() - 1]);
}
