//! Limits of the disk and the loopback alone, to compare figures with.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use standfast_io::{AlignedBuf, DirectDisk, Disk, LogFile};

use crate::driver::WorkerCommand;
use crate::error::During;
use crate::process::{Process, Scratch};
use crate::statistics::Latencies;
use crate::{BenchError, Context, Result, interrupt};

/// Size of a large write of the log writer.
pub const LARGE_WRITE: usize = 1 << 20;
/// Size of the write of a single commit.
pub const SMALL_WRITE: usize = 4096;
/// Bytes of a TCP message: the page images of a commit, as earlier systems ship them.
pub const MESSAGE: usize = 8192;
/// Preallocated and zeroed bytes of a test file; writes wrap around at its end.
const FILE_BYTES: u64 = 256 << 20;

/// Limits of this machine. Times are medians.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RawLimits {
    /// One durable write of 4 KiB alone, in microseconds.
    pub small_write_us: f64,
    /// Two parallel durable writes of 4 KiB to two files, until both are done, in microseconds.
    pub two_writes_us: f64,
    /// Successive durable writes of 1 MiB, in bytes per second.
    pub large_write_rate: f64,
    /// A message of 8 KiB to another process and back, in microseconds.
    pub ping_pong_us: f64,
}

/// Measures all limits, a quarter of `time` each.
pub fn measure(context: &Context, time: Duration) -> Result<RawLimits> {
    let scratch = Scratch::new(&context.base)?;
    let each = time / 4;
    Ok(RawLimits {
        small_write_us: small_writes(scratch.path(), each)?,
        two_writes_us: two_writes(scratch.path(), each)?,
        large_write_rate: large_writes(scratch.path(), each)?,
        ping_pong_us: ping_pong(&context.worker, each)?,
    })
}

struct TestFile {
    file: std::sync::Arc<dyn LogFile>,
    buffer: AlignedBuf,
    offset: u64,
    bytes: u64,
}

impl TestFile {
    fn create(directory: &Path, name: &str, bytes: u64, write: usize) -> Result<TestFile> {
        let path = directory.join(name);
        let file = DirectDisk.create(&path, bytes).during(|| format!("create {}", path.display()))?;
        let mut buffer = AlignedBuf::new(write);
        // Not zeros: a device may skip storing those.
        buffer.iter_mut().enumerate().for_each(|(nth, byte)| *byte = (nth * 31) as u8);
        Ok(TestFile { file, buffer, offset: 0, bytes })
    }

    fn write(&mut self) -> Result<()> {
        self.file.write_durable(&self.buffer, self.offset).during(|| "write durably".into())?;
        self.offset = (self.offset + self.buffer.len() as u64) % self.bytes;
        Ok(())
    }
}

/// Median microseconds of a durable write of 4 KiB.
pub fn small_writes(directory: &Path, time: Duration) -> Result<f64> {
    Ok(small_write_latencies(directory, time)?.percentile_us(50.0))
}

/// Returns the longest of the successive durable writes of 4 KiB within `time`, in milliseconds.
pub fn longest_small_write(context: &Context, time: Duration) -> Result<f64> {
    let scratch = Scratch::new(&context.base)?;
    Ok(small_write_latencies(scratch.path(), time)?.summary().max_us / 1e3)
}

fn small_write_latencies(directory: &Path, time: Duration) -> Result<Latencies> {
    let mut file = TestFile::create(directory, "small", 16 << 20, SMALL_WRITE)?;
    let mut latencies = Latencies::default();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let start = Instant::now();
        file.write()?;
        latencies.record(start.elapsed().as_nanos() as u64);
        interrupt::check()?;
    }
    Ok(latencies)
}

/// Bytes per second of durable writes of 1 MiB by one thread into a preallocated file.
pub fn large_writes(directory: &Path, time: Duration) -> Result<f64> {
    let mut file = TestFile::create(directory, "large", FILE_BYTES, LARGE_WRITE)?;
    let (start, mut bytes) = (Instant::now(), 0u64);
    while start.elapsed() < time {
        file.write()?;
        bytes += LARGE_WRITE as u64;
    }
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}

