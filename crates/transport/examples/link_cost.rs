//! Measures the cost of encryption on this machine: a synchronous commit's round trip and the throughput of a stream,
//! alternating between plain TCP and TLS, with redo and standby log in memory.
//!
//! ```text
//! cargo run --release -p standfast-transport --example link_cost
//! ```
#![allow(clippy::unwrap_used)] // A measurement that fails has no result.

#[path = "../tests/common/mod.rs"]
mod common;

use common::*;
use standfast_transport::*;
use standfast_types::Scn;
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 5;
const COMMITS: usize = 4000;
const COMMIT_BYTES: usize = 300;
const BULK_BYTES: usize = 1 << 20;
const BULK: usize = 128;

struct Stream {
    source: Arc<MemorySource>,
    sender: Sender,
    _receiver: Receiver,
    standby: Standby,
}

fn stream(tls: bool, mode: TransportMode) -> Stream {
    let security = |name| if tls { family::member(name, true) } else { Security::insecure() };
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let (standby, service) = (empty_standby(), Service::standby("oslo", &[incarnation(1, 4096)]));
    let config = ReceiverConfig {
        listen: "127.0.0.1:0".into(),
        security: security("oslo"),
        ..ReceiverConfig::default()
    };
    let receiver = Receiver::start(config, service, Some(Box::new(MemoryLog(standby.clone())))).unwrap();
    let observer = Arc::new(Observer::default());
    let config = SenderConfig {
        destination: destination(mode),
        address: receiver.local_addr().to_string(),
        expected_name: Some("oslo".into()),
        security: security("paris"),
        shape: StreamShape::default(),
        delay: None,
        archive: ArchiveTransport::default(),
        counts: true,
        destination_set: Arc::default(),
    };
    let sender = Sender::start(0, config, source.clone(), observer.clone()).unwrap();
    observer.wait_event("the stream begins", |event| matches!(event, SenderEvent::Connected { .. }));
    Stream { source, sender, _receiver: receiver, standby }
}

/// Returns the round trip of a commit in microseconds: median and 99th percentile.
fn round_trips(tls: bool) -> (f64, f64) {
    let stream = stream(tls, TransportMode::SyncAffirm);
    let bytes = redo(Scn::START, COMMIT_BYTES, 1);
    let mut times: Vec<f64> = (0..COMMITS)
        .map(|_| {
            let began = Instant::now();
            stream.source.commit(&stream.sender, &bytes);
            let end = stream.source.end();
            while stream.sender.acknowledged() < end {
                std::hint::spin_loop();
            }
            began.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[COMMITS / 2], times[COMMITS * 99 / 100])
}

/// Returns megabytes of redo per second.
fn throughput(tls: bool) -> f64 {
    let stream = stream(tls, TransportMode::Async);
    // From the logs, in large chunks.
    stream.source.0.change(|state| state.buffer_from = Scn(u64::MAX));
    let bytes = redo(Scn::START, BULK_BYTES, 1);
    let began = Instant::now();
    for _ in 0..BULK {
        stream.source.commit(&stream.sender, &bytes);
    }
    let end = stream.source.end();
    stream.standby.wait("everything has arrived", |state| state.end() == end);
    (BULK * BULK_BYTES) as f64 / 1e6 / began.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut latency = [Vec::new(), Vec::new()];
    let mut speed = [Vec::new(), Vec::new()];
    for round in 1..=ROUNDS {
        for tls in [false, true] {
            let (middle, late) = round_trips(tls);
            let rate = throughput(tls);
            let name = if tls { "TLS" } else { "plain" };
            println!(
                "round {round} {name:5}  round trip {middle:7.1} us (p99 {late:7.1})  stream {rate:7.0} MB/s"
            );
            latency[usize::from(tls)].push(middle);
            speed[usize::from(tls)].push(rate);
        }
    }
    let [plain, tls] = latency.map(median);
    let [plain_rate, tls_rate] = speed.map(median);
    println!("median: TLS adds {:.1} us to a round trip of {plain:.1} us", tls - plain);
    println!("median: TLS streams {:.2}x of {plain_rate:.0} MB/s", tls_rate / plain_rate);
}
