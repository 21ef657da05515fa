//! `net disk`: measures durable writes of this host, as the log writer does them.

use super::arguments::DiskArgs;
use super::progress::Progress;
use crate::file::{Ring, TestFile};
use crate::socket::SLICE;
use crate::stats::{Latencies, Spread};
use crate::terminal::say;
use crate::{NetError, Result, interrupt, report};
use serde_json::json;
use standfast_io::AlignedBuf;
use standfast_page::units::{classic_size, readable_size};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const SIZES: [u32; 4] = [4 << 10, 8 << 10, 64 << 10, 1 << 20];

/// Results of writes of one size to one or two members.
struct Row {
    length: u32,
    members: usize,
    seconds: f64,
    spread: Spread,
    count: u64,
}

pub fn main(args: &DiskArgs) -> Result<u8> {
    let stop = interrupt::flag();
    let mut rows = Vec::new();
    let ended = every_row(args, stop, &mut rows).and_then(|()| match stop.load(Ordering::Relaxed) {
        true => Err(NetError::Interrupted { doing: "measuring a disk" }),
        false => Ok(()),
    });
    if args.json {
        let mut report = report::begin();
        report["disk"] = rows.iter().map(document).collect();
        report::ending(&mut report, &ended);
        say!("{report:#}");
    }
    match ended {
        Err(NetError::Interrupted { .. }) => Ok(130),
        ended => ended.map(|()| 0),
    }
}

/// Measures every row. Results up to an error or an interruption stay in `rows`.
fn every_row(args: &DiskArgs, stop: &AtomicBool, rows: &mut Vec<Row>) -> Result<()> {
    let first = TestFile::new(&args.dir.join("standfast-net-1.tmp"))?;
    let second = TestFile::new(&args.second_dir.as_ref().unwrap_or(&args.dir).join("standfast-net-2.tmp"))?;
    let members = [first.ring()?, second.ring()?];
    let sizes = if args.length.is_empty() { &SIZES[..] } else { &args.length };
    if !args.json {
        say!(
            "{:>10} {:>7} {:>10} {:>8} {:>8} {:>8} {:>8}  ms",
            "write",
            "members",
            "MiB/s",
            "mean",
            "p50",
            "p99",
            "max"
        );
    }
    let tests = (sizes.len() * members.len()) as u32;
    let progress = Progress::begin(Some(args.duration.saturating_mul(tests)));
    for length in sizes {
        for count in 1..=members.len() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            progress.doing(|| format!("writes of {}, members: {count}", classic_size((*length).into())));
            let Some(row) = measure(&members[..count], *length, args, stop)? else { continue };
            if !args.json {
                print(&row);
            }
            rows.push(row);
        }
    }
    Ok(())
}

fn rate(row: &Row) -> f64 {
    row.count as f64 * f64::from(row.length) / row.seconds.max(1e-9)
}

fn print(row: &Row) {
    let millis = [row.spread.mean, row.spread.p50, row.spread.p99, row.spread.max]
        .map(|seconds| format!("{:>8.3}", seconds * 1e3));
    let rate = rate(row) / 1_048_576.0;
    say!("{:>10} {:>7} {rate:>10.1} {}", classic_size(row.length.into()), row.members, millis.join(" "));
}

fn document(row: &Row) -> serde_json::Value {
    json!({
        "length": row.length,
        "members": row.members,
        "writes": row.count,
        "bytes_per_second": rate(row),
        "latency": row.spread,
    })
}

/// Measures one write after the other, each to all members at the same time; it ends with the slowest. None without a
/// write.
fn measure(members: &[Arc<Ring>], length: u32, args: &DiskArgs, stop: &AtomicBool) -> Result<Option<Row>> {
    let mut latencies = Latencies::default();
    let began = Instant::now();
    let buffer = AlignedBuf::new(length as usize);
    let failed =
        |error| NetError::system(format!("a write of {} failed", readable_size(length.into())), error);
    std::thread::scope(|scope| {
        let (results, result) = mpsc::channel();
        let others: Vec<_> = members[1..]
            .iter()
            .map(|ring| {
                let (go, begun) = mpsc::channel::<()>();
                let (results, buffer) = (results.clone(), &buffer);
                scope.spawn(move || {
                    while begun.recv().is_ok() {
                        if results.send(ring.write(buffer)).is_err() {
                            break;
                        }
                    }
                });
                go
            })
            .collect();
        while began.elapsed() < args.duration && !stop.load(Ordering::Relaxed) {
            let write = Instant::now();
            for go in &others {
                let _ = go.send(());
            }
            members[0].write(&buffer).map_err(failed)?;
            for _ in &others {
                // The other thread answers every time: it ends only when `others` is dropped.
                if let Ok(written) = result.recv() {
                    written.map_err(failed)?;
                }
            }
            let nanos = write.elapsed().as_nanos() as u64;
            latencies.record(nanos, nanos, 0);
            pause(args.delay, stop);
        }
        Ok(())
    })?;
    Ok(latencies.figures().map(|figures| Row {
        length,
        members: members.len(),
        seconds: began.elapsed().as_secs_f64(),
        spread: figures.total,
        count: figures.count,
    }))
}

/// Sleeps in slices, so that an interruption is noticed.
fn pause(time: Duration, stop: &AtomicBool) {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(left.min(SLICE));
    }
}