/// Barrier of two threads. They spin, because a wake from sleep would count as disk time.
#[derive(Default)]
struct Meeting(AtomicU64);

impl Meeting {
    /// Returns when the other thread has arrived as often as this one; `met` counts the arrivals of this thread.
    fn attend(&self, met: &mut u64) {
        *met += 1;
        self.0.fetch_add(1, Ordering::AcqRel);
        let mut turns = 0;
        while self.0.load(Ordering::Acquire) < 2 * *met {
            turns += 1;
            // The other thread may have no processor: yield this one after about ten microseconds.
            if turns < 1000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

/// Median microseconds until two durable writes of 4 KiB, started together on two files, are both done.
pub fn two_writes(directory: &Path, time: Duration) -> Result<f64> {
    let files = [0, 1].map(|nth| TestFile::create(directory, &format!("pair{nth}"), 16 << 20, SMALL_WRITE));
    let (meeting, stop) = (Meeting::default(), AtomicBool::new(false));
    let end = Instant::now() + time;
    let work = |file: Result<TestFile>| -> Result<Vec<(Instant, Instant)>> {
        let (mut spans, mut met) = (Vec::new(), 0);
        let mut outcome = Ok(());
        let mut file = file.map_err(|error| outcome = Err(error)).ok();
        loop {
            if outcome.is_err() || Instant::now() >= end {
                stop.store(true, Ordering::Release);
            }
            meeting.attend(&mut met);
            // Both threads read the same value: it is only set before the first meeting, and the second one follows the
            // read.
            let stopping = stop.load(Ordering::Acquire);
            meeting.attend(&mut met);
            let Some(file) = file.as_mut().filter(|_| !stopping) else {
                return outcome.map(|()| spans);
            };
            let start = Instant::now();
            outcome = file.write();
            spans.push((start, Instant::now()));
        }
    };
    let [first, second] = files;
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(|| work(second));
        let one = work(first);
        (one, other.join())
    });
    let two = two.map_err(|_| BenchError::Workload("a writing thread panicked".into()))?;
    let mut latencies = Latencies::default();
    for (a, b) in one?.into_iter().zip(two?) {
        latencies.record((a.1.max(b.1) - a.0.min(b.0)).as_nanos() as u64);
    }
    Ok(latencies.percentile_us(50.0))
}

/// Median microseconds of a message of 8 KiB over TCP to a process on this machine and back.
pub fn ping_pong(worker: &WorkerCommand, time: Duration) -> Result<f64> {
    let during = || "TCP ping-pong".to_owned();
    let mut process = Process::start(worker.role("echo"), None, libc::SIGKILL)?;
    let Some(output) = process.child().stdout.take() else { return Err(process.failed("has no output")) };
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).during(during)?;
    interrupt::check()?;
    let port: u16 = line.trim().parse().map_err(|_| process.failed("wrote no port number"))?;
    let mut peer = TcpStream::connect(("127.0.0.1", port)).during(during)?;
    peer.set_nodelay(true).during(during)?;
    let mut message = vec![7; MESSAGE];
    let mut latencies = Latencies::default();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let start = Instant::now();
        peer.write_all(&message).and_then(|()| peer.read_exact(&mut message)).during(during)?;
        latencies.record(start.elapsed().as_nanos() as u64);
    }
    Ok(latencies.percentile_us(50.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_gives_plausible_limits() {
        let scratch = Scratch::new(Path::new("/var/tmp")).unwrap();
        let time = Duration::from_millis(50);
        let small = small_writes(scratch.path(), time).unwrap();
        let pair = two_writes(scratch.path(), time).unwrap();
        assert!(small > 1.0 && pair > 1.0, "{small} {pair}");
    }

    #[test]
    fn unwritable_directory_is_an_error_and_not_a_hang() {
        assert!(two_writes(Path::new("/nonexistent"), Duration::from_millis(10)).is_err());
    }
}
